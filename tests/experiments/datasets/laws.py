"""What holds for every data set of texts and their alterations."""

import csv
import gzip
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MASKS = ("train_mask", "val_mask", "test_mask")


def features_of(text: str) -> list[float]:
    """Eight numbers that differ for different texts."""
    digest = hashlib.sha256(text.encode()).digest()[:8]
    return [byte / 256 for byte in digest]


class FakeEncoder:
    """Stands in for the encoder; remembers what it was asked."""

    def __init__(self) -> None:
        self.texts: list[list[str]] = []
        self.options: list[dict[str, Any]] = []

    def __call__(self, texts: Sequence[str], **options: Any) -> Tensor:
        self.texts.append(list(texts))
        self.options.append(options)
        return torch.tensor([features_of(t) for t in texts], dtype=torch.float32)


def write_csv(
    path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def groups_of(data: Any, mask: Tensor) -> set[int]:
    return set(data.group[mask].tolist())


def check_laws(dataset: Any, num_variants: int) -> None:
    """Masks and groups are what the docstrings promise."""
    assert len(dataset) == 1
    data = dataset[0]
    num = data.num_nodes
    assert data.x.shape[0] == num
    assert data.x.dtype == torch.float32
    assert data.y.dtype == data.group.dtype == torch.long
    train, val, test = (data[mask] for mask in MASKS)
    for a, b in ((train, val), (train, test), (val, test)):
        assert not (a & b).any()
        assert not groups_of(data, a) & groups_of(data, b)
    assert (train | val | test).all()
    assert data.original[train].all()
    # One original per group, whose label all rows of the group carry.
    groups = data.group[data.original]
    assert len(groups.unique()) == len(groups) == len(data.group.unique())
    label = {int(g): int(y) for g, y in zip(groups, data.y[data.original], strict=True)}
    assert [label[g] for g in data.group.tolist()] == data.y.tolist()
    # The full set of variants, or none.
    _, sizes = data.group[val | test].unique(return_counts=True)
    assert set(sizes.tolist()) <= {1, 1 + num_variants}
    check_face_rows(dataset, data)


def check_face_rows(dataset: Any, data: Any) -> None:
    x, group = dataset.face_x, dataset.face_group
    assert x.shape == (len(group), data.num_features)
    assert set(group.tolist()) <= groups_of(data, data.train_mask)
    _, sizes = group.unique(return_counts=True)
    assert len(set(sizes.tolist())) == 1
    assert int(sizes[0]) > 1


def assert_same(one: Any, other: Any) -> None:
    """The same graph and the same rows for the metric."""
    a, b = one[0], other[0]
    assert a.keys() == b.keys()
    for key in a.keys():  # noqa: SIM118
        assert torch.equal(a[key], b[key]), key
    assert torch.equal(one.face_x, other.face_x)
    assert torch.equal(one.face_group, other.face_group)
