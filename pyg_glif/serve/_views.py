"""What pages and answers show of a loaded fit."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from torch import Tensor

from pyg_glif._utils.json import plain
from pyg_glif.explain import Explanation
from pyg_glif.serve._loaded_fit import LoadedFit
from pyg_glif.serve._what_if import WhatIf

# Neighbors named as those that count most.
_MAX_NEIGHBORS = 20
_SHARES = ("own_share", "neighbors_share", "others_share")


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


def sample_line(fit: LoadedFit, row: int) -> dict[str, Any]:
    """A fitted sample in one line of a table."""
    pairs = zip(
        fit.y_hat[row].reshape(-1).tolist(),
        fit.y_fair[row].reshape(-1).tolist(),
        strict=True,
    )
    return {
        "row": row,
        "id": fit.ids[row],
        "scores": [value for pair in pairs for value in pair],
        "moved": float(fit.moved[row]),
        "num_neighbors": int(fit.num_neighbors[row]),
    }


def sample_page(fit: LoadedFit, row: int) -> dict[str, Any]:
    """The page of a fitted sample: explanation, neighbors that count most, columns."""
    why, line = fit.post.explain(row), sample_line(fit, row)
    frame, columns = fit.metadata.frame, {}
    if frame is not None:
        columns = dict(zip(frame, _cells(frame, row), strict=True))
    facts: list[tuple[str, Any]] = []
    pairs = zip(line["scores"][::2], line["scores"][1::2], strict=True)
    for name, (before, after) in zip(fit.output_names, pairs, strict=True):
        facts += [(f"{name} of the model", before), (f"{name}, corrected", after)]
    facts += [("moved by", line["moved"]), ("peers", line["num_neighbors"])]
    return {
        "facts": facts,
        "letter": why.to_text(reasons=True).split("\n\n"),
        "peers": _named_neighbors(fit, why, row, columns),
        "header": ["id", "share", *fit.output_names, *columns],
        "numbers": range(1, 2 + len(fit.output_names)),
        "columns": list(columns.items()),
    }


def explanation(
    fit: LoadedFit, x: Tensor, y: Tensor, top: int, names: bool, frame: Any = None
) -> dict[str, Any]:
    """The answer of ``/v1/explain``; the sample is not counted as served."""
    why = fit.explain_new(x, y, frame)
    content = why.to_dict(names=fit.disclosure is None)
    answer = {
        "text": why.to_text(reasons=True),
        **{name: content[name] for name in _SHARES},
        "num_neighbors": content["num_neighbors"],
        "num_others": content["num_others"],
    }
    for name in ("neighbors_mean", "others_mean"):
        mean = content[name]
        answer[name] = [mean] if isinstance(mean, float) else mean
    if names:
        answer["neighbors"] = [
            {"id": line["id"], "share": line["cells"][0]}
            for line in _named_neighbors(fit, why, -1, {})[:top]
        ]
    return {"y_fair": [content["y_fair"]], **answer}


def _named_neighbors(
    fit: LoadedFit, why: Explanation, own: int, columns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Neighbors that count most, and the columns in which they differ."""
    lines, own_cells = [], list(columns.values())
    others = why.index != own
    rows, shares = why.index[others].tolist(), why.weight[others].tolist()
    for row, share in list(zip(rows, shares, strict=True))[:_MAX_NEIGHBORS]:
        values = [share, *fit.y_hat[row].reshape(-1).tolist()]
        cells = _cells(fit.metadata.frame, row) if columns else []
        differing = [k for k, cell in enumerate(cells) if cell != own_cells[k]]
        lines.append(
            {
                "row": row,
                "id": fit.ids[row],
                "cells": [*values, *cells],
                "marks": [k + len(values) + 1 for k in differing],
            }
        )
    return lines


def _cells(frame: Any, row: int) -> list[Any]:
    """Cells of a row, in words where nothing is known."""
    values, known = frame.iloc[row].tolist(), frame.iloc[row].notna()
    return [v if there else "not known" for v, there in zip(values, known, strict=True)]
