"""Operators that have a layer of their own: convolutions, pooling, normalization, products, attention,
interpolation and recurrent networks."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import torch

from .._core import (
    DataType,
    ElementWiseOperation,
    InterpolationMode,
    ITensor,
    ReduceOperation,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    SampleMode,
    UnaryOperation,
    Weights,
)
from ._converters import CONVERTERS, converter
from ._writer import Extent, Unsupported, Writer, all_known, known, spread

# Convolutions


def _convolve(
    w: Writer,
    x: ITensor,
    weight: ITensor,
    bias: ITensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> ITensor:
    count = len(weight.shape) - 2
    window = list(weight.shape)[2:]
    if any(extent < 0 for extent in window):
        raise Unsupported("a kernel whose extents are not known")
    strides, dilations = spread(stride, count), spread(dilation, count)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, window)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        before = after = spread(padding, count)
    beyond = [0] * count  # rows of the output that no input element reaches
    if transposed:
        after = [p - extra for p, extra in zip(before, spread(output_padding, count))]
        beyond, after = [max(-p, 0) for p in after], [max(p, 0) for p in after]
    if count == 1:
        window, strides, dilations = [1, *window], [1, *strides], [1, *dilations]
        before, after, beyond = [0, *before], [0, *after], [0, *beyond]
        weight = w.unsqueeze(weight, [2])
    maps = weight.shape[1] * groups if transposed else weight.shape[0]

    def run(x: ITensor) -> ITensor:
        add = w.network.add_deconvolution_nd if transposed else w.network.add_convolution_nd
        layer = add(x, maps, window, Weights())
        layer.set_input(1, weight)
        if bias is not None and not any(beyond):
            layer.set_input(2, bias)
        layer.stride_nd, layer.dilation_nd, layer.num_groups = strides, dilations, groups
        layer.pre_padding, layer.post_padding = before, after
        y = layer.get_output(0)
        if not any(beyond):
            return y
        rank = len(y.shape)
        extents = w.sizes(y)
        for axis, extra in enumerate(beyond, 2):
            extents[axis] = w.arithmetic(ElementWiseOperation.SUM, extents[axis], extra)
        fill = w.full(0, y.dtype)
        y = w.slice(y, [0] * rank, extents, [1] * rank, SampleMode.FILL, fill)
        return y if bias is None else w.add(y, w.unsqueeze(bias, [0, *range(2, rank)]))

    return w.on_two_axes(x, count, run)


CONVERTERS[torch.ops.aten.convolution.default] = _convolve


@converter("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def _conv(
    w: Writer,
    x: ITensor,
    weight: ITensor,
    bias: ITensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> ITensor:
    return _convolve(w, x, weight, bias, stride, padding, dilation, False, 0, groups)


@converter("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose(
    w: Writer,
    x: ITensor,
    weight: ITensor,
    bias: ITensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> ITensor:
    return _convolve(w, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# Products


def _vector_product(w: Writer, a: ITensor, b: ITensor) -> ITensor:
    """The product of torch.matmul if an operand has one axis."""
    x = w.unsqueeze(a, [0]) if len(a.shape) == 1 else a
    y = w.unsqueeze(b, [1]) if len(b.shape) == 1 else b
    product = w.matmul(x, y)
    rank = len(product.shape)
    gone = [rank - 2] * (len(a.shape) == 1) + [rank - 1] * (len(b.shape) == 1)
    return w.squeeze(product, gone)


@converter("matmul", "mm", "bmm", "mv", "dot")
def _matmul(w: Writer, a: ITensor, b: ITensor) -> ITensor:
    if len(a.shape) == 1 or len(b.shape) == 1:
        return _vector_product(w, a, b)
    return w.matmul(a, b)


@converter("linear")
def linear(w: Writer, x: ITensor, weight: ITensor, bias: ITensor | None = None) -> ITensor:
    row = len(x.shape) == 1
    y = w.matmul(w.unsqueeze(x, [0]) if row else x, weight, False, True)
    if row:
        y = w.squeeze(y, [0])
    return y if bias is None else w.add(y, bias)


@converter("addmm", "baddbmm", "addmv")
def _addmm(w: Writer, c: ITensor, a: ITensor, b: ITensor, beta: Any = 1, alpha: Any = 1) -> ITensor:
    return _combined(w, c, _matmul(w, a, b), beta, alpha)


@converter("addbmm")
def _addbmm(
    w: Writer, c: ITensor, a: ITensor, b: ITensor, beta: Any = 1, alpha: Any = 1
) -> ITensor:
    total = w.reduce(ReduceOperation.SUM, w.matmul(a, b), [0], False)
    return _combined(w, c, total, beta, alpha)


def _combined(w: Writer, c: ITensor, product: ITensor, beta: Any, alpha: Any) -> ITensor:
    """alpha times the product plus beta times c."""
    if alpha != 1:
        product = w.binary(ElementWiseOperation.PROD, product, alpha, w.dtype)
    if beta == 0:
        return product
    added = c if beta == 1 else w.binary(ElementWiseOperation.PROD, c, beta, w.dtype)
    return w.binary(ElementWiseOperation.SUM, product, added, w.dtype)


@converter("einsum")
def _einsum(w: Writer, equation: str, operands: Sequence[ITensor], path: Any = None) -> ITensor:
    terms, arrow, result = equation.replace(" ", "").partition("->")
    parts = terms.split(",")
    # Axes of an ellipsis get letters. An operand with fewer such axes gets the last letters.
    counts = [
        len(x.shape) - len(part.replace("...", "")) if "..." in part else 0
        for part, x in zip(parts, operands)
    ]
    free = [letter for letter in string.ascii_letters if letter not in equation]
    axes = "".join(free[: max(counts)])
    named = [part.replace("...", axes[len(axes) - n :]) for part, n in zip(parts, counts)]
    if not arrow:
        letters = "".join(named)
        once = sorted(c for c in set(letters) - set(axes) if letters.count(c) == 1)
        result = "..." + "".join(once)
    equation = ",".join(named) + "->" + result.replace("...", axes)
    return w.network.add_einsum(list(operands), equation).get_output(0)


@converter("bilinear")
def _bilinear(
    w: Writer, a: ITensor, b: ITensor, weight: ITensor, bias: ITensor | None = None
) -> ITensor:
    """The bilinear product [..., k] of a [..., i], b [..., j] and the weight [k, i, j]."""
    k, i, j = list(weight.shape)
    matrix = w.reshape(w.transpose(weight, [1, 0, 2]), [i, k * j])
    partial = w.reshape(w.matmul(a, matrix), [*w.sizes(a)[:-1], k, j])
    rank = len(a.shape)
    y = w.reduce(ReduceOperation.SUM, w.mul(partial, w.unsqueeze(b, [rank - 1])), [rank], False)
    return y if bias is None else w.add(y, bias)


# Interpolation


def _resize(
    w: Writer,
    x: ITensor,
    size: Sequence[Extent] | None,
    scales: Sequence[float] | None,
    mode: InterpolationMode,
    transformation: ResizeCoordinateTransformation,
) -> ITensor:
    count = len(x.shape) - 2
    layer = w.network.add_resize(x)
    layer.resize_mode, layer.coordinate_transformation = mode, transformation
    layer.nearest_rounding = ResizeRoundMode.FLOOR
    if size is None:
        assert scales is not None
        layer.scales = [1.0, 1.0, *spread(scales, count)]
        return layer.get_output(0)
    shape = [*w.sizes(x)[:2], *size]
    if all_known(shape):
        layer.shape = [known(extent) for extent in shape]
    else:
        layer.set_input(1, w.extents(shape))
    return layer.get_output(0)


def _upsample(name: str, mode: InterpolationMode) -> None:
    @converter(f"{name}.vec")
    def convert_smooth(
        w: Writer, x: ITensor, size: Any, align_corners: bool, scales: Any = None
    ) -> ITensor:
        if x.dtype == DataType.UINT8 and name.endswith("2d") and _extents_known(w, x):
            kernel, reach = (_hat, 1) if mode == InterpolationMode.LINEAR else (_keys_of(-0.75), 2)
            return _resample(w, x, _interpolation_weights, kernel, reach, align_corners, scales)
        kind = ResizeCoordinateTransformation
        transformation = kind.ALIGN_CORNERS if align_corners else kind.HALF_PIXEL
        return _resize(w, x, size, scales, mode, transformation)

    @converter(name)
    def convert_sized(
        w: Writer, x: ITensor, size: Any, align_corners: bool, *scales: Any
    ) -> ITensor:
        return convert_smooth(w, x, size, align_corners)


for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    _upsample(_name, InterpolationMode.LINEAR)
_upsample("upsample_bicubic2d", InterpolationMode.CUBIC)


def _hat(x: torch.Tensor) -> torch.Tensor:
    return (1 - x.abs()).clamp(min=0)


def _keys_of(a: float) -> Any:
    """The cubic kernel of R. G. Keys (1981)."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        x = x.abs()
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return torch.where(x < 1, near, torch.where(x < 2, far, 0))

    return kernel


