"""Operators that have a layer of their own: convolutions, pooling, normalization, products, attention,
interpolation and recurrent networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._core import (
    ActivationType,
    AttentionNormalizationOp,
    CausalMaskKind,
    DataType,
    ElementWiseOperation,
    InterpolationMode,
    ITensor,
    PoolingType,
    ReduceOperation,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    SampleMode,
    UnaryOperation,
    Weights,
)
from ._converters import CONVERTERS, converter
from ._writer import Extent, Unsupported, Writer, all_known, known


def _spread(values: int | Sequence[Any], count: int) -> list[Any]:
    """One number for each spatial axis."""
    values = [values] if isinstance(values, int) else list(values)
    return values * count if len(values) == 1 else values


# Convolutions


def _spatial(w: Writer, x: ITensor, count: int, run: Any) -> ITensor:
    """Of one spatial axis as of two, which layers have."""
    batched = len(x.shape) == count + 2
    if not batched:
        x = w.unsqueeze(x, [0])
    if count == 1:
        x = w.unsqueeze(x, [2])
    y = run(x)
    if count == 1:
        y = w.squeeze(y, [2])
    return y if batched else w.squeeze(y, [0])


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
    strides, dilations = _spread(stride, count), _spread(dilation, count)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, window)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        before = after = _spread(padding, count)
    if transposed:
        after = [p - extra for p, extra in zip(before, _spread(output_padding, count))]
    if count == 1:
        window, strides, dilations = [1, *window], [1, *strides], [1, *dilations]
        before, after = [0, *before], [0, *after]
        weight = w.unsqueeze(weight, [2])
    maps = weight.shape[1] * groups if transposed else weight.shape[0]

    def run(x: ITensor) -> ITensor:
        add = w.network.add_deconvolution_nd if transposed else w.network.add_convolution_nd
        layer = add(x, maps, window, Weights())
        layer.set_input(1, weight)
        if bias is not None:
            layer.set_input(2, bias)
        layer.stride_nd, layer.dilation_nd, layer.num_groups = strides, dilations, groups
        layer.pre_padding, layer.post_padding = before, after
        return layer.get_output(0)

    return _spatial(w, x, count, run)


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


# Pooling


def _pool(
    w: Writer,
    kind: PoolingType,
    x: ITensor,
    window: Any,
    stride: Any,
    padding: Any,
    count: int,
    ceil_mode: bool,
    excludes_padding: bool = False,
) -> ITensor:
    if ceil_mode:
        raise Unsupported("ceil_mode")
    windows = _spread(window, count)
    strides = _spread(stride, count) if stride else windows
    pads = _spread(padding, count)
    if count == 1:
        windows, strides, pads = [1, *windows], [1, *strides], [0, *pads]

    def run(x: ITensor) -> ITensor:
        layer = w.network.add_pooling_nd(x, kind, windows)
        layer.stride_nd, layer.padding_nd = strides, pads
        layer.average_count_excludes_padding = excludes_padding
        return layer.get_output(0)

    return _spatial(w, x, count, run)


def _max_pool(name: str, count: int, with_indices: bool) -> None:
    @converter(name)
    def convert(
        w: Writer,
        x: ITensor,
        window: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        if any(d != 1 for d in _spread(dilation, count)):
            raise Unsupported(f"dilation {dilation}")
        y = _pool(w, PoolingType.MAX, x, window, stride, padding, count, ceil_mode)
        return (y, None) if with_indices else y


def _avg_pool(name: str, count: int) -> None:
    @converter(name)
    def convert(
        w: Writer,
        x: ITensor,
        window: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> ITensor:
        y = _pool(
            w,
            PoolingType.AVERAGE,
            x,
            window,
            stride,
            padding,
            count,
            ceil_mode,
            not count_include_pad,
        )
        if divisor_override is None:
            return y
        elements = 1
        for extent in _spread(window, count):
            elements *= extent
        return w.mul(y, elements / divisor_override)


def _adaptive_avg_pool(name: str, count: int) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor, size: Any) -> ITensor:
        sizes = _spread(size, count)
        axes = list(range(len(x.shape) - count, len(x.shape)))
        if all(known(s) == 1 for s in sizes):
            return w.reduce(ReduceOperation.AVG, x, axes, True)
        own = [x.shape[axis] for axis in axes]
        wanted = [o if s is None else known(s) for s, o in zip(sizes, own)]
        if any(o < 0 or not s or o % s for o, s in zip(own, wanted)):
            raise Unsupported(f"windows of different extents: from {own} to {wanted}")
        window = [o // s for o, s in zip(own, wanted) if s]
        return _pool(w, PoolingType.AVERAGE, x, window, window, 0, count, False)


for _count in (1, 2, 3):
    _max_pool(f"max_pool{_count}d", _count, False)
    _max_pool(f"max_pool{_count}d_with_indices", _count, True)
    _avg_pool(f"avg_pool{_count}d", _count)
    _adaptive_avg_pool(f"adaptive_avg_pool{_count}d", _count)
    _adaptive_avg_pool(f"_adaptive_avg_pool{_count}d", _count)


# Normalization


def _channels(w: Writer, parameter: ITensor, rank: int) -> ITensor:
    """[C] as [1, C, 1, ...]."""
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
    """With the running statistics, of which the compiler makes a part of the convolution."""
    op, dtype = ElementWiseOperation, x.dtype
    deviation = w.unary(UnaryOperation.SQRT, w.add(variance, epsilon))
    factor = w.unary(UnaryOperation.RECIP, deviation)
    if weight is not None:
        factor = w.mul(factor, weight)
    shift = w.unary(UnaryOperation.NEG, w.mul(mean, factor))
    if bias is not None:
        shift = w.add(shift, bias)
    rank = len(x.shape)
    y = w.binary(op.PROD, x, _channels(w, factor, rank), dtype)
    return w.binary(op.SUM, y, _channels(w, shift, rank), dtype)


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


def _not_training(training: bool) -> None:
    if training:
        raise Unsupported("it computes statistics of the batch: call eval() of the module")


@converter("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
def _native_batch_norm(
    w: Writer,
    x: ITensor,
    weight: ITensor | None,
    bias: ITensor | None,
    mean: ITensor,
    variance: ITensor,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    _not_training(training)
    return _batch_norm(w, x, weight, bias, mean, variance, epsilon), None, None, None


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
    cudnn_enabled: bool,
) -> ITensor:
    _not_training(training or mean is None)
    assert mean is not None and variance is not None
    return _batch_norm(w, x, weight, bias, mean, variance, epsilon)


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
    """Scale and bias are of that shape, with as many axes as x."""
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
def _layer_norm(
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


@converter("native_layer_norm")
def _native_layer_norm(
    w: Writer,
    x: ITensor,
    normalized_shape: Sequence[Any],
    weight: ITensor | None,
    bias: ITensor | None,
    epsilon: float,
) -> Any:
    return _layer_norm(w, x, normalized_shape, weight, bias, epsilon), None, None


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
    return _normalize(w, x, range(2, rank), weight, bias, epsilon, shape, groups)


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
    return _group_norm(w, x, groups, weight, bias, epsilon), None, None


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


# Products


def _vector_product(w: Writer, a: ITensor, b: ITensor) -> ITensor:
    """torch.matmul's, where one of them has one axis."""
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
def _linear(w: Writer, x: ITensor, weight: ITensor, bias: ITensor | None = None) -> ITensor:
    row = len(x.shape) == 1
    y = w.matmul(w.unsqueeze(x, [0]) if row else x, weight, False, True)
    if row:
        y = w.squeeze(y, [0])
    return y if bias is None else w.add(y, bias)


