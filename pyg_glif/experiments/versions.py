"""Versions of the packages that decide the numbers of an experiment."""

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("pyg_glif", "torch", "torch-geometric", "pytorch-lightning", "numpy")


def versions() -> dict[str, str]:
    """Of Python and of every package that is installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # such as the twin 'lightning' in place of it
            continue
    return found
