"""From options to people: who has which features, outputs, ids and labels.

Files are read before torch is loaded: whoever mistyped a name should not wait for it.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.cli._coordinates import fitted_table, free_texts, warn_of_outcomes
from pyg_glif.cli._files import flat, unquoted
from pyg_glif.cli._options import UsageError, listed, name_of, nearest_name, note
from pyg_glif.cli._tables import (
    STREAM,
    SUFFIXES,
    ArrayTable,
    CellError,
    Fault,
    FileTable,
    Reading,
    check_table,
    open_table,
    suffix_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.tables import FairTable

# Columns that are not features, by the option that names them.
_ROLES = (
    *("--id", "--attributes", "--sensitive", "--group", "--labels", "--mask"),
    "--time",
)
# Features that people can look at one by one.
_READABLE = 64
_TRUTH = {"true": "1", "false": "0"}


@dataclass(frozen=True, eq=False)
class People:
    """Everything a command may want to know about people."""

    x: "Tensor"  # [N, F], or coordinates of a table [N, D]
    y: "Tensor"  # [N] or [N, C]
    features: list[str]
    outputs: list[str]
    scale: str = "none"
    table: "FairTable | None" = None  # what made x of the features, if anything did
    frame: Any = None  # the features of the table
    block: str | None = None  # the array that the outputs are all columns of
    ids: dict[str, NDArray[Any]] = field(default_factory=dict)
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)
    group: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    mask: NDArray[Any] | None = None
    time: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def num_outputs(self) -> int:
        """Columns of the outputs."""
        return self.y[:1].numel()

    def named(self, y: "Tensor") -> dict[str, NDArray[Any]]:
        """Ids and outputs, by the names they came with; an array as one."""
        value = y.numpy()
        if self.block is not None:
            outputs = {self.block: value}
        else:
            columns = value.reshape(len(value), -1).T
            outputs = dict(zip(self.outputs, columns, strict=True))
        ids = {**self.ids, **flat(self.ids)}
        both = [name for name in ids if name in {**outputs, **flat(outputs)}]
        if both:
            msg = f"--id must not name {listed(both)}, which is the name of an output"
            raise UsageError(f"{msg}: a file holds one column of a name")
        return {**self.ids, **outputs}

    def some(self, rows: "Tensor") -> "People":
        """What a distance is learned from, of some rows only."""
        at = rows.numpy()
        attributes = {name: value[at] for name, value in self.attributes.items()}
        group = None if self.group is None else self.group[at]
        return replace(self, x=self.x[rows], attributes=attributes, group=group)

    def on_scale_of(self, args: argparse.Namespace, rows: "Tensor") -> "People":
        """The same samples, a table's coordinates being learned from some rows only."""
        if self.table is None:
            return self
        given = (args, self.scale, self.frame, self.features, self.y.numpy())
        table = fitted_table(*given, rows.numpy())
        return replace(self, table=table, x=table.transform(self.frame))

    def kept(self) -> dict[str, Any]:
        """What a fit has to keep, so that newcomers may have columns in any order."""
        columns = {"features": self.features, "outputs": self.outputs}
        table = {} if self.table is None else {"table": self.table.to_config()}
        return {"columns": columns, **table}

    def attribute_codes(self) -> "dict[str, tuple[Tensor, list[str]]]":
        """Protected attributes: a number for each person, a name for each number."""
        return {
            name: (codes(value), [_text(at) for at in np.unique(_sortable(value))])
            for name, value in self.attributes.items()
        }

    def described(self) -> Any:
        """A frame of what people are like, protected attributes included.

        :obj:`None` for embeddings: nobody reads hundreds of coordinates.
        """
        import pandas as pd

        if self.frame is None and len(self.features) > _READABLE:
            return None
        frame = self.frame
        if frame is None:
            frame = pd.DataFrame(self.x.numpy(), columns=self.features)
        frame = frame[self.features].copy()
        for name, value in self.attributes.items():
            frame[name] = value
        return frame

    def group_codes(self) -> "Tensor | None":
        """Groups of people who ought to be treated alike, numbered."""
        return None if self.group is None else codes(self.group)

    def first_ids(self) -> list[str] | None:
        """What people are called in reports."""
        ids = next(iter(self.ids.values()), None)
        return None if ids is None else [str(one) for one in ids]

    def classes(self, positive: str | None) -> "tuple[Tensor, Tensor]":
        """The true class of everybody, zero where it is not known, and where it is."""
        import torch

        if self.labels is None:
            raise UsageError("--labels must name the column with the true class")
        there = known(self.labels)
        if not there.any():
            msg = "--labels must have a value in some row (got empty cells)"
            raise UsageError(msg)
        out = np.zeros(len(there), dtype=np.int64)
        out[there] = self._known_classes(self.labels[there], positive)
        return torch.from_numpy(out), torch.from_numpy(there)

    def _known_classes(
        self, value: NDArray[Any], positive: str | None
    ) -> NDArray[np.int64]:
        """Class numbers of labels without gaps."""
        levels, index = np.unique(_sortable(value), return_inverse=True)
        texts = [_text(level) for level in levels]
        count = max(2, self.num_outputs)
        if positive is not None:
            at = _position(positive, texts)
            numbers = ["1" if j == at else "0" for j in range(len(texts))]
        elif self.num_outputs > 1 and set(texts) <= set(self.outputs):
            # Numbers are numbers of classes, even if columns are called by others.
            numbered = all(text.isdecimal() for text in texts)
            numbers = texts if numbered else [str(self.outputs.index(t)) for t in texts]
        else:
            numbers = [_TRUTH.get(text.lower(), text) for text in texts]
        for text, number in zip(texts, numbers, strict=True):
            if not number.isdecimal() or int(number) >= count:
                raise _bad_label(text, count)
        return np.array([int(number) for number in numbers], dtype=np.int64)[index]

    def labels_of(self, args: argparse.Namespace) -> "Tensor | None":
        """True classes, -1 where they are not known; of a single output alone."""
        if self.labels is None or self.y.dim() > 1:
            return None
        label, there = self.classes(args.positive)
        return label.long().masked_fill(~there, -1)

    def accuracy(self, y: "Tensor", positive: str | None, threshold: float) -> float:
        """Share of known labels that the outputs get right."""
        from pyg_glif._utils.decisions import decisions

        label, there = self.classes(positive)
        right = decisions(y, threshold) == label
        return float(right[there].double().mean())


