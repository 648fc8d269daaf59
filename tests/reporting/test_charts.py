"""Charts hold the data they were given, under any key, and Vega-Lite compiles them."""

import json
from typing import Any

import pytest

from pyg_glif import reporting as pages

alt = pytest.importorskip("altair")
convert = pytest.importorskip("vl_convert")

KEYS = ["plain", "a.b [c]:Q", 'it\'s "<b>"\\']


def charts(key: str) -> dict[str, dict[str, Any]]:
    """Every chart of two rows, with a key of all kinds of characters."""
    colors = {"before": "#e07b00", "after": "#1f8fd6"}
    rows = [
        {
            key: value, "y": 2 * value, "low": value - 1, "high": value + 1,
            "n": 3, "group": f"<{when}>", "when": when, "setting": "lam=1",
        }
        for value, when in ((0.5, "before"), (1.5, "after"))
    ]  # fmt: skip
    order = ["all", "front", "before", "after"]
    return {
        "bubble": pages.bubble_chart(rows, key, "y", count="n", color="group"),
        "histogram": pages.histogram(
            rows, "low", "high", key, color="group", title="moved"
        ),
        "bar": pages.bar_chart(rows, key, "group", color="when", colors=colors),
        "interval": pages.interval_chart(
            rows, key, "group", color="when", colors=colors
        ),
        "band": pages.band_chart(rows, "low", key, "y", color="when", colors=colors),
        "front": pages.front_chart(rows, "y", key, kind="when", order=order),
    }


def datasets(spec: Any) -> list[list[dict[str, Any]]]:
    """All data inside a specification, which Altair puts where it likes."""
    if isinstance(spec, dict):
        return [found for part in spec.values() for found in datasets(part)]
    if not isinstance(spec, list):
        return []
    here = [spec] if spec and all(isinstance(row, dict) for row in spec) else []
    return here + [found for part in spec for found in datasets(part)]


@pytest.mark.parametrize("key", KEYS)
def test_charts_are_drawn_from_their_rows(key: str) -> None:
    for name, spec in charts(key).items():
        json.dumps(spec, allow_nan=False)
        columns = [[row.get(k) for row in d] for d in datasets(spec) for k in d[0]]
        assert [0.5, 1.5] in columns, name
        assert spec["width"] == "container"
        # Compiled and drawn by Vega itself, which leaves out what it cannot find.
        wide = json.loads(json.dumps(spec).replace('"container"', "400"))
        version = "_".join(alt.SCHEMA_VERSION.split(".")[:2])
        svg = convert.vegalite_to_svg(wide, vl_version=version)
        assert "NaN" not in svg, name
        assert "undefined" not in svg, name
        assert svg.count("currentColor") > 5, name


def test_legends_are_as_wide_as_a_phone() -> None:
    rows = [
        {"x": k, "y": k, "n": count, "group": "a rather long name of a group " + str(k)}
        for k, count in enumerate((1, 7, 2343))
    ]
    spec = pages.bubble_chart(rows, "x", "y", count="n", color="group")
    dots = spec["layer"][1]["encoding"]
    assert dots["size"]["legend"]["values"] == [1, 1172, 2343]  # nobody is not shown
    assert dots["size"]["legend"]["orient"] == "bottom"
    assert dots["color"]["legend"]["columns"] == 1
    short = [{**row, "group": str(k)} for k, row in enumerate(rows)]
    spec = pages.bubble_chart(short, "x", "y", count="n", color="group")
    assert spec["layer"][1]["encoding"]["color"]["legend"]["columns"] == 4


def test_colours_of_text_follow_the_page() -> None:
    (spec, *_) = charts("plain").values()
    for part in ("axis", "legend"):
        assert spec["config"][part]["labelColor"] == "currentColor"
    assert spec["config"]["background"] == "transparent"
