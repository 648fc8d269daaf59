"""Facts about a fit, as pages and answers show them."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from pyg_glif._utils.json import plain
from pyg_glif.reporting import (
    Figure,
    bar_chart,
    front_chart,
    histogram,
    interval_chart,
    number,
)
from pyg_glif.serve._loaded_fit import LoadedFit
from pyg_glif.serve._what_if import WhatIf

# Neighbors listed on the page of a sample.
_MAX_NEIGHBORS = 20
_KINDS = ("other settings", "this radius", "served now", "chosen here")


def grid_content(fit: LoadedFit, grid: WhatIf) -> dict[str, Any]:
    """A grid of settings as plain data; samples only if they may be shown."""
    points = []
    for point in grid.points:
        people = []
        if fit.settings.show_people:
            rows, after = point["people"], point["after"]
            lines = zip(rows, fit.y_hat[rows].tolist(), after, strict=True)
            people = [
                {"row": row, "id": fit.ids[row], "before": before, "after": value}
                for row, before, value in lines
            ]
        kept_or_near = point["kept"]
        if kept_or_near is None:  # it is not known what a decision is
            kept_or_near = 1.0 - point["affected"] / fit.num_samples
        shown = {**point, "people": people, "kept_or_near": kept_or_near}
        del shown["after"]
        points.append(shown)
    content: dict[str, Any] = plain(
        {
            "lams": grid.lams,
            "taus": [tau if isfinite(tau) else None for tau in grid.taus],
            "at": grid.at,
            "unit": fit.unit,
            "num_people": fit.num_samples,
            "least": grid.least,
            "edges": grid.edges,
            "points": points,
        }
    )
    return content


def grid_words(fit: LoadedFit) -> dict[str, Any]:
    """Names on the what-if page."""
    is_single = fit.num_outputs is None
    return {
        "kinds": _KINDS,
        "disagreement": "difference between similar people",
        "kept": "decisions kept" if fit.decide else "share of people not affected",
        "up": "become yes" if is_single else "become another",
        "down": "become no" if is_single else "",
    }


def grid_figures(grid: Mapping[str, Any]) -> list[Figure]:
    """Charts of the what-if page, for the settings of the fit."""
    words, (tau, lam) = grid["words"], grid["at"]
    own = grid["points"][tau * len(grid["lams"]) + lam]
    x, y = words["disagreement"], words["kept"]
    front = [
        {
            x: point["disagreement"],
            y: point["kept_or_near"],
            "kind": _KINDS[int(point["tau"] == own["tau"])],
            "setting": f"strength {number(point['lam'])}",
        }
        for point in grid["points"]
    ]
    last = {x: own["disagreement"], y: own["kept_or_near"], "setting": "the fit"}
    front += [{**last, "kind": _KINDS[2]}, {**last, "kind": _KINDS[3]}]
    signs = {"up": 1, "down": -1} if words["down"] else {"up": 1}
    groups = [
        {"people": sign * group[way], "group": group["group"], "way": words[way]}
        for group in own["groups"]
        for way, sign in signs.items()
    ]
    colors = {words["up"]: "#12a37a", words["down"]: "#c65f9e"}
    edges = grid["edges"]
    bars = [
        {"from": edges[k], "to": edges[k + 1], "people": count, "group": "everybody"}
        for k, count in enumerate(own["bars"])
    ]
    title = "how far the output moves"
    figures = [
        Figure(
            "front",
            "What is given up for what",
            "Each point is a setting; the line joins strengths of the radius chosen.",
            draw=lambda: front_chart(front, x, y, kind="kind", order=_KINDS),
        ),
        Figure(
            "decisions",
            "Decisions that change",
            "People whose decision differs from the model's, by group.",
            draw=lambda: bar_chart(
                groups,
                "people",
                "group",
                color="way",
                colors={words[way]: colors[words[way]] for way in signs},
            ),
        ),
        Figure(
            "movement",
            "People affected",
            "How many people move how far.",
            draw=lambda: histogram(
                bars, "from", "to", "people", color="group", title=title
            ),
        ),
    ]
    return figures if groups else [figures[0], figures[2]]


def stream_figure(streams: Mapping[str, Any]) -> Figure:
    """Means that a monitor watches, with their intervals."""
    rows = [
        {
            "mean": stream["mean"],
            "low": stream["interval"][0],
            "high": stream["interval"][1],
            "limit": stream["limit"],
            "of": name,
            "kind": "alarm" if stream["alarm"] else "no alarm",
        }
        for name, stream in streams.items()
        if stream["num"]
    ]
    colors = {"no alarm": "#1f8fd6", "alarm": "#e07b00"}
    return Figure(
        "streams",
        "What is watched",
        "Points are means by now. Lines hold the true mean at all times at once, if it "
        "is one and the same number throughout. The upright line is the limit.",
        draw=lambda: interval_chart(
            rows, "mean", "of", color="kind", colors=colors, limit="limit"
        ),
    )


def sample_line(fit: LoadedFit, row: int) -> dict[str, Any]:
    """A fitted sample in one line of a table."""
    before, after = (y[row].reshape(-1).tolist() for y in (fit.y_hat, fit.y_fair))
    return {
        "row": row,
        "id": fit.ids[row],
        "outputs": list(zip(fit.output_names, before, after, strict=True)),
        "moved": float(fit.moved[row]),
        "num_neighbors": int(fit.num_neighbors[row]),
    }


def sample_page(fit: LoadedFit, row: int) -> dict[str, Any]:
    """The page of a fitted sample: explanation, neighbors that count most, columns."""
    why = fit.post.explain(row)
    columns = _cells(fit, row)
    neighbors = []
    for other, share in fit.contributors(why, _MAX_NEIGHBORS, own=row):
        cells = _cells(fit, other)
        neighbors.append(
            {
                "row": other,
                "id": fit.ids[other],
                "numbers": [share, *fit.y_hat[other].reshape(-1).tolist()],
                "cells": [
                    (cell, cell != columns[name]) for name, cell in cells.items()
                ],
            }
        )
    return {
        "line": sample_line(fit, row),
        "text": why.to_text(reasons=True).split("\n\n"),
        "neighbors": neighbors,
        "outputs": fit.output_names,
        "columns": columns,
    }


def _cells(fit: LoadedFit, row: int) -> dict[str, Any]:
    """Columns of a fitted sample by name, in words where nothing is known."""
    frame = fit.metadata.frame
    if frame is None:
        return {}
    values, known = frame.iloc[row].tolist(), frame.iloc[row].notna()
    return {
        str(name): value if is_known else "not known"
        for name, value, is_known in zip(frame, values, known, strict=True)
    }
