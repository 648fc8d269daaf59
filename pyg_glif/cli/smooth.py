"""``pyg-glif smooth``: fair outputs from a file."""

import argparse

from pyg_glif.cli import arguments, options
from pyg_glif.cli.base import Outcome, UsageError, aligned

DESCRIPTION = """\
Make the outputs of a model treat similar people alike, and change them no more than
that takes. People within the distance tau are similar; lam says how much they pull on
each other. Old files under --out, --audit and --save are replaced.
"""
EPILOG = """\
examples:
  one table, an audit beside the result:
    pyg-glif smooth people.csv --outputs score --id name --attributes sex \\
        --standardize --out fair.csv --audit report.html
  two arrays, a radius of your own, probabilities averaged as log-odds:
    pyg-glif smooth x.npy y.npy --tau 0.5 --lam 0.3 --link logit --out y_fair.npy
  keep the fit, and correct those who come later one by one:
    pyg-glif smooth people.csv --outputs score --out fair.csv --save fit.safetensors
    pyg-glif smooth new.csv --post fit.safetensors --out new_fair.csv
"""
_FIT: options.Options = {
    "--tau": {},
    "--target-degree": {},
    "--lam": {},
    "--standardize": {},
    **options.METRIC,
    **options.WEIGHTS,
    **options.LINK,
    "--audit": {},
    "--save": {},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    arguments.add_files(parser)
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="fair outputs, by suffix as DATA"
    )
    parser.add_argument(
        "--audit", metavar="FILE", help="before and after: .md, .html or .json"
    )
    parser.add_argument(
        "--save", metavar="FILE", help="keep the fit for newcomers: .safetensors"
    )
    parser.add_argument(
        "--post", metavar="FILE", help="correct newcomers by a fit that was kept"
    )
    parser.add_argument(
        "--joint",
        action="store_true",
        help="newcomers are each other's neighbours too (with --post)",
    )
    arguments.add(parser, "columns", options.PEOPLE)
    arguments.add(parser, "similarity", options.METRIC)
    arguments.add_radius(parser)
    parser.add_argument(
        "--lam", type=float, help="strength; 0 changes nothing (default: 1)"
    )
    arguments.add(parser, "smoothing", options.WEIGHTS, options.LINK)
    arguments.add(parser, "audit", options.DECISION, options.REPORT)


def run(args: argparse.Namespace) -> Outcome:
    """Fits and writes, or corrects newcomers and writes."""
    from pyg_glif.cli.files import DATA, check_targets
    from pyg_glif.cli.people import input_files
    from pyg_glif.cli.report import SUFFIXES
    from pyg_glif.cli.smooth_work import correct, fit

    targets = {
        "--out": (args.out, DATA),
        "--audit": (args.audit, SUFFIXES),
        "--save": (args.save, (".safetensors",)),
    }
    _check_options(args)
    check_targets(targets, input_files(args))
    data = correct(args) if args.post else fit(args)
    written = {"out": args.out, "audit": args.audit, "save": args.save}
    data["files"] = {name: path for name, path in written.items() if path}
    rows = [(name.replace("_", " "), data[name]) for name in data if name != "files"]
    rows += [("written", path) for path in data["files"].values()]
    return Outcome(aligned(rows), {"command": "smooth", **data})


def _check_options(args: argparse.Namespace) -> None:
    """Raises on options that do not go together."""
    from pyg_glif.cli.metric import check_metric

    if args.post:
        for flag in arguments.given(args, _FIT):
            msg = f"{flag} does not go with --post, which brings its own settings"
            remedy = ". Use 'pyg-glif audit --after'" if flag == "--audit" else ""
            raise UsageError(f"{msg}{remedy}")
    elif args.joint:
        raise UsageError("--joint goes with --post")
    if args.id and args.out.lower().endswith(".npy"):
        raise UsageError("--id does not fit into .npy. Let --out be .csv or .npz")
    check_metric(args)
