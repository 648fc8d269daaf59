"""What commands share: their errors, their outcome, and options as data.

Nothing heavy is imported here: options are read before anything else is.
"""

import argparse
import codecs
import csv
import inspect
import io
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, TypeAlias

#: Flag to the arguments of ``add_argument``. As data, so that ``tune`` can write the
#: call that uses what it found.
Options: TypeAlias = dict[str, dict[str, Any]]


class UsageError(ValueError):
    """Wrong options or unusable input; the message is for the person who typed."""


@dataclass(frozen=True)
class Outcome:
    """What a command has to say: for people, as plain data, or as a table.

    A table takes standard output for itself, and the text goes to standard error.
    """

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    table: bytes | None = None


def note(args: argparse.Namespace, message: str) -> None:
    """Tells something in passing, on standard error."""
    if not args.quiet:
        print(f"pyg-glif: {message}", file=sys.stderr)


def progress(args: argparse.Namespace) -> bool | None:
    """Whether to show progress bars; ``None`` means on a terminal."""
    return False if args.quiet or args.no_progress else None


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, not more than fit."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, ..." if len(names) > most else shown or "none"


def aligned(rows: list[tuple[str, Any]]) -> str:
    """Two columns of text; numbers in five digits."""
    width = max(len(name) for name, _ in rows)
    lines = (f"{name:<{width}}  {short(value)}".rstrip() for name, value in rows)
    return "\n".join(lines)


def short(value: Any) -> str:
    """A number in five digits, anything else as it is."""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def names(text: str) -> list[str]:
    """Comma-separated names; one that holds a comma goes in double quotes."""
    try:
        (row,) = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    except (ValueError, csv.Error) as error:
        msg = f"must be names with commas in between (got {text!r})"
        raise argparse.ArgumentTypeError(msg) from error
    return row


@dataclass(frozen=True)
class Number:
    """A number within limits, as ``type`` of an option: refused before any work.

    Args:
        condition (str): What it must be, as errors put it.
        holds (callable): Whether it is.
        kind (type): Of the number.
        many (bool): Whether there may be several, with commas in between.
    """

    condition: str
    holds: Callable[[Any], bool]
    kind: type[int] | type[float] = float
    many: bool = False

    def __call__(self, text: str) -> Any:
        """The number, or the list of them."""
        parts = text.split(",") if self.many else [text]
        try:
            found = [self.kind(part) for part in parts]
        except ValueError:
            found = []
        if not found or not all(self.holds(value) for value in found):
            each = "numbers with commas in between, each " if self.many else ""
            msg = f"must be {each}{self.condition} (got {text!r})"
            raise argparse.ArgumentTypeError(msg)
        return found if self.many else found[0]

    def several(self) -> "Number":
        """The same for several numbers."""
        return replace(self, many=True)


#: The kinds of numbers that options take.
FINITE = Number("a finite number", math.isfinite)
NON_NEGATIVE = Number(
    "a non-negative number", lambda value: math.isfinite(value) and value >= 0
)
POSITIVE = Number("a positive number", lambda v: math.isfinite(v) and v > 0)
RADIUS_SIZE = Number("a non-negative number or inf", lambda value: value >= 0)
SHARE = Number("above 0 and at most 1", lambda value: 0 < value <= 1)
CHANCE = Number("above 0 and below 1", lambda value: 0 < value < 1)
HALF = Number("above 0 and below 0.5", lambda value: 0 < value < 0.5)
COUNT = Number("a whole number of at least 1", lambda value: value >= 1, int)
COUNT_OR_NONE = Number("a whole number of at least 0", lambda value: value >= 0, int)
FOLDS = Number("0 or a whole number of at least 2", lambda v: v == 0 or v >= 2, int)
PORT = Number("a whole number from 0 to 65535", lambda v: 0 <= v < 1 << 16, int)


def encoding(text: str) -> str:
    """An encoding of text that Python knows, by Python's name for it."""
    try:
        found = codecs.lookup(text)
    except (LookupError, ValueError) as error:
        msg = f"must be an encoding such as utf-8, cp1252 or utf-16 (got {text!r})"
        raise argparse.ArgumentTypeError(msg) from error
    if not found._is_text_encoding:  # such as base64
        raise argparse.ArgumentTypeError(f"must be an encoding of text (got {text!r})")
    return found.name


