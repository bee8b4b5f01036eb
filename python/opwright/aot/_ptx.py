"""Reads facts from PTX text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ._code import Code, CompileError, by_symbol

_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)\s*(?:\(([^)]*)\))?")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,]*?(\[\d*\])?\s*(?:,|$)")
_SCALARS = by_symbol(
    {
        "int8": "u8",
        "int16": "u16",
        "int32": "u32",
        "int64": "u64",
        "float32": "f32",
        "float64": "f64",
        "pointer": "u64",
    }
)

Parameters = tuple[int, tuple[type, ...], int]


def target(ptx: str) -> str | None:
    """The architecture after ``.target``; None for text that is not PTX."""
    found = re.search(r"^\s*\.target\s+(\w+)", ptx, re.MULTILINE)
    return found[1] if found and re.search(r"^\s*\.version\s+\d", ptx, re.MULTILINE) else None


def entries(ptx: str) -> dict[str, list[str]]:
    """The kernels, each with the types of its parameters."""
    kernels = {}
    for name, parameters in _ENTRY.findall(re.sub(r"//[^\n]*", "", ptx)):
        kernels[name] = [t + array for t, array in _PARAMETER.findall(parameters.strip())]
    return kernels


def waits(ptx: str, name: str) -> bool:
    """Whether the kernel waits for the kernels before it, as programmatic dependent launch requires
    (PTX ISA, "griddepcontrol")."""
    text = re.sub(r"//[^\n]*", "", ptx)
    parts = re.split(r"\.entry\s+([A-Za-z_$%][\w$]*)", text)
    # For a single kernel this includes the functions that it calls.
    bodies = text if len(parts) == 3 else dict(zip(parts[1::2], parts[2::2])).get(name, "")
    return re.search(r"\bgriddepcontrol\.wait\b", bodies) is not None


def expected(parameters: Parameters) -> list[str]:
    """The types of a kernel's parameters."""
    inputs, extra, outputs = parameters
    return ["u64"] * inputs + [_SCALARS[t] for t in extra] + ["u64"] * outputs


def _agree(found: str, wanted: str) -> bool:
    kinds = {"s": "u", "u": "u", "f": "f", "b": wanted[0]}
    return found[1:] == wanted[1:] and kinds.get(found[0]) == wanted[0]


def check(maker: str, name: str, found: Sequence[str], parameters: Parameters) -> None:
    """Raises CompileError unless the found parameter types fit the expected ones."""
    wanted = expected(parameters)
    if len(found) == len(wanted) and all(map(_agree, found, wanted)):
        return
    inputs, extra, outputs = parameters
    classes = ", ".join(each.__name__ for each in extra)
    raise CompileError(
        f"{maker}: kernel '{name}' has the parameters ({', '.join(found)}), in PTX's types, but "
        f"{inputs} inputs, the extra arguments ({classes}) and {outputs} outputs are "
        f"({', '.join(wanted)})"
    )


def make(maker: str, ptx: str, name: str, parameters: Parameters | None) -> Code:
    """The code of one of the kernels in a PTX text."""
    kernels, architecture = entries(ptx), target(ptx)
    assert architecture is not None
    if name not in kernels:
        known = ", ".join(f"'{each}'" for each in kernels) or "none"
        raise CompileError(f"{maker}: the PTX has no kernel '{name}'; its kernels are: {known}")
    if parameters is not None:
        check(maker, name, kernels[name], parameters)
    return Code(
        ptx.encode(), name, architecture, parameters, kind="ptx", begins_early=waits(ptx, name)
    )