def input_files(args: argparse.Namespace) -> list[str | None]:
    """All files that a call reads, for those who must not overwrite them."""
    files = [getattr(args, name, None) for name in _TABLES + _FITS]
    files = [path for path in files if path != STREAM]
    return [*files, *(name for option in _ROLES for name in _named(args, option))]


# Files of a call by kind, under the names that argparse has for them.
_TABLES = (
    *("data", "outputs_file", "after", "pairs", "new", "people"),
    *("matrix", "directions", "side_rows"),
)
_FITS = ("post", "fit")


def check_inputs(args: argparse.Namespace) -> None:
    """Raises on inputs that are not there, before anything is said about results."""
    given = vars(args)
    paths = [given[name] for name in _TABLES if given.get(name)]
    for path in paths:
        check_table(path)
    if paths.count(STREAM) > 1:
        raise UsageError(f"'{STREAM}' must stand for one input (got it twice)")
    for name in _FITS:
        if given.get(name) and not Path(given[name]).is_file():
            raise UsageError(f"'{given[name]}' does not exist")
    kinds = {suffix_of(path) for path in paths}
    for option, able in (("encoding", (".csv", ".tsv")), ("sheet", (".xlsx",))):
        text = STREAM in paths and option == "encoding"
        if (
            given.get(option)
            and not text
            and not any(k.startswith(able) for k in kinds)
        ):
            raise UsageError(f"--{option} goes with {' and '.join(able)}")


def _named(args: argparse.Namespace, option: str) -> list[str]:
    """The names that an option was given; not every command has all of them."""
    value = getattr(args, name_of(option), None) or []
    return [value] if isinstance(value, str) else value


