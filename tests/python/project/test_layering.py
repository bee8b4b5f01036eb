"""Dependencies between the modules under src/ point one way.

Nothing there knows Python, and nothing outside backend/cuda knows CUDA.
"""

import re
from pathlib import Path

import pytest

from paths import ROOT

BELOW_OPERATORS = {"threads", "base", "symbolic", "network", "backend"}
# The folders of src/plugin. Each uses those before it.
PLUGIN = {"plugin/registry", "plugin/kernel", "plugin/model", "plugin/abi"}
# What a module may include besides its own files. "backend" is what lies in src/backend itself.
ALLOWED = {
    "threads": set(),
    "base": {"threads"},
    "symbolic": {"base"},
    "network": {"threads", "base", "symbolic"},
    "backend": {"base", "symbolic", "network"},
    "operators": BELOW_OPERATORS,
    "plugin/registry": BELOW_OPERATORS,
    "plugin/kernel": BELOW_OPERATORS | {"plugin/registry"},
    "plugin/model": BELOW_OPERATORS | {"plugin/registry", "plugin/kernel"},
    "plugin/abi": BELOW_OPERATORS | {"plugin/registry", "plugin/kernel", "plugin/model"},
    "plugin": BELOW_OPERATORS | PLUGIN,
    "onnx": {"base", "symbolic", "network", "operators", "plugin", "control"},
    "plan": {"base", "symbolic", "network"},
    "compile": BELOW_OPERATORS
    | {"operators", "plan", "plugin/registry", "plugin/kernel", "plugin/model"},
    "runtime": BELOW_OPERATORS
    | {"operators", "plan", "plugin", "plugin/registry", "plugin/kernel", "plugin/model"},
    "control": BELOW_OPERATORS | {"operators", "plan", "compile", "runtime"},
    "api": BELOW_OPERATORS
    | {
        "operators",
        "plugin/registry",
        "plugin/abi",
        "onnx",
        "plan",
        "compile",
        "runtime",
        "control",
    },
    "backend/cpu": BELOW_OPERATORS | {"operators"},
    "backend/gpu": BELOW_OPERATORS | {"operators", "plugin/kernel"},
    "backend/cuda": BELOW_OPERATORS | {"operators", "plugin/kernel", "backend/gpu"},
    "tensorrt": {"base"},  # base/cast.h, which needs no library
}

# Single headers of other modules. The build runs whole plans and includes nothing else of the runtime.
ALLOWED_HEADERS = {"compile": {"runtime/trial_run.h"}}

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
PYTHON_HEADER = re.compile(r"^(Python\.h|nanobind/|pybind11/)")
CUDA_HEADER = re.compile(
    r"^(cuda|cudnn|cublas|nvrtc|nvJitLink|cooperative_groups|device_launch|vector_types)"
)

# Names of TensorRT's API, and ours beside them.
API_NAMES = {
    "cudaStream_t",
    "cudaEvent_t",
    "ICudaEngine",
    "deserializeCudaEngine",
    "deserialize_cuda_engine",
    "refitCudaEngine",
    "refitCudaEngineAsync",
    "VCudaEngine",
    "deserializeCudaEngineV2",
    "setCudaGraphs",
    "getCudaGraphs",
    "CudaGraphs",
    "cuda_graphs",
}
# Whose texts are the Python API's documentation.
DOCUMENTATION = {"src/compile/builder_config.h", "src/runtime/context.h"}
# Where the backend's name stands: in the table of libraries, and as an example of a device.
NAMES_CUDA = {
    "cli/completion.cpp",
    "src/backend/backend.cpp",
    "src/backend/backend.h",
    "src/backend/device.h",
    "src/plan/plan.fbs",
    "cli/build.cpp",
    "cli/common.cpp",
}
CUDA_WORD = re.compile(r"\w*cuda\w*", re.IGNORECASE)


def module_of(path: str) -> str | None:
    """The module of a path relative to src/, None for what lies in no module."""
    parts = path.split("/")
    if len(parts) < 2:
        return None
    nested = "/".join(parts[:2])
    if len(parts) > 2 and nested in ALLOWED:
        return nested
    return parts[0] if parts[0] in ALLOWED else None


