"""What does the task effect keep as the radius grows?

The model as it is, GLIF in the metric of FACE, and the same with the task effect, on
test texts of the experiments: along the radius at one strength, and at radius, strength
and weight that validation texts chose. The other methods of ``python -m experiments``
are left out, so this takes a minute a seed.
"""

import argparse
from typing import Any

import report
from common import write

from experiments import EXPERIMENTS
from experiments.training import same_numbers

PARTS = ("Baseline", "GLIF", "GLIF + task effect")


def measure(name: str, seed: int) -> dict[str, Any]:
    """What is chosen, and what the strength of the curves gives at each radius."""
    with same_numbers():
        trial = EXPERIMENTS[name].prepare(seed, False)
        methods = trial.methods()
        records = [record for part in PARTS for record in methods[part]()]
    lam = EXPERIMENTS[name].config.curve_lam
    found = [
        {
            "method": record.method,
            "sq_tau": round(record.setting["tau"] ** 2, 6) if record.setting else None,
            "lam": record.setting.get("lam"),
            "weight": record.setting.get("weight"),
            "chosen": record.chosen,
            **record.metrics,
        }
        for record in records
        if record.chosen or record.setting["lam"] == lam
    ]
    return {"data": name, "seed": seed, "lam": lam, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="*", default=["bios", "toxicity"])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for name in options.data:
        for seed in range(options.seeds):
            rows.append(measure(name, seed))
            print(name, seed, flush=True)
            write("task_effect", rows, key=("data", "seed"))
    print(report.task_effect(rows))
    print(report.task_front(rows))


if __name__ == "__main__":
    main()
