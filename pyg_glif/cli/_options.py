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
from pathlib import Path
from typing import Any, TypeAlias

#: Option to the arguments of ``add_argument``. A name without dashes is a setting of
#: the file of ``--config`` only. As data, so that ``tune`` can write the next call.
Options: TypeAlias = dict[str, dict[str, Any]]


#: Suffixes of tables and arrays.
SUFFIXES = (
    *(".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    *(".xlsx", ".parquet", ".npy", ".npz"),
)
#: Standard input, or standard output, in place of a file.
STREAM = "-"


class UsageError(ValueError):
    """Wrong options or unusable input; the message is for the person who typed."""


@dataclass(frozen=True)
class Outcome:
    """Result of a command: as text, as plain data, or as a table.

    A table takes standard output for itself, and the text goes to standard error.
    """

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    table: bytes | None = None


def note(args: argparse.Namespace, message: str) -> None:
    """Prints a remark on standard error, unless ``--quiet`` is given."""
    if not args.quiet:
        print(f"pyg-glif: {message}", file=sys.stderr)


def progress(args: argparse.Namespace) -> bool | None:
    """Whether to show progress bars; ``None`` means on a terminal."""
    return False if args.quiet else None


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


# Types of options. Each takes a word of the command line or a value of a TOML file.


def text(value: Any) -> str:
    """A text, such as the name of a column or of a file."""
    if not isinstance(value, str):
        raise argparse.ArgumentTypeError(f"must be a text (got {value!r})")
    return value


def names(value: Any) -> list[str]:
    """A list of names; on the command line with commas, in double quotes if need be."""
    if isinstance(value, str):
        lines = csv.reader(io.StringIO(value, newline=""), skipinitialspace=True)
        try:
            (value,) = lines
        except (ValueError, csv.Error):
            value = [None]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise argparse.ArgumentTypeError("must be names with commas in between")
    return value


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

    def __call__(self, value: Any) -> Any:
        """The number, or the list of them."""
        parts = [value]
        if self.many:
            parts = value if isinstance(value, list) else str(value).split(",")
        try:
            numbers = [self.kind(str(part)) for part in parts]
        except ValueError:
            numbers = []
        if not numbers or not all(self.holds(number) for number in numbers):
            each = "numbers with commas in between, each " if self.many else ""
            msg = f"must be {each}{self.condition} (got {str(value)!r})"
            raise argparse.ArgumentTypeError(msg)
        return numbers if self.many else numbers[0]

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


def encoding(value: Any) -> str:
    """An encoding of text that Python knows, by Python's name for it."""
    try:
        codec = codecs.lookup(text(value))
    except (LookupError, ValueError) as error:
        msg = f"must be an encoding such as utf-8, cp1252 or utf-16 (got {value!r})"
        raise argparse.ArgumentTypeError(msg) from error
    if not codec._is_text_encoding:  # such as base64
        raise argparse.ArgumentTypeError(f"must be an encoding of text (got {value!r})")
    return codec.name


def equivalent(value: Any) -> dict[str, list[list[Any]]]:
    """Values that count as one, as lists of lists by column."""
    lists = list(value.values()) if isinstance(value, dict) else [None]
    groups = [group for groups in lists for group in groups or [None]]
    if not all(isinstance(group, list) and len(group) > 1 for group in groups):
        msg = 'must be like {relationship = [["Husband", "Wife"]]}'
        raise argparse.ArgumentTypeError(f"{msg} (got {value!r})")
    return dict(value)


def tolerance(value: Any) -> float | dict[str, float]:
    """A tolerance for all findings, or one by name."""
    shares = value
    if isinstance(value, str) and "=" in value:
        pairs = (part.rpartition("=") for part in value.split(","))
        shares = {name.strip(): share for name, _, share in pairs}
    try:
        if isinstance(shares, dict):
            return {name: NON_NEGATIVE(share) for name, share in shares.items()}
        return float(NON_NEGATIVE(shares))
    except argparse.ArgumentTypeError as error:
        msg = "must be non-negative, like 0.05 or pairs=0.05,gap_by_sex=0.1"
        raise argparse.ArgumentTypeError(f"{msg} (got {value!r})") from error


def suffix_of(path: str) -> str:
    """The suffix of a file in small letters, ``.csv.gz`` as one."""
    where = Path(path)
    zipped = where.suffix.lower() == ".gz"
    return "".join(where.suffixes[-2 if zipped else -1 :]).lower()


def check_table(path: str) -> None:
    """Raises on a path that no table can be read from."""
    if path == STREAM:
        return
    if suffix_of(path) not in SUFFIXES:
        msg = f"a table must end in {', '.join(SUFFIXES)}"
        raise UsageError(f"{msg}, or be {STREAM} for standard input (got '{path}')")
    if Path(path).is_dir():
        raise UsageError(f"'{path}' must be a file (got a folder)")
    if not Path(path).exists():
        raise UsageError(f"'{path}' does not exist")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, whatever its capitals."""
    by_form = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), by_form, n=1)
    return by_form[close[0]] if close else None


READING: Options = {
    "--decimal": {
        "choices": [".", ","],
        "help": "decimal sign of numbers; the other one, spaces and apostrophes then "
        "group thousands, as in 1.234,5 (default: numbers like 1234.5, without groups)",
    },
    "--encoding": {
        "type": encoding,
        "metavar": "NAME",
        "help": "encoding of .csv and .tsv, such as cp1252 (default: utf-8)",
    },
    "dates": {"choices": ["dmy", "mdy"]},
    "sheet": {},
}

_NAMES: dict[str, Any] = {"type": names, "action": "extend", "metavar": "COLS"}

COLUMNS: Options = {
    "--outputs": {
        **_NAMES,
        "help": "columns with the model's outputs (default: all of OUTPUTS, if given)",
    },
    "--features": {
        **_NAMES,
        "help": "columns that say who is similar (default: all that have no other "
        "use); several with commas, 'emb_*' for all that start with emb_",
    },
    "--sensitive": {
        **_NAMES,
        "help": "columns that must not say who is similar, such as sex; audits "
        "report the gap between their groups, '--metric logistic' ignores what "
        "predicts them",
    },
    "--ignore": {**_NAMES, "help": "columns that are not features"},
    "--id": {**_NAMES, "help": "columns carried through to the output, not features"},
    "--scale": {
        "choices": ["effect", "conditional", "standard", "combined", "none"],
        "help": "what a difference in a feature counts. effect: by how much it moves "
        "the outputs, found by trees that are fitted to them (default with "
        "--sensitive, and wherever features are text or have gaps); conditional: "
        "the same for features that go together; standard: in standard deviations; "
        "combined: effect and standard side by side; "
        "none: numbers as they are (default otherwise)",
    },
    "variants": {},
    "equivalent": {"type": equivalent},
    "categories": {"type": names},
}

# Metrics, each with its options: the first must be given.
_METRICS: dict[str, tuple[str, ...]] = {
    "euclidean": (),
    "mahalanobis": ("matrix",),
    "subspace": ("directions",),
    "svd": ("side_rows", "num_components"),
    "face": ("variants", "num_factors"),
    "logistic": ("--sensitive", "ridge"),
}

METRIC: Options = {
    "--metric": {
        "choices": list(_METRICS),
        "default": "euclidean",
        "help": "who is similar (default: euclidean). logistic: ignore what predicts "
        "--sensitive; the others need settings in --config. mahalanobis: matrix; "
        "subspace: ignore directions; svd: ignore the main directions of side_rows; "
        "face: ignore how variants of one person differ",
    },
    "matrix": {},
    "directions": {},
    "side_rows": {},
    "num_components": {"type": COUNT},
    "num_factors": {"type": COUNT},
    "ridge": {"type": POSITIVE},
}

WEIGHTS: Options = {
    "theta": {"type": NON_NEGATIVE},
    "normalization": {"choices": ["none", "density", "nrw"]},
}

LINK: Options = {
    "--link": {
        "metavar": "NAME",
        "help": "average outputs as they are (none, the default), as log-odds of one "
        "probability per column (logit), as logarithms of class probabilities "
        "(softmax) or of positive numbers (log)",
    },
    "eps": {"type": HALF},
}

RADIUS: Options = {
    "--tau": {"type": RADIUS_SIZE, "help": "people within this distance are similar"},
    "--target-degree": {
        "type": POSITIVE,
        "metavar": "D",
        "help": "choose tau so that people have D neighbors on average (default: 20)",
    },
    "--coverage": {
        "type": SHARE,
        "metavar": "S",
        "help": "choose tau so that a share S of people have a neighbor (on the scale "
        "of effects, default: 0.95)",
    },
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
    "--threshold": {
        "type": FINITE,
        "metavar": "T",
        "help": "a single output above it means class 1",
    },
    "positive": {},
}

REPORT: Options = {
    "--tolerance": {
        "type": tolerance,
        "metavar": "S",
        "help": "share of pairs of similar people that may be treated unlike, "
        "against which the verdict is given; or by name, as in "
        "pairs=0.05,gap_by_sex=0.1",
    },
    "difference": {"type": NON_NEGATIVE},
    "num_nearest": {"type": COUNT_OR_NONE},
    "num_worst": {"type": COUNT_OR_NONE},
}

COMMON: Options = {
    "--config": {
        "metavar": "FILE",
        "help": "TOML file with options by their names, as in lam = 0.3; those of the "
        "command line win",
    },
    "--json": {
        "action": "store_true",
        "help": "print one JSON object instead of text",
    },
    "--quiet": {"action": "store_true", "help": "neither notes nor progress bars"},
    "--debug": {"action": "store_true", "help": "show the traceback of an error"},
}


def add_files(parser: argparse.ArgumentParser) -> None:
    """Adds the one or two files of samples."""
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


def add(parser: argparse.ArgumentParser, title: str, *tables: Options) -> None:
    """Adds tables of options under a title, and settings of ``--config``."""
    group = parser.add_argument_group(title)
    settings = settings_of(parser)
    for table in tables:
        for option, arguments in table.items():
            if option.startswith("--"):
                group.add_argument(option, **arguments)
            else:
                settings[option] = arguments


def settings_of(parser: argparse.ArgumentParser) -> Options:
    """The settings of a command that only the file of ``--config`` has."""
    settings: Options = vars(parser).setdefault("settings", {})
    return settings


def name_of(option: str) -> str:
    """The name under which the value of an option is kept."""
    return option.removeprefix("--").replace("-", "_")


def called(option: str) -> str:
    """An option as messages call it."""
    return option if option.startswith("--") else f"'{option}' of --config"


def given(args: argparse.Namespace, *tables: Iterable[str]) -> dict[str, Any]:
    """Options that were given, by name; a metric only if it is not the default."""
    options = [option for table in tables for option in table]
    values = {option: getattr(args, name_of(option), None) for option in options}
    default = METRIC["--metric"]["default"]
    return {
        option: value
        for option, value in values.items()
        # Zero is a value: only what is absent or turned off was not given.
        if value is not None
        and value is not False
        and (option, value) != ("--metric", default)
    }


def check_similarity(args: argparse.Namespace) -> None:
    """Raises on options about similarity that do not go together."""
    for option in given(args, METRIC):
        owners = [name for name, options in _METRICS.items() if option in options]
        if owners and args.metric not in owners:
            msg = f"{called(option)} goes with --metric {owners[0]}"
            raise UsageError(f"{msg} (got --metric {args.metric})")
    for need in _METRICS[args.metric][:1]:
        if getattr(args, name_of(need)) is None:
            raise UsageError(f"--metric {args.metric} needs {called(need)}")
    if args.metric == "mahalanobis" and args.scale not in (None, "none"):
        msg = f"--scale {args.scale} does not go with --metric mahalanobis"
        raise UsageError(f"{msg}: scale the matrix instead")
    ways = list(given(args, RADIUS))
    if len(ways) > 1 and ways != ["--tau", "--k"]:
        msg = f"{ways[0]} and {ways[1]} do not go together"
        raise UsageError(f"{msg}. --tau may go with --k")


def keywords(args: argparse.Namespace, *options: str) -> dict[str, Any]:
    """Options that were given, as keywords of the library.

    What was not given is left to the library, whose signatures hold the defaults.
    """
    values = {name_of(option): value for option, value in given(args, options).items()}
    return {name: None if v == "none" else v for name, v in values.items()}


def default_of(function: Callable[..., Any], name: str) -> Any:
    """The default that a signature of the library has."""
    return inspect.signature(function).parameters[name].default


def words_of(options: dict[str, Any]) -> list[str]:
    """Options as words of a command."""
    words = []
    for option, value in options.items():
        words.append(option)
        if isinstance(value, list):
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(value)
            words.append(line.getvalue())
        elif value is not True:
            words.append(repr(value) if isinstance(value, float) else str(value))
    return words


def ignoring(columns: Sequence[str]) -> str:
    """The words that leave out columns, as they are typed in a shell."""
    return shlex.join(words_of({"--ignore": list(columns)}))
