"""Counts which tactics of which kernels were run, on the CPU and on a GPU, of all that there are.

    python3 tools/tactic_coverage.py --quick --page docs/results/tactic-coverage-DATE.md
    python3 tools/tactic_coverage.py --device cpu --seconds 600
    python3 tools/tactic_coverage.py --device cuda --only tests --tests 'OpenRecurrence*' --out build/tactics/a
    python3 tools/tactic_coverage.py --records build/tactics/*/cuda-*

Kernels declare the tactics that exist (`Backend::kernel_tactics`). The C++ tests of kernels,
test_cpu and test_cuda, run all tactics that their shapes allow, each class once
(OPWRIGHT_ALL_TACTICS=once). tools/model_fuzzer.py runs those of random compositions and of random
single operators. Each records the tactics that kernels listed and those that were run, with types
and shapes (OPWRIGHT_TACTICS, --record).

A class is a kernel, one of its tactics, the type and format of its first port, and the kind of its shapes:

- "open": an extent is open until the engine runs
- "single": neighbours in the output are one element
- "vectors": neighbours in all tensors fill whole accesses of 16 bytes
- "odd": somewhere they do not

The page names the classes that kernels listed but that were not run. The exit status is 1 if a
tactic that exists was not run, if one was run that no kernel declares, or if something failed.

With --quick only the tests of QUICK run, each tactic once, whatever the type and the shapes
(OPWRIGHT_ALL_TACTICS=least). The fuzzer then runs only if --seconds says how long. Without --quick,
all of the emulated GPU takes hours. It can be run in parts: --only names what runs, --tests those
of the C++ tests, each part with a folder for its records (--out). --records counts them together.
--jobs processes share the C++ tests. --resume keeps the folder's records, and the tests leave out
classes that the same process ran before.

The GPU is the emulated one unless OPWRIGHT_CUDA_DRIVER names another.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "build" / "dev" / "tests"
BITS = {"FP32": 32, "FP16": 16, "BF16": 16, "INT32": 32, "INT64": 64, "INT4": 4, "FP4": 4}
ACCESS_BITS = 128
# oneDNN names its implementation for the processor: "brgconv:avx512_core via HWC".
DNNL = "oneDNN"
# What the tuner chooses between where a layer and a program may be one kernel. It timed the tactics
# of each before.
CHOICES = ("fused: ", "unfused: ")

PARTS = ("tests", "compositions", "operators")

# Tests that run every tactic, those of a small shape. Names that a device lacks count for nothing.
QUICK = (
    "AllTactics.*",
    "All/PoolingCases.AverageWithPadding/*",
    "All/PoolingCases.Max/*",
    "ChannelShuffle.*",
    "Col2Im.BlocksInThePaddingAlone",
    "CudaNormalization.ProgramsOfGroups",
    "CudaPatch.EveryTileAgreesWithTheLoops",
    "CudaProduct.RowProducts",
    "Cumulative.EveryAxisTypeAndDirection",
    "DiffusedCastTest.SpecialValues",
    "Fill.UniformNumbersComeFromPhilox",
    "GroupStatistics.TheScaleMayLackAndNaNSpreadsOverItsGroup",
    "KvCacheUpdate.*",
    "KvCacheWrite.*",
    "Lrn.EveryTypeAndFormat",
    "MatMulNBits.*",
    "OpenDeformableColumns.*",
    "OpenPooling.WindowsOfThreadsWarpsAndBlocks",
    "OpenRecurrence.AllTactics",
    "Reformat.BetweenFloatingTypes",
    "Reformat.LowRanksAndScalars",
    "Reshape.*",
    "Resize.NearestMovesEveryType",
    "Resize.UpperSelector",
    "RotaryEmbedding.HeadsOfSeveralPieces",
    "ShuffledConcatenation.*",
    "SqueezeExcitation.EveryCandidateAgreesWithDoublePrecision",
)

Class = tuple[str, str, str, str]  # kernel, tactic, type, kind of shapes


@dataclass
class Counts:
    """Counts of one device."""

    exists: dict[str, list[str]] = field(default_factory=dict)
    listed: set[Class] = field(default_factory=set)
    run: set[Class] = field(default_factory=set)
    implementations: set[str] = field(default_factory=set)

    def tactics(self, kind: str) -> set[str]:
        return {tactic for name, tactic, _, _ in self.run if name == kind}

    def missing(self, kind: str) -> list[str]:
        if not self.exists[kind]:
            return [] if self.tactics(kind) else ["the only one"]
        return [name for name in self.exists[kind] if name not in self.tactics(kind)]

    def undeclared(self) -> list[str]:
        """Undeclared tactics of the backend's own kernels, not of a library's."""
        return sorted(
            f"{kind}: {tactic}"
            for kind, tactic in {(kind, tactic) for kind, tactic, _, _ in self.run | self.listed}
            if self.exists.get(kind) and tactic not in self.exists[kind]
        )


def kind_of_shapes(ports: list[list[str]], output: list[str]) -> str:
    """The kind of shapes. A port is its type with format, and its smallest and largest shape."""
    if any(low != high for _, low, high in ports):
        return "open"

    def neighbours(port: list[str]) -> int:
        extents = [int(extent) for extent in port[1].split("x") if extent not in ("", "scalar")]
        if ":" in port[0] and len(extents) > 1:  # channels last, or blocks of channels
            return extents[1]
        return extents[-1] if extents else 1

    if neighbours(output) == 1:
        return "single"

    def fills(port: list[str]) -> bool:
        return neighbours(port) * BITS.get(port[0].split(":")[0], 8) % ACCESS_BITS == 0

    return "vectors" if all(fills(port) for port in ports) else "odd"


def tactic_of(device: str, name: str) -> str:
    if device == "cpu" and ":" in name:
        return DNNL
    return re.sub(r", in \d+ parts$", ", in parts", name)


def read(files: list[Path]) -> dict[str, Counts]:
    found: dict[str, Counts] = defaultdict(Counts)
    for line in lines_of(files):
        counts = found[line["device"].split(":")[0]]
        if line["event"] == "exists":
            counts.exists[line["kind"]] = line["tactics"]
            continue
        if line["tactic"].startswith(CHOICES):
            continue
        ports = line["inputs"] + line["outputs"]
        if not ports or any(has_no_element(port) for port in ports):
            continue
        tactic = tactic_of(line["device"], line["tactic"])
        shapes = kind_of_shapes(ports, (line["outputs"] or ports)[0])
        key = (line["kind"], tactic, ports[0][0], shapes)
        counts.listed.add(key)
        if line["event"] == "run":
            counts.run.add(key)
            if tactic == DNNL:
                counts.implementations.add(line["tactic"])
    return found


def has_no_element(port: list[str]) -> bool:
    return "0" in port[2].split("x")


def lines_of(files: list[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        for line in file.read_text().splitlines():
            yield json.loads(line)


def emulated() -> dict[str, str]:
    libraries = TESTS / "emulation"
    return {
        "OPWRIGHT_CUDA_DRIVER": str(libraries / "libcuda.so.1"),
        "OPWRIGHT_NVRTC": str(libraries / "libnvrtc.so.13"),
    }


def collect(device: str, arguments: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Runs tests and fuzzers. Returns their records and the failures."""
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.resume:
        for record in folder.glob(f"{device}-*"):
            record.unlink()
    environment = {**emulated(), **os.environ} if device == "cuda" else dict(os.environ)
    failures = []

    def run(record: str, command: list[str], variables: dict[str, str]) -> None:
        print("--", " ".join(command), flush=True)
        if subprocess.run(command, env=variables, check=False).returncode != 0:
            failures.append(f"{device}: failed: {' '.join(command)} (the record is {record})")

    if "tests" in arguments.only:
        test = [str(TESTS / "cpp" / f"test_{device}"), "--gtest_brief=1"]
        if chosen := arguments.tests or (":".join(QUICK) if arguments.quick else ""):
            test.append(f"--gtest_filter={chosen}")
        environment_of_tests = {
            **environment,
            "OPWRIGHT_ALL_TACTICS": "least" if arguments.quick else "once",
            "GTEST_TOTAL_SHARDS": str(arguments.jobs),
        }
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for job in range(arguments.jobs):
                record = str(folder / f"{device}-tests-{job}")
                variables = {"OPWRIGHT_TACTICS": record, "GTEST_SHARD_INDEX": str(job)}
                pool.submit(run, record, test, {**environment_of_tests, **variables})
    fuzzer = [sys.executable, str(ROOT / "tools" / "model_fuzzer.py"), "--tactics"]
    fuzzer += ["--device", device, "--seed", str(arguments.seed), "--out", str(folder / "found")]
    fuzzer += ["--seconds", str(arguments.seconds / 2), "--record"]
    for part, options in (("compositions", ["--compositions"]), ("operators", [])):
        if part in arguments.only and arguments.seconds > 0:
            record = str(folder / f"{device}-{part}")
            run(record, [*fuzzer, record, *options], environment)
    return sorted(folder.glob(f"{device}-*")), failures


