"""Layers get their parameters after they were added, in any order, as in TensorRT: what does not fit
is an error when it is asked for or built, not before. Results against NumPy."""

import re

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from paths import ROOT


def new_network():
    return trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()


def inputs_of(network, **arrays):
    types = {"float32": trt.float32, "int32": trt.int32, "bool": trt.bool}
    return [network.add_input(n, types[a.dtype.name], a.shape) for n, a in arrays.items()]


def constant(network, values, dtype=np.int32):
    array = np.ascontiguousarray(values, dtype)
    return network.add_constant(array.shape, array).get_output(0)


def run(network, output, **arrays):
    network.mark_output(output)
    return trt.build(network, timing=False)(**arrays)


def numbers(*shape):
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.float32) * 7 % 11 - 4).reshape(shape)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


X23, X2344 = numbers(2, 3), numbers(2, 3, 4, 4)
BOOLS = np.array([True, False])
KERNEL = numbers(2, 3, 5, 5)


def set_to(**parameters):
    def mend(network, layer):
        for name, value in parameters.items():
            setattr(layer, name, value)

    return mend


def set_input(index, values, dtype=np.int32):
    return lambda network, layer: layer.set_input(index, constant(network, values, dtype))


def both(*steps):
    def mend(network, layer):
        for step in steps:
            step(network, layer)

    return mend


def convolved(x, kernel, pad):
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, kernel)


def pooled(x, window):
    windows = np.lib.stride_tricks.sliding_window_view(x, (window, window), (2, 3))
    return windows[:, :, ::window, ::window].max((-1, -2))


