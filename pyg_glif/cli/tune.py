"""``pyg-glif tune``: radius and strength by what they cost."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pyg_glif.cli import arguments, options
from pyg_glif.cli.base import Outcome, UsageError

if TYPE_CHECKING:
    from pyg_glif.tuning import TuneResult

DESCRIPTION = """\
Try radii and strengths on people whose true class is known, print what cannot be
beaten in accuracy and fairness at once, and choose the fairest setting that costs at
most --max-loss of accuracy. People with an empty label count as neighbours only.
"""
EPILOG = """\
examples:
  what does fairness cost, at most one point of accuracy:
    pyg-glif tune people.csv --outputs score --standardize --labels repaid
  pairs of rows that ought to get the same decision, and a plot:
    pyg-glif tune people.csv --outputs score --standardize --labels repaid \\
        --pairs pairs.csv --plot front.png
  settings of your own:
    pyg-glif tune x.npy y.npy --labels labels.npy --taus 0.3,0.5 --lams 0.1,1,10
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    arguments.add_files(parser)
    arguments.add(parser, "columns", options.PEOPLE)
    arguments.add(parser, "similarity", options.METRIC)
    arguments.add(parser, "smoothing", options.WEIGHTS, options.LINK)
    group = parser.add_argument_group("settings to try")
    group.add_argument(
        "--taus",
        type=options.numbers,
        help="radii (default: those of 5, 10, 20 and 40 neighbours each)",
    )
    group.add_argument(
        "--lams", type=options.numbers, help="strengths (default: from 0.001 to 10)"
    )
    group.add_argument(
        "--max-loss",
        type=float,
        default=0.01,
        metavar="A",
        help="accuracy that may be lost (default: 0.01, one point)",
    )
    arguments.add(parser, "what is known", options.DECISION)
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="two columns of row numbers from 0: people who ought to get the same "
        "decision (default: unfairness is the Laplacian energy)",
    )
    parser.add_argument(
        "--mask", metavar="COL", help="column that is 1 where --labels counts, else 0"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw it: .png, .pdf or .svg")


def run(args: argparse.Namespace) -> Outcome:
    """Sweeps, prints the front, and the call that uses the choice."""
    from pyg_glif._optional import require
    from pyg_glif.cli.files import check_targets
    from pyg_glif.cli.metric import check_metric
    from pyg_glif.cli.people import input_files, read_people
    from pyg_glif.cli.tune_work import plot, sweep

    if args.labels is None:
        raise UsageError("--labels must name the column with the true class")
    check_metric(args)
    check_targets({"--plot": (args.plot, (".png", ".pdf", ".svg"))}, input_files(args))
    if args.plot:
        require("matplotlib.figure", "--plot", "plots")
    found = sweep(args, read_people(args))
    if args.plot:
        plot(args.plot, found)
    call = _call(args, found)
    data = {**found.to_dict(), "call": call, "plot": args.plot}
    return Outcome(_text(args, found, call), {"command": "tune", **data})


def _call(args: argparse.Namespace, found: "TuneResult") -> str | None:
    """How to use the choice; nothing to do if the model is the fairest allowed."""
    if found.best == found.baseline:
        return None
    tables = (options.PEOPLE, options.METRIC, options.WEIGHTS, options.LINK)
    shared = arguments.given(args, *tables)
    unused = [
        name for name in (args.labels, args.mask) if name and not Path(name).is_file()
    ]
    shared["--ignore"] = [*shared.get("--ignore", []), *unused]
    if not shared["--ignore"] or "--features" in shared:
        del shared["--ignore"]
    shared |= {"--tau": found.best.tau, "--lam": found.best.lam}
    files = [args.data] + ([args.outputs_file] if args.outputs_file else [])
    suffix = args.data.rpartition(".")[2].lower()
    target = f"fair.{'npz' if suffix == 'npy' and args.id else suffix}"
    words = [*files, *arguments.written(shared), "--out", target]
    return shlex.join(["pyg-glif", "smooth", *words])


def _text(args: argparse.Namespace, found: "TuneResult", call: str | None) -> str:
    """The front, the choice, the call."""
    best, base = found.best, found.baseline
    lines = [found.to_markdown(), ""]
    names = f"{found.names[0]} %.4g, {found.names[1]} %.4g"
    lines.append("model as it is: " + names % (base.score, base.unfairness))
    if call is None:
        lines.append(
            "chosen: the model as it is; nothing tried is fairer at that price"
        )
    else:
        lines.append("chosen: " + names % (best.score, best.unfairness))
        lines += ["", "The choice is the best of many on these people: confirm it on"]
        lines += ["others. To use it:", "", call]
    if args.plot:
        lines += ["", f"written  {args.plot}"]
    return "\n".join(lines)