def read_people(args: argparse.Namespace, fit: dict[str, Any] | None = None) -> People:
    """Reads what the options name; ``fit`` has what was kept of an earlier fit."""
    saved = (fit or {}).get("columns", {})
    files = _Files(args)
    roles = {option: files.roles(option) for option in _ROLES}
    outputs = files.outputs(saved.get("outputs"))
    features = files.features(saved.get("features"), outputs)
    files.check()
    told, y = files.values(features, outputs, fit)
    for columns in roles.values():
        for column in columns:
            column.read(len(y))
    _check_full(roles["--attributes"] + roles["--group"])
    single = {o: c[0].value if c else None for o, c in roles.items()}
    protected = {c.name: c.value for c in roles["--attributes"]}
    protected |= {c.name: c.filled() for c in roles["--sensitive"]}
    ids = {column.name: column.value for column in roles["--id"]}
    if not ids:
        ids = {name: files.data.column(name) for name in told.free}

    from pyg_glif._utils.arrays import to_tensor

    table, frame = None, told.frame
    if frame is None:
        x = to_tensor("features", told.numbers)
    else:
        from pyg_glif.tables import FairTable

        if fit is not None:
            table = FairTable.from_config(fit["table"])
        else:
            table = fitted_table(args, told.scale, frame, told.features, y)
        x = table.transform(frame)
    return People(
        x=x,
        y=to_tensor("outputs", y),
        features=told.features,
        outputs=outputs,
        scale=told.scale if table is None else str(table.scale),
        table=table,
        frame=frame,
        block=files.holder.whole(outputs),
        ids=ids,
        attributes=protected,
        group=single["--group"],
        labels=single["--labels"],
        mask=single["--mask"],
        time=single["--time"],
    )


@dataclass(frozen=True, eq=False)
class _Told:
    """What says who is similar: numbers, or a frame that a table puts on a scale."""

    features: list[str]
    scale: str
    numbers: NDArray[Any] | None = None  # [N, F]
    frame: Any = None  # of the features, and of protected columns
    free: tuple[str, ...] = ()  # columns of free text, which were left out


