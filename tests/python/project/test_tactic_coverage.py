"""tools/tactic_coverage.py: what counts as there, as run and as missing."""

import json
import subprocess
import sys

import pytest

from paths import ROOT

TOOL = ROOT / "tools" / "tactic_coverage.py"


@pytest.fixture
def count(tmp_path):
    """Runs the tool on lines of a record; its exit status and what it prints."""

    def run(*lines):
        record = tmp_path / "record"
        record.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [sys.executable, TOOL, "--records", record]
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


def test_what_no_kernel_declares_is_an_error(count):
    status, said = count(
        exists("Sum", "rows"), event("run", "Sum", "rows"), event("run", "Sum", "secret")
    )
    assert status == 1 and "cuda: not declared: Sum: secret" in said


def test_choices_between_kernels_are_no_tactics(count):
    choices = [f"{how} 12 rows; 2 columns" for how in ("fused:", "unfused:")]
    lines = [event("run", "Sum", choice) for choice in choices]
    status, said = count(exists("Sum", "rows"), event("run", "Sum", "rows"), *lines)
    assert status == 0 and "| Sum | 1 | 1 | 1 | 1 |  |" in said


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
    # Open extents and channels-last were only listed; 3x8 and 5x16 are of one class; 0x8 of none.
    assert "| Sum | 1 | 1 | 5 | 3 | classes of `rows` |" in said


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Calls the tool's main with arguments; the commands that it runs, with their environments."""
    sys.path.insert(0, str(TOOL.parent))
    try:
        import tactic_coverage
    finally:
        sys.path.pop(0)

    def run(*arguments):
        ran = []

        def note(command, env, check):
            ran.append((command, env))
            return subprocess.CompletedProcess(command, 0)

        monkeypatch.setattr(tactic_coverage.subprocess, "run", note)
        monkeypatch.setattr(sys, "argv", [TOOL.name, *arguments, "--out", str(tmp_path)])
        assert tactic_coverage.main() == 0
        return ran

    return run


def test_a_part_runs_alone(commands):
    """--only and --tests: no fuzzer, and these C++ tests."""
    [(command, environment)] = commands(
        "--device", "cuda", "--only", "tests", "--tests", "Open*", "--jobs", "1"
    )
    assert command[0].endswith("test_cuda") and command[-1] == "--gtest_filter=Open*"
    assert environment["OPWRIGHT_ALL_TACTICS"] == "once"


def test_the_quick_count_runs_each_tactic_once(commands):
    """Few tests, shared by the jobs, each with a record of its own, and no fuzzer."""
    ran = commands("--quick", "--device", "cuda", "--jobs", "2")
    assert len(ran) == 2 and len({environment["OPWRIGHT_TACTICS"] for _, environment in ran}) == 2
    assert {environment["GTEST_SHARD_INDEX"] for _, environment in ran} == {"0", "1"}
    for command, environment in ran:
        assert "AllTactics.*" in command[-1]
        assert environment["OPWRIGHT_ALL_TACTICS"] == "least"
        assert environment["GTEST_TOTAL_SHARDS"] == "2"


def test_fuzzers_run_where_they_have_time(commands):
    ran = commands("--quick", "--device", "cpu", "--seconds", "4", "--jobs", "1")
    assert [str(command[0]).endswith("test_cpu") for command, _ in ran] == [True, False, False]
    assert all("2.0" in command for command, _ in ran[1:])
