"""Facts of an explanation, from a fit."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.disclosure import (
    MIN_SHARED,
    effective_number,
    is_shared,
    shared_mean,
    shared_value,
)
from pyg_glif.audit.pair_stats import output_of
from pyg_glif.explain.explanation import Contribution, Difference, Explanation
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.fit.fit import Fit
from pyg_glif.solvers import Solution

_AVERAGED = {"Logit": "log-odds", "Softmax": "log-probabilities", "Log": "logarithms"}


class Subject(NamedTuple):
    """The sample whose output is explained."""

    x: Tensor  # [1, F]
    row: int | None  # among the fitted samples
    neighbors: Tensor  # [P] rows of fitted samples
    y_hat: Tensor | None  # [1] or [1, C]
    y_fair: Tensor | None
    features: DisplayFeatures | None  # one row


def features_of(fitted: Fit) -> DisplayFeatures | None:
    """Features of fitted samples: as they were described, or columns with names."""
    if fitted.sample_info.features is not None or fitted.names[0] is None:
        return fitted.sample_info.features
    return DisplayFeatures.of_numbers(fitted.names[0], fitted.x.cpu())


def stochastic(row: Solution, own: float, exact: bool) -> tuple[Tensor, float]:
    """Weights from a solve, and the bound on their error.

    The true weights are not negative and sum, with the ``own`` of a new sample, to
    one. Solutions meet that up to their tolerance and are moved there.
    """
    weight, bound = row.value[:, 0], float(row.error_bound.max())
    if not exact:
        return weight, bound
    weight = weight.clamp(min=0.0)  # no further from the truth than before
    total = float(weight.sum())
    scale = (1.0 - own) / total if total > 0 else 1.0
    bound += abs(1.0 - scale) * float(torch.linalg.vector_norm(weight))
    return weight * scale, bound


def explained(
    fitted: Fit,
    subject: Subject,
    weight: Tensor,
    own: float,
    bound: float,
    top: int | None,
) -> Explanation:
    """The explanation, from the weights of fitted samples and of the own output.

    The own output of a fitted sample is one of ``weight``. The samples of the ``top``
    largest weights are listed, on ties the first, none of weight zero.
    """
    size, row = len(fitted.x), subject.row
    weights, outputs = weight, fitted.y_hat
    is_neighbor = torch.zeros(size, dtype=torch.bool, device=weight.device)
    is_neighbor[subject.neighbors] = True
    is_other = (weight != 0) & ~is_neighbor
    if row is not None:
        is_other[row] = False
        own = float(weight[row])
    else:
        weights = torch.cat([weight, weight.new_tensor([own])])
        new = subject.y_hat
        new = torch.full_like(outputs[:1], torch.nan) if new is None else new
        outputs = torch.cat([outputs, new.to(outputs)])
    absolute, order = weights.abs().sort(descending=True, stable=True)
    index = order[absolute > 0][:top]
    is_fitted = index < size
    dist = subject.x.new_zeros(index.numel())
    dist[is_fitted] = fitted.dist_from(subject.x, index[is_fitted])
    listed = torch.where(is_fitted, index, -1)
    ids, names = fitted.sample_info.ids, None
    if ids is not None:
        names = tuple(None if i < 0 else ids[i] for i in listed.tolist())
    features = features_of(fitted)
    closest, reasons, num_higher = _differences(fitted, subject, weight, features)
    y_hat, y_fair = (
        None if y is None else output_of(y) for y in (subject.y_hat, subject.y_fair)
    )
    return Explanation(
        listed,
        weights[index],
        dist,
        bound,
        sample=row if row is None or ids is None else ids[row],
        ids=names,
        outputs=outputs[index],
        y_hat=y_hat,
        y_fair=y_fair,
        own=Contribution(1, own, y_hat),
        neighbors=_contribution(fitted, weight, is_neighbor),
        others=_contribution(fitted, weight, is_other),
        averaged=_AVERAGED.get(type(fitted.settings.link).__name__, "outputs"),
        closest=closest,
        reasons=reasons,
        num_higher=num_higher,
        output_names=fitted.names[1]
        or (None if features is None else features.outputs),
    )


def _contribution(fitted: Fit, weight: Tensor, which: Tensor) -> Contribution:
    """Number, share and average of some of the fitted samples."""
    rows = which.nonzero().flatten()
    share = float(weight[rows].sum())
    effective = effective_number(weight[rows])
    if not rows.numel() or share == 0.0:
        return Contribution(int(rows.numel()), share, None, effective)
    eta = fitted.settings.smoother.to_dual(fitted.y_hat[rows]).double()
    mean = (weight[rows].unsqueeze(1) * eta).sum(0, keepdim=True) / share
    mean = mean.reshape(fitted.y_hat[:1].shape)
    if fitted.settings.link is not None:
        mean = fitted.settings.link.from_dual(mean)
    return Contribution(int(rows.numel()), share, output_of(mean), effective)


def _differences(
    fitted: Fit, subject: Subject, weight: Tensor, known: DisplayFeatures | None
) -> tuple[Any, Any, int | None]:
    """Differences from the nearest and from higher-scored neighbors, and their number.

    Where a table measured effects, the size of a reason is how much more of a feature's
    effect the others have; only features with more of it are reasons.
    """
    neighbors, y_fair, num_higher = subject.neighbors, subject.y_fair, None
    higher = neighbors
    if fitted.y_hat[:1].numel() == 1 and y_fair is not None:
        scores = fitted.y_fair.reshape(-1)
        higher = neighbors[scores[neighbors] > y_fair.reshape(-1)[0].to(scores)]
        num_higher = int(higher.numel())
    if known is None or subject.features is None:
        return None, None, num_higher
    closest: tuple[Difference, ...] | None = None
    if is_shared(neighbors.numel()):
        dist = fitted.dist_from(subject.x, neighbors)
        nearest = neighbors[dist.sort(stable=True).indices[:MIN_SHARED]]
        closest = _ranked(subject.features, known, nearest, torch.ones(len(nearest)))
    reasons: tuple[Difference, ...] | None = None
    part = weight[higher].clamp(min=0.0)
    part = part if float(part.sum()) > 0 else torch.ones_like(part)
    if num_higher is not None and is_shared(effective_number(part)):
        gain = None
        if known.places is not None:
            offset = fitted.x[higher].double() - subject.x.double()
            gain = (part.unsqueeze(1) * offset).sum(0) / part.sum()
            gain = gain[list(known.places)]
        reasons = _ranked(subject.features, known, higher, part.cpu(), gain)
        reasons = tuple(one for one in reasons if one.size > 0.0)
    return closest, reasons, num_higher


def _ranked(
    own: DisplayFeatures,
    known: DisplayFeatures,
    rows: Tensor,
    weight: Tensor,
    gain: Tensor | None = None,
) -> tuple[Difference, ...]:
    """Differences of a sample from others, by falling size."""
    others, spread, out = known.select(rows), known.spread(), []
    reach = own.reach or (None,) * len(own.names)
    for k, name in enumerate(own.names):
        if reach[k] == 0.0:  # a table found that the column has no effect
            continue
        values = [others.value(row, k) for row in range(len(others))]
        value, is_text = own.value(0, k), own.levels[k] is not None
        differing = sum(other != value for other in values)
        common = shared_value(values) if is_text else shared_mean(values, weight)
        size, unit = differing / len(values), "share of them"
        if gain is not None:
            size, unit = float(gain[k]), known.unit
        elif isinstance(common, float) and value is not None and spread[k] > 0.0:
            size = abs(common - value) / float(spread[k])
            unit = "standard deviations"
        num, unknown = len(values), values.count(None)
        if differing:
            out.append(
                Difference(name, value, common, differing, num, size, unit, unknown)
            )
    return tuple(sorted(out, key=lambda difference: -difference.size))
