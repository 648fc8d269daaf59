"""What a sweep over radii and strengths found."""

from dataclasses import dataclass
from typing import Any

from pyg_glif._markup import escaped, markdown_table
from pyg_glif._optional import require
from pyg_glif.solvers import SolveStatus


@dataclass(frozen=True)
class TunePoint:
    """One setting and what came of it.

    Args:
        tau (float): Radius.
        lam (float): Strength; zero is the model as it is.
        score (float): How good the outputs are, higher is better.
        unfairness (float): How unlike similar people are treated, lower is better.
        status (SolveStatus): How the solve ended; a failure is never chosen.
    """

    tau: float
    lam: float
    score: float
    unfairness: float
    status: SolveStatus

    def __repr__(self) -> str:
        return (
            f"TunePoint(tau={self.tau:g}, lam={self.lam:g}, score={self.score:.4g}, "
            f"unfairness={self.unfairness:.4g}, status={self.status.name})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.__dict__, "status": self.status.name}


@dataclass(frozen=True, eq=False)
class TuneResult:
    """All settings that were tried, and the one to take.

    Args:
        points (tuple of TunePoint): Every setting, by radius, then by strength.
        baseline (TunePoint): The model as it is.
        best (TunePoint): Least unfairness among the points whose score is at most
            ``max_loss`` below the baseline's, which itself is one of them.
        front (tuple of TunePoint): Points that no other point beats in score and
            unfairness at once, by falling score; the baseline may be among them.
        max_loss (float): What may be lost, in units of the score.
        names (tuple of str): What score and unfairness are.
    """

    points: tuple[TunePoint, ...]
    baseline: TunePoint
    best: TunePoint
    front: tuple[TunePoint, ...]
    max_loss: float
    names: tuple[str, str]

    def __repr__(self) -> str:
        best = f"best=(tau={self.best.tau:g}, lam={self.best.lam:g})"
        return f"TuneResult(num_points={len(self.points)}, {best})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "score": self.names[0],
            "unfairness": self.names[1],
            "max_loss": self.max_loss,
            "baseline": self.baseline.to_dict(),
            "best": self.best.to_dict(),
            "front": [point.to_dict() for point in self.front],
            "points": [point.to_dict() for point in self.points],
        }

    def to_markdown(self) -> str:
        """The front as a table, the choice in bold."""
        header = ["tau", "lam", *map(escaped, self.names)]
        rows = []
        for point in self.front:
            mark = "**" if point == self.best else ""
            numbers = (point.tau, point.lam, point.score, point.unfairness)
            rows.append([f"{mark}{number:.4g}{mark}" for number in numbers])
        return markdown_table(header, rows, escape=False)

    def plot(self) -> Any:
        """A matplotlib figure: all points, the front and the choice."""
        matplotlib = require("matplotlib.figure", "TuneResult.plot", "plots")
        figure = matplotlib.Figure(figsize=(5.0, 3.8), layout="constrained")
        axes = figure.subplots()
        for label, points, style in (
            ("all settings", self.points, "."),
            ("Pareto front", self.front, "-"),
            ("model as it is", (self.baseline,), "s"),
            ("chosen", (self.best,), "*"),
        ):
            across = [point.unfairness for point in points]
            axes.plot(across, [point.score for point in points], style, label=label)
        floor = self.baseline.score - self.max_loss
        axes.axhline(floor, linestyle=":", color="grey", label="allowed loss")
        axes.set(xlabel=self.names[1], ylabel=self.names[0])
        axes.legend()
        return figure
