"""``pyg-glif audit``: how similar people are treated."""

import argparse
from typing import TYPE_CHECKING

from pyg_glif.cli import arguments, options
from pyg_glif.cli.base import Outcome, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.cli.people import People
    from pyg_glif.postprocessor import AuditReport

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
    arguments.add_files(parser)
    parser.add_argument(
        "--after", metavar="FILE", help="outputs after, for the same people in order"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write the report: .md, .html or .json"
    )
    arguments.add(parser, "columns", options.PEOPLE)
    arguments.add(parser, "similarity", options.METRIC)
    arguments.add_radius(parser)
    theta = {"--theta": options.WEIGHTS["--theta"]}
    arguments.add(parser, "report", theta, options.DECISION, options.REPORT)


def run(args: argparse.Namespace) -> Outcome:
    """Reports, and writes the report."""
    from pyg_glif.cli.files import check_targets
    from pyg_glif.cli.metric import check_metric
    from pyg_glif.cli.people import input_files, read_people
    from pyg_glif.cli.report import SUFFIXES, write_report

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
    from pyg_glif.cli import settings
    from pyg_glif.cli.labels import attribute_codes, codes
    from pyg_glif.cli.metric import fair_distance
    from pyg_glif.cli.report import complete, nearest
    from pyg_glif.graph import SimilarityGraph
    from pyg_glif.postprocessor import audit

    distance = fair_distance(args, people)
    tau = settings.radius(args, people.x, distance)
    graph = SimilarityGraph.search(people.x, tau, distance=distance)
    found = audit(
        people.x,
        people.y,
        after,
        graph=graph,
        lap=graph.laplacian(settings.decay(args)),
        distance=distance,
        attributes=attribute_codes(people),
        groups=None if people.group is None else codes(people.group),
        threshold=args.threshold,
        k=nearest(args, len(people)),
        num_worst=args.worst,
    )
    return tau, complete(found.with_facts(tau=tau), args, people, after)


def _after(args: argparse.Namespace, people: "People") -> "Tensor":
    """Outputs after, of the same people."""
    from pyg_glif._arrays import to_tensor
    from pyg_glif.cli.columns import check_same_ids
    from pyg_glif.cli.files import open_source

    source = open_source(args.after)
    for name, ids in people.ids.items():
        if source.has(name):
            check_same_ids(name, ids, [source.column(name)])
    names = people.outputs
    if not all(name in source.names for name in names):
        names = [name for name in source.names if name not in people.ids]
    after = to_tensor("--after", source.outputs(names))
    if after.shape != people.y.shape:
        msg = f"--after: '{args.after}' must have the shape of the outputs before"
        got = f"{tuple(after.shape)} for {tuple(people.y.shape)}"
        raise UsageError(f"{msg} (got {got})")
    return after
