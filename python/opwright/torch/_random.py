"""Random numbers of the engine. Each layer has its own seed and draws the same numbers in each
call."""

from __future__ import annotations

from typing import Any

import torch

from .._core import DataType, ElementWiseOperation, FillOperation, ITensor
from ._converters import CONVERTERS, Converter, converter
from ._writer import Unsupported, Writer, all_known, known

RANDOM: dict[Any, Converter] = {}
"""The converters of operators that use PyTorch's generator, by overload."""


def _drawn(w: Writer, kind: FillOperation, alpha: float, beta: float) -> ITensor:
    """FP32 numbers in the current operator's shape: uniform between alpha and beta, or normal with
    that mean and deviation."""
    shape = list(w.meta.shape)
    fixed = all_known(shape)
    layer = w.operator(
        "Fill",
        [None if fixed else w.extents(shape)],
        operation=kind.value,
        shape=[known(extent) or 0 for extent in shape] if fixed else [],
        alpha=alpha,
        beta=beta,
        seed=w.network.num_layers + 1,
    )
    return layer.get_output(0)


@converter("rand", "rand_like", table=RANDOM)
def _rand(w: Writer, *_args: Any, **_options: Any) -> ITensor:
    return w.cast(_drawn(w, FillOperation.RANDOM_UNIFORM, 0, 1), w.dtype)


@converter("randn", "randn_like", table=RANDOM)
def _randn(w: Writer, *_args: Any, **_options: Any) -> ITensor:
    return w.cast(_drawn(w, FillOperation.RANDOM_NORMAL, 0, 1), w.dtype)


@converter("normal_functional", table=RANDOM)
def _normal(w: Writer, _like: Any, mean: float = 0, std: float = 1, **_options: Any) -> ITensor:
    return w.cast(_drawn(w, FillOperation.RANDOM_NORMAL, mean, std), w.dtype)


@converter("bernoulli", table=RANDOM)
def _bernoulli(w: Writer, x: ITensor, **_options: Any) -> ITensor:
    drawn = _drawn(w, FillOperation.RANDOM_UNIFORM, 0, 1)
    return w.cast(w.binary(ElementWiseOperation.LESS, drawn, w.cast(x, DataType.FLOAT)), w.dtype)


@converter("randint", "randint.low", "randint_like", "randint_like.low_dtype", table=RANDOM)
def _randint(w: Writer, *args: Any, **_options: Any) -> ITensor:
    given = [each for each in args if isinstance(each, (int, torch.SymInt))]
    numbers = [number for number in map(known, given) if number is not None]
    if len(numbers) != len(given):
        raise Unsupported("random numbers up to one that is not known")
    low, high = numbers if len(numbers) == 2 else (0, numbers[0])
    drawn = _drawn(w, FillOperation.RANDOM_UNIFORM, low, high)
    return w.cast(w.binary(ElementWiseOperation.FLOOR_DIV, drawn, 1.0), w.dtype)


CONVERTERS |= RANDOM
