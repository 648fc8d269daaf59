"""Methods that are compared on one model of an experiment on a table."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor

from experiments import fairlearn_baselines
from experiments.evaluation import (
    EvaluatedSamples,
    log_odds,
    nearest_pairs,
    pairs_within,
)
from experiments.experiment import Method
from experiments.records import Record
from experiments.tabular_config import MODELS, Split, TabularConfig
from pyg_glif.baselines import lipschitz_projection
from pyg_glif.graph import suggest_tau
from pyg_glif.model_selection import tune
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.sklearn import GLIFClassifier
from pyg_glif.tables import FairTable

if TYPE_CHECKING:
    import pandas as pd

#: Rows that the report refers to.
AS_IT_IS = "as it is"
ESTIMATOR = "GLIFClassifier"
#: Columns that a model is not given; scale of the fair distance.
Dropped = tuple[str, ...]
Scale = Literal["effect", "standard"]


class ModelComparison:
    """Comparison of methods on one model.

    Args:
        name (str): Its name in tables.
        config (TabularConfig): Settings.
        split (Split): Training samples and new samples.
        seed (int): Of the model and the folds.
        progress (bool, optional): Whether to show progress bars.

    What several methods need (models, outputs, coordinates) is made when the first of
    them asks, and that one's time includes it.
    """

    def __init__(
        self,
        name: str,
        config: TabularConfig,
        split: Split,
        seed: int,
        progress: bool | None,
    ) -> None:
        self.name, self.config, self.split = name, config, split
        self.seed, self.progress = seed, progress
        self._made: dict[Any, Any] = {}

    def methods(self) -> Mapping[str, Method]:
        """Methods on this model, the model itself first."""
        columns = self.config.sensitive
        more = (*columns, *self.config.revealing)
        named = ", ".join(more)
        smoothed: dict[str, dict[str, Any]] = {
            "GLIF": {},
            "GLIF, k nearest": {"k": self.config.k},
            "GLIF, density": {"normalization": "density"},
            "GLIF, standardised columns": {"scale": "standard"},
            f"GLIF, without {named}": {"dropped": more},
        }
        rows: dict[str, Method] = {AS_IT_IS: partial(self.plain, AS_IT_IS, ())}
        for dropped in dict.fromkeys((columns, more)):
            name = f"without {', '.join(dropped)}"
            rows[name] = partial(self.plain, name, dropped)
        rows["mean with one's twins"] = self.averaged
        for name, options in smoothed.items():
            rows[name] = partial(self.smoothed, name, **options)
        rows[ESTIMATOR] = self.estimator
        if fairlearn_baselines.have_fairlearn():
            rows["ThresholdOptimizer"] = self.thresholds
            rows["ExponentiatedGradient"] = self.reduced
        rows["IF-constraints"] = self.projected
        return {self.label(name): method for name, method in rows.items()}

    def label(self, method: str) -> str:
        """A method's name in records."""
        return f"{self.name}: {method}"

    def record(
        self, method: str, outputs: Tensor, setting: Any = None, **known: Any
    ) -> Record:
        """Measures of the outputs for new samples in all versions."""
        metrics = self.judged.measure(outputs, **known)
        return Record(self.label(method), setting or {}, metrics, chosen=True)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """A cached value, made at the first call."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def predict(self, dropped: Dropped, frame: "pd.DataFrame") -> Any:
        """Probabilities of a model without some columns, for a frame with them."""

        def fit() -> Any:
            train = self.split.train.drop(columns=list(dropped))
            return MODELS[self.name](train, self.seed).fit(train, self.split.y.numpy())

        model = self.once(("model", dropped), fit)
        return model.predict_proba(frame.drop(columns=list(dropped)))[:, 1]

    def outputs(self, dropped: Dropped = ()) -> Tensor:  # [M, 1 + T]
        """Log-odds of new samples in all versions."""

        def ask() -> Tensor:
            versions = self.split.versions
            outputs = [torch.tensor(self.predict(dropped, each)) for each in versions]
            return log_odds(torch.stack(outputs, dim=1))

        outputs: Tensor = self.once(("outputs", dropped), ask)
        return outputs

    def known(self, dropped: Dropped = ()) -> Tensor:  # [N]
        """Out-of-fold log-odds of training samples."""

        def ask() -> Tensor:
            train = self.split.train.drop(columns=list(dropped))
            folds = StratifiedKFold(
                self.config.num_folds, shuffle=True, random_state=self.seed
            )
            model = MODELS[self.name](train, self.seed)
            labels = self.split.y.numpy()
            outputs = cross_val_predict(
                model, train, labels, cv=folds, method="predict_proba"
            )
            return log_odds(torch.tensor(outputs[:, 1]))

        known: Tensor = self.once(("known", dropped), ask)
        return known

    def places(self, scale: Scale, dropped: Dropped = ()) -> tuple[Tensor, Tensor]:
        """Fair coordinates of training samples and of new samples."""

        def locate() -> tuple[Tensor, Tensor]:
            table = FairTable(
                sensitive=self.config.sensitive,
                scale=scale,
                equivalent=self.config.equivalent,
                random_state=self.seed,
            )
            model = partial(self.predict, dropped) if scale == "effect" else None
            z = table.fit_transform(self.split.train, model)
            return z, table.transform(self.split.versions[0])

        places: tuple[Tensor, Tensor] = self.once(("places", scale, dropped), locate)
        return places

    @property
    def judged(self) -> EvaluatedSamples:
        """New samples with their similar pairs in either metric."""

        def look() -> EvaluatedSamples:
            group = self.split.groups[:, 0]
            z, other = self.places("effect")[1], self.places("standard")[1]
            near = pairs_within(z, self.config.radius, group, self.progress)
            also = nearest_pairs(other, near.size(1), group, self.progress)
            pairs = {"effect": near, "standard": also}
            return EvaluatedSamples(self.split.y_new, group, pairs)

        evaluated: EvaluatedSamples = self.once("judged", look)
        return evaluated

    def plain(self, name: str, dropped: Dropped) -> Iterable[Record]:
        """The model, with or without the columns."""
        yield self.record(name, self.outputs(dropped))

    def averaged(self) -> Iterable[Record]:
        """The mean over all versions of each sample."""
        outputs = self.outputs()
        mean = outputs.mean(dim=1, keepdim=True).expand_as(outputs)
        yield self.record("mean with one's twins", mean)

    def smoothed(
        self,
        name: str,
        *,
        scale: Scale = "effect",
        dropped: Dropped = (),
        k: int | None = None,
        normalization: Any = None,
    ) -> Iterable[Record]:
        """GLIF by the inductive step, its strength chosen on training samples."""
        config, y = self.config, self.known(dropped)
        z, z_new = self.places(scale, dropped)
        tau = suggest_tau(z, config.target_degree) if k is None else None
        found = tune(
            z,
            y,
            self.split.y,
            sensitive=self.split.group,
            taus=None if tau is None else [tau],
            ks=None if k is None else [k],
            lams=config.lams,
            threshold=0.0,
            max_loss=config.max_loss,
            normalization=normalization,
            generator=torch.Generator().manual_seed(self.seed),
            progress=self.progress,
        )
        post = GLIFPostProcessor(**found.settings(), progress=self.progress)
        outputs = self.outputs(dropped)  # a column for each version of a sample
        post.fit(z, y.unsqueeze(1).expand(-1, outputs.size(1)))
        info = post.transform_info(z_new, outputs)
        fair = info.value
        setting = {"lam": post.lam} | ({"radius": tau} if k is None else {"k": k})
        alone = info.num_isolated / len(z_new)
        yield self.record(name, fair, setting, alone=alone)

    def estimator(self) -> Iterable[Record]:
        """The estimator as a user would call it first, with its own settings."""
        config, split = self.config, self.split
        corrected = GLIFClassifier(
            MODELS[self.name](split.train, self.seed),
            sensitive=config.sensitive,
            equivalent=config.equivalent,
            random_state=self.seed,
        )
        if config.promise is not None:
            corrected.set_params(max_loss=config.promise)
        corrected.fit(split.train, split.y.numpy())
        told = [
            torch.as_tensor(corrected.predict_proba(each)[:, 1])
            for each in split.versions
        ]
        post, peers = corrected.post_, corrected.num_neighbors(split.versions[0])
        found = self.record(
            ESTIMATOR,
            log_odds(torch.stack(told, dim=1)),
            {"lam": post.lam, "radius": post.tau_},
            alone=float((peers == 0).mean()),
        )
        # The interval that the choice gave for so many new samples.
        choice = corrected.tune_
        low, high = choice.loss_interval(len(split.y_new))
        said = {"told_loss": choice.best.loss, "told_low": low, "told_high": high}
        yield replace(found, metrics={**found.metrics, **said})

    def projected(self) -> Iterable[Record]:
        """The IF-constraints, on some new samples and all versions of them at once."""
        config, num = self.config, self.config.num_slow
        z, z_new = (places[:num] for places in self.places("effect"))
        y = self.known()[:num]
        trial = EvaluatedSamples(self.split.y[:num], self.split.group[:num], {})

        def accuracy(outputs: Tensor) -> float:
            return trial.measure(outputs.unsqueeze(1))["accuracy"]

        def project(z: Tensor, y: Tensor, lipschitz: float) -> Tensor:
            return lipschitz_projection(z, y, lipschitz, progress=self.progress).value

        # The smaller the constant, the more it binds.
        floor, tried = accuracy(y) - config.max_loss, sorted(config.lipschitz)
        good = (one for one in tried if accuracy(project(z, y, one)) >= floor)
        chosen = next(good, tried[-1])
        before, judged = self.outputs()[:num], self.judged.first(num)
        versions = before.size(1)
        fair = project(z_new.repeat(versions, 1), before.T.reshape(-1), chosen)
        rows: list[tuple[str, Tensor, dict[str, float]]] = [
            (AS_IT_IS, before, {}),
            ("IF-constraints", fair.reshape(versions, -1).T, {"L": chosen}),
        ]
        for name, outputs, setting in rows:
            label = self.label(f"{name}, {len(before):,} people")
            yield Record(label, setting, judged.measure(outputs), chosen=True)

    def reduced(self) -> Iterable[Record]:
        """Demographic parity by weights of training samples."""
        split, some = self.split, slice(self.config.num_rival)
        told = fairlearn_baselines.exponentiated_gradient(
            MODELS[self.name](split.train, self.seed),
            split.train[some],
            split.y[some],
            split.group[some],
            split.versions,
            self.config.max_iter,
            self.seed,
        )
        yield self.record("ExponentiatedGradient", told, scores=False)

    def thresholds(self) -> Iterable[Record]:
        """Demographic parity by thresholds for each group."""
        told = fairlearn_baselines.threshold_optimizer(
            self.known().sigmoid(),
            self.split.y,
            self.split.group,
            self.outputs().sigmoid(),
            self.split.groups,
            self.seed,
        )
        yield self.record("ThresholdOptimizer", told, scores=False)
