"""Runs the GPU suite on a machine with an NVIDIA GPU and writes a report of it.

    python3 tools/gpu_suite.py --wheel opwright-*.whl --out out [tests] [samples] [bench] [sanitizer]

Builds nothing. The wheel is installed into an environment of its own, which also has the packages
of the Python that runs this (torch, Triton, CuPy, pytest...). Every file of tests/python/gpu is a process
with a time limit, several at once. Then each program of bench/gpu_*.py has the GPU to itself. Last,
files of the tests run under compute-sanitizer. A crash or a hang affects only its own file.

The folder gets report.md, from which docs/results/gpu-DATE.md is made, and logs.tar.gz. Both are
written again after each step, so they exist even if the run is stopped. The exit status is 1 if a
step failed, and 2 without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "python" / "gpu"
PARTS = ("tests", "samples", "bench", "sanitizer")
PACKAGES = (
    "numpy", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "numba", "numba-cuda", "cuda-bindings",
)  # fmt: skip
# Tests of faults cause errors on purpose. The docs' blocks and the samples are processes of their
# own. Some of them compile, which takes too long under compute-sanitizer.
NOT_SANITIZED = ("test_gpu_docs", "test_gpu_faults", "test_gpu_samples")
# For these files compute-sanitizer also checks child processes. Those of
# test_gpu_compiled_kernels start compilers.
SANITIZED_WITH_CHILDREN = ("test_gpu_programs",)


@dataclass
class Step:
    """A program to run, and its result."""

    part: str
    name: str
    command: list[str]
    limit: float
    status: int | None = None
    """The exit status; None while it has not ended."""
    seconds: float = 0
    timed_out: bool = False
    log: Path = field(default_factory=Path)

    def run(self, folder: Path, environment: dict[str, str], deadline: float) -> None:
        limit = min(self.limit, deadline - time.monotonic())
        self.log = folder / f"{self.part}-{self.name}.log"
        if limit < 5:
            self.log.write_text("not run: the time was up\n")
            self.timed_out = True
            return
        start = time.monotonic()
        with self.log.open("wb") as log:
            try:
                process = subprocess.Popen(
                    self.command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
                return
            try:
                self.status = process.wait(limit)
            except subprocess.TimeoutExpired:
                self.timed_out = True
            finally:  # also ends processes that it left running
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        self.seconds = time.monotonic() - start

    @property
    def passed(self) -> bool:
        return self.status == 0 or self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether the file has no test of the step's kind. pytest has an exit status for this."""
        return self.part == "sanitizer" and self.status == 5

    @property
    def verdict(self) -> str:
        if self.timed_out:
            return f"stopped after {self.seconds:.0f} s" if self.seconds else "not run"
        if self.status is None:
            return "not run"
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return "passed" if self.passed else f"failed ({self.status})"


