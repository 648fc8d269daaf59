r"""Groups of people in a fit that treats them equally alike, and of those who come.

A balanced fit (:mod:`pyg_glif.methods.group_balance`) minimises, at the shares
:math:`\beta` that it has found, :math:`\|f - \hat y\|^2 + \lambda \sum_{ij} \beta_{ij}
v_{ij} (f_i - f_j)^2`, the sum over pairs, with :math:`\beta_{ij}` the mean of
:math:`\beta` at both ends. A newcomer is one more coordinate of it: the inductive step
with :math:`\beta_{ij} v_{ij}` in place of :math:`v_{ij}`. Shares do not move: they are
those of the fitted people, whom one more person changes by the order of one in their
number, and nobody's result depends on who else comes (``docs/maths.md``).

A newcomer whose group is not known belongs to none: their pair with :math:`j` then
counts for the group of :math:`j` alone, :math:`\beta_{ij} = \beta_j`, and that with
another newcomer as in a fit without groups.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_integer
from pyg_glif.fit.ids import Id, as_ids
from pyg_glif.solvers import Balance


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of everybody, as a number into sorted labels."""

    labels: tuple[Id, ...]
    code: Tensor  # [N] int64

    def __post_init__(self) -> None:
        used = check_integer("groups", self.code).unique().tolist()
        if used != list(range(len(set(self.labels)))) or len(used) != len(self.labels):
            msg = "'groups' must have labels that are different and all in use"
            raise ValueError(f"{msg} (got {len(self.labels)} for {len(used)} groups)")

    @classmethod
    def of(cls, groups: Any, num_people: int, like: Tensor) -> "Groups":
        """Groups as they are given: texts or whole numbers, one for each person."""
        found = _entries(groups, num_people)
        # Whole numbers before texts, which cannot be compared with them.
        labels = tuple(sorted(set(found), key=lambda one: (isinstance(one, str), one)))
        return cls(labels, _numbered(labels, found, like))

    def codes(self, groups: Any, num_people: int) -> Tensor:  # -> [M] int64
        """Numbers of newcomers' groups, all of which are known."""
        found = _entries(groups, num_people)
        unknown = sorted({repr(one) for one in found if one not in self.labels})
        if unknown:
            known = ", ".join(repr(one) for one in self.labels)
            msg = f"'groups' must be groups of the fit, {known}"
            raise ValueError(f"{msg} (got {', '.join(unknown[:5])})")
        return _numbered(self.labels, found, self.code)

    def joined(self, other: "Groups") -> "Groups":
        """These people and others, who may bring groups of their own."""
        values = [*self.values, *other.values]
        return Groups.of(values, len(values), self.code)

    def only(self, rows: Tensor) -> "Groups":
        """Some of the people, by number."""
        values = [self.labels[code] for code in self.code[rows].tolist()]
        return Groups.of(values, len(values), self.code)

    @property
    def values(self) -> list[Id]:
        """The label of everybody."""
        return [self.labels[code] for code in self.code.tolist()]

    def shares(self, balance: Balance) -> Tensor:  # [G] float64
        """The factor of ``lam`` for every label."""
        out = torch.ones(len(self.labels), dtype=torch.float64, device=self.code.device)
        out[balance.group.to(self.code)] = balance.beta.to(out)
        return out


def _entries(groups: Any, num_people: int) -> list[Id]:
    """One label for each person."""
    found = as_ids(groups, "groups")
    if len(found) != num_people:
        msg = "'groups' must have one entry per person"
        raise ValueError(f"{msg} (got {len(found)} for {num_people})")
    return found


def _numbered(labels: tuple[Id, ...], values: list[Id], like: Tensor) -> Tensor:
    """The place of each value among the labels."""
    place = {label: number for number, label in enumerate(labels)}
    codes = [place[one] for one in values]
    return torch.tensor(codes, dtype=torch.long, device=like.device)
