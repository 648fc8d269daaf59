"""``python -m tests.torture``: runs the campaigns and says what they found."""

import argparse
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from .campaigns import CAMPAIGNS, work
from .harness import Finding, Tally, run_case

_SHOWN = 2  # recipes per kind of finding


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if anything was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=3.0, help="limit, about")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", nargs="+", choices=list(CAMPAIGNS), help="campaigns")
    parser.add_argument("--case", metavar="NAME:NUMBER", help="repeat one case")
    args = parser.parse_args(words)
    started = time.monotonic()
    if args.case:
        name, number = args.case.split(":")
        tallies = {name: run_case(CAMPAIGNS[name], args.seed, int(number))}
    else:
        names = args.only or list(CAMPAIGNS)
        tallies = _all(names, args.seed, 60.0 * args.minutes, args.jobs)
    _report(tallies)
    num = sum(len(tally.findings) for tally in tallies.values())
    spent = time.monotonic() - started
    print(f"\nseed {args.seed}, {spent:.0f} s: {num or 'no'} finding(s)")
    return 1 if num else 0


def _all(names: list[str], seed: int, seconds: float, jobs: int) -> dict[str, Tally]:
    """All campaigns, each for its share of the time of all processes."""
    jobs = min(jobs, len(names))
    whole = sum(CAMPAIGNS[name].share for name in names)
    unit = seconds * jobs / whole
    shares = {name: min(seconds, unit * CAMPAIGNS[name].share) for name in names}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context) as pool:
        futures = {name: pool.submit(work, name, seed, shares[name]) for name in names}
        out = {}
        for name, future in futures.items():
            try:
                out[name] = future.result()
            except BrokenProcessPool as error:
                died = Finding(name, seed, -1, "the process died", str(error))
                out[name] = Tally(findings=[died])
    return out


def _report(tallies: dict[str, Tally]) -> None:
    """What was tried, what was found, and a summary."""
    for name, tally in tallies.items():
        tried = ", ".join(f"{num:,} {what}" for what, num in tally.counts.items())
        print(f"{name}: {tried}")
        for what, value in sorted(tally.worst.items()):
            print(f"  worst {what}: {value:.2g}")
        kinds: dict[str, list[Finding]] = defaultdict(list)
        for finding in tally.findings:
            kinds[finding.kind].append(finding)
        for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
            print(f"  FOUND {kind} ({len(found)} times)")
            for finding in found[:_SHOWN]:
                print(f"    {finding.recipe}\n      {finding.detail}")
    print(f"\n{'campaign':<12}{'cases':>8}{'findings':>10}{'kinds':>8}")
    for name, tally in tallies.items():
        num, kinds_found = len(tally.findings), {f.kind for f in tally.findings}
        print(f"{name:<12}{tally.counts['cases']:>8}{num:>10}{len(kinds_found):>8}")


if __name__ == "__main__":
    sys.exit(main())
