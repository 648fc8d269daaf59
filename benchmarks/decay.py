"""Which decay should weights have by default? ``theta = c / tau**2``: which ``c``?

For each data set and seed, validation people are smoothed with several ``c``, at the
radii of three average degrees and many strengths. A larger ``c`` also smooths less at
the same strength, so they are compared at equal cost: of each ``c`` counts the least
unfairness, as a share of the model's own, whose loss of accuracy stays within a limit.
Nothing here looks at test people.

The rule: the least mean over data sets of that share, at a loss of 0.01 and a strength
of at most 10, wins; what is within one standard error of it (of the paired difference,
over data sets, seeds and degrees) counts as equal, and among equals the default stays.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import report
import torch
from common import write
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torchmetrics.functional.classification import multiclass_accuracy

from experiments.datasets import Bios, German, Toxicity
from pyg_glif.datasets import Adult, Sentiment
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.graph import SimilarityGraph, suggest_tau
from pyg_glif.methods.path import glif_path
from pyg_glif.metric_learning import FACE, SensitiveSVD, TaskEffect
from pyg_glif.metrics import group_std, prediction_consistency
from pyg_glif.solvers import CG
from pyg_glif.tables import FairTable

DECAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DEGREES = (10.0, 20.0, 40.0)
LAMS = tuple(float(f"{lam:.3g}") for lam in np.logspace(-3, 3, 19))
CAPS = (10.0, 1000.0)  # the largest strength that 'tune' tries unasked, and any
LOSS = 0.01
NUM_PEOPLE = 2_000  # who are smoothed, of a table
NUM_GROUPS = 60  # altered comments that are smoothed, with all their variants

TABLES: dict[str, dict[str, Any]] = {
    "Adult": {
        "people": Adult,
        "sensitive": ["sex", "race"],
        "equivalent": {"relationship": [("Husband", "Wife")]},
        "ignore": ["fnlwgt"],
        "women": lambda frame: frame["sex"] == "Female",
    },
    "German": {
        "people": German,
        "sensitive": ["personal_status_sex"],
        "equivalent": None,
        "ignore": [],
        "women": lambda frame: frame["personal_status_sex"].str.startswith("woman"),
    },
}


@dataclass(frozen=True, eq=False)
class Problem:
    """Outputs to smooth, and how good and how unfair any outputs for them are."""

    x: Tensor
    distance: FairDistance
    y_hat: Tensor
    score: Callable[[Tensor], float]
    unfairness: Callable[[Tensor], float]


def table(name: str, seed: int) -> Problem:
    """Boosted trees on half of the people (at most 4,000), the effect scale.

    Unfair is a decision unlike that for the nearest person of the other sex in
    standardised columns: another metric than the one that is smoothed in.
    """
    about = TABLES[name]
    people = about["people"]()
    frame, target = people.frame, people.target
    order = np.random.default_rng(seed).permutation(len(frame))
    half = min(len(frame) // 2, 4_000)
    parts = order[:half], order[half : half + NUM_PEOPLE]
    known, held_out = (frame.iloc[part] for part in parts)
    used = [column for column in frame if column not in about["ignore"]]
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=seed
    ).fit(known[used], target.iloc[parts[0]])

    def predict(df: Any) -> Any:
        return model.predict_proba(df[used])

    options = {key: about[key] for key in ("sensitive", "equivalent", "ignore")}
    effects = FairTable(**options, num_background=100, num_grid=16)
    x = effects.fit(known, predict).transform(held_out)
    spread = FairTable(**options, scale="standard").fit(known).transform(held_out)
    woman = torch.tensor(about["women"](held_out).to_numpy(dtype=bool))
    apart = torch.cdist(spread, spread)
    apart[woman[:, None] == woman] = torch.inf
    nearest = apart.argmin(dim=1)
    label = torch.tensor(target.iloc[parts[1]].to_numpy(dtype=bool))

    def accuracy(score: Tensor) -> float:
        return float(((score > 0) == label).double().mean())

    def unlike(score: Tensor) -> float:
        return float(((score > 0) != (score[nearest] > 0)).double().mean())

    log_odds = torch.from_numpy(model.decision_function(held_out[used]))
    return Problem(x, Euclidean(), log_odds, accuracy, unlike)


def texts(make: Callable[..., Any], seed: int) -> Problem:
    """A linear classifier of embeddings; FACE and the task effect.

    Unfair is a text that is not given one class in all its variants.
    """
    dataset = make(seed=seed)
    data = dataset[0]
    base = FACE(25).fit(dataset.face_x, dataset.face_group)
    known = data.x[data.train_mask], data.y[data.train_mask]
    model = LogisticRegression(C=10.0, max_iter=1_000).fit(
        *(part.numpy() for part in known)
    )
    group, altered = data.group, data.group[data.val_mask & ~data.original].unique()
    keep = data.val_mask & torch.isin(group, altered[:NUM_GROUPS])
    if len(altered) > NUM_GROUPS:  # and as many comments without any variants
        others = (data.val_mask & ~torch.isin(group, altered)).nonzero().flatten()
        keep[others[: 15 * NUM_GROUPS]] = True
    else:
        keep = data.val_mask
    x, y, group, original = (v[keep] for v in (data.x, data.y, group, data.original))
    logit = torch.from_numpy(np.atleast_2d(model.decision_function(x.numpy())))
    logit = logit.T if len(logit) != len(x) else logit
    if logit.size(1) == 1:
        logit = torch.cat([-logit, logit], dim=1) / 2
    num_classes = int(data.y.max()) + 1

    def balanced(outputs: Tensor) -> float:
        judged = outputs[original], y[original]
        return float(
            multiclass_accuracy(*judged, num_classes=num_classes, average="macro")
        )

    def inconsistency(outputs: Tensor) -> float:
        return 1.0 - float(prediction_consistency(outputs, group))

    distance = TaskEffect(base).fit(*known)
    return Problem(x, distance, logit, balanced, inconsistency)


def words(seed: int) -> Problem:
    """A linear classifier of word vectors; unfair is the spread of names."""
    dataset = Sentiment(seed=seed)
    data = dataset[0]
    order = torch.randperm(
        int(data.train_mask.sum()), generator=torch.Generator().manual_seed(seed)
    )
    rows = data.train_mask.nonzero().flatten()[order]
    held_out, known = rows[:800], rows[800:]
    model = LogisticRegression(max_iter=1_000)
    model.fit(data.x[known].numpy(), data.y[known].numpy())
    judged = torch.cat([held_out, data.name_mask.nonzero().flatten()])
    x, label = data.x[judged], data.y[held_out] == 1
    logit = torch.from_numpy(model.decision_function(x.numpy()))

    def accuracy(outputs: Tensor) -> float:
        return float(((outputs[:800] > 0) == label).double().mean())

    def spread(outputs: Tensor) -> float:
        return float(group_std(outputs[800:]) / group_std(outputs[:800]))

    distance = SensitiveSVD(50).fit(dataset.side_x)
    return Problem(x, distance, logit, accuracy, spread)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "Adult": partial(table, "Adult"),
    "German": partial(table, "German"),
    "Sentiment": words,
    "Bios": partial(texts, partial(Bios, val_share=0.5)),
    "Toxicity": partial(texts, partial(Toxicity, max_length=399)),
}


def least(
    front: list[tuple[float, float, float]], loss: float, unfairness: float
) -> dict[str, float]:
    """Smallest share of the unfairness that is left within a loss, and the strength."""
    usable = [(left, lam) for lost, left, lam in front if lost <= loss + 1e-12]
    left, lam = min([(unfairness, 0.0), *usable])
    return {"share": left / unfairness, "lam": lam}


def measure(name: str, seed: int) -> dict[str, Any]:
    """Least unfairness within the loss, for every degree and ``c``."""
    problem = PROBLEMS[name](seed)
    taus = {
        degree: suggest_tau(problem.x, degree, distance=problem.distance)
        for degree in DEGREES
    }
    graph = SimilarityGraph.search(
        problem.x, max(taus.values()), distance=problem.distance
    )
    score, unfairness = (f(problem.y_hat) for f in (problem.score, problem.unfairness))
    found = []
    for degree, tau in taus.items():
        for decay in DECAYS:
            path = glif_path(
                problem.y_hat,
                graph,
                lams=LAMS,
                taus=[tau],
                theta=decay / tau**2,
                solver=CG(),
            )
            front = [
                (score - problem.score(p.value), problem.unfairness(p.value), p.lam)
                for p in path
            ]
            found += [
                {
                    "degree": degree,
                    "c": decay,
                    "cap": cap,
                    **least([p for p in front if p[2] <= cap], LOSS, unfairness),
                }
                for cap in CAPS
            ]
    return {
        "data": name,
        "seed": seed,
        "rows": len(problem.x),
        "score": score,
        "unfairness": unfairness,
        "found": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.data:
        for seed in range(options.seeds):
            rows.append(measure(name, seed))
            print(name, seed, flush=True)
        write("decay", rows, key=("data", "seed"))
    print(report.decay(rows))


if __name__ == "__main__":
    main()
