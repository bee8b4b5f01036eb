"""The classes of the Quick family, by a layer of decorators that is built on them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import traceback

import numpy as np
import pytest
from onnx import TensorProto, helper

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, op_of
from quick_layer import FLOAT, HALF, LINEAR, Scalar, define

Op, Request = trt.DimensionOperation, trt.QuickPluginCreationRequest
X = np.random.default_rng(0).random((2, 3, 5, 7), np.float32)
_numbers = itertools.count()


@pytest.fixture
def name():
    return f"plugin{next(_numbers)}"


def same(expr_builder, inputs, k: float):
    return [inputs[0]]


def scale(name, **parts):
    """y = k x."""
    plugin = define(name)(same)
    plugin.run = lambda x, y, tactic, k: np.multiply(x, np.asarray(k, x.dtype), out=y)
    plugin.__dict__.update(parts)
    return plugin


def one(plugin, shape=X.shape, flags=0, aot=None, **attrs):
    net = network(flags)
    x = net.add_input("x", FLOAT, shape)
    return net, net.add_plugin(plugin(x, **attrs), aot=aot)


def run(plugin, x=X, **attrs):
    net, layer = one(plugin, x.shape, **attrs)
    return build(net, layer.get_output(0))(x)


def compile_rows(e, extents, in_out, tactic, k, shift=0):
    """y[row] = k x[row] + shift, a cell of the grid for each row of a matrix."""
    body = f"for (int32_t i = 0; i < n; ++i) y[r * n + i] = {k}f * x[r * n + i] + {shift}.0f;"
    source = (
        f"void scale_rows(const float* x, int32_t n, float* y, int64_t r, int64_t, int64_t) {{"
        f"{body} }}"
    )
    extra = [trtp.SymInt32(0)]
    code = aot.cpp(source, "scale_rows", inputs=[FLOAT], outputs=[FLOAT], extra=extra)
    rows, columns = extents[0]
    return code, [rows], [columns]


# Plugins that are called -----------------------------------------------------------------------


def test_formats_types_and_tactics(name):
    """Each of a plugin's combinations is timed with its own tactics; strides follow the format."""
    seen = set()

    def compute(x, y, tactic, k):
        seen.add((x.dtype.name, x.strides[1] == x.itemsize, y.strides[1] == y.itemsize, tactic))
        np.multiply(x, np.asarray(k, x.dtype), out=y)

    hwc = trt.TensorFormat.HWC
    plugin = scale(
        name,
        run=compute,
        combinations=[
            [(FLOAT, LINEAR), (FLOAT, LINEAR)],
            [(FLOAT, hwc), (FLOAT, LINEAR)],
            [(HALF, hwc), (HALF, hwc)],
            [(trt.int64, LINEAR), (FLOAT, LINEAR)],
            [(FLOAT, LINEAR), (FLOAT, LINEAR)],
        ],
        tactics=lambda dtype: [4, 2] if dtype == FLOAT else [],
    )
    net, layer = one(plugin, k=2.0)
    engine = build(net, layer.get_output(0), fp16=True)
    assert seen == {
        ("float32", False, False, 4),
        ("float32", False, False, 2),
        ("float32", True, False, 4),
        ("float32", True, False, 2),
        ("float16", True, True, 0),
    }
    np.testing.assert_allclose(engine(X), 2 * X, rtol=2e-3)


# Plugins that bring a compiled kernel ----------------------------------------------------------


def test_compiled_kernel(name, tmp_path):
    plugin = scale(name, run=None, compile=compile_rows)
    net, layer = one(plugin, (-1, 7), k=2.5)
    engine = build(net, layer.get_output(0), shapes={"x": ((0, 7), (4, 7), (9, 7))})
    for rows in (4, 9, 1, 0):
        x = np.random.default_rng(rows).random((rows, 7), np.float32)
        np.testing.assert_array_equal(engine(x), np.float32(2.5) * x)
    # It runs where no plugin is, but only with permission.
    engine.save(tmp_path / "engine")
    program = (
        "import sys, numpy as np, opwright\n"
        f"e = opwright.load({str(tmp_path / 'engine')!r}, allow_host_code=sys.argv[1] == '1')\n"
        "print(e(np.full((1, 7), 2, np.float32)).tolist())"
    )
    command = [sys.executable, "-c", program]
    allowed = subprocess.run([*command, "1"], capture_output=True, text=True)
    assert json.loads(allowed.stdout) == [[5.0] * 7], allowed.stderr
    refused = subprocess.run([*command, "0"], capture_output=True, text=True)
    assert refused.returncode != 0 and "allow_host_code" in refused.stderr


