"""Build for aarch64 on an x86-64 machine with Debian, and test that under QEMU.

    .venv/bin/python tools/aarch64.py root               # build/aarch64-root: what is of arm64
    .venv/bin/python tools/aarch64.py build [TARGET...]  # build/aarch64, else the package alone
    .venv/bin/python tools/aarch64.py wheel              # dist/: a wheel for the root's Python
    .venv/bin/python tools/aarch64.py test [cpp|python]  # the tests, under QEMU

Each does what those before it have not done yet. Needs g++-aarch64-linux-gnu and qemu-user, and
installs nothing: Debian's packages for arm64 are unpacked in a folder. A system that knows no
programs of another architecture starts them by scripts, which call QEMU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
ROOT = TOP / "build" / "aarch64-root"
BUILD = TOP / "build" / "aarch64"
TRIALS = BUILD / "src" / "opwright-trials"
SITE = ROOT / "usr" / "lib" / "python3" / "dist-packages"
# Programs for this machine: the root's Python, and compilers under the names that tests use.
PYTHON = ROOT / "python"
CROSS = ROOT / "cross"
PROGRAMS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user"}
PACKAGES = """libc6-dev libstdc++-12-dev libhwy-dev libprotozero-dev libflatbuffers-dev libxxhash-dev
libcli11-dev libgtest-dev libpython3-dev python3""".split()
# Packages that build and test the extension, in the versions of .venv.
WHEELS = "nanobind numpy onnx onnxruntime ml_dtypes pytest".split()
# Folders of tests/cpp. Tests of GPUs need the emulated driver, which does not support aarch64.
MODULES = """api base compile control cpu deferred network onnx operators plan plugin runtime
symbolic threads""".split()
# Tests that fail in QEMU's emulation of a process: programs that restart themselves or cannot be
# started, children of a process with threads.
NOT_UNDER_QEMU = [
    "ParallelDefault.FollowsTheEnvironment",
    "Pool.AChildHasAPoolOfItsOwn",
    "RunQueue.AForkedChildHasThreadsOfItsOwn",
    "TrialProcess.WithoutItsProgramOneWarningSaysSo",
]
# Tests of tests/python that need no other framework and start no other program.
PYTHON_TESTS = """builder/builder_config builder/growth check/check_classes check/check_tensors
engine/context_names engine/device_memory engine/dims engine/error_recorder engine/refit
engine/save from_onnx/onnx_backend from_onnx/onnx_control_flow from_onnx/onnx_signal
from_onnx/onnx_standard_operators gpu/direct_io layers/cumulative layers/data_dependent_layers
layers/dynamic_quantization layers/element_values layers/extreme_values layers/fill
layers/idle_taps layers/integer_products layers/layer_parameters layers/layer_precision
layers/network layers/scatter package/types plugins/data plugins/debug plugins/exceptions
plugins/formats plugins/int8 plugins/plugin_classes plugins/plugin_functions plugins/plugin_v2
plugins/pointwise_plugins plugins/tuning plugins/wrong_answers""".split()


def run(*command: str | Path, **settings: object) -> None:
    done = subprocess.run([str(part) for part in command], **settings)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"aarch64: {' '.join(map(str, command))} ended with status {done.returncode}")


def write_script(path: Path, *command: str | Path) -> None:
    path.write_text(f'#!/bin/sh\nexec {" ".join(map(str, command))} "$@"\n')
    path.chmod(0o755)


def make_startable(program: Path) -> None:
    """Replaces the program by a script and keeps the program beside it."""
    if program.read_bytes()[:4] != b"\x7fELF":
        return
    own = program.with_name(f"{program.name}.aarch64")
    program.replace(own)
    write_script(program, "qemu-aarch64", "-L", ROOT, own)


def make_real(program: Path) -> None:
    """Puts the program back in its place, for installing from there."""
    own = program.with_name(f"{program.name}.aarch64")
    if own.exists():
        own.replace(program)


def unpack_debian_packages() -> None:
    """Unpacks PACKAGES and their dependencies. apt works in its own folder, not on the system."""
    apt = ROOT / "apt"
    for folder in ["state/lists/partial", "cache/archives/partial"]:
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    options = [
        f"Dir::State={apt}/state",
        f"Dir::State::status={apt}/status",
        f"Dir::Cache={apt}/cache",
        "APT::Architecture=arm64",
        "APT::Architectures=arm64",
        "APT::Install-Recommends=0",
        "APT::Sandbox::User=root",
        "Debug::NoLocking=1",
    ]
    apt_get = ["apt-get", "-qq", *(part for option in options for part in ("-o", option))]
    run(*apt_get, "update")
    run(*apt_get, "install", "--yes", "--download-only", *PACKAGES)
    # As in Debian's base system, files of packages for /lib lie in /usr/lib.
    for name in ["bin", "lib", "sbin"]:
        (ROOT / "usr" / name).mkdir(parents=True, exist_ok=True)
        (ROOT / name).symlink_to(f"usr/{name}")
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        unpack = f"dpkg-deb --fsys-tarfile {package} | tar -x --keep-directory-symlink -C {ROOT}"
        run("sh", "-c", unpack)
    shutil.rmtree(apt)


def unpack_python_packages() -> None:
    python = next((ROOT / "usr" / "bin").glob("python3.[0-9]*"))
    number = python.name.removeprefix("python").replace(".", "")
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28, 31, 34)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    pip += ["--only-binary=:all:", f"--python-version={number}", *platforms]
    pip += ["--platform=manylinux2014_aarch64", "--dest", str(ROOT / "wheels")]
    run(*pip, *(f"{name}=={version(name)}" for name in WHEELS))
    for wheel in (ROOT / "wheels").glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(SITE)
    shutil.rmtree(ROOT / "wheels")
    # Python's tests also start Python by its script.
    write_script(PYTHON, "qemu-aarch64", "-L", ROOT, python)
    (SITE / "executable.pth").write_text(f"import sys; sys.executable = {str(PYTHON)!r}\n")


# File that libraries read to identify the processor. Otherwise QEMU shows this machine's.
CPUINFO = """\
processor\t: 0
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

