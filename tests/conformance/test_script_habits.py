"""Small things that programs written for TensorRT rely on.

Each is documented: by the Python API reference of TensorRT 10 and 11 (the docstrings of the bindings), by the comments
of NvInfer.h and NvInferRuntime.h, or by tensorrt/__init__.py, as each group says.
"""

import json
import subprocess
import warnings
from typing import Tuple

import numpy as np

import opwright.trt as trt
from cases import (
    LOGGER,
    STRONGLY_TYPED,
    Log,
    aligned,
    build,
    infer,
    load,
    mark,
    new_context,
    random,
    start,
    view,
)

trtp = trt.plugin
warnings.simplefilter("ignore", DeprecationWarning)  # of context managers


def relu_network(shape=(2, 3), flags=0):
    builder, network, config = start(flags)
    x = network.add_input("x", trt.float32, shape)
    mark(network, network.add_activation(x, trt.ActivationType.RELU).get_output(0), "y")
    return builder, network, config


def dynamic_engine(shape=(-1, 3, -1), limits=((1, 3, 2), (2, 3, 4), (4, 3, 8))):
    builder, network, config = relu_network(shape)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", *limits)
    config.add_optimization_profile(profile)
    return load(build(builder, network, config))


def onnx_model(text):
    import onnx.parser

    return onnx.parser.parse_model(text).SerializeToString()


def relu_model():
    return onnx_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[2, 3] x) => (float[2, 3] y) { h = Relu (x)  y = Neg (h) }""")


def unknown_model():
    return onnx_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[2, 3] x) => (float[2, 3] y) { h = Relu (x)  i = NoSuchOperator (h)  y = Neg (i) }""")


# ---- context managers: they do nothing, and objects live on (tensorrt/__init__.py: common_enter, common_exit) ----


def test_with_builder_network_config():
    with (
        trt.Builder(LOGGER) as builder,
        builder.create_network() as network,
        builder.create_builder_config() as config,
    ):
        x = network.add_input("x", trt.float32, (2, 3))
        mark(network, network.add_activation(x, trt.ActivationType.RELU).get_output(0), "y")
    assert network.num_layers == 1 and config.num_optimization_profiles == 0, (
        "the objects are gone after the block"
    )
    data = random((2, 3))
    np.testing.assert_array_equal(
        infer(new_context(load(build(builder, network, config))), {"x": data})["y"],
        np.maximum(data, 0),
    )


def test_with_parser():
    builder, network, config = start()
    with trt.OnnxParser(network, LOGGER) as parser:
        assert parser.parse(relu_model())
    assert parser.num_errors == 0


def test_with_runtime_engine_context():
    with build(*relu_network()) as plan, trt.Runtime(LOGGER) as runtime:
        with (
            runtime.deserialize_cuda_engine(plan) as engine,
            engine.create_execution_context() as context,
        ):
            assert context.engine.num_io_tensors == 2
    data = random((2, 3))
    np.testing.assert_array_equal(infer(new_context(engine), {"x": data})["y"], np.maximum(data, 0))


def test_with_logger():
    with trt.Logger(trt.Logger.ERROR) as logger:
        assert trt.Builder(logger) is not None


def test_with_passes_exceptions_on():
    try:
        with trt.Builder(LOGGER):
            raise KeyError("mine")
    except KeyError:
        return
    raise AssertionError("the exception was swallowed")


# ---- DLA: none (IBuilderConfig::getDLACore and IRuntime::getDLACore: -1 for DLA not present or unset) ----


def test_config_dla_core():
    _, _, config = start()
    assert config.DLA_core == -1, f"{config.DLA_core}"


def test_runtime_dla_core():
    assert trt.Runtime(LOGGER).DLA_core == -1


# ---- layers (ILayer.type, LayerType, and the weights of layers as arrays) ----

