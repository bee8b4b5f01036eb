"""Plugins of a shape rule and a kernel."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot, testing
from opwright.aot import _code, _toolchain
from plugin_testing import build, need_nvrtc, network, new_id, one_plugin, op_of

SHRINK = """
template <class T>
void shrink(const T* x, int64_t n, float limit, T* y, int64_t cell, int64_t, int64_t) {
  const int64_t end = n < (cell + 1) * BLOCK ? n : (cell + 1) * BLOCK;
  for (int64_t i = cell * BLOCK; i < end; ++i) {
    const float v = x[i];
    y[i] = static_cast<T>(v > limit ? v - limit : v < -limit ? v + limit : 0.0f);
  }
}
"""
X = np.linspace(-2, 2, 999, dtype=np.float32).reshape(3, 333)


def shrunk(x, limit):
    return np.sign(x) * np.maximum(np.abs(x) - limit, 0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_code, "_in_memory", {})


def define_shrink(plugin_id, code, **options):
    options = {"constants": {"BLOCK": 100}, **options}

    @trtp.kernel(
        plugin_id,
        code,
        "shrink",
        grid=lambda x, BLOCK: trtp.cdiv(x.shape_expr.numel(), BLOCK),
        extra=lambda x, limit: [x.shape_expr.numel(), limit],
        **options,
    )
    def shrink_desc(x: trtp.TensorDesc, limit: float = 0.5) -> trtp.TensorDesc:
        return x.like()

    return shrink_desc


def shrink_numba(x, n, limit, y, cell, _y, _z):
    for i in range(cell * BLOCK, min(n, (cell + 1) * BLOCK)):  # noqa: F821
        y[i] = max(x[i] - limit, 0) + min(x[i] + limit, 0)


@pytest.mark.parametrize("code", [SHRINK, shrink_numba], ids=["cpp", "numba"])
def test_results_and_dynamic_shapes(code):
    if code is shrink_numba:
        pytest.importorskip("numba")
    plugin_id = new_id("shrink")
    define_shrink(plugin_id, code)
    net = network()
    x = net.add_input("x", trt.float32, (-1, 333))
    layer = net.add_plugin(op_of(plugin_id)(x, limit=0.25))
    engine = build(net, layer.get_output(0), shapes={"x": ((1, 333), (3, 333), (8, 333))})
    for rows in (1, 3):
        np.testing.assert_allclose(engine(X[:rows]), shrunk(X[:rows], 0.25), atol=1e-6)


def test_a_file_and_the_default_name(tmp_path):
    plugin_id = new_id("shrink")
    (tmp_path / "ops.cpp").write_text(SHRINK)

    @trtp.kernel(plugin_id, tmp_path / "ops.cpp", extra=[999, 0.5], flags=["-DBLOCK=1000"])
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    net, layer = one_plugin(plugin_id, X)
    np.testing.assert_allclose(build(net, layer.get_output(0))(X), shrunk(X, 0.5), atol=1e-6)


def test_types_are_chosen_by_the_tuner():
    plugin_id = new_id("shrink")
    define_shrink(plugin_id, SHRINK, types="FP32|FP16")
    assert testing.check(plugin_id, [X]).ok
    net, layer = one_plugin(plugin_id, X.astype(np.float16))
    y = build(net, layer.get_output(0))(X.astype(np.float16))
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, shrunk(X, 0.5), atol=2e-3)


def test_constants_and_kernels_are_tactics(monkeypatch):
    plugin_id = new_id("shrink")
    other = "// The same again.\n" + SHRINK
    define_shrink(plugin_id, [SHRINK, other], constants=[{"BLOCK": 64}, {"BLOCK": 1024}])
    runs = []
    original = _toolchain.run
    monkeypatch.setattr(_toolchain, "run", lambda *a: (runs.append(1), original(*a)))
    net, layer = one_plugin(plugin_id, X)
    engine = build(net, layer.get_output(0))
    np.testing.assert_allclose(engine(X), shrunk(X, 0.5), atol=1e-6)
    assert len(runs) == 4
    net, layer = one_plugin(plugin_id, X)
    build(net, layer.get_output(0))
    assert len(runs) == 4, "a second build compiles nothing"
    assert testing.check(plugin_id, [X]).ok


def test_other_tensors_types_and_scalars():
    plugin_id = new_id("gather")
    source = """
    #include <type_traits>
    template <class T>
    void gather(const T* x, const int32_t* index, std::type_identity_t<const T*> bias, int64_t columns, int32_t offset,
                T* y, int64_t row, int64_t part, int64_t) {
      for (int64_t i = part; i < columns; i += 2)
        y[row * columns + i] = x[(index[row] + offset) * columns + i] + (bias ? bias[i] : T(0));
    }"""

    @trtp.kernel(
        plugin_id,
        source,
        grid=lambda index: (index.shape_expr[0], 2),
        extra=lambda x, offset: (x.shape_expr[1], trtp.SymInt32(offset)),
        types="FP32|FP16",
    )
    def gather(
        x: trtp.TensorDesc,
        index: trtp.TensorDesc,
        bias: trtp.TensorDesc | None = None,
        *,
        offset: int,
    ) -> trtp.TensorDesc:
        return trtp.from_shape_expr((index.shape_expr[0], x.shape_expr[1]), x.dtype)

    index = np.int32([1, 0, 1, 1])
    net, layer = one_plugin(plugin_id, X, index, offset=1)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(x0=X, x1=index), X[index + 1])
    net, layer = one_plugin(plugin_id, X, index, X[0], offset=0)
    y = build(net, layer.get_output(0))(x0=X, x1=index, x2=X[0])
    np.testing.assert_array_equal(y, X[index] + X[0])


def test_the_file_holds_the_kernel(tmp_path):
    plugin_id = new_id("shrink")
    define_shrink(plugin_id, SHRINK)
    net, layer = one_plugin(plugin_id, X)
    build(net, layer.get_output(0)).save(tmp_path / "e.engine")
    engine = trt.load(tmp_path / "e.engine", allow_host_code=True)
    np.testing.assert_allclose(engine(X), shrunk(X, 0.5), atol=1e-6)


def test_a_kernel_for_each_device():
    """Decorating twice: the kernel for GPUs is not looked at where an engine is for the CPU."""
    plugin_id = new_id("shrink")
    both = define_shrink(plugin_id, SHRINK)
    trtp.kernel(plugin_id, "__global__ void shrink(syntax error", block=128)(both)
    net, layer = one_plugin(plugin_id, X)
    np.testing.assert_allclose(build(net, layer.get_output(0))(X), shrunk(X, 0.5), atol=1e-6)

    plugin_id = new_id("shrink")
    define_shrink(plugin_id, "__global__ void shrink() {}")
    net, layer = one_plugin(plugin_id, X)
    with pytest.raises(trt.Error, match="has no aot_impl function for the CPU"):
        build(net, layer.get_output(0))


def kernels_of(plugin_id, device):
    from opwright.plugin._decorators import plugins

    return plugins[plugin_id].kernels[device]


def test_cuda_and_triton_kernels_are_compiled(tmp_path, monkeypatch):
    plugin_id = new_id("shrink")
    cuda = "template <class T> __device__ void shrink(const T* x, int64_t n, float limit, T* y) {}"
    x = trtp.from_shape_expr((1000,), trt.float32)

    def launch(**options):
        define_shrink(plugin_id, **options)
        made = kernels_of(plugin_id, "cuda").compile([x], [0.5], [x], 2)
        values = [made[2].grid_x, made[2].block_x]
        return made[1].kind, [value.constant_value() for value in values]

    constants = [{"BLOCK": 256}, {"BLOCK": 128}]
    need_nvrtc()
    options = {"constants": constants, "arch": "compute_80"}
    found = launch(code=cuda, block=lambda BLOCK: BLOCK, **options)
    assert found == ("ptx", [8, 128])

    pytest.importorskip("triton")
    (tmp_path / "shrink_triton.py").write_text("""
