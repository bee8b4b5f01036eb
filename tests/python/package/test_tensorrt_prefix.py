"""The folder `tensorrt` of the package, where build files for TensorRT find headers and libraries of its names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import opwright
from paths import ROOT

PREFIX = Path(opwright.__file__).parent / "tensorrt"
PROJECT = ROOT / "tests" / "package" / "tensorrt"


def output_of(*command) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tensorrt_project")
    settings = (
        f"-DTRT_LIB={PREFIX / 'lib'}",
        f"-DTRT_INCLUDE={PREFIX / 'include'}",
        f"-DPLUGIN_SOURCE={ROOT / 'tests' / 'cpp' / 'plugins' / 'identity_plugin.cpp'}",
    )
    output_of("cmake", "-S", PROJECT, "-B", folder, *settings)
    output_of("cmake", "--build", folder)
    return folder


def test_projects_find_what_they_link(built):
    output_of(built / "program", built / "libplugin.so")
    output_of(built / "names")


def test_programs_run_without_a_library_path(built):
    needed = output_of("ldd", built / "program")
    assert str(PREFIX / "lib" / "libnvinfer.so.11") in needed
    assert "not found" not in needed
    assert len(re.findall(r"libopwright\.so", needed.replace(" => ", "\n"))) >= 1


def test_load_library_takes_a_plugin_library_that_needs_them(built):
    """It has Opwright's virtual tables, though it needs a library of TensorRT's name."""
    code = "import opwright, sys; r = opwright.get_plugin_registry(); r.load_library(sys.argv[1])"
    code += "; print([c.name for c in r.all_creators])"
    assert output_of(sys.executable, "-c", code, built / "libplugin.so") == "['identity_plugin']\n"


def test_the_folder_holds_tensorrts_names_alone():
    headers = {path.name for path in (PREFIX / "include").iterdir()}
    ours = {path.name for path in (ROOT / "include" / "opwright").glob("Nv*.h")}
    assert headers == ours
    assert {path.name for path in (PREFIX / "lib").iterdir()} == {
        f"lib{name}.so{version}"
        for name in ("nvinfer", "nvinfer_plugin", "nvonnxparser")
        for version in ("", ".11")
    }
    assert not any(path.is_symlink() for path in PREFIX.rglob("*")), "wheels have no links"


def test_libraries_hold_calls_alone():
    """One state for the process, whatever name the library has that was asked."""
    for path in (PREFIX / "lib").glob("*.so"):
        assert path.stat().st_size < 40_000
        symbols = output_of("nm", "-D", "--defined-only", "--format=posix", path)
        kinds = {line.split()[1] for line in symbols.splitlines()}
        assert kinds <= {"T"}, symbols
