"""Walks through the public API, each of which returns the numbers that it ends in.

Keys of the numbers are words of this file, so that renaming a public name changes call
sites here and leaves ``numbers.json`` as it is.
"""

import json
import warnings
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
import torch
from sklearn.linear_model import LinearRegression
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import Compose

from pyg_glif import (
    FairKNNGraph,
    FairRadiusGraph,
    GLIFConv,
    GLIFPostProcessor,
    GLIFSmooth,
    LaplacianLoss,
    fair_radius_graph,
    glif_path,
    guarantees,
    tune,
)
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.distributed import ShardedDataset, ShardedIndex, radius_graph, smooth
from pyg_glif.links import Logit
from pyg_glif.methods import smooth_worst_case
from pyg_glif.model_selection import RiskControl
from pyg_glif.serve import create_app
from pyg_glif.sklearn import GLIFClassifier, GLIFRegressor
from tests.golden.helpers import (
    CASES,
    GROUP,
    GROUP_NEW,
    HOW,
    TREES,
    X_NEW,
    Y_NEW,
    Numbers,
    X,
    Y,
    call,
    case,
    chosen,
    corrected,
    csv_file,
    frame,
    graph,
    measures,
    pin,
    samples,
)

__all__ = ["CASES"]


@case()
def fit_radius_and_joint() -> Numbers:
    blind = SensitiveSubspace(torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64))
    post = GLIFPostProcessor(distance=blind, tau=0.5, lam=0.5).fit(X, Y)
    by_degree = GLIFPostProcessor(target_degree=8).fit(X, Y)
    by_coverage = GLIFPostProcessor(coverage=0.9).fit(X, Y)
    radii = [post.tau_, by_degree.tau_, by_coverage.tau_]
    joint = pin(post.transform(X_NEW, Y_NEW, joint=True))
    return {**corrected(post), "joint": joint, "theta": post.theta_, "radii": radii}


@case(rtol=2e-6, atol=1e-6)  # float32: one step of rounding is 1.2e-7
def fit_single_precision() -> Numbers:
    return corrected(GLIFPostProcessor(**HOW).fit(X.astype("f4"), Y.astype("f4")))


@case()
def fit_nearest() -> Numbers:
    mutual = GLIFPostProcessor(k=6, mutual=True, tau=1.5).fit(X, Y)
    either = GLIFPostProcessor(k=6, lam=0.5).fit(X, Y)
    return {**corrected(either, "either_"), **corrected(mutual, "mutual_")}


@case()
def fit_density_and_link() -> Numbers:
    density = GLIFPostProcessor(**HOW, normalization="density").fit(X, Y)
    link = GLIFPostProcessor(**HOW, link=Logit()).fit(X, Y)
    return {**corrected(density, "density_"), **corrected(link, "link_")}


@case()
def fit_std() -> Numbers:
    post = GLIFPostProcessor(**HOW).fit(X, Y, y_std=0.1 + Y)
    info = post.transform_info(X_NEW, Y_NEW, y_std=0.1 + Y_NEW, with_std=True)
    std = info.uncertainty.std
    return {**corrected(post, y_std=0.1 + Y_NEW), "std": pin(std)}


@case(rtol=1e-7)  # shares are found by iteration
def fit_balanced() -> Numbers:
    post = GLIFPostProcessor(**HOW).fit(X, Y, groups=GROUP)
    told = post.transform(X_NEW, Y_NEW, groups=GROUP_NEW)
    new = {"shares": [*post.shares_.values()], "new_told": pin(told)}
    return {**corrected(post), **new}


@case()
def add_and_forget() -> Numbers:
    ids = [f"id{i}" for i in range(len(X))]
    post = GLIFPostProcessor(**HOW).fit(X[:60], Y[:60], ids=ids[:60])
    added = corrected(post.partial_fit(X[60:], Y[60:], ids=ids[60:]), "added_")
    return {**added, **corrected(post.forget([*ids[:9], ids[70]]), "fewer_")}


@case()
def explain() -> Numbers:
    post = GLIFPostProcessor(**HOW).fit(X, Y)
    found: Numbers = {}
    new = post.explain_new(X_NEW[:1], y_hat_new=Y_NEW[:1])
    for name, why in {"fitted": post.explain(3), "new": new}.items():
        parts = (why.own, why.neighbors, why.others)
        found[f"{name}_index"] = pin(why.index[:12])
        found[f"{name}_weight"] = pin(why.weight)
        found[f"{name}_dist"] = pin(why.dist[:12])
        found[f"{name}_counts"] = [part.num_samples for part in parts]
        found[f"{name}_shares"] = [part.share for part in parts]
        found[f"{name}_outputs"] = [why.y_hat, why.y_fair, why.neighbors_mean]
    return found


@case()
def save_and_load() -> Numbers:
    post = GLIFPostProcessor(**HOW, normalization="density", link=Logit())
    with TemporaryDirectory() as folder:
        post.fit(X, Y, ids=range(100, 190)).save(f"{folder}/fit.safetensors")
        again = GLIFPostProcessor.load(f"{folder}/fit.safetensors")
    ids, settings = pin(again.ids_), [again.tau_, again.theta_, again.lam]
    return {**corrected(again), "ids": ids, "settings": settings}


