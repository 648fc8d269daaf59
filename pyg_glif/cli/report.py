"""An audit as Markdown, HTML and JSON, with people's own ids."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_glif._plain import plain
from pyg_glif.cli.files import write_text
from pyg_glif.cli.labels import accuracy, classes
from pyg_glif.cli.people import People
from pyg_glif.cli.render import to_html, to_markdown
from pyg_glif.postprocessor import AuditReport

#: Suffixes of reports.
SUFFIXES = (".md", ".html", ".json")


def nearest(args: argparse.Namespace, num_people: int) -> int | None:
    """How many nearest others consistency is with."""
    if args.nearest is None:
        return min(5, num_people - 1) or None
    return args.nearest or None


@dataclass(frozen=True)
class Report:
    """What an audit found, as plain data; about one set of outputs or two."""

    data: dict[str, Any]
    alone: bool

    @classmethod
    def of(
        cls,
        found: AuditReport,
        args: argparse.Namespace,
        people: People,
        after: Tensor | None,
    ) -> "Report":
        """Adds accuracy and ids to a report; without ``after``, there is no change."""
        data = found.to_dict()
        if people.labels is not None:
            label, there = classes(people, args.positive)
            threshold = 0.5 if args.threshold is None else args.threshold
            for when, y in (("before", people.y), ("after", after)):
                if y is not None:
                    name = "accuracy" if after is None else f"accuracy {when}"
                    data["facts"][name] = accuracy(y, label, there, threshold)
        ids = next(iter(people.ids.values()), None)
        if ids is not None:
            _add_ids(data, [str(one) for one in ids])
        return cls(_alone(data) if after is None else data, after is None)

    def to_markdown(self) -> str:
        """Text with tables."""
        return to_markdown(self.data, self.alone)

    def write(self, path: str) -> None:
        """In the format of the suffix."""
        kind = Path(path).suffix.lower()
        if kind == ".json":
            write_text(path, json.dumps(plain(self.data), indent=2) + "\n")
        else:
            write_text(
                path,
                (to_html if kind == ".html" else to_markdown)(self.data, self.alone),
            )


def _alone(data: dict[str, Any]) -> dict[str, Any]:
    """The half of a report that is about outputs as they are."""
    facts = {k: v for k, v in data["facts"].items() if "movement" not in k}
    people = [
        {k: v for k, v in one.items() if k not in ("before", "after", "moved")}
        | {"deviation": one["before"]}
        for one in data["worst_before"]
    ]
    measures = [
        {"name": m["name"], "better": m["better"], "value": m["before"]}
        for m in data["measures"]
    ]
    return {
        "facts": facts,
        "measures": measures,
        "worst": people,
        "pairs": data["pairs_before"],
        "certificate": {},
        "level": data["level"],
    }


def _add_ids(data: dict[str, Any], ids: list[str]) -> None:
    """Says who people are beside their row."""
    for when in ("before", "after"):
        worst, pairs = f"worst_{when}", f"pairs_{when}"
        data[worst] = [{"id": ids[one["index"]], **one} for one in data[worst]]
        data[pairs] = [
            {"ids": [ids[one["first"]], ids[one["second"]]], **one}
            for one in data[pairs]
        ]
