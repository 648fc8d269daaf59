"""The only place that resolves optional packages."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def require(package: str, feature: str, extra: str) -> ModuleType:
    """Imports ``package`` or says which extra brings it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(_missing(package, feature, extra)) from error


def folder_of(package: str, feature: str, extra: str) -> Path:
    """The folder of ``package``, none of whose code is run."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(_missing(package, feature, extra))
    return Path(spec.submodule_search_locations[0])


def _missing(package: str, feature: str, extra: str) -> str:
    """The message for a package that is not there."""
    return f"'{feature}' requires '{package}' (install 'pyg_glif[{extra}]')"


def find(package: str) -> ModuleType | None:
    """Imports ``package`` if it is there."""
    try:
        return import_module(package)
    except ImportError:
        return None
