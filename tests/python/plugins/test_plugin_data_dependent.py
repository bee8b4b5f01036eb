"""Plugins whose output shapes depend on data: size tensors, what follows them, and what they may not be."""

from __future__ import annotations

from functools import partial
from typing import Tuple

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, op_of

SUM = trt.ElementWiseOperation.SUM
ROWS = np.array([[1, 2], [0, 0], [3, 0], [0, 0], [0, 4], [5, 6]], np.float32)


def keep_rows(size_type=trt.int32) -> str:
    """The rows that are not zero, and how many they are."""
    plugin_id = new_id("keep_rows")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
        assert size.is_size_tensor and size.index == -1
        size.dtype = size_type
        out = x.like()
        out.shape_expr[0] = size.expr()
        return out, size

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        out, size = outputs
        assert out.is_data_dependent and not size.is_data_dependent and size.shape == ()
        assert out.shape == x.shape, "the upper bound"
        rows = np.asarray(x)
        rows = rows[rows.any(1)]
        np.asarray(out)[: len(rows)] = rows
        np.asarray(size)[...] = len(rows)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        element = "int64_t" if size_type == trt.int64 else "int32_t"
        source = f"""
        void keep(const float* x, int64_t n, int64_t m, float* y, {element}* size,
                  int64_t, int64_t, int64_t) {{
          int64_t kept = 0;
          for (int64_t i = 0; i < n; ++i) {{
            bool any = false;
            for (int64_t j = 0; j < m; ++j) any |= x[i * m + j] != 0;
            if (!any) continue;
            for (int64_t j = 0; j < m; ++j) y[kept * m + j] = x[i * m + j];
            ++kept;
          }}
          *size = kept;
        }}"""
        bound, width = outputs[0].shape_expr
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(bound), trtp.SymInt64(width)])
        code = aot.cpp(source, "keep", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    return plugin_id


def find_non_zero() -> str:
    """Where a matrix is not zero, found by a framework whose result is copied."""
    plugin_id = new_id("find_non_zero")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        bound = x.shape_expr.numel()
        size = trtp.size_tensor(bound // 2, bound)
        size.dtype = trt.int64
        return trtp.from_shape_expr((size.expr(), 2), dtype=trt.int32), size

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        found = np.argwhere(np.asarray(x))
        np.asarray(outputs[0].aliased(found.shape))[...] = found
        np.asarray(outputs[1])[...] = len(found)

    return plugin_id


def test_outputs_are_filled_through_a_view_of_the_true_size():
    net = network()
    layer = net.add_plugin(op_of(find_non_zero())(net.add_input("x", trt.float32, ROWS.shape)))
    engine = build(net, layer.get_output(0))
    for x in (ROWS, np.zeros_like(ROWS), np.ones_like(ROWS)):
        np.testing.assert_array_equal(engine(x), np.argwhere(x))


def kept(x):
    return x[x.any(1)]


def increment() -> str:
    """An ordinary plugin: x + 1."""
    plugin_id = new_id("increment")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        assert not outputs[0].is_data_dependent
        np.asarray(outputs[0])[...] = np.asarray(x) + 1

    return plugin_id


def increment_in_place() -> str:
    plugin_id = new_id("increment_")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(x)[...] += 1

    return plugin_id


def plugin(net, plugin_id, *tensors, aot=False, **attributes):
    layer = net.add_plugin(op_of(plugin_id)(*tensors, **attributes), aot=aot)
    return [layer.get_output(i) for i in range(layer.num_outputs)]


def inputs():
    """Arrays with none, some, and all rows kept."""
    return [ROWS, np.zeros_like(ROWS), np.ones_like(ROWS), ROWS[::-1].copy()]


def both(engine, tmp_path):
    """The engine, and itself saved and loaded."""
    engine.save(tmp_path / "engine")
    return engine, trt.load(tmp_path / "engine")


def test_a_size_that_a_compiled_kernel_counts_in():
    plugin_id = new_id("count")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
        return trtp.from_shape_expr((size.expr(),), dtype=trt.float32), size

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        source = """
        void count(const float* x, int64_t n, float* y, int32_t* size, int64_t, int64_t, int64_t) {
          for (int64_t i = 0; i < n; ++i)
            if (x[i] > 0) y[(*size)++] = x[i];
        }"""
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(x.shape_expr[0])])
        code = aot.cpp(source, "count", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (6,))))
    engine = build(net, layer.get_output(0))
    for values in ([1, -1, 2, 3, -4, 5], [-1, -1, -1, 7, -1, -1], [-1] * 6):
        x = np.array(values, np.float32)
        np.testing.assert_array_equal(engine(x), x[x > 0])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size_type", [trt.int32, trt.int64])
