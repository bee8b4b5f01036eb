"""Set up everything for using or testing the package: system packages, .venv, the build.

    python3 tools/setup.py [package]

`package` stops at the package in .venv and the requirements of the demo. Without it the
requirements of the tests follow, and the tests are built. It uses only the standard library, since
it starts under the system's Python. A step whose inputs have not changed is skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BUILD = ROOT / "build" / "dev"


class Program(NamedTuple):
    name: str


# Debian and Ubuntu package -> a header, program or path that shows that it is installed.
REQUIRED = {
    "libhwy-dev": "hwy/highway.h",
    "libprotozero-dev": "protozero/pbf_reader.hpp",
    "libflatbuffers-dev": "flatbuffers/flatbuffers.h",
    "flatbuffers-compiler": Program("flatc"),
    "libxxhash-dev": "xxhash.h",
    "libcli11-dev": "CLI/CLI.hpp",
    "libgtest-dev": "gtest/gtest.h",
    "libbenchmark-dev": "benchmark/benchmark.h",
}
# Without these packages some tests are left out: the check of the formatting, the sanitizers and
# fuzz targets, the pages in a browser. The first package makes rebuilds faster.
OPTIONAL = {
    "ccache": Program("ccache"),
    "clang-format-14": Program("clang-format-14"),
    "clang-14": Program("clang++-14"),
    "clang-tidy-14": Program("clang-tidy-14"),
    "libclang-rt-14-dev": Path("/usr/lib/llvm-14/lib/clang"),
    "chromium": Program("chromium"),
}
# The optional dependencies in pyproject.toml that the package and the demo use.
PACKAGE_EXTRAS = ["cuda", "demo"]
# NVIDIA's plugin package, whose Python files tests/conformance uses. Installed in the environment
# it would conflict with `python -m opwright tensorrt`.
NVIDIA_PLUGINS = "tensorrt-cu13-bindings>=11.4,<12"
# Users have older compilers than the tests' environment, and those refuse more. 12.4 is the oldest
# one that the library's kernels are compiled with in tests.
OLD_NVRTC = "nvidia-cuda-nvrtc-cu12==12.4.*"
# PyPI also has these, for a machine on which no system package can be installed.
FROM_PYPI = {"cmake": "cmake>=3.25,<5", "ninja-build": "ninja>=1.11,<2"}


def say(message: str) -> None:
    print(f"-- {message}", flush=True)


def fail(message: str) -> None:
    sys.exit(f"setup: {message}")


def is_present(probe: str | Program | Path, compiler: str) -> bool:
    """Whether a header (str), a program or a path exists."""
    if isinstance(probe, Path):
        return probe.exists()
    if isinstance(probe, Program):
        return shutil.which(probe.name) is not None
    check = subprocess.run(
        [compiler, "-std=c++20", "-E", "-x", "c++", "-", "-o", os.devnull],
        input=f"#include <{probe}>\n",
        text=True,
        capture_output=True,
    )
    return check.returncode == 0


def cmake_is_recent() -> bool:
    if not shutil.which("cmake"):
        return False
    output = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
    version = re.search(r"(\d+)\.(\d+)", output)
    return version is not None and tuple(map(int, version.groups())) >= (3, 25)


def missing_packages(for_tests: bool) -> tuple[list[str], list[str], list[str]]:
    """The missing packages: required ones, those that PyPI also has, optional ones."""
    compiler = os.environ.get("CXX", "c++")
    required = []
    if not shutil.which(compiler):
        required.append("g++")
        headers_known = False
    else:
        headers_known = True
    for package, probe in REQUIRED.items():
        if (isinstance(probe, str) and not headers_known) or not is_present(probe, compiler):
            required.append(package)
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        required.append(f"python{sys.version_info.major}.{sys.version_info.minor}-dev")
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        required.append(f"python{sys.version_info.major}.{sys.version_info.minor}-venv")
    from_pypi = [] if cmake_is_recent() else ["cmake"]
    if not shutil.which("ninja"):
        from_pypi.append("ninja-build")
    wanted = OPTIONAL if for_tests else {}
    optional = [p for p, probe in wanted.items() if not is_present(probe, compiler)]
    return required, from_pypi, optional


def apt_prefix() -> list[str] | None:
    """The command prefix with which apt-get runs without questions, or None."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    if not shutil.which("sudo"):
        return None
    allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0
    return ["sudo", "-n"] if allowed else None


