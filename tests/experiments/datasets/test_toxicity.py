from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import train_test_split

from experiments.counterfactuals import find_identity_terms, replace_identity_terms
from experiments.datasets import Toxicity
from tests.experiments.datasets.laws import (
    MASKS,
    FakeEncoder,
    assert_same,
    check_laws,
    features_of,
    groups_of,
    write_csv,
)

TERMS = ("gay", "african american", "black", "deaf")
FOLDER = "IF_Toxicity_BERT"
WITHOUT, WITH, WIDTH = 40, 60, 5


def comments() -> list[tuple[str, int, int]]:
    """Sixty comments, a third with a term and some with two."""
    rows = []
    for k in range(60):
        about = {0: f"{TERMS[k % 4]} people", 3: "Black and deaf people"}.get(k % 6)
        text = f"Comment {k} on {about or 'tables'}" + "!" * k
        rows.append((text, k % 2, 0))
    return [*rows, rows[0]]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "toxicity"
    columns = ("text", "toxic", "n_identity_terms")
    write_csv(folder / "jigsaw_test_balanced.csv.gz", columns, comments())
    other = [(7, "A deaf user.", "", 0, 1), (8, comments()[1][0], "", 1, 0)]
    columns = ("rev_id", "text", "text_fuzzed", "toxic", "n_identity_terms")
    write_csv(folder / "wikipedia_identity_comments.csv.gz", columns, other)
    (folder / "identity_terms.txt").write_text("\n".join(TERMS) + "\n")
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))
    return tmp_path


def test_toxicity_from_text(texts: Path, encoder: FakeEncoder) -> None:
    dataset = Toxicity(seed=2, known_terms=2)
    assert repr(dataset) == "Toxicity(source='text', seed=2)"
    assert dataset.classes == ("not toxic", "toxic")
    assert dataset.terms == TERMS
    assert len(dataset.known_terms) == 2
    check_laws(dataset, num_variants=4)
    data = dataset[0]
    assert int(data.original.sum()) == 60
    for k in range(data.num_nodes):
        text, toxic, _ = comments()[int(data.group[k])]
        term = int(data.term[k])
        assert bool(data.original[k]) == (term == -1)
        if term >= 0:
            text = replace_identity_terms(text, TERMS)[term]
        assert data.x[k].tolist() == features_of(text)
        assert int(data.y[k]) == toxic


def test_toxicity_judges_all_terms(texts: Path, encoder: FakeEncoder) -> None:
    data = Toxicity(known_terms=2)[0]
    for group in groups_of(data, data.val_mask | data.test_mask):
        has_term = bool(find_identity_terms(comments()[group][0], TERMS))
        terms = data.term[data.group == group].tolist()
        assert terms == ([-1, 0, 1, 2, 3] if has_term else [-1])


def test_toxicity_splits_with_and_without_terms_alike(
    texts: Path, encoder: FakeEncoder
) -> None:
    data = Toxicity(known_terms=2, test_share=0.4, val_share=0.5)[0]
    judged = data.group[~data.original].unique()
    with_term = torch.isin(data.group, judged) & data.original
    # 20 comments with terms, half of each class: 4 of 10 to test, 3 to validate.
    for mask, num in (("val_mask", 3), ("test_mask", 4)):
        assert torch.bincount(data.y[with_term & data[mask]]).tolist() == [num, num]
        rest = data.original & ~with_term & data[mask]
        assert torch.bincount(data.y[rest]).tolist() == [8 if num == 4 else 6] * 2


def test_toxicity_face_rows_know_half_of_the_terms(
    texts: Path, encoder: FakeEncoder
) -> None:
    dataset = Toxicity(known_terms=2, seed=5)
    train = groups_of(dataset[0], dataset[0].train_mask)
    expected_group, expected_x = [], []
    for group in sorted(train):
        text = comments()[group][0]
        found = {place.term for place in find_identity_terms(text, TERMS)}
        if found & set(dataset.known_terms):
            variants = replace_identity_terms(text, TERMS, dataset.known_terms)
            expected_group += [group] * 2
            expected_x += [features_of(variant) for variant in variants]
    assert 0 < len(expected_group) < 2 * len(train)
    assert dataset.face_group.tolist() == expected_group
    assert dataset.face_x.tolist() == expected_x
    limited = Toxicity(known_terms=2, seed=5, face_limit=2)
    assert len(limited.face_x) == 4
    assert set(limited.face_group.tolist()) <= set(expected_group)


def test_toxicity_same_seed_same_data(texts: Path, encoder: FakeEncoder) -> None:
    assert_same(Toxicity(seed=1, known_terms=2), Toxicity(seed=1, known_terms=2))
    chosen = {Toxicity(seed=s, known_terms=2).known_terms for s in range(8)}
    assert len(chosen) > 1


