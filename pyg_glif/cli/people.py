"""From options to people: who has which features, outputs, ids and labels."""

import argparse
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._arrays import to_tensor
from pyg_glif.cli.base import UsageError, listed, note
from pyg_glif.cli.columns import Columns
from pyg_glif.cli.csv_source import CSVSource
from pyg_glif.cli.files import open_source
from pyg_glif.cli.source import Source


@dataclass(frozen=True, eq=False)
class People:
    """Everything a command may want to know about people."""

    x: Tensor  # [N, F]
    y: Tensor  # [N] or [N, C]
    features: list[str]
    outputs: list[str]
    ids: dict[str, NDArray[Any]] = field(default_factory=dict)
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)
    group: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    mask: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def named(self, y: Tensor) -> dict[str, NDArray[Any]]:
        """Ids and outputs, by the names they came with."""
        return {**self.ids, **named_outputs(y.numpy(), self.outputs)}


def named_outputs(y: NDArray[Any], names: list[str]) -> dict[str, NDArray[Any]]:
    """A column per name; a matrix from a file of arrays as one."""
    block = {name.rpartition(".")[0] for name in names}
    numbered = [name.rpartition(".")[2] for name in names]
    if numbered == [str(j) for j in range(len(names))] and len(block) == 1:
        return {block.pop() or "outputs": y}
    return dict(zip(names, y.reshape(len(y), -1).T, strict=True))


def input_files(args: argparse.Namespace) -> list[str | None]:
    """All files that a call reads, for those who must not overwrite them."""
    known = ("data", "outputs_file", "after", "pairs", "post")
    metric = ("matrix", "directions", "side_rows")
    files = [getattr(args, name, None) for name in known + metric]
    return [*files, *_roles(args)]


def _roles(args: argparse.Namespace) -> list[str]:
    """Names given to columns that are not features."""
    single = (getattr(args, name, None) for name in ("group", "labels", "mask"))
    several = (args.id or []) + (args.attributes or [])
    return [*several, *(name for name in single if name)]


def read_people(
    args: argparse.Namespace, saved: dict[str, list[str]] | None = None
) -> People:
    """Reads what the options name; ``saved`` has columns of an earlier fit."""
    saved = saved or {}
    data = open_source(args.data)
    other = open_source(args.outputs_file) if args.outputs_file else None
    if isinstance(data, CSVSource) and data.num_unnamed:
        note(args, f"'{data.path}': {data.num_unnamed} column without a name left out")
    columns = Columns([data] if other is None else [data, other])
    for name in _roles(args):
        columns.find(name)  # says what is missing before features are read
    holder, outputs = _outputs(args, data, other, saved.get("outputs"))
    features = _features(args, data, outputs if other is None else [], saved)
    y = holder.outputs(outputs)
    x = data.numbers(features)
    if len(x) != len(y):
        msg = f"'{holder.path}' must have as many rows as '{data.path}'"
        raise UsageError(f"{msg} (got {len(y)} for {len(x)})")
    if len(x) == 0:
        raise UsageError(f"'{data.path}' has no rows")
    size = len(x)
    return People(
        x=to_tensor("features", x),
        y=to_tensor("outputs", y),
        features=features,
        outputs=outputs,
        ids={n: columns.ids(n, size) for n in args.id or []},
        attributes=dict(columns.full(n, size) for n in args.attributes or []),
        group=columns.full(args.group, size)[1] if args.group else None,
        labels=columns.maybe(getattr(args, "labels", None), size),
        mask=columns.maybe(getattr(args, "mask", None), size),
    )


def _outputs(
    args: argparse.Namespace,
    data: Source,
    other: Source | None,
    saved: list[str] | None,
) -> tuple[Source, list[str]]:
    """The file that holds the outputs, and their columns."""
    holder = data if other is None else other
    if args.outputs:
        return holder, holder.find(args.outputs, "--outputs")
    if saved and all(holder.has(name) for name in saved):
        return holder, saved
    if other is None:
        msg = f"--outputs must name the columns of '{data.path}' with the model's"
        msg = f"{msg} outputs, or a second file must hold them"
        raise UsageError(f"{msg} (it has {listed(data.names)})")
    roles = set(_roles(args))
    return holder, [name for name in holder.names if name not in roles]


def _features(
    args: argparse.Namespace,
    data: Source,
    outputs: list[str],
    saved: dict[str, list[str]],
) -> list[str]:
    """Columns of features: those named, those of the fit, or all left over."""
    others = [name for name in _roles(args) if data.has(name)]
    taken = {
        *outputs,
        *data.find(others, ""),
        *data.find(args.ignore or [], "--ignore"),
    }
    wanted = args.features or saved.get("features")
    if wanted is None:
        left = [name for name in data.names if name not in taken]
        if not left:
            raise UsageError(f"'{data.path}' has no column left for features")
        return left
    found = data.find(wanted, "--features")
    both = [name for name in found if name in taken]
    if both and args.features:
        msg = f"--features must not name '{both[0]}', which has another use"
        raise UsageError(f"{msg} in this call")
    return found
