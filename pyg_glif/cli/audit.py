"""``pyg-glif audit``: how similar people are treated."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import (
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
    check_metric,
    check_radius,
    default_of,
    keywords,
    progress,
    tolerances,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.audit import AuditReport
    from pyg_glif.cli._dataset import People

#: Suffixes of reports.
REPORTS = (".md", ".html", ".json")

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
    """Adds the arguments of the command."""
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
    """Audits the people of the files, and prints or writes the report."""
    from pyg_glif.cli._dataset import check_inputs, input_files, read_people
    from pyg_glif.cli._files import check_targets

    check_inputs(args)
    check_metric(args)
    check_radius(args)
    check_targets({"--out": (args.out, REPORTS)}, input_files(args))
    people = read_people(args)

    from pyg_glif.audit import AuditContext, audit
    from pyg_glif.audit.setup import graph_setup
    from pyg_glif.cli._similarity import fair_distance, similarity_graph

    after = _after(args, people) if args.after else None
    distance = fair_distance(args, people)
    graph = similarity_graph(args, people, distance)
    report = audit(
        people.x,
        people.y,
        after,
        graph=graph,
        context=AuditContext(
            lap=graph.laplacian(**keywords(args, "--theta")),
            distance=distance,
            progress=progress(args),
        ),
        **audit_options(args, people),
    )
    setup = graph_setup(graph, distance)
    report = replace(report, setup={**setup, **report.setup})
    report = completed(report, args, people, after)
    if args.out:
        write_report(args.out, report)
    data = {"command": "audit", **setup, **report.to_dict(), "file": args.out}
    text = f"written  {args.out}" if args.out else report.to_markdown().rstrip()
    return Outcome(text, data)


def audit_options(args: argparse.Namespace, people: "People") -> dict[str, Any]:
    """Keywords for an audit, from the options: of files and of fits alike."""
    from pyg_glif.audit import audit

    num_nearest = args.nearest
    if num_nearest is None:  # small data have fewer others than the default asks for
        num_nearest = min(default_of(audit, "num_nearest"), len(people) - 1)
    stated = {}
    if args.tolerance is not None:
        stated["tolerance"] = tolerances(args.tolerance)
    return {
        "sensitive": people.attribute_codes(),
        "variants": people.group_codes(),
        "labels": people.labels_of(args),
        "num_nearest": num_nearest or None,
        **stated,
        **keywords(args, "--threshold", "--difference", "--num-worst"),
    }


def completed(
    report: "AuditReport",
    args: argparse.Namespace,
    people: "People",
    after: "Tensor | None",
) -> "AuditReport":
    """The report with what the files say: columns, accuracy, people."""
    from pyg_glif._utils import fingerprints as _fingerprints
    from pyg_glif.cli._dataset import input_files
    from pyg_glif.model_selection import tune

    report = replace(
        report,
        setup={
            **_columns(people),
            **{name: v for name, v in report.setup.items() if name != "columns"},
            "files": {
                Path(path).name: _fingerprints.of_file(path)
                for path in input_files(args)
                if path and Path(path).is_file()
            },
        },
    )

    if people.labels is not None:
        threshold = args.threshold
        if threshold is None:
            threshold = default_of(tune, "threshold")
        for when, y in (("_before", people.y), ("_after", after)):
            if y is not None:
                right = people.accuracy(y, args.positive, threshold)
                name = "accuracy" if after is None else f"accuracy{when}"
                report = report.with_facts(**{name: right})
    ids, described = people.first_ids(), people.described()
    report = report if ids is None else report.with_ids(ids)
    return report if described is None else report.with_features(described)


def _columns(people: "People") -> dict[str, Any]:
    """Which columns said who is similar, and on which scale."""
    from pyg_glif.audit.setup import table_setup

    setup: dict[str, Any] = {"columns": people.features, "scale": people.scale}
    if people.table is not None:
        summary = people.table.summary(people.frame[people.features])
        return {**setup, **table_setup(summary, people.attributes)}
    return {**setup, "sensitive": list(people.attributes)}


def write_report(path: str, report: "AuditReport") -> None:
    """Writes a report in the format of the suffix."""
    import json

    from pyg_glif._utils.json import plain
    from pyg_glif.cli._files import write_text

    if path.lower().endswith(".json"):
        text = json.dumps(plain(report.to_dict()), indent=2) + "\n"
    elif path.lower().endswith(".html"):
        text = report.to_html()
    else:
        text = report.to_markdown()
    write_text(path, text)


def _after(args: argparse.Namespace, people: "People") -> "Tensor":
    """Reads the outputs of ``--after``, which must be of the same people."""
    from pyg_glif._utils.arrays import to_tensor
    from pyg_glif.cli._dataset import check_same_ids
    from pyg_glif.cli._tables import Reading, open_table

    table = open_table(args.after, Reading.of(args))
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
