"""The treatment of similar samples, before and after a correction."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_count,
    check_features,
    check_non_negative,
    check_outputs,
    check_same_rows,
    check_scalar,
)
from pyg_glif.audit.audit_report import AuditReport, Lists
from pyg_glif.audit.chart_data import bins_of
from pyg_glif.audit.findings import (
    gap_verdicts,
    isolated_verdict,
    judged,
    pair_verdicts,
    rate_verdicts,
)
from pyg_glif.audit.measures import (
    Bootstrap,
    Draws,
    edge_measures,
    variant_measures,
)
from pyg_glif.audit.pair_stats import (
    Attribute,
    DisagreementRule,
    PairTreatment,
    SampleTreatment,
    group_rates,
    group_treatment,
    settled,
)
from pyg_glif.audit.setup import provenance
from pyg_glif.distances import FairDistance
from pyg_glif.graph import SimilarityGraph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metrics import knn_deviation

# Groups of an attribute that are described one by one.
_MAX_GROUPS = 20


class AuditData:
    """Outputs of samples on a similarity graph, before and after a correction.

    Args:
        x (Tensor): Features.
        y_before (Tensor): Outputs of the model.
        y_after (Tensor, optional): Corrected outputs. Without them the report is about
            the outputs as they are. (default: :obj:`None`)
        graph (SimilarityGraph): Neighbors and their distances.
        lap (LaplacianOperator, optional): Weights of the graph. (default: all ones)
        distance (FairDistance, optional): Distance of the search for nearest samples.
            (default: Euclidean)
        error (Tensor, optional): Bound on the numerical error of every entry of
            ``y_after``. Outputs that are equal up to it are equal wherever something is
            counted, listed or compared. (default: :obj:`None`, outputs are exact)
        progress (bool, optional): Whether the search for nearest samples shows a
            progress bar; :obj:`None` shows it on a terminal. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`
    """

    def __init__(
        self,
        x: Tensor,
        y_before: Tensor,
        y_after: Tensor | None = None,
        *,
        graph: SimilarityGraph,
        lap: LaplacianOperator | None = None,
        distance: FairDistance | None = None,
        error: Tensor | None = None,
        progress: bool | None = None,
    ) -> None:
        self.x = check_features("x", x, distance)
        self.outputs = [check_outputs("y_before", y_before)]
        check_same_rows("y_before", self.outputs[0], "x", self.x)
        if y_after is not None:
            after = check_outputs("y_after", y_after).to(self.outputs[0])
            check_same_rows("y_after", after, "x", self.x)
            self.outputs.append(after)
        num = len(self.x)
        if graph.num_nodes != num:
            msg = f"'graph' must have one node per row of 'x' (got {graph.num_nodes}"
            raise ValueError(f"{msg} for {num})")
        self.graph, self.distance, self.progress = graph, distance, progress
        self.lap = graph.laplacian(theta=0.0) if lap is None else lap
        #: Bounds on the distance of outputs from the exact ones, ``[T, N]``.
        self.error = self.x.new_zeros(len(self.outputs), num, dtype=torch.float64)
        if error is None:
            return
        if y_after is None:
            raise ValueError("'error' must be None without 'y_after'")
        if error.shape != after.shape:
            got = tuple(error.shape)
            raise ValueError(f"'error' must have the shape of 'y_after' (got {got})")
        if bool(error.isnan().any()):  # infinite where a solver has given up
            raise ValueError("'error' must be numbers (got nan)")
        check_non_negative("error", error)
        flat = error.double().reshape(num, -1)
        self.error[1] = torch.linalg.vector_norm(flat, dim=1)


@torch.no_grad()
def audit(
    data: AuditData,
    *,
    sensitive: Mapping[str, Any] | None = None,
    variants: Tensor | None = None,
    labels: Tensor | None = None,
    threshold: float | None = None,
    difference: float | None = None,
    tolerance: float | Mapping[str, float] | None = None,
    num_nearest: int | None = 5,
    num_worst: int = 10,
    bootstrap: Bootstrap = Bootstrap(),  # noqa: B008  (immutable)
) -> AuditReport:
    r"""Measures how similar samples are treated, and compares before and after.

    The deviation of a sample with neighbors :math:`j` is
    :math:`\| \mathbf{y}_i - \sum_j w_{ij} \mathbf{y}_j / \sum_j w_{ij} \|_2`.

    Args:
        data (AuditData): Samples, their outputs and their neighbors.
        sensitive (dict, optional): Labels of sensitive attributes by name, as numbers
            or texts, or a pair of whole numbers from 0 and the names of the groups. The
            gap between groups is reported for each. For several outputs it is the
            largest over outputs, without sign. (default: :obj:`None`)
        variants (Tensor, optional): Label of the counterfactual group, or group of
            otherwise comparable samples, of each row. (default: :obj:`None`)
        labels (Tensor, optional): True classes, 0 and 1, of samples with a single
            output; with ``threshold`` and ``sensitive``, the report then has the gap
            in true positives. (default: :obj:`None`)
        threshold (float, optional): Score above which a single output means class 1,
            needed for everything about decisions. (default: :obj:`None`)
        difference (float, optional): Two samples disagree if their outputs are further
            apart than this. (default: :obj:`None`, if their decisions differ; where
            there are none, half the standard deviation of ``y_before``)
        tolerance (float or dict, optional): Share of pairs that may disagree, or
            tolerances by the name of a :class:`Verdict`. (default: :obj:`None`)
        num_nearest (int, optional): Number of nearest samples for consistency;
            :obj:`None` leaves it out, and with it a search over all pairs.
            (default: :obj:`5`)
        num_worst (int): Number of samples and pairs to list. (default: :obj:`10`)
        bootstrap (Bootstrap): Draws behind the intervals. (default: :obj:`Bootstrap()`)

    =========================  ====================================================
    measure                    what it is
    =========================  ====================================================
    ``laplacian_energy``       :math:`y^\top \mathbf{L} y`, summed over outputs
    ``lipschitz_ratio_p50``    median over pairs of output difference per distance,
                               of samples that are not identical; also ``_p90``,
                               ``_p99``, ``_max``
    ``neighbor_deviation``     mean deviation of samples that have neighbors
    ``nearest_consistency``    one minus the mean difference from the nearest
    ``gap_by_NAME``            difference of group means of the attribute ``NAME``
    ``selection_by_NAME``      the same, of the share above ``threshold``
    ``true_positives_by_…``    the same, among samples whose label is 1
    ``group_std``              mean standard deviation within ``variants``
    ``group_agreement``        share of ``variants`` with one decision for all
    =========================  ====================================================

    =====================  ========================================================
    verdict                what it is
    =====================  ========================================================
    ``pairs``              share of pairs of similar samples that disagree
    ``pairs_by_NAME``      the same, of two groups of the attribute ``NAME``
    ``identical``          the same, of samples at distance zero
    ``gap_by_NAME``        the measure of that name; likewise ``selection_by_NAME``
                           and ``true_positives_by_NAME``
    ``isolated``           share of samples without neighbors
    =====================  ========================================================

    Intervals of measures draw samples, or groups, with replacement and keep their
    neighbors as they are; the mean of a group of more than 5,000 is drawn from the
    normal distribution with its variance. Quantiles and sums over edges have none.
    Intervals of shares of pairs are in :mod:`pyg_glif.audit.dyadic_ci`.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> graph = SimilarityGraph.search(x, tau=1.0)
        >>> before, after = torch.tensor([0.0, 1, 0]), torch.tensor([0.25, 0.5, 0.25])
        >>> data = AuditData(x, before, after, graph=graph)
        >>> report = audit(data, num_nearest=1, threshold=0.4)
        >>> report["neighbor_deviation"].after
        IntervalEstimate(value=0.25, low=0.25, high=0.25)
        >>> report.verdict[0].words
        'Of 2 pairs of similar people, 2 got different decisions; after correction 2.'
    """
    x, graph, lap, num = data.x, data.graph, data.lap, len(data.x)
    check_count("num_worst", num_worst, minimum=0)
    if num_nearest is not None:
        check_count("num_nearest", num_nearest)
        if num_nearest >= num:
            raise ValueError(f"'num_nearest' must be below {num} (got {num_nearest})")
    if difference is not None:
        check_scalar("difference", difference, minimum=0.0)
    attributes = {
        name: Attribute.of(name, value, num, x.device)
        for name, value in (sensitive or {}).items()
    }
    y = torch.stack([out.view(num, -1) for out in data.outputs]).double()  # [T, N, C]
    pairs = PairTreatment(graph, y, data.error)
    y = settled(y, data.error, threshold)
    samples = SampleTreatment(lap, y, data.error)
    disagreement = DisagreementRule.of(y, threshold, difference)
    decision, num_neighbors = disagreement.decision, samples.num_neighbors
    draw = Draws(bootstrap)
    measures = [*edge_measures(lap, data.outputs, graph)]
    if bool((num_neighbors > 0).any()):
        value = samples.deviation[num_neighbors > 0]
        title = "deviation from peers"
        measures.append(draw.mean("neighbor_deviation", title, "lower", value))
    if num_nearest is not None:
        # One minus the deviation from the nearest samples, from one search.
        deviation = knn_deviation(
            x,
            torch.cat(list(y), dim=1).to(x.device),
            num_nearest,
            distance=data.distance,
            progress=data.progress,
        )
        value = 1.0 - deviation.view(num, len(y), -1).mean(2)  # [N, T]
        title = f"consistency with {num_nearest} nearest"
        measures.append(draw.mean("nearest_consistency", title, "higher", value))
    measures += [draw.gap(name, y, label) for name, label in attributes.items()]
    rates = list(group_rates(attributes, decision, y, labels))
    measures += [draw.rate_gap(rate) for rate in rates]
    if variants is not None:
        measures += variant_measures(draw, y, variants, decision)
    by_name, level = {measure.name: measure for measure in measures}, bootstrap.level
    verdict = [
        *pair_verdicts(pairs, disagreement, attributes, num, level),
        *gap_verdicts(by_name, attributes),
        *rate_verdicts(by_name, rates),
        isolated_verdict(num_neighbors, level),
    ]
    described = {n: a for n, a in attributes.items() if len(a.names) <= _MAX_GROUPS}
    return AuditReport(
        facts={**samples.facts(), **pairs.facts()},
        verdict=judged(verdict, tolerance),
        measures=tuple(measures),
        groups={
            name: tuple(group_treatment(label, y, decision, level))
            for name, label in described.items()
        },
        lists=Lists(
            worst_before=samples.worst(0, num_worst),
            worst_after=samples.worst(1, num_worst),
            most_moved=samples.most_moved(num_worst),
            pairs_before=pairs.worst(0, False, num_worst),
            pairs_after=pairs.worst(1, False, num_worst),
            identical_before=pairs.worst(0, True, num_worst),
            identical_after=pairs.worst(1, True, num_worst),
            isolated=samples.isolated(),
        ),
        setup={
            "threshold": threshold,
            "difference": disagreement.difference,
            "num_nearest": num_nearest,
        },
        made=provenance({"x": x, "y": torch.stack(data.outputs)}),
        certificate={},
        bins=bins_of(y, pairs, num_neighbors, described, decision),
        level=level,
        deviation=samples.deviation,
        moved=samples.moved,
    )
