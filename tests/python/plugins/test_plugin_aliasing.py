"""Plugins that work in place: aliasing an output to an input never changes what an engine computes."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Tuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, op_of

X = np.arange(24, dtype=np.float32).reshape(4, 6)
SUM, SUB, MAX = (
    trt.ElementWiseOperation.SUM,
    trt.ElementWiseOperation.SUB,
    trt.ElementWiseOperation.MAX,
)


def add_in_place() -> str:
    """x += by, as a Python function and as a compiled kernel."""
    plugin_id = new_id("add_")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, by: int, unused: int = 0) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x, by, outputs, stream):
        assert outputs[0].data_ptr == x.data_ptr
        np.asarray(outputs[0])[...] += by

    @trtp.aot_impl(plugin_id)
    def compile(x, by, outputs, tactic):
        source = (
            "void add(const float* x, int64_t n, int64_t by, float* y, int64_t, int64_t, int64_t) {"
            "  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + by; }"
        )
        count = x.shape_expr.numel()
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(count), trtp.SymInt64(by)])
        code = aot.cpp(source, "add", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    return plugin_id


def accumulate() -> str:
    """x += y."""
    plugin_id = new_id("accumulate_")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, y: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x, y, outputs, stream):
        assert np.asarray(x).flags.writeable and not np.asarray(y).flags.writeable
        x, y = np.asarray(x), np.asarray(y)
        for i in range(len(x)):  # row by row: a y in the memory of x would show
            x[i] += y[len(x) - 1 - i]

    return plugin_id


def rotate() -> str:
    """(x, y) <- (y + 1, x - 1), both in place."""
    plugin_id = new_id("rotate_")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, y: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        return x.aliased(), y.aliased()

    @trtp.impl(plugin_id)
    def run(x, y, outputs, stream):
        before = np.array(x)
        np.asarray(outputs[0])[...] = np.asarray(y) + 1
        np.asarray(outputs[1])[...] = before - 1

    return plugin_id


def mixed() -> str:
    """(x - y, y + 3), the second one in place."""
    plugin_id = new_id("mixed_")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, y: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        return x.like(), y.aliased()

    @trtp.impl(plugin_id)
    def run(x, y, outputs, stream):
        np.asarray(outputs[0])[...] = np.asarray(x) - np.asarray(y)
        np.asarray(outputs[1])[...] += 3

    return plugin_id


def negate() -> str:
    """An ordinary plugin: 1 - x."""
    plugin_id = new_id("negate")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = 1 - np.asarray(x)

    return plugin_id


# Random graphs ---------------------------------------------------------------------------------

PLUGINS = {make.__name__: make() for make in (add_in_place, accumulate, rotate, mixed, negate)}


def reference(kind: str, operands):
    """The results of a node, from NumPy, without touching the operands."""
    x, y = operands
    both = np.stack([x, y])
    return {
        "add_in_place": lambda: [x + 2],
        "add_compiled": lambda: [x + 2],
        "accumulate": lambda: [x + y[::-1]],
        "rotate": lambda: [y + 1, x - 1],
        "mixed": lambda: [x - y, y + 3],
        "negate": lambda: [1 - x],
        "sum": lambda: [x + y],
        "max": lambda: [both.max(0)],
        "difference": lambda: [x - y],
        "relu": lambda: [np.maximum(x, 0)],
        "reshape": lambda: [x.reshape(-1, 2 if x.shape[1] == 6 else 6)],
        "transpose": lambda: [x.T],
        "identity": lambda: [x],
        "concatenate": lambda: [np.concatenate([x, y])],
    }[kind]()


def add_node(net, kind: str, operands):
    """The same node in a network."""
    x, y = operands
    if kind in ("add_in_place", "add_compiled"):
        call = op_of(PLUGINS["add_in_place"])(x, by=2)
        layer = net.add_plugin(call, aot=kind == "add_compiled")
    elif kind in PLUGINS:
        tensors = (x,) if kind == "negate" else (x, y)
        layer = net.add_plugin(op_of(PLUGINS[kind])(*tensors))
    elif kind in ("sum", "max", "difference"):
        operation = {"sum": SUM, "max": MAX, "difference": SUB}[kind]
        layer = net.add_elementwise(x, y, operation)
    elif kind == "relu":
        layer = net.add_activation(x, trt.ActivationType.RELU)
    elif kind == "identity":
        layer = net.add_identity(x)
    elif kind == "concatenate":
        layer = net.add_concatenation([x, y])
    else:
        layer = net.add_shuffle(x)
        if kind == "reshape":
            layer.reshape_dims = (-1, 2 if x.shape[1] == 6 else 6)
        else:
            layer.first_transpose = (1, 0)
    return [layer.get_output(i) for i in range(layer.num_outputs)]


KINDS = [
    *["add_in_place", "accumulate", "rotate", "mixed"] * 2,  # what this is about
    *["add_compiled", "negate", "sum", "max", "difference", "relu"],
    *["reshape", "reshape", "transpose", "identity", "concatenate"],
]
node = st.tuples(st.sampled_from(KINDS), st.integers(0, 30), st.integers(0, 30))
graph = st.fixed_dictionaries(
    {
        "inputs": st.integers(1, 3),
        "dynamic": st.booleans(),
        "nodes": st.lists(node, min_size=1, max_size=9),
        "outputs": st.lists(st.integers(0, 30), min_size=1, max_size=4),
        "timing": st.sampled_from([False, False, False, True]),
    }
)


class Graph:
    """A network of random nodes beside what NumPy makes of them."""

    def __init__(self, spec):
        self.spec, self.net = spec, network()
        rows = -1 if spec["dynamic"] else 4
        self.inputs = [f"x{i}" for i in range(spec["inputs"])]
        tensors = [self.net.add_input(name, trt.float32, (rows, 6)) for name in self.inputs]
        if not spec["dynamic"]:
            tensors.append(self.net.add_constant((4, 6), self.constant()).get_output(0))
        self.chosen = []  # the operands of each node, by number
        values = self.sources(4)
        for kind, first, second in spec["nodes"]:
            x = first % len(tensors)
            alike = [i for i, value in enumerate(values) if value.shape == values[x].shape]
            # With a dynamic extent only what has the same expression is known to be alike.
            if kind == "transpose" and spec["dynamic"]:
                kind = "identity"
            y = alike[second % len(alike)]
            self.chosen.append((kind, x, y))
            tensors += add_node(self.net, kind, (tensors[x], tensors[y]))
            values += reference(kind, (values[x], values[y]))
        sources = len(values) - len(values[len(self.sources(4)) :])
        self.outputs = []
        for number in spec["outputs"]:
            number = sources + number % (len(values) - sources)
            if number not in self.outputs:
                self.outputs.append(number)
        for position, number in enumerate(self.outputs):
            tensors[number].name = f"y{position}"
            self.net.mark_output(tensors[number])

    @staticmethod
    def constant():
        return (np.arange(24) % 5 - 2).astype(np.float32).reshape(4, 6)

    def sources(self, rows):
        rng = np.random.default_rng([rows, len(self.inputs)])
        values = [rng.integers(-4, 5, (rows, 6)).astype(np.float32) for _ in self.inputs]
        return values if self.spec["dynamic"] else [*values, self.constant()]

    def expected(self, rows):
        values = self.sources(rows)
        for kind, x, y in self.chosen:
            values += reference(kind, (values[x], values[y]))
        return {f"y{i}": values[number] for i, number in enumerate(self.outputs)}

    def shapes(self):
        if not self.spec["dynamic"]:
            return None
        return {name: ((1, 6), (4, 6), (8, 6)) for name in self.inputs}


def check_call(engine, graph, rows):
    """`engine(...)` computes what NumPy does and leaves its arguments alone."""
    arguments = graph.sources(rows)[: len(graph.inputs)]
    kept = [argument.copy() for argument in arguments]
    results = engine(*arguments)
    expected = graph.expected(rows)
    results = results if isinstance(results, dict) else {"y0": results}
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)
    for argument, before in zip(arguments, kept):
        np.testing.assert_array_equal(argument, before)


def check_context(context, graph, rows):
    """A context does too, and changes no input but those that an output is aliased to."""
    engine = context.engine
    memory = dict(zip(graph.inputs, graph.sources(rows)))
    before = {name: value.copy() for name, value in memory.items()}
    expected = graph.expected(rows)
    changed = {}
    for name, value in expected.items():
        aliased = engine.get_aliased_input_tensor(name)
        memory[name] = memory[aliased] if aliased else np.full(value.shape, np.nan, np.float32)
        if aliased:
            assert aliased not in changed, "two outputs cannot have one memory"
            changed[aliased] = name
    for name, value in memory.items():
        if name in before:
            context.set_input_shape(name, value.shape)
        context.set_tensor_address(name, value.ctypes.data)
    assert context.execute_async_v3(0)
    for name, value in expected.items():
        np.testing.assert_array_equal(memory[name], value, err_msg=name)
    for name, value in before.items():
        if name not in changed:
            np.testing.assert_array_equal(memory[name], value, err_msg=name)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(graph)
def test_random_graphs_compute_what_numpy_does(spec):
    graph = Graph(spec)
    engine = trt.build(graph.net, shapes=graph.shapes(), timing=spec["timing"])
    with tempfile.TemporaryDirectory() as folder:
        engine.save(Path(folder) / "engine")
        loaded = trt.load(Path(folder) / "engine")
    context = engine.engine.create_execution_context()
    for rows in (4, 7, 1, 4) if spec["dynamic"] else (4, 4):
        check_call(engine, graph, rows)
        check_call(loaded, graph, rows)
        check_context(context, graph, rows)
        check_context(loaded.engine.create_execution_context(), graph, rows)


# One thing at a time ---------------------------------------------------------------------------


def chain(net, tensor, *kinds, by: int = 2):
    """The tensor after in-place additions."""
    for _ in kinds or ("once",):
        tensor = net.add_plugin(op_of(PLUGINS["add_in_place"])(tensor, by=by), aot=False)
        tensor = tensor.get_output(0)
    return tensor


def doubled(net, name: str = "x"):
    """A network input, and a tensor in the engine's own memory."""
    x = net.add_input(name, trt.float32, X.shape)
    return x, net.add_elementwise(x, x, SUM).get_output(0)


