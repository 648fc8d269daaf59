"""From a finished model to a served correction: fit, save, load, serve, explain.

A scikit-learn model predicts incomes on Adult. Two people who differ only in whether
they are recorded as husband or as wife should get the same decision; the model
disagrees for some. The fair metric ignores what predicts sex and race, the
post-processor is fitted on half of the test people and then serves the other half.

Reads Adult from the folder ``PYG_GLIF_DATA`` (``data`` if it is not set), and makes
people up if it is not there.
"""

import csv
import gzip
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from pyg_glif.audit import Bootstrap
from pyg_glif.links import Logit
from pyg_glif.metric_learning import LogisticSubspace
from pyg_glif.metrics import prediction_consistency
from pyg_glif.model_selection import tune
from pyg_glif.postprocessing import GLIFPostProcessor

NUMERIC = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
CATEGORICAL = ("workclass", "marital_status", "occupation", "relationship")
SPOUSES = ("relationship=Husband", "relationship=Wife")


@dataclass
class People:
    """Features, labels and protected attributes."""

    x: np.ndarray  # [N, F]
    names: list[str]
    income: np.ndarray  # [N] 0 or 1
    protected: np.ndarray  # [N, 2] sex and race
    train: np.ndarray  # [N] bool

    def flipped(self, rows: np.ndarray) -> np.ndarray:
        """Features with husband and wife exchanged, and sex with them."""
        x = self.x[rows].copy()
        spouses = [self.names.index(name) for name in SPOUSES]
        x[:, spouses] = x[:, spouses[::-1]]
        sex = self.names.index("sex")
        x[:, sex] = 1.0 - x[:, sex]
        return x


def adult(path: Path) -> People:
    """The Adult data, numbers scaled and categories one-hot."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    columns, names = [], []
    train = np.array([row["split"] == "train" for row in rows])
    for name in NUMERIC:
        value = np.array([float(row[name]) for row in rows])
        value = np.log1p(value) if name.startswith("capital") else value
        columns.append((value - value[train].mean()) / value[train].std())
        names.append(name)
    for name in CATEGORICAL:
        value = np.array([row[name] for row in rows])
        for category in np.unique(value):
            columns.append((value == category).astype(float))
            names.append(f"{name}={category}")
    sex = np.array([row["sex"] == "Male" for row in rows])
    white = np.array([row["race"] == "White" for row in rows])
    columns += [sex.astype(float), white.astype(float)]
    names += ["sex", "race"]
    income = np.array([row["income"] == ">50K" for row in rows]).astype(int)
    protected = np.stack([sex, white], 1).astype(int)
    return People(np.stack(columns, 1), names, income, protected, train)


def made_up(size: int = 6000) -> People:
    """People with the same columns that matter, where Adult is not at hand."""
    rng = np.random.default_rng(0)
    sex, white = rng.random(size) < 0.6, rng.random(size) < 0.8
    spouse = rng.random(size) < 0.5
    merit = rng.normal(size=(size, 4)) + 0.3 * sex[:, None]
    columns = [*merit.T, spouse & sex, spouse & ~sex, ~spouse, sex, white]
    names = ["age", "education", "hours", "gain", *SPOUSES, "relationship=Other"]
    logit = merit.sum(1) + 1.5 * spouse * sex - 1.0
    income = (rng.random(size) < 1 / (1 + np.exp(-logit))).astype(int)
    protected = np.stack([sex, white], 1).astype(int)
    x = np.stack([np.asarray(c, float) for c in columns], 1)
    return People(
        x, [*names, "sex", "race"], income, protected, np.arange(size) % 2 > 0
    )


def consistency(decision: np.ndarray, flipped: np.ndarray) -> float:
    """Share of people whose decision does not depend on the flip."""
    both = torch.from_numpy(np.concatenate([decision, flipped]))
    group = torch.arange(len(decision)).repeat(2)
    return float(prediction_consistency(both, group))


def main() -> None:
    """Trains, tunes, fits, saves, loads, serves and explains."""
    folder = Path(os.environ.get("PYG_GLIF_DATA", "data"))
    path = folder / "tabular" / "adult.csv.gz"
    people = adult(path) if path.exists() else made_up()
    print(f"{len(people.x):,} people, {people.x.shape[1]} features, from ", end="")
    print("Adult" if path.exists() else "a random generator")

    model = HistGradientBoostingClassifier(max_iter=100, random_state=0)
    model.fit(people.x[people.train], people.income[people.train])
    rest = np.flatnonzero(~people.train)
    known, new = rest[::2], rest[1::2]
    known = known[:6000]

    columns = tuple(people.names.index(name) for name in ("sex", "race"))
    learner = LogisticSubspace(protected_columns=columns)
    x_train = torch.from_numpy(people.x[people.train])
    distance = learner.fit(x_train, torch.from_numpy(people.protected[people.train]))
    sex, race = distance.fit_result
    print(f"the other features tell sex for {sex.accuracy:.0%}, race for ", end="")
    print(f"{race.accuracy:.0%} (by majority {sex.majority:.0%}, {race.majority:.0%})")

    y_known = model.predict_proba(people.x[known])[:, 1]
    found = tune(
        people.x[known],
        y_known,
        people.income[known],
        lams=(0.01, 0.03, 0.1, 0.3, 1.0),
        max_loss=0.01,
        distance=distance,
        link=Logit(eps=1e-3),
    )
    print("\nfairest settings for each accuracy, the chosen one in bold:")
    print(f"{found.to_markdown()}\n")

    post = GLIFPostProcessor(**found.settings())
    post.fit(people.x[known], y_known)
    print(f"{post.solution_}")
    report = post.audit(
        sensitive={"sex": people.protected[known, 0]},
        bootstrap=Bootstrap(num_samples=200),
    )
    for measure in report.measures:
        print(f"  {measure.title:32} {measure.before!s:>28} -> {measure.after!s}")

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adult.safetensors"
        post.save(file)
        served = GLIFPostProcessor.load(file)
        print(f"\nsaved and loaded, {file.stat().st_size / 2**20:.1f} MiB")

    x_flip = people.flipped(new)
    y_new, y_flip = (model.predict_proba(x)[:, 1] for x in (people.x[new], x_flip))
    info = served.transform_info(people.x[new], y_new)
    fair = info.value
    fair_flip = served.transform(x_flip, y_flip)
    truth = people.income[new] == 1
    isolated = f"{info.num_isolated} without a neighbour"
    print(f"{len(new):,} new people ({isolated}), decisions above one half:")
    married = people.x[new][:, [people.names.index(s) for s in SPOUSES]].any(1)
    for name, y, flip in (("before", y_new, y_flip), ("after", fair, fair_flip)):
        same = consistency(y[married] > 0.5, flip[married] > 0.5)
        gap = np.abs(y - flip)[married].mean()
        accuracy = np.mean((y > 0.5) == truth)
        print(
            f"  {name:6} accuracy {accuracy:.3f}, spouse-flip consistency {same:.4f}, "
            f"mean difference {gap:.4f}"
        )

    one = int(np.argmax(np.abs(fair - y_new)))
    row = people.x[new][one : one + 1]
    start = time.perf_counter()
    value = served.transform(row, y_new[one : one + 1])[0]
    spent = 1000 * (time.perf_counter() - start)
    print(f"\none row in {spent:.1f} ms: {y_new[one]:.3f} -> {value:.3f}, because of")
    why = served.explain_new(row, y_hat_new=y_new[one : one + 1])
    print(why.to_markdown())


if __name__ == "__main__":
    main()