import triton, triton.language as tl
@triton.jit
def shrink(x, n, limit, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) - limit, i < n)
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    kernel = __import__("shrink_triton").shrink
    constants = [{"BLOCK": 256}, {"BLOCK": 512, "num_warps": 2}]
    found = launch(code=kernel, constants=constants, arch="sm_90")
    assert found == ("cubin", [2, 64])


def test_mistakes():
    def define(code=SHRINK, **options):
        @trtp.kernel(new_id("shrink"), code, **options)
        def shrink_desc(x: trtp.TensorDesc, limit: float) -> trtp.TensorDesc:
            return x.like()

    message = r"grid `<lambda>\(n\)` asks for 'n'; expected any of: limit, outputs, x, for the"
    with pytest.raises(trtp.SignatureError, match=message + r" registered `shrink_desc\(x"):
        define(grid=lambda n: n)
    with pytest.raises(ValueError, match="'limit' is a constant and a parameter"):
        define(constants={"limit": 3})
    with pytest.raises(ValueError, match="are for different devices; decorate the function twice"):
        define([SHRINK, "__global__ void f() {}"])
    with pytest.raises(TypeError, match="a kernel of Triton or numba.cuda; int came"):
        define(3)
    with pytest.raises(ValueError, match="there is no kernel in the list"):
        define([])

    plugin_id = new_id("shrink")
    define_shrink(plugin_id, SHRINK.replace("float v", "floot v"))
    net, layer = one_plugin(plugin_id, X)
    with pytest.raises(aot.CompileError, match=r"shrink\.cpp:6:\d+: error"):
        build(net, layer.get_output(0))

    plugin_id = new_id("shrink")

    @trtp.kernel(plugin_id, SHRINK, extra=lambda mode: [mode])
    def shrink(x: trtp.TensorDesc, mode: str) -> Tuple[trtp.TensorDesc]:
        return (x.like(),)

    net, layer = one_plugin(plugin_id, X, mode="soft")
    with pytest.raises(TypeError, match="extra argument 0 is 'soft'; expected a number"):
        build(net, layer.get_output(0))
