"""Does ``tune(..., guarantee=RiskControl(...))`` keep its promise?

Run ``python benchmarks/risk_control.py`` (about half an hour on one core; needs the
tables of Adult and German below ``PYG_GLIF_DATA``), or name populations:
``python benchmarks/risk_control.py german``.

A table is taken as a whole population: people at hand are drawn from it with
replacement, so that the risk of a fit is known exactly, as a mean over everybody in the
table. The model, and who is similar, come from other people and stay the same. Every
draw is tuned with a guarantee and, for comparison, by folds without one. *Kept*: the
risk is at most alpha, or nothing was certified.

Where the promise is not about these newcomers: *turned* newcomers get outputs that are
right but hardly so, and their peers lead them away; *others* are people with a degree,
where all people at hand have none.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, table, write
from scipy.stats import beta
from torch import Tensor

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import FairDistance
from pyg_glif.links import Logit
from pyg_glif.solvers import SolveStatus
from pyg_glif.tuning import RiskControl, TunePoint, tune

PAGE = Path(__file__).parents[1] / "docs" / "results" / "guarantee_strength.md"
DRAWS, DELTA, SHARE = 100, 0.1, 0.5
LAMS = (0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True, eq=False)
class Population:
    """Everybody there is: coordinates, outputs of a model, truth."""

    name: str
    x: Tensor
    y: Tensor
    labels: Tensor
    taus: tuple[float, ...]
    num: int  # people at hand
    alphas: dict[str, float]
    distance: FairDistance | None = None
    # People at hand come from here, newcomers from everybody or from 'to'.
    start: Tensor | None = None
    to: Tensor | None = None
    turned: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def drawn(self, seed: int) -> Tensor:
        """Rows of the people at hand."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.arange(len(self.x)) if self.start is None else self.start
        return rows[torch.randint(len(rows), (self.num,), generator=generator)]

    def risks(self, rows: Tensor, settings: dict[str, Any]) -> dict[str, float]:
        """Risks of the fit to some people, exactly."""
        fit = [self.x[rows], self.y[rows]]
        post = GLIFPostProcessor(**settings).fit(*fit)
        to = torch.arange(len(self.x)) if self.to is None else self.to
        y = self.y[to]
        if self.turned:  # the model knows better than anybody's peers
            y = torch.where(self.labels[to] == 1, 0.55, 0.45).to(y)
        after = post.transform(self.x[to], y) > 0.5
        truth = self.labels[to] == 1
        lost = ((y > 0.5) == truth).double() - (after == truth).double()
        if "unlike" not in self.alphas:
            return {"loss": float(lost.mean())}
        widest = {**settings, "tau": max(self.taus), "lam": 0.0}
        reach = GLIFPostProcessor(**widest).fit(*fit)
        _, info = reach.transform(self.x[to], y, return_info=True)
        peers, decided = info.peers, post.y_fair_ > 0.5
        differ = (after[peers.row] != decided[peers.col]).double() * peers.weight
        size = len(to)
        unlike = torch.bincount(peers.row, differ, minlength=size)
        total = torch.bincount(peers.row, peers.weight, minlength=size)
        unlike = torch.where(total > 0, unlike / total.clamp(min=1e-300), 0.0)
        return {"loss": float(lost.mean()), "unlike": float(unlike.mean())}


def simulated(name: str = "simulation", **options: Any) -> Population:
    """People on a circle; the truth changes faster than wide neighbourhoods see."""
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(2000, 1, generator=generator, dtype=torch.float64)
    signal = 3.0 * torch.sin(20 * x[:, 0])
    noise = 1.5 * torch.randn(2000, generator=generator, dtype=torch.float64)
    labels = torch.rand(2000, generator=generator) < torch.sigmoid(signal)
    alphas = options.pop("alphas", {"loss": 0.03})
    return Population(
        name,
        x,
        torch.sigmoid(signal + noise),
        labels.long(),
        (0.02, 0.1),
        1000,
        alphas,
        **options,
    )


