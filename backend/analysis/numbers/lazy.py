"""A property that is computed when it is first used, and then kept.

Until Python 3.12, ``functools.cached_property`` takes a lock, which costs more than many of the values kept here. A
verdict computes 170 of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - used like ``property``
    """Keep the value that the method returns in the attribute of the same name.

    Two threads that read it at the same time may both compute it, so the method must have no side effects.
    """

    def __init__(self, compute: Callable[..., T]) -> None:
        """Wrap the method ``compute``."""
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object, owner: type) -> lazy[T] | T:
        """Compute the value. Later reads find it in the instance's dictionary, and do not get here."""
        if instance is None:
            return self
        value = self._compute(instance)
        instance.__dict__[self._name] = value
        return value
