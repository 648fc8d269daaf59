"""From a fit to the explanation of one person's output."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.disclosure import MIN_SHARED, effective_number, is_shared
from pyg_glif.audit.audit_report import Output
from pyg_glif.explain.explanation import (
    Contribution,
    Difference,
    Explanation,
    closest_differences,
    reasons_of,
    strongest,
)
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.fit.fit import Fit

_AVERAGED = {"Logit": "log-odds", "Softmax": "log-probabilities", "Log": "logarithms"}


class Subject(NamedTuple):
    """The person whose output is explained."""

    x: Tensor  # [1, F]
    row: int | None  # among the fitted people
    peers: Tensor  # [P] fitted people who are similar
    y_hat: Tensor | None  # [1] or [1, C]
    y_fair: Tensor | None
    features: DisplayFeatures | None  # of one person


def features_of(fitted: Fit) -> DisplayFeatures | None:
    """What fitted people are like: as they were described, or columns with names."""
    if fitted.sample_info.features is not None or fitted.names[0] is None:
        return fitted.sample_info.features
    return DisplayFeatures.of_numbers(fitted.names[0], fitted.x.cpu())


def explained(
    fitted: Fit, who: Subject, weight: Tensor, own: float, bound: float, top: Any
) -> Explanation:
    """The explanation, given the weight of everybody and of the person's own output.

    The own output of a fitted person is one of ``weight``.
    """
    size = len(fitted.x)
    everybody = (
        weight if who.row is not None else torch.cat([weight, weight.new_tensor([own])])
    )
    index = strongest(everybody, top)
    fitted_ones = index < size
    dist = who.x.new_zeros(index.numel())
    dist[fitted_ones] = fitted.dist_from(who.x, index[fitted_ones])
    shown = torch.where(fitted_ones, index, -1)
    is_peer = torch.zeros(size, dtype=torch.bool, device=weight.device)
    is_peer[who.peers] = True
    is_other = (weight != 0) & ~is_peer
    mine = None if who.y_hat is None else _output(who.y_hat)
    if who.row is not None:
        is_other[who.row] = False
        own = float(weight[who.row])
    outputs = fitted.y_hat
    new = torch.full_like(outputs[:1], torch.nan) if who.y_hat is None else who.y_hat
    outputs = torch.cat([outputs, new.to(outputs)])[index]
    ids = fitted.sample_info.ids
    names = None
    if ids is not None:
        names = tuple(None if at < 0 else ids[at] for at in shown.tolist())
    link = fitted.settings.link
    known = features_of(fitted)
    closest, reasons, higher = _differences(fitted, who, weight, known)
    return Explanation(
        shown,
        everybody[index],
        dist,
        bound,
        person=None if who.row is None else (who.row if ids is None else ids[who.row]),
        ids=names,
        outputs=outputs,
        y_hat=mine,
        y_fair=None if who.y_fair is None else _output(who.y_fair),
        own=Contribution(1, own, mine),
        peers=_part(fitted, weight, is_peer),
        others=_part(fitted, weight, is_other),
        averaged=_AVERAGED.get(type(link).__name__, "outputs"),
        closest=closest,
        reasons=reasons,
        num_higher=higher,
        output_names=fitted.names[1] or (None if known is None else known.outputs),
    )


def _part(fitted: Fit, weight: Tensor, which: Tensor) -> Contribution:
    """Number, share and average of some of the fitted people."""
    rows = which.nonzero().flatten()
    share = float(weight[rows].sum())
    effective = effective_number(weight[rows])
    if not rows.numel() or share == 0.0:
        return Contribution(int(rows.numel()), share, None, effective)
    some = fitted.y_hat[rows]
    eta = fitted.settings.to_dual(some).double()
    mean = (weight[rows].unsqueeze(1) * eta).sum(0, keepdim=True) / share
    like = fitted.y_hat[:1].double()
    found = mean.reshape(like.shape)
    if fitted.settings.link is not None:
        found = fitted.settings.link.from_dual(found)
    return Contribution(int(rows.numel()), share, _output(found), effective)


def _differences(
    fitted: Fit, who: Subject, weight: Tensor, known: DisplayFeatures | None
) -> tuple[Any, Any, int | None]:
    """In what the closest differ, what tells from higher-scored peers, how many."""
    higher = None
    single = fitted.y_hat[:1].numel() == 1 and who.y_fair is not None
    chosen = who.peers
    if single and who.y_fair is not None:
        scores = fitted.y_fair.reshape(-1)
        chosen = who.peers[scores[who.peers] > who.y_fair.reshape(-1)[0].to(scores)]
        higher = int(chosen.numel())
    if known is None or who.features is None:
        return None, None, higher
    spread, mine = known.spread(), who.features
    closest: tuple[Difference, ...] | None = None
    if is_shared(who.peers.numel()):
        dist = fitted.dist_from(who.x, who.peers)
        near = who.peers[dist.sort(stable=True).indices[:MIN_SHARED]]
        closest = closest_differences(mine, known.select(near), spread)
    reasons: tuple[Difference, ...] | None = None
    part = weight[chosen].clamp(min=0.0)
    part = part if float(part.sum()) > 0 else torch.ones_like(part)
    if higher is not None and is_shared(effective_number(part)):
        gain = None
        if known.places is not None:
            apart = fitted.x[chosen].double() - who.x.double()
            mean = (part.unsqueeze(1) * apart).sum(0) / part.sum()
            gain = mean[list(known.places)], known.unit
        reasons = reasons_of(mine, known.select(chosen), spread, part.cpu(), gain)
    return closest, reasons, higher


def _output(row: Tensor) -> Output:
    """An output as plain data."""
    found = row.reshape(-1).tolist()
    return found[0] if len(found) == 1 else tuple(found)
