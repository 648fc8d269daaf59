"""Does a choice of ``tune`` keep its promise to people it has not seen?

Run ``python benchmarks/tune_promise.py`` (about five minutes on two cores; needs the
German credit table below ``PYG_GLIF_DATA``), or name parts:
``python benchmarks/tune_promise.py promise cost``.

*promise*: 20 random splits, 300 newcomers; a loss of 0.01 of accuracy is allowed. Of
the other 700 people 350 train the model and 350 are for the choice (*validation*), or
all 700 are for both: outputs are out-of-fold predictions, and ``tune`` gets the folds;
*references* are those of the fitted people from models that have not seen the fold.
*cost*: the default grid on all training people of Adult, beside the five fits of the
model that out-of-fold predictions take.
"""

import argparse
import itertools
import math
import time
import warnings
from typing import Any

import numpy as np
import report
import torch
from common import write
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from experiments.datasets import German
from pyg_glif import GLIFPostProcessor
from pyg_glif.datasets import Adult
from pyg_glif.links import Logit
from pyg_glif.model_selection import TuneResult, tune
from pyg_glif.tables import FairTable

SPLITS, NEW, MAX_LOSS = 20, 0.3, 0.01
DESIGNS = ("validation", "out-of-fold", "out-of-fold, references")
# How the choice was made before there were folds.
RULES: dict[str, dict[str, Any]] = {
    "on the people fitted": {"cv": None, "theta": 1e-4},
    "on newcomers": {},  # in the folds of the outputs
}


def models() -> dict[str, Any]:
    """What is corrected: a linear model and boosted trees."""
    numbers = make_column_selector(dtype_include="number")
    words = make_column_selector(dtype_exclude="number")
    encoder = make_column_transformer(
        (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), words)
    )
    trees = HistGradientBoostingClassifier(
        categorical_features="from_dtype", max_iter=50, random_state=0
    )
    return {
        "logistic regression": make_pipeline(
            encoder, LogisticRegression(max_iter=2000)
        ),
        "boosted trees": trees,
    }


def promise(
    model_name: str, scale: str, design: str, seed: int
) -> list[dict[str, Any]]:
    """One split: what each rule promises, and what newcomers get."""
    data = German()
    old, new, truth, truth_new = train_test_split(
        data.frame,
        data.target.to_numpy(),
        test_size=NEW,
        random_state=seed,
        stratify=data.target,
    )
    model = clone(models()[model_name])
    if design == "validation":
        half = {"test_size": 0.5, "random_state": seed, "stratify": truth}
        known, old, known_truth, truth = train_test_split(old, truth, **half)
        model.fit(known, known_truth)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(old, truth))
    if design == "validation":
        y = model.predict_proba(old)[:, 1]
    else:
        y = cross_val_predict(model, old, truth, cv=folds, method="predict_proba")[:, 1]
        model.fit(old, truth)
    options = {"cv": folds}
    if design == "out-of-fold, references":
        options["references"] = references(model, old, truth, folds, y)
    y_new = model.predict_proba(new)[:, 1]
    table = FairTable(["personal_status_sex"], scale=scale, num_background=100)
    x = table.fit_transform(old, lambda rows: model.predict_proba(rows)[:, 1])
    x_new = table.transform(new)
    before = (y_new > 0.5) == truth_new
    rows = []
    for rule, changed in RULES.items():
        settings = changed or options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the choice may be the model
            found = tune(
                x,
                y,
                truth,
                link=Logit(),
                max_loss=MAX_LOSS,
                **settings,
            )
            post = GLIFPostProcessor(**found.settings()).fit(x, y)
            after = (post.transform(x_new, y_new) > 0.5) == truth_new
        lost = before.astype(float) - after
        rows.append(
            {
                "rule": rule,
                "seed": seed,
                "loss": float(lost.mean()),
                "loss_se": float(lost.std(ddof=1) / math.sqrt(len(lost))),
                "told": found.best.loss,
                "told_se": found.best.loss_se,
                "unfairness": found.best.unfairness / found.baseline.unfairness,
                "setting": found.best.describe(),
            }
        )
    return rows


def references(
    model: Any, old: Any, truth: Any, folds: list[Any], y: np.ndarray
) -> list[np.ndarray]:
    """Outputs of everybody from models without their own fold and the newcomers'."""
    out = [y.copy() for _ in folds]
    for k, i in itertools.combinations(range(len(folds)), 2):
        both = np.intersect1d(folds[k][0], folds[i][0])
        one = clone(model).fit(old.iloc[both], truth[both])
        for new, known in ((k, i), (i, k)):
            rows = folds[known][1]
            out[new][rows] = one.predict_proba(old.iloc[rows])[:, 1]
    return out


def cost() -> list[dict[str, Any]]:
    """Seconds of the default grid, of one radius, and of five fits, on Adult."""
    data = Adult()
    chosen = (data.split == "train").to_numpy()
    people, truth = data.frame[chosen], data.target[chosen].to_numpy()
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=0
    )
    seconds = {}
    start = time.perf_counter()
    y = cross_val_predict(model, people, truth, cv=5, method="predict_proba")[:, 1]
    seconds["five fits of the model"] = time.perf_counter() - start
    model.fit(people, truth)
    table = FairTable(["sex", "race"], ignore=["fnlwgt"])
    x = table.fit_transform(people, lambda rows: model.predict_proba(rows)[:, 1])

    def timed(name: str, **options: Any) -> TuneResult:
        start = time.perf_counter()
        found = tune(x, y, truth, link=Logit(), **options)
        seconds[name] = time.perf_counter() - start
        return found

    found = timed("tune, 4 radii x 9 strengths x 5 folds")
    timed("tune, 1 radius x 9 strengths x 5 folds", taus=[found.best.tau])
    timed("tune, the same people fitted and scored", cv=None)
    row = {"part": "cost", "model": "boosted trees", "scale": "effect"}
    row |= {"design": "out-of-fold"}
    return [{**row, "rule": name, "seconds": value} for name, value in seconds.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["promise", "cost"])
    parser.add_argument("--designs", nargs="*", default=DESIGNS, choices=DESIGNS)
    args = parser.parse_args()
    parts, designs = args.parts, args.designs
    torch.set_num_threads(1)
    key = ("part", "model", "scale", "design", "rule")
    if "promise" in parts:
        blocks = itertools.product(models(), ("standard", "effect"), designs)
        for block in blocks:
            found = [row for seed in range(SPLITS) for row in promise(*block, seed)]
            names = dict(zip(("model", "scale", "design"), block, strict=True))
            rows = [
                {
                    "part": "promise",
                    **names,
                    "rule": rule,
                    "splits": [one for one in found if one["rule"] == rule],
                }
                for rule in RULES
            ]
            write("tune_promise", rows, key)
            print(*block, flush=True)
    if "cost" in parts:
        write("tune_promise", cost(), key)
    report.main()


if __name__ == "__main__":
    main()