def violations(src: Path) -> list[str]:
    """Every include under src that the rules forbid, as 'file: header (why)'."""
    found = []
    for file in sorted(
        p for p in src.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh", ".inl"}
    ):
        name = file.relative_to(src).as_posix()
        module = module_of(name)
        if module is None:
            found.append(f"{name}: lies in no known module")
            continue
        for quote, header in INCLUDE.findall(file.read_text()):
            if PYTHON_HEADER.match(header):
                found.append(f"{name}: {header} (src knows no Python)")
            elif CUDA_HEADER.match(header) and module != "backend/cuda":
                found.append(f"{name}: {header} (CUDA outside backend/cuda)")
            elif quote == '"' and not header.startswith("opwright/"):
                target = module_of(header)
                if target is None:
                    if not (src / header).exists() and header.count("/") == 0:
                        continue  # generated
                    found.append(f"{name}: {header} (not written relative to src/)")
                elif (
                    target != module
                    and target not in ALLOWED[module]
                    and header not in ALLOWED_HEADERS.get(module, ())
                ):
                    found.append(f"{name}: {header} ({module} may not use {target})")
    return found


def test_the_source_tree_keeps_the_layers():
    assert violations(ROOT / "src") == []


def mentions_of_cuda(root: Path) -> list[str]:
    """Every word about CUDA in src and cli that is neither the API's nor the name of the backend."""
    found = []
    for file in sorted(p for top in ("src", "cli") for p in (root / top).rglob("*")):
        name = file.relative_to(root).as_posix()
        if file.suffix not in {".h", ".cpp", ".inl", ".fbs"} or name.startswith(
            # Beside the backend: TensorRT's names of options, and what its clients expect of the driver.
            ("src/backend/cuda/", "cli/trtexec", "src/tensorrt/abi/driver_context.")
        ):
            continue
        for word in CUDA_WORD.findall(file.read_text()):
            if not (
                word in API_NAMES
                or (word == "cuda" and name in NAMES_CUDA)
                or (word == "CUDA" and name in DOCUMENTATION)
            ):
                found.append(f"{name}: {word}")
    return found


def test_only_its_backend_knows_cuda():
    assert mentions_of_cuda(ROOT) == []


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("src/runtime/a.cpp", "// A CUDA graph.", ["src/runtime/a.cpp: CUDA"]),
        ("src/runtime/a.cpp", 'if (name == "cuda")', ["src/runtime/a.cpp: cuda"]),
        ("src/backend/cpu/a.cpp", "cuda::driver()", ["src/backend/cpu/a.cpp: cuda"]),
        ("cli/common.cpp", '"as in cuda:1"', []),
        ("src/runtime/a.cpp", "ICudaEngine* run(cudaStream_t);", []),
        ("src/backend/cuda/a.cpp", "cuStreamCreate of CUDA", []),
    ],
)
def test_a_word_about_cuda_is_found(tmp_path, file, line, found):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    assert mentions_of_cuda(tmp_path) == found


