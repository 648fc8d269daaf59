"""``pyg-glif reproduce``: the experiments of the paper, on tables and on graphs."""

import argparse
from pathlib import Path
from typing import Any

from pyg_glif.cli._command import COUNT, SHARE, Outcome, UsageError, progress
from pyg_glif.experiments.registry import EXPERIMENTS

SUMMARY = "repeat an experiment of the paper, or one on a table or graph of people"
DESCRIPTION = """\
Repeat an experiment of the paper, or one on a table or a graph of people: train,
smooth, compare; print the table, and write numbers and plots to a folder.
"""
EPILOG = """\
examples:
  sentiment of words and names, ten seeds as in the paper:
    pyg-glif reproduce sentiment
  a quick look, one seed:
    pyg-glif reproduce sentiment --seeds 1 --out look
  another side set of names:
    pyg-glif reproduce sentiment --variant nyc --seeds 3
  biographies, a tenth of them, one seed (needs the extra 'text'):
    pyg-glif reproduce bios --limit 0.1 --seeds 1
  people in a table, made up, so that no file is needed:
    pyg-glif reproduce adult --variant invented --seeds 1
  a graph of people, another network than the default, where an earlier run stopped:
    pyg-glif reproduce credit --variant sage --resume
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    names = ", ".join(EXPERIMENTS)
    parser.add_argument("name", metavar="NAME", help=f"one of {names}")
    parser.add_argument(
        "--seeds",
        type=COUNT,
        default=10,
        metavar="N",
        help="repeat with seeds 0 to N-1 (default: 10)",
    )
    parser.add_argument(
        "--variant",
        metavar="V",
        help="data of sentiment: us, nyc, word2vec, glove42b; of bios and toxicity: "
        "text, embeddings; of adult: uci, invented; network of credit, bail, "
        "german_graph and nba: gcn, gin, sage, mlp (default: the first)",
    )
    parser.add_argument(
        "--limit",
        type=SHARE,
        metavar="SHARE",
        help="share of the texts or people; not for sentiment (default: all)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder for results (default: results/NAME)"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="do not run seeds again whose file is in the folder, if they were run "
        "with the same settings and packages",
    )


def run(args: argparse.Namespace) -> Outcome:
    """Runs the experiment and prints its table."""
    if args.name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise UsageError(f"NAME must be one of {known} (got '{args.name}')")
    experiment = EXPERIMENTS[args.name]
    if args.limit is not None and not experiment.takes_limit:
        able = [name for name in EXPERIMENTS if EXPERIMENTS[name].takes_limit]
        msg = f"--limit is for {', '.join(able)}"
        raise UsageError(f"{msg} (got NAME '{args.name}')")
    out = _folder(Path(args.out or Path("results", args.name)))
    report = experiment(
        seeds=range(args.seeds),
        variant=args.variant,
        limit=args.limit,
        out=out,
        resume=args.resume,
        progress=progress(args),
    )
    files = [str(path) for path in report.files]
    written = "\n".join(f"written  {path}" for path in files)
    data: dict[str, Any] = {"command": "reproduce", "name": args.name}
    data |= {"report": report.to_dict(), "files": files}
    return Outcome(f"{report.to_markdown().rstrip()}\n\n{written}".rstrip(), data)


def _folder(path: Path) -> Path:
    """A folder that can be written to, before the long work starts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".pyg-glif"
        probe.touch()
        probe.unlink()
    except OSError as error:
        msg = f"--out: the folder '{path}' cannot be written ({error.strerror})"
        raise UsageError(msg) from error
    return path