def add(net, a, b):
    return net.add_elementwise(a, b, SUM).get_output(0)


def reshape(net, tensor, dims):
    layer = net.add_shuffle(tensor)
    layer.reshape_dims = dims
    return layer.get_output(0)


def test_a_chain_of_in_place_plugins_needs_no_copies():
    """It works in the memory of the network output."""
    addresses = []

    def impl(x, outputs, stream):
        addresses.append(x.data_ptr)
        np.asarray(x)[...] += 1

    plugin_id = define(in_place, impl=impl)
    net = network()
    _, y = doubled(net)
    for _ in range(3):
        y = net.add_plugin(op_of(plugin_id)(y)).get_output(0)
    engine = build(net, y, timing=False)
    addresses.clear()
    result = np.empty_like(X)
    assert run_context(engine, x=X, y0=result)
    np.testing.assert_array_equal(result, 2 * X + 3)
    assert addresses == [result.ctypes.data] * 3
    assert len(engine.layers) == 4


def test_a_tensor_that_is_read_later_is_copied():
    net = network()
    x, y = doubled(net)
    engine = build(net, add(net, chain(net, y), y))
    np.testing.assert_array_equal(engine(X), 4 * X + 2)
    assert "Reformat" in [layer["LayerType"] for layer in engine.layers]