def test_toxicity_options(texts: Path, encoder: FakeEncoder) -> None:
    def num(**options: Any) -> int:
        return int(Toxicity(known_terms=2, **options)[0].original.sum())

    longest = max(len(text) for text, *_ in comments())
    assert num(max_length=longest) == 60
    assert num(max_length=longest - 1) == 59
    assert num(limit=7) == 7
    assert num(limit=0.1) == 6
    assert num(wikipedia=True) == 61
    Toxicity("/root", known_terms=2, encoder="e", progress=True)
    assert encoder.options[-1] == {
        "encoder": "e",
        "cache": Path("/root/encodings"),
        "progress": True,
    }


@pytest.mark.dataset
def test_toxicity_of_the_shared_subset(
    shared_data: Callable[[str], Path], encoder: FakeEncoder
) -> None:
    shared_data("toxicity")
    dataset = Toxicity(limit=0.2)
    check_laws(dataset, num_variants=50)
    assert len(dataset.terms) == 50
    assert len(dataset.known_terms) == 25
    whole = Toxicity()[0]
    assert [int((whole.original & whole[m]).sum()) for m in MASKS] == [6820, 1705, 3652]
    judged = [len(whole.group[whole[m] & ~whole.original].unique()) for m in MASKS]
    assert judged == [0, 179, 383]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"source": "web"}, ValueError, "'source' must be one of 'text', 'embeddings'"),
        ({"known_terms": 0}, ValueError, "'known_terms' must be at least 1"),
        ({"known_terms": 5}, ValueError, r"'known_terms' must be below 5 \(got 5\)"),
        ({"max_length": 0}, ValueError, "'max_length' must be at least 1"),
        ({"val_share": 1.0}, ValueError, "'val_share' must be below 1"),
        ({"limit": -0.5}, ValueError, r"'limit' must be positive \(got -0.5\)"),
        ({"limit": True}, TypeError, r"'limit' must be a whole number \(got True\)"),
    ],
)
def test_toxicity_rejects(
    texts: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Toxicity(**options)


def test_toxicity_says_where_texts_should_be(texts: Path) -> None:
    (texts / "toxicity" / "identity_terms.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"identity_terms.txt' is missing"):
        Toxicity()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Small files of the authors' layout."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    rng = np.random.default_rng(1)

    def save(name: str, value: np.ndarray) -> None:
        np.save(folder / f"{name}.npy", value)

    (folder / "adjectives_people.txt").write_text("\n".join(TERMS))
    save("X_bert_nid_kaggle", rng.normal(size=(WITHOUT, WIDTH)).astype(np.float32))
    save("original_X_bert_id_kaggle", rng.normal(size=(WITH, WIDTH)))
    save("target_nid", rng.integers(2, size=WITHOUT))
    save("target_id", rng.integers(2, size=WITH).astype(np.float64))
    save("subgroups_nid", np.zeros((WITHOUT, 2)))
    save("subgroups_id", np.zeros((WITH, 2)))
    save("id_mask", rng.random((WITH, 4)) < 0.4)
    for term in TERMS:
        save(f"X_bert_kaggle_{term}", rng.normal(size=(WITH, WIDTH)))
    return tmp_path


def load(root: Path, name: str) -> np.ndarray:
    return np.load(root / FOLDER / f"{name}.npy")


@pytest.mark.usefixtures("double_by_default")
def test_toxicity_is_float32_where_float64_is_the_default(files: Path) -> None:
    check_laws(Toxicity(files, "embeddings", known_terms=2), num_variants=4)


@pytest.mark.parametrize("seed", [0, 3])
def test_toxicity_from_embeddings(files: Path, seed: int) -> None:
    dataset = Toxicity(files, "embeddings", seed, known_terms=2, test_share=0.2)
    check_laws(dataset, num_variants=4)
    data = dataset[0]
    np.random.seed(seed)  # noqa: NPY002
    known = sorted(np.random.choice(4, size=2, replace=False))  # noqa: NPY002
    _, without = train_test_split(np.arange(WITHOUT), test_size=0.2)
    train, with_terms = train_test_split(np.arange(WITH), test_size=0.2)
    assert dataset.known_terms == tuple(TERMS[k] for k in known)
    test = {*without.tolist(), *(with_terms + WITHOUT).tolist()}
    assert groups_of(data, data.test_mask) == test
    altered = data.test_mask & ~data.original
    assert groups_of(data, altered) == set((with_terms + WITHOUT).tolist())
    plain, original = (
        load(files, "X_bert_nid_kaggle"),
        load(files, "original_X_bert_id_kaggle"),
    )
    terms = [load(files, f"X_bert_kaggle_{term}") for term in TERMS]
    y = [*load(files, "target_nid"), *load(files, "target_id")]
    for k in range(data.num_nodes):
        group, term = int(data.group[k]), int(data.term[k])
        if group < WITHOUT:
            row = plain[group]
        else:
            row = (original if term < 0 else terms[term])[group - WITHOUT]
        assert data.x[k].tolist() == row.astype(np.float32).tolist()
        assert int(data.y[k]) == y[group]
    # FACE: training comments with a known term, in the known terms.
    mask = load(files, "id_mask")
    validation = groups_of(data, data.val_mask)
    teachers = [
        k
        for k in sorted(train.tolist())
        if mask[k, known].any() and k + WITHOUT not in validation
    ]
    assert dataset.face_group.unique().tolist() == [k + WITHOUT for k in teachers]
    expected = np.stack([terms[known[0]][teachers], terms[known[1]][teachers]], axis=1)
    found = dataset.face_x.reshape(-1, 2, WIDTH).numpy()
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_toxicity_raw_files_are_those_that_are_read(
    files: Path, texts: Path, encoder: FakeEncoder
) -> None:
    stored = Toxicity(files, "embeddings", known_terms=2)
    unused = {"subgroups_nid.npy", "subgroups_id.npy"}
    assert {Path(path).name for path in stored.raw_paths} == {
        path.name for path in (files / FOLDER).iterdir()
    } - unused
    written = Toxicity(known_terms=2, wikipedia=True)
    assert sorted(written.raw_paths) == sorted(
        str(path) for path in (texts / "toxicity").iterdir()
    )
    assert len(Toxicity(known_terms=2).raw_paths) == 2


def test_toxicity_embeddings_limit_is_a_share_of_each_split(files: Path) -> None:
    options: dict[str, Any] = {"known_terms": 2, "test_share": 0.2, "val_share": 0.25}
    whole = Toxicity(files, "embeddings", **options)[0]
    half = Toxicity(files, "embeddings", limit=0.5, **options)[0]
    for name, num in (("train", 12 + 18), ("val", 4 + 6), ("test", 4 + 6)):
        kept = groups_of(half, half[f"{name}_mask"])
        assert len(kept) == num
        assert kept <= groups_of(whole, whole[f"{name}_mask"])


def test_toxicity_does_not_need_the_subgroups(files: Path) -> None:
    before = Toxicity(files, "embeddings", known_terms=2)
    for name in ("subgroups_nid", "subgroups_id"):
        (files / FOLDER / f"{name}.npy").unlink()
    assert_same(Toxicity(files, "embeddings", known_terms=2), before)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("X_bert_nid_kaggle", r"floats of shape \(any, any\)"),
        ("original_X_bert_id_kaggle", r"floats of shape \(any, 5\)"),
        ("target_nid", r"numbers of shape \(40,\)"),
        ("target_id", r"numbers of shape \(60,\)"),
        ("id_mask", r"numbers of shape \(60, 4\)"),
        ("X_bert_kaggle_african american", r"floats of shape \(60, 5\)"),
    ],
)
def test_toxicity_says_which_file_is_wrong_and_what_was_expected(
    files: Path, name: str, expected: str
) -> None:
    path = files / FOLDER / f"{name}.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=rf"{name}.npy' must have {len(whole)} bytes"):
        Toxicity(files, "embeddings", known_terms=2)
    np.save(path, np.zeros((3, 2, 1)))
    message = rf"must hold {expected} \(got float64 of shape \(3, 2, 1\)\)"
    with pytest.raises(ValueError, match=message):
        Toxicity(files, "embeddings", known_terms=2)
    path.unlink()
    message = rf"{name}.npy' is missing \(expected {expected}\)"
    with pytest.raises(FileNotFoundError, match=message):
        Toxicity(files, "embeddings", known_terms=2)


def test_toxicity_rejects_other_files(files: Path, tmp_path: Path) -> None:
    np.save(files / FOLDER / "target_nid.npy", np.full(WITHOUT, 0.5))
    with pytest.raises(ValueError, match=r"must hold 0 and 1 only \(got 0.5\)"):
        Toxicity(files, "embeddings", known_terms=2)
    with pytest.raises(ValueError, match=r"'known_terms' must be below 5 \(got 25\)"):
        Toxicity(files, "embeddings")
    (files / FOLDER / "adjectives_people.txt").unlink()
    message = r"adjectives_people.txt' is missing \(expected one term per line\)"
    with pytest.raises(FileNotFoundError, match=message):
        Toxicity(files, "embeddings")
