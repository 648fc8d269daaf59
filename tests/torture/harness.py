"""Cases that can be repeated by number, and what they found."""

import signal
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from pyg_glif.errors import SimilarityWarning

T = TypeVar("T")

# What torch and PyG say about themselves.
_OTHERS_WARNINGS = (
    "Sparse CSR tensor support is in beta",
    "`torch.jit.*` is (deprecated|not supported)",
)
# A case that takes longer hangs; the longest take about five seconds.
_SECONDS_PER_CASE = 120


class Finding(NamedTuple):
    """Something that should not be."""

    campaign: str
    seed: int
    case: int
    kind: str  # findings of one kind are listed once, with their number
    detail: str

    @property
    def recipe(self) -> str:
        """The command that repeats the case."""
        return f"make torture SEED={self.seed} CASE={self.campaign}:{self.case}"


@dataclass
class Tally:
    """What one or several cases tried and found."""

    counts: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Takes in another tally."""
        self.counts.update(other.counts)
        self.findings.extend(other.findings)
        for name, value in other.worst.items():
            self.worst[name] = max(value, self.worst.get(name, 0.0))


class Case:
    """One case: its source of randomness, and where it reports."""

    def __init__(self, campaign: str, seed: int, number: int) -> None:
        self.campaign, self.seed, self.number = campaign, seed, number
        self.rng = np.random.default_rng([seed, zlib.crc32(campaign.encode()), number])
        self.tally = Tally()

    def pick(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return bool(self.rng.random() < probability)

    def generator(self) -> torch.Generator:
        """A torch generator that the case's seed determines."""
        return torch.Generator().manual_seed(int(self.rng.integers(2**31)))

    def count(self, what: str, num: int = 1) -> None:
        """Counts something that was tried."""
        self.tally.counts[what] += int(num)

    def worst(self, what: str, value: float) -> None:
        """Keeps the largest value of something."""
        self.tally.worst[what] = max(float(value), self.tally.worst.get(what, 0.0))

    def found(self, kind: str, detail: str) -> None:
        """Reports something that should not be."""
        one_line = " ".join(detail.split())
        where = (self.campaign, self.seed, self.number)
        self.tally.findings.append(Finding(*where, kind, one_line))

    def check(self, ok: Any, kind: str, detail: str = "") -> bool:
        """Reports unless all is well."""
        if not ok:
            self.found(kind, detail)
        return bool(ok)

    def refused(self, error: BaseException, doing: str) -> None:
        """Reports an exception where there should have been a result."""
        place = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if "pyg_glif" in frame.filename:
                place = f"{frame.filename.split('pyg_glif/')[-1]}:{frame.lineno}"
        kind = f"{doing}: {type(error).__name__} at {place.split(':')[0]}"
        self.found(kind, f"{place}: {str(error)[:200]}")


#: What a campaign does with a case.
Run = Callable[[Case], None]


class Campaign(NamedTuple):
    """A kind of cases."""

    name: str
    run: Run
    num_in_tests: int  # cases that 'make test' runs
    share: float  # of the time that 'make torture' takes, relative to the others


def run_case(campaign: Campaign, seed: int, number: int) -> Tally:
    """Runs one case; whatever escapes from it is a finding, warnings included."""
    case = Case(campaign.name, seed, number)
    case.count("cases")
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("error")
            for message in _OTHERS_WARNINGS:
                warnings.filterwarnings("ignore", message)
            # Made-up people may well be similar to everybody or to nobody.
            warnings.simplefilter("ignore", SimilarityWarning)
            campaign.run(case)
    except Exception as error:
        case.refused(error, "case")
    return case.tally


def run_for(campaign: Campaign, seed: int, seconds: float) -> Tally:
    """Runs cases from the first on until the time is over."""
    tally, number, end = Tally(), 0, time.monotonic() + seconds
    while number == 0 or time.monotonic() < end:
        tally.add(run_case(campaign, seed, number))
        number += 1
    return tally


@contextmanager
def _time_limit() -> Iterator[None]:
    """Turns a case that hangs into a finding."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the case took more than {_SECONDS_PER_CASE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS_PER_CASE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Another default precision, for a while."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
