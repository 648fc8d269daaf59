"""What does it cost to satisfy every pairwise constraint, and how does it grow?

Run ``python benchmarks/if_constraints.py`` (about ten minutes on one core, 1 GiB), or
name parts: ``python benchmarks/if_constraints.py sentiment scaling``. The first needs
the words and names of the experiments' data (see ``PYG_GLIF_DATA``) and the packages
``cvxpy`` and ``scs``.
"""

import argparse
import time
from typing import Any

import numpy as np
import report
import torch
from common import PeakMemory, in_fresh_process, interleaved, write
from data import embedding_like
from torch import Tensor

from experiments import Recipe
from experiments.datasets import SentimentVariant
from experiments.training import fit, logits_of
from pyg_glif.baselines import Projection, lipschitz_projection
from pyg_glif.distances import FairDistance
from pyg_glif.lightning import FairClassifier
from pyg_glif.metric_learning import SensitiveSVD

PARTS = ("sentiment", "scaling")
CONSTANTS = (1.5, 2.25, 4.0)
SIZES = (1_000, 3_000, 10_000)


def sentiment(seed: int = 0) -> tuple[Tensor, Tensor, FairDistance]:
    """Test words and names, a classifier's margins for them, a fair distance."""
    dataset = SentimentVariant(variant="nyc", seed=seed)
    data = dataset[0]
    recipe = Recipe(hidden_channels=1_000, num_steps=1_000, lr=1e-3, batch_size=256)
    classifier = FairClassifier(recipe.network(data.num_features, 2, seed))
    fit(classifier, data, recipe, seed)
    people = data.x[data.test_mask | data.name_mask]
    logits = logits_of(classifier, people).double()
    distance = SensitiveSVD(num_components=50).fit(dataset.side_x)
    return people, logits[:, 1] - logits[:, 0], distance


def all_at_once(dist: np.ndarray, y: np.ndarray, lipschitz: float) -> np.ndarray:
    """The formulation of the paper: every pair handed to CVXPY, solved by SCS."""
    import cvxpy
    from scipy.sparse import csr_matrix

    i, j = np.triu_indices(len(y), 1)
    pair = np.arange(len(i))
    sign = np.repeat([1.0, -1.0], len(i))
    where = (np.concatenate([pair, pair]), np.concatenate([i, j]))
    differences = csr_matrix((sign, where), shape=(len(i), len(y)))
    f = cvxpy.Variable(len(y))
    limits = [cvxpy.abs(differences @ f) <= lipschitz * dist[i, j]]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(f - y)), limits)
    problem.solve(solver=cvxpy.SCS)
    return np.asarray(f.value)


def facts(
    f: np.ndarray, y: np.ndarray, dist: np.ndarray, bound: float
) -> dict[str, float]:
    """Objective and largest violation, from their definitions."""
    i, j = np.triu_indices(len(y), 1)
    excess = np.abs(f[i] - f[j]) - bound * dist[i, j]
    return {
        "objective": float(((f - y) ** 2).sum()),
        "violation": float(excess.max(initial=0.0)),
    }


def on_sentiment(lipschitz: float, repeats: int) -> dict[str, Any]:
    """Both ways on all test words and names."""
    x, margin, distance = sentiment()
    x, y = x.double(), margin.numpy()
    dist = distance(x, x).numpy()
    found: dict[str, np.ndarray] = {}
    ours: list[Projection] = []

    def generate() -> None:
        ours[:] = [lipschitz_projection(x, margin, lipschitz, distance=distance)]
        found["pyg_glif"] = ours[0].value.numpy()

    def hand_over() -> None:
        found["CVXPY + SCS"] = all_at_once(dist, y, lipschitz)

    generate()  # warm-up
    seconds = interleaved(
        {"pyg_glif": generate, "CVXPY + SCS": hand_over},
        repeats=repeats,
        once=("CVXPY + SCS",),
    )
    return {
        "part": "sentiment",
        "rows": len(y),
        "lipschitz": lipschitz,
        "deviation": float(y.std()),
        "seconds": seconds,
        "facts": {name: facts(f, y, dist, lipschitz) for name, f in found.items()},
        "duality_gap": ours[0].duality_gap,
        "num_active": ours[0].num_active,
        "num_iter": ours[0].num_iter,
    }


def alone(num_rows: int, lipschitz: float) -> dict[str, Any]:
    """One column of embedding-like rows, in a fresh process."""
    x = embedding_like(num_rows, 100)
    generator = torch.Generator().manual_seed(1)
    mix = 2.0 * torch.randn(100, generator=generator)
    y = x @ mix + 3.0 * torch.randn(num_rows, generator=generator)
    lipschitz_projection(x[:100], y[:100], lipschitz)  # loads SciPy
    with PeakMemory() as peak:
        start = time.perf_counter()
        found = lipschitz_projection(x, y, lipschitz)
        seconds = time.perf_counter() - start
    return {
        "part": "scaling",
        "rows": num_rows,
        "lipschitz": lipschitz,
        "seconds": {"pyg_glif": {"median": seconds, "runs": 1}},
        "extra_bytes": peak.bytes,
        "matrix_bytes": 8 * num_rows * num_rows,
        "duality_gap": found.duality_gap,
        "max_violation": found.max_violation,
        "num_active": found.num_active,
        "num_iter": found.num_iter,
    }


def scaling(num_rows: int, lipschitz: float) -> dict[str, Any]:
    """Peak memory is that of one problem, not of those before it."""
    found: dict[str, Any] = in_fresh_process(alone, num_rows, lipschitz)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--constants", type=float, nargs="+", default=CONSTANTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    args = parser.parse_args()
    key = ("part", "rows", "lipschitz")
    if "sentiment" in args.parts:
        for lipschitz in args.constants:
            row = on_sentiment(lipschitz, args.repeats)
            write("if_constraints", [row], key=key)
            print(row)
    if "scaling" in args.parts:
        for size in args.sizes:
            row = scaling(size, 2.0)
            write("if_constraints", [row], key=key)
            print(row)
    report.main()


if __name__ == "__main__":
    main()
