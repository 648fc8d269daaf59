"""What does a table's scale cost, and what does it do for newcomers?

Run ``python benchmarks/tables.py`` (about ten minutes on two cores) with the folder of
the data in ``PYG_GLIF_DATA``, or name parts: ``python benchmarks/tables.py cost scales
columns``. The census of 1994 (Adult) and histogram gradient boosting: the model is
trained on the training split; of the test split one half is fitted, the other half are
newcomers.
"""

import argparse
from typing import Any

import numpy as np
import pandas as pd
import report
import torch
from common import interleaved, write
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from pyg_glif import GLIFPostProcessor, suggest_tau
from pyg_glif.datasets import Adult
from pyg_glif.links import Logit
from pyg_glif.metric_learning import LogisticSubspace
from pyg_glif.tables import FairTable

PARTS = ("cost", "scales", "columns", "proxies")
SENSITIVE = ["sex", "race"]
ALIKE = {"relationship": [("Husband", "Wife")]}
PAIRS = [("education", "education_num"), ("marital_status", "relationship")]
NEAR = 0.1  # log-odds within which a man and a woman count as a pair


class Census:
    """The data, the model, and people with the other sex."""

    def __init__(self) -> None:
        adult = Adult()
        train = (adult.split == "train").to_numpy()
        self.train, self.test = adult.frame[train], adult.frame[~train]
        self.y_train = adult.target[train].to_numpy()
        self.y_test = adult.target[~train].to_numpy()
        self.model = self.new_model().fit(self.train, self.y_train)

    @staticmethod
    def new_model() -> Any:
        """The model, not yet fitted."""
        return HistGradientBoostingClassifier(
            categorical_features="from_dtype", random_state=0
        )

    def predict(self, df: pd.DataFrame) -> Any:
        """Its probabilities."""
        return self.model.predict_proba(df)[:, 1]

    @staticmethod
    def flipped(df: pd.DataFrame) -> pd.DataFrame:
        """The same people with the other sex, wives for husbands."""
        out = df.copy()
        for name, one, other in (
            ("sex", "Male", "Female"),
            ("relationship", "Husband", "Wife"),
        ):
            swap = {one: other, other: one}
            values = df[name].astype(object).map(lambda v, swap=swap: swap.get(v, v))
            out[name] = values.astype(df[name].dtype)
        return out


def table_of(**options: Any) -> FairTable:
    return FairTable(SENSITIVE, equivalent=ALIKE, **options)


def cost(census: Census, repeats: int) -> list[dict[str, Any]]:
    """The fit beside the five fits that out-of-fold predictions need."""
    train, predict = census.train, census.predict
    y_hat, one = predict(train), census.test.iloc[:1]
    table = table_of().fit(train, predict)

    def folds() -> Any:
        model = census.new_model()
        return cross_val_predict(
            model, train, census.y_train, cv=5, method="predict_proba"
        )

    fits = {
        "five fits of the model": folds,
        "effect": lambda: table_of().fit(train, predict),
        "conditional": lambda: table_of(scale="conditional").fit(train, predict),
        "effect, outputs only": lambda: table_of().fit(train, y_hat=y_hat),
        "standard": lambda: table_of(scale="standard").fit(train),
    }
    serve = {
        "the model": lambda: predict(one),
        "transform": lambda: table.transform(one),
    }
    return [
        {
            "part": "cost",
            "case": f"fit, {len(train):,} people",
            "seconds": interleaved(fits, repeats),
        },
        {
            "part": "cost",
            "case": "one newcomer",
            "seconds": interleaved(serve, 20 * repeats),
        },
    ]


CASES: dict[str, dict[str, Any]] = {
    "effect": {},
    "conditional": {"scale": "conditional"},
    "standard": {"scale": "standard"},
    "effect, outputs only": {},
    "effect, without proxies": {"proxies": True},
}


def scales(census: Census, seeds: int, cases: list[str]) -> list[dict[str, Any]]:
    """Newcomers under each scale: accuracy, flips, unlike pairs, people alone."""
    rows = []
    for case in cases:
        options = CASES[case]
        found = []
        for seed in range(seeds):
            found.append(newcomers(census, case, options, seed))
            print(case, seed, found[-1], flush=True)
        facts = {name: [one[name] for one in found] for name in found[0]}
        rows.append({"part": "scales", "case": case, "seeds": seeds, "facts": facts})
    return rows


