"""``pyg-glif explain``: an explanation of one score."""

import argparse
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import COLUMNS, READING, Outcome, UsageError, add

if TYPE_CHECKING:
    from pyg_glif.explain import Explanation
    from pyg_glif.postprocessing import GLIFPostProcessor

#: Suffixes of explanations.
SUFFIXES = (".txt", ".json")

SUMMARY = "tell somebody what their score is made of"
DESCRIPTION = """\
Tell somebody in plain words what their score is made of: how much is their own, how
much comes from people like them, and in what the closest differ. Nobody else is named
unless --names asks for it.
"""
EPILOG = """\
examples:
  somebody who was fitted, by the id that --id named when the fit was kept:
    pyg-glif smooth people.csv --outputs score --id name --save fit.safetensors
    pyg-glif explain fit.safetensors --person "Jo Doe"
  a newcomer, a row of a file; with the reasons that an adverse-action notice needs:
    pyg-glif explain fit.safetensors --new new.csv --id name --person "Al Roe" --reasons
  everybody of a file, as one JSON object:
    pyg-glif explain fit.safetensors --new new.csv --json
"""
_COLUMNS = {
    flag: {**COLUMNS[flag], "help": words}
    for flag, words in {
        "--outputs": "columns with the model's outputs (default: those of the fit)",
        "--id": "column that names people",
        "--ignore": "columns that are not looked at",
    }.items()
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "post", metavar="FIT", help="a fit that 'pyg-glif smooth --save' kept"
    )
    parser.add_argument(
        "--person",
        metavar="ID",
        help="who; by number from 0 where people have no ids (default: all of --new)",
    )
    parser.add_argument("--new", metavar="FILE", help="newcomers, a row each")
    parser.add_argument(
        "--reasons",
        action="store_true",
        help="add what tells them from people like them with a higher score",
    )
    parser.add_argument(
        "--names", action="store_true", help="name those whose scores count most"
    )
    parser.add_argument("--out", metavar="FILE", help="write it: .txt or .json")
    add(parser, "columns of --new", _COLUMNS)
    add(parser, "how --new is written", READING)


def run(args: argparse.Namespace) -> Outcome:
    """Explains one sample, or every row of a file."""
    import json

    from pyg_glif._utils.json import plain
    from pyg_glif.cli._dataset import check_inputs
    from pyg_glif.cli._files import check_targets, write_text
    from pyg_glif.cli.smooth import load_fit

    check_inputs(args)
    if args.person is None and args.new is None:
        raise UsageError("--person must say who (or --new names a file of newcomers)")
    check_targets({"--out": (args.out, SUFFIXES)}, [args.post, args.new])
    post, saved = load_fit(args, "--post")
    pairs = _new(args, post, saved) if args.new else [_fitted(args, post)]
    explanations = [
        {
            **explanation.to_dict(names=args.names),
            "sample": id,
            "text": explanation.to_text(names=args.names, reasons=args.reasons),
        }
        for id, explanation in pairs
    ]
    data = {"command": "explain", "explanations": explanations, "file": args.out}
    parts = [
        part["text"] if len(pairs) == 1 else f"{part['sample']}\n{part['text']}"
        for part in explanations
    ]
    text = "\n\n".join(parts)
    if args.out:
        as_json = args.out.lower().endswith(".json")
        whole = json.dumps(plain(data), indent=2) if as_json else text
        write_text(args.out, f"{whole}\n")
        text = f"written  {args.out}"
    return Outcome(text, data)


def _fitted(
    args: argparse.Namespace, post: "GLIFPostProcessor"
) -> "tuple[Any, Explanation]":
    """The explanation of a fitted sample, by its id."""
    row = _row(args.person, post.ids_, len(post.y_fair_), f"'{args.post}'")
    return args.person, post.explain(row, top=None if args.names else 1)


def _row(person: str, ids: Any, size: int, where: str) -> int:
    """The row of a sample, by id or, where there are none, by number."""
    if ids is not None:
        texts = [str(id) for id in ids]
        if texts.count(person) == 1:
            return texts.index(person)
        what = "several people" if person in texts else "nobody"
        raise UsageError(f"--person: {where} has {what} with the id {person!r}")
    if person.isdecimal() and int(person) < size:
        return int(person)
    msg = f"--person must be a number below {size}, because {where} has no ids"
    raise UsageError(f"{msg} (got {person!r})")


def _new(
    args: argparse.Namespace, post: "GLIFPostProcessor", saved: dict[str, Any]
) -> "list[tuple[Any, Explanation]]":
    """Explanations of the rows of a file, by id or number."""
    from pyg_glif.cli._dataset import read_samples

    args.data, args.outputs_file = args.new, None
    args.features = None
    samples = read_samples(args, saved)
    ids = samples.first_ids()
    rows = range(len(samples))
    if args.person is not None:
        row = _row(args.person, ids, len(samples), f"'{args.new}'")
        rows = range(row, row + 1)
    described, top = samples.described(), None if args.names else 1
    pairs = []
    for row in rows:
        at = slice(row, row + 1)
        features = None if described is None else described.iloc[at]
        x, y = samples.x[at], samples.y[at]
        explanation = post.explain_new(x, top, y_hat_new=y, features=features)
        pairs.append((row if ids is None else ids[row], explanation))
    return pairs