def test_a_view_of_a_tensor_keeps_its_elements():
    """A reshape shares its operand's memory, which the plugin may then not change."""
    net = network()
    x, y = doubled(net)
    view = reshape(net, y, (24,))
    changed = chain(net, y)
    engine = build(net, add(net, reshape(net, changed, (24,)), view), view)
    results = engine(X)
    np.testing.assert_array_equal(results["y0"], 4 * X.ravel() + 2)
    np.testing.assert_array_equal(results["y1"], 2 * X.ravel())


def test_a_tensor_keeps_its_elements_when_a_view_is_changed():
    net = network()
    x, y = doubled(net)
    changed = chain(net, reshape(net, y, (24,)))
    engine = build(net, add(net, reshape(net, changed, X.shape), y))
    np.testing.assert_array_equal(engine(X), 4 * X + 2)


def test_concatenated_tensors_keep_their_elements():
    net = network()
    x, y = doubled(net)
    both = net.add_concatenation([y, chain(net, y)]).get_output(0)
    engine = build(net, chain(net, both), y)
    results = engine(X)
    np.testing.assert_array_equal(results["y0"], np.concatenate([2 * X, 2 * X + 2]) + 2)
    np.testing.assert_array_equal(results["y1"], 2 * X)


def test_weights_never_change(tmp_path):
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    weights = net.add_constant(X.shape, np.ones_like(X)).get_output(0)
    result = add(net, chain(net, weights, 1, 2), add(net, weights, x))
    engine = build(net, result)
    engine.save(tmp_path / "engine")
    for each in (engine, trt.load(tmp_path / "engine")):
        for _ in range(3):
            np.testing.assert_array_equal(each(X), X + 6)


