"""Kernels whose parameters stand in an order of their own, and the languages that make such: cuTile, CuTe DSL,
Warp, TileLang and Pallas, compiled without a GPU. The sample's kernels run on one in tests/python/gpu."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import in_place_kernels
import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from opwright.aot import _arrays, _code, _toolchain
from opwright.plugin import SymFloat32, SymInt32, SymInt64
from paths import SAMPLES
from plugin_testing import new_id

F32, F16 = trt.float32, trt.float16


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_code, "_in_memory", {})
    monkeypatch.syspath_prepend(SAMPLES / "aot")
    yield
    for name in [name for name in sys.modules if name.startswith("rms_norm")]:
        del sys.modules[name]


# y = b - k * a, whose parameters are not in the engine's order; the columns come twice.
SOURCE = """#include <cstdint>
extern "C" void combine(void** args, std::int64_t row, std::int64_t, std::int64_t) {
  auto* y = *static_cast<float**>(args[0]);
  const std::int64_t columns = *static_cast<std::int32_t*>(args[1]);
  auto* b = *static_cast<const float**>(args[2]);
  const float k = *static_cast<float*>(args[3]);
  const std::int64_t again = *static_cast<std::int64_t*>(args[4]);
  auto* a = *static_cast<const float**>(args[5]);
  for (std::int64_t i = row * columns; i < (row + 1) * again; ++i) y[i] = b[i] - k * a[i];
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    pytest.importorskip("elftools")
    folder = tmp_path_factory.mktemp("library")
    (folder / "k.cpp").write_text(SOURCE)
    command = ["-O2", "-march=x86-64", "-fPIC", "-shared", "k.cpp", "-o", "k.so"]
    _toolchain.run(command, folder, "k.cpp")
    return aot.object(folder / "k.so", "combine")


def combine(made, order=(5, 3, 1, 2, 4, 0)):
    """The plugin's name: a kernel that takes its arguments by `order`."""
    plugin_id = new_id("order")

    @trtp.register(plugin_id)
    def combine_desc(a: trtp.TensorDesc, b: trtp.TensorDesc, k: float) -> trtp.TensorDesc:
        return a.like()

    @trtp.aot_impl(plugin_id)
    def combine_aot(a, b, k, outputs, tactic):
        rows, columns = a.shape_expr
        extra = [SymFloat32(k)]
        added = trtp.SymIntExprs.from_tuple([SymInt32(columns), SymInt64(columns)])
        code = aot.Code(
            bytes(made), made.name, made.target, (2, (SymFloat32,), 1), added=added, order=order
        )
        return code.name, code, code.launch(grid_x=rows), extra

    return plugin_id


def engine_of(plugin_id, **attributes):
    network = trt.Builder(trt.Logger()).create_network()
    a, b = (network.add_input(name, F32, (-1, -1)) for name in "ab")
    namespace, _, name = plugin_id.partition("::")
    call = getattr(getattr(trtp.op, namespace), name)
    network.mark_output(network.add_plugin(call(a, b, **attributes)).get_output(0))
    shapes = {name: ((1, 1), (4, 6), (64, 64)) for name in "ab"}
    return trt.build(network, shapes=shapes, device="cpu")


def test_a_kernel_takes_its_arguments_in_its_own_order(library, tmp_path):
    engine = engine_of(combine(library), k=0.5)
    engine.save(tmp_path / "order.engine")
    stored = trt.load(tmp_path / "order.engine", allow_host_code=True)
    rng = np.random.default_rng(0)
    for shape in [(4, 6), (1, 1), (7, 33)]:
        a, b = (rng.standard_normal(shape, np.float32) for _ in range(2))
        for each in (engine, stored):
            np.testing.assert_allclose(each(a=a, b=b), b - np.float32(0.5) * a, rtol=1e-6)


def test_an_argument_that_there_is_not_is_refused(library):
    with pytest.raises(trt.Error, match=r"parameter 5 takes argument 6 of 6 \(2 inputs, 3 extra"):
        engine_of(combine(library, order=(5, 3, 1, 2, 4, 6)), k=0.5)
    with pytest.raises(trt.Error, match="parameter 5 takes argument -1 of 6"):
        engine_of(combine(library, order=(5, 3, 1, 2, 4, -1)), k=0.5)


ADD_IN_PLACE = """#include <cstdint>
extern "C" void add(void** args, std::int64_t row, std::int64_t, std::int64_t) {
  auto* x = *static_cast<float**>(args[0]);
  const auto* y = *static_cast<const float**>(args[1]);
  const std::int64_t columns = *static_cast<std::int64_t*>(args[2]);
  for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) x[i] += 2 * y[i];
}
"""


def in_place(make):
    """The plugin's name: x += 2 y, as `make(x, y, outputs)` compiles it."""
    plugin_id = new_id("in_place")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, y: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.aot_impl(plugin_id)
    def compile(x, y, outputs, tactic):
        code = make(x, y, outputs)
        return code.name, code, code.launch(), trtp.SymExprs.from_tuple([])

    return plugin_id


def test_a_kernel_that_takes_an_aliased_output_once(tmp_path):
    pytest.importorskip("elftools")
    (tmp_path / "k.cpp").write_text(ADD_IN_PLACE)
    command = ["-O2", "-march=x86-64", "-fPIC", "-shared", "k.cpp", "-o", "k.so"]
    _toolchain.run(command, tmp_path, "k.cpp")
    library = aot.object(tmp_path / "k.so", "add")

    def make(x, y, outputs):
        layout = _arrays.Layout(2, [], 1)
        layout.tensor(0)
        layout.tensor(1)
        layout.integer(x.shape_expr[1], 64)
        return aot.Code(
            bytes(library),
            library.name,
            library.target,
            layout.parameters,
            added=layout.added,
            order=layout.order,
            launch={"grid_x": x.shape_expr[0]},
        )

    engine = engine_of(in_place(make))
    (output,) = engine.outputs
    assert engine.engine.get_aliased_input_tensor(output) == "a"
    rng = np.random.default_rng(0)
    for shape in [(4, 6), (1, 1), (7, 33)]:
        a, b = (rng.standard_normal(shape, np.float32) for _ in range(2))
        given = a.copy()
        np.testing.assert_allclose(engine(a=a, b=b), a + 2 * b, rtol=1e-6)
        np.testing.assert_array_equal(a, given)


def test_what_a_kernel_does_without():
    array = _arrays.Array(F32, [4], -1)
    shared = _arrays.Array(F32, [4], 0)
    assert _arrays.left_out(3, 2, [shared, array]) == [2]
    assert _arrays.left_out(4, 2, [shared, array]) == []
    fail = AssertionError
    assert _arrays.places(["x", "n", "y"], None, fail, [2]) == [0, 1, 3]
    assert _arrays.places(["y", "n", "x"], ["x", "n", "y"], fail, [2]) == [3, 1, 0]


def test_layout_numbers_what_it_takes():
    layout = _arrays.Layout(2, [SymFloat32(0)], 1)
    layout.tensor(2)
    layout.integer(7)
    layout.tensor(0)
    layout.extra(0)
    layout.integer(9, 64)
    layout.tensor(1)
    assert layout.order == (5, 3, 0, 2, 4, 1)
    assert [type(s) for s in layout.added] == [SymInt32, SymInt64]
    assert layout.parameters == (2, (SymFloat32,), 1)


def test_a_grid_of_the_kernels_own():
    code = aot.Code(b"", "k", "sm_90", kind="ptx", launch={"grid_x": 5, "block_x": 32})
    assert code.launch().grid_x.constant_value() == 5
    with pytest.raises(ValueError, match="compiled for grid_x=5; 6 came"):
        code.launch(6)
    assert str(code) == repr(code) == "<Code k (ptx) for sm_90, 0 bytes>"


# The languages.


def ports(dtype, rows=64, columns=768):
    x = (dtype, [rows, columns])
    return {"inputs": [x, (dtype, [columns])], "outputs": [x]}


def cutile(dtype, **options):
    pytest.importorskip("cuda.tile")
    from rms_norm_cutile import rms_norm

    options = {"arch": "sm_90", **options}
    return aot.cutile(rms_norm, {"BLOCK": 1024}, extra=[SymFloat32(0)], **ports(dtype), **options)


def cute(dtype, **options):
    pytest.importorskip("cutlass.cute")
    from rms_norm_cute import THREADS, rms_norm

    options = {"arch": "sm_90", **options}
    return aot.cute(rms_norm, extra=[SymFloat32(0)], block=THREADS, **ports(dtype), **options)


def warp(dtype, **options):
    pytest.importorskip("warp")
    from rms_norm_warp import rms_norm

    options = {"arch": "sm_90", **options}
    return aot.warp(rms_norm, [64, 256], extra=[SymFloat32(0)], **ports(dtype), **options)


def tilelang(dtype, **options):
    pytest.importorskip("tilelang")
    from rms_norm_tilelang import rms_norm

    options = {"arch": "sm_90", **options}
    kernel = rms_norm("float16" if dtype == F16 else "float32")
    return aot.tilelang(kernel, extra=[SymFloat32(0)], **ports(dtype), **options)


def pallas(dtype, **options):
    pytest.importorskip("jax")
    pytest.importorskip("triton")
    from rms_norm_pallas import rms_norm

    options = {"arch": "sm_90", **options}
    return aot.pallas(lambda x, scale: rms_norm(x, scale, 1e-5), **ports(dtype), **options)


LANGUAGES = [cutile, cute, warp, tilelang, pallas]


@pytest.mark.usefixtures("nvidias_nvrtc")
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("make", LANGUAGES)
def test_a_kernel_is_compiled_without_a_gpu(make, dtype):
    code = make(dtype)
    assert code.kind == "cubin" and code.target.rstrip("a") == "sm_90"
    assert aot.object(bytes(code), code.name).target.rstrip("a") == "sm_90"  # it exports the name
    inputs, extra, outputs = code.parameters
    assert (inputs, outputs) == (2, 1)
    assert extra == (() if make is pallas else (SymFloat32,))
    given = inputs + len(extra) + len(list(code.added or ())) + outputs
    given += len(code.scratch)
    assert set(code.order) == set(range(given)), "all that it is given is taken"
    assert bytes(make(dtype)) == bytes(code)


@pytest.mark.usefixtures("nvidias_nvrtc")
@pytest.mark.parametrize("make", [cute, warp, tilelang, pallas])
def test_ptx_has_as_many_parameters_as_it_is_given(make):
    code = make(F32, arch="compute_80")
    assert code.kind == "ptx"
    (entry,) = re.findall(r"\.entry \w+\((.*?)\)", bytes(code).decode(), re.DOTALL)
    assert len(re.findall(r"\.param", entry)) == len(code.order)


@pytest.mark.parametrize("make", [cutile, cute, pallas])
def test_what_is_no_alignment_is_refused(make):
    with pytest.raises(ValueError, match="alignment=3 is no power of two"):
        make(F32, alignment=3)


def test_cutile_makes_no_ptx():
    with pytest.raises(aot.CompileError, match="cuTile makes only cubins: arch='sm_90'"):
        cutile(F32, arch="compute_90")


def test_pallas_needs_fixed_extents():
    pytest.importorskip("jax")
    with pytest.raises(aot.CompileError, match="must be one pallas_call and nothing else"):
        aot.pallas(lambda x, scale: x + 1, arch="sm_90", **ports(F32))


@pytest.mark.usefixtures("nvidias_nvrtc")
@pytest.mark.parametrize("make", [cutile, cute, warp, tilelang])
def test_another_number_of_tensors_is_told(make, monkeypatch):
    monkeypatch.setitem(globals(), "ports", lambda dtype: {"inputs": [], "outputs": []})
    with pytest.raises(aot.CompileError, match="0 inputs, 1 extra arguments and 0 outputs come"):
        make(F32)


WRITES = """
import warp as wp

@wp.func
def put(x: wp.array2d(dtype=wp.float32), i: int, j: int, value: wp.float32):
    x[i, j] = value

@wp.kernel
def update(x: wp.array2d(dtype=wp.float32), y: wp.array2d(dtype=wp.float32)):
    i, j = wp.tid()
    put(x, i, j, x[i, j] + 2.0 * y[i, j])

@wp.kernel
def to_another(x: wp.array2d(dtype=wp.float32), y: wp.array2d(dtype=wp.float32),
               z: wp.array2d(dtype=wp.float32)):
    i, j = wp.tid()
    y[i, j] = x[i, j]
    z[i, j] = x[i, j]
"""


@pytest.mark.usefixtures("nvidias_nvrtc")
def test_a_warp_kernel_that_writes_to_what_it_reads(tmp_path, monkeypatch):
    pytest.importorskip("warp")
    (tmp_path / "writing_kernels.py").write_text(WRITES)
    monkeypatch.syspath_prepend(tmp_path)
    import writing_kernels

    made = []

    def make(kernel):
        def compile(x, y, outputs):
            dim = list(x.shape_expr)
            made.append(aot.warp(kernel, dim, inputs=[x, y], outputs=outputs, arch="sm_90"))
            return made[-1]

        return compile

    with pytest.raises(trt.Error, match="sm_90|GPU"):  # there is no GPU to build the engine for
        engine_of(in_place(make(writing_kernels.update)))
    # x, its extents, y, its extents, the threads; no output.
    assert made[0].parameters == (2, (), 1)
    assert 0 in made[0].order and 1 in made[0].order
    assert 2 + len(list(made[0].added)) not in made[0].order
    with pytest.raises(aot.CompileError, match="writes to 'y', which takes input 1"):
        engine_of(in_place(make(writing_kernels.to_another)))
    del sys.modules["writing_kernels"]


@pytest.mark.usefixtures("nvidias_nvrtc")
@pytest.mark.parametrize("language", in_place_kernels.PACKAGES)
def test_a_kernel_that_changes_its_first_argument(language, tmp_path):
    """Saved for open extents; it runs in tests/python/gpu, from the folder OPWRIGHT_KERNELS where that is set."""
    pytest.importorskip(in_place_kernels.PACKAGES[language])
    x, y = ((F32, list(aot.open_extents("rows", "columns"))) for _ in range(2))
    code = in_place_kernels.compile(language, [x, y], [aot.aliased(x)], arch="sm_90")
    inputs, extra, outputs = code.parameters
    assert (inputs, extra, outputs) == (2, (), 1)
    # Neither the address nor the extents of the aliased output are taken.
    assert set(code.order) == set(range(2 + len(list(code.added))))
    file = Path(os.environ.get("OPWRIGHT_KERNELS", tmp_path)) / in_place_kernels.file_of(language)
    code.save(file)
    assert bytes(aot.load(file, inputs=[x, y], outputs=[aot.aliased(x)])) == bytes(code)
    for output in (x, aot.aliased(y)):
        with pytest.raises(aot.CompileError, match="output 0 in the memory of input 0"):
            aot.load(file, inputs=[x, y], outputs=[output])
    with pytest.raises(ValueError, match="aliased to a tensor that is 2 of the inputs"):
        in_place_kernels.compile(language, [x, x], [aot.aliased(x)], arch="sm_90")


# Kernels of others, whose parameters are in another order.

OUTPUT_FIRST = """
import triton
import triton.language as tl

@triton.jit
def scale(y, n, x, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)
"""


@pytest.fixture
def output_first(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    (tmp_path / "output_first.py").write_text(OUTPUT_FIRST)
    monkeypatch.syspath_prepend(tmp_path)
    import output_first

    yield output_first.scale
    del sys.modules["output_first"]


def test_an_order_of_triton_parameters(output_first):
    ports = {"inputs": [F16], "extra": [SymInt32(1), SymFloat32(0)], "outputs": [F32]}
    given = {**ports, "arch": "compute_80"}
    code = aot.triton(output_first, {"BLOCK": 128}, order=["x", "n", "factor", "y"], **given)
    # What Triton adds follows.
    assert code.order == (3, 1, 0, 2, *range(4, 4 + len(code.scratch)))
    ptx = bytes(code).decode()
    (entry,) = re.findall(r"\.entry \w+\((.*?)\)", ptx, re.DOTALL)
    types = re.findall(r"\.param \.(\w+)", entry)
    assert types[:4] == ["u64", "u32", "u64", "f32"] and len(types) == len(code.order)
    assert re.search(r"st\.global\.\w*32\b", ptx) and re.search(r"ld\.global\.\w*16\b", ptx)
    # In the kernel's own order `n` would be an address.
    with pytest.raises(aot.CompileError):
        aot.triton(output_first, {"BLOCK": 128}, **given)


@pytest.mark.parametrize(
    "order", [["x", "n", "factor"], ["x", "x", "n", "y"], ["a", "n", "factor", "y"]]
)
def test_an_order_of_other_names_is_told(output_first, order):
    ports = {"inputs": [F16], "extra": [SymInt32(1), SymFloat32(0)], "outputs": [F32]}
    with pytest.raises(
        aot.CompileError, match=r"order has \(.*\); its parameters are \(y, n, x, factor"
    ):
        aot.triton(output_first, {"BLOCK": 128}, order=order, arch="compute_80", **ports)


def test_a_pallas_function_may_call_one_that_is_jitted():
    jax = pytest.importorskip("jax")
    pytest.importorskip("triton")
    from rms_norm_pallas import rms_norm

    jitted = jax.jit(rms_norm, static_argnums=2)
    code = aot.pallas(lambda x, scale: jitted(x, scale, 1e-5), arch="sm_90", **ports(F32))
    plain = aot.pallas(lambda x, scale: rms_norm(x, scale, 1e-5), arch="sm_90", **ports(F32))
    assert code.order == plain.order and code.order[:3] == (0, 1, 2)
    with pytest.raises(aot.CompileError, match="must be one pallas_call and nothing else"):
        aot.pallas(lambda x, scale: jitted(x + x, scale, 1e-5), arch="sm_90", **ports(F32))
