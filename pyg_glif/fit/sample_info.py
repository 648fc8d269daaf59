"""What a fit knows about people beside features and outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_tensor
from pyg_glif._utils.validation import (
    check_finite,
    check_node_rows,
    check_rank,
    check_scalar,
)
from pyg_glif.fit.display_features import Features
from pyg_glif.fit.groups import Groups
from pyg_glif.fit.ids import Id, as_ids


@dataclass(frozen=True, eq=False)
class SampleInfo:
    """Names of fitted people, and how certain their outputs are."""

    ids: tuple[Id, ...] | None = None
    y_std: Tensor | None = None  # [N] float64
    groups: Groups | None = None  # those to be treated equally alike
    features: Features | None = None  # in the values that people know themselves

    def check(self, num: int) -> None:
        """Raises unless this is about so many samples."""
        if self.ids is not None:
            check_ids(as_ids(self.ids), num)
        if self.y_std is not None:
            if self.groups is not None:
                raise ValueError("'y_std' must be None with 'groups'")
            if self.y_std.dtype != torch.float64:
                raise TypeError(f"'y_std' must be float64 (got {self.y_std.dtype})")
            check_y_std(self.y_std, num, self.y_std)
        for name, held in (
            ("groups", None if self.groups is None else self.groups.code),
            ("people", None if self.features is None else self.features.values),
        ):
            if held is not None:
                check_node_rows(name, held, num)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to know."""
        return all(value is None for value in vars(self).values())

    @property
    def precision(self) -> Tensor | None:  # [N] float64
        """One over the variance of each output."""
        return None if self.y_std is None else self.y_std.square().reciprocal()

    def joined(self, other: "SampleInfo") -> "SampleInfo":
        """These people and others, about whom as much is known."""
        ids, y_std = None, None
        if self.ids is not None:
            assert other.ids is not None
            ids = check_ids(self.ids + other.ids)
        if self.y_std is not None:
            assert other.y_std is not None
            y_std = torch.cat([self.y_std, other.y_std])
        groups = None
        if self.groups is not None:
            assert other.groups is not None
            groups = self.groups.joined(other.groups)
        # What the new ones are like was not said: 'describe' is asked to say it.
        return SampleInfo(ids, y_std, groups)

    def only(self, rows: Tensor) -> "SampleInfo":
        """Some of the people, by number."""
        ids = None
        if self.ids is not None:
            ids = tuple(self.ids[row] for row in rows.tolist())
        y_std = None if self.y_std is None else self.y_std[rows]
        groups = None if self.groups is None else self.groups.only(rows)
        features = None if self.features is None else self.features.only(rows)
        return SampleInfo(ids, y_std, groups, features)

    def rows_of(self, ids: Any, num_people: int) -> Tensor:  # -> [K] int64
        """Numbers of people by id, or by number if they have none."""
        wanted = as_ids(ids)
        known: dict[Id, int] = {}
        if self.ids is not None:
            known = {one: row for row, one in enumerate(self.ids)}
        else:
            known = {row: row for row in range(num_people)}
        missing = [one for one in wanted if one not in known]
        if missing:
            what = "ids" if self.ids is not None else f"row numbers below {num_people}"
            shown = ", ".join(repr(one) for one in missing[:5])
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise ValueError(f"'ids' must be {what} of the fit (got {shown}{more})")
        return torch.tensor([known[one] for one in wanted], dtype=torch.long)


def check_ids(ids: Sequence[Id], num_people: int | None = None) -> tuple[Id, ...]:
    """Ids of different people."""
    if num_people is not None and len(ids) != num_people:
        msg = "'ids' must have one entry per row of 'x'"
        raise ValueError(f"{msg} (got {len(ids)} for {num_people})")
    if len(set(ids)) < len(ids):
        seen: set[Id] = set()
        twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        raise ValueError(f"'ids' must be different (got {twice!r} twice)")
    return tuple(ids)


def check_y_std(y_std: Any, num_people: int, like: Tensor) -> Tensor:  # [N] float64
    """Positive standard deviations, one for each person."""
    if isinstance(y_std, (int, float)):
        number = check_scalar("y_std", y_std, above=0.0)
        return torch.full(
            (num_people,), number, dtype=torch.float64, device=like.device
        )
    out = to_tensor("y_std", y_std, copy=True).double().to(like.device)
    check_rank("y_std", out, 1)
    if len(out) != num_people:
        msg = "'y_std' must have one entry per person"
        raise ValueError(f"{msg} (got {len(out)} for {num_people})")
    check_finite("y_std", out)
    if len(out):
        check_scalar("y_std", float(out.min()), above=0.0)
    return out


def check_people(
    known: SampleInfo, ids: Any, y_std: Any, groups: Any, num: int, like: Tensor
) -> SampleInfo:
    """What is said about people to add, as much as is known about the others."""
    for name, mine, given in (
        ("ids", known.ids, ids),
        ("y_std", known.y_std, y_std),
        ("groups", known.groups, groups),
    ):
        if (mine is None) != (given is None):
            condition = "None, because the fit has none"
            if given is None:
                condition = "given, because the fit has them"
            raise ValueError(f"'{name}' must be {condition}")
    return people_of(ids, y_std, groups, num, like)


def people_of(ids: Any, y_std: Any, groups: Any, num: int, like: Tensor) -> SampleInfo:
    """What is said about people to fit."""
    if y_std is not None and groups is not None:
        raise ValueError("'y_std' must be None with 'groups'")
    return SampleInfo(
        None if ids is None else check_ids(as_ids(ids), num),
        None if y_std is None else check_y_std(y_std, num, like),
        None if groups is None else Groups.of(groups, num, like),
    )
