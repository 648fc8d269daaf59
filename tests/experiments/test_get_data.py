"""Files of the experiments: where they come from, how they are cut, their checksums."""

import csv
import gzip
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import get_data
from experiments.datasets.sensitive_graph import SensitiveGraph
from experiments.get_data import CUTS, digest, get, main, near_pairs, state

SharedData = Callable[[str], Path]
ALL = [cut for cuts in CUTS.values() for cut in cuts]


@pytest.mark.dataset
@pytest.mark.parametrize("cut", ALL, ids=lambda cut: cut.path)
def test_checksums_are_those_of_the_files_used(
    cut: get_data.Cut, shared_data: SharedData
) -> None:
    folder = shared_data(cut.path).parents[cut.path.count("/")]
    assert state(cut, folder) == "ours"


def test_every_file_names_its_source_and_terms() -> None:
    assert len({cut.path for cut in ALL}) == len(ALL)
    for cut in ALL:
        assert cut.source
        assert cut.terms
        assert len(cut.sha256) == 64
        assert (cut.make is None) == (not cut.urls)
        assert all(url.startswith("https://") for url in cut.urls.values())


def test_the_checksum_is_of_the_content_and_not_of_the_compression() -> None:
    text = b"a,b\n1,2\n" * 50
    fast, best = (gzip.compress(text, level, mtime=level) for level in (1, 9))
    assert fast != best
    assert digest("x.csv.gz", fast) == digest("x.csv.gz", best)
    assert digest("x.csv.gz", fast) == digest("x.csv", text)
    assert digest("x.csv.gz", gzip.compress(text + b"3,4\n")) != digest("x.csv", text)
    edges = np.arange(6, dtype=np.int32).reshape(2, 3)
    plain, packed, other = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(plain, edge_index=edges)
    np.savez_compressed(packed, edge_index=edges)
    np.savez(other, edge_index=edges.astype(np.int64))
    digests = [digest("e.npz", f.getvalue()) for f in (plain, packed, other)]
    assert digests[0] == digests[1] != digests[2]


def _cells(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.reader(file))


def _adult(data: Path) -> dict[str, str]:
    """The census as UCI has it: spaces, a remark, full stops behind test labels."""
    _, *rows = _cells(data / "tabular" / "adult.csv.gz")
    train = [", ".join(row[:-1]) for row in rows if row[-1] == "train"]
    test = [", ".join(row[:-1]) + "." for row in rows if row[-1] == "test"]
    return {
        "adult.data": "\n".join([*train, "", ""]),
        "adult.test": "\n".join(["|1x3 Cross validator", *test, "", ""]),
    }


def _german(data: Path) -> dict[str, str]:
    _, *rows = _cells(data / "tabular" / "german.csv.gz")
    return {"german.data": "".join(" ".join(row) + " \n" for row in rows)}


def _nifty_german(data: Path) -> dict[str, str]:
    """A table with the line ends of another system, edges as NumPy writes them."""
    folder = data / "graphs" / "german"
    lines = [",".join(row) for row in _cells(folder / "nodes.csv.gz")]
    edges = np.load(folder / "edges.npz")["edge_index"].T.astype(float)
    text = io.StringIO()
    np.savetxt(text, np.random.default_rng(0).permutation(edges))
    return {"german.csv": "\r\n".join(lines), "german_edges.txt": text.getvalue()}


def _nba(data: Path) -> dict[str, str]:
    """Players with numbers of accounts in no order, and links by those."""
    folder = data / "graphs" / "nba"
    header, *rows = _cells(folder / "nodes.csv.gz")
    accounts = np.random.default_rng(0).permutation(10 * len(rows))[: len(rows)]
    lines = [",".join(["user_id", *header])]
    lines += [",".join([str(a), *row]) for a, row in zip(accounts, rows, strict=True)]
    links = accounts[np.load(folder / "edges.npz")["edge_index"]].T
    return {
        "nba.csv": "\n".join(lines),
        "nba_relationship.txt": "\n".join(f"{a}\t{b}" for a, b in links[::-1]),
    }


