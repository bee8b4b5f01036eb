#!/usr/bin/env python3
"""What the kernels of a folder compile to: name, architecture, SHA-256 and size of each cubin, one a line.

With --ptx that of the PTX, which takes less time: equal PTX becomes equal cubins.

The folder is what OPWRIGHT_EMULATED_SOURCES names while tests run on the emulated GPU. NVRTC is NVIDIA's, which
needs no GPU. Sources of the same tokens compile to the same cubin: what NVRTC has made of them is kept in
build/cubins. A change that leaves kernels as they are prints the same lines before and after:

    export OPWRIGHT_ALL_TACTICS=once
    OPWRIGHT_EMULATED_SOURCES=build/before build/dev/tests/test_cuda  # then change, build, and fill build/after
    tools/kernel_cubins.py build/before > before.txt
    tools/kernel_cubins.py build/after > after.txt
    diff before.txt after.txt

With --failed only the kernels that do not compile are printed, and why; the exit status is then 1. --library names
another NVRTC: users have older ones.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import hashlib
import os
import re
import sys
import time
from pathlib import Path

import nvidia.cu13 as cuda  # python -m pip install nvidia-cuda-nvrtc

INSTALLED = Path(list(cuda.__path__)[0]) / "lib" / "libnvrtc.so.13"
ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "cubins"
INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


def included(folder: Path, source: str, names: set[str]) -> str:
    """The source with the folder's headers inserted, each once."""

    def header(match: re.Match[str]) -> str:
        name = match[1]
        if name in names:
            return ""
        names.add(name)
        return included(folder, (folder / name).read_text(), names)

    return INCLUDE.sub(header, source)


def tokens(text: str) -> str:
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^#pragma once$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r" ?(\W) ?", r"\1", re.sub(r"\s+", " ", text))


def library_options() -> list[str]:
    """The options with which the library compiles its kernels."""
    source = (ROOT / "src/backend/cuda/compile_cuda.cpp").read_text()
    found = re.search(r"options = \{(.*?)\};", source, re.DOTALL)
    assert found, "compile_cuda.cpp has no options"
    return re.findall(r'"(.*?)"', found[1])


def compile_source(
    library: Path, folder: Path, source: str, architecture: str
) -> tuple[bytes, float, str]:
    """The cubin (for compute_90 the PTX), empty if the kernel does not compile, the seconds, and what
    NVRTC says."""
    # NVRTC looks for its second library where the loader has it already.
    for builtins in library.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(library))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}", f"--include-path={folder}", *library_options()]
    values = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    begin = time.perf_counter()
    failed = nvrtc.nvrtcCompileProgram(program, len(options), values)
    seconds = time.perf_counter() - begin
    kind = "PTX" if architecture.startswith("compute_") else "CUBIN"
    size = ctypes.c_size_t()
    if not failed:
        nvrtc[f"nvrtcGet{kind}Size"](program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    if not failed:
        nvrtc[f"nvrtcGet{kind}"](program, code)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(size.value, 1))
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw, seconds, log.value.decode()


def describe(library: Path, file: Path, architecture: str, again: bool) -> tuple[str, float, str]:
    source = file.read_text()
    name = re.findall(r'extern "C" __global__ void .*?(\w+)\((?:const|unsigned|\w+\*)', source)
    whole = tokens(included(file.parent, source, set()))
    key = hashlib.sha256(
        f"{library} {library.stat().st_mtime} {architecture} {whole}".encode()
    ).hexdigest()
    kept = KEPT / key
    if kept.exists() and not again:
        return kept.read_text(), 0.0, ""
    code, seconds, log = compile_source(library, file.parent, source, architecture)
    digest = hashlib.sha256(code).hexdigest() if code else "-"
    line = f"{name[-1] if name else '?'} {architecture} {digest} {len(code)}"
    kept.write_text(line)
    return line, seconds, f"{file.name}: {log}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--architectures", nargs="+", default=["sm_80", "sm_90a"])
    parser.add_argument("--ptx", action="store_true", help="PTX in place of cubins")
    parser.add_argument("--again", action="store_true", help="compile what is kept, too")
    parser.add_argument("--seconds", action="store_true", help="end with NVRTC's time")
    parser.add_argument("--library", type=Path, default=INSTALLED, help="NVRTC's file")
    parser.add_argument("--failed", action="store_true", help="print only what fails, and why")
    parser.add_argument("--every", type=int, default=1, help="compile only every Nth kernel")
    arguments = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    if arguments.ptx:
        arguments.architectures = [a.replace("sm_", "compute_") for a in arguments.architectures]
    files = sorted(arguments.folder.resolve().glob("*.cu"))[:: arguments.every]
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        results = [
            pool.submit(
                describe,
                arguments.library.resolve(),
                file,
                architecture,
                arguments.again or arguments.failed,
            )
            for file in files
            for architecture in arguments.architectures
        ]
    lines = [result.result() for result in results]
    if arguments.failed:
        failed = [f"{line}\n{log}" for line, _, log in lines if line.endswith(" 0")]
        print(*failed, f"{len(failed)} of {len(lines)} do not compile", sep="\n")
        sys.exit(bool(failed))
    print(*sorted({line for line, _, _ in lines}), sep="\n")
    if arguments.seconds:
        print(f"{sum(seconds for _, seconds, _ in lines):.1f} seconds")


if __name__ == "__main__":
    main()
