"""Why a person got the output they got."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyg_glif._utils.disclosure import MIN_SHARED, is_shared, shared_mean, shared_value
from pyg_glif._utils.json import plain
from pyg_glif._utils.markup import markdown_table
from pyg_glif._utils.optional import require
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.reporting import Figure, bar_chart, counted, environment, number, shown
from pyg_glif.solvers import Solution

if TYPE_CHECKING:
    from pyg_glif.audit.audit_report import Output

#: Version of the keys that ``Explanation.to_dict`` returns.
LETTER_VERSION = 1
# Features named in a text.
_NAMED = 3
_COLORS = {
    "own output": "#e07b00",
    "people like you": "#1f8fd6",
    "people like them": "#7d8790",
    "people like you and like them": "#1f8fd6",
}


@dataclass(frozen=True)
class Contribution:
    """Some of those whose outputs make up a result.

    Args:
        num_people (int): How many they are.
        share (float): Their part in the result.
        mean (float or tuple, optional): The average of the model's outputs for them,
            weighted by their part; :obj:`None` if there is nobody, or if it is not
            known.
        effective (float, optional): The number of samples that their weights amount to.
            (default: ``num_people``, as for equal weights)
    """

    num_people: int
    share: float
    mean: "Output | None" = None
    effective: float | None = None

    @property
    def is_shared(self) -> bool:
        """Whether enough samples share it to tell nothing about one of them."""
        number = self.num_people if self.effective is None else self.effective
        return is_shared(number)

    def joined(self, other: "Contribution") -> "Contribution":
        """This one and another, without an average."""
        parts = [(abs(one.share), one) for one in (self, other) if one.share]
        square = sum(
            share**2 / (one.num_people if one.effective is None else one.effective)
            for share, one in parts
        )
        effective = sum(share for share, _ in parts) ** 2 / square if square else 0.0
        num, share = self.num_people + other.num_people, self.share + other.share
        return Contribution(num, share, None, effective)


@dataclass(frozen=True)
class Difference:
    """A feature in which somebody differs from others.

    Args:
        feature (str): What it is called.
        yours (float or str, optional): Their value; :obj:`None` if it is missing.
        theirs (float or str, optional): The average of those of the others for whom it
            is known, or the text that most of the others have; :obj:`None` if fewer
            than five share it.
        num_differing (int): How many of the others have another value, or none.
        num_others (int): How many others there are.
        size (float): What it is ranked by, in ``unit``.
        unit (str): ``"standard deviations"``, ``"share of them"``, or for reasons in
            the units of a table what a distance of one means.
        num_unknown (int): For how many of the others the value is missing.
    """

    feature: str
    yours: Any
    theirs: Any
    num_differing: int
    num_others: int
    size: float
    unit: str
    num_unknown: int = 0


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""Who contributed how much to one person's smoothed output.

    .. math::
        f_i = \sum_j R_{ij} \hat y_j, \qquad
        \mathbf{R} = (\mathbf{I} + \lambda \mathbf{L})^{-1}

    Args:
        index (Tensor): Fitted people by falling weight; ``-1`` is the new person
            being explained.
        weight (Tensor): Their share :math:`R_{ij}` in the output, float64. For all
            but ``"nrw"``, weights are not negative and those of everybody sum to one.
        dist (Tensor): Their fair distance from the person explained.
        error_bound (float): Bound on the Euclidean norm of the error of all weights
            together, also those that were left out.
        person (str or int, optional): What the person is called; :obj:`None` for a
            newcomer.
        ids (tuple, optional): What the people of ``index`` are called; :obj:`None` is
            the newcomer.
        outputs (Tensor, optional): The model's outputs of the people of ``index``;
            NaN for a newcomer whose output is not known.
        y_hat (float or tuple, optional): The model's output for the person.
        y_fair (float or tuple, optional): The smoothed output.
        own (Contribution): What comes from the person's own output.
        peers (Contribution): What comes from those who are similar to the person.
        others (Contribution): What comes from those who are similar to peers, and on.
        averaged (str): What is averaged: ``"outputs"``, ``"log-odds"``, ...
        closest (tuple of Difference, optional): How the closest peers differ;
            :obj:`None` if features are not known or there are fewer than five peers.
        reasons (tuple of Difference, optional): What tells the person from their
            higher-scored peers, by falling size; :obj:`None` if features are not
            known, if there are several outputs, or fewer than five such peers.
        num_higher (int, optional): How many peers have a higher smoothed output.
        output_names (tuple, optional): What several outputs are called.
        is_counted (bool): Whether texts and tables say how many people contribute.
        is_withheld (bool): Whether the output was left as it was, because too few share
            the correction to tell it.

    Shapes:
        - **index**, **weight**, **dist:** :math:`(K)`

    With a link the sum holds in dual coordinates. Texts, tables and pictures name and
    number nobody but the person, unless asked by ``names=True``: what they tell about
    features and scores is shared by at least five (:ref:`disclosure`). How reasons are
    found, and what they do not say, is in :doc:`/letters`.

    Example:
        >>> Explanation(torch.tensor([3]), torch.ones(1), torch.zeros(1))
        Explanation(num_people=1, total=1.0000, error_bound=0.0e+00)
        >>> from pyg_glif import GLIFPostProcessor
        >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
        >>> post = GLIFPostProcessor(tau=0.5, theta=0.0)
        >>> why = post.fit(x, torch.tensor([0.9, 0.2, 0.7, 0.4])).explain(0)
        >>> print(why.to_text())
        Your score went from 0.90 to 0.68. It is an average of your own score and those
        of people like you, who are too few to say more. Figures are rounded.
        >>> round(why.peers_mean, 4)  # of two: not part of a letter
        0.45
    """

    index: Tensor
    weight: Tensor
    dist: Tensor
    error_bound: float = 0.0
    person: str | int | None = None
    ids: tuple[Any, ...] | None = field(default=None, repr=False)
    outputs: Tensor | None = field(default=None, repr=False)
    y_hat: "Output | None" = None
    y_fair: "Output | None" = None
    own: Contribution = Contribution(1, 1.0)
    peers: Contribution = Contribution(0, 0.0)
    others: Contribution = Contribution(0, 0.0)
    averaged: str = "outputs"
    closest: tuple[Difference, ...] | None = None
    reasons: tuple[Difference, ...] | None = None
    num_higher: int | None = None
    output_names: tuple[Any, ...] | None = None
    is_counted: bool = True
    is_withheld: bool = False

    def __repr__(self) -> str:
        return (
            f"Explanation(num_people={self.index.numel()}, "
            f"total={float(self.weight.sum()):.4f}, "
            f"error_bound={self.error_bound:.1e})"
        )

    @property
    def own_share(self) -> float:
        """How much of the result is the person's own output."""
        return self.own.share

    @property
    def num_peers(self) -> int:
        """How many people are similar to the person."""
        return self.peers.num_people

    @property
    def peers_mean(self) -> "Output | None":
        """The average of the model's outputs for peers, weighted by their part."""
        return self.peers.mean

    @property
    def parts(self) -> dict[str, Contribution]:
        """Own output, peers and others."""
        parts = (self.own, self.peers, self.others)
        return dict(zip(_COLORS, parts, strict=False))

    @property
    def disclosed(self) -> dict[str, Contribution]:
        """The parts that may be told: each of one's own, or shared by enough samples.

        Peers and others are taken together where one of them is not, and are left out,
        with the own share, where both together are not.
        """
        rest = [part for part in (self.peers, self.others) if part.num_people]
        if all(part.is_shared for part in rest):
            return {name: part for name, part in self.parts.items() if part.num_people}
        own, _, _, together = _COLORS
        joined = self.peers.joined(self.others)
        return {own: self.own, together: joined} if joined.is_shared else {}

    def to_dict(self, names: bool = False) -> dict[str, Any]:
        """Plain data, for ``json.dumps``.

        Args:
            names (bool): Whether to list contributors. (default: :obj:`False`)
        """
        told = self.parts if names else self.disclosed
        nobody = Contribution(0, 0.0)  # a part that is not there may be told
        parts = {
            key: told.get(name) if part.num_people else nobody
            for key, (name, part) in zip(
                ("own", "peers", "others"), self.parts.items(), strict=True
            )
        }
        higher = self.num_higher
        out: dict[str, Any] = {
            "schema_version": LETTER_VERSION,
            "person": self.person,
            "y_hat": self.y_hat,
            "y_fair": self.y_fair,
            **{f"{k}_share": one and one.share for k, one in parts.items()},
            **{
                f"num_{k}": one.num_people if one and self.is_counted else None
                for k, one in parts.items()
                if k != "own"
            },
            **{f"{k}_mean": one and one.mean for k, one in parts.items() if k != "own"},
            "averaged": self.averaged,
            "closest": _listed(self.closest),
            "num_higher": higher if names or is_shared(higher or 0) else None,
            "reasons": _listed(self.reasons),
            "error_bound": self.error_bound,
            "text": self.to_text(),
        }
        if names:
            out["contributors"] = self._contributors()
        return dict(plain(out))

    def to_frame(self, names: bool = False) -> Any:
        """A frame of pandas: what comes from whom.

        Args:
            names (bool): Whether to have a row for each contributor, with what they are
                called. (default: :obj:`False`, a row each for the own output, for peers
                and for others)
        """
        import pandas

        if names:
            return pandas.DataFrame(self._contributors())
        header, rows = self._table()
        return pandas.DataFrame(rows, columns=header)

    def to_text(
        self, names: bool = False, reasons: bool = False, noun: str = "score"
    ) -> str:
        """The explanation in plain words, as a letter to the person has it.

        Args:
            names (bool): Whether to name contributors, at most ten.
                (default: :obj:`False`)
            reasons (bool): Whether to add what tells the person from their
                higher-scored peers. (default: :obj:`False`)
            noun (str): What outputs are called. (default: ``"score"``)
        """
        paragraphs = [self._words(noun), self._reasons(noun) if reasons else ()]
        filled = (fill(" ".join(one), 80, break_on_hyphens=False) for one in paragraphs)
        out = "\n\n".join(filter(None, filled))
        if names:
            for one in self._contributors()[:10]:
                out += f"\n{_percent(one['share'])} {one['person']}"
        return out

    def to_markdown(self, names: bool = False) -> str:
        """What comes from whom as a table.

        Args:
            names (bool): Whether to have a line for each contributor.
                (default: :obj:`False`)
        """
        if not names:
            header, rows = self._table()
            cells = [[shown(value) for value in row] for row in rows]
            return markdown_table(header, cells, align="lrrr")
        rows = [
            [one["person"], f"{one['share']:.4f}", f"{one['distance']:.4g}"]
            for one in self._contributors()
        ]
        return markdown_table(["person", "weight", "distance"], rows, align="rrr")

    def figures(self) -> tuple[Figure, ...]:
        """The explanation as a chart for pages; needs ``pyg_glif[report]``."""
        header, table = self._table()
        rows = [
            {"share": 100.0 * part.share, "of": name, "kind": name}
            for name, part in self.disclosed.items()
        ]
        spec = bar_chart(
            [{**row, "percent of the result": row["share"]} for row in rows],
            "percent of the result",
            "of",
            color="kind",
            colors=_COLORS,
        )
        words = "How much of the result comes from whom."
        return (
            Figure("shares", "What the result is made of", words, spec, header, table),
        )

    def plot(self) -> Any:
        """A matplotlib figure: how much comes from whom."""
        matplotlib = require("matplotlib.figure", "Explanation.plot", "plots")
        figure = matplotlib.Figure(figsize=(6.4, 2.2), layout="constrained")
        axes = figure.subplots()
        for name, part in self.disclosed.items():
            bar = axes.barh([name], [100.0 * part.share], color=_COLORS[name])
            axes.bar_label(bar, [_percent(part.share)], padding=3)
        axes.invert_yaxis()
        axes.set(xlabel="percent of the result", xlim=(0.0, 112.0))
        if isinstance(self.y_hat, float) and isinstance(self.y_fair, float):
            before, after = _apart(self.y_hat, self.y_fair)
            axes.set_title(f"from {before} to {after}", fontsize="medium")
        return figure

    def _repr_html_(self) -> str:
        """The text and the table, for notebooks."""
        header, rows = self._table()
        page = environment().get_template("explanation_short.html")
        return page.render(text=self.to_text(), header=header, rows=rows)

    def _table(self) -> tuple[list[str], list[list[Any]]]:
        """What comes from whom, with averages."""
        header = ["from", "people", "percent", "average output"]
        told = self.disclosed
        percents = whole_percents([part.share for part in told.values()])
        rows: list[list[Any]] = [
            [name, part.num_people, percent, part.mean]
            for (name, part), percent in zip(told.items(), percents, strict=True)
        ]
        if not self.is_counted:
            header, rows = (
                [one for one in header if one != "people"],
                [[name, *rest] for name, _, *rest in rows],
            )
        return header, rows

    def _contributors(self) -> list[dict[str, Any]]:
        """Everybody of ``index``, with what they are called."""
        columns = (self.index.tolist(), self.weight.tolist(), self.dist.tolist())
        out = []
        for at, (index, weight, dist) in enumerate(zip(*columns, strict=True)):
            name = "own output" if index < 0 else index
            if self.ids is not None and index >= 0:
                name = self.ids[at]
            one = {"person": name, "share": weight, "distance": dist}
            if self.outputs is not None:
                found = self.outputs[at].reshape(-1).tolist()
                one["output"] = found[0] if len(found) == 1 else found
            out.append(one)
        return out

    def _words(self, what: str) -> Iterator[str]:
        """Sentences, in the order in which they are read."""
        yield from self._change(what)
        if self.is_withheld:
            few = "Too few people like you were found to tell what they got"
            yield f"{few}, so it is your own {what} alone."
            return
        if not self.peers.num_people:
            yield f"Nobody like you was found, so it is your own {what} alone."
            return
        total = sum(part.share for part in self.parts.values())
        kind = "an average" if abs(total - 1.0) < 1e-6 else "a sum"
        told = self.disclosed
        if not told:
            yield (
                f"It is {kind} of your own {what} and those of people like you, who "
                "are too few to say more."
            )
        else:
            parts, comes = [], " comes"
            percents = whole_percents([part.share for part in told.values()])
            for (name, part), percent in zip(told.items(), percents, strict=True):
                share = _whole(percent, part)
                if part is self.own:
                    parts.append(f"{share} is your own {what}")
                    continue
                like = name.removeprefix("people ")
                who = counted(part.num_people, "person", "people")
                who = who if self.is_counted else "people"
                parts.append(f"{share}{comes} from {who} {like}{_mean(part, what)}")
                comes = ""
            yield f"It is {kind}: {_and(parts)}."
        if self.averaged != "outputs":
            yield f"Averages are of {self.averaged}, not of the {what}s themselves."
        yield from self._closest()
        yield "Figures are rounded."

    def _change(self, what: str) -> Iterator[str]:
        """From what to what."""
        if self.y_hat is None or self.y_fair is None:
            yield "This is what your result is made of."
            return
        if isinstance(self.y_hat, tuple) and isinstance(self.y_fair, tuple):
            names = self.output_names or range(len(self.y_hat))
            changes = []
            for name, one, two in zip(names, self.y_hat, self.y_fair, strict=True):
                before, after = _apart(one, two)
                changes.append(f"{name} from {before} to {after}")
            yield f"Your {what}s went: {'; '.join(changes)}."
            return
        assert isinstance(self.y_hat, float)
        assert isinstance(self.y_fair, float)
        before, after = _apart(self.y_hat, self.y_fair)
        if self.y_hat == self.y_fair:
            yield f"Your {what} stayed at {after}."
        else:
            yield f"Your {what} went from {before} to {after}."

    def _closest(self) -> Iterator[str]:
        """In what the closest differ."""
        if self.closest is None:
            return
        if not self.closest:
            yield f"The {MIN_SHARED} closest do not differ from you in any feature."
            return
        told = [_told(one) for one in self.closest[:_NAMED]]
        yield f"The {MIN_SHARED} closest differ from you in {_and(told)}."

    def _reasons(self, what: str) -> Iterator[str]:
        """What tells the person from higher-scored peers."""
        if self.reasons is None:
            return
        higher = counted(self.num_higher or 0, "person", "people")
        if not self.reasons:
            likes = f"the {higher} like you with a higher {what}"
            yield f"No feature sets you apart from {likes}."
            return
        told = [_told(one) for one in self.reasons[:_NAMED]]
        yield (
            f"What sets you apart from the {higher} like you with a higher {what}: "
            f"{_and(told)}."
        )


