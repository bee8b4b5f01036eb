"""The operator of samples/aot is compiled from each kind of source, runs without Python, and is right."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paths import SAMPLES
from plugin_testing import need_nvrtc


def run(
    program: Path, *arguments: object, folder: str = "aot", **environment: str
) -> subprocess.CompletedProcess:
    environment = {
        **os.environ,
        **environment,
        "OPWRIGHT_DEVICE": "cpu",
        "OPWRIGHT_PROGRAM": str(program),
    }
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=SAMPLES / folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def need(package: str) -> None:
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of the package that it is in
        found = None
    if found is None:
        pytest.skip(f"{package} not installed for this version of Python")


@pytest.mark.parametrize("source", ["cpp", "numba"])
def test_kernel_for_the_cpu(source, program, tmp_path):
    need("numba")
    cache = tmp_path / "cache"
    arguments = ["run.py", source, "--artifacts_dir", tmp_path]
    done = run(program, *arguments, OPWRIGHT_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(rf"passed: {source}, (\w+), .* in the native program too\n", done.stdout)
    assert found == ["fp32", "fp16"]
    assert len(list(cache.glob("*.kernel"))) == 2  # the next build compiles nothing
    # What the program wrote last, once more without the sample's own arithmetic.
    x, scale, y = (np.load(tmp_path / f"{name}.npy").astype(float) for name in ("x", "scale", "y"))
    assert x.shape == (3, 77) and np.load(tmp_path / "y.npy").dtype == np.float16
    rms = np.linalg.norm(x, axis=1, keepdims=True) / np.sqrt(77)
    np.testing.assert_allclose(y, x / rms * scale, rtol=0, atol=1e-3)


@pytest.mark.usefixtures("nvidias_nvrtc")
@pytest.mark.parametrize("source, package", [("cuda", None), ("triton", "triton")])
def test_kernel_for_a_gpu(source, package, program, tmp_path):
    need(package) if package else need_nvrtc()
    done = run(program, "run.py", source, "--arch", "compute_80", "--artifacts_dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = [f"compiled: {source}, {t}, ptx for sm_80\n" for t in ("fp32", "fp16")]
    assert done.stdout == "".join(kinds)
    for precision, bits in [("fp32", 32), ("fp16", 16)]:
        ptx = (tmp_path / f"rms_norm_{source}_{precision}.ptx").read_text()
        # x, scale, columns, epsilon, y, by which the kernel is launched.
        (entry,) = re.findall(r"\.entry \w+\((.*?)\)", ptx, re.DOTALL)
        parameters = re.findall(r"\.param \.([a-z]\d+)", entry)
        assert [int(p[1:]) for p in parameters[:5]] == [64, 64, 64, 32, 64]
        assert re.search(rf"(ld|st)\.global\.\w*{bits}\b", ptx)


COMPARE_PADDING = """
import circ_pad, numpy as np, numpy.typing, opwright as trt, opwright.plugin as trtp
pads = np.array([1, 2, 3, 4], np.int32)
def compare(add, dtype):
    net = trt.Builder(trt.Logger()).create_network(1 << 1)
    x = net.add_input("x", dtype, (-1, 3, -1, -1))
    net.mark_output(add(net, x).get_output(0))
    engine = trt.build(net, shapes={"x": ((1, 3, 1, 1), (2, 3, 32, 32), (8, 3, 64, 300))})
    # Rows of less than a line of the cache, of just a line, of one and a little more, of several.
    for height, width in [(20, 30), (2, 1), (5, 15), (5, 16), (5, 17), (4, 31), (4, 33), (3, 300)]:
        a = np.random.default_rng(0).random((2, 3, height, width)).astype(trt.nptype(dtype))
        expected = np.pad(a, [(0, 0), (0, 0), (3, 4), (1, 2)], mode="wrap")
        np.testing.assert_array_equal(engine(a), expected)
"""


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_circular_padding_from_a_shape_rule_and_kernels(precision, program):
    padded = f"""
{COMPARE_PADDING}
compare(lambda net, x: net.add_plugin(trtp.op.sample.circ_pad_rows(x, pads=pads)), trt.{precision})
"""
    done = run(program, "-c", padded)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("tactic", ["NUMPY", "NUMBA"])
def test_kernels_of_the_demo(tactic, precision, program):
    need("numba")
    padded = f"""
{COMPARE_PADDING}
trtp.register("test::one_tactic")(circ_pad.circ_pad_desc)
@trtp.aot_impl("test::one_tactic")
def one_tactic(inp0: trtp.TensorDesc, pads: np.typing.NDArray[np.int32], outputs: tuple[trtp.TensorDesc], tactic: int):
    return circ_pad.circ_pad_aot(inp0, pads, outputs, circ_pad.Tactic.{tactic})
plugin = trtp.op.test.one_tactic
compare(lambda net, x: net.add_plugin(plugin(x, pads=pads), aot=True), trt.{precision})
"""
    done = run(program, "-c", padded, folder="demo")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("nvidias_nvrtc")
def test_kernels_for_another_machine(program, tmp_path):
    need_nvrtc()
    done = run(program, "run.py", "cuda", "--arch", "sm_90", "--kernels", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["rms_norm_cuda_fp16.kernel", "rms_norm_cuda_fp32.kernel"]
    # Any extents are those of this file; the kernel takes the length of a row, and its grid is the rows.
    load = f"""
import rms_norm, opwright as trt
from opwright import aot
rms_norm.kernels = {str(tmp_path)!r}
aot.cuda = None
for rows, columns in [(3, 77), aot.open_extents("n", "m")]:
    x = (trt.float32, [rows, columns])
    code, extra = rms_norm.compile(rms_norm.Tactic.CUDA, [x], 1e-5, [x])
    assert (code.kind, code.target, str(extra[0])) == ("cubin", "sm_90", str(columns))
"""
    done = run(program, "-c", load)
    assert done.returncode == 0, done.stderr


def test_wrong_results_are_found(program):
    spoil = """
import sys, numpy as np, run
right = run.run_program
run.run_program = lambda *arguments: right(*arguments) + np.float16(0.01)
sys.argv = ["run.py", "cpp"]
sys.exit(run.main())
"""
    done = run(program, "-c", spoil)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("FAILED: cpp") == 2
    done = run(program, "run.py", "fortran")
    assert done.returncode == 2
    assert (
        "'fortran' is none of cpp, numba, cuda, triton, cutile, cute, warp, tilelang" in done.stderr
    )
