"""From options and files to samples: features, outputs, ids and labels.

Files are read before torch is loaded, so that a mistyped name is reported at once.
"""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.cli._dtypes import CellError, Fault
from pyg_glif.cli._files import unquoted
from pyg_glif.cli._options import (
    STREAM,
    SUFFIXES,
    UsageError,
    called,
    check_table,
    listed,
    name_of,
    nearest_name,
    note,
    suffix_of,
)
from pyg_glif.cli._samples import FeatureSpec, Samples, known
from pyg_glif.cli._tables import ArrayTable, FileTable, open_table

# Columns that are not features, by the option that names them.
_ROLES = ("--id", "--sensitive", "variants", "--labels", "mask", "--time")
# Files of a call by kind, under the names that argparse has for them.
_TABLES = (
    *("data", "outputs_file", "after", "pairs", "new", "people"),
    *("matrix", "directions", "side_rows"),
)
_FITS = ("post", "fit")
# More texts than this, and one for more than half of all rows, are no categories.
_FREE_TEXT = 20


def input_files(args: argparse.Namespace) -> list[str | None]:
    """All files that a call reads, which no result may overwrite."""
    files = [getattr(args, name, None) for name in _TABLES + _FITS]
    named = [name for option in _ROLES for name in _named(args, option)]
    return [*(path for path in files if path != STREAM), *named]


def check_inputs(args: argparse.Namespace) -> None:
    """Raises on missing inputs, before anything is said about results."""
    values = vars(args)
    paths = [values[name] for name in _TABLES if values.get(name)]
    for path in paths:
        check_table(path)
    if paths.count(STREAM) > 1:
        raise UsageError(f"'{STREAM}' must stand for one input (got it twice)")
    for name in _FITS:
        if values.get(name) and not Path(values[name]).is_file():
            raise UsageError(f"'{values[name]}' does not exist")
    kinds = {suffix_of(path) for path in paths}
    for option, able in (("--encoding", (".csv", ".tsv")), ("sheet", (".xlsx",))):
        is_text = STREAM in paths and option == "--encoding"
        fits = is_text or any(kind.startswith(able) for kind in kinds)
        if values.get(name_of(option)) and not fits:
            raise UsageError(f"{called(option)} goes with {' and '.join(able)}")


def _named(args: argparse.Namespace, option: str) -> list[str]:
    """The names that an option was given; not every command has all of them."""
    value = getattr(args, name_of(option), None) or []
    return [value] if isinstance(value, str) else value


def read_samples(
    args: argparse.Namespace, fit: dict[str, Any] | None = None
) -> Samples:
    """Reads what the options name; ``fit`` is the metadata of an earlier fit."""
    saved = (fit or {}).get("columns", {})
    files = _Files(args)
    roles = {option: files.roles(option) for option in _ROLES}
    outputs = files.outputs(saved.get("outputs"))
    features = files.features(saved.get("features"), outputs)
    files.check()
    spec, y = files.values(features, outputs, fit)
    values = {
        option: {column.name: column.read(len(y)) for column in columns}
        for option, columns in roles.items()
    }
    for column in roles["variants"]:
        column.check_full(values["variants"][column.name])
    single = {option: next(iter(v.values()), None) for option, v in values.items()}
    ids = values["--id"] or {name: files.data.column(name) for name in spec.free}

    from pyg_glif._utils.arrays import to_tensor

    table = None
    if spec.frame is not None:
        from pyg_glif.tables import FairTable

        saved_table = None if fit is None else FairTable.from_config(fit["table"])
        table = saved_table or spec.fitted_table(args, y)
    return Samples(
        x=to_tensor("features", spec.numbers)
        if table is None
        else table.transform(spec.frame),
        y=to_tensor("outputs", y),
        features=spec.features,
        outputs=outputs,
        scale=spec.scale if table is None else str(table.scale),
        table=table,
        frame=spec.frame,
        block=files.holder.whole(outputs),
        ids=ids,
        sensitive={name: _filled(v) for name, v in values["--sensitive"].items()},
        variants=single["variants"],
        labels=single["--labels"],
        mask=single["mask"],
        time=single["--time"],
    )


def _free_texts(frame: Any) -> list[str]:
    """Columns with a text of its own in nearly every row, such as names."""
    texts = frame.select_dtypes(exclude=["number", "bool", "datetime"])
    limit = texts.notna().sum().clip(lower=2 * _FREE_TEXT) / 2
    return list(texts.columns[texts.nunique() > limit])


