"""Symbolic extents and arguments, descriptors, launch parameters."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import network, new_id, op_of


def described(shape, body):
    """Runs body(descriptor of an input of this shape); the shape that the result gives the layer."""
    plugin_id = new_id("describe")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return body(x)

    @trtp.impl(plugin_id)
    def run(x, outputs, stream): ...

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, shape)))
    return layer.get_output(0)


def extent(shape, body):
    return described(
        shape, lambda x: trtp.from_shape_expr((body(*x.shape_expr),), trt.float32)
    ).shape[0]


@pytest.mark.parametrize(
    "body, expected",
    [
        (lambda a, b: a + b, 17),
        (lambda a, b: 3 + a, 15),
        (lambda a, b: a - b, 7),
        (lambda a, b: 20 - a, 8),
        (lambda a, b: a * b, 60),
        (lambda a, b: 2 * a, 24),
        (lambda a, b: a // b, 2),
        (lambda a, b: 100 // a, 8),
        (lambda a, b: trtp.cdiv(a, b), 3),
        (lambda a, b: trtp.cdiv(a, 7), 2),
        (lambda a, b: trtp.max(a, b), 12),
        (lambda a, b: trtp.min(a, b), 5),
        (lambda a, b: trtp.max(1, 2), 2),
        (lambda a, b: a == b, 0),
        (lambda a, b: a == 12, 1),
        (lambda a, b: 12 == a, 1),
        (lambda a, b: a != b, 1),
        (lambda a, b: a < b, 0),
        (lambda a, b: b < a, 1),
        (lambda a, b: 5 < a, 1),
        (lambda a, b: a <= 12, 1),
        (lambda a, b: a > 12, 0),
        (lambda a, b: a >= 12, 1),
        (lambda a, b: a + np.int32(3), 15),
    ],
)
def test_arithmetic_of_constants(body, expected):
    assert extent((12, 5), body) == expected
    assert isinstance(extent((12, 5), body), int)


def test_constants_and_symbols():
    def constant(x):
        a = x.shape_expr[0]
        assert a.is_constant and a.constant_value() == 12 and int(a) == 12
        assert bool(a == 12) and not bool(a < 3)
        assert not a.is_fake and not a.is_size_tensor
        assert not x.is_dynamic
        return x.like()

    def dynamic(x):
        a = x.shape_expr[0]
        assert not a.is_constant and x.is_dynamic
        with pytest.raises(trt.Error, match="not constant"):
            a.constant_value()
        with pytest.raises(trt.Error, match="truth of .* is not known"):
            bool(a == 3)
        with pytest.raises(TypeError):
            a + 0.5
        assert (a - a).is_constant
        return x.like()

    described((12, 5), constant)
    assert tuple(described((-1, 5), dynamic).shape) == (-1, 5)


def test_shape_exprs():
    def body(x):
        shape = x.shape_expr
        assert len(shape) == 3 and [e.constant_value() for e in shape] == [2, 3, 4]
        assert shape[-1].constant_value() == 4 and len(shape[1:]) == 2
        assert shape.numel().constant_value() == 24
        with pytest.raises(IndexError):
            shape[3]
        with pytest.raises(trt.Error, match="read-only.*like"):
            shape[0] = 1
        out = x.like()
        out.shape_expr[0] = 7
        assert shape[0].constant_value() == 2, "the input's shape must not change"
        out.shape_expr = trtp.ShapeExprs.from_tuple((out.shape_expr[0], 9))
        with pytest.raises(trt.Error, match="int or a symbolic expression; a float came"):
            out.shape_expr[0] = 1.5
        return out

    assert tuple(described((2, 3, 4), body).shape) == (7, 9)


def test_descriptors():
    def body(x):
        assert x.dtype == trt.float32 and x.ndim == 2 and x.format == trt.TensorFormat.LINEAR
        assert x.has_shape_expr and not x.has_shape and not x.is_size_tensor and not x.is_aliased
        with pytest.raises(trt.Error, match="only in autotune and aot_impl"):
            _ = x.shape
        with pytest.raises(trt.Error, match="read-only, so its dtype"):
            x.dtype = trt.float16
        alias = x.aliased()
        assert alias.is_aliased and alias.get_aliased() is x
        with pytest.raises(trt.Error, match="called on an input's descriptor"):
            alias.aliased()
        size = trtp.size_tensor(1, 2)
        assert size.is_size_tensor and size.ndim == 0 and size.dtype == trt.int32
        assert size.opt.constant_value() == 1 and size.upper_bound.constant_value() == 2
        assert size.expr().is_size_tensor and size.index == -1
        out = x.like()
        out.dtype = trt.float16
        return out

    assert described((2, 3), body).dtype == trt.float16


def test_sym_ints():
    a = trtp.SymInt32(6)
    assert isinstance(a * 2, trtp.SymInt32) and (a * 2).constant_value() == 12
    assert isinstance(2 + trtp.SymInt64(1), trtp.SymInt64)
    assert isinstance(trtp.cdiv(trtp.SymInt8(7), 2), trtp.SymInt8)
    assert trtp.SymInt16(trtp.ShapeExpr(4)).constant_value() == 4
    assert isinstance(trtp.SymInt32(1), trtp.SymIntExpr)
    with pytest.raises(trt.Error, match="SymInt32 must be an int or a symbolic expression"):
        trtp.SymInt32("3")
    arguments = trtp.SymIntExprs(2)
    assert len(arguments) == 2
    arguments[0] = trtp.SymInt64(3)
    arguments[1] = trtp.SymFloat32(0.5)
    assert isinstance(arguments[0], trtp.SymInt64) and isinstance(arguments[1], trtp.SymFloat32)
    with pytest.raises(trt.Error, match="entry 0 .* never set"):
        trtp.SymIntExprs(1)[0]
    with pytest.raises(trt.Error, match="an extra argument"):
        arguments[0] = "x"
    mixed = trtp.SymIntExprs.from_tuple((1, trtp.SymInt8(2)))
    assert [type(e) for e in mixed] == [trtp.SymInt32, trtp.SymInt8]


def test_launch_parameters():
    params = trtp.KernelLaunchParams(grid_x=trtp.ShapeExpr(5), block_y=trtp.SymInt32(2))
    assert params.grid_x.constant_value() == 5 and params.block_y.constant_value() == 2
    assert params.grid_z.constant_value() == 1 and params.shared_mem.constant_value() == 0
    params.grid_z = 7
    assert params.grid_z.constant_value() == 7
    with pytest.raises(trt.Error, match="block_x must be an int"):
        params.block_x = 1.5


def test_shape():
    shape = trtp.Shape((2, 3, 4))
    assert tuple(shape) == (2, 3, 4) and len(shape) == 3 and shape[-1] == 4
    assert shape.numel() == 24 == int(np.prod(shape)) and not shape.is_dynamic
    assert shape.min == shape.opt == shape.max == (2, 3, 4)


def test_shapes_are_made_of_what_has_extents_and_can_be_changed():
    desc = trt.PluginTensorDesc()
    desc.dims = (2, 3)
    for given in ((2, 3), [2, 3], trt.Dims((2, 3)), np.array([2, 3]), trtp.Shape((2, 3)), desc):
        shape = trtp.Shape(given)
        shape[1] += np.int32(4)
        shape[-2] = 5
        assert shape == (5, 7) and shape.numel() == np.prod(shape) == 35 and shape.max == (5, 7)
        assert str(shape) == "Shape(5, 7)"
    assert len(trtp.Shape()) == 0 and trtp.Shape(()).numel() == 1
    with pytest.raises(IndexError):
        shape[2] = 1
    with pytest.raises(TypeError):
        shape["a"] = 1
    dynamic = trt.DynamicPluginTensorDesc()
    dynamic.desc, dynamic.min, dynamic.opt, dynamic.max = desc, (1, 3), (2, 3), (9, 3)
    assert trtp.Shape(dynamic).max == (9, 3)
    open_shape = trtp.Shape((-1, 3))
    assert open_shape.is_dynamic
    with pytest.raises(trt.Error, match="the range of those that are -1 is not known"):
        assert open_shape.max


def test_descriptors_are_made_by_their_classes():
    desc = trtp.TensorDesc((10, trtp.ShapeExpr(2)), trt.int8, trt.TensorFormat.HWC, 0.5)
    assert (desc.dtype, desc.format, desc.scale) == (trt.int8, trt.TensorFormat.HWC, 0.5)
    assert [int(extent) for extent in desc.shape_expr] == [10, 2]
    assert trtp.TensorDesc(dtype=trt.int32).dtype == trt.int32
    assert not trtp.TensorDesc().has_shape_expr
    size = trtp.SizeTensorDesc(trtp.ShapeExpr(3), trtp.ShapeExpr(9))
    assert size.is_size_tensor and int(size.upper_bound) == 9 and size.ndim == 0
    with pytest.raises(TypeError, match="functions are handed it"):
        trtp.ShapeInput((2,))
    extra = trtp.SymExprs(2)
    extra[0], extra[1] = trtp.SymInt32(3), 4
    assert [each.constant_value() for each in extra] == [3, 4]
