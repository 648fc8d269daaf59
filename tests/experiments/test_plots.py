"""Figures: nothing flattens a panel, nothing hides, an arrow says where better is."""

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from experiments import _plots as plots
from experiments.records import Summary

pytest.importorskip("matplotlib")

SPREAD = plots.Measure("spread", "spread of names", higher=False)
ACCURACY = plots.Measure("accuracy", "accuracy", higher=True)


def summary(method: str, accuracy: float, spread: float, **setting: float) -> Summary:
    mean = {"accuracy": accuracy, "spread": spread}
    return Summary(method, setting, mean, dict.fromkeys(mean, 0.001), num_seeds=2)


def curves(methods: Sequence[str], taus: Sequence[float]) -> plots.Curves:
    """The same curve for every method."""
    return {
        method: [summary(method, 0.9 - 0.1 * tau, 1 / tau, tau=tau) for tau in taus]
        for method in methods
    }


def drawn_boxes(figure: Any, artists: Sequence[Any]) -> list[Any]:
    """Where text was drawn."""
    figure.draw_without_rendering()
    return [a.get_window_extent() for a in artists if a.get_text()]


def test_focus() -> None:
    values = [0.0, 0.02, 0.04, 0.05, 0.08, 0.09, 0.03, 0.01]
    assert plots.focus(values) == (0.0, 0.09)
    assert plots.focus([*values, 0.34, 0.37]) == (0.0, 0.09)
    assert plots.focus([-0.4, *values, 65.0]) == (0.0, 0.09)
    assert plots.focus([*values, 0.2]) == (0.0, 0.2)  # further, not far out
    assert plots.focus([1.0, 1.0, 1.0, 1.0, 5.0]) == (1.0, 5.0)  # no scale without it
    assert plots.focus([math.nan, 2.0, 3.0]) == (2.0, 3.0)
    assert plots.focus([]) == (0.0, 0.0)


@given(st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=30))
def test_no_panel_is_flattened(values: list[float]) -> None:
    low, high = plots.focus(values)
    inside = sorted(v for v in values if low <= v <= high)
    assert len(inside) >= 0.75 * len(values)
    out = [v for v in values if not low <= v <= high]
    assert all(min(abs(v - low), abs(v - high)) > 2 * (high - low) for v in out)
    if not out and high > low:  # no single value can be blamed for the scale
        for rest, gap in ((values_without(inside, -1), 0), (inside[1:], 1)):
            if len(values) >= 4 and rest[-1] > rest[0]:
                jump = inside[-1] - rest[-1] if gap == 0 else rest[0] - inside[0]
                assert jump <= 2 * (rest[-1] - rest[0])


def values_without(values: list[float], index: int) -> list[float]:
    return [v for i, v in enumerate(values) if i != index % len(values)]


def test_what_is_far_out_stands_at_the_edge_with_its_number() -> None:
    found = [summary(f"method {i}", 0.87 + i / 1000, 0.01 * i) for i in range(8)]
    found += [summary("GLIF", 0.875, 0.02), summary("far", 0.83, 0.366)]
    figure, panels = plots.new_figure("ab")
    plots.rows(panels, found, [ACCURACY, SPREAD])
    for axes, number, fraction, marker in (
        (panels[0], "0.83", 0.0, "<"),
        (panels[1], "0.366", 1.0, ">"),
    ):
        low, high = sorted(axes.get_xlim())
        assert high - low < 0.1
        assert [text.get_text() for text in axes.texts] == [number]
        *_, edge = axes.get_lines()
        assert edge.get_xdata() == [fraction]
        assert edge.get_marker() == marker
        assert edge.get_ydata() == [9]  # the row of the method
    labels = [tick.get_text() for tick in panels[0].get_yticklabels()]
    assert labels == [row.method for row in found]
    assert not any(tick.get_text() for tick in panels[1].get_yticklabels())
    figure.draw_without_rendering()


