"""What builds compare and watch while they time candidates."""

import subprocess
from typing import Tuple

import numpy as np
import pytest
from onnx import helper

import emulated_gpu
import onnx_graphs
import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, new_id, one_plugin
from v3_plugins import Log

X = np.random.default_rng(5).normal(size=(4, 8)).astype(np.float32)


def warnings_of(log: Log) -> str:
    return "\n".join(text for severity, text in log.lines if severity == trt.ILogger.WARNING)


def tuned(run, tactics=(1, 2), types="FP32, FP32", **options) -> str:
    """Registers a plugin y = f(x) whose tactics `run(x, y, tactic)` computes."""
    plugin_id = new_id("verified")

    @trtp.register(plugin_id, **options)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination(types, "LINEAR", list(tactics))]

    @trtp.impl(plugin_id)
    def impl(x, outputs, stream, tactic):
        run(np.asarray(x), np.asarray(outputs[0]), tactic)

    return plugin_id


def built(plugin_id, x=X, **options):
    """The engine, and the warnings of its build."""
    log = Log()
    net, layer = one_plugin(plugin_id, x)
    layer.name = "the layer"
    engine = build(net, layer.get_output(0), logger=log, **options)
    return engine, warnings_of(log)


def beyond(y: np.ndarray, elements: int) -> np.ndarray:
    """The memory of a tensor and of what lies behind it."""
    return np.lib.stride_tricks.as_strided(y.reshape(-1), (elements,), (y.itemsize,))


def test_what_an_impl_forgets_to_write_is_an_error():
    def forgetful(x, y, tactic):
        y[:, :-1] = x[:, :-1]

    with pytest.raises(trt.Error) as caught:
        built(tuned(forgetful, [1]))
    for part in ("'the layer'", "plugin 'verified'", "tactic 1", "did not write 4 of 32 elements"):
        assert part in str(caught.value)
    assert "the first at [0, 7]" in str(caught.value)
    engine, text = built(tuned(forgetful, [1]), timing=False)
    assert text == "" and engine is not None, "nothing is run"


def test_a_tactic_that_writes_beyond_is_left_out():
    def run(x, y, tactic):
        beyond(y, 34 if tactic == 1 else 32)[...] = 0
        y[...] = 2 * x

    engine, text = built(tuned(run))
    assert "tactic 1 is left out: plugin 'verified'" in text
    assert "wrote 8 bytes behind the end of output 0 ('y0': FP32 4x8), from element 32 on" in text
    np.testing.assert_array_equal(engine(X), 2 * X)


def test_tactics_that_disagree():
    def run(x, y, tactic):
        y[...] = 2 * x
        if tactic == 2:
            y[1, 3] += 1

    plugin_id = tuned(run)
    engine, text = built(plugin_id)
    assert "tactic 2 is left out: plugin 'verified'" in text
    assert (
        "differs from tactic 1, FP32 -> FP32 in 1 of 32 elements of output 0 ('y0': FP32 4x8)"
        in text
    )
    assert "most at [1, 3]" in text
    np.testing.assert_array_equal(engine(X), 2 * X)
    with pytest.raises(trt.Error, match=r"tactic 2.*most at \[1, 3\].*strict"):
        built(plugin_id, verify="strict")


def test_types_may_round():
    """A function that magnifies what FP16 rounds off."""
    weights = np.random.default_rng(6).normal(size=(256, 256)).astype(np.float32)

    def run(x, y, tactic):
        y[...] = 3 * np.sin(x @ weights.astype(x.dtype))

    x = np.random.default_rng(7).normal(size=(16, 256)).astype(np.float32)
    plugin_id = tuned(run, [1], "FP32|FP16, FP32|FP16")
    assert built(plugin_id, x, verify="strict", fp16=True)[1] == ""


@pytest.mark.parametrize("options", [{}, {"repeatable": False}])
def test_random_numbers_are_not_compared(options):
    generator = np.random.default_rng(8)
    engine, text = built(
        tuned(lambda x, y, tactic: np.copyto(y, generator.normal(size=y.shape)), **options),
        verify="strict",
    )
    assert text == ""


