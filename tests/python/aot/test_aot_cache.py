"""The folder of compiled kernels: shared by processes, written by several at once, damaged, closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
import hashlib, sys
import opwright as trt
from opwright import aot

source = "void f(float* y, int64_t x, int64_t, int64_t) { y[x] = x; }"
code = aot.cpp(source, "f", inputs=[], outputs=[trt.float32])
print(hashlib.sha256(code).hexdigest())
"""
COMPILER = """#!/bin/sh
[ "$1" = --version ] || echo run >> "{log}"
exec c++ "$@"
"""


class Processes:
    """Processes that compile the same kernel with a compiler that counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.log = folder / "log"
        self.log.write_text("")
        compiler = folder / "counting"
        compiler.write_text(COMPILER.format(log=self.log))
        compiler.chmod(0o755)
        self.environment = {
            **os.environ,
            "CXX": str(compiler),
            "OPWRIGHT_CACHE_DIR": str(self.cache),
        }

    def start(self, program: str = COMPILE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> str:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output

    def compile(self) -> str:
        return self.finish(self.start())

    def runs(self) -> int:
        """Of the compiler, so far."""
        return len(self.log.read_text().splitlines())

    def files(self) -> list[Path]:
        return sorted(self.cache.iterdir())


@pytest.fixture
def processes(tmp_path) -> Processes:
    return Processes(tmp_path)


def test_a_second_process_compiles_nothing(processes):
    first = processes.compile()
    assert processes.runs() == 1
    assert processes.compile() == first
    assert processes.runs() == 1


def test_processes_that_compile_at_once_leave_one_whole_file(processes):
    started = [processes.start() for _ in range(3)]
    results = {processes.finish(process) for process in started}
    assert len(results) == 1
    runs = processes.runs()
    assert [file.suffix for file in processes.files()] == [".kernel"]
    assert processes.compile() in results
    assert processes.runs() == runs, "the file that the processes left was not used"


@pytest.mark.parametrize("damage", ["byte", "cut", "empty"])
def test_a_damaged_file_is_compiled_again_and_mended(processes, damage):
    first = processes.compile()
    (file,) = processes.files()
    whole = file.read_bytes()
    changed = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    file.write_bytes({"byte": changed, "cut": whole[:100], "empty": b""}[damage])
    assert processes.compile() == first
    assert processes.runs() == 2
    assert file.read_bytes() == whole


def test_the_file_of_another_kernel_is_not_taken(processes):
    first = processes.compile()
    (file,) = processes.files()
    whole = file.read_bytes()
    other = file.with_name("0" * 64 + ".kernel")
    file.rename(other)
    changed = COMPILE.replace("y[x] = x;", "y[x] = 2 * x;")
    another = processes.finish(processes.start(changed))
    assert another != first and processes.runs() == 2
    (file,) = set(processes.files()) - {other}
    file.write_bytes(whole)
    assert processes.finish(processes.start(changed)) == another
    assert processes.runs() == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_no_error(processes):
    processes.cache.mkdir(mode=0o555)
    assert processes.compile() == processes.compile()
    assert processes.runs() == 2


def test_a_read_only_folder_is_read(processes):
    first = processes.compile()
    processes.cache.chmod(0o555)
    assert processes.compile() == first
    assert processes.runs() == 1


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


def test_the_folder_and_its_files_are_the_users_alone(processes):
    before = os.umask(0)
    try:
        processes.compile()
    finally:
        os.umask(before)
    (file,) = processes.files()
    assert (mode(processes.cache), mode(file)) == (0o700, 0o600)


def compile_with_warnings(processes: Processes) -> tuple[str, str]:
    """The code's digest, and what was said."""
    process = processes.start()
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output, errors


@pytest.mark.parametrize("permissions", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(processes, permissions):
    first = processes.compile()
    (file,) = processes.files()
    planted = b"\x00" * 32 + b"planted"
    file.write_bytes(planted)
    processes.cache.chmod(permissions)
    code, said = compile_with_warnings(processes)
    assert code == first
    assert processes.runs() == 2
    assert file.read_bytes() == planted  # nor written
    assert said.count("for compiled code is not used") == 1
    assert f"with mode {permissions:o}, so that others can write in it" in said
    assert f"chmod 700 '{processes.cache}'" in said
    # The folder for the package `tensorrt`, which is on PYTHONPATH, is a new one.
    where = subprocess.run(
        [
            sys.executable,
            "-c",
            "from opwright._tensorrt.package import private_folder; print(private_folder('11.1'))",
        ],
        env=processes.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(where.stdout.strip())
    assert folder.parent != processes.cache and mode(folder) == 0o700
    assert processes.files() == [file]


def test_a_file_that_others_can_write_is_compiled_again(processes):
    first = processes.compile()
    (file,) = processes.files()
    file.chmod(0o620)
    assert processes.compile() == first
    assert processes.runs() == 2
    assert mode(file) == 0o600
    assert processes.compile() == first
    assert processes.runs() == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_another_user_owns_is_not_used(processes, what):
    first = processes.compile()
    (file,) = processes.files()
    os.chown(processes.cache if what == "folder" else file, 12345, 12345)
    code, said = compile_with_warnings(processes)
    assert code == first
    assert processes.runs() == 2
    assert ("it belongs to user 12345" in said) == (what == "folder")


def test_links_are_not_followed(processes, tmp_path):
    first = processes.compile()
    (file,) = processes.files()
    whole = file.read_bytes()
    victim = tmp_path / "victim"
    victim.write_bytes(whole)
    victim.chmod(0o600)
    file.unlink()
    file.symlink_to(victim)
    assert processes.compile() == first
    assert processes.runs() == 2
    assert not file.is_symlink() and file.read_bytes() == whole == victim.read_bytes()
    real = tmp_path / "real"
    processes.cache.rename(real)
    processes.cache.symlink_to(real)
    code, said = compile_with_warnings(processes)
    assert code == first
    assert processes.runs() == 3
    assert "it is a symbolic link of" in said
    assert [each.name for each in real.iterdir()] == [file.name]
