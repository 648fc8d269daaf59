"""Registry of distances, links and solvers by name, for files and settings.

A saved file holds no code: it names a class and has plain data for it. The class must
have been registered in the process that reads the file, as all of this package are.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, TypeVar

__all__ = ["Registered", "build", "describe", "register", "registered"]

# Family to name to class. Filled by 'register' when modules are loaded.
_KINDS: dict[str, dict[str, type["Registered"]]] = {}

_K = TypeVar("_K", bound="type[Registered]")


class Registered:
    """Base of families of objects that files can describe.

    A frozen dataclass whose fields are plain data, or other kinds, needs nothing more
    than :func:`register`. Others say in :meth:`to_config` which keywords their
    constructor wants.
    """

    #: Name of the family, such as ``"link"``.
    family: ClassVar[str] = ""

    def to_config(self) -> dict[str, Any]:
        """Plain data from which :meth:`from_config` builds an equal object."""
        if not is_dataclass(self):
            msg = f"'{type(self).__name__}' must be a dataclass or override 'to_config'"
            raise TypeError(f"{msg} to be saved")
        return {
            f.name: _plain(f"{type(self).__name__}.{f.name}", getattr(self, f.name))
            for f in fields(self)
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """The object that :meth:`to_config` described."""
        return cls(**{name: _built(value) for name, value in config.items()})


def register(kind: _K) -> _K:
    """Makes a class known by its name, so that saved files can name it.

    Example:
        >>> from dataclasses import dataclass
        >>> from pyg_glif.links import Link
        >>> @register
        ... @dataclass(frozen=True)
        ... class Shifted(Link):
        ...     by: float = 1.0
        ...     def to_dual(self, y_hat):
        ...         return y_hat + self.by
        ...     def from_dual(self, eta):
        ...         return eta - self.by
        >>> describe(Shifted(2.0))
        {'family': 'link', 'kind': 'Shifted', 'config': {'by': 2.0}}
        >>> build("link", describe(Shifted(2.0)))
        Shifted(by=2.0)
    """
    if not (isinstance(kind, type) and issubclass(kind, Registered) and kind.family):
        msg = "'kind' must be a class of distances, links or solvers"
        raise TypeError(f"{msg} (got {kind!r})")
    known = _KINDS.setdefault(kind.family, {})
    other = known.get(kind.__name__, kind)
    # The same definition may be run again, in a notebook for instance.
    if _place(other) != _place(kind):
        msg = f"'{kind.__name__}' must be the name of one {kind.family} only"
        raise ValueError(f"{msg} (got {_place(kind)} after {_place(other)})")
    known[kind.__name__] = kind
    return kind


def registered(family: str) -> dict[str, type[Registered]]:
    """Classes of a family by name.

    Example:
        >>> import pyg_glif.links
        >>> registered("link")["Logit"]
        <class 'pyg_glif.links.Logit'>
    """
    return dict(_KINDS.get(family, {}))


def describe(value: Registered) -> dict[str, Any]:
    """An object as the name of its class and plain data."""
    name = type(value).__name__
    if _KINDS.get(value.family, {}).get(name) is not type(value):
        msg = f"'{value.family}' must be of a registered class to be saved (got {name})"
        raise TypeError(f"{msg}. Decorate the class by 'pyg_glif.registry.register'")
    return {"family": value.family, "kind": name, "config": value.to_config()}


def build(family: str, record: Mapping[str, Any], **state: Any) -> Any:
    """The object that :func:`describe` described; ``state`` goes to ``from_config``."""
    kind = _KINDS.get(family, {}).get(record["kind"])
    if kind is None:
        known = ", ".join(sorted(registered(family)))
        msg = f"'{family}' must be of a registered class, of {known}"
        raise LookupError(f"{msg} (got {record['kind']!r})")
    return kind.from_config(record["config"], **state)


def _plain(name: str, value: Any) -> Any:
    """A plain value as it is, an object as its description; raises on others."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Registered):
        return describe(value)
    msg = f"'{name}' must be plain data to be saved (got {type(value).__name__})"
    raise TypeError(msg)


def _built(value: Any) -> Any:
    """The object that a description stands for; any other value as it is."""
    return build(value["family"], value) if isinstance(value, dict) else value


def _place(kind: type) -> str:
    """Module and qualified name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"