def equivalent(text: str) -> str:
    """A column, and values of it that count as one; checked, and kept as typed."""
    name, sign, values = text.partition("=")
    if not (name and sign and all(values.split("/")) and "/" in values):
        msg = f"must be like relationship=Husband/Wife (got {text!r})"
        raise argparse.ArgumentTypeError(msg)
    return text


def tolerance(text: str) -> str:
    """A number, or numbers by name; checked, and kept as typed."""
    try:
        found = tolerances(text)
        shares = found.values() if isinstance(found, dict) else [found]
        if not all(NON_NEGATIVE.holds(share) for share in shares):
            raise ValueError(text)
    except ValueError as error:
        msg = "must be non-negative, like 0.05 or pairs=0.05,gap_by_sex=0.1"
        msg = f"{msg} (got {text!r})"
        raise argparse.ArgumentTypeError(msg) from error
    return text


def tolerances(text: str) -> float | dict[str, float]:
    """What was typed as a tolerance, as the library takes it."""
    if "=" not in text:
        return float(text)
    pairs = (part.rpartition("=") for part in text.split(","))
    return {name.strip(): float(value) for name, _, value in pairs}


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, whatever its capitals."""
    by_form = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_form, n=1)
    return by_form[found[0]] if found else None


READING: Options = {
    "--decimal": {
        "choices": [".", ","],
        "help": "decimal sign of numbers; the other one, spaces and apostrophes then "
        "group thousands, as in 1.234,5 (default: numbers like 1234.5, without groups)",
    },
    "--dates": {
        "choices": ["dmy", "mdy"],
        "help": "what comes first in dates like 31.12.2024 (default: dates have the "
        "year first, like 2024-12-31)",
    },
    "--encoding": {
        "type": encoding,
        "metavar": "NAME",
        "help": "encoding of .csv and .tsv, such as cp1252 (default: utf-8)",
    },
    "--sheet": {
        "metavar": "NAME",
        "help": "sheet of .xlsx (default: the first)",
    },
}

_NAMES: dict[str, Any] = {"type": names, "action": "extend", "metavar": "COLS"}

PEOPLE: Options = {
    "--features": {
        **_NAMES,
        "help": "columns that say who is similar (default: all that have no other "
        "use); several with commas, 'emb_*' for all that start with emb_",
    },
    "--outputs": {
        **_NAMES,
        "help": "columns with the model's outputs (default: all of OUTPUTS, if given)",
    },
    "--sensitive": {
        **_NAMES,
        "help": "columns that must not say who is similar, such as sex; audits "
        "report the gap between their groups. All others are put on the scale of their "
        "effect on the outputs (see --scale)",
    },
    "--ignore": {**_NAMES, "help": "columns that are not features"},
    "--id": {**_NAMES, "help": "columns carried through to the output, not features"},
    "--equivalent": {
        "type": equivalent,
        "action": "append",
        "metavar": "COL=A/B",
        "help": "values of a feature that count as one, such as "
        "relationship=Husband/Wife; may be repeated",
    },
    "--categories": {
        **_NAMES,
        "help": "features whose numbers are names, such as codes of jobs",
    },
    "--attributes": {
        **_NAMES,
        "help": "protected columns, such as sex: not features; audits report the gap "
        "between their groups, '--metric logistic' ignores what predicts them",
    },
    "--group": {
        "metavar": "COL",
        "help": "column that is equal for people who ought to be treated alike, such "
        "as versions of one person: not a feature; audits report the spread within "
        "groups, '--metric face' learns from it",
    },
    "--scale": {
        "choices": ["effect", "conditional", "standard", "none"],
        "help": "what a difference in a feature counts. effect: by how much it moves "
        "the outputs, found by trees that are fitted to them (default with --sensitive "
        "or --equivalent, and wherever features are text or have gaps); conditional: "
        "the same for features that go together; standard: in standard deviations; "
        "none: numbers as they are (default otherwise)",
    },
    "--standardize": {"action": "store_true", "help": "short for --scale standard"},
}

# Ways to tell who is similar, each with its options: the first must be given.
_METRICS: dict[str, tuple[str, ...]] = {
    "euclidean": (),
    "mahalanobis": ("--matrix",),
    "subspace": ("--directions",),
    "svd": ("--side-rows", "--num-components"),
    "face": ("--group", "--num-factors"),
    "logistic": ("--attributes", "--ridge"),
}

METRIC: Options = {
    "--metric": {
        "choices": list(_METRICS),
        "default": "euclidean",
        "help": "who is similar (default: euclidean). mahalanobis: --matrix; "
        "subspace: ignore --directions; svd: ignore the main directions of "
        "--side-rows; face: ignore how members of a --group differ; logistic: ignore "
        "what predicts --attributes",
    },
    "--matrix": {
        "metavar": "FILE",
        "help": "square matrix that multiplies differences (mahalanobis)",
    },
    "--directions": {
        "metavar": "FILE",
        "help": "rows to ignore differences along, in units of the features (subspace)",
    },
    "--side-rows": {
        "metavar": "FILE",
        "help": "rows of features that should not matter, such as embedded names (svd)",
    },
    "--num-components": {
        "type": COUNT,
        "metavar": "K",
        "help": "directions to ignore (svd; default: 50)",
    },
    "--num-factors": {
        "type": COUNT,
        "metavar": "K",
        "help": "directions to ignore (face; default: 25)",
    },
    "--ridge": {
        "type": POSITIVE,
        "metavar": "A",
        "help": "penalty of the regressions (logistic; default: 1)",
    },
}

WEIGHTS: Options = {
    "--theta": {
        "type": NON_NEGATIVE,
        "help": "weights are exp(-theta * distance^2) (default: follows the radius)",
    },
    "--normalization": {
        "choices": ["none", "density", "nrw"],
        "help": "form of the Laplacian (default: none)",
    },
}

LINK: Options = {
    "--link": {
        "metavar": "NAME",
        "help": "average outputs as they are (none, the default), as log-odds of one "
        "probability per column (logit), as logarithms of class probabilities "
        "(softmax) or of positive numbers (log)",
    },
    "--eps": {
        "type": HALF,
        "help": "distance kept from probabilities 0 and 1 (logit, softmax; default: "
        "machine precision)",
    },
}

RADIUS: Options = {
    "--tau": {"type": RADIUS_SIZE, "help": "people within this distance are similar"},
    "--target-degree": {
        "type": POSITIVE,
        "metavar": "D",
        "help": "choose tau so that people have D neighbours on average (default: 20)",
    },
    "--coverage": {
        "type": SHARE,
        "metavar": "S",
        "help": "choose tau so that a share S of people have a neighbour (on the scale "
        "of effects, default: 0.95)",
    },
}

NEAREST: Options = {
    "--k": {
        "type": COUNT,
        "help": "similar are the K nearest (within --tau, if that is given)",
    },
}

DECISION: Options = {
    "--labels": {
        "metavar": "COL",
        "help": "column with the true class: 0 and 1, class numbers, or names of "
        "output columns",
    },
    "--positive": {
        "metavar": "VALUE",
        "help": "value of --labels that means class 1, all others mean class 0",
    },
    "--threshold": {
        "type": FINITE,
        "metavar": "T",
        "help": "a single output above it means class 1",
    },
}

REPORT: Options = {
    "--tolerance": {
        "type": tolerance,
        "metavar": "S",
        "help": "share of pairs of similar people that may be treated unlike, "
        "against which the verdict is given; or by name, as in "
        "pairs=0.05,gap_by_sex=0.1",
    },
    "--difference": {
        "type": NON_NEGATIVE,
        "metavar": "D",
        "help": "similar people are treated unlike if their outputs are more "
        "than D apart (default: if their decisions differ; without --threshold, half "
        "the standard deviation of the outputs)",
    },
    "--nearest": {
        "type": COUNT_OR_NONE,
        "metavar": "K",
        "help": "nearest others to be consistent with; 0 leaves out this "
        "search over all pairs (default: 5)",
    },
    "--worst": {
        "type": COUNT_OR_NONE,
        "metavar": "K",
        "dest": "num_worst",
        "help": "how many people and pairs to list (default: 10)",
    },
}

COMMON: Options = {
    "--json": {
        "action": "store_true",
        "help": "print one JSON object instead of text",
    },
    "--quiet": {"action": "store_true", "help": "neither notes nor progress bars"},
    "--no-progress": {"action": "store_true", "help": "no progress bars"},
    "--debug": {"action": "store_true", "help": "show the traceback of an error"},
}


def add_files(parser: argparse.ArgumentParser) -> None:
    """The one or two files that hold people."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="people: .csv or .tsv (also .csv.gz, .tsv.gz), .xlsx, .parquet, .npy "
        "(columns are numbered from 0) or .npz (arrays by name, column 3 of x is x.3); "
        "- is standard input, as .csv",
    )
    parser.add_argument(
        "outputs_file",
        metavar="OUTPUTS",
        nargs="?",
        help="the model's outputs for the same rows, if DATA does not hold them",
    )
    add(parser, "how files are written", READING)