RAW = {"adult": _adult, "german": _german, "german_graph": _nifty_german, "nba": _nba}


@pytest.mark.dataset
@pytest.mark.parametrize("name", RAW)
def test_published_files_become_our_cut(
    name: str, shared_data: SharedData, tmp_path: Path
) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    for file, text in RAW[name](shared_data("tabular").parent).items():
        (raw / file).write_bytes(text.encode())
    assert main([name, "--raw", str(raw), "--out", str(out)]) == 0
    assert {state(cut, out) for cut in CUTS[name]} == {"ours"}
    if name == "nba":
        assert SensitiveGraph(name="nba", root=str(out / "graphs" / "nba"))[0].num_nodes


def test_near_pairs_follow_their_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_data, "_BLOCK", 7)
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[5] = x[6]  # duplicates are as similar as can be
    expected = []
    for i in range(40):
        similar = [1 / (1 + np.linalg.norm(x[i] - x[j])) for j in range(40)]
        largest = max(value for j, value in enumerate(similar) if j != i)
        expected += [[i, j] for j in range(40) if j != i and similar[j] > 0.7 * largest]
    np.testing.assert_array_equal(near_pairs(x, 0.7), expected)


def test_a_graph_without_listed_edges_gets_them_by_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 2, 30), rng.normal(size=(30, 2)).round(3)])
    lines = ["RECID,A,B", *(f"{int(r)},{a},{b}" for r, a, b in rows)]
    (tmp_path / "bail.csv").write_text("\n".join(lines))
    nodes, edges = CUTS["bail"]
    contents = {"bail.csv": (tmp_path / "bail.csv").read_bytes()}
    assert nodes.make is not None
    assert edges.make is not None
    sums = [digest(cut.path, cut.make(contents)) for cut in (nodes, edges)]  # type: ignore
    mine = tuple(
        replace(cut, sha256=s) for cut, s in zip((nodes, edges), sums, strict=True)
    )
    monkeypatch.setattr(get_data, "CUTS", {"bail": mine})
    get("bail", tmp_path / "out", tmp_path)
    found = np.load(tmp_path / "out" / "graphs" / "bail" / "edges.npz")["edge_index"]
    np.testing.assert_array_equal(found.T, near_pairs(rows[:, 1:], 0.6))  # no label
    assert found.dtype == np.int32


def test_another_content_is_refused_and_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "german.data").write_text("A11 6 A34 1\n")
    with pytest.raises(SystemExit, match="2"):
        main(["german", "--raw", str(tmp_path), "--out", str(tmp_path / "out")])
    err = capsys.readouterr().err
    assert "'tabular/german.csv.gz' must have the checksum" in err
    assert not (tmp_path / "out").exists()


def test_files_that_are_there_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tabular" / "german.csv.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"mine"))
    monkeypatch.setattr(get_data, "fetch", lambda url: pytest.fail(f"fetched {url}"))
    (told,) = get("german", tmp_path)
    assert told.startswith("tabular/german.csv.gz: other. Source: UCI")
    (told,) = get("bios", tmp_path)
    assert told.startswith("bios/bias_in_bios_subset.csv.gz: missing. Source: ")
    assert gzip.decompress(path.read_bytes()) == b"mine"


def test_addresses_are_fetched_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(url: str) -> bytes:
        asked.append(url)
        return b"user_id,SALARY\n7,1\n9,0\n" if url.endswith("csv") else b"7\t9\n"

    monkeypatch.setattr(get_data, "fetch", answer)
    with pytest.raises(ValueError, match="must have the checksum"):
        get("nba", tmp_path)
    assert [url.rpartition("/")[2] for url in asked] == [
        "nba.csv",
        "nba_relationship.txt",
    ]


def test_only_https_is_fetched() -> None:
    with pytest.raises(ValueError, match="'url' must start with https://"):
        get_data.fetch("http://example.org/x")


def test_the_overview_has_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert all(cut.path in out.replace("\\_", "_") for cut in ALL)
    monkeypatch.delenv("PYG_GLIF_DATA", raising=False)
    for words in ([], ["--out", str(tmp_path), "mars"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
