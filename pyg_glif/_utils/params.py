"""Parameters in the way of scikit-learn, without importing it."""

import inspect
from typing import Any, TypeVar

from pyg_glif._utils.validation import check_choice

_Self = TypeVar("_Self", bound="ParamsMixin")


class ParamsMixin:
    """Base of classes whose constructor stores its keywords as they are."""

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name] and value != defaults[name]
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; ``deep`` is accepted for scikit-learn, without effect."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self: _Self, **params: Any) -> _Self:
        """Changes parameters, for the next ``fit``; all of them or, on error, none."""
        for name in params:
            check_choice("params", name, tuple(self._defaults()))
        before = self.get_params()
        self.__dict__.update(params)
        try:
            self._check_params()
        except (TypeError, ValueError):
            self.__dict__.update(before)
            raise
        return self

    def _check_params(self) -> None:
        """Raises on parameters that no data can make right."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Parameters and their defaults, read off the constructor."""
        parameters = inspect.signature(cls).parameters
        return {name: parameter.default for name, parameter in parameters.items()}
