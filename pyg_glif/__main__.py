"""``python -m pyg_glif``: the command line."""

import sys

from pyg_glif.cli import main

if __name__ == "__main__":
    sys.exit(main())