def test_the_same_tensor_twice():
    net = network()
    x, y = doubled(net)
    layer = net.add_plugin(op_of(PLUGINS["rotate"])(y, y))
    results = build(net, layer.get_output(0), layer.get_output(1))(X)
    np.testing.assert_array_equal(results["y0"], 2 * X + 1)
    np.testing.assert_array_equal(results["y1"], 2 * X - 1)


def run_context(engine, **memory):
    """Runs a context on these arrays."""
    context = engine.engine.create_execution_context()
    for name, array in memory.items():
        context.set_tensor_address(name, array.ctypes.data)
    return context.execute_async_v3(0)


def in_place_engine(net=None):
    """y0 = x + 4 in the memory of x."""
    net = net or network()
    engine = build(net, chain(net, net.add_input("x", trt.float32, X.shape), 1, 2), timing=False)
    assert engine.engine.get_aliased_input_tensor("y0") == "x"
    assert [layer["LayerType"] for layer in engine.layers] == ["FunctionPlugin"] * 2
    return engine


def test_an_output_that_is_a_network_input():
    """The result lies in the caller's memory, and where the output is bound besides."""
    engine = in_place_engine()
    for names in (("x", "y0"), ("x",)):
        memory = X.copy()
        assert run_context(engine, **dict.fromkeys(names, memory))
        np.testing.assert_array_equal(memory, X + 4)
    memory, result = X.copy(), np.empty_like(X)
    assert run_context(engine, x=memory, y0=result)
    np.testing.assert_array_equal(result, X + 4)
    np.testing.assert_array_equal(memory, X + 4)
    kept = X.copy()
    np.testing.assert_array_equal(engine(kept), X + 4)
    np.testing.assert_array_equal(kept, X)


def test_a_context_whose_in_place_output_moves():
    engine = in_place_engine()
    context = engine.engine.create_execution_context()
    arrays = [X.copy(), np.zeros_like(X), np.zeros_like(X)]
    expected = [X.copy(), np.zeros_like(X), np.zeros_like(X)]
    for x, y in [(0, 1), (1, 0), (1, 2), (2, 2), (2, 0), (0, None), (0, 1)]:
        context.set_tensor_address("x", arrays[x].ctypes.data)
        context.set_tensor_address("y0", 0 if y is None else arrays[y].ctypes.data)
        assert context.execute_async_v3(0)
        expected[x] = expected[x] + 4
        if y is not None:
            expected[y] = expected[x].copy()
        for array, wanted in zip(arrays, expected):
            np.testing.assert_array_equal(array, wanted)


def test_an_in_place_output_must_not_overlap_its_input():
    engine = in_place_engine()
    memory = np.zeros(2 * X.size, np.float32)
    with pytest.raises(trt.Error, match="output 'y0' at .* overlaps input 'x' at .*same address"):
        run_context(engine, x=memory, y0=memory[1:])
    assert run_context(engine, x=memory, y0=memory[X.size :])
    np.testing.assert_array_equal(memory, np.full_like(memory, 4))


