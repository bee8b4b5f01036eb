"""Memory of a process that runs a saved engine: with one context, with 16 contexts that run one after another, and with
16 callers at once; against a session of ONNX Runtime, which is called as often from as many threads.

python bench/memory.py [--contexts N] [MODEL ...]

Every figure comes from a process of its own, less what it had after its imports, inputs included:
  peak       the most that was resident (VmHWM), pages of a mapped engine file among it
  rest       what is resident after the runs (PSS), while all contexts are alive
  anonymous  the part of it that is no file's, which the system cannot drop and read again
A session has no contexts: beside 16 contexts in turns it is called 16 times in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from timing import one_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python" / "support"))

MODELS = ("squeezenet", "shufflenet", "resnet50", "densenet121", "transformer", "vgg19")
SCENARIOS = ("one", "turns", "callers")
ROUNDS = 3
FIELDS = ("peak", "rest", "anonymous")


def resident() -> dict[str, float]:
    """The memory of this process in MiB."""
    kib: dict[str, int] = {}
    for file in ("/proc/self/status", "/proc/self/smaps_rollup"):
        for line in Path(file).read_text().splitlines():
            name, _, rest = line.partition(":")
            if rest.endswith(" kB"):
                kib[name] = int(rest.split()[0])
    return {
        "peak": kib["VmHWM"] / 1024,
        "now": kib["VmRSS"] / 1024,
        "rest": kib["Pss"] / 1024,
        "anonymous": kib["Anonymous"] / 1024,
    }


def at_once(function: Callable[[], object], callers: int) -> None:
    import threading

    begin = threading.Barrier(callers)

    def work() -> None:
        for _ in range(ROUNDS):
            begin.wait()
            function()

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def child(kind: str, scenario: str, path: str, inputs_path: str, contexts: int) -> None:
    """Measures in this process and prints the figures as JSON."""
    import numpy as np

    if kind == "peer":
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
    else:
        import opwright
    with np.load(inputs_path) as file:
        inputs = {name: file[name] for name in file.files}
    before = resident()

    keep: list[object] = []
    if kind == "peer":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        session = onnxruntime.InferenceSession(path, options)
        keep.append(session)

        def call() -> object:
            return session.run(None, inputs)
    else:
        engine = opwright.load(path)
        keep.append(engine)

        def call() -> object:
            return engine(**inputs)

    if scenario == "callers":
        at_once(call, contexts)
    elif scenario == "turns" and kind == "ours":
        made = [engine.engine.create_execution_context() for _ in range(contexts)]
        keep.append(made)
        for _ in range(ROUNDS):
            for context in made:
                run(context, engine, inputs)
    else:
        for _ in range(ROUNDS * (contexts if scenario == "turns" else 1)):
            call()
    after = resident()
    figures = {
        "peak": after["peak"] - before["now"],
        "rest": after["rest"] - before["rest"],
        "anonymous": after["anonymous"] - before["anonymous"],
    }
    print(json.dumps(figures))


def run(context, engine, inputs) -> None:
    """One run of a context of TensorRT's interface, with new outputs."""
    import numpy as np

    import opwright

    for name, value in inputs.items():
        context.set_input_shape(name, value.shape)
        context.set_tensor_address(name, value.ctypes.data)
    outputs = []
    for name in engine.outputs:
        dtype = opwright.nptype(engine.engine.get_tensor_dtype(name))
        outputs.append(np.empty(tuple(context.get_tensor_shape(name)), dtype))
        context.set_tensor_address(name, outputs[-1].ctypes.data)
    context.execute_async_v3(0)


def prepare(name: str, folder: Path) -> dict[str, Path]:
    """The files of a model: the peer's, the engine, and inputs. Made by a process of its own, so that this one stays
    small."""
    files = {
        "peer": folder / f"{name}.onnx",
        "ours": folder / f"{name}.engine",
        "inputs": folder / f"{name}.npz",
    }
    subprocess.run(
        [sys.executable, __file__, "--prepare", name, *map(str, files.values())], check=True
    )
    return files


def make(name: str, onnx_path: str, engine_path: str, inputs_path: str) -> None:
    import numpy as np

    import light_models
    import opwright

    shapes = None
    if name == "transformer":
        import transformer_model

        model = transformer_model.sentence_transformer()
        random = np.random.default_rng(1)
        ids = random.integers(1, 100, (4, 64), dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        inputs["token_type_ids"] = np.zeros_like(ids)
        shapes = {key: ((1, 8), (4, 64), (4, 64)) for key in inputs}
    else:
        model = light_models.randomized(name)
        inputs = light_models.sample_input(model)
    Path(onnx_path).write_bytes(model.SerializeToString())
    opwright.build(onnx_path, shapes=shapes).save(engine_path)
    np.savez(inputs_path, **inputs)


def measure(
    kind: str, scenario: str, files: dict[str, Path], contexts: int, runs: int = 3
) -> dict[str, float]:
    """The smallest figures of a few processes, since each figure includes memory that allocators
    happened to keep."""
    results = []
    for _ in range(runs):
        arguments = [kind, scenario, str(files[kind]), str(files["inputs"]), str(contexts)]
        command = [sys.executable, __file__, "--child", *arguments]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        results.append(json.loads(output))
    return {field: min(r[field] for r in results) for field in FIELDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", type=one_of(MODELS))
    parser.add_argument("--contexts", type=int, default=16)
    arguments = parser.parse_args()
    labels = {
        "one": "1 context",
        "turns": f"{arguments.contexts} in turns",
        "callers": f"{arguments.contexts} callers",
    }
    print("MiB beyond the imports: ours, ONNX Runtime's, ratio")
    print(f"{'model':14}{'':14}" + "".join(f"{field:^27}" for field in FIELDS))
    for name in arguments.models or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            files = prepare(name, Path(folder))
            size = files["ours"].stat().st_size / 2**20
            print(f"{name}: engine file of {size:.1f} MiB", flush=True)
            for scenario in SCENARIOS:
                ours, peer = (
                    measure(k, scenario, files, arguments.contexts) for k in ("ours", "peer")
                )
                columns = "".join(
                    f"{ours[f]:9.1f}{peer[f]:9.1f}{ours[f] / peer[f]:8.2f} " for f in FIELDS
                )
                print(f"{'':14}{labels[scenario]:14}{columns}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:6], int(sys.argv[6]))
    elif sys.argv[1:2] == ["--prepare"]:
        make(*sys.argv[2:])
    else:
        main()