def test_repeatable_says_that_tactics_may_differ():
    def run(x, y, tactic):
        y[...] = tactic

    assert "differs" in built(tuned(run))[1]
    assert built(tuned(run, repeatable=False))[1] == ""


def test_a_reference_function():
    def run(x, y, tactic):
        y[...] = 3 * x if tactic == 1 else 2 * x

    plugin_id = tuned(run)
    asked = []

    @trtp.reference(plugin_id)
    def right(x, outputs, stream):
        asked.append(1)
        np.asarray(outputs[0])[...] = 2 * np.asarray(x)

    engine, text = built(plugin_id)
    assert asked and "tactic 1 is left out" in text
    assert "differs from its reference function in" in text
    np.testing.assert_array_equal(engine(X), 2 * X)


SOURCE = """
#include <cstdint>
void twice(const float* x, std::int64_t n, float* y, std::int64_t, std::int64_t, std::int64_t) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = 3 * x[i];
}
"""


def compiled_and_called(run) -> str:
    """Registers y = 3 x as a kernel, and `run(x, y)`."""
    plugin_id = new_id("compiled")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def impl(x, outputs, stream):
        run(np.asarray(x), np.asarray(outputs[0]))

    @trtp.aot_impl(plugin_id)
    def compiled(
        x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int
    ) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(x.shape_expr.numel())])
        code = aot.cpp(SOURCE, "twice", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    return plugin_id


def test_compiled_kernels_are_compared_with_impl():
    plugin_id = compiled_and_called(lambda x, y: np.multiply(x, 2, out=y))
    net, layer = one_plugin(plugin_id, X, aot=True)
    with pytest.raises(trt.Error, match="differs from its impl function in"):
        build(net, layer.get_output(0))


def test_an_impl_that_cannot_run_is_nothing_to_compare_with():
    """As one for NumPy, where the engine is for a GPU."""
    plugin_id = compiled_and_called(lambda x, y: 1 / 0)
    net, layer = one_plugin(plugin_id, X, aot=True)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(X), 3 * X)


def test_in_place_plugins_begin_anew():
    """What adds 1 to its input adds it to the same values in each run that is compared."""
    plugin_id = new_id("in_place")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]

    @trtp.impl(plugin_id)
    def impl(x, outputs, stream, tactic):
        np.asarray(outputs[0])[...] += 1

    assert built(plugin_id, verify="strict")[1] == ""


