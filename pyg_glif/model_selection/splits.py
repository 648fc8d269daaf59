"""Who is fitted and who arrives as a newcomer, in turn."""

import heapq
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.validation import check_count, check_indices


class Fold(NamedTuple):
    """Row numbers: who is fitted, and who comes after that."""

    fitted: Tensor  # [K]
    new: Tensor  # [M]


def make_folds(
    cv: Any,
    may_be_new: Tensor,
    labels: Tensor | None,
    clusters: Tensor | None,
    generator: torch.Generator | None,
) -> list[Fold]:
    """The folds that ``cv`` stands for.

    Args:
        cv (int, splitter or iterable): How many folds, an object with the ``split`` of
            scikit-learn, or pairs of row numbers: fitted and new.
        may_be_new (Tensor): Who may be a newcomer, ``[N]``; others are neighbours only.
        labels (Tensor, optional): Classes, spread evenly over a number of folds.
        clusters (Tensor, optional): Who belongs together and is never split.
        generator (torch.Generator, optional): Shuffles. (default: seed 0)
    """
    device, may_be_new = may_be_new.device, may_be_new.cpu()
    labels = None if labels is None else labels.cpu()
    clusters = None if clusters is None else clusters.cpu()
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        check_count("cv", int(cv), minimum=2)
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        if clusters is None:
            where = _deal_samples(int(cv), may_be_new, labels, generator)
        else:
            where = _deal_clusters(int(cv), may_be_new, clusters, generator)
        parts = [
            (where != k, (where == k) & may_be_new)  # [N] twice
            for k in range(int(cv))
        ]
        folds = [(fitted.nonzero()[:, 0], new.nonzero()[:, 0]) for fitted, new in parts]
    else:
        folds = _given(cv, may_be_new, labels, clusters)
    return [Fold(fitted.to(device), new.to(device)) for fitted, new in folds]


def _deal_samples(
    num: int, may_be_new: Tensor, labels: Tensor | None, generator: torch.Generator
) -> Tensor:  # [N]
    """Fold of each person, classes evenly; -1 for those who are never new."""
    rows = may_be_new.nonzero()[:, 0]
    if num > len(rows):
        _too_many(num, len(rows), "samples that can be new")
    order = rows[torch.randperm(len(rows), generator=generator)]
    if labels is not None:
        order = order[labels[order].argsort(stable=True)]
    where = torch.full((len(may_be_new),), -1)
    where[order] = torch.arange(len(order)) % num
    return where


def _deal_clusters(
    num: int, may_be_new: Tensor, clusters: Tensor, generator: torch.Generator
) -> Tensor:  # [N]
    """Fold of each person: the largest cluster next, to the fold with fewest people."""
    _, clusters = torch.unique(clusters, return_inverse=True)
    size = torch.bincount(clusters[may_be_new], minlength=int(clusters.max()) + 1)
    if num > int((size > 0).sum()):
        _too_many(num, int((size > 0).sum()), "clusters with new samples")
    order = torch.randperm(len(size), generator=generator)
    order = order[size[order].argsort(descending=True, stable=True)]
    heap, fold = [(0, k) for k in range(num)], torch.empty_like(size)
    for g in order.tolist():
        total, k = heap[0]
        fold[g] = k
        heapq.heapreplace(heap, (total + int(size[g]), k))
    return fold[clusters]


def _too_many(num: int, most: int, of_what: str) -> None:
    msg = f"'cv' must be at most the number of {of_what}, {most} (got {num})"
    raise ValueError(f"{msg}. Pass fewer folds, or 'None' to score who was fitted")


def _given(
    cv: Any, may_be_new: Tensor, labels: Tensor | None, clusters: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    """Folds of a splitter or an iterable, checked."""
    size, given = len(may_be_new), cv
    if hasattr(cv, "split") and not isinstance(cv, str):
        y, g = (None if v is None else v.numpy() for v in (labels, clusters))
        given = cv.split(np.zeros((size, 1)), y, g)
    try:
        pairs = [tuple(pair) for pair in given]
        if any(len(pair) != 2 for pair in pairs):
            raise TypeError
        folds = [(_rows(fitted, size), _rows(new, size)) for fitted, new in pairs]
    except TypeError as error:
        msg = "'cv' must be a number of folds, a splitter of scikit-learn or pairs of"
        raise TypeError(f"{msg} row numbers (got {cv!r})") from error
    if len(folds) < 2:
        raise ValueError(f"'cv' must have at least 2 folds (got {len(folds)})")
    seen = torch.zeros(size, dtype=torch.long)
    out = []
    for k, (fitted, new) in enumerate(folds):
        new = new[may_be_new[new]]
        for name, rows in (("fitted", fitted), ("new", new)):
            if len(rows) == 0:
                msg = f"'cv' must have {name} people in every fold (got none in fold"
                raise ValueError(f"{msg} {k})")
        apart = torch.zeros(size, dtype=torch.bool)
        apart[fitted] = True
        if bool(apart[new].any()):
            row = int(new[apart[new]][0])
            msg = f"'cv' must not fit newcomers (got row {row} on both sides of fold"
            raise ValueError(f"{msg} {k})")
        if clusters is not None and bool(
            torch.isin(clusters[new], clusters[fitted]).any()
        ):
            msg = f"'cv' must not split a cluster (got one on both sides of fold {k})"
            raise ValueError(f"{msg}. Pass a number of folds, or 'GroupKFold'")
        seen[new] += 1
        out.append((fitted, new))
    if int(seen.max()) > 1:
        row = int(seen.argmax())
        msg = f"'cv' must make nobody a newcomer twice (got row {row} in"
        raise ValueError(f"{msg} {int(seen[row])} folds). Use 'KFold' or a number")
    return out


def _rows(value: Any, size: int) -> Tensor:
    """Different row numbers in order, from numbers or truth values."""
    array = np.asarray(value)
    array = np.flatnonzero(array) if array.dtype == bool else array
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError
    rows = torch.from_numpy(np.unique(array).astype(np.int64))
    check_indices("cv", rows, size)
    return rows
