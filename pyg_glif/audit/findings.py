"""Findings in sentences, against what is tolerated."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from pyg_glif._utils.validation import check_scalar
from pyg_glif.audit.audit_report import IntervalEstimate, Measure, Verdict
from pyg_glif.audit.dyadic_ci import share_of, wilson
from pyg_glif.audit.pair_stats import (
    Attribute,
    DisagreementRule,
    GroupRate,
    PairTreatment,
)
from pyg_glif.reporting import counted, number, percent


def pair_verdicts(
    pairs: PairTreatment,
    disagreement: DisagreementRule,
    attributes: Mapping[str, Attribute],
    num_samples: int,
    level: float,
) -> Iterator[Verdict]:
    """Shares of disagreeing pairs: of all, across groups, of identical samples."""
    masks = [disagreement.among(pairs, when) for when in range(len(pairs.y))]
    first, second = pairs.pairs.first, pairs.pairs.second
    kinds: dict[str, tuple[str, Any]] = {"pairs": ("Similar people", slice(None))}
    for name, label in attributes.items():
        across = label.codes[first] != label.codes[second]
        kinds[f"pairs_by_{name}"] = f"Similar people of different {name}", across
    kinds["identical"] = "Identical people", pairs.identical
    got = "got different decisions"
    if disagreement.difference is not None:
        got = f"got outputs more than {number(disagreement.difference)} apart"
    for name, (title, which) in kinds.items():
        chosen = [mask[which] for mask in masks]
        total, counts = chosen[0].numel(), [int(mask.sum()) for mask in chosen]
        if not total:
            continue
        of = counted(total, "pair", "pairs")
        words = f"Of {of} of {title[0].lower()}{title[1:]}, {counts[0]:,} {got}"
        if name == "identical":
            are = "is" if total == 1 else "are"
            words = f"{of} {are} identical in everything that counts; "
            words += f"{counts[0]:,} of them {got}"
        subset = pairs.pairs.only(which)
        shares = [share_of(mask, subset, num_samples, level) for mask in chosen]
        yield Verdict(
            name,
            title,
            _corrected(words, [f"{count:,}" for count in counts]),
            before=shares[0],
            after=shares[1] if len(shares) > 1 else None,
            num_before=counts[0],
            num_after=counts[1] if len(counts) > 1 else None,
            total=total,
        )


def gap_verdicts(
    measures: Mapping[str, Measure], attributes: Mapping[str, Attribute]
) -> Iterator[Verdict]:
    """Gaps between the averages of groups."""
    for name, label in attributes.items():
        measure = measures[f"gap_by_{name}"]
        sizes = [number(abs(value), 3) for value in measure.values]
        words = f"The averages of the groups are up to {sizes[0]} apart"
        if measure.title.endswith(")"):  # two groups, and a sign
            low, high = label.names
            for k, value in enumerate(measure.values):
                sizes[k] += " more" if value >= 0 else " less"
            words = f"On average, the group '{high}' gets {sizes[0]} than '{low}'"
        yield _gap(measure, f"Gap by {name}", _corrected(words, sizes))


def rate_verdicts(
    measures: Mapping[str, Measure], rates: Iterable[GroupRate]
) -> Iterator[Verdict]:
    """Gaps between the rates of groups, whichever way they go."""
    for rate in rates:
        texts = []
        for shares in rate.rates():
            named = dict(zip(rate.label.names, shares, strict=True))
            ends = list(named)  # of several groups, the two furthest apart
            if len(ends) > 2:
                ends = sorted(named, key=named.__getitem__)[:: len(named) - 1]
            texts.append(" and ".join(f"{percent(named[n])} of '{n}'" for n in ends))
        words = _corrected(f"{rate.of}, {texts[0]} get a yes", texts)
        before, *after = (abs(value) for value in measures[rate.name].values)
        if after and after[0] != before:
            way = "grows" if after[0] > before else "shrinks"
            words = f"{words.removesuffix('.')}: the gap {way}."
        yield _gap(measures[rate.name], rate.title, words)


def isolated_verdict(num_neighbors: Tensor, level: float) -> Verdict:
    """Share of isolated samples, the same before and after."""
    total, isolated = len(num_neighbors), int((num_neighbors == 0).sum())
    share, are = isolated / total, "is" if isolated == 1 else "are"
    people = counted(total, "person", "people")
    words = f"{isolated:,} of {people} {are} similar to nobody"
    if isolated:
        words += f" ({percent(share)}): nobody can say whether they are treated alike"
    return Verdict(
        "isolated",
        "People without peers",
        f"{words}.",
        IntervalEstimate(share, *wilson(share, total, level)),
        num_before=isolated,
        total=total,
    )


def judged(
    verdict: list[Verdict], tolerance: float | Mapping[str, float] | None
) -> tuple[Verdict, ...]:
    """The verdict with the tolerances that were stated."""
    if tolerance is None:
        return tuple(verdict)
    names = [one.name for one in verdict]
    if isinstance(tolerance, Mapping):
        unknown = [name for name in tolerance if name not in names]
        if unknown:
            known = ", ".join(map(repr, names))
            msg = f"'tolerance' must name some of {known} (got {unknown[0]!r})"
            raise ValueError(msg)
        for name, value in tolerance.items():
            check_scalar(f"tolerance[{name!r}]", value, minimum=0.0)
        stated = dict(tolerance)
    else:
        check_scalar("tolerance", tolerance, minimum=0.0)
        of_pairs = [n for n in names if n == "identical" or n.startswith("pairs")]
        stated = dict.fromkeys(of_pairs, tolerance)
    return tuple(
        replace(one, tolerance=float(stated[one.name])) if one.name in stated else one
        for one in verdict
    )


def _corrected(words: str, texts: Sequence[str]) -> str:
    """A sentence about outputs before, continued by those after if there are any."""
    return f"{words}; after correction {texts[1]}." if len(texts) > 1 else f"{words}."


def _gap(measure: Measure, title: str, words: str) -> Verdict:
    before, after = measure.before, measure.after
    return Verdict(measure.name, title, words, before, after, is_share=False)
