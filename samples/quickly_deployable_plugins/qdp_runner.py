"""Builds, runs and checks an engine with one of the plugins of qdp_defs.py.

The exit status is 0 where the result is that of NumPy, otherwise 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import numpy as np
import onnx
import qdp_defs as defs
from onnx import TensorProto, helper

import opwright as trt
import opwright.plugin as trtp
import opwright.testing

PADS = np.array([1, 2, 3, 4], np.int32)  # before and after the last axis, then the one before it

# What `python -m opwright check qdp_runner.py` checks the plugins with.
IMAGE = np.random.default_rng(0).random((2, 3, 6, 5), np.float32)
opwright.testing.example(trtp.op.sample.elemwise_add_plugin, [IMAGE], block_size=1024)
opwright.testing.example(trtp.op.sample.elemwise_add_plugin_, [IMAGE], delta=2)
opwright.testing.example(trtp.op.sample.non_zero_plugin, [np.round(IMAGE[0, 0])])
opwright.testing.example(trtp.op.sample.circ_pad_plugin, [IMAGE], pads=PADS)


def random_input(shape=(10, 3, 32, 32)) -> np.ndarray:
    """Whole numbers that FP16 holds, so that results are exact whatever types the tuner chooses."""
    return np.random.default_rng(0).integers(0, 1000, shape).astype(np.float32)


def create_network(shape) -> tuple[trt.INetworkDefinition, trt.ITensor]:
    """A network with the input x."""
    network = trt.Builder(trt.Logger()).create_network()
    return network, network.add_input("x", trt.float32, shape)


def mark_output(network: trt.INetworkDefinition, tensor: trt.ITensor, name: str) -> None:
    tensor.name = name
    network.mark_output(tensor)


def build(model, args) -> trt.Engine:
    """FP16 takes part where a plugin's autotune function lists it."""
    severity = trt.Logger.VERBOSE if args.verbose else trt.Logger.WARNING
    return trt.build(model, fp16=True, logger=trt.Logger(severity))


def run_add(args) -> tuple[np.ndarray, np.ndarray]:
    if args.autotune:
        trtp.autotune("sample::elemwise_add_plugin")(defs.add_plugin_autotune)
    x = random_input()
    network, i_x = create_network(x.shape)
    layer = network.add_plugin(trtp.op.sample.elemwise_add_plugin(i_x, block_size=1024))
    mark_output(network, layer.get_output(0), "y")
    return build(network, args)(x), x + 1


def run_inplace_add(args) -> tuple[np.ndarray, np.ndarray]:
    if args.autotune:
        trtp.autotune("sample::elemwise_add_plugin_")(defs.add_plugin_autotune_)
    x = random_input()
    network, i_x = create_network(x.shape)
    first = network.add_plugin(trtp.op.sample.elemwise_add_plugin_(i_x, delta=1))
    second = network.add_plugin(trtp.op.sample.elemwise_add_plugin_(first.get_output(0), delta=2))
    mark_output(network, second.get_output(0), "y")
    return build(network, args)(x), x + 3  # x is the caller's, so the engine adds to a copy


def run_non_zero(args) -> tuple[np.ndarray, np.ndarray]:
    x = random_input((64, 96)) % 2
    network, i_x = create_network(x.shape)
    layer = network.add_plugin(trtp.op.sample.non_zero_plugin(i_x))
    mark_output(network, layer.get_output(0), "indices")
    mark_output(network, layer.get_output(1), "count")
    outputs = build(network, args)(x)
    return outputs["indices"][: outputs["count"]], np.argwhere(x)


def circ_pad_model(shape, aot: bool) -> onnx.ModelProto:
    """An ONNX model with a node that `plugin_namespace` and the node's type make a plugin."""
    node = helper.make_node(
        "circ_pad_plugin", ["x"], ["y"], pads=PADS, plugin_namespace="sample", aot=aot
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "circ_pad", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def circ_pad_network(shape, aot: bool) -> trt.INetworkDefinition:
    network, i_x = create_network(shape)
    layer = network.add_plugin(trtp.op.sample.circ_pad_plugin(i_x, pads=PADS), aot=aot)
    mark_output(network, layer.get_output(0), "y")
    return network


def run_circ_pad(args) -> tuple[np.ndarray, np.ndarray]:
    x = random_input()
    if args.load_engine:
        # An engine with --aot holds code for this host, which we trust: we have made it ourselves.
        engine = trt.load(args.artifacts_dir / "circ_pad.engine", allow_host_code=True)
    else:
        if args.multi_tactic:
            trtp.autotune("sample::circ_pad_plugin")(defs.circ_pad_plugin_autotune)
        make = circ_pad_model if args.mode == "onnx" else circ_pad_network
        engine = build(make(x.shape, args.aot), args)
    if args.save_engine:
        args.artifacts_dir.mkdir(parents=True, exist_ok=True)
        engine.save(args.artifacts_dir / "circ_pad.engine")
    left, right, top, bottom = PADS
    return engine(x), np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], mode="wrap")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    functions = [run_add, run_inplace_add, run_non_zero, run_circ_pad]
    add, inplace_add, non_zero, circ_pad = (
        commands.add_parser(f.__name__.removeprefix("run_")) for f in functions
    )
    for command, function in zip((add, inplace_add, non_zero, circ_pad), functions):
        command.set_defaults(run=function)
        command.add_argument("-v", "--verbose", action="store_true", help="Verbose log output.")
    for command in (add, inplace_add):
        command.add_argument("--autotune", action="store_true", help="Tune over FP32 and FP16.")
    flag = circ_pad.add_argument
    flag("--multi_tactic", action="store_true", help="Enable multiple tactics.")
    flag("--aot", action="store_true", help="Use the AOT implementation of the plugin.")
    flag("--save_engine", action="store_true", help="Save engine to the artifacts_dir.")
    flag(
        "--load_engine",
        action="store_true",
        help="Load engine from the artifacts_dir. Ignores all other options.",
    )
    flag("--artifacts_dir", type=Path, help="Where to store (or retrieve) artifacts.")
    flag(
        "--mode",
        choices=["onnx", "inetdef"],
        default="onnx",
        help="Construct the network by the ONNX parser or by INetworkDefinition (default: onnx).",
    )
    args = parser.parse_args()
    if args.command == "circ_pad" and (args.save_engine or args.load_engine):
        if args.artifacts_dir is None:
            circ_pad.error("--save_engine and --load_engine need --artifacts_dir")
    return args


def main() -> int:
    args = parse_arguments()
    logging.basicConfig(level=logging.DEBUG if args.verbose else logging.INFO, format="%(message)s")
    result, expected = args.run(args)
    if result.shape != expected.shape:
        print(f"FAILED: {args.command}: the shape is {result.shape}, expected {expected.shape}")
        return 1
    error = float(np.abs(result - expected).max())
    print(f"{'passed' if error == 0 else 'FAILED'}: {args.command}, largest error {error:g}")
    return 0 if error == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
