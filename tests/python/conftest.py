"""Fixtures that several test files share: the native program, the example plugin libraries, PyTorch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import opwright as trt
from opwright.aot import _nvrtc
from paths import ROOT

# Ray would put a function of its own in the place of print, which tests of the same process compile.
os.environ["RAY_TQDM_PATCH_PRINT"] = "0"


def creators_without_namespace() -> list:
    """The creators of Python that a node without a namespace finds."""
    creators = trt.get_plugin_registry().all_creators
    python = [each for each in creators if each.api_language == trt.APILanguage.PYTHON]
    return [each for each in python if each.plugin_namespace == ""]


@pytest.fixture(scope="module", autouse=True)
def no_creator_is_left():
    """Fails a file that leaves a creator in the empty namespace: later files would find it before their own."""
    before = creators_without_namespace()
    yield
    left = [each.name for each in creators_without_namespace() if each not in before]
    assert not left, (
        f"this file leaves creators in the empty namespace registered: {', '.join(left)}; deregister"
        " them (the fixture `creators_end` does), or register them in a namespace of the test's own"
    )


@pytest.fixture
def creators_end():
    """Deregisters the creators that the test registers in the empty namespace."""
    before = creators_without_namespace()
    yield
    for creator in creators_without_namespace():
        if creator not in before:
            trt.get_plugin_registry().deregister_creator(creator)


@pytest.fixture(scope="session")
def program() -> Path:
    """The native program: $OPWRIGHT_PROGRAM, else beside the interpreter, else of the build folder."""
    if "OPWRIGHT_PROGRAM" in os.environ:
        return Path(os.environ["OPWRIGHT_PROGRAM"])
    candidates = [
        Path(sys.executable).with_name("opwright"),
        ROOT / "build" / "dev" / "cli" / "opwright",
    ]
    found = [path for path in candidates if path.is_file()]
    assert found, f"no program among {', '.join(map(str, candidates))}: make build"
    return found[0]


@pytest.fixture(scope="session")
def plugin_dir() -> Path:
    """The folder of the example plugin libraries that the C++ tests build."""
    if "OPWRIGHT_TEST_PLUGIN_DIR" in os.environ:
        return Path(os.environ["OPWRIGHT_TEST_PLUGIN_DIR"])
    folder = ROOT / "build" / "dev" / "tests" / "cpp" / "plugins"
    assert (folder / "circ_pad_plugin.so").is_file(), "the plugins are not built: make setup"
    return folder


@pytest.fixture
def nvidias_nvrtc(monkeypatch):
    """aot.cuda compiles with NVIDIA's compiler, where it is installed, not with the emulated one of other tests."""
    monkeypatch.delenv("OPWRIGHT_NVRTC", raising=False)
    _nvrtc.nvrtc.cache_clear()
    yield
    _nvrtc.nvrtc.cache_clear()


@pytest.fixture
def fresh_torch(monkeypatch):
    """PyTorch as a new process has it: nothing is compiled, random numbers begin anew. Engines run on the CPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cpu")
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def no_gradients(fresh_torch):
    """The same, without gradients."""
    with pytest.importorskip("torch").no_grad():
        yield
