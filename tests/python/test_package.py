"""The installed package: its CMake package, its program, and what its libraries need and export."""

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
    (tmp_path / "main.cpp").write_text(
        '#include <dlfcn.h>\n#include <cstdio>\n#include "NvInfer.h"\n'
        "int main(int, char** arguments) {\n"
        "  if (getInferLibVersion() != NV_TENSORRT_VERSION) return 1;\n"
        "  int before = 0, after = 0;\n"
        "  getPluginRegistry()->getAllCreators(&before);\n"
        "  if (dlopen(arguments[1], RTLD_NOW) == nullptr) return std::puts(dlerror()), 2;\n"
        "  getPluginRegistry()->getAllCreators(&after);\n"
        "  return after == before + 1 ? 0 : 3;\n"
        "}\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\n"
        "project(consumer CXX)\n"
        "find_package(Opwright 0.1 REQUIRED)\n"
        f"add_library(plugin MODULE {plugin})\n"
        "target_link_libraries(plugin PRIVATE Opwright::opwright)\n"
        "add_executable(program main.cpp)\n"
        "target_link_libraries(program PRIVATE Opwright::opwright dl)\n"
    )
    build = tmp_path / "build"
    output_of("cmake", "-S", tmp_path, "-B", build, f"-DOpwright_DIR={cmake_dir}")
    output_of("cmake", "--build", build)
    output_of(build / "program", build / "libplugin.so")


def test_the_program_runs_and_is_native():
    assert "Usage" in output_of(PROGRAM, "--help")
    needed = output_of("ldd", PROGRAM)
    assert "not found" not in needed
    assert "python" not in needed.replace("site-packages", "").replace("/lib/python", "")


def test_the_library_brings_what_it_needs(library):
    beside = {path.name for path in library.parent.glob("*.so*")}
    needed = set(re.findall(r"\[(lib[^\]]+)\]", output_of("readelf", "-d", library)))
    assert {"libdnnl.so.3", "libopwright.so"} <= beside
    system = re.compile(r"lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s|gomp)\.so")
    assert {name for name in needed if not system.match(name)} <= beside
    licences = library.parents[1] / "share" / "licences"
    assert "Apache License" in (licences / "onednn").read_text()


def test_the_library_exports_nothing_of_its_dependencies(library):
    symbols = output_of("nm", "-D", "--defined-only", "--format=posix", library)
    exported = {line.split()[0].split("@")[0] for line in symbols.splitlines()}
    ours = re.compile(r"_Z(TV|TI|TS|TT|GV|Z|Th\w+?_|GVZ)?(NK?)8opwright|[a-z]")
    assert "getPluginRegistry" in exported
    assert {name for name in exported if not ours.match(name)} == set()