# What lives as long as the process or a thread and changes, beside the parts of Library (src/base/library.h). The
# groups say why it is none of them.
GLOBALS = {
    # The library object itself, and what is below it: a library of its own, which oneDNN calls, too.
    "src/base/library.h": {"made"},
    "src/base/library.cpp": {"library"},
    "src/threads/pool.cpp": {"pool", "state"},
    "src/threads/foreign_openmp.cpp": {"libraries"},
    "src/threads/openmp.cpp": {"region"},
    # Libraries of their own, through which programs of TensorRT's see this one: what such a program holds, and what
    # TensorRT's methods return by address. No lock of these is held while a part of Library is made.
    "src/tensorrt/abi/entry.cpp": {"text", "face"},
    "src/tensorrt/abi/facade.cpp": {"kept", "recent_10", "recent_11"},
    "src/tensorrt/abi/layers_a_to_m.cpp": {"last"},
    "src/tensorrt/abi/network.cpp": {"none"},
    "src/tensorrt/abi/plugin_v2.cpp": {"kept"},
    "src/tensorrt/abi/received.cpp": {"kept", "finder_10", "finder_11", "faces"},
    "src/tensorrt/abi/registry.cpp": {"list"},
    "src/tensorrt/abi/slot.cpp": {"kept", "all"},
    "src/tensorrt/abi/weights_by_role.cpp": {"kept", "mutex", "texts"},
    # The handle of such a library, which is opened once.
    "src/plugin/registry/tensorrt_libraries.cpp": {"tables"},
    # What is on the process's one terminal.
    "src/base/status_line.cpp": {"status"},
    # What a thread is within: a call, a loading, a registration, a destruction. It has no other place, as what
    # lies between is a plugin's code or the dynamic linker's; or, for the parts of an engine that bodies are,
    # what all operators and kernels are asked by.
    "src/control/body.cpp": {"depth"},
    "src/compile/enclosing_build.cpp": {"innermost_build"},
    "src/runtime/enclosing_engine.cpp": {"innermost_engine"},
    "src/runtime/context.cpp": {"count", "top"},
    "src/plugin/registry/callback.cpp": {"left"},
    "src/plugin/kernel/host_code.cpp": {"nesting"},
    "src/plugin/registry/registration.cpp": {"innermost"},
    "src/plugin/registry/registry.cpp": {"loading_"},
    "src/plugin/registry/registry.h": {"loading_"},
    "src/symbolic/expr.cpp": {"dead", "running"},
    "python/src/error_recorder.cpp": {"is_reporting"},
    "python/src/execution_domain.cpp": {"runs", "host", "mutex", "domains"},
    "python/src/function_definition.cpp": {"building_for"},
    "python/src/plugin_tensor.cpp": {"current_run"},
    # A thread's own memory, which nobody else may touch.
    "src/backend/cpu/cache_scene.cpp": {"others", "held", "result"},
    "src/backend/cuda/device_memory.cpp": {"ranges"},
    # Without state, or of others: Highway's headers ask for theirs.
    "src/base/log.cpp": {"logger"},
    "python/src/logger.cpp": {"all"},
    "src/runtime/nvtx.cpp": {"functions", "pointers", "made"},
    "src/backend/cpu/simd_targets.cpp": {"chosen"},
    "src/plugin/registry/library_exports.cpp": {"logger_finder"},
    "src/runtime/device_weights.cpp": {"host_empty"},
    # Libraries of their own that only pass calls on.
    "src/tensorrt/forward.h": {"handle", "target"},
    "src/tensorrt/nvonnxparser.cpp": {"target"},
    # The program's: what its signal handler reads, and the one interpreter.
    "cli/crash_report.cpp": {
        "stages",
        "current_stage",
        "watched",
        "step_texts",
        "time_limit",
        "is_reported",
    },
    "cli/build.cpp": {"interrupt"},
    "cli/python_host.cpp": {"instance"},
    # Python objects and what belongs to the interpreter, under its lock.
    "python/src/engine_calls.cpp": {"all", "count", "is_ending"},
    "python/src/held.cpp": {"all"},
    "python/src/held.h": {"slots"},
    "python/src/interpreter_end.cpp": {"ending_thread"},
    "python/src/host_arrays.cpp": {"nothing"},
    "python/src/host_memory.cpp": {"slots"},
    "python/src/plugin_callbacks.cpp": {"language"},
    "python/src/plugin_tensor_views.cpp": {"from_capsule", "slots"},
    "python/src/registry.cpp": {"faces"},
    "python/src/sources.cpp": {"language"},
    "python/src/tensor_desc.cpp": {"next"},
}
STATIC_LOCAL = re.compile(
    r"^[ ]+(?:static|thread_local)(?: static| thread_local)? (?!const\b|constexpr|inline)"
    r"[\w:<>,*&\[\] ]*?[ *&](?:const )?(\w+)(?:\[[^\]]*\])?(?: =|\{|;)",
    re.MULTILINE,
)
OF_NAMESPACE = re.compile(
    r"^(?!using|return|namespace|template|class|struct|enum|const\b|constexpr|inline|typedef|friend|extern)"
    r"(?:\[\[\w+\]\] |alignas\(\d+\) )?(?:static )?(?:thread_local )?(?!const\b|constexpr)"
    r"\w[\w:<>,*& ]*?[ *&](?:\w+::)*([a-z]\w*)(?:\[\w*\])*(?: = .*|\{.*\})?;$",
    re.MULTILINE,
)
RAW_STRING = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"')


