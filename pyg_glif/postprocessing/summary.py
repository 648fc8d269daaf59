"""What a fit did, in numbers and in words."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from pyg_glif._utils.json import plain
from pyg_glif._utils.markup import markdown_table
from pyg_glif.audit.audit_report import AuditReport
from pyg_glif.audit.setup import certificate_of, fit_setup
from pyg_glif.distances import FairDistance
from pyg_glif.explain.facts import features_of
from pyg_glif.fit.fit import Fit

_QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
_WORDS = {
    "mean": "mean",
    "min": "least",
    "p10": "10%",
    "median": "median",
    "p90": "90%",
    "max": "most",
}
_SHOWN = 12  # names and rows in one line of text


@dataclass(frozen=True, eq=False)
class FitSummary:
    r"""Who was called similar, and what came of it; ``print`` shows it as text.

    Args:
        num_people (int): Fitted people.
        columns (tuple): Names of the columns that say who is similar, or their numbers
            where nobody named them.
        ignored (tuple): Columns whose value the distance never looks at.
        metric (str): The class of the distance.
        unit (str): What distances are measured in.
        tau (float): The radius, or with ``k`` the cap; infinite if there is none.
        k (int, optional): Number of nearest others, if neighbours are counted.
        mutual (bool): Whether both of two people must be near each other.
        theta (float, optional): Decay of the weights; :obj:`None` where each pair
            has its own.
        lam (float): Strength.
        degree (dict): Neighbours per person: ``"mean"``, and the quantiles ``"min"``,
            ``"p10"``, ``"median"``, ``"p90"``, ``"max"``, as in
            :meth:`~pyg_glif.graph.SimilarityGraph.degree_summary`.
        isolated (Tensor): Rows without a neighbour, whose outputs stayed as they were.
        share_joined (float): Share of all pairs of people who are neighbours.
        status (str): How the solve ended.
        error_bound (float): Bound on the error of the worst output column, as a
            Euclidean norm over people, in dual coordinates if there is a link.

    Example:
        >>> import torch
        >>> from pyg_glif import GLIFPostProcessor
        >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
        >>> post = GLIFPostProcessor(tau=0.5).fit(x, torch.tensor([0.9, 0.2, 0.7, 0.4]))
        >>> found = post.summary()
        >>> found.isolated, found.share_joined, found.degree["median"]
        (tensor([3]), 0.5, 2)
    """

    num_people: int
    columns: tuple[Any, ...]
    ignored: tuple[Any, ...]
    metric: str
    unit: str
    tau: float
    k: int | None
    mutual: bool
    theta: float | None
    lam: float
    degree: dict[str, float]
    isolated: Tensor = field(repr=False)
    share_joined: float
    status: str
    error_bound: float

    @property
    def share_isolated(self) -> float:
        """Share of people without a neighbour."""
        return self.isolated.numel() / self.num_people

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data, an infinite radius as the text ``"Infinity"``."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["isolated"] = self.isolated.tolist()
        values["share_isolated"] = self.share_isolated
        return dict(plain(values))

    def to_markdown(self) -> str:
        """A table with one line per fact."""
        return markdown_table(["fact", "value"], self._rows(), align="ll")

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows) + 2
        return "\n".join(f"{name:<{width}}{value}" for name, value in rows)

    def _rows(self) -> list[tuple[str, str]]:
        """What there is to say, as titles and texts."""
        alone = f"{self.isolated.numel()} ({self.share_isolated:.1%})"
        if self.isolated.numel():
            alone += f", rows {_listed(self.isolated.tolist())}"
        degree = [f"{word} {self.degree[key]:g}" for key, word in _WORDS.items()]
        columns = (
            "1 column" if len(self.columns) == 1 else f"{len(self.columns)} columns"
        )
        rows = [
            ("people", str(self.num_people)),
            ("who is similar", self._rule()),
            ("compared by", f"{columns}: {_listed(self.columns)}"),
            ("not looked at", _listed(self.ignored)),
            ("weights", self._weights()),
            ("strength", f"lam = {self.lam:g}"),
            ("neighbours each", ", ".join(degree)),
            ("without a neighbour", alone),
            ("pairs joined", f"{self.share_joined:.3%} of all"),
            ("solve", f"{self.status}, error bound {self.error_bound:.1e}"),
        ]
        return [row for row in rows if row[1]]

    def _rule(self) -> str:
        """Who counts as similar, in words."""
        within = f"within {self.tau:.4g}" if math.isfinite(self.tau) else ""
        where = f"({self.metric}, in {self.unit})"
        if self.k is None:
            return f"{within or 'everybody'} {where}"
        words = f"the {self.k} nearest" + (" of each other" if self.mutual else "")
        return f"{words}{', ' if within else ''}{within} {where}"

    def _weights(self) -> str:
        """The formula of the weights."""
        if self.theta is None:
            return "by each person's distance from their k-th nearest"
        if self.theta == 0.0:
            return "all equal"
        return f"exp(-{self.theta:.4g} * distance^2)"


def summarize(fitted: Fit, unit: str | None) -> FitSummary:
    """Describes a fit."""
    settings, degrees = fitted.settings, fitted.graph.degree_summary()
    names, free = _columns(fitted)
    metric = settings.distance
    return FitSummary(
        num_people=len(fitted.x),
        columns=tuple(n for n, out in zip(names, free, strict=True) if not out),
        ignored=tuple(n for n, out in zip(names, free, strict=True) if out),
        metric="Euclidean" if metric is None else type(metric).__name__,
        unit="units of the distance" if unit is None else unit,
        tau=settings.tau,
        k=settings.k,
        mutual=settings.mutual,
        theta=settings.theta,
        lam=settings.lam,
        degree={
            "mean": degrees.mean,
            **{key: degrees.quantiles[share] for key, share in _QUANTILES.items()},
        },
        isolated=degrees.isolated,
        share_joined=fitted.share_joined,
        status=fitted.solution.status.name,
        error_bound=float(fitted.solution.error_bound.max()),
    )


def completed_report(report: AuditReport, fitted: Fit) -> AuditReport:
    """A report of fitted people with what is known about them and about the fit."""
    found = summarize(fitted, None)
    setup = {
        "columns": list(found.columns),
        "ignored": list(found.ignored),
        **fit_setup(fitted),
        **report.setup,
    }
    report = replace(report, certificate=certificate_of(fitted), setup=setup)
    features = features_of(fitted)
    if fitted.sample_info.ids is not None:
        report = report.with_ids(fitted.sample_info.ids)
    return report if features is None else report.with_features(features)


def _columns(fitted: Fit) -> tuple[tuple[Any, ...], list[bool]]:
    """What the columns are called, and which of them say nothing about similarity.

    A fit to coordinates that a table made is told by the columns of the table.
    """
    features = fitted.sample_info.features
    if features is not None and features.reach is not None:
        return features.names, [reach == 0.0 for reach in features.reach]
    names = fitted.names[0] or tuple(range(fitted.x.size(1)))
    return names, _ignored(fitted.settings.distance, fitted.x)


def _ignored(distance: FairDistance | None, x: Tensor) -> list[bool]:
    """Which columns the distance never looks at: their axes are in its null space."""
    if distance is None:
        return [False] * x.size(1)
    axes = distance.null_space(x.size(1)).detach().double().square().sum(1)
    found: list[bool] = (axes > 1.0 - 1e-6).tolist()
    return found


def _listed(values: Any) -> str:
    """The first few of some values, and how many more there are."""
    shown = ", ".join(str(value) for value in list(values)[:_SHOWN])
    more = len(values) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