class _Files:
    """The one or two files that hold people; remembers what is not in them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._missing: list[tuple[FileTable, str, str]] = []
        self._reading = Reading.of(args)
        self.data = self.holder = open_table(args.data, self._reading)
        self.tables = [self.data]
        if args.outputs_file:
            self.holder = open_table(args.outputs_file, self._reading)
            self.tables.append(self.holder)
        unnamed = self.data.num_unnamed
        if unnamed:
            columns = "1 column" if unnamed == 1 else f"{unnamed} columns"
            note(args, f"'{self.data.path}': {columns} without a name left out")

    def roles(self, option: str) -> "list[_Column]":
        """Columns that are not features; a file with one may be named in its place."""
        found = []
        for name in _named(self._args, option):
            called, places = name, [(t, t.find(name)) for t in self.tables]
            places = [(table, names) for table, names in places if names]
            is_file = suffix_of(name) in SUFFIXES and Path(name).is_file()
            if is_file and not places:
                table = open_table(name, self._reading)
                called, places = Path(name).stem, [(table, table.names)]
            if not places:
                self._missing.append((self.data, option, name))
                continue
            names = places[0][1]
            # Ids are carried through, whatever they are; all else is one column.
            if len(names) != 1 and (option != "--id" or "*" in name or called != name):
                msg = f"'{name}' must have a single column (it has {listed(names)})"
                raise UsageError(msg)
            found.append(_Column(option, called, places))
        return found

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
        if self._args.features is None and saved is None:
            return self._left(self.data, taken, "features")
        if self._args.features is None:
            return self._columns("--features", self.data, saved)
        found = self._columns("--features", self.data)
        both = [name for name in found if name in taken]
        if both:
            msg = f"--features must not name {listed(both)}, which has another use"
            raise UsageError(f"{msg} in this call")
        return found

    def _columns(
        self, option: str, table: FileTable, names: list[str] | None = None
    ) -> list[str]:
        """Columns for names, arrays and patterns; each once, in the order asked."""
        found: dict[str, None] = {}
        for name in _named(self._args, option) if names is None else names:
            columns = table.find(name)
            if not columns:
                self._missing.append((table, option, name))
            found.update(dict.fromkeys(columns))
        return list(found)

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
        """Raises if anything that was asked for is not there, all of it at once."""
        if len(self._missing) == 1:
            ((table, option, name),) = self._missing
            msg = f"{option}: '{table.path}' has no column '{name}'"
            msg = f"{msg} (it has {table.contents})"
            raise UsageError(". ".join([msg, *self._meant()]))
        parts = []
        for table in self.tables:
            lost = [f"'{n}' ({o})" for t, o, n in self._missing if t is table]
            if lost:
                msg = f"'{table.path}' has no column {', '.join(lost)}"
                parts.append(f"{msg}; it has {table.contents}")
        if parts:
            raise UsageError(". ".join([*parts, *self._meant()]))

    def _meant(self) -> list[str]:
        """A question about the names that were probably meant, if there are any."""
        found = [nearest_name(n, [*t.names, *t.blocks]) for t, _, n in self._missing]
        meant = list(dict.fromkeys(repr(name) for name in found if name is not None))
        return [f"Did you mean {', '.join(meant)}?"] if meant else []

    def values(
        self, features: list[str], outputs: list[str], fit: dict[str, Any] | None
    ) -> tuple[_Told, NDArray[Any]]:
        """Features and outputs, or one error for all that is wrong with a file."""
        data, holder = self.data, self.holder
        faults: list[Fault] = []
        told, y = _Told(features, "none", np.empty((0, 0))), np.empty(0)
        try:
            told = self._told(features) if fit is None else self._kept(features, fit)
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
        features_read: Any = told.numbers if told.frame is None else told.frame
        rows = len(features_read)
        if rows != len(y):
            msg = f"'{holder.path}' must have as many rows as '{data.path}'"
            raise UsageError(f"{msg} (got {len(y)} for {rows})")
        if rows == 0:
            raise UsageError(f"'{data.path}' has no rows")
        return told, y

    def _told(self, features: list[str]) -> _Told:
        """Features as the options want them, and as what they are allows."""
        args, data = self._args, self.data
        asked = "standard" if args.standardize else args.scale
        if asked is None and (args.sensitive or args.equivalent or args.categories):
            asked = "effect"
        # Gaps in an array of numbers are slips, and learners want numbers.
        numbers_only = args.metric != "euclidean" or isinstance(data, ArrayTable)
        if asked == "none" or (asked is None and numbers_only):
            return _Told(features, "none", data.numbers(features))
        if asked in (None, "standard") and not args.categories:
            numbers = data.plain_numbers(features)
            if numbers is not None:
                return self._checked(_Told(features, asked or "none", numbers))
        used = {n for o in ("--sensitive", "--attributes") for n in _named(args, o)}
        protected = [name for name in data.names if name in used]
        texts = args.categories or ()
        frame = data.frame([*features, *protected], texts, "--categories")
        free = free_texts(frame[features])
        left = [name for name in features if name not in free]
        if free and (args.features or not left):
            msg = f"'{data.path}': {listed(free)} must hold categories"
            raise UsageError(f"{msg} (got a text of its own for nearly everybody)")
        if free:
            use = "left out" if args.id else "carried through, not features"
            msg = "nearly everybody has a text of their own"
            note(args, f"{listed(free)}: {msg}; {use}")
        if args.metric in ("mahalanobis", "subspace", "svd"):
            msg = f"--metric {args.metric} goes with numbers as they are"
            raise UsageError(f"{msg}, or with --standardize")
        frame = frame[[*left, *protected]]
        return self._checked(
            _Told(left, asked or "effect", frame=frame, free=tuple(free))
        )

    def _checked(self, told: _Told) -> _Told:
        """Warns about features that should not be some."""
        if told.frame is not None:
            columns = {name: told.frame[name].to_numpy() for name in told.features}
            warn_of_outcomes(columns)
        elif told.numbers is not None and not isinstance(self.data, ArrayTable):
            warn_of_outcomes(dict(zip(told.features, told.numbers.T, strict=True)))
        return told

    def _kept(self, features: list[str], fit: dict[str, Any]) -> _Told:
        """Features of newcomers, read as those of the fit were."""
        if "table" not in fit:
            return _Told(features, "none", self.data.numbers(features))
        texts = [
            column["name"]
            for column in fit["table"]["columns"]
            if any(isinstance(point, str) for point in column["points"])
        ]
        return _Told(features, "", frame=self.data.frame(features, texts))


class _Column:
    """A column that is not a feature, where it is and, once read, what it holds."""

    value: NDArray[Any]

    def __init__(
        self, option: str, name: str, places: list[tuple[FileTable, list[str]]]
    ) -> None:
        self._option, self._places = option, places
        self.name, self.table = name, places[0][0]

    def read(self, size: int) -> None:
        """Reads the column, which has one entry for each of ``size`` people."""
        values = []
        for table, names in self._places:
            columns = [table.column(name) for name in names]
            whole = len(columns) > 1
            values.append(np.stack(columns, axis=1) if whole else columns[0])
        self.value = values[0]
        if self._option == "--id":
            check_same_ids(self.name, self.value, values[1:])
        if len(self.value) != size:
            msg = f"'{self.name}' must have one entry per person"
            raise UsageError(f"{msg} (got {len(self.value)} for {size})")

    def filled(self) -> NDArray[Any]:
        """The column with gaps as a group of their own."""
        gaps = ~known(self.value)
        if not gaps.any():
            return self.value
        return np.where(gaps, "unknown", self.value.astype(object))

    def gaps(self) -> list[Fault]:
        """The first empty cell, if there is one."""
        name, empty = self._places[0][1][0], np.flatnonzero(~known(self.value))[:1]
        return [Fault(name, self.table.place(int(i)), "") for i in empty]


def _check_full(columns: Sequence[_Column]) -> None:
    """Raises on gaps, the first of every column."""
    for table in dict.fromkeys(column.table for column in columns):
        faults = [f for c in columns if c.table is table for f in c.gaps()]
        if faults:
            raise CellError(table.path, faults)


def check_same_ids(
    name: str, found: NDArray[Any], others: Sequence[NDArray[Any]]
) -> None:
    """Raises if files list people in different orders."""
    first = _id_texts(found)
    for other in map(_id_texts, others):
        if len(other) == len(first) and other != first:
            at = next(i for i, one in enumerate(first) if one != other[i])
            msg = f"'{name}' must be the same in both files, row by row"
            got = f"{first[at]!r} and {other[at]!r} in row {at}"
            raise UsageError(f"{msg} (got {got}). Sort them alike")


def _id_texts(value: NDArray[Any]) -> list[str]:
    """Ids as text, without what ``--spreadsheet`` adds."""
    return [unquoted(str(one)) for one in value]


def known(value: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries of a column are not empty."""
    there = np.ones(len(value), dtype=np.bool_)
    if value.dtype.kind == "f":
        there[:] = ~np.isnan(value)
    elif value.dtype == object:
        # NaN, which is not equal to itself, stands for gaps among objects.
        there[:] = [v is not None and v == v and str(v).strip() != "" for v in value]
    return there