def test_a_result_that_is_computed_in_a_copy_is_in_the_input_at_the_end():
    """x is read after the plugin, which therefore works on a copy."""
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    y = chain(net, x, 1)
    engine = build(net, y, net.add_elementwise(x, y, SUM).get_output(0), timing=False)
    if engine.engine.get_aliased_input_tensor("y0") is None:
        pytest.skip("the output is no alias")
    memory, y0, y1 = X.copy(), np.empty_like(X), np.empty_like(X)
    assert run_context(engine, x=memory, y0=y0, y1=y1)
    for array in (memory, y0):
        np.testing.assert_array_equal(array, X + 2)
    np.testing.assert_array_equal(y1, 2 * X + 2)


class Allocator(trt.IOutputAllocator):
    """Gives an array, and remembers what it hears."""

    def __init__(self, array: np.ndarray) -> None:
        trt.IOutputAllocator.__init__(self)
        self.array, self.shape = array, None

    def reallocate_output_async(self, name, memory, size, alignment, stream):
        assert size <= self.array.nbytes
        return self.array.ctypes.data

    def notify_shape(self, name, shape):
        self.shape = tuple(shape)


def test_an_output_allocator_of_an_in_place_output():
    """As Polygraphy's runner binds outputs."""
    engine = in_place_engine()
    context = engine.engine.create_execution_context()
    whole = np.tile(X.reshape(-1), 2)
    memory = whole[: X.size].reshape(X.shape)
    context.set_tensor_address("x", memory.ctypes.data)
    for run, array in enumerate([np.empty_like(X), memory, np.empty_like(X)], start=1):
        allocator = Allocator(array)
        assert context.set_output_allocator("y0", allocator)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(array, X + 4 * run)
        np.testing.assert_array_equal(memory, X + 4 * run)
        assert allocator.shape == X.shape
    context.set_output_allocator("y0", Allocator(whole[1:]))
    with pytest.raises(trt.Error, match="overlaps input 'x'"):
        context.execute_async_v3(0)


@pytest.mark.parametrize("case", ["not an output", "identity", "two outputs", "the input itself"])
def test_otherwise_network_inputs_do_not_change(case):
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    changed = chain(net, x)
    if case == "not an output":
        outputs, expected = [add(net, changed, changed)], [2 * X + 4]
    elif case == "identity":
        before = net.add_identity(x).get_output(0)
        outputs, expected = [chain(net, before)], [X + 2]
    elif case == "two outputs":
        outputs, expected = [changed, chain(net, changed)], [X + 2, X + 4]
    else:
        outputs, expected = [changed, net.add_identity(x).get_output(0)], [X + 2, X]
    engine = build(net, *outputs)
    memory = {f"y{i}": np.full_like(X, np.nan) for i in range(len(outputs))}
    aliased = [name for name in memory if engine.engine.get_aliased_input_tensor(name)]
    given = X.copy()
    if case == "the input itself":
        assert aliased == ["y0"]
        memory["y0"] = given
    else:
        assert aliased == []
    assert run_context(engine, x=given, **memory)
    for array, value in zip(memory.values(), expected):
        np.testing.assert_array_equal(array, value)
    if not aliased:
        np.testing.assert_array_equal(given, X)


def test_the_memory_of_an_input_that_others_read_changes_last():
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    engine = build(net, chain(net, x), net.add_elementwise(x, x, MAX).get_output(0))
    assert engine.engine.get_aliased_input_tensor("y0") == "x"
    memory, other = X.copy(), np.empty_like(X)
    assert run_context(engine, x=memory, y1=other)
    np.testing.assert_array_equal(memory, X + 2)
    np.testing.assert_array_equal(other, X)


def test_an_output_allocator_gets_an_aliased_output_too():
    class Allocator(trt.IOutputAllocator):
        def __init__(self):
            trt.IOutputAllocator.__init__(self)
            self.memory, self.shape = np.empty_like(X), None

        def reallocate_output(self, name, memory, size, alignment):
            return self.memory.ctypes.data

        def notify_shape(self, name, shape):
            self.shape = tuple(shape)

    net = network()
    engine = build(net, chain(net, net.add_input("x", trt.float32, X.shape)))
    context = engine.engine.create_execution_context()
    memory, allocator = X.copy(), Allocator()
    context.set_tensor_address("x", memory.ctypes.data)
    assert context.set_output_allocator("y0", allocator)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(allocator.memory, X + 2)
    assert allocator.shape == X.shape


