"""An engine with a compiled kernel in a file system that has the program, its libraries and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, new_id, one_plugin

TRIPLE = """
template <class T>
void triple(const T* x, std::int64_t n, T* y, std::int64_t row, std::int64_t, std::int64_t) {
  for (std::int64_t i = row * n; i < (row + 1) * n; ++i) y[i] = 3 * x[i];
}
"""
RUN = "run /triple.engine --allow-host-code --input /x.npy --output /y.npy --json"


def triple_engine(x: np.ndarray):
    plugin = new_id("triple")

    @trtp.register(plugin)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin)
    def compile(x, outputs, tactic):
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(x.shape_expr[1])])
        code = aot.cpp(TRIPLE, "triple", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(grid_x=x.shape_expr[0]), extra

    net, layer = one_plugin(plugin, x)
    return build(net, layer.get_output(0))


@pytest.fixture(scope="module")
def root(program, tmp_path_factory) -> Path:
    """A folder with the program, the libraries that the dynamic linker says it needs, and an engine."""
    folder = tmp_path_factory.mktemp("root")
    linked = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    # Each at its own path: the program finds its library by where it lies itself.
    for file in [os.path.abspath(program), *re.findall(r"(/\S+) \(0x", linked)]:
        target = folder / os.path.normpath(file).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    (folder / "proc").mkdir()
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    np.save(folder / "x.npy", x)
    triple_engine(x).save(folder / "triple.engine")
    return folder


def run_in(
    root: Path, program: Path, prepare: str, environment: str = ""
) -> subprocess.CompletedProcess:
    """Runs the engine with the folder as the whole file system, in namespaces of its own."""
    enter = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c"]
    if subprocess.run([*enter, "mount -t proc proc /proc"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not let its users make namespaces")
    enter_root = f'exec env -i {environment} "$(command -v chroot)" .'
    script = f'PATH="$PATH:/usr/sbin"; {prepare} && {enter_root} {os.path.abspath(program)} {RUN}'
    return subprocess.run([*enter, script], cwd=root, capture_output=True, text=True)


def test_program_libraries_and_engine_are_all(root, program):
    done = run_in(root, program, "mount -t proc proc proc")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(root / "y.npy"), 3 * np.load(root / "x.npy"))
    libraries = [Path(library).name for library in json.loads(done.stdout)["libraries"]]
    assert "libopwright.so" in " ".join(libraries)
    assert [library for library in libraries if library.startswith("libpython")] == []


def test_no_proc_is_named(root, program):
    # The dynamic linker finds libraries by the place of a program only where there is /proc.
    library = next(root.rglob("libopwright.so")).relative_to(root).parent
    done = run_in(root, program, "true", f"LD_LIBRARY_PATH=/{library}")
    assert done.returncode == 1
    assert re.search("is for 'x86-64-v3', but what .* mount /proc", done.stderr) or re.search(
        "cannot be loaded: /proc/self/fd", done.stderr
    )
