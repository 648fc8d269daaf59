"""An audit as Markdown, HTML and JSON, with people's own ids."""

import argparse
import json
from pathlib import Path

from torch import Tensor

from pyg_glif._plain import plain
from pyg_glif.cli.files import write_text
from pyg_glif.cli.labels import accuracy, classes
from pyg_glif.cli.people import People
from pyg_glif.postprocessor import AuditReport

#: Suffixes of reports.
SUFFIXES = (".md", ".html", ".json")


def nearest(args: argparse.Namespace, num_people: int) -> int | None:
    """How many nearest others consistency is with."""
    if args.nearest is None:
        return min(5, num_people - 1) or None
    return args.nearest or None


def complete(
    found: AuditReport, args: argparse.Namespace, people: People, after: Tensor | None
) -> AuditReport:
    """Adds accuracy and ids to a report."""
    if people.labels is not None:
        label, there = classes(people, args.positive)
        threshold = 0.5 if args.threshold is None else args.threshold
        for when, y in (("before", people.y), ("after", after)):
            if y is not None:
                name = "accuracy" if after is None else f"accuracy_{when}"
                right = accuracy(y, label, there, threshold)
                found = found.with_facts(**{name: right})
    ids = next(iter(people.ids.values()), None)
    return found if ids is None else found.with_ids(ids)


def write_report(path: str, report: AuditReport) -> None:
    """Writes a report in the format of the suffix."""
    kind = Path(path).suffix.lower()
    if kind == ".json":
        write_text(path, json.dumps(plain(report.to_dict()), indent=2) + "\n")
    else:
        write_text(path, report.to_html() if kind == ".html" else report.to_markdown())
