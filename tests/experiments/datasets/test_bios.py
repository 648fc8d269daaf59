import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.counterfactuals import swap_gender
from experiments.datasets import Bios
from tests.experiments.datasets.laws import (
    MASKS,
    FakeEncoder,
    assert_same,
    check_laws,
    features_of,
    groups_of,
    write_csv,
)

COLUMNS = ("text", "occupation", "gender", "part")
FOLDER = "IF_Bios_BERT"
NUM, WIDTH = 60, 6


def bios() -> list[tuple[str, str, str, str]]:
    """Forty people of two occupations, and some who are left out."""
    rows = []
    for k in range(40):
        occupation, she = ("nurse", "surgeon")[k % 2], k % 3 == 0
        who = "She" if she else "He"
        part = "medical_gold" if k < 30 else "medical_confident"
        gender = "female" if she else "male"
        rows.append((f"{who} studied in {1950 + k}.", occupation, gender, part))
    rows.append(("Mary studied abroad.", "nurse", "female", "medical_gold"))
    rows.append(rows[0])  # twice
    rows.append(("He paints.", "painter", "male", "sample28"))
    return rows


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_csv(tmp_path / "bios" / "bias_in_bios_subset.csv.gz", COLUMNS, bios())
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))
    return tmp_path


def test_bios_from_text(texts: Path, encoder: FakeEncoder) -> None:
    dataset = Bios(seed=3)
    assert repr(dataset) == "Bios(source='text', seed=3)"
    assert dataset.classes == ("nurse", "surgeon")
    assert dataset.gender_names == ("female", "male")
    check_laws(dataset, num_variants=1)
    data = dataset[0]
    # 21 nurses and 20 surgeons: half of each to test, a fifth of the rest to validate.
    originals = [int((data.original & data[mask]).sum()) for mask in MASKS]
    assert originals == [17, 4, 20]
    assert int(data.original.sum()) == 41
    rows = bios()
    for k in range(data.num_nodes):
        text, occupation, gender, _ = rows[int(data.group[k])]
        text = text if data.original[k] else swap_gender(text)
        assert data.x[k].tolist() == features_of(text)
        assert dataset.classes[data.y[k]] == occupation
        assert dataset.gender_names[data.gender[k]] == gender


def test_bios_face_rows_are_training_pairs(texts: Path, encoder: FakeEncoder) -> None:
    dataset = Bios()
    train = groups_of(dataset[0], dataset[0].train_mask)
    group = dataset.face_group
    assert set(group.tolist()) == train
    expected = []
    for k in group[::2].tolist():
        text = bios()[k][0]
        expected += [features_of(text), features_of(swap_gender(text))]
    assert dataset.face_x.tolist() == expected
    limited = Bios(face_limit=5)
    assert len(limited.face_group.unique()) == 5
    assert len(limited.face_x) == 10
    assert torch.isin(limited.face_group, group).all()


def test_bios_without_anything_to_swap_is_its_own_counterfactual(
    texts: Path, encoder: FakeEncoder
) -> None:
    for seed in range(20):
        data = Bios(seed=seed)[0]
        rows = data.x[data.group == 40]
        if len(rows) == 2:
            assert torch.equal(rows[0], rows[1])
            return
    pytest.fail("never judged")


def test_bios_same_seed_same_data(texts: Path, encoder: FakeEncoder) -> None:
    assert_same(Bios(seed=1), Bios(seed=1))
    one, other = Bios(seed=1)[0], Bios(seed=2)[0]
    assert groups_of(one, one.test_mask) != groups_of(other, other.test_mask)


def test_bios_options(texts: Path, encoder: FakeEncoder) -> None:
    gold = Bios(gold_only=True)[0]
    assert int(gold.original.sum()) == 31
    few = [Bios(limit=limit, seed=seed) for seed in (0, 1) for limit in (10, 0.25)]
    assert [int(d[0].original.sum()) for d in few] == [10, 11, 10, 11]
    assert all(d.classes == ("nurse", "surgeon") for d in few)
    shares = Bios(test_share=0.25, val_share=0.0)[0]
    assert int((shares.original & shares.test_mask).sum()) == 10
    assert not shares.val_mask.any()


def test_bios_swaps_names_of_a_list(texts: Path, encoder: FakeEncoder) -> None:
    dataset = Bios(names={"Mary": "John"})
    assert dataset.face_x.shape
    assert any("John studied abroad." in asked for asked in encoder.texts)


def test_bios_limit_keeps_the_same_texts_for_all_seeds(
    texts: Path, encoder: FakeEncoder
) -> None:
    asked = []
    for seed in (0, 1):
        dataset = Bios(limit=12, seed=seed)
        assert len(dataset.face_x) == 2 * int(dataset[0].train_mask.sum())
        asked.append({text for texts in encoder.texts for text in texts})
        encoder.texts.clear()
    assert len(asked[0]) == 23  # two of each; one has nothing to swap
    assert asked[0] == asked[1]


