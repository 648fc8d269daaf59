"""Samples of a call: features, outputs, ids and labels, row by row."""

import argparse
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.target_names import outcome_like
from pyg_glif.cli._files import flat
from pyg_glif.cli._options import UsageError, listed

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.tables import FairTable

# Features that a reader can look at one by one.
_READABLE = 64
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
        """Some rows of what a distance is learned from."""
        index = rows.numpy()
        sensitive = {name: value[index] for name, value in self.sensitive.items()}
        variants = None if self.variants is None else self.variants[index]
        return replace(self, x=self.x[rows], sensitive=sensitive, variants=variants)

    def on_scale_of(self, args: argparse.Namespace, rows: "Tensor") -> "Samples":
        """The same samples, a table's coordinates being learned from some rows only."""
        if self.table is None:
            return self
        spec = FeatureSpec(self.features, self.scale, frame=self.frame)
        table = spec.fitted_table(args, self.y.numpy(), rows.numpy())
        return replace(self, table=table, x=table.transform(self.frame))

    def metadata(self) -> dict[str, Any]:
        """Metadata of a fit, by which columns of new samples are found and scaled."""
        columns = {"features": self.features, "outputs": self.outputs}
        table = {} if self.table is None else {"table": self.table.to_config()}
        return {"columns": columns, **table}

    def sensitive_codes(self) -> "dict[str, tuple[Tensor, list[str]]]":
        """Sensitive columns: a code for each row, a name for each code."""
        levels = {name: np.unique(_sortable(v)) for name, v in self.sensitive.items()}
        return {
            name: (codes(value), [_text(level) for level in levels[name]])
            for name, value in self.sensitive.items()
        }

    def described(self) -> Any:
        """A frame of features and sensitive columns for reports and explanations.

        :obj:`None` for embeddings, whose coordinates say nothing to readers.
        """
        import pandas as pd

        frame = self.frame
        if frame is None:
            if len(self.features) > _READABLE:
                return None
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
        mask = known(self.labels)
        if not mask.any():
            raise UsageError("--labels must have a value in some row (got empty cells)")
        out = np.zeros(len(mask), dtype=np.int64)
        out[mask] = self._known_classes(self.labels[mask], positive)
        return torch.from_numpy(out), torch.from_numpy(mask)

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
            if number.isdecimal() and int(number) < count:
                continue
            if count > 2:
                msg = f"--labels must hold 0 to {count - 1} or names of output columns"
                raise UsageError(f"{msg} (got '{text}')")
            remedy = "Say which value means class 1 by 'positive' in the file of"
            msg = f"--labels must hold 0 and 1 (got '{text}'). {remedy} --config"
            raise UsageError(msg)
        return np.array([int(number) for number in numbers], dtype=np.int64)[index]

    def labels_of(self, args: argparse.Namespace) -> "Tensor | None":
        """True classes of a single output, -1 where they are missing."""
        if self.labels is None or self.y.dim() > 1:
            return None
        label, mask = self.classes(args.positive)
        return label.masked_fill(~mask, -1)

    def accuracy(self, y: "Tensor", positive: str | None, threshold: float) -> float:
        """Share of known labels that the outputs get right."""
        from pyg_glif._utils.decisions import decisions

        label, mask = self.classes(positive)
        right = decisions(y, threshold) == label
        return float(right[mask].double().mean())


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
        named = [name for name in self.features if outcome_like(name)]
        targets = []
        for name in named:
            if self.frame is not None:
                value = self.frame[name].to_numpy()
            else:
                assert self.numbers is not None
                value = self.numbers[:, self.features.index(name)]
            if value.dtype.kind in "fiub":
                value = value.astype(np.float64)
                if set(np.unique(value[~np.isnan(value)])) == {0, 1}:
                    targets.append(name)
        if targets:
            it = "it says" if len(targets) == 1 else "they say"
            msg = f"{listed(targets)} looks like an outcome (0 and 1 only), and {it}"
            remedy = f"Leave it out with --ignore {','.join(targets)}"
            warnings.warn(f"{msg} who is similar. {remedy}", stacklevel=2)


def known(value: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the entries of a column that are not empty."""
    import pandas as pd

    blank = [isinstance(cell, str) and not cell.strip() for cell in value]
    mask: NDArray[np.bool_] = ~(pd.isna(value) | np.array(blank, dtype=np.bool_))
    return mask


def codes(value: NDArray[Any]) -> "Tensor":
    """Whole numbers from 0 for the values of a column, in their sorted order."""
    import torch

    return torch.from_numpy(np.unique(_sortable(value), return_inverse=True)[1])


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
