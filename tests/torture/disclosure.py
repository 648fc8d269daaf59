"""Every value or average in a text or an answer is shared by at least five samples."""

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pyg_glif import GLIFPostProcessor
from pyg_glif.links import Logit
from pyg_glif.serve._loaded_fit import LoadedFit
from pyg_glif.serve._settings import ServiceSettings

from .harness import Campaign, Case

FIVE = 5
_SLACK = 1e-6


def _frame(case: Case, num: int) -> pd.DataFrame:
    """Columns in which many, few or single samples share a value; gaps anywhere."""
    rng = case.rng
    levels = [int(k) for k in rng.choice([2, 3, 6, num], 3)]
    columns: dict[str, Any] = {
        # Every text names its column and itself, so that it is found in a sentence.
        f"text{at}": np.array([f"<{at}:{k}>" for k in rng.integers(0, size, num)])
        for at, size in enumerate(levels)
    }
    start = np.datetime64("1950-01-01")
    days = rng.integers(0, int(case.pick([3, 20_000])), num)
    columns["day"] = pd.Series(start + days).dt.normalize()
    columns["whole"] = rng.integers(0, int(case.pick([3, 90_000])), num).astype(float)
    columns["number"] = rng.normal(size=num) * float(case.pick([1.0, 1e4]))
    frame = pd.DataFrame(columns)
    for name in frame:
        share = float(case.pick([0.0, 0.0, 0.3, 0.9]))
        frame[name] = frame[name].mask(rng.random(num) < share)
    return frame


def _run(case: Case) -> None:
    rng, num = case.rng, int(case.rng.integers(9, 60))
    x = rng.normal(size=(num, 2)) * float(case.pick([0.3, 1.0]))
    y = np.clip(0.5 + x[:, 0] / 4 + rng.normal(size=num) / 8, 0.02, 0.98)
    near: dict[str, Any] = case.pick([{"tau": 0.8}, {"tau": 2.0}, {"k": 7}])
    if "tau" in near:
        near = {**near, "theta": case.pick([0.0, 1.0, None])}
    link = case.pick([None, Logit(1e-6)])
    lam = float(case.pick([0.1, 1.0, 20.0]))
    post = GLIFPostProcessor(lam=lam, link=link, progress=False, **near)
    post.fit(torch.from_numpy(x), torch.from_numpy(y))
    frame = _frame(case, num)
    post.describe(frame)
    for i in rng.integers(0, num, 4):
        _explanation(case, post, frame, int(i))
    _answers(case, post, x)


def _explanation(
    case: Case, post: GLIFPostProcessor, frame: pd.DataFrame, i: int
) -> None:
    """One text against the frame, the graph and the weights of all samples."""
    why = post.explain(i)
    told, text = why.to_dict(), why.to_text(reasons=True)
    case.count("texts")
    weight = np.zeros(len(frame))
    weight[why.index.numpy()] = why.weight.numpy()
    row, col = post.similarity_.edge_index.numpy()
    peers = col[row == i]
    _shares(case, told, weight, peers, i)
    _values(case, text, frame, i)
    dist = np.linalg.norm(post.x_.numpy()[peers] - post.x_.numpy()[i], axis=1)
    nearest = peers[np.argsort(dist, kind="stable")[:FIVE]]
    fair = post.y_fair_.numpy()
    higher = peers[fair[peers] > fair[i]]
    for name, who, part in (
        ("closest", nearest, np.ones(len(nearest))),
        ("reasons", higher, weight[higher]),
    ):
        for one in told[name] or []:
            _difference(case, one, frame[one["feature"]].iloc[who], part)
    if told["num_higher"] is not None:
        case.check(told["num_higher"] >= FIVE, "a small count of higher scores")


def _effective(weight: NDArray[np.float64]) -> float:
    """How many samples weights amount to."""
    square = float((weight**2).sum())
    return float(np.abs(weight).sum()) ** 2 / square if square else 0.0


