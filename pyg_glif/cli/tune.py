"""``pyg-glif tune``: radius and strength by what they cost."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import (
    CHANCE,
    COUNT,
    DECISION,
    FOLDS,
    LINK,
    METRIC,
    NON_NEGATIVE,
    PEOPLE,
    READING,
    WEIGHTS,
    Options,
    Outcome,
    UsageError,
    add,
    add_files,
    check_metric,
    given,
    keywords,
    note,
    progress,
    typed,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.cli._dataset import People
    from pyg_glif.model_selection import TuneResult

SUMMARY = "choose radius and strength by what they cost"
DESCRIPTION = """\
Try radii and strengths on people whose true class is known, print what cannot be
beaten in accuracy and fairness at once, and choose the fairest setting that costs at
most --max-loss of accuracy. In turn each fold of people is left out of the fit and
arrives as newcomers. People with an empty label count as neighbours only.
"""
EPILOG = """\
examples:
  what does fairness cost, at most one point of accuracy:
    pyg-glif tune people.csv --outputs score --sensitive sex --labels repaid
  pairs of rows that ought to get the same decision, and a plot:
    pyg-glif tune people.csv --outputs score --standardize --labels repaid \\
        --pairs pairs.csv --plot front.png
  a promise: newcomers lose at most two points, but for a chance of one in ten:
    pyg-glif tune people.csv --outputs score --sensitive sex --labels repaid \\
        --guarantee 0.02 --delta 0.1 --save fit.safetensors
  settings of your own:
    pyg-glif tune x.npy y.npy --labels labels.npy --taus 0.3,0.5 --lams 0.1,1,10
