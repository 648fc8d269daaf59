"""Folder of the data sets that cannot be part of the package."""

import os
from pathlib import Path

#: Names the folder that holds ``sentiment``, ``bios``, ``toxicity`` and so on.
VARIABLE = "PYG_GLIF_DATA"


def data_folder() -> Path | None:
    """The folder of all data sets, if the user named one; it need not exist."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


def find_data(*parts: str) -> Path:
    """A file or folder of a data set; raises and names the folder if it is missing."""
    folder = data_folder()
    if folder is not None and folder.joinpath(*parts).exists():
        return folder.joinpath(*parts)
    where = f"'{VARIABLE}' is not set" if folder is None else f"not in '{folder}'"
    msg = f"'{'/'.join(parts)}' is missing ({where})"
    raise FileNotFoundError(f"{msg}. Set '{VARIABLE}' to the folder that holds it")
