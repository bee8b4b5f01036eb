"""The public headers and plugin sources in TensorRT's style under other compilers and standards.

Warnings that a plugin author may have on are errors here.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from paths import ROOT

HEADERS = ROOT / "include" / "opwright"
SAMPLE = ROOT / "samples" / "python_plugin" / "circ_plugin_cpp"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Woverloaded-virtual", "-Werror", "-fsyntax-only"]
COMPILERS = ["g++", "clang++-14"]
CUDA = next(
    (p for p in [Path("/usr/local/cuda/include")] if (p / "cuda_runtime_api.h").exists()), None
)

PROGRAM = """
NVINFER_INCLUDES
nvinfer1::IHostMemory* build(nvinfer1::ILogger& logger, char const* path, cudaStream_t stream) {
  auto* builder = nvinfer1::createInferBuilder(logger);
  auto* network = builder->createNetworkV2(
      1U << static_cast<uint32_t>(nvinfer1::NetworkDefinitionCreationFlag::kSTRONGLY_TYPED));
  auto* parser = nvonnxparser::createParser(*network, logger);
  parser->parseFromFile(path, static_cast<int>(nvinfer1::ILogger::Severity::kWARNING));
  auto* config = builder->createBuilderConfig();
  config->setMemoryPoolLimit(nvinfer1::MemoryPoolType::kWORKSPACE, 1ULL << 30);
  config->setProfileStream(stream);
  return builder->buildSerializedNetwork(*network, *config);
}
"""
INCLUDES = ['#include "NvInfer.h"', '#include "NvInferPlugin.h"', '#include "NvOnnxParser.h"']


def check(compiler: str, standard: int, *sources: Path, options: tuple[str, ...] = ()) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    command = [compiler, f"-std=c++{standard}", *STRICT, *options, *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("standard", [14, 17, 20])
def test_each_header_compiles_alone(compiler, standard, tmp_path):
    sources = []
    for header in sorted(HEADERS.glob("*.h")):
        source = tmp_path / f"{header.stem}.cpp"
        source.write_text(f'#include "{header.name}"\n')
        sources.append(source)
    # Not as system headers, so that their own warnings show.
    check(compiler, standard, *sources, options=(f"-I{HEADERS}",))


@pytest.mark.parametrize(("compiler", "standard"), [("g++", 14), ("clang++-14", 20)])
def test_plugins_in_tensorrts_style_compile(compiler, standard):
    plugins = sorted((ROOT / "tests" / "cpp" / "plugins").glob("*.cpp"))
    check(compiler, standard, *plugins, *SAMPLE.glob("*.cpp"), options=("-isystem", str(HEADERS)))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("order", ["none", "before", "after"])
def test_cudas_header_may_come_first_last_or_not_at_all(compiler, order, tmp_path):
    options = ["-isystem", str(HEADERS)]
    includes = list(INCLUDES)
    if order != "none":
        if CUDA is None:
            pytest.skip("no CUDA headers")
        options += ["-isystem", str(CUDA)]
        includes.insert(0 if order == "before" else len(includes), "#include <cuda_runtime_api.h>")
    source = tmp_path / "program.cpp"
    source.write_text(PROGRAM.replace("NVINFER_INCLUDES", "\n".join(includes)))
    check(compiler, 14, source, options=tuple(options))