LAYER_TYPES = """CONVOLUTION CAST ACTIVATION POOLING LRN SCALE SOFTMAX DECONVOLUTION CONCATENATION ELEMENTWISE PLUGIN
    UNARY PADDING SHUFFLE REDUCE TOPK GATHER MATRIX_MULTIPLY RAGGED_SOFTMAX CONSTANT IDENTITY PLUGIN_V2 SLICE SHAPE
    PARAMETRIC_RELU RESIZE TRIP_LIMIT RECURRENCE ITERATOR LOOP_OUTPUT SELECT FILL QUANTIZE DEQUANTIZE CONDITION
    CONDITIONAL_INPUT CONDITIONAL_OUTPUT SCATTER EINSUM ASSERTION GRID_SAMPLE ONE_HOT NON_ZERO NMS REVERSE_SEQUENCE
    NORMALIZATION PLUGIN_V3 SQUEEZE UNSQUEEZE CUMULATIVE DYNAMIC_QUANTIZE ATTENTION_INPUT ATTENTION_OUTPUT
    ROTARY_EMBEDDING KV_CACHE_UPDATE MOE DIST_COLLECTIVE""".split()


def test_layer_type_has_all_names():
    missing = [name for name in LAYER_TYPES if not hasattr(trt.LayerType, name)]
    assert not missing, f"trt.LayerType has no {', '.join(missing)}"


def layers_by_type(network):
    """Layers, by the names of their types."""
    x = network.add_input("x", trt.float32, (2, 3, 8, 8))
    m = network.add_input("m", trt.float32, (4, 4))
    kernel = random((5, 3, 1, 1))
    return {
        "CONSTANT": network.add_constant((2,), np.array([1, 2], np.float32)),
        "IDENTITY": network.add_identity(x),
        "CAST": network.add_cast(x, trt.float16),
        "SHUFFLE": network.add_shuffle(x),
        "ELEMENTWISE": network.add_elementwise(x, x, trt.ElementWiseOperation.SUM),
        "UNARY": network.add_unary(x, trt.UnaryOperation.NEG),
        "MATRIX_MULTIPLY": network.add_matrix_multiply(
            m, trt.MatrixOperation.NONE, m, trt.MatrixOperation.TRANSPOSE
        ),
        "SOFTMAX": network.add_softmax(x),
        "CONCATENATION": network.add_concatenation([x, x]),
        "CONVOLUTION": network.add_convolution_nd(x, 5, (1, 1), kernel),
        "DECONVOLUTION": network.add_deconvolution_nd(x, 5, (1, 1), random((3, 5, 1, 1))),
        "SCALE": network.add_scale(x, trt.ScaleMode.UNIFORM, scale=np.array([2], np.float32)),
        "REDUCE": network.add_reduce(x, trt.ReduceOperation.SUM, 1 << 1, False),
        "SLICE": network.add_slice(x, (0, 0, 0, 0), (1, 1, 2, 2), (1, 1, 1, 1)),
        "SHAPE": network.add_shape(x),
        "TOPK": network.add_topk(x, trt.TopKOperation.MAX, 2, 1 << 3),
        "LRN": network.add_lrn(x, 3, 1.0, 0.5, 2.0),
        "PADDING": network.add_padding_nd(x, (1, 1), (1, 1)),
    }


def test_layer_type_of_new_layers():
    _, network, _ = start()
    wrong = {
        name: str(layer.type)
        for name, layer in layers_by_type(network).items()
        if layer.type != getattr(trt.LayerType, name)
    }
    assert not wrong, f"{wrong}"


def test_layer_type_of_a_networks_layers():
    _, network, _ = start()
    layers_by_type(network)
    found = {network.get_layer(i).type for i in range(network.num_layers)}
    wanted = {
        trt.LayerType.SHUFFLE,
        trt.LayerType.CONVOLUTION,
        trt.LayerType.SOFTMAX,
        trt.LayerType.SHAPE,
    }
    assert wanted <= found, f"{found}"


def test_types_of_activations_and_poolings():
    # Their own property `type` hides the layer's, as in TensorRT.
    _, network, _ = start()
    x = network.add_input("x", trt.float32, (2, 3, 8, 8))
    assert network.add_activation(x, trt.ActivationType.TANH).type == trt.ActivationType.TANH
    assert network.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2)).type == trt.PoolingType.MAX


def convolution(bias=True):
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (1, 3, 4, 4))
    kernel, shift = random((2, 3, 1, 1)), random((2,), seed=1)
    layer = network.add_convolution_nd(x, 2, (1, 1), kernel, shift if bias else None)
    mark(network, layer.get_output(0), "y")
    return (builder, network, config), layer, kernel, shift


