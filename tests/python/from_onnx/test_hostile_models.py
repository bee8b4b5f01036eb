"""Models that nobody means well with are refused with a text that helps, within a second and 100 MB."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import hostile_models

SCRIPT = Path(hostile_models.__file__)
# Where other work shares the cores, a second of the clock may be a fraction of one of work.
SECONDS, BYTES = 1.0, 100e6


def limit() -> None:
    """What a case may never take, whatever is wrong."""
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.parametrize("name", hostile_models.CASES)
def test_model(name):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    pattern = hostile_models.CASES[name][1]
    if pattern is not None:
        assert result["outcome"] != "result"
        assert re.search(pattern, result["outcome"], re.S), result["outcome"]
    assert result["bytes"] < BYTES
    assert result["seconds"] < SECONDS