"""


def make_root() -> None:
    if (ROOT / "complete").exists():
        return
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            sys.exit(f"aarch64: {program} is missing: apt-get install {package}")
    shutil.rmtree(ROOT, ignore_errors=True)
    unpack_debian_packages()
    unpack_python_packages()
    CROSS.mkdir()
    for name, compiler in {"c++": "g++", "g++": "g++", "cc": "gcc", "gcc": "gcc"}.items():
        write_script(CROSS / name, f"aarch64-linux-gnu-{compiler}", f"--sysroot={ROOT}")
    (ROOT / "proc").mkdir()
    (ROOT / "proc" / "cpuinfo").write_text(CPUINFO)
    (ROOT / "complete").touch()


def definitions() -> dict[str, Path]:
    """Definitions for CMake, which would otherwise use this machine's Python."""
    (headers,) = (ROOT / "usr" / "include").glob("python3.*")
    cuda = next(Path(p) for p in sys.path if (Path(p) / "nvidia/cu13/include/cuda.h").exists())
    return {
        "Python_EXECUTABLE": PYTHON,
        "Python_INCLUDE_DIR": headers,
        "cuda_headers_INCLUDE_DIR": cuda / "nvidia/cu13/include",
    }


def build(*targets: str) -> None:
    make_root()
    make_real(TRIALS)
    defined = [f"-D{name}={value}" for name, value in definitions().items()]
    run("cmake", "--preset", "aarch64", *defined, cwd=TOP)
    run("cmake", "--build", BUILD, "--target", *(targets or ["opwright_package"]))


def make_wheel(folder: Path) -> Path:
    """Makes a wheel with this machine's scikit-build-core, which takes the platform and suffix from
    variables."""
    make_root()
    make_real(TRIALS)
    (python,) = (ROOT / "usr" / "bin").glob("python3.[0-9]*")
    number = f"{sys.version_info.major}{sys.version_info.minor}"
    if python.name.replace(".", "") != f"python{number}":
        sys.exit(f"aarch64: the wheel is for {python.name}, which .venv must have, too")
    folder.mkdir(parents=True, exist_ok=True)
    defined = [f"cmake.define.{name}={value}" for name, value in definitions().items()]
    settings = [f"build-dir={BUILD}", "cmake.args=--preset=aarch64", *defined]
    options = [part for setting in settings for part in ("-C", setting)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    pip += ["--no-deps", "--no-build-isolation"]
    env = os.environ | {
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{number}-aarch64-linux-gnu.so",
    }
    run(*pip, *options, "-w", folder, TOP, env=env)
    return max(folder.glob("opwright-*aarch64.whl"), key=lambda path: path.stat().st_mtime)


def environment() -> dict[str, str]:
    """The environment of tests: compilers compile for the root, other programs are this
    machine's."""
    return os.environ | {"PATH": f"{CROSS}{os.pathsep}{os.environ['PATH']}"}


def test_cpp() -> None:
    build(*(f"test_{module}" for module in MODULES), "opwright_trials")
    make_startable(TRIALS)
    failed = []
    for module in MODULES:
        print(f"-- {module}", flush=True)
        program = BUILD / "tests" / "cpp" / f"test_{module}"
        command = ["qemu-aarch64", "-L", ROOT, program, "--gtest_brief=1"]
        command += [f"--gtest_filter=-{':'.join(NOT_UNDER_QEMU)}"]
        if subprocess.run(command, cwd=BUILD, env=environment()).returncode != 0:
            failed.append(module)
    if failed:
        sys.exit(f"aarch64: tests of {', '.join(failed)} failed")


def test_python() -> None:
    build("opwright_package", "test_plugins")
    wheel = make_wheel(TOP / "dist")
    shutil.rmtree(SITE / "opwright", ignore_errors=True)
    zipfile.ZipFile(wheel).extractall(SITE)
    make_startable(SITE / "opwright" / "lib" / "opwright-trials")
    program = ROOT / "opwright"
    write_script(program, "qemu-aarch64", "-L", ROOT, BUILD / "cli" / "opwright")
    files = [name.replace("/", "/test_") for name in PYTHON_TESTS]
    tests = [f"tests/python/{name}.py" for name in files]
    env = environment() | {
        "OPWRIGHT_PROGRAM": str(program),
        "OPWRIGHT_TEST_PLUGIN_DIR": str(BUILD / "tests" / "cpp" / "plugins"),
        # Not build/dev's emulated GPU, which is a library of this machine's architecture.
        "OPWRIGHT_EMULATION_DIR": str(BUILD / "tests" / "emulation"),
    }
    run(PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=TOP, env=env)


def main() -> None:
    match sys.argv[1:]:
        case ["root"]:
            make_root()
        case ["build", *targets]:
            build(*targets)
        case ["wheel"]:
            print(make_wheel(TOP / "dist"))
        case ["test", "cpp"]:
            test_cpp()
        case ["test", "python"]:
            test_python()
        case ["test"]:
            test_cpp()
            test_python()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
