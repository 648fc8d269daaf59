"""What a sweep over radii and strengths found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from pyg_glif._utils.json import plain
from pyg_glif._utils.markup import escaped, markdown_table
from pyg_glif._utils.optional import require
from pyg_glif._utils.validation import check_count, check_scalar
from pyg_glif.solvers import SolveStatus

if TYPE_CHECKING:
    from pyg_glif.model_selection.risk_control import Guarantee


@dataclass(frozen=True)
class TunePoint:
    """One setting and what came of it.

    Args:
        tau (float): Radius; infinite where the nearest people were counted instead.
        lam (float): Strength; zero is the model as it is.
        score (float): How good the outputs are, higher is better.
        unfairness (float): How unlike similar people are treated, lower is better.
        status (SolveStatus): How the solve ended; a failure is never chosen.
        theta (float, optional): Decay of the weights, as it was asked for: with
            :obj:`None` it follows the radius. (default: :obj:`None`)
        k (int, optional): How many of the nearest people are neighbours.
            (default: :obj:`None`, those within the radius)
        distance (optional): Which of the ``distances``. (default: :obj:`None`)
        loss (float): Score of the model as it is minus this one.
            (default: :obj:`0.0`)
        score_se (float, optional): Standard error of the score, over people or folds;
            :obj:`None` where there were no folds, or it is not known.
        loss_se (float, optional): That of the loss, which is paired: the same people
            with and without smoothing.
        unfairness_se (float, optional): That of the unfairness.
    """

    tau: float
    lam: float
    score: float
    unfairness: float
    status: SolveStatus
    theta: float | None = None
    k: int | None = None
    distance: Any = None
    loss: float = 0.0
    score_se: float | None = None
    loss_se: float | None = None
    unfairness_se: float | None = None

    def __repr__(self) -> str:
        errors = (self.score_se, self.unfairness_se)
        score, unfairness = (
            f"{value:.4g}" + ("" if error is None else f"±{error:.2g}")
            for value, error in zip((self.score, self.unfairness), errors, strict=True)
        )
        return (
            f"TunePoint({self.describe()}, score={score}, unfairness={unfairness}, "
            f"status={self.status.name})"
        )

    def describe(self) -> str:
        """The setting in words that Python takes as keywords."""
        parts = [f"tau={self.tau:g}" if self.k is None else f"k={self.k}"]
        parts += [f"lam={self.lam:g}"]
        if self.theta is not None:
            parts.append(f"theta={self.theta:g}")
        if self.distance is not None:
            parts.append(f"distance={self.distance!r}")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        out: dict[str, Any] = plain({**self.__dict__, "status": self.status.name})
        return out


@dataclass(frozen=True, eq=False)
class TuneResult:
    """All settings that were tried, and the one to take.

    Args:
        points (tuple of TunePoint): Every setting, by distance, decay, radius or
            number of neighbours, then by strength.
        baseline (TunePoint): The model as it is.
        best (TunePoint): Least unfairness among the points whose loss is at most
            ``max_loss``, with the rule ``"one_se"`` its standard error included. The
            baseline is one of them.
        front (tuple of TunePoint): Points that no other point beats in score and
            unfairness at once, by falling score; the baseline may be among them.
        max_loss (float): What may be lost, in units of the score.
        names (tuple of str): What score and unfairness are.
        rule (str): How the choice was made, ``"one_se"`` or ``"best"``.
            (default: ``"best"``)
        num_folds (int, optional): Number of folds. (default: :obj:`None`, everybody
            was fitted and scored at once)
        shared (dict): Keywords of the post-processor that all points share.
            (default: none)
        distances (dict): The distances that ``TunePoint.distance`` names.
            (default: none)
        guarantee (Guarantee, optional): What was certified. Points are then those of
            the people who are fitted, and the choice is the fairest that is certified.
            (default: :obj:`None`)
        num_scored (int, optional): How many people were scored as newcomers.
            (default: :obj:`None`, there were no folds)
    """

    points: tuple[TunePoint, ...]
    baseline: TunePoint
    best: TunePoint
    front: tuple[TunePoint, ...]
    max_loss: float
    names: tuple[str, str]
    rule: str = "best"
    num_folds: int | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    distances: Mapping[Any, Any] = field(default_factory=dict)
    guarantee: "Guarantee | None" = None
    num_scored: int | None = None

    def __repr__(self) -> str:
        best = f"best=({self.best.describe()})"
        return f"TuneResult(num_points={len(self.points)}, {best})"

    def settings(self, point: TunePoint | None = None) -> dict[str, Any]:
        """Keywords with which :class:`~pyg_glif.GLIFPostProcessor` is that setting.

        Args:
            point (TunePoint, optional): One of the points. (default: the choice)
        """
        point = self.best if point is None else point
        out = {**self.shared, "lam": point.lam, "theta": point.theta}
        if point.distance is not None:
            out["distance"] = self.distances[point.distance]
        # The radius would be a cap on the nearest, which nothing here has.
        return out | ({"tau": point.tau} if point.k is None else {"k": point.k})

    def loss_interval(
        self, num_new: int | None = None, level: float = 0.95
    ) -> tuple[float, float]:
        r"""Between which limits the loss of the choice is, with so much confidence.

        Args:
            num_new (int, optional): Of so many newcomers. Their own loss scatters the
                more, the fewer they are. (default: :obj:`None`, of people at large)
            level (float): How often such limits hold. (default: :obj:`0.95`)

        Normal limits from the standard error :math:`s` of the :math:`m` people who
        were scored: :math:`s^2 + s^2 m / \mathrm{num\_new}` is the variance. They
        know of no other optimism, such as models that have seen the people scored.
        """
        if self.num_scored is None or self.best.loss_se is None:
            raise ValueError("'cv' must not have been None for an interval (got None)")
        check_scalar("level", level, above=0.0, below=1.0)
        few = 0.0
        if num_new is not None:
            few = self.num_scored / check_count("num_new", num_new)
        reach = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(1.0 + few)
        reach *= self.best.loss_se
        return self.best.loss - reach, self.best.loss + reach

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "score": self.names[0],
            "unfairness": self.names[1],
            "max_loss": self.max_loss,
            "rule": self.rule,
            "num_folds": self.num_folds,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "baseline": self.baseline.to_dict(),
            "best": self.best.to_dict(),
            "front": [point.to_dict() for point in self.front],
            "points": [point.to_dict() for point in self.points],
        }

    def to_markdown(self) -> str:
        """The front as a table, the choice in bold; errors behind a ± where known."""
        shown = (*self.front, self.best)
        of_setting = ["tau"] if any(p.k is None for p in shown) else []
        of_setting += ["k"] if any(p.k is not None for p in shown) else []
        for name in ("theta", "distance"):
            values = {getattr(p, name) for p in self.points}
            of_setting += [name] if len(values) > 1 else []
        measured = ["score", "unfairness"]
        if self.num_folds is not None:
            measured.insert(1, "loss")
        titles = {"score": self.names[0], "unfairness": self.names[1]}
        columns = [*of_setting, "lam", *measured]
        rows = []
        for point in self.front:
            mark = "**" if point == self.best else ""
            cells = [_cell(point, name) for name in columns]
            rows.append([f"{mark}{cell}{mark}" if cell else "" for cell in cells])
        header = [escaped(titles.get(name, name)) for name in columns]
        return markdown_table(header, rows, escape=False)

    def plot(self) -> Any:
        """A matplotlib figure: all settings, the front, and the choice with errors."""
        return _drawn(self)


def _cell(point: TunePoint, name: str) -> str:
    """A number for a table, its standard error beside it."""
    value = getattr(point, name)
    if value is None or (name == "tau" and point.k is not None):
        return ""
    if not isinstance(value, (int, float)):
        return escaped(str(value))
    error = getattr(point, f"{name}_se", None)
    return f"{value:.4g}" + ("" if error is None else f" ± {error:.2g}")


def _drawn(found: TuneResult) -> Any:
    """The figure of a result; legend and words stay outside of the data."""
    matplotlib = require("matplotlib.figure", "TuneResult.plot", "plots")
    figure = matplotlib.Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    with_errors = found.num_folds is not None
    solved = [point for point in found.points if not point.status.is_failure]
    for label, points, style in (
        ("all settings", solved, {"fmt": ".", "color": "#999999"}),
        ("nothing beats these", found.front, {"fmt": ".-", "color": "#0072B2"}),
        ("model as it is", [found.baseline], {"fmt": "s", "color": "black"}),
        ("chosen", [found.best], {"fmt": "*", "color": "#D55E00", "markersize": 14}),
    ):
        bars = {} if label == "all settings" or not with_errors else _bars(points)
        across = [point.unfairness for point in points]
        scores = [point.score for point in points]
        axes.errorbar(across, scores, **bars, **style, label=label, capsize=2)
    floor = found.baseline.score - found.max_loss
    axes.axhline(floor, linestyle=":", color="black", label="allowed loss")
    values = [point.unfairness for point in (found.baseline, *solved)]
    if min(values) > 0 and max(values) > 30 * min(values):
        axes.set_xscale("log")
    axes.set_xlabel(f"{found.names[1]}  (← less is fairer)")
    axes.set_ylabel(f"{found.names[0]}  (more is better →)")
    best = found.best
    loss = f"{best.loss:.4f}"
    if best.loss_se is not None:
        loss += f" ± {best.loss_se:.4f}"
    chosen = "the model as it is" if best == found.baseline else best.describe()
    title = f"chosen: {chosen}\nloss {loss}, allowed {found.max_loss:g}"
    axes.set_title(title, fontsize="medium")
    bars_are = "bars: one standard error of loss and of unfairness"
    figure.legend(
        loc="outside lower center", ncols=3, title=bars_are if with_errors else None
    )
    return figure


def _bars(points: Sequence[TunePoint]) -> dict[str, list[float]]:
    """Standard errors for error bars, zero where they are not known."""
    return {
        "xerr": [point.unfairness_se or 0.0 for point in points],
        "yerr": [point.loss_se or 0.0 for point in points],
    }
