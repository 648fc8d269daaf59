"""The metrics of this package as :mod:`torchmetrics` classes.

They are kept apart from the functions that compute them because torchmetrics takes
longer to load than torch, and smoothing or an audit needs none of it. Keywords that
are not documented are those of every :class:`torchmetrics.Metric`. ``update`` takes
tensors of the shapes that the function takes, and ``compute`` returns its result.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_features,
    check_kind,
    check_labels,
    check_outputs,
    check_same_rows,
    check_scalar,
    check_share,
)
from pyg_glif.distances import FairDistance
from pyg_glif.methods import Definition
from pyg_glif.metrics.group_disparity import disparity, group_shares
from pyg_glif.metrics.groups import (
    group_gap,
    group_std,
    predicted_label,
    prediction_consistency,
)
from pyg_glif.metrics.knn_consistency import knn_consistency
from pyg_glif.metrics.laplacian_energy import laplacian_energy
from pyg_glif.metrics.lipschitz_violations import lipschitz_violations
from pyg_glif.metrics.local_lipschitz import edge_quantiles, edge_ratios
from pyg_glif.metrics.ranking import ranking_err, ranking_ndcg
from pyg_glif.typing import Normalization


class _StoredRows(Metric):
    """Base of metrics that keep all rows until :meth:`compute`."""

    full_state_update = False
    _states: tuple[str, ...]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in self._states:
            self.add_state(name, [], dist_reduce_fx="cat")

    def _all(self) -> list[Tensor]:
        """The rows of all batches, for each state."""
        return [dim_zero_cat(getattr(self, name)) for name in self._states]


class _SampleRows(_StoredRows):
    """Features and outputs of all batches, for metrics of pairs across batches."""

    _states = ("x", "y")
    x: list[Tensor]
    y: list[Tensor]

    def __init__(self, distance: FairDistance | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if distance is not None:
            check_kind("distance", distance, FairDistance)
        self.distance = distance

    def update(self, x: Tensor, y: Tensor) -> None:
        """Adds samples and their outputs."""
        x, y = check_features("x", x), check_outputs("y", y)
        check_same_rows("y", y, "x", x)
        # Embedded when complete: a product may round a row differently in each batch.
        self.x.append(x.detach())
        self.y.append(y.detach())


class GroupGap(_StoredRows):
    r"""Difference of average outputs between groups.

    :func:`group_gap` over all batches: a batch need not hold every group.

    Calling the metric returns the value of one batch and needs two groups in it; use
    ``update`` if there may be one only.

    Example:
        >>> import torch
        >>> metric = GroupGap()
        >>> metric.update(torch.tensor([0.2, 0.4]), torch.tensor([0, 0]))
        >>> metric.update(torch.tensor([0.9]), torch.tensor([1]))
        >>> metric.compute()
        tensor(0.6000)
    """

    is_differentiable = True
    higher_is_better = None

    _states = ("y", "sensitive")
    y: list[Tensor]
    sensitive: list[Tensor]

    def update(self, y: Tensor, sensitive: Tensor) -> None:
        """Adds outputs and their groups."""
        y = check_outputs("y", y)
        self.sensitive.append(check_labels("sensitive", sensitive, y.size(0)))
        self.y.append(y)

    def compute(self) -> Tensor:
        """The gap over everything added."""
        return group_gap(*self._all())


class GroupStd(_StoredRows):
    r"""Standard deviation of outputs within groups of comparable samples.

    :func:`group_std` over all batches: a group may be spread over several of them.

    ``update(y)`` without groups puts the rows into group 0.

    Example:
        >>> metric = GroupStd()
        >>> metric.update(torch.tensor([1.0, 2.0]))
        >>> metric.update(torch.tensor([3.0]))
        >>> metric.compute()
        tensor(1.)
    """

    is_differentiable = True
    higher_is_better = False
    plot_lower_bound = 0.0

    _states = ("y", "group")
    y: list[Tensor]
    group: list[Tensor]

    def update(self, y: Tensor, group: Tensor | None = None) -> None:
        """Adds outputs and the groups they belong to."""
        y = check_outputs("y", y)
        if group is None:
            group = torch.zeros(y.size(0), dtype=torch.long, device=y.device)
        self.group.append(check_labels("group", group, y.size(0)))
        self.y.append(y)

    def compute(self) -> Tensor:
        """The standard deviation over everything added."""
        return group_std(*self._all())


class KNNConsistency(_SampleRows):
    r"""Consistency with the nearest neighbors in fair space.

    :func:`knn_consistency` over all batches: neighbors are searched in all of
    them, so features and outputs are kept until :meth:`compute`.

    Args:
        k (int, optional): Number of nearest neighbors. (default: 5)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)

    Example:
        >>> metric = KNNConsistency(k=1)
        >>> metric.update(torch.tensor([[0.0], [2.0]]), torch.tensor([0.0, 1.0]))
        >>> metric.update(torch.tensor([[1.0], [9.0]]), torch.tensor([0.5, 1.0]))
        >>> metric.compute()
        tensor(0.7500)
    """

    is_differentiable = False
    higher_is_better = True
    plot_upper_bound = 1.0

    def __init__(
        self, k: int = 5, *, distance: FairDistance | None = None, **kwargs: Any
    ) -> None:
        super().__init__(distance, **kwargs)
        self.k = check_count("k", k)

    def compute(self) -> Tensor:
        """The consistency over everything added."""
        x, y = self._all()
        return knn_consistency(x, y, self.k, distance=self.distance)


class GroupDisparity(Metric):
    r"""Ratio of the groups' individual unfairness.

    :func:`group_disparity` over batches, each of which brings the graph of its own
    nodes: energies and sizes of groups add up, there are no edges between batches.

    Args:
        num_groups (int): Groups are numbered from 0 to one less than this.
            (default: :obj:`2`)
        definition (str): Divisor of a group's energy.
            (default: ``"members"``)

    Example:
        >>> metric = GroupDisparity()
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> metric.update(torch.tensor([0.0, 1.0]), edge_index, torch.tensor([0, 0]))
        >>> metric.update(torch.tensor([0.0, 2.0]), edge_index, torch.tensor([1, 1]))
        >>> metric.compute()
        tensor(4., dtype=torch.float64)
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    energy: Tensor
    size: Tensor
    linked: Tensor

    def __init__(
        self, num_groups: int = 2, definition: Definition = "members", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_choice("definition", definition, ("members", "pairs", "guide"))
        self.num_groups = check_count("num_groups", num_groups, minimum=2)
        self.definition: Definition = definition
        for name in ("energy", "size", "linked"):
            zero = torch.zeros(num_groups, dtype=torch.float64)
            self.add_state(name, zero, dist_reduce_fx="sum")

    def update(
        self,
        y: Tensor,
        edge_index: Any,
        group: Tensor,
        edge_weight: Tensor | None = None,
    ) -> None:
        """Adds the nodes of a graph."""
        shares = group_shares(
            y, edge_index, group, edge_weight, self.definition, self.num_groups
        )
        for name, value in zip(("energy", "size", "linked"), shares, strict=True):
            setattr(self, name, getattr(self, name) + value)

    def compute(self) -> Tensor:
        """The ratio over all graphs added."""
        return disparity(self.energy, self.size, self.linked)


class LaplacianEnergy(Metric):
    r"""Laplacian energy of outputs on similarity graphs.

    The sum of :func:`laplacian_energy` over batches, each of which brings the graph
    of its own nodes: there are no edges between batches.

    Args:
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        unit_variance (bool): Whether the energy of each graph is divided by the
            variance of its outputs. (default: :obj:`False`)

    Example:
        >>> metric = LaplacianEnergy()
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> metric.update(torch.tensor([0.0, 3.0]), edge_index)
        >>> metric.update(torch.tensor([0.0, 1.0]), edge_index, torch.ones(2))
        >>> metric.compute()
        tensor(10., dtype=torch.float64)
    """

    is_differentiable = True
    higher_is_better = False
    full_state_update = False

    energy: Tensor

    def __init__(
        self,
        normalization: Normalization = None,
        *,
        unit_variance: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choice("normalization", normalization, (None, "nrw", "density"))
        self.normalization = normalization
        self.unit_variance = unit_variance
        zero = torch.zeros((), dtype=torch.float64)
        self.add_state("energy", zero, dist_reduce_fx="sum")

    def update(
        self, y: Tensor, edge_index: Any, edge_weight: Tensor | None = None
    ) -> None:
        """Adds the energy of a graph."""
        self.energy = self.energy + laplacian_energy(
            y,
            edge_index,
            edge_weight,
            normalization=self.normalization,
            unit_variance=self.unit_variance,
        )

    def compute(self) -> Tensor:
        """The energy over all graphs added."""
        return self.energy


class LipschitzViolations(_SampleRows):
    r"""Share of pairs that global individual fairness forbids.

    ``lipschitz_violations(...).share`` over all batches: pairs across batches
    count, so features and outputs are kept until :meth:`compute`.

    Args:
        lipschitz (float): The constant :math:`L \ge 0`, outputs per distance.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        rtol (float, optional): Excess that is forgiven, as a share of
            :math:`L d`. (default: 0)

    Example:
        >>> metric = LipschitzViolations(lipschitz=1.0)
        >>> metric.update(torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, 2.0]))
        >>> metric.update(torch.tensor([[3.0]]), torch.tensor([2.5]))
        >>> metric.compute()
        tensor(0.3333)
    """

    is_differentiable = False
    higher_is_better = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    def __init__(
        self,
        lipschitz: float,
        *,
        distance: FairDistance | None = None,
        rtol: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, **kwargs)
        self.lipschitz = check_scalar("lipschitz", lipschitz, minimum=0.0)
        self.rtol = check_scalar("rtol", rtol, minimum=0.0)

    def compute(self) -> Tensor:
        """The share over everything added."""
        x, y = self._all()
        violations = lipschitz_violations(
            x, y, self.lipschitz, distance=self.distance, rtol=self.rtol
        )
        return torch.tensor(violations.share, dtype=torch.float32, device=self.device)


class LocalLipschitz(_StoredRows):
    r"""A quantile of the local Lipschitz constants of similarity graphs.

    :func:`local_lipschitz` over the edges of all batches: each update brings the
    graph of its own nodes.

    Args:
        quantile (float, optional): Share :math:`q` of edges that should not exceed
            the result; 1 gives the largest ratio. (default: 1.0)

    Example:
        >>> metric = LocalLipschitz()
        >>> edge_index, sq_dist = torch.tensor([[0, 1], [1, 0]]), torch.tensor([4.0, 4])
        >>> metric.update(torch.tensor([0.0, 1.0]), edge_index, sq_dist)
        >>> metric.update(torch.tensor([0.0, 3.0]), edge_index, sq_dist)
        >>> metric.compute()
        tensor(1.5000)
    """

    is_differentiable = False
    higher_is_better = False
    plot_lower_bound = 0.0

    _states = ("ratio",)
    ratio: list[Tensor]

    def __init__(self, quantile: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quantile = check_share("quantile", quantile)

    def update(self, y: Tensor, edge_index: Tensor, sq_dist: Tensor) -> None:
        """Adds the edges of a graph."""
        self.ratio.append(edge_ratios(y, edge_index, sq_dist)[0])

    def compute(self) -> Tensor:
        """The quantile over all edges added."""
        (ratio,) = self._all()
        return edge_quantiles(ratio.sort().values, [self.quantile])[0]


class PredictionConsistency(_StoredRows):
    r"""Share of groups of counterfactuals whose predicted classes all agree.

    :func:`prediction_consistency` over all batches: a group may be spread over
    several of them.

    Calling the metric returns the value of one batch and needs a whole group in it;
    use ``update`` if there may be none.

    Example:
        >>> metric = PredictionConsistency()
        >>> metric.update(torch.tensor([1, 0]), group=torch.tensor([7, 8]))
        >>> metric.update(torch.tensor([1, 1]), group=torch.tensor([7, 8]))
        >>> metric.compute()
        tensor(0.5000)
    """

    is_differentiable = False
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    _states = ("label", "group")
    label: list[Tensor]
    group: list[Tensor]

    def update(self, y: Tensor, group: Tensor) -> None:
        """Adds predictions and the groups they belong to."""
        label = predicted_label(y)
        self.group.append(check_labels("group", group, label.numel()))
        self.label.append(label)

    def compute(self) -> Tensor:
        """The share over everything added."""
        return prediction_consistency(*self._all())


class _Ranking(_SampleRows):
    """Base of metrics that rank all samples for each of them."""

    is_differentiable = False
    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    _measure: Callable[..., Tensor]

    def __init__(
        self,
        k: int = 10,
        *,
        outputs: Literal["euclidean", "cosine"] = "euclidean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.k = check_count("k", k)
        check_choice("outputs", outputs, ("euclidean", "cosine"))
        self.outputs = outputs

    def compute(self) -> Tensor:
        """The value over everything added."""
        x, y = self._all()
        return type(self)._measure(y, x, k=self.k, outputs=self.outputs)


class RankingNDCG(_Ranking):
    r"""NDCG@k of similar samples, ranked by output.

    :func:`ranking_ndcg` over all batches, similarity being the cosine of features.

    Args:
        k (int): Places that count. (default: :obj:`10`)
        outputs (str): How outputs are compared. (default: ``"euclidean"``)

    Example:
        >>> metric = RankingNDCG(k=1)
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        >>> metric.update(x, torch.tensor([0.9, 0.8, 0.1]))
        >>> metric.compute()
        tensor(1.)
    """

    _measure = staticmethod(ranking_ndcg)


class RankingERR(_Ranking):
    r"""ERR@k of similar samples, ranked by output.

    :func:`ranking_err` over all batches, with the arguments of :class:`RankingNDCG`.

    Example:
        >>> metric = RankingERR(k=1)
        >>> metric.update(torch.ones(3, 2), torch.tensor([0.9, 0.8, 0.1]))
        >>> metric.compute()
        tensor(0.5000)
    """

    _measure = staticmethod(ranking_err)
