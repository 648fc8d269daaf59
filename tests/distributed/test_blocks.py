"""Samples in blocks in the calling process, against one machine and dense oracles."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif import GLIFPostProcessor, fair_radius_graph
from pyg_glif.distances import CallableDistance, Euclidean, SensitiveSubspace
from pyg_glif.distributed import (
    InProcess,
    ShardedDataset,
    ShardedGraph,
    ShardedIndex,
    ShardedSolution,
    _search as search_module,
    plan,
    planning,
    radius_graph,
    smooth,
)
from pyg_glif.distributed._store import FORMAT, Store
from pyg_glif.distributed.engine import as_engine
from pyg_glif.errors import ConvergenceError, DamagedFileError, MemoryBudgetError
from pyg_glif.links import Logit
from pyg_glif.solvers import CG
from tests.distributed.faults import damage
from tests.distributed.samples import (
    CLOUDS,
    degree_radius,
    embedding_like,
    isotropic,
    write_rows,
    write_scores,
)
from tests.distributed.threads import ThreadEngine
from tests.oracles_radius import brute_force_edges

NUM, WIDTH = 1500, 96


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("blocks")


@pytest.fixture(scope="module")
def dataset(folder):
    """Embedding-like samples with texts as ids, in six blocks, and their graph."""
    x = embedding_like(NUM, WIDTH)
    ids = np.array([f"p{i}" for i in np.random.default_rng(1).permutation(NUM)])
    rows = write_rows(folder / "rows", x, ids, group=130)
    built = ShardedDataset.build(
        folder / "dataset", rows, features="emb", id="id", block_rows=260
    )
    tau = degree_radius(x, 12)
    graph = radius_graph(built, tau, out=folder / "graph")
    return built, graph, x, ids, tau


def dense_solution(x, y, tau, theta, lam, normalization):
    """The definition, in dense float64 algebra."""
    edges, sq = brute_force_edges(x.astype(np.float64), tau, None)
    W = np.zeros((len(x), len(x)))
    W[edges[0], edges[1]] = np.exp(-theta * sq)
    scale = 1.0
    if normalization == "density":
        deg = W.sum(1) + 1.0
        scale = deg.mean()
        W = W / np.sqrt(np.outer(deg, deg))
    L = np.diag(W.sum(1)) - W
    return np.linalg.solve(np.eye(len(x)) + lam * scale * L, y)


def test_blocks_hold_all_samples_once(dataset):
    built, _, x, ids, _ = dataset
    assert built.num_blocks > 4
    assert repr(built) == (
        f"ShardedDataset(num_samples={NUM}, num_features={WIDTH}, "
        f"num_blocks={built.num_blocks})"
    )
    place = np.concatenate([built.place(b) for b in range(built.num_blocks)])
    assert sorted(place) == list(range(NUM))
    z = torch.cat([built.block(b).points.z for b in range(built.num_blocks)])
    np.testing.assert_array_equal(z.numpy(), x[place])
    found = np.concatenate([part for _, part in built.ids()])
    assert [one.decode() for one in found] == list(ids)


def test_neighbors_are_in_the_same_block_more_often_than_by_chance(dataset):
    built, graph, _, _, _ = dataset
    inside = 0
    for block in range(built.num_blocks):
        start, stop = built.starts[block : block + 2]
        _, col, _ = graph.shard(block)
        inside += int(((col >= start) & (col < stop)).sum())
    assert inside / graph.num_edges > 3 / built.num_blocks


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    ("dtype", "strategy"),
    [("float32", "projected"), ("float64", "projected"), ("float32", "plain")],
)
def test_radius_graph_is_that_of_one_machine(cloud, dtype, strategy, tmp_path):
    x = CLOUDS[cloud](700, 80).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    tau = degree_radius(x, 10)
    dataset = ShardedDataset.build(tmp_path / "p", tmp_path / "x.npy", block_rows=150)
    graph = radius_graph(dataset, tau, out=tmp_path / "g", strategy=strategy)
    edges, sq = graph.to_edges()
    here = fair_radius_graph(torch.from_numpy(x), tau)[0]
    assert edges.numpy().tobytes() == here.numpy().tobytes()
    expected, sq_expected = brute_force_edges(x.astype(np.float64), tau, None)
    np.testing.assert_array_equal(edges.numpy(), expected)
    rtol = 2e-6 * (80 + 16) if dtype == "float32" else 1e-12
    np.testing.assert_allclose(sq.numpy(), sq_expected, rtol=rtol, atol=1e-30)
    if strategy == "projected":
        other = fair_radius_graph(torch.from_numpy(x), tau, strategy=strategy)[1]
        assert sq.numpy().tobytes() == other.numpy().tobytes()


@settings(max_examples=10, deadline=None)
@given(
    num=st.integers(1, 90),
    width=st.integers(1, 5),
    block=st.integers(12, 60),
    shift=st.sampled_from([0.0, 1e3, -1e6]),
    num_graphs=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 2**16),
)
def test_radius_graph_of_any_samples(
    num, width, block, shift, num_graphs, seed, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("any")
    random = np.random.default_rng(seed)
    x = random.integers(-3, 4, (num, width)).astype(np.float32) + np.float32(shift)
    batch = None if num_graphs is None else random.integers(0, num_graphs, num)
    ids = np.arange(num)
    rows = write_rows(folder, x, ids, files=1, batch=batch)
    dataset = ShardedDataset.build(
        folder / "p",
        rows,
        features="emb",
        id="id",
        batch=None if batch is None else "graph",
        block_rows=block,
    )
    edges, _ = radius_graph(dataset, 2.0, out=folder / "g").to_edges()
    expected, _ = brute_force_edges(x.astype(np.float64), 2.0, batch)
    np.testing.assert_array_equal(edges.numpy(), expected)


def test_radius_graph_in_fair_space(tmp_path):
    x = embedding_like(400, 12)
    np.save(tmp_path / "x.npy", x)
    distance = SensitiveSubspace(torch.eye(12)[:2])
    dataset = ShardedDataset.build(
        tmp_path / "p", tmp_path / "x.npy", distance=distance, block_rows=90
    )
    edges, _ = radius_graph(dataset, 0.5, out=tmp_path / "g").to_edges()
    expected, _ = brute_force_edges(x[:, 2:].astype(np.float64), 0.5, None)
    np.testing.assert_array_equal(edges.numpy(), expected)
    again = ShardedDataset.open(tmp_path / "p").distance
    torch.testing.assert_close(
        again.embed(torch.from_numpy(x)), distance.embed(torch.from_numpy(x))
    )


@pytest.mark.parametrize("num_parts", [1, 2, 3])
@pytest.mark.parametrize("normalization", [None, "density"])
def test_smooth_is_within_its_bound_of_the_definition(
    dataset, folder, num_parts, normalization
):
    _, graph, x, ids, tau = dataset
    random = np.random.default_rng(2)
    y, order = random.random((NUM, 3)), random.permutation(NUM)
    path = write_scores(folder / f"s{num_parts}.parquet", y[order], ids[order])
    fair = smooth(
        graph,
        path,
        lam=5.0,
        theta=0.7,
        normalization=normalization,
        out=folder / f"fair-{num_parts}-{normalization}",
        engine=ThreadEngine(num_parts),
    )
    exact = dense_solution(x, y, tau, 0.7, 5.0, normalization)
    error = np.linalg.norm(fair.value.numpy() - exact, axis=0)
    # Squared distances carry float32 errors, which weights inherit.
    slack = 1e-4 * np.linalg.norm(exact, axis=0)
    assert (error <= fair.error_bound.numpy() + slack).all()
    assert fair.status.name == "CONVERGED"
    assert (fair.residual <= 1e-6 * torch.from_numpy(y).norm(dim=0)).all()
    assert len(fair.manifest["parts"]) == num_parts
    assert fair.columns == ["score_0", "score_1", "score_2"]
    table = pq.read_table(fair.files[0])
    assert table.column("id").to_pylist()[:50] == list(ids[:50])


def test_parts_take_the_same_steps_as_one_machine(dataset, folder):
    _, graph, _, ids, _ = dataset
    y = np.random.default_rng(3).random((NUM, 2))
    path = write_scores(folder / "steps.parquet", y, ids)
    found = [
        smooth(
            graph,
            path,
            lam=50.0,
            out=folder / f"steps-{parts}",
            engine=ThreadEngine(parts),
        )
        for parts in (1, 3)
    ]
    assert abs(found[0].num_iter - found[1].num_iter) <= 1
    gap = (found[0].value - found[1].value).norm(dim=0)
    assert (gap <= found[0].error_bound + found[1].error_bound).all()


def test_smooth_keeps_isolated_samples_and_sums(dataset, folder):
    _, graph, _, ids, _ = dataset
    y = np.random.default_rng(4).random((NUM, 1))
    path = write_scores(folder / "sums.parquet", y, ids)
    fair = smooth(
        graph, path, lam=3.0, out=folder / "sums", engine=ThreadEngine(2)
    ).value
    edges, _ = graph.to_edges()
    isolated = torch.bincount(edges[0], minlength=NUM) == 0
    assert torch.equal(fair[isolated], torch.from_numpy(y)[isolated, 0])
    torch.testing.assert_close(fair.sum(), torch.tensor(y.sum()), rtol=1e-6, atol=0)
    same = smooth(graph, path, lam=0.0, out=folder / "zero").value
    assert torch.equal(same, torch.from_numpy(y)[:, 0])


def test_arrays_in_memory_are_taken_like_files(tmp_path):
    random = np.random.default_rng(7)
    x, y = random.normal(size=(60, 3)), random.random(60)
    dataset = ShardedDataset.build(tmp_path / "p", x, block_rows=20)
    again = ShardedDataset.build(tmp_path / "p", torch.from_numpy(x), block_rows=20)
    assert again.manifest == dataset.manifest
    other = ShardedDataset.build(tmp_path / "p", x + 1.0, block_rows=20)
    assert other.manifest["key"] != dataset.manifest["key"]
    dataset = ShardedDataset.build(tmp_path / "p", x, block_rows=20)
    graph = radius_graph(dataset, 1.0, out=tmp_path / "g")
    np.testing.assert_array_equal(
        graph.to_edges()[0].numpy(), brute_force_edges(x, 1.0, None)[0]
    )
    exact = dense_solution(x, y[:, None], 1.0, 0.5, 2.0, None)
    for name, outputs in (("vector", y), ("column", torch.from_numpy(y[:, None]))):
        fair = smooth(graph, outputs, lam=2.0, theta=0.5, out=tmp_path / name)
        assert fair.value.shape == outputs.shape
        np.testing.assert_allclose(
            fair.value.numpy(), exact.reshape(outputs.shape), atol=1e-5
        )
    with pytest.raises(ValueError, match="'y_hat' must have one row for each of 60"):
        smooth(graph, y[:50], out=tmp_path / "short")


def test_an_address_is_that_of_ray():
    assert repr(as_engine(None, "1.2.3.4:5")) == "RayEngine(address='1.2.3.4:5')"
    assert repr(as_engine("ray", "1.2.3.4:5")) == "RayEngine(address='1.2.3.4:5')"
    with pytest.raises(ValueError, match="'address' must be None unless the engine is"):
        as_engine("process", "1.2.3.4:5")


def test_smooth_with_a_link_is_the_post_processor(dataset, folder):
    _, graph, x, ids, tau = dataset
    y = np.random.default_rng(5).uniform(0.1, 0.9, (NUM, 1))
    path = write_scores(folder / "link.parquet", y, ids)
    fair = smooth(graph, path, lam=2.0, link=Logit(), out=folder / "link")
    post = GLIFPostProcessor(tau=tau, lam=2.0, link=Logit(), solver=CG())
    expected = post.fit_transform(torch.from_numpy(x), torch.from_numpy(y))
    torch.testing.assert_close(fair.value, expected[:, 0], rtol=0, atol=1e-5)


def test_nrw_is_refused_where_there_is_no_minimum(dataset, folder):
    _, graph, _, ids, _ = dataset
    y = np.random.default_rng(6).random((NUM, 1))
    path = write_scores(folder / "nrw.parquet", y, ids)
    for parts in (1, 2):
        with pytest.raises(ConvergenceError, match=r"not positive|cannot be shown"):
            smooth(
                graph,
                path,
                lam=1e4,
                normalization="nrw",
                out=folder / "nrw",
                engine=ThreadEngine(parts),
            )


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
def test_new_samples_are_corrected_as_by_the_post_processor(
    dataset, folder, normalization
):
    _, graph, x, ids, tau = dataset
    random = np.random.default_rng(7)
    y = random.random((NUM, 2))
    path = write_scores(folder / "known.parquet", y, ids)
    options = {"lam": 0.2, "normalization": normalization, "solver": CG(rtol=1e-9)}
    fair = smooth(graph, path, out=folder / f"known-{normalization}", **options)
    new = x[:200] + 0.02 * random.normal(size=(200, WIDTH)).astype(np.float32)
    new[:3] += 1000.0
    y_new = torch.from_numpy(random.random((200, 2)))
    post = GLIFPostProcessor(tau=tau, **options)
    post.fit(torch.from_numpy(x), torch.from_numpy(y))
    info = post.transform_info(torch.from_numpy(new), y_new)
    expected = info.value
    index = ShardedIndex.open(folder / f"known-{normalization}")
    x_new = torch.from_numpy(new)
    found, counts = index.correct(x_new, y_new), index.num_neighbors(x_new)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert torch.equal(counts, info.num_neighbors)
    assert torch.equal(found[:3], y_new[:3])
    one = index.correct(torch.from_numpy(new[5:6]), y_new[5:6])
    torch.testing.assert_close(one, expected[5:6], rtol=0, atol=1e-6)
    assert fair.status.name == "CONVERGED"


@pytest.fixture
def small(tmp_path):
    """Few samples in blocks, a function that makes their graph, and the truth."""
    x = embedding_like(600, 20)
    np.save(tmp_path / "x.npy", x)
    tau = degree_radius(x, 8)

    def build():
        return ShardedDataset.build(tmp_path / "p", tmp_path / "x.npy", block_rows=120)

    def search():
        return radius_graph(build(), tau, out=tmp_path / "g")

    expected, _ = brute_force_edges(x.astype(np.float64), tau, None)
    return build, search, expected, tmp_path


@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_a_damaged_shard_of_edges_is_refused_and_made_anew(small, how):
    _, search, expected, folder = small
    graph = search()
    what = {"truncated": "sq", "flipped": "col", "deleted": "ptr"}[how]
    damage(folder / "g" / "edges" / f"00002.{what}.npy", how)
    with pytest.raises(DamagedFileError, match=rf"00002\.{what}\.npy"):
        graph.shard(2)
    again = search()
    np.testing.assert_array_equal(again.to_edges()[0].numpy(), expected)
    # One block against the others, not all samples against all samples.
    assert again.tasks.run == 1
    assert search().tasks.run == 0


@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_a_damaged_block_of_samples_is_refused_and_built_anew(small, how):
    build, search, expected, folder = small
    dataset = build()
    damage(folder / "p" / "blocks" / "00001.rows.npy", how)
    with pytest.raises(DamagedFileError, match=r"00001\.rows\.npy"):
        radius_graph(dataset, 1.0, out=folder / "other", strategy="plain")
    np.testing.assert_array_equal(search().to_edges()[0].numpy(), expected)


@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_a_search_that_stopped_goes_on_and_runs_missing_tiles_only(
    small, how, monkeypatch
):
    _, search, expected, folder = small
    merge = search_module._merge

    def stop(job, sources, block):
        raise KeyboardInterrupt

    monkeypatch.setattr(search_module, "_merge", stop)
    with pytest.raises(KeyboardInterrupt):
        search()
    monkeypatch.setattr(search_module, "_merge", merge)
    damage(folder / "g" / "work" / "000003.pairs.npy", how)
    (folder / "g" / "work" / "000001.json").unlink()
    graph = search()
    np.testing.assert_array_equal(graph.to_edges()[0].numpy(), expected)
    assert (graph.tasks.run, graph.tasks.reused) == (2, 3)


def test_a_task_that_runs_twice_gives_one_shard(small, monkeypatch):
    _, search, expected, _ = small
    once = search_module._search

    def twice(job, task):
        once(job, task)
        name = f"work/{task.number:06d}.json"
        before = job.store.read_json(name)
        job.store.remove(name)
        once(job, task)
        assert job.store.read_json(name) == before
        return True

    monkeypatch.setattr(search_module, "_search", twice)
    np.testing.assert_array_equal(search().to_edges()[0].numpy(), expected)


def test_a_full_disk_is_named_and_the_search_goes_on_later(small, monkeypatch):
    _, search, expected, _ = small
    save, calls = Store.save, []

    def full(self, name, array):
        calls.append(name)
        if len(calls) == 12:
            raise OSError(28, "No space left on device", self.path(name))
        return save(self, name, array)

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(OSError, match=r"No space left on device.*npy"):
        search()
    monkeypatch.setattr(Store, "save", save)
    np.testing.assert_array_equal(search().to_edges()[0].numpy(), expected)


def test_a_solve_goes_on_from_its_checkpoint(dataset, folder, monkeypatch):
    _, graph, _, ids, _ = dataset
    y = np.random.default_rng(8).random((NUM, 1))
    path = write_scores(folder / "stop.parquet", y, ids)
    engine = InProcess(checkpoint_every=5)
    options = {"lam": 300.0, "engine": engine, "solver": CG(deflate=False)}
    whole = smooth(graph, path, out=folder / "whole", **options)
    assert whole.num_iter > 30
    limit = CG(deflate=False, max_iter=22)
    # The same solve, but for the name of its solver: stopped, its files stay.
    from pyg_glif.distributed import smoothing

    monkeypatch.setattr(smoothing, "describe", lambda solver: "one of them")
    with pytest.raises(ConvergenceError):
        smooth(graph, path, out=folder / "stop", **(options | {"solver": limit}))
    fair = smooth(graph, path, out=folder / "stop", **options)
    assert fair.manifest["solution"]["restarts"] == 1
    assert fair.num_iter < whole.num_iter
    assert not (folder / "stop" / "work").exists()
    gap = (fair.value - whole.value).norm(dim=0)
    assert (gap <= fair.error_bound + whole.error_bound).all()


def test_headers_are_read_by_one_thread_at_a_time(tmp_path, monkeypatch):
    store, load, inside = Store(tmp_path), np.load, []
    record = store.save("a.npy", np.arange(3))

    def slow(*args, **kwargs):
        inside.append(True)
        time.sleep(0.02)
        assert len(inside) == 1
        inside.pop()
        return load(*args, **kwargs)

    monkeypatch.setattr(np, "load", slow)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(store.load, [record] * 4))
    assert [len(array) for array in found] == [3] * 4


def test_remote_folders_hold_the_same(tmp_path):
    x = embedding_like(300, 10)
    np.save(tmp_path / "x.npy", x)
    tau = degree_radius(x, 6)
    dataset = ShardedDataset.build("memory://glif/p", tmp_path / "x.npy", block_rows=80)
    graph = radius_graph(dataset, tau, out="memory://glif/g")
    expected, _ = brute_force_edges(x.astype(np.float64), tau, None)
    np.testing.assert_array_equal(graph.to_edges()[0].numpy(), expected)
    np.save(tmp_path / "y.npy", x[:, :1])
    fair = smooth(graph, tmp_path / "y.npy", out="memory://glif/f")
    again = ShardedSolution.open("memory://glif/f")
    assert torch.equal(fair.value, again.value)
    assert ShardedGraph.open("memory://glif/g").num_edges == graph.num_edges


# Bad input


def test_nan_in_shard_17_is_named(tmp_path):
    x = embedding_like(400, 6)
    x[17 * 20 + 11, 4] = np.nan
    rows = write_rows(tmp_path, x, np.arange(400), files=20)
    with pytest.raises(ValueError, match=r"got nan in row 11 of .*rows-17\.parquet"):
        ShardedDataset.build(tmp_path / "p", rows, features="emb", id="id")


class OddRow(Euclidean):
    """Puts one sample nowhere, and all others far out."""

    def embed(self, x):
        z = super().embed(x) * 1e37
        return torch.where(x[:, :1] == 5.0, torch.nan, z)


def test_coordinates_that_are_no_numbers_are_named(tmp_path):
    rows = np.full((200, 8), 3.0, np.float32)
    np.save(tmp_path / "x.npy", rows)
    # Finite, though their sum is not.
    built = ShardedDataset.build(
        tmp_path / "p", tmp_path / "x.npy", distance=OddRow(), block_rows=50
    )
    assert built.num_samples == 200
    rows[130] = 5.0
    np.save(tmp_path / "x.npy", rows)
    with pytest.raises(ValueError, match=r"as finite numbers \(got row 130 of"):
        ShardedDataset.build(
            tmp_path / "p", tmp_path / "x.npy", distance=OddRow(), block_rows=50
        )


def test_plan_carries_on_what_pruning_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "_SIZES", (1000, 2000, 4000, 8000))
    np.save(tmp_path / "x.npy", embedding_like(9000, 32))
    found = plan(tmp_path / "x.npy", num_samples=80_000, workers=5, cores=4)
    left = [found.left[size] for size in (1000, 2000, 4000, 8000)]
    assert left == sorted(left, reverse=True)
    pairs = {size: share * size**2 for size, share in found.left.items()}
    growth = np.log(pairs[8000] / pairs[2000]) / np.log(4)
    assert found.exponent == pytest.approx(growth)
    expected = found.measured * 10**growth / 20 / 0.7
    assert found.search_hours * 3600 == pytest.approx(expected)
    # What it counts depends on the rows, not on how busy the machine is.
    assert plan(tmp_path / "x.npy", num_samples=80_000).left == found.left


def test_plan_without_pruning_grows_by_the_square(tmp_path):
    np.save(tmp_path / "x.npy", isotropic(300, 64))
    found = plan(tmp_path / "x.npy", num_samples=3000, tau=100.0)
    assert (found.exponent, set(found.left)) == (2.0, {300})


def test_mismatched_shards_are_named(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 3), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((5, 4), np.float32))
    message = r"'rows' must have the same columns .*3 numbers .*a\.npy.*4 .*b\.npy"
    with pytest.raises(ValueError, match=message):
        ShardedDataset.build(tmp_path / "p", [tmp_path / "a.npy", tmp_path / "b.npy"])


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_duplicate_ids_are_named(tmp_path, kind):
    x, ids = embedding_like(60, 4), np.arange(60)
    ids[41] = ids[7]
    if kind == "texts":
        ids = np.array([f"p{i}" for i in ids])
    rows = write_rows(tmp_path, x, ids)
    with pytest.raises(ValueError, match=r"'id' must be different .*7'? in rows 7 and"):
        ShardedDataset.build(tmp_path / "p", rows, features="emb", id="id")


def test_missing_ids_are_named(tmp_path):
    x = embedding_like(30, 4)
    rows = write_rows(tmp_path, x, np.arange(30), files=1)
    with pytest.raises(ValueError, match="must have the column 'who'"):
        ShardedDataset.build(tmp_path / "p", rows, features="emb", id="who")
    table = pq.read_table(tmp_path / "rows-00.parquet")
    gaps = pa.array([None if i == 9 else i for i in range(30)])
    pq.write_table(table.set_column(0, "id", gaps), tmp_path / "rows-00.parquet")
    with pytest.raises(ValueError, match=r"must have id in every row .*none in row 9"):
        ShardedDataset.build(tmp_path / "p", rows, features="emb", id="id")


def test_outputs_must_be_of_the_same_samples(dataset, folder):
    _, graph, _, ids, _ = dataset
    y = np.zeros((NUM, 1))
    cases = {
        "unknown": (np.concatenate([ids[:-1], ["nobody"]]), "no others .*'nobody'"),
        "twice": (np.concatenate([ids[:-1], ids[:1]]), f"once .*'{ids[0]}' twice"),
    }
    for name, (wrong, message) in cases.items():
        path = write_scores(folder / f"{name}.parquet", y, wrong)
        with pytest.raises(ValueError, match=message):
            smooth(graph, path, out=folder / name)
    path = write_scores(folder / "few.parquet", y[1:], ids[1:])
    with pytest.raises(ValueError, match=f"one row for each of {NUM} samples"):
        smooth(graph, path, out=folder / "few")


def test_folders_of_other_versions_and_kinds_are_refused(small):
    build, search, _, folder = small
    build()
    with pytest.raises(DamagedFileError, match="must be a folder of edges"):
        ShardedGraph.open(folder / "p")
    with pytest.raises(FileNotFoundError, match="got no manifest"):
        ShardedDataset.open(folder / "nowhere")
    store = Store(folder / "p")
    manifest = store.read_json("manifest.json")
    store.write_json("manifest.json", {**manifest, "format": 99})
    with pytest.raises(DamagedFileError, match=rf"format {FORMAT} \(got 99\). Build"):
        ShardedDataset.open(folder / "p")
    path = folder / "p" / "manifest.json"
    path.write_text(path.read_text().replace("99", str(FORMAT)))
    with pytest.raises(DamagedFileError, match=r"manifest\.json' must be as it was"):
        ShardedDataset.open(folder / "p")
    graph = search()
    np.save(folder / "other.npy", np.zeros((3, 20), np.float32))
    other = ShardedDataset.build(folder / "q", folder / "other.npy")
    with pytest.raises(ValueError, match="must be the graph of this dataset"):
        ShardedGraph.open(folder / "g", other)
    assert json.loads((folder / "g" / "manifest.json").read_text())["data"]["versions"]
    assert graph.num_edges


def test_what_would_not_fit_is_refused_before_any_work(small):
    build, _, _, folder = small
    with pytest.raises(MemoryBudgetError, match="'tau' = 100 gives up to"):
        radius_graph(build(), 100.0, out=folder / "big", memory_budget=1 << 20)
    assert not os.path.exists(folder / "big" / "work")


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"rows": "nothing-*.npy"}, FileNotFoundError, "'rows' must name files"),
        ({"id": "id"}, ValueError, "'id' must be None for .npy files"),
        ({"block_rows": 0}, ValueError, "'block_rows' must be at least 1"),
        ({"engine": "spark"}, ValueError, "'engine' must be an Engine"),
        (
            {"distance": CallableDistance(torch.cdist)},
            TypeError,
            "'distance' must have an embedding",
        ),
    ],
)
def test_build_rejects(tmp_path, kwargs, error, message):
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    arguments = {"out": tmp_path / "p", "rows": tmp_path / "x.npy"} | kwargs
    with pytest.raises(error, match=message):
        ShardedDataset.build(**arguments)