@case()
def certify() -> Numbers:
    post = GLIFPostProcessor(**HOW).fit(X, Y)
    near = guarantees.certify(post.fit_, X_NEW, 0.1, Y_NEW, dy=0.05)
    each = guarantees.sensitivity(post.fit_)
    found = {"low": pin(near.low), "high": pin(near.high), "gap": pin(near.gap)}
    counts = {"sure": pin(near.num_shared), "possible": pin(near.num_possible)}
    return {**found, **counts, "own": pin(each.own), "others": pin(each.others)}


@case()
def tune_alone() -> Numbers:
    x, y_hat, group = samples(150, seed=2)
    labels = (x[:, 0] > 0).astype(int)
    found = tune(x, y_hat, labels, sensitive=group, cv=5, max_loss=0.05)
    return {**chosen(found.to_dict()), "folds": found.num_folds}


@case()
def classifier() -> Numbers:
    (x, score), (x_new, score_new) = frame(250, seed=3), frame(60, seed=4)
    model = GLIFClassifier(TREES, sensitive=["sex"], max_loss=0.05, random_state=0)
    model.fit(x, score > 0.5)
    audit = model.audit(x_new, score_new > 0.5).to_dict()
    return {
        "proba": pin(model.predict_proba(x_new)[:, 1]),
        "predicted": pin(model.predict(x_new)),
        "neighbors": pin(model.num_neighbors(x_new)),
        "settings": [model.post_.tau_, model.post_.theta_, model.post_.lam],
        "fitted": pin(model.post_.y_fair_),
        "accuracy": [audit["facts"][f"accuracy_{k}"] for k in ("before", "after")],
        **chosen(model.tune_.to_dict()),
        **measures(audit),
    }


@case()
def classifier_guarantee() -> Numbers:
    (x, score), (x_new, _) = frame(300, seed=5), frame(20, seed=6)
    promise = RiskControl(alpha=0.1, delta=0.2)
    how = {"sensitive": ["sex"], "max_loss": 0.05, "random_state": 0}
    model = GLIFClassifier(TREES, **how, guarantee=promise)
    found = model.fit(x, score > 0.5).guarantee_
    return {
        "proba": pin(model.predict_proba(x_new)[:, 1]),
        "lam": model.post_.lam,
        "p_values": [p for one in found.tests for p in one.p_values.values()],
        "certified": len(found.certified),
        "set_aside": pin(found.set_aside),
    }


@case()
def regressor() -> Numbers:
    x, score = frame(200, seed=7)
    x = x.assign(sex=x["sex"] == "m").drop(columns="job")
    model = GLIFRegressor(LinearRegression(), sensitive=["sex"], lam=0.5, coverage=0.9)
    model.fit(x[:160], score[:160])
    audit = model.audit(x[160:], score[160:], difference=0.5).to_dict()
    return {"predicted": pin(model.predict(x[160:])), **measures(audit)}


@case()
def command_smooth() -> Numbers:
    with csv_file() as (path, read):
        fit, out = path.with_name("fit.safetensors"), path.with_name("fair.csv")
        new, audit = path.with_name("new.csv"), path.with_name("audit.json")
        words = ("--sensitive", "sex", "--labels", "repaid", "--threshold", 0.5)
        files = ("--out", out, "--audit", audit, "--save", fit)
        found = call("smooth", *read, *words, *files)
        again = call("smooth", path, "--id", "name", "--post", fit, "--out", new)
        table, table_new = pandas.read_csv(out), pandas.read_csv(new)
        report = json.loads(audit.read_text())
    names = ("tau", "neighbors_each", "mean_movement", "energy_before", "energy_after")
    return {
        "written": pin(table["score"]),
        "written_new": pin(table_new["score"]),
        "ids": pin(table["name"]),
        "told": [found[name] for name in names],
        "told_new": [again[name] for name in names[:3]],
        **measures(report),
    }


@case()
def command_tune() -> Numbers:
    with csv_file() as (_, read):
        words = ("--labels", "repaid", "--sensitive", "sex", "--max-loss", 0.03)
        found = call("tune", *read, *words, "--lams", "0.1,0.3,1,3")
    return {**chosen(found), "folds": found["num_folds"]}


@case()
def command_explain() -> Numbers:
    with csv_file() as (path, read):
        fit, out = path.with_name("fit.safetensors"), path.with_name("fair.csv")
        words = ("--sensitive", "sex", "--ignore", "repaid", "--out", out)
        call("smooth", *read, *words, "--save", fit)
        found = call("explain", fit, "--person", 3, "--names", "--reasons")
    (why,) = found["explanations"]
    names = ("y_hat", "y_fair", "own_share", "neighbors_share", "neighbors_mean")
    names += ("others_mean",)
    return {
        "told": [why[name] for name in names],
        "counts": [why["num_neighbors"], why["num_others"], why["num_higher"]],
        "sizes": [one["size"] for one in why["closest"]],
        "contributors": pin([int(one["sample"]) for one in why["contributors"][:12]]),
        "distances": pin([one["distance"] for one in why["contributors"]]),
    }


