"""From options and files to samples: features, outputs, ids and labels.

Files are read before torch is loaded, so that a mistyped name is reported at once.
"""

import argparse
import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.target_names import outcome_like
from pyg_glif.cli._dtypes import CellError, Fault
from pyg_glif.cli._files import flat, unquoted
from pyg_glif.cli._options import (
    UsageError,
    called,
    listed,
    name_of,
    nearest_name,
    note,
)
from pyg_glif.cli._tables import (
    STREAM,
    SUFFIXES,
    ArrayTable,
    FileTable,
    check_table,
    open_table,
    suffix_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.tables import FairTable

# Columns that are not features, by the option that names them.
_ROLES = ("--id", "--sensitive", "variants", "--labels", "mask", "--time")
# Features that a reader can look at one by one.
_READABLE = 64
# More texts than this, and one for more than half of all rows, are no categories.
_FREE_TEXT = 20
_TRUTH = {"true": "1", "false": "0"}


@dataclass(frozen=True, eq=False)
class Samples:
    """Features, outputs, and columns with another use, row by row."""

    x: "Tensor"  # [N, F], or coordinates of a table [N, D]
    y: "Tensor"  # [N] or [N, C]
    features: list[str]
    outputs: list[str]
    scale: str = "none"
    table: "FairTable | None" = None  # what made x of the features, if anything did
    frame: Any = None  # the features of the table
    block: str | None = None  # the array that the outputs are all columns of
    ids: dict[str, NDArray[Any]] = field(default_factory=dict)
    sensitive: dict[str, NDArray[Any]] = field(default_factory=dict)
    variants: NDArray[Any] | None = None
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

    def some(self, rows: "Tensor") -> "Samples":
        """What a distance is learned from, of some rows only."""
        index = rows.numpy()
        sensitive = {name: value[index] for name, value in self.sensitive.items()}
        variants = None if self.variants is None else self.variants[index]
        return replace(self, x=self.x[rows], sensitive=sensitive, variants=variants)

    def on_scale_of(self, args: argparse.Namespace, rows: "Tensor") -> "Samples":
        """The same samples, a table's coordinates being learned from some rows only."""
        if self.table is None:
            return self
        index, y = rows.numpy(), self.y.numpy()
        spec = FeatureSpec(self.features, self.scale, frame=self.frame)
        table = spec.fitted_table(args, y, index)
        return replace(self, table=table, x=table.transform(self.frame))

    def metadata(self) -> dict[str, Any]:
        """Metadata of a fit, by which columns of new samples are found and scaled."""
        columns = {"features": self.features, "outputs": self.outputs}
        table = {} if self.table is None else {"table": self.table.to_config()}
        return {"columns": columns, **table}

    def sensitive_codes(self) -> "dict[str, tuple[Tensor, list[str]]]":
        """Sensitive columns: a code for each row, a name for each code."""
        return {
            name: (
                codes(value),
                [_text(level) for level in np.unique(_sortable(value))],
            )
            for name, value in self.sensitive.items()
        }

    def described(self) -> Any:
        """A frame of features and sensitive columns for reports and explanations.

        :obj:`None` for embeddings, whose coordinates say nothing to readers.
        """
        import pandas as pd

        if self.frame is None and len(self.features) > _READABLE:
            return None
        frame = self.frame
        if frame is None:
            frame = pd.DataFrame(self.x.numpy(), columns=self.features)
        frame = frame[self.features].copy()
        for name, value in self.sensitive.items():
            frame[name] = value
        return frame

    def variant_codes(self) -> "Tensor | None":
        """Codes that are equal for variants of one sample."""
        return None if self.variants is None else codes(self.variants)

    def first_ids(self) -> list[str] | None:
        """Names of the samples in reports."""
        ids = next(iter(self.ids.values()), None)
        return None if ids is None else [str(id) for id in ids]

    def classes(self, positive: str | None) -> "tuple[Tensor, Tensor]":
        """The true class of each sample, zero where it is missing, and the mask."""
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
            wanted = _text(_sortable(np.array([positive], dtype=object))[0])
            if wanted not in texts:
                msg = f"'positive' must be a value of --labels (got '{positive}'"
                raise UsageError(f"{msg}, there are {listed(texts)})")
            numbers = [str(int(text == wanted)) for text in texts]
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
        """True classes of a single output, -1 where they are missing."""
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
    """All files that a call reads, which no result may overwrite."""
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
    for columns in roles.values():
        for column in columns:
            column.read(len(y))
    for column in roles["variants"]:
        column.check_full()
    single = {o: c[0].value if c else None for o, c in roles.items()}
    ids = {column.name: column.value for column in roles["--id"]}
    if not ids:
        ids = {name: files.data.column(name) for name in spec.free}

    from pyg_glif._utils.arrays import to_tensor

    table = None
    if spec.frame is None:
        x = to_tensor("features", spec.numbers)
    else:
        from pyg_glif.tables import FairTable

        if fit is not None:
            table = FairTable.from_config(fit["table"])
        else:
            table = spec.fitted_table(args, y)
        x = table.transform(spec.frame)
    return Samples(
        x=x,
        y=to_tensor("outputs", y),
        features=spec.features,
        outputs=outputs,
        scale=spec.scale if table is None else str(table.scale),
        table=table,
        frame=spec.frame,
        block=files.holder.whole(outputs),
        ids=ids,
        sensitive={column.name: column.filled() for column in roles["--sensitive"]},
        variants=single["variants"],
        labels=single["--labels"],
        mask=single["mask"],
        time=single["--time"],
    )


@dataclass(frozen=True, eq=False)
class FeatureSpec:
    """Features as numbers, or as a frame that a table puts on a scale."""

    features: list[str]
    scale: str
    numbers: NDArray[Any] | None = None  # [N, F]
    frame: Any = None  # of features and sensitive columns
    free: tuple[str, ...] = ()  # columns of free text, which were left out

    def fitted_table(
        self, args: argparse.Namespace, y: Any, rows: Any = slice(None)
    ) -> "FairTable":
        """The table that puts features on the scale of some rows of the frame."""
        from pyg_glif.tables import FairTable

        table = FairTable(
            sensitive=[name for name in self.frame if name not in self.features],
            scale=self.scale,  # type: ignore[arg-type]
            equivalent=args.equivalent or {},
        )
        y_hat = None if self.scale == "standard" else y[rows]
        return table.fit(self.frame.iloc[rows], y_hat=y_hat)

    def warn_targets(self) -> None:
        """Warns about features that are probably the target of the model."""
        if self.frame is not None:
            columns = {name: self.frame[name].to_numpy() for name in self.features}
        else:
            assert self.numbers is not None
            columns = dict(zip(self.features, self.numbers.T, strict=True))
        targets = [
            name
            for name, value in columns.items()
            if outcome_like(name)
            and value.dtype.kind in "fiub"
            and set(np.unique(value[~np.isnan(value.astype(np.float64))])) == {0, 1}
        ]
        if targets:
            it = "it says" if len(targets) == 1 else "they say"
            msg = f"{listed(targets)} looks like an outcome (0 and 1 only), and {it}"
            remedy = f"Leave it out with --ignore {','.join(targets)}"
            warnings.warn(f"{msg} who is similar. {remedy}", stacklevel=2)


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
            title, places = name, [(t, t.find(name)) for t in self.tables]
            places = [(table, names) for table, names in places if names]
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
        if self._args.features is None and saved is None:
            return self._left(self.data, taken, "features")
        if self._args.features is None:
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
        if len(self._missing) == 1:
            ((table, option, name),) = self._missing
            msg = f"{called(option)}: '{table.path}' has no column '{name}'"
            msg = f"{msg} (it has {table.contents})"
            raise UsageError(". ".join([msg, *self._meant()]))
        parts = []
        for table in self.tables:
            lost = [f"'{n}' ({called(o)})" for t, o, n in self._missing if t is table]
            if lost:
                msg = f"'{table.path}' has no column {', '.join(lost)}"
                parts.append(f"{msg}; it has {table.contents}")
        if parts:
            raise UsageError(". ".join([*parts, *self._meant()]))

    def _meant(self) -> list[str]:
        """A question about the names that were probably meant, if there are any."""
        close = [nearest_name(n, [*t.names, *t.blocks]) for t, _, n in self._missing]
        meant = list(dict.fromkeys(repr(name) for name in close if name is not None))
        return [f"Did you mean {', '.join(meant)}?"] if meant else []

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
    """A column that is not a feature: its places and, once read, its values."""

    value: NDArray[Any]

    def __init__(
        self, option: str, name: str, places: list[tuple[FileTable, list[str]]]
    ) -> None:
        self._option, self._places = option, places
        self.name, self.table = name, places[0][0]

    def read(self, size: int) -> None:
        """Reads the column, which has one entry for each of ``size`` samples."""
        values = []
        for table, names in self._places:
            columns = [table.column(name) for name in names]
            whole = len(columns) > 1
            values.append(np.stack(columns, axis=1) if whole else columns[0])
        self.value = values[0]
        if self._option == "--id":
            check_same_ids(self.name, self.value, values[1:])
        if len(self.value) != size:
            msg = f"'{self.name}' must have one entry per row"
            raise UsageError(f"{msg} (got {len(self.value)} for {size})")

    def filled(self) -> NDArray[Any]:
        """The column with gaps as a group of their own."""
        gaps = ~known(self.value)
        if not gaps.any():
            return self.value
        return np.where(gaps, "unknown", self.value.astype(object))

    def check_full(self) -> None:
        """Raises on the first empty cell."""
        name = self._places[0][1][0]
        for row in np.flatnonzero(~known(self.value))[:1].tolist():
            raise CellError(self.table.path, [Fault(name, self.table.place(row), "")])


def check_same_ids(
    name: str, ids: NDArray[Any], others: Sequence[NDArray[Any]]
) -> None:
    """Raises if files list samples in different orders."""
    first = _id_texts(ids)
    for other in map(_id_texts, others):
        if len(other) == len(first) and other != first:
            row = next(i for i, id in enumerate(first) if id != other[i])
            msg = f"'{name}' must be the same in both files, row by row"
            got = f"{first[row]!r} and {other[row]!r} in row {row}"
            raise UsageError(f"{msg} (got {got}). Sort them alike")


def _id_texts(value: NDArray[Any]) -> list[str]:
    """Ids as text, without what ``--spreadsheet`` adds."""
    return [unquoted(str(id)) for id in value]


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
        remedy = "Say which value means class 1 by 'positive' in the file of --config"
        return UsageError(f"{msg}. {remedy}")
    msg = f"--labels must hold 0 to {count - 1} or names of output columns"
    return UsageError(f"{msg} (got '{text}')")


def _sortable(value: NDArray[Any]) -> NDArray[Any]:
    """Numbers if every entry is one, so that 10 comes after 9."""
    if value.dtype.kind == "b":
        return value.astype(np.int64)
    try:
        return value.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return value.astype(np.str_)


def _text(level: Any) -> str:
    """A value as it is commonly written: 1, not 1.0."""
    if isinstance(level, (int, float, np.number)):
        whole = np.isfinite(level) and float(level) % 1 == 0
        return str(int(level)) if whole else f"{float(level):.17g}"
    return str(level)
