"""The samples run on the GPU and find their results right."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from paths import ROOT

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]

SAMPLES = ROOT / "samples"
CLASSES = ["torch", "triton", "cupy", "numba", "cuda_python", "inetdef_cuda_python", "multi_tactic"]
NEEDS = {
    "triton": ["torch", "triton"],
    "multi_tactic": ["torch", "triton"],
    "numba": ["numba_cuda"],
    "cuda_python": ["cuda.bindings"],
    "inetdef_cuda_python": ["cuda.bindings"],
}
FUNCTIONS = [
    "add", "add --autotune", "inplace_add", "inplace_add --autotune", "non_zero", "circ_pad",
    "circ_pad --multi_tactic", "circ_pad --mode inetdef", "circ_pad --aot",
    "circ_pad --aot --multi_tactic",
]  # fmt: skip


def is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class Processes:
    """Several at once, since each spends most of its time on importing frameworks."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(6)
        self.futures: dict[tuple[str, ...], Future] = {}

    def start(self, folder, *command: object, **environment: str) -> tuple[str, ...]:
        key = (str(folder), *map(str, command))
        if key not in self.futures:
            self.futures[key] = self.pool.submit(
                subprocess.run,
                key[1:],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=200,
            )
        return key

    def output(self, folder, *command: object) -> str:
        done = self.futures[self.start(folder, *command)].result()
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def class_commands():
    for script in CLASSES:
        for precision in ("fp32", "fp16"):
            yield script, precision


def class_command(script, precision):
    folder = SAMPLES / "python_plugin"
    name = f"circ_pad_plugin_{script}.py"
    return folder, sys.executable, name, "--precision", precision


def function_command(arguments):
    folder = SAMPLES / "quickly_deployable_plugins"
    return folder, sys.executable, "qdp_runner.py", *arguments.split()


def aot_command(source):
    return SAMPLES / "aot", sys.executable, "run.py", source


@pytest.fixture(scope="module")
def processes(request):
    """All that the selected tests need, started at once."""
    made = Processes()
    selected = " ".join(item.nodeid for item in request.session.items)
    if "test_plugin_classes" in selected:
        for script, precision in class_commands():
            made.start(*class_command(script, precision))
    if "test_plugins_as_functions" in selected:
        for arguments in FUNCTIONS:
            made.start(*function_command(arguments))
    if "test_compiled_from_each_source" in selected:
        for source in ("cuda", "triton", "cpp"):
            made.start(*aot_command(source))
    yield made
    made.pool.shutdown(cancel_futures=True)


@pytest.mark.frameworks
@pytest.mark.parametrize("script, precision", class_commands())
def test_plugin_classes(processes, script, precision):
    missing = [name for name in NEEDS.get(script, [script]) if not is_installed(name)]
    if missing:
        pytest.skip(f"{missing} not installed")
    output = processes.output(*class_command(script, precision))
    assert f"passed: circ_pad_plugin_{script}, {precision}, largest error 0" in output


@pytest.mark.frameworks
@pytest.mark.parametrize("arguments", FUNCTIONS)
def test_plugins_as_functions(processes, arguments):
    missing = [name for name in ("torch", "triton", "numba") if not is_installed(name)]
    if missing:
        pytest.skip(f"{missing} not installed")
    output = processes.output(*function_command(arguments))
    assert f"passed: {arguments.split()[0]}, largest error 0" in output


@pytest.mark.frameworks
@pytest.mark.parametrize("source", ["cuda", "triton", "cpp"])
def test_compiled_from_each_source(processes, source):
    output = processes.output(*aot_command(source))
    assert output.count(f"passed: {source}") == 2 and "compiled:" not in output


@pytest.mark.frameworks
def test_circular_padding_is_saved_and_runs_in_the_program(program, tmp_path, rng):
    import numpy as np

    from gpu_engines import wrap

    runner = function_command(f"circ_pad --aot --save_engine --artifacts_dir {tmp_path}")
    done = subprocess.run(runner[1:], cwd=runner[0], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    x = rng.random((10, 3, 32, 32), np.float32)
    np.save(tmp_path / "x.npy", x)
    files = ["--input", f"x={tmp_path / 'x.npy'}", "--output", f"y={tmp_path / 'y.npy'}"]
    done = subprocess.run(
        [program, "run", tmp_path / "circ_pad.engine", "--allow-device-code", *files],
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wrap(x, (1, 2, 3, 4)))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_library_of_cpp_and_cuda(tmp_path_factory, precision):
    if shutil.which("nvcc") is None or shutil.which("cmake") is None:
        pytest.skip("nvcc or cmake is not installed")
    build = tmp_path_factory.getbasetemp() / "circ_plugin_cpp"
    if not build.exists():
        folder = SAMPLES / "python_plugin" / "circ_plugin_cpp"
        configure = ["cmake", "-S", folder, "-B", build, f"-DPython_EXECUTABLE={sys.executable}"]
        for command in (configure, ["cmake", "--build", build, "-j", "4"]):
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    command = [
        *class_command("cpp", precision)[1:],
        "--plugin-lib",
        build / "libcirc_pad_plugin.so",
    ]
    done = subprocess.run(
        list(map(str, command)), cwd=SAMPLES / "python_plugin", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"passed: circ_pad_plugin_cpp, {precision}, largest error 0" in done.stdout
