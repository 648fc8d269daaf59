"""Where the data sets are that cannot be part of the package."""

import os
from pathlib import Path

#: Names the folder that holds ``sentiment``, ``bios``, ``toxicity`` and so on.
VARIABLE = "PYG_GLIF_DATA"


def data_folder() -> Path:
    """The folder of all data sets, which need not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    beside_checkout = Path(__file__).resolve().parents[2] / "shared" / "data"
    if beside_checkout.is_dir():
        return beside_checkout
    return Path("..", "shared", "data")


def find_data(*parts: str) -> Path:
    """A file or folder of a data set, or an error that says where it was looked for."""
    path = data_folder().joinpath(*parts)
    if not path.exists():
        msg = (
            f"'{'/'.join(parts)}' is not in '{data_folder()}'. Set '{VARIABLE}' to the "
            "folder that holds it"
        )
        raise FileNotFoundError(msg)
    return path
