"""NVIDIA's own pure-Python package tensorrt.plugin over opwright.

It is a part of the wheel tensorrt-cu13-bindings, whose Python files alone are used. It knows nothing of opwright: that
its plugins run shows that IPluginV3QuickCore, -Build, -AOTBuild, -Runtime, IPluginCreatorV3Quick and the expressions
are complete.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import time
from typing import List, Tuple

import numpy as np
import numpy.typing as npt

import opwright as trt
import opwright.trt
from cases import (
    LOGGER,
    STRONGLY_TYPED,
    build,
    circular_pad,
    compiled,
    in_saved_engine,
    infer,
    load,
    mark,
    new_context,
    random,
    read,
    start,
    view,
)


class LayerFinder(importlib.abc.MetaPathFinder):
    """Finds tensorrt.plugin and what is in it in NVIDIA's package, before anything else can."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name == "tensorrt.plugin":
            return importlib.machinery.PathFinder.find_spec(name, [os.path.dirname(self.folder)])
        if name.startswith("tensorrt.plugin."):
            return importlib.machinery.PathFinder.find_spec(name, [self.folder])
        return None


def nvidia_layer(folder):
    """NVIDIA's tensorrt.plugin, imported over opwright."""
    folder = os.path.abspath(folder)
    opwright.trt.install()
    import tensorrt

    for name in [
        n for n in sys.modules if n == "tensorrt.plugin" or n.startswith("tensorrt.plugin.")
    ]:
        del sys.modules[name]
    if not hasattr(tensorrt, "__path__"):
        tensorrt.__path__ = []
    sys.meta_path.insert(0, LayerFinder(folder))
    layer = importlib.import_module("tensorrt.plugin")
    assert os.path.dirname(os.path.abspath(layer.__file__)) == folder, (
        f"tensorrt.plugin is {layer.__file__}"
    )
    tensorrt.plugin = layer
    return layer


def contents(tensor, shape=None):
    """A tensor's memory as an array: NVIDIA's Tensor has an interface for CUDA only."""
    return view(tensor.data_ptr, tensor.shape if shape is None else shape, trt.nptype(tensor.dtype))


def engine_with(op, shape, dtype=trt.float32, flags=STRONGLY_TYPED, profile=None, aot=None):
    return load(plan_with(op, shape, dtype, flags, profile, aot))


def plan_with(op, shape, dtype=trt.float32, flags=STRONGLY_TYPED, profile=None, aot=None):
    builder, network, config = start(flags)
    x = network.add_input("x", dtype, shape)
    layer = network.add_plugin(op(x)) if aot is None else network.add_plugin(op(x), aot=aot)
    for i in range(layer.num_outputs):
        mark(network, layer.get_output(i), f"y{i}")
    if profile:
        limits = builder.create_optimization_profile()
        limits.set_shape("x", *profile)
        config.add_optimization_profile(limits)
    return build(builder, network, config)


PADS = np.array([2, 1, 1, 3], np.int32)
SEEN = []  # (type, tactic) for each call of impl