def _shares(
    case: Case, told: dict[str, Any], weight: NDArray[Any], peers: Any, i: int
) -> None:
    """What can be told from shares, counts and averages is of five in effect."""
    rest = np.delete(np.arange(len(weight)), i)
    others = np.setdiff1d(rest, peers)
    parts = {"neighbors": weight[peers], "others": weight[others]}
    for name, part in parts.items():
        keys = (f"{name}_share", f"num_{name}", f"{name}_mean")
        if part.any() and any(told[key] is not None for key in keys):
            enough = _effective(part) >= FIVE - _SLACK
            case.check(enough, f"{name} of few are told", str(told))
    if told["own_share"] is not None and weight[rest].any():
        enough = _effective(weight[rest]) >= FIVE - _SLACK
        # From the two scores and the own share follows the average of the rest.
        case.check(enough, "the own share tells about few", str(told))


def _values(case: Case, text: str, frame: pd.DataFrame, i: int) -> None:
    """Texts and days in a sentence: the reader's own, or shared."""
    flat = " ".join(text.split())
    for cell in set(re.findall(r"<\d+:\d+>", flat)):
        column = frame[f"text{cell[1]}"]
        mine = column.iloc[i] == cell
        shared = int((column == cell).sum()) >= FIVE
        case.check(mine or shared, "a text of few", f"{cell} in {flat}")
    case.check("00:00:00" not in flat, "a day has a time", flat)
    for cell in set(re.findall(r"\d{4}-\d\d-\d\d", flat)):
        days = frame["day"].dt.strftime("%Y-%m-%d")
        mine = days.iloc[i] == cell
        shared = int((days == cell).sum()) >= FIVE
        case.check(mine or shared, "a day of few", f"{cell} in {flat}")


def _difference(case: Case, one: dict[str, Any], cells: Any, weight: Any) -> None:
    """A feature as it is told, against the cells of those it is about."""
    case.count("features")
    known = cells.notna().to_numpy()
    case.check(one["num_unknown"] == (~known).sum(), "gaps are miscounted", str(one))
    theirs = one["others"]
    if theirs is None:
        return
    if isinstance(theirs, str):
        count = int((cells.astype(str) == theirs).sum())
        case.check(count >= FIVE, "a value of few", str(one))
        case.check(2 * count > len(cells), "'mostly' is not most", str(one))
        return
    part, values = weight[known], cells[known].to_numpy(float)
    enough = _effective(part) >= FIVE - _SLACK
    if case.check(enough, "an average of few", f"{one} of {values.tolist()}"):
        want = float(part @ values / part.sum())
        close = np.isclose(theirs, want, rtol=1e-4, atol=1e-9)
        case.check(close, "another average", f"{theirs} for {want}")


def _answers(case: Case, post: GLIFPostProcessor, x: NDArray[np.float64]) -> None:
    """Answers of a service that shows nobody."""
    rng, step = case.rng, float(case.pick([0.02, 0.1]))
    least = int(case.pick([5, 8]))
    at = rng.integers(0, len(x), 20)
    q = torch.from_numpy(x[at] + rng.normal(size=(20, 2)) / 4)
    y = torch.from_numpy(rng.uniform(0.02, 0.98, 20))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.safetensors"
        post.save(path)
        served = LoadedFit(
            path, None, ServiceSettings(min_shared=least, resolution=step)
        )
    info = post.transform_info(q, y)
    answer = served.correct(q, y)
    case.check(
        set(answer.to_dict()) == {"y_fair", "num_neighbors", "withheld", "certificate"}
        # A bound that says no more than whether the correction is withheld.
        and answer.to_dict()["num_neighbors"]
        == [0 if few else least for few in answer.to_dict()["withheld"]],
        "an answer tells more",
        str(answer.to_dict()),
    )
    for k in range(20):
        case.count("answers")
        few = _effective(info.neighbors.weight[info.neighbors.row == k].numpy()) < least
        own = answer.facts["own_share"][k]
        case.check(
            few == answer.facts["withheld"][k],
            "withheld otherwise",
            f"{few} for {answer.facts['withheld'][k]}",
        )
        case.check(not few or answer.y_fair[k] == float(y[k]), "few are told")
        case.check(abs(own / step - round(own / step)) < _SLACK or own == 1.0, "digits")
    k = int(rng.integers(20))
    told = served.explain_new(q[k : k + 1], y[k : k + 1]).to_dict()
    case.check(told["y_fair"] == answer.y_fair[k], "explained otherwise", str(told))
    hidden = [told[name] for name in ("closest", "reasons", "num_higher")]
    case.check(hidden == [None] * 3, "features are told", str(told))


CAMPAIGN = Campaign("disclosure", _run, 15, 0.5)
