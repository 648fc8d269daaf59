"""The explanation of one output: facts, and the forms in which they are shown."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from pyg_glif._utils.disclosure import is_shared
from pyg_glif._utils.json import plain
from pyg_glif.reporting import Figure, explanation_page as page

if TYPE_CHECKING:
    from pyg_glif.audit.audit_report import Output

#: Version of the keys that ``Explanation.to_dict`` returns.
EXPLANATION_VERSION = 2


@dataclass(frozen=True)
class Contribution:
    """Part of a result that comes from some samples."""

    num_samples: int  #: Number of these samples.
    share: float  #: Their part in the result.
    #: Average of the model's outputs for them, weighted by their part; :obj:`None` if
    #: there are none, or if it is unknown.
    mean: "Output | None" = None
    #: Number of samples that their weights amount to; :obj:`None` for equal weights.
    effective: float | None = None

    @property
    def effective_number(self) -> float:
        """Number of equally weighted samples that would say as much."""
        return self.num_samples if self.effective is None else self.effective

    @property
    def is_shared(self) -> bool:
        """Whether enough samples share it that it reveals nothing about one of them."""
        return is_shared(self.effective_number)

    def joined(self, other: "Contribution") -> "Contribution":
        """This contribution and another as one, without an average."""
        parts = [part for part in (self, other) if part.share]
        square = sum(part.share**2 / part.effective_number for part in parts)
        total = sum(abs(part.share) for part in parts)
        return Contribution(
            self.num_samples + other.num_samples,
            self.share + other.share,
            None,
            total**2 / square if square else 0.0,
        )


@dataclass(frozen=True)
class Difference:
    """A feature in which a sample differs from others."""

    feature: str  #: Name of the feature.
    own: Any  #: Value of the sample; :obj:`None` if it is missing.
    #: Average of the known values of the others, or the text that most of them have;
    #: :obj:`None` if fewer than five share it.
    others: Any
    num_differing: int  #: Number of others with another value, or with none.
    num_others: int  #: Number of others.
    size: float  #: Size by which differences are ranked, in ``unit``.
    #: ``"standard deviations"``, ``"share of them"``, or for reasons in the units of a
    #: table what a distance of one means.
    unit: str
    num_unknown: int = 0  #: Number of others whose value is missing.


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""Contributions of samples to one smoothed output.

    .. math::
        f_i = \sum_j R_{ij} \hat y_j, \qquad
        \mathbf{R} = (\mathbf{I} + \lambda \mathbf{L})^{-1}

    Shapes:
        - **index**, **weight**, **dist:** :math:`(K)`

    With a link the sum holds in dual coordinates. Texts, tables and pictures name and
    number no other sample: what they say about features and scores is shared by at
    least five (:ref:`disclosure`). With ``names=True`` they list contributors, with
    their ids. How reasons are found, and what they do not say, is in
    :doc:`/explanations`.

    Example:
        >>> import torch
        >>> Explanation(torch.tensor([3]), torch.ones(1), torch.zeros(1))
        Explanation(num_samples=1, total=1.0000, error_bound=0.0e+00)
        >>> from pyg_glif import GLIFPostProcessor
        >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
        >>> post = GLIFPostProcessor(tau=0.5, theta=0.0)
        >>> why = post.fit(x, torch.tensor([0.9, 0.2, 0.7, 0.4])).explain(0)
        >>> print(why.to_text())
        Your score went from 0.90 to 0.68. It is an average of your own score and those
        of people like you, who are too few to say more. Figures are rounded.
        >>> round(why.neighbors_mean, 4)  # of two: not part of the text
        0.45
    """

    #: Fitted samples by falling weight; ``-1`` is the new sample being explained.
    index: Tensor
    #: Their share :math:`R_{ij}` in the output, float64. For all but ``"nrw"``, weights
    #: are not negative and sum to one over all samples.
    weight: Tensor
    dist: Tensor  #: Their fair distance from the sample explained.
    #: Bound on the Euclidean norm of the error of all weights together, also those that
    #: were left out.
    error_bound: float = 0.0
    #: Id or number of the sample; :obj:`None` for a new one.
    sample: str | int | None = None
    #: Ids of the samples of ``index``; :obj:`None` is the new sample.
    ids: tuple[Any, ...] | None = field(default=None, repr=False)
    #: The model's outputs of the samples of ``index``; NaN where it is unknown.
    outputs: Tensor | None = field(default=None, repr=False)
    y_hat: "Output | None" = None  #: The model's output for the sample.
    y_fair: "Output | None" = None  #: The smoothed output.
    own: Contribution = Contribution(1, 1.0)  #: From the sample's own output.
    neighbors: Contribution = Contribution(0, 0.0)  #: From its neighbors.
    #: From neighbors of neighbors, and on.
    others: Contribution = Contribution(0, 0.0)
    averaged: str = "outputs"  #: What is averaged, such as ``"log-odds"``.
    #: Differences from the nearest neighbors; :obj:`None` if features are unknown or
    #: there are fewer than five neighbors.
    closest: tuple[Difference, ...] | None = None
    #: Differences from neighbors with a higher score, by falling size; :obj:`None` if
    #: features are unknown, of several outputs, or for fewer than five such neighbors.
    reasons: tuple[Difference, ...] | None = None
    num_higher: int | None = None  #: Number of neighbors with a higher smoothed output.
    output_names: tuple[Any, ...] | None = None  #: Names of several outputs.
    is_counted: bool = True  #: Whether texts say how many samples contribute.
    #: Whether the output was left as it was, because too few samples share the
    #: correction to disclose it.
    is_withheld: bool = False

    def __repr__(self) -> str:
        return (
            f"Explanation(num_samples={self.index.numel()}, "
            f"total={float(self.weight.sum()):.4f}, "
            f"error_bound={self.error_bound:.1e})"
        )

    @property
    def own_share(self) -> float:
        """Share of the sample's own output in the result."""
        return self.own.share

    @property
    def num_neighbors(self) -> int:
        """Number of neighbors."""
        return self.neighbors.num_samples

    @property
    def neighbors_mean(self) -> "Output | None":
        """Average of the model's outputs for neighbors, weighted by their part."""
        return self.neighbors.mean

    @property
    def parts(self) -> dict[str, Contribution]:
        """Own output, neighbors and others."""
        return {"own": self.own, "neighbors": self.neighbors, "others": self.others}

    @property
    def disclosed(self) -> dict[str, Contribution]:
        """Parts that may be shown: one's own, and those that enough samples share.

        Neighbors and others are taken ``"together"`` where one of them is not shared,
        and are left out, with the own share, where both together are not.
        """
        present = {name: part for name, part in self.parts.items() if part.num_samples}
        if all(part.is_shared for name, part in present.items() if name != "own"):
            return present
        together = self.neighbors.joined(self.others)
        return {"own": self.own, "together": together} if together.is_shared else {}

    @property
    def contributors(self) -> list[dict[str, Any]]:
        """Samples of ``index`` with id, share, distance and output."""
        out = []
        columns = (self.index.tolist(), self.weight.tolist(), self.dist.tolist())
        for place, (index, weight, dist) in enumerate(zip(*columns, strict=True)):
            name = "own output" if index < 0 else index
            if self.ids is not None and index >= 0:
                name = self.ids[place]
            row = {"sample": name, "share": weight, "distance": dist}
            if self.outputs is not None:
                output = self.outputs[place].reshape(-1).tolist()
                row["output"] = output[0] if len(output) == 1 else output
            out.append(row)
        return out

    def to_dict(self, names: bool = False) -> dict[str, Any]:
        """Plain data, for ``json.dumps``."""
        shown = self.parts if names else self.disclosed
        absent = Contribution(0, 0.0)  # a part that is not there may be shown
        own, *rest = (
            (name, shown.get(name) if part.num_samples else absent)
            for name, part in self.parts.items()
        )
        higher = self.num_higher
        out: dict[str, Any] = {
            "schema_version": EXPLANATION_VERSION,
            "sample": self.sample,
            "y_hat": self.y_hat,
            "y_fair": self.y_fair,
            **{f"{name}_share": part and part.share for name, part in (own, *rest)},
            **{
                f"num_{name}": part.num_samples if part and self.is_counted else None
                for name, part in rest
            },
            **{f"{name}_mean": part and part.mean for name, part in rest},
            "averaged": self.averaged,
            "closest": self.closest and list(map(vars, self.closest)),
            "num_higher": higher if names or is_shared(higher or 0) else None,
            "reasons": self.reasons and list(map(vars, self.reasons)),
            "error_bound": self.error_bound,
            "text": self.to_text(),
        }
        if names:
            out["contributors"] = self.contributors
        return dict(plain(out))

    def to_frame(self, names: bool = False) -> Any:
        """A frame of pandas with the parts of the result, or with contributors."""
        import pandas

        if names:
            return pandas.DataFrame(self.contributors)
        table = page.figure_of(self)
        return pandas.DataFrame(table.rows, columns=list(table.header))

    def to_text(
        self, names: bool = False, reasons: bool = False, noun: str = "score"
    ) -> str:
        """The explanation in plain words, addressed to the person it is about.

        Args:
            names (bool): Whether to name the first ten contributors.
                (default: :obj:`False`)
            reasons (bool): Whether to add the differences from neighbors with a higher
                score. (default: :obj:`False`)
            noun (str): What outputs are called. (default: ``"score"``)
        """
        return page.text_of(self, names, reasons, noun)

    def to_markdown(self, names: bool = False) -> str:
        """The parts of the result, or contributors, as a table."""
        return page.markdown_of(self, names)

    def figures(self) -> tuple[Figure, ...]:
        """The parts of the result as a chart for pages; needs ``pyg_glif[report]``."""
        return (page.figure_of(self),)

    def plot(self) -> Any:
        """A matplotlib figure of the parts of the result."""
        return page.plot_of(self)

    def _repr_html_(self) -> str:
        """The text and the table, for notebooks."""
        return page.fragment_of(self)
