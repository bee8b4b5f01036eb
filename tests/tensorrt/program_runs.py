"""Runs the Python programs of a checkout of NVIDIA/TensorRT, unmodified, and writes a report.

    python tests/tensorrt/program_runs.py --checkout TENSORRT --out FOLDER [--binding] [--jobs 12] [--only WORD]

Opwright and Polygraphy are those of the Python that runs this. Each program is a process of its own with a time limit,
in an empty folder. FOLDER gets programs.md and logs.tar.gz, which are written again whenever one has ended.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import stand_in_data
from nvidia_programs import DATA, NOT_RUN, PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
WRONG = re.compile(r"incorrect|Validation against reference failed", re.IGNORECASE)
#: How Python ends a traceback; notes may follow.
EXCEPTION = re.compile(r"^\w[\w.]*(?:Error|Exception|Interrupt)\b.*", re.MULTILINE | re.DOTALL)
#: Lines that say what went wrong, the most telling kind first.
REASONS = [
    re.compile(pattern, re.MULTILINE)
    for pattern in (r"^.*\[[EF]\] .*", r"^.*(?:incorrect|failed|FAILED|ERROR).*")
]


@dataclass
class Outcome:
    """What became of a program."""

    program: Program
    result: str
    """``passed``, ``failed``, ``not run``."""
    reason: str = ""
    seconds: float = 0
    log: str = ""


@cache
def has_gpu() -> bool:
    """Whether there is a GPU that the programs' own libraries find."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return (
        driver.cuInit(0) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )


@cache
def has_module(name: str) -> bool:
    """Whether it can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def missing(program: Program, checkout: Path) -> str:
    """What the program needs and has not got here; empty where nothing is missing."""
    scripts = [
        checkout / "samples/python" / program.folder / command[0] for command in program.commands
    ]
    lacking = [f"{path.name} in the checkout" for path in scripts if not path.is_file()]
    if program.gpu and not has_gpu():
        lacking.append("a GPU")
    lacking += [
        f"the module {name}" for name in ("polygraphy", *program.modules) if not has_module(name)
    ]
    lacking += [f"the variable {name}" for name in program.variables if name not in os.environ]
    return f"needs {', '.join(lacking)}" if lacking else ""


def environment() -> dict[str, str]:
    """Theirs compile with NVRTC and look for CUDA's headers where these variables say. Some build an
    engine in one process and load it in another, whose code must be permitted."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1", "OPWRIGHT_ALLOW_DEVICE_CODE": "1"}
    if not {"CUDA_PATH", "CUDA_HOME"} & set(found):
        places = [Path("/usr/local/cuda"), *(Path(path) / "nvidia/cu13" for path in sys.path)]
        for place in places:
            if (place / "include" / "cuda_fp16.h").is_file():
                found["CUDA_HOME"] = str(place)
                break
    return found


def run_command(command: Sequence[str], folder: Path, limit: float) -> tuple[int | None, str]:
    """The exit status, None where the limit was reached, and the output."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = process.wait(max(limit, 1))
        except subprocess.TimeoutExpired:
            pass
        finally:  # and what it may have left running
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def reason_of(output: str) -> str:
    """What the output says last about what went wrong."""
    traceback = output.rpartition("Traceback (most recent call last):\n")[2]
    if traceback != output and (exception := EXCEPTION.search(traceback)):
        return exception[0].strip()
    for pattern in REASONS:
        found = pattern.findall(output)
        if found:
            return found[-1].strip()
    lines = output.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def run(
    program: Program, checkout: Path, deadline: float = float("inf"), binding: bool = False
) -> Outcome:
    """Runs the program in a new folder, with ``binding`` on the environment's own package tensorrt."""
    if reason := missing(program, checkout):
        return Outcome(program, "not run", reason)
    start, log = time.monotonic(), ""
    with tempfile.TemporaryDirectory(prefix="tensorrt-program-") as temporary:
        folder = Path(temporary)
        data = ""
        if any(DATA in command for command in program.commands):
            data = str(stand_in_data.make(folder / "data"))
        for command in program.commands:
            arguments = [argument.format(data=data, **os.environ) for argument in command[1:]]
            script = checkout / "samples/python" / program.folder / command[0]
            name = () if binding else ("-m", "opwright.trt")
            whole = [sys.executable, *name, str(script), *arguments]
            limit = min(program.limit, deadline - time.monotonic())
            log += f"$ {shlex.join(command)}\n"
            status, output = run_command(whole, folder, limit)
            log += output
            seconds = time.monotonic() - start
            if status is None:
                return Outcome(program, "failed", f"stopped after {limit:.0f} s", seconds, log)
            if status < 0:
                ended = f"ended by {signal.Signals(-status).name}: {reason_of(output)}"
                return Outcome(program, "failed", ended, seconds, log)
            if status > 0 or WRONG.search(output):
                return Outcome(program, "failed", reason_of(output), seconds, log)
    lacking = [text for text in program.expected if not re.search(text, log, re.MULTILINE)]
    if lacking:
        return Outcome(
            program, "failed", f"did not say '{lacking[0]}': {reason_of(log)}", seconds, log
        )
    return Outcome(program, "passed", "", seconds, log)