def table(counts: Counts, has_classes: bool) -> list[str]:
    classes = ["classes listed", "run"] if has_classes else []
    rows = [f"| {' | '.join(['kernel', 'tactics', 'run', *classes, 'not run'])} |"]
    rows.append("|---|" + "---:|" * (2 + len(classes)) + "---|")
    total = [0, 0, 0, 0]
    for kind in sorted(counts.exists):
        missing = counts.missing(kind)
        there = max(1, len(counts.exists[kind]))
        listed = {key for key in counts.listed if key[0] == kind}
        run = {key for key in counts.run if key[0] == kind}
        lacking = sorted({tactic for _, tactic, _, _ in listed - run} - set(missing))
        said = [f"`{name}`" for name in missing]
        if lacking and has_classes:
            said.append("classes of " + ", ".join(f"`{name}`" for name in lacking[:4]))
            if len(lacking) > 4:
                said[-1] += f" and {len(lacking) - 4} more"
        row = [there, there - len(missing), len(listed), len(run)]
        total = [a + b for a, b in zip(total, row)]
        numbers = " | ".join(map(str, row[: 2 + len(classes)]))
        rows.append(f"| {kind} | {numbers} | {', '.join(said)} |")
    shares = [f"{100 * total[1] / max(1, total[0]):.1f} % of tactics"]
    if has_classes:
        shares.append(f"{100 * total[3] / max(1, total[2]):.1f} % of classes")
    numbers = " | ".join(map(str, total[: 2 + len(classes)]))
    rows.append(f"| all | {numbers} | {', '.join(shares)} |")
    return rows


