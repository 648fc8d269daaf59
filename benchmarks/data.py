"""Features in the shapes that the benchmarks ask about."""

import csv
import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from experiments.counterfactuals import encode
from pyg_glif._utils.data_folder import VARIABLE, data_folder


def embedding_like(
    num_rows: int, num_features: int = 768, *, num_clusters: int = 28, seed: int = 0
) -> Tensor:
    """Rows as fine-tuned encoders give them, and named synthetic for that reason.

    Clusters of uneven size, a spectrum that decays as ``k**-0.75`` in a random
    basis, and every row with a near-duplicate (a counterfactual twin).
    """
    generator = torch.Generator().manual_seed(seed)
    half = (num_rows + 1) // 2
    spectrum = _spectrum(num_features)
    rows = _clustered(half, num_features, num_clusters, generator)
    twins = torch.randn(half, num_features, generator=generator).mul_(0.1 * spectrum)
    twins += rows
    basis = torch.randn(num_features, num_features, generator=generator)
    both = torch.cat([rows, twins])[:num_rows] @ torch.linalg.qr(basis).Q
    return both[torch.randperm(num_rows, generator=generator)].contiguous()


def counterfactual_like(
    sizes: Tensor, num_features: int = 768, *, num_clusters: int = 28, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Texts and their counterfactuals as encoders give them: synthetic as well.

    Group ``g`` has ``sizes[g]`` rows: a row as in :func:`embedding_like` and its
    variants, which differ from it along 25 common sensitive directions and by small
    noise. Returns rows and group numbers, groups one after the other.
    """
    generator = torch.Generator().manual_seed(seed)
    texts = _clustered(len(sizes), num_features, num_clusters, generator)
    group = torch.arange(len(sizes)).repeat_interleave(sizes)
    rows = torch.randn(len(group), num_features, generator=generator)
    rows.mul_(0.1 * _spectrum(num_features)).add_(texts[group])
    basis = torch.randn(num_features, num_features, generator=generator)
    rows = rows @ torch.linalg.qr(basis).Q
    directions = torch.randn(25, num_features, generator=generator)
    directions /= torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    shift = torch.randn(len(group), 25, generator=generator)
    return rows.addmm_(shift, directions), group


def embedding_chunks(
    num_rows: int, num_features: int = 768, *, size: int = 50_000, seed: int = 0
) -> Iterator[Tensor]:
    """Rows as in :func:`embedding_like`, some at a time: more than memory holds.

    Twins are in the same chunk; clusters and directions are common to all.
    """
    generator = torch.Generator().manual_seed(seed)
    spectrum = _spectrum(num_features)
    centres = torch.randn(28, num_features, generator=generator) * spectrum
    shares = torch.rand(28, generator=generator) + 0.1
    rotation = torch.randn(num_features, num_features, generator=generator)
    rotation = torch.linalg.qr(rotation).Q
    for start in range(0, num_rows, size):
        count = min(size, num_rows - start)
        half = (count + 1) // 2
        label = torch.multinomial(shares, half, replacement=True, generator=generator)
        rows = torch.randn(half, num_features, generator=generator).mul_(spectrum)
        rows += 2.0 * centres[label]
        twins = torch.randn(half, num_features, generator=generator)
        twins.mul_(0.1 * spectrum).add_(rows)
        both = torch.cat([rows, twins])[:count] @ rotation
        yield both[torch.randperm(count, generator=generator)]


def outputs(num_rows: int, columns: int = 28) -> Tensor:
    """Outputs of a model that says nothing about the features: the hardest case."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_rows, columns, generator=generator)


def _spectrum(num_features: int) -> Tensor:
    """Standard deviations along the axes before they are rotated."""
    return torch.arange(1, num_features + 1).float().pow(-0.75)


def _clustered(
    num_rows: int, num_features: int, num_clusters: int, generator: torch.Generator
) -> Tensor:
    """Rows around the centres of clusters of uneven size."""
    spectrum = _spectrum(num_features)
    centres = torch.randn(num_clusters, num_features, generator=generator) * spectrum
    shares = torch.rand(num_clusters, generator=generator) + 0.1
    label = torch.multinomial(shares, num_rows, replacement=True, generator=generator)
    rows = torch.randn(num_rows, num_features, generator=generator).mul_(spectrum)
    rows += 2.0 * centres[label]
    return rows


def isotropic(num_rows: int, num_features: int = 768, *, seed: int = 0) -> Tensor:
    """Independent standard normal coordinates: nothing to prune."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, num_features, generator=generator)


def real_embeddings(num_rows: int, *, num_texts: int = 5000, seed: int = 0) -> Tensor:
    """Sentence embeddings of real comments, repeated with small noise.

    Encodes the Jigsaw comments of the experiments' data with the encoder of the
    ``text`` extra (once; the result is kept beside the figures).
    """
    cache = Path(__file__).parent / "results" / f"texts-{num_texts}.tmp"
    if not cache.exists():
        cache.parent.mkdir(exist_ok=True)
        torch.save(_encode(num_texts), cache)
    base = torch.load(cache, weights_only=True)
    generator = torch.Generator().manual_seed(seed)
    rows = base.repeat(-(-num_rows // len(base)), 1)[:num_rows]
    noise = torch.randn(rows.shape, generator=generator)
    return (rows + 0.01 * noise).contiguous()


def _encode(num_texts: int) -> Tensor:
    """Embeddings of the first comments, unit length."""
    folder = data_folder()
    if folder is None:
        raise SystemExit(f"Set '{VARIABLE}' to the folder of the data sets")
    path = folder / "toxicity" / "jigsaw_test_balanced.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        texts = [row["text"][:400] for row in islice(csv.DictReader(file), num_texts)]
    return encode(texts)
