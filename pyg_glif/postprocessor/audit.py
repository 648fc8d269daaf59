"""How people were treated before and after."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_glif._validate import (
    check_comparable_rows,
    check_count,
    check_features,
    check_labels,
    check_num_groups,
    check_outputs,
    check_same_rows,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metrics import (
    LipschitzRatios,
    bootstrap_interval,
    knn_deviation,
    laplacian_energy,
    local_lipschitz,
)
from pyg_glif.postprocessor.report import AuditReport, Estimate, Measure, Pair, Person
from pyg_glif.solvers import Solution

_QUANTILES = (0.5, 0.9, 0.99)


@torch.no_grad()
def audit(
    x: Tensor,
    y_before: Tensor,
    y_after: Tensor,
    edge_index: Tensor,
    sq_dist: Tensor,
    *,
    lap: LaplacianOperator | None = None,
    distance: FairDistance | None = None,
    attributes: Mapping[str, Tensor] | None = None,
    groups: Tensor | None = None,
    threshold: float | None = None,
    k: int | None = 5,
    num_worst: int = 10,
    level: float = 0.95,
    num_samples: int = 1000,
    generator: torch.Generator | None = None,
    solution: Solution | None = None,
) -> AuditReport:
    r"""Compares the treatment of similar people before and after, on one graph.

    A person's *peers* are their neighbours :math:`j`, and their deviation is
    :math:`\| \mathbf{y}_i - \sum_j w_{ij} \mathbf{y}_j / \sum_j w_{ij} \|_2`.

    Args:
        x (Tensor): Features.
        y_before (Tensor): Outputs of the model.
        y_after (Tensor): Outputs of whatever made them fairer.
        edge_index (Tensor): Similarity graph, both directions of every edge.
        sq_dist (Tensor): Squared fair distance of every edge.
        lap (LaplacianOperator, optional): Weights of the graph.
            (default: all ones)
        distance (FairDistance, optional): For nearest others. (default: Euclidean)
        attributes (dict, optional): Labels of protected attributes by name; the gap
            between groups is reported for each. For several outputs it is the
            largest over outputs, without sign. (default: :obj:`None`)
        groups (Tensor, optional): Label of each row's group of counterfactuals or
            otherwise comparable people. (default: :obj:`None`)
        threshold (float, optional): Score above which a single output means class 1,
            needed for the consistency of decisions within ``groups``.
            (default: :obj:`None`)
        k (int, optional): Number of nearest others for consistency; :obj:`None`
            leaves it out, and with it a search over all pairs. (default: :obj:`5`)
        num_worst (int): How many people and pairs to list. (default: :obj:`10`)
        level (float): Confidence level of intervals. (default: :obj:`0.95`)
        num_samples (int): Bootstrap draws. (default: :obj:`1000`)
        generator (torch.Generator, optional): Source of the draws.
            (default: a fixed seed)
        solution (Solution, optional): Solve to certify. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`,
          edges :math:`(2, E)`, squared distances :math:`(E)`
        - **output:** :class:`AuditReport`

    Intervals draw people, or groups, with replacement and keep their neighbours as
    they are. Quantiles and sums over edges have none: an edge depends on two people,
    and a quantile near 1 on very few.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> before, after = torch.tensor([0.0, 1, 0]), torch.tensor([0.25, 0.5, 0.25])
        >>> report = audit(x, before, after, edges, torch.ones(4), k=1)
        >>> report["deviation from peers"].after
        Estimate(value=0.25, low=0.25, high=0.25)
    """
    x, before = check_features("x", x), check_outputs("y_before", y_before)
    after = check_outputs("y_after", y_after).to(before)
    check_same_rows("y_before", before, "x", x)
    check_same_rows("y_after", after, "x", x)
    check_count("num_worst", num_worst, minimum=0)
    check_scalar("level", level, above=0.0, below=1.0)
    if lap is None:
        lap = LaplacianOperator(edge_index, num_nodes=len(x))
    both = torch.stack([before.view(len(x), -1), after.view(len(x), -1)]).double()
    ratios = [
        local_lipschitz(
            y, edge_index, sq_dist, quantiles=_QUANTILES, num_worst=num_worst
        )
        for y in (before, after)
    ]
    people = _People(lap, both)
    draw = _Bootstrap(level, num_samples, generator)
    measures = [*_edge_measures(lap, both, ratios)]
    if bool((people.num_peers > 0).any()):
        value = people.deviation[people.num_peers > 0]
        measures.append(draw.mean("deviation from peers", "lower", value))
    if k is not None:
        value = _nearest_consistency(x, both, k, distance)
        measures.append(draw.mean(f"consistency with {k} nearest", "higher", value))
    for name, label in (attributes or {}).items():
        measures.append(draw.gap(name, both, check_labels(name, label, len(x))))
    if groups is not None:
        measures += _group_measures(draw, both, groups, threshold)
    return AuditReport(
        facts=people.facts(),
        measures=tuple(measures),
        worst_before=people.worst(0, num_worst),
        worst_after=people.worst(1, num_worst),
        pairs_before=_pairs(ratios[0]),
        pairs_after=_pairs(ratios[1]),
        certificate=_certificate(solution),
        level=level,
        deviation=people.deviation,
        moved=people.moved,
    )


class _People:
    """Everybody's deviation from their peers, before and after."""

    def __init__(self, lap: LaplacianOperator, both: Tensor) -> None:
        self.num_peers = lap.pattern.rowptr.diff().long()  # [N]
        self.deviation = _peer_deviation(lap, both)  # [N, 2]
        self.moved: Tensor = torch.linalg.vector_norm(both[1] - both[0], dim=1)  # [N]

    def facts(self) -> dict[str, Any]:
        """Sizes, and how far outputs moved."""
        return {
            "people": len(self.moved),
            "edges": int(self.num_peers.sum()) // 2,
            "people without neighbours": int((self.num_peers == 0).sum()),
            "mean movement": float(self.moved.mean()),
            "largest movement": float(self.moved.max()),
        }

    def worst(self, when: int, count: int) -> tuple[Person, ...]:
        """Those with the largest deviation, on ties the first."""
        order = self.deviation[:, when].sort(descending=True, stable=True).indices
        out = []
        for i in order[:count].tolist():
            before, after = self.deviation[i].tolist()
            peers, moved = int(self.num_peers[i]), float(self.moved[i])
            out.append(Person(i, peers, before, after, moved))
        return tuple(person for person in out if person.num_peers)


def _nearest_consistency(
    x: Tensor, both: Tensor, k: int, distance: FairDistance | None
) -> Tensor:  # [N, 2]
    """One minus the deviation from the nearest others, from one search."""
    columns = torch.cat([both[0], both[1]], dim=1).to(x.device)
    apart = knn_deviation(x, columns, k, distance=distance)
    return 1.0 - apart.view(len(x), 2, -1).mean(2)


class _Bootstrap:
    """Measures with intervals, before and after over the same draws."""

    def __init__(
        self, level: float, num_samples: int, generator: torch.Generator | None
    ) -> None:
        self._options: dict[str, Any] = {"level": level, "num_samples": num_samples}
        self._generator = generator

    def mean(self, name: str, better: str, value: Tensor) -> Measure:  # [M, 2]
        """The mean of a value that every person has, before and after."""
        return self._measure(name, better, lambda rows: value[rows].mean(0), len(value))

    def gap(self, name: str, both: Tensor, label: Tensor) -> Measure:
        """Difference of group means, drawn within groups."""
        _, index, count = label.unique(return_inverse=True, return_counts=True)
        check_num_groups(name, count.numel())
        value = both.transpose(0, 1).to(label.device)  # [N, 2, C]

        def gaps(rows: Tensor) -> Tensor:
            zero = value.new_zeros(count.numel(), *value.shape[1:])
            mean: Tensor = zero.index_add_(0, index[rows], value[rows])
            mean = mean / count.view(-1, 1, 1)
            if len(count) == 2 and value.size(2) == 1:
                return mean[1, :, 0] - mean[0, :, 0]
            return (mean.amax(0) - mean.amin(0)).amax(1)

        return self._measure(f"gap by {name}", "", gaps, len(label), strata=label)

    def _measure(
        self,
        name: str,
        better: str,
        statistic: Callable[[Tensor], Tensor],
        num_rows: int,
        strata: Tensor | None = None,
    ) -> Measure:
        """Before, after and change, from a statistic with two entries."""

        def three(rows: Tensor) -> Tensor:
            pair = statistic(rows)
            return torch.cat([pair, pair[1:] - pair[:1]])

        found = bootstrap_interval(
            three, num_rows, strata=strata, generator=self._generator, **self._options
        )
        columns = (part.tolist() for part in found)
        return Measure(name, better, *map(Estimate, *columns))


def _edge_measures(
    lap: LaplacianOperator, both: Tensor, ratios: list[LipschitzRatios]
) -> Iterator[Measure]:
    """What is summed or ranked over edges, without intervals."""
    energy = [float(laplacian_energy(y, lap)) for y in both]
    yield _plain("Laplacian energy", *energy)
    for at, level in enumerate(_QUANTILES):
        name = f"Lipschitz ratio, {100 * level:g}% of edges"
        yield _plain(name, *(float(r.quantiles[at]) for r in ratios))
    yield _plain("Lipschitz ratio, largest", *(float(r.max) for r in ratios))


def _plain(name: str, before: float, after: float) -> Measure:
    """A measure without an interval; infinities have no difference."""
    change = after - before if before != after else 0.0
    return Measure(name, "lower", Estimate(before), Estimate(after), Estimate(change))


def _peer_deviation(lap: LaplacianOperator, both: Tensor) -> Tensor:  # -> [N, 2]
    """Distance of outputs from the weighted average of neighbours, zero without."""
    if lap.num_edges == 0:
        return both.new_zeros(both.size(1), 2)
    matrix = lap.pattern.csr(lap.weight)
    alone = lap.deg.detach() == 0
    deg = torch.where(alone, 1.0, lap.deg.detach()).unsqueeze(1)
    apart = [torch.linalg.vector_norm(y - matrix @ y / deg, dim=1) for y in both]
    return torch.stack(apart, dim=1).masked_fill_(alone.unsqueeze(1), 0.0)


def _group_measures(
    draw: _Bootstrap, both: Tensor, groups: Tensor, threshold: float | None
) -> Iterator[Measure]:
    """Spread, and agreement of decisions, within groups; groups are drawn whole."""
    label = check_labels("groups", groups, both.size(1)).to(both.device)
    _, index, count = label.unique(return_inverse=True, return_counts=True)
    several = count > 1
    check_comparable_rows("groups", int(several.sum()), count.numel())
    size = count.view(-1, 1).double()

    def mean(value: Tensor) -> Tensor:  # [N, C] -> [G, C]
        total: Tensor = value.new_zeros(count.numel(), value.size(1))
        return total.index_add_(0, index, value).div_(size)

    spread = []
    for y in both:
        square = mean((y - mean(y)[index]).square()) * size / (size - 1.0)
        spread.append(square[several].sqrt().mean(1))
    yield draw.mean("standard deviation in groups", "lower", torch.stack(spread, 1))
    if both.size(2) == 1 and threshold is None:
        return
    agree = []
    for y in both:
        decision = y.argmax(1) if y.size(1) > 1 else (y[:, 0] > threshold).long()
        low = decision.new_zeros(count.numel())
        high = low.scatter_reduce(0, index, decision, "amax", include_self=False)
        low = low.scatter_reduce(0, index, decision, "amin", include_self=False)
        agree.append((low == high)[several].double())
    yield draw.mean("same decision in groups", "higher", torch.stack(agree, 1))


def _pairs(ratios: LipschitzRatios) -> tuple[Pair, ...]:
    """The worst pairs."""
    found = zip(ratios.worst_pairs.tolist(), ratios.worst_ratios.tolist(), strict=True)
    return tuple(Pair(i, j, ratio) for (i, j), ratio in found)


def _certificate(solution: Solution | None) -> dict[str, Any]:
    """The evidence for a solve."""
    if solution is None:
        return {}
    return {
        "status": solution.status.name,
        "solver": solution.solver,
        "largest residual": float(solution.residual.max()),
        "error bound": float(solution.error_bound.max()),
    }