def test_a_peak_does_not_flatten_the_curves_beside_it() -> None:
    found = dict(curves(["GLIF", "GLIF-NRW"], [0.5, 1.0, 2.0, 4.0]))
    peak = summary("GLIF-NRW", 0.8, 65.0, tau=3.0)
    found["GLIF-NRW"] = [*found["GLIF-NRW"], peak]
    figure = plots.radius_figure(found, (SPREAD, ACCURACY))
    left, right = figure.axes
    assert left.get_ylim()[1] < 3
    assert [text.get_text() for text in left.texts] == ["65"]
    assert not right.texts


def test_numbers_at_the_edge_do_not_collide() -> None:
    """Several methods leave the panel at the same, neighbouring radii."""
    taus = [0.2, 0.3, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0]
    values = [0.875, 0.874, 0.873, 0.872, 0.872, 0.872, 0.871, 0.87, 0.798, 0.762]
    found = {
        method: [
            summary(method, value - i / 1000, 1.0, tau=tau)
            for tau, value in zip(taus, values, strict=True)
        ]
        for i, method in enumerate(("GLIF", "GLIF-NRW", "GLIF-density"))
    }
    figure = plots.radius_figure(found, (ACCURACY, SPREAD))
    boxes = drawn_boxes(figure, figure.axes[0].texts)
    assert len(boxes) == 6
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize(
    "taus",
    [
        (0.1, 0.141, 0.224, 0.316, 0.548, 0.632, 0.707, 0.775),
        (0.1, 0.173, 0.316, 0.548, 1.0, 1.73, 3.16, 5.48, 10.0),
        tuple(1 + i / 50 for i in range(20)),
    ],
)
def test_ticks_do_not_collide(taus: tuple[float, ...]) -> None:
    figure = plots.radius_figure(curves(["GLIF"], taus), (SPREAD, ACCURACY))
    for axes in figure.axes:
        labels = axes.get_xticklabels()
        boxes = drawn_boxes(figure, labels)
        assert len(boxes) >= 2
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
        assert not any("e+" in label.get_text() for label in labels)


def test_curves_that_coincide_all_show() -> None:
    figure = plots.strength_figure(
        {
            method: [summary(method, 0.9, 1.0, lam=lam) for lam in (0.1, 1.0)]
            for method in ("GLIF", "GLIF-NRW", "GLIF-density")
        },
        (SPREAD, ACCURACY),
    )
    for axes in figure.axes:
        lines = axes.get_lines()
        widths = [line.get_linewidth() for line in lines]
        assert all(under > over + 1 for under, over in pairwise(widths))
        assert axes.get_ylim()[0] < lines[0].get_ydata()[0] < axes.get_ylim()[1]


def test_points_that_coincide_all_show() -> None:
    chosen = [summary(m, 0.9, 1.0) for m in ("Baseline", "GLIF", "GLIF-NRW")]
    _, (axes,) = plots.new_figure("a")
    plots.trade_off(axes, {}, chosen, ACCURACY, SPREAD, spread=False)
    lines = axes.get_lines()
    sizes = [line.get_markersize() for line in lines]
    assert all(under > over + 3 for under, over in pairwise(sizes))
    assert all(a.get_zorder() < b.get_zorder() for a, b in pairwise(lines))


def test_points_in_a_chain_all_show() -> None:
    heights = {"Baseline": 0.0, "GLIF": 1.0, "GLIF-NRW": 1.015, "GLIF-density": 1.03}
    chosen = [summary(m, 0.9, height) for m, height in heights.items()]
    _, (axes,) = plots.new_figure("a")
    plots.trade_off(axes, {}, chosen, ACCURACY, SPREAD, spread=False)
    apart, *chain = (line.get_markersize() for line in axes.get_lines())
    assert all(under > over + 3 for under, over in pairwise(chain))
    assert apart == chain[-1]


