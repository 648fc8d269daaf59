"""One fit as it is served: people in, corrected outputs out."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif import _fingerprints
from pyg_glif.postprocessor import GLIFPostProcessor, TransformInfo
from pyg_glif.serve.register import Register
from pyg_glif.tables import FairTable

# Times that a file is read which is replaced meanwhile.
_ATTEMPTS = 5
_UNSEEN = "values that the fit has not seen count as average"
Identity = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Answer:
    """Corrected newcomers: outputs, peers, how far they moved, and certificates.

    Lists, because cutting them is cheap, and JSON takes nothing else.
    """

    y_fair: list[Any]
    num_peers: list[int]
    moved: list[float]
    certificate: Mapping[str, list[float]]

    def split(self, sizes: Sequence[int]) -> "Iterator[Answer]":
        """The parts of several requests."""
        start = 0
        for size in sizes:
            rows = slice(start, start := start + size)
            yield Answer(
                self.y_fair[rows],
                self.num_peers[rows],
                self.moved[rows],
                {name: value[rows] for name, value in self.certificate.items()},
            )


@dataclass(frozen=True)
class ColumnForm:
    """A column that newcomers have, as forms and schemas need it."""

    name: str
    kind: str  # "number", "date", "duration" (days) or "category"
    counts: bool = True  # whether it says who is similar
    nullable: bool = False
    values: tuple[Any, ...] = ()  # of categories, those of the fit


class Served:
    """A fit, the table before it and the register beside it; nothing changes in it."""

    def __init__(
        self, path: Path, people: Callable[[GLIFPostProcessor], Register] | None = None
    ) -> None:
        self.path = path
        self.post, digest = _loaded(path)
        self.loaded_at = datetime.now(timezone.utc)
        self.fit_id = digest[:16]
        self.num_people = len(self.post.y_fair_)
        shape = self.post.y_fair_.shape
        self.num_outputs = None if len(shape) == 1 else shape[1]
        kept = self.post.metadata_
        config = kept.get("table") or kept.get("estimator", {}).get("table")
        self.table = None if config is None else FairTable.from_config(config)
        self.columns = tuple(self._columns(config))
        self.unit = "units of the distance" if self.table is None else self.table.unit_
        self.register = Register() if people is None else people(self.post)
        self.register.check(self.num_people)
        ids = self.register.ids
        if ids is None:
            ids = self.post.ids_
        #: What the fitted people are called, if need be by their rows.
        self.ids = [
            str(one) for one in (range(self.num_people) if ids is None else ids)
        ]

    def _columns(self, config: Mapping[str, Any] | None) -> Iterator[ColumnForm]:
        """The columns by which rows are told; none if nobody named any."""
        if config is None or self.table is None:
            names = self.post.metadata_.get("columns", {}).get("features")
            if names is None:
                names = getattr(self.post, "feature_names_in_", ())
            for name in names:
                yield ColumnForm(str(name), "number")
            return
        counted = {str(one["name"]): one for one in config["columns"]}
        for name in map(str, config["names"]):
            if name not in counted:
                yield ColumnForm(name, "any", counts=False, nullable=True)
                continue
            kind = counted[name]["kind"]
            points = counted[name]["points"] if kind == "category" else ()
            yield ColumnForm(name, kind, nullable=True, values=tuple(points))

    def warm_up(self) -> None:
        """Builds the index, so that the first newcomer does not wait for it."""
        for size in (1, 8):  # one newcomer is searched for in another way than a few
            self.correct(self.post.x_[:size].double(), self.post.y_hat_[:size].double())

    def correct(
        self,
        x: Tensor,
        y: Tensor,
        watch: Callable[[Tensor, TransformInfo], None] | None = None,
    ) -> Answer:
        """Corrects newcomers by coordinates of the fit; ``watch`` sees them."""
        y_fair, info = self.post.transform(x, y, return_info=True)
        moved = torch.linalg.vector_norm((y_fair - y).reshape(len(y), -1), dim=1)
        sure = info.certificate
        told = {"own_share": sure.own_share, "largest_gap": sure.largest_gap}
        answer = Answer(
            y_fair.tolist(),
            info.num_neighbors.tolist(),
            moved.tolist(),
            {name: value.tolist() for name, value in told.items()},
        )
        if watch is not None:  # last: whoever is counted is answered
            watch(y_fair, info)
        return answer

    def frame(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Rows as a frame, with the columns that count."""
        import pandas as pd

        columns: dict[str, Any] = {}
        for one in self.columns:
            if one.counts:
                cells = [row[one.name] for row in rows]
                columns[one.name] = _series(cells, one.kind)
        return pd.DataFrame(columns)

    def coordinates(
        self, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[Tensor, list[str]]:
        """Coordinates of people by their columns, and what was odd about them."""
        if self.table is None:
            names = [one.name for one in self.columns]
            cells = [[row[name] for name in names] for row in rows]
            return torch.tensor(cells, dtype=torch.float64), []
        frame = self.frame(rows)
        z = self.table.transform(frame)
        notes = [
            f"'{one.column}': {_UNSEEN}"
            for one in self.table.summary(frame).columns
            if one.unseen
        ]
        return z, notes

    def search(self, text: str, most: int) -> list[int]:
        """Rows of people whose id contains ``text``, those it starts with first."""
        text = text.casefold()
        found = [
            (not one.casefold().startswith(text), row)
            for row, one in enumerate(self.ids)
            if text in one.casefold()
        ]
        return [row for _, row in sorted(found)[:most]]


def identity(paths: Sequence[Path]) -> Identity:
    """What changes when one of some files is replaced."""
    return tuple(_marks(os.stat(path)) for path in paths)


def _marks(stat: os.stat_result) -> tuple[int, ...]:
    """What tells a file from any other; 'ctime' is not anybody's to set back."""
    changed = stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
    return stat.st_dev, stat.st_ino, *changed


def _loaded(path: Path) -> tuple[GLIFPostProcessor, str]:
    """A fit and its SHA-256, of one and the same file."""
    for _ in range(_ATTEMPTS):
        # As long as it is open, no other file can have its marks.
        with open(path, "rb") as file:
            known = _marks(os.fstat(file.fileno()))
            digest = _fingerprints.of_stream(file)
            post = GLIFPostProcessor.load(path, progress=False)
            if identity([path]) == (known,):
                return post, digest
    msg = f"'{path}' must stay the same while it is read (got {_ATTEMPTS} changes)"
    raise OSError(f"{msg}. Save it less often")


def _series(cells: list[Any], kind: str) -> Any:
    """Cells of JSON as a column of the kind that the fit had."""
    import pandas as pd

    if kind == "number":
        return np.array([np.nan if c is None else c for c in cells], dtype=np.float64)
    if kind == "duration":
        return pd.to_timedelta(pd.Series(cells, dtype=np.float64), unit="D")
    return pd.Series(cells, dtype=object)
