"""From options to audits, and reports to files."""

import argparse
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_glif._plain import plain
from pyg_glif.cli._command import default_of, keywords
from pyg_glif.cli._files import write_text
from pyg_glif.cli._people import People
from pyg_glif.postprocessor import AuditReport, audit
from pyg_glif.tuning import tune

#: Suffixes of reports.
SUFFIXES = (".md", ".html", ".json")


def options(args: argparse.Namespace, people: People) -> dict[str, Any]:
    """What both kinds of audit are told."""
    nearest = default_of(audit, "k") if args.nearest is None else args.nearest
    found = {
        "attributes": people.attribute_codes(),
        "groups": people.group_codes(),
        "k": min(nearest, len(people) - 1) if args.nearest is None else nearest,
        **keywords(args, "--threshold"),
    }
    if args.worst is not None:
        found["num_worst"] = args.worst
    return {**found, "k": found["k"] or None}


def complete(
    report: AuditReport, args: argparse.Namespace, people: People, after: Tensor | None
) -> AuditReport:
    """Adds accuracy and ids to a report."""
    if people.labels is not None:
        threshold = keywords(args, "--threshold").get("threshold")
        threshold = default_of(tune, "threshold") if threshold is None else threshold
        for when, y in (("before", people.y), ("after", after)):
            if y is not None:
                name = "accuracy" if after is None else f"accuracy_{when}"
                right = people.accuracy(y, args.positive, threshold)
                report = report.with_facts(**{name: right})
    ids = people.first_ids()
    return report if ids is None else report.with_ids(ids)


def write_report(path: str, report: AuditReport) -> None:
    """Writes a report in the format of the suffix."""
    kind = Path(path).suffix.lower()
    if kind == ".json":
        write_text(path, json.dumps(plain(report.to_dict()), indent=2) + "\n")
    else:
        write_text(path, report.to_html() if kind == ".html" else report.to_markdown())