"""


PROMISE: Options = {
    "--guarantee": {
        "type": CHANCE,
        "metavar": "A",
        "help": "choose the fairest setting that people who are set aside prove to "
        "cost newcomers at most A (in place of --max-loss)",
    },
    "--delta": {
        "type": CHANCE,
        "metavar": "D",
        "help": "chance that the promise is broken (default: 0.1)",
    },
    "--risk": {
        "choices": ["loss", "unlike", "both"],
        "help": "what A is about: accuracy that is lost (loss, the default), the share "
        "of peers who are decided on unlike (unlike), or both",
    },
    "--share": {
        "type": CHANCE,
        "metavar": "S",
        "help": "share of people who are set aside (default: 0.3)",
    },
    "--save": {
        "metavar": "FILE",
        "help": "keep the fit that the promise is about, to those who were not set "
        "aside: .safetensors",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_files(parser)
    add(parser, "columns", PEOPLE)
    add(parser, "similarity", METRIC)
    add(parser, "smoothing", WEIGHTS, LINK)
    group = parser.add_argument_group("settings to try")
    group.add_argument(
        "--taus",
        type=NON_NEGATIVE.several(),
        help="radii (default: those of 5, 10, 20 and 40 neighbours each)",
    )
    group.add_argument(
        "--ks",
        type=COUNT.several(),
        help="in place of radii: numbers of nearest people",
    )
    group.add_argument(
        "--lams",
        type=NON_NEGATIVE.several(),
        help="strengths (default: from 0.001 to 10)",
    )
    group.add_argument(
        "--thetas",
        type=NON_NEGATIVE.several(),
        help="decays of the weights (default: --theta)",
    )
    group.add_argument(
        "--cv",
        type=FOLDS,
        metavar="N",
        help="folds, each of which arrives as newcomers; 0 scores the people who were "
        "fitted (default: 5)",
    )
    group.add_argument(
        "--max-loss",
        type=NON_NEGATIVE,
        metavar="A",
        help="accuracy that may be lost (default: 0.01, one point)",
    )
    add(parser, "promise to newcomers", PROMISE)
    add(parser, "what is known", DECISION)
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
    from pyg_glif._utils.files import replacing
    from pyg_glif._utils.optional import require
    from pyg_glif.cli._dataset import check_inputs, input_files, read_people
    from pyg_glif.cli._files import check_targets

    check_inputs(args)
    if args.labels is None:
        raise UsageError("--labels must name the column with the true class")
    check_metric(args)
    _check_promise(args)
    if given(args, LINK):
        from pyg_glif.cli._similarity import link

        link(args)
    targets = {
        "--plot": (args.plot, (".png", ".pdf", ".svg")),
        "--save": (args.save, (".safetensors",)),
    }
    check_targets(targets, input_files(args))
    if args.plot:
        require("matplotlib.figure", "--plot", "plots")
    people, rows = read_people(args), None
    if args.guarantee is not None:
        from pyg_glif.model_selection.calibration_split import calibration_split

        # Whoever is set aside must not be seen by anything that is learned.
        rows = calibration_split(
            _promise(args), _labeled(args, people)[1], people.group_codes()
        ).fitted
        people = people.on_scale_of(args, rows)
    found = _sweep(args, people, rows)
    if args.save:
        _keep(args, people, found)
    if args.plot:
        with replacing(args.plot) as file:
            suffix = Path(args.plot).suffix[1:].lower()
            found.plot().savefig(file, format=suffix, dpi=150)
    call = _call(args, found)
    data = {**found.to_dict(), "call": call, "plot": args.plot}
    return Outcome(_text(args, found, call), {"command": "tune", **data})


def _labeled(args: argparse.Namespace, people: "People") -> "tuple[Tensor, Tensor]":
    """The class of everybody, and where it counts."""
    label, there = people.classes(args.positive)
    if people.mask is not None:
        there &= _mask(people.mask.tolist())
    return label, there


def _sweep(
    args: argparse.Namespace, people: "People", rows: "Tensor | None"
) -> "TuneResult":
    """Runs the sweep over radii and strengths that the options describe.

    Scales and directions are learned from ``rows``, by default from all.
    """
    from pyg_glif.cli._similarity import fair_distance, link
    from pyg_glif.model_selection import tune

    label, there = _labeled(args, people)
    if people.mask is None and not bool(there.all()):
        note(args, f"{int((~there).sum())} people without a label are neighbours only")
    options = ("--taus", "--ks", "--lams", "--thetas", "--max-loss", "--threshold")
    found = keywords(args, *options, *WEIGHTS)
    if args.cv is not None:
        found["cv"] = args.cv or None
    if args.guarantee is not None:
        found["guarantee"] = _promise(args)
    return tune(
        people.x,
        people.y,
        label,
        pairs=_pairs(args) if args.pairs else None,
        mask=there,
        clusters=people.group_codes(),
        distance=fair_distance(args, people, rows),
        link=link(args),
        progress=progress(args),
        **found,
    )


def _check_promise(args: argparse.Namespace) -> None:
    """Raises on options that do not go together."""
    if args.guarantee is not None:
        if args.max_loss is not None:
            raise UsageError("--max-loss does not go with --guarantee")
        return
    for flag in given(args, [flag for flag in PROMISE if flag != "--guarantee"]):
        raise UsageError(f"{flag} goes with --guarantee")


def _promise(args: argparse.Namespace) -> Any:
    """The promise that the options ask for."""
    from pyg_glif.model_selection import RiskControl

    risk = ("loss", "unlike") if args.risk == "both" else args.risk or "loss"
    return RiskControl(
        args.guarantee, risk=risk, **keywords(args, "--delta", "--share")
    )


def _keep(args: argparse.Namespace, people: "People", found: "TuneResult") -> None:
    """Saves the fit that the promise is about, if there is one."""
    from pyg_glif.postprocessing import GLIFPostProcessor

    promise = found.guarantee
    if promise is None or promise.chosen is None:
        raise UsageError(f"--save: nothing to keep. {promise and promise.to_text()}")
    rows = promise.fitted
    post = GLIFPostProcessor(**found.settings(), progress=progress(args))
    post.fit(people.x[rows], people.y[rows])
    post.save(args.save, metadata=people.kept())


def _mask(cells: list[Any]) -> "Tensor":
    """The column of ``--mask`` as truth values; an empty cell is false."""
    import torch

    words = {"1": True, "1.0": True, "true": True}
    words |= dict.fromkeys(("0", "0.0", "false", "", "nan", "none"), False)
    text = [str(cell).strip().lower() for cell in cells]
    wrong = next((word for word in text if word not in words), None)
    if wrong is not None:
        raise UsageError(f"--mask must hold 0 and 1 (got '{wrong}')")
    return torch.tensor([words[word] for word in text])


def _pairs(args: argparse.Namespace) -> Any:
    """Reads pairs of row numbers from a file with two columns."""
    from pyg_glif.cli._tables import Reading, open_table

    path, table = args.pairs, open_table(args.pairs, Reading.of(args))
    if len(table.names) != 2:
        got = f"got {len(table.names)}"
        raise UsageError(f"--pairs: '{path}' must have two columns ({got})")
    return table.numbers(table.names)


def _call(args: argparse.Namespace, found: "TuneResult") -> str | None:
    """The command that applies the choice, ``None`` if it is the model as it is."""
    from pyg_glif.cli._tables import suffix_of

    if found.best == found.baseline or found.guarantee is not None:
        return None
    tables = (READING, PEOPLE, METRIC, WEIGHTS, LINK)
    shared = given(args, *tables)
    unused = [
        name for name in (args.labels, args.mask) if name and not Path(name).is_file()
    ]
    shared["--ignore"] = [*shared.get("--ignore", []), *unused]
    if not shared["--ignore"] or "--features" in shared:
        del shared["--ignore"]
    best = found.best
    shared |= {"--tau": best.tau} if best.k is None else {"--k": best.k}
    shared |= {} if best.theta is None else {"--theta": best.theta}
    shared |= {"--lam": best.lam}
    files = [args.data] + ([args.outputs_file] if args.outputs_file else [])
    suffix = suffix_of(args.data)
    target = f"fair{'.npz' if suffix == '.npy' and args.id else suffix}"
    words = [*files, *typed(shared), "--out", target]
    return shlex.join(["pyg-glif", "smooth", *words])


def _text(args: argparse.Namespace, found: "TuneResult", call: str | None) -> str:
    """The text to print: the front, the choice and the command to use it."""
    best, base = found.best, found.baseline
    lines = [found.to_markdown(), ""]
    names = f"{found.names[0]} %.4g, {found.names[1]} %.4g"
    lines.append("model as it is: " + names % (base.score, base.unfairness))
    if found.guarantee is not None:
        lines += ["chosen: " + best.describe(), "", found.guarantee.to_text() + "."]
        if args.save:
            lines += ["", f"written  {args.save}", "For newcomers:", ""]
            lines += [f"pyg-glif smooth NEWCOMERS --post {shlex.quote(args.save)}"]
    elif call is None:
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
