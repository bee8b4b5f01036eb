"""The main job, end to end: a real photograph through a network with a custom operator.

Makes an ONNX model with a node that no engine ships, builds it with the operator of circ_pad.py,
runs it from Python and, with the operator compiled into the engine file, from the native program
without Python; checks both against NumPy, SciPy and ONNX Runtime; and draws the result.

    python samples/demo/demo.py [--out DIRECTORY]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import circ_pad  # noqa: F401  (importing it defines the operator)
import numpy as np
import onnx
import onnxruntime
import scipy.ndimage
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw
from skimage.data import astronaut

import opwright

PAD = 29  # wide enough to see
SIZE = 512  # the photograph's height and width
RESULT = (SIZE + 2 * PAD - 4 - 6) // 2  # less what the 5x5 and 7x7 filters take, pooled by 2
DIRECTIONS = 8
TOLERANCE = 1e-5


def gaussian(size: int, sigma: float) -> np.ndarray:
    x = np.arange(size) - size // 2
    line = np.exp(-(x**2) / (2 * sigma**2))
    return np.outer(line, line) / line.sum() ** 2


def filters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blur [3, 1, 5, 5] per color, edges [8, 3, 7, 7] on luminance, one per direction, and a bias [8]."""
    blur = np.broadcast_to(gaussian(5, 1.2), (3, 1, 5, 5))
    y, x = np.mgrid[-3:4, -3:4]
    smooth = gaussian(7, 1.5)
    luminance = np.array([0.299, 0.587, 0.114])
    angles = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
    edges = np.stack([(x * np.cos(a) + y * np.sin(a)) * smooth for a in angles])
    edges = edges[:, None] * luminance[None, :, None, None]
    bias = np.full(DIRECTIONS, -0.02)
    return tuple(np.ascontiguousarray(a, np.float32) for a in (blur, edges, bias))  # type: ignore[return-value]


