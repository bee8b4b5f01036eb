"""The table of functions that write layers for PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Converter = Callable[..., Any]
CONVERTERS: dict[Any, Converter] = {}
"""Converters by the operator's overload. A converter takes the Writer and the operator's arguments,
with the network's tensors. It returns a tensor or a tuple of tensors."""
FOREIGN: dict[str, Converter] = {}
"""Converters of operators that other libraries define, such as
"transformers::grouped_mm_fallback"."""


def converter(
    *names: str, table: dict[Any, Converter] = CONVERTERS
) -> Callable[[Converter], Converter]:
    """Registers a converter for operators of ATen, such as "conv2d" or "add.Tensor", or of other
    libraries, in a table."""

    def decorate(function: Converter) -> Converter:
        for name in names:
            if "::" in name:
                FOREIGN[name] = function
                continue
            packet_name, _, overload = name.partition(".")
            packet = getattr(torch.ops.aten, packet_name, None)
            found = getattr(packet, overload or "default", None)
            if found is not None:  # versions of PyTorch differ
                table[found] = function
        return function

    return decorate