def newcomers(
    census: Census, case: str, options: dict[str, Any], seed: int
) -> dict[str, float]:
    """One half of the test split fitted, the other half served."""
    order = np.random.RandomState(seed).permutation(len(census.test))
    half = len(order) // 2
    people, new = census.test.iloc[order[:half]], census.test.iloc[order[half:]]
    truth = torch.from_numpy(census.y_test[order[half:]]).bool()
    y = torch.from_numpy(census.predict(people))
    given = {"y_hat": y} if "outputs" in case else {"predict": census.predict}
    table = table_of(**options).fit(people, **given)
    judge = table_of().fit(people, census.predict).transform(new)
    z = table.transform(people)
    tau = suggest_tau(z, 20)
    post = GLIFPostProcessor(tau=tau, theta=2 / tau**2, link=Logit()).fit(z, y)
    served = {}
    for name, frame in (("new", new), ("flipped", census.flipped(new))):
        before = torch.from_numpy(census.predict(frame))
        info = post.transform_info(table.transform(frame), before)
        after = info.value
        served[name] = (before >= 0.5, after >= 0.5)
        if name == "new":
            alone = info.num_isolated / len(frame)
    male = torch.tensor((new["sex"] == "Male").to_numpy())
    near = torch.cdist(judge[male], judge[~male]) <= NEAR
    out = {"tau": tau, "alone": alone, "pairs": float(near.sum())}
    for at, when in enumerate(("before", "after")):
        decided = served["new"][at]
        unlike = decided[male][:, None] != decided[~male][None]
        out[f"accuracy_{when}"] = float((decided == truth).double().mean())
        same = decided == served["flipped"][at]
        out[f"flip_{when}"] = float(same.double().mean())
        out[f"unlike_{when}"] = float(unlike[near].double().mean())
    return out


def columns(census: Census) -> list[dict[str, Any]]:
    """What the two kinds of effects say about correlated columns, and together."""
    eta = np.log(census.predict(census.test)) - np.log1p(-census.predict(census.test))
    rows = []
    for scale in ("effect", "conditional"):
        table = table_of(scale=scale).fit(census.train, census.predict)
        reach = table.summary().to_frame().set_index("column")["reach"]
        total = table.transform(census.test).sum(dim=1).numpy()
        facts = {name: float(reach[name]) for pair in PAIRS for name in pair}
        facts["slope"] = float(np.polyfit(total, eta, 1)[0])
        facts["explained"] = float(np.corrcoef(total, eta)[0, 1] ** 2)
        rows.append({"part": "columns", "case": scale, "facts": facts})
    return rows


def proxies(census: Census) -> list[dict[str, Any]]:
    """How well a regression on the coordinates tells the sex of people of the fit."""
    people = census.test
    sex = (people["sex"] == "Male").to_numpy()
    plain = FairTable(["sex"], equivalent=ALIKE).fit(people, census.predict)
    z = plain.transform(people)
    fair = FairTable(["sex"], equivalent=ALIKE, proxies=True).fit(
        people, census.predict
    )
    forms = {
        "effect": z,
        "one 'LogisticSubspace'": LogisticSubspace().fit(z, sex).embed(z),
        "without proxies": fair.transform(people),
    }
    rows = []
    for case, form in forms.items():
        model = LogisticRegression(max_iter=1000).fit(form, sex)
        kept = float(form.var(dim=0).sum() / z.var(dim=0).sum())
        facts = {"told": float(model.score(form, sex)), "kept": kept}
        facts["majority"] = float(max(sex.mean(), 1 - sex.mean()))
        rows.append({"part": "proxies", "case": case, "facts": facts})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    census = Census()
    rows = []
    if "cost" in options.parts:
        rows += cost(census, options.repeats)
    if "scales" in options.parts:
        rows += scales(census, options.seeds, options.cases)
    if "columns" in options.parts:
        rows += columns(census)
    if "proxies" in options.parts:
        rows += proxies(census)
    for render in (
        report.tables_cost,
        report.tables_scales,
        report.tables_columns,
        report.tables_proxies,
    ):
        print("\n" + render(rows))
    write("tables", rows, key=("part", "case"))


if __name__ == "__main__":
    main()
