"""What is used again belongs to the call that asks for it; nothing else is touched."""

import os
from dataclasses import replace

import fsspec
import numpy as np
import pytest
import torch

from pyg_glif.distances import Mahalanobis
from pyg_glif.distributed import (
    InProcess,
    ShardedDataset,
    ShardedGraph,
    ShardedIndex,
    radius_graph,
    smooth,
)
from pyg_glif.distributed._store import digest_of
from pyg_glif.errors import DamagedFileError
from tests.distributed.faults import damage
from tests.distributed.samples import write_rows, write_scores
from tests.torture.harness import Case
from tests.torture.reuse import Call, changes, differing, run_call

NUM = 48


def a_call(**settings):
    """Rows in two blocks, with ids, and one output each."""
    rng = np.random.default_rng(3)
    call = Call(
        rows=rng.normal(size=(NUM, 3)).astype(np.float32),
        ids=rng.permutation(NUM),
        y_hat=rng.random((NUM, 1)),
        named=True,
        in_memory=False,
    )
    return replace(call, **settings)


def contents(folder):
    """All files below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("what", changes(Case("reuse", 0, 0), a_call()))
def test_any_change_gives_what_a_new_folder_gives(what, tmp_path):
    first = a_call(named=what != "in memory")
    second = replace(first, **changes(Case("reuse", 1, 0), first)[what]())
    inputs, out = tmp_path / "inputs", tmp_path / "used"
    before = run_call(first, inputs, out)
    used = run_call(second, inputs, out)
    assert not differing(used, run_call(second, inputs, tmp_path / "fresh"))
    assert not differing(run_call(first, inputs, out), before)


@pytest.mark.parametrize("scale", [2.0, 0.5])
def test_tensors_of_the_distance_are_part_of_the_key(scale, tmp_path):
    one, other = (Mahalanobis(s * torch.eye(3)) for s in (1.0, scale))
    rows = a_call().rows
    ShardedDataset.build(tmp_path / "p", rows, distance=one)
    built = ShardedDataset.build(tmp_path / "p", rows, distance=other)
    z = torch.cat([built.block(b).points.z for b in range(built.num_blocks)])
    place = np.concatenate([built.place(b) for b in range(built.num_blocks)])
    expected = np.sqrt(scale) * rows[place]
    np.testing.assert_allclose(z.norm(dim=1), np.linalg.norm(expected, axis=1), 1e-5)


def test_the_same_call_writes_nothing(tmp_path):
    call = a_call(named=False)
    run_call(call, tmp_path / "inputs", tmp_path / "out")
    before = {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (tmp_path / "out").rglob("*.*")
    }
    run_call(call, tmp_path / "inputs", tmp_path / "out")
    # The same rows elsewhere are the same rows.
    run_call(call, tmp_path / "moved", tmp_path / "out")
    assert before == {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (tmp_path / "out").rglob("*.*")
    }


def test_a_graph_follows_samples_to_another_folder(tmp_path):
    rows = a_call().rows
    for name in ("old", "moved"):
        dataset = ShardedDataset.build(tmp_path / name, rows)
        graph = radius_graph(dataset, 0.8, out=tmp_path / "g")
        fair = smooth(graph, rows[:, 0], out=tmp_path / "f")
    assert graph.tasks.run == 0
    ShardedDataset.build(tmp_path / "old", 2 * rows)
    index = ShardedIndex.open(fair.store.url)
    assert index.graph.dataset.store.url == str(tmp_path / "moved")


@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_any_damaged_file_is_made_anew(how, tmp_path):
    call, out = a_call(block_rows=NUM), tmp_path / "out"
    fresh = run_call(call, tmp_path / "inputs", out)
    names = list(contents(out))
    assert any(name.startswith("fair/fit/") for name in names)
    for name in names:
        stat = (out / name).stat()
        damage(out / name, how)
        if how != "deleted":
            os.utime(out / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert not differing(run_call(call, tmp_path / "inputs", out), fresh), name
    assert list(contents(out)) == names


class Between(InProcess):
    """Runs something else once, before or after the stage of this name."""

    def __init__(self, when, stage, other):
        super().__init__(checkpoint_every=2)
        self._when, self._stage, self._other = when, stage, other

    def _at(self, when, stage):
        if (when, stage) == (self._when, self._stage) and self._other is not None:
            other, self._other = self._other, None
            other()

    def run(self, function, tasks, label):
        self._at("before", label)
        found = list(super().run(function, tasks, label))
        self._at("after", label)
        return iter(found)

    def run_group(self, function, arguments):
        self._at("before", "solve")
        results = super().run_group(function, arguments)
        self._at("after", "solve")
        return results


MINE = a_call(named=False)
# Stages, and what another call changes for them to matter.
OTHERS = {
    "reading rows": {"rows": 2.0 * MINE.rows},
    "sorting rows": {"rows": 2.0 * MINE.rows},
    "writing blocks": {"rows": 2.0 * MINE.rows},
    "check": {"tau": 1.3},
    "radius graph": {"tau": 1.3},
    "sorting edges": {"tau": 1.3},
    "solve": {"y_hat": 1.0 - MINE.y_hat},
}


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """What the first of two calls gives in a folder of its own."""
    folder = tmp_path_factory.mktemp("mine")
    return run_call(MINE, folder / "inputs", folder / "out")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("stage", OTHERS)
def test_two_calls_into_one_folder_never_get_each_others(stage, when, mine, tmp_path):
    other, out, got = replace(MINE, **OTHERS[stage]), tmp_path / "used", []

    def interrupt():
        got.append(run_call(other, tmp_path / "other", out))

    try:
        found = run_call(MINE, tmp_path / "mine", out, Between(when, stage, interrupt))
    except DamagedFileError:
        found = None
    assert found is None or not differing(found, mine)
    expected = run_call(other, tmp_path / "other", tmp_path / "fresh")
    (got,) = got
    assert not differing(got, expected)
    assert not differing(run_call(MINE, tmp_path / "mine", out), mine)
    assert not differing(run_call(other, tmp_path / "other", out), expected)


@pytest.mark.parametrize("stage", ["reading rows", "sorting rows"])
def test_rows_that_change_while_they_are_read_are_refused(stage, tmp_path):
    rows, path = a_call().rows, tmp_path / "x.npy"
    np.save(path, rows)
    engine = Between("after", stage, lambda: np.save(path, rows[::-1]))
    with pytest.raises(ValueError, match=r"'rows' must stay as it is .*x\.npy"):
        ShardedDataset.build(tmp_path / "p", path, engine=engine)
    for now in (rows, rows[::-1]):
        np.save(path, now)
        built = ShardedDataset.build(tmp_path / "p", path)
        place = np.concatenate([built.place(b) for b in range(built.num_blocks)])
        z = torch.cat([built.block(b).points.z for b in range(built.num_blocks)])
        np.testing.assert_array_equal(z.numpy(), now[place])


@pytest.fixture
def folders(tmp_path):
    """All kinds of folders, each with its own data."""
    call = a_call(named=False)
    run_call(call, tmp_path / "inputs", tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "dataset")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "manifest.json").write_text('{"name": "something else"}')
    return tmp_path


@pytest.mark.parametrize(
    ("step", "out", "message"),
    [
        ("build", "inputs", "not hold what is read .*rows"),
        ("build", ".", "not hold what is read .*rows"),
        ("build", "graph", "a new folder or one of dataset .*one of edges"),
        ("build", "fair", "a new folder or one of dataset .*one of outputs"),
        ("build", "app", "a new folder or one of dataset .*something else"),
        ("search", "dataset", "not hold what is read .*dataset"),
        ("search", "link", "not hold what is read .*dataset"),
        ("search", ".", "not hold what is read .*dataset"),
        ("search", "fair", "a new folder or one of edges .*one of outputs"),
        ("solve", "dataset", "not hold what is read .*dataset"),
        ("solve", "graph", "not hold what is read .*graph"),
        ("solve", "inputs", "not hold what is read .*outputs"),
        ("solve", "app", "a new folder or one of outputs .*something else"),
    ],
)
def test_folders_with_other_data_are_refused_and_unchanged(folders, step, out, message):
    before, where = contents(folders), folders / out
    dataset = ShardedDataset.open(folders / "dataset")
    graph = ShardedGraph.open(folders / "graph")
    inputs = folders / "inputs"
    steps = {
        "build": lambda: ShardedDataset.build(where, inputs / "rows.npy"),
        "search": lambda: radius_graph(dataset, 0.7, out=where),
        "solve": lambda: smooth(graph, inputs / "outputs.npy", out=where),
    }
    with pytest.raises(ValueError, match=f"'out' must (be )?{message}"):
        steps[step]()
    assert contents(folders) == before


@pytest.mark.parametrize("column", ["id", "graph", "outputs"])
def test_whole_numbers_from_2_to_the_63_are_refused(column, tmp_path):
    x, small = a_call().rows, np.arange(NUM, dtype=np.uint64)
    large = small.copy()
    large[5] = 2**63 + 7
    options = {"features": "emb", "id": "id", "batch": "graph"}
    ids, batch = (large if column == name else small for name in ("id", "graph"))
    rows = write_rows(tmp_path / "rows", x, ids, files=1, batch=batch)
    message = rf"must be below 2\^63 .*got {2**63 + 7} in row 5 "
    if column != "outputs":
        with pytest.raises(ValueError, match=message):
            ShardedDataset.build(tmp_path / "p", rows, **options)
        assert not contents(tmp_path / "p")
        return
    dataset = ShardedDataset.build(tmp_path / "p", rows, **options)
    graph = radius_graph(dataset, 0.8, out=tmp_path / "g")
    scores = write_scores(tmp_path / "y.parquet", x[:, :1], large)
    with pytest.raises(ValueError, match=message):
        smooth(graph, scores, out=tmp_path / "f")
    scores = write_scores(tmp_path / "y.parquet", x[:, :1], small)
    assert len(smooth(graph, scores, out=tmp_path / "f").value) == NUM


def test_contents_of_remote_files_are_distinguished():
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/remote/a", b"one")
    first = digest_of("memory://remote/a")
    fs.pipe_file("/remote/a", b"two")
    assert digest_of("memory://remote/a") != first
    fs.pipe_file("/remote/a", b"one")
    assert digest_of("memory://remote/a") == first
