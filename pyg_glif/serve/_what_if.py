"""Effects of other strengths and radii than those of the fit."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif.methods.path import PathPoint, glif_path
from pyg_glif.postprocessing import GLIFPostProcessor

#: A sample is affected if its output moves by more than this share of the range.
AFFECTED = 0.01
#: Samples named for each setting.
MOST_MOVED = 10
_STRENGTHS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
_RADII = (0.4, 0.55, 0.7, 0.85, 1.0)
_CAPS = (0.5, 0.75, 0.9, 1.0)  # with k: shares of the edges that are kept
_FINE, _BARS = 400, 20


class WhatIf:
    """The fitted samples under a grid of settings; computed when it is made.

    Args:
        post (GLIFPostProcessor): The fit.
        sensitive (dict): Sensitive columns by name, one entry per sample.
        decide (callable, optional): Outputs to decisions, whole numbers.
        stopped (callable): Says whether the result is no longer wanted.
    """

    def __init__(
        self,
        post: GLIFPostProcessor,
        sensitive: Mapping[str, Any],
        decide: Callable[[Tensor], Tensor] | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._decide = decide
        self._y, graph = post.y_hat_, post.similarity_
        self._row, self._col = graph.edge_index
        self._weight = graph.weights(post.theta_).double()
        self._groups = {
            name: np.unique(np.asarray(value).astype(str), return_inverse=True)
            for name, value in sensitive.items()
        }
        span = float(self._y.max() - self._y.min())
        self.least, self._span = AFFECTED * span, span or 1.0
        own = float(post.lam) or 1.0
        self.lams = [own * factor for factor in _STRENGTHS]
        self.taus = self._radii(post.tau_, graph.sq_dist)
        #: Positions of the fit's own settings; its strength may be zero.
        self.at = (len(self.taus) - 1, self.lams.index(float(post.lam)))
        self.points: list[dict[str, Any]] = []
        for tau in self.taus:
            for point in self._solved(post, graph, tau):
                if stopped():
                    return
                self.points.append(self._judged(point))
        self._shorten()

    @staticmethod
    def _radii(tau: float, sq_dist: Tensor) -> list[float]:
        """Radii up to that of the fit: beyond it, there was no search."""
        if math.isfinite(tau):
            return [tau * factor for factor in _RADII]
        dist = sq_dist.double().sqrt()
        radii = [float(dist.quantile(share)) for share in _CAPS[:-1] if len(dist)]
        return [*dict.fromkeys(radii), tau]

    def _solved(
        self, post: GLIFPostProcessor, graph: Any, tau: float
    ) -> Iterator[PathPoint]:
        """The outputs for one radius and all strengths."""
        theta = post.theta_
        if theta is not None and post.theta is None:  # the decay follows the radius
            theta = theta * (post.tau_ / tau) ** 2
        return glif_path(
            self._y,
            graph,
            lams=self.lams,
            taus=[tau],
            theta=theta,
            normalization=post.normalization,
            solver=post.solver,
            link=post.link,
            progress=False,
        )

    def _judged(self, point: PathPoint) -> dict[str, Any]:
        """Effects of a setting on the samples."""
        value = point.value
        moved = (value - self._y).double().reshape(len(value), -1).norm(dim=1)
        gap = (value[self._row] - value[self._col]).double()
        square = gap.reshape(len(gap), -1).square().sum(1)
        total = float(self._weight.sum())
        disagreement = math.sqrt(float(self._weight @ square) / total) if total else 0.0
        order = moved.argsort(descending=True, stable=True)[:MOST_MOVED]
        return {
            "tau": point.tau,
            "lam": point.lam,
            "status": point.status.name,
            "disagreement": disagreement,
            "mean_moved": float(moved.mean()),
            "affected": int((moved > self.least).sum()),
            "fine": torch.histc(moved, _FINE, 0.0, self._span).tolist(),
            "people": order[moved[order] > 0].tolist(),
            "after": value[order[moved[order] > 0]].tolist(),
            **self._changed(value),
        }

    def _changed(self, value: Tensor) -> dict[str, Any]:
        """Decisions that differ from those of the model, by group."""
        if self._decide is None:
            return {"kept": None, "groups": []}
        before, after = (self._decide(y).numpy() for y in (self._y, value))
        up, down = after > before, after < before
        groups = [_count("everybody", slice(None), up, down)]
        for name, (levels, codes) in self._groups.items():
            for k, level in enumerate(levels.tolist()):
                groups.append(_count(f"{name}: {level}", codes == k, up, down))
        return {"kept": float((before == after).mean()), "groups": groups}

    def _shorten(self) -> None:
        """Bars of one width for all settings, from the fine ones."""
        fine = np.array([point.pop("fine") for point in self.points])
        last = int(np.flatnonzero(fine.sum(axis=0))[-1]) + 1
        width = max(1, math.ceil(last / _BARS))
        self.edges = [
            min(k * width, _FINE) / _FINE * self._span for k in range(_BARS + 1)
        ]
        for point, counts in zip(self.points, fine, strict=True):
            padded = np.zeros(width * _BARS)
            size = min(len(padded), _FINE)
            padded[:size] = counts[:size]
            point["bars"] = (
                padded.reshape(_BARS, width).sum(axis=1).astype(int).tolist()
            )


def _count(
    name: str, rows: Any, up: NDArray[np.bool_], down: NDArray[np.bool_]
) -> dict[str, Any]:
    """Decisions of a group that changed, in both directions."""
    size = len(up[rows])
    return {
        "group": name,
        "people": size,
        "up": int(up[rows].sum()),
        "down": int(down[rows].sum()),
    }
