"""Folder of the data sets that cannot be part of the package."""

import os
from pathlib import Path

#: Names the folder that holds ``sentiment``, ``bios``, ``toxicity`` and so on.
VARIABLE = "PYG_GLIF_DATA"


def data_folder() -> Path | None:
    """The folder of all data sets, if the user named one; it need not exist."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None