def define_circ_pad(layer, autotune=True):
    @layer.register("acceptance::circ_pad")
    def describe(x: layer.TensorDesc, pads: npt.NDArray[np.int32]) -> layer.TensorDesc:
        out = x.like()
        for i in range(np.size(pads) // 2):
            out.shape_expr[x.ndim - i - 1] += int(pads[2 * i] + pads[2 * i + 1])
        return out

    @layer.impl("acceptance::circ_pad")
    def run(x, pads: npt.NDArray[np.int32], outputs, stream, tactic) -> None:
        SEEN.append((x.dtype, tactic))
        widths = [(0, 0)] * x.ndim
        for i in range(len(pads) // 2):
            widths[x.ndim - 1 - i] = (int(pads[2 * i]), int(pads[2 * i + 1]))
        contents(outputs[0])[...] = np.pad(contents(x), widths, mode="wrap")
        time.sleep(0.03 if tactic == 1 else 0)

    if autotune:

        @layer.autotune("acceptance::circ_pad")
        def tune(
            x: layer.TensorDesc, outputs: Tuple[layer.TensorDesc]
        ) -> List[layer.AutoTuneCombination]:
            combination = layer.AutoTuneCombination()
            combination.pos([0, 1], "FP32|FP16")
            combination.tactics([1, 2])
            return [combination]

    return layer.op.acceptance.circ_pad


# ---- cases ----


def test_the_layer_is_nvidias_over_opwright(nvidia_package):
    own, layer = importlib.import_module("opwright.plugin"), nvidia_layer(nvidia_package)
    import tensorrt

    assert tensorrt.plugin is layer and layer is not own
    assert (
        tensorrt.IPluginV3QuickBuild is trt.IPluginV3QuickBuild and tensorrt.Builder is trt.Builder
    )
    level = opwright.trt.__version__
    assert level.split(".")[0] == "11", f"the API level is {level}, expected 11.x"


def test_add(nvidia_package):
    layer = nvidia_layer(nvidia_package)

    @layer.register("acceptance::add")
    def describe(x: layer.TensorDesc, value: int) -> layer.TensorDesc:
        return x.like()

    @layer.impl("acceptance::add")
    def run(x: layer.Tensor, value: int, outputs: Tuple[layer.Tensor], stream: int) -> None:
        assert stream == 0 and tuple(x.strides) == (20, 5, 1), (
            f"stream {stream}, strides {tuple(x.strides)}"
        )
        contents(outputs[0])[...] = contents(x) + contents(x).dtype.type(value)

    for dtype, kind in [(trt.float32, np.float32), (trt.float16, np.float16)]:
        x = random((3, 4, 5), kind)
        engine = engine_with(lambda t: layer.op.acceptance.add(t, value=3), x.shape, dtype)
        np.testing.assert_array_equal(infer(new_context(engine), {"x": x})["y0"], x + kind(3))


def test_circ_pad_with_autotune(nvidia_package):
    layer = nvidia_layer(nvidia_package)
    op = define_circ_pad(layer)
    for dtype, kind in [(trt.float32, np.float32), (trt.float16, np.float16)]:
        SEEN.clear()
        x = random((2, 3, 8, 9), kind)
        engine = engine_with(lambda t: op(t, pads=PADS), x.shape, dtype)
        assert {tactic for seen, tactic in SEEN if seen == dtype} == {1, 2}, f"the build ran {SEEN}"
        SEEN.clear()
        np.testing.assert_array_equal(
            infer(new_context(engine), {"x": x})["y0"], circular_pad(x, PADS)
        )
        assert SEEN == [(dtype, 2)], f"tactic 2 is the fast one, the engine ran {SEEN}"


def test_circ_pad_dynamic_shapes(nvidia_package):
    layer = nvidia_layer(nvidia_package)
    op = define_circ_pad(layer)
    limits = [(1, 3, 4, 4), (4, 3, 16, 16), (8, 3, 32, 24)]
    context = new_context(engine_with(lambda t: op(t, pads=PADS), (-1, 3, -1, -1), profile=limits))
    for seed, shape in enumerate([*limits, (2, 3, 5, 7)]):
        x = random(shape, seed=seed)
        np.testing.assert_array_equal(infer(context, {"x": x})["y0"], circular_pad(x, PADS))


def test_circ_pad_onnx(nvidia_package):
    from onnx import TensorProto, helper

    define_circ_pad(nvidia_layer(nvidia_package))
    node = helper.make_node(
        "circ_pad", ["x"], ["y0"], pads=PADS.tolist(), plugin_namespace="acceptance"
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 9])],
        [helper.make_tensor_value_info("y0", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = min(model.ir_version, 8)
    builder, network, config = start(STRONGLY_TYPED)
    parser = trt.OnnxParser(network, LOGGER)
    assert parser.parse(model.SerializeToString()), [
        str(parser.get_error(i)) for i in range(parser.num_errors)
    ]
    x = random((2, 3, 8, 9))
    y = infer(new_context(load(build(builder, network, config))), {"x": x})["y0"]
    np.testing.assert_array_equal(y, circular_pad(x, PADS))


def run_circ_pad(path, nvidia_package):
    define_circ_pad(nvidia_layer(nvidia_package), autotune=False)
    engine = load(read(path))
    x = random((2, 3, 8, 9))
    np.testing.assert_array_equal(infer(new_context(engine), {"x": x})["y0"], circular_pad(x, PADS))
    assert {tactic for _, tactic in SEEN} == {2}


def test_circ_pad_saved_engine(nvidia_package):
    op = define_circ_pad(nvidia_layer(nvidia_package))
    in_saved_engine(
        plan_with(lambda t: op(t, pads=PADS), (2, 3, 8, 9)), run_circ_pad, nvidia_package
    )


def define_negative(layer, autotune=True):
    @layer.register("acceptance::negative")
    def describe(x: layer.TensorDesc) -> layer.TensorDesc:
        return x.like()

    @layer.impl("acceptance::negative")
    def run(x, outputs, stream, tactic) -> None:
        SEEN.append((x.dtype, x.format, tactic))
        contents(outputs[0])[...] = -contents(x)

    if autotune:

        @layer.autotune("acceptance::negative")
        def tune(x, outputs) -> List[layer.AutoTuneCombination]:
            return [layer.AutoTuneCombination("FP32, FP32", "HWC", [5])]

    return layer.op.acceptance.negative


def run_negative(path, nvidia_package):
    define_negative(nvidia_layer(nvidia_package), autotune=False)
    x = random((2, 3, 4, 5))
    np.testing.assert_array_equal(infer(new_context(load(read(path))), {"x": x})["y0"], -x)
    assert SEEN == [(trt.float32, trt.TensorFormat.HWC, 5)], f"{SEEN}"


def test_saved_engine_in_a_layout_that_was_tuned(nvidia_package):
    op = define_negative(nvidia_layer(nvidia_package))
    in_saved_engine(plan_with(op, (2, 3, 4, 5)), run_negative, nvidia_package)


def test_non_zero(nvidia_package):
    layer = nvidia_layer(nvidia_package)

    @layer.register("acceptance::non_zero")
    def describe(x: layer.TensorDesc) -> Tuple[layer.TensorDesc, layer.TensorDesc]:
        upper = x.shape_expr[0] * x.shape_expr[1]
        count = layer.size_tensor(upper // 2, upper)
        count.dtype = trt.int64
        return layer.from_shape_expr((count.expr(), 2), dtype=trt.int32), count

    @layer.autotune("acceptance::non_zero")
    def tune(x, outputs) -> List[layer.AutoTuneCombination]:
        return [layer.AutoTuneCombination("FP32|FP16, INT32, INT64")]

    @layer.impl("acceptance::non_zero")
    def run(x, outputs, stream) -> None:
        found = np.argwhere(contents(x))
        contents(outputs[0], (x.numel(), 2))[: len(found)] = found
        contents(outputs[1], ())[...] = len(found)

    engine = engine_with(
        layer.op.acceptance.non_zero, (-1, -1), profile=[(1, 1), (16, 16), (64, 48)]
    )
    context, generator = new_context(engine), np.random.default_rng(0)
    for shape, share in [((16, 16), 0.5), ((64, 48), 1.0), ((5, 7), 0.0)]:
        x = np.where(generator.random(shape) < share, generator.random(shape) + 1, 0).astype(
            np.float32
        )
        want = np.transpose(np.nonzero(x))
        outputs = infer(context, {"x": x}, {"y0": (x.size, 2)})
        assert int(outputs["y1"]) == len(want), (
            f"{shape}: {int(outputs['y1'])}, expected {len(want)}"
        )
        np.testing.assert_array_equal(outputs["y0"][: len(want)], want)


SCALE = """
extern "C" void scale(void** args, int64_t x, int64_t, int64_t) {
    auto in = *static_cast<float const**>(args[0]);
    auto n = *static_cast<int32_t*>(args[1]);
    auto out = *static_cast<float**>(args[2]);
    for (int64_t i = x * 64; i < n && i < x * 64 + 64; ++i) out[i] = 3 * in[i];
}
"""


def test_compiled_kernel(nvidia_package):
    """The fourth class, IPluginV3QuickAOTBuild: a kernel that the layer hands over as code."""
    layer = nvidia_layer(nvidia_package)
    code = compiled(SCALE)

    @layer.register("acceptance::scale")
    def describe(x: layer.TensorDesc) -> layer.TensorDesc:
        return x.like()

    @layer.aot_impl("acceptance::scale")
    def kernel(
        x: layer.TensorDesc, outputs: Tuple[layer.TensorDesc], tactic: int
    ) -> Tuple[str | bytes, str | bytes, layer.KernelLaunchParams, layer.SymExprs]:
        count = x.shape_expr.numel()
        launch = layer.KernelLaunchParams()
        launch.grid_x = layer.cdiv(count, 64)
        return "scale", code, launch, layer.SymIntExprs.from_tuple([layer.SymInt32(count)])

    builder, network, config = start(STRONGLY_TYPED)
    tensor = network.add_input("x", trt.float32, (-1, 7))
    mark(
        network, network.add_plugin(layer.op.acceptance.scale(tensor), aot=True).get_output(0), "y0"
    )
    limits = builder.create_optimization_profile()
    limits.set_shape("x", (1, 7), (40, 7), (100, 7))
    config.add_optimization_profile(limits)
    context = new_context(builder.build_engine_with_config(network, config))
    for rows in (1, 100, 37):
        x = random((rows, 7), seed=rows)
        np.testing.assert_array_equal(infer(context, {"x": x})["y0"], x * 3)
