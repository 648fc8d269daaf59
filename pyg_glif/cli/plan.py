"""``pyg-glif plan``: what a run on many machines will take."""

import argparse
import math
from dataclasses import asdict

from pyg_glif.cli._options import COUNT, NON_NEGATIVE, POSITIVE, Number, Outcome, names

SUMMARY = "say what a run with many people will take, from a sample of them"
DESCRIPTION = """\
Search samples of the rows at the radius of the planned run, and carry the growth on to
the planned size: hours, memory for each worker, network and disk, with the arithmetic.
"""
EPILOG = """\
examples:
  pyg-glif plan rows/*.parquet --features emb --people 1e8 --workers 100 --cores 8
  pyg-glif plan rows.npy --people 1e7 --tau 0.35
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "data", metavar="DATA", nargs="+", help="rows of people: .parquet or .npy files"
    )
    parser.add_argument(
        "--people",
        type=Number("a number of at least 1", lambda value: 1 <= value < math.inf),
        metavar="N",
        required=True,
        help="how many people the run will have",
    )
    parser.add_argument(
        "--workers", type=COUNT, metavar="N", default=1, help="machines (default: 1)"
    )
    parser.add_argument(
        "--cores", type=COUNT, metavar="N", default=1, help="cores of each (default: 1)"
    )
    parser.add_argument(
        "--features", type=names, metavar="COLS", help="columns that say who is similar"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tau", type=NON_NEGATIVE, help="the radius")
    group.add_argument(
        "--target-degree",
        type=POSITIVE,
        metavar="D",
        default=40.0,
        help="neighbours each at the planned size, if there is no --tau (default: 40)",
    )
    parser.add_argument(
        "--num-outputs",
        type=COUNT,
        metavar="N",
        default=2,
        help="columns smoothed (default: 2)",
    )


def run(args: argparse.Namespace) -> Outcome:
    """Measures, and prints the plan."""
    from pyg_glif.distributed import plan

    planned = plan(
        args.data,
        num_samples=args.people,
        workers=args.workers,
        cores=args.cores,
        tau=args.tau,
        degree=args.target_degree,
        outputs=args.num_outputs,
        features=args.features,
    )
    return Outcome(str(planned), {"command": "plan", **asdict(planned)})
