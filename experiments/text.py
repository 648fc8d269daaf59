"""Section 5.2 of the paper: classifiers of texts, and texts that should be alike.

Settings, trial and report of both experiments on texts: what one changes the others
must know.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torchmetrics.functional.classification import multiclass_accuracy

import experiments._plots as plots
from experiments._paper import METHODS, TABLES
from experiments._runtimes import measure_runtimes, runtimes_table
from experiments.datasets import Bios, Toxicity
from experiments.experiment import Experiment, Method, Trial
from experiments.records import (
    Record,
    Run,
    Runtime,
    Setting,
    Summary,
    summarize,
    summarize_chosen,
)
from experiments.report import Report, ResultTable, seeds_note
from experiments.training import (
    Make,
    Recipe,
    for_accuracy,
    with_penalty,
    with_sensei,
)
from pyg_glif.distances import FairDistance
from pyg_glif.errors import SimilarityWarning
from pyg_glif.graph import SimilarityGraph
from pyg_glif.metric_learning import FACE, TaskEffect
from pyg_glif.metrics import prediction_consistency
from pyg_glif.model_selection import TunePoint, tune
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.typing import Normalization

_DATASETS = {"bios": Bios, "toxicity": Toxicity}
_COLUMNS = {
    "balanced_accuracy": "balanced accuracy",
    "consistency": "prediction consistency",
}
_SHOWN = 0.06  # loss of balanced accuracy that the trade-off plot shows
_WITH_TASK = "GLIF + task effect"
_FRONT = (0.1, 0.3, 0.5, 0.7, 1.0)  # squared radii of the table with and without it
# Radius and strength for all seeds: the published ones on the authors' embeddings.
_FIXED = {
    "bios": {"text": (0.1**0.5, 10.0), "embeddings": (4.0, 10.0)},
    "toxicity": {"text": (0.4**0.5, 1.0), "embeddings": (0.4**0.5, 30.0)},
}
# What changes on the authors' embeddings: settings of the paper and of its scripts.
_PUBLISHED: dict[str, dict[str, Any]] = {
    "bios": {
        "taus": tuple(sq_tau**0.5 for sq_tau in (4.0, 8.0, 12.0, 16.0, 20.0, 30.0)),
        "lams": (1.0, 10.0, 30.0),
        "curve_lam": 10.0,
        "penalty_tau": 4.0,
        "recipe": Recipe(hidden_channels=2000, num_steps=10_000, lr=1e-5),
    },
    "toxicity": {
        "taus": tuple(sq_tau**0.5 for sq_tau in (0.1, 0.2, 0.3, 0.4, 0.6, 1.0)),
        "lams": (1.0, 10.0, 30.0),
        "curve_lam": 30.0,
        "penalty_tau": 0.4**0.5,
        "recipe": Recipe(hidden_channels=2000, num_steps=10_000, lr=1e-3),
    },
}
_RECIPE = Recipe(hidden_channels=2000, num_steps=150, lr=1e-3, batch_size=500)


@dataclass(frozen=True)
class TextConfig:
    r"""Settings of an experiment on texts.

    Args:
        dataset (str): ``"bios"`` or ``"toxicity"``.
        variant (str): ``"text"`` or ``"embeddings"``, the ``source`` of the data sets.
        options (dict): More arguments of the data set, such as ``limit``.
        recipe (Recipe): How the head on the embeddings is trained.
        num_factors (int): Dimension of the sensitive subspace that FACE learns.
        theta (float): Decay of the weights.
        lams (tuple of float): Strengths that are tried.
        taus (tuple of float): Radii that are tried.
        curve_lam (float): The strength along which trade-offs are drawn.
        max_loss (float): Balanced accuracy that may be lost on validation data.
        weights (tuple of float): Weights of the task's coordinates that are tried.
        penalties (tuple of float): Weights of the Laplacian loss in training.
        penalty_tau (float): Radius of its graph.
        num_unlabelled (int): Counterfactuals of training texts in each of its batches.
        rhos (tuple of float): Weights of SenSeI's regulariser.
        auditor_steps (int): Steps of its auditor, in the sensitive subspace and then
            in all directions.
        shares (tuple of float): Parts of the test set whose runtimes are measured.
    """

    dataset: str
    variant: str = "text"
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = _RECIPE
    num_factors: int = 25
    theta: float = 1e-4
    lams: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    taus: tuple[float, ...] = ()
    curve_lam: float = 1.0
    max_loss: float = 0.02
    weights: tuple[float, ...] = (0.1, 0.3, 1.0)
    penalties: tuple[float, ...] = (0.1, 1.0)
    penalty_tau: float = 0.3
    num_unlabelled: int = 500
    rhos: tuple[float, ...] = (0.03, 0.3)
    auditor_steps: int = 2
    shares: tuple[float, ...] = (0.01, 0.1, 1.0)


@dataclass(frozen=True, eq=False)
class JudgedTexts:
    """Validation or test rows: texts as written, and altered.

    Args:
        x (torch.Tensor): Embeddings.
        y (torch.Tensor): Class of each row.
        group (torch.Tensor): One number for a text and its alterations.
        original (torch.Tensor): Which rows are texts as written.
        num_classes (int): Number of classes.
    """

    x: Tensor
    y: Tensor
    group: Tensor
    original: Tensor
    num_classes: int

    @classmethod
    def of(cls, data: Data, mask: Tensor) -> "JudgedTexts":
        """The rows of a split."""
        return cls(
            x=data.x[mask],
            y=data.y[mask],
            group=data.group[mask],
            original=data.original[mask],
            num_classes=int(data.y.max()) + 1,
        )

    def balanced_accuracy(self, logits: Tensor) -> float:
        """Mean over the classes of the share of texts, as written, that are right."""
        found = multiclass_accuracy(
            logits[self.original],
            self.y[self.original],
            num_classes=self.num_classes,
            average="macro",
        )
        return float(found)

    def inconsistency(self, logits: Tensor) -> float:
        """Share of altered texts that are not all given one class."""
        return 1.0 - float(prediction_consistency(logits, self.group))

    def measure(self, logits: Tensor) -> dict[str, float]:
        """Balanced accuracy and consistency; NaN where there is no solution."""
        if logits.isnan().any():
            return {"balanced_accuracy": math.nan, "consistency": math.nan}
        return {
            "balanced_accuracy": self.balanced_accuracy(logits),
            "consistency": 1.0 - self.inconsistency(logits),
        }


class TextTrial(Trial):
    """Every method on one split, hyperparameters from validation texts.

    Networks are trained twice: without validation texts, to choose, and with them, to
    be judged on test texts.

    Args:
        config (TextConfig): Settings.
        seed (int): Of the split, the network and the batches.
        progress (bool, optional): Whether to show progress bars.
    """

    def __init__(
        self, config: TextConfig, seed: int, progress: bool | None = None
    ) -> None:
        options = {"source": config.variant, "seed": seed, "progress": progress}
        dataset = _DATASETS[config.dataset](**options, **config.options)
        data = dataset[0]
        face_x = dataset.face_x  # encoded at every access
        distance = FACE(num_factors=config.num_factors).fit(face_x, dataset.face_group)
        self.config = config
        self.val = JudgedTexts.of(data, data.val_mask)
        self.test = JudgedTexts.of(data, data.test_mask)
        # Counterfactuals of training texts follow without a label, for the penalty.
        known = data.train_mask | data.val_mask & data.original
        self._training = _with_unlabelled(data, data.train_mask, face_x)
        self._refitting = _with_unlabelled(data, known, face_x)
        self._counts = {
            "training texts": int(data.train_mask.sum()),
            "rows of FACE": len(face_x),
            "validation rows": len(self.val.x),
            "test texts": int(self.test.original.sum()),
            "test rows": len(self.test.x),
        }
        #: Radius and strength of each GLIF variant, once it has run.
        self.chosen: dict[str, Setting] = {}
        graph = SimilarityGraph.search(
            self.test.x, max(config.taus), distance=distance, progress=progress
        )
        super().__init__(seed, config.theta, distance, graph, progress)

    def methods(self) -> Mapping[str, Method]:
        """As in tables 1 and 2 of the paper, and what combines them."""
        return {
            "Baseline": self.baseline,
            **{
                name: partial(self.smoothed, name, kind)
                for name, kind in METHODS.items()
            },
            _WITH_TASK: self.with_task,
            "In-processing": self.penalized,
            "SenSeI": self.robust,
            "Newcomers": self.newcomers,
        }

    def measure(self, outputs: Tensor) -> dict[str, float]:  # [N, C]
        """Balanced accuracy and consistency of test texts."""
        return self.test.measure(outputs)

    def extras(self) -> dict[str, Any]:
        """How many texts there are of which kind."""
        return {"counts": self._counts}

    def runtimes(self) -> Iterable[Runtime]:
        """Table 3 of the paper on test texts, at the setting chosen for GLIF."""
        _, outputs = self.logits
        setting, shares = self.chosen["GLIF"], self.config.shares
        return measure_runtimes(
            self.test.x, outputs, self.distance, setting, shares, self.seed
        )

    def train(self, make: Make, num_unlabelled: int = 0) -> tuple[Tensor, Tensor]:
        """Logits of validation and of test rows.

        The former are of a network that saw training texts only; they decide on
        hyperparameters. The latter are of one that was then trained on both.
        """
        val, test = (
            self.config.recipe.outputs(
                make,
                data,
                rows.x,
                self.seed,
                num_classes=rows.num_classes,
                num_unlabelled=num_unlabelled,
                progress=self.progress,
            )
            for data, rows in (
                (self._training, self.val),
                (self._refitting, self.test),
            )
        )
        return val, test

    @cached_property
    def logits(self) -> tuple[Tensor, Tensor]:
        """What the network says that all post-processing starts from."""
        return self.train(for_accuracy(self.config.recipe.lr))

    def baseline(self) -> Iterable[Record]:
        """The network itself."""
        yield Record("Baseline", {}, self.measure(self.logits[1]), chosen=True)

    def choose(
        self,
        logits: Tensor,
        normalization: Normalization,
        max_loss: float,
        distances: Mapping[float, FairDistance] | None = None,
    ) -> TunePoint:
        """Radius and strength, and which distance, that serve validation texts best."""
        found = tune(
            self.val.x,
            logits,
            score=self.val.balanced_accuracy,
            unfairness=self.val.inconsistency,
            taus=self.config.taus,
            lams=self.config.lams,
            max_loss=max_loss,
            distance=self.distance if distances is None else None,
            distances=distances,
            cv=None,
            theta=self.config.theta,
            normalization=normalization,
            progress=self.progress,
        )
        return found.best

    def smoothed(self, name: str, normalization: Normalization) -> Iterable[Record]:
        """A GLIF variant on the test rows: the whole grid, what was chosen marked."""
        config, (val, test) = self.config, self.logits
        chosen = _setting(self.choose(val, normalization, config.max_loss))
        self.chosen[name] = chosen
        if chosen["lam"] == 0:  # nothing was worth its price on validation texts
            yield Record(name, chosen, self.measure(test), chosen=True)
        yield from self.sweep(
            name, normalization, test, config.lams, config.taus, chosen
        )

    def with_task(self) -> Iterable[Record]:
        """GLIF where what a text means for the task counts too.

        The front of every weight, and the whole grid of the weight that was chosen.
        """
        config, (val, test) = self.config, self.logits
        tried = _task_effect(self.distance, self._training, config.weights)
        best = self.choose(val, None, config.max_loss, tried)
        weight = config.weights[0] if best.distance is None else best.distance
        chosen = {"weight": weight, **_setting(best)}
        self.chosen[_WITH_TASK] = chosen
        if chosen["lam"] == 0:
            yield Record(_WITH_TASK, chosen, self.measure(test), chosen=True)
        refitted = _task_effect(self.distance, self._refitting, config.weights)
        for weight, distance in refitted.items():
            graph = SimilarityGraph.search(
                self.test.x, max(config.taus), distance=distance, progress=self.progress
            )
            lams = config.lams if weight == chosen["weight"] else (config.curve_lam,)
            yield from self.sweep(
                _WITH_TASK, None, test, lams, config.taus, chosen, graph=graph,
                more={"weight": weight},
            )  # fmt: skip

    def penalized(self) -> Iterable[Record]:
        """The Laplacian penalty in training; then GLIF on top of the best of it."""
        config, baseline = self.config, self.logits[0]
        lr, tau = config.recipe.lr, config.penalty_tau
        tried = [
            ({"lam": lam}, with_penalty(lr, lam, self.distance, tau, config.theta))
            for lam in config.penalties
        ]
        records, (val, test) = self._best("In-processing", tried, config.num_unlabelled)
        spent = self.val.balanced_accuracy(baseline) - self.val.balanced_accuracy(val)
        chosen = _setting(self.choose(val, None, max(0.0, config.max_loss - spent)))
        fair = self.post_processor(chosen).fit_transform(self.test.x, test)
        combined = Record(
            "In-processing + GLIF", chosen, self.measure(fair), chosen=True
        )
        return [*records, combined]

    def robust(self) -> Iterable[Record]:
        """SenSeI, on texts as written: its auditor finds the sensitive changes."""
        lr, steps = self.config.recipe.lr, self.config.auditor_steps
        tried = [
            ({"rho": rho}, with_sensei(lr, rho, self.distance, steps))
            for rho in self.config.rhos
        ]
        return self._best("SenSeI", tried)[0]

    def _best(
        self,
        name: str,
        tried: Sequence[tuple[Setting, Make]],
        num_unlabelled: int = 0,
    ) -> tuple[list[Record], tuple[Tensor, Tensor]]:
        """Trains all settings; their records, and the logits of the chosen one."""
        accuracy = self.val.balanced_accuracy
        floor = accuracy(self.logits[0]) - self.config.max_loss
        found = [
            (setting, *self.train(make, num_unlabelled)) for setting, make in tried
        ]
        usable = [item for item in found if accuracy(item[1]) >= floor]
        best = min(usable or found, key=lambda item: self.val.inconsistency(item[1]))
        records = [
            Record(name, setting, self.measure(test), chosen=val is best[1])
            for setting, val, test in found
        ]
        return records, best[1:]

    def newcomers(self) -> Iterable[Record]:
        """GLIF where every second test row, at random, arrives after the fit."""
        logits, chosen = self.logits[1], self.chosen["GLIF"]
        generator = torch.Generator().manual_seed(self.seed)
        late = torch.zeros(len(logits), dtype=torch.bool)
        order = torch.randperm(len(logits), generator=generator)
        late[order[: len(logits) // 2]] = True
        post, value = self.post_processor(chosen), logits.clone()
        value[~late] = post.fit_transform(self.test.x[~late], logits[~late])
        with warnings.catch_warnings():
            # Many are like nobody but their counterfactual, who may come late as well.
            warnings.simplefilter("ignore", SimilarityWarning)
            value[late] = post.transform(self.test.x[late], logits[late])
        metrics = self.measure(value)
        yield Record("GLIF, half arrive later", chosen, metrics, chosen=True)

    def post_processor(self, chosen: Setting) -> GLIFPostProcessor:
        """GLIF at a chosen radius and strength."""
        return GLIFPostProcessor(
            distance=self.distance,
            tau=chosen["tau"],
            lam=chosen["lam"],
            theta=self.config.theta,
        )


class TextExperiment(Experiment):
    r"""Table 1 or 2, and one panel of Figure 3, of the paper.

    Args:
        config (TextConfig): Settings.
    """

    takes_limit = True
    config: TextConfig

    def __init__(self, config: TextConfig) -> None:
        super().__init__(config)
        self.name = config.dataset

    def prepare(self, seed: int, progress: bool | None = None) -> TextTrial:
        """Reads the data, and learns the fair distance from training texts."""
        return TextTrial(self.config, seed, progress)

    def configured(self, variant: str | None, limit: float | None) -> "TextExperiment":
        """The experiment on other data; embeddings bring their settings along."""
        config = self.config
        if variant == "embeddings" != config.variant:
            config = replace(config, variant=variant, **_PUBLISHED[config.dataset])
        elif variant is not None:
            config = replace(config, variant=variant)
        if limit is not None:
            config = replace(config, options={**config.options, "limit": limit})
        return TextExperiment(config)

    def report(self, runs: Sequence[Run]) -> Report:
        """What validation texts chose, and one setting for all seeds."""
        first, chosen = runs[0], summarize_chosen(runs)
        tables = [
            ResultTable(
                "Hyperparameters chosen on validation texts", _COLUMNS, chosen, {}
            )
        ]
        tau, lam = _FIXED[first.experiment][first.variant]
        fixed = [
            row
            for row in summarize(runs)
            if row.method == "Baseline"
            or (row.method in METHODS and row.setting == {"tau": tau, "lam": lam})
        ]
        front = _with_and_without(summarize(runs), first.config)
        if len(fixed) > 1:
            title = "At a fixed setting"
            if len(runs) > 1:
                title = "The same setting for all seeds"
            tables.append(ResultTable(title, _COLUMNS, fixed, {}))
        if front:
            title = "With and without the task effect, along the radius"
            tables.append(ResultTable(title, _COLUMNS, front, {}))
        means = (
            f"{note} Settings are means, too (tau² that of the mean radius)."
            for note in seeds_note(runs)
        )
        notes = (_data_note(first), *means, _published(first.experiment))
        if first.runtimes:
            notes = (*notes, runtimes_table(first))
        return Report(self.name, first.variant, tuple(runs), tuple(tables), notes)

    def draw(self, runs: Sequence[Run]) -> dict[str, Any]:
        """Figure 3 of the paper, and sweeps over the radius."""
        summaries, chosen = summarize(runs), summarize_chosen(runs)
        by_radius = plots.radius_curves(summaries, runs[0].config["curve_lam"])
        shown = [plots.Measure(*column, higher=True) for column in _COLUMNS.items()]
        figure, (axes, *panels) = plots.new_figure("aa;bc", height=7.6)
        edge = chosen[0].mean["balanced_accuracy"] - _SHOWN
        plots.trade_off(axes, by_radius, chosen, *shown, left=edge, spread=False)
        plots.rows(panels, chosen, shown)
        plots.add_legend(figure, [axes])
        with_task = {"GLIF": by_radius["GLIF"], **_by_weight(summaries, runs[0].config)}
        return {
            "figure3": figure,
            "radius": plots.radius_figure(by_radius, shown),
            "task": plots.radius_figure(with_task, shown),
        }


def _setting(point: TunePoint) -> Setting:
    """Radius and strength."""
    return {"tau": point.tau, "lam": point.lam}


def _task_effect(
    distance: FairDistance, data: Data, weights: Iterable[float]
) -> dict[float, FairDistance]:
    """The fair distance with the log-odds of a model of the labelled rows."""
    known = data.y >= 0
    fitted = TaskEffect(distance).fit(data.x[known], data.y[known])
    return {weight: fitted.with_weight(weight) for weight in weights}


def _by_weight(
    summaries: Iterable[Summary], config: Mapping[str, Any]
) -> dict[str, list[Summary]]:
    """Settings along the radius, for each weight of the task."""
    curves: dict[str, list[Summary]] = {}
    for summary in summaries:
        setting = summary.setting
        if summary.method == _WITH_TASK and setting["lam"] == config["curve_lam"]:
            name = f"{_WITH_TASK}, weight {setting['weight']:g}"
            curves.setdefault(name, []).append(summary)
    for points in curves.values():
        points.sort(key=lambda summary: summary.setting["tau"])
    return curves


def _with_and_without(
    summaries: Sequence[Summary], config: Mapping[str, Any]
) -> list[Summary]:
    """GLIF at some radii, and the same with each weight of the task."""
    rows = [
        summary
        for summary in summaries
        if summary.method in ("GLIF", _WITH_TASK)
        and summary.setting["lam"] == config["curve_lam"]
        and any(abs(summary.setting["tau"] ** 2 - sq) < 1e-9 for sq in _FRONT)
    ]
    return sorted(
        rows, key=lambda row: (row.setting.get("weight", 0.0), row.setting["tau"])
    )


def _with_unlabelled(data: Data, mask: Tensor, extra: Tensor) -> Data:
    """The rows of a mask, and more rows without a label."""
    x, y = data.x[mask], data.y[mask]
    nobody = y.new_full((len(extra),), -1)
    return Data(x=torch.cat([x, extra]), y=torch.cat([y, nobody]))


def _data_note(run: Run) -> str:
    """Whose data these are, and how many."""
    counts = ", ".join(f"{n:,} {name}" for name, n in run.extras["counts"].items())
    whose = (
        "A subset of other texts and another encoder, **not the paper's data**: "
        "compare rows with each other, not with the paper."
        if run.variant == "text"
        else "The authors' embeddings."
    )
    return f"{whose} Seed {run.seed} has {counts}."


def _published(experiment: str) -> str:
    """The paper's own table, in a sentence."""
    rows = "; ".join(
        f"{method} {accuracy:.3f} / {consistency:.3f}"
        for method, (accuracy, _, consistency, _) in TABLES[experiment].items()
    )
    return f"The paper reports, on its data (accuracy / consistency): {rows}."


#: The experiments on the data at hand. Radii are roots: the published ones are squared.
BIOS = TextExperiment(
    TextConfig(
        dataset="bios",
        taus=tuple(
            sq_tau**0.5
            for sq_tau in (0.01, 0.02, 0.05, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
        ),
        curve_lam=10.0,
    )
)
#: Longer comments are left out: the encoder would cut them, and their terms with them.
TOXICITY = TextExperiment(
    TextConfig(
        dataset="toxicity",
        options={"max_length": 399},
        taus=tuple(
            sq_tau**0.5
            for sq_tau in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
        ),
        curve_lam=1.0,
    )
)
