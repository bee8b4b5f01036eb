"""A Llama-shaped decoder as one engine, with its cache of keys and values updated in place, and what the
native program generates with it: python decoder.py [--size 1b] [--prompt 512] [--tokens 64]

Weights are random, or those of a model of Hugging Face's transformers (network_of).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import decoder_operators  # noqa: F401  (registers them)
import numpy as np

import opwright as trt
import opwright.plugin as trtp


@dataclasses.dataclass(frozen=True)
class Size:
    layers: int
    hidden: int
    heads: int
    shared_heads: int  # of keys and values
    inner: int
    vocabulary: int
    theta: float = 500000.0
    epsilon: float = 1e-5

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The weights by the names that transformers gives them; output and input share one."""
        shared = self.shared_heads * self.head_size
        shapes = {"model.embed_tokens.weight": (self.vocabulary, self.hidden)}
        for i in range(self.layers):
            layer = f"model.layers.{i}."
            shapes |= {
                layer + "input_layernorm.weight": (self.hidden,),
                layer + "self_attn.q_proj.weight": (self.hidden, self.hidden),
                layer + "self_attn.k_proj.weight": (shared, self.hidden),
                layer + "self_attn.v_proj.weight": (shared, self.hidden),
                layer + "self_attn.o_proj.weight": (self.hidden, self.hidden),
                layer + "post_attention_layernorm.weight": (self.hidden,),
                layer + "mlp.gate_proj.weight": (self.inner, self.hidden),
                layer + "mlp.up_proj.weight": (self.inner, self.hidden),
                layer + "mlp.down_proj.weight": (self.hidden, self.inner),
            }
        return shapes | {"model.norm.weight": (self.hidden,)}


Array = TypeVar("Array")  # of NumPy or PyTorch

# The program's environment says where a GPU's driver is, and has no PATH to a Python.
KEPT = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OPWRIGHT_CUDA_DRIVER", "TMPDIR")

SIZES = {
    "small": Size(2, 128, 4, 2, 256, 512),
    "1b": Size(16, 2048, 32, 8, 8192, 128256),
    "8b": Size(32, 4096, 32, 8, 14336, 128256),
}


def random_weights(size: Size, dtype: type = np.float32, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.Generator(np.random.SFC64(seed))
    weights = {}
    for name, shape in size.shapes().items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, dtype)
            continue
        # Uniform, of variance 1 / columns.
        edge = np.float32((3 / shape[1]) ** 0.5)
        made = np.empty(shape, dtype)
        for row in range(0, shape[0], 4096):
            part = made[row : row + 4096]
            part[...] = (rng.random(part.shape, np.float32) * 2 - 1) * edge
        weights[name] = made
    return weights


class Writer:
    """Layers of the network, in short."""

    def __init__(self, network: trt.INetworkDefinition):
        self.network = network

    def constant(self, array: np.ndarray) -> trt.ITensor:
        array = np.ascontiguousarray(array)
        return self.network.add_constant(array.shape, array).get_output(0)

    def linear(self, x: trt.ITensor, weight: np.ndarray | trt.ITensor) -> trt.ITensor:
        """x times the transposed weight, [columns, rows], as PyTorch stores it."""
        if isinstance(weight, np.ndarray):
            weight = self.constant(weight)
        none, transpose = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
        return self.network.add_matrix_multiply(x, none, weight, transpose).get_output(0)

    def elementwise(self, a: trt.ITensor, b: trt.ITensor, op: str) -> trt.ITensor:
        kind = getattr(trt.ElementWiseOperation, op)
        return self.network.add_elementwise(a, b, kind).get_output(0)

    def reshape(self, x: trt.ITensor, shape, order=None) -> trt.ITensor:
        layer = self.network.add_shuffle(x)
        if order is not None:
            layer.first_transpose = order
        layer.reshape_dims = shape
        return layer.get_output(0)

    def collective(self, x: trt.ITensor, op: str, reduce_op: str, ranks: int) -> trt.ITensor:
        """What all ranks have of x."""
        operation = getattr(trt.CollectiveOperation, op)
        reduction = getattr(trt.ReduceOperation, reduce_op)
        layer = self.network.add_dist_collective(x, operation, reduction, -1, [])
        layer.num_ranks = ranks
        return layer.get_output(0)

    def rms_norm(self, x: trt.ITensor, scale: np.ndarray, epsilon: float) -> trt.ITensor:
        """x / sqrt(mean(x * x) + epsilon) * scale, in FP32. The engine knows it by these layers, and
        where rows are few the product that follows computes it."""
        rank, network = len(x.shape), self.network
        exact = network.add_cast(x, trt.float32).get_output(0)
        square = self.elementwise(exact, exact, "PROD")
        average = trt.ReduceOperation.AVG
        mean = network.add_reduce(square, average, 1 << (rank - 1), True).get_output(0)
        least = self.constant(np.full([1] * rank, epsilon, np.float32))
        sum_ = self.elementwise(mean, least, "SUM")
        root = network.add_unary(sum_, trt.UnaryOperation.SQRT).get_output(0)
        y = network.add_cast(self.elementwise(exact, root, "DIV"), x.dtype).get_output(0)
        return self.elementwise(y, self.constant(scale.reshape([1] * (rank - 1) + [-1])), "PROD")


