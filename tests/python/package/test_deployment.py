"""Engines with compiled kernels where there is no Python: a C++ program, the archive of the program."""

import subprocess
import sys

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from paths import SAMPLES

HALVES = """
template <class T>
void halves(const T* x, std::int64_t n, T* y, std::int64_t i, std::int64_t, std::int64_t) {
  for (std::int64_t j = i * n; j < (i + 1) * n; ++j) y[j] = x[j] / 2;
}
"""


@trtp.register("deployment::halves")
def halves_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.aot_impl("deployment::halves")
def halves_aot(x, outputs, tactic):
    extra = trtp.SymExprs.from_tuple([trtp.SymInt64(x.shape_expr[1])])
    code = aot.cpp(HALVES, "halves", inputs=[x], extra=extra, outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(grid_x=x.shape_expr[0]), extra


@pytest.fixture(scope="module")
def engine_file(tmp_path_factory):
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (-1, 5))
    network.mark_output(network.add_plugin(trtp.op.deployment.halves(x)).get_output(0))
    file = tmp_path_factory.mktemp("engine") / "halves.engine"
    trt.build(network, shapes={"x": ((1, 5), (4, 5), (9, 5))}, timing=False).save(file)
    return file


@pytest.fixture(scope="module")
def cpp_app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp_app")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    for command in (
        ["cmake", "-S", SAMPLES / "cpp_app", "-B", folder, python],
        ["cmake", "--build", folder],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "cpp_app"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def test_a_cpp_program_runs_an_engine(cpp_app, engine_file, tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 5), np.float32)
    np.save(tmp_path / "x.npy", x)
    done = run(cpp_app, engine_file, tmp_path / "x.npy")
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.array(done.stdout.split(), np.float32), x.ravel() / 2, rtol=1e-5)
    assert "python" not in run("ldd", cpp_app).stdout.replace("site-packages", "").replace(
        "lib/python", ""
    )


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 5)), "float32"),
        (np.zeros((3, 4), np.float32), "x"),
        (np.zeros((10, 5), np.float32), "x"),
    ],
    ids=["float64", "another width", "beyond the profile"],
)
def test_the_cpp_program_refuses_what_does_not_fit(cpp_app, engine_file, tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    done = run(cpp_app, engine_file, tmp_path / "x.npy")
    assert done.returncode == 1
    assert message in done.stderr


def test_the_cpp_program_says_why_a_file_is_no_engine(cpp_app, engine_file, tmp_path):
    (tmp_path / "cut.engine").write_bytes(engine_file.read_bytes()[:-9])
    done = run(cpp_app, tmp_path / "cut.engine", tmp_path / "cut.engine")
    assert done.returncode == 1
    assert "was not loaded" in done.stderr
    assert "truncated" in done.stderr