@converter("addmm", "baddbmm")
def _addmm(w: Writer, c: ITensor, a: ITensor, b: ITensor, beta: Any = 1, alpha: Any = 1) -> ITensor:
    product = w.matmul(a, b)
    if alpha != 1:
        product = w.mul(product, alpha)
    return product if beta == 0 else w.add(product, c if beta == 1 else w.mul(c, beta))


@converter("einsum")
def _einsum(w: Writer, equation: str, operands: Sequence[ITensor], path: Any = None) -> ITensor:
    if "..." in equation:
        raise Unsupported("einsum with an ellipsis")
    equation = equation.replace(" ", "")
    if "->" not in equation:
        letters = sorted(set(equation) - {","})
        equation += "->" + "".join(c for c in letters if equation.count(c) == 1)
    return w.network.add_einsum(list(operands), equation).get_output(0)


# Attention


@converter("scaled_dot_product_attention")
def _attention(
    w: Writer,
    query: ITensor,
    key: ITensor,
    value: ITensor,
    mask: ITensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ITensor:
    if dropout_p:
        raise Unsupported("attention with dropout: call eval() of the module")
    rank, size = len(query.shape), query.shape[-1]
    if size < 0 or rank not in (3, 4):
        raise Unsupported("attention of tensors that are not [batch, heads, tokens, size]")
    if rank == 3:
        query, key, value = (w.unsqueeze(x, [1]) for x in (query, key, value))
        if mask is not None and len(mask.shape) == 3:
            mask = w.unsqueeze(mask, [1])
    query = w.mul(query, size**-0.5 if scale is None else scale)
    causal = CausalMaskKind.UPPER_LEFT if is_causal else CausalMaskKind.NONE
    softmax = AttentionNormalizationOp.SOFTMAX
    attention = w.network.add_attention_v2(query, key, value, softmax, causal)
    attention.decomposable = True
    if mask is not None:
        mask = mask if mask.dtype == DataType.BOOL else w.cast(mask, query.dtype)
        attention.mask = w.unsqueeze(mask, list(range(4 - len(mask.shape))))
    y = attention.get_output(0)
    return w.squeeze(y, [1]) if rank == 3 else y


@converter("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention_for_cpu(
    w: Writer,
    query: ITensor,
    key: ITensor,
    value: ITensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: ITensor | None = None,
    scale: float | None = None,
) -> Any:
    y = _attention(w, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return y, None


@converter("_scaled_dot_product_efficient_attention")
def _efficient_attention(
    w: Writer,
    query: ITensor,
    key: ITensor,
    value: ITensor,
    bias: ITensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    y = _attention(w, query, key, value, bias, dropout_p, is_causal, scale)
    return y, None, None, None


@converter("_transformer_encoder_layer_fwd")
def _encoder_layer(
    w: Writer,
    x: ITensor,
    width: int,
    heads: int,
    qkv_weight: ITensor,
    qkv_bias: ITensor,
    out_weight: ITensor,
    out_bias: ITensor,
    use_gelu: bool,
    norm_first: bool,
    epsilon: float,
    *rest: Any,
) -> ITensor:
    """What nn.TransformerEncoderLayer calls in inference."""
    norm_1, norm_2, inner, outer = (rest[i : i + 2] for i in (0, 2, 4, 6))
    mask, mask_kind = (*rest[8:], None, None)[:2]
    batch, length = w.sizes(x)[:2]
    allowed = None
    if mask is not None:  # what is not 0 is left out
        allowed = w.binary(ElementWiseOperation.EQUAL, w.cast(mask, DataType.FLOAT), 0)
        if mask_kind == 1:  # of keys, [batch, length]
            allowed = w.unsqueeze(allowed, [1, 2])

    def attend(x: ITensor) -> ITensor:
        joined = _linear(w, x, qkv_weight, qkv_bias)
        joined = w.reshape(joined, [batch, length, 3, heads, width // heads])
        joined = w.transpose(joined, [2, 0, 3, 1, 4])
        numbers = [w.constant(torch.tensor(i, dtype=torch.int64)) for i in range(3)]
        query, key, value = (w.gather(joined, number, 0) for number in numbers)
        y = w.transpose(_attention(w, query, key, value, allowed), [0, 2, 1, 3])
        return _linear(w, w.reshape(y, [batch, length, width]), out_weight, out_bias)

    def feed(x: ITensor) -> ITensor:
        kind = ActivationType.GELU_ERF if use_gelu else ActivationType.RELU
        return _linear(w, w.activation(kind, _linear(w, x, *inner)), *outer)

    for parameters, run in ((norm_1, attend), (norm_2, feed)):
        if norm_first:
            x = w.add(x, run(_layer_norm(w, x, [width], *parameters, epsilon)))
        else:
            x = _layer_norm(w, w.add(x, run(x)), [width], *parameters, epsilon)
    return x


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
        layer.scales = [1.0, 1.0, *_spread(scales, count)]
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


@converter("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def _nearest(w: Writer, x: ITensor, size: Any, scales: Any = None) -> ITensor:
    asymmetric = ResizeCoordinateTransformation.ASYMMETRIC
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

# Where PyTorch's gates are in the layer's order: iofc of ifgo, zrh of rzn.
_GATES = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "rnn": [0]}


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
        added = w.network._add_recurrence(cell, bidirectional, relu, weights, x, *initial)
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
    most = w.reduce(ReduceOperation.MAX, x, axes, True)
    power = w.unary(UnaryOperation.EXP, w.binary(ElementWiseOperation.SUB, x, most))
    total = w.unary(UnaryOperation.LOG, w.reduce(ReduceOperation.SUM, power, axes, True))
    y = w.add(total, most)
    return y if keepdim else w.squeeze(y, [axis % len(x.shape) for axis in axes])


@converter("cosine_similarity")
def _cosine_similarity(
    w: Writer, a: ITensor, b: ITensor, dim: int = 1, eps: float = 1e-8
) -> ITensor:
    def norm(x: ITensor) -> ITensor:
        length = w.unary(
            UnaryOperation.SQRT, w.reduce(ReduceOperation.SUM, w.mul(x, x), [dim], True)
        )
        return w.binary(ElementWiseOperation.MAX, length, eps)

    parts = (w.binary(ElementWiseOperation.DIV, x, norm(x)) for x in (a, b))
    return w.reduce(ReduceOperation.SUM, w.mul(*parts), [dim], False)


@converter("threshold")
def _threshold(w: Writer, x: ITensor, threshold: float, value: float) -> ITensor:
    if value == 0 and threshold >= 0:
        return w.activation(ActivationType.THRESHOLDED_RELU, x, threshold)
    above = w.binary(ElementWiseOperation.GREATER, x, threshold)
    return w.select(above, x, w.tensor(value, x.dtype))