@pytest.mark.parametrize("by_size", [False, True])
def test_compiled_kernel_that_writes_a_size(name, by_size):
    """The positive values of a vector; the launch may not depend on their number."""

    @define(name, num_outputs=2)
    def plugin(e, inputs):
        n = inputs[0][0]
        return [[e.declare_size_tensor(1, n, n)], []]

    def compile(e, extents, in_out, tactic):
        source = (
            "void positive(const float* x, int32_t n, float* y, int32_t* size, int64_t, int64_t,"
            " int64_t) { *size = 0; for (int32_t i = 0; i < n; ++i)"
            " if (x[i] > 0) y[(*size)++] = x[i]; }"
        )
        extra, types = [trtp.SymInt32(0)], [FLOAT, trt.int32]
        code = aot.cpp(source, "positive", inputs=[FLOAT], outputs=types, extra=extra)
        return code, [e.constant(1)], [extents[0][0] if by_size else e.constant(5)]

    plugin.types = lambda types: [types[0], trt.int32]
    plugin.compile = compile
    x = np.array([1, -2, 3, 0, 5], np.float32)
    if by_size:
        with pytest.raises(trt.Error, match="extra argument depends on a size tensor"):
            run(plugin, x)
    else:
        np.testing.assert_array_equal(run(plugin, x), x[x > 0])


def test_compiled_kernel_for_each_tactic(name):
    compiled = []

    def compile(e, extents, in_out, tactic, k):
        compiled.append((tactic, [port.desc.type for port in in_out], tuple(in_out[0].max)))
        return compile_rows(e, extents, in_out, tactic, k, shift=0)

    plugin = scale(name, run=None, compile=compile, tactics=lambda dtype: [1, 2])
    x = np.ones((3, 7), np.float32)
    np.testing.assert_array_equal(run(plugin, x, k=3.0), 3 * x)
    # Once each: what was timed is what the engine gets.
    assert sorted(compiled) == [(t, [FLOAT, FLOAT], (3, 7)) for t in (1, 2)]


def test_which_implementation_a_network_gets(name):
    plugin = scale(name, compile=lambda *args, k, **kw: compile_rows(*args, k=k, shift=1, **kw))
    x = np.ones((2, 7), np.float32)
    flag = trt.NetworkDefinitionCreationFlag
    aot_flag, jit_flag = (
        1 << int(f) for f in (flag.PREFER_AOT_PYTHON_PLUGINS, flag.PREFER_JIT_PYTHON_PLUGINS)
    )
    cases = [
        ({"aot": True}, Request.STRICT_AOT, 3),
        ({"aot": False}, Request.STRICT_JIT, 2),
        ({"flags": aot_flag}, Request.PREFER_AOT, 3),
        ({"flags": jit_flag}, Request.PREFER_JIT, 2),
        ({"flags": aot_flag, "aot": False}, Request.STRICT_JIT, 2),
        ({}, Request.UNKNOWN, 2),
    ]
    for options, request, value in cases:
        plugin.creator.calls.clear()
        np.testing.assert_array_equal(run(plugin, x, k=2.0, **options), value * x)
        assert plugin.creator.calls[0] == (trt.TensorRTPhase.BUILD, request)
    with pytest.raises(trt.Error, match="both flags"):
        one(plugin, flags=aot_flag | jit_flag, k=2.0)
    # As TensorRT's programs ask, also for plugins of our own decorators.
    net = network()
    layer = net.add_plugin_v3(
        *plugin(net.add_input("x", FLOAT, x.shape), k=2.0)(Request.STRICT_AOT)
    )
    np.testing.assert_array_equal(build(net, layer.get_output(0))(x), 3 * x)