def add_radius(parser: argparse.ArgumentParser) -> None:
    """The radius, or what decides it."""
    near = parser.add_argument_group("how near")
    group = near.add_mutually_exclusive_group()
    for flag, arguments in RADIUS.items():
        group.add_argument(flag, **arguments)
    for flag, arguments in NEAREST.items():
        near.add_argument(flag, **arguments)


def add(parser: argparse.ArgumentParser, title: str, *tables: Options) -> None:
    """Adds tables of options under a title."""
    group = parser.add_argument_group(title)
    for table in tables:
        for flag, arguments in table.items():
            group.add_argument(flag, **arguments)


def name_of(flag: str) -> str:
    """The name under which argparse keeps an option."""
    return flag[2:].replace("-", "_")


def given(args: argparse.Namespace, *tables: Iterable[str]) -> dict[str, Any]:
    """Options that were given, by flag; a metric only if it is not the default."""
    values = {flag: getattr(args, name_of(flag), None) for t in tables for flag in t}
    default = METRIC["--metric"]["default"]
    return {
        flag: value
        for flag, value in values.items()
        # Zero is a value: only what is absent or turned off was not given.
        if value is not None
        and value is not False
        and (flag, value) != ("--metric", default)
    }


def check_metric(args: argparse.Namespace) -> None:
    """Raises on options that do not go with the metric, or that it lacks."""
    for flag in given(args, METRIC):
        owners = [name for name, flags in _METRICS.items() if flag in flags]
        if owners and args.metric not in owners:
            msg = f"{flag} goes with --metric {owners[0]} (got --metric {args.metric})"
            raise UsageError(msg)
    for need in _METRICS[args.metric][:1]:
        if getattr(args, name_of(need)) is None:
            raise UsageError(f"--metric {args.metric} needs {need}")
    if args.standardize and args.scale not in (None, "standard"):
        raise UsageError(f"--standardize does not go with --scale {args.scale}")
    scaled = args.scale if args.scale not in (None, "none") else None
    flag = "--standardize" if args.standardize else f"--scale {scaled}"
    if args.metric == "mahalanobis" and (args.standardize or scaled):
        msg = f"{flag} does not go with --metric mahalanobis"
        raise UsageError(f"{msg}: scale the matrix instead")


