"""Does ``tune(..., guarantee=RiskControl(...))`` keep its promise?

Run ``python benchmarks/risk_control.py`` (about 20 minutes on one core; needs the
tables of Adult and German below ``PYG_GLIF_DATA``), or name cases:
``python benchmarks/risk_control.py german "german: both"``. A case is a population and
what is promised: nothing said, the loss of accuracy; *unlike*, the share of peers who
are decided on unlike; *both*, both at once.

A table is taken as a whole population: people at hand are drawn from it with
replacement, so that the risk of a fit is known exactly, as a mean over everybody in the
table. The model, and who is similar, come from other people and stay the same. Every
draw is tuned with a guarantee and, where the loss alone is promised, by folds without
one, for comparison. *Kept*: risks are at most alpha, or nothing was certified.

Where the promise is not about these newcomers: *turned* newcomers get outputs that are
right but hardly so, and their peers lead them away; those *at the border* are where
decisions change; *others* are people with a degree, where all people at hand have none.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, share, table, write
from torch import Tensor

from pyg_glif import GLIFPostProcessor
from pyg_glif.links import Logit
from pyg_glif.model_selection import RiskControl, TunePoint, tune
from pyg_glif.solvers import SolveStatus

PAGE = Path(__file__).parents[1] / "docs" / "results" / "guarantee_strength.md"
DRAWS, DELTA, SHARE = 100, 0.1, 0.5
LAMS = (0.03, 0.1, 0.3, 1.0, 3.0)
KEY = ("population", "way")


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
    # People at hand come from here, newcomers from everybody or from 'to'.
    start: Tensor | None = None
    to: Tensor | None = None
    turned: bool = False

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
        info = reach.transform_info(self.x[to], y)
        peers, decided = info.neighbors, post.y_fair_ > 0.5
        differ = (after[peers.row] != decided[peers.col]).double() * peers.weight
        size = len(to)
        unlike = torch.bincount(peers.row, differ, minlength=size)
        total = torch.bincount(peers.row, peers.weight, minlength=size)
        unlike = torch.where(total > 0, unlike / total.clamp(min=1e-300), 0.0)
        return {"loss": float(lost.mean()), "unlike": float(unlike.mean())}


def simulated(name: str, alphas: dict[str, float]) -> Population:
    """People on a line; the truth changes faster than wide neighbourhoods see."""
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(2000, 1, generator=generator, dtype=torch.float64)
    signal = 3.0 * torch.sin(20 * x[:, 0])
    noise = 1.5 * torch.randn(2000, generator=generator, dtype=torch.float64)
    labels = torch.rand(2000, generator=generator) < torch.sigmoid(signal)
    border = (signal.abs() < 0.5).nonzero()[:, 0]
    return Population(
        name,
        x,
        torch.sigmoid(signal + noise),
        labels.long(),
        (0.02, 0.1),
        1000,
        alphas,
        to=border if "at the border" in name else None,
        turned="turned" in name,
    )


def table_of(name: str, alphas: dict[str, float]) -> Population:
    """Adult or German: boosted trees of one part, the other part is the population."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import train_test_split

    from experiments.datasets import German
    from pyg_glif.datasets import Adult
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
    start = to = None
    if "others" in name:
        degree = torch.from_numpy((frame["education_num"] >= 13).to_numpy())
        start, to = (who.nonzero()[:, 0] for who in (~degree, degree))
    num = 1500 if is_adult else 800
    shared = (x.double(), y, labels, taus, num, alphas)
    return Population(name, *shared, start=start, to=to)


def sentiment(name: str, alphas: dict[str, float]) -> Population:
    """Words are the people, and whether they are positive is the truth.

    A linear model of word vectors learns from one half of the words; the other half is
    the population. The distance leaves out the directions in which first names differ
    from each other: that is what should not matter. Similar are words that are near in
    all other directions.
    """
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
    return Population(name, z[rest], y, labels[rest], taus, 1500, alphas)


