"""The figures of experiments, in colours that colour-blind readers can tell apart.

An arrow above each panel says where better is. What lies so far out that the rest would
be flattened stands at the edge, with its number. Where curves or points coincide the
first are wider than the later ones, so that all of them show.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from experiments._paper import METHODS
from experiments.records import Summary
from pyg_glif._utils.optional import require

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
    "as it is": ("#000000", "s"),
    "PFR": ("#E69F00", "^"),
    "InFoRM, graph": ("#CC79A7", "<"),
    "InFoRM, model": ("#CC79A7", "v"),
    "InFoRM, result": ("#CC79A7", "o"),
    "REDRESS": ("#56B4E9", "X"),
    "GUIDE": ("#D55E00", "P"),
    "GLIF, balanced": ("#009E73", "D"),
    "GLIF, balanced, at GUIDE's IF": ("#CC6677", "p"),
    "GLIF, balanced, at GUIDE's published IF": ("#999999", "h"),
    "GLIF, balanced, at both of GUIDE's IF": ("#117733", "d"),
    "GLIFConv in training": ("#882255", "*"),
}
_FALLBACK = ("#777777", ".")
_OURS, _OTHERS = "#0072B2", "#444444"
_MANY = 20  # a curve of more settings is drawn without a marker for each
_FAR = 2.0  # a value is far out if the gap before it is this many ranges of the rest
_APART = 0.07  # of the axis, between two ticks that are both named
_CLOSE = 0.02  # of the axes: points nearer than this cover each other
_MARGIN = 0.3  # of the rest, between it and an edge with values far out
_LINE = 0.05  # of the axis, for the height of a number
_ROOM = 0.12  # of the axis, for a number at the edge
_WIDTH = 9.2  # inches; on a page of the documentation letters are as large as text
_ARROWS = {
    (True, None): "↑",
    (False, None): "↓",
    (None, True): "→",
    (None, False): "←",
    (True, True): "↗",
    (False, True): "↘",
}

#: Settings of each method, in the order in which their curve is drawn.
Curves = Mapping[str, Sequence[Summary]]


class Measure(NamedTuple):
    """A metric on an axis.

    Args:
        metric (str): Its key in a record.
        label (str): What stands at the axis.
        higher (bool): Whether more of it is better.
    """

    metric: str
    label: str
    higher: bool


def new_figure(layout: str, *, height: float = 4.2) -> tuple[Any, list[Any]]:
    """A figure, independent of any display, and its panels.

    Args:
        layout (str): A letter for each panel, rows apart: ``"aa;bc"`` has a wide panel
            above two.
        height (float): In inches. (default: :obj:`4.2`)
    """
    matplotlib = require("matplotlib.figure", "experiments", "plots")
    figure = matplotlib.Figure(figsize=(_WIDTH, height), layout="constrained")
    panels = figure.subplot_mosaic(layout)
    return figure, [panels[name] for name in sorted(panels)]


def save(figure: Any, path: Path) -> Path:
    """Writes a PNG."""
    figure.savefig(path, dpi=150)
    return path


def add_legend(figure: Any, panels: Sequence[Any]) -> None:
    """One legend for these panels, below all, where it covers nothing."""
    pairs = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in panels)
    handles = {label: handle for found in pairs for handle, label in found}
    place = "outside lower center"
    legend = figure.legend(handles.values(), handles, loc=place, ncols=4, fontsize=9)
    for handle in legend.legend_handles:
        handle.set_markersize(10 if handle.get_marker() == "*" else 7)


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
    across: Measure,
    up: Measure,
    *,
    left: float | None = None,
    spread: bool = True,
) -> None:
    """Draws what accuracy buys: a curve for each method, what was chosen on top.

    Args:
        axes (matplotlib.axes.Axes): Where to draw.
        curves (dict): Settings of each method.
        chosen (sequence of Summary): Shown large; those far behind the others stand at
            the edge, with their number.
        across (Measure): On the horizontal axis.
        up (Measure): On the vertical axis.
        left (float, optional): Where the horizontal axis begins. (default: where
            nothing is far out)
        spread (bool): Whether to draw what was chosen with its spread over seeds.
    """
    sound = {
        method: [p for p in points if p.num_failed == 0]
        for method, points in curves.items()
    }
    told = [*chosen, *chain.from_iterable(sound.values())]
    if left is None:
        left = _far_behind([p.mean[across.metric] for p in told], below=True)
    log, below = axes.get_yscale() == "log", bool(up.higher)
    end = _far_behind([p.mean[up.metric] for p in told], below=below, log=log)
    for later, (method, points) in zip(
        reversed(range(len(sound))), sound.items(), strict=True
    ):
        colour, marker = _STYLES.get(method, _FALLBACK)
        axes.plot(
            [p.mean[across.metric] for p in points],
            [p.mean[up.metric] for p in points],
            color=colour,
            marker=marker if len(points) <= _MANY else None,
            markersize=4,
            linewidth=1.4 + 0.3 * later,
            alpha=0.8,
        )
    places: list[tuple[float, float]] = []
    drawn: list[Any] = []
    for point in chosen:
        colour, marker = _STYLES.get(point.method, _FALLBACK)
        value, height = point.mean[across.metric], point.mean[up.metric]
        where = (
            value if left is None else max(value, left),
            height if end is None else (max if below else min)(height, end),
        )
        places.append(where)
        drawn += axes.plot(
            *where,
            color=colour,
            marker=marker,
            markeredgecolor="white",
            linestyle="none",
            label=point.method,
            clip_on=False,
            zorder=3 + len(drawn) / len(chosen),
        )
        if spread and where == (value, height) and point.num_seeds > 1:
            reach = (point.std[across.metric], point.std[up.metric])
            style = {"color": colour, "alpha": 0.5, "linewidth": 1, "zorder": 3}
            axes.errorbar(*where, xerr=reach[0], yerr=reach[1], **style)
    axes.set(xlabel=across.label, ylabel=up.label)
    axes.set_xlim(left=left)
    axes.set_ylim(**{"bottom" if below else "top": end})
    shown = (axes.transScale + axes.transLimits).transform(places)
    _nest(shown, drawn)
    _tell_edges(axes, chosen, places, shown, (across, up))
    _tidy(axes, (up.higher, across.higher))


def _far_behind(
    values: Sequence[float], *, below: bool, log: bool = False
) -> float | None:
    """Where an axis ends so that what is far out on one side does not flatten it."""
    found = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    found = [math.log(v) for v in found] if log else found
    low, high = focus(found)
    room = _MARGIN * (high - low)
    if below and found and min(found) < low:
        end = low - room
    elif not below and found and max(found) > high:
        end = high + room
    else:
        return None
    return math.exp(end) if log else end


def _nest(shown: Any, drawn: Sequence[Any]) -> None:
    """Makes points that later ones cover larger, so that all of them show."""
    above = [0] * len(drawn)  # how many lie one on the other over each
    for i in reversed(range(len(drawn))):
        close = abs(shown[i + 1 :] - shown[i]).max(axis=1) < _CLOSE
        on_top = (n for n, near in zip(above[i + 1 :], close, strict=True) if near)
        above[i] = 1 + max(on_top, default=-1)
        base = 12 if drawn[i].get_marker() == "*" else 8
        drawn[i].set_markersize(base + 5 * above[i])


def _tell_edges(
    axes: Any,
    chosen: Sequence[Summary],
    places: Sequence[tuple[float, float]],
    shown: Any,
    measures: tuple[Measure, Measure],
) -> None:
    """Beside points that stand at an edge, what they would be.

    Args:
        axes (matplotlib.axes.Axes): Where they are drawn.
        chosen (sequence of Summary): The points.
        places (sequence of tuple): Where they stand, in numbers of the axes.
        shown (array): The same as shares of the panel.
        measures (tuple of Measure): On the horizontal and on the vertical axis.
    """
    across, up = measures
    colours = [_STYLES.get(point.method, _FALLBACK)[0] for point in chosen]
    words = {"fontsize": 9, "textcoords": "axes fraction", "zorder": 5}
    words["path_effects"] = _outlined()
    line = -math.inf
    for i in sorted(range(len(chosen)), key=lambda i: shown[i][1]):
        value = chosen[i].mean[across.metric]
        if value < places[i][0]:
            line = max(shown[i][1], line + _LINE)  # one above the other
            axes.annotate(
                f"← {value:.3g}", places[i], (0.025, line), va="center",
                color=colours[i], **words,
            )  # fmt: skip
    heights = [point.mean[up.metric] for point in chosen]
    out = [i for i, h in enumerate(heights) if math.isfinite(h) and h != places[i][1]]
    out.sort(key=lambda i: shown[i][0])
    for i, level in zip(out, _levels([shown[i][0] for i in out], _ROOM), strict=True):
        away = (0.6 + level) * _LINE
        axes.annotate(
            f"{'↓' if up.higher else '↑'} {heights[i]:.3g}", places[i],
            (shown[i][0] + 0.025, away if up.higher else 1.0 - away), va="center",
            color=colours[i], **words,
        )  # fmt: skip


def rows(
    panels: Sequence[Any], found: Sequence[Summary], shown: Sequence[Measure]
) -> None:
    """Draws a row for each method and a panel for each metric.

    Args:
        panels (sequence of matplotlib.axes.Axes): One for each metric.
        found (sequence of Summary): From above to below, with their spread over seeds;
            ours are blue.
        shown (sequence of Measure): What the panels show.
    """
    names = [row.method for row in found]
    for axes, (metric, label, higher) in zip(panels, shown, strict=True):
        low, high = focus(row.mean[metric] for row in found)
        for height, row in enumerate(found):
            value, spread = row.mean[metric], row.std[metric]
            style = {"color": _OURS if "GLIF" in row.method else _OTHERS}
            if low <= value <= high:
                width = None if math.isnan(spread) else spread
                axes.errorbar(value, height, xerr=width, marker="o", capsize=2, **style)
            elif not math.isnan(value):
                _at_edge(axes, (None, value > high), height, value, style)
        axes.set_yticks(range(len(names)), names if axes is panels[0] else [])
        axes.set(xlabel=label, ylim=(len(names) - 0.4, -0.6))
        axes.locator_params(axis="x", nbins=3)
        _tidy(axes, (None, higher))


def along(
    axes: Any,
    curves: Curves,
    name: str,
    label: str,
    measure: Measure,
    *,
    squared: bool = False,
) -> None:
    """Draws a metric along a hyperparameter; saddle points as open crosses."""
    power = 2 if squared else 1
    metric = measure.metric
    low, high = focus(p.mean[metric] for c in curves.values() for p in c)
    beyond = []
    for later, (method, points) in zip(
        reversed(range(len(curves))), curves.items(), strict=True
    ):
        colour, marker = _STYLES.get(method, _FALLBACK)
        sound = [p for p in points if p.num_failed == 0]
        saddles = [p for p in points if p.num_failed > 0]
        axes.plot(
            [p.setting[name] ** power for p in sound],
            [p.mean[metric] for p in sound],
            color=colour,
            marker=marker if len(sound) <= _MANY else None,
            markersize=4 + 2 * later,
            linewidth=1.4 + 1.4 * later,
            label=method,
        )
        if saddles:
            axes.plot(
                [p.setting[name] ** power for p in saddles],
                [p.mean[metric] for p in saddles],
                color=colour,
                marker="x",
                linestyle="none",
                label=f"{method}: a saddle, no minimum",
            )
        for point in points:
            value, place = point.mean[metric], point.setting[name] ** power
            if value < low or value > high:
                beyond.append((place, value, colour))
    axes.set(xlabel=label, ylabel=measure.label, xscale="log")
    margin = 0.05 * (high - low) or 1e-6 + abs(0.05 * high)
    axes.set_ylim(low - margin, high + margin)
    ticks = {p.setting[name] ** power for c in curves.values() for p in c}
    for up in (False, True):
        out = sorted(found for found in beyond if (found[1] > high) == up)
        room = _ROOM * math.log(max(ticks) / min(ticks)) if out else 0.0
        levels = _levels([math.log(place) for place, *_ in out], room)
        for (place, value, colour), level in zip(out, levels, strict=True):
            style = {"color": colour}
            _at_edge(axes, (up, None), place, value, style, level=level)
    _name_ticks(axes, ticks)
    _tidy(axes, (measure.higher, None))


def radius_figure(curves: Curves, measures: Sequence[Measure]) -> Any:
    """Two panels along the squared radius, for methods that have one."""
    radii = {m: points for m, points in curves.items() if "tau" in points[0].setting}
    figure, panels = new_figure("ab")
    for axes, measure in zip(panels, measures, strict=True):
        along(axes, radii, "tau", "squared radius tau²", measure, squared=True)
    add_legend(figure, panels)
    return figure


def strength_figure(curves: Curves, measures: Sequence[Measure]) -> Any:
    """Two panels along the strength."""
    figure, panels = new_figure("ab")
    for axes, measure in zip(panels, measures, strict=True):
        along(axes, curves, "lam", "strength lam", measure)
    add_legend(figure, panels)
    return figure


def violations(broken: Any, where: Any, found: Mapping[str, Any]) -> None:
    """Draws which pairs break a Lipschitz condition, by fair distance.

    Args:
        broken (matplotlib.axes.Axes): For the share of pairs that break it.
        where (matplotlib.axes.Axes): For how many pairs of names there are.
        found (dict): ``lipschitz``, ``bin_edges`` and, for each bin, ``pairs``,
            ``before``, ``after`` (pairs that break it), ``name_pairs`` and
            ``name_after``.
    """
    edges, names = found["bin_edges"], found["name_pairs"]
    before = _shares(found["before"], found["pairs"])
    broken.stairs(before, edges, color="#000000", label="all pairs, baseline")
    after = _shares(found["after"], found["pairs"])
    broken.stairs(
        after, edges, color="#56B4E9", fill=True, label="all pairs, after GLIF"
    )
    left = _shares(found["name_after"], names)
    broken.stairs(
        left, edges, color="#D55E00", linewidth=2.5, baseline=None, clip_on=False,
        label="pairs of names, after GLIF",
    )  # fmt: skip
    where.stairs(
        [count / sum(names) for count in names], edges, color="#D55E00", fill=True
    )
    last = max(i for i, count in enumerate(found["pairs"]) if count)
    for axes, label in (
        (broken, f"share that breaks L = {found['lipschitz']:g}"),
        (where, "share of the pairs of names"),
    ):
        axes.set(xlabel="fair distance", xlim=(0.0, edges[last + 1]), ylabel=label)
    highest = max(filter(math.isfinite, before + after + left), default=0.0) or 1.0
    broken.set_ylim(0.0, 1.35 * highest)  # room for the legend
    broken.legend(loc="upper left", fontsize=9)
    _tidy(broken, (False, None))
    _tidy(where)


def focus(values: Iterable[float]) -> tuple[float, float]:
    """The range of values, without up to a quarter of them that are far out.

    A value is far out if the gap between it and the rest is more than twice the range
    of the rest: shown to scale, it would take two thirds of the axis or more.
    """
    found = sorted(filter(math.isfinite, values))
    count = len(found)
    for num_out in range(count // 4, 0, -1):
        for below in range(num_out + 1):
            first, last = below, count - num_out + below - 1
            reach = _FAR * (found[last] - found[first])
            gaps = []
            if below:
                gaps.append(found[first] - found[first - 1])
            if below < num_out:
                gaps.append(found[last + 1] - found[last])
            if reach > 0 and min(gaps) > reach:
                return found[first], found[last]
    return (found[0], found[-1]) if found else (0.0, 0.0)


def _at_edge(
    axes: Any,
    beyond: tuple[bool | None, bool | None],
    place: float,
    value: float,
    style: Mapping[str, Any],
    *,
    level: int = 0,
) -> None:
    """A triangle that points to a value out of sight, and the value."""
    up, right = beyond
    fraction = float(bool(up or right))
    inside = (9 + 12 * level) * (1 if fraction == 0.0 else -1)
    if up is None:
        where, transform, shift = (fraction, place), "get_yaxis_transform", (inside, 0)
        align = {"ha": "right" if right else "left", "va": "center"}
    else:
        where, transform, shift = (place, fraction), "get_xaxis_transform", (0, inside)
        align = {"ha": "center", "va": "top" if up else "bottom"}
    placed = getattr(axes, transform)()
    marker = {"→": ">", "←": "<", "↑": "^", "↓": "v"}[_ARROWS[beyond]]
    axes.plot(*where, marker=marker, transform=placed, clip_on=False, **style)
    axes.annotate(
        f"{value:.3g}", where, shift, xycoords=placed, textcoords="offset points",
        fontsize=9, path_effects=_outlined(), **align, **style,
    )  # fmt: skip


def _outlined() -> list[Any]:
    """An effect of letters: white around them, so that they can be read on lines."""
    effects = require("matplotlib.patheffects", "experiments", "plots")
    return [effects.withStroke(linewidth=3, foreground="white")]


def _levels(places: Sequence[float], room: float) -> list[int]:
    """Which line each number stands in, so that none is closer than ``room``."""
    levels: list[int] = []
    last: list[float] = []  # place in each line, from left to right
    for place in places:
        fits = (i for i, other in enumerate(last) if place - other >= room)
        level = next(fits, len(last))
        last[level : level + 1] = [place]
        levels.append(level)
    return levels


def _name_ticks(axes: Any, values: set[float]) -> None:
    """Few settings are ticks, named where there is room for a name."""
    if len(values) > _MANY:
        return
    ticks = sorted(values)
    room = _APART * math.log(ticks[-1] / ticks[0]) if ticks[0] > 0 else 0.0
    names, named = [], 0.0
    for value in ticks:
        far = not named or math.log(value / named) >= room
        names.append(f"{float(f'{value:.2g}'):g}" if far else "")
        named = value if far else named
    axes.set_xticks(ticks, names, fontsize=9)
    axes.set_xticks([], minor=True)


def _shares(part: Sequence[float], whole: Sequence[float]) -> list[float]:
    return [p / w if w else math.nan for p, w in zip(part, whole, strict=True)]


def _tidy(axes: Any, better: tuple[bool | None, bool | None] | None = None) -> None:
    """A light grid, and an arrow to where better is: up or down, right or left."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if better is not None:
        title = f"better {_ARROWS[better]}"
        axes.set_title(title, loc="right", fontsize=10, color="#00734F")
