"""``pyg-glif tune``: radius and strength by what they cost."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import (
    CHANCE,
    COLUMNS,
    COUNT,
    DECISION,
    FOLDS,
    LINK,
    METRIC,
    NON_NEGATIVE,
    RADIUS,
    READING,
    WEIGHTS,
    Options,
    Outcome,
    UsageError,
    add,
    add_files,
    called,
    check_similarity,
    given,
    keywords,
    name_of,
    note,
    progress,
    suffix_of,
    words_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.cli._samples import Samples
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
    pyg-glif tune people.csv --outputs score --scale standard --labels repaid \\
        --pairs pairs.csv --plot front.png
  risk control: new people lose at most two points, but for a chance of one in ten:
    pyg-glif tune people.csv --outputs score --sensitive sex --labels repaid \\
        --guarantee 0.02 --delta 0.1 --save fit.safetensors
  settings of your own:
    pyg-glif tune x.npy y.npy --labels labels.npy --taus 0.3,0.5 --lams 0.1,1,10
"""


_RISK: Options = {
    "--guarantee": {
        "type": CHANCE,
        "metavar": "A",
        "help": "choose the fairest setting that people who are set aside prove to "
        "cost new people at most A (in place of --max-loss)",
    },
    "--delta": {
        "type": CHANCE,
        "metavar": "D",
        "help": "chance that the guarantee fails (default: 0.1)",
    },
    "--save": {
        "metavar": "FILE",
        "help": "keep the fit that the guarantee is about, to those who were not set "
        "aside: .safetensors",
    },
    "risk": {"choices": ["loss", "unlike", "both"]},
    "share": {"type": CHANCE},
}
_GRID: Options = {
    "--taus": {
        "type": NON_NEGATIVE.several(),
        "help": "radii (default: those of 5, 10, 20 and 40 neighbors each)",
    },
    "--ks": {
        "type": COUNT.several(),
        "help": "in place of radii: numbers of nearest people",
    },
    "--lams": {
        "type": NON_NEGATIVE.several(),
        "help": "strengths (default: from 0.001 to 10)",
    },
    "--max-loss": {
        "type": NON_NEGATIVE,
        "metavar": "A",
        "help": "accuracy that may be lost (default: 0.01, one point)",
    },
    "--cv": {
        "type": FOLDS,
        "metavar": "N",
        "help": "folds, each of which arrives as new people; 0 scores the people who "
        "were fitted (default: 5)",
    },
}
_KNOWN: Options = {
    **DECISION,
    "--pairs": {
        "metavar": "FILE",
        "help": "two columns of row numbers from 0: people who ought to get the same "
        "decision (default: unfairness is the Laplacian energy)",
    },
    "mask": {},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_files(parser)
    add(parser, "columns", COLUMNS)
    add(parser, "similarity", METRIC)
    add(parser, "smoothing", WEIGHTS, LINK)
    add(parser, "settings to try", _GRID)
    add(parser, "risk control", _RISK)
    add(parser, "what is known", _KNOWN)
    parser.add_argument("--plot", metavar="FILE", help="draw it: .png, .pdf or .svg")
    parser.set_defaults(**dict.fromkeys(map(name_of, RADIUS)))


def run(args: argparse.Namespace) -> Outcome:
    """Sweeps, and reports the front and the call that uses the choice."""
    from pyg_glif.cli._dataset import check_inputs, input_files, read_samples
    from pyg_glif.cli._files import check_plot, check_targets, write_plot

    check_inputs(args)
    if args.labels is None:
        raise UsageError("--labels must name the column with the true class")
    check_similarity(args)
    _check_risk(args)
    if given(args, LINK):
        from pyg_glif.cli._similarity import link

        link(args)
    check_plot(args.plot, input_files(args))
    inputs = [*input_files(args), args.plot]
    check_targets({"--save": (args.save, (".safetensors",))}, inputs)
    samples, rows = read_samples(args), None
    if args.guarantee is not None:
        from pyg_glif.model_selection.calibration_split import calibration_split

        # Nothing may be learned from the calibration split.
        rows = calibration_split(
            _risk_control(args), _labeled(args, samples)[1], samples.variant_codes()
        ).fitted
        samples = samples.on_scale_of(args, rows)
    result = _sweep(args, samples, rows)
    if args.save:
        _keep(args, samples, result)
    if args.plot:
        write_plot(args.plot, result.plot())
    call = _call(args, result)
    data = {**result.to_dict(), "call": call, "plot": args.plot}
    return Outcome(_text(args, result, call), {"command": "tune", **data})


def _labeled(args: argparse.Namespace, samples: "Samples") -> "tuple[Tensor, Tensor]":
    """The class of each sample, and the mask of those that count."""
    import torch

    label, mask = samples.classes(args.positive)
    if samples.mask is not None:
        values = {"1": True, "1.0": True, "true": True}
        values |= dict.fromkeys(("0", "0.0", "false", "", "nan", "none"), False)
        words = [str(cell).strip().lower() for cell in samples.mask.tolist()]
        for word in words:
            if word not in values:
                raise UsageError(f"'mask' must hold 0 and 1 (got '{word}')")
        mask &= torch.tensor([values[word] for word in words])
    return label, mask


def _sweep(
    args: argparse.Namespace, samples: "Samples", rows: "Tensor | None"
) -> "TuneResult":
    """Runs the sweep over radii and strengths that the options describe.

    Scales and directions are learned from ``rows``, by default from all.
    """
    from pyg_glif.cli._similarity import fair_distance, link
    from pyg_glif.model_selection import tune

    label, mask = _labeled(args, samples)
    if samples.mask is None and not bool(mask.all()):
        note(args, f"{int((~mask).sum())} people without a label are neighbors only")
    options = ("--taus", "--ks", "--lams", "--max-loss", "--threshold")
    keyword = keywords(args, *options, *WEIGHTS)
    if args.cv is not None:
        keyword["cv"] = args.cv or None
    if args.guarantee is not None:
        keyword["guarantee"] = _risk_control(args)
    return tune(
        samples.x,
        samples.y,
        label,
        pairs=_pairs(args) if args.pairs else None,
        mask=mask,
        clusters=samples.variant_codes(),
        distance=fair_distance(args, samples, rows),
        link=link(args),
        progress=progress(args),
        **keyword,
    )


def _check_risk(args: argparse.Namespace) -> None:
    """Raises on options that do not go together."""
    if args.guarantee is not None:
        if args.max_loss is not None:
            raise UsageError("--max-loss does not go with --guarantee")
        return
    for option in given(args, [o for o in _RISK if o != "--guarantee"]):
        raise UsageError(f"{called(option)} goes with --guarantee")


def _risk_control(args: argparse.Namespace) -> Any:
    """The risk control that the options ask for."""
    from pyg_glif.model_selection import RiskControl

    risk = ("loss", "unlike") if args.risk == "both" else args.risk or "loss"
    return RiskControl(args.guarantee, risk=risk, **keywords(args, "--delta", "share"))


def _keep(args: argparse.Namespace, samples: "Samples", result: "TuneResult") -> None:
    """Saves the fit that the guarantee is about, if there is one."""
    from pyg_glif.postprocessing import GLIFPostProcessor

    guarantee = result.guarantee
    if guarantee is None or guarantee.chosen is None:
        reason = guarantee and guarantee.to_text()
        raise UsageError(f"--save: nothing to keep. {reason}")
    rows = guarantee.fitted
    post = GLIFPostProcessor(**result.settings(), progress=progress(args))
    post.fit(samples.x[rows], samples.y[rows])
    post.save(args.save, metadata=samples.metadata())


def _pairs(args: argparse.Namespace) -> Any:
    """Reads pairs of row numbers from a file with two columns."""
    from pyg_glif.cli._tables import open_table

    path, table = args.pairs, open_table(args.pairs, args)
    if len(table.names) != 2:
        got = f"got {len(table.names)}"
        raise UsageError(f"--pairs: '{path}' must have two columns ({got})")
    return table.numbers(table.names)


def _call(args: argparse.Namespace, result: "TuneResult") -> str | None:
    """The command that applies the choice, ``None`` if it is the model as it is."""
    if result.best == result.baseline or result.guarantee is not None:
        return None
    tables = (READING, COLUMNS, METRIC, LINK)
    shared = {o: v for o, v in given(args, *tables).items() if o.startswith("--")}
    if args.config is not None:  # it has the settings that no option has
        shared["--config"] = args.config
    unused = [
        name for name in (args.labels, args.mask) if name and not Path(name).is_file()
    ]
    shared["--ignore"] = [*shared.get("--ignore", []), *unused]
    if not shared["--ignore"] or "--features" in shared:
        del shared["--ignore"]
    best = result.best
    shared |= {"--tau": best.tau} if best.k is None else {"--k": best.k}
    shared |= {"--lam": best.lam}
    files = [args.data] + ([args.outputs_file] if args.outputs_file else [])
    suffix = suffix_of(args.data)
    target = f"fair{'.npz' if suffix == '.npy' and args.id else suffix}"
    words = [*files, *words_of(shared), "--out", target]
    return shlex.join(["pyg-glif", "smooth", *words])


def _text(args: argparse.Namespace, result: "TuneResult", call: str | None) -> str:
    """The text to print: the front, the choice and the command to use it."""
    best, base = result.best, result.baseline
    lines = [result.to_markdown(), ""]
    names = f"{result.names[0]} %.4g, {result.names[1]} %.4g"
    lines.append("model as it is: " + names % (base.score, base.unfairness))
    if result.guarantee is not None:
        lines += ["chosen: " + best.describe(), "", result.guarantee.to_text() + "."]
        if args.save:
            lines += ["", f"written  {args.save}", "For new people:", ""]
            lines += [f"pyg-glif smooth NEW --post {shlex.quote(args.save)}"]
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
