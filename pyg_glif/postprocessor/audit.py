"""How similar people are treated, before and after."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
from pyg_glif.graph import SimilarityGraph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metrics import (
    LipschitzRatios,
    bootstrap_interval,
    knn_deviation,
    laplacian_energy,
    local_lipschitz,
)
from pyg_glif.postprocessor.report import AuditReport, Estimate, Measure, Pair, Person

_QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    r"""How intervals are drawn.

    Args:
        level (float): Confidence level. (default: :obj:`0.95`)
        num_samples (int): Number of draws. (default: :obj:`1000`)
        generator (torch.Generator, optional): Source of the draws.
            (default: a fixed seed)

    Example:
        >>> Bootstrap(num_samples=200).level
        0.95
    """

    level: float = 0.95
    num_samples: int = 1000
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_scalar("level", self.level, above=0.0, below=1.0)
        check_count("num_samples", self.num_samples)


@torch.no_grad()
def audit(
    x: Tensor,
    y_before: Tensor,
    y_after: Tensor | None = None,
    *,
    graph: SimilarityGraph,
    lap: LaplacianOperator | None = None,
    distance: FairDistance | None = None,
    attributes: Mapping[str, Tensor] | None = None,
    groups: Tensor | None = None,
    threshold: float | None = None,
    k: int | None = 5,
    num_worst: int = 10,
    bootstrap: Bootstrap = Bootstrap(),  # noqa: B008  (immutable)
    progress: bool | None = None,
) -> AuditReport:
    r"""Says how similar people are treated, and compares before and after.

    A person's *peers* are their neighbours :math:`j`, and their deviation is
    :math:`\| \mathbf{y}_i - \sum_j w_{ij} \mathbf{y}_j / \sum_j w_{ij} \|_2`.

    Args:
        x (Tensor): Features.
        y_before (Tensor): Outputs of the model.
        y_after (Tensor, optional): Outputs of whatever made them fairer. Without them
            the report is about the outputs as they are. (default: :obj:`None`)
        graph (SimilarityGraph): Who is similar, and how far apart.
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
        bootstrap (Bootstrap): How intervals are drawn. (default: :obj:`Bootstrap()`)
        progress (bool, optional): Whether the search for nearest others shows a
            progress bar; :obj:`None` shows it on a terminal. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`
        - **output:** :class:`AuditReport`

    =========================  ====================================================
    measure                    what it is
    =========================  ====================================================
    ``laplacian_energy``       :math:`y^\top \mathbf{L} y`, summed over outputs
    ``lipschitz_ratio_p50``    median over edges of output difference per distance;
                               also ``_p90``, ``_p99``, ``_max``
    ``peer_deviation``         mean deviation of people who have peers
    ``nearest_consistency``    one minus the mean difference from the ``k`` nearest
    ``gap_by_NAME``            difference of group means of the attribute ``NAME``
    ``group_std``              mean standard deviation within ``groups``
    ``group_agreement``        share of ``groups`` with one decision for all
    =========================  ====================================================

    Intervals draw people, or groups, with replacement and keep their neighbours as
    they are. Quantiles and sums over edges have none: an edge depends on two people,
    and a quantile near 1 on very few.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> graph = SimilarityGraph.search(x, tau=1.0)
        >>> before, after = torch.tensor([0.0, 1, 0]), torch.tensor([0.25, 0.5, 0.25])
        >>> report = audit(x, before, after, graph=graph, k=1)
        >>> report["peer_deviation"].after
        Estimate(value=0.25, low=0.25, high=0.25)
    """
    x, before = check_features("x", x, distance), check_outputs("y_before", y_before)
    check_same_rows("y_before", before, "x", x)
    outputs = [before]
    if y_after is not None:
        outputs.append(check_outputs("y_after", y_after).to(before))
        check_same_rows("y_after", outputs[1], "x", x)
    check_count("num_worst", num_worst, minimum=0)
    if graph.num_nodes != len(x):
        msg = f"'graph' must have one node per row of 'x' (got {graph.num_nodes}"
        raise ValueError(f"{msg} for {len(x)})")
    if lap is None:
        lap = graph.laplacian(theta=0.0)
    both = torch.stack([y.view(len(x), -1) for y in outputs]).double()  # [T, N, C]
    ratios = [
        local_lipschitz(
            y,
            graph.edge_index,
            graph.sq_dist,
            quantiles=_QUANTILES,
            num_worst=num_worst,
        )
        for y in outputs
    ]
    people = _Treatment(lap, both)
    draw = _Draws(bootstrap)
    measures = [*_edge_measures(lap, both, ratios)]
    if bool((people.num_peers > 0).any()):
        value = people.deviation[people.num_peers > 0]
        title = "deviation from peers"
        measures.append(draw.mean("peer_deviation", title, "lower", value))
    if k is not None:
        # One minus the deviation from the nearest others, from one search.
        columns = torch.cat(list(both), dim=1).to(x.device)
        apart = knn_deviation(x, columns, k, distance=distance, progress=progress)
        value = 1.0 - apart.view(len(x), len(both), -1).mean(2)  # [N, T]
        title = f"consistency with {k} nearest"
        measures.append(draw.mean("nearest_consistency", title, "higher", value))
    for name, label in (attributes or {}).items():
        measures.append(draw.gap(name, both, check_labels(name, label, len(x))))
    if groups is not None:
        measures += _group_measures(draw, both, groups, threshold)
    compares = y_after is not None
    return AuditReport(
        facts=people.facts(),
        measures=tuple(measures),
        worst_before=people.worst(0, num_worst),
        worst_after=people.worst(1, num_worst) if compares else (),
        pairs_before=_pairs(ratios[0]),
        pairs_after=_pairs(ratios[1]) if compares else (),
        certificate={},
        level=bootstrap.level,
        deviation=people.deviation,
        moved=people.moved,
    )


class _Treatment:
    """Everybody's deviation from their peers, for each set of outputs."""

    def __init__(self, lap: LaplacianOperator, both: Tensor) -> None:
        self.num_peers = lap.pattern.rowptr.diff().long()  # [N]
        self.deviation = _peer_deviation(lap, both)  # [N, T]
        self.moved: Tensor | None = None  # [N]
        if len(both) == 2:
            self.moved = torch.linalg.vector_norm(both[1] - both[0], dim=1)

    def facts(self) -> dict[str, Any]:
        """Sizes, and how far outputs moved."""
        facts = {
            "num_people": len(self.num_peers),
            "num_edges": int(self.num_peers.sum()) // 2,
            "num_isolated": int((self.num_peers == 0).sum()),
        }
        if self.moved is None:
            return facts
        moved = {
            "mean_movement": float(self.moved.mean()),
            "largest_movement": float(self.moved.max()),
        }
        return {**facts, **moved}

    def worst(self, when: int, count: int) -> tuple[Person, ...]:
        """The people with the largest deviation; of equal ones the first come first."""
        order = self.deviation[:, when].sort(descending=True, stable=True).indices
        out = []
        for i in order[:count].tolist():
            found = self.deviation[i].tolist()
            if self.moved is not None:
                found.append(float(self.moved[i]))
            out.append(Person(i, int(self.num_peers[i]), *found))
        return tuple(person for person in out if person.num_peers)


class _Draws:
    """Measures with intervals, before and after over the same draws."""

    def __init__(self, options: Bootstrap) -> None:
        self._options = options

    def mean(self, name: str, title: str, better: str, value: Tensor) -> Measure:
        """The mean of a value that every person has, ``[M, T]``."""
        found = self._estimates(lambda rows: value[rows].mean(0), len(value))
        return Measure(name, title, better, *found)

    def gap(self, name: str, both: Tensor, label: Tensor) -> Measure:
        """Difference of group means, drawn within groups."""
        _, index, count = label.unique(return_inverse=True, return_counts=True)
        check_num_groups(name, count.numel())
        value = both.transpose(0, 1).to(label.device)  # [N, T, C]

        def gaps(rows: Tensor) -> Tensor:
            zero = value.new_zeros(count.numel(), *value.shape[1:])
            mean: Tensor = zero.index_add_(0, index[rows], value[rows])
            mean = mean / count.view(-1, 1, 1)
            if len(count) == 2 and value.size(2) == 1:
                return mean[1, :, 0] - mean[0, :, 0]
            return (mean.amax(0) - mean.amin(0)).amax(1)

        found = self._estimates(gaps, len(label), strata=label)
        return Measure(f"gap_by_{name}", f"gap by {name}", "", *found)

    def _estimates(
        self,
        statistic: Callable[[Tensor], Tensor],
        num_rows: int,
        strata: Tensor | None = None,
    ) -> list[Estimate]:
        """Before or, from a statistic with two entries, before, after and change."""

        def all_of_them(rows: Tensor) -> Tensor:
            values = statistic(rows)
            return torch.cat([values, values.diff()])

        found = bootstrap_interval(
            all_of_them,
            num_rows,
            strata=strata,
            level=self._options.level,
            num_samples=self._options.num_samples,
            generator=self._options.generator,
        )
        columns = (part.tolist() for part in found)
        return list(map(Estimate, *columns))


def _edge_measures(
    lap: LaplacianOperator, both: Tensor, ratios: list[LipschitzRatios]
) -> Iterator[Measure]:
    """What is summed or ranked over edges, without intervals."""
    energy = [float(laplacian_energy(y, lap)) for y in both]
    yield _plain("laplacian_energy", "Laplacian energy", energy)
    for at, level in enumerate(_QUANTILES):
        name = f"lipschitz_ratio_p{100 * level:g}"
        title = f"Lipschitz ratio, {100 * level:g}% of edges"
        yield _plain(name, title, [float(r.quantiles[at]) for r in ratios])
    largest = [float(r.max) for r in ratios]
    yield _plain("lipschitz_ratio_max", "Lipschitz ratio, largest", largest)


def _plain(name: str, title: str, values: list[float]) -> Measure:
    """A measure without an interval; two equal infinities have change 0."""
    found = [Estimate(value) for value in values]
    if len(values) == 2:
        before, after = values
        found.append(Estimate(after - before if before != after else 0.0))
    return Measure(name, title, "lower", *found)


def _peer_deviation(lap: LaplacianOperator, both: Tensor) -> Tensor:  # -> [N, T]
    """Distance of outputs from the weighted average of neighbours, zero without."""
    if lap.num_edges == 0:
        return both.new_zeros(both.size(1), len(both))
    matrix = lap.pattern.csr(lap.weight)
    alone = lap.deg.detach() == 0
    # Any divisor will do for people without weight: they are set to zero below.
    deg = torch.where(alone, 1.0, lap.deg.detach()).unsqueeze(1)
    apart = [torch.linalg.vector_norm(y - matrix @ y / deg, dim=1) for y in both]
    return torch.stack(apart, dim=1).masked_fill_(alone.unsqueeze(1), 0.0)


def _group_measures(
    draw: _Draws, both: Tensor, groups: Tensor, threshold: float | None
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
        # Groups of one give 0 / 0, and are left out below.
        square = mean((y - mean(y)[index]).square()) * size / (size - 1.0)
        spread.append(square[several].sqrt().mean(1))
    title = "standard deviation in groups"
    yield draw.mean("group_std", title, "lower", torch.stack(spread, 1))
    if both.size(2) == 1 and threshold is None:
        return
    agree = []
    for y in both:
        decision = y.argmax(1) if y.size(1) > 1 else (y[:, 0] > threshold).long()
        low = decision.new_zeros(count.numel())
        # The zeros to start from are no decisions, hence 'include_self=False'.
        high = low.scatter_reduce(0, index, decision, "amax", include_self=False)
        low = low.scatter_reduce(0, index, decision, "amin", include_self=False)
        agree.append((low == high)[several].double())
    title = "same decision in groups"
    yield draw.mean("group_agreement", title, "higher", torch.stack(agree, 1))


def _pairs(ratios: LipschitzRatios) -> tuple[Pair, ...]:
    """The worst pairs as :class:`Pair` objects, in their order."""
    found = zip(ratios.worst_pairs.tolist(), ratios.worst_ratios.tolist(), strict=True)
    return tuple(Pair(i, j, ratio) for (i, j), ratio in found)
