"""Charts from plain data, as Vega-Lite specifications that Altair has checked.

Every function takes rows, as dictionaries, and the keys of what it draws. A key is also
the title of its axis or legend. Colors of text, axes and rules are ``currentColor``: a
chart is readable in the dark and on paper without being drawn again. Widths follow the
page.

Example:
    >>> rows = [{"people": -3, "group": "f", "way": "now refused"}]
    >>> colors = {"now refused": "#e07b00"}
    >>> spec = bar_chart(rows, "people", "group", color="way", colors=colors)
    >>> spec["encoding"]["x"]["title"]
    'people'
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyg_glif._utils.json import plain
from pyg_glif._utils.optional import require

#: Colors that differ also to the color-blind, on light and dark paper.
PALETTE = ("#e07b00", "#1f8fd6", "#12a37a", "#c65f9e", "#8f7ae5", "#9a8f20", "#7d8790")
#: Before and after, in every chart.
BEFORE_AFTER = {"before": "#e07b00", "after": "#1f8fd6", "outputs": "#1f8fd6"}

Rows = Sequence[Mapping[str, Any]]

_NARROW = 330  # pixels, for a legend
_TEXT = {"labelColor": "currentColor", "titleColor": "currentColor"}
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "domainColor": "currentColor",
        "tickColor": "currentColor",
        "gridColor": "currentColor",
        "gridOpacity": 0.15,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 160,
        "labelFlush": False,
        "labelOverlap": "greedy",
        "labelSeparation": 6,
    },
    "axisX": {"tickCount": 6},
    "legend": {
        **_TEXT,
        "orient": "top",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 200,
        "symbolBaseFillColor": "currentColor",
        "symbolOpacity": 1,
    },
}


def bubble_chart(rows: Rows, x: str, y: str, *, count: str, color: str) -> Any:
    """Circles sized by ``count``; on the diagonal nothing changed."""
    alt, roles = _altair(), {"x": x, "y": y, "count": count, "group": color}
    values = [row[key] for row in rows for key in (x, y)]
    ends = [{x: v, y: v} for v in (min(values), max(values))] if values else []
    counts = sorted(row[count] for row in rows)
    sizes = {counts[0], (counts[0] + counts[-1]) // 2, counts[-1]} if counts else ()
    scale = alt.Scale(zero=False, nice=True)
    places = {
        "x": _field(alt.X, "x", title=x, scale=scale),
        "y": _field(alt.Y, "y", title=y, scale=scale),
    }
    line = (
        alt.Chart(_data(alt, ends, x=x, y=y))
        .mark_line(color="currentColor", opacity=0.5, strokeDash=[4, 4])
        .encode(**places)
    )
    dots = (
        alt.Chart(_data(alt, rows, **roles))
        .mark_circle(opacity=0.65)
        .encode(
            **places,
            size=_field(
                alt.Size,
                "count",
                title=count,
                scale=alt.Scale(range=[12, 400]),
                legend=alt.Legend(orient="bottom", values=sorted(sizes)),
            ),
            color=_groups(alt, rows, color),
            tooltip=_tooltip(alt, rows, roles),
        )
    )
    return _finished(alt.layer(line, dots), height=300)


def histogram(
    rows: Rows, low: str, high: str, count: str, *, color: str, title: str
) -> Any:
    """Bars of ``count`` from ``low`` to ``high``, stacked by the group ``color``."""
    alt = _altair()
    roles = {"low": low, "high": high, "count": count, "group": color}
    chart = (
        alt.Chart(_data(alt, rows, **roles))
        .mark_bar(binSpacing=1)
        .encode(
            x=_field(alt.X, "low", title=title, bin="binned"),
            x2=alt.X2(field="high"),
            y=_field(alt.Y, "count", title=count, stack="zero"),
            color=_groups(alt, rows, color),
            tooltip=_tooltip(alt, rows, roles),
        )
    )
    return _finished(chart, height=240)


def bar_chart(
    rows: Rows, x: str, y: str, *, color: str, colors: Mapping[str, str]
) -> Any:
    """Bars along a zero line, in both directions if there are negative values.

    ``colors`` has the color of each kind, in the order of the legend.
    """
    alt, roles = _altair(), {"name": y, "kind": color, "value": x}
    names = list(dict.fromkeys(str(row[y]) for row in rows))
    chart = (
        alt.Chart(_data(alt, rows, **roles))
        .mark_bar()
        .encode(
            # To the left of zero there are as many, not less than none.
            x=_field(
                alt.X,
                "value",
                title=x,
                stack="zero",
                axis=alt.Axis(labelExpr="replace(datum.label, '\u2212', '')"),
            ),
            y=alt.Y(field="name", type="nominal", sort=names, title=y),
            color=_kinds(alt, rows, color, colors),
            tooltip=_tooltip(alt, rows, roles),
        )
    )
    return _finished(chart, height=max(90, 36 * len(names)))


def interval_chart(
    rows: Rows,
    value: str,
    name: str,
    *,
    color: str,
    colors: Mapping[str, str],
    limit: str | None = None,
) -> Any:
    """Points with lines from ``low`` to ``high``, which may be :obj:`None`.

    Kinds of values, by ``color``, stand beside each other. ``limit`` is the key of a
    value that is marked by a tick.
    """
    alt = _altair()
    roles = {"name": name, "kind": color, "value": value, "low": "low", "high": "high"}
    names = list(dict.fromkeys(str(row[name]) for row in rows))
    scale, base = alt.Scale(zero=False), alt.Chart(_data(alt, rows, **roles))
    shared = {
        "y": alt.Y(field="name", type="nominal", sort=names, title=None),
        "yOffset": alt.YOffset(field="kind", type="nominal", sort=list(colors)),
        "color": _kinds(alt, rows, color, colors),
    }
    line = base.mark_rule(strokeWidth=2).encode(
        x=_field(alt.X, "low", title=value, scale=scale),
        x2=alt.X2(field="high"),
        **shared,
    )
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=_field(alt.X, "value", title=value, scale=scale),
        tooltip=_tooltip(alt, rows, roles),
        **shared,
    )
    layers = [line, dots]
    if limit is not None:
        limits = alt.Chart(_data(alt, rows, name=name, limit=limit))
        tick = limits.mark_tick(color="currentColor", thickness=3, size=32)
        x = _field(alt.X, "limit", title=value, scale=scale)
        layers.append(tick.encode(x=x, y=shared["y"]))
    return _finished(alt.layer(*layers), height=max(90, 44 * len(names)))


def band_chart(
    rows: Rows, x: str, middle: str, high: str, *, color: str, colors: Mapping[str, str]
) -> Any:
    """A line at ``middle``, and the band from it up to ``high``."""
    alt, roles = _altair(), {"kind": color, "x": x, "middle": middle, "high": high}
    base = alt.Chart(_data(alt, rows, **roles))
    shared = {
        "x": _field(alt.X, "x", title=x),
        "y": _field(alt.Y, "middle", title=f"{middle}, and up to {high}"),
        "color": _kinds(alt, rows, color, colors),
    }
    band = base.mark_area(opacity=0.2).encode(y2=alt.Y2(field="high"), **shared)
    line = base.mark_line(point={"filled": True, "size": 30}).encode(
        tooltip=_tooltip(alt, rows, roles), **shared
    )
    return _finished(alt.layer(band, line), height=260)


def front_chart(rows: Rows, x: str, y: str, *, kind: str, order: Sequence[str]) -> Any:
    """Settings by ``x``, which should be small, and ``y``, which should be large.

    ``order`` has the kinds of settings from the least to the most important; the second
    is joined by a line. Every row has a ``setting``, its words.
    """
    alt, roles = _altair(), {"kind": kind, "setting": "setting", "x": x, "y": y}
    kinds, scale = list(order), alt.Scale(zero=False)
    colors = ["#7d8790", "#1f8fd6", "currentColor", "#e07b00"][: len(kinds)]
    sizes = [20, 50, 90, 160][: len(kinds)]
    base = alt.Chart(_data(alt, rows, **roles))
    places = {
        "x": _field(alt.X, "x", title=f"{x} (less is fairer)", scale=scale),
        "y": _field(alt.Y, "y", title=f"{y} (more is better)", scale=scale),
    }
    line = (
        base.transform_filter(alt.FieldEqualPredicate(field="kind", equal=kinds[1]))
        .mark_line(color=colors[1], opacity=0.6)
        .encode(**places)
    )
    shared = {"field": "kind", "type": "ordinal", "sort": kinds}
    shared["legend"] = alt.Legend(title=None, columns=2)
    dots = base.mark_point(filled=True, opacity=0.9).encode(
        **places,
        color=alt.Color(scale=alt.Scale(domain=kinds, range=colors), **shared),
        size=alt.Size(scale=alt.Scale(domain=kinds, range=sizes), **shared),
        tooltip=_tooltip(alt, rows, roles),
    )
    return _finished(alt.layer(line, dots), height=300)


def _altair() -> Any:
    return require("altair", "Charts in pages", "report")


def _data(alt: Any, rows: Rows, **roles: str) -> Any:
    """Rows as part of the specification, keys replaced by their roles.

    To Vega-Lite some characters in names of fields mean something.
    """
    values = [{role: row[key] for role, key in roles.items()} for row in rows]
    return alt.InlineData(values=plain(values))


def _field(channel: Any, role: str, **options: Any) -> Any:
    """A channel of numbers."""
    return channel(field=role, type="quantitative", **options)


def _groups(alt: Any, rows: Rows, key: str) -> Any:
    """Colors of groups; the legend has as many columns as fit on a phone."""
    names = list(dict.fromkeys(str(row[key]) for row in rows))
    longest = max(map(len, names), default=0)
    first = 0 if len(names) > 1 else 1
    colors = {n: PALETTE[(first + k) % len(PALETTE)] for k, n in enumerate(names)}
    columns = min(4, max(1, _NARROW // (30 + 7 * longest)))
    return _colors(alt, "group", colors, title=key, columns=columns)


def _kinds(alt: Any, rows: Rows, key: str, colors: Mapping[str, str]) -> Any:
    """Colors of the kinds that occur, in their order."""
    kinds = {row[key] for row in rows}
    colors = {kind: color for kind, color in colors.items() if kind in kinds}
    return _colors(alt, "kind", colors, title=None, columns=2)


def _colors(alt: Any, role: str, colors: Mapping[str, str], **legend: Any) -> Any:
    """A channel of colors, with a legend only if there are several."""
    return alt.Color(
        field=role,
        type="nominal",
        scale=alt.Scale(domain=list(colors), range=list(colors.values())),
        legend=alt.Legend(**legend) if len(colors) > 1 else None,
    )


def _tooltip(alt: Any, rows: Rows, roles: Mapping[str, str]) -> list[Any]:
    """Values shown beside the pointer, numbers in four digits."""
    out = []
    for role, key in roles.items():
        texts = any(isinstance(row[key], str) for row in rows)
        options = {"type": "nominal"} if texts else {"type": "quantitative"}
        if not texts:
            options["format"] = ".4~g"
        # Titles become parts of expressions, in which a backslash is not itself.
        title = key.replace("\\", "\\\\")
        out.append(alt.Tooltip(field=role, title=title, **options))
    return out


def _finished(chart: Any, height: int) -> dict[str, Any]:
    """The specification, as wide as its place."""
    out: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    out["autosize"] = {"type": "fit-x", "contains": "padding"}
    out["config"] = _CONFIG
    return out
