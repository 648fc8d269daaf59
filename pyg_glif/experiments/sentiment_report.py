"""Tables and figures of the sentiment experiment."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyg_glif.experiments import plots
from pyg_glif.experiments.records import (
    Run,
    fairest,
    summarize,
    summarize_chosen,
)
from pyg_glif.experiments.report import Report, Table, seeds_note
from pyg_glif.experiments.runner import run_all
from pyg_glif.experiments.sentiment import SentimentConfig, run_sentiment

_COLUMNS = {
    "accuracy": "test accuracy",
    "name_std": "std of names",
    "relative_std": "std of names / of words",
    "race_gap": "race gap",
    "gender_gap": "gender gap",
}
_DIGITS = {"name_std": 2, "relative_std": 2, "race_gap": 2, "gender_gap": 2}
_MAX_LOSS = 0.01
_SHOWN = 0.1  # loss of accuracy that the trade-off plots show
_NOTE = (
    "Names should be alike: shown are the standard deviation of their logits, the same "
    "in units of that of test words (which tells fair networks from timid ones), and "
    "the differences between the average logits of White and Black, and of female and "
    "male names. Lower is better in these four columns."
)


def reproduce_sentiment(
    seeds: Iterable[int] = range(10),
    *,
    variant: str | None = None,
    out: Path | str = "results",
    config: SentimentConfig | None = None,
    progress: bool | None = None,
) -> Report:
    r"""Figure 2 of the paper, its table in numbers, and one file for each seed.

    Args:
        seeds (iterable of int): Seeds of split, network and batches.
            (default: 0 to 9)
        variant (str, optional): Data, see :class:`~pyg_glif.datasets.Sentiment`.
            (default: that of ``config``)
        out (str or pathlib.Path): Folder for JSON, Markdown and PNG files, made if
            it is not there. (default: ``"results"``)
        config (SentimentConfig, optional): All other settings.
            (default: the paper's)
        progress (bool, optional): Whether to show progress bars; :obj:`None` shows
            them on a terminal. (default: :obj:`None`)
    """
    config = SentimentConfig() if config is None else config
    if variant is not None:
        config = replace(config, variant=variant)

    def run(seed: int) -> Run:
        return run_sentiment(seed, config, progress=progress)

    return run_all(run, seeds, Path(out), report_sentiment, draw_sentiment, progress)


def report_sentiment(runs: Sequence[Run]) -> Report:
    """The tables of some runs, such as those read back from their files."""
    chosen = summarize_chosen(runs)
    floor = chosen[0].mean["accuracy"] - _MAX_LOSS
    best = fairest(summarize(runs), "accuracy", "name_std", floor)
    given = Table("At settings fixed beforehand", _COLUMNS, chosen, _DIGITS)
    read = Table(
        f"Fairest names at a loss of at most {_MAX_LOSS:g} of accuracy, "
        "read off the curves",
        _COLUMNS,
        best,
        _DIGITS,
    )
    notes = (_NOTE, *seeds_note(runs))
    return Report("sentiment", runs[0].variant, tuple(runs), (given, read), notes)


def draw_sentiment(runs: Sequence[Run]) -> dict[str, Any]:
    """The three panels of Figure 2, and sweeps over radius and strength."""
    config, chosen = runs[0].config, summarize_chosen(runs)
    summaries = summarize(runs)
    by_radius = plots.radius_curves(summaries, config["lam"])
    figure, (left, middle, right) = plots.new_figure(3)
    across, edge = ("accuracy", "test accuracy"), chosen[0].mean["accuracy"] - _SHOWN
    for axes, metric in ((left, "name_std"), (middle, "race_gap")):
        up = (metric, _COLUMNS[metric])
        plots.trade_off(axes, by_radius, chosen, across, up, left=edge)
    plots.violations(right, runs[0].extras["violations"])
    sweep, panels = plots.new_figure(2)
    radii = {m: c for m, c in by_radius.items() if "tau" in c[0].setting}
    for axes, metric in zip(panels, ("name_std", "accuracy"), strict=True):
        plots.along(
            axes, radii, "tau", "squared radius tau²", (metric, _COLUMNS[metric]),
            squared=True,
        )  # fmt: skip
    tau = next(s.setting["tau"] for s in chosen if "tau" in s.setting)
    strengths = plots.curves_of(
        (s for s in summaries if s.setting.get("tau") == tau), "lam"
    )
    strength, panels = plots.new_figure(2)
    for axes, metric in zip(panels, ("name_std", "accuracy"), strict=True):
        label = ("lam", "strength lam", (metric, _COLUMNS[metric]))
        plots.along(axes, strengths, *label)
    return {"figure2": figure, "radius": sweep, "strength": strength}
