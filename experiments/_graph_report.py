"""What is told about graph networks: tables, notes, and networks side by side."""

import math
from collections.abc import Iterable, Sequence
from statistics import mean, stdev

import experiments._paper as paper
from experiments.records import Run, Summary, summarize_chosen, with_costs
from experiments.report import Report, ResultTable, seeds_note
from pyg_glif._utils.markup import markdown_table

QUALITY = {
    "auc": "AUC",
    "unfairness": "IF",
    "unfairness_unit": "IF at unit variance",
    "disparity": "GDIF",
    "disparity_members": "GDIF per member",
    "ndcg": "NDCG@10",
}
_GROUPS = {
    "auc_decisions": "AUC of decisions",
    "accuracy": "accuracy",
    "f1": "F1",
    "parity_gap": "gap in yes",
    "opportunity_gap": "gap in true yes",
    "seconds": "seconds",
    "memory": "MiB",
}
_DIGITS = {
    "auc": 4,
    "unfairness": 0,
    "unfairness_unit": 0,
    "seconds": 1,
    "memory": 0,
}
VANILLA = "as it is"
REDRESS = "REDRESS"
GUIDE = "GUIDE"
BALANCED = "GLIF, balanced"
MATCHED = "GLIF, balanced, at GUIDE's IF"
PUBLISHED = "GLIF, balanced, at GUIDE's published IF"
ALIKE = "GLIF, balanced, at both of GUIDE's IF"


def report_graphs(name: str, dataset: str, runs: Sequence[Run]) -> Report:
    """What becomes of individuals, and of scores and groups."""
    rows = [with_costs(row, runs) for row in summarize_chosen(runs)]
    tables = (
        ResultTable("Similar people", QUALITY, rows, _DIGITS),
        ResultTable("Scores and groups", _GROUPS, rows, _DIGITS),
        *_published(dataset, runs[0].variant),
    )
    notes = (*_notes(runs), *seeds_note(runs))
    return Report(name, runs[0].variant, tuple(runs), tables, notes)


def compare_networks(groups: Iterable[Sequence[Run]]) -> str:
    """A Markdown table of balanced GLIF beside its rivals, a row a graph and network.

    AUC and GDIF are means over the seeds on which GLIF is matched with GUIDE, NDCG@10
    over all of them.

    Args:
        groups (iterable of sequences of Run): All seeds of a graph and a network, in
            the order of the rows.
    """
    header = (
        "graph",
        "network",
        "AUC as it is",
        "AUC, GUIDE",
        "AUC, GLIF",
        "GLIF less GUIDE",
        "seeds ahead",
        "seeds matched",
        "GDIF, GUIDE",
        "GDIF, GLIF",
        "NDCG@10, REDRESS",
        "NDCG@10, GLIF",
    )
    rows = []
    for runs in groups:
        matched = [run for run in runs if ALIKE in run.chosen]
        shown = [
            *_means(matched, "auc", VANILLA, GUIDE, ALIKE),
            *_lead(_gaps(matched, ALIKE, GUIDE, "auc"), 4),
            f"{len(matched)} of {len(runs)}",
            *_means(matched, "disparity", GUIDE, ALIKE),
            *_means(runs, "ndcg", REDRESS, BALANCED),
        ]
        rows.append([runs[0].experiment, runs[0].variant, *shown])
    return markdown_table(header, rows, align="ll" + "r" * (len(header) - 2))


def _means(runs: Sequence[Run], metric: str, *methods: str) -> list[str]:
    """Cells with the mean of a metric, a dash for a method without a record."""
    rows = {row.method: row for row in summarize_chosen(runs)}
    digits = _DIGITS.get(metric, 3)
    return [
        f"{rows[method].mean[metric]:.{digits}f}" if method in rows else "-"
        for method in methods
    ]