def test_the_size_and_what_has_it(compiled, size_type, tmp_path):
    net = network()
    x = net.add_input("x", trt.float32, ROWS.shape)
    y, size = plugin(net, keep_rows(size_type), x, aot=compiled)
    assert tuple(y.shape) == (-1, 2) and tuple(size.shape) == () and size.dtype == size_type
    for engine in both(build(net, y, size), tmp_path):
        for value in inputs():
            result = engine(value)
            np.testing.assert_array_equal(result["y0"], kept(value))
            assert result["y1"].shape == () and result["y1"] == len(kept(value))
            assert result["y1"].dtype == np.dtype(trt.nptype(size_type))


def test_a_size_is_counted_up_from_zero():
    """While candidates are timed, too, which otherwise write beyond their outputs."""
    plugin_id = new_id("count")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
        return trtp.from_shape_expr((size.expr(),), dtype=x.dtype), size

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32, INT32", tactics=[1, 2])]

    @trtp.impl(plugin_id)
    def run(x, outputs, stream, tactic):
        count = np.asarray(outputs[1])
        for value in np.asarray(x):
            if value > 0:
                np.asarray(outputs[0])[int(count)] = value
                count[...] += 1

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (4,))))
    engine = build(net, layer.get_output(0), layer.get_output(1))
    for values in ([1, -1, 2, -2], [-1, -1, -1, -1], [4, 3, 2, 1], [0, 0, 0, 5]):
        x = np.array(values, np.float32)
        outputs = engine(x)
        np.testing.assert_array_equal(outputs["y0"], x[x > 0])
        assert outputs["y1"] == (x > 0).sum()


def test_what_follows(tmp_path):
    """Built-in layers, plugins, in place too, and a second plugin with a size of its own."""
    net = network()
    x = net.add_input("x", trt.float32, ROWS.shape)
    a, size = plugin(net, keep_rows(), x)
    doubled = net.add_elementwise(a, a, SUM).get_output(0)
    (b,) = plugin(net, increment(), doubled)
    (c,) = plugin(net, increment_in_place(), b)
    shifted = net.add_elementwise(
        c, net.add_constant((1, 2), np.full((1, 2), -2, np.float32)).get_output(0), SUM
    )
    d, second = plugin(net, keep_rows(trt.int64), shifted.get_output(0))
    flat = net.add_shuffle(d)
    flat.reshape_dims = (-1,)
    total = net.add_reduce(d, trt.ReduceOperation.SUM, 1, False).get_output(0)
    joined = net.add_concatenation([d, a, x]).get_output(0)
    outputs = [flat.get_output(0), total, joined, second, c]
    for engine in both(build(net, *outputs), tmp_path):
        for value in inputs():
            once = kept(value)
            twice = kept(2 * once)
            result = engine(value)
            np.testing.assert_array_equal(result["y0"], twice.ravel())
            np.testing.assert_array_equal(result["y1"], twice.sum(0))
            np.testing.assert_array_equal(result["y2"], np.concatenate([twice, once, value]))
            assert result["y3"] == len(twice)
            np.testing.assert_array_equal(result["y4"], 2 * once + 2)


def test_the_value_takes_part_in_shape_arithmetic():
    """A fill with twice as many elements plus one, of the size's own value."""
    net = network()
    x = net.add_input("x", trt.float32, ROWS.shape)
    y, size = plugin(net, keep_rows(trt.int64), x)
    extents = net.add_shape(y).get_output(0)
    two = net.add_constant((2,), np.array([2, 1], np.int64)).get_output(0)
    product = net.add_elementwise(extents, two, trt.ElementWiseOperation.PROD).get_output(0)
    shuffle = net.add_shuffle(net.add_concatenation([y, y]).get_output(0))
    shuffle.set_input(1, product)
    engine = build(net, shuffle.get_output(0), product)
    for value in inputs():
        result = engine(value)
        once = kept(value)
        np.testing.assert_array_equal(result["y0"], np.concatenate([once, once]))
        np.testing.assert_array_equal(result["y1"], [2 * len(once), 2])