def table_of(name: str, alphas: dict[str, float], **options: Any) -> Population:
    """Adult or German: boosted trees of one part, the other part is the population."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import train_test_split

    from pyg_glif.datasets import Adult, German
    from pyg_glif.graph import suggest_tau
    from pyg_glif.tables import FairTable

    data = Adult() if name.startswith("adult") else German()
    is_adult = name.startswith("adult")
    parts = train_test_split(
        data.frame,
        data.target.to_numpy(),
        train_size=4000 if is_adult else 400,
        test_size=2500 if is_adult else 600,
        random_state=0,
    )
    known, frame, known_truth, truth = parts
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype", max_iter=60, random_state=0
    ).fit(known, known_truth)
    sensitive = ["sex", "race"] if is_adult else ["personal_status_sex"]
    ignore = ["fnlwgt"] if is_adult else []
    fair = FairTable(sensitive, ignore=ignore, num_background=100)
    fair.fit(known, lambda rows: model.predict_proba(rows)[:, 1])
    x = fair.transform(frame)
    y = torch.from_numpy(model.predict_proba(frame)[:, 1].astype(np.float64))
    # Radii by the people who trained the model.
    taus = tuple(suggest_tau(fair.transform(known), d) for d in (10.0, 40.0))
    labels = torch.from_numpy(np.asarray(truth).astype(np.int64))
    if name == "adult, others":
        degree = torch.from_numpy((frame["education_num"] >= 13).to_numpy())
        options |= {"start": (~degree).nonzero()[:, 0], "to": degree.nonzero()[:, 0]}
    num = 1500 if is_adult else 800
    return Population(name, x.double(), y, labels, taus, num, alphas, **options)


def sentiment(alphas: dict[str, float]) -> Population:
    """Words: a linear model of one half, the other half is the population."""
    from sklearn.linear_model import LogisticRegression

    from pyg_glif.datasets import Sentiment
    from pyg_glif.graph import suggest_tau
    from pyg_glif.metric_learning import SensitiveSVD

    data = Sentiment()
    one = data[0]
    distance = SensitiveSVD(num_components=50).fit(data.side_x)
    words = ~one.name_mask
    x, labels = one.x[words], one.y[words]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    known, rest = order[: len(x) // 2], order[len(x) // 2 :]
    model = LogisticRegression(max_iter=2000, C=0.1).fit(x[known], labels[known])
    y = torch.from_numpy(model.predict_proba(x[rest])[:, 1])
    z = distance.embed(x).double()
    taus = tuple(suggest_tau(z[known], d) for d in (10.0, 40.0))
    return Population("sentiment", z[rest], y, labels[rest], taus, 1500, alphas)


POPULATIONS: dict[str, Callable[[], Population]] = {
    "simulation": simulated,
    "simulation, both": lambda: simulated(
        "simulation, both", alphas={"loss": 0.03, "unlike": 0.15}
    ),
    "adult": lambda: table_of("adult", {"loss": 0.02}),
    "german": lambda: table_of("german", {"loss": 0.05}),
    "german, both": lambda: table_of("german, both", {"loss": 0.05, "unlike": 0.2}),
    "sentiment": lambda: sentiment({"loss": 0.02}),
    "simulation, turned": lambda: simulated("simulation, turned", turned=True),
    "adult, others": lambda: table_of("adult, others", {"loss": 0.02}),
}
LIMIT = "all at the limit"
BROKEN = ("simulation, turned", "adult, others")


def outcomes(people: Population, seed: int) -> Iterator[dict[str, Any]]:
    """One draw: what was promised and what the risk is, in every way to choose."""
    rows = people.drawn(seed)
    x, y, labels = people.x[rows], people.y[rows], people.labels[rows]
    shared: dict[str, Any] = {"taus": people.taus, "lams": LAMS, "link": Logit()}
    shared |= {"cv": 4, "max_loss": people.alphas["loss"]}
    control = RiskControl(people.alphas, DELTA, share=SHARE)
    generator = torch.Generator().manual_seed(seed)
    limits = people.alphas
    sure = tune(x, y, labels, **shared, guarantee=control, generator=generator)
    usual = tune(x, y, labels, **shared)
    allowed = [p for p in (usual.baseline, *usual.points) if p.loss <= limits["loss"]]
    everybody, promise = torch.arange(len(rows)), sure.guarantee
    assert promise is not None
    ways = {
        "guarantee": (sure, sure.best, promise.fitted, promise.chosen is not None),
        "one_se": (usual, usual.best, everybody, True),
        "best": (usual, min(allowed, key=lambda p: p.unfairness), everybody, True),
    }
    for way, (found, point, fitted, claims) in ways.items():
        risks = people.risks(rows[fitted], found.settings(point))
        yield {
            "way": way,
            "claims": claims and point != found.baseline,
            "risks": risks,
            "kept": not claims or all(risks[n] <= limits[n] for n in limits),
            "unfairness": point.unfairness / found.baseline.unfairness,
        }


def measured(name: str, draws: int) -> None:
    """Draws of one population; what is known is written every twenty."""
    people = POPULATIONS[name]()
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(draws):
        for one in outcomes(people, seed):
            found.setdefault(one["way"], []).append(one)
        if seed % 20 == 19 or seed == draws - 1:
            rows = [summary(people, way, all_) for way, all_ in found.items()]
            write("risk_control", rows, key=("population", "way"))
            print(name, [(r["way"], r["kept"], r["draws"]) for r in rows], flush=True)


def summary(
    people: Population, way: str, found: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the draws so far come to."""
    return {
        "population": people.name,
        "way": way,
        "alpha": people.alphas,
        "delta": DELTA,
        "num_people": people.num,
        "share": SHARE,
        "draws": len(found),
        "kept": sum(one["kept"] for one in found),
        "claims": sum(one["claims"] for one in found),
        "unfairness": float(np.median([one["unfairness"] for one in found])),
        "risks": {
            risk: [
                float(np.quantile([one["risks"][risk] for one in found], q))
                for q in (0.5, 0.9)
            ]
            for risk in people.alphas
        },
    }


