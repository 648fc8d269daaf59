"""Tables with a binary outcome, as frames and as tensors."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif.datasets._files import BuiltDataset, read_table

# Of pandas, which is imported when it is used.
Frame = Any
Series = Any


class TabularDataset(BuiltDataset):
    """Base of tables: a frame of the columns as they are, and tensors of it.

    A subclass names its columns; :meth:`_read` returns them with the outcome (1 or 0)
    and the columns that :meth:`_about` needs.
    """

    folder = "tabular"
    #: Columns of numbers, columns of categories, and the outcome.
    numbers: ClassVar[tuple[str, ...]]
    categories: ClassVar[tuple[str, ...]]
    outcome: ClassVar[str]

    @cached_property
    def _table(self) -> Frame:
        """All columns of the source, the outcome as 1 and 0."""
        return self._read()

    @property
    def frame(self) -> Frame:
        """A copy of the features: numbers, and categories with gaps where unknown."""
        return self._table[[*self.numbers, *self.categories]].copy()

    @property
    def target(self) -> Series:
        """A copy of the outcome, 1 or 0, with the rows of ``frame``."""
        return self._table[self.outcome].copy()

    @cached_property
    def feature_names(self) -> list[str]:
        """The columns of ``x``: a number's name, ``column=value`` of a category."""
        named = [
            f"{name}={value}"
            for name in self.categories
            for value in self._table[name].cat.categories
        ]
        return [*self.numbers, *named]

    def _build(self) -> Data:
        """Numbers as they are and an indicator of each category, with the outcome."""
        table = self._table
        columns = [_tensor(table[name]).unsqueeze(1) for name in self.numbers]
        for name in self.categories:
            codes = _tensor(table[name].cat.codes).long()  # -1 is unknown
            columns.append(
                codes.unsqueeze(1) == torch.arange(len(table[name].cat.categories))
            )
        return Data(
            x=torch.cat([column.float() for column in columns], dim=1),
            y=_tensor(table[self.outcome]).long(),
            **self._about(table),
        )

    @staticmethod
    @abstractmethod
    def twins(frame: Frame) -> list[Frame]:
        """The same rows with another group, all else equal."""

    @abstractmethod
    def _read(self) -> Frame:
        """The table, its categories as such."""

    @abstractmethod
    def _about(self, table: Frame) -> dict[str, Tensor]:
        """Groups and splits, a tensor each."""


def read_checked_table(
    path: Path, numbers: Sequence[str], words: Mapping[str, Sequence[str] | None]
) -> Frame:
    """A compressed CSV file, checked column by column.

    Args:
        path (pathlib.Path): The file.
        numbers (sequence of str): Columns of whole numbers.
        words (dict): Other columns, and which entries they may have
            (:obj:`None`: any).
    """
    import pandas as pd

    table = pd.DataFrame(read_table(path, [*numbers, *words]))
    if table.empty:
        raise ValueError(f"'{path}' must have one row or more (got 0)")
    for name in numbers:
        try:
            table[name] = pd.to_numeric(table[name]).astype("int64")
        except (TypeError, ValueError) as error:
            msg = f"'{path}' must have whole numbers in '{name}' ({error})"
            raise ValueError(msg) from error
    for name, allowed in words.items():
        other = set() if allowed is None else set(table[name]) - set(allowed)
        if other:
            known = ", ".join(repr(entry) for entry in allowed or ())
            msg = f"'{path}' must have one of {known} in '{name}'"
            raise ValueError(f"{msg} (got {min(map(str, other))!r})")
    return table[[*numbers, *words]]


def _tensor(column: Any) -> Tensor:
    return torch.from_numpy(column.to_numpy().copy())
