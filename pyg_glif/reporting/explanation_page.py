"""Explanations as text, tables and charts."""

from functools import lru_cache
from textwrap import fill
from typing import Any

from pyg_glif._utils.disclosure import MIN_SHARED
from pyg_glif._utils.optional import require
from pyg_glif.reporting.charts import bar_chart
from pyg_glif.reporting.environment import environment
from pyg_glif.reporting.tables import Figure, ReportTable
from pyg_glif.reporting.words import whole_percents

# An 'Explanation', whose module imports this package.
Explanation = Any

_NAMES = {
    "own": "own output",
    "neighbors": "people like you",
    "others": "people like them",
    "together": "people like you and like them",
}
_COLORS = dict(
    zip(_NAMES.values(), ("#e07b00", "#1f8fd6", "#7d8790", "#1f8fd6"), strict=True)
)
# Features named in a text, and contributors.
_MAX_FEATURES = 3
_MAX_NAMED = 10


def text_of(why: Explanation, names: bool, reasons: bool, noun: str) -> str:
    """The text, wrapped; reasons are a second paragraph."""
    words = _template()
    parts = why.disclosed
    percents = whole_percents([part.share for part in parts.values()])
    paragraphs = [
        words.result(
            why,
            noun,
            changes=_changes(why),
            total=sum(part.share for part in why.parts.values()),
            parts=[
                (_NAMES[name].removeprefix("people "), part, percent)
                for (name, part), percent in zip(parts.items(), percents, strict=True)
            ],
            closest=why.closest and why.closest[:_MAX_FEATURES],
            num_closest=MIN_SHARED,
        )
    ]
    if reasons and why.reasons is not None:
        paragraphs.append(words.reasons(why, noun, why.reasons[:_MAX_FEATURES]))
    filled = [fill(" ".join(p.split()), 80, break_on_hyphens=False) for p in paragraphs]
    text = "\n\n".join(filled)
    if names:
        for row in why.contributors[:_MAX_NAMED]:
            text += f"\n{row['share']:.1%} {row['sample']}"
    return text


def figure_of(why: Explanation) -> Figure:
    """Parts of the result that may be shown."""
    parts = [(_NAMES[name], part) for name, part in why.disclosed.items()]
    percents = whole_percents([part.share for _, part in parts])
    header, rows = ["from", "people", "percent", "average output"], []
    for (name, part), percent in zip(parts, percents, strict=True):
        rows.append([name, part.num_samples, percent, part.mean])
    if not why.is_counted:
        header, rows = [header[0], *header[2:]], [[row[0], *row[2:]] for row in rows]
    length = "percent of the result"
    bars = [
        {length: 100.0 * part.share, "of": name, "kind": name} for name, part in parts
    ]
    return Figure(
        "shares",
        "What the result is made of",
        "How much of the result comes from whom.",
        header,
        rows,
        range(1, len(header)),
        draw=lambda: bar_chart(bars, length, "of", color="kind", colors=_COLORS),
    )


def markdown_of(why: Explanation, names: bool) -> str:
    """Parts of the result, or contributors, in a Markdown table."""
    if not names:
        return figure_of(why).to_markdown(aligned=True)
    rows = [
        [row["sample"], f"{row['share']:.4f}", f"{row['distance']:.4g}"]
        for row in why.contributors
    ]
    table = ReportTable("", "", "", ["person", "weight", "distance"], rows, range(3))
    return table.to_markdown(aligned=True)


def fragment_of(why: Explanation) -> str:
    """Text and table in HTML."""
    template = environment().get_template("explanation_short.html")
    return template.render(text=why.to_text(), table=figure_of(why))


def plot_of(why: Explanation) -> Any:
    """A matplotlib figure of the parts of the result."""
    matplotlib = require("matplotlib.figure", "Explanation.plot", "plots")
    figure = matplotlib.Figure(figsize=(6.4, 2.2), layout="constrained")
    axes = figure.subplots()
    for key, part in why.disclosed.items():
        name = _NAMES[key]
        bar = axes.barh([name], [100.0 * part.share], color=_COLORS[name])
        axes.bar_label(bar, [f"{part.share:.1%}"], padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="percent of the result", xlim=(0.0, 112.0))
    if isinstance(why.y_hat, float) and isinstance(why.y_fair, float):
        before, after = _decimals(why.y_hat, why.y_fair)
        axes.set_title(f"from {before} to {after}", fontsize="medium")
    return figure


def _changes(why: Explanation) -> list[tuple[str, str, str]]:
    """Name, output before and output after of every output."""
    if why.y_hat is None or why.y_fair is None:
        return []
    if isinstance(why.y_hat, float):
        return [("", *_decimals(why.y_hat, why.y_fair))]
    names = why.output_names or range(len(why.y_hat))
    outputs = zip(names, why.y_hat, why.y_fair, strict=True)
    return [(str(name), *_decimals(before, after)) for name, before, after in outputs]


def _decimals(before: float, after: float) -> tuple[str, str]:
    """Two numbers in as few decimals as make a difference visible, two to six."""
    for digits in range(2, 7):
        texts = f"{before:.{digits}f}", f"{after:.{digits}f}"
        if before == after or texts[0] != texts[1]:
            break
    return texts


@lru_cache
def _template() -> Any:
    """Sentences, as macros."""
    return environment().get_template("explanation.txt").module
