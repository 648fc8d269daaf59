"""People in tables: who is treated like whom, by which method, at what cost.

Not in the paper. Models are trained on most people; the others arrive as newcomers.
Post-processors know the training people by their out-of-fold outputs, as
:class:`~pyg_glif.sklearn.GLIFClassifier` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import experiments._plots as plots
from experiments import fairlearn_baselines
from experiments._network import NetworkComparison
from experiments.evaluation import NUM_BINS
from experiments.experiment import Comparison, Experiment, Method
from experiments.records import Run, summarize_chosen, with_costs
from experiments.report import Report, ResultTable, seeds_note
from experiments.tabular_config import MODELS, Split, TabularConfig
from experiments.tabular_methods import AS_IT_IS, ESTIMATOR, ModelComparison

_INDIVIDUALS = {
    "accuracy": "accuracy",
    "flip_consistency": "same when flipped",
    "unlike_effect": "unlike pairs",
    "unlike_standard": "unlike pairs, standardised",
    "alone": "without a peer",
    "seconds": "seconds",
}
_GROUPS = {
    "auc": "AUC",
    "calibration_error": "calibration error",
    "acceptance_gap": "gap in yes",
    "true_positive_gap": "gap in true yes",
}
_DIGITS = {"accuracy": 4, "flip_consistency": 4, "seconds": 1}
_DIGITS |= {"unlike_effect": 4, "unlike_standard": 4, "calibration_error": 4}
_ROUNDING = 1e-12  # of a difference of shares
_FLIPS = {
    "adult": "with the other sex (and wives as husbands, husbands as wives)",
    "german": "with every personal status and sex there is",
}


class TabularTrial(Comparison):
    """One split of a table: every method on every model.

    Args:
        config (TabularConfig): Settings.
        seed (int): Of the split, the models and the folds.
        progress (bool, optional): Whether to show progress bars.
    """

    def __init__(
        self, config: TabularConfig, seed: int, progress: bool | None = None
    ) -> None:
        split = Split.of(config, seed)
        self.arms = [
            ModelComparison(name, config, split, seed, progress) for name in MODELS
        ]
        self.network = NetworkComparison(self.arms[0])

    def methods(self) -> Mapping[str, Method]:
        """All methods on all models."""
        found: dict[str, Method] = {}
        for arm in self.arms:
            found |= arm.methods()
        return found | dict(self.network.methods())

    def extras(self) -> dict[str, Any]:
        """How many people and pairs there are."""
        split = self.arms[0].split
        return {
            "num_train": len(split.train),
            "num_new": len(split.y_new),
            "num_pairs": {
                arm.name: {name: p.size(1) for name, p in arm.judged.pairs.items()}
                for arm in self.arms
            },
            "fairlearn": fairlearn_baselines.have_fairlearn(),
        }


class TabularExperiment(Experiment):
    r"""Individual fairness of people in a table, with newcomers, by many methods.

    Args:
        config (TabularConfig): Settings.
    """

    takes_limit = True
    config: TabularConfig

    def __init__(self, config: TabularConfig) -> None:
        super().__init__(config)
        self.name = config.dataset

    def configured(
        self, variant: str | None, limit: float | None
    ) -> "TabularExperiment":
        """The experiment on other people, or some of them."""
        variant = self.config.variant if variant is None else variant
        limit = self.config.limit if limit is None else limit
        return TabularExperiment(replace(self.config, variant=variant, limit=limit))

    def prepare(self, seed: int, progress: bool | None = None) -> TabularTrial:
        """Splits the table."""
        return TabularTrial(self.config, seed, progress)

    def report(self, runs: Sequence[Run]) -> Report:
        """For each model what happens to individuals, and to groups."""
        rows = [with_costs(row, runs) for row in summarize_chosen(runs)]
        tables = []
        for model in (*MODELS, NetworkComparison.name):
            mine = [
                replace(row, method=row.method.removeprefix(f"{model}: "))
                for row in rows
                if row.method.startswith(f"{model}: ")
            ]
            what = model.capitalize()
            tables += [
                ResultTable(f"{what}: individuals", _INDIVIDUALS, mine, _DIGITS),
                ResultTable(f"{what}: scores and groups", _GROUPS, mine, _DIGITS),
            ]
        notes = (*_notes(runs), *_promises(runs), *seeds_note(runs))
        return Report(self.name, runs[0].variant, tuple(runs), tuple(tables), notes)

    def draw(self, runs: Sequence[Run]) -> dict[str, Any]:
        """What accuracy buys, for the methods on the first model."""
        model = next(iter(MODELS))
        chosen = [
            replace(row, method=row.method.removeprefix(f"{model}: "))
            for row in summarize_chosen(runs)
            if row.method.startswith(f"{model}: ") and "people" not in row.method
        ]
        shown = {"accuracy": True, "unlike_effect": False, "flip_consistency": True}
        figure, panels = plots.new_figure("abc", height=0.3 * len(chosen) + 1.0)
        plots.rows(
            panels,
            chosen,
            [plots.Measure(m, _INDIVIDUALS[m], higher) for m, higher in shown.items()],
        )
        return {"trade_off": figure}


def _notes(runs: Sequence[Run]) -> Iterable[str]:
    """Whose data these are, and what the columns mean."""
    first, extras = runs[0], runs[0].extras
    config = first.config
    if first.variant == "invented":
        yield "Nobody in these data exists: they say something about methods alone."
    counts = "; ".join(
        f"{model}: {found['effect']:,} and {found['standard']:,}"
        for model, found in extras["num_pairs"].items()
    )
    yield (
        f"{extras['num_train']:,} people to train on and {extras['num_new']:,} "
        "newcomers, who are judged, in each seed. *Same when flipped*: share of "
        f"newcomers who get the same decision {_FLIPS[first.experiment]}. *Unlike "
        f"pairs*: of all pairs of a woman and a man whose effects of columns, by the "
        f"model as it is, differ by at most {config['radius']:g} log-odds (root of the "
        "sum of squares), the share with "
        "different decisions; *standardised*: of as many pairs (or a few more: ties) "
        "that are nearest by standardised columns, the metric of one row of GLIF only "
        f"(pairs of seed {first.seed}: {counts}). *Without a peer*: newcomers whom "
        "GLIF leaves as they are, because nobody is near. *Calibration error*: the "
        f"expected one, {NUM_BINS} bins of equal width. *Gaps*: men less women, of all "
        "and of those whose truth is yes. *Seconds* of the processor: of a method "
        "beyond what rows above it have made already (models, out-of-fold outputs, "
        "coordinates); GLIFClassifier, which has nothing but its defaults"
        f"{_besides(config)}, makes all of it again."
    )
    yield (
        "IF-constraints cannot take everybody: they are shown on "
        f"{config['num_slow']:,} newcomers, whose twins are in the same problem, "
        "beside the model on the same. ExponentiatedGradient and networks train on "
        f"{config['num_rival']:,} people at most, networks on half of all at most. "
        "Networks see the effect coordinates of boosted trees and the sensitive "
        "columns. Strengths, constants and weights were chosen on training people, "
        f"at a loss of at most {config['max_loss']:g} of accuracy there."
    )
    if not extras["fairlearn"]:
        yield fairlearn_baselines.MISSING


def _besides(config: Mapping[str, Any]) -> str:
    """What the estimator was told beside the columns."""
    promise = config["promise"]
    return "" if promise is None else f" and `max_loss={promise:g}`"


def _promises(runs: Sequence[Run]) -> Iterable[str]:
    """How often the estimator kept its promise to newcomers."""
    promise = runs[0].config["promise"]
    for model in MODELS if promise is not None else ():
        losses, told, kept, said = [], [], 0, 0
        for run in runs:
            found = {r.method: r.metrics for r in run.records}
            after = found[f"{model}: {ESTIMATOR}"]
            loss = found[f"{model}: {AS_IT_IS}"]["accuracy"] - after["accuracy"]
            losses.append(loss)
            told.append(after["told_loss"])
            kept += loss <= promise + _ROUNDING
            said += loss <= max(promise, after["told_high"]) + _ROUNDING
        yield (
            f"{model.capitalize()}, GLIFClassifier with `max_loss={promise:g}`: "
            f"newcomers lost at most that in {kept} of {len(runs)} splits, and in "
            f"{said} of {len(runs)} at most that or the upper limit that "
            "`tune_.loss_interval` had told for so many newcomers (95%); mean loss "
            f"{sum(losses) / len(losses):.4f} (told {sum(told) / len(told):.4f}), "
            f"worst {max(losses):.4f}."
        )


ADULT = TabularExperiment(
    TabularConfig(
        dataset="adult",
        equivalent={"relationship": (("Husband", "Wife"),)},
        ignore=("fnlwgt",),
    )
)
GERMAN = TabularExperiment(
    TabularConfig(
        dataset="german",
        sensitive=("personal_status_sex",),
        revealing=(),
        test_share=0.3,
        radius=1.0,
        max_loss=0.01,
        promise=0.01,
        num_slow=300,
        num_rival=350,
    )
)