def at_the_limit(draws: int) -> list[dict[str, Any]]:
    """Ten settings whose risks are all just above alpha: every certificate is false."""
    control, rng = RiskControl(0.03, DELTA), np.random.default_rng(0)
    points = [
        TunePoint(1.0, float(k), 0.0, 0.0, SolveStatus.CONVERGED) for k in range(10)
    ]
    false = 0
    # Stronger settings change more decisions; all lose 0.03 on average.
    chances = [[k / 100, 0.97 - 2 * k / 100, 0.03 + k / 100] for k in range(10)]

    def drawn(num: int) -> Callable[[TunePoint], dict[str, np.ndarray]]:
        found = [rng.choice([-1.0, 0.0, 1.0], num, p=p) for p in chances]
        return lambda point: {"loss": found[int(point.lam)]}

    for _ in range(draws):
        pilot = drawn(100)
        promised = [(-control.promise(pilot(point)), point.lam) for point in points]
        order = [points[int(lam)] for _, lam in sorted(promised)]
        tests = control.certify(order, drawn(500))
        false += tests[0].certified
    return [
        {
            "population": LIMIT,
            "way": "guarantee",
            "alpha": {"loss": 0.03},
            "delta": DELTA,
            "draws": draws,
            "kept": draws - false,
            "claims": false,
            "unfairness": 1.0,
            "risks": {"loss": [0.03, 0.03]},
        }
    ]


def interval(count: int, num: int) -> tuple[float, float]:
    """Exact 95% interval of a share."""
    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, num - count + 1))
    high = 1.0 if count == num else float(beta.ppf(0.975, count + 1, num - count))
    return low, high


WAYS = {
    "guarantee": "guarantee",
    "one_se": 'folds, `rule="one_se"`',
    "best": 'folds, `rule="best"`',
}


def page(rows: list[dict[str, Any]]) -> str:
    """The table of claimed and measured."""
    lines = []
    order = {name: k for k, name in enumerate([LIMIT, *POPULATIONS])}
    for row in sorted(
        rows, key=lambda r: (order[r["population"]], r["way"] != "guarantee", r["way"])
    ):
        low, high = interval(row["kept"], row["draws"])
        share = row["kept"] / row["draws"]
        limits = ", ".join(f"{n} {v:g}" for n, v in row["alpha"].items())
        worst = ", ".join(f"{v[1]:.3f}" for v in row["risks"].values())
        claimed = f"{1 - row['delta']:.0%}" if row["way"] == "guarantee" else "none"
        if row["population"] in BROKEN:
            claimed = "does not apply" if row["way"] == "guarantee" else "none"
        lines.append(
            [
                row["population"],
                WAYS[row["way"]],
                limits,
                claimed,
                f"{row['draws']:,}",
                f"{share:.1%} ({low:.1%} to {high:.1%})",
                worst,
                f"{row['claims'] / row['draws']:.0%}",
                "" if row["population"] == LIMIT else f"{row['unfairness']:.2f}",
            ]
        )
    head = ["population", "choice by", "alpha", "claimed", "draws"]
    head += [
        "kept (95% interval)",
        "risk, nine tenths are below",
        "something chosen",
        "unfairness left",
    ]
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("populations", nargs="*", default=[LIMIT, *POPULATIONS])
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # people alone, values not seen
    if not options.page:
        for name in options.populations:
            if name == LIMIT:
                rows = at_the_limit(10 * options.draws)
                write("risk_control", rows, key=("population", "way"))
            else:
                measured(name, options.draws)
    rows = json.loads((RESULTS / "risk_control.json").read_text())["rows"]
    PAGE.write_text(page(rows) + "\n")
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