def install_system_packages(for_tests: bool) -> list[str]:
    """Install the missing packages. Returns the requirements to take from PyPI instead."""
    required, from_pypi, optional = missing_packages(for_tests)
    wanted = required + from_pypi + optional
    prefix = apt_prefix()
    if wanted and prefix is not None:
        say(f"system packages: installing {' '.join(wanted)}")
        env = ["env", "DEBIAN_FRONTEND=noninteractive"]
        apt = [*prefix, *env, "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        subprocess.run([*apt, "update"], **quiet)
        # Optional packages are installed one by one, so that a distribution which lacks one gets
        # the others.
        must = required + from_pypi
        for group in ([must] if must else []) + [[package] for package in optional]:
            subprocess.run([*apt, "install", "--no-install-recommends", *group], **quiet)
        required, from_pypi, optional = missing_packages(for_tests)
    if required:
        everything = " ".join(required + from_pypi + optional)
        fail(
            f"these system packages are missing: {' '.join(required)}\n"
            f"Install them, then run make again:\n  sudo apt-get install {everything}"
        )
    if optional:
        missing = " ".join(optional)
        say(f"going on without {missing} (sudo apt-get install {missing})")
    else:
        say("system packages: complete")
    return [FROM_PYPI[package] for package in from_pypi]


def make_environment() -> None:
    pip = [PYTHON, "-m", "pip", "--version"]
    if not PYTHON.exists() or subprocess.run(pip, capture_output=True).returncode != 0:
        say(f"virtual environment: creating .venv with Python {sys.version.split()[0]}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)


def requirements(for_tests: bool) -> list[str]:
    """The requirements in pyproject.toml for building and running the package, and for testing
    it."""
    reader = (
        "import json, sys\n"
        "try: import tomllib\n"
        "except ImportError: from pip._vendor import tomli as tomllib\n"
        "p = tomllib.load(open(sys.argv[1], 'rb'))\n"
        "extras = p['project']['optional-dependencies']\n"
        "chosen = sys.argv[2:] or extras\n"
        "print(*p['build-system']['requires'], *p['project']['dependencies'], sep='\\n')\n"
        "print(*sum((extras[name] for name in chosen), []), sep='\\n')\n"
    )
    chosen = [] if for_tests else PACKAGE_EXTRAS
    output = subprocess.run(
        [PYTHON, "-c", reader, ROOT / "pyproject.toml", *chosen],
        check=True,
        capture_output=True,
        text=True,
    )
    return output.stdout.splitlines()


def digest_of(items: list[bytes]) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(len(item).to_bytes(8, "little") + item)
    return digest.hexdigest()


@contextlib.contextmanager
def installing_requirements(for_tests: bool, from_pypi: list[str]) -> Iterator[None]:
    """Installs requirements while the body runs, and waits for them."""
    # Debian 12's own pip does not know the options of the build below.
    wanted = ["pip>=24", *requirements(for_tests), *from_pypi]
    stamp = VENV / "requirements.stamp"
    present = set(stamp.read_text().splitlines()) if stamp.exists() else set()
    if present.issuperset(wanted):
        say("Python packages: complete")
        yield
        return
    say(f"Python packages: installing {len(wanted)} requirements and what they need")
    # Byte code is compiled at import. Compiling everything takes as long as unpacking it.
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    with subprocess.Popen([*pip, *wanted]) as process:
        try:
            yield
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        fail("pip could not install the requirements; its message is above")
    stamp.write_text("\n".join(wanted))


def unpack(requirement: str, folder: Path) -> None:
    """Installs a package into a folder of its own, where nothing imports it by accident."""
    if folder.exists():
        return
    say(f"{requirement}: unpacking it in {folder.relative_to(ROOT)}")
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    pip += ["--no-deps", "--only-binary=:all:", "--target", folder]
    if subprocess.run([*pip, requirement]).returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        say("going on without it")


def build_inputs() -> list[bytes]:
    """Names and contents of the files that the build and the installed package are made from."""
    patterns = ["CMakeLists.txt", "CMakePresets.json", "LICENSE", "NOTICE", "pyproject.toml"]
    folders = ["cmake", "include", "src", "cli", "python"]
    files = [ROOT / name for name in patterns]
    for folder in folders:
        below = sorted((ROOT / folder).rglob("*"))
        files += [p for p in below if p.is_file() and "__pycache__" not in p.parts]
    items = [str(sys.version_info[:2]).encode()]
    for file in files:
        items += [str(file.relative_to(ROOT)).encode(), file.read_bytes()]
    return items


def run_build(command: list[str | Path], what: str) -> None:
    """Run a build and show its progress. If it fails, show all of its output."""
    started = time.monotonic()
    env = os.environ | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if progress := re.match(r"\s*(\[\d+/\d+\].*)", line):
                show_progress(progress[1])
    if sys.stdout.isatty():
        print()
    if process.returncode != 0:
        sys.stdout.writelines(lines[-200:])
        fail(f"the {what} could not be built; the last output is above")
    say(f"{what}: done in {time.monotonic() - started:.0f} s")


def install_package() -> None:
    """Build the package in build/dev and install it into .venv."""
    stamp = VENV / "installed.stamp"
    digest = digest_of(build_inputs())
    if stamp.exists() and stamp.read_text() == digest and (BUILD / "build.ninja").exists():
        say("package: up to date")
        return
    stamp.unlink(missing_ok=True)
    say("package: compiling in build/dev and installing into .venv")
    command = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--verbose"]
    command += ["--no-build-isolation", "--no-deps", "--force-reinstall"]
    command += ["-C", f"build-dir={BUILD}", "-C", "cmake.args=--preset=dev", ROOT]
    run_build(command, "package")
    stamp.write_text(digest)


def build_tests() -> None:
    """Build the rest of build/dev: the C++ tests, their plugins and the benchmarks."""
    run_build(["cmake", "--build", BUILD], "tests")


def show_progress(text: str) -> None:
    """Show progress: on a terminal in one line that is rewritten, in a log every twentieth step."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[K{text[:width]}", end="", flush=True)
        return
    step = re.match(r"\[(\d+)/(\d+)\]", text)
    if step and (int(step[1]) % 20 == 0 or step[1] == step[2]):
        print(text, flush=True)


def main() -> None:
    if sys.hexversion < 0x030A0000:
        fail(f"Python 3.10 or newer is needed, not {sys.version.split()[0]}: make PYTHON=python3.x")
    if sys.argv[1:] not in ([], ["package"]):
        fail(f"setup.py [package], not {' '.join(sys.argv[1:])}")
    for_tests = not sys.argv[1:]
    os.chdir(ROOT)
    from_pypi = install_system_packages(for_tests)
    make_environment()
    with installing_requirements(False, from_pypi):
        pass  # the build uses them
    # Packages of the tests are unpacked, by one processor, while the compiler runs.
    with installing_requirements(True, from_pypi) if for_tests else contextlib.nullcontext():
        install_package()
    if for_tests:
        unpack(NVIDIA_PLUGINS, ROOT / "build" / "tensorrt-bindings")
        unpack(OLD_NVRTC, ROOT / "build" / "old-nvrtc")
        build_tests()


if __name__ == "__main__":
    main()