def test_convolution_gives_its_kernel_and_bias():
    _, layer, kernel, bias = convolution()
    np.testing.assert_array_equal(np.ravel(np.asarray(layer.kernel)), kernel.ravel())
    np.testing.assert_array_equal(np.ravel(np.asarray(layer.bias)), bias.ravel())


def test_convolution_takes_another_kernel_and_bias():
    parts, layer, _, _ = convolution()
    kernel, bias = random((2, 3, 1, 1), seed=5), random((2,), seed=6)
    layer.kernel, layer.bias = kernel, bias
    np.testing.assert_array_equal(np.ravel(np.asarray(layer.kernel)), kernel.ravel())
    x = random((1, 3, 4, 4), seed=7)
    want = np.einsum("oi,nihw->nohw", kernel[:, :, 0, 0], x) + bias[:, None, None]
    np.testing.assert_allclose(
        infer(new_context(load(build(*parts))), {"x": x})["y"], want, rtol=1e-4, atol=1e-5
    )


def test_deconvolution_gives_its_kernel():
    _, network, _ = start()
    kernel = random((3, 2, 1, 1))
    layer = network.add_deconvolution_nd(
        network.add_input("x", trt.float32, (1, 3, 4, 4)), 2, (1, 1), kernel
    )
    np.testing.assert_array_equal(np.ravel(np.asarray(layer.kernel)), kernel.ravel())


def test_constant_gives_and_takes_weights():
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (2, 3))
    first, second = random((2, 3)), random((2, 3), seed=1)
    layer = network.add_constant((2, 3), first)
    np.testing.assert_array_equal(np.ravel(np.asarray(layer.weights)), first.ravel())
    layer.weights = second
    np.testing.assert_array_equal(np.ravel(np.asarray(layer.weights)), second.ravel())
    total = network.add_elementwise(x, layer.get_output(0), trt.ElementWiseOperation.SUM)
    mark(network, total.get_output(0), "y")
    data = random((2, 3), seed=2)
    y = infer(new_context(load(build(builder, network, config))), {"x": data})["y"]
    np.testing.assert_allclose(y, data + second, rtol=1e-6)


def test_scale_gives_and_takes_weights():
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (1, 3, 2, 2))
    shift, scale, power = (random((3,), seed=s) for s in (1, 2, 3))
    layer = network.add_scale(x, trt.ScaleMode.CHANNEL, shift, scale, np.ones(3, np.float32))
    for name, want in (("shift", shift), ("scale", scale), ("power", np.ones(3, np.float32))):
        np.testing.assert_array_equal(np.ravel(np.asarray(getattr(layer, name))), want)
    other_shift, other_scale, other_power = shift + 1, scale + 1, np.full(3, 2, np.float32)
    layer.shift, layer.scale, layer.power = other_shift, other_scale, other_power
    np.testing.assert_array_equal(np.ravel(np.asarray(layer.scale)), other_scale)
    mark(network, layer.get_output(0), "y")
    data = random((1, 3, 2, 2))
    want = (data * other_scale[:, None, None] + other_shift[:, None, None]) ** 2
    y = infer(new_context(load(build(builder, network, config))), {"x": data})["y"]
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


# ---- networks (INetworkDefinition.flags, get_flag, builder, remove_tensor, len and []) ----


def test_network_flags():
    _, network, _ = start(STRONGLY_TYPED)
    assert network.flags & STRONGLY_TYPED, f"flags is {network.flags}"
    assert network.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) is True
    assert network.get_flag(trt.NetworkDefinitionCreationFlag.PREFER_JIT_PYTHON_PLUGINS) is False
    _, network, _ = start(1 << int(trt.NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS))
    assert network.get_flag(trt.NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS) is True


def test_network_builder():
    builder, network, config = relu_network()
    assert isinstance(network.builder, trt.Builder), f"{network.builder!r}"
    data = random((2, 3))
    engine = load(build(network.builder, network, network.builder.create_builder_config()))
    np.testing.assert_array_equal(infer(new_context(engine), {"x": data})["y"], np.maximum(data, 0))


def test_network_remove_tensor():
    builder, network, config = relu_network()
    unused = network.add_input("unused", trt.float32, (4,))
    assert network.num_inputs == 2
    network.remove_tensor(unused)
    assert network.num_inputs == 1, f"{network.num_inputs} inputs after the tensor was removed"
    engine = load(build(builder, network, config))
    assert [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)] == ["x", "y"]