def test_decorated_plugins_are_functions_of_the_request():
    plugin_id = new_id("both")
    runs = []

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc, k: float) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def compute(x: trtp.Tensor, k: float, outputs, stream: int):
        runs.append(k)
        np.multiply(x, np.float32(k), out=np.asarray(outputs[0]))

    @trtp.aot_impl(plugin_id)
    def compiled(x, k, outputs, tactic):
        extra = trtp.SymIntExprs.from_tuple([x.shape_expr[1]])
        code, _, _ = compile_rows(None, [(None, None)], None, tactic, k)
        return code.name, code, trtp.KernelLaunchParams(grid_x=x.shape_expr[0]), extra

    x = np.ones((2, 7), np.float32)
    for request in (Request.STRICT_JIT, Request.STRICT_AOT):
        net = network()
        call = op_of(plugin_id)(net.add_input("x", FLOAT, x.shape), k=2.0)
        inputs, shape_inputs, plugin = call(request)
        layer = net.add_plugin_v3(inputs, shape_inputs, plugin)
        engine = build(net, layer.get_output(0))
        runs.clear()
        np.testing.assert_array_equal(engine(x), 2 * x)
        assert runs == ([2.0] if request == Request.STRICT_JIT else [])


# Creators and saved engines --------------------------------------------------------------------


