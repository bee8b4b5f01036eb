"""The installed package: its CMake package, its program, and what its libraries need and export."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from paths import ROOT

PROGRAM = Path(sysconfig.get_path("scripts")) / "opwright"


def output_of(*command) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cmake_dir() -> Path:
    return Path(output_of(sys.executable, "-m", "opwright", "--cmake-dir").strip())


@pytest.fixture(scope="module")
def library(cmake_dir) -> Path:
    return cmake_dir.parents[1] / "libopwright.so"


def test_version_is_the_headers():
    header = (ROOT / "include" / "opwright" / "version.h").read_text()
    parts = [
        re.search(rf"OPWRIGHT_VERSION_{part} (\d+)", header)[1]
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    assert importlib.metadata.version("opwright") == ".".join(parts)


def test_a_cmake_project_builds_a_plugin_and_a_program(cmake_dir, tmp_path):
    plugin = ROOT / "tests" / "cpp" / "plugins" / "identity_plugin.cpp"
    settings = (f"-DOpwright_DIR={cmake_dir}", f"-DPLUGIN_SOURCE={plugin}")
    output_of("cmake", "-S", ROOT / "tests" / "package", "-B", tmp_path, *settings)
    output_of("cmake", "--build", tmp_path)
    output_of(tmp_path / "program", tmp_path / "libplugin.so")


# An empty compiler keeps CMake from looking for one.
@pytest.mark.parametrize("settings", [("-DCMAKE_CUDA_COMPILER=",), ()], ids=["cpu", "cuda"])
def test_the_c_plus_plus_sample_builds_and_registers_itself(cmake_dir, tmp_path, settings):
    if not settings and shutil.which("nvcc") is None:
        pytest.skip("no CUDA compiler")
    source = ROOT / "samples" / "python_plugin" / "circ_plugin_cpp"
    python = f"-DPython_EXECUTABLE={sys.executable}"
    output_of("cmake", "-S", source, "-B", tmp_path, python, *settings)
    output_of("cmake", "--build", tmp_path)
    library = tmp_path / "libcirc_pad_plugin.so"
    code = (
        "import ctypes, opwright as trt; "
        f"ctypes.CDLL({str(library)!r}); "
        "assert trt.get_plugin_registry().get_creator('CircPadPlugin', '1', '') is not None"
    )
    output_of(sys.executable, "-c", code)


def test_the_program_runs_and_is_native():
    assert "Usage" in output_of(PROGRAM, "--help")
    needed = output_of("ldd", PROGRAM)
    assert "not found" not in needed
    assert "python" not in needed.replace("site-packages", "").replace("/lib/python", "")


def test_the_library_brings_what_it_needs(library):
    beside = {path.name for path in library.parent.glob("*.so*")}
    needed = set(re.findall(r"\[(lib[^\]]+)\]", output_of("readelf", "-d", library)))
    assert {"libopwright_dnnl.so.3", "libopwright_threads.so", "libopwright.so"} <= beside
    system = re.compile(r"lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s|gomp)\.so")
    assert {name for name in needed if not system.match(name)} <= beside


def test_the_library_exports_nothing_of_its_dependencies(library):
    symbols = output_of("nm", "-D", "--defined-only", "--format=posix", library)
    exported = {line.split()[0].split("@")[0] for line in symbols.splitlines()}
    ours = re.compile(r"_Z(TV|TI|TS|TT|GV|Z|Th\w+?_|GVZ)?(NK?)8opwright|[a-z]")
    assert "getPluginRegistry" in exported
    assert {name for name in exported if not ours.match(name)} == {"OPWRIGHT"}  # the version