def make_model(pad_node: onnx.NodeProto, initializers: list[onnx.TensorProto]) -> onnx.ModelProto:
    """x -> pad -> blur -> edges -> ReLU -> max pooling, with the given node for the padding."""
    blur, edges, bias = filters()
    nodes = [
        pad_node,
        helper.make_node("Conv", ["padded", "blur"], ["blurred"], "blur", group=3),
        helper.make_node("Conv", ["blurred", "edges", "bias"], ["signed"], "edges"),
        helper.make_node("Relu", ["signed"], ["positive"], "relu"),
        helper.make_node(
            "MaxPool", ["positive"], ["responses"], "pool", kernel_shape=[2, 2], strides=[2, 2]
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "edges",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [
            helper.make_tensor_value_info(
                "responses", TensorProto.FLOAT, [1, DIRECTIONS, RESULT, RESULT]
            ),
            helper.make_tensor_value_info(
                "padded", TensorProto.FLOAT, [1, 3, SIZE + 2 * PAD, SIZE + 2 * PAD]
            ),
        ],
        [
            numpy_helper.from_array(blur, "blur"),
            numpy_helper.from_array(edges, "edges"),
            numpy_helper.from_array(bias, "bias"),
            *initializers,
        ],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("sample", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def plugin_model() -> onnx.ModelProto:
    node = helper.make_node(
        "circ_pad_plugin", ["x"], ["padded"], "pad", domain="sample", plugin_namespace="sample",
        pads=[PAD, PAD, PAD, PAD],
    )  # fmt: skip
    return make_model(node, [])


def standard_model() -> onnx.ModelProto:
    pads = np.array([0, 0, PAD, PAD, 0, 0, PAD, PAD], np.int64)
    node = helper.make_node("Pad", ["x", "pads"], ["padded"], "pad", mode="wrap")
    return make_model(node, [numpy_helper.from_array(pads, "pads")])


def reference(x: np.ndarray) -> dict[str, np.ndarray]:
    """The network in double precision with NumPy and SciPy."""
    blur, edges, bias = (a.astype(np.float64) for a in filters())
    padded = np.pad(x.astype(np.float64)[0], [(0, 0), (PAD, PAD), (PAD, PAD)], mode="wrap")
    blurred = np.stack([scipy.ndimage.correlate(c, k[0]) for c, k in zip(padded, blur)])
    blurred = blurred[:, 2:-2, 2:-2]
    signed = np.stack(
        [
            sum(scipy.ndimage.correlate(c, k) for c, k in zip(blurred, kernel)) + b
            for kernel, b in zip(edges, bias)
        ]
    )[:, 3:-3, 3:-3]
    height, width = signed.shape[1:]
    pooled = np.maximum(signed, 0).reshape(-1, height // 2, 2, width // 2, 2).max(axis=(2, 4))
    return {"responses": pooled[None], "padded": padded[None]}


def largest_error(result: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The largest difference in any output, relative to the output's largest magnitude."""
    return max(
        float(np.abs(result[name] - value).max() / np.abs(value).max())
        for name, value in expected.items()
    )


def best_of_medians(*functions, rounds: int = 5, runs: int = 9) -> list[float]:
    """Milliseconds per call of each function, measured in turns: the smallest median of a round."""
    medians: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, found in zip(functions, medians):
            times = []
            for _ in range(runs):
                start = time.perf_counter()
                function()
                times.append(time.perf_counter() - start)
            found.append(float(np.median(times)) * 1e3)
    return [min(found) for found in medians]


def show_tuning(engine: opwright.Engine) -> None:
    for layer in engine.layers:
        print(f"  {layer['Name']}")
        for option in layer["Candidates"]:
            print(
                f"    {'->' if option['Chosen'] else '  '} {option['TimeMs']:8.3f} ms  {option['Types']}"
                f"  tactic {option['TacticValue']} {option['TacticName']}"
            )


def run_native(engine_path: Path, x: np.ndarray, out: Path) -> dict[str, np.ndarray]:
    """Runs the engine file with the native program and checks that the process has no Python in it."""
    program = shutil.which(
        "opwright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if program is None:
        raise SystemExit(
            "demo: the program 'opwright' is not installed beside this Python: run 'make setup'"
        )
    np.save(out / "photo.npy", x)
    command = [program, "run", str(engine_path), "--allow-host-code", "--json"]
    command += ["--input", f"x={out / 'photo.npy'}"]
    for name in ("responses", "padded"):
        command += ["--output", f"{name}={out / name}.npy"]
    print("  $", " ".join(command))
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    libraries = [Path(library).name for library in report["libraries"]]
    python = [library for library in libraries if library.startswith("libpython")]
    if python:
        raise SystemExit(f"demo: the native program has loaded {python}")
    print("  libraries of the process:", ", ".join(sorted(libraries)))
    return {name: np.load(out / f"{name}.npy") for name in ("responses", "padded")}


def draw(path: Path, x: np.ndarray, padded: np.ndarray, responses: np.ndarray) -> None:
    """The photograph, the padded photograph and the responses side by side."""
    margin, title = 12, 24

    def color(image: np.ndarray) -> Image.Image:
        return Image.fromarray((image[0].transpose(1, 2, 0) * 255).round().astype(np.uint8))

    photo, wrapped = color(x), color(padded)
    frame = ImageDraw.Draw(wrapped)
    frame.rectangle(
        [PAD, PAD, PAD + photo.width - 1, PAD + photo.height - 1], outline=(255, 64, 64)
    )
    tile = 256
    scaled = np.sqrt(responses[0] / responses.max())
    tiles = [Image.fromarray((t * 255).astype(np.uint8)).resize((tile, tile)) for t in scaled]
    width = photo.width + wrapped.width + 4 * tile + 7 * margin
    height = 2 * tile + 3 * margin + title + 16
    canvas = Image.new("RGB", (width, height), "white")
    text = ImageDraw.Draw(canvas)
    top, left = margin + title, margin
    for label, image in (("photograph", photo), (f"circularly padded by {PAD}", wrapped)):
        text.text((left, margin), label, fill="black")
        canvas.paste(image, (left, top))
        left += image.width + margin
    text.text((left, margin), f"responses of {DIRECTIONS} oriented edge filters", fill="black")
    for index, image in enumerate(tiles):
        column, row = index % 4, index // 4
        canvas.paste(image, (left + column * (tile + margin), top + row * (tile + margin)))
    canvas.save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="where to write files")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    x = np.ascontiguousarray(astronaut().transpose(2, 0, 1)[None], np.float32) / 255
    model_path = out / "edges.onnx"
    onnx.save(plugin_model(), str(model_path))

    print("1. Build with the operator as Python functions; what the tuner measured (-> chosen):")
    engine = opwright.build(str(model_path), prefer_aot=False, device=opwright.DeviceType.CPU)
    show_tuning(engine)
    from_python = engine(x)

    print("2. Build with the operator compiled into the engine:")
    compiled = opwright.build(str(model_path), prefer_aot=True, device=opwright.DeviceType.CPU)
    show_tuning(compiled)
    engine_path = out / "edges.engine"
    compiled.save(str(engine_path))
    print(f"  saved {engine_path} ({engine_path.stat().st_size / 1024:.0f} KiB)")

    print("3. Run it with the native program, in a process without Python:")
    from_native = run_native(engine_path, x, out)

    print("4. Compare:")
    session = onnxruntime.InferenceSession(standard_model().SerializeToString())
    names = [o.name for o in session.get_outputs()]
    from_onnxruntime = dict(zip(names, session.run(names, {"x": x})))
    expected = reference(x)
    errors = {
        "from Python, against NumPy/SciPy": largest_error(from_python, expected),
        "native program, against NumPy/SciPy": largest_error(from_native, expected),
        "from Python, against ONNX Runtime": largest_error(from_python, from_onnxruntime),
        "native program, against ONNX Runtime": largest_error(from_native, from_onnxruntime),
    }
    for what, error in errors.items():
        print(f"  largest relative error {what}: {error:.2e}")
    ours, compiled_ours, theirs = best_of_medians(
        lambda: engine(x), lambda: compiled(x), lambda: session.run(names, {"x": x})
    )
    print(
        f"  time: ONNX Runtime {theirs:.2f} ms; Python operator {ours:.2f} ms (ratio {ours / theirs:.2f}); "
        f"compiled operator {compiled_ours:.2f} ms (ratio {compiled_ours / theirs:.2f})"
    )

    picture = out / "edges.png"
    draw(picture, x, from_native["padded"], from_native["responses"])
    print(f"5. Picture: {picture.resolve()}")
    if max(errors.values()) > TOLERANCE:
        print(f"demo: an error exceeds {TOLERANCE}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