def test_bios_transforms(texts: Path, encoder: FakeEncoder) -> None:
    def double(data: Any) -> Any:
        data.x = 2 * data.x
        return data

    plain = Bios()[0].x
    assert torch.equal(Bios(transform=double)[0].x, 2 * plain)
    assert torch.equal(Bios(pre_transform=double)[0].x, 2 * plain)


def test_bios_cache_is_below_root_or_the_users(
    texts: Path, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    Bios(encoder="other", progress=False)
    Bios("/some/root")
    Bios(force_reload=True)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    Bios()
    assert encoder.options[0]["encoder"] == "other"
    assert encoder.options[0]["progress"] is False
    assert [options["cache"] for options in encoder.options] == [
        Path("/cache/pyg_glif/encodings"),
        Path("/some/root/encodings"),
        None,
        Path("/home/me/.cache/pyg_glif/encodings"),
    ]
    assert sorted(path.name for path in texts.rglob("*")) == [
        "bias_in_bios_subset.csv.gz",
        "bios",
    ]


@pytest.mark.dataset
def test_bios_of_the_shared_subset(
    shared_data: Callable[[str], Path], encoder: FakeEncoder
) -> None:
    shared_data("bios")
    dataset = Bios()
    check_laws(dataset, num_variants=1)
    data = dataset[0]
    assert torch.bincount(data.y[data.original]).tolist() == [
        *(1008, 176, 146, 214, 474, 187)
    ]
    assert [int((data.original & data[m]).sum()) for m in MASKS] == [881, 221, 1103]
    asked = {text for texts in encoder.texts for text in texts}
    assert len(asked) == 2205 + 2177
    gold = Bios(gold_only=True)[0]
    assert [int((gold.original & gold[m]).sum()) for m in MASKS] == [559, 139, 699]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"source": "web"}, ValueError, "'source' must be one of 'text', 'embeddings'"),
        ({"seed": -1}, ValueError, r"'seed' must be at least 0 \(got -1\)"),
        ({"seed": 2**32}, ValueError, "'seed' must be below 4294967296"),
        ({"limit": 0}, ValueError, r"'limit' must be at least 1 \(got 0\)"),
        ({"limit": 1.5}, ValueError, "'limit' must be a whole number or a share of at"),
        ({"limit": "all"}, TypeError, "'limit' must be a whole number"),
        ({"face_limit": 0}, ValueError, "'face_limit' must be at least 1"),
        ({"test_share": 1.0}, ValueError, r"'test_share' must be below 1 \(got 1.0\)"),
        ({"test_share": 0.0}, ValueError, r"'test_share' must be positive \(got 0.0\)"),
        ({"val_share": -0.1}, ValueError, "'val_share' must be non-negative"),
        ({"val_share": 1}, ValueError, r"'val_share' must be below 1 \(got 1.0\)"),
        ({"source": "embeddings", "seed": 10}, ValueError, "'seed' must be below 10"),
    ],
)
def test_bios_rejects(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Bios(**options)


def test_bios_says_where_texts_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"bias_in_bios_subset.csv.gz' is missing. It must be"
    ):
        Bios()
    path = tmp_path / "bios" / "bias_in_bios_subset.csv.gz"
    write_csv(path, ("text", "gender", "part"), [])
    with pytest.raises(
        ValueError,
        match=r"must have the columns 'occupation' \(got 'text', 'gender', 'part'\)",
    ):
        Bios()
    write_csv(path, COLUMNS, bios())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"csv.gz' must be a whole gzip file"):
        Bios()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Small files of the authors' layout, for two seeds."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    rng = np.random.default_rng(0)
    np.save(folder / "bios_titles.npy", rng.choice(["dj", "poet", "model"], NUM))
    np.save(folder / "bios_gedner.npy", rng.choice(["F", "M"], NUM))
    for seed in (0, 7):
        for kind in ("real", "counter"):
            x = rng.normal(size=(NUM, WIDTH))
            np.save(
                folder / f"X_bert_{kind}_seed_{seed}.npy",
                x if seed else x.astype(np.float32),
            )
    return tmp_path


def load(root: Path, name: str) -> np.ndarray:
    return np.load(root / FOLDER / f"{name}.npy")


