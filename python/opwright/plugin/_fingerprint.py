"""Fingerprints of functions, so that timings of one plugin's code do not count for other code."""

from __future__ import annotations

import contextlib
import enum
import hashlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

_SIMPLE = (type(None), bool, int, float, complex, str, bytes)


def fingerprint(function: Callable[..., Any]) -> str:
    """A hash of a function's code: its instructions, constants and names, the simple values in its
    closure, default values and module that it uses, and the functions of its module that it calls,
    in their current state. The code's place in a file does not matter."""
    text = "\n".join(_of_function(function, set()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _of_function(function: Any, seen: set[int]) -> Iterator[str]:
    function = _python_function(function)
    if not isinstance(function, FunctionType):
        yield type(function).__qualname__
        return
    if id(function) in seen:
        return
    seen.add(id(function))
    yield from _of_code(function.__code__)
    yield from map(_of_value, function.__defaults__ or ())
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f"{name}={_of_value(value)}"
    used = _used(function)
    for name in sorted(used):
        value = _python_function(used[name])
        yield f"{name}={_of_value(value)}"
        if getattr(value, "__module__", None) == function.__module__:
            yield from _of_function(value, seen)


def _used(function: FunctionType) -> dict[str, Any]:
    """The names outside of the function that it uses, with their values."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    used = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # not set yet
            used[name] = cell.cell_contents
    return used


def _python_function(value: Any) -> Any:
    """The function behind a decorated object, such as a kernel of Numba or Triton."""
    if callable(value) and not isinstance(value, (FunctionType, type)):
        for name in ("py_func", "fn", "__wrapped__"):
            inner = getattr(value, name, None)
            if isinstance(inner, FunctionType):
                return inner
    return value


def _of_code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        else:
            yield _of_value(constant)


def _of_value(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, _SIMPLE):
        return repr(value)
    kind = type(value).__qualname__
    if isinstance(value, (tuple, frozenset)) or (
        isinstance(value, (list, set)) and all(isinstance(element, _SIMPLE) for element in value)
    ):
        elements = [_of_value(element) for element in value]
        is_ordered = isinstance(value, (tuple, list))
        return f"{kind}({', '.join(elements if is_ordered else sorted(elements))})"
    return kind
