"""Results in files: complete, or not at all."""

import csv
import gzip
import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.files import replacing
from pyg_glif._utils.optional import require
from pyg_glif.cli._dtypes import Notation
from pyg_glif.cli._options import UsageError, suffix_of

# Packages that write a file, by its suffix, and the extra that brings them.
_WRITERS = {
    ".parquet": ("pyarrow.parquet", "files"),
    ".xlsx": ("openpyxl", "files"),
    ".html": ("vl_convert", "report"),
}
# What a spreadsheet takes for a formula, or strips before it looks for one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def check_targets(
    targets: dict[str, tuple[str | None, tuple[str, ...]]], inputs: Sequence[str | None]
) -> None:
    """Raises on anything that could not be written in the end, before it is made.

    ``targets`` has path and suffixes by option. Old files are replaced, inputs are not.
    """
    taken = {Path(path).resolve(): path for path in inputs if path}
    for option, (path, suffixes) in targets.items():
        if path is None:
            continue
        where = Path(path)
        if suffix_of(path) not in suffixes:
            msg = f"{option} must end in {', '.join(suffixes)} (got '{path}')"
            raise UsageError(msg)
        if suffix_of(path) in _WRITERS:
            package, extra = _WRITERS[suffix_of(path)]
            require(package, f"writing {suffix_of(path)}", extra)
        if where.resolve() in taken:
            msg = f"{option} must not be '{taken[where.resolve()]}', which has another"
            raise UsageError(f"{msg} use in this call")
        taken[where.resolve()] = path
        if where.is_dir():
            raise UsageError(f"{option} must be a file (got the folder '{path}')")
        try:
            probe = where.resolve().with_name(f".{where.name}.{os.getpid()}")
            probe.touch()
            probe.unlink()
        except OSError as error:
            msg = f"{option}: '{path}' cannot be written ({error.strerror})"
            raise UsageError(msg) from error


def write_text(path: str, text: str) -> None:
    """Writes a text file in UTF-8."""
    with replacing(path) as file:
        file.write(text.encode())


def check_plot(path: str | None, inputs: Sequence[str | None]) -> None:
    """Raises on a plot that could not be written in the end."""
    check_targets({"--plot": (path, (".png", ".pdf", ".svg"))}, inputs)
    if path:
        require("matplotlib.figure", "--plot", "plots")


def write_plot(path: str, figure: Any) -> None:
    """Writes a figure in the format of the suffix."""
    with replacing(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=150)


def csv_text(columns: dict[str, NDArray[Any]], notation: Notation) -> bytes:
    """Columns as CSV."""
    file = io.BytesIO()
    _write_csv(file, columns, ".csv", notation)
    return file.getvalue()


def write_table(
    path: str, columns: dict[str, NDArray[Any]], notation: Notation | None = None
) -> None:
    """Writes columns, or matrices by name, in the format of the suffix.

    Text is written as ``notation`` reads it.
    """
    kind, notation = suffix_of(path), notation or Notation()
    with replacing(path) as file:
        if kind == ".npy":
            arrays = list(columns.values())
            array = arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
            np.save(file, array, allow_pickle=False)
        elif kind == ".npz":
            _write_npz(file, columns)
        elif kind == ".parquet":
            _frame(columns).to_parquet(file, engine="pyarrow", index=False)
        elif kind == ".xlsx":
            _write_xlsx(file, columns)
        elif kind.endswith(".gz"):
            # Without the time of writing: the same table gives the same file.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                _write_csv(packed, columns, kind, notation)
        else:
            _write_csv(file, columns, kind, notation)


def flat(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Matrices taken apart into columns ``name.0``, ``name.1``, ..."""
    out = {}
    for name, array in columns.items():
        if array.ndim == 1:
            out[name] = array
        else:
            out.update({f"{name}.{j}": column for j, column in enumerate(array.T)})
    return out


def _frame(columns: dict[str, NDArray[Any]]) -> Any:
    """A pandas frame of the columns, matrices taken apart."""
    import pandas as pd

    return pd.DataFrame(flat(columns))


def _write_xlsx(file: BinaryIO, columns: dict[str, NDArray[Any]]) -> None:
    """Writes one sheet, in which no text is a formula, whatever it starts with."""
    import pandas as pd

    with pd.ExcelWriter(file, engine="openpyxl") as writer:
        _frame(columns).to_excel(writer, index=False)
        for row in writer.book.active.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    cell.data_type = "s"


def _write_csv(
    file: Any, columns: dict[str, NDArray[Any]], kind: str, notation: Notation
) -> None:
    """Writes text, with enough digits to read the same numbers back."""
    frame, decimal = _frame(columns), notation.decimal or "."
    sep = "\t" if kind.startswith(".tsv") else ";" if decimal == "," else ","
    texts = [*frame, *(c for a in columns.values() if a.dtype.kind in "OU" for c in a)]
    # Older Pythons leave a carriage return without quotes, and the row falls apart.
    torn = any(isinstance(cell, str) and "\r" in cell for cell in texts)
    quoting = csv.QUOTE_NONNUMERIC if torn else csv.QUOTE_MINIMAL
    frame.to_csv(
        file,
        mode="wb",
        sep=sep,
        decimal=decimal,
        encoding=notation.encoding or "utf-8",
        index=False,
        lineterminator="\n",
        quoting=quoting,
    )


def _write_npz(file: BinaryIO, columns: dict[str, NDArray[Any]]) -> None:
    """Writes arrays by name, also one called ``file``, which ``np.savez`` cannot."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in columns.items():
            if array.dtype == object:  # text, which would be pickled
                text = ["" if cell is None else str(cell) for cell in array]
                array = np.array(text, dtype=np.str_)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def formulas(columns: dict[str, NDArray[Any]]) -> dict[str, int]:
    """Number of texts, and names, of each column that a spreadsheet would run."""
    texts = {
        name: [name, *(array if array.dtype.kind in "OU" else ())]
        for name, array in flat(columns).items()
    }
    counts = {name: sum(map(_is_formula, cells)) for name, cells in texts.items()}
    return {name: count for name, count in counts.items() if count}


def without_formulas(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The columns, with an apostrophe before texts that a spreadsheet would run."""
    out = {}
    for name, array in flat(columns).items():
        if array.dtype.kind in "OU":
            array = np.array([_quoted(cell) for cell in array], dtype=object)
        out[_quoted(name)] = array
    return out


def _quoted(cell: Any) -> Any:
    """The cell, with an apostrophe in front if a spreadsheet would run it."""
    return f"'{cell}" if _is_formula(cell) else cell


def unquoted(cell: str) -> str:
    """The cell without the apostrophe that :func:`without_formulas` adds."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


def _is_formula(cell: Any) -> bool:
    """Whether a spreadsheet would run a cell; numbers with a sign are numbers."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False
