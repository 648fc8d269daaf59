"""Classes and groups from columns of any kind, and decisions from outputs."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif.cli.base import UsageError, listed
from pyg_glif.cli.columns import known
from pyg_glif.cli.people import People

_TRUTH = {"true": "1", "false": "0"}


def codes(value: NDArray[Any]) -> Tensor:
    """Whole numbers from 0 for the values of a column, in their sorted order."""
    return torch.from_numpy(np.unique(_sortable(value), return_inverse=True)[1])


def attribute_codes(people: People) -> dict[str, Tensor]:
    """Protected attributes; where a gap has a sign, the name says which way it goes."""
    found = {}
    for name, value in people.attributes.items():
        levels = [_text(level) for level in np.unique(_sortable(value))]
        signed = len(levels) == 2 and people.y[0].numel() == 1
        shown = f"{name} ({levels[1]} - {levels[0]})" if signed else name
        found[shown] = codes(value)
    return found


def classes(people: People, positive: str | None) -> tuple[Tensor, Tensor]:
    """The true class of everybody, zero where it is not known, and where it is."""
    value = people.labels
    if value is None:
        raise UsageError("--labels must name the column with the true class")
    there = known(value)
    if not there.any():
        raise UsageError("--labels must have a value for somebody (got empty cells)")
    out = np.zeros(len(value), dtype=np.int64)
    out[there] = _classes(value[there], people, positive)
    return torch.from_numpy(out), torch.from_numpy(there)


def _classes(
    value: NDArray[Any], people: People, positive: str | None
) -> NDArray[np.int64]:
    """Class numbers of known labels."""
    levels, index = np.unique(_sortable(value), return_inverse=True)
    texts = [_text(level) for level in levels]
    count = max(2, people.y[0].numel())
    if positive is not None:
        at = _position(positive, texts)
        numbers = ["1" if j == at else "0" for j in range(len(texts))]
    elif people.y[0].numel() > 1 and set(texts) <= set(people.outputs):
        # Numbers are numbers of classes, even if columns are called by others.
        numbered = all(text.isdecimal() for text in texts)
        numbers = texts if numbered else [str(people.outputs.index(t)) for t in texts]
    else:
        numbers = [_TRUTH.get(text.lower(), text) for text in texts]
    for text, number in zip(texts, numbers, strict=True):
        if not number.isdecimal() or int(number) >= count:
            raise _bad_label(text, count)
    return np.array([int(number) for number in numbers], dtype=np.int64)[index]


def _bad_label(text: str, count: int) -> UsageError:
    """The error for a label that is no class."""
    if count == 2:
        msg = f"--labels must hold 0 and 1 (got '{text}')"
        return UsageError(f"{msg}. Say which value means class 1 by --positive")
    msg = f"--labels must hold 0 to {count - 1} or names of output columns"
    return UsageError(f"{msg} (got '{text}')")


def _position(positive: str, texts: list[str]) -> int:
    """Where the value that means class 1 is."""
    wanted = _text(_sortable(np.array([positive]))[0])
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
    except (TypeError, ValueError):
        return value.astype(np.str_)


def _text(level: Any) -> str:
    """A value as people write it: 1, not 1.0."""
    if isinstance(level, (int, float, np.number)):
        return f"{float(level):.17g}" if float(level) % 1 else str(int(level))
    return str(level)


def accuracy(y: Tensor, label: Tensor, there: Tensor, threshold: float) -> float:
    """Share of known labels that the outputs get right."""
    many = y.dim() == 2 and y.size(1) > 1
    decision = y.argmax(1) if many else (y.reshape(len(y)) > threshold).long()
    return float((decision == label)[there].double().mean())
