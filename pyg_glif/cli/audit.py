"""``pyg-glif audit``: how similar people are treated."""

import argparse
from typing import TYPE_CHECKING

from pyg_glif.cli._command import (
    DECISION,
    METRIC,
    PEOPLE,
    REPORT,
    WEIGHTS,
    Outcome,
    UsageError,
    add,
    add_files,
    add_radius,
    keywords,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.cli._people import People
    from pyg_glif.postprocessor import AuditReport

SUMMARY = "report how similar people are treated"
DESCRIPTION = """\
Report how similar people are treated: by the outputs as they are or, with --after,
before and after something was done about it.
"""
EPILOG = """\
examples:
  the outputs as they are, the gap between the groups of a column, accuracy:
    pyg-glif audit people.csv --outputs score --standardize --attributes sex \\
        --labels repaid
  before and after, whatever came in between:
    pyg-glif audit people.csv --outputs score --id name --standardize \\
        --after fair.csv --out report.html
  two arrays, without the search for nearest others:
    pyg-glif audit x.npy y.npy --tau 0.5 --nearest 0 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    add_files(parser)
    parser.add_argument(
        "--after", metavar="FILE", help="outputs after, for the same people in order"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write the report: .md, .html or .json"
    )
    add(parser, "columns", PEOPLE)
    add(parser, "similarity", METRIC)
    add_radius(parser)
    theta = {"--theta": WEIGHTS["--theta"]}
    add(parser, "report", theta, DECISION, REPORT)


def run(args: argparse.Namespace) -> Outcome:
    """Reports, and writes the report."""
    from pyg_glif.cli._files import check_targets
    from pyg_glif.cli._people import input_files, read_people
    from pyg_glif.cli._report import SUFFIXES, write_report
    from pyg_glif.cli._similarity import check_metric

    check_metric(args)
    check_targets({"--out": (args.out, SUFFIXES)}, input_files(args))
    people = read_people(args)
    after = _after(args, people) if args.after else None
    tau, report = _report(args, people, after)
    if args.out:
        write_report(args.out, report)
    data = {"command": "audit", "tau": tau, **report.to_dict(), "file": args.out}
    text = f"written  {args.out}" if args.out else report.to_markdown().rstrip()
    return Outcome(text, data)


def _report(
    args: argparse.Namespace, people: "People", after: "Tensor | None"
) -> tuple[float, "AuditReport"]:
    """The radius in use, and what was found."""
    from pyg_glif.cli._report import complete, options
    from pyg_glif.cli._similarity import fair_distance, radius
    from pyg_glif.graph import SimilarityGraph
    from pyg_glif.postprocessor import audit

    distance = fair_distance(args, people)
    tau = radius(args, people.x, distance)
    graph = SimilarityGraph.search(people.x, tau, distance=distance)
    found = audit(
        people.x,
        people.y,
        after,
        graph=graph,
        lap=graph.laplacian(**keywords(args, "--theta")),
        distance=distance,
        **options(args, people),
    )
    return tau, complete(found.with_facts(tau=tau), args, people, after)


def _after(args: argparse.Namespace, people: "People") -> "Tensor":
    """Outputs after, of the same people."""
    from pyg_glif._arrays import to_tensor
    from pyg_glif.cli._people import check_same_ids
    from pyg_glif.cli._tables import open_table

    table = open_table(args.after)
    for name, ids in people.ids.items():
        if name in table.names:
            check_same_ids(name, ids, [table.column(name)])
    names = people.outputs
    if not all(name in table.names for name in names):
        names = [name for name in table.names if name not in people.ids]
    after = to_tensor("--after", table.outputs(names))
    if after.shape != people.y.shape:
        msg = f"--after: '{args.after}' must have the shape of the outputs before"
        got = f"{tuple(after.shape)} for {tuple(people.y.shape)}"
        raise UsageError(f"{msg} (got {got})")
    return after
