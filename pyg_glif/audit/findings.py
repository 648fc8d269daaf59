"""What was found in sentences, against what is tolerated."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from pyg_glif._utils.validation import check_scalar
from pyg_glif.audit.audit_report import Estimate, Measure, Verdict
from pyg_glif.audit.dyadic_ci import share_of, wilson
from pyg_glif.audit.pair_stats import (
    Attribute,
    GroupRate,
    PairTreatment,
    Unlike,
)
from pyg_glif.reporting import counted, number, percent


def pair_verdicts(
    pairs: PairTreatment,
    unlike: Unlike,
    attributes: Mapping[str, Attribute],
    num_people: int,
    level: float,
) -> Iterator[Verdict]:
    """Shares of pairs treated unlike: of all, across groups, of identical people."""
    found = [unlike.among(pairs, when) for when in range(len(pairs.both))]
    first, second = pairs.pairs.first, pairs.pairs.second
    kinds: dict[str, tuple[str, Tensor | None]] = {"pairs": ("Similar people", None)}
    for name, label in attributes.items():
        across = label.codes[first] != label.codes[second]
        kinds[f"pairs_by_{name}"] = f"Similar people of different {name}", across
    kinds["identical"] = "Identical people", pairs.identical
    for key, (title, which) in kinds.items():
        chosen = [one if which is None else one[which] for one in found]
        held = pairs.pairs if which is None else pairs.pairs.only(which)
        total, counts = chosen[0].numel(), [int(one.sum()) for one in chosen]
        if not total:
            continue
        of = counted(total, "pair", "pairs")
        if key == "identical":
            are = "is" if total == 1 else "are"
            words = f"{of} {are} identical in everything that counts; "
            words += f"{counts[0]:,} of them"
        else:
            words = f"Of {of} of {title[0].lower()}{title[1:]}, {counts[0]:,}"
        words += f" {unlike.got}"
        words += f"; after correction {counts[1]:,}" if len(counts) > 1 else ""
        shares = [share_of(one, held, num_people, level) for one in chosen]
        yield Verdict(
            key,
            title,
            f"{words}.",
            before=shares[0],
            after=shares[1] if len(shares) > 1 else None,
            num_before=counts[0],
            num_after=counts[1] if len(counts) > 1 else None,
            total=total,
        )


def gap_verdicts(
    measures: list[Measure], attributes: Mapping[str, Attribute]
) -> Iterator[Verdict]:
    """Gaps between groups, in words."""
    held = {measure.name: measure for measure in measures}
    for name, label in attributes.items():
        found = held[f"gap_by_{name}"]
        values = [one.value for one in (found.before, found.after) if one is not None]
        sizes = [number(abs(value), 3) for value in values]
        if found.title.endswith(")"):  # two groups, and a sign
            low, high = label.names
            ways = ["more" if value >= 0 else "less" for value in values]
            sizes = [f"{size} {way}" for size, way in zip(sizes, ways, strict=True)]
            words = f"On average, the group '{high}' gets {sizes[0]} than '{low}'"
        else:
            words = f"The averages of the groups are up to {sizes[0]} apart"
        words += f"; after correction {sizes[1]}" if len(sizes) > 1 else ""
        yield Verdict(
            found.name,
            f"Gap by {name}",
            f"{words}.",
            before=found.before,
            after=found.after,
            is_share=False,
        )


def rate_verdicts(
    measures: list[Measure], rates: Iterable[GroupRate]
) -> Iterator[Verdict]:
    """Gaps between the rates of groups, whichever way they go, in words."""
    held = {measure.name: measure for measure in measures}
    for rate in rates:
        found = held[rate.name]
        sets = []
        for shares in rate.rates():
            named = dict(zip(rate.label.names, shares, strict=True))
            ends = list(named)  # of several groups, the two furthest apart
            if len(ends) > 2:
                ends = sorted(named, key=named.__getitem__)[:: len(named) - 1]
            sets.append(" and ".join(f"{percent(named[n])} of '{n}'" for n in ends))
        words = f"{rate.of}, {sets[0]} get a yes"
        words += f"; after correction {sets[1]}" if len(sets) > 1 else ""
        if found.after is not None:
            before, after = (abs(one.value) for one in (found.before, found.after))
            way = "grows" if after > before else "shrinks"
            if before != after:
                words += f": the gap {way}"
        yield Verdict(
            rate.name,
            rate.title,
            f"{words}.",
            before=found.before,
            after=found.after,
            is_share=False,
        )


def isolated_verdict(num_peers: Tensor, level: float) -> Verdict:
    """Who is similar to nobody: the same before and after."""
    total, alone = len(num_peers), int((num_peers == 0).sum())
    share = alone / total
    are = "is" if alone == 1 else "are"
    words = f"{alone:,} of {counted(total, 'person', 'people')} {are} similar to nobody"
    if alone:
        words += f" ({percent(share)}): nobody can say whether they are treated alike"
    found = Estimate(share, *wilson(share, total, level))
    return Verdict(
        "isolated", "People without peers", f"{words}.", found,
        num_before=alone, total=total,
    )  # fmt: skip


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
        stated = dict(tolerance)
    else:
        of_pairs = [n for n in names if n == "identical" or n.startswith("pairs")]
        stated = dict.fromkeys(of_pairs, tolerance)
    for name, value in stated.items():
        whose = (
            f"tolerance[{name!r}]" if isinstance(tolerance, Mapping) else "tolerance"
        )
        check_scalar(whose, value, minimum=0.0)
    return tuple(
        replace(one, tolerance=float(stated[one.name])) if one.name in stated else one
        for one in verdict
    )