def cell(text: str) -> str:
    """As a cell of a table."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    return plain[:600].replace("|", "\\|").replace("\n", " ")


def report(outcomes: Sequence[Outcome], facts: Sequence[str]) -> str:
    """The report as Markdown."""
    counts = {
        result: sum(outcome.result == result for outcome in outcomes)
        for result in ("passed", "failed", "not run")
    }
    lines = ["# Programs of NVIDIA/TensorRT", "", *facts, ""]
    lines += [", ".join(f"{count} {result}" for result, count in counts.items()) + ".", ""]
    lines += ["| program | arguments | result | seconds | reason |", "|---|---|---|---|---|"]
    for outcome in sorted(outcomes, key=lambda outcome: PROGRAMS.index(outcome.program)):
        program, reason = outcome.program, outcome.reason
        script = f"{program.folder}/{program.commands[0][0]}"
        arguments = "; ".join(
            shlex.join(command[command[0] == program.commands[0][0] :])
            for command in program.commands
        )
        arguments = re.sub(r"'\{(\w+)\}'", lambda match: match[1].upper(), arguments)
        arguments = f"`{cell(arguments)}`" if arguments else ""
        lines.append(
            f"| `{script}` | {arguments} | {outcome.result} | {outcome.seconds:.0f} | {cell(reason)} |"
        )
    lines += ["", "Not tried:", ""]
    lines += [f"- `{name}`: {reason}" for name, reason in NOT_RUN.items()]
    return "\n".join(lines) + "\n"


def write(out: Path, outcomes: Sequence[Outcome], facts: Sequence[str]) -> None:
    """Writes the report and the logs."""
    (out / "programs.md").write_text(report(outcomes, facts))
    with tempfile.TemporaryDirectory() as temporary:
        for outcome in outcomes:
            name = re.sub(r"\W+", "-", outcome.program.name)[:120].strip("-")
            number = PROGRAMS.index(outcome.program)
            (Path(temporary) / f"{number:02}-{name}.log").write_text(
                f"{outcome.program.name}\n{outcome.result} {outcome.reason}\n\n{outcome.log}"
            )
        with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
            for path in sorted(Path(temporary).iterdir()):
                archive.add(path, path.name)


def facts_of(checkout: Path) -> list[str]:
    """The machine, and what is installed, as rows of a table."""
    sys.path.insert(0, str(ROOT / "tools"))
    from gpu_suite import machine

    version = checkout / "VERSION"
    release = version.read_text().strip() if version.is_file() else "unknown"
    return [*machine(), f"| NVIDIA/TensorRT | {cell(release)} |"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--checkout", type=Path, required=True, help="the folder with samples/python"
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the report")
    parser.add_argument(
        "--binding",
        action="store_true",
        help="import the environment's own tensorrt: NVIDIA's, after `python -m opwright tensorrt provide`",
    )
    parser.add_argument("--jobs", type=int, default=12, help="programs at once (default: 12)")
    parser.add_argument("--seconds", type=float, default=480, help="for all of it (default: 480)")
    parser.add_argument("--only", default="", help="programs whose command has this word")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    checkout, out = options.checkout.resolve(), options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    programs = [program for program in PROGRAMS if options.only in program.name]
    facts, outcomes, lock = facts_of(checkout), [], threading.Lock()

    def run_one(program: Program) -> None:
        outcome = run(program, checkout, deadline, options.binding)
        with lock:
            outcomes.append(outcome)
            print(
                f"{outcome.result} {program.name} {outcome.seconds:.0f} s {outcome.reason[:300]}",
                flush=True,
            )
            write(out, outcomes, facts)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run_one, programs))
    return 0 if all(o.result != "failed" for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