def _mean(part: Contribution, what: str) -> str:
    """What outputs of others average."""
    mean = part.mean
    return f", whose {what}s average {mean:.2f}" if isinstance(mean, float) else ""


def stochastic(found: Solution, own: float, exact: bool) -> tuple[Tensor, float]:
    """Weights from a solve, and the bound on their error.

    The true weights are not negative and sum, with the person's ``own``, to one;
    solutions meet that up to their tolerance and are moved there.
    """
    weight, bound = found.value[:, 0], float(found.error_bound.max())
    if not exact:
        return weight, bound
    weight = weight.clamp(min=0.0)  # no further from the truth than before
    total = float(weight.sum())
    scale = (1.0 - own) / total if total > 0 else 1.0
    bound += abs(1.0 - scale) * float(torch.linalg.vector_norm(weight))
    return weight * scale, bound


def strongest(weight: Tensor, top: int | None) -> Tensor:
    """People by falling absolute weight, on ties the first; nobody with weight 0."""
    size, order = weight.abs().sort(descending=True, stable=True)
    order = order[size > 0]
    return order if top is None else order[:top]


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Shares in whole percents: those with the largest remainders are rounded up.

    Example:
        >>> whole_percents([1 / 3, 1 / 3, 1 / 3]), whole_percents([0.005, 0.995])
        ([34, 33, 33], [1, 99])
    """
    floors = [int(100.0 * share // 1) for share in shares]
    left = round(100.0 * sum(shares)) - sum(floors)
    rest = sorted(range(len(shares)), key=lambda at: floors[at] - 100.0 * shares[at])
    for at in rest[:left]:
        floors[at] += 1
    return floors


def closest_differences(
    mine: DisplayFeatures, others: DisplayFeatures, spread: Tensor
) -> tuple[Difference, ...]:
    """In what somebody differs from others, by falling size."""
    found = [
        _difference(mine, others, at, float(spread[at]), None, None)
        for at in _with_effect(mine)
    ]
    found = [one for one in found if one.num_differing]
    return tuple(sorted(found, key=lambda one: -one.size))


def reasons_of(
    mine: DisplayFeatures,
    others: DisplayFeatures,
    spread: Tensor,
    weight: Tensor,
    gain: Any,
) -> tuple[Difference, ...]:
    """What tells somebody from higher-scored others, by falling size.

    ``gain`` has, if a table measured it, how much more of every feature's effect the
    others have, and its unit; only features with more of it are reasons.
    """
    found = []
    for at in _with_effect(mine):
        effect = None if gain is None else (float(gain[0][at]), gain[1])
        one = _difference(mine, others, at, float(spread[at]), weight, effect)
        if one.num_differing and one.size > 0.0:
            found.append(one)
    return tuple(sorted(found, key=lambda one: -one.size))


def _with_effect(features: DisplayFeatures) -> list[int]:
    """The columns that count: a table may have found that some have no effect."""
    reach = features.reach or (None,) * len(features.names)
    return [at for at, size in enumerate(reach) if size != 0.0]


def _difference(
    mine: DisplayFeatures,
    others: DisplayFeatures,
    at: int,
    spread: float,
    weight: Tensor | None,
    effect: tuple[float, str] | None,
) -> Difference:
    """How others differ from somebody in one feature."""
    values = [others.value(row, at) for row in range(len(others))]
    yours, texts = mine.value(0, at), mine.levels[at] is not None
    unknown = values.count(None)
    differing = sum(value != yours for value in values)
    weights = torch.ones(len(values)) if weight is None else weight
    size, unit = differing / len(values), "share of them"
    theirs = shared_value(values) if texts else shared_mean(values, weights)
    if isinstance(theirs, float) and yours is not None and spread > 0.0:
        size, unit = abs(theirs - yours) / spread, "standard deviations"
    if effect is not None:
        size, unit = effect
    name = mine.names[at]
    return Difference(name, yours, theirs, differing, len(values), size, unit, unknown)


def _told(one: Difference) -> str:
    """A difference in words: what they have instead, and how many have a gap."""
    yours = "nothing known" if one.yours is None else _value(one.yours)
    gaps = ""
    if 0 < one.num_unknown < one.num_others:
        gaps = f", not known for {one.num_unknown} of {one.num_others}"
    if one.num_unknown == one.num_others:
        theirs = "nothing known"
    elif one.theirs is None:
        mine = "not known" if one.yours is None else yours
        return f"{one.feature} (it varies{gaps}; yours is {mine})"
    elif isinstance(one.theirs, float):
        theirs = f"{_value(one.theirs)} on average"
    elif one.theirs == one.yours:
        count = f"{one.num_differing} of {one.num_others}"
        return f"{one.feature} (not {yours} for {count})"
    else:
        theirs = f"mostly {one.theirs}"
    return f"{one.feature} ({theirs} instead of {yours}{gaps})"


def _value(value: Any) -> str:
    """A value as people write it."""
    return number(value, 3) if isinstance(value, (int, float)) else str(value)


def _apart(before: float, after: float) -> tuple[str, str]:
    """Two numbers in as few decimals as tell them apart, two to six."""
    for digits in range(2, 7):
        found = f"{before:.{digits}f}", f"{after:.{digits}f}"
        if before == after or found[0] != found[1]:
            break
    return found


def _whole(percent: int, part: Contribution) -> str:
    """A percentage, which is not nothing if the share is not."""
    return "less than 1%" if percent == 0 and part.share > 0 else f"{percent}%"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _and(parts: Sequence[str]) -> str:
    """Parts of a sentence."""
    if len(parts) < 3:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _listed(found: Sequence[Difference] | None) -> list[dict[str, Any]] | None:
    return None if found is None else [vars(one) for one in found]