def test_points_apart_are_equally_large() -> None:
    methods = ("Baseline", "GLIF", "GLIF-NRW")
    chosen = [summary(m, 0.9 - i / 50, 10.0**i) for i, m in enumerate(methods)]
    for scale in ("linear", "log"):
        figure, (axes,) = plots.new_figure("a")
        axes.set_yscale(scale)
        plots.trade_off(axes, {}, chosen, ACCURACY, SPREAD, spread=False)
        assert len({line.get_markersize() for line in axes.get_lines()}) == 1
        plots.add_legend(figure, [axes])
        handles = figure.legends[0].legend_handles
        assert len({handle.get_markersize() for handle in handles}) == 1


def test_what_is_left_of_a_trade_off_stands_at_its_edge() -> None:
    chosen = [summary("Baseline", 0.9, 1.0), summary("SenSeI", 0.5, 0.5)]
    _, (axes,) = plots.new_figure("a")
    plots.trade_off(axes, {}, chosen, ACCURACY, SPREAD, left=0.8, spread=False)
    assert axes.get_xlim()[0] == 0.8
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [0.9, 0.8]
    assert [text.get_text() for text in axes.texts] == ["← 0.5"]


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize(("up", "arrow"), [(SPREAD, "↑ 900"), (ACCURACY, "↓ 0.001")])
def test_what_is_far_behind_stands_at_the_edge_of_its_axis(scale, up, arrow) -> None:
    methods = ("Baseline", "GLIF", "GLIF-NRW", "GLIF-density", "SenSeI")
    chosen = [summary(m, 0.8 + i / 100, 2.0 + i) for i, m in enumerate(methods)]
    chosen.append(summary("PFR", 0.001, 900.0))
    _, (axes,) = plots.new_figure("a")
    axes.set_yscale(scale)
    plots.trade_off(axes, {}, chosen, ACCURACY, up, spread=False)
    low, high = axes.get_ylim()
    inside = [line.get_ydata()[0] for line in axes.get_lines()]
    assert min(inside) >= low > 0.01
    assert max(inside) <= high < 20
    assert {text.get_text() for text in axes.texts} == {"← 0.001", arrow}


def test_what_has_no_number_stands_at_no_edge() -> None:
    chosen = [summary("Baseline", 0.9, 1.0), summary("SenSeI", 0.8, math.nan)]
    _, (axes,) = plots.new_figure("a")
    plots.trade_off(axes, {}, chosen, ACCURACY, SPREAD, spread=False)
    assert not axes.texts


def test_numbers_at_an_edge_do_not_collide() -> None:
    heights = {"Baseline": 0.2, "GLIF": 1.0, "GUIDE": 1.01, "PFR": 1.01, "SenSeI": 0.4}
    chosen = [
        summary(m, 0.9 if m == "Baseline" else 0.5, height)
        for m, height in heights.items()
    ]
    figure, (axes,) = plots.new_figure("a")
    plots.trade_off(axes, {}, chosen, ACCURACY, SPREAD, left=0.8, spread=False)
    boxes = drawn_boxes(figure, axes.texts)
    assert len(boxes) == 4
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


@pytest.mark.parametrize(
    ("across", "up", "arrow"),
    [
        (ACCURACY, SPREAD, "better ↘"),
        (ACCURACY, ACCURACY, "better ↗"),
    ],
)
def test_an_arrow_says_where_better_is(across, up, arrow) -> None:
    figure, (axes,) = plots.new_figure("a")
    plots.trade_off(axes, {}, [summary("GLIF", 0.9, 1.0)], across, up)
    assert axes.get_title(loc="right") == arrow
    plots.rows([axes], [summary("GLIF", 0.9, 1.0)], [up])
    assert axes.get_title(loc="right") == ("better →" if up.higher else "better ←")
    figure = plots.strength_figure({"GLIF": [summary("GLIF", 1, 1, lam=1)]}, (up, up))
    expected = "better ↑" if up.higher else "better ↓"
    assert [a.get_title(loc="right") for a in figure.axes] == [expected] * 2


def test_the_legend_covers_no_panel() -> None:
    figure = plots.radius_figure(curves(["GLIF"], [0.5, 1, 2]), (SPREAD, ACCURACY))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for one, other in combinations([legend.get_window_extent(), *boxes], 2):
        assert not one.overlaps(other)