@pytest.mark.parametrize("seed", [0, 7])
def test_bios_from_embeddings(
    files: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.datasets._arrays._CHUNK", 7)
    dataset = Bios(files, "embeddings", seed)
    assert repr(dataset) == f"Bios(source='embeddings', seed={seed})"
    assert dataset.classes == ("dj", "model", "poet")
    assert dataset.gender_names == ("F", "M")
    check_laws(dataset, num_variants=1)
    data = dataset[0]
    np.random.seed(seed)  # noqa: NPY002
    train = np.random.choice(NUM, 54, replace=False)  # noqa: NPY002
    assert groups_of(data, data.test_mask) == set(range(NUM)) - set(train.tolist())
    assert len(groups_of(data, data.val_mask)) == 6
    titles, genders = load(files, "bios_titles"), load(files, "bios_gedner")
    real, counter = (
        load(files, f"X_bert_{kind}_seed_{seed}").astype(np.float32)
        for kind in ("real", "counter")
    )
    for k in range(data.num_nodes):
        person = int(data.group[k])
        x = real[person] if data.original[k] else counter[person]
        assert data.x[k].tolist() == x.tolist()
        assert dataset.classes[data.y[k]] == titles[person]
        assert dataset.gender_names[data.gender[k]] == genders[person]
    group = dataset.face_group.tolist()
    assert set(group) == groups_of(data, data.train_mask)
    expected = np.stack([real[group[::2]], counter[group[::2]]], axis=1)
    assert dataset.face_x.tolist() == expected.reshape(-1, WIDTH).tolist()


@pytest.mark.usefixtures("double_by_default")
def test_bios_is_float32_where_float64_is_the_default(files: Path) -> None:
    check_laws(Bios(files, "embeddings"), num_variants=1)


def test_bios_embeddings_are_found_in_the_data_folder(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYG_GLIF_DATA", str(files))
    assert_same(Bios(source="embeddings"), Bios(str(files), "embeddings"))


def test_bios_embeddings_beyond_the_limit_are_all(files: Path) -> None:
    assert_same(Bios(files, "embeddings", limit=1000), Bios(files, "embeddings"))


def test_bios_files_are_found_below_root_first(
    files: Path, texts: Path, encoder: FakeEncoder, tmp_path: Path
) -> None:
    """PyG's folder for raw files, the root itself, the data set's own folder."""
    original = Bios(source="text").raw_paths
    assert original == [str(texts / "bios" / "bias_in_bios_subset.csv.gz")]
    for number, folder in enumerate((".", "raw", "bios")):
        root = tmp_path / f"root{number}"
        (root / folder).mkdir(parents=True)
        shutil.copy(original[0], root / folder)
        (found,) = Bios(root).raw_paths
        assert Path(found).parent == root / folder
    raw = tmp_path / "other" / "raw"
    shutil.copytree(files / FOLDER, raw)
    dataset = Bios(tmp_path / "other", "embeddings", 7)
    assert dataset.raw_paths == [str(raw / name) for name in dataset.raw_file_names]
    assert_same(dataset, Bios(files, "embeddings", 7))


@pytest.mark.parametrize("limit", [0.5, 30])
def test_bios_embeddings_limit_is_a_share_of_each_split(
    files: Path, limit: float
) -> None:
    whole, half = (Bios(files, "embeddings", limit=n)[0] for n in (None, limit))
    for name, num in (("train", 24), ("val", 3), ("test", 3)):
        kept = groups_of(half, half[f"{name}_mask"])
        assert len(kept) == num
        assert kept <= groups_of(whole, whole[f"{name}_mask"])


def test_bios_embeddings_are_mapped(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = {}
    load = np.load

    def spy(path: Path, mmap_mode: str | None = None) -> np.ndarray:
        opened[path.name] = mmap_mode
        return load(path, mmap_mode=mmap_mode)

    monkeypatch.setattr(np, "load", spy)
    Bios(files, "embeddings")
    assert opened == {
        "bios_titles.npy": None,
        "bios_gedner.npy": None,
        "X_bert_real_seed_0.npy": "r",
        "X_bert_counter_seed_0.npy": "r",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bios_titles", r"strings of shape \(any,\)"),
        ("bios_gedner", r"strings of shape \(60,\)"),
        ("X_bert_real_seed_0", r"floats of shape \(60, any\)"),
        ("X_bert_counter_seed_0", r"floats of shape \(60, 6\)"),
    ],
)
def test_bios_says_which_file_is_wrong_and_what_was_expected(
    files: Path, name: str, expected: str
) -> None:
    path = files / FOLDER / f"{name}.npy"
    whole = path.read_bytes()
    got = np.load(path)
    for content, message in (
        (whole[:-5], rf"must have {len(whole)} bytes, {got.dtype} of shape "),
        (b"<html>", rf"must be a NumPy file of {expected} \(got 6 bytes without a "),
        (b"", rf"must be a NumPy file of {expected} \(got 0 bytes without a header\)"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}.npy' {message}"):
            Bios(files, "embeddings")
    np.save(path, np.zeros((3, 2), dtype=np.int64))
    message = rf"must hold {expected} \(got int64 of shape \(3, 2\)\)"
    with pytest.raises(ValueError, match=message):
        Bios(files, "embeddings")
    path.unlink()
    with pytest.raises(
        FileNotFoundError, match=rf"{name}.npy' is missing \(expected {expected}\)"
    ):
        Bios(files, "embeddings")


def test_bios_truncated_message_is_exact(files: Path) -> None:
    path = files / FOLDER / "X_bert_real_seed_0.npy"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="truncated") as caught:
        Bios(files, "embeddings")
    assert str(caught.value) == (
        f"'{path}' must have 1568 bytes, float32 of shape (60, 6) (got 500). The file "
        "is truncated"
    )