def split() -> str:
    """Positive and negative elements, each with a count, in one grid of both counts."""
    plugin_id = new_id("split")

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc,
    ) -> Tuple[trtp.TensorDesc, trtp.TensorDesc, trtp.TensorDesc, trtp.TensorDesc]:
        count = x.shape_expr.numel()
        positive = trtp.size_tensor(count // 2, count)
        negative = trtp.size_tensor(1, count)
        negative.dtype = trt.int64
        grid = trtp.from_shape_expr((positive.expr(), negative.expr() + 1), x.dtype)
        both = trtp.from_shape_expr((positive.expr() + negative.expr(),), x.dtype)
        return positive, grid, both, negative

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        positive, grid, both, negative = outputs
        assert [t.is_data_dependent for t in outputs] == [False, True, True, False]
        x = np.asarray(x)
        p, n = x[x > 0], x[x < 0]
        np.asarray(positive)[...], np.asarray(negative)[...] = len(p), len(n)
        values = p[:, None] * np.append(n, 1)[None]
        # Elements lie as densely as the true extents make them.
        np.asarray(grid).reshape(-1)[: values.size] = values.reshape(-1)
        np.asarray(both)[: len(p) + len(n)] = np.concatenate([p, n])

    return plugin_id


@pytest.mark.parametrize("dynamic", [False, True])
def test_several_sizes_in_one_output_and_bounds_of_dynamic_extents(dynamic, tmp_path):
    net = network()
    x = net.add_input("x", trt.float32, (-1,) if dynamic else (6,))
    positive, grid, values, negative = plugin(net, split(), x)
    (after,) = plugin(net, increment(), grid)
    shapes = {"x": ((1,), (6,), (9,))} if dynamic else None
    rng = np.random.default_rng(0)
    for engine in both(build(net, after, values, positive, negative, shapes=shapes), tmp_path):
        for count in (6, 1, 9, 6) if dynamic else (6, 6, 6):
            value = rng.integers(-2, 3, count).astype(np.float32)
            p, n = value[value > 0], value[value < 0]
            result = engine(value)
            np.testing.assert_array_equal(result["y0"], p[:, None] * np.append(n, 1) + 1)
            np.testing.assert_array_equal(result["y1"], np.concatenate([p, n]))
            assert (result["y2"], result["y3"]) == (len(p), len(n))


class Allocator(trt.IOutputAllocator):
    """Gives fresh memory, and keeps what it heard."""

    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.memory, self.shapes, self.sizes = None, [], []

    def reallocate_output(self, name, memory, size, alignment):
        self.sizes.append(size)
        self.memory = np.full(size + alignment, 0xFF, np.uint8)
        return self.memory.ctypes.data

    def notify_shape(self, name, shape):
        self.shapes.append(tuple(shape))

    def array(self):
        """What was written."""
        count = int(np.prod(self.shapes[-1]))
        return self.memory[: 4 * count].view(np.float32).reshape(self.shapes[-1])


class AsyncAllocator(Allocator):
    """The same by the newer of the two methods."""

    def reallocate_output_async(self, name, memory, size, alignment, stream):
        assert stream == 0
        return Allocator.reallocate_output(self, name, memory, size, alignment)

    def reallocate_output(self, name, memory, size, alignment):
        raise NotImplementedError


def rows_engine(dynamic: bool, **options):
    net = network()
    x = net.add_input("x", trt.float32, (-1 if dynamic else 6, 2))
    y, _ = plugin(net, keep_rows(), x)
    shapes = {"x": ((1, 2), (6, 2), (50, 2))} if dynamic else None
    return build(net, y, shapes=shapes, **options)


@pytest.mark.parametrize("kind", [Allocator, AsyncAllocator])
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_output_allocator(dynamic, kind):
    context = rows_engine(dynamic).engine.create_execution_context()
    allocator = kind()
    assert context.set_output_allocator("y0", allocator)
    for value in [*inputs(), *([ROWS[:3].copy(), np.ones((50, 2), np.float32)] if dynamic else [])]:
        context.set_input_shape("x", value.shape)
        context.set_tensor_address("x", value.ctypes.data)
        assert context.execute_async_v3(0)
        assert allocator.sizes[-1] == value.nbytes == context.get_max_output_size("y0")
        assert allocator.shapes[-1] == kept(value).shape
        np.testing.assert_array_equal(allocator.array(), kept(value))


def test_an_address_of_ones_own():
    """As large as the upper bound; the shape is known after the run."""
    context = rows_engine(dynamic=True).engine.create_execution_context()
    value = ROWS
    assert context.set_input_shape("x", value.shape)
    assert context.get_max_output_size("y0") == value.nbytes
    assert tuple(context.get_tensor_shape("y0")) == (-1, 2)
    memory = np.full((8, 2), -1, np.float32)
    context.set_tensor_address("x", value.ctypes.data)
    context.set_tensor_address("y0", memory.ctypes.data)
    assert context.execute_async_v3(0)
    assert tuple(context.get_tensor_shape("y0")) == kept(value).shape
    np.testing.assert_array_equal(memory[: len(kept(value))], kept(value))
    assert (memory[6:] == -1).all(), "nothing is written past the bound"


# Sizes that cannot be --------------------------------------------------------------------------


def lying(say, size_type=trt.int32) -> str:
    """Claims a size of say[0] of at most 2 n + 1."""
    plugin_id = new_id("lying")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(1, 2 * x.shape_expr[0] + 1)
        size.dtype = size_type
        return trtp.from_shape_expr((size.expr(),), x.dtype), size

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = np.arange(2 * x.shape[0] + 1)
        np.asarray(outputs[1])[...] = say[0]

    return plugin_id


@pytest.mark.parametrize("wrong", [8, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("after", [False, True], ids=["output", "inner"])
def test_a_size_that_is_out_of_bounds(wrong, after, tmp_path):
    say = [3]
    plugin_id = lying(say)
    net = network()
    x = net.add_input("x", trt.float32, (-1,))
    layer = net.add_plugin(op_of(plugin_id)(x))
    layer.name = "liar"
    y = layer.get_output(0)
    expected = np.arange(3, dtype=np.float32)
    if after:
        y = net.add_elementwise(y, y, SUM).get_output(0)
        expected = 2 * expected
    value = np.zeros(3, np.float32)
    built = build(net, y, shapes={"x": ((1,), (3,), (5,))})
    for engine in both(built, tmp_path):
        context = engine.engine.create_execution_context()
        memory = np.full(16, -1, np.float32)
        context.set_input_shape("x", (3,))
        context.set_tensor_address("x", value.ctypes.data)
        context.set_tensor_address("y0", memory.ctypes.data)
        for claimed in (3, wrong, 3, wrong, 3):
            say[0] = claimed
            if claimed == 3:
                assert context.execute_async_v3(0)
                np.testing.assert_array_equal(memory[:3], expected)
                np.testing.assert_array_equal(engine(value), expected)
                continue
            for run in (partial(context.execute_async_v3, 0), partial(engine, value)):
                with pytest.raises(trt.Error) as caught:
                    run()
                message = str(caught.value)
                assert f"layer 'liar' (FunctionPlugin '{plugin_id}')" in message
                assert f"as {wrong}, which is not between 0 and its upper bound 7" in message
            assert (memory[7:] == -1).all()


def test_a_wide_size_that_is_out_of_bounds():
    say = [2**40]
    net = network()
    y, _ = plugin(net, lying(say, trt.int64), net.add_input("x", trt.float32, (2,)))
    engine = build(net, y, timing=False)
    with pytest.raises(
        trt.Error, match=f"as {2**40}, which is not between 0 and its upper bound 5"
    ):
        engine(np.zeros(2, np.float32))
    say[0] = 5
    np.testing.assert_array_equal(engine(np.zeros(2, np.float32)), np.arange(5))


@pytest.mark.parametrize("inner", [False, True])
def test_an_extent_that_is_larger_for_a_smaller_size(inner):
    """The memory is that of the upper bounds."""
    plugin_id, say = new_id("rest"), [4]

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(x.shape_expr[0], x.shape_expr[0])
        return trtp.from_shape_expr((x.shape_expr[0] + 2 - size.expr(),), x.dtype), size

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        assert outputs[0].shape == (2,)
        np.asarray(outputs[0])[...] = 7
        np.asarray(outputs[1])[...] = say[0]

    net = network()
    y, _ = plugin(net, plugin_id, net.add_input("x", trt.float32, (4,)))
    engine = build(net, *plugin(net, increment(), y) if inner else (y,), timing=False)
    value = np.zeros(4, np.float32)
    for size in (4, 1, 4, 6):
        say[0] = size
        if size == 4:
            np.testing.assert_array_equal(engine(value), [7 + inner, 7 + inner])
            continue
        message = "output 0 has the shape 5 by the size tensors .* but 2 at their upper bounds"
        with pytest.raises(trt.Error, match=message if size == 1 else "upper bound 4") as caught:
            engine(value)
        assert f"FunctionPlugin '{plugin_id}'" in str(caught.value)


def test_bounds_of_later_plugins_follow_sizes_of_earlier_ones():
    """The second plugin's bound is the extent that its input really has."""
    seen = []
    plugin_id = new_id("watch")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(1, 3 * x.shape_expr[0])
        return trtp.from_shape_expr((size.expr(), 2), x.dtype), size

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        seen.append((x.shape, outputs[0].shape))
        np.asarray(outputs[0])[...] = 1
        np.asarray(outputs[1])[...] = 3 * x.shape[0]

    net = network()
    y, _ = plugin(net, keep_rows(), net.add_input("x", trt.float32, ROWS.shape))
    z, _ = plugin(net, plugin_id, y)
    engine = build(net, z, timing=False)
    for value in inputs() * 2:
        rows = len(kept(value))
        seen.clear()
        assert engine(value).shape == (3 * rows, 2)
        assert seen == [((rows, 2), (3 * rows, 2))]


def not_returned(x: trtp.TensorDesc) -> trtp.TensorDesc:
    size = trtp.size_tensor(1, x.shape_expr[0])
    return trtp.from_shape_expr((size.expr() + 1,), x.dtype)


def returned_twice(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
    size = trtp.size_tensor(1, x.shape_expr[0])
    return size, size


def bound_of_own_size(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
    size = trtp.size_tensor(1, x.shape_expr[0])
    return size, trtp.size_tensor(1, x.shape_expr[0] - size.expr())


def negative_bound(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return trtp.size_tensor(0, -1)


def float_size(x: trtp.TensorDesc) -> trtp.TensorDesc:
    size = trtp.size_tensor(1, 2)
    size.dtype = trt.float32
    return size


def shaped_size(x: trtp.TensorDesc) -> trtp.TensorDesc:
    size = trtp.size_tensor(1, 2)
    size.shape_expr = (1,)
    return size


@pytest.mark.parametrize(
    "register, message",
    [
        (not_returned, "extent 0 of output 0 depends on a size tensor that is not among the out"),
        (returned_twice, "outputs 0 and 1 are the same size tensor"),
        (
            bound_of_own_size,
            "upper_bound of size tensor 1 depends on a size tensor of the plugin itself",
        ),
        (negative_bound, "upper bound of size tensor 0 is -1"),
        (float_size, "size tensor 0 has the type FP32; expected INT32 or INT64"),
        (shaped_size, "size tensor.* must be a scalar"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_sizes_that_register_cannot_describe(register, message):
    plugin_id = new_id("bad")
    trtp.register(plugin_id)(register)
    trtp.impl(plugin_id)(lambda x, outputs, stream: None)
    net = network()
    with pytest.raises(trt.Error, match=message) as caught:
        plugin(net, plugin_id, net.add_input("x", trt.float32, (4,)))
    assert "FunctionPlugin" in str(caught.value)


def test_an_upper_bound_that_no_memory_can_hold():
    plugin_id = new_id("huge")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        n = x.shape_expr[0]
        size = trtp.size_tensor(1, n * n * n * n * n * n * n)
        return trtp.from_shape_expr((size.expr(), size.expr()), x.dtype), size

    trtp.impl(plugin_id)(lambda x, outputs, stream: None)
    for extent in (600, -1):
        net = network()
        with pytest.raises(trt.Error, match="does not fit 64 bits|bytes"):
            y, size = plugin(net, plugin_id, net.add_input("x", trt.float32, (extent,)))
            build(net, y, shapes={"x": ((1,), (2,), (1000,))} if extent < 0 else None)
