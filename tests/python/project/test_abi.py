"""The C++ interface against the last release's record, and that the check sees what breaks it."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

import opwright
from paths import ROOT

LIBRARY = Path(opwright.__file__).parent / "lib" / "libopwright.so"

pytestmark = pytest.mark.skipif(
    not (shutil.which("clang++-14") or shutil.which("clang++")), reason="there is no clang"
)


@pytest.fixture(scope="module")
def abi():
    spec = importlib.util.spec_from_file_location("abi", ROOT / "tools" / "abi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def here(abi):
    return abi.interface(LIBRARY)


def test_the_interface_keeps_what_the_last_release_promised(abi, here, monkeypatch, capsys):
    monkeypatch.setattr(abi, "interface", lambda _: here)
    monkeypatch.setattr(sys, "argv", ["abi.py", "--library", str(LIBRARY)])
    assert abi.main() == 0, capsys.readouterr().out


def test_all_that_headers_declare_is_in_the_record(here):
    # Counted by other means: the words in the headers.
    headers = "".join(path.read_text() for path in (ROOT / "include" / "opwright").glob("[a-z]*.h"))
    code = re.sub(r"//[^\n]*", "", headers)
    virtual = set(re.findall(r"\bvirtual\b[^;{~]*?\b(\w+)\(", code))
    slots = {
        name
        for table in here["tables"].values()
        for slot in table
        for name in re.findall(r"(\w+)\(", slot)
    }
    assert virtual - slots == set()
    enumerations = set(re.findall(r"\benum class (\w+)[^;{]*\{", code))
    assert {name.split("::")[-1] for name in here["enumerations"]} == enumerations
    assert all(here["functions"].values()), "a function of the headers is not exported"
    assert here["layouts"]["opwright::Dims64"][-2:] == ["sizeof=72", "align=8"]
    assert "kFLOAT = 0" in here["enumerations"]["opwright::DataType"]


CHANGES = {
    "a slot before others": (
        "logger.h",
        "  virtual void log(",
        "  virtual void flush() noexcept = 0;\n  virtual void log(",
        r"break: .*ILogger: slot 0 was void log.*; is void flush\(\)",
    ),
    "a last slot of what applications implement": (
        "builder.h",
        "  virtual void phaseFinish(char const* phaseName) noexcept = 0;\n",
        "  virtual void phaseFinish(char const* phaseName) noexcept = 0;\n"
        "  virtual void buildFinish() noexcept = 0;\n",
        r"break: .*IProgressMonitor: slot \d+ was none; is void buildFinish\(\)",
    ),
    "a last slot of what the library makes": (
        "onnx_config.h",
        "  virtual bool getPrintLayerInfo() const noexcept = 0;\n",
        "  virtual bool getPrintLayerInfo() const noexcept = 0;\n"
        "  virtual bool getMore() const noexcept = 0;\n",
        r"addition: .*IOnnxConfig: bool getMore\(\) const",
    ),
    "another parameter": (
        "onnx_refitter.h",
        "  virtual void setLinksAllowed(bool allowed) noexcept = 0;",
        "  virtual void setLinksAllowed(int allowed) noexcept = 0;",
        r"break: .*Refitter: slot \d+ was .*\(bool\); is .*\(int\)",
    ),
    "a field before others": (
        "resource_limits.h",
        "struct Limits {",
        "struct Limits {\n  uint64_t first = 0;",
        r"break: .*layout opwright::Limits: was 0: uint64_t memory",
    ),
    "a value between others": (
        "types.h",
        "kHALF = 1",
        "kHALF = 101",
        r"break: .*DataType: kHALF = 1 is gone or has another value",
    ),
    "another class": (
        "onnx_config.h",
        "/// \\return a config that the caller deletes.",
        "class IOther : public IOnnxConfig {\n"
        " public:\n  bool getPrintLayerInfo() const noexcept override;\n};",
        r"addition: table .*IOther",
    ),
}


def test_changes_are_seen(abi, here, tmp_path, monkeypatch):
    # All in one copy of the headers, since reading them takes most of the time. Additions to a table
    # that another change breaks would not be listed, so these are of different tables.
    shutil.copytree(ROOT / "include", tmp_path / "include")
    for file, before, after, _ in CHANGES.values():
        header = tmp_path / "include" / "opwright" / file
        text = header.read_text()
        assert text.count(before) == 1
        header.write_text(text.replace(before, after))
    monkeypatch.setattr(abi, "ROOT", tmp_path)
    monkeypatch.setattr(abi, "HEADERS", tmp_path / "include" / "opwright")
    breaks, additions = abi.compare(here, abi.interface(LIBRARY))
    lines = [f"break: {line}" for line in breaks] + [f"addition: {line}" for line in additions]
    for *_, expected in CHANGES.values():
        assert any(re.match(expected, line) for line in lines), (expected, lines)
    assert not [line for line in breaks if re.search("getMore|IOther", line)]


def test_a_function_that_is_no_longer_exported_is_seen(abi, here):
    less = {**here, "functions": {**here["functions"], "getPluginRegistry": []}}
    breaks, _ = abi.compare(here, less)
    assert breaks == ["function getPluginRegistry: the symbol getPluginRegistry is gone"]


def test_when_a_version_may_break(abi):
    assert abi.may_break("0.1.9", "0.2.0")
    assert not abi.may_break("0.2.0", "0.2.1")
    assert not abi.may_break("1.2.0", "1.3.0")
    assert abi.may_break("1.2.0", "2.0.0")
