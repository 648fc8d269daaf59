"""Warnings that point at the caller's own line."""

import sys
import warnings

# Packages whose frames lie between a caller and what warns.
_BETWEEN = {"pyg_glif", "torch", "sklearn", "contextlib", "functools"}


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the nearest line outside of this package and of decorators."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(variables: dict[str, object]) -> str:
    """The package that a frame belongs to."""
    return str(variables.get("__name__", "")).partition(".")[0]
