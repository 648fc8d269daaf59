"""Options that several commands share, as data, so that they can be written back."""

import csv
from typing import Any, TypeAlias

#: Flag to the arguments of ``add_argument``.
Options: TypeAlias = dict[str, dict[str, Any]]


def names(text: str) -> list[str]:
    """Comma-separated names; one that holds a comma goes in double quotes."""
    (row,) = csv.reader([text], skipinitialspace=True)
    return row


def numbers(text: str) -> list[float]:
    """Comma-separated numbers."""
    return [float(part) for part in text.split(",")]


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
    "--ignore": {**_NAMES, "help": "columns that are not features"},
    "--id": {**_NAMES, "help": "columns carried through to the output, not features"},
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
    "--standardize": {
        "action": "store_true",
        "help": "divide every feature by its standard deviation, so that a column "
        "in euros does not drown one in years",
    },
}

METRIC: Options = {
    "--metric": {
        "choices": ["euclidean", "mahalanobis", "subspace", "svd", "face", "logistic"],
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
        "type": int,
        "metavar": "K",
        "help": "directions to ignore (svd; default: 50)",
    },
    "--num-factors": {
        "type": int,
        "metavar": "K",
        "help": "directions to ignore (face; default: 25)",
    },
    "--ridge": {
        "type": float,
        "metavar": "A",
        "help": "penalty of the regressions (logistic; default: 1)",
    },
}

WEIGHTS: Options = {
    "--theta": {
        "type": float,
        "help": "weights are exp(-theta * distance^2) (default: 1e-4)",
    },
    "--normalization": {
        "choices": ["none", "density", "nrw"],
        "help": "form of the Laplacian (default: none)",
    },
}

LINK: Options = {
    "--link": {
        "choices": ["none", "logit", "softmax", "log"],
        "help": "average outputs as they are (none, the default), as log-odds of one "
        "probability per column (logit), as logarithms of class probabilities "
        "(softmax) or of positive numbers (log)",
    },
    "--eps": {
        "type": float,
        "help": "distance kept from probabilities 0 and 1 (logit, softmax; default: "
        "machine precision)",
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
        "type": float,
        "metavar": "T",
        "help": "a single output above it means class 1",
    },
}

REPORT: Options = {
    "--nearest": {
        "type": int,
        "metavar": "K",
        "help": "audit: nearest others to be consistent with; 0 leaves out this "
        "search over all pairs (default: 5)",
    },
    "--worst": {
        "type": int,
        "metavar": "K",
        "default": 10,
        "help": "audit: how many people and pairs to list (default: 10)",
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
