"""Normalization of batches, layers, groups and instances."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from .._core import (
    DataType,
    ElementWiseOperation,
    ITensor,
    ReduceOperation,
    ScaleMode,
    UnaryOperation,
)
from ._converters import converter
from ._writer import Unsupported, Writer, all_known, known, network_type


def _channels(w: Writer, parameter: ITensor, rank: int) -> ITensor:
    """Reshapes [C] to [1, C, 1, ...]."""
    return w.reshape(parameter, [1, parameter.shape[0], *[1] * (rank - 2)])


def _batch_norm(
    w: Writer,
    x: ITensor,
    weight: ITensor | None,
    bias: ITensor | None,
    mean: ITensor,
    variance: ITensor,
    epsilon: float,
) -> ITensor:
    """Normalizes with the running statistics, which the compiler folds into a convolution.

    Coefficients are FP32, as in PyTorch's kernels for narrow types.
    """
    exact = functools.partial(w.cast, dtype=DataType.FLOAT)
    deviation = w.unary(UnaryOperation.SQRT, w.add(exact(variance), epsilon))
    factor = w.unary(UnaryOperation.RECIP, deviation)
    if weight is not None:
        factor = w.mul(factor, exact(weight))
    shift = w.unary(UnaryOperation.NEG, w.mul(exact(mean), factor))
    if bias is not None:
        shift = w.add(shift, exact(bias))
    layer = w.network.add_scale_nd(x, ScaleMode.CHANNEL, channel_axis=1)
    layer.set_input(1, shift)
    layer.set_input(2, factor)
    return layer.get_output(0)


def _batch_norm_by_itself(
    w: Writer, x: ITensor, weight: ITensor | None, bias: ITensor | None, epsilon: float
) -> ITensor:
    """Normalizes with the statistics of x, as a module without running statistics does."""
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    exact = w.cast(x, DataType.FLOAT)
    average = ReduceOperation.AVG
    mean = w.reduce(average, exact, axes, True)
    deviation = w.binary(ElementWiseOperation.SUB, exact, mean)
    variance = w.reduce(average, w.mul(deviation, deviation), axes, False)
    return _batch_norm(w, x, weight, bias, w.squeeze(mean, axes), variance, epsilon)


@converter("_native_batch_norm_legit.no_stats")
def _batch_norm_without_statistics(
    w: Writer,
    x: ITensor,
    weight: ITensor | None,
    bias: ITensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    return _batch_norm_by_itself(w, x, weight, bias, epsilon), None, None


@converter("_native_batch_norm_legit_no_training")
def _inference_batch_norm(
    w: Writer,
    x: ITensor,
    weight: ITensor | None,
    bias: ITensor | None,
    mean: ITensor,
    variance: ITensor,
    momentum: float,
    epsilon: float,
) -> Any:
    return _batch_norm(w, x, weight, bias, mean, variance, epsilon), None, None


@converter("batch_norm")
def _whole_batch_norm(
    w: Writer,
    x: ITensor,
    weight: ITensor | None,
    bias: ITensor | None,
    mean: ITensor | None,
    variance: ITensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
    cudnn_enabled: bool = False,
) -> ITensor:
    if mean is None or variance is None:
        return _batch_norm_by_itself(w, x, weight, bias, epsilon)
    if training:
        raise Unsupported("it changes its running statistics: call eval() of the module")
    return _batch_norm(w, x, weight, bias, mean, variance, epsilon)


@converter("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
def _native_batch_norm(w: Writer, *arguments: Any) -> Any:
    return _whole_batch_norm(w, *arguments), None, None, None


def _normalize(
    w: Writer,
    x: ITensor,
    axes: Sequence[int],
    weight: ITensor | None,
    bias: ITensor | None,
    epsilon: float,
    shape: Sequence[int],
    groups: int = 1,
) -> ITensor:
    """Normalizes over axes. Scale and bias have the shape `shape`, with as many axes as x."""
    ones = torch.ones(1, dtype=torch.float32)

    def parameter(value: ITensor | None, otherwise: float) -> ITensor:
        if value is None:
            return w.cast(w.constant((ones * otherwise).expand(*shape)), x.dtype)
        return w.reshape(w.cast(value, x.dtype), shape)

    mask = sum(1 << axis for axis in axes)
    scale, shift = parameter(weight, 1), parameter(bias, 0)
    layer = w.network.add_normalization_v2(x, scale, shift, mask)
    layer.epsilon, layer.num_groups = epsilon, groups
    return layer.get_output(0)


@converter("layer_norm")
def layer_norm(
    w: Writer,
    x: ITensor,
    normalized_shape: Sequence[Any],
    weight: ITensor | None = None,
    bias: ITensor | None = None,
    epsilon: float = 1e-5,
    _cudnn: bool = False,
) -> ITensor:
    rank, count = len(x.shape), len(normalized_shape)
    if not all_known(normalized_shape):
        raise Unsupported("a normalized shape that is not known")
    shape = [1] * (rank - count) + [known(extent) or 0 for extent in normalized_shape]
    return _normalize(w, x, range(rank - count, rank), weight, bias, epsilon, shape)


def _statistics(
    w: Writer, x: ITensor, axes: Sequence[int], epsilon: float, shape: Sequence[Any]
) -> list[ITensor | None]:
    """The means and the factors of the deviations; None for each that is not used."""
    found: list[ITensor | None] = [None, None]
    if not (w.uses(1) or w.uses(2)):
        return found
    exact = w.cast(x, DataType.FLOAT)
    mean = w.reduce(ReduceOperation.AVG, exact, axes, True)
    difference = w.binary(ElementWiseOperation.SUB, exact, mean)
    variance = w.reduce(ReduceOperation.AVG, w.mul(difference, difference), axes, True)
    root = w.unary(UnaryOperation.SQRT, w.add(variance, epsilon))
    for i, (each, meta) in enumerate(zip((mean, w.unary(UnaryOperation.RECIP, root)), w.meta[1:])):
        found[i] = w.cast(w.reshape(each, shape), network_type(meta.dtype))
    return found


@converter("native_layer_norm")
def _native_layer_norm(
    w: Writer,
    x: ITensor,
    normalized_shape: Sequence[Any],
    weight: ITensor | None,
    bias: ITensor | None,
    epsilon: float,
) -> Any:
    y = layer_norm(w, x, normalized_shape, weight, bias, epsilon)
    rank = len(x.shape)
    axes = range(rank - len(normalized_shape), rank)
    return y, *_statistics(w, x, axes, epsilon, w.sizes(x)[: axes[0]] + [1] * len(axes))


@converter("rms_norm")
def _rms_norm(
    w: Writer,
    x: ITensor,
    normalized_shape: Sequence[Any],
    weight: ITensor | None = None,
    epsilon: float | None = None,
) -> ITensor:
    rank, dtype = len(x.shape), x.dtype
    exact = w.cast(x, DataType.FLOAT)
    axes = list(range(rank - len(normalized_shape), rank))
    mean = w.reduce(ReduceOperation.AVG, w.mul(exact, exact), axes, True)
    if epsilon is None:
        epsilon = torch.finfo(torch.float32).eps
    factor = w.unary(UnaryOperation.RECIP, w.unary(UnaryOperation.SQRT, w.add(mean, epsilon)))
    y = w.cast(w.mul(exact, factor), dtype)
    return y if weight is None else w.mul(y, weight)


@converter("group_norm")
def _group_norm(
    w: Writer,
    x: ITensor,
    groups: int,
    weight: ITensor | None = None,
    bias: ITensor | None = None,
    epsilon: float = 1e-5,
    _cudnn: bool = True,
) -> ITensor:
    rank, channels = len(x.shape), x.shape[1]
    shape = [1, channels, *[1] * (rank - 2)]
    if rank < 4:  # the layer has spatial axes
        whole = w.unsqueeze(x, list(range(rank, 4)))
        y = _group_norm(w, whole, groups, weight, bias, epsilon)
        return w.squeeze(y, list(range(rank, 4)))
    # The axes express a single group of all channels. The layer would take it for instances.
    first = 1 if groups == 1 else 2
    return _normalize(w, x, range(first, rank), weight, bias, epsilon, shape, groups)


@converter("native_group_norm")
def _native_group_norm(
    w: Writer,
    x: ITensor,
    weight: ITensor | None,
    bias: ITensor | None,
    n: Any,
    c: Any,
    elements: Any,
    groups: int,
    epsilon: float,
) -> Any:
    y = _group_norm(w, x, groups, weight, bias, epsilon)
    rows = w.reshape(x, [*w.sizes(x)[:1], groups, -1])
    return y, *_statistics(w, rows, [2], epsilon, [*w.sizes(x)[:1], groups])


@converter("instance_norm")
def _instance_norm(
    w: Writer,
    x: ITensor,
    weight: ITensor | None,
    bias: ITensor | None,
    mean: ITensor | None,
    variance: ITensor | None,
    use_input_stats: bool,
    momentum: float,
    epsilon: float,
    cudnn_enabled: bool,
) -> ITensor:
    if not use_input_stats:
        assert mean is not None and variance is not None
        return _batch_norm(w, x, weight, bias, mean, variance, epsilon)
    return _group_norm(w, x, x.shape[1], weight, bias, epsilon)
