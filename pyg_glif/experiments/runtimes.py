"""Table 3 of the paper on the data at hand: how long each way to solve takes."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pyg_glif.distances import FairDistance
from pyg_glif.experiments.records import Setting
from pyg_glif.functional import glif_smooth
from pyg_glif.graph import edge_weights, fair_radius_graph
from pyg_glif.solvers import CoordinateDescent

# More rows than this make the dense system larger than its worth.
_MAX_DENSE = 10_000


def measure_runtimes(
    x: Tensor,
    logits: Tensor,
    distance: FairDistance,
    setting: Setting,
    shares: Sequence[float],
    seed: int,
) -> dict[str, float]:
    """Seconds for growing parts of the rows, from features to fair outputs.

    Args:
        x (torch.Tensor): Features.
        logits (torch.Tensor): Outputs.
        distance (FairDistance): Who is similar.
        setting (dict): ``tau`` and ``lam``.
        shares (sequence of float): Parts of the rows.
        seed (int): Chooses which rows.

    Returns:
        dict: ``"closed form, 1000 rows": 0.02`` and so on: the dense closed form, ten
        epochs of coordinate descent, and conjugate gradients.
    """
    seconds = {}
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    for share in shares:
        rows = order[: max(2, round(share * len(x)))]
        part = x[rows], logits[rows], distance, setting["tau"], setting["lam"]
        methods: dict[str, Callable[..., Tensor]] = {
            "closed form": _closed_form,
            "coordinate descent": _descent,
            "conjugate gradients": _sparse,
        }
        if len(rows) > _MAX_DENSE:
            del methods["closed form"]
        for name, method in methods.items():
            start = time.perf_counter()
            method(*part)
            spent = time.perf_counter() - start
            seconds[f"{name}, {len(rows)} rows"] = spent
    return seconds


def _closed_form(
    x: Tensor, y: Tensor, distance: FairDistance, tau: float, lam: float
) -> Tensor:
    """Eq. 3.3 of the paper, with dense matrices."""
    z = distance.embed(x).double()
    dist = torch.cdist(z, z)
    weight = torch.where(dist <= tau, torch.exp(-1e-4 * dist.square()), 0.0)
    system = torch.diag(1 + lam * weight.sum(1)) - lam * weight
    fair: Tensor = torch.linalg.solve(system, y.double())
    return fair.to(y.dtype)


def _sparse(
    x: Tensor, y: Tensor, distance: FairDistance, tau: float, lam: float
) -> Tensor:
    edge_index, sq_dist = fair_radius_graph(x, tau, distance=distance)
    return glif_smooth(y, edge_index, edge_weights(sq_dist), lam=lam)


def _descent(
    x: Tensor, y: Tensor, distance: FairDistance, tau: float, lam: float
) -> Tensor:
    edge_index, sq_dist = fair_radius_graph(x, tau, distance=distance)
    weight, solver = edge_weights(sq_dist), CoordinateDescent()
    return glif_smooth(y, edge_index, weight, lam=lam, solver=solver)
