"""What the samples share: a model with circular padding, and how it is built, run and checked."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import opwright as trt
from opwright import testing

SHAPE = (10, 3, 32, 32)
PADS = (1, 2, 3, 4)  # before and after the last axis, before and after the one in front of it
TYPES = {
    "fp32": (trt.float32, np.float32, TensorProto.FLOAT),
    "fp16": (trt.float16, np.float16, TensorProto.FLOAT16),
}


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--precision", choices=TYPES, default="fp32", help="type of the tensors (default: fp32)"
    )
    return parser


def make_config(builder: trt.Builder, device: trt.DeviceType | None = None) -> trt.IBuilderConfig:
    """The settings of a build. Without a device the default is taken: a GPU where there is one."""
    config = builder.create_builder_config()
    if device is not None:
        config.default_device_type = device
    return config


def default_is_gpu() -> bool:
    config = make_config(trt.Builder(trt.Logger()))
    return config.default_device_type == trt.DeviceType.GPU


def import_for_gpu(*names: str, package: str) -> ModuleType:
    """Imports the first of these modules that is there; ends with status 2 where there is no GPU."""
    try:
        config = make_config(trt.Builder(trt.Logger()), trt.DeviceType.GPU)
        config.create_timing_cache(b"")  # asks for the device
        for name in names:
            with contextlib.suppress(ImportError):
                return importlib.import_module(name)
        reason = f"the package {package} is missing: pip install {package}"
    except trt.Error as error:
        reason = str(error)
    print(f"This sample needs a GPU: {reason}", file=sys.stderr)
    sys.exit(2)


def make_model(precision: str, instances: int = 1) -> onnx.ModelProto:
    """A model with one or more nodes CircPadPlugin, from inputs x0, x1... to outputs y0, y1..."""
    type = TYPES[precision][2]
    numbers = range(instances)
    graph = helper.make_graph(
        [helper.make_node("CircPadPlugin", [f"x{i}"], [f"y{i}"], pads=PADS) for i in numbers],
        "circ_pad",
        [helper.make_tensor_value_info(f"x{i}", type, SHAPE) for i in numbers],
        [helper.make_tensor_value_info(f"y{i}", type, None) for i in numbers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def create_network(builder: trt.Builder) -> trt.INetworkDefinition:
    """An empty network, in which tensors keep the types that the model gives them."""
    return builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))


def parse(builder: trt.Builder, model: onnx.ModelProto) -> trt.INetworkDefinition:
    network = create_network(builder)
    parser = trt.OnnxParser(network, builder.logger)
    if not parser.parse(model.SerializeToString()):
        errors = [parser.get_error(i).desc() for i in range(parser.num_errors)]
        raise SystemExit("\n".join(errors))
    return network


def run(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    precision: str,
    device: trt.DeviceType | None = None,
) -> None:
    """Builds an engine, runs it with random inputs, and ends with status 1 if a result is wrong."""
    plan = builder.build_serialized_network(network, make_config(builder, device))
    engine = trt.Runtime(builder.logger).deserialize_cuda_engine(plan)

    generator = np.random.default_rng(0)
    names = [network.get_input(i).name for i in range(network.num_inputs)]
    inputs = {name: generator.random(SHAPE).astype(TYPES[precision][1]) for name in names}
    outputs = trt.Engine(engine)(**inputs)
    if not isinstance(outputs, dict):  # a single output comes as it is
        outputs = {"y0": outputs}
    errors = [error(outputs[name.replace("x", "y")], x) for name, x in inputs.items()]

    passed = not any(errors)  # padding moves values and computes none
    verdict = "passed" if passed else "FAILED"
    script = Path(sys.argv[0]).stem
    print(f"{verdict}: {script}, {precision}, largest error {np.max(errors):g}")
    sys.exit(0 if passed else 1)


def error(y: np.ndarray, x: np.ndarray) -> float:
    """The largest difference of y to what NumPy makes of x; NaN where there is one in y."""
    left, right, above, below = PADS
    expected = np.pad(x, [(0, 0), (0, 0), (above, below), (left, right)], mode="wrap")
    if y.shape != expected.shape or y.dtype != expected.dtype:
        sys.exit(f"FAILED: {y.dtype}{y.shape} came, expected {expected.dtype}{expected.shape}")
    return float(np.abs(y.astype(np.float64) - expected).max())


def add_example(creator: Any) -> None:
    """What `python -m opwright check` is to check the creator's plugin with."""
    x = np.random.default_rng(0).random((2, 3, 8, 9), np.float32)
    testing.example(creator, [x], pads=PADS)


def main(description: str | None, creator: Any, device: trt.DeviceType | None = None) -> None:
    """A whole sample: the creator's plugin in an ONNX model."""
    precision = argument_parser(description).parse_args().precision
    trt.get_plugin_registry().register_creator(creator, "")
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    run(builder, parse(builder, make_model(precision)), precision, device)
