"""Saving under a full disk and a killed process: the old file or the new one, nothing in between."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest

import opwright
from small_models import convolution

X = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def old() -> opwright.Engine:
    return opwright.build(convolution(channels=4, seed=1), timing=False)


@pytest.fixture(scope="module")
def new() -> opwright.Engine:
    return opwright.build(convolution(channels=5000, seed=2), timing=False)


@contextlib.contextmanager
def small_disk():
    """No file may become longer than 64 KiB, as on a disk that is full.

    It holds for the test run's own log too, so only around the call under test.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_leaves_the_old_file_alone(tmp_path, old, new):
    path = tmp_path / "model.engine"
    old.save(path)
    content = path.read_bytes()
    with small_disk(), pytest.raises(opwright.Error, match=os.strerror(errno.EFBIG)):
        new.save(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["model.engine"]
    assert opwright.load(path)(X).shape == (1, 4, 8, 8)
    assert new(X).shape == (1, 5000, 8, 8)


def test_full_disk_makes_no_file(tmp_path, new):
    with small_disk(), pytest.raises(opwright.Error, match=os.strerror(errno.EFBIG)):
        new.save(tmp_path / "model.engine")
    assert os.listdir(tmp_path) == []


def test_program_on_a_full_disk(program, tmp_path, old):
    onnx.save(convolution(channels=5000), tmp_path / "model.onnx")
    engine = tmp_path / "model.engine"
    old.save(engine)
    content = engine.read_bytes()
    done = subprocess.run(
        [program, "build", tmp_path / "model.onnx", "-o", engine, "--no-timing"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)),
    )
    assert done.returncode == 1, done
    assert os.strerror(errno.EFBIG) in done.stderr and "model.engine" in done.stderr
    assert engine.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["model.engine", "model.onnx"]


def test_places_that_cannot_be_written(tmp_path, old):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for path in (
        "/dev/full",
        tmp_path / "folder",
        tmp_path / "none" / "m",
        tmp_path / "file" / "m",
    ):
        with pytest.raises(opwright.Error, match=str(path)):
            old.save(path)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_link_keeps_pointing_to_the_file(tmp_path, old):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "model.engine", tmp_path / "link.engine"
    old.save(real)
    link.symlink_to(real)
    old.save(link)
    assert link.is_symlink() and not real.is_symlink()
    assert opwright.load(link)(X).shape == (1, 4, 8, 8)


SAVE_FOREVER = """
import sys
import opwright
engines = [opwright.load(path) for path in sys.argv[2:]]
print("ready", flush=True)
while True:
    for engine in engines:
        engine.save(sys.argv[1])
"""


def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path, old, new):
    whole = []
    for i, engine in enumerate((old, new)):
        engine.save(tmp_path / f"{i}.engine")
        whole.append((tmp_path / f"{i}.engine").read_bytes())
    target = tmp_path / "target" / "model.engine"
    target.parent.mkdir()
    chance = random.Random(5)
    found = set()
    for _ in range(12):
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SAVE_FOREVER,
                target,
                tmp_path / "0.engine",
                tmp_path / "1.engine",
            ],
            stdout=subprocess.PIPE,
        )
        assert child.stdout.readline() == b"ready\n"
        while not target.exists():
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        content = target.read_bytes()
        assert content in whole
        found.add(whole.index(content))
        opwright.load(target)
    # What a killed process began lies beside the file, under a name of its own.
    assert all(
        name.startswith(".opwright-") or name == "model.engine"
        for name in os.listdir(target.parent)
    )
    assert found