@case()
def layer_gradients() -> Numbers:
    y_hat, edge_index, _, weight = graph()
    found: Numbers = {}
    for name, kind in {"plain": None, "density": "density"}.items():
        conv = GLIFConv(0.5, normalization=kind, learn_lam=True).double()
        x, w = y_hat.clone().requires_grad_(), weight.clone().requires_grad_()
        out = conv(x, edge_index, w)
        out.square().sum().backward()
        found[f"{name}_out"], found[f"{name}_x"] = pin(out), pin(x.grad)
        found[f"{name}_weight"] = pin(w.grad)
        found[f"{name}_lam"] = pin([grad.grad.item() for grad in conv.parameters()])
    return found


@case(rtol=1e-6)  # solved up to a residual of 1e-6 of the outputs
def path() -> Numbers:
    y_hat, edge_index, sq_dist, _ = graph()
    grid: dict[str, Any] = {"lams": [0.1, 1.0, 10.0], "taus": [0.6, 1.1]}
    points = list(glif_path(y_hat, edge_index, sq_dist, **grid, theta=None))
    found: Numbers = {f"{p.tau:g}_{p.lam:g}": pin(p.value) for p in points}
    return {**found, "status": " ".join(point.status.name for point in points)}


@case(rtol=1e-6)  # weights of the graphs are found by iteration, up to a duality gap
def worst_case() -> Numbers:
    y_hat, edge_index, _, weight = graph()
    other = fair_radius_graph(torch.from_numpy(X[:, :2]), tau=0.6)[0]
    solution = smooth_worst_case(y_hat, [(edge_index, weight), other], lam=0.5)
    found = solution.disagreement
    assert found is not None
    energy, b = pin(found.energy), pin(found.weight)
    return {"value": pin(solution.value), "energy": energy, "b": b}


@case()
def loss() -> Numbers:
    y_hat, edge_index, _, weight = graph()
    found: Numbers = {}
    for name, kind in {"plain": None, "density": "density"}.items():
        for reduction in ("sum", "mean", "consistent"):
            theta = 0.7 if reduction == "consistent" else None
            dims = 3 if theta and kind is None else None
            f = y_hat.clone().requires_grad_()
            out = LaplacianLoss(kind, reduction, theta, dims)(f, edge_index, weight)
            out.backward()
            found[f"{name}_{reduction}"] = out.item()
            found[f"{name}_{reduction}_grad"] = pin(f.grad)
    return found


@case()
def transforms() -> Numbers:
    y_hat = graph()[0]
    whole = Data(x=torch.from_numpy(X), y_hat=y_hat)
    parts = [Data(x=whole.x[i::2].clone(), y_hat=y_hat[i::2].clone()) for i in (0, 1)]
    found: Numbers = {}
    graphs = {"radius": FairRadiusGraph(1.1), "nearest": FairKNNGraph(6)}
    inputs = {"whole": whole, "batch": Batch.from_data_list(parts)}
    for name, write in graphs.items():
        smoothed = Compose([write, GLIFSmooth(0.5, normalization="density")])
        for kind, data in inputs.items():
            out = smoothed(data.clone())
            found[f"{name}_{kind}"] = pin(out.y_fair)
            found[f"{name}_{kind}_edges"] = pin(out.edge_index)
            found[f"{name}_{kind}_weight"] = pin(out.edge_weight)
    return found


@case()
def service() -> Numbers:
    with warnings.catch_warnings():  # about the version of httpx, when it is imported
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    body = {"x": X_NEW.tolist(), "y_hat": Y_NEW.tolist()}
    found: Numbers = {}
    with TemporaryDirectory() as folder:
        GLIFPostProcessor(**HOW).fit(X, Y).save(f"{folder}/fit.safetensors")
        for name, shown in {"rounded": False, "exact": True}.items():
            app = create_app(f"{folder}/fit.safetensors", show_people=shown)
            with TestClient(app, base_url="http://127.0.0.1") as client:
                answer = client.post("/v1/correct", json=body).json()
            found[name] = pin(answer["y_fair"])
            found[f"{name}_neighbors"] = pin(answer["num_neighbors"])
    return found


@case()
def distributed() -> Numbers:
    x, y_hat, _ = samples(300, seed=10)
    with TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", x)
        rows = ShardedDataset.build(f"{folder}/x", f"{folder}/x.npy", block_rows=80)
        edges = radius_graph(rows, tau=0.8, out=f"{folder}/graph")
        fair = smooth(edges, y_hat, lam=2.0, out=f"{folder}/fair")
        index = ShardedIndex.open(f"{folder}/fair")
        new = index.correct(torch.from_numpy(X_NEW), torch.from_numpy(Y_NEW))
        edge_index, sq_dist = edges.to_edges()
        value = fair.value  # read from its files
    found = {"value": pin(value), "new": pin(new), "blocks": rows.num_blocks}
    return {**found, "edges": pin(edge_index), "sq_dist": pin(sq_dist)}
