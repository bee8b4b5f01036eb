"""Programs of TensorRT's that import tensorrt get Opwright; models and fixtures of the other tests are there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import opwright.trt

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
opwright.trt.install()


@pytest.fixture(scope="session")
def plugin_dir() -> Path:
    """The folder of the example plugin libraries that the C++ tests build."""
    folder = ROOT / "build" / "dev" / "tests" / "cpp" / "plugins"
    assert (folder / "circ_pad_plugin.so").is_file(), "the plugins are not built: make build"
    return folder