def _notes(runs: Sequence[Run]) -> Iterable[str]:
    """What the columns mean, how settings were chosen, and who is ahead by seeds."""
    extras, config = runs[0].extras, runs[0].config
    kept = config["most_similar"]
    pairs = (
        "share a neighbour"
        if kept is None
        else f"are among the {kept} most similar of one of the two"
    )
    yield (
        f"{extras['num_people']:,} people, {extras['num_train']:,} to train on and "
        f"{extras['num_judged']:,} judged; {extras['num_similar']:,} pairs {pairs}. "
        "*IF*: tr(Z'LZ) of the log-odds over everybody. *GDIF*: ratio of "
        "the groups' IF, counted as GUIDE's code does, and per member. *NDCG@10*: "
        "whether those nearest by output are nearest by features, among the judged. "
        "*AUC of decisions*: as the GUIDE of PyGDebias computes what it calls AUC. "
        "*Gaps*: group 1 less group 0, of all and of those whose truth is yes. "
        "*Seconds* of the processor, and *MiB* beyond what was held before: all "
        "settings of a method."
    )
    yield (
        "Settings were chosen on validation "
        "people: the least IF at unit variance (for REDRESS the largest NDCG@10) with "
        f"AUC and accuracy at most {config['max_loss']:g} below the network's, or the "
        "largest AUC where no setting is that close. "
        f"*{MATCHED}* has the strength at which IF, which needs no labels, is GUIDE's; "
        f"*{ALIKE}* that at which IF at unit variance is, with log-odds times a factor "
        "that takes IF to GUIDE's as well and changes no decision and no AUC. "
        "Seeds on which no strength is as fair as GUIDE are not matched, and not "
        "counted in that row: where some are left out, its name says how many are "
        "counted. Leads have their standard error. "
        "InFoRM's debiasing of the result is GLIF by another name, and its debiasing "
        "of the model is what `LaplacianLoss` does. Balance was asked for by the first "
        "*GDIF*, and by it alone."
    )
    weights = " or ".join(f"{alpha:g}, {beta:g}" for alpha, beta in config["guide"])
    gammas, alphas = (
        ", ".join(f"{value:g}" for value in config[name])
        for name in ("gammas", "alphas")
    )
    yield (
        f"Tried were, for *{GUIDE}*, alpha, beta = {weights}; for *PFR* gamma = "
        f"{gammas}; for *InFoRM, model* alpha = {alphas}."
    )
    yield from _paired(runs, MATCHED, GUIDE, "auc", 4)
    yield from _paired(runs, ALIKE, GUIDE, "auc", 4)
    yield from _paired(runs, BALANCED, REDRESS, "ndcg", 3)


def _lead(gaps: Sequence[float], digits: int) -> tuple[str, str]:
    """Mean of the differences with its standard error, and how many are above zero."""
    if not gaps:
        return "-", "-"
    lead = f"{mean(gaps):+.{digits}f}"
    if len(gaps) > 1:
        lead += f" ± {stdev(gaps) / math.sqrt(len(gaps)):.{digits}f}"
    return lead, f"{sum(gap > 0 for gap in gaps)} of {len(gaps)}"


def _gaps(runs: Sequence[Run], ours: str, theirs: str, metric: str) -> list[float]:
    """How much more of a metric one method has than another, on the same seeds."""
    return [
        run.chosen[ours].metrics[metric] - run.chosen[theirs].metrics[metric]
        for run in runs
        if ours in run.chosen and theirs in run.chosen
    ]


def _paired(
    runs: Sequence[Run], ours: str, theirs: str, metric: str, digits: int
) -> Iterable[str]:
    """On how many of the same seeds one method has more of a metric than another."""
    gaps = _gaps(runs, ours, theirs, metric)
    compared = f"{QUALITY[metric]} of *{ours}* less that of *{theirs}*, seed by seed"
    if gaps:
        lead, more = _lead(gaps, digits)
        left_out = (
            f" ({len(runs) - len(gaps)} of {len(runs)} seeds are not matched)"
            if len(gaps) < len(runs)
            else ""
        )
        yield f"{compared}: {lead} on average, above zero in {more}{left_out}."
    else:
        yield f"{compared}: no seed is matched."


def _published(dataset: str, variant: str) -> Iterable[ResultTable]:
    """What others have published about the same graph and network."""
    for title, told in (
        ("Published by GUIDE's authors (their repository, seed 1)", paper.GRAPHS),
        (
            "Published with PyGDebias 1.1.1 (all similar pairs; the AUC of its GUIDE "
            "is that of decisions)",
            paper.PYGDEBIAS,
        ),
    ):
        found = told.get((dataset, variant))
        if found:
            keys = ("auc", "unfairness", "disparity", "ndcg")
            rows = [
                Summary(name, {}, dict(zip(keys, values, strict=False)), {}, 1)
                for name, values in found.items()
            ]
            columns = {key: QUALITY[key] for key in rows[0].mean}
            columns |= {"ndcg": "ranking IF"} if "ndcg" in columns else {}
            yield ResultTable(title, columns, rows, _DIGITS)
