"""Errors and warnings that have a meaning of their own."""


class ConvergenceError(RuntimeError):
    """A solver gave up; the message says by how much and what to try."""


class ConvergenceWarning(UserWarning):
    """A solver gave up, and ``throw`` is false."""


class NotFittedError(RuntimeError):
    """A method was called that needs ``fit`` first."""


class MemoryBudgetError(MemoryError):
    """The requested graph would not fit; the message says what would."""


class DamagedFileError(ValueError):
    """A file is not what was written, or was written by something else."""


class SimilarityWarning(UserWarning):
    """The similarity graph is probably misconfigured; the message says why."""


class ClockWarning(UserWarning):
    """Times went back; samples count in the order in which they came."""
