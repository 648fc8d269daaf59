"""Summary of the columns of a table."""

from dataclasses import asdict, dataclass
from typing import Any

from pyg_glif._utils.markup import cell, escaped, markdown_table

_HEADER = ("column", "kind", "scaled by", "reach", "share", "missing", "note")
_ALIGN = "lllrrrl"


@dataclass(frozen=True)
class ColumnSummary:
    """One column of a :class:`FairTable`.

    Args:
        column (str): Its name.
        kind (str): ``"number"``, ``"date"``, ``"duration"`` or ``"category"``; of
            columns that are left out, ``"sensitive"`` or ``"ignored"``.
        scaled_by (str): How values became coordinates.
        reach (float): Largest distance between samples of the fit in this column.
        share (float): Share in the variance of all coordinates.
        missing (int): Samples without a value.
        unseen (tuple): Values that the fit has not seen; :obj:`None` is a missing one.
        note (str): What else should be known.
    """

    column: str
    kind: str
    scaled_by: str
    reach: float = 0.0
    share: float = 0.0
    missing: int = 0
    unseen: tuple[Any, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class TableSummary:
    """Columns of a table and their scales, from :meth:`FairTable.summary`.

    Args:
        unit (str): What a distance of one means.
        columns (tuple of ColumnSummary): In the order of the table.
        surrogate_score (float, optional): How much of the outputs the surrogate
            explains, if there was one.
        removed (float, optional): Share of the variance that was removed because it
            predicts the sensitive columns. Reaches and shares are those before.

    Example:
        >>> import pandas
        >>> from pyg_glif.tables import FairTable
        >>> df = pandas.DataFrame({"age": [30, 50], "sex": ["f", "m"]})
        >>> table = FairTable(["sex"], scale={"age": 10}).fit(df)
        >>> print(table.summary())
        Distances are in units.
        <BLANKLINE>
        column  kind       scaled by  reach  share  missing  note
        age     number     unit 10        2   100%        0
        sex     sensitive  left out       -      -        -
    """

    unit: str
    columns: tuple[ColumnSummary, ...]
    surrogate_score: float | None = None
    removed: float | None = None

    def __str__(self) -> str:
        rows = [list(_HEADER), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                text.rjust(width) if align == "r" else text.ljust(width)
                for text, width, align in zip(row, widths, _ALIGN, strict=True)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*self._words(), "", *lines])

    def to_frame(self) -> Any:
        """One row per column, as a frame of pandas."""
        import pandas

        return pandas.DataFrame([asdict(column) for column in self.columns])

    def to_markdown(self) -> str:
        """The summary as text with a table."""
        table = markdown_table(_HEADER, self._cells(), align=_ALIGN)
        return "\n\n".join([*map(escaped, self._words()), table]) + "\n"

    def _words(self) -> list[str]:
        """The lines before the table."""
        words = [f"Distances are in {self.unit}."]
        if self.surrogate_score is not None:
            share = f"{self.surrogate_score:.0%}"
            words.append(f"The surrogate explains {share} of the outputs' variance.")
        if self.removed is not None:
            names = [c.column for c in self.columns if c.kind == "sensitive"]
            removed = f"{self.removed:.0%} of the variance"
            words.append(f"Then {removed} is removed: it predicts {', '.join(names)}.")
        return words

    def _cells(self) -> list[list[str]]:
        """The texts of the table."""
        return [_cells_of(column) for column in self.columns]


def _cells_of(one: ColumnSummary) -> list[str]:
    """The texts of one row."""
    words = [one.column, one.kind, one.scaled_by]
    if one.kind in ("sensitive", "ignored"):
        return [*words, "-", "-", "-", one.note]
    unseen = ", ".join("missing" if v is None else repr(v) for v in one.unseen)
    note = "; ".join(filter(None, [one.note, unseen and f"unseen: {unseen}"]))
    reach = cell(float(f"{one.reach:.3g}"))
    return [*words, reach, f"{one.share:.0%}", str(one.missing), note]