# Name: inputs, how the layer is added so that it does not fit yet, how that is mended, the result.
FILL = trt.SampleMode.FILL
NONE, TRANSPOSE = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
MENDED = {
    "concatenation": (
        dict(x=X23, y=numbers(2, 5)),
        lambda n, x, y: n.add_concatenation([x, y]),
        set_to(axis=1),
        lambda x, y: np.concatenate([x, y], 1),
    ),
    "slice, value and mode": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, (-1, -2), (5, 6), (1, 1)),
        both(set_input(4, 9, np.float32), set_to(mode=FILL)),
        lambda x: np.pad(x, ((1, 2), (2, 1)), constant_values=9),
    ),
    "slice, mode and value": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, (-1, -2), (5, 6), (1, 1)),
        both(set_to(mode=FILL), set_input(4, [9], np.float32)),
        lambda x: np.pad(x, ((1, 2), (2, 1)), constant_values=9),
    ),
    "slice, wrap": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, (-1, -2), (5, 6), (1, 1)),
        set_to(mode=trt.SampleMode.WRAP),
        lambda x: np.pad(x, ((1, 2), (2, 1)), mode="wrap"),
    ),
    "slice, reflect": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, (-1, -2), (4, 6), (1, 1)),
        set_to(mode=trt.SampleMode.REFLECT),
        lambda x: np.pad(x, ((1, 1), (2, 1)), mode="reflect"),
    ),
    "slice, clamp": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, (-1, -2), (5, 6), (1, 1)),
        set_to(mode=trt.SampleMode.CLAMP),
        lambda x: np.pad(x, ((1, 2), (2, 1)), mode="edge"),
    ),
    "slice, lists one by one": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, (), (), ()),
        set_to(stride=(1, 2), shape=(2, 2), start=(0, 0)),
        lambda x: x[:, ::2],
    ),
    "slice, tensors one by one": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, [], [], []),
        both(set_input(1, [0, 1]), set_input(2, [2, 2]), set_input(3, [1, 1])),
        lambda x: x[:, 1:],
    ),
    "slice, axes": (
        dict(x=X23),
        lambda n, x: n.add_slice(x, (1,), (2,), (1,)),
        set_to(axes=(1,)),
        lambda x: x[:, 1:],
    ),
    "gather of elements": (
        dict(x=numbers(3, 2), i=np.array([[0, 1, 1, 0]] * 3, np.int32)),
        lambda n, x, i: n.add_gather_v2(x, i, trt.GatherMode.ELEMENT),
        set_to(axis=1),
        lambda x, i: np.take_along_axis(x, i, 1),
    ),
    "gather, elementwise": (
        dict(x=numbers(2, 3, 4), i=np.array([[2, 0], [1, 1]], np.int32)),
        lambda n, x, i: n.add_gather_v2(x, i, trt.GatherMode.DEFAULT),
        # The axis comes behind the elementwise dimensions, so that it does not fit on the way.
        both(set_to(num_elementwise_dims=1), set_to(axis=1)),
        lambda x, i: np.stack([x[b][i[b]] for b in range(2)]),
    ),
    "gather, mode": (
        dict(x=numbers(3), i=np.array([2, 0, 1, 2], np.int32)),
        lambda n, x, i: n.add_gather_v2(x, i, trt.GatherMode.ND),
        set_to(mode=trt.GatherMode.DEFAULT),
        lambda x, i: x[i],
    ),
    "gather, axis": (
        dict(x=X23, i=np.array([2, 0], np.int32)),
        lambda n, x, i: n.add_gather(x, i, 5),
        set_to(axis=1),
        lambda x, i: x[:, i],
    ),
    "shuffle, back to front": (
        dict(x=numbers(2, 3, 4)),
        lambda n, x: n.add_shuffle(x),
        set_to(second_transpose=(1, 0), reshape_dims=(0, -1), first_transpose=(2, 0, 1)),
        lambda x: x.transpose(2, 0, 1).reshape(4, 6).T,
    ),
    "shuffle, zeros": (
        dict(x=X23),
        lambda n, x: n.add_shuffle(x),
        both(set_to(reshape_dims=(1, 1, 6, 0)), set_to(reshape_dims=(0, 0, 1))),
        lambda x: x.reshape(2, 3, 1),
    ),
    "shuffle, tensor": (
        dict(x=X23),
        lambda n, x: n.add_shuffle(x),
        both(set_to(reshape_dims=(7,)), set_input(1, [3, -1])),
        lambda x: x.reshape(3, 2),
    ),
    "softmax": (
        dict(x=X23),
        lambda n, x: n.add_softmax(x),
        both(set_to(axes=1 << 4), set_to(axes=1 << 1)),
        lambda x: softmax(x, 1),
    ),
    "reduction": (
        dict(x=X2344),
        lambda n, x: n.add_reduce(x, trt.ReduceOperation.MAX, 1 << 6, False),
        set_to(axes=0b1010, keep_dims=True, op=trt.ReduceOperation.SUM),
        lambda x: x.sum((1, 3), keepdims=True),
    ),
    "top k": (
        dict(x=numbers(2, 8)),
        lambda n, x: n.add_topk(x, trt.TopKOperation.MIN, 20, 1 << 1),
        set_to(k=2, op=trt.TopKOperation.MAX),
        lambda x: -np.sort(-x, 1)[:, :2],
    ),
    "top k, tensor": (
        dict(x=numbers(2, 8)),
        lambda n, x: n.add_topk(x, trt.TopKOperation.MAX, 20, 1 << 1),
        set_input(1, 3),
        lambda x: -np.sort(-x, 1)[:, :3],
    ),
    "matrix product": (
        dict(x=X23, y=numbers(5, 2)),
        lambda n, x, y: n.add_matrix_multiply(x, NONE, y, NONE),
        set_to(op0=TRANSPOSE, op1=TRANSPOSE),
        lambda x, y: x.T @ y.T,
    ),
    "elementwise": (
        dict(x=BOOLS, y=~BOOLS),
        lambda n, x, y: n.add_elementwise(x, y, trt.ElementWiseOperation.SUM),
        set_to(op=trt.ElementWiseOperation.OR),
        np.logical_or,
    ),
    "elementwise, input": (
        dict(x=X23, y=numbers(4)),
        lambda n, x, y: n.add_elementwise(x, y, trt.ElementWiseOperation.SUM),
        set_input(1, [[10], [20]], np.float32),
        lambda x, y: x + np.array([[10], [20]], np.float32),
    ),
    "unary": (
        dict(x=X23),
        lambda n, x: n.add_unary(x, trt.UnaryOperation.NOT),
        set_to(op=trt.UnaryOperation.ABS),
        np.abs,
    ),
    "activation": (
        dict(x=X23),
        lambda n, x: n.add_activation(x, trt.ActivationType.RELU),
        set_to(type=trt.ActivationType.CLIP, alpha=-1, beta=2),
        lambda x: np.clip(x, -1, 2),
    ),
    "cast": (
        dict(x=X23),
        lambda n, x: n.add_cast(x, trt.int64),
        set_to(to_type=trt.int32),
        lambda x: x.astype(np.int32),
    ),
    "convolution, padding": (
        dict(x=X2344),
        lambda n, x: n.add_convolution_nd(x, 2, (5, 5), KERNEL),
        set_to(padding_nd=(1, 1)),
        lambda x: convolved(x, KERNEL, 1),
    ),
    "convolution, stride": (
        dict(x=X2344),
        lambda n, x: n.add_convolution_nd(x, 2, (5, 5), KERNEL),
        set_to(stride_nd=(2, 2), pre_padding=(2, 2), post_padding=(2, 2), dilation_nd=(1, 1)),
        lambda x: convolved(x, KERNEL, 2)[:, :, ::2, ::2],
    ),
    "convolution, kernel": (
        dict(x=X2344),
        lambda n, x: n.add_convolution_nd(x, 2, (5, 5), trt.Weights()),
        both(set_input(1, KERNEL, np.float32), set_to(padding_nd=(2, 2))),
        lambda x: convolved(x, KERNEL, 2),
    ),
    "deconvolution": (
        dict(x=numbers(1, 2, 2, 2)),
        lambda n, x: n.add_deconvolution_nd(x, 1, (1, 1), np.array([2, 3], np.float32)),
        both(set_to(padding_nd=(1, 1)), set_to(padding_nd=(0, 0), stride_nd=(1, 2))),
        lambda x: np.stack(
            [
                2 * x[:, :1, :, 0] + 3 * x[:, 1:, :, 0],
                0 * x[:, :1, :, 0],
                2 * x[:, :1, :, 1] + 3 * x[:, 1:, :, 1],
            ],
            -1,
        ),
    ),
    "pooling": (
        dict(x=X2344),
        lambda n, x: n.add_pooling_nd(x, trt.PoolingType.MAX, (6, 6)),
        set_to(window_size_nd=(2, 2), stride_nd=(2, 2)),
        lambda x: pooled(x, 2),
    ),
    "normalization": (
        dict(x=X23),
        lambda n, x: n.add_normalization(
            x, constant(n, np.ones((1, 3)), np.float32), constant(n, [[0] * 3], np.float32), 1 << 5
        ),
        set_to(axes=1 << 1, epsilon=1.0, num_groups=1),
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1),
    ),
    "lrn": (
        dict(x=X2344),
        lambda n, x: n.add_lrn(x, 0, 1.0, 1.0, 1.0),
        set_to(window_size=1),
        lambda x: x / (1 + x * x),
    ),
    "scale": (
        dict(x=X23),
        lambda n, x: n.add_scale_nd(
            x, trt.ScaleMode.CHANNEL, scale=np.array([1, 2, 3], np.float32), channel_axis=7
        ),
        set_to(channel_axis=1),
        lambda x: x * np.array([1, 2, 3], np.float32),
    ),
    "resize, shape": (
        dict(x=X23),
        lambda n, x: n.add_resize(x),
        both(set_to(scales=(1, 2, 3)), set_to(shape=(4, 6))),
        lambda x: x.repeat(2, 0).repeat(2, 1),
    ),
    "resize, scales": (
        dict(x=X23),
        lambda n, x: n.add_resize(x),
        both(set_to(shape=(7,)), set_to(scales=(1, 2))),
        lambda x: x.repeat(2, 1),
    ),
    "resize, tensor": (
        dict(x=X23),
        lambda n, x: n.add_resize(x),
        set_input(1, [4, 3]),
        lambda x: x.repeat(2, 0),
    ),
    "fill": (
        dict(),
        lambda n: n.add_fill((-1,), trt.FillOperation.LINSPACE),
        both(set_input(0, [4]), set_to(alpha=3, beta=-0.5)),
        lambda: np.array([3, 2.5, 2, 1.5], np.float32),
    ),
    "select": (
        dict(c=BOOLS, x=numbers(2), y=numbers(3)),
        lambda n, c, x, y: n.add_select(c, x, y),
        lambda n, layer: layer.set_input(2, n.get_input(1)),
        lambda c, x, y: x,
    ),
}
# They fit as they are added, or while the first of several parameters is set.
FIT_AT_FIRST = {
    "gather, elementwise", "shuffle, back to front", "shuffle, zeros", "shuffle, tensor", "softmax",
    "activation", "cast", "deconvolution", "resize, shape", "resize, scales", "resize, tensor",
}  # fmt: skip


