"""Pictures: that of the front page, and those that examples of the gallery make."""

from itertools import product
from pathlib import Path
from typing import Any

import torch
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from pyg_glif import edge_weights, fair_radius_graph, glif_smooth

#: Colours of text, of lines and behind both, on a light and on a dark page.
THEMES = {
    "light": ("#222222", "#00000030", "#ffffff"),
    "dark": ("#dddddd", "#ffffff38", "#131416"),
}
#: Rows of panels, and inches: side by side, or one above the other on a phone.
SHAPES = {"wide": (1, (9.2, 3.9)), "tall": (2, (4.6, 7.8))}
NUM_PEOPLE, RADIUS, STRENGTH = 110, 0.16, 1.0


def own_figures(block: Any, block_vars: dict[str, Any], conf: dict[str, Any]) -> str:
    """Collects figures that an example got from the package, past pyplot."""
    from sphinx_gallery.scrapers import figure_rst

    names = block_vars["example_globals"]
    seen = names.setdefault("__figures__", [])
    paths = []
    for value in list(names.values()):
        bare = isinstance(value, Figure) and not hasattr(value, "number")
        if bare and not any(value is old for old in seen):
            seen.append(value)
            path = next(block_vars["image_path_iterator"])
            value.savefig(path, dpi=100)
            paths.append(path)
    return figure_rst(paths, conf["src_dir"])


def people() -> tuple[torch.Tensor, torch.Tensor]:
    """Where people stand by what matters; scores that also lean on what must not."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(NUM_PEOPLE, 2, generator=generator)
    group = torch.rand(NUM_PEOPLE, generator=generator) < 0.4
    noise = 0.6 * torch.randn(NUM_PEOPLE, generator=generator)
    return x, torch.sigmoid(5 * (x.mean(1) - 0.5) - 2.5 * group + 1 + noise)


def draw_landing(folder: Path) -> None:
    """Writes the picture for light and dark pages, wide ones and those of phones."""
    x, y_hat = people()
    edge_index, sq_dist = fair_radius_graph(x, RADIUS)
    y_fair = glif_smooth(y_hat, edge_index, edge_weights(sq_dist, 1e-4), lam=STRENGTH)
    row, col = edge_index
    gap = (y_hat[row] - y_hat[col]).abs()
    pair = edge_index[:, gap.argmax()]  # comparable, and treated most unlike
    for (theme, (ink, line, paper)), (shape, (rows, size)) in product(
        THEMES.items(), SHAPES.items()
    ):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, 2 // rows)
        for axes, y, title in zip(
            panels,
            (y_hat, y_fair),
            ("what the model says", "after GLIF"),
            strict=True,
        ):
            segments = x[edge_index[:, row < col].T].numpy()
            axes.add_collection(LineCollection(segments, colors=line, linewidths=0.7))
            axes.scatter(*x.T, c=y, cmap="viridis", vmin=0, vmax=1, s=34, zorder=2)
            axes.scatter(
                *x[pair].T, s=130, facecolors="none", edgecolors="#D55E00",
                linewidths=2, zorder=3,
            )  # fmt: skip
            for i in pair.tolist():
                high = bool(x[i, 1] == x[pair, 1].max())
                axes.annotate(
                    f"{float(y[i]):.2f}", x[i].tolist(), (0, 11 if high else -11),
                    textcoords="offset points", ha="center", fontweight="bold",
                    va="bottom" if high else "top", color=ink, zorder=4,
                    path_effects=[withStroke(linewidth=3, foreground=paper)],
                )  # fmt: skip
            axes.set_title(title, color=ink)
            axes.set(xticks=[], yticks=[], xlim=(-0.05, 1.05), ylim=(-0.08, 1.08))
            axes.patch.set_alpha(0)
            for spine in axes.spines.values():
                spine.set_visible(False)
        scale = ScalarMappable(cmap="viridis")
        below = {"location": "bottom"} if rows == 2 else {}
        bar = figure.colorbar(scale, ax=panels, shrink=0.8, pad=0.02, **below)
        bar.set_label("score", color=ink)
        bar.ax.tick_params(colors=ink)
        bar.outline.set_visible(False)
        figure.savefig(
            folder / f"landing_{shape}_{theme}.svg",
            transparent=True,
            metadata={"Date": None},
        )
