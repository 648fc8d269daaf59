"""``python -m experiments NAME``: runs an experiment, prints and writes its tables."""

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from experiments.registry import EXPERIMENTS
from pyg_glif._utils.json import plain

_DESCRIPTION = """\
Repeat an experiment of the paper, or one on a table or a graph of people: train,
smooth, compare; print the table, and write numbers and plots to a folder.
"""
_EPILOG = """\
examples:
  sentiment of words and names, ten seeds as in the paper:
    python -m experiments sentiment
  a quick look, one seed:
    python -m experiments sentiment --seeds 1 --out look
  another side set of names:
    python -m experiments sentiment --variant nyc --seeds 3
  biographies, a tenth of them, one seed (needs the extra 'text'):
    python -m experiments bios --limit 0.1 --seeds 1
  people in a table, made up, so that no file is needed:
    python -m experiments adult --variant invented --seeds 1
  a graph of people, another network than the default, where an earlier run stopped:
    python -m experiments credit --variant sage --resume
"""


def _parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = ", ".join(EXPERIMENTS)
    parser.add_argument(
        "name", metavar="NAME", choices=list(EXPERIMENTS), help=f"one of {names}"
    )
    parser.add_argument(
        "--seeds",
        type=int,
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
        type=float,
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
    shown = parser.add_argument_group("what is shown")
    shown.add_argument(
        "--json", action="store_true", help="print one JSON object instead of text"
    )
    shown.add_argument(
        "--quiet", action="store_true", help="neither notes nor progress bars"
    )
    shown.add_argument("--no-progress", action="store_true", help="no progress bars")
    shown.add_argument(
        "--debug", action="store_true", help="show the traceback of an error"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one experiment; ends the process with code 2 for unusable options or data.

    Args:
        argv (sequence of str, optional): Words after ``python -m experiments``.
            (default: those of the process)
    """
    parser = _parser()
    args = parser.parse_args(argv)
    experiment = EXPERIMENTS[args.name]
    if args.seeds < 1:
        parser.error(f"--seeds must be at least 1 (got {args.seeds})")
    if args.limit is not None and not experiment.takes_limit:
        able = [name for name in EXPERIMENTS if EXPERIMENTS[name].takes_limit]
        parser.error(f"--limit is for {', '.join(able)} (got NAME '{args.name}')")
    try:
        # Training programs print; standard output is for the tables.
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            report = experiment(
                seeds=range(args.seeds),
                variant=args.variant,
                limit=args.limit,
                out=Path(args.out or Path("results", args.name)),
                resume=args.resume,
                progress=False if args.quiet or args.no_progress else None,
            )
    except (ValueError, OSError, ImportError) as error:
        if args.debug:
            raise
        parser.error(str(error))
    files = [str(path) for path in report.files]
    if args.json:
        found = {"name": args.name, "report": report.to_dict(), "files": files}
        print(json.dumps(plain(found), indent=2))
    else:
        written = "\n".join(f"written  {path}" for path in files)
        print(f"{report.to_markdown().rstrip()}\n\n{written}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