def test_network_keeps_tensors_of_layers():
    builder, network, config = relu_network()
    network.remove_tensor(network.get_input(0))  # the input of a layer: ignored, with a warning
    data = random((2, 3))
    np.testing.assert_array_equal(
        infer(new_context(load(build(builder, network, config))), {"x": data})["y"],
        np.maximum(data, 0),
    )


def test_network_is_a_sequence_of_layers():
    _, network, _ = relu_network()
    assert len(network) == network.num_layers == 1
    assert network[0].name == network[-1].name == network.get_layer(0).name
    assert [layer.name for layer in network] == [network.get_layer(0).name]


# ---- the parser (OnnxParser, ParserError, OnnxParserFlag, ErrorCode) ----


def test_parser_flags():
    _, network, _ = start()
    parser = trt.OnnxParser(network, LOGGER)
    flag = trt.OnnxParserFlag.NATIVE_INSTANCENORM
    parser.flags = 0
    assert parser.flags == 0 and not parser.get_flag(flag)
    parser.set_flag(flag)
    assert parser.get_flag(flag) and parser.flags == 1 << int(flag), f"flags is {parser.flags}"
    parser.clear_flag(flag)
    assert not parser.get_flag(flag) and parser.flags == 0
    for name in (
        "ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA",
        "REPORT_CAPABILITY_DLA",
        "ENABLE_PLUGIN_OVERRIDE",
    ):
        assert hasattr(trt.OnnxParserFlag, name), f"trt.OnnxParserFlag has no {name}"


def test_parser_supports_a_model():
    _, network, _ = start()
    parser = trt.OnnxParser(network, LOGGER)
    assert parser.supports_model_v2(relu_model()) is True
    assert parser.num_subgraphs == 1 and parser.is_subgraph_supported(0)
    assert sorted(parser.get_subgraph_nodes(0)) == [0, 1], f"{list(parser.get_subgraph_nodes(0))}"


def test_parser_says_what_of_a_model_it_supports():
    _, network, _ = start()
    parser = trt.OnnxParser(network, Log())
    assert parser.supports_model_v2(unknown_model()) is False
    nodes = [sorted(parser.get_subgraph_nodes(i)) for i in range(parser.num_subgraphs)]
    assert all(1 not in part for part in nodes), (
        f"the unknown node 1 is in a supported part: {nodes}"
    )
    assert any(0 in part for part in nodes), f"the known node 0 is in no part: {nodes}"


def error_of(model):
    _, network, _ = start()
    parser = trt.OnnxParser(network, Log())
    assert not parser.parse(model) and parser.num_errors > 0
    return parser, parser.get_error(0)


def test_parser_error_code_of_an_unknown_operator():
    _, error = error_of(unknown_model())
    # onnx-tensorrt: INVALID_NODE where its static check says it, UNSUPPORTED_NODE where its importer does
    assert error.code() in (trt.ErrorCode.UNSUPPORTED_NODE, trt.ErrorCode.INVALID_NODE), (
        f"{error.code()!r}"
    )


def test_parser_error_code_of_bytes_that_are_no_model():
    _, error = error_of(b"\xff\xfe no model at all")
    assert error.code() == trt.ErrorCode.MODEL_DESERIALIZE_FAILED, f"{error.code()!r}"


def test_error_code_has_all_names():
    names = """SUCCESS INTERNAL_ERROR MEM_ALLOC_FAILED MODEL_DESERIALIZE_FAILED INVALID_VALUE INVALID_GRAPH INVALID_NODE
        UNSUPPORTED_GRAPH UNSUPPORTED_NODE UNSUPPORTED_NODE_ATTR UNSUPPORTED_NODE_INPUT UNSUPPORTED_NODE_DATATYPE
        UNSUPPORTED_NODE_DYNAMIC UNSUPPORTED_NODE_SHAPE REFIT_FAILED""".split()
    missing = [name for name in names if not hasattr(trt.ErrorCode, name)]
    assert not missing, f"trt.ErrorCode has no {', '.join(missing)}"


