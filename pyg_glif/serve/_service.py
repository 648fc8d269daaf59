"""A fit, with what is made of it for requests and pages."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.json import plain
from pyg_glif.audit import AuditReport
from pyg_glif.explain import Explanation
from pyg_glif.serve._background import Later
from pyg_glif.serve._loaded_fit import Served
from pyg_glif.serve._schemas import Requests
from pyg_glif.serve._settings import Settings
from pyg_glif.serve._what_if import WhatIf

# People who are named as those who count most.
_MOST = 20
# What an answer says of an explanation, beside averages.
_TOLD = ("text", "own_share", "peers_share", "others_share", "num_peers", "num_others")


class Service:
    """A fit, with what is made of it for requests and pages."""

    def __init__(self, served: Served, settings: Settings) -> None:
        self.served, self.settings = served, settings
        self.requests = Requests(served, settings.max_rows)
        self.y_hat, self.y_fair = served.post.y_hat_, served.post.y_fair_
        self.decide = self._decision()
        turn = threading.Lock()  # one long computation at a time
        self.audit = Later("audit", self._audited, turn)
        self.what_if = Later("what-if", self._explored, turn)

    def stop(self) -> None:
        """Gives up on what is still computed."""
        self.audit.stop()
        self.what_if.stop()

    def _decision(self) -> Callable[[Tensor], Tensor] | None:
        """Outputs to decisions, if it is known what a decision is."""
        if self.served.num_outputs is not None:
            return lambda y: y.argmax(1)
        threshold, y = self.settings.threshold, self.y_hat
        if threshold is None and 0.0 <= float(y.min()) <= float(y.max()) <= 1.0:
            threshold = 0.5
        if threshold is None:
            return None
        least = threshold
        return lambda y: (y > least).long()

    def _audited(self, stopped: Callable[[], bool]) -> AuditReport:
        """The report about the fitted people."""
        register, size = self.served.register, self.served.num_people
        threshold = self.settings.threshold
        if threshold is None and self.decide and self.served.num_outputs is None:
            threshold = 0.5
        report = self.served.post.audit(
            sensitive=dict(register.attributes),
            threshold=threshold,
            num_nearest=min(5, size - 1) or None,
        )
        if not self.settings.show_people:
            return report.without_people()
        report = report.with_ids(self.served.ids)
        return report if register.frame is None else report.with_people(register.frame)

    def _explored(self, stopped: Callable[[], bool]) -> WhatIf:
        """The fitted people under other settings."""
        return WhatIf(self.served, self.decide, stopped)

    def grid(self, found: WhatIf) -> dict[str, Any]:
        """A grid of settings as plain data; people only if they may be shown."""
        size, ids = self.served.num_people, self.served.ids
        points = []
        for point in found.points:
            people = []
            if self.settings.show_people:
                rows, after = point["people"], point["after"]
                lines = zip(rows, self.y_hat[rows].tolist(), after, strict=True)
                people = [
                    {"row": row, "id": ids[row], "before": one, "after": other}
                    for row, one, other in lines
                ]
            near = point["kept"]
            if near is None:  # nobody said what a decision is
                near = 1.0 - point["affected"] / size
            told = {**point, "people": people, "kept_or_near": near}
            del told["after"]
            points.append(told)
        content: dict[str, Any] = plain(
            {
                "lams": found.lams,
                "taus": [tau if isfinite(tau) else None for tau in found.taus],
                "at": found.at,
                "unit": self.served.unit,
                "num_people": size,
                "least": found.least,
                "edges": found.edges,
                "points": points,
            }
        )
        return content

    @cached_property
    def output_names(self) -> list[str]:
        """What outputs are called."""
        post = self.served.post
        names = post.metadata_.get("columns", {}).get("outputs")
        if names is None:
            names = getattr(post, "output_names_", None)
        if names is None:  # those of a classifier
            names = post.metadata_.get("estimator", {}).get("classes")
        width = self.served.num_outputs
        if names is None or len(names) != (width or 1):
            names = (
                ["output"] if width is None else [f"output {k}" for k in range(width)]
            )
        return [str(name) for name in names]

    @cached_property
    def num_peers(self) -> Tensor:
        """Neighbours of each fitted person."""
        row = self.served.post.similarity_.edge_index[0]
        return torch.bincount(row, minlength=self.served.num_people)

    @cached_property
    def moved(self) -> Tensor:
        """How far the output of each fitted person moved."""
        apart = (self.y_fair - self.y_hat).double()
        norm: Tensor = torch.linalg.vector_norm(apart.reshape(len(apart), -1), dim=1)
        return norm

    @cached_property
    def most_moved(self) -> list[int]:
        """Fitted people by falling movement."""
        found: list[int] = self.moved.argsort(descending=True, stable=True).tolist()
        return found

    def person(self, row: int) -> dict[str, Any]:
        """A fitted person in one line."""
        pairs = zip(
            self.y_hat[row].reshape(-1).tolist(),
            self.y_fair[row].reshape(-1).tolist(),
            strict=True,
        )
        return {
            "row": row,
            "id": self.served.ids[row],
            "scores": [value for pair in pairs for value in pair],
            "moved": float(self.moved[row]),
            "num_peers": int(self.num_peers[row]),
        }

    def letter(self, row: int) -> dict[str, Any]:
        """A fitted person's page: their letter, who counts most, their columns."""
        told = self.served.post.explain(row)
        person, frame = self.person(row), self.served.register.frame
        columns = (
            {} if frame is None else dict(zip(frame, _cells(frame, row), strict=True))
        )
        facts: list[tuple[str, Any]] = []
        pairs = zip(person["scores"][::2], person["scores"][1::2], strict=True)
        for name, (before, after) in zip(self.output_names, pairs, strict=True):
            facts += [(f"{name} of the model", before), (f"{name}, corrected", after)]
        facts += [("moved by", person["moved"]), ("peers", person["num_peers"])]
        return {
            "facts": facts,
            "letter": told.to_text(reasons=True).split("\n\n"),
            "peers": self._named(told, row, columns),
            "header": ["id", "share", *self.output_names, *columns],
            "numbers": range(1, 2 + len(self.output_names)),
            "columns": list(columns.items()),
        }

    def explain_new(
        self, x: Tensor, y: Tensor, top: int, names: bool, frame: Any = None
    ) -> dict[str, Any]:
        """Why a newcomer gets what they get, who is not counted as served."""
        found = self.served.explain_new(x, y, frame)
        told = found.to_dict(names=self.served.disclosure is None)
        answer = {name: told[name] for name in _TOLD}
        answer["text"] = found.to_text(reasons=True)
        for name in ("peers_mean", "others_mean"):
            mean = told[name]
            answer[name] = [mean] if isinstance(mean, float) else mean
        if names:
            answer["peers"] = [
                {"id": one["id"], "share": one["cells"][0]}
                for one in self._named(found, -1, {})[:top]
            ]
        return {"y_fair": [told["y_fair"]], **answer}

    def _named(
        self, told: Explanation, own: int, columns: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Those who count most, and where they differ from somebody."""
        frame, found = self.served.register.frame, []
        others = told.index != own
        rows, shares = told.index[others].tolist(), told.weight[others].tolist()
        for row, share in list(zip(rows, shares, strict=True))[:_MOST]:
            values = [share, *self.y_hat[row].reshape(-1).tolist()]
            cells = _cells(frame, row) if columns else []
            mine = list(columns.values())
            marks = [
                k + len(values) + 1 for k, cell in enumerate(cells) if cell != mine[k]
            ]
            found.append(
                {
                    "row": row,
                    "id": self.served.ids[row],
                    "cells": [*values, *cells],
                    "marks": marks,
                }
            )
        return found

    @cached_property
    def info(self) -> dict[str, Any]:
        """What ``/v1/info`` says about the fit."""
        served, post = self.served, self.served.post
        rule = served.disclosure
        return {
            "version": version("pyg_glif"),
            "fit": served.fit_id,
            "loaded_at": served.loaded_at.isoformat(timespec="seconds"),
            "num_people": served.num_people,
            "num_features": post.n_features_in_,
            "num_outputs": served.num_outputs,
            "columns": [
                {**asdict(one), "values": list(one.values)} for one in served.columns
            ],
            "unit": served.unit,
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


def _cells(frame: Any, row: int) -> list[Any]:
    """What a row holds, in words where nothing is known."""
    values, known = frame.iloc[row].tolist(), frame.iloc[row].notna()
    return [v if there else "not known" for v, there in zip(values, known, strict=True)]