Make = Callable[[str, dict[str, float]], Population]
#: Populations, and what their risks may be: some settings are within, some beyond.
POPULATIONS: dict[str, tuple[Make, dict[str, float]]] = {
    "simulation": (simulated, {"loss": 0.03, "unlike": 0.25}),
    "adult": (table_of, {"loss": 0.02, "unlike": 0.04}),
    "german": (table_of, {"loss": 0.05, "unlike": 0.17}),
    "sentiment": (sentiment, {"loss": 0.04, "unlike": 0.12}),
}
BROKEN = (
    "simulation, turned",
    "simulation, at the border: unlike",
    "simulation, at the border: both",
    "adult, others: unlike",
    "adult, others: both",
)
CASES = (
    *(name + risks for name in POPULATIONS for risks in ("", ": unlike", ": both")),
    *BROKEN,
)


def population(case: str) -> Population:
    """The population of a case, with the promise that is asked for."""
    name, _, risks = case.partition(": ")
    make, limits = POPULATIONS[name.partition(",")[0]]
    asked = limits if risks == "both" else {risks or "loss": limits[risks or "loss"]}
    return make(case, asked)


LIMIT = "all at the limit"
LIMITS = (LIMIT, f"{LIMIT}: unlike", f"{LIMIT}: both")


def outcomes(people: Population, seed: int) -> Iterator[dict[str, Any]]:
    """One draw: what was promised and what the risk is, in every way to choose."""
    rows, limits = people.drawn(seed), people.alphas
    given = [people.x[rows], people.y[rows], people.labels[rows]]
    shared: dict[str, Any] = {"taus": people.taus, "lams": LAMS, "link": Logit()}
    control = RiskControl(limits, DELTA, share=SHARE)
    generator = torch.Generator().manual_seed(seed)
    sure = tune(*given, **shared, cv=4, guarantee=control, generator=generator)
    promise = sure.guarantee
    assert promise is not None
    claims = promise.chosen is not None
    ways = {"guarantee": (sure, sure.best, promise.fitted, claims)}
    if set(limits) == {"loss"}:
        most = limits["loss"]
        usual = tune(*given, **shared, cv=4, max_loss=most)
        allowed = [p for p in (usual.baseline, *usual.points) if p.loss <= most]
        best = min(allowed, key=lambda p: p.unfairness)
        everybody = torch.arange(len(rows))
        ways["one_se"] = (usual, usual.best, everybody, True)
        ways["best"] = (usual, best, everybody, True)
    for way, (found, point, fitted, claims) in ways.items():
        risks = people.risks(rows[fitted], found.settings(point))
        yield {
            "way": way,
            "claims": claims,
            "risks": risks,
            "kept": not claims or all(risks[n] <= limits[n] for n in limits),
            "unfairness": point.unfairness / found.baseline.unfairness,
        }


def measured(case: str, draws: int) -> None:
    """Draws of one case; what is known is written every twenty."""
    people = population(case)
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(draws):
        for one in outcomes(people, seed):
            found.setdefault(one["way"], []).append(one)
        if seed % 20 == 19 or seed == draws - 1:
            rows = [summary(people, way, all_) for way, all_ in found.items()]
            write("risk_control", rows, key=KEY)
            print(case, [(r["way"], r["kept"], r["draws"]) for r in rows], flush=True)


