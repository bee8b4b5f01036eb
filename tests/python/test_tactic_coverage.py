"""tools/tactic_coverage.py: what counts as there, as run and as missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "tactic_coverage.py"


@pytest.fixture
def count(tmp_path):
    """Runs the tool on lines of a record; its exit status and what it prints."""

    def run(*lines, quick=False):
        record = tmp_path / "record"
        record.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [sys.executable, TOOL, "--records", record, *(["--quick"] if quick else [])]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def exists(kind, *tactics):
    return {"event": "exists", "device": "cuda", "kind": kind, "tactics": tactics}


def event(what, kind, tactic, low="4x8", high=None, type_="FP16"):
    port = [type_, low, high or low]
    return {
        "event": what, "device": "cuda", "kind": kind, "tactic": tactic, "inputs": [port], "outputs": [port],
    }  # fmt: skip


def test_all_that_exist_were_run(count):
    status, said = count(
        exists("Sum", "rows", "tile, in parts"), exists("Copy"), event("run", "Sum", "rows"),
        event("run", "Sum", "tile, in 4 parts"), event("run", "Copy", "whatever it is called"),
    )  # fmt: skip
    assert status == 0, said
    assert "| Sum | 2 | 2 | 2 | 2 |  |" in said
    assert "100.0 % of tactics, 100.0 % of classes" in said


def test_what_was_not_run_is_named(count):
    lines = [exists("Sum", "rows", "columns"), event("run", "Sum", "rows")]
    status, said = count(*lines)
    assert status == 1 and "cuda: not run: Sum: columns" in said
    assert count(*lines, quick=True)[0] == 0


def test_what_no_kernel_declares_is_an_error(count):
    status, said = count(exists("Sum", "rows"), event("run", "Sum", "secret"), quick=True)
    assert status == 1 and "cuda: not declared: Sum: secret" in said


def test_a_kernel_without_outputs_counts(count):
    run = {**event("run", "Check", "look"), "outputs": []}
    status, said = count(exists("Check"), run)
    assert status == 0 and "| Check | 1 | 1 | 1 | 1 |  |" in said


def test_classes_differ_by_type_and_shapes(count):
    odd, wide = "3x7", "3x8"
    _, said = count(
        exists("Sum", "rows"), event("run", "Sum", "rows", odd), event("run", "Sum", "rows", wide),
        event("run", "Sum", "rows", "3x1"), event("listed", "Sum", "rows", "1x8", "3x8"),
        event("run", "Sum", "rows", "5x16"), event("listed", "Sum", "rows", odd, type_="FP16:HWC"),
        event("listed", "Sum", "rows", "0x8"),
    )  # fmt: skip
    # Open extents and channels-last were listed alone; 3x8 and 5x16 are of one class; 0x8 of none.
    assert "| Sum | 1 | 1 | 5 | 3 | classes of `rows` |" in said


def test_a_part_runs_alone(tmp_path, monkeypatch):
    """--only and --tests: no fuzzer, and these C++ tests."""
    sys.path.insert(0, str(TOOL.parent))
    try:
        import tactic_coverage
    finally:
        sys.path.pop(0)
    commands = []

    def run(command, env, check):
        commands.append((command, env))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(tactic_coverage.subprocess, "run", run)
    arguments = ["--device", "cuda", "--only", "tests", "--tests", "Open*", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["tactic_coverage.py", *arguments])
    assert tactic_coverage.main() == 0
    [(command, environment)] = commands
    assert command[0].endswith("test_cuda") and command[-1] == "--gtest_filter=Open*"
    assert environment["OPWRIGHT_ALL_TACTICS"] == "once"