def test_parser_error_tells_where():
    _, error = error_of(unknown_model())
    assert error.node() == 1, f"node() is {error.node()}"
    assert error.node_operator() == "NoSuchOperator", (
        f"node_operator() is {error.node_operator()!r}"
    )
    assert isinstance(error.desc(), str) and error.desc()
    assert (
        isinstance(error.file(), str)
        and isinstance(error.func(), str)
        and isinstance(error.line(), int)
    )
    assert error.local_function_stack_size() == 0 and list(error.local_function_stack()) == []


# ---- types (DataType, tensorrt/__init__.py: _itemsize) ----


def test_fp4_and_e8m0():
    assert trt.fp4 == trt.DataType.FP4 and trt.e8m0 == trt.DataType.E8M0


def test_itemsize():
    sizes = dict(
        FLOAT=4, HALF=2, BF16=2, INT8=1, INT32=4, INT64=8, BOOL=1, UINT8=1, FP8=1, INT4=0.5, FP4=0.5
    )
    wrong = {}
    for name, size in sizes.items():
        got = getattr(getattr(trt.DataType, name), "itemsize", "missing")
        if got != size:
            wrong[name] = got
    assert not wrong, f"DataType.itemsize is {wrong}"


# ---- plugins ----


class JsonPlugin(trt.IPluginV2DynamicExt):
    """Multiplies by a factor; its serialize returns a str, as NVIDIA's first Python samples had it."""

    def __init__(self, factor=1.0):
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs, self.plugin_type, self.plugin_version, self.plugin_namespace = (
            1,
            "AcceptJson",
            "1",
            "",
        )
        self.factor = factor

    def clone(self):
        copy = JsonPlugin(self.factor)
        copy.__dict__.update(self.__dict__)
        return copy

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, builder):
        return trt.DimsExprs(inputs[0])

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].format == trt.TensorFormat.LINEAR and in_out[pos].type == trt.float32

    def configure_plugin(self, inputs, outputs):
        pass

    def serialize(self):
        return json.dumps({"factor": self.factor, "text": "größer"}, ensure_ascii=False)

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = view(inputs[0], input_desc[0].dims, np.float32)
        view(outputs[0], output_desc[0].dims, np.float32)[...] = x * np.float32(self.factor)
        return 0


class JsonCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "AcceptJson", "1", ""
        self.field_names = trt.PluginFieldCollection([])
        self.received = []

    def create_plugin(self, name, field_collection):
        return JsonPlugin()

    def deserialize_plugin(self, name, data):
        self.received.append(data)
        return JsonPlugin(json.loads(data.decode("utf-8"))["factor"])


def test_v2_serialize_may_return_str():
    creator = JsonCreator()
    assert trt.get_plugin_registry().register_creator(creator, "")
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (2, 3))
    mark(network, network.add_plugin_v2([x], JsonPlugin(3.0)).get_output(0), "y")
    engine, data = load(build(builder, network, config)), random((2, 3))
    assert creator.received and isinstance(creator.received[0], bytes), (
        f"deserialize_plugin got {creator.received!r}"
    )
    assert json.loads(creator.received[0].decode("utf-8"))["text"] == "größer"
    np.testing.assert_allclose(infer(new_context(engine), {"x": data})["y"], data * 3, rtol=1e-6)


