"""One fit as it is served: people in, corrected outputs out."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils import fingerprints as _fingerprints
from pyg_glif._utils.disclosure import Disclosure, spreads_of
from pyg_glif.explain import Explanation
from pyg_glif.explain.explanation import Contribution
from pyg_glif.fit import TransformInfo
from pyg_glif.links import dual_of_people, outputs_of_people
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.serve.sample_metadata import Register
from pyg_glif.tables import FairTable

# Times that a file is read which is replaced meanwhile.
_ATTEMPTS = 5
_UNSEEN = "values that the fit has not seen count as average"
Identity = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Answer:
    """Corrected newcomers: outputs, how far they moved, and what is told besides.

    Lists, because cutting them is cheap, and JSON takes nothing else.
    """

    y_fair: list[Any]
    moved: list[float]
    uncorrected: list[bool]  # no neighbor or, under a disclosure rule, too few
    told: Mapping[str, list[Any]]

    def to_dict(self) -> dict[str, Any]:
        """What the caller gets."""
        certificate = ("own_share", "largest_gap")
        return {
            "y_fair": self.y_fair,
            **{name: v for name, v in self.told.items() if name not in certificate},
            "certificate": {n: v for n, v in self.told.items() if n in certificate},
        }

    def split(self, sizes: Sequence[int]) -> "Iterator[Answer]":
        """The parts of several requests."""
        start = 0
        for size in sizes:
            rows = slice(start, start := start + size)
            yield Answer(
                self.y_fair[rows],
                self.moved[rows],
                self.uncorrected[rows],
                {name: value[rows] for name, value in self.told.items()},
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
        self,
        path: Path,
        people: Callable[[GLIFPostProcessor], Register] | None = None,
        disclosure: Disclosure | None = None,
    ) -> None:
        self.path, self.disclosure = path, disclosure
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
        info = self.post.transform_info(x, y)
        y_fair = info.value
        assert info.certificate is not None
        uncorrected, sure = info.num_neighbors == 0, info.certificate
        told = {
            "num_peers": info.num_neighbors,
            "own_share": sure.own_share,
            "largest_gap": sure.largest_gap,
        }
        if self.disclosure is not None:
            uncorrected = self.disclosure.withheld(sure.effective_neighbors)
            y_fair = self._disclosed(self.disclosure, y, y_fair, sure.own_share)
            y_fair = torch.where(_as_rows(uncorrected, y), y, y_fair)
            own_share = self.disclosure.rounded(sure.own_share)
            told = {
                # Tells no more than 'withheld' does.
                "num_peers": torch.where(uncorrected, 0, self.disclosure.min_shared),
                "withheld": uncorrected,
                "own_share": torch.where(uncorrected, 1.0, own_share),
            }
        moved = torch.linalg.vector_norm((y_fair - y).reshape(len(y), -1), dim=1)
        answer = Answer(
            y_fair.tolist(),
            moved.tolist(),
            uncorrected.tolist(),
            {name: value.tolist() for name, value in told.items()},
        )
        if watch is not None:  # last: whoever is counted is answered
            watch(y_fair, info)
        return answer

    def explain_new(self, x: Tensor, y: Tensor, frame: Any = None) -> Explanation:
        """Why a newcomer gets what :meth:`correct` gives.

        Under a disclosure rule, shares and averages come in its steps, nobody is
        counted, and what fitted people are like is not told.
        """
        rule = self.disclosure
        if rule is None:
            return self.post.explain_new(x, y_hat_new=y, features=frame)
        found = self.post.explain_new(x, y_hat_new=y)
        answer = self.correct(x, y)
        hidden: dict[str, Any] = {"closest": None, "reasons": None, "num_higher": None}
        if answer.uncorrected[0]:
            own, none = Contribution(1, 1.0, found.y_hat), Contribution(0, 0.0)
            hidden |= {"own": own, "peers": none, "others": none, "is_withheld": True}
            return replace(found, y_fair=found.y_hat, **hidden)
        own = replace(found.own, share=answer.told["own_share"][0])
        peers, others = (
            self._coarse(rule, part) for part in (found.peers, found.others)
        )
        # The three sum to what they summed to.
        total = sum(part.share for part in found.parts.values())
        left = float(rule.rounded(torch.tensor(total))) - own.share - others.share
        after = answer.y_fair[0]
        return replace(
            found,
            y_fair=tuple(after) if isinstance(after, list) else after,
            own=own,
            peers=replace(peers, share=left),
            others=others,
            is_counted=False,
            **hidden,
        )

    def _coarse(self, rule: Disclosure, part: Contribution) -> Contribution:
        """Share and average of some fitted people in the steps of the rule."""
        share = float(rule.rounded(torch.tensor(part.share)))
        if part.mean is None:
            return replace(part, share=share)
        y = self.post.y_hat_.double()
        mean = rule.rounded(torch.tensor(part.mean).double(), y.std(0, correction=0))
        out: Any = mean.tolist()
        return replace(
            part, share=share, mean=tuple(out) if isinstance(out, list) else out
        )

    def _disclosed(
        self, rule: Disclosure, y: Tensor, y_fair: Tensor, own_share: Tensor
    ) -> Tensor:
        """Corrected outputs in the steps of the disclosure rule."""
        link = self.post.link
        eta_hat, eta = (
            dual_of_people(link, one.double()).reshape(len(y), -1)
            for one in (y, y_fair)
        )
        by_row = link is not None and link.by_row
        eta = rule.corrected(eta_hat, eta, own_share, self._spreads, by_row)
        kept = torch.zeros(len(y), dtype=torch.bool)
        return outputs_of_people(link, eta.reshape(y.shape), y, kept).to(y_fair)

    @cached_property
    def _spreads(self) -> tuple[Tensor, Tensor]:
        """Spreads of the model's outputs, where they are averaged."""
        y = self.post.y_hat_.double()
        return spreads_of(dual_of_people(self.post.link, y).reshape(len(y), -1))

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


def _as_rows(which: Tensor, y: Tensor) -> Tensor:
    """One truth value per row, in the shape of outputs."""
    return which.view(-1, *[1] * (y.dim() - 1))


def _series(cells: list[Any], kind: str) -> Any:
    """Cells of JSON as a column of the kind that the fit had."""
    import pandas as pd

    if kind == "number":
        return np.array([np.nan if c is None else c for c in cells], dtype=np.float64)
    if kind == "duration":
        return pd.to_timedelta(pd.Series(cells, dtype=np.float64), unit="D")
    return pd.Series(cells, dtype=object)
