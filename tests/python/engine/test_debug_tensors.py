"""Tensors within a network that a listener sees while an engine runs."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from cuda_driver import DeviceArray, Stream, driver
from plugin_testing import network, new_id, op_of

X = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4)
RELU = trt.ActivationType.RELU
NEG, ABS = trt.UnaryOperation.NEG, trt.UnaryOperation.ABS
on_devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]
)


class Listener(trt.IDebugListener):
    """Copies what it sees, in the way of the programs that use debug tensors."""

    def __init__(self) -> None:
        trt.IDebugListener.__init__(self)
        self.seen: list[tuple[str, np.ndarray]] = []
        self.locations: set[trt.TensorLocation] = set()
        self.streams: set[int] = set()

    def process_debug_tensor(
        self,
        addr: int,
        location: trt.TensorLocation,
        type: trt.DataType,
        shape: Any,
        name: str,
        stream: int,
    ) -> None:
        dtype = np.dtype(trt.nptype(type))
        if addr == 0:
            assert np.prod(shape) == 0
            values = np.empty(shape, dtype)
        elif location == trt.TensorLocation.HOST:
            values = np.empty(shape, dtype)
            ctypes.memmove(values.ctypes.data, addr, values.nbytes)
        else:
            values = driver().read(addr, tuple(shape), dtype)
        self.seen.append((name, values))
        self.locations.add(location)
        self.streams.add(stream)

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]

    def __getitem__(self, name: str) -> np.ndarray:
        [values] = [values for known, values in self.seen if known == name]
        return values


class Context:
    """An execution context and the memory of its inputs and outputs."""

    def __init__(self, engine: trt.Engine, device: str, **inputs: np.ndarray) -> None:
        self.engine = engine.engine
        self.context = self.engine.create_execution_context()
        self.on_gpu = device == "cuda"
        self.memory = {}
        for name in [self.engine[i] for i in range(self.engine.num_io_tensors)]:
            values = inputs.get(name)
            if values is None:
                shape = tuple(self.context.get_tensor_shape(name))
                values = np.empty(shape, trt.nptype(self.engine.get_tensor_dtype(name)))
            elif -1 in self.engine.get_tensor_shape(name):
                assert self.context.set_input_shape(name, values.shape)
            on_host = self.engine.get_tensor_location(name) == trt.TensorLocation.HOST
            if self.on_gpu and not on_host:
                self.memory[name] = DeviceArray(values)
                address = self.memory[name].ptr
            else:
                self.memory[name] = np.array(values)
                address = self.memory[name].ctypes.data
            assert self.context.set_tensor_address(name, address)

    def run(self, stream: int = 0) -> None:
        assert self.context.execute_async_v3(stream)

    def output(self, name: str) -> np.ndarray:
        values = self.memory[name]
        return values.numpy() if isinstance(values, DeviceArray) else values


def build(net: trt.INetworkDefinition, device: str, *outputs: trt.ITensor, **options: Any):
    for tensor in outputs:
        net.mark_output(tensor)
    return trt.build(net, device=device, timing=False, **options)


def listen(context: Context, *names: str) -> Listener:
    """A listener to these tensors, or to all."""
    listener = Listener()
    assert context.context.set_debug_listener(listener)
    for name in names:
        assert context.context.set_tensor_debug_state(name, True)
    if not names:
        assert context.context.set_all_tensors_debug_state(True)
    return listener


class Chain:
    """relu, abs, neg of x [2, 3, 4], which become one kernel, and the tensors r, a, y behind them."""

    def __init__(self) -> None:
        self.net = network()
        self.x = self.net.add_input("x", trt.float32, X.shape)
        self.r = self.net.add_activation(self.x, RELU).get_output(0)
        self.a = self.net.add_unary(self.r, ABS).get_output(0)
        self.y = self.net.add_unary(self.a, NEG).get_output(0)
        self.r.name, self.a.name, self.y.name = "r", "a", "y"

    def build(self, device: str) -> trt.Engine:
        return build(self.net, device, self.y)


@on_devices
def test_marked_tensors_are_seen_in_the_order_of_the_run(device: str) -> None:
    chain = Chain()
    for tensor in (chain.a, chain.x):
        assert chain.net.mark_debug(tensor)
        assert chain.net.is_debug_tensor(tensor)
    assert not chain.net.is_debug_tensor(chain.r)
    engine = chain.build(device)
    assert engine.engine.is_debug_tensor("a")
    assert "shows the debug tensors x, a\n" in engine.inspect()
    assert not engine.engine.is_debug_tensor("r")
    context = Context(engine, device, x=X)
    listener = listen(context)
    assert context.context.get_debug_listener() is listener
    for run in range(2):
        context.run()
        assert listener.names() == ["x", "a"] * (run + 1)
    on_host = trt.TensorLocation.HOST if device == "cpu" else trt.TensorLocation.DEVICE
    assert listener.locations == {on_host}
    for name, values in listener.seen:
        np.testing.assert_array_equal(values, X if name == "x" else np.maximum(X, 0))
    np.testing.assert_array_equal(context.output("y"), -np.maximum(X, 0))


@on_devices
def test_nothing_is_seen_while_the_state_is_off(device: str) -> None:
    chain = Chain()
    chain.net.mark_debug(chain.r)
    chain.net.mark_debug(chain.a)
    context = Context(chain.build(device), device, x=X)
    listener = Listener()
    context.context.set_debug_listener(listener)
    context.run()
    assert not context.context.get_debug_state("r")
    context.context.set_tensor_debug_state("a", True)
    assert context.context.get_debug_state("a")
    context.run()
    assert listener.names() == ["a"]
    context.context.set_all_tensors_debug_state(False)
    context.run()
    context.context.set_all_tensors_debug_state(True)
    context.context.set_debug_listener(None)
    assert context.context.get_debug_listener() is None
    context.run()
    assert listener.names() == ["a"]


def test_a_name_that_was_not_marked() -> None:
    chain = Chain()
    chain.net.mark_debug(chain.r)
    chain.net.mark_debug(chain.a)
    chain.net.unmark_debug(chain.r)
    context = Context(chain.build("cpu"), "cpu", x=X)
    for name in ("r", "nothing"):
        with pytest.raises(trt.Error, match=f"no debug tensor '{name}'; it has 'a'"):
            context.context.set_tensor_debug_state(name, True)
        assert not context.context.get_debug_state(name)
    with pytest.raises(TypeError, match="must define process_debug_tensor"):
        context.context.set_debug_listener(object())
    other = network()
    with pytest.raises(trt.Error, match="belongs to another network"):
        other.mark_debug(chain.a)
    assert not other.is_debug_tensor(chain.a)


@on_devices
def test_unfused_tensors(device: str) -> None:
    """What is fused away is not seen, unless it is marked besides, which prevents the fusion."""
    for marked in (False, True):
        chain = Chain()
        assert chain.net.mark_unfused_tensors_as_debug_tensors()
        if marked:
            chain.net.mark_debug(chain.r)
        context = Context(chain.build(device), device, x=X)
        assert not context.engine.is_debug_tensor("y")
        listener = Listener()
        context.context.set_debug_listener(listener)
        assert not context.context.unfused_tensors_debug_state
        context.context.unfused_tensors_debug_state = True
        assert context.context.unfused_tensors_debug_state
        context.run()
        assert listener.names() == (["r", "y"] if marked else ["y"])
        np.testing.assert_array_equal(listener["y"], -np.maximum(X, 0))
        layers = [
            context.engine.create_engine_inspector().get_layer_information(
                i, trt.LayerInformationFormat.JSON
            )
            for i in range(context.engine.num_layers)
        ]
        assert any('"y"' in layer for layer in layers), layers
    chain = Chain()
    chain.net.mark_unfused_tensors_as_debug_tensors()
    chain.net.unmark_unfused_tensors_as_debug_tensors()
    context = Context(chain.build(device), device, x=X)
    listener = listen(context)
    context.run()
    assert not listener.seen


@on_devices
def test_formats_and_types_of_the_kernels_are_not_seen(device: str) -> None:
    """The tensor is float32 and dense, though the plugin writes half floats (on the CPU channels last)."""
    net = network()
    plugin_id = new_id("halves")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP16", "LINEAR")]

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        if device == "cpu":
            np.asarray(outputs[0])[...] = np.asarray(x) / 2
        else:
            values = (driver().read(x.data_ptr, X.shape, np.float32) / 2).astype(np.float16)
            driver().write(outputs[0].data_ptr, values)

    h = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, X.shape))).get_output(0)
    h.name = "h"
    y = net.add_unary(h, NEG).get_output(0)
    y.name = "y"
    net.mark_debug(h)
    context = Context(build(net, device, y, fp16=True), device, x=X)
    listener = listen(context, "h")
    context.run()
    assert listener["h"].dtype == np.float32
    np.testing.assert_array_equal(listener["h"], X / 2)
    np.testing.assert_array_equal(context.output("y"), -X / 2)


def test_a_convolution_in_another_layout_and_its_fused_activation() -> None:
    net = network()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 16, 9, 9), np.float32)
    weights = rng.standard_normal((32, 16, 3, 3), np.float32)
    tensor = net.add_input("x", trt.float32, x.shape)
    c = net.add_convolution_nd(tensor, 32, (3, 3), weights).get_output(0)
    r = net.add_activation(c, RELU).get_output(0)
    d = net.add_convolution_nd(r, 16, (1, 1), rng.standard_normal((16, 32, 1, 1), np.float32))
    y = d.get_output(0)
    c.name, r.name, y.name = "c", "r", "y"
    net.mark_debug(c)
    net.mark_debug(r)
    context = Context(build(net, "cpu", y), "cpu", x=x)
    listener = listen(context)
    context.run()
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, weights.astype(np.float64))
    np.testing.assert_allclose(listener["c"], expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(listener["r"], np.maximum(listener["c"], 0))


@on_devices
def test_dynamic_shapes_and_shape_arithmetic(device: str) -> None:
    net = network()
    x = net.add_input("x", trt.float32, (-1, 4))
    r = net.add_activation(x, RELU).get_output(0)
    s = net.add_shape(r).get_output(0)
    one = net.add_constant((2,), np.array([1, 10], np.int64)).get_output(0)
    p = net.add_elementwise(s, one, trt.ElementWiseOperation.PROD).get_output(0)
    y = net.add_unary(r, NEG).get_output(0)
    for tensor, name in ((r, "r"), (p, "p"), (one, "one"), (y, "y")):
        tensor.name = name
    for tensor in (x, r, p, one, y):
        net.mark_debug(tensor)
    engine = build(net, device, y, shapes={"x": ((0, 4), (2, 4), (5, 4))})
    for rows in (3, 5, 0):
        values = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4) - 3
        context = Context(engine, device, x=values)
        listener = listen(context)
        context.run()
        assert sorted(listener.names()) == ["one", "p", "r", "x", "y"]
        np.testing.assert_array_equal(listener["x"], values)
        np.testing.assert_array_equal(listener["r"], np.maximum(values, 0))
        np.testing.assert_array_equal(listener["y"], -np.maximum(values, 0))
        np.testing.assert_array_equal(listener["one"], [1, 10])
        np.testing.assert_array_equal(listener["p"], [rows, 40])
        assert listener["p"].dtype == np.int64


@on_devices
def test_shape_inputs(device: str) -> None:
    net = network()
    x, shape = net.add_input("x", trt.float32, X.shape), net.add_input("shape", trt.int64, (2,))
    shuffle = net.add_shuffle(x)
    shuffle.set_input(1, shape)
    y = net.add_unary(shuffle.get_output(0), NEG).get_output(0)
    y.name = "y"
    net.mark_debug(shape)
    net.mark_debug(y)
    engine = build(net, device, y, values={"shape": ((1, 1), (4, 6), (24, 24))})
    for extents in ((4, 6), (24, 1)):
        context = engine.engine.create_execution_context()
        values = np.array(extents, np.int64)
        arrays = {"x": X, "y": np.empty_like(X)}
        if device == "cuda":
            arrays = {name: DeviceArray(array) for name, array in arrays.items()}
        context.set_tensor_address("shape", values.ctypes.data)
        for name, array in arrays.items():
            address = array.ptr if device == "cuda" else array.ctypes.data
            context.set_tensor_address(name, address)
        listener = Listener()
        context.set_debug_listener(listener)
        context.set_all_tensors_debug_state(True)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(listener["shape"], extents)
        np.testing.assert_array_equal(listener["y"], -X.reshape(extents))


@on_devices
def test_a_tensor_whose_size_depends_on_data(device: str) -> None:
    plugin_id = new_id("first")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        rows = x.shape_expr[0]
        size = trtp.size_tensor(rows, rows)
        kept = x.like()
        kept.shape_expr[0] = size.expr()
        return kept, size

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor, trtp.Tensor], stream: int) -> None:
        if device == "cpu":
            values = np.asarray(x)
            count = int(values[0, 0])
            np.asarray(outputs[0]).reshape(-1)[: count * 4] = values[:count].reshape(-1)
            np.asarray(outputs[1])[...] = count
        else:
            values = driver().read(x.data_ptr, (6, 4), np.float32)
            count = int(values[0, 0])
            driver().write(outputs[0].data_ptr, values[:count])
            driver().write(outputs[1].data_ptr, np.array(count, np.int32))

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (6, 4))))
    kept, size = layer.get_output(0), layer.get_output(1)
    y = net.add_unary(kept, NEG).get_output(0)
    kept.name, size.name, y.name = "kept", "size", "y"
    net.mark_debug(kept)
    net.mark_debug(size)
    net.mark_output(y)
    engine = trt.build(net, device=device, timing=False)
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    context = engine.engine.create_execution_context()
    for count in (2, 5, 0):
        x[0, 0] = count
        memory = {"x": x, "y": np.zeros((6, 4), np.float32)}
        if device == "cuda":
            memory = {name: DeviceArray(values) for name, values in memory.items()}
        for name, array in memory.items():
            address = array.ptr if device == "cuda" else array.ctypes.data
            context.set_tensor_address(name, address)
        listener = Listener()
        context.set_debug_listener(listener)
        context.set_all_tensors_debug_state(True)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(listener["kept"], x[:count])
        assert listener["size"] == count


@on_devices
def test_in_place_plugins_do_not_change_what_is_seen(device: str) -> None:
    plugin_id = new_id("clear")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        if device == "cpu":
            np.asarray(outputs[0])[...] = 0
        else:
            driver().write(outputs[0].data_ptr, np.zeros_like(X))

    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    r = net.add_activation(x, RELU).get_output(0)
    y = net.add_plugin(op_of(plugin_id)(r)).get_output(0)
    z = net.add_plugin(op_of(plugin_id)(x)).get_output(0)
    r.name, y.name, z.name = "r", "y", "z"
    for tensor in (x, r, y):
        net.mark_debug(tensor)
    context = Context(build(net, device, y, z), device, x=X)
    listener = listen(context)
    context.run()
    np.testing.assert_array_equal(listener["x"], X)
    np.testing.assert_array_equal(listener["r"], np.maximum(X, 0))
    np.testing.assert_array_equal(listener["y"], np.zeros_like(X))
    assert context.engine.get_aliased_input_tensor("z") in ("x", None)


@on_devices
def test_what_the_listener_raises_reaches_the_caller(device: str) -> None:
    class Broken(trt.IDebugListener):
        def __init__(self, act: Any) -> None:
            trt.IDebugListener.__init__(self)
            self.act = act

        def process_debug_tensor(self, *arguments: Any) -> Any:
            return self.act()

    def fail() -> None:
        raise KeyError("the listener")

    chain = Chain()
    chain.net.mark_debug(chain.r)
    context = Context(chain.build(device), device, x=X)
    context.context.set_all_tensors_debug_state(True)
    context.context.set_debug_listener(Broken(fail))
    with pytest.raises(KeyError, match="the listener"):
        context.run()
    context.context.set_debug_listener(Broken(lambda: False))
    with pytest.raises(trt.Error, match="^the debug listener returned false for tensor 'r'"):
        context.run()
    context.context.set_debug_listener(Broken(context.run))
    with pytest.raises(trt.Error, match="is running and cannot be run again"):
        context.run()
    context.context.set_debug_listener(Broken(lambda: True))
    context.run()
    np.testing.assert_array_equal(context.output("y"), -np.maximum(X, 0))


def test_it_lasts_in_the_file_and_in_every_profile(tmp_path: Any) -> None:
    net = network()
    x = net.add_input("x", trt.float32, (-1, 4))
    r = net.add_activation(x, RELU).get_output(0)
    y = net.add_unary(r, NEG).get_output(0)
    r.name, y.name = "r", "y"
    net.mark_debug(r)
    net.mark_output(y)
    builder = trt.Builder(trt.Logger())
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    for low, high in ((1, 3), (4, 9)):
        profile = builder.create_optimization_profile()
        profile.set_shape("x", (low, 4), (low, 4), (high, 4))
        config.add_optimization_profile(profile)
    path = tmp_path / "engine"
    path.write_bytes(bytes(builder.build_serialized_network(net, config)))
    engine = trt.load(path).engine
    context = engine.create_execution_context()
    for profile, rows in ((0, 2), (1, 7)):
        context.set_optimization_profile_async(profile, 0)
        values = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4) - 9
        result = np.empty_like(values)
        context.set_input_shape("x", values.shape)
        context.set_tensor_address("x", values.ctypes.data)
        context.set_tensor_address("y", result.ctypes.data)
        listener = Listener()
        context.set_debug_listener(listener)
        context.set_tensor_debug_state("r", True)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(listener["r"], np.maximum(values, 0))


def test_with_a_profiler() -> None:
    class Times(trt.IProfiler):
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.layers: list[str] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.layers.append(layer_name)

    chain = Chain()
    chain.net.mark_debug(chain.r)
    context = Context(chain.build("cpu"), "cpu", x=X)
    context.context.profiler = times = Times()
    listener = listen(context)
    context.run()
    assert listener.names() == ["r"]
    assert len(times.layers) == context.engine.num_layers == 2


@emulated_gpu.required
def test_graphs_are_left_for_runs_that_are_seen() -> None:
    chain = Chain()
    chain.net.mark_debug(chain.r)
    context = Context(chain.build("cuda"), "cuda", x=X)
    stream = Stream().handle

    def launches() -> int:
        before = driver().calls("cuGraphLaunch")
        context.run(stream)
        np.testing.assert_array_equal(context.output("y"), -np.maximum(X, 0))
        return driver().calls("cuGraphLaunch") - before

    for _ in range(6):
        launches()
    assert launches() == 1
    # No state is on, so that there is nothing to see.
    context.context.set_debug_listener(listener := Listener())
    assert launches() == 1
    context.context.set_tensor_debug_state("r", True)
    assert launches() == 0
    np.testing.assert_array_equal(listener["r"], np.maximum(X, 0))
    assert listener.streams == {stream}
    context.context.set_tensor_debug_state("r", False)
    assert launches() == 1


@emulated_gpu.required
def test_a_profiler_on_a_gpu() -> None:
    chain = Chain()
    for tensor in (chain.x, chain.r, chain.a):
        chain.net.mark_debug(tensor)
    context = Context(chain.build("cuda"), "cuda", x=X)
    context.context.profiler = trt.Profiler()
    context.context.debug_sync = True
    listener = listen(context)
    context.run()
    assert listener.names() == ["x", "r", "a"]


def random_network(seed: int) -> tuple[trt.INetworkDefinition, list[trt.ITensor]]:
    """A network of layers that passes fuse, fold and merge, and its tensors."""
    rng = np.random.default_rng(seed)
    net = network()
    tensors = [net.add_input("x", trt.float32, (2, 16, 6, 6))]
    for number in range(rng.integers(4, 12)):
        tensor = tensors[rng.integers(max(0, len(tensors) - 3), len(tensors))]
        shape = tuple(tensor.shape)
        kind = rng.integers(9)
        if kind == 0:
            maps = int(rng.choice([8, 16]))
            kernel = 0.2 * rng.standard_normal((maps, shape[1], 3, 3), np.float32)
            layer = net.add_convolution_nd(tensor, maps, (3, 3), kernel)
            layer.padding_nd = (1, 1)
        elif kind == 1:
            others = [other for other in tensors if tuple(other.shape) == shape]
            other = others[rng.integers(len(others))]
            layer = net.add_elementwise(tensor, other, trt.ElementWiseOperation.SUM)
        elif kind == 2:
            factors = np.array([0.5], np.float32), np.array([1.5], np.float32)
            layer = net.add_scale(tensor, trt.ScaleMode.UNIFORM, *factors)
        elif kind == 3:
            layer = net.add_shuffle(tensor)
            layer.first_transpose = (0, 1, 3, 2)
        elif kind == 4:
            layer = net.add_concatenation([tensor, tensor] if shape[1] < 64 else [tensor])
        elif kind == 5:
            layer = net.add_identity(tensor)
        elif kind == 6:
            layer = net.add_softmax(tensor)
        else:
            layer = net.add_activation(tensor, RELU if kind == 7 else trt.ActivationType.TANH)
        layer.get_output(0).name = f"t{number}"
        tensors.append(layer.get_output(0))
    return net, tensors


@pytest.mark.parametrize("seed", range(25))
def test_they_are_what_outputs_are(seed: int) -> None:
    """Of random networks, some with lower precision; a network whose outputs they are gives the same."""
    x = np.random.default_rng(seed).standard_normal((2, 16, 6, 6), np.float32)
    net, tensors = random_network(seed)
    reference = Context(build(net, "cpu", *tensors[1:]), "cpu", x=x)
    reference.run()
    net, tensors = random_network(seed)
    rng = np.random.default_rng(seed)
    marked = [tensor.name for tensor in tensors if rng.random() < 0.4 and net.mark_debug(tensor)]
    if rng.random() < 0.3:
        net.mark_unfused_tensors_as_debug_tensors()
    fp16 = bool(rng.random() < 0.3)
    context = Context(build(net, "cpu", tensors[-1], fp16=fp16), "cpu", x=x)
    listener = listen(context)
    context.run()
    assert set(marked) <= set(listener.names())
    results = dict(listener.seen, last=context.output(tensors[-1].name))
    tolerance = {"rtol": 3e-2, "atol": 0.2} if fp16 else {"rtol": 1e-4, "atol": 1e-4}
    for name, values in results.items():
        expected = reference.memory[tensors[-1].name if name == "last" else name]
        assert values.dtype == expected.dtype
        np.testing.assert_allclose(values, expected, err_msg=name, **tolerance)