def _step(extent: int, result: int, align: bool, scale: float | None) -> float:
    if align:
        return (extent - 1) / (result - 1) if result > 1 else 0.0
    return 1 / scale if scale else extent / result


def _interpolation_weights(
    kernel: Any, reach: int, extent: int, result: int, align: bool, scale: float | None
) -> torch.Tensor:
    """The weight of each element of an axis in each element of the result."""
    step, places = _step(extent, result, align, scale), torch.arange(result, dtype=torch.double)
    centers = places * step if align else (places + 0.5) * step - 0.5
    centers = centers.clamp(min=0) if reach == 1 else centers
    weights = torch.zeros(result, extent, dtype=torch.double)
    for offset in range(1 - reach, reach + 1):
        at = centers.floor() + offset
        weights.scatter_add_(
            1, at.clamp(0, extent - 1).long()[:, None], kernel(centers - at)[:, None]
        )
    return weights


def _reduction_weights(
    kernel: Any, reach: int, extent: int, result: int, align: bool, scale: float | None
) -> torch.Tensor:
    """The weight of each element of an axis in each element of the result. If the result has fewer
    elements, the kernel is as wide as one of them."""
    step = _step(extent, result, align, scale)
    width = max(step, 1.0)
    centers = step * (torch.arange(result, dtype=torch.double) + 0.5)
    first = (centers - reach * width + 0.5).clamp(min=0).trunc()[:, None]
    last = (centers + reach * width + 0.5).clamp(max=extent).trunc()[:, None]
    places = torch.arange(extent, dtype=torch.double)[None]
    weights = kernel((places + 0.5 - centers[:, None]) / width)
    weights = weights * ((places >= first) & (places < last))
    return weights / weights.sum(1, keepdim=True)


