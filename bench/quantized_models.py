"""Networks of gpu_models.py with INT8 and FP8 as QuantizeLinear and DequantizeLinear, for its option --quantized.

python bench/quantized_models.py FOLDER [--only NAME ...]   writes the models, and what ONNX Runtime's CPU gives
python bench/quantized_models.py FOLDER --weights           writes the models' weights again, with NumPy alone

ONNX Runtime's static quantizer makes those of INT8: symmetric, with a scale for each channel of the weights; of BERT
the products with weights are quantized, of ResNet-50 every operator that it knows. Those of FP8 have the form that
TensorRT's Model Optimizer writes: the products' inputs go through float8e4m3fn, their weights are stored in it. Weights
are random, so that a folder without them, its files *.bin, is small.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import unittest.mock
from pathlib import Path
from typing import Any

import numpy as np

OPSET = 19  # the first opset with FP8, and with scales in FP16
KINDS = {"ResNet-50": ["int8"], "BERT": ["int8", "fp8"]}
# Initializers with more elements become random.
LARGE = 4096


def slug(name: str, kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()) + "-" + kind


# --- Weights


def random_weights(recipe: dict[str, Any]) -> bytes:
    """Random weights, the same bytes on every machine."""
    rng = np.random.Generator(np.random.PCG64(recipe["seed"]))
    if recipe["type"] == "int8":
        return rng.integers(-127, 128, recipe["count"], dtype=np.int8).tobytes()
    if recipe["type"] == "fp8":  # magnitudes from 2^-6 to 448
        magnitude = rng.integers(8, 127, recipe["count"], dtype=np.uint8)
        return (magnitude | rng.integers(0, 2, recipe["count"], dtype=np.uint8) << 7).tobytes()
    numbers = rng.random(recipe["count"], dtype=np.float32) * 2 - 1
    return (numbers * np.float32(recipe["limit"])).astype(recipe["type"]).tobytes()


def write_weights(recipes: Path) -> None:
    with recipes.with_suffix(".bin").open("wb") as file:
        for recipe in json.loads(recipes.read_text()):
            file.seek(recipe["offset"])
            file.write(random_weights(recipe))


def randomize(model, name: str) -> list[dict[str, Any]]:
    """Replaces large initializers by random weights of about the same magnitude, in a file of their
    own."""
    from onnx import TensorProto, numpy_helper

    known = {tensor.name: tensor for tensor in model.graph.initializer}
    scales = {
        node.input[0]: node.input[1]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in known
    }
    types = {
        TensorProto.INT8: "int8",
        TensorProto.FLOAT8E4M3FN: "fp8",
        TensorProto.FLOAT16: "float16",
        TensorProto.FLOAT: "float32",
    }
    recipes, offset = [], 0
    for tensor in model.graph.initializer:
        count = int(np.prod(tensor.dims))
        if count <= LARGE or tensor.data_type not in types:
            continue
        values = numpy_helper.to_array(tensor).astype(np.float32)
        recipe = {"seed": len(recipes), "type": types[tensor.data_type], "count": count}
        recipe |= {"offset": offset, "limit": float(values.std() * 3**0.5)}
        new = random_weights(recipe)
        recipes.append(recipe)
        if tensor.name in scales:
            found = np.frombuffer(new, np.int8)
            if recipe["type"] == "fp8":
                import ml_dtypes

                found = np.frombuffer(new, ml_dtypes.float8_e4m3fn)
            scale = known[scales[tensor.name]]
            factor = values.std() / found.astype(np.float32).std()
            old = numpy_helper.to_array(scale)
            scale.CopyFrom(numpy_helper.from_array((old * factor).astype(old.dtype), scale.name))
        tensor.ClearField("raw_data")
        tensor.ClearField("int32_data")
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", f"{name}.bin"), ("offset", offset), ("length", len(new))):
            tensor.external_data.add(key=key, value=str(value))
        offset += (len(new) + 4095) // 4096 * 4096
    return recipes


# --- Quantization


def export(module, x) -> Any:
    import onnx
    import torch
    from gpu_models import attention

    file = io.BytesIO()
    with (
        unittest.mock.patch("torch.nn.functional.scaled_dot_product_attention", attention),
        torch.inference_mode(),
    ):
        names = {"input_names": ["x"], "output_names": ["y"]}
        torch.onnx.export(module, (x,), file, opset_version=OPSET, dynamo=False, **names)
    return onnx.load_from_string(file.getvalue())


def quantized_to_int8(model, x: np.ndarray, all_operators: bool):
    import tempfile

    import onnx
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Once(CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": x}]

        def get_next(self):
            return self.left.pop() if self.left else None

    extra: dict[str, Any] = {"ActivationSymmetric": True, "WeightSymmetric": True}
    types, excluded = None, []
    if not all_operators:
        types = ["MatMul"]
        extra |= {"OpTypesToExcludeOutputQuantization": types}
        weights = {tensor.name for tensor in model.graph.initializer}
        excluded = [
            node.name
            for node in model.graph.node
            if node.op_type == "MatMul" and node.input[1] not in weights
        ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quantize_static(
            model,
            path,
            Once(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=types,
            nodes_to_exclude=excluded,
            extra_options=extra,
        )
        return onnx.load(path)


def quantized_to_fp8(model, x: np.ndarray):
    """Quantizes products with constant weights, with scales from the largest elements of their
    inputs."""
    import ml_dtypes
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    most = 448.0
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    products = [n for n in model.graph.node if n.op_type == "MatMul" and n.input[1] in weights]
    names = sorted({node.input[0] for node in products})
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(shown.SerializeToString())
    found = dict(zip(names, session.run(names, {"x": x})))

    zero = helper.make_tensor("fp8 zero", TensorProto.FLOAT8E4M3FN, [], b"\0", raw=True)
    constants, before = [zero], {}
    for name in names:
        scale = np.float16(np.abs(found[name].astype(np.float32)).max() / most)
        constants.append(numpy_helper.from_array(np.asarray(scale), f"{name} scale"))
        before[name] = [
            helper.make_node(
                "QuantizeLinear", [name, f"{name} scale", "fp8 zero"], [f"{name} fp8"]
            ),
            helper.make_node(
                "DequantizeLinear", [f"{name} fp8", f"{name} scale", "fp8 zero"], [f"{name} again"]
            ),
        ]
    nodes = []
    for node in model.graph.node:
        if node in products:
            nodes += before.pop(node.input[0], [])
            weight = weights[node.input[1]]
            values = numpy_helper.to_array(weight).astype(np.float32)
            scale = np.float16(np.abs(values).max() / most)
            stored = (values / np.float32(scale)).astype(ml_dtypes.float8_e4m3fn)
            constants.append(numpy_helper.from_array(np.asarray(scale), f"{weight.name} scale"))
            name = f"{weight.name} fp8"
            constants.append(
                helper.make_tensor(
                    name, TensorProto.FLOAT8E4M3FN, weight.dims, stored.tobytes(), raw=True
                )
            )
            inputs = [name, f"{weight.name} scale", "fp8 zero"]
            nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name} again"]))
            node.input[0], node.input[1] = f"{node.input[0]} again", f"{name} again"
        nodes.append(node)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([*kept, *constants])
    return model


def write(case, kind: str, folder: Path) -> None:
    import onnxruntime
    import torch

    torch.manual_seed(1)
    module, x = case.make().eval().half(), case.inputs()[0]
    x = x.half() if x.is_floating_point() else x
    model = export(module, x)
    if kind == "int8":
        model = quantized_to_int8(model, x.numpy(), case.name.startswith("ResNet"))
    else:
        model = quantized_to_fp8(model, x.numpy())
    name = slug(case.name, kind)
    recipes = randomize(model, name)
    (folder / f"{name}.json").write_text(json.dumps(recipes))
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    write_weights(folder / f"{name}.json")
    options = onnxruntime.SessionOptions()
    if kind == "fp8":  # ONNX Runtime's optimizer would make nodes of it without kernels
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", options)
    (y,) = session.run(None, {"x": x.numpy()})
    np.savez_compressed(folder / f"{name}.npz", x=x.numpy(), y=y)
    print(name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--weights", action="store_true", help="write the weights alone")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.weights:
        for recipes in sorted(options.folder.glob("*.json")):
            write_weights(recipes)
        return
    from gpu_models import CASES

    for case in CASES:
        kinds = next((k for start, k in KINDS.items() if case.name.startswith(start)), [])
        for kind in kinds:
            name = slug(case.name, kind)
            if not options.only or any(part in name for part in options.only):
                write(case, kind, options.folder)


if __name__ == "__main__":
    main()