def globals_of(root: Path) -> dict[str, set[str]]:
    """The names of variables of static and thread storage duration that may change, by file."""
    found = {}
    for file in sorted(p for top in ("src", "cli", "python/src") for p in (root / top).rglob("*")):
        if file.suffix not in {".h", ".cpp"}:
            continue
        text = RAW_STRING.sub('""', file.read_text())
        names = {match[1] for match in STATIC_LOCAL.finditer(text)}
        if file.suffix == ".cpp":
            names |= {match[1] for match in OF_NAMESPACE.finditer(text)}
        if names:
            found[file.relative_to(root).as_posix()] = names
    return found


def test_what_is_global_is_listed_with_its_reason():
    assert globals_of(ROOT) == GLOBALS


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("  static auto* instance = new Parts;", {"instance"}),
        ("  static std::mutex mutex;", {"mutex"}),
        ("  static thread_local int depth = 0;", {"depth"}),
        ("thread_local Capture* innermost = nullptr;", {"innermost"}),
        ("std::atomic<int> counter{0};", {"counter"}),
        ("alignas(64) std::byte empty[64];", {"empty"}),
        ("  static const std::set<int> none;", set()),
        ("constexpr int kMost = 4;", set()),
        ("  static Shape of(const Dims& dims);", set()),
        ("int count_of(const Plan& plan);", set()),
    ],
)
def test_a_global_is_found(tmp_path, line, names):
    path = tmp_path / "src" / "base" / "a.cpp"
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    assert globals_of(tmp_path) == ({"src/base/a.cpp": names} if names else {})


def test_the_rules_have_no_cycle():
    def reach(module: str, path: tuple[str, ...] = ()) -> None:
        assert module not in path, f"cycle: {path + (module,)}"
        for below in ALLOWED[module]:
            reach(below, (*path, module))

    for module in ALLOWED:
        reach(module)


def test_public_headers_include_public_headers_only():
    include = ROOT / "include" / "opwright"
    for file in include.rglob("*.h"):
        for quote, header in INCLUDE.findall(file.read_text()):
            if quote == '"':
                target = include / header.removeprefix("opwright/")
                assert target.exists() or (file.parent / header).exists(), f"{file.name}: {header}"
            assert not PYTHON_HEADER.match(header), f"{file.name}: {header}"


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("base/a.h", '#include "network/network.h"', "base may not use network"),
        ("network/a.cpp", '#include "operators/conv.h"', "network may not use operators"),
        ("compile/a.cpp", '#include "runtime/engine.h"', "compile may not use runtime"),
        ("onnx/a.cpp", '#  include "backend/cpu/cpu.h"', "onnx may not use backend/cpu"),
        ("runtime/engine.cpp", '#include "backend/cpu/cpu.h"', "runtime may not use backend/cpu"),
        ("backend/cpu/a.cpp", '#include "compile/pass.h"', "backend/cpu may not use compile"),
        ("plugin/a.cpp", "#include <Python.h>", "src knows no Python"),
        ("plugin/model/a.cpp", '#include "plugin/abi/b.h"', "plugin/model may not use plugin/abi"),
        ("runtime/a.cpp", "#include <nanobind/nanobind.h>", "src knows no Python"),
        ("runtime/a.cpp", "#include <cuda_runtime.h>", "CUDA outside backend/cuda"),
        ("elsewhere/a.cpp", "", "lies in no known module"),
    ],
)
def test_a_forbidden_include_is_found(tmp_path, file, line, complaint):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    (found,) = violations(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("backend/cpu/a.cpp", '#include "operators/conv.h"'),
        ("backend/cuda/a.cpp", "#include <cuda.h>"),
        ("compile/a.cpp", '#include "backend/device.h"'),
        ("plan/a.cpp", '#include "plan_generated.h"'),
        ("base/a.cpp", '#include "opwright/NvInferRuntime.h"'),
    ],
)
def test_an_allowed_include_is_accepted(tmp_path, file, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    assert violations(tmp_path) == []
