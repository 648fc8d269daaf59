"""From options to what the library takes."""

import argparse

import torch
from torch import Tensor

from pyg_glif.cli.base import UsageError
from pyg_glif.distances import FairDistance
from pyg_glif.graph import suggest_tau
from pyg_glif.links import Link, Log, Logit, Softmax
from pyg_glif.typing import Normalization


def strength(args: argparse.Namespace) -> float:
    """The strength, 1 unless given."""
    return 1.0 if args.lam is None else float(args.lam)


def decay(args: argparse.Namespace) -> float:
    """The decay of weights, 1e-4 unless given."""
    return 1e-4 if args.theta is None else float(args.theta)


def degree(args: argparse.Namespace) -> float:
    """The average number of neighbours to aim for, 20 unless given."""
    return 20.0 if args.target_degree is None else float(args.target_degree)


def radius(args: argparse.Namespace, x: Tensor, distance: FairDistance | None) -> float:
    """The radius, chosen by the number of neighbours unless given."""
    if args.tau is not None:
        return float(args.tau)
    if args.target_degree is None and len(x) <= 20:
        msg = f"--tau or --target-degree must be given for {len(x)} people"
        raise UsageError(f"{msg}: the default aims for 20 neighbours each")
    return suggest_tau(x, degree(args), distance=distance)


def form(args: argparse.Namespace) -> Normalization:
    """The form of the Laplacian."""
    names: dict[str | None, Normalization] = {"nrw": "nrw", "density": "density"}
    return names.get(args.normalization)


def link(args: argparse.Namespace) -> Link | None:
    """The output space."""
    if args.eps is not None and args.link not in ("logit", "softmax"):
        raise UsageError("--eps goes with --link logit and --link softmax")
    if args.link == "logit":
        return Logit(eps=args.eps)
    if args.link == "softmax":
        return Softmax(eps=args.eps)
    return Log() if args.link == "log" else None


def movement(before: Tensor, after: Tensor) -> dict[str, float]:
    """How far outputs moved."""
    apart = (after - before).double().reshape(len(before), -1)
    moved = torch.linalg.vector_norm(apart, dim=1)
    return {
        "mean_movement": float(moved.mean()),
        "largest_movement": float(moved.max()),
    }