def run_found(how):
    """The coordinates of a matrix's elements above 0, by a decorator plugin that writes them through `aliased`."""

    @trtp.register("acceptance::found")
    def describe(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        upper = x.shape_expr.numel()
        count = trtp.size_tensor(upper // 2, upper)
        return trtp.from_shape_expr((count.expr(), 2), dtype=trt.int32), count

    refused = []

    @trtp.impl("acceptance::found")
    def run(x, outputs, stream) -> None:
        found = np.argwhere(np.asarray(x) > 0).astype(np.int32)
        try:
            np.asarray(outputs[0].aliased(how(outputs[0], found)))[...] = found
        except Exception as problem:
            refused.append(f"{type(problem).__name__}: {problem}")
            raise
        np.asarray(outputs[1])[...] = len(found)

    builder, network, config = start()
    layer = network.add_plugin(
        trtp.op.acceptance.found(network.add_input("x", trt.float32, (4, 5)))
    )
    mark(network, layer.get_output(0), "where")
    mark(network, layer.get_output(1), "count")
    try:
        engine = load(build(builder, network, config))
        context = engine.create_execution_context()
        data = random((4, 5))
        where, count = (
            aligned((20, 2), np.int32),
            aligned((1,), trt.nptype(engine.get_tensor_dtype("count"))),
        )
        for name, array in (("x", data), ("where", where), ("count", count)):
            assert context.set_tensor_address(name, array.ctypes.data)
        assert context.execute_async_v3(0)
    except Exception as problem:
        raise AssertionError(refused[0] if refused else str(problem)) from problem
    want = np.argwhere(data > 0)
    assert int(count[0]) == len(want)
    np.testing.assert_array_equal(where[: len(want)], want)


def test_aliased_with_a_smaller_shape():
    run_found(lambda output, found: found.shape)


def test_aliased_with_a_torch_size():
    # torch.Size is a subclass of tuple, and what NVIDIA's sample passes.
    size = type("Size", (tuple,), {})
    run_found(lambda output, found: size(found.shape))


def test_aliased_with_a_shape():
    run_found(lambda output, found: trtp.Shape(found.shape))


def test_aliased_with_a_shape_that_was_changed():
    def smaller(output, found):
        shape = trtp.Shape(tuple(output.shape))
        shape[0] = len(found)
        return shape

    run_found(smaller)


def test_shape_items_can_be_set():
    shape = trtp.Shape((2, 3, 4))
    shape[1] = 7
    assert tuple(shape) == (2, 7, 4) and shape.numel() == 56 and len(shape) == 3, f"{tuple(shape)}"
    try:
        shape[3] = 1
    except IndexError:
        return
    raise AssertionError("an index out of range was accepted")


def test_in_place_output_with_another_address_in_a_decorator_plugin():
    @trtp.register("acceptance::grow")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl("acceptance::grow")
    def run(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] += 5

    builder, network, config = start()
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    x = network.add_input("x", trt.float32, (2, 3))
    mark(network, network.add_plugin(trtp.op.acceptance.grow(x)).get_output(0), "y")
    engine, data = load(build(builder, network, config)), random((2, 3))
    before = data.copy()
    np.testing.assert_allclose(infer(new_context(engine), {"x": data})["y"], before + 5, rtol=1e-6)


class Grow(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime):
    """Adds 5 to its input, in place."""

    def __init__(self):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuildV2.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace, self.num_outputs = (
            "AcceptGrow",
            "1",
            "",
            1,
        )

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return Grow()

    def get_aliased_input(self, output_index):
        return 0

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return (
            in_out[pos].desc.format == trt.TensorFormat.LINEAR
            and in_out[pos].desc.type == trt.float32
        )

    def configure_plugin(self, inputs, outputs):
        pass

    def on_shape_change(self, inputs, outputs):
        pass

    def set_tactic(self, tactic):
        pass

    def attach_to_context(self, resource_context):
        return self.clone()

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        view(inputs[0], input_desc[0].dims, np.float32)[...] += 5


class GrowCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "AcceptGrow", "1", ""
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, field_collection, phase):
        return Grow()


def grow_engine(times=1, neighbour=False):
    trt.get_plugin_registry().register_creator(GrowCreator(), "")
    builder, network, config = start()
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    x = tensor = network.add_input("x", trt.float32, (2, 3))
    for _ in range(times):
        tensor = network.add_plugin_v3([tensor], [], Grow()).get_output(0)
    mark(network, tensor, "y")
    if neighbour:
        mark(network, network.add_unary(x, trt.UnaryOperation.NEG).get_output(0), "z")
    return load(build(builder, network, config))


def test_in_place_output_with_another_address():
    data = random((2, 3))
    before = data.copy()
    np.testing.assert_allclose(
        infer(new_context(grow_engine()), {"x": data})["y"], before + 5, rtol=1e-6
    )


def test_in_place_output_with_another_address_after_two_plugins():
    data = random((2, 3))
    before = data.copy()
    np.testing.assert_allclose(
        infer(new_context(grow_engine(2)), {"x": data})["y"], before + 10, rtol=1e-6
    )


def test_in_place_output_with_the_inputs_address():
    engine, data = grow_engine(), aligned((2, 3), np.float32)
    data[...] = before = random((2, 3))
    context = engine.create_execution_context()
    assert context.set_tensor_address("x", data.ctypes.data) and context.set_tensor_address(
        "y", data.ctypes.data
    )
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(data, before + 5, rtol=1e-6)


# ---- shapes in a context (IExecutionContext::getTensorShape and inferShapes) ----


def test_shape_of_an_input_that_is_not_set():
    context = dynamic_engine().create_execution_context()
    assert tuple(context.get_tensor_shape("x")) == (-1, 3, -1), (
        f"{tuple(context.get_tensor_shape('x'))}"
    )
    assert tuple(context.get_tensor_shape("y")) == (-1, 3, -1), (
        f"{tuple(context.get_tensor_shape('y'))}"
    )
    assert context.set_input_shape("x", (2, 3, 5))
    assert tuple(context.get_tensor_shape("x")) == tuple(context.get_tensor_shape("y")) == (2, 3, 5)


def test_shape_of_an_input_that_the_profile_fixes():
    # "implicitly constrained to be a single value": equal minimum and maximum in the profile
    context = dynamic_engine(
        (-1, 3, -1), ((2, 3, 2), (2, 3, 4), (2, 3, 8))
    ).create_execution_context()
    assert tuple(context.get_tensor_shape("x")) == (2, 3, -1), (
        f"{tuple(context.get_tensor_shape('x'))}"
    )


def two_inputs():
    builder, network, config = start()
    a, b = (network.add_input(name, trt.float32, (-1, 3)) for name in ("a", "b"))
    fixed = network.add_input("fixed", trt.float32, (1, 3))
    total = network.add_elementwise(a, b, trt.ElementWiseOperation.SUM).get_output(0)
    mark(
        network,
        network.add_elementwise(total, fixed, trt.ElementWiseOperation.SUM).get_output(0),
        "y",
    )
    profile = builder.create_optimization_profile()
    for name in ("a", "b"):
        profile.set_shape(name, (1, 3), (2, 3), (4, 3))
    config.add_optimization_profile(profile)
    return load(build(builder, network, config)).create_execution_context()


def test_infer_shapes_names_what_is_missing():
    context = two_inputs()
    missing = context.infer_shapes()
    assert isinstance(missing, list) and sorted(missing) == ["a", "b"], f"{missing!r}"
    assert context.set_input_shape("b", (2, 3))
    assert context.infer_shapes() == ["a"], f"{context.infer_shapes()!r}"
    assert context.set_input_shape("a", (2, 3))
    assert context.infer_shapes() == [], f"{context.infer_shapes()!r}"


def test_infer_shapes_names_shape_inputs_without_an_address():
    builder, network, config = start()
    part = network.add_slice(network.add_input("x", trt.float32, (6,)), (0,), (1,), (1,))
    part.set_input(2, network.add_input("size", trt.int64, (1,)))
    mark(network, part.get_output(0), "y")
    profile = builder.create_optimization_profile()
    profile.set_shape_input("size", (1,), (3,), (6,))
    config.add_optimization_profile(profile)
    engine = load(build(builder, network, config))
    assert engine.is_shape_inference_io("size"), "is_shape_inference_io('size') is False"
    context = engine.create_execution_context()
    missing = context.infer_shapes()
    assert missing == ["size"], f"infer_shapes() is {missing!r} before the address of 'size' is set"
    size = np.array([4], np.int64)
    assert context.set_tensor_address("size", size.ctypes.data)
    assert context.infer_shapes() == [], f"{context.infer_shapes()!r}"
    assert tuple(context.get_tensor_shape("y")) == (4,)


# ---- other programs, in an environment in which Opwright answers `import tensorrt` ----


def program(python, text):
    done = subprocess.run([python, "-c", text], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, (done.stderr.strip().splitlines() or ["no message"])[-1]
    return done.stdout.strip()


def test_another_program_imports_tensorrt(tensorrt_python):
    text = "import tensorrt as t; print(t.__version__, t.Builder(t.Logger()) is not None)"
    assert program(tensorrt_python, text) == f"{trt.__version__} True"


def test_another_program_imports_the_plugin_module(tensorrt_python):
    text = (
        "import tensorrt.plugin as p; from tensorrt import plugin; print(p is plugin, p.register)"
    )
    assert program(tensorrt_python, text).startswith("True <function")


def test_metadata_has_a_version_of_tensorrt(tensorrt_python):
    text = "import importlib.metadata as m, tensorrt as t; print(m.version('tensorrt') == t.__version__)"
    assert program(tensorrt_python, text) == "True"
