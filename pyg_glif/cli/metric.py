"""From options to a fair distance."""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from pyg_glif._arrays import to_tensor
from pyg_glif.cli.arguments import given
from pyg_glif.cli.array_source import ArraySource
from pyg_glif.cli.base import UsageError
from pyg_glif.cli.files import open_source
from pyg_glif.cli.labels import codes
from pyg_glif.cli.options import METRIC
from pyg_glif.cli.people import People
from pyg_glif.cli.scale import Scale
from pyg_glif.distances import FairDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.metric_learning import FACE, LogisticSubspace, SensitiveSVD

# Options that belong to one metric, and those without which it makes no sense.
_OWN = {
    "mahalanobis": {"--matrix"},
    "subspace": {"--directions"},
    "svd": {"--side-rows", "--num-components"},
    "face": {"--num-factors"},
    "logistic": {"--ridge"},
}
_NEEDS = {
    "mahalanobis": "--matrix",
    "subspace": "--directions",
    "svd": "--side-rows",
    "face": "--group",
    "logistic": "--attributes",
}


def check_metric(args: argparse.Namespace) -> None:
    """Raises on options that do not go together."""
    metric = args.metric
    for flag in given(args, METRIC):
        owner = next((name for name, own in _OWN.items() if flag in own), metric)
        if owner != metric:
            msg = f"{flag} goes with --metric {owner} (got --metric {metric})"
            raise UsageError(msg)
    need = _NEEDS.get(metric)
    if need and getattr(args, need[2:].replace("-", "_")) is None:
        raise UsageError(f"--metric {metric} needs {need}")
    if metric == "mahalanobis" and args.standardize:
        msg = "--standardize does not go with --metric mahalanobis"
        raise UsageError(f"{msg}: scale the matrix instead")


def fair_distance(args: argparse.Namespace, people: People) -> FairDistance | None:
    """The distance that the options describe, on features as they are in the file."""
    if args.metric == "mahalanobis":
        return Mahalanobis(_matrix(args.matrix, people))
    scale = Scale(people.x) if args.standardize else None
    if args.metric == "euclidean":
        return None if scale is None else scale.euclidean()
    x = people.x if scale is None else scale.apply(people.x)
    distance = _LEARNERS[args.metric](args, people, x, scale)
    return distance if scale is None else scale.absorb(distance)


def _subspace(
    args: argparse.Namespace, people: People, x: Tensor, scale: Scale | None
) -> SensitiveSubspace:
    rows = _rows(args.directions, people, "--directions")
    return SensitiveSubspace(rows if scale is None else scale.turn(rows))


def _svd(
    args: argparse.Namespace, people: People, x: Tensor, scale: Scale | None
) -> SensitiveSubspace:
    rows = _rows(args.side_rows, people, "--side-rows")
    count = 50 if args.num_components is None else args.num_components
    return SensitiveSVD(count).fit(rows if scale is None else scale.apply(rows))


def _face(
    args: argparse.Namespace, people: People, x: Tensor, scale: Scale | None
) -> SensitiveSubspace:
    assert people.group is not None
    count = 25 if args.num_factors is None else args.num_factors
    return FACE(count).fit(x, codes(people.group))


def _logistic(
    args: argparse.Namespace, people: People, x: Tensor, scale: Scale | None
) -> SensitiveSubspace:
    ridge = 1.0 if args.ridge is None else args.ridge
    columns = [codes(value) for value in people.attributes.values()]
    return LogisticSubspace(ridge).fit(x, torch.stack(columns, dim=1))


_Learner = Callable[
    [argparse.Namespace, People, Tensor, Scale | None], SensitiveSubspace
]
_LEARNERS: dict[str, _Learner] = {
    "subspace": _subspace,
    "svd": _svd,
    "face": _face,
    "logistic": _logistic,
}


def _rows(path: str, people: People, option: str) -> Tensor:
    """Rows of the features in use, by their names or, in arrays, by their number."""
    source = open_source(path)
    features = people.features
    if not all(name in source.names for name in features):
        if isinstance(source, ArraySource) and len(source.names) == len(features):
            features = source.names
        elif isinstance(source, ArraySource):
            got = f"got {len(source.names)} for {len(features)} features"
            raise UsageError(f"{option}: '{path}' must have a column each ({got})")
    return to_tensor(option, source.numbers(source.find(features, option)))


def _matrix(path: str, people: People) -> Tensor:
    """A square matrix with a row and a column per feature."""
    source = open_source(path)
    names, features = source.names, people.features
    if not isinstance(source, ArraySource) and names != features:
        msg = f"--matrix: '{path}' must have the columns of the features, in their"
        raise UsageError(f"{msg} order")
    matrix = to_tensor("--matrix", source.numbers(names))
    if tuple(matrix.shape) != (len(features), len(features)):
        got = " x ".join(str(size) for size in matrix.shape)
        msg = f"--matrix: '{path}' must be {len(features)} x {len(features)}, a row"
        raise UsageError(f"{msg} and a column per feature (got {got})")
    return matrix
