"""Build for aarch64 on an x86-64 machine with Debian, and test that under QEMU.

    .venv/bin/python tools/aarch64.py root             # build/aarch64-root: Debian's packages for arm64
    .venv/bin/python tools/aarch64.py build [TARGET...]  # build/aarch64, by default the package
    .venv/bin/python tools/aarch64.py wheel            # dist/: a wheel for the Python of the root
    .venv/bin/python tools/aarch64.py test             # C++ tests, then Python tests, under QEMU

Each step does what the steps before it have not done yet. Needs g++-aarch64-linux-gnu and qemu-user.
Nothing of arm64 is installed in the system: packages are unpacked in a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
ROOT = TOP / "build" / "aarch64-root"
BUILD = TOP / "build" / "aarch64"
SITE = ROOT / "usr" / "lib" / "python3" / "dist-packages"
PROGRAMS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user"}
PACKAGES = """libc6-dev libstdc++-12-dev libhwy-dev libprotozero-dev libflatbuffers-dev libxxhash-dev
libcli11-dev libgtest-dev libpython3-dev python3""".split()
# Of PyPI, for the Python tests: what they import that is compiled.
WHEELS = ["numpy", "onnx", "ml_dtypes", "protobuf"]
# C++ tests of these folders, and Python tests that need no other framework.
MODULES = """base symbolic network operators plan threads backend deferred cpu compile control onnx
plugin runtime api headers""".split()
PYTHON_TESTS = """test_build.py test_function_plugins.py test_onnx.py test_types.py""".split()


def run(*command: str | Path, **settings: object) -> None:
    done = subprocess.run([str(part) for part in command], **settings)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"aarch64: {' '.join(map(str, command))} ended with status {done.returncode}")


def emulated(*command: str | Path) -> list[str]:
    return ["qemu-aarch64", "-L", str(ROOT), *map(str, command)]


def make_root() -> None:
    """Debian's packages for arm64 and all that they need, unpacked. apt works in a folder of its own."""
    done = ROOT / "complete"
    if done.exists():
        return
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            sys.exit(f"aarch64: {program} is missing: apt-get install {package}")
    shutil.rmtree(ROOT, ignore_errors=True)
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
    apt_get = ["apt-get", "-q", "-y", *(part for option in options for part in ("-o", option))]
    run(*apt_get, "update")
    run(*apt_get, "install", "--download-only", *PACKAGES)
    # As Debian's base has them: what packages bring for /lib lies in /usr/lib.
    for name in ["bin", "lib", "sbin"]:
        (ROOT / "usr" / name).mkdir(parents=True, exist_ok=True)
        (ROOT / name).symlink_to(f"usr/{name}")
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        unpack = f"dpkg-deb --fsys-tarfile {package} | tar -x --keep-directory-symlink -C {ROOT}"
        run("sh", "-c", unpack)
    shutil.rmtree(apt)
    python = next((ROOT / "usr" / "bin").glob("python3.[0-9]*"))
    version = python.name.removeprefix("python").replace(".", "")
    wheels = ROOT / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    platforms = [f"--platform=manylinux_2_{n}_aarch64" for n in (17, 27, 28, 31, 34)]
    platforms += ["--platform=manylinux2014_aarch64"]
    pip += ["--no-deps", "--only-binary=:all:", f"--python-version={version}", *platforms]
    run(*pip, "--dest", wheels, *WHEELS)
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(SITE)
    shutil.rmtree(wheels)
    done.touch()


def build(*targets: str) -> None:
    make_root()
    if not (BUILD / "build.ninja").exists():
        run("cmake", "--preset", "aarch64", f"-DPython_EXECUTABLE={sys.executable}", cwd=TOP)
    run("cmake", "--build", BUILD, "--target", *(targets or ["opwright_package"]))
