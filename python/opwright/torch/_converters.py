"""Which function writes the layers of which operator of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Converter = Callable[..., Any]
CONVERTERS: dict[Any, Converter] = {}
"""By the operator's overload. A converter is called with the Writer and the operator's arguments,
where tensors are those of the network; it returns a tensor, or a tuple of them."""
FOREIGN: dict[str, Converter] = {}
"""The same of operators that other libraries define, as "transformers::grouped_mm_fallback"."""


def converter(
    *names: str, table: dict[Any, Converter] = CONVERTERS
) -> Callable[[Converter], Converter]:
    """Registers a converter for operators of ATen, as "conv2d" or "add.Tensor", in a table, and of
    other libraries."""

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
