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

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", COMPILE],
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
