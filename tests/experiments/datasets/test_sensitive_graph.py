"""The graphs of fair networks, as they are in their files."""

import gzip

import numpy as np
import pytest
import torch

from experiments.datasets import SensitiveGraph


def _write(folder, label=(1, 0, 1, 0, 1, 0, 1, 0), rows=8):
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["NoDefaultNextMonth,Age,Single,Income,Same"]
    lines += [f"{label[i]},{i % 2},1,{10 * i},3" for i in range(rows)]
    with gzip.open(folder / "nodes.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    edges = np.array([[0, 1, 2], [1, 2, 1]], dtype=np.int32)
    np.savez(folder / "edges.npz", edge_index=edges)


def test_features_are_scaled_and_edges_symmetric(tmp_path):
    _write(tmp_path / "graphs" / "credit")
    dataset = SensitiveGraph(tmp_path)
    data = dataset[0]
    assert data.feature_names == ["Age", "Income", "Same"]
    income = -1 + 2 * torch.arange(8) / 7
    expected = torch.stack([torch.tensor([0.0, 1.0] * 4), income, -torch.ones(8)], 1)
    torch.testing.assert_close(data.x, expected)
    assert data.group.tolist() == [0, 1] * 4
    assert data.y.tolist() == [1, 0] * 4
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    again = SensitiveGraph(tmp_path)[0]  # from the processed file
    torch.testing.assert_close(again.x, data.x)


def test_nothing_is_written_without_root(tmp_path, monkeypatch):
    _write(tmp_path / "data" / "graphs" / "credit")
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert len(SensitiveGraph()[0].y) == 8
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kept", [True, False])
def test_pre_transform_is_applied(tmp_path, monkeypatch, kept):
    _write(tmp_path / "graphs" / "credit")
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))

    def mark(data):
        data.marked = True
        return data

    assert SensitiveGraph(tmp_path if kept else None, pre_transform=mark)[0].marked


def test_split_takes_labels_from_both_classes(tmp_path):
    _write(tmp_path / "graphs" / "credit", label=[1] * 60 + [0] * 40, rows=100)
    dataset = SensitiveGraph(tmp_path)
    masks, y = dataset.split(3, num_labels=20), dataset[0].y
    total = masks["train"].int() + masks["val"].int() + masks["test"].int()
    assert int(total.max()) == 1
    for label, size in ((1, 60), (0, 40)):
        assert int(masks["train"][y == label].sum()) == 10
        assert int(masks["val"][y == label].sum()) == size // 4
        assert int(masks["test"][y == label].sum()) == size // 4
    for part, mask in dataset.split(3, num_labels=20).items():
        assert bool((mask == masks[part]).all())
    assert not bool((dataset.split(4, num_labels=20)["test"] == masks["test"]).all())


@pytest.mark.dataset
@pytest.mark.parametrize(
    ("name", "nodes", "features", "pairs", "ones", "members"),
    [
        ("credit", 30_000, 13, 137_377, 23_364, 2_685),
        ("bail", 18_876, 18, 311_870, 7_104, 9_559),
        ("german", 1_000, 27, 21_742, 700, 310),
        ("nba", 403, 96, 10_621, 159, 107),
    ],
)
def test_graphs_have_the_published_sizes(name, nodes, features, pairs, ones, members):
    try:
        data = SensitiveGraph(name=name)[0]
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert tuple(data.x.shape) == (nodes, features)
    assert data.edge_index.size(1) == 2 * pairs
    assert int((data.y == 1).sum()) == ones
    assert int((data.group == 1).sum()) == members
    assert data.is_undirected()
    assert float(data.x.min()) == -1.0


def test_fair_graph_refuses_bad_input(tmp_path, monkeypatch):
    monkeypatch.delenv("PYG_GLIF_DATA", raising=False)
    with pytest.raises(ValueError, match="'name' must be"):
        SensitiveGraph(name="pokec")
    with pytest.raises(FileNotFoundError, match=r"nodes\.csv\.gz"):
        SensitiveGraph(tmp_path)
    _write(tmp_path / "graphs" / "bail")
    with pytest.raises(ValueError, match="must have the columns 'RECID', 'WHITE'"):
        SensitiveGraph(tmp_path, "bail")
