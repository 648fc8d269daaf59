"""``pyg-glif audit``: how similar people are treated."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import (
    COLUMNS,
    DECISION,
    METRIC,
    NON_NEGATIVE,
    RADIUS,
    REPORT,
    Outcome,
    UsageError,
    add,
    add_files,
    check_similarity,
    default_of,
    keywords,
    progress,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.audit import AuditReport
    from pyg_glif.cli._samples import Samples

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
    pyg-glif audit people.csv --outputs score --sensitive sex \\
        --labels repaid
  before and after, whatever came in between:
    pyg-glif audit people.csv --outputs score --id name --scale standard \\
        --after fair.csv --out report.html
  two arrays, as JSON:
    pyg-glif audit x.npy y.npy --tau 0.5 --json
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
    add(parser, "columns", COLUMNS)
    add(parser, "similarity", METRIC, RADIUS)
    add(parser, "report", {"theta": {"type": NON_NEGATIVE}}, DECISION, REPORT)


def run(args: argparse.Namespace) -> Outcome:
    """Audits the samples of the files, and prints or writes the report."""
    from pyg_glif.cli._dataset import check_inputs, input_files, read_samples
    from pyg_glif.cli._files import check_targets

    check_inputs(args)
    check_similarity(args)
    check_targets({"--out": (args.out, REPORTS)}, input_files(args))
    samples = read_samples(args)

    from pyg_glif.audit import AuditData, audit
    from pyg_glif.audit.setup import graph_setup
    from pyg_glif.cli._similarity import fair_distance, similarity_graph

    after = _after(args, samples) if args.after else None
    distance = fair_distance(args, samples)
    graph = similarity_graph(args, samples, distance)
    data = AuditData(
        samples.x,
        samples.y,
        after,
        graph=graph,
        lap=graph.laplacian(**keywords(args, "theta")),
        distance=distance,
        progress=progress(args),
    )
    report = audit(data, **audit_options(args, samples))
    setup = graph_setup(graph, distance)
    report = replace(report, setup={**setup, **report.setup})
    report = completed(report, args, samples, after)
    if args.out:
        write_report(args.out, report)
    content = {"command": "audit", **setup, **report.to_dict(), "file": args.out}
    text = f"written  {args.out}" if args.out else report.to_markdown().rstrip()
    return Outcome(text, content)


def audit_options(args: argparse.Namespace, samples: "Samples") -> dict[str, Any]:
    """Keywords for an audit, from the options: of files and of fits alike."""
    from pyg_glif.audit import audit

    num_nearest = args.num_nearest
    if num_nearest is None:  # few samples have fewer neighbors than the default
        num_nearest = min(default_of(audit, "num_nearest"), len(samples) - 1)
    return {
        "sensitive": samples.sensitive_codes(),
        "variants": samples.variant_codes(),
        "labels": samples.labels_of(args),
        "num_nearest": num_nearest or None,
        **keywords(args, "--threshold", "--tolerance", "difference", "num_worst"),
    }


def completed(
    report: "AuditReport",
    args: argparse.Namespace,
    samples: "Samples",
    after: "Tensor | None",
) -> "AuditReport":
    """The report with columns, files, accuracy, ids and readable features."""
    from pyg_glif._utils import fingerprints as _fingerprints
    from pyg_glif.cli._dataset import input_files
    from pyg_glif.model_selection import tune

    report = replace(
        report,
        setup={
            **_columns(samples),
            **{name: v for name, v in report.setup.items() if name != "columns"},
            "files": {
                Path(path).name: _fingerprints.of_file(path)
                for path in input_files(args)
                if path and Path(path).is_file()
            },
        },
    )

    if samples.labels is not None:
        threshold = args.threshold
        if threshold is None:
            threshold = default_of(tune, "threshold")
        for when, y in (("_before", samples.y), ("_after", after)):
            if y is not None:
                right = samples.accuracy(y, args.positive, threshold)
                name = "accuracy" if after is None else f"accuracy{when}"
                report = report.with_facts(**{name: right})
    ids, described = samples.first_ids(), samples.described()
    report = report if ids is None else report.with_ids(ids)
    return report if described is None else report.with_features(described)


def _columns(samples: "Samples") -> dict[str, Any]:
    """The features of a report, and their scale."""
    from pyg_glif.audit.setup import table_setup

    setup: dict[str, Any] = {"columns": samples.features, "scale": samples.scale}
    if samples.table is not None:
        summary = samples.table.summary(samples.frame[samples.features])
        return {**setup, **table_setup(summary, samples.sensitive)}
    return {**setup, "sensitive": list(samples.sensitive)}


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


def _after(args: argparse.Namespace, samples: "Samples") -> "Tensor":
    """Reads the outputs of ``--after``, which must be of the same samples."""
    from pyg_glif._utils.arrays import to_tensor
    from pyg_glif.cli._dataset import check_same_ids
    from pyg_glif.cli._tables import open_table

    table = open_table(args.after, args)
    for name, ids in samples.ids.items():
        if name in table.names:
            check_same_ids(name, ids, [table.column(name)])
    names = samples.outputs
    if not all(name in table.names for name in names):
        names = [name for name in table.names if name not in samples.ids]
    after = to_tensor("--after", table.outputs(names))
    if after.shape != samples.y.shape:
        msg = f"--after: '{args.after}' must have the shape of the outputs before"
        got = f"{tuple(after.shape)} for {tuple(samples.y.shape)}"
        raise UsageError(f"{msg} (got {got})")
    return after