def check_radius(args: argparse.Namespace) -> None:
    """Raises on two ways at once to say how near is near enough."""
    for flag in given(args, ("--target-degree", "--coverage")):
        if args.k is not None:
            raise UsageError(
                f"--k and {flag} do not go together. --tau may go with --k"
            )


def keywords(args: argparse.Namespace, *flags: str) -> dict[str, Any]:
    """Options that were given, as keywords of the library.

    What was not given is left to the library, whose signatures hold the defaults.
    """
    found = {name_of(flag): value for flag, value in given(args, flags).items()}
    return {name: None if v == "none" else v for name, v in found.items()}


def default_of(function: Callable[..., Any], name: str) -> Any:
    """The default that a signature of the library has."""
    return inspect.signature(function).parameters[name].default


def words_of(options: dict[str, Any]) -> str:
    """Options as they are typed in a shell."""
    return shlex.join(typed(options))


def typed(options: dict[str, Any]) -> list[str]:
    """Options as words of a command."""
    words = []
    for flag, value in options.items():
        if flag == "--equivalent":  # one at a time
            words += [word for one in value for word in (flag, one)]
            continue
        words.append(flag)
        if isinstance(value, list):
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(value)
            words.append(line.getvalue())
        elif value is not True:
            words.append(repr(value) if isinstance(value, float) else str(value))
    return words
