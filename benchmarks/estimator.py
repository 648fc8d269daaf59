"""From a table to a fair estimator: how long, next to the model alone?

Run ``python benchmarks/estimator.py`` (about two minutes on two cores) with the census
in ``tabular`` below the folder that ``PYG_GLIF_DATA`` names: 32,561 people of the
training split, gradient boosting, all defaults. Parts: ``fit``, ``new``.
"""

import argparse
from typing import Any

import report
from common import interleaved, write
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from pyg_glif.datasets import Adult
from pyg_glif.sklearn import GLIFClassifier

SENSITIVE, ALIKE = ["sex", "race"], {"relationship": [("Husband", "Wife")]}
MODEL = HistGradientBoostingClassifier(random_state=0)
PARTS = ("fit", "new")


def people() -> tuple[Any, Any, Any]:
    """People to fit, what is true of them, and people who come later."""
    adult = Adult()
    first = (adult.split == "train").to_numpy()
    frame = adult.frame.drop(columns="fnlwgt")
    return frame[first], adult.target[first].to_numpy(), frame[~first]


def estimator(**options: Any) -> GLIFClassifier:
    """All defaults, but for who is similar."""
    options = {
        "sensitive": SENSITIVE,
        "equivalent": ALIKE,
        "random_state": 0,
        **options,
    }
    return GLIFClassifier(MODEL, progress=False, **options)


def fit(x: Any, y: Any, repeats: int) -> dict[str, Any]:
    """The whole fit, beside the training that out-of-fold predictions need."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)

    def five() -> None:
        cross_val_predict(MODEL, x, y, cv=folds, method="predict_proba")

    seconds = interleaved(
        {
            "five fits of the model": five,
            "GLIFClassifier, strength tuned": lambda: estimator().fit(x, y),
            "GLIFClassifier, strength given": lambda: estimator(lam=0.1).fit(x, y),
        },
        repeats,
    )
    return {"question": f"{len(x):,} people to fit", "seconds": seconds}


def new(x: Any, y: Any, later: Any, repeats: int) -> list[dict[str, Any]]:
    """One person who comes later, and all of them at once."""
    ours = estimator(lam=0.1).fit(x, y)
    alone = clone(MODEL).fit(x, y)
    ours.predict_proba(later[:1])  # the first call builds the index
    rows = iter(range(10**9))

    def one() -> Any:
        at = next(rows) % len(later)
        return later[at : at + 1]

    single = interleaved(
        {
            "the model": lambda: alone.predict_proba(one()),
            "GLIFClassifier": lambda: ours.predict_proba(one()),
        },
        max(50, repeats),
    )
    everybody = interleaved(
        {
            "the model": lambda: alone.predict_proba(later),
            "GLIFClassifier": lambda: ours.predict_proba(later),
        },
        repeats,
    )
    return [
        {"question": "one new person", "seconds": single},
        {"question": f"{len(later):,} new people at once", "seconds": everybody},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    x, y, later = people()
    rows = []
    if "fit" in options.parts:
        rows.append(fit(x, y, options.repeats))
    if "new" in options.parts:
        rows += new(x, y, later, options.repeats)
    print(report.estimator(rows))
    write("estimator", rows, key=("question",))


if __name__ == "__main__":
    main()
