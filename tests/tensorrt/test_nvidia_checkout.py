"""The Python programs of a checkout of NVIDIA/TensorRT, unmodified, where OPWRIGHT_TENSORRT_CHECKOUT names one.

A program runs where what it needs is there; `program_runs` does all of them at once and writes a report.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import opwright
import program_runs
import stand_in_data
from nvidia_programs import NOT_RUN, PROGRAMS, Program

VARIABLE = "OPWRIGHT_TENSORRT_CHECKOUT"


@pytest.fixture(scope="module")
def checkout() -> Path:
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} names no checkout of NVIDIA/TensorRT")
    return Path(os.environ[VARIABLE])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_runs_as_it_is(checkout, program):
    outcome = program_runs.run(program, checkout)
    if outcome.result == "not run":
        pytest.skip(outcome.reason)
    assert outcome.result == "passed", f"{outcome.reason}\n{outcome.log[-5000:]}"


def test_every_folder_is_accounted_for(checkout):
    folders = {path.name for path in (checkout / "samples" / "python").iterdir() if path.is_dir()}
    known = {program.folder for program in PROGRAMS} | set(NOT_RUN)
    assert folders - known - {"__pycache__"} == set()


# What runs them


@pytest.fixture
def own(tmp_path) -> Path:
    """A checkout with programs of this test's own."""
    folder = tmp_path / "samples" / "python" / "own"
    folder.mkdir(parents=True)
    (folder / "right.py").write_text("import sys, tensorrt\nprint('is correct!', sys.argv[1:])")
    (folder / "wrong.py").write_text("print('is incorrect!')")
    (folder / "fails.py").write_text("import tensorrt\nraise KeyError('here')")
    (folder / "hangs.py").write_text("import time\ntime.sleep(60)")
    (folder / "crashes.py").write_text("import os\nos.abort()")
    (folder / "saves.py").write_text("open('file', 'w').write('is correct!')")
    (folder / "loads.py").write_text("print(open('file').read())")
    return tmp_path


@pytest.mark.parametrize(
    "commands, result, reason",
    [
        ([("right.py", "-a", "b c")], "passed", ""),
        ([("saves.py",), ("loads.py",)], "passed", ""),
        ([("loads.py",)], "failed", "FileNotFoundError"),
        ([("wrong.py",)], "failed", "is incorrect!"),
        ([("saves.py",)], "failed", "did not say 'is correct!'"),
        ([("fails.py",)], "failed", "KeyError: 'here'"),
        ([("hangs.py",)], "failed", "stopped after 3 s"),
        ([("crashes.py",)], "failed", "ended by SIGABRT"),
        ([("none.py",)], "not run", "none.py in the checkout"),
    ],
    ids=lambda value: "-".join(command[0] for command in value) if isinstance(value, list) else "",
)
def test_verdicts(own, monkeypatch, commands, result, reason):
    monkeypatch.setattr(program_runs, "has_module", lambda name: True)
    limit = 3 if "hangs.py" in commands[0] else 60
    program = Program("own", tuple(commands), ("is correct!",), gpu=False, limit=limit)
    outcome = program_runs.run(program, own)
    assert (outcome.result, reason in outcome.reason) == (result, True), outcome


def test_a_program_may_import_the_environments_own_package(own, monkeypatch):
    monkeypatch.setattr(program_runs, "has_module", lambda name: True)
    (own / "tensorrt.py").write_text("print('the own package')")
    monkeypatch.setenv("PYTHONPATH", str(own), prepend=os.pathsep)
    program = Program("own", (("right.py",),), ("the own package",), gpu=False)
    assert program_runs.run(program, own, binding=True).result == "passed"
    assert program_runs.run(program, own).result == "failed"


def test_the_reason_is_the_exception_with_its_notes():
    output = """Error in a log
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    raise ValueError
builtins.ValueError: first
layer 'a': a note
the layer that the GPU lacks
"""
    assert program_runs.reason_of(output).splitlines() == output.splitlines()[-3:]
    assert program_runs.reason_of("x\n[E] this\nand more\n") == "[E] this"
    assert program_runs.reason_of("x\nlast\n\n") == "last"


def test_what_is_missing_is_said(own, monkeypatch):
    monkeypatch.setattr(program_runs, "has_gpu", lambda: False)
    program = Program("own", (("right.py",),), (), ("no_such.module",), ("NO_SUCH_VARIABLE",))
    reason = program_runs.run(program, own).reason
    for part in ("a GPU", "the module no_such.module", "the variable NO_SUCH_VARIABLE"):
        assert part in reason


def test_the_report():
    outcomes = [
        program_runs.Outcome(PROGRAMS[1], "failed", "a | b", 3),
        program_runs.Outcome(PROGRAMS[0], "passed", "", 2),
    ]
    lines = program_runs.report(outcomes, ["| fact | value |"]).splitlines()
    assert "1 passed, 1 failed, 0 not run." in lines
    rows = [line for line in lines if line.startswith("| `python_plugin")]
    assert [" passed " in row for row in rows] == [True, False] and "a \\| b" in rows[1]


def test_the_stand_in_classifies_its_pictures(tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder = stand_in_data.make(tmp_path / "data")
    labels = (folder / "class_labels.txt").read_text().split("\n")
    engine = opwright.build(onnx.load(folder / "ResNet50.onnx"))
    for name in stand_in_data.PICTURES:
        picture = np.asarray(image.open(folder / name).resize((224, 224)), np.float32)
        x = (picture.transpose(2, 0, 1)[None] / 255 - 0.45) / 0.225
        label = labels[int(np.argmax(engine(np.ascontiguousarray(x))))]
        assert name.startswith(label.replace(" ", "_"))