def page(found: dict[str, Counts], arguments: argparse.Namespace) -> str:
    text = "`tools/tactic_coverage.py` writes this page. A kernel declares its tactics."
    if not arguments.quick:
        text += (
            " A class is a kernel, a tactic, the type and format of the first port, and the kind of"
            " shapes: open extents, one neighbour, whole vectors, odd."
        )
    elif not arguments.records:
        text += " The C++ tests that `--quick` names ran each tactic once."
    if arguments.seconds > 0 and not arguments.records:
        text += (
            f" Fuzzers ran {arguments.seconds:.0f} s for each device, from seed {arguments.seed}."
        )
    lines = [f"# Tactics that were run, {date.today().isoformat()}", "", text, ""]
    names = {"cpu": "The CPU", "cuda": "The emulated GPU"}
    for device, counts in sorted(found.items()):
        lines += [f"## {names.get(device, device)}", "", *table(counts, not arguments.quick), ""]
        if counts.implementations:
            implementations = ", ".join(f"`{name}`" for name in sorted(counts.implementations))
            lines += [
                "oneDNN's implementations that ran, which depend on the processor: "
                + implementations,
                "",
            ]
    return "\n".join(wrapped(lines))


def wrapped(lines: list[str], most: int = 120) -> Iterator[str]:
    """Wraps text to the width that the pages' lint accepts. Tables stay as they are."""
    for line in lines:
        while len(line) > most and not line.startswith("|"):
            at = line.rfind(" ", 0, most)
            yield line[:at]
            line = line[at + 1 :]
        yield line


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the tactics that were run.")
    parser.add_argument("--device", nargs="+", default=["cpu", "cuda"], choices=["cpu", "cuda"])
    parser.add_argument(
        "--seconds", type=float, help="of fuzzing for each device (600, with --quick 0)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="run each tactic once")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes of C++ tests"
    )
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, help="run these parts")
    parser.add_argument("--tests", metavar="FILTER", help="of the C++ tests these (--gtest_filter)")
    parser.add_argument("--records", nargs="+", type=Path, help="count these, and run nothing")
    parser.add_argument("--resume", action="store_true", help="go on after an interrupted call")
    parser.add_argument(
        "--out", default=str(ROOT / "build" / "tactics"), help="the folder for records"
    )
    parser.add_argument("--page", type=Path, help="write the tables there")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        arguments.seconds = 0 if arguments.quick else 600
    files: list[Path] = list(arguments.records or [])
    failures: list[str] = []
    for device in arguments.device if not files else []:
        records, failed = collect(device, arguments)
        files, failures = files + records, failures + failed
    found = read(files)
    text = page(found, arguments)
    print(text)
    if arguments.page:
        arguments.page.write_text(text)
    failures += [
        f"{device}: not declared: {name}"
        for device, counts in found.items()
        for name in counts.undeclared()
    ]
    failures += [
        f"{device}: not run: {kind}: {name}"
        for device, counts in found.items()
        for kind in counts.exists
        for name in counts.missing(kind)
    ]
    print("\n".join(failures))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
