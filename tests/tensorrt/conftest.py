"""Programs of TensorRT's that import tensorrt get Opwright; models and fixtures of the other tests are there."""

from __future__ import annotations

from pathlib import Path

import pytest

import opwright.trt
from paths import ROOT

opwright.trt.install()


@pytest.fixture(scope="session")
def plugin_dir() -> Path:
    """The folder of the example plugin libraries that the C++ tests build."""
    folder = ROOT / "build" / "dev" / "tests" / "cpp" / "plugins"
    assert (folder / "circ_pad_plugin.so").is_file(), "the plugins are not built: make setup"
    return folder
