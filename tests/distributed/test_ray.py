"""The same answers on Ray, whatever is lost on the way."""

import random
import tempfile
import time

import numpy as np
import pytest
import torch

from pyg_glif.distributed import (
    InProcess,
    RayEngine,
    ShardedDataset,
    ShardedIndex,
    radius_graph,
    smooth,
)
from pyg_glif.errors import DamagedFileError
from pyg_glif.solvers import CG
from tests.distributed import faults
from tests.distributed.samples import (
    degree_radius,
    embedding_like,
    write_rows,
    write_scores,
)
from tests.oracles_radius import brute_force_edges

ray = pytest.importorskip("ray")

# Ray's own processes write to files that it closes when it is collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
]

NUM, WIDTH = 2400, 48


@pytest.fixture(scope="module")
def cluster():
    """A cluster with three cores and few resources, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="glif", dir="/tmp") as temp:
        engine = RayEngine(
            num_workers=2,
            num_cpus=3,
            object_store_memory=100 << 20,
            _temp_dir=temp,
        )
        engine.num_workers  # noqa: B018
        next(iter(engine.run(abs, [1], "start")))
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def dataset(cluster, folder):
    x = embedding_like(NUM, WIDTH)
    ids = np.arange(NUM) * 3
    rows = write_rows(folder / "rows", x, ids, group=300)
    options = {"features": "emb", "id": "id", "block_rows": 160}
    built = ShardedDataset.build(
        folder / "dataset", rows, engine=RayEngine(num_workers=2), **options
    )
    tau = degree_radius(x, 12)
    expected, _ = brute_force_edges(x.astype(np.float64), tau, None)
    return built, tau, expected, ids, (rows, options)


@pytest.fixture(scope="module")
def solved(dataset, folder):
    """A solve in this process, to compare with."""
    built, tau, _, ids, _ = dataset
    y = np.random.default_rng(0).random((NUM, 2))
    path = write_scores(folder / "scores.parquet", y, ids)
    graph = radius_graph(built, tau, out=folder / "graph", engine="process")
    options = {"lam": 200.0, "solver": CG(deflate=False)}
    fair = smooth(graph, path, out=folder / "fair", engine="process", **options)
    return graph, path, options, fair


def assert_same(fair, other):
    gap = (fair.value - other.value).norm(dim=0)
    assert (gap <= fair.error_bound + other.error_bound).all()
    assert fair.status.name == "CONVERGED"


def test_build_on_ray_writes_the_same_files(dataset, folder):
    built, _, _, _, (rows, options) = dataset
    here = ShardedDataset.build(folder / "here", rows, engine=InProcess(), **options)
    assert here.manifest["blocks"] == built.manifest["blocks"]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_radius_graph_on_ray_is_that_of_one_machine(dataset, folder, num_workers):
    built, tau, expected, _, _ = dataset
    engine = RayEngine(num_workers=num_workers)
    graph = radius_graph(built, tau, out=folder / f"g{num_workers}", engine=engine)
    edges, _ = graph.to_edges()
    assert edges.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_smooth_on_ray_is_within_its_bound(solved, folder, num_workers):
    graph, path, options, here = solved
    engine = RayEngine(num_workers=num_workers)
    out = folder / f"fair-{num_workers}"
    fair = smooth(graph, path, out=out, engine=engine, **options)
    assert len(fair.manifest["parts"]) == num_workers
    assert_same(fair, here)


def test_new_samples_on_ray_get_the_same_outputs(solved, dataset, folder):
    _, _, _, here = solved
    x = torch.from_numpy(embedding_like(NUM, WIDTH)[:40]) + 0.01
    y = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    expected = ShardedIndex(here, engine="process").correct(x, y)
    found = ShardedIndex(here, engine=RayEngine(num_workers=2)).correct(x, y)
    assert torch.equal(found, expected)


def test_a_killed_worker_changes_nothing(dataset, folder):
    built, tau, expected, _, _ = dataset
    picks = random.Random(1)
    with faults.Killer("_call", [0.05, 0.2], picks) as killer:
        graph = radius_graph(
            built, tau, out=folder / "killed", engine=RayEngine(num_workers=2)
        )
    assert killer.killed
    edges, _ = graph.to_edges()
    assert edges.numpy().tobytes() == expected.tobytes()


def test_a_member_lost_in_the_middle_of_a_solve_changes_nothing(solved, folder):
    graph, path, options, here = solved
    # Slow enough to be hit in the middle: files after every other iteration.
    engine = RayEngine(num_workers=2, checkpoint_every=2)
    out, picks = folder / "lost", random.Random(2)
    with faults.Killer("_Actor.run", [0.7], picks) as killer:
        fair = smooth(graph, path, out=out, engine=engine, **options)
    assert killer.killed
    assert engine.num_rebuilds >= 1
    assert_same(fair, here)


def test_errors_of_tasks_are_raised_unchanged(dataset, folder):
    built, tau, expected, _, _ = dataset
    faults.damage(folder / "dataset" / "blocks" / "00003.bounds.npy", "flipped")
    with pytest.raises(DamagedFileError, match=r"00003\.bounds\.npy"):
        radius_graph(built, tau, out=folder / "d", engine=RayEngine(num_workers=2))
    rows, options = dataset[4]
    again = ShardedDataset.build(
        folder / "dataset", rows, engine=RayEngine(num_workers=2), **options
    )
    graph = radius_graph(again, tau, out=folder / "d", engine=RayEngine(num_workers=2))
    assert graph.to_edges()[0].numpy().tobytes() == expected.tobytes()


def test_engine_is_ray_where_the_process_is_connected(dataset):
    from pyg_glif.distributed.engine import as_engine

    assert isinstance(as_engine(None), RayEngine)
    assert isinstance(as_engine("process"), InProcess)
    assert repr(RayEngine("1.2.3.4:5")) == "RayEngine(address='1.2.3.4:5')"


def test_silent_address_is_given_up_soon(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:9'.* does not answer"):
        RayEngine("127.0.0.1:9").num_workers  # noqa: B018
    # 192.0.2.0/24 is set aside for examples: packets to it are lost.
    with pytest.raises(ConnectionError, match=r"'address' must be that of a Ray"):
        RayEngine("192.0.2.1:6379", timeout=2.0).num_workers  # noqa: B018
    assert time.monotonic() - start < 30
