"""The cost of a plugin call inside an engine: the slope over chains of 1 to 64 identity plugins on
16 floats.

The peers: a chain of a built-in node of ONNX Runtime, and for Python the same function or method
called directly; for Python functions that compute also the same function as an operator of PyTorch
(torch.library.custom_op) and of ONNX Runtime (onnxruntime-extensions), where these are installed. At
the end, what building a chain of identical plugins costs beside building one.

python bench/plugin_call.py
"""

from __future__ import annotations

import os
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Tuple

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import TensorProto, helper
from timing import in_turns, slope

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

LENGTHS = (1, 8, 16, 32, 64)
SIZE = 16
ROOT = Path(__file__).resolve().parent.parent


@trtp.register("bench::identity")
def identity_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench::identity")
def identity_impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    pass


IDENTITY_SOURCE = """
#include <cstdint>
#include <cstring>
void identity(const float* x, float* y, int64_t, int64_t, int64_t) {
  std::memcpy(y, x, 16 * sizeof(float));
}
"""


@trtp.aot_impl("bench::identity")
def identity_aot(
    x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc], tactic: int
) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    code = aot.cpp(IDENTITY_SOURCE, "identity", inputs=[x], outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(), trtp.SymIntExprs(0)


@trtp.register("bench::view")
def view_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench::view")
def view_impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.asarray(x)


@trtp.register("bench::copy")
def copy_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("bench::copy")
def copy_impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.copyto(np.asarray(outputs[0]), np.asarray(x))


Eight = Tuple[tuple([trtp.TensorDesc] * 8)]


@trtp.register("bench::many")
def many_desc(
    a: trtp.TensorDesc,
    b: trtp.TensorDesc,
    c: trtp.TensorDesc,
    d: trtp.TensorDesc,
    e: trtp.TensorDesc,
    f: trtp.TensorDesc,
    g: trtp.TensorDesc,
    h: trtp.TensorDesc,
    size: int,
    factor: float,
    mode: str,
    table: npt.NDArray[np.float32],
) -> Eight:
    return tuple(x.like() for x in (a, b, c, d, e, f, g, h))


@trtp.impl("bench::many")
def many_impl(a, b, c, d, e, f, g, h, size, factor, mode, table, outputs, stream):
    pass


def chain(length: int, add_layer) -> trt.IExecutionContext:
    """A context, with its addresses set, of an engine that is a chain of the same layer."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    tensor = network.add_input("x", trt.float32, (1, SIZE, 1, 1))
    for _ in range(length):
        tensor = add_layer(network, tensor).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    # Nothing is timed: a timed plugin has to write its outputs, and most of these only return.
    config.builder_optimization_level = 0
    engine = builder.build_engine_with_config(network, config)
    return engine.create_execution_context()


REPEATS = 100  # runs between two looks at the clock


def engine_runs(add_layer) -> list[Callable[[], None]]:
    """A function for each chain length that runs its engine REPEATS times."""
    arrays = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    contexts = [chain(length, add_layer) for length in LENGTHS]

    def many(context):
        context.set_tensor_address("x", arrays[0].ctypes.data)
        context.set_tensor_address("y", arrays[1].ctypes.data)
        run = context.execute_async_v3

        def runs(arrays=arrays):
            for _ in range(REPEATS):
                run(0)

        return runs

    return [many(context) for context in contexts]


def run_times(add_layer) -> list[float]:
    """Seconds per run for each chain length, measured in turns."""
    return [t / REPEATS for t in in_turns(engine_runs(add_layer), seconds=0.1)]


def plugin_library(plugin: str) -> Path:
    """One of the C++ plugins that the tests use, from the build folder."""
    # Plugins of other builds need a sanitizer in the process.
    built = ROOT / "build" / "dev" / "tests" / "cpp" / "plugins"
    library = Path(os.environ.get("OPWRIGHT_TEST_PLUGIN_DIR", built)) / f"{plugin}.so"
    if library.exists():
        return library
    raise SystemExit(f"bench/plugin_call: the C++ plugin {plugin} is not built: run 'make build'")


class IdentityV3(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    """IPluginV3 as a Python class."""

    plugin_name = "bench_identity_v3"
    num_outputs = 1
    timing_cache_id = ""

    def clone(self):
        return IdentityV3()

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [inputs[0]]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == trt.TensorFormat.LINEAR

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        pass


class IdentityV3Creator(trt.IPluginCreatorV3One):
    name = "bench_identity_v3"

    def create_plugin(self, name, field_collection, phase):
        return IdentityV3()


def v3_python_layer():
    trt.get_plugin_registry().register_creator(IdentityV3Creator())
    return lambda network, x: network.add_plugin_v3([x], [], IdentityV3())


class IdentityV2(trt.IPluginV2DynamicExt):
    """IPluginV2DynamicExt as a Python class."""

    plugin_type = "bench_identity_v2"
    num_outputs = 1

    def clone(self):
        return IdentityV2()

    def serialize(self):
        return b""

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, expr_builder):
        return inputs[0]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].format == trt.TensorFormat.LINEAR

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        pass


class IdentityV2Creator(trt.IPluginCreator):
    name = "bench_identity_v2"

    def deserialize_plugin(self, name, serialized_plugin):
        return IdentityV2()


def v2_python_layer():
    trt.get_plugin_registry().register_creator(IdentityV2Creator())
    return lambda network, x: network.add_plugin_v2([x], IdentityV2())


class IdentityQuick(
    trt.IPluginV3, trt.IPluginV3QuickCore, trt.IPluginV3QuickBuild, trt.IPluginV3QuickRuntime
):
    """IPluginV3 of the Quick family as a Python class."""

    plugin_name = "bench_identity_quick"
    num_outputs = 1

    def clone(self):
        return IdentityQuick()

    def get_output_data_types(self, input_types, ranks):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [inputs[0]]

    def get_supported_format_combinations(self, in_out, num_inputs):
        return [port.desc for port in in_out]

    def get_timing_cache_id(self):
        return ""

    def enqueue(self, input_desc, output_desc, inputs, outputs, in_strides, out_strides, stream):
        pass


class IdentityQuickCreator(trt.IPluginCreatorV3Quick):
    name = "bench_identity_quick"

    def create_plugin(self, name, namespace, field_collection, phase, request):
        return IdentityQuick()


def quick_python_layer():
    trt.get_plugin_registry().register_creator(IdentityQuickCreator())
    return lambda network, x: network.add_plugin_v3([x], [], IdentityQuick())


def cpp_creator(library: str, name: str):
    registry = trt.get_plugin_registry()
    registry.load_library(str(plugin_library(library)))
    return registry.get_creator(name, "1", "")


def v3_cpp_layer():
    creator = cpp_creator("identity_plugin", "identity_plugin")
    fields = trt.PluginFieldCollection([])
    plugin = creator.create_plugin("identity", fields, trt.TensorRTPhase.BUILD)
    return lambda network, x: network.add_plugin_v3([x], [], plugin)


def v2_cpp_layer():
    """A layer of a C++ plugin that copies its input, scaled by 1."""
    creator = cpp_creator("scale_plugin_v2", "ScalePluginV2")
    plugin = creator.create_plugin("scale", trt.PluginFieldCollection([]))
    return lambda network, x: network.add_plugin_v2([x], plugin)


def quick_cpp_layer():
    """A layer of a C++ plugin that copies its input, scaled by 1."""
    creator = cpp_creator("quick_scale_plugin", "quick_scale")
    fields = trt.PluginFieldCollection([trt.PluginField("scale", np.ones(1, np.float32))])
    request = trt.QuickPluginCreationRequest.UNKNOWN
    plugin = creator.create_plugin("quick_scale", "", fields, trt.TensorRTPhase.BUILD, request)
    return lambda network, x: network.add_plugin_v3([x], [], plugin)


def function_layer(aot: bool):
    return lambda network, x: network.add_plugin(trt.plugin.op.bench.identity(x), aot=aot)


def many_layer(network, x):
    """Eight tensors in and out, with four attributes; the first and last layers fan out and in."""
    before = [x] * 8 if x.is_network_input else many_layer.outputs
    table = np.arange(4, dtype=np.float32)
    call = trt.plugin.op.bench.many(*before, size=3, factor=0.5, mode="same", table=table)
    layer = network.add_plugin(call, aot=False)
    many_layer.outputs = [layer.get_output(i) for i in range(8)]
    return layer


def python_layer(name: str):
    op = getattr(trt.plugin.op.bench, name)
    return lambda network, x: network.add_plugin(op(x), aot=False)


def onnxruntime_runs(node_of, options) -> list[Callable[[], None]]:
    """As engine_runs, for chains of the nodes that node_of(i, input, output) returns."""
    sessions = []
    for length in LENGTHS:
        nodes = [node_of(i, f"t{i}", f"t{i + 1}") for i in range(length)]
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "chain",
            [value("t0", TensorProto.FLOAT, [SIZE])],
            [value(f"t{length}", TensorProto.FLOAT, [SIZE])],
        )
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        sessions.append((onnxruntime.InferenceSession(model, options), f"t{length}"))
    x = {"t0": np.zeros(SIZE, np.float32)}

    def many(session, name):
        def runs():
            for _ in range(REPEATS):
                session.run([name], x)

        return runs

    return [many(*session) for session in sessions]


def onnxruntime_times() -> list[float]:
    def node(i, before, after):
        # Operators alternate, so that no optimization removes or fuses the nodes.
        return helper.make_node("Neg" if i % 2 else "Abs", [before], [after])

    runs = onnxruntime_runs(node, onnxruntime.SessionOptions())
    return [t / REPEATS for t in in_turns(runs, seconds=0.1)]


def onnxruntime_python_runs() -> list[Callable[[], None]] | None:
    """A copy as a Python operator of onnxruntime-extensions; None if that is not installed."""
    try:
        import onnxruntime_extensions as extensions
    except ImportError:
        return None
    is_float = extensions.PyCustomOpDef.dt_float

    @extensions.onnx_op(op_type="BenchCopy", inputs=[is_float], outputs=[is_float])
    def copy(x):
        return x.copy()

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.get_library_path())
    return onnxruntime_runs(
        lambda i, before, after: helper.make_node(
            "BenchCopy", [before], [after], domain="ai.onnx.contrib"
        ),
        options,
    )


def torch_runs() -> list[Callable[[], None]] | None:
    """A copy as an operator of PyTorch, called from Python; None if that is not installed."""
    try:
        import torch
    except ImportError:
        return None

    @torch.library.custom_op("bench::copy", mutates_args=(), schema="(Tensor x) -> Tensor")
    def copy(x):
        return x.clone()

    x = torch.zeros(SIZE)

    def chain_of(length):
        def runs():
            for _ in range(REPEATS):
                y = x
                for _ in range(length):
                    y = copy(y)

        return runs

    return [chain_of(length) for length in LENGTHS]


def direct_runs(function, *arguments) -> list[Callable[[], None]]:
    """As engine_runs, for only the function, called with its arguments in a loop."""
    names = [f"a{i}" for i in range(len(arguments))]
    source = f"""
def chain_of(length, function, {", ".join(names)}):
    def runs(steps=tuple(range(length)), repeats=tuple(range({REPEATS}))):
        for _ in repeats:
            for _ in steps:
                function({", ".join(names)})
    return runs
"""
    scope: dict = {}
    exec(source, scope)
    return [scope["chain_of"](length, function, *arguments) for length in LENGTHS]


def python_functions() -> None:
    """Compares Python functions as plugins with direct calls and with other frameworks' ways to
    call them."""
    array = np.zeros(SIZE, np.float32)
    table = np.arange(4, dtype=np.float32)
    eight = (object(),) * 8
    chains = {
        "plugin 1": engine_runs(python_layer("identity")),
        "direct 1": direct_runs(identity_impl, object(), (object(),), 0),
        "plugin 16": engine_runs(many_layer),
        "direct 16": direct_runs(many_impl, *eight, 3, 0.5, "same", table, eight, 0),
        "plugin view": engine_runs(python_layer("view")),
        "plugin copy": engine_runs(python_layer("copy")),
        "direct copy": direct_runs(copy_impl, array, (array,), 0),
        "torch copy": torch_runs(),
        "ort copy": onnxruntime_python_runs(),
    }
    chains = {name: runs for name, runs in chains.items() if runs is not None}
    every = [run for runs in chains.values() for run in runs]
    times = [t / REPEATS for t in in_turns(every, seconds=0.05)]
    count = len(LENGTHS)
    cost = {
        name: slope(LENGTHS, times[i * count : (i + 1) * count]) * 1e6
        for i, name in enumerate(chains)
    }

    def beyond(kind, text, goal):
        extra = cost[f"plugin {kind}"] - cost[f"direct {kind}"]
        print(
            f"{text:42} {extra:7.3f} us beyond the {cost[f'direct {kind}']:.3f} us of the function"
            f" called directly (goal {goal})"
        )

    print("Python functions as plugins:")
    beyond("1", "1 tensor in, 1 out", 0.2)
    beyond("16", "16 tensors, 4 attributes", 0.3)
    view = cost["plugin view"] - cost["plugin 1"]
    print(f"{'numpy.asarray(tensor) within':42} {view:7.3f} us (goal 0.4)")
    print("A function that copies 16 floats, called as")
    own = cost["plugin copy"]
    print(f"{'  a plugin of an engine':42} {own:7.3f} us")
    print(f"{'  a function, on arrays':42} {cost['direct copy']:7.3f} us")
    for name, text in (
        ("torch copy", "  torch.library.custom_op, from torch"),
        ("ort copy", "  an operator of onnxruntime-extensions"),
    ):
        if name in cost:
            print(f"{text:42} {cost[name]:7.3f} us   {cost[name] / own:.1f} times the plugin's")
        else:
            print(f"{text:42} not installed")


def direct_call(function, *arguments) -> float:
    """Seconds per call of the function with its arguments, from a loop."""
    names = {f"a{i}": argument for i, argument in enumerate(arguments)}
    statement = f"function({', '.join(names)})"
    timer = timeit.Timer(statement, globals={"function": function, **names})
    return min(timer.repeat(repeat=20, number=10000)) / 10000


def build_seconds(length: int, add_layer) -> float:
    """Seconds to build an engine that is a chain of the same layer."""
    start = time.perf_counter()
    chain(length, add_layer)
    return time.perf_counter() - start


def main() -> None:
    peer = slope(LENGTHS, onnxruntime_times())
    print(f"a node of ONNX Runtime       {peer * 1e6:7.3f} us")
    v3_python = v3_python_layer()
    lists = [object()], [object()], [1], [2]
    # The layer that the engine runs, and for Python the same call without the engine.
    rows = {
        "C++, IPluginV3": (v3_cpp_layer(), None),
        "C++, IPluginV2DynamicExt": (v2_cpp_layer(), None),
        "C++, Quick": (quick_cpp_layer(), None),
        "compiled kernel": (function_layer(aot=True), None),
        "Python function": (function_layer(aot=False), (identity_impl, object(), (object(),), 0)),
        "Python class, IPluginV3": (v3_python, (IdentityV3().enqueue, *lists, 0, 0)),
        "Python class, V2": (v2_python_layer(), (IdentityV2().enqueue, *lists, 0, 0)),
        "Python class, Quick": (
            quick_python_layer(),
            (IdentityQuick().enqueue, *lists, *lists[:2], 0),
        ),
    }
    for name, (add_layer, call) in rows.items():
        cost = slope(LENGTHS, run_times(add_layer))
        line = f"{name:28} {cost * 1e6:7.3f} us   ratio to ONNX Runtime's node {cost / peer:.2f}"
        if call is not None:
            direct = direct_call(*call)
            line += f"   {direct * 1e6:.3f} us directly, {(cost - direct) * 1e6:.3f} us beyond it"
        print(line)
    python_functions()
    one, many = build_seconds(1, v3_python), build_seconds(200, v3_python)
    print(f"building 1 plugin {one * 1e3:.1f} ms, 200 identical ones {many * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
