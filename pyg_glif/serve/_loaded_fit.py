"""One loaded fit: corrections, explanations and what pages show of its samples."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils import fingerprints as _fingerprints
from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.disclosure import Disclosure, spreads_of
from pyg_glif.audit import AuditReport
from pyg_glif.explain import Explanation
from pyg_glif.explain.explanation import Contribution
from pyg_glif.fit import TransformInfo
from pyg_glif.links import dual_of, outputs_of
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.serve._background import BackgroundTask
from pyg_glif.serve._schemas import ColumnForm, request_models
from pyg_glif.serve._settings import ServiceSettings
from pyg_glif.serve._what_if import WhatIf
from pyg_glif.serve.sample_metadata import ReadMetadata, SampleMetadata
from pyg_glif.tables import FairTable

# Times that a file is read which is replaced meanwhile.
_ATTEMPTS = 5
_UNSEEN = "values that the fit has not seen count as average"
Identity = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Answer:
    """Corrected new samples: outputs, how far they moved, and facts by name.

    Lists, because cutting them is cheap, and JSON takes nothing else.
    """

    y_fair: list[Any]
    moved: list[float]
    uncorrected: list[bool]  # no neighbor or, under a disclosure rule, too few
    facts: Mapping[str, list[Any]]

    def to_dict(self) -> dict[str, Any]:
        """The content of a response."""
        names = ("own_share", "largest_gap")
        return {
            "y_fair": self.y_fair,
            **{name: v for name, v in self.facts.items() if name not in names},
            "certificate": {n: v for n, v in self.facts.items() if n in names},
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
                {name: value[rows] for name, value in self.facts.items()},
            )


class LoadedFit:
    """A fit with the table before it and the metadata beside it.

    Nothing in it changes, apart from results that are computed when they are needed.

    Args:
        path (Path): The file of the fit.
        metadata (callable, optional): Metadata of the samples, of the post-processor.
        settings (ServiceSettings, optional): Limits of answers.
    """

    def __init__(
        self,
        path: Path,
        metadata: ReadMetadata | None = None,
        settings: ServiceSettings | None = None,
    ) -> None:
        self.path, self.settings = path, settings or ServiceSettings(show_people=True)
        self.disclosure = self.settings.disclosure
        self.post, digest = _load(path)
        self.loaded_at = datetime.now(timezone.utc)
        self.fit_id = digest[:16]
        self.y_hat, self.y_fair = self.post.y_hat_, self.post.y_fair_
        self.num_samples = len(self.y_fair)
        shape = self.y_fair.shape
        self.num_outputs = None if len(shape) == 1 else shape[1]
        saved = self.post.metadata_
        config = saved.get("table") or saved.get("estimator", {}).get("table")
        self.table = None if config is None else FairTable.from_config(config)
        self.columns = tuple(self._columns(config))
        self.unit = "units of the distance" if self.table is None else self.table.unit_
        self.metadata = SampleMetadata() if metadata is None else metadata(self.post)
        self.metadata.check(self.num_samples)
        ids = self.post.ids_ if self.metadata.ids is None else self.metadata.ids
        #: Names of the fitted samples, their row numbers if they have none.
        self.ids = list(map(str, range(self.num_samples) if ids is None else ids))
        self.correct_model, self.explain_model = request_models(
            self.columns,
            self.post.n_features_in_,
            self.num_outputs,
            self.settings.max_rows,
        )
        self.decide = self._decision()
        turn = threading.Lock()  # one long computation at a time
        self.audit = BackgroundTask("audit", self._audit, turn)
        self.what_if = BackgroundTask("what-if", self._explore, turn)

    def _columns(self, config: Mapping[str, Any] | None) -> Iterator[ColumnForm]:
        """Columns of rows; none if the fit has no names."""
        if config is None or self.table is None:
            names = self.post.metadata_.get("columns", {}).get("features")
            if names is None:
                names = getattr(self.post, "feature_names_in_", ())
            for name in names:
                yield ColumnForm(str(name), "number")
            return
        features = {str(column["name"]): column for column in config["columns"]}
        for name in map(str, config["names"]):
            if name not in features:
                yield ColumnForm(name, "any", counts=False, nullable=True)
                continue
            kind = features[name]["kind"]
            points = features[name]["points"] if kind == "category" else ()
            yield ColumnForm(name, kind, nullable=True, values=tuple(points))

    def _decision(self) -> Callable[[Tensor], Tensor] | None:
        """Outputs to decisions, if it is known what a decision is."""
        if self.num_outputs is not None:
            return decisions
        threshold, y = self.settings.threshold, self.y_hat
        if threshold is None and 0.0 <= float(y.min()) <= float(y.max()) <= 1.0:
            threshold = 0.5
        return None if threshold is None else lambda y: decisions(y, threshold)

    def stop(self) -> None:
        """Gives up on computations in the background."""
        self.audit.stop()
        self.what_if.stop()

    def _audit(self, stopped: Callable[[], bool]) -> AuditReport:
        """The audit report of the fitted samples."""
        threshold = self.settings.threshold
        if threshold is None and self.decide and self.num_outputs is None:
            threshold = 0.5
        report = self.post.audit(
            sensitive=dict(self.metadata.sensitive),
            threshold=threshold,
            num_nearest=min(5, self.num_samples - 1) or None,
        )
        if not self.settings.show_people:
            return report.without_samples()
        report, frame = report.with_ids(self.ids), self.metadata.frame
        return report if frame is None else report.with_features(frame)

    def _explore(self, stopped: Callable[[], bool]) -> WhatIf:
        """The fitted samples under other settings."""
        return WhatIf(self.post, self.metadata.sensitive, self.decide, stopped)

    def warm_up(self) -> None:
        """Builds the index before the first request."""
        for size in (1, 8):  # one query is searched for in another way than a few
            self.correct(self.post.x_[:size].double(), self.y_hat[:size].double())

    def correct(
        self,
        x: Tensor,
        y: Tensor,
        watch: Callable[[Tensor, TransformInfo], None] | None = None,
    ) -> Answer:
        """Corrects new samples by coordinates of the fit; ``watch`` sees them."""
        info = self.post.transform_info(x, y)
        assert info.certificate is not None
        y_fair = info.value
        uncorrected, certificate = info.num_neighbors == 0, info.certificate
        facts = {
            "num_neighbors": info.num_neighbors,
            "own_share": certificate.own_share,
            "largest_gap": certificate.largest_gap,
        }
        if self.disclosure is not None:
            rule = self.disclosure
            uncorrected = rule.withheld(certificate.effective_neighbors)
            y_fair = self._disclosed(rule, y, y_fair, certificate.own_share)
            rows = uncorrected.view(-1, *[1] * (y.dim() - 1))
            y_fair = torch.where(rows, y, y_fair)
            own_share = rule.rounded(certificate.own_share)
            facts = {
                # Says no more than 'withheld' does.
                "num_neighbors": torch.where(uncorrected, 0, rule.min_shared),
                "withheld": uncorrected,
                "own_share": torch.where(uncorrected, 1.0, own_share),
            }
        moved = torch.linalg.vector_norm((y_fair - y).reshape(len(y), -1), dim=1)
        answer = Answer(
            y_fair.tolist(),
            moved.tolist(),
            uncorrected.tolist(),
            {name: value.tolist() for name, value in facts.items()},
        )
        if watch is not None:  # last: whatever is counted is answered
            watch(y_fair, info)
        return answer

    def explain_new(self, x: Tensor, y: Tensor, frame: Any = None) -> Explanation:
        """Explanation of what :meth:`correct` returns for one new sample.

        Under a disclosure rule, shares and averages come in its steps, nothing is
        counted, and columns of fitted samples are left out.
        """
        rule = self.disclosure
        if rule is None:
            return self.post.explain_new(x, y_hat_new=y, features=frame)
        exact = self.post.explain_new(x, y_hat_new=y)
        answer = self.correct(x, y)
        hidden: dict[str, Any] = {"closest": None, "reasons": None, "num_higher": None}
        if answer.uncorrected[0]:
            own, none = Contribution(1, 1.0, exact.y_hat), Contribution(0, 0.0)
            hidden |= {"own": own, "neighbors": none, "others": none}
            hidden["is_withheld"] = True
            return replace(exact, y_fair=exact.y_hat, **hidden)
        own = replace(exact.own, share=answer.facts["own_share"][0])
        neighbors, others = (
            self._rounded(rule, part) for part in (exact.neighbors, exact.others)
        )
        # The three sum to what they summed to.
        total = sum(part.share for part in exact.parts.values())
        rest = float(rule.rounded(torch.tensor(total))) - own.share - others.share
        return replace(
            exact,
            y_fair=_tuple(answer.y_fair[0]),
            own=own,
            neighbors=replace(neighbors, share=rest),
            others=others,
            is_counted=False,
            **hidden,
        )

    def _rounded(self, rule: Disclosure, part: Contribution) -> Contribution:
        """Share and average of some fitted samples in the steps of the rule."""
        share = float(rule.rounded(torch.tensor(part.share)))
        if part.mean is None:
            return replace(part, share=share)
        std = self.y_hat.double().std(0, correction=0)
        mean = rule.rounded(torch.tensor(part.mean).double(), std)
        return replace(part, share=share, mean=_tuple(mean.tolist()))

    def _disclosed(
        self, rule: Disclosure, y: Tensor, y_fair: Tensor, own_share: Tensor
    ) -> Tensor:
        """Corrected outputs in the steps of the disclosure rule."""
        link = self.post.link
        eta_hat, eta = (
            dual_of(link, value.double()).reshape(len(y), -1) for value in (y, y_fair)
        )
        by_row = link is not None and link.by_row
        eta = rule.corrected(eta_hat, eta, own_share, self._spreads, by_row)
        unchanged = torch.zeros(len(y), dtype=torch.bool)
        return outputs_of(link, eta.reshape(y.shape), y, unchanged).to(y_fair)

    @cached_property
    def _spreads(self) -> tuple[Tensor, Tensor]:
        """Spreads of the model's outputs, where they are averaged."""
        y = self.y_hat.double()
        return spreads_of(dual_of(self.post.link, y).reshape(len(y), -1))

    def frame(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Rows as a frame, with the columns that count."""
        import pandas as pd

        return pd.DataFrame(
            {
                column.name: _series([row[column.name] for row in rows], column.kind)
                for column in self.columns
                if column.counts
            }
        )

    def coordinates(
        self, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[Tensor, list[str]]:
        """Coordinates of rows, and notes about unusual cells."""
        if self.table is None:
            names = [column.name for column in self.columns]
            cells = [[row[name] for name in names] for row in rows]
            return torch.tensor(cells, dtype=torch.float64), []
        frame = self.frame(rows)
        columns = self.table.summary(frame).columns
        notes = [f"'{column.column}': {_UNSEEN}" for column in columns if column.unseen]
        return self.table.transform(frame), notes

    def contributors(
        self, why: Explanation, limit: int, own: int = -1
    ) -> list[tuple[int, float]]:
        """Rows and shares of the fitted samples that count most, without ``own``."""
        pairs = zip(why.index.tolist(), why.weight.tolist(), strict=True)
        return [(row, share) for row, share in pairs if row != own][:limit]

    def search(self, text: str, limit: int) -> list[int]:
        """Rows whose id contains ``text``, those it starts with first.

        Without a text, the rows that moved most.
        """
        if not text:
            order = self.moved.argsort(descending=True, stable=True)
            rows: list[int] = order[:limit].tolist()
            return rows
        text = text.casefold()
        hits = [
            (not name.casefold().startswith(text), row)
            for row, name in enumerate(self.ids)
            if text in name.casefold()
        ]
        return [row for _, row in sorted(hits)[:limit]]

    @cached_property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        post, width = self.post, self.num_outputs
        names = post.metadata_.get("columns", {}).get("outputs")
        if names is None:
            names = getattr(post, "output_names_", None)
        if names is None:  # those of a classifier
            names = post.metadata_.get("estimator", {}).get("classes")
        if names is None or len(names) != (width or 1):
            names = (
                ["output"] if width is None else [f"output {k}" for k in range(width)]
            )
        return [str(name) for name in names]

    @cached_property
    def num_neighbors(self) -> Tensor:
        """Neighbors of each fitted sample."""
        row = self.post.similarity_.edge_index[0]
        return torch.bincount(row, minlength=self.num_samples)

    @cached_property
    def moved(self) -> Tensor:
        """How far the output of each fitted sample moved."""
        change = (self.y_fair - self.y_hat).double()
        norm: Tensor = torch.linalg.vector_norm(change.reshape(len(change), -1), dim=1)
        return norm

    @cached_property
    def info(self) -> dict[str, Any]:
        """The fit in the words of ``/v1/info``."""
        post, rule = self.post, self.disclosure
        return {
            "version": version("pyg_glif"),
            "fit": self.fit_id,
            "loaded_at": self.loaded_at.isoformat(timespec="seconds"),
            "num_people": self.num_samples,
            "num_features": post.n_features_in_,
            "num_outputs": self.num_outputs,
            "columns": [
                {**asdict(column), "values": list(column.values)}
                for column in self.columns
            ],
            "unit": self.unit,
            "tau": post.tau_ if isfinite(post.tau_) else None,
            "k": post.k,
            "lam": float(post.lam),
            "num_isolated": post.num_isolated_,
            "max_rows": self.settings.max_rows,
            "max_bytes": self.settings.max_bytes,
            "show_people": self.settings.show_people,
            "min_shared": None if rule is None else rule.min_shared,
            "resolution": None if rule is None else rule.resolution,
        }


def identity(paths: Sequence[Path]) -> Identity:
    """Marks that change when one of some files is replaced."""
    return tuple(_marks(os.stat(path)) for path in paths)


def _marks(stat: os.stat_result) -> tuple[int, ...]:
    """Marks of a file; a process cannot set 'ctime' back."""
    changed = stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
    return stat.st_dev, stat.st_ino, *changed


def _load(path: Path) -> tuple[GLIFPostProcessor, str]:
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


def _tuple(value: Any) -> Any:
    """A list as a tuple, a number as it is."""
    return tuple(value) if isinstance(value, list) else value


def _series(cells: list[Any], kind: str) -> Any:
    """Cells of JSON as a column of the kind that the fit had."""
    import pandas as pd

    if kind == "number":
        return np.array([np.nan if c is None else c for c in cells], dtype=np.float64)
    if kind == "duration":
        return pd.to_timedelta(pd.Series(cells, dtype=np.float64), unit="D")
    return pd.Series(cells, dtype=object)
