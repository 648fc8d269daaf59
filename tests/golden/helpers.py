"""Inputs of the cases, and readers of what the library returns."""

import contextlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from pyg_glif import GLIFPostProcessor, edge_weights, fair_radius_graph
from pyg_glif.cli import main

Numbers = dict[str, list[float] | list[int] | float | int | str]


@dataclass(frozen=True)
class Case:
    """A walk, and how closely its floats are compared."""

    run: Callable[[], Numbers]
    rtol: float
    atol: float


CASES: dict[str, Case] = {}


def case(rtol: float = 1e-9, atol: float = 1e-11) -> Callable[[Any], Any]:
    """Adds a function to the cases; a comment says why one is coarser."""

    def add(run: Callable[[], Numbers]) -> Callable[[], Numbers]:
        CASES[run.__name__] = Case(run, rtol, atol)
        return run

    return add


def pin(values: Any) -> list[float] | list[int]:
    """All of few values; of many the first ten, and two sums over all of them."""
    if isinstance(values, torch.Tensor):
        values = values.detach().numpy()
    flat = np.ravel(values)
    flat = flat.astype(np.float64 if flat.dtype.kind == "f" else np.int64)
    if len(flat) <= 12:
        return flat.tolist()
    place = np.arange(1, len(flat) + 1)  # the second sum tells one order from another
    return [*flat[:10].tolist(), flat.sum().item(), (place * flat).sum().item()]


def samples(num: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outputs between 0 and 1, and the group that outputs favor."""
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=(num, 3)), rng.integers(0, 2, num)
    logit = x[:, 0] - 0.5 * x[:, 1] + group + 0.5 * rng.normal(size=num)
    return x, 1.0 / (1.0 + np.exp(-logit)), group


X, Y, GROUP = samples(90, seed=0)
X_NEW, Y_NEW, GROUP_NEW = samples(12, seed=1)
HOW: dict[str, Any] = {"tau": 1.1, "lam": 0.5}
TREES = HistGradientBoostingClassifier(max_iter=15, random_state=0)


def corrected(post: GLIFPostProcessor, prefix: str = "", **new: Any) -> Numbers:
    """Outputs of the fitted samples and of new ones, with neighbors and own shares."""
    info = post.transform_info(X_NEW, Y_NEW, **new)
    y_new = info.value
    found = {
        "fitted": pin(post.y_fair_),
        "new": pin(y_new),
        "neighbors": pin(info.num_neighbors),
        "own_share": pin(info.certificate.own_share),
        "edges": pin(post.graph_.edge_index),
        "weights": pin(post.graph_.edge_weight),
        "isolated": pin(post.isolated_),
    }
    return {prefix + name: values for name, values in found.items()}


def chosen(tuned: Mapping[str, Any]) -> Numbers:
    """The choice and all trials."""
    points, best = tuned["points"], tuned["best"]
    found: Numbers = {"best": [best[name] for name in ("tau", "lam", "loss")]}
    for name in ("tau", "lam", "score", "unfairness", "loss", "loss_se"):
        found[name] = pin([point[name] for point in points])
    return {**found, "trials": len(points)}


def frame(num: int, seed: int) -> tuple[pandas.DataFrame, np.ndarray]:
    """Samples with a sensitive and a text column, and a score that is to be learned."""
    rng = np.random.default_rng(seed)
    sex, job = rng.choice(["f", "m"], num), rng.choice(["baker", "clerk", "nurse"], num)
    age, income = rng.normal(45, 12, num).round(), rng.normal(40, 12, num).round(1)
    worth = (income - 40) / 12 + (age - 45) / 24 + (job == "nurse") + 0.5 * (sex == "m")
    table = pandas.DataFrame({"sex": sex, "job": job, "age": age, "income": income})
    kinds = {"sex": "category", "job": "category"}
    return table.astype(kinds), worth + 0.5 * rng.normal(size=num)


def measures(audit: Mapping[str, Any]) -> Numbers:
    """Estimates of an audit in their order, before and after, without their names."""
    found: Numbers = {}
    for when in ("before", "after"):
        for kind in ("measures", "verdict"):
            every = [one[when] for one in audit[kind] if one[when] is not None]
            flat = [one[k] for one in every for k in ("value", "low", "high")]
            found[f"{kind}_{when}"] = [value for value in flat if value is not None]
    counts = [one["num_after"] for one in audit["verdict"]]
    return {**found, "counts": [count for count in counts if count is not None]}


def call(*words: object) -> dict[str, Any]:
    """Runs a command, and returns the JSON that it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main([*map(str, words), "--json"])
    assert code == 0, out.getvalue()
    return dict(json.loads(out.getvalue()))


@contextlib.contextmanager
def csv_file() -> Any:
    """A CSV file in a folder of its own, and the words by which it is read."""
    x, score = frame(120, seed=8)
    repaid = score + np.random.default_rng(9).normal(size=len(x)) > 0.5
    x = x.assign(score=1.0 / (1.0 + np.exp(0.5 - score)), repaid=repaid.astype(int))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        x.to_csv(path, index_label="name")
        yield path, (path, "--outputs", "score", "--id", "name")


def graph() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Outputs of two columns, edges, squared distances and weights."""
    y_hat = torch.from_numpy(np.stack([Y, 1.0 - Y**2], axis=1))
    edge_index, sq_dist = fair_radius_graph(torch.from_numpy(X), tau=1.1)
    return y_hat, edge_index, sq_dist, edge_weights(sq_dist, theta=0.7)
