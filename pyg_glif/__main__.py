"""``python -m pyg_glif`` and the script ``pyg-glif``: the command line."""

import contextlib
import os
import sys


def main() -> int:
    """Runs the command line; Ctrl-C while it is loaded ends it as it does later."""
    try:
        from pyg_glif.cli import main as run

        code = run()
    except KeyboardInterrupt:
        print("pyg-glif: error: interrupted", file=sys.stderr)
        code = 130
    if code == 130:
        # Whatever was interrupted while it was loaded cannot be trusted to tidy up.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError):  # closed, or full
                stream.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
