"""Section 5.2 of the paper: classifiers of texts, and texts that should be alike."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif.baselines import Auditor, SenSeIRegularizer
from pyg_glif.datasets import Bios, Toxicity
from pyg_glif.distances import FairDistance
from pyg_glif.experiments.clock import Clock
from pyg_glif.experiments.paper import METHODS
from pyg_glif.experiments.records import Record, Run, Setting
from pyg_glif.experiments.runtimes import measure_runtimes
from pyg_glif.experiments.texts import Texts
from pyg_glif.experiments.training import Recipe, fit, logits_of, same_numbers
from pyg_glif.experiments.versions import versions
from pyg_glif.graph import fair_radius_graph
from pyg_glif.lightning import MLP, FairClassifier
from pyg_glif.metric_learning import FACE
from pyg_glif.path import glif_path
from pyg_glif.postprocessor import GLIFPostProcessor
from pyg_glif.tuning import tune
from pyg_glif.typing import Normalization

_RECIPE = Recipe(hidden_channels=2000, num_steps=150, lr=1e-3, batch_size=500)


@dataclass(frozen=True)
class TextConfig:
    r"""Settings of an experiment on texts.

    Args:
        dataset (str): ``"bios"`` or ``"toxicity"``.
        source (str): ``"text"`` or ``"embeddings"``, see the data sets.
        options (dict): More arguments of the data set, such as ``limit``.
        recipe (Recipe): How the head on the embeddings is trained.
        num_factors (int): Dimension of the sensitive subspace that FACE learns.
        theta (float): Decay of the weights.
        lams (tuple of float): Strengths that are tried.
        taus (tuple of float): Radii that are tried.
        curve_lam (float): The strength along which trade-offs are drawn.
        max_loss (float): Balanced accuracy that may be lost on validation data.
        penalties (tuple of float): Weights of the Laplacian loss in training.
        penalty_tau (float): Radius of its graph.
        num_unlabelled (int): Counterfactuals of training texts in each of its batches.
        rhos (tuple of float): Weights of SenSeI's regulariser.
        auditor_steps (int): Steps of its auditor, in the sensitive subspace and then
            in all directions.
        shares (tuple of float): Parts of the test set whose runtimes are measured.
    """

    dataset: str
    source: str = "text"
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = _RECIPE
    num_factors: int = 25
    theta: float = 1e-4
    lams: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    taus: tuple[float, ...] = ()
    curve_lam: float = 1.0
    max_loss: float = 0.02
    penalties: tuple[float, ...] = (0.1, 1.0)
    penalty_tau: float = 0.3
    num_unlabelled: int = 500
    rhos: tuple[float, ...] = (0.03, 0.3)
    auditor_steps: int = 2
    shares: tuple[float, ...] = (0.01, 0.1, 1.0)


@same_numbers()
def run_text(seed: int, config: TextConfig, *, progress: bool | None = None) -> Run:
    """One seed: every method on one split, hyperparameters from validation texts.

    Networks are trained twice: without validation texts, to choose, and with them, to
    be judged on test texts. Runs on one thread and in float32, so that on one machine
    the same seed gives the same numbers.

    Args:
        seed (int): Of the split, the network and the batches.
        config (TextConfig): Settings.
        progress (bool, optional): Whether to show progress bars; :obj:`None` shows
            them on a terminal. (default: :obj:`None`)
    """
    clock = Clock()
    with clock("Data"):
        task = _Task.of(config, seed, progress)
    with clock("Baseline"):
        val, test = task.train(partial(FairClassifier, lr=config.recipe.lr))
    records = [Record("Baseline", {}, task.test.measure(test), chosen=True)]
    chosen: dict[str, Setting] = {}
    for method, normalization in METHODS.items():
        with clock(method):
            chosen[method] = task.choose(val, normalization, config.max_loss)
            records += task.smoothed(test, method, normalization, chosen[method])
    with clock("In-processing"):
        found, best = task.trained("In-processing", task.penalized(), val)
        records += [*found, task.combined(*best, val)]
    with clock("SenSeI"):
        found, _ = task.trained("SenSeI", task.robust(), val)
        records += found
    with clock("Newcomers"):
        records.append(task.newcomers(test, chosen["GLIF"]))
    seconds = measure_runtimes(
        task.test.x, test, task.distance, chosen["GLIF"], config.shares, seed
    )
    return Run(
        experiment=config.dataset,
        variant=config.source,
        seed=seed,
        config=asdict(config),
        records=tuple(records),
        extras={"counts": task.counts},
        seconds=clock.seconds | seconds,
        versions=versions(),
    )


@dataclass(frozen=True, eq=False)
class _Task:
    """What every method works on."""

    config: TextConfig
    training: Data
    refitting: Data
    distance: FairDistance
    val: Texts
    test: Texts
    test_graph: tuple[Tensor, Tensor]
    counts: Mapping[str, int]
    seed: int
    progress: bool | None

    @classmethod
    def of(cls, config: TextConfig, seed: int, progress: bool | None) -> "_Task":
        """Reads the data, and learns the fair distance from training texts."""
        options = {"source": config.source, "seed": seed, "progress": progress}
        kind = {"bios": Bios, "toxicity": Toxicity}[config.dataset]
        dataset = kind(**options, **config.options)
        data = dataset[0]
        face_x = dataset.face_x  # encoded at every access
        distance = FACE(num_factors=config.num_factors).fit(face_x, dataset.face_group)
        known = data.train_mask | data.val_mask & data.original
        val, test = Texts.of(data, data.val_mask), Texts.of(data, data.test_mask)
        counts = {
            "training texts": int(data.train_mask.sum()),
            "rows of FACE": len(face_x),
            "validation rows": len(val.x),
            "test texts": int(test.original.sum()),
            "test rows": len(test.x),
        }
        return cls(
            config=config,
            training=_with_unlabelled(data, data.train_mask, face_x),
            refitting=_with_unlabelled(data, known, face_x),
            distance=distance,
            val=val,
            test=test,
            test_graph=fair_radius_graph(
                test.x, max(config.taus), distance=distance, progress=progress
            ),
            counts=counts,
            seed=seed,
            progress=progress,
        )

    def train(
        self, make: Callable[[MLP], FairClassifier], num_unlabelled: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Logits of validation and of test rows.

        The former are of a network that saw training texts only; they decide on
        hyperparameters. The latter are of one that was then trained on both.
        """
        recipe, found = self.config.recipe, []
        for data, rows in ((self.training, self.val), (self.refitting, self.test)):
            network = recipe.network(data.num_features, rows.num_classes, self.seed)
            classifier = fit(
                make(network),
                data,
                recipe,
                self.seed,
                num_unlabelled=num_unlabelled,
                progress=self.progress,
            )
            found.append(logits_of(classifier, rows.x))
        val, test = found
        return val, test

    def choose(
        self, logits: Tensor, normalization: Normalization, max_loss: float
    ) -> Setting:
        """Radius and strength that serve validation texts best."""
        found = tune(
            self.val.x,
            logits,
            score=self.val.balanced_accuracy,
            unfairness=self.val.inconsistency,
            taus=self.config.taus,
            lams=self.config.lams,
            max_loss=max_loss,
            distance=self.distance,
            theta=self.config.theta,
            normalization=normalization,
            progress=self.progress,
        )
        return {"tau": found.best.tau, "lam": found.best.lam}

    def smoothed(
        self,
        logits: Tensor,
        method: str,
        normalization: Normalization,
        chosen: Setting,
    ) -> Iterator[Record]:
        """A GLIF variant on the test rows: the whole grid, what was chosen marked."""
        if chosen["lam"] == 0:  # nothing was worth its price on validation texts
            yield Record(method, chosen, self.test.measure(logits), chosen=True)
        path = glif_path(
            logits,
            *self.test_graph,
            lams=self.config.lams,
            taus=self.config.taus,
            theta=self.config.theta,
            normalization=normalization,
            progress=self.progress,
        )
        for point in path:
            setting = {"tau": point.tau, "lam": point.lam}
            metrics = self.test.measure(point.value)
            yield Record(method, setting, metrics, point.status.name, setting == chosen)

    def penalized(self) -> Iterator[tuple[Setting, tuple[Tensor, Tensor]]]:
        """The Laplacian penalty in training, counterfactuals without labels added."""
        for penalty in self.config.penalties:
            make = partial(
                FairClassifier,
                lr=self.config.recipe.lr,
                lam=penalty,
                distance=self.distance,
                tau=self.config.penalty_tau,
                theta=self.config.theta,
            )
            yield {"lam": penalty}, self.train(make, self.config.num_unlabelled)

    def robust(self) -> Iterator[tuple[Setting, tuple[Tensor, Tensor]]]:
        """SenSeI, on texts as written: its auditor finds the sensitive changes."""
        for rho in self.config.rhos:
            steps = self.config.auditor_steps
            auditor = Auditor(num_subspace_steps=steps, num_full_steps=steps)
            term = SenSeIRegularizer(self.distance, rho=rho, auditor=auditor)
            make = partial(FairClassifier, lr=self.config.recipe.lr, term=term)
            yield {"rho": rho}, self.train(make)

    def trained(
        self,
        method: str,
        tried: Iterator[tuple[Setting, tuple[Tensor, Tensor]]],
        baseline: Tensor,
    ) -> tuple[list[Record], tuple[Tensor, Tensor]]:
        """Trained settings on the test rows, and the logits of the chosen one."""
        floor = self.val.balanced_accuracy(baseline) - self.config.max_loss
        found = [(setting, *logits) for setting, logits in tried]
        usable = [f for f in found if self.val.balanced_accuracy(f[1]) >= floor]
        best = min(usable or found, key=lambda f: self.val.inconsistency(f[1]))
        records = [
            Record(method, setting, self.test.measure(test), chosen=val is best[1])
            for setting, val, test in found
        ]
        return records, best[1:]

    def combined(self, val: Tensor, test: Tensor, baseline: Tensor) -> Record:
        """GLIF on top of a network that was trained with the penalty."""
        spent = self.val.balanced_accuracy(baseline) - self.val.balanced_accuracy(val)
        chosen = self.choose(val, None, max(0.0, self.config.max_loss - spent))
        fair = self.post_processor(chosen).fit_transform(self.test.x, test)
        metrics = self.test.measure(fair)
        return Record("In-processing + GLIF", chosen, metrics, chosen=True)

    def newcomers(self, logits: Tensor, chosen: Setting) -> Record:
        """GLIF where every second test row, at random, arrives after the fit."""
        generator = torch.Generator().manual_seed(self.seed)
        late = torch.zeros(len(logits), dtype=torch.bool)
        order = torch.randperm(len(logits), generator=generator)
        late[order[: len(logits) // 2]] = True
        post, value = self.post_processor(chosen), logits.clone()
        value[~late] = post.fit_transform(self.test.x[~late], logits[~late])
        value[late] = post.transform(self.test.x[late], logits[late])
        metrics = self.test.measure(value)
        return Record("GLIF, half arrive later", chosen, metrics, chosen=True)

    def post_processor(self, chosen: Setting) -> GLIFPostProcessor:
        """GLIF at a chosen radius and strength."""
        return GLIFPostProcessor(
            distance=self.distance,
            tau=chosen["tau"],
            lam=chosen["lam"],
            theta=self.config.theta,
        )


def _with_unlabelled(data: Data, mask: Tensor, extra: Tensor) -> Data:
    """The rows of a mask, and more rows without a label."""
    x, y = data.x[mask], data.y[mask]
    nobody = y.new_full((len(extra),), -1)
    return Data(x=torch.cat([x, extra]), y=torch.cat([y, nobody]))