def test_contexts_at_once():
    net = network()
    x, y = doubled(net)
    engine = build(net, add(net, chain(net, y, 1, 2), y))
    wrong = []

    def work(seed):
        value = np.full_like(X, seed)
        wrong.extend(seed for _ in range(30) if not np.array_equal(engine(value), 4 * value + 4))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Descriptors, tensors and what may be written --------------------------------------------------


def peek(tensors: Tuple[int, ...] = ()) -> Tuple[str, list]:
    """A plugin (x, y, k) -> (x in place, new), and what its impl saw; it does not take k."""
    plugin_id, seen = new_id("peek"), []

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc, y: trtp.TensorDesc, k: int
    ) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        assert not x.is_aliased and x.get_aliased() is None
        out = x.aliased()
        assert out.is_aliased and out.get_aliased() is x and not out.is_size_tensor
        return out, y.like()

    @trtp.impl(plugin_id)
    def run(x, y, outputs, stream):
        a, b = outputs
        assert a.is_aliased and a.get_aliased() is x and not a.is_data_dependent
        assert not x.is_aliased and not b.is_aliased and b.get_aliased() is None
        view = a.aliased((24,))
        assert view.is_aliased and view.get_aliased() is a and view.data_ptr == x.data_ptr
        np.asarray(view)[...] += 5
        np.copyto(np.asarray(b), np.asarray(y))
        seen.append(
            {
                "numpy": [np.asarray(t).flags.writeable for t in (x, y, a, b)],
                "view": np.asarray(y.aliased((24,))).flags.writeable,
                "interface": [t.__array_interface__["data"][1] for t in (x, y, a, b)],
                "dlpack": [np.from_dlpack(t).flags.writeable for t in (x, y, a, b)],
                "buffer": [memoryview(t).readonly for t in (x, y, a, b)],
            }
        )

    return plugin_id, seen


def test_inputs_are_read_only_unless_an_output_is_aliased_to_them(tmp_path):
    """In a loaded engine too, which lacks the attribute that only register takes."""
    plugin_id, seen = peek()
    net = network()
    x, y = doubled(net)
    layer = net.add_plugin(op_of(plugin_id)(y, x, k=1))
    engine = build(net, layer.get_output(0), layer.get_output(1), timing=False)
    engine.save(tmp_path / "engine")
    for each in (engine, trt.load(tmp_path / "engine")):
        seen.clear()
        results = each(X)
        np.testing.assert_array_equal(results["y0"], 2 * X + 5)
        np.testing.assert_array_equal(results["y1"], X)
        assert seen == [
            {
                "numpy": [True, False, True, True],
                "view": False,
                "interface": [False, True, False, False],
                "dlpack": [True, False, True, True],
                "buffer": [False, True, False, False],
            }
        ]


def test_the_old_dlpack_cannot_say_read_only_and_is_refused_for_inputs():
    plugin_id = new_id("old")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.copyto(np.asarray(outputs[0]), np.asarray(x))
        x.__dlpack__()

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, X.shape)))
    try:
        build(net, layer.get_output(0), timing=False)(X)
    except (BufferError, trt.Error) as error:
        assert "read-only" in str(error)


def test_a_write_to_an_input_is_an_error(tmp_path):
    plugin_id = new_id("writes")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, k: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(x)[...] = 0

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, X.shape), k=1))
    engine = build(net, layer.get_output(0), timing=False)
    engine.save(tmp_path / "engine")
    for each in (engine, trt.load(tmp_path / "engine")):
        with pytest.raises(ValueError, match="read-only"):
            each(X)


