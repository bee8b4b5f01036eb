"""Kernels that are compiled ahead of time, called as the engine calls them: through ctypes."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import opwright as trt
from opwright import aot
from opwright.aot import _code, _toolchain
from opwright.plugin import SymFloat32, SymFloat64, SymInt8, SymInt32, SymInt64, SymIntExprs

NUMPY = {
    trt.float32: np.float32,
    trt.int8: np.int8,
    trt.uint8: np.uint8,
    trt.int32: np.int32,
    trt.int64: np.int64,
    trt.bool: np.bool_,
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_code, "_in_memory", {})


def call(code, arguments, grid=(1, 1, 1), folder="/tmp"):
    """Calls the exported function for each cell; arrays are passed as pointers, ctypes scalars as they are."""
    path = f"{folder}/kernel.so"
    with open(path, "wb") as file:
        file.write(code)
    function = getattr(ctypes.CDLL(path), code.name)
    function.restype = None
    function.argtypes = [ctypes.c_void_p] + [ctypes.c_int64] * 3
    slots = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in arguments]
    args = (ctypes.c_void_p * len(slots))(*[ctypes.addressof(slot) for slot in slots])
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                function(args, x, y, z)


SCALE = """
#include <cmath>
template <class T>
void scale(const T* x, int32_t n, float factor, T* y, int64_t i, int64_t, int64_t) {
  for (int32_t j = 0; j < n; ++j) y[i * n + j] = static_cast<T>(x[i * n + j] * factor);
}
"""


@pytest.mark.parametrize("dtype", list(NUMPY), ids=str)
def test_cpp_template_for_each_element_type(dtype, tmp_path):
    x = np.arange(12).astype(NUMPY[dtype])
    y = np.zeros_like(x)
    code = aot.cpp(
        SCALE, "scale", inputs=[dtype], outputs=[dtype], extra=[SymInt32(0), SymFloat32(0)]
    )
    call(code, [x, ctypes.c_int32(4), ctypes.c_float(3), y], (3, 1, 1), tmp_path)
    expected = x.astype(bool) if dtype == trt.bool else x * 3
    np.testing.assert_array_equal(y, expected.astype(NUMPY[dtype]))


def test_cpp_half_is_arithmetic(tmp_path):
    x = np.linspace(-2, 2, 8).astype(np.float16)
    y = np.zeros_like(x)
    source = """
    void square(const _Float16* x, int8_t n, double add, _Float16* y, int64_t, int64_t, int64_t) {
      for (int8_t i = 0; i < n; ++i) y[i] = static_cast<_Float16>(x[i] * x[i] + add);
    }"""
    extra = SymIntExprs.from_tuple([SymInt8(0), SymFloat64(0)])
    code = aot.cpp(source, "square", inputs=[trt.float16], outputs=[trt.float16], extra=extra)
    call(code, [x, ctypes.c_int8(8), ctypes.c_double(1), y], folder=tmp_path)
    np.testing.assert_allclose(y, x.astype(np.float64) ** 2 + 1, rtol=2e-3)


def test_cpp_gets_the_cell(tmp_path):
    y = np.zeros(2 * 3 * 4, np.int64)
    source = """
    void cells(int64_t* y, int64_t i, int64_t j, int64_t k) { y[(k * 3 + j) * 4 + i] = 100 * k + 10 * j + i; }"""
    code = aot.cpp(source, "cells", inputs=[], outputs=[trt.int64])
    call(code, [y], (4, 3, 2), tmp_path)
    expected = [100 * k + 10 * j + i for k in range(2) for j in range(3) for i in range(4)]
    np.testing.assert_array_equal(y, expected)


def test_cpp_errors_have_the_sources_lines():
    source = "void f(const float* x, float* y, int64_t, int64_t, int64_t) {\n  y[0] = nowhere;\n}\n"
    with pytest.raises(aot.CompileError, match=r"f\.cpp:2:\d+: error: .*nowhere"):
        aot.cpp(source, "f", inputs=[trt.float32], outputs=[trt.float32])
    with pytest.raises(aot.CompileError, match="call of g"):
        aot.cpp("void g(int) {}", "g", inputs=[trt.float32], outputs=[trt.float32])
    with pytest.raises(aot.CompileError, match="not the name of a function"):
        aot.cpp("", "a b", inputs=[], outputs=[])
    with pytest.raises(TypeError, match="tensor descriptors or data types; str came"):
        aot.cpp("", "f", inputs=["x"], outputs=[])


def test_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(aot.CompileError, match=r"no-such-compiler.*apt-get install g\+\+"):
        aot.cpp(SCALE, "scale", inputs=[trt.float32], outputs=[trt.float32])


def test_missing_symbols_are_an_error():
    source = "void nowhere(); void f(float* y, int64_t, int64_t, int64_t) { nowhere(); }"
    with pytest.raises(aot.CompileError, match="nowhere"):
        aot.cpp(source, "f", inputs=[], outputs=[trt.float32])


def test_target_is_one_that_the_host_has():
    target, march = _code.baseline()
    code = aot.cpp(
        "void f(float*, int64_t, int64_t, int64_t) {}", "f", inputs=[], outputs=[trt.float32]
    )
    assert code.target == target
    assert isinstance(code, bytes) and code[:4] == b"\x7fELF"
    with open("/proc/cpuinfo") as info:
        flags = info.read().split()
    assert (march == "x86-64-v3") == {"avx2", "fma", "bmi2"}.issubset(flags)


def test_code_is_cached_on_disk_and_in_memory(tmp_path, monkeypatch):
    runs = []
    original = _toolchain.run
    monkeypatch.setattr(_toolchain, "run", lambda *a: (runs.append(1), original(*a)))

    def compile(source=SCALE):
        extra = [SymInt32(0), SymFloat32(0)]
        return aot.cpp(source, "scale", inputs=[trt.float32], outputs=[trt.float32], extra=extra)

    first = compile()
    assert compile() == first and len(runs) == 1
    monkeypatch.setattr(_code, "_in_memory", {})
    assert compile() == first and len(runs) == 1, "the file in the cache folder was not used"
    assert compile(SCALE.replace("factor", "f")) is not None and len(runs) == 2
    # A damaged file is compiled again.
    monkeypatch.setattr(_code, "_in_memory", {})
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert compile() == first and len(runs) == 3


def test_cpp_takes_a_file_and_follows_what_it_includes(tmp_path, monkeypatch):
    runs = []
    original = _toolchain.run
    monkeypatch.setattr(_toolchain, "run", lambda *a: (runs.append(1), original(*a)))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "offset.h").write_text("#define OFFSET 5")
    (tmp_path / "given.h").write_text('#include "own/offset.h"')
    source = """#include "given.h"
    #include <more.h>
    void f(float* y, int64_t, int64_t, int64_t) { *y = OFFSET + MORE; }"""
    path = tmp_path / "mine.cpp"
    path.write_text(source)
    (tmp_path / "flags").mkdir()
    (tmp_path / "flags" / "more.h").write_text("#define MORE 0.5f")
    monkeypatch.chdir(tmp_path)

    def value():
        y = np.zeros(1, np.float32)
        code = aot.cpp(path, "f", inputs=[], outputs=[trt.float32], flags=["-I", "flags"])
        call(code, [y], folder=tempfile.mkdtemp(dir=tmp_path))
        return y[0]

    assert [value(), value()] == [5.5, 5.5] and len(runs) == 1
    (tmp_path / "own" / "offset.h").write_text("#define OFFSET 6")
    assert value() == 6.5 and len(runs) == 2
    (tmp_path / "flags" / "more.h").write_text("#define MORE 0.25f")
    assert value() == 6.25 and len(runs) == 3

    path.write_text(source + "\nint g() { return nowhere; }")
    with pytest.raises(aot.CompileError, match=r"mine\.cpp:4:\d+: error: .*nowhere"):
        value()
    with pytest.raises(aot.CompileError, match=r"nothing\.cpp cannot be read"):
        aot.cpp(tmp_path / "nothing.cpp", "f", inputs=[], outputs=[])
    with pytest.raises(TypeError, match="source text or the pathlib.Path of a file; bytes came"):
        aot.cpp(b"", "f", inputs=[], outputs=[])


def test_unusable_cache_folder_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "file"))
    assert aot.cpp(
        "void f(float*, int64_t, int64_t, int64_t) {}", "f", inputs=[], outputs=[trt.float32]
    )


numba = pytest.importorskip("numba")
OFFSET = 5


@numba.njit
def helper(value):
    return value * 2 + OFFSET


def affine(x, n, factor, y, i, _y, _z):
    for j in range(n):
        y[i * n + j] = helper(x[i * n + j]) * factor


@pytest.mark.parametrize("dtype", [trt.float32, trt.int32, trt.int64], ids=str)
def test_numba_kernel(dtype, tmp_path):
    x = np.arange(12).astype(NUMPY[dtype])
    y = np.zeros_like(x)
    extra = SymIntExprs.from_tuple([SymInt64(0), SymInt32(0)])
    code = aot.numba(affine, "affine", inputs=[dtype], outputs=[dtype], extra=extra)
    call(code, [x, ctypes.c_int64(4), ctypes.c_int32(3), y], (3, 1, 1), tmp_path)
    np.testing.assert_array_equal(y, ((x * 2 + OFFSET) * 3).astype(NUMPY[dtype]))


def test_numba_kernel_with_libm_and_carray(tmp_path):
    def kernel(x, n, y, _x, _y, _z):
        values = numba.carray(x, (n,))
        for i in range(n):
            y[i] = math.sin(values[i]) + math.exp(values[i])

    x = np.linspace(-1, 1, 9).astype(np.float32)
    y = np.zeros_like(x)
    code = aot.numba(
        kernel, "waves", inputs=[trt.float32], outputs=[trt.float32], extra=[SymInt32(0)]
    )
    call(code, [x, ctypes.c_int32(9), y], folder=tmp_path)
    np.testing.assert_allclose(y, np.sin(x) + np.exp(x), rtol=1e-6)


def test_numba_code_needs_no_python(tmp_path):
    code = aot.numba(
        affine, "affine", inputs=[trt.float32], outputs=[trt.float32], extra=[SymInt64(0)] * 2
    )
    (tmp_path / "k.so").write_bytes(code)
    listing = subprocess.run(
        ["readelf", "-d", "--dyn-syms", "-W", str(tmp_path / "k.so")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "python" not in listing.lower() and "TEXTREL" not in listing
    assert "NRT_" not in listing and "numba" not in listing.lower()


def refused_temporary(x, y, i, _y, _z):
    t = np.empty(4, np.float32)
    t[0] = x[i]
    y[i] = t.sum()


def refused_print(x, y, i, _y, _z):
    print(x[i])


def refused_raise(x, y, i, _y, _z):
    if x[i] < 0:
        raise ValueError("negative")
    y[i] = x[i]


def refused_return(x, y, i, _y, _z):
    return x[i]


def refused_type(x, y, i, _y, _z):
    y[i] = x.nothing


@pytest.mark.parametrize(
    "function, message",
    [
        (refused_temporary, "NRT_"),
        (refused_print, "needs Python's or Numba's runtime"),
        (refused_raise, "may raise an exception"),
        (refused_return, "No conversion from float32 to none"),
        (refused_type, "does not compile"),
    ],
)
def test_numba_refuses_what_needs_python(function, message):
    with pytest.raises(aot.CompileError, match=message):
        aot.numba(function, "refused", inputs=[trt.float32], outputs=[trt.float32])


def test_numba_cache_follows_what_the_function_uses(monkeypatch):
    """A changed global value must not give the old code."""
    extra = [SymInt64(0), SymInt32(0)]

    def compile():
        return aot.numba(affine, "affine", inputs=[trt.int32], outputs=[trt.int32], extra=extra)

    first = compile()
    assert compile() == first

    @numba.njit
    def other(value):
        return value - 1

    monkeypatch.setitem(globals(), "helper", other)
    assert compile() != first


def test_import_does_not_need_numba():
    program = "import sys; import opwright.aot; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