def _extents_known(w: Writer, x: ITensor) -> bool:
    return bool(all_known(w.meta.shape[2:])) and -1 not in list(x.shape)[2:]


def _in_bits(weights: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Weights as 16-bit integers, which PyTorch and Pillow use for bytes, and the number of
    fraction bits."""
    bits, most = 0, float(weights.max())
    while bits < 22 and int(0.5 + most * 2 ** (bits + 1)) < 1 << 15:
        bits += 1
    return (weights * 2**bits + torch.where(weights < 0, -0.5, 0.5)).trunc(), bits


def _resample(
    w: Writer, x: ITensor, weights_of: Any, kernel: Any, reach: int, align: bool, scales: Any
) -> ITensor:
    """Resamples by one product for columns and one for rows. Bytes are rounded after each
    product."""
    y, is_bytes = w.cast(x, DataType.FLOAT), x.dtype == DataType.UINT8
    given = [*(scales or ()), None, None][:2]
    for axis in (1, 0):
        extent, result = list(x.shape)[2 + axis], known(w.meta.shape[2 + axis]) or 1
        weights, bits = weights_of(kernel, reach, extent, result, align, given[axis]), 0
        if is_bytes:
            weights, bits = _in_bits(weights)
        matrix = weights.float()
        y = w.matmul(y, w.constant(matrix.mT)) if axis == 1 else w.matmul(w.constant(matrix), y)
        if is_bytes:
            y = w.unary(UnaryOperation.FLOOR, w.mul(w.add(y, 2.0**bits / 2), 2.0**-bits))
            y = w.binary(ElementWiseOperation.MAX, y, 0.0)
            y = w.binary(ElementWiseOperation.MIN, y, 255.0)
    return w.cast(y, x.dtype)


def _upsample_smoothed(name: str, kernel: Any, reach: int) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor, size: Any, align: bool, *scales: float | None) -> ITensor:
        if not _extents_known(w, x):
            raise Unsupported("it is smoothed, and its extents are not known")
        return _resample(w, x, _reduction_weights, kernel, reach, align, scales)

    @converter(f"{name}.vec")
    def convert_scaled(
        w: Writer, x: ITensor, size: Any, align: bool, scales: Any = None
    ) -> ITensor:
        return convert(w, x, size, align, *(scales or ()))


_upsample_smoothed("_upsample_bilinear2d_aa", _hat, 1)
_upsample_smoothed("_upsample_bicubic2d_aa", _keys_of(-0.5), 2)  # the same parameter as in Pillow


def _nearest_places(extent: int, result: int, scale: float | None) -> list[int]:
    """The source index of each element in PyTorch. PyTorch multiplies by a step that is rounded to
    FP32, so a whole index may be rounded down to the one before."""
    if result in (extent, 2 * extent):
        return [i * extent // result for i in range(result)]
    step = torch.tensor(1 / scale if scale else extent / result, dtype=torch.float)
    places = (torch.arange(result, dtype=torch.float) * step).floor().long()
    return places.clamp(max=extent - 1).tolist()


@converter("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def _nearest(w: Writer, x: ITensor, size: Any, scales: Any = None) -> ITensor:
    asymmetric = ResizeCoordinateTransformation.ASYMMETRIC
    extents, wanted = list(x.shape)[2:], list(w.meta.shape[2:])
    if all_known(wanted) and -1 not in extents:
        size = [known(each) for each in wanted]
        steps = [None] * len(size) if scales is None else spread(scales, len(size))
        for axis, (extent, result, scale) in enumerate(zip(extents, size, steps)):
            places = _nearest_places(extent, result, scale)
            if places != [i * extent // result for i in range(result)]:
                x = w.gather(x, w.integers(places), axis + 2)
    return _resize(w, x, size, scales, InterpolationMode.NEAREST, asymmetric)


@converter("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest_sized(w: Writer, x: ITensor, size: Any, *scales: Any) -> ITensor:
    return _nearest(w, x, size)


@converter("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(
    w: Writer, x: ITensor, grid: ITensor, mode: int, padding: int, align_corners: bool
) -> ITensor:
    modes = InterpolationMode.LINEAR, InterpolationMode.NEAREST, InterpolationMode.CUBIC
    layer = w.network.add_grid_sample(x, grid)
    layer.interpolation_mode, layer.align_corners = modes[mode], align_corners
    layer.sample_mode = (SampleMode.FILL, SampleMode.CLAMP, SampleMode.REFLECT)[padding]
    return layer.get_output(0)


# Recurrent networks

# Indices of PyTorch's gates in the layer's order: iofc from ifgo, zrh from rzn.
_GATES = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "rnn": [0]}
# Numbers of the activations of the layer's cells: RELU, TANH and SIGMOID.
_RELU, _TANH, _SIGMOID = range(3)
_ACTIVATIONS = {
    "rnn": [_TANH],
    "gru": [_SIGMOID, _TANH],
    "lstm": [_SIGMOID, _TANH, _TANH],
}


def _recurrent(
    w: Writer,
    cell: str,
    relu: bool,
    x: ITensor,
    states: Sequence[ITensor],
    parameters: Sequence[ITensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    directions, per = 1 + bidirectional, 4 if has_biases else 2
    if train and dropout:
        raise Unsupported("it draws random numbers: call eval() of the module")
    if len(parameters) != layers * directions * per:
        raise Unsupported("recurrent projections (proj_size)")
    batched = len(x.shape) == 3
    if not batched:
        x = w.unsqueeze(x, [1])
        states = [w.unsqueeze(state, [1]) for state in states]
    elif batch_first:
        x = w.transpose(x, [1, 0, 2])

    def ordered(parameter: ITensor) -> ITensor:
        gates, order = len(_GATES[cell]), _GATES[cell]
        if gates == 1:
            return parameter
        extent = parameter.shape[0] // gates
        tail = list(parameter.shape)[1:]
        parts = [
            w.slice(
                parameter,
                [gate * extent, *[0] * len(tail)],
                [extent, *tail],
                [1] * len(parameter.shape),
            )
            for gate in order
        ]
        return w.concatenate(parts, 0)

    def stacked(layer: int, index: int) -> ITensor:
        first = layer * directions * per + index
        parts = [ordered(parameters[first + d * per]) for d in range(directions)]
        return w.concatenate([w.unsqueeze(part, [0]) for part in parts], 0)

    activations = [_RELU] if relu else _ACTIVATIONS[cell]
    finals: list[list[ITensor]] = [[] for _ in states]
    for layer in range(layers):
        weights = [stacked(layer, index) for index in range(2)]
        if has_biases:
            weights.append(w.concatenate([stacked(layer, 2), stacked(layer, 3)], 1))
        else:
            rows = weights[0].shape[1]
            zeros = torch.zeros(directions, 2 * rows)
            weights.append(w.cast(w.constant(zeros), x.dtype))
        initial = []
        for state in states:
            extents = w.sizes(state)
            start = [layer * directions, 0, 0]
            initial.append(w.slice(state, start, [directions, *extents[1:]], [1, 1, 1]))
        added = w.operator(
            "Recurrence",
            [x, *weights, None, *initial],
            cell=list(_ACTIVATIONS).index(cell),
            direction=2 if bidirectional else 0,
            activations=activations * directions,
            alphas=[0.0] * len(activations) * directions,
            betas=[0.0] * len(activations) * directions,
            linear_before_reset=cell == "gru",
        )
        y = w.transpose(added.get_output(0), [0, 2, 1, 3])
        hidden = y.shape[3] * directions
        steps, batch = w.sizes(y)[:2]
        x = w.reshape(y, [steps, batch, hidden])
        for i, final in enumerate(finals):
            final.append(added.get_output(1 + i))
    outputs = [w.concatenate(final, 0) for final in finals]
    if not batched:
        return (w.squeeze(x, [1]), *(w.squeeze(state, [1]) for state in outputs))
    return (w.transpose(x, [1, 0, 2]) if batch_first else x, *outputs)


@converter("lstm.input")
def _lstm(
    w: Writer, x: ITensor, states: Sequence[ITensor], parameters: Sequence[ITensor], *rest: Any
) -> Any:
    return _recurrent(w, "lstm", False, x, states, parameters, *rest)


def _simple_recurrent(name: str, cell: str, relu: bool) -> None:
    @converter(f"{name}.input")
    def convert(
        w: Writer, x: ITensor, state: ITensor, parameters: Sequence[ITensor], *rest: Any
    ) -> Any:
        return _recurrent(w, cell, relu, x, [state], parameters, *rest)


_simple_recurrent("gru", "gru", False)
_simple_recurrent("rnn_tanh", "rnn", False)
_simple_recurrent("rnn_relu", "rnn", True)


@converter("pixel_shuffle")
def _pixel_shuffle(w: Writer, x: ITensor, factor: int) -> ITensor:
    *outer, c, height, width = w.sizes(x)
    channels = known(c)
    if len(outer) != 1 or channels is None:
        raise Unsupported("pixel_shuffle of other than [N, C, H, W]")
    maps = channels // factor**2
    y = w.reshape(x, [*outer, maps, factor, factor, height, width])
    y = w.transpose(y, [0, 1, 4, 2, 5, 3])
    product = ElementWiseOperation.PROD
    height, width = (w.arithmetic(product, extent, factor) for extent in (height, width))
    return w.reshape(y, [*outer, maps, height, width])


@converter("logsumexp")
def _logsumexp(w: Writer, x: ITensor, dim: Any, keepdim: bool = False) -> ITensor:
    axes = [dim] if isinstance(dim, int) else list(dim)
    x = w.cast(x, w.dtype)
    most = w.reduce(ReduceOperation.MAX, x, axes, True)
    # An infinite maximum is not subtracted, since its difference from itself is NaN.
    endless = w.unary(UnaryOperation.ISINF, most)
    most = w.select(endless, w.full(0, x.dtype, len(x.shape)), most)
    power = w.unary(UnaryOperation.EXP, w.binary(ElementWiseOperation.SUB, x, most))
    total = w.unary(UnaryOperation.LOG, w.reduce(ReduceOperation.SUM, power, axes, True))
    y = w.add(total, most)
    return y if keepdim else w.squeeze(y, [axis % len(x.shape) for axis in axes])


@converter("cosine_similarity")
def _cosine_similarity(
    w: Writer, a: ITensor, b: ITensor, dim: int = 1, eps: float = 1e-8
) -> ITensor:
    if list(a.shape) != list(b.shape):  # operands broadcast before their norms are computed
        a, b = w.broadcast(a, b)

    def norm(x: ITensor) -> ITensor:
        length = w.unary(
            UnaryOperation.SQRT, w.reduce(ReduceOperation.SUM, w.mul(x, x), [dim], True)
        )
        return w.binary(ElementWiseOperation.MAX, length, eps)

    parts = (w.binary(ElementWiseOperation.DIV, x, norm(x)) for x in (a, b))
    return w.reduce(ReduceOperation.SUM, w.mul(*parts), [dim], False)


@converter("threshold")
def _threshold(w: Writer, x: ITensor, threshold: float, value: float) -> ITensor:
    # NaN is not below the threshold, and stays.
    low = w.binary(
        ElementWiseOperation.OR,
        w.binary(ElementWiseOperation.LESS, x, threshold),
        w.binary(ElementWiseOperation.EQUAL, x, threshold),
    )
    return w.select(low, w.tensor(value, x.dtype), x)