def summary(
    people: Population, way: str, found: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the draws so far come to; risks are those of draws with a claim."""
    claimed = [one for one in found if one["claims"]]
    return {
        "population": people.name,
        "way": way,
        "alpha": people.alphas,
        "delta": DELTA,
        "num_people": people.num,
        "share": SHARE,
        "draws": len(found),
        "kept": sum(one["kept"] for one in found),
        "claims": len(claimed),
        "unfairness": float(np.median([one["unfairness"] for one in found])),
        "risks": {
            risk: [
                float(np.quantile([one["risks"][risk] for one in claimed], q))
                for q in (0.5, 0.9)
            ]
            for risk in (claimed[0]["risks"] if claimed else ())
        },
    }


def at_the_limit(case: str, draws: int) -> dict[str, Any]:
    """Ten settings with a risk of exactly alpha each: every certificate is false.

    With both, the other risk is far below its limit: that is the hardest case.
    """
    limits = {"loss": 0.03, "unlike": 0.15}
    asked = {"both": limits, "unlike": {"unlike": 0.15}}
    alphas = asked.get(case.partition(": ")[2], {"loss": 0.03})
    control, rng = RiskControl(alphas, DELTA), np.random.default_rng(0)
    points = [
        TunePoint(1.0, float(k), 0.0, 0.0, SolveStatus.CONVERGED) for k in range(10)
    ]
    # Stronger settings change more decisions; all lose 0.03 on average.
    chances = [[k / 100, 0.97 - 2 * k / 100, 0.03 + k / 100] for k in range(10)]

    def drawn(num: int) -> Callable[[TunePoint], dict[str, np.ndarray]]:
        lost = [rng.choice([-1.0, 0.0, 1.0], num, p=p) for p in chances]
        # Stronger settings leave fewer people, who are more unlike their peers.
        unlike = [rng.beta(0.15 * s, 0.85 * s, num) for s in np.geomspace(8, 0.2, 10)]
        if len(alphas) > 1:
            unlike = [value / 10 for value in unlike]
        return lambda point: {
            "loss": lost[int(point.lam)],
            "unlike": unlike[int(point.lam)],
        }

    false = 0
    for _ in range(draws):
        pilot = drawn(100)
        promised = [(-control.promise(pilot(point)), point.lam) for point in points]
        order = [points[int(lam)] for _, lam in sorted(promised)]
        tests = control.certify(order, drawn(500))
        false += tests[0].certified
    return {
        "population": case,
        "way": "guarantee",
        "alpha": alphas,
        "delta": DELTA,
        "draws": draws,
        "kept": draws - false,
        "claims": false,
        "unfairness": 1.0,
        "risks": {},
    }


WAYS = {
    "guarantee": "guarantee",
    "one_se": 'folds, `rule="one_se"`',
    "best": 'folds, `rule="best"`',
}


def page(rows: list[dict[str, Any]]) -> str:
    """The table of claimed and measured."""
    lines = []
    order = {name: k for k, name in enumerate([*LIMITS, *CASES])}
    for row in sorted(
        rows, key=lambda r: (order[r["population"]], r["way"] != "guarantee", r["way"])
    ):
        limits = ", ".join(f"{n} {v:g}" for n, v in row["alpha"].items())
        claimed = f"{1 - row['delta']:.0%}" if row["way"] == "guarantee" else "none"
        if row["population"] in BROKEN and row["way"] == "guarantee":
            claimed = "does not apply"
        lines.append(
            [
                row["population"].partition(": ")[0],
                WAYS[row["way"]],
                limits,
                claimed,
                f"{row['draws']:,}",
                share(row["kept"], row["draws"]),
                ", ".join(f"{n} {v[1]:.3f}" for n, v in row["risks"].items()),
                f"{row['claims'] / row['draws']:.0%}",
                "" if row["population"] in LIMITS else f"{row['unfairness']:.2f}",
            ]
        )
    head = ["population", "choice by", "alpha", "claimed", "draws"]
    head += ["kept (95% interval)", "risk, nine tenths are below"]
    head += ["something certified", "unfairness left"]
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[*LIMITS, *CASES])
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # people alone, values not seen
    for case in () if options.page else options.cases:
        if case in LIMITS:
            write("risk_control", [at_the_limit(case, 40 * options.draws)], key=KEY)
        else:
            measured(case, options.draws)
    rows = json.loads((RESULTS / "risk_control.json").read_text())["rows"]
    PAGE.write_text(page(rows) + "\n")
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
