"""bench/operators.py: its table and file, and that every operator has a case."""

import json
import subprocess
import sys

import pytest

from paths import ROOT

pytest.importorskip("onnxruntime")

BENCH = ROOT / "bench"
QUICK = ["--rounds", "1", "--seconds", "0.001"]


def run(*arguments):
    program = [sys.executable, str(BENCH / "operators.py"), *QUICK, *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=120)


def test_chosen_operators(tmp_path):
    done = run("--json", str(tmp_path / "times.json"), "Erf", "Tr*", "TopK", "SequenceAt")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "times.json").read_text())["operators"]
    assert {row["operator"] for row in rows} == {"Erf", "Transpose", "Trilu", "TopK", "SequenceAt"}
    assert [row["ratio"] for row in rows] == sorted((row["ratio"] for row in rows), reverse=True)
    assert not any(row["note"] for row in rows)
    assert f"of {len(rows)}" in done.stdout.splitlines()[-1]


def test_unknown_name():
    done = run("Fictional")
    assert done.returncode != 0 and "Fictional" in done.stderr


def test_every_operator_has_a_case(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    operators = pytest.importorskip("operators")
    assert operators.untried(operators.cases()) == []
