"""The light models of the onnx package, with weights in which mistakes cannot hide.

The models ship with the real graphs of nine image classifiers, but each weight is a `ConstantOfShape`
fill, with which swapped channels or a transposed kernel change nothing. `randomized` replaces each by
seeded random values of the scale that its consumer needs to keep activations near unit variance.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

# Scales for networks whose logits would otherwise be so large that the softmax is 0 or 1.
_LAST_LAYER_SCALE = {
    "inception_v1": 0.008,
    "inception_v2": 0.08,
    "resnet50": 4e-5,
    "shufflenet": 8e-7,
}


def path(name: str) -> Path:
    """The model's file inside the installed onnx package."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return root / f"light_{name}.onnx"


def _role(graph: onnx.GraphProto) -> dict[str, tuple[str, int]]:
    """The operator type and input index of each tensor's first consumer that does not reshape."""
    role: dict[str, tuple[str, int]] = {}
    for node in reversed(graph.node):
        for index, name in enumerate(node.input):
            if node.op_type in ("Unsqueeze", "Reshape") and index == 0:
                role[name] = role.get(node.output[0], ("", 0))
            else:
                role[name] = (node.op_type, index)
    return role


def _values(
    shape: tuple[int, ...], role: tuple[str, int], rng: np.random.Generator, trans_b: bool
) -> np.ndarray:
    kind, index = role
    if kind in ("Conv", "Gemm", "MatMul") and index == 1:
        fan_in = int(np.prod(shape[1:])) if kind == "Conv" or trans_b else shape[0]
        return rng.normal(0, np.sqrt(2 / fan_in), shape)
    if (kind, index) in (("BatchNormalization", 1), ("BatchNormalization", 4)) or kind == "Mul":
        return rng.uniform(0.5, 1.5, shape)
    return rng.normal(0, 0.1, shape)


def randomized(name: str, seed: int = 0, connected: int = 4096) -> onnx.ModelProto:
    """The light model `name` with every ConstantOfShape node replaced by an initializer.

    Values depend only on the seed and the tensor's name. Hidden layers that are fully connected, of 4096 elements, have
    `connected`: most of a model's bytes are their weights.
    """
    model = onnx.load(str(path(name)))
    graph = model.graph
    initializers = {i.name: i for i in graph.initializer}
    role = _role(graph)
    trans_b = {
        n.input[1]: any(a.name == "transB" and a.i for a in n.attribute)
        for n in graph.node
        if n.op_type == "Gemm"
    }
    kept = []
    shapes_used = set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(v) for v in numpy_helper.to_array(initializers[node.input[0]]))
        shapes_used.add(node.input[0])
        output = node.output[0]
        if role.get(output, ("", 0))[0] == "Gemm":
            shape = tuple(connected if v == 4096 else v for v in shape)
        rng = np.random.default_rng([seed, zlib.crc32(output.encode())])
        values = _values(shape, role.get(output, ("", 0)), rng, trans_b.get(output, False))
        if role.get(output) == ("Gemm", 1) and 1000 in shape:
            values *= _LAST_LAYER_SCALE.get(name, 1.0)
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), output))
    del graph.node[:]
    graph.node.extend(kept)
    if connected != 4096:
        del graph.value_info[:]
    remaining = [i for i in graph.initializer if i.name not in shapes_used]
    del graph.initializer[:]
    graph.initializer.extend(remaining)
    known = {i.name for i in graph.initializer}
    inputs = [i for i in graph.input if i.name not in shapes_used and i.name not in known]
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)  # initializers need not be inputs any more
    return model


@lru_cache(maxsize=1)
def randomized_bytes(name: str, seed: int = 0) -> bytes:
    return randomized(name, seed).SerializeToString()


def sample_input(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """Standard normal values for every input of the model."""
    rng = np.random.default_rng(seed)
    return {
        value.name: rng.standard_normal(
            [d.dim_value for d in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
    }
