"""The virtual tables of src/tensorrt/abi, beside those that a compiler gives for TensorRT's headers.

OPWRIGHT_TENSORRT_HEADERS names the folder `include` of a checkout of NVIDIA/TensorRT; several with a colon between.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import opwright

LIBRARY = Path(opwright.__file__).parent / "lib" / "libopwright_tensorrt.so"
HEADERS = [
    Path(path) for path in os.environ.get("OPWRIGHT_TENSORRT_HEADERS", "").split(":") if path
]

SLOT_OF = """
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <typeinfo>
#include <utility>
#include <vector>
template <class F> long number(F f) { long word; std::memcpy(&word, &f, sizeof word); return word / 8; }
template <class C, class R, class... A> auto type(R (C::*)(A...) noexcept) { return typeid(R(A...)).name(); }
template <class C, class R, class... A> auto type(R (C::*)(A...)) { return typeid(R(A...)).name(); }
template <class C, class R, class... A> auto type(R (C::*)(A...) const noexcept) { return typeid(R(A...)).name(); }
template <class C, class R, class... A> auto type(R (C::*)(A...) const) { return typeid(R(A...)).name(); }
template <class F> void show(const char* table, const char* name, F f) {
  int status;
  std::printf("%s\\t%ld\\t%s\\t%s\\n", table, number(f), name, abi::__cxa_demangle(type(f), nullptr, nullptr, &status));
}
"""

# What a client implements, or gets, with the same table in both: the classes and methods by which they are told apart.
SHARED = {
    "IVersionedInterface": ["getAPILanguage", "getInterfaceInfo"],
    "IErrorRecorder": (
        "getNbErrors getErrorCode getErrorDesc hasOverflowed clear reportError incRefCount decRefCount"
    ).split(),
    "IGpuAllocator": "allocate reallocate deallocate allocateAsync deallocateAsync".split(),
    "IOutputAllocator": "reallocateOutput notifyShape reallocateOutputAsync".split(),
    "IDebugListener": ["processDebugTensor"],
    "IStreamReader": ["read"],
    "IStreamReaderV2": ["read", "seek"],
    "IStreamWriter": ["write"],
    "IProgressMonitor": ["phaseStart", "stepComplete", "phaseFinish"],
    "IPluginResource": ["release", "clone"],
    "IPluginResourceContext": ["getGpuAllocator", "getErrorRecorder"],
    "IPluginV3": ["getCapabilityInterface", "clone"],
    "IPluginV3OneCore": ["getPluginName", "getPluginVersion", "getPluginNamespace"],
    "v_2_0::IPluginV3OneBuild": (
        "configurePlugin getOutputDataTypes getOutputShapes supportsFormatCombination getNbOutputs getWorkspaceSize "
        "getValidTactics getNbTactics getTimingCacheID getFormatCombinationLimit getMetadataString getAliasedInput"
    ).split(),
    "IPluginV3OneRuntime": "setTactic onShapeChange enqueue attachToContext getFieldsToSerialize".split(),
    "IPluginCreatorV3One": (
        "createPlugin getFieldNames getPluginName getPluginVersion getPluginNamespace"
    ).split(),
    "apiv::VDimensionExpr": ["isConstant", "getConstantValue", "isSizeTensor"],
    "apiv::VExprBuilder": ["constant", "operation", "declareSizeTensor"],
}


def version_of(headers: Path) -> tuple[int, int]:
    text = (headers / "NvInferVersion.h").read_text()
    parts = (re.search(rf"_{part}(?:_ENTERPRISE)? (\d+)", text) for part in ("MAJOR", "MINOR"))
    major, minor = (int(part[1]) for part in parts)
    return major, minor


def described(major: int, minor: int = 99) -> list[tuple[str, int, str, str]]:
    """The slots that a version has: class, number, method and signature."""
    library = ctypes.CDLL(str(LIBRARY))
    library.opwrightTensorrtTables.restype = ctypes.c_char_p
    lines = library.opwrightTensorrtTables(major).decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return [
        (table, int(number), name, kind)
        for table, number, name, kind, since in rows
        if tuple(map(int, since.split("."))) <= (major, minor)
    ]


def plain(signature: str) -> str:
    return re.sub(
        r"opwright::(onnxparser::|tensorrt::)?|nvinfer1::|nvonnxparser::|v_\d_\d::", "", signature
    )


def run(folder: Path, source: str, headers: list[Path], *flags: str) -> str:
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    file = folder / "slots.cpp"
    file.write_text(source)
    command = [
        "g++",
        "-std=c++17",
        "-w",
        *flags,
        *(f"-I{path}" for path in headers),
        f"-I{cuda}/include",
        str(file),
    ]
    subprocess.run([*command, "-o", str(folder / "slots")], check=True, cwd=folder)
    return subprocess.run([folder / "slots"], check=True, capture_output=True, text=True).stdout


def test_every_slot_has_a_function() -> None:
    for major in (10, 11):
        rows = described(major)
        assert len(rows) > 700
        tables = defaultdict(list)
        for table, number, _, _ in rows:
            tables[table].append(number)
        assert all(numbers == list(range(len(numbers))) for numbers in tables.values())
    names = {major: {(table, name) for table, _, name, _ in described(major)} for major in (10, 11)}
    assert ("VTensor", "setType") in names[10] - names[11]
    assert ("VNetworkDefinition", "addAttentionV2") in names[11] - names[10]


@pytest.mark.skipif(
    not HEADERS, reason="OPWRIGHT_TENSORRT_HEADERS names no checkout of TensorRT's headers"
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("headers", HEADERS, ids=str)
def test_tables_are_those_of_the_headers(headers: Path, tmp_path: Path) -> None:
    major, minor = version_of(headers)
    folders = [headers, headers / "impl"]
    rows = [row for row in described(major, minor) if (major, row[0]) != (10, "IPluginRegistry")]
    twice = {key for key, count in Counter((row[0], row[2]) for row in rows).items() if count > 1}
    has_parser = (headers / "NvOnnxParser.h").exists()
    lines = []
    for table, _, name, kind in rows:
        if name in ("~", "getPImpl") or (table.startswith("IParser") and not has_parser):
            continue
        space = "nvonnxparser" if table.startswith("IParser") else "nvinfer1"
        owner = f"{space}::apiv::{table}" if table.startswith("V") else f"{space}::{table}"
        method = f"&{owner}::{name}"
        if (table, name) in twice:
            result, _, arguments = kind.replace("opwright", "nvinfer1").partition("(")
            method = f"static_cast<{result}({owner}::*)({arguments} noexcept>({method})"
        lines.append(f'show("{table}", "{name}", {method});')
    includes = "#include <NvInfer.h>\n" + ("#include <NvOnnxParser.h>\n" if has_parser else "")
    source = includes + SLOT_OF + "int main() {" + "\n".join(lines) + "}"
    theirs = [
        line.split("\t")
        for line in run(tmp_path, source, folders, "-fdump-lang-class").splitlines()
    ]
    expected = {(table, int(number), name): plain(kind) for table, number, name, kind in theirs}
    ours = {
        row[:3]: plain(row[3])
        for row in rows
        if row[:3] in expected or row[2] not in ("~", "getPImpl")
    }
    differing = {key for key in ours | expected if ours.get(key) != expected.get(key)}
    assert {key: (ours.get(key), expected.get(key)) for key in differing} == {}

    dump = next(tmp_path.glob("*.class")).read_text()
    sizes = dict(re.findall(r"Vtable for (?:\w+::)*(\w+)\n.*: (\d+) entries", dump))
    counts = Counter(row[0] for row in rows)
    if not has_parser:
        del counts["IParser"], counts["IParserRefitter"]
    assert {table: sizes.get(table) for table in counts} == {
        table: str(count + 2) for table, count in counts.items()
    }


@pytest.mark.skipif(
    not HEADERS, reason="OPWRIGHT_TENSORRT_HEADERS names no checkout of TensorRT's headers"
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("headers", HEADERS, ids=str)
def test_interfaces_of_clients_are_the_same(headers: Path, tmp_path: Path) -> None:
    own = Path(opwright.__file__).parent / "include"
    shown = {}
    for space, folders in (("nvinfer1", [headers]), ("opwright", [own / "opwright"])):
        lines = [
            f'show("{table}", "{name}", &{space}::{table}::{name});'
            for table, names in SHARED.items()
            for name in names
        ]
        structs = [
            "Weights",
            "Dims",
            "Permutation",
            "PluginField",
            "PluginFieldCollection",
            "PluginTensorDesc",
            "DynamicPluginTensorDesc",
            "DimsExprs",
            "InterfaceInfo",
            "TimingCacheKey",
            "TimingCacheValue",
        ]
        lines += [f'std::printf("{name} %zu\\n", sizeof({space}::{name}));' for name in structs]
        source = "#include <NvInfer.h>\n" + SLOT_OF + "int main() {" + "\n".join(lines) + "}"
        shown[space] = plain(run(tmp_path, source, folders)).splitlines()
    assert shown["opwright"] == shown["nvinfer1"]