def rotations(size: Size, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, [room, head size / 2]."""
    half = np.arange(0, size.head_size, 2, dtype=np.float64)
    angles = np.outer(np.arange(room), size.theta ** (-half / size.head_size))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def network_of(
    network: trt.INetworkDefinition,
    size: Size,
    weights: Mapping[str, np.ndarray],
    batch: int,
    room: int,
    ranks: int = 1,
) -> None:
    """Writes the decoder into an empty network. Inputs: `tokens`, INT32 [batch, any number], the
    `position` of the first of them, INT32 [1], and the caches `keys0`, `values0`, ... [batch,
    shared heads, room, head size]. Outputs: the greedy `next` token, [batch, 1], the position
    behind all of them, `next_position`, and the caches again, in the inputs' memory. With several
    ranks, the weights are those of `part_of`, and each rank's caches are of its own heads."""
    write = Writer(network)
    heads, shared_heads = size.heads // ranks, size.shared_heads // ranks

    def add(x: trt.ITensor, product: trt.ITensor) -> trt.ITensor:
        """x and the sum of the ranks' products. Each rank adds its share of x to its product, so that
        nothing is left to do between the all-reduce and the next product. Only shares of a power of
        two add up to x."""
        if ranks == 1:
            return write.elementwise(x, product, "SUM")
        if ranks & (ranks - 1):
            total = write.collective(product, "ALL_REDUCE", "SUM", ranks)
            return write.elementwise(x, total, "SUM")
        share = write.elementwise(x, write.constant(np.full((1, 1, 1), 1 / ranks, number)), "PROD")
        part = write.elementwise(share, product, "SUM")
        return write.collective(part, "ALL_REDUCE", "SUM", ranks)

    number = weights["model.norm.weight"].dtype
    dtype = trt.float16 if number == np.float16 else trt.float32
    tokens = network.add_input("tokens", trt.int32, (batch, -1))
    position = network.add_input("position", trt.int32, (1,))
    embedding = write.constant(weights["model.embed_tokens.weight"])
    cosines, sines = map(write.constant, rotations(size, room))

    # Token i of the input stands at position + i and meets the keys up to there.
    count = network.add_slice(network.add_shape(tokens).get_output(0), (1,), (1,), (1,))
    count = count.get_output(0)
    upwards = write.constant(np.arange(room, dtype=np.int32))
    places = network.add_slice(upwards, (0,), (1,), (1,))
    places.set_input(2, count)
    places = write.reshape(places.get_output(0), (-1, 1))
    keys = write.constant(np.arange(room, dtype=np.int32).reshape(1, room))
    ahead = write.elementwise(keys, places, "SUB")
    is_behind = write.elementwise(ahead, write.reshape(position, (1, 1)), "GREATER")
    allowed = network.add_unary(is_behind, trt.UnaryOperation.NOT).get_output(0)
    allowed = write.reshape(allowed, (1, 1, -1, room))

    x = network.add_gather(embedding, tokens, 0).get_output(0)
    cache_shape = (batch, shared_heads, room, size.head_size)
    for i in range(size.layers):

        def weight(name: str, layer: str = f"model.layers.{i}.") -> np.ndarray:
            return weights[layer + name + ".weight"]

        caches = [network.add_input(f"{n}{i}", dtype, cache_shape) for n in ("keys", "values")]
        projections = [weight(f"self_attn.{n}_proj") for n in "qkv"]
        y = write.rms_norm(x, weight("input_layernorm"), size.epsilon)
        qkv = write.linear(y, np.concatenate(projections))
        call = trtp.op.decoder.rotary_cache(qkv, cosines, sines, position, *caches, heads=heads)
        rotary = network.add_plugin(call, aot=True)
        queries, *caches = (rotary.get_output(j) for j in range(3))
        for name, cache in zip(("keys", "values"), caches):
            cache.name = f"next_{name}{i}"
            network.mark_output(cache)
        attention = network.add_attention_v2(
            queries, *caches, trt.AttentionNormalizationOp.SOFTMAX, trt.CausalMaskKind.NONE
        )
        attention.mask = allowed
        width = heads * size.head_size
        y = write.reshape(attention.get_output(0), (batch, -1, width), (0, 2, 1, 3))
        x = add(x, write.linear(y, weight("self_attn.o_proj")))

        y = write.rms_norm(x, weight("post_attention_layernorm"), size.epsilon)
        gate = write.linear(y, weight("mlp.gate_proj"))
        sigmoid = network.add_activation(gate, trt.ActivationType.SIGMOID).get_output(0)
        gate = write.elementwise(gate, sigmoid, "PROD")
        y = write.elementwise(gate, write.linear(y, weight("mlp.up_proj")), "PROD")
        x = add(x, write.linear(y, weight("mlp.down_proj")))

    # The result is that of each sequence's last token.
    last = write.constant(np.array([batch, 1, size.hidden], np.int64))
    first = write.elementwise(network.add_shape(x).get_output(0), last, "SUB")
    final = network.add_slice(x, (0, 0, 0), (batch, 1, size.hidden), (1, 1, 1))
    final.set_input(1, first)
    y = write.reshape(final.get_output(0), (batch, size.hidden))
    y = write.rms_norm(y, weights["model.norm.weight"], size.epsilon)
    if ranks == 1:
        logits = write.linear(y, embedding)
    else:  # each rank has the logits of its own words
        part = write.linear(y, weights["lm_head.weight"])
        parts = write.collective(part, "ALL_GATHER", "NONE", ranks)
        apart = write.reshape(parts, (ranks, batch, size.vocabulary // ranks))
        together = network.add_shuffle(apart)
        together.first_transpose = (1, 0, 2)
        together.reshape_dims = (batch, size.vocabulary)
        logits = together.get_output(0)
    token = network.add_topk(logits, trt.TopKOperation.MAX, 1, 1 << 1).get_output(1)
    behind = network.add_cast(count, trt.int32).get_output(0)
    behind = write.elementwise(position, behind, "SUM")
    for name, tensor in (("next", token), ("next_position", behind)):
        tensor.name = name
        network.mark_output(tensor)


def part_of(weights: Mapping[str, Array], rank: int, ranks: int) -> dict[str, Array]:
    """A rank's part of arrays or tensors: its heads, its inner features, and the output's words."""
    if ranks == 1:
        return dict(weights)

    def part(array: Array, axis: int) -> Array:
        extent = array.shape[axis] // ranks
        mine = slice(rank * extent, (rank + 1) * extent)
        return array[mine] if axis == 0 else array[:, mine]

    parts = {"lm_head.weight": part(weights["model.embed_tokens.weight"], 0)}
    for name, array in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            parts[name] = part(array, 1)
        else:
            parts[name] = part(array, 0) if "_proj." in name else array
    return parts


def build(
    size: Size,
    weights: Mapping[str, np.ndarray],
    *,
    batch: int = 1,
    room: int = 1024,
    prompt: int = 512,
    device: trt.DeviceType | None = None,
    timing_cache: str | os.PathLike[str] | None = None,
    ranks: int = 1,
) -> trt.IHostMemory:
    """The engine file, of two optimization profiles: for `prompt` tokens at once, and for one. With
    several ranks, that of one of them."""
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    network_of(network, size, weights, batch, room, ranks)
    config = builder.create_builder_config()
    if device is not None:
        config.default_device_type = device
    if timing_cache is not None:
        path = Path(timing_cache)
        known = path.read_bytes() if path.exists() else b""
        config.set_timing_cache(config.create_timing_cache(known), False)
    for count in dict.fromkeys((prompt, 1)):
        profile = builder.create_optimization_profile()
        profile.set_shape("tokens", *[(batch, count)] * 3)
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("the engine was not built; the messages above say why")
    if timing_cache is not None:
        Path(timing_cache).write_bytes(bytes(config.get_timing_cache().serialize()))
    return plan


def generate(engine: Path, prompt: np.ndarray, count: int) -> tuple[np.ndarray, dict]:
    """Tokens [batch, count] that follow the prompt's, by the native program, and its times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "prompt.npy", prompt.astype(np.int32))
        np.save(folder / "position.npy", np.zeros(1, np.int32))
        search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        program = os.environ.get("OPWRIGHT_PROGRAM") or shutil.which("opwright", path=search)
        if program is None:
            raise SystemExit(
                "The program 'opwright' is not installed beside this Python: make setup"
            )
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        # fmt: off
        done = subprocess.run(
            [
                program, "run", str(engine), "--allow-host-code", "--json",
                "--input", f"tokens={folder / 'prompt.npy'}",
                "--input", f"position={folder / 'position.npy'}",
                "--feed", "next=tokens", "--feed", "next_position=position",
                "--steps", str(count), "--output", f"next={folder / 'next.npy'}",
            ],
            capture_output=True, text=True, check=False,
            env=environment,
        )
        # fmt: on
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        tokens = np.load(folder / "next.npy").reshape(count, -1)
    return tokens.T, json.loads(done.stdout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", choices=SIZES, default="small")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    options.add_argument("--tokens", type=int, default=32, help="tokens to generate")
    options.add_argument("--device", choices=["cpu", "cuda"], help="the GPU where there is one")
    options.add_argument("--engine", help="where the engine is kept")
    options.add_argument("--timing-cache", help="a file of measured times")
    chosen = options.parse_args()
    size = SIZES[chosen.size]
    is_gpu = chosen.device == "cuda"
    if chosen.device is None:
        builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
        is_gpu = builder.create_builder_config().default_device_type == trt.DeviceType.GPU
    weights = random_weights(size, np.float16 if is_gpu else np.float32)
    room = chosen.prompt + chosen.tokens
    plan = build(
        size,
        weights,
        batch=chosen.batch,
        room=-(-room // 64) * 64,
        prompt=chosen.prompt,
        device=trt.DeviceType.GPU if is_gpu else trt.DeviceType.CPU,
        timing_cache=chosen.timing_cache,
    )
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(chosen.engine or Path(folder) / "decoder.engine")
        engine.write_bytes(bytes(plan))
        rng = np.random.default_rng(1)
        prompt = rng.integers(0, size.vocabulary, (chosen.batch, chosen.prompt))
        tokens, times = generate(engine, prompt, chosen.tokens)
    for sequence in tokens:
        print(*sequence)
    rate = chosen.batch * 1000 / times["step_ms"]
    print(
        f"prompt of {chosen.prompt} tokens in {times['first_ms']:.2f} ms, then "
        f"{times['step_ms']:.3f} ms a token: {rate:.0f} tokens/s"
    )


if __name__ == "__main__":
    main()
