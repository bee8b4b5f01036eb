"""The folder `tensorrt` of the package, where build files for TensorRT find headers and libraries of its names."""

import os
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
    assert str(PREFIX / "lib" / "libnvinfer_opwright.so.11") in needed
    assert "not found" not in needed
    assert len(re.findall(r"libopwright\.so", needed.replace(" => ", "\n"))) >= 1


LOAD = """
import opwright, sys
registry = opwright.get_plugin_registry()
registry.load_library(sys.argv[1])
print([creator.name for creator in registry.all_creators])
"""
#: The process has TensorRT's functions, as if the program were linked to libnvinfer.so.11.
IN_A_CLIENT = """
import ctypes, opwright
from opwright._tensorrt.provide import library_file
ctypes.CDLL(str(library_file(11, "nvinfer")), ctypes.RTLD_GLOBAL)
"""


def test_load_library_takes_a_plugin_library_that_needs_them(built):
    """It has Opwright's virtual tables, though it was linked with -lnvinfer."""
    done = output_of(sys.executable, "-c", LOAD, built / "libplugin.so")
    assert done == "['identity_plugin']\n"


@pytest.mark.parametrize("linked", ["-lnvinfer", "-lopwright"])
def test_in_a_program_of_tensorrts_a_library_gets_its_own_registry(linked, tmp_path):
    """Without type information and symbols nothing tells whose headers a library was compiled with."""
    source = ROOT / "tests" / "cpp" / "plugins" / "identity_plugin.cpp"
    library = tmp_path / "plugin.so"
    folder = PREFIX / "lib" if linked == "-lnvinfer" else PREFIX.parent / "lib"
    flags = ["-std=c++17", "-fno-rtti", "-s", "-shared", "-fPIC", f"-I{PREFIX / 'include'}"]
    linker = [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-Wl,-rpath-link,{PREFIX.parent / 'lib'}"]
    output_of("g++", *flags, source, "-o", library, *linker, linked)
    assert output_of(sys.executable, "-c", LOAD, library) == "['identity_plugin']\n"
    assert output_of(sys.executable, "-c", IN_A_CLIENT + LOAD, library) == "['identity_plugin']\n"


def test_a_library_of_the_same_name_is_named(built, tmp_path):
    """A process that loads the prefix's libnvinfer.so.11 by name can have no plugin that needs TensorRT's."""
    (tmp_path / "empty.c").write_text("")
    library = tmp_path / "plugin.so"
    linker = [f"-L{PREFIX / 'lib'}", "-Wl,--no-as-needed", "-l:libstand_in.so"]
    stand_in = tmp_path / "libstand_in.so"
    output_of(
        "gcc", "-shared", tmp_path / "empty.c", "-Wl,-soname,libnvinfer.so.11", "-o", stand_in
    )
    output_of("gcc", "-shared", tmp_path / "empty.c", "-o", library, f"-L{tmp_path}", *linker)
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[2])" + LOAD
    command = [sys.executable, "-c", code, library, PREFIX / "lib" / "libnvinfer.so.11"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert "the process has another library of that name" not in done.stderr
    code = 'import ctypes; ctypes.CDLL("libnvinfer.so.11")' + LOAD
    done = subprocess.run(
        [sys.executable, "-c", code, library],
        capture_output=True,
        text=True,
        env=os.environ | {"LD_LIBRARY_PATH": str(PREFIX / "lib")},
    )
    assert "the process has another library of that name" in done.stderr


def test_the_folder_holds_tensorrts_names_alone():
    headers = {path.name for path in (PREFIX / "include").iterdir()}
    ours = {path.name for path in (ROOT / "include" / "opwright").glob("Nv*.h")}
    assert headers == ours
    assert {path.name for path in (PREFIX / "lib").iterdir()} == {
        f"lib{name}{version}"
        for name in ("nvinfer", "nvinfer_plugin", "nvonnxparser")
        for version in (".so", ".so.11", "_opwright.so.11")
    }
    assert not any(path.is_symlink() for path in PREFIX.rglob("*")), "wheels have no links"


def test_libraries_hold_calls_alone():
    """One state for the process, whatever name the library has that was asked."""
    for path in (PREFIX / "lib").glob("*.so"):
        assert path.stat().st_size < 40_000
        symbols = output_of("nm", "-D", "--defined-only", "--format=posix", path)
        kinds = {line.split()[1] for line in symbols.splitlines() if line.split()[0] != "OPWRIGHT"}
        assert kinds == {"T"}, symbols
