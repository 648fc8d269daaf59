"""Sums over all nodes, for code that may hold only some of them."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

_T = TypeVar("_T")


class Collectives:
    """Collective operations of a single process that holds all nodes.

    Where nodes are spread over processes that run the same code, a subclass
    communicates. All processes must call the same methods in the same order.
    """

    def sum(self, x: Tensor) -> Tensor:
        """Sum over all processes."""
        return x

    def max(self, x: Tensor) -> Tensor:
        """Maximum over all processes, entry by entry."""
        return x

    def norm(self, x: Tensor) -> Tensor:  # [N, C] -> [C]
        """Norm of each column over all nodes."""
        out: Tensor = torch.linalg.vector_norm(x, dim=0)
        return out

    def with_halo(self, x: Tensor) -> Tensor:  # [N, ...] -> [N + H, ...]
        """Rows of the local nodes, then those of their neighbors in other processes."""
        return x

    def report(self, num_iter: int, iterate: Callable[[], Tensor]) -> None:
        """Hook of solvers for progress; ``iterate`` returns the current solution."""


class once(Generic[_T]):  # noqa: N801  (used as a decorator)
    """A property that is computed on first access.

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
        value = self._function(instance)
        instance.__dict__[self._name] = value
        return value
