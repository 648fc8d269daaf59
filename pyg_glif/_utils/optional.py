"""The only place that resolves optional packages."""

from importlib import import_module
from types import ModuleType


def require(package: str, feature: str, extra: str) -> ModuleType:
    """Imports ``package`` or says which extra brings it."""
    try:
        return import_module(package)
    except ImportError as error:
        msg = f"'{feature}' requires '{package}' (install 'pyg_glif[{extra}]')"
        raise ImportError(msg) from error


def find(package: str) -> ModuleType | None:
    """Imports ``package`` if it is there."""
    try:
        return import_module(package)
    except ImportError:
        return None
