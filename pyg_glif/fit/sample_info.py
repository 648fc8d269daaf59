r"""Facts about fitted samples beside features and outputs: ids, precision, groups.

A balanced fit (:mod:`pyg_glif.solvers.balance`) minimises, at the shares
:math:`\beta` that it has found, :math:`\|f - \hat y\|^2 + \lambda \sum_{ij} \beta_{ij}
v_{ij} (f_i - f_j)^2`, the sum over pairs, with :math:`\beta_{ij}` the mean of
:math:`\beta` at both ends. A new sample is one more coordinate of it: the inductive
step with :math:`\beta_{ij} v_{ij}` in place of :math:`v_{ij}`. Shares do not move: they
are those of the fitted samples, which one more sample changes by the order of one in
their number, and no result depends on the rest of the batch (``docs/maths.md``).

A new sample of unknown group belongs to none: its pair with :math:`j` then counts for
the group of :math:`j` only, :math:`\beta_{ij} = \beta_j`, and that with another new
sample as in a fit without groups.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_tensor
from pyg_glif._utils.validation import (
    check_finite,
    check_integer,
    check_node_rows,
    check_rank,
    check_scalar,
)
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.solvers import Balance

#: Name of a sample or of a group.
Id = str | int


def as_ids(ids: Any, name: str = "ids") -> list[Id]:
    """Texts or whole numbers, from any sequence or from one of them."""
    if isinstance(ids, (str, int)):
        ids = [ids]
    if not isinstance(ids, Iterable):
        raise TypeError(f"'{name}' must be a sequence (got {type(ids).__name__})")
    # Entries of arrays, tensors and series as Python objects.
    entries = [entry.item() if hasattr(entry, "item") else entry for entry in ids]
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, (str, int)):
            raise TypeError(f"'{name}' must be texts or whole numbers (got {entry!r})")
    return entries


def check_ids(ids: Any, num: int) -> tuple[Id, ...]:
    """Different ids, one per sample."""
    entries = _one_per_sample("ids", as_ids(ids), num)
    seen: set[Id] = set()
    for entry in entries:
        if entry in seen:
            raise ValueError(f"'ids' must be different (got {entry!r} twice)")
        seen.add(entry)
    return tuple(entries)


def _one_per_sample(name: str, entries: Any, num: int) -> Any:
    """The same entries; raises unless there are ``num``."""
    if len(entries) != num:
        msg = f"'{name}' must have one entry per row of 'x'"
        raise ValueError(f"{msg} (got {len(entries)} for {num})")
    return entries


def check_y_std(y_std: Any, num: int, like: Tensor) -> Tensor:  # [N] float64
    """Positive standard deviations, one per sample."""
    if isinstance(y_std, (int, float)):
        number = check_scalar("y_std", y_std, above=0.0)
        return torch.full((num,), number, dtype=torch.float64, device=like.device)
    out = to_tensor("y_std", y_std, copy=True).double().to(like.device)
    check_rank("y_std", out, 1)
    _one_per_sample("y_std", out, num)
    check_finite("y_std", out)
    if len(out):
        check_scalar("y_std", float(out.min()), above=0.0)
    return out


@dataclass(frozen=True, eq=False)
class Groups:
    """Group of each sample, as a number into sorted labels."""

    labels: tuple[Id, ...]
    code: Tensor  # [N] int64

    def __post_init__(self) -> None:
        used = check_integer("groups", self.code).unique().tolist()
        if used != list(range(len(set(self.labels)))) or len(used) != len(self.labels):
            msg = "'groups' must have labels that are different and all in use"
            raise ValueError(f"{msg} (got {len(self.labels)} for {len(used)} groups)")

    @classmethod
    def of(cls, groups: Any, num: int, like: Tensor) -> "Groups":
        """Groups from texts or whole numbers, one per sample."""
        values = _one_per_sample("groups", as_ids(groups, "groups"), num)
        # Whole numbers before texts, which cannot be compared with them.
        key = {value: (isinstance(value, str), value) for value in values}
        labels = tuple(sorted(key, key=key.__getitem__))
        return cls(labels, _codes(labels, values, like))

    def codes(self, groups: Any, num: int) -> Tensor:  # -> [M] int64
        """Numbers of the groups of new samples, all of which are known."""
        values = _one_per_sample("groups", as_ids(groups, "groups"), num)
        unknown = sorted({repr(value) for value in values if value not in self.labels})
        if unknown:
            known = ", ".join(repr(label) for label in self.labels)
            msg = f"'groups' must be groups of the fit, {known}"
            raise ValueError(f"{msg} (got {', '.join(unknown[:5])})")
        return _codes(self.labels, values, self.code)

    @property
    def values(self) -> list[Id]:
        """Label of each sample."""
        return [self.labels[code] for code in self.code.tolist()]

    def concat(self, other: "Groups") -> "Groups":
        """These samples and others, which may bring groups of their own."""
        values = [*self.values, *other.values]
        return Groups.of(values, len(values), self.code)

    def select(self, rows: Tensor) -> "Groups":
        """Some of the samples, by number."""
        values = [self.labels[code] for code in self.code[rows].tolist()]
        return Groups.of(values, len(values), self.code)

    def shares(self, balance: Balance) -> Tensor:  # [G] float64
        """Factor of ``lam`` for every label."""
        out = torch.ones(len(self.labels), dtype=torch.float64, device=self.code.device)
        out[balance.group.to(self.code)] = balance.beta.to(out)
        return out


def _codes(labels: tuple[Id, ...], values: list[Id], like: Tensor) -> Tensor:
    """Index of each value among the labels."""
    number = {label: code for code, label in enumerate(labels)}
    codes = [number[value] for value in values]
    return torch.tensor(codes, dtype=torch.long, device=like.device)


@dataclass(frozen=True, eq=False)
class SampleInfo:
    """Ids, precisions, groups and readable features of fitted samples, if known."""

    ids: tuple[Id, ...] | None = None
    y_std: Tensor | None = None  # [N] float64
    groups: Groups | None = None  # to be balanced
    features: DisplayFeatures | None = None

    @classmethod
    def of(
        cls,
        num: int,
        like: Tensor,
        *,
        ids: Any = None,
        y_std: Any = None,
        groups: Any = None,
    ) -> "SampleInfo":
        """Checked facts about ``num`` samples."""
        if y_std is not None and groups is not None:
            raise ValueError("'y_std' must be None with 'groups'")
        return cls(
            None if ids is None else check_ids(ids, num),
            None if y_std is None else check_y_std(y_std, num, like),
            None if groups is None else Groups.of(groups, num, like),
        )

    def of_more(
        self,
        num: int,
        like: Tensor,
        *,
        ids: Any = None,
        y_std: Any = None,
        groups: Any = None,
    ) -> "SampleInfo":
        """The same facts about samples to add."""
        check_same("ids", self.ids, ids)
        check_same("y_std", self.y_std, y_std)
        check_same("groups", self.groups, groups)
        return SampleInfo.of(num, like, ids=ids, y_std=y_std, groups=groups)

    def check(self, num: int) -> None:
        """Raises unless this is about ``num`` samples."""
        if self.ids is not None:
            check_ids(self.ids, num)
        if self.y_std is not None:
            if self.groups is not None:
                raise ValueError("'y_std' must be None with 'groups'")
            if self.y_std.dtype != torch.float64:
                raise TypeError(f"'y_std' must be float64 (got {self.y_std.dtype})")
            check_y_std(self.y_std, num, self.y_std)
        if self.groups is not None:
            check_node_rows("groups", self.groups.code, num)
        if self.features is not None:
            check_node_rows("features", self.features.values, num)

    @property
    def precision(self) -> Tensor | None:  # [N] float64
        """One over the variance of each output."""
        return None if self.y_std is None else self.y_std.square().reciprocal()

    def concat(self, other: "SampleInfo") -> "SampleInfo":
        """These samples and others with the same facts, without readable features.

        Those of the others are unknown until all samples are described again.
        """
        ids, y_std, groups = None, None, None
        if self.ids is not None and other.ids is not None:
            ids = check_ids(self.ids + other.ids, len(self.ids) + len(other.ids))
        if self.y_std is not None and other.y_std is not None:
            y_std = torch.cat([self.y_std, other.y_std])
        if self.groups is not None and other.groups is not None:
            groups = self.groups.concat(other.groups)
        return SampleInfo(ids, y_std, groups)

    def select(self, rows: Tensor) -> "SampleInfo":
        """Some of the samples, by number."""
        ids = None
        if self.ids is not None:
            ids = tuple(self.ids[row] for row in rows.tolist())
        y_std = None if self.y_std is None else self.y_std[rows]
        groups = None if self.groups is None else self.groups.select(rows)
        features = None if self.features is None else self.features.select(rows)
        return SampleInfo(ids, y_std, groups, features)

    def rows_of(self, ids: Any, num: int) -> Tensor:  # -> [K] int64
        """Numbers of samples by id, or by number if they have none."""
        wanted = as_ids(ids)
        known: Sequence[Id] = range(num) if self.ids is None else self.ids
        rows = {name: row for row, name in enumerate(known)}
        missing = [repr(name) for name in wanted if name not in rows]
        if missing:
            what = "ids" if self.ids is not None else f"row numbers below {num}"
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            got = ", ".join(missing[:5])
            raise ValueError(f"'ids' must be {what} of the fit (got {got}{more})")
        return torch.tensor([rows[name] for name in wanted], dtype=torch.long)


def check_same(name: str, known: Any, value: Any) -> None:
    """Raises unless new samples have a fact if and only if fitted ones do."""
    if (known is None) != (value is None):
        condition = "None, because the fit has none"
        if value is None:
            condition = "given, because the fit has them"
        raise ValueError(f"'{name}' must be {condition}")