def test_from_onnx(name):
    plugin = scale(name)
    node = helper.make_node(name, ["x"], ["y"], plugin_namespace="layer", k=2.5, aot=0)
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", X.shape), ("y", None))
    ]
    graph = helper.make_graph([node], "graph", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    np.testing.assert_array_equal(trt.build(model)(X), np.float32(2.5) * X)
    assert plugin.creator.calls[0] == (trt.TensorRTPhase.BUILD, Request.STRICT_JIT)


SOURCE = """
import ctypes
import numpy as np
import opwright as trt

class Negate(trt.IPluginV3, trt.IPluginV3QuickCore, trt.IPluginV3QuickBuild,
             trt.IPluginV3QuickRuntime):
    plugin_name, num_outputs = "quick_negate", 1
    def clone(self): return Negate()
    def get_output_data_types(self, types, ranks): return types
    def get_output_shapes(self, inputs, shape_inputs, builder): return inputs
    def get_supported_format_combinations(self, in_out, num_inputs): return [p.desc for p in in_out]
    def enqueue(self, input_desc, output_desc, inputs, outputs, in_strides, out_strides, stream):
        memory = ctypes.c_float * int(np.prod(tuple(input_desc[0].dims)))
        x, y = (np.frombuffer(memory.from_address(a[0]), np.float32) for a in (inputs, outputs))
        np.negative(x, out=y)

class NegateCreator(trt.IPluginCreatorV3Quick):
    name = "quick_negate"
    def create_plugin(self, name, namespace, fields, phase, request): return Negate()

trt.get_plugin_registry().register_creator(NegateCreator())
"""


def test_sources_in_the_engine(tmp_path, monkeypatch, creators_end):
    (tmp_path / "quick_negate.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    import quick_negate

    net = network()
    x = net.add_input("x", FLOAT, X.shape)
    net.mark_output(net.add_plugin_v3([x], [], quick_negate.Negate()).get_output(0))
    builder = trt.Builder(trt.Logger())
    config = builder.create_builder_config()
    config.embed_python_plugins = True
    engine = builder.build_serialized_network(net, config)
    (tmp_path / "engine").write_bytes(memoryview(engine))
    (tmp_path / "quick_negate.py").unlink()
    program = (
        "import opwright, numpy as np\n"
        f"e = opwright.load({str(tmp_path / 'engine')!r}, allow_host_code=True)\n"
        f"x = np.ones({X.shape}, np.float32)\n"
        "np.testing.assert_array_equal(e(x), -x)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_parts_by_the_inherited_method(name):
    class Plain(trt.IPluginV3, trt.IPluginV3QuickCore, trt.IPluginV3QuickBuild):
        pass

    part, types = Plain().get_capability_interface, trt.PluginCapabilityType
    assert part(types.CORE) is not None and part(types.BUILD) is not None
    assert part(types.RUNTIME) is None
    assert issubclass(trt.IPluginV3QuickAOTBuild, trt.IPluginV3QuickBuild)


# Plugins of C++ libraries ----------------------------------------------------------------------


@pytest.fixture
def library(plugin_dir):
    """The creator of the C++ plugin, whose library stays as long as anything may refer to it."""
    registry = trt.get_plugin_registry()
    registry.load_library(plugin_dir / "quick_scale_plugin.so")
    return registry.get_creator("quick_scale", "1", "")


def library_plugin(creator, request=Request.STRICT_JIT):
    field = trt.PluginField("scale", np.array([2.5], np.float32), trt.PluginFieldType.FLOAT32)
    fields = trt.PluginFieldCollection([field])
    return creator.create_plugin("quick_scale", "", fields, trt.TensorRTPhase.BUILD, request)


def test_library_plugin_has_its_parts(library):
    plugin = library_plugin(library).clone()
    parts = [plugin.get_capability_interface(t) for t in trt.PluginCapabilityType]
    core, part, runtime = parts
    assert core is plugin and isinstance(part, trt.IPluginV3QuickBuild)
    assert isinstance(runtime, trt.IPluginV3QuickRuntime)
    assert part.get_num_outputs() == 1 and part.get_aliased_input(0) == -1
    assert part.get_output_data_types([FLOAT], [4]) == [FLOAT]
    with pytest.raises(trt.Error, match=r"getOutputDataTypes\(\) returned 1"):
        part.get_output_data_types([FLOAT], [3])
    ports = [trt.DynamicPluginTensorDesc(), trt.DynamicPluginTensorDesc()]
    part.configure_plugin(ports[:1], ports[1:])
    listed = part.get_supported_format_combinations(ports, 1)
    assert [desc.format for desc in listed] == [LINEAR] * 2 + [trt.TensorFormat.HWC] * 2
    assert part.get_valid_tactics() == [3, 1] and part.get_timing_cache_id() == "scale"
    assert part.get_metadata_string() is None
    assert runtime.get_fields_to_serialize()[0].data == [2.5]
    with pytest.raises(trt.Error, match="quick_scale.*refused"):
        library_plugin(library, Request.STRICT_AOT)

    desc = trt.PluginTensorDesc()
    desc.dims, desc.type, desc.format = (1, 2, 1, 2), FLOAT, LINEAR
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    call = [desc], [desc], [x.ctypes.data], [y.ctypes.data], [(4, 2, 2, 1)], [(4, 2, 2, 1)], 0
    with pytest.raises(trt.Error, match=r"enqueue\(\) returned 1"):
        runtime.enqueue(*call)
    runtime.set_tactic(1)
    runtime.enqueue(*call)
    np.testing.assert_array_equal(y, 2.5 * x)
    with pytest.raises(trt.Error, match="expected a list of addresses"):
        runtime.enqueue([desc], [desc], "no", [], [], [], 0)
    with pytest.raises(trt.Error, match="1 and 0 addresses"):
        runtime.enqueue([desc], [desc], [x.ctypes.data], [], [(4,)], [(4,)], 0)


# Faults ----------------------------------------------------------------------------------------


class OwnError(Exception):
    pass


def raising(self, *args):
    raise OwnError("own")


def returning(value):
    return lambda self, *args: value


def setting(**values):
    """A get_launch_params that sets what is good, but for these: functions of the builder."""

    def get_launch_params(self, inputs, in_out, num_inputs, launchParams, symExprs, exprBuilder):
        self.code = compile_rows(exprBuilder, self.extents, in_out, 0, 2.0)[0]
        sizes = {f"{kind}_{axis}": 1 for kind in ("grid", "block") for axis in "xyz"} | values
        for size, value in sizes.items():
            if callable(value):
                value = value(exprBuilder, inputs)
            elif isinstance(value, int):
                value = Scalar(exprBuilder.constant(value))
            if value != "missing":
                setattr(launchParams, size, value)
        symExprs.nbSymExprs = 1
        symExprs[0] = Scalar(inputs[0][1])

    return get_launch_params


def no_argument(self, inputs, in_out, num_inputs, launchParams, symExprs, exprBuilder):
    setting()(self, inputs, in_out, num_inputs, launchParams, symExprs, exprBuilder)
    symExprs.nbSymExprs = 2


AOT = [
    ("get_launch_params", returning(None), "getLaunchParams.*gridX was not set"),
    ("get_launch_params", setting(grid_y="missing"), "gridY was not set"),
    ("get_launch_params", setting(grid_x=-4), "gridX is -4; it must be at least 0"),
    ("get_launch_params", setting(block_z=0), "blockZ is 0; it must be at least 1"),
    ("get_launch_params", setting(shared_mem=-1), "sharedMem is -1"),
    ("get_launch_params", setting(grid_x=lambda e, _: 3), "grid_x: expected an ISymExpr"),
    ("get_launch_params", setting(grid_x=lambda e, i: i[0][0]), "grid_x: expected an ISymExpr"),
    ("get_launch_params", setting(grid_x=lambda e, i: trt.ISymExpr()), "whose expr is"),
    ("get_launch_params", setting(grid_x=lambda e, i: Scalar(i[0][0], 3.5)), "whose dtype is"),
    ("get_launch_params", no_argument, "extra argument 1 of 2 was not set"),
    ("get_kernel", returning(None), "get_kernel.*kernel name.*None"),
    ("get_kernel", returning(("f", 3)), "get_kernel.*kernel name.*3"),
    ("get_kernel", returning(("f", b"")), "no code"),
    ("get_kernel", returning(("", b"x")), "no kernel name"),
    ("get_kernel", returning(("f", b"PTX")), "no shared object for the CPU"),
]
AOT += [(method, raising, None) for method in ("get_launch_params", "get_kernel", "set_tactic")]


@pytest.mark.parametrize("method, body, message", AOT)
def test_faults_of_what_brings_a_kernel(name, method, body, message):
    plugin = scale(name, compile=compile_rows)
    x = np.ones((2, 7), np.float32)

    def create(request):
        inputs, shape_inputs, made = plugin(tensor, k=2.0)(request)
        made.__class__ = type("Faulty", (type(made),), {method: body})
        return inputs, shape_inputs, made

    net = network()
    tensor = net.add_input("x", FLOAT, x.shape)
    with pytest.raises(OwnError if body is raising else trt.Error, match=message) as caught:
        layer = net.add_plugin(create, aot=True)
        build(net, layer.get_output(0))
    if body is raising:
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "raising"
    else:
        assert name in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    # Others go on.
    np.testing.assert_array_equal(run(plugin, x, k=2.0, aot=True), 2 * x)


def test_launch_parameters_end_with_their_call(name):
    kept = []

    def keep(self, inputs, in_out, num_inputs, launchParams, symExprs, exprBuilder):
        assert isinstance(launchParams, trt.KernelLaunchParams)
        assert isinstance(symExprs, trt.ISymExprs)
        setting()(self, inputs, in_out, num_inputs, launchParams, symExprs, exprBuilder)
        assert launchParams.grid_x.expr.get_constant_value() == 1
        assert launchParams.shared_mem is None and len(symExprs) == symExprs.nbSymExprs == 1
        assert symExprs[0].dtype == trt.PluginArgDataType.INT32
        with pytest.raises(IndexError):
            symExprs[1] = symExprs[0]
        kept.extend([launchParams, symExprs, symExprs[0]])

    plugin = scale(name, compile=compile_rows)
    net = network()
    inputs, _, made = plugin(net.add_input("x", FLOAT, (1, 7)), k=2.0)(Request.STRICT_AOT)
    made.__class__ = type("Keeps", (type(made),), {"get_launch_params": keep})
    build(net, net.add_plugin_v3(inputs, [], made).get_output(0))
    with pytest.raises(trt.Error, match="cannot be used after get_launch_params"):
        kept[0].grid_x = kept[2]
    with pytest.raises(trt.Error, match="cannot be used after get_launch_params"):
        len(kept[1])