def test_a_plugin_that_register_alone_can_describe_runs_it_once(tmp_path):
    """Making contexts, of built and of loaded engines, does not call register."""
    plugin_id, calls = new_id("counted"), []

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        calls.append(x)
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(x)[...] += 1

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, X.shape)))
    engine = build(net, layer.get_output(0), timing=False)
    engine.save(tmp_path / "engine")
    count = len(calls)
    np.testing.assert_array_equal(engine(X), X + 1)
    np.testing.assert_array_equal(trt.load(tmp_path / "engine")(X), X + 1)
    assert len(calls) == count


def define(register, **functions) -> str:
    plugin_id = new_id("defined")
    trtp.register(plugin_id)(register)
    trtp.impl(plugin_id)(functions.get("impl", lambda x, outputs, stream: None))
    if "autotune" in functions:
        trtp.autotune(plugin_id)(functions["autotune"])
    return plugin_id


def add_defined(plugin_id: str, count: int = 1):
    net = network()
    inputs = [net.add_input(f"x{i}", trt.float32, X.shape) for i in range(count)]
    return net, net.add_plugin(op_of(plugin_id)(*inputs))


def twice(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
    return x.aliased(), x.aliased()


def other_type(x: trtp.TensorDesc) -> trtp.TensorDesc:
    out = x.aliased()
    out.dtype = trt.float16
    return out


def other_shape(x: trtp.TensorDesc) -> trtp.TensorDesc:
    out = x.aliased()
    out.shape_expr[0] += 1
    return out


def of_an_output(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like().aliased()


@pytest.mark.parametrize(
    "register, message",
    [
        (twice, "outputs 0 and 1 are both aliased to input 0; only one output can take"),
        (other_type, r"output 0 is aliased to input 0 \(FP32 .*must have its type and shape"),
        (other_shape, r"output 0 is aliased to input 0 .*must have its type and shape"),
        (of_an_output, r"aliased\(\) .* is called on an input's descriptor"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_aliases_that_cannot_be(register, message):
    plugin_id = define(register)
    with pytest.raises(trt.Error, match=message) as caught:
        add_defined(plugin_id)
    if register is not of_an_output:
        assert plugin_id in str(caught.value)


def in_place(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.aliased()


def test_combinations_keep_an_aliased_pair_in_one_type_and_format():
    seen = set()

    def impl(x, outputs, stream):
        seen.add((x.dtype, outputs[0].dtype))
        np.asarray(x)[...] += 1

    def autotune(x, outputs):
        return [trtp.AutoTuneCombination("FP32*FP16, FP32*FP16")]

    net, layer = add_defined(define(in_place, impl=impl, autotune=autotune))
    np.testing.assert_array_equal(build(net, layer.get_output(0), fp16=True)(X), X + 1)
    assert seen == {(trt.float32, trt.float32), (trt.float16, trt.float16)}


def test_autotune_that_never_keeps_an_aliased_pair_together_is_an_error():
    def autotune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP16")]

    plugin_id = define(in_place, autotune=autotune)
    net, layer = add_defined(plugin_id)
    with pytest.raises(trt.Error, match="output 0 is FP16 but aliased to input 0, which is FP32"):
        build(net, layer.get_output(0), fp16=True)


def test_a_failed_run_leaves_the_engine_usable():
    fail = [False]

    def impl(x, outputs, stream):
        np.asarray(x)[...] += 1
        if fail[0]:
            raise RuntimeError("half way")

    net = network()
    x, y = doubled(net)
    layer = net.add_plugin(op_of(define(in_place, impl=impl))(y))
    engine = build(net, add(net, layer.get_output(0), y))
    context = engine.engine.create_execution_context()
    result = np.empty_like(X)
    context.set_tensor_address("x", X.ctypes.data)
    context.set_tensor_address("y0", result.ctypes.data)
    for failing in (True, False, True, False):
        fail[0] = failing
        if failing:
            with pytest.raises(RuntimeError, match="half way"):
                context.execute_async_v3(0)
            with pytest.raises(RuntimeError, match="half way"):
                engine(X)
        else:
            assert context.execute_async_v3(0)
            np.testing.assert_array_equal(result, 4 * X + 1)
            np.testing.assert_array_equal(engine(X), 4 * X + 1)