def layers(dtype) -> dict[str, tuple[list, dict, list]]:
    """Standard layers by name: nodes from x to y, constants, the shape of x."""
    node = helper.make_node
    r = np.random.default_rng(9)

    def weights(*shape):
        return (r.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(dtype)

    image, rows = [2, 16, 9, 11], [5, 64]
    return {
        "conv": ([node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4), node("Relu", ["c"], ["y"])],
                 {"w": weights(24, 16, 3, 3), "b": weights(24, 1)[:, 0]}, image),
        "conv_1x1": ([node("Conv", ["x", "w"], ["c"]), node("Sigmoid", ["c"], ["s"]),
                      node("Mul", ["c", "s"], ["y"])], {"w": weights(8, 16, 1, 1)}, image),
        "depthwise": ([node("Conv", ["x", "w"], ["y"], group=16, strides=[2, 2])],
                      {"w": weights(16, 1, 3, 3)}, image),
        "deconvolution": ([node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])],
                          {"w": weights(16, 8, 3, 3)}, image),
        "product": ([node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["a"]),
                     node("Gelu", ["a"], ["y"])],
                    {"w": weights(64, 48), "b": weights(48, 1)[:, 0]}, rows),
        "gemm": ([node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
                 {"w": weights(48, 64), "b": weights(48, 1)[:, 0]}, rows),
        "softmax": ([node("Softmax", ["x"], ["y"], axis=1)], {}, rows),
        "layer_norm": ([node("LayerNormalization", ["x", "s", "b"], ["y"])],
                       {"s": weights(64, 1)[:, 0], "b": weights(64, 1)[:, 0]}, rows),
        "instance_norm": ([node("InstanceNormalization", ["x", "s", "b"], ["y"])],
                          {"s": weights(16, 1)[:, 0], "b": weights(16, 1)[:, 0]}, image),
        "max_pool": ([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1] * 4)], {}, image),
        "average_pool": ([node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3])], {}, image),
        "mean": ([node("ReduceMean", ["x", "axes"], ["y"])], {"axes": np.array([2, 3])}, image),
        "transpose": ([node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], {}, image),
        "slice": ([node("Slice", ["x", "b", "e"], ["y"])],
                  {"b": np.array([0, 3, 1, 2]), "e": np.array([2, 11, 8, 9])}, image),
        "concat": ([node("Relu", ["x"], ["r"]), node("Concat", ["x", "r"], ["y"], axis=1)], {}, image),
        "chain": ([node("Tanh", ["x"], ["t"]), node("Exp", ["t"], ["e"]),
                   node("Sub", ["e", "x"], ["s"]), node("Erf", ["s"], ["y"])], {}, image),
        "gather": ([node("Gather", ["x", "i"], ["y"], axis=1)], {"i": np.array([3, 0, 15])}, image),
        "cumsum": ([node("CumSum", ["x", "axis"], ["y"])], {"axis": np.array(1)}, rows),
        "top_k": ([node("TopK", ["x", "k"], ["y", "i"])], {"k": np.array([3])}, rows),
    }  # fmt: skip


def model_of(name: str, dtype) -> bytes:
    nodes, constants, shape = layers(dtype)[name]
    inputs = {"x": (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)}
    outputs = ["y", "i"] if name == "top_k" else ["y"]
    return onnx_graphs.model(nodes, inputs, outputs, constants, 20).SerializeToString()


@pytest.mark.parametrize("name", layers(np.float32))
def test_standard_layers_raise_no_alarm(name):
    for options in ({}, {"fp16": True}, {"bf16": True}):
        log = Log()
        trt.build(
            model_of(name, np.float32),
            verify="strict",
            all_tactics=True,
            logger=log,
            device="cpu",
            **options,
        )
        assert warnings_of(log) == ""


@emulated_gpu.required
@pytest.mark.parametrize("name", ["softmax", "transpose", "conv_1x1", "max_pool"])
def test_kernels_of_a_gpu_raise_no_alarm(name):
    log = Log()
    trt.build(model_of(name, np.float32), verify="strict", logger=log, device="cuda")
    compared = [text for _, text in log.lines if "compared with a reference" in text]
    assert warnings_of(log) == "" and " 0 compared" not in compared[0]
    details = "\n".join(text for _, text in log.lines)
    assert "Another process" in details and "in another process first" not in details


def test_config_and_cache_keep_what_was_verified(tmp_path):
    config = trt.Builder(trt.Logger()).create_builder_config()
    assert config.verify is False and config.all_tactics is False
    for verify in (True, "strict", False):
        config.verify = verify
        assert config.verify == verify
    with pytest.raises(trt.Error, match="expected True, False or 'strict'"):
        config.verify = "often"
    model, cache = model_of("product", np.float32), tmp_path / "cache"
    compared = []
    for verify in (False, True, True):
        log = Log()
        options = {"timing_cache": cache, "logger": log, "bf16": True, "device": "cpu"}
        trt.build(model, verify=verify, **options)
        (text,) = [text for _, text in log.lines if "compared with a reference" in text]
        compared.append(int(text.split(" compared with")[0].split()[-1]))
    assert compared[0] == compared[2] == 0 < compared[1]


def test_program(program, tmp_path):
    (tmp_path / "model.onnx").write_bytes(model_of("conv", np.float32))
    for option in ("--verify", "--verify-strictly", "--all-tactics"):
        arguments = [
            program,
            "build",
            "model.onnx",
            "-o",
            "engine",
            "-q",
            "--device",
            "cpu",
            option,
        ]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
