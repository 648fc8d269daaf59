"""The figures of the paper, in colours that colour-blind readers can tell apart."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyg_glif._optional import require
from pyg_glif.experiments._paper import METHODS
from pyg_glif.experiments.records import Summary

# The palette of Okabe and Ito with two more, and a marker each for print without
# colour.
_STYLES = {
    "Baseline": ("#000000", "s"),
    "GLIF": ("#0072B2", "o"),
    "GLIF-NRW": ("#E69F00", "^"),
    "GLIF-density": ("#009E73", "D"),
    "GLIF + task effect": ("#CC6677", "p"),
    "GLIF + task effect, weight 0.1": ("#E69F00", "^"),
    "GLIF + task effect, weight 0.3": ("#009E73", "D"),
    "GLIF + task effect, weight 1": ("#CC6677", "p"),
    "In-processing": ("#CC79A7", "v"),
    "In-processing + GLIF": ("#882255", "*"),
    "GLIF, half arrive later": ("#999999", "h"),
    "IF-constraints": ("#D55E00", "P"),
    "SenSeI": ("#56B4E9", "X"),
}
_FALLBACK = ("#777777", ".")
# For methods without a style of their own, in the order in which they come.
_SPARE = [
    (colour, marker)
    for marker in "sDv^"
    for colour in ("#000000", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
]
_MANY = 20  # a curve of more settings is drawn without a marker for each

#: Settings of each method, in the order in which their curve is drawn.
Curves = Mapping[str, Sequence[Summary]]


def new_figure(num_panels: int, *, height: float = 3.8) -> tuple[Any, list[Any]]:
    """A figure with panels side by side, independent of any display."""
    matplotlib = require("matplotlib.figure", "pyg_glif.experiments", "plots")
    size = (4.6 * num_panels, height)
    figure = matplotlib.Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(1, num_panels, squeeze=False)[0])


def save(figure: Any, path: Path) -> Path:
    """Writes a PNG."""
    figure.savefig(path, dpi=150)
    return path


def radius_curves(summaries: Iterable[Summary], lam: float) -> Curves:
    """GLIF variants along the radius at one strength; trained methods as they come."""

    def belongs(summary: Summary) -> bool:
        if "tau" not in summary.setting:
            return True
        return summary.method in METHODS and summary.setting["lam"] == lam

    return curves_of(filter(belongs, summaries), "tau")


def curves_of(summaries: Iterable[Summary], along: str) -> Curves:
    """Settings by method, ordered along a hyperparameter if the method has it."""
    curves: dict[str, list[Summary]] = {}
    for summary in summaries:
        curves.setdefault(summary.method, []).append(summary)
    for points in curves.values():
        points.sort(key=lambda s: s.setting.get(along, 0.0))
    return curves


def trade_off(
    axes: Any,
    curves: Curves,
    chosen: Sequence[Summary],
    across: tuple[str, str],
    up: tuple[str, str],
    *,
    left: float | None = None,
) -> None:
    """Draws what accuracy buys: a curve for each method, what was chosen on top.

    Args:
        axes (matplotlib.axes.Axes): Where to draw.
        curves (dict): Settings of each method.
        chosen (sequence of Summary): Shown large, with their spread over seeds.
        across (tuple): Metric on the horizontal axis, and its label.
        up (tuple): Metric on the vertical axis, and its label.
        left (float, optional): Where the horizontal axis begins.
    """
    for method, points in curves.items():
        colour, marker = _STYLES.get(method, _FALLBACK)
        sound = [p for p in points if p.num_failed == 0]
        axes.plot(
            [p.mean[across[0]] for p in sound],
            [p.mean[up[0]] for p in sound],
            color=colour,
            marker=marker if len(sound) <= _MANY else None,
            markersize=4,
            linewidth=1.4,
            alpha=0.8,
        )
    spare = iter(_SPARE)
    for point in chosen:
        colour, marker = _STYLES.get(point.method) or next(spare, _FALLBACK)
        axes.errorbar(
            point.mean[across[0]],
            point.mean[up[0]],
            xerr=point.std[across[0]] if point.num_seeds > 1 else None,
            yerr=point.std[up[0]] if point.num_seeds > 1 else None,
            color=colour,
            marker=marker,
            markersize=8,
            markeredgecolor="white",
            capsize=2,
            linestyle="none",
            label=point.method,
            zorder=3,
        )
    axes.set(xlabel=across[1], ylabel=up[1])
    axes.set_xlim(left=left)
    _tidy(axes)


def along(
    axes: Any,
    curves: Curves,
    name: str,
    label: str,
    metric: tuple[str, str],
    *,
    squared: bool = False,
) -> None:
    """Draws a metric along a hyperparameter; saddle points as open crosses."""
    power = 2 if squared else 1
    for method, points in curves.items():
        colour, marker = _STYLES.get(method, _FALLBACK)
        sound = [p for p in points if p.num_failed == 0]
        saddles = [p for p in points if p.num_failed > 0]
        axes.plot(
            [p.setting[name] ** power for p in sound],
            [p.mean[metric[0]] for p in sound],
            color=colour,
            marker=marker if len(sound) <= _MANY else None,
            markersize=4,
            label=method,
        )
        if saddles:
            axes.plot(
                [p.setting[name] ** power for p in saddles],
                [p.mean[metric[0]] for p in saddles],
                color=colour,
                marker="x",
                linestyle="none",
                label=f"{method}: a saddle, no minimum",
            )
    axes.set(xlabel=label, ylabel=metric[1], xscale="log")
    _name_ticks(axes, {p.setting[name] ** power for c in curves.values() for p in c})
    _tidy(axes)


def radius_figure(curves: Curves, metrics: Mapping[str, str]) -> Any:
    """A panel for each metric along the squared radius, for methods that have one."""
    figure, panels = new_figure(len(metrics))
    radii = {m: points for m, points in curves.items() if "tau" in points[0].setting}
    for axes, metric in zip(panels, metrics.items(), strict=True):
        along(axes, radii, "tau", "squared radius tau²", metric, squared=True)
    return figure


def strength_figure(curves: Curves, metrics: Mapping[str, str]) -> Any:
    """A panel for each metric along the strength."""
    figure, panels = new_figure(len(metrics))
    for axes, metric in zip(panels, metrics.items(), strict=True):
        along(axes, curves, "lam", "strength lam", metric)
    return figure


def violations(axes: Any, found: Mapping[str, Any]) -> None:
    """Draws which pairs break a Lipschitz condition, by fair distance.

    Args:
        axes (matplotlib.axes.Axes): Where to draw.
        found (dict): ``lipschitz``, ``bin_edges`` and, for each bin, ``pairs``,
            ``before``, ``after`` (pairs that break it), ``name_pairs`` and
            ``name_after``.
    """
    edges = found["bin_edges"]
    left, width = edges[:-1], [b - a for a, b in pairwise(edges)]
    before = _shares(found["before"], found["pairs"])
    after = _shares(found["after"], found["pairs"])
    names = _shares(found["name_pairs"], [sum(found["name_pairs"])] * len(left))
    broken = _shares(found["name_after"], found["pairs"])
    axes.stairs(before, edges, color="#000000", label="all pairs, baseline")
    for heights, colour, hatch, label in (
        (after, "#0072B2", "", "all pairs, after GLIF"),
        (broken, "#009E73", "xx", "pairs of names, after GLIF"),
    ):
        axes.bar(
            left, heights, width, align="edge", color=colour, alpha=0.75, hatch=hatch,
            label=label,
        )  # fmt: skip
    axes.bar(
        left, names, width, align="edge", facecolor="none", edgecolor="#D55E00",
        hatch="//", linewidth=0.8, label="where the pairs of names are",
    )  # fmt: skip
    last = max(i for i, count in enumerate(found["pairs"]) if count)
    axes.set(
        xlabel="fair distance",
        xlim=(0.0, edges[last + 1]),
        ylim=(0.0, 1.35 * max(*before, *after, *names)),  # room for the legend
        ylabel=f"share of pairs that break L = {found['lipschitz']:g}",
    )
    _tidy(axes)


def _name_ticks(axes: Any, values: set[float]) -> None:
    """Few settings are named one by one; their decades would say too little."""
    if len(values) <= _MANY:
        ticks = sorted(values)
        axes.set_xticks(ticks, [f"{value:.2g}" for value in ticks], fontsize=8)
        axes.set_xticks([], minor=True)


def _shares(part: Sequence[float], whole: Sequence[float]) -> list[float]:
    return [p / w if w else 0.0 for p, w in zip(part, whole, strict=True)]


def _tidy(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8, framealpha=0.85)
