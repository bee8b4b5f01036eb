"""Methods of a plugin interface that call a C++ plugin's handle."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def forwards(interface: type, *names: str) -> Callable[[_Class], _Class]:
    """A decorator of a class that has a plugin's handle as ``_handle``.

    :param interface: the class defines those of its methods that it does not define itself. Each calls the handle's
        method of the same name, with the same arguments.
    :param names: the methods, where these are not all.
    """

    def define(cls: _Class) -> _Class:
        for name, method in vars(interface).items():
            if inspect.isfunction(method) and name not in vars(cls) and (name in names or not names):
                setattr(cls, name, _forward(method))
        return cls

    return define


def _forward(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **keywords: Any) -> Any:
        bound = signature.bind(self, *args, **keywords)
        bound.apply_defaults()
        return getattr(self._handle, method.__name__)(*bound.args[1:])

    return call
