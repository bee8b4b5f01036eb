"""Plugin libraries of others, compiled for TensorRT, on a GPU: their kernels give what PyTorch, torchvision and NumPy
give, and the headers that they were compiled with make no difference.

OPWRIGHT_VENDOR_PLUGINS names a folder. It has a folder for each version of the headers (`11.1`, `10.16`, `opwright`),
with those of these libraries that compile with them: `libcirc_pad_plugin.so` (NVIDIA/TensorRT, samples),
`libmmdeploy_tensorrt_ops.so` (open-mmlab/mmdeploy 1.3.1) and `libmyplugins.so` (wang-xinyu/tensorrtx, yolov8).
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paths
import vendor_plugins
from vendor_plugins import CASES

FOLDER = os.environ.get("OPWRIGHT_VENDOR_PLUGINS", "")
HEADERS = sorted(path.name for path in Path(FOLDER).iterdir() if path.is_dir()) if FOLDER else []
SECONDS = 80  # for the cases of one library
pytestmark = [
    pytest.mark.usefixtures("on_gpu"),
    pytest.mark.nvidia,
    pytest.mark.skipif(not HEADERS, reason="OPWRIGHT_VENDOR_PLUGINS names no folder of libraries"),
]


def library_path() -> str:
    """Where libraries find cuBLAS and cuDNN of PyPI's packages. load_library() provides Opwright's."""
    folders = [os.environ.get("LD_LIBRARY_PATH", "")]
    spec = importlib.util.find_spec("nvidia")
    for package in (spec and spec.submodule_search_locations) or []:
        folders += map(str, Path(package).glob("*/lib"))
    return os.pathsep.join(filter(None, folders))


class Runs:
    """The cases of a library, in processes of their own: without and with timing in the build."""

    def __init__(self, library: Path, timing: bool, out: Path):
        self.library, self.timing, self.out = library, timing, out
        self.ends: dict[str, str] = {}  # what processes printed that ended in a case

    def run(self) -> None:
        """After an error or an end of a process, another one runs the cases that are left."""
        left = [name for name, case in CASES.items() if case.library == self.library.name]
        environment = paths.environment("gpu") | {"LD_LIBRARY_PATH": library_path()}
        environment["OPWRIGHT_ALLOW_DEVICE_CODE"] = "1"
        while left:
            command = [sys.executable, vendor_plugins.__file__, str(self.library), str(self.out)]
            command += ["timing" if self.timing else "", json.dumps(left)]
            try:
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, timeout=SECONDS
                )
            except subprocess.TimeoutExpired:
                self.ends |= dict.fromkeys(left, f"the process did not end within {SECONDS} s")
                return
            stored = {path.stem for path in self.out.iterdir() if path.suffix != ".part"}
            left = [name for name in left if str(list(CASES).index(name)) not in stored]
            if left and done.returncode != vendor_plugins.FAILED:
                said = done.stdout[-1500:] + done.stderr[-1500:]
                self.ends[left.pop(0)] = f"the process ended with {done.returncode}: {said}"

    def results(self, name: str) -> vendor_plugins.Results:
        stored = self.out / f"{list(CASES).index(name)}.npz"
        if stored.with_suffix(".none").exists():
            pytest.skip(f"{self.library} has no {CASES[name].plugin}")
        error = stored.with_suffix(".txt")
        assert not error.exists(), error.read_text()
        assert stored.exists(), self.ends[name]
        return vendor_plugins.load(stored)


@pytest.fixture(scope="module")
def results_of(tmp_path_factory):
    """The results of a case with the library of these headers."""
    runs = {}
    for library in sorted(Path(FOLDER).glob("*/*.so")):
        for timing in (False, True):
            runs[library, timing] = Runs(library, timing, tmp_path_factory.mktemp("results"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(Runs.run, runs.values()))

    def results(name: str, headers: str, timing: bool = False) -> vendor_plugins.Results:
        library = Path(FOLDER, headers, CASES[name].library)
        if (library, timing) not in runs:
            pytest.skip(f"no {library.name} of headers {headers}")
        return runs[library, timing].results(name)

    return results


def assert_equal(made, expected, where):
    for output, (a, b) in enumerate(zip(made, expected, strict=True)):
        np.testing.assert_array_equal(a, b, f"{where}, output {output}")


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_right(name, headers, torch, results_of):
    pytest.importorskip("torchvision")
    case = CASES[name]
    faults = []
    for way, feeds in results_of(name, headers).items():
        for feed, (runs, given) in enumerate(zip(feeds, case.feeds, strict=True)):
            expected = case.reference(*given, **case.fields)
            for run, made in enumerate(runs):
                for output, (y, want) in enumerate(zip(made, expected, strict=True)):
                    where = f"{way}, feed {feed}, run {run}, output {output}"
                    if y.shape != want.shape:
                        faults.append(f"{where}: shape {y.shape}, expected {want.shape}")
                        continue
                    difference = np.abs(y.astype(np.float64) - want).max(initial=0)
                    scale = 0 if want.dtype.kind == "i" else np.abs(want).max(initial=0)
                    if not difference <= case.tolerance * scale:
                        faults.append(f"{where}: differs by {difference:.3g}, largest {scale:.3g}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("name", CASES)
def test_all_runs_are_equal(name, headers, results_of):
    ways = results_of(name, headers)
    first = next(iter(ways.values()))
    for way, feeds in ways.items():
        for feed, runs in enumerate(feeds):
            for run, made in enumerate(runs):
                assert_equal(made, first[feed][0], f"{way}, feed {feed}, run {run}")


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("name", CASES)
def test_a_build_that_times_the_plugin(name, headers, results_of):
    timed = results_of(name, headers, timing=True)["timed"]
    for feed, (runs, others) in enumerate(
        zip(timed, next(iter(results_of(name, headers).values())), strict=True)
    ):
        for run, made in enumerate(runs):
            assert_equal(made, others[0], f"feed {feed}, run {run}")


@pytest.mark.parametrize("name", CASES)
def test_headers_make_no_difference(name, results_of):
    made = {}
    for headers in HEADERS:
        try:
            made[headers] = results_of(name, headers)
        except pytest.skip.Exception:
            pass  # not compiled with these headers
    if len(made) < 2:
        pytest.skip(f"compiled with {', '.join(made) or 'none'} alone")
    first, *others = made.items()
    for headers, results in others:
        for way, feeds in results.items():
            for feed, (runs, of_first) in enumerate(zip(feeds, first[1][way], strict=True)):
                assert_equal(runs[0], of_first[0], f"{headers}, {first[0]}, {way}, feed {feed}")
