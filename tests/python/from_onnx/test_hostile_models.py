"""Models that nobody means well with are refused with a text that helps, within a second and 100 MB."""

from __future__ import annotations

import json
import re

import pytest

import case_server
import hostile_models
from paths import SUPPORT

# Where other work shares the cores, a second of the clock may be a fraction of one of work.
SECONDS, BYTES = 1.0, 100e6


@pytest.fixture(autouse=True, scope="module")
def server(tmp_path_factory):
    """From which the models' processes are forked."""
    server = case_server.Server(tmp_path_factory.mktemp("cases"), SUPPORT, ["hostile_models"])
    yield
    server.stop()


@pytest.mark.parametrize("name", hostile_models.CASES)
def test_model(name):
    status, output = case_server.run("hostile_models", "main", name=name)
    assert status == 0, output[-2000:]
    result = json.loads(output.splitlines()[-1])
    pattern = hostile_models.CASES[name][1]
    if pattern is not None:
        assert result["outcome"] != "result"
        assert re.search(pattern, result["outcome"], re.S), result["outcome"]
    assert result["bytes"] < BYTES
    assert result["seconds"] < SECONDS
