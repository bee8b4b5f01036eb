"""What `make wheels` and `make dist` make. Run with OPWRIGHT_RELEASE=1: each compiles the whole library."""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
needs_time = pytest.mark.skipif(
    not os.environ.get("OPWRIGHT_RELEASE"), reason="OPWRIGHT_RELEASE is not set"
)


@pytest.fixture(scope="module")
def release():
    sys.path.insert(0, str(TOOLS))
    spec = importlib.util.spec_from_file_location("release", TOOLS / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(TOOLS))
    return module


@needs_time
def test_wheels_are_made_and_run_in_empty_environments(tmp_path):
    command = [sys.executable, TOOLS / "release.py", "wheels", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tags = {path.name.split("-", 2)[2].rsplit("-", 1)[0] for path in tmp_path.glob("*.whl")}
    assert tags == {"cp310-cp310", "cp311-cp311", "cp312-abi3"}
    assert len(list(tmp_path.glob("*.tar.gz"))) == 1


@needs_time
def test_the_archive_and_the_debian_package_run(tmp_path):
    command = [sys.executable, TOOLS / "release.py", "dist", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (package,) = tmp_path.glob("*.deb")
    fields = subprocess.run(
        ["dpkg-deb", "--field", package, "Depends"], check=True, capture_output=True, text=True
    )
    assert re.search(r"libc6 \(>= 2\.\d+\), .*libstdc\+\+6 \(>= \d+", fields.stdout)


def wheel_of(folder: Path, name: str, *files: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as wheel:
        for file in files:
            wheel.writestr(file, "")
    return path


def test_what_a_wheel_must_not_be_is_seen(release, tmp_path):
    wheel = wheel_of(
        tmp_path,
        "opwright-1.0-cp312-abi3-linux_x86_64.whl",
        "opwright/tests/test_a.py",
        "opwright/lib/libgtest.a",
        "opwright/__init__.py",
    )
    problems = "; ".join(release.problems_of(wheel))
    assert "no manylinux wheel" in problems
    assert "opwright/tests/test_a.py is of no use" in problems
    assert "libgtest.a is of no use" in problems
    assert "__init__" not in problems
    for library in ("libopwright.so", "libopwright_cuda.so", "libopwright_dnnl.so.3"):
        assert f"{library} is missing" in problems


def test_a_wheel_for_newer_systems_alone_is_seen(release, tmp_path):
    wheel = wheel_of(tmp_path, "opwright-1.0-cp312-abi3-manylinux_2_39_x86_64.whl")
    assert any("newer than 2.36" in problem for problem in release.problems_of(wheel))


def test_symbols_that_can_be_stripped_are_seen(release, tmp_path):
    source = tmp_path / "a.c"
    source.write_text("int f(void) { return 1; }\n")
    found = {}
    for name, options in {"whole": [], "stripped": ["-s"]}.items():
        library = tmp_path / f"{name}.so"
        command = ["cc", "-shared", "-fPIC", *options, source, "-o", library]
        subprocess.run(command, check=True)
        wheel = tmp_path / f"{name}-1.0-cp312-abi3-manylinux_2_35_x86_64.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            file.write(library, f"opwright/lib/{name}.so")
        found[name] = [p for p in release.problems_of(wheel) if "stripped" in p]
    assert found == {
        "whole": ["opwright/lib/whole.so has symbols that can be stripped"],
        "stripped": [],
    }


def test_the_pages_name_the_versions_of_the_formats():
    def number(file: str) -> str:
        return re.search(r"kVersion = (\d+)", (ROOT / "src" / file).read_text())[1]

    header = (ROOT / "include" / "opwright" / "version.h").read_text()
    major, minor = re.findall(r"OPWRIGHT_VERSION_(?:MAJOR|MINOR) (\d+)", header)
    row = f"| {major}.{minor} | {number('plan/format.h')} | {number('compile/timing_cache.cpp')} |"
    assert row in (ROOT / "docs" / "engine-file.md").read_text()
    assert f"\n## {major}.{minor}." in (ROOT / "CHANGELOG.md").read_text()
