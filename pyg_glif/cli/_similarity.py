"""From options to the fair distance, the neighbor rule and the output space."""

import argparse
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_tensor
from pyg_glif.cli._options import (
    RADIUS,
    UsageError,
    called,
    default_of,
    keywords,
    name_of,
    progress,
)
from pyg_glif.cli._samples import Samples
from pyg_glif.cli._tables import ArrayTable, FileTable, open_table
from pyg_glif.distances import FairDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.graph import SimilarityGraph, suggest_tau
from pyg_glif.links import Link
from pyg_glif.metric_learning import FACE, LogisticSubspace, SensitiveSVD
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.registry import build, registered


class _Scale:
    """Standard deviations, as a part of the distance.

    Differences do not see the mean, so a distance on standardized features is one on
    raw features with a scaled factor. Files of fitted post-processors thus need
    nothing beside the distance, and new samples come in raw units too.
    """

    def __init__(self, x: Tensor, standardize: bool) -> None:
        x = x.double()
        self._mean, self._std = torch.zeros_like(x[0]), torch.ones_like(x[0])
        if standardize:
            self._mean = x.mean(0)
            # A constant column has no scale; rounding must not invent one.
            constant = x.amax(0) == x.amin(0)
            self._std = torch.where(constant, 1.0, x.std(0, correction=0))

    def rows(self, rows: Tensor) -> Tensor:
        """Features in standard deviations from the mean."""
        return (rows.double() - self._mean) / self._std

    def directions(self, rows: Tensor) -> Tensor:
        """Directions in standard deviations; the mean is not subtracted."""
        return rows.double() / self._std

    def absorb(self, distance: SensitiveSubspace | None) -> FairDistance:
        """A distance on standardized features as one on raw features."""
        if distance is None:
            return Mahalanobis.from_factor(torch.diag(1.0 / self._std))
        # What the distance makes of the axes: orthogonal to what it ignores.
        kept = distance.embed(torch.eye(distance.num_features, dtype=torch.float64))
        return Mahalanobis.from_factor(kept / self._std.unsqueeze(1))


def fair_distance(
    args: argparse.Namespace, samples: Samples, rows: Tensor | None = None
) -> FairDistance | None:
    """The distance that the options describe, on features as they are in the file.

    Scales and directions are learned from some ``rows``, by default from all.
    """
    if rows is not None:
        samples = samples.some(rows)
    if args.metric == "mahalanobis":
        return Mahalanobis(_matrix(args, samples))
    # The coordinates of a table are on their scale already.
    standardize = samples.scale == "standard" and samples.table is None
    scale = _Scale(samples.x, standardize)
    distance = _learned(args, samples, scale)
    return scale.absorb(distance) if standardize else distance


def _learned(
    args: argparse.Namespace, samples: Samples, scale: _Scale
) -> SensitiveSubspace | None:
    """The subspace that a metric ignores, if it ignores one."""
    show = progress(args)
    if args.metric == "subspace":
        directions = _rows(args, samples, "directions")
        return SensitiveSubspace(scale.directions(directions))
    if args.metric == "svd":
        rows = _rows(args, samples, "side_rows")
        return SensitiveSVD(**keywords(args, "num_components")).fit(scale.rows(rows))
    if args.metric == "face":
        variants = samples.variant_codes()
        assert variants is not None
        face = FACE(**keywords(args, "num_factors"), progress=show)
        return face.fit(scale.rows(samples.x), variants)
    if args.metric == "logistic":
        codes = [column for column, _ in samples.sensitive_codes().values()]
        logistic = LogisticSubspace(**keywords(args, "ridge"), progress=show)
        return logistic.fit(scale.rows(samples.x), torch.stack(codes, dim=1))
    return None


def _table(args: argparse.Namespace, option: str) -> FileTable:
    """The table that an option names."""
    return open_table(getattr(args, name_of(option)), args)


def _rows(args: argparse.Namespace, samples: Samples, option: str) -> Tensor:
    """Rows of the features in use, by their names or, in arrays, by their number."""
    table = _table(args, option)
    features, path = samples.features, table.path
    lost = [name for name in features if name not in table.names]
    if lost and isinstance(table, ArrayTable):
        if len(table.names) != len(features):
            got = f"got {len(table.names)} for {len(features)} features"
            msg = f"{called(option)}: '{path}' must have one column per feature"
            raise UsageError(f"{msg} ({got})")
        features = table.names
    elif lost:
        msg = f"{called(option)}: '{path}' has no column {', '.join(map(repr, lost))}"
        raise UsageError(f"{msg} (it has {table.contents})")
    return to_tensor(option, table.numbers(features))


def _matrix(args: argparse.Namespace, samples: Samples) -> Tensor:
    """A square matrix with a row and a column per feature."""
    table = _table(args, "matrix")
    names, features, path = table.names, samples.features, table.path
    if not isinstance(table, ArrayTable) and names != features:
        msg = f"{called('matrix')}: '{path}' must have the columns of the features"
        raise UsageError(f"{msg}, in their order")
    matrix = to_tensor("matrix", table.numbers(names))
    if tuple(matrix.shape) != (len(features), len(features)):
        got = " x ".join(map(str, matrix.shape))
        size = f"{len(features)} x {len(features)}"
        msg = f"{called('matrix')}: '{path}' must be {size}, a row and a column per"
        raise UsageError(f"{msg} feature (got {got})")
    return matrix


def neighbor_options(args: argparse.Namespace, samples: Samples) -> dict[str, Any]:
    """Keywords of the library for the neighbor rule.

    The default radius of a table leaves few samples isolated; any other default gives
    the same mean degree.
    """
    options = keywords(args, *RADIUS)
    if options:
        return options
    if samples.scale in ("effect", "conditional"):
        from pyg_glif.sklearn import GLIFClassifier

        return {"coverage": default_of(GLIFClassifier, "coverage")}
    degree = default_of(GLIFPostProcessor, "target_degree")
    if len(samples) <= degree:
        msg = f"--tau or --target-degree must be given for {len(samples)} rows"
        raise UsageError(f"{msg}: the default aims for {degree} neighbors each")
    return {"target_degree": degree}


def similarity_graph(
    args: argparse.Namespace, samples: Samples, distance: FairDistance | None
) -> SimilarityGraph:
    """Graph of similar samples."""
    rule = neighbor_options(args, samples)
    options: dict[str, Any] = {"distance": distance, "progress": progress(args)}
    if "k" in rule:
        return SimilarityGraph.nearest(samples.x, **rule, **options)
    tau = rule.pop("tau", None)
    if tau is None:
        tau = suggest_tau(samples.x, **rule, distance=distance)
    return SimilarityGraph.search(samples.x, tau, **options)


def link(args: argparse.Namespace) -> Link | None:
    """The output space, by the name of its class in small letters."""
    kinds = {name.lower(): kind for name, kind in registered("link").items()}
    if args.link not in (None, "none", *kinds):
        known = ", ".join(["none", *kinds])
        raise UsageError(f"--link must be one of {known} (got '{args.link}')")
    options = keywords(args, "eps")
    able = [name for name, kind in kinds.items() if "eps" in signature(kind).parameters]
    if options and args.link not in able:
        raise UsageError("'eps' goes with " + " and ".join(f"--link {n}" for n in able))
    if args.link not in kinds:
        return None
    config = {"kind": kinds[args.link].__name__, "config": options}
    output_space: Link = build("link", config)
    return output_space