@pytest.mark.parametrize("case", MENDED)
def test_parameters_come_after_the_layer(case):
    arrays, add, mend, expected = MENDED[case]
    network = new_network()
    layer = add(network, *inputs_of(network, **arrays))
    layer.name = "mended"
    # What is downstream is added while the layer does not fit, too.
    last = network.add_identity(layer.get_output(0)).get_output(0)
    if case not in FIT_AT_FIRST:
        with pytest.raises(trt.Error, match="'mended'"):
            layer.get_output(0).shape  # noqa: B018
        with pytest.raises(trt.Error, match="'mended'"):
            last.dtype  # noqa: B018
    mend(network, layer)
    result = expected(*arrays.values())
    assert tuple(last.shape) == result.shape
    np.testing.assert_allclose(run(network, last, **arrays), result, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", sorted(MENDED.keys() - FIT_AT_FIRST))
def test_what_never_fits_fails_the_build(case):
    arrays, add, mend, expected = MENDED[case]
    builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
    network = builder.create_network()
    layer = add(network, *inputs_of(network, **arrays))
    layer.name = "wrong"
    network.mark_output(network.add_identity(layer.get_output(0)).get_output(0))
    config = builder.create_builder_config()
    with pytest.raises(trt.Error, match="'wrong'") as asked:
        layer.get_output(0).shape  # noqa: B018
    with pytest.raises(trt.Error) as built:
        builder.build_serialized_network(network, config)
    assert str(asked.value) in str(built.value)
    # The network is none the worse.
    mend(network, layer)
    y = trt.build(network, timing=False)(**arrays)
    np.testing.assert_allclose(y, expected(*arrays.values()), rtol=1e-5, atol=1e-5)


def test_a_parameter_that_does_not_fit_can_be_set_again():
    network = new_network()
    x, y = inputs_of(network, x=X23, y=X23)
    layer = network.add_concatenation([x, y])
    layer.name = "join"
    after = network.add_unary(layer.get_output(0), trt.UnaryOperation.NEG).get_output(0)
    assert tuple(after.shape) == (4, 3)
    layer.axis = 2
    with pytest.raises(trt.Error, match=r"Concatenation 'join': the axis must be in \[0, 2\)"):
        after.shape  # noqa: B018
    assert layer.axis == 2 and layer.num_outputs == 1
    assert "does not fit" in repr(after)
    layer.axis = 1
    assert tuple(after.shape) == (2, 6) and "2x6" in repr(after)
    np.testing.assert_array_equal(run(network, after, x=X23, y=X23), -np.concatenate([X23, X23], 1))


def test_a_part_without_elements():
    network = new_network()
    (x,) = inputs_of(network, x=X23)
    for empty in (trt.Weights(trt.int64), trt.Weights()):
        nothing = network.add_constant((0,), empty)
        assert nothing.get_output(0).dtype == empty.dtype
    part = network.add_shuffle(nothing.get_output(0))
    part.reshape_dims = (2, 0)
    part.zero_is_placeholder = False
    layer = network.add_concatenation([x, part.get_output(0)])
    layer.axis = 1
    np.testing.assert_array_equal(run(network, layer.get_output(0), x=X23), X23)


def test_an_unused_layer_that_does_not_fit_fails_the_build():
    network = new_network()
    (x,) = inputs_of(network, x=X23)
    network.mark_output(network.add_identity(x).get_output(0))
    layer = network.add_unary(x, trt.UnaryOperation.NOT)
    layer.name = "unused"
    with pytest.raises(trt.Error, match="Unary 'unused'"):
        trt.build(network, timing=False)


def test_what_can_never_fit_is_refused_at_once():
    network, other = new_network(), new_network()
    (x,) = inputs_of(network, x=X23)
    (foreign,) = inputs_of(other, x=X23)
    layer = network.add_identity(x)
    for add in (
        lambda: network.add_concatenation([x, foreign]),
        lambda: network.add_concatenation([]),
        lambda: network.add_elementwise(x, foreign, trt.ElementWiseOperation.SUM),
        lambda: layer.set_input(0, foreign),
        lambda: layer.set_input(0, layer.get_output(0)),
        lambda: network.add_constant((3,), np.zeros(2, np.float32)),
    ):
        with pytest.raises(trt.Error):
            add()
    with pytest.raises(TypeError):
        network.add_unary(None, trt.UnaryOperation.NEG)
    assert network.num_layers == 1 and layer.get_input(0) is x
    np.testing.assert_array_equal(run(network, layer.get_output(0), x=X23), X23)


def test_an_input_that_changes_is_inferred_again_downstream():
    network = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    c = network.add_constant((1, 5), np.zeros((1, 5), np.float32)).get_output(0)
    layer = network.add_concatenation([x, c])
    layer.axis = 0
    layer.name = "join"
    with pytest.raises(trt.Error, match="'join'"):
        layer.get_output(0).shape  # noqa: B018
    x.shape = (2, 5)
    assert tuple(layer.get_output(0).shape) == (3, 5)


class Rejection(Exception):
    pass


def test_plugins_hear_of_parameters_that_change(request):
    seen = []

    @trtp.register("lazy::twice")
    def twice_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        seen.append([int(e) if e.is_constant else -1 for e in x.shape_expr])
        if seen[-1] == [6, 2]:
            raise Rejection("not this shape")
        return x.like()

    @trtp.impl("lazy::twice")
    def twice(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        np.multiply(x, 2, out=np.asarray(outputs[0]))

    network = new_network()
    (x,) = inputs_of(network, x=X23)
    layer = network.add_shuffle(x)
    layer.name = "reshape"
    layer.reshape_dims = (5,)
    with pytest.raises(trt.Error, match="'reshape'"):  # what plugins say hangs on their inputs
        network.add_plugin(trtp.op.lazy.twice(layer.get_output(0)))
    assert network.num_layers == 1 and not seen
    layer.reshape_dims = (6,)
    y = network.add_plugin(trtp.op.lazy.twice(layer.get_output(0))).get_output(0)
    network.mark_output(y)
    layer.reshape_dims = (6, 2)
    layer.reshape_dims = (3, 2)
    assert tuple(y.shape) == (3, 2)
    np.testing.assert_array_equal(trt.build(network, timing=False)(x=X23), 2 * X23.reshape(3, 2))
    x.shape = (4, 3)
    layer.reshape_dims = (6, 2)
    for _ in range(2):
        with pytest.raises(Rejection, match="not this shape"):
            y.shape  # noqa: B018
        with pytest.raises(Rejection, match="not this shape"):
            trt.build(network, timing=False)
    layer.reshape_dims = (12,)
    x12 = numbers(4, 3)
    np.testing.assert_array_equal(trt.build(network, timing=False)(x=x12), 2 * x12.reshape(12))


def test_what_models_do_in_a_network_with_parameters_set_late():
    """The ways of programs that write transformers: shapes from add_shape, every parameter behind."""
    network = new_network()
    x = network.add_input("x", trt.float32, (-1, 6))
    extents = network.add_shape(x)
    rows = network.add_slice(extents.get_output(0), (0,), (1,), (1,))
    heads = network.add_constant((2,), np.array([2, 3], np.int64))
    shape = network.add_concatenation([rows.get_output(0), heads.get_output(0)])
    shape.axis = 0
    split = network.add_shuffle(x)
    split.set_input(1, shape.get_output(0))
    split.second_transpose = (1, 0, 2)
    scores = network.add_matrix_multiply(split.get_output(0), NONE, split.get_output(0), NONE)
    scores.op1 = TRANSPOSE
    weights = network.add_softmax(scores.get_output(0))
    weights.axes = 1 << 2
    assert tuple(weights.get_output(0).shape) == (2, -1, -1)
    network.mark_output(weights.get_output(0))
    value = numbers(4, 6)
    y = trt.build(network, shapes={"x": ((1, 6), (4, 6), (8, 6))}, timing=False)(value)
    q = value.reshape(4, 2, 3).transpose(1, 0, 2)
    np.testing.assert_allclose(y, softmax(q @ q.transpose(0, 2, 1), 2), rtol=1e-5, atol=1e-6)


CLASS = re.compile(r"^class (\w+) : public (?:impl::)?(\w+) \{(.*?)^\};", re.MULTILINE | re.DOTALL)
ACCESS = re.compile(r'\b(?:set|get<[^>]*>)\(\s*"(\w+)"')


def test_both_languages_have_the_same_properties():
    """C++ names core's properties, which Python binds: what is tested of them here holds there."""
    header = ROOT / "include" / "opwright" / "layers.h"
    own, base = {}, {}
    for name, parent, body in CLASS.findall(header.read_text()):
        own[name], base[name] = set(ACCESS.findall(body)), parent
    # Two names are made of an index, plugins are objects, and `type` is what every layer has, too.
    apart = {
        "IMatrixMultiplyLayer": {"op0", "op1"},
        "IPluginV2Layer": {"plugin"},
        "IPluginV3Layer": {"plugin"},
        "IActivationLayer": {"type"},
        "IPoolingLayer": {"type"},
    }
    layers = [name for name in own if name.startswith("I")]
    assert len(layers) > 35
    for name in layers:
        in_cpp, each = set(), name
        while each in own:
            in_cpp |= own[each]
            each = base[each]
        python_class = getattr(trt, name)
        in_python = {
            member
            for member in dir(python_class)
            if isinstance(getattr(python_class, member), property)
            and not hasattr(trt.ILayer, member)
        }
        assert in_cpp ^ in_python == apart.get(name, set()), name
