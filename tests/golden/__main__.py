"""Records the numbers of all cases, or of those that are named, anew.

.. code-block:: bash

    python -m tests.golden [CASE ...]
"""

import json
import sys
import time
from pathlib import Path

from tests.golden.cases import CASES

RECORDED = Path(__file__).with_name("numbers.json")


def record(names: list[str]) -> None:
    """Runs cases and writes their numbers; leaves those of other cases as they are."""
    known = json.loads(RECORDED.read_text()) if names and RECORDED.exists() else {}
    for name in names or CASES:
        start = time.perf_counter()
        known[name] = CASES[name].run()
        print(f"{name:24} {time.perf_counter() - start:6.2f} s")
    # A line for each list, so that a difference shows what has changed.
    cases = []
    for name in CASES:
        lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in known[name].items()]
        cases.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    RECORDED.write_text("{\n" + ",\n".join(cases) + "\n}\n")


if __name__ == "__main__":
    record(sys.argv[1:])