class _Files:
    """The one or two files of samples; collects the names that are not in them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._missing: list[tuple[FileTable, str, str]] = []
        self.data = self.holder = open_table(args.data, args)
        self.tables = [self.data]
        if args.outputs_file:
            self.holder = open_table(args.outputs_file, args)
            self.tables.append(self.holder)
        unnamed = self.data.num_unnamed
        if unnamed:
            columns = "1 column" if unnamed == 1 else f"{unnamed} columns"
            note(args, f"'{self.data.path}': {columns} without a name left out")

    def roles(self, option: str) -> "list[_Column]":
        """Columns that are not features; a file with one may be named in its place."""
        columns = []
        for name in _named(self._args, option):
            title = name
            places = [(t, t.find(name)) for t in self.tables if t.find(name)]
            is_file = suffix_of(name) in SUFFIXES and Path(name).is_file()
            if is_file and not places:
                table = open_table(name, self._args)
                title, places = Path(name).stem, [(table, table.names)]
            if not places:
                self._missing.append((self.data, option, name))
                continue
            names = places[0][1]
            # Ids are carried through, whatever they are; all else is one column.
            if len(names) != 1 and (option != "--id" or "*" in name or title != name):
                msg = f"'{name}' must have a single column (it has {listed(names)})"
                raise UsageError(msg)
            columns.append(_Column(option, title, places))
        return columns

    def outputs(self, saved: list[str] | None) -> list[str]:
        """Columns of outputs: those named, those of the fit, or all of their file."""
        holder = self.holder
        if self._args.outputs:
            return self._columns("--outputs", holder)
        if saved and all(holder.find(name) for name in saved):
            return saved
        if holder is self.data:
            msg = f"--outputs must name the columns of '{holder.path}' with the model's"
            msg = f"{msg} outputs, or a second file must hold them"
            raise UsageError(f"{msg} (it has {listed(holder.names)})")
        return self._left(holder, {*self._used(holder)}, "outputs")

    def features(self, saved: list[str] | None, outputs: list[str]) -> list[str]:
        """Columns of features: those named, those of the fit, or all left over."""
        taken = {*self._columns("--ignore", self.data), *self._used(self.data)}
        if self.holder is self.data:
            taken |= set(outputs)
        if self._args.features is None:
            if saved is None:
                return self._left(self.data, taken, "features")
            return self._columns("--features", self.data, saved)
        features = self._columns("--features", self.data)
        both = [name for name in features if name in taken]
        if both:
            msg = f"--features must not name {listed(both)}, which has another use"
            raise UsageError(f"{msg} in this call")
        return features

    def _columns(
        self, option: str, table: FileTable, names: list[str] | None = None
    ) -> list[str]:
        """Columns for names, arrays and patterns; each once, in the order asked."""
        selected: dict[str, None] = {}
        for name in _named(self._args, option) if names is None else names:
            columns = table.find(name)
            if not columns:
                self._missing.append((table, option, name))
            selected.update(dict.fromkeys(columns))
        return list(selected)

    def _used(self, table: FileTable) -> Iterator[str]:
        """Columns of a file that have a role."""
        for option in _ROLES:
            for name in _named(self._args, option):
                yield from table.find(name)

    def _left(self, table: FileTable, taken: set[str], what: str) -> list[str]:
        """Columns of a file that are not taken."""
        left = [name for name in table.names if name not in taken]
        if not left:
            self.check()
            raise UsageError(f"'{table.path}' has no column left for {what}")
        return left

    def check(self) -> None:
        """Raises on names that no file has, all of them at once."""
        close = [nearest_name(n, [*t.names, *t.blocks]) for t, _, n in self._missing]
        meant = list(dict.fromkeys(repr(name) for name in close if name is not None))
        question = [f"Did you mean {', '.join(meant)}?"] if meant else []
        if len(self._missing) == 1:
            ((table, option, name),) = self._missing
            msg = f"{called(option)}: '{table.path}' has no column '{name}'"
            raise UsageError(". ".join([f"{msg} (it has {table.contents})", *question]))
        parts = []
        for table in self.tables:
            lost = [f"'{n}' ({called(o)})" for t, o, n in self._missing if t is table]
            if lost:
                msg = f"'{table.path}' has no column {', '.join(lost)}"
                parts.append(f"{msg}; it has {table.contents}")
        if parts:
            raise UsageError(". ".join([*parts, *question]))

    def values(
        self, features: list[str], outputs: list[str], fit: dict[str, Any] | None
    ) -> tuple[FeatureSpec, NDArray[Any]]:
        """Features and outputs, or one error for all that is wrong with a file."""
        data, holder = self.data, self.holder
        faults: list[Fault] = []
        spec, y = FeatureSpec(features, "none", np.empty((0, 0))), np.empty(0)
        try:
            spec = self._spec(features) if fit is None else self._saved(features, fit)
        except CellError as error:
            faults = error.faults
        try:
            y = holder.outputs(outputs)
        except CellError as error:
            # Two files have a message each, and the first comes first.
            if holder is data or not faults:
                raise CellError(holder.path, faults + error.faults, outputs) from error
        if faults:
            raise CellError(data.path, faults)
        values: Any = spec.numbers if spec.frame is None else spec.frame
        rows = len(values)
        if rows != len(y):
            msg = f"'{holder.path}' must have as many rows as '{data.path}'"
            raise UsageError(f"{msg} (got {len(y)} for {rows})")
        if rows == 0:
            raise UsageError(f"'{data.path}' has no rows")
        return spec, y

    def _spec(self, features: list[str]) -> FeatureSpec:
        """Features on the scale asked for, or on the one that their kinds need."""
        args, data, scale = self._args, self.data, self._args.scale
        # Gaps in an array of numbers are slips, and learners need numbers.
        numbers_only = args.metric != "euclidean" or isinstance(data, ArrayTable)
        if scale is None and not numbers_only:
            by_effect = args.sensitive or args.equivalent or args.categories
            scale = "effect" if by_effect else None
        if scale == "none" or (scale is None and numbers_only):
            return FeatureSpec(features, "none", data.numbers(features))
        if scale in (None, "standard") and not args.categories:
            # Text and gaps need a frame.
            with contextlib.suppress(CellError):
                numbers = data.numbers(features)
                spec = FeatureSpec(features, scale or "none", numbers)
                if not isinstance(data, ArrayTable):
                    spec.warn_targets()
                return spec
        used = _named(args, "--sensitive")
        sensitive = [name for name in data.names if name in used]
        texts = args.categories or ()
        frame = data.frame([*features, *sensitive], texts, "categories")
        free = _free_texts(frame[features])
        left = [name for name in features if name not in free]
        if free and (args.features or not left):
            msg = f"'{data.path}': {listed(free)} must hold categories"
            raise UsageError(f"{msg} (got a text of its own in nearly every row)")
        if free:
            use = "left out" if args.id else "carried through, not features"
            note(args, f"{listed(free)}: nearly every row has its own text; {use}")
        if args.metric in ("mahalanobis", "subspace", "svd"):
            msg = f"--metric {args.metric} goes with numbers as they are"
            raise UsageError(f"{msg}, or with --scale standard")
        frame = frame[[*left, *sensitive]]
        spec = FeatureSpec(left, scale or "effect", frame=frame, free=tuple(free))
        spec.warn_targets()
        return spec

    def _saved(self, features: list[str], fit: dict[str, Any]) -> FeatureSpec:
        """Features of new samples, read as those of the fit were."""
        if "table" not in fit:
            return FeatureSpec(features, "none", self.data.numbers(features))
        texts = [
            column["name"]
            for column in fit["table"]["columns"]
            if any(isinstance(point, str) for point in column["points"])
        ]
        return FeatureSpec(features, "", frame=self.data.frame(features, texts))


class _Column:
    """A column that is not a feature, and where it is."""

    def __init__(
        self, option: str, name: str, places: list[tuple[FileTable, list[str]]]
    ) -> None:
        self._option, self._places, self.name = option, places, name

    def read(self, size: int) -> NDArray[Any]:
        """The column, which has one entry for each of ``size`` samples."""
        values = []
        for table, names in self._places:
            columns = table.columns(names)
            whole = len(columns) > 1
            values.append(np.stack(columns, axis=1) if whole else columns[0])
        if self._option == "--id":
            check_same_ids(self.name, values[0], values[1:])
        if len(values[0]) != size:
            msg = f"'{self.name}' must have one entry per row"
            raise UsageError(f"{msg} (got {len(values[0])} for {size})")
        return values[0]

    def check_full(self, value: NDArray[Any]) -> None:
        """Raises on the first empty cell."""
        table, names = self._places[0]
        for row in np.flatnonzero(~known(value))[:1].tolist():
            raise CellError(table.path, [Fault(names[0], table.place(row), "")])


def check_same_ids(
    name: str, ids: NDArray[Any], others: Sequence[NDArray[Any]]
) -> None:
    """Raises if files list samples in different orders."""
    # Without what the setting 'spreadsheet' adds.
    first, *rest = [[unquoted(str(id)) for id in value] for value in (ids, *others)]
    for other in rest:
        if len(other) == len(first) and other != first:
            row = next(i for i, id in enumerate(first) if id != other[i])
            msg = f"'{name}' must be the same in both files, row by row"
            got = f"{first[row]!r} and {other[row]!r} in row {row}"
            raise UsageError(f"{msg} (got {got}). Sort them alike")


def _filled(value: NDArray[Any]) -> NDArray[Any]:
    """A column with gaps as a group of their own."""
    gaps = ~known(value)
    return np.where(gaps, "unknown", value.astype(object)) if gaps.any() else value