def install(wheel: Path, folder: Path) -> Path:
    """Makes an environment with the wheel and the packages of this Python. Returns its
    interpreter."""
    environment = folder / "venv"
    command = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages"]
    subprocess.run([*command, str(environment)], check=True)
    python = environment / "bin" / "python"
    # If this Python belongs to an environment, its packages are not the system's.
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([str(python), "-c", find], check=True, stdout=subprocess.PIPE)
    path = Path(packages.stdout.decode().strip()) / "parent.pth"
    path.write_text("\n".join(site.getsitepackages()) + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--no-deps", "--no-index", "--ignore-installed", "--disable-pip-version-check"]
    subprocess.run([*command, str(wheel)], check=True)
    return python


OBSTACLE = """
import opwright as trt
config = trt.Builder(trt.Logger()).create_builder_config()
config.default_device_type = trt.DeviceType.GPU
config.create_timing_cache(b"")
"""


def obstacle(python: Path, environment: dict[str, str]) -> str:
    """Why the package cannot use the GPU; empty if it can."""
    done = subprocess.run(
        [str(python), "-c", OBSTACLE], env=environment, capture_output=True, text=True
    )
    return done.stderr if done.returncode else ""


def make_environment(python: Path, folder: Path) -> dict[str, str]:
    search = [str(python.parent), os.environ.get("PATH", "")]
    if shutil.which("nvcc") is None:
        search.append("/usr/local/cuda/bin")
    return {
        **os.environ,
        "PATH": os.pathsep.join(search),
        "OPWRIGHT_PROGRAM": str(python.with_name("opwright")),
        "OPWRIGHT_CACHE_DIR": str(folder / "cache"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def test_steps(python: Path, folder: Path, parts: list[str]) -> list[Step]:
    steps = []
    for path in sorted(TESTS.glob("test_*.py")):
        part = "samples" if path.stem == "test_gpu_samples" else "tests"
        if part in parts:
            command = [
                str(python),
                "-m",
                "pytest",
                "-ra",
                "--durations=5",
                "-p",
                "no:cacheprovider",
            ]
            command += [f"--junitxml={folder / path.stem}.xml", str(path)]
            steps.append(Step(part, path.stem, command, 400))
    return steps


def bench_steps(python: Path) -> list[Step]:
    programs = sorted((ROOT / "bench").glob("gpu_*.py"))
    return [Step("bench", path.stem, [str(python), str(path)], 150) for path in programs]


def sanitizer_steps(python: Path) -> list[Step]:
    """A step for each file, and a second one for its tests that load a framework, which takes
    long."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    # Some driver calls fail on purpose, to find out where memory is and how many parameters a
    # kernel has. The tests check the others.
    command = [tool, "--tool", "memcheck", "--error-exitcode", "99", "--leak-check", "no"]
    command += ["--report-api-errors", "no"]
    # A backtrace of the host would have Python's frames. For them the tool takes the interpreter's
    # lock, while the thread that holds it waits for the tool.
    command += ["--show-backtrace", "device"]
    pytest = [str(python), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    steps = []
    for path in sorted(TESTS.glob("test_*.py")):
        if path.stem in NOT_SANITIZED:
            continue
        which = "all" if path.stem in SANITIZED_WITH_CHILDREN else "application-only"
        for name, marks in (
            (path.stem, "not faulty and not frameworks"),
            (f"{path.stem}-frameworks", "frameworks and not faulty"),
        ):
            tests = ["--target-processes", which, *pytest, "-m", marks, str(path)]
            steps.append(Step("sanitizer", name, [*command, *tests], 120))
    return steps


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def machine() -> list[str]:
    """The device and what is installed, as rows of a table."""
    rows = [("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))]
    query = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap,driver_version"]
    try:
        smi = subprocess.run([*query, "--format=csv,noheader"], capture_output=True, text=True)
        rows += [("device", line.strip()) for line in smi.stdout.splitlines()]
    except FileNotFoundError:
        rows.append(("device", "nvidia-smi is not there"))
    rows.append(("system", f"{platform.platform()}, {os.cpu_count()} cores"))
    rows.append(("Python", platform.python_version()))
    for name in PACKAGES:
        try:
            rows.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return ["| | |", "|---|---|", *(f"| {name} | {cell(value)} |" for name, value in rows)]


def junit(path: Path) -> tuple[dict[str, int], list[tuple[str, str]], list[tuple[str, str]]]:
    """Reads a file of results: the counts of passed, failed and skipped tests, the failures, the
    skips."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failed, skipped = [], []
    if not path.exists():
        return counts, failed, skipped
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        bad = next(
            (case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None
        )
        if bad is not None:
            counts["failed"] += 1
            failed.append((name, bad.get("message") or (bad.text or "")[-300:]))
        elif (reason := case.find("skipped")) is not None:
            counts["skipped"] += 1
            skipped.append((name, reason.get("message") or ""))
        else:
            counts["passed"] += 1
    return counts, failed, skipped


def tests_report(steps: list[Step], folder: Path) -> list[str]:
    lines = ["| file | passed | failed | skipped | seconds | |", "|---|---|---|---|---|---|"]
    failures, skips = [], []
    for step in steps:
        counts, failed, skipped = junit(folder / f"{step.name}.xml")
        failures += failed
        skips += skipped
        numbers = " | ".join(str(counts[key]) for key in ("passed", "failed", "skipped"))
        lines.append(f"| `{step.name}` | {numbers} | {step.seconds:.0f} | {step.verdict} |")
        if not step.passed and not failed:
            failures.append((step.name, f"{step.verdict}: {tail(step.log, 15)}"))
    if failures:
        lines += ["", "Failed:", ""]
        lines += [f"- `{name}`: {cell(message)[:600]}" for name, message in failures]
    if skips:
        lines += ["", "Skipped:", ""]
        reasons: dict[str, list[str]] = {}
        for name, message in skips:
            reasons.setdefault(message, []).append(name)
        for message, names in reasons.items():
            which = (
                ", ".join(f"`{name}`" for name in names)
                if len(names) < 10
                else f"{len(names)} tests"
            )
            lines.append(f"- {which}: {cell(message)[:600]}")
    return lines


def tail(path: Path, lines: int) -> str:
    if not path.is_file():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def fenced(text: str) -> list[str]:
    return ["", "```text", text.rstrip(), "```", ""]


def write_report(out: Path, folder: Path, steps: list[Step], facts: list[str]) -> None:
    lines = ["# Results on a GPU", "", *facts, ""]
    tests = [step for step in steps if step.part in ("tests", "samples")]
    if tests:
        lines += ["## Tests and samples", "", *tests_report(tests, folder), ""]
    benches = [step for step in steps if step.part == "bench"]
    if benches:
        lines += ["## Benchmarks", ""]
        for step in benches:
            lines += [f"`bench/{step.name}.py`: {step.verdict}", *fenced(tail(step.log, 120))]
    sanitized = [step for step in steps if step.part == "sanitizer" and not step.is_empty]
    if sanitized:
        lines += [
            "## compute-sanitizer memcheck",
            "",
            "| file | errors | seconds | |",
            "|---|---|---|---|",
        ]
        for step in sanitized:
            log = step.log.read_text(errors="replace") if step.log.is_file() else ""
            found = re.findall(r"ERROR SUMMARY: (\d+) error", log)
            errors = sum(map(int, found)) if found else "?"
            lines.append(f"| `{step.name}` | {errors} | {step.seconds:.0f} | {step.verdict} |")
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text("\n".join(lines) + "\n")
    with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
        for path in sorted([*folder.glob("*.log"), *folder.glob("*.xml")]):
            archive.add(path, path.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--wheel", type=Path, required=True, help="what to test")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the report")
    parser.add_argument("--seconds", type=float, default=570, help="for all of it (default: 570)")
    parser.add_argument("--jobs", type=int, default=8, help="tests at once (default: 8)")
    parser.add_argument("--commit", default="", help="what the report says was tested")
    args = parser.parse_args()
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"'{part}' is none of {', '.join(PARTS)}")
    parts = args.parts or list(PARTS)
    deadline = time.monotonic() + args.seconds

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        python = install(args.wheel, folder)
        environment = make_environment(python, folder)
        if reason := obstacle(python, environment):
            print(f"there is no GPU for this package: {reason}", file=sys.stderr)
            return 2
        facts = machine()
        if args.commit:
            facts.append(f"| commit | {cell(args.commit)} |")
        tests = test_steps(python, folder, parts)
        benches = bench_steps(python) if "bench" in parts else []
        sanitized = sanitizer_steps(python) if "sanitizer" in parts else []
        steps = [*tests, *benches, *sanitized]
        lock = threading.Lock()

        def run(step: Step, until: float) -> None:
            step.run(folder, environment, until)
            with lock:
                print(f"{step.part} {step.name}: {step.verdict}, {step.seconds:.0f} s", flush=True)
                if step.part == "bench" or not step.passed:
                    print(tail(step.log, 40), flush=True)
                write_report(args.out, folder, steps, facts)

        def run_all(some: list[Step], jobs: int, until: float) -> None:
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(lambda step: run(step, until), some))

        # Each part gets its time even if the previous one hangs.
        left = deadline - time.monotonic()
        kept = left * 0.2 if sanitized else 0
        run_all(tests, args.jobs, deadline - kept - (left * 0.4 if benches else 0))
        run_all(benches, 1, deadline - kept)
        run_all(sanitized, args.jobs, deadline)
        write_report(args.out, folder, steps, facts)
    print((args.out / "report.md").read_text())
    return 0 if steps and all(step.passed for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
