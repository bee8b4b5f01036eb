"""Shared code of the makers of kernels for GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from .._core._plugin import build_architecture
from ._code import CompileError, cached


def architecture() -> str:
    """The architecture of the GPU that the engine is being built for, such as ``"sm_90"``: the
    makers' default.

    :raises CompileError: outside of a build for a GPU.
    """
    return chosen_architecture("aot.architecture", None)


def chosen_architecture(maker: str, arch: str | None) -> str:
    """The requested architecture, or that of the GPU that an engine is being built for: "sm_90" for
    a cubin, "compute_90" for PTX."""
    if arch is None:
        device = build_architecture()
        if device.startswith("sm_"):
            return device
        reason = f"the engine is built for {device}" if device else "no engine is being built"
        raise CompileError(
            f"{maker}: which GPU is the kernel for? {reason}; name one: arch='sm_90' for a cubin, "
            "arch='compute_90' for PTX"
        )
    if not isinstance(arch, str) or not re.fullmatch(r"(sm|compute)_[1-9]\d+[af]?", arch):
        raise CompileError(
            f"{maker}: arch={arch!r} is no architecture; expected one like 'sm_90' for a cubin, or "
            "'compute_90' for PTX"
        )
    return arch


def kind(arch: str) -> str:
    return "ptx" if arch.startswith("compute_") else "cubin"


def cached_with_facts(
    parts: Sequence[str | bytes], compile: Callable[[], tuple[dict[str, Any], bytes]]
) -> tuple[dict[str, Any], bytes]:
    """As `cached`, for code with facts from the compiler."""

    def packed() -> bytes:
        facts, code = compile()
        return json.dumps(facts).encode() + b"\n" + code

    facts, _, code = cached(parts, packed).partition(b"\n")
    return json.loads(facts), code