def codes(value: NDArray[Any]) -> "Tensor":
    """Whole numbers from 0 for the values of a column, in their sorted order."""
    import torch

    return torch.from_numpy(np.unique(_sortable(value), return_inverse=True)[1])


def _bad_label(text: str, count: int) -> UsageError:
    """The error for a label that is no class."""
    if count == 2:
        msg = f"--labels must hold 0 and 1 (got '{text}')"
        return UsageError(f"{msg}. Say which value means class 1 by --positive")
    msg = f"--labels must hold 0 to {count - 1} or names of output columns"
    return UsageError(f"{msg} (got '{text}')")


def _position(positive: str, texts: list[str]) -> int:
    """Where the value that means class 1 is."""
    wanted = _text(_sortable(np.array([positive], dtype=object))[0])
    if wanted not in texts:
        msg = f"--positive must be a value of --labels (got '{positive}'"
        raise UsageError(f"{msg}, there are {listed(texts)})")
    return texts.index(wanted)


def _sortable(value: NDArray[Any]) -> NDArray[Any]:
    """Numbers if every entry is one, so that 10 comes after 9."""
    if value.dtype.kind == "b":
        return value.astype(np.int64)
    try:
        return value.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return value.astype(np.str_)


def _text(level: Any) -> str:
    """A value as people write it: 1, not 1.0."""
    if isinstance(level, (int, float, np.number)):
        whole = np.isfinite(level) and float(level) % 1 == 0
        return str(int(level)) if whole else f"{float(level):.17g}"
    return str(level)
