"""What programs that generate plugins look up: tensorrt.plugin._lib, and what op.* says of a plugin."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import typing
from typing import Tuple

import numpy as np
import numpy.typing as npt
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright.plugin._lib import QDP_REGISTRY
from plugin_testing import build, network, new_id, op_of


def scaled() -> str:
    plugin_id = new_id("scaled")

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc, y: trtp.TensorDesc, by: npt.NDArray[np.float64], mode: str
    ) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        return x.like(), y.like()

    return plugin_id


def test_the_registry_tells_what_a_plugin_is_made_of():
    plugin_id = scaled()
    plugin = QDP_REGISTRY[plugin_id]
    assert plugin_id in QDP_REGISTRY and plugin_id in list(QDP_REGISTRY)
    assert plugin.plugin_id == plugin_id and plugin.register_func.__name__ == "desc"
    for same in (plugin, op_of(plugin_id)):
        assert same.input_tensor_names == ["x", "y"] and same.num_outputs == 2
        assert list(same.input_attrs) == ["by", "mode"] and same.input_attrs["mode"] is str
        hint = same.input_attrs["by"]
        assert typing.get_origin(hint) is np.ndarray
        assert typing.get_args(typing.get_args(hint)[1]) == (np.float64,)
    assert plugin.impl_func is plugin.aot_impl_func is plugin.autotune_func is None
    assert plugin.expects_tactic is plugin.impl_attr_names is plugin.aot_impl_attr_names is None

    @trtp.impl(plugin_id)
    def run(x, y, mode, outputs, stream, tactic):
        pass

    @trtp.autotune(plugin_id)
    def tune(x, y, outputs):
        return []

    @trtp.aot_impl(plugin_id)
    def compile(x, y, by, mode, outputs, tactic):
        raise NotImplementedError

    assert (plugin.impl_func, plugin.autotune_func, plugin.aot_impl_func) == (run, tune, compile)
    assert plugin.impl_attr_names == ["mode"] and plugin.expects_tactic
    assert plugin.autotune_attr_names == [] and plugin.aot_impl_attr_names == ["by", "mode"]
    assert "no::such" not in QDP_REGISTRY
    with pytest.raises(KeyError):
        QDP_REGISTRY["no::such"]


def test_a_kernel_is_an_implementation_ahead_of_time():
    plugin_id = new_id("negate")
    source = "void negate(const float* x, float* y, int64_t, int64_t, int64_t) { *y = -*x; }"
    trtp.kernel(plugin_id, source)(_negate_desc)
    assert QDP_REGISTRY[plugin_id].aot_impl_func is not None
    assert QDP_REGISTRY[plugin_id].impl_func is None


def _negate_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


def test_generated_functions_with_scalars_as_arrays():
    """Functions made by exec, exact-arity tuples, expressions with the number first, arrays without axes."""
    plugin_id = new_id("generated")
    scope: dict[str, object] = {}
    exec(
        textwrap.dedent("""
        def desc(x, factor, twice):
            out = x.like()
            extents = trtp.ShapeExprs(2)
            extents[0], extents[1] = 2 * x.shape_expr[0], 1 + x.shape_expr[1]
            out.shape_expr = extents
            return (out,)

        def run(x, factor, twice, outputs, stream):
            y = np.asarray(outputs[0])
            y[...] = 0
            y[: x.shape[0], : x.shape[1]] = np.asarray(x) * factor.reshape(()).item()
            assert twice.reshape(()).item() is True
        """),
        {"trtp": trtp, "np": np},
        scope,
    )
    attributes = {"factor": npt.NDArray[np.float64], "twice": npt.NDArray[np.bool_]}
    scope["desc"].__annotations__ = {
        "x": trtp.TensorDesc,
        **attributes,
        "return": Tuple[(trtp.TensorDesc,) * 1],
    }
    scope["run"].__annotations__ = {
        "x": trtp.Tensor,
        **attributes,
        "outputs": Tuple[(trtp.Tensor,) * 1],
        "stream": int,
    }
    trtp.register(plugin_id)(scope["desc"])
    trtp.impl(plugin_id)(scope["run"])
    x = np.ones((2, 3), np.float32)
    net = network()
    given = {"factor": np.asarray(2.5, np.float64), "twice": np.asarray(True, np.bool_)}
    layer = net.add_plugin(
        op_of(plugin_id)(net.add_input("x", trt.float32, x.shape), **given), aot=False
    )
    expected = np.zeros((4, 4), np.float32)
    expected[:2, :3] = 2.5
    np.testing.assert_array_equal(build(net, layer.get_output(0))(x), expected)


def test_under_the_name_of_tensorrt():
    program = """
import importlib.util
import opwright.trt
opwright.trt.install()
import tensorrt.plugin as trtp
assert importlib.util.find_spec("tensorrt.plugin._lib")
from tensorrt.plugin._lib import QDP_REGISTRY

@trtp.register("a::b")
def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

assert QDP_REGISTRY["a::b"].register_func is desc
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
