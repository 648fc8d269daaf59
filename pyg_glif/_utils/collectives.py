"""Sums over all people, for code that may hold only some of them."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

_T = TypeVar("_T")


class Collectives:
    """Everybody is here: what a process holds is all there is.

    Where people are spread over processes that run the same code, a subclass asks the
    others. All of them must then call the same methods in the same order.
    """

    def sum(self, x: Tensor) -> Tensor:
        """Sum of what every process holds, the same for all of them."""
        return x

    def max(self, x: Tensor) -> Tensor:
        """Largest of what every process holds, entry by entry."""
        return x

    def seen(self, x: Tensor) -> Tensor:  # [N, ...] -> [N + H, ...]
        """Rows of the people here, then those of others whom they have edges to."""
        return x

    def norm(self, x: Tensor) -> Tensor:  # [N, C] -> [C]
        """Norm of each column over all people."""
        out: Tensor = torch.linalg.vector_norm(x, dim=0)
        return out

    def folded(self, x: Tensor) -> Tensor:  # [N, C] -> [M, C]
        """Columns with the same norms as those of all people."""
        return x

    def reached(self, num_iter: int, iterate: Callable[[], Tensor]) -> None:
        """Hears how far a solver is, and may ask for the point it has reached."""


class once(Generic[_T]):  # noqa: N801  (used as a decorator)
    """A property that is computed when it is first asked for.

    Unlike :class:`functools.cached_property` before Python 3.12 it holds no lock while
    it is computed: processes that run in threads of one would wait for each other.
    """

    def __init__(self, function: Callable[[Any], _T]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "once[_T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> "once[_T] | _T":
        if instance is None:
            return self
        found = self._function(instance)
        instance.__dict__[self._name] = found
        return found
