"""``pyg-glif monitor``: a test for disparity of served samples, at any time."""

import argparse
import warnings
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import (
    CHANCE,
    COLUMNS,
    FINITE,
    Outcome,
    UsageError,
    add,
    add_files,
    keywords,
)

if TYPE_CHECKING:
    from pyg_glif.cli._samples import Samples
    from pyg_glif.monitoring import TreatmentMonitor
    from pyg_glif.postprocessing import GLIFPostProcessor

SUMMARY = "watch whether served people are treated like their peers"
DESCRIPTION = """\
Read a log of served people, row by row in the order in which they came, and test
whether their mean disparity to their peers among the fitted people exceeds --epsilon.
However often this is done, a false alarm is ever raised with probability at most
--alpha. With --journal a later call goes on where the last one ended, and rows whose
--id it has seen do not count again.
"""
EPILOG = """\
examples:
  a log with the columns of the fit, and outputs of the model:
    pyg-glif monitor log.parquet --fit fit.safetensors --epsilon 0.05
  every night, by sex as well, nobody twice:
    pyg-glif monitor log.csv --fit fit.safetensors --epsilon 0.05 --id request \\
        --time served_at --sensitive sex --journal monitor.db --plot monitor.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_files(parser)
    parser.set_defaults(features=None)
    parser.add_argument(
        "--fit", metavar="FILE", help="the fit that serves: .safetensors (needed)"
    )
    parser.add_argument(
        "--epsilon",
        type=CHANCE,
        metavar="E",
        help="mean disparity that is all right, between 0 and 1 (needed unless "
        "--journal exists)",
    )
    parser.add_argument(
        "--alpha",
        type=CHANCE,
        metavar="A",
        help="chance of a false alarm (default: 0.05)",
    )
    parser.add_argument(
        "--threshold",
        type=FINITE,
        metavar="T",
        help="compare decisions: a single output above it means class 1 (default: "
        "compare outputs, which must then be probabilities)",
    )
    parser.add_argument(
        "--served",
        action="store_true",
        help="outputs in the log are those that people got (default: those of the "
        "model, which the fit corrects)",
    )
    columns = {
        "--outputs": COLUMNS["--outputs"]["help"],
        "--id": "column that names requests; those in the journal do not count again",
        "--sensitive": "column such as sex, each of whose groups is watched as well",
    }
    add(parser, "columns", {f: {**COLUMNS[f], "help": w} for f, w in columns.items()})
    parser.add_argument(
        "--time", metavar="COL", help="column with seconds or ISO dates, to be shown"
    )
    parser.add_argument(
        "--journal", metavar="FILE", help="keep what was counted, and go on from it"
    )
    parser.add_argument(
        "--no-drift",
        action="store_true",
        help="do not test whether people are farther away than the fitted ones",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw it: .png, .pdf or .svg")


def run(args: argparse.Namespace) -> Outcome:
    """Counts the rows of a log, and reports the state of the test."""
    from pyg_glif.cli._dataset import check_inputs, input_files, read_samples
    from pyg_glif.cli._files import check_plot, write_plot
    from pyg_glif.cli.smooth import load_fit

    check_inputs(args)
    if args.fit is None:
        raise UsageError("--fit must name the fit that serves people")
    if len(args.sensitive or ()) > 1:
        raise UsageError("--sensitive must name one column: a row is in one group")
    check_plot(args.plot, input_files(args))
    post, saved = load_fit(args, "--fit")
    samples = read_samples(args, saved)
    monitor = _monitor(args, samples, post)
    new = _watched(args, monitor, samples, post)
    if args.plot:
        write_plot(args.plot, monitor.plot())
    data = {**monitor.to_dict(), "num_new": new, "plot": args.plot}
    monitor.close()
    return Outcome(_text(data, len(samples)), {"command": "monitor", **data})


def _monitor(
    args: argparse.Namespace, samples: "Samples", post: "GLIFPostProcessor"
) -> "TreatmentMonitor":
    """The monitor of the journal, or a new one."""
    from pyg_glif.monitoring import DriftReference, TreatmentMonitor

    options = keywords(args, "--epsilon", "--alpha", "--threshold")
    if args.journal and Path(args.journal).is_file():
        monitor = TreatmentMonitor.open(args.journal)
        for name, value in options.items():
            if getattr(monitor, name) != value:
                must = f"--{name} must be {getattr(monitor, name):g}"
                msg = f"{must}, as '{args.journal}' has it (got {value:g})"
                raise UsageError(msg)
        return monitor
    if args.epsilon is None:
        raise UsageError("--epsilon must say which mean disparity is all right")
    for values in samples.sensitive.values():
        options["groups"] = sorted({str(value) for value in values})
    if not (args.no_drift or post.mutual):
        options["drift"] = DriftReference.of(post)
    return TreatmentMonitor(**options, journal=args.journal)


def _watched(
    args: argparse.Namespace,
    monitor: "TreatmentMonitor",
    samples: "Samples",
    post: "GLIFPostProcessor",
) -> int:
    """The number of new rows of the log, all of which are counted."""
    from pyg_glif.errors import ClockWarning

    group = next(iter(samples.sensitive.values()), None)
    time = None if samples.time is None else [_seconds(cell) for cell in samples.time]
    info = post.transform_info(samples.x, samples.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClockWarning)  # the text counts it
        return monitor.watch(
            samples.y if args.served else info.value,
            info,
            group=None if group is None else [str(value) for value in group],
            id=samples.first_ids(),
            time=time,
        )


def _seconds(cell: Any) -> float:
    """A moment in seconds, from a number or a date as ISO 8601 writes it."""
    text = str(cell).strip()
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        msg = "--time must hold seconds or dates like 2026-03-01T08:00:00"
        raise UsageError(f"{msg} (got '{text}')") from None


def _text(data: dict[str, Any], rows: int) -> str:
    """The state of the test as text."""
    lines = [f"{data['num_new']} of {rows} rows counted, {data['num']} people so far"]
    if data["num_isolated"]:
        lines.append(f"{data['num_isolated']} of them have no peers")
    if data["num_steps_back"]:
        lines.append(f"the clock went back {data['num_steps_back']} times")
    lines.append("")
    width = max(len(name) for name in data["streams"])
    for name, stream in data["streams"].items():
        if stream["num"] == 0:
            lines.append(f"{name:<{width}}  nobody yet")
            continue
        low, high = stream["interval"]
        state = f"ALARM at {stream['alarm_at']}" if stream["alarm"] else "no alarm"
        lines.append(
            f"{name:<{width}}  mean {stream['mean']:.4f}, between {low:.4f} and "
            f"{high:.4f}, allowed {stream['limit']:.4f}: {state} "
            f"(p-value {stream['p_value']:.2g})"
        )
    if data["plot"]:
        lines += ["", f"written  {data['plot']}"]
    return "\n".join(lines)
