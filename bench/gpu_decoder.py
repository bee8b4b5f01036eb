"""Decoding by a Llama-shaped model of about 1 B parameters on the GPU (samples/decoder), by Python and by the native
program, beside PyTorch with a static cache: eager in a CUDA graph, and torch.compile.

python bench/gpu_decoder.py [--batches 1 8] [--context 1024] [--prompt 512] [--peers graph compile]
                            [--timing-cache FILE] [--size 1b] [--layers] [--no-program] [--markdown FILE]

The weights' bytes over the time of a token are compared with what the card copies in a second, measured here. The
greedy tokens are compared with PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import opwright as trt

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "samples" / "decoder"))

import decoder  # noqa: E402


class Peer(torch.nn.Module):
    """The same model in the style of PyTorch's users: a static cache, fused projections, SDPA with
    grouped queries. With several ranks, the weights are those of decoder.part_of."""

    def __init__(
        self,
        size: decoder.Size,
        weights: dict[str, torch.Tensor],
        batch: int,
        room: int,
        ranks: int = 1,
    ):
        super().__init__()
        self.size, self.weights, self.ranks = size, weights, ranks
        self.heads, self.shared_heads = size.heads // ranks, size.shared_heads // ranks
        like = weights["model.norm.weight"]
        self.qkv = [
            torch.cat([weights[f"model.layers.{i}.self_attn.{n}_proj.weight"] for n in "qkv"])
            for i in range(size.layers)
        ]
        self.gate_up = [
            torch.cat([weights[f"model.layers.{i}.mlp.{n}_proj.weight"] for n in ("gate", "up")])
            for i in range(size.layers)
        ]
        shape = (batch, self.shared_heads, room, size.head_size)
        self.keys = [like.new_zeros(shape) for _ in range(size.layers)]
        self.values = [like.new_zeros(shape) for _ in range(size.layers)]
        cosines, sines = decoder.rotations(size, room)
        self.cosines = torch.from_numpy(cosines).to(like.device)
        self.sines = torch.from_numpy(sines).to(like.device)
        self.places = torch.arange(room, device=like.device)

    def total(self, x: torch.Tensor) -> torch.Tensor:
        if self.ranks > 1:
            torch.distributed.all_reduce(x)
        return x

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        if self.ranks == 1:
            return F.linear(x, self.weights["model.embed_tokens.weight"])
        part = F.linear(x, self.weights["lm_head.weight"])
        parts = part.new_empty((self.ranks * len(x), part.shape[1]))
        torch.distributed.all_gather_into_tensor(parts, part)
        return parts.view(self.ranks, len(x), -1).transpose(0, 1).reshape(len(x), -1)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, (self.size.hidden,), self.weights[name + ".weight"], self.size.epsilon)

    def turned(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1).to(x.dtype)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits of the last token, [batch, vocabulary]. `positions` are those of the tokens."""
        size = self.size
        batch, count = tokens.shape
        cosines, sines = self.cosines[positions], self.sines[positions]
        allowed = self.places[None, :] <= positions[:, None]
        x = F.embedding(tokens, self.weights["model.embed_tokens.weight"])
        splits = [self.heads, self.shared_heads, self.shared_heads]
        for i in range(size.layers):
            layer = f"model.layers.{i}."
            y = F.linear(self.norm(x, layer + "input_layernorm"), self.qkv[i])
            q, k, v = y.view(batch, count, -1, size.head_size).transpose(1, 2).split(splits, 1)
            self.keys[i].index_copy_(2, positions, self.turned(k, cosines, sines))
            self.values[i].index_copy_(2, positions, v)
            y = F.scaled_dot_product_attention(
                self.turned(q, cosines, sines),
                self.keys[i],
                self.values[i],
                attn_mask=allowed,
                enable_gqa=True,
            )
            y = y.transpose(1, 2).reshape(batch, count, -1)
            x = x + self.total(F.linear(y, self.weights[layer + "self_attn.o_proj.weight"]))
            y = F.linear(self.norm(x, layer + "post_attention_layernorm"), self.gate_up[i])
            gate, up = y.chunk(2, -1)
            down = self.weights[layer + "mlp.down_proj.weight"]
            x = x + self.total(F.linear(F.silu(gate) * up, down))
        return self.logits(self.norm(x[:, -1], "model.norm"))


def timed(call: Callable[[], object], runs: int = 50, rounds: int = 7) -> float:
    """Milliseconds of a call, averaged over many calls between two events. The median of the rounds
    counts."""
    for _ in range(5):
        call()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(runs):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / runs)
    return statistics.median(times)


def random_weights(size: decoder.Size) -> dict[str, torch.Tensor]:
    """Random weights as in the sample, made on the GPU."""
    torch.manual_seed(0)
    made = {}
    for name, shape in size.shapes().items():
        made[name] = torch.ones(shape, device="cuda", dtype=torch.float16)
        if len(shape) > 1:
            made[name].uniform_(-((3 / shape[1]) ** 0.5), (3 / shape[1]) ** 0.5)
    return made


def card_speeds() -> tuple[float, float]:
    """GB/s of the GPU's copies, counting reads and writes, and of its reads."""
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    copy = 2 * x.numel() / timed(lambda: y.copy_(x), 5) / 1e6
    words = x.view(torch.float32)
    read = x.numel() / timed(lambda: words.sum(), 5) / 1e6
    return copy, read


def captured(call: Callable[[], object]) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class Ours:
    """The engine in Python: a context for each profile, on one cache."""

    def __init__(self, plan: bytes, batch: int, prompt: int, communicator: object = None):
        self.engine = trt.Runtime(trt.Logger(trt.Logger.WARNING)).deserialize_cuda_engine(plan)
        self.tensors: dict[str, torch.Tensor] = {}
        kinds = {trt.int32: torch.int32, trt.float16: torch.float16, trt.float32: torch.float32}
        names = [self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)]
        for name in names:
            source = None
            if self.engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
                source = self.engine.get_aliased_input_tensor(name)
            if source:
                self.tensors[name] = self.tensors[source]
                continue
            shape = [prompt if e < 0 else e for e in self.engine.get_tensor_shape(name)]
            kind = kinds[self.engine.get_tensor_dtype(name)]
            self.tensors[name] = torch.zeros(shape, dtype=kind, device="cuda")
        self.contexts = []
        for profile, count in enumerate((prompt, 1)):
            context = self.engine.create_execution_context()
            context.set_communicator(communicator)
            context.set_optimization_profile_async(profile, torch.cuda.current_stream().cuda_stream)
            context.set_input_shape("tokens", (batch, count))
            for name, tensor in self.tensors.items():
                context.set_tensor_address(name, tensor.data_ptr())
            self.contexts.append(context)

    def run(self, profile: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        assert self.contexts[profile].execute_async_v3(stream)


def program() -> str:
    found = os.environ.get("OPWRIGHT_PROGRAM") or shutil.which(
        "opwright", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    return found or str(Path(trt.__file__).parent / "bin" / "opwright")


def by_program(command: str, engine: Path, prompt: np.ndarray, position: int, more: list) -> dict:
    """Runs `opwright COMMAND` with these tokens at that position and returns its output."""
    folder = engine.parent
    np.save(folder / "tokens.npy", prompt.astype(np.int32))
    np.save(folder / "position.npy", np.array([position], np.int32))
    # fmt: off
    done = subprocess.run(
        [
            program(), command, str(engine), "--allow-device-code", "--json", "--defer-weight-check",
            "--input", f"tokens={folder / 'tokens.npy'}",
            "--input", f"position={folder / 'position.npy'}",
            *more,
        ],
        capture_output=True, text=True, timeout=200,
    )
    # fmt: on
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def layer_times(engine: object, profile: int, count: int = 14) -> str:
    """The tuner's times by kind of layer, and the slowest layers."""
    made = engine.create_engine_inspector()
    context = engine.create_execution_context()
    context.set_optimization_profile_async(profile, 0)
    made.execution_context = context
    kinds: dict[str, float] = {}
    rows: dict[tuple, list] = {}
    # Profiles have different numbers of steps.
    information = json.loads(made.get_engine_information(trt.LayerInformationFormat.JSON))
    for layer in information["Layers"]:
        spent = 1000 * (layer.get("TimeMs") or 0)
        kinds[layer["LayerType"]] = kinds.get(layer["LayerType"], 0) + spent
        key = (layer["LayerType"], layer.get("TacticName", ""), round(spent, 2))
        rows.setdefault(key, []).append(layer["Name"])
    text = ", ".join(f"{k} {v:.0f}" for k, v in sorted(kinds.items(), key=lambda i: -i[1]))
    ordered = sorted(rows.items(), key=lambda row: -row[0][2] * len(row[1]))[:count]
    return f"us by kind: {text}\n" + "\n".join(
        f"    {len(names)} x {key[2]} us {key[0]} {key[1]} ({names[0]})" for key, names in ordered
    )


def compared(ours: Ours, peer: Peer, prompt: torch.Tensor, count: int = 16) -> str:
    """Lets both decode the tokens that the engine chooses, and compares the results."""
    batch, length = prompt.shape
    logits = peer(prompt, torch.arange(length, device="cuda"))
    ours.tensors["tokens"].copy_(prompt)
    ours.tensors["position"].zero_()
    ours.run(0)
    equal, below = 0, 0.0
    for step in range(count):
        mine = ours.tensors["next"].long()
        best = logits.float().max(-1).values
        below = max(below, (best - logits.float().gather(1, mine)[:, 0]).max().item())
        equal += int((mine[:, 0] == logits.argmax(-1)).all())
        position = torch.tensor([length + step], device="cuda")
        logits = peer(mine, position)
        ours.tensors["tokens"].flatten()[:batch].copy_(mine.flatten())
        ours.tensors["position"].copy_(position)
        ours.run(1)
    return f"tokens equal PyTorch's in {equal} of {count} steps; their logits are below its best by {below:.4f} at most"


def ours_by_python(ours: Ours, context: int) -> tuple[float, float]:
    ours.tensors["position"].fill_(context - 1)
    decode = timed(lambda: ours.run(1))
    ours.tensors["position"].zero_()
    return timed(lambda: ours.run(0), 10), decode


def ours_by_program(plan: bytes, prompt: np.ndarray, context: int) -> tuple[float, float]:
    """Times of the prompt, as the median of 20 runs, and of a step around the context, of 128
    steps."""
    feeds = ["--feed", "next=tokens", "--feed", "next_position=position"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("OPWRIGHT_BENCH_FOLDER")) as name:
        engine = Path(name) / "decoder.engine"
        engine.write_bytes(plan)
        last = np.zeros((len(prompt), 1))
        decode = by_program("run", engine, last, context - 64, [*feeds, "--steps", "128"])
        prefill = by_program("bench", engine, prompt, 0, ["--iterations", "20", "--warmup", "3"])
        return prefill["device_ms"], decode["step_ms"]


def peer_times(peer: Peer, prompt: torch.Tensor, context: int, names: list[str]) -> dict:
    places = torch.arange(prompt.shape[1], device="cuda")
    position = torch.tensor([context - 1], device="cuda")
    token = prompt[:, :1].contiguous()
    times = {}
    if "graph" in names:
        prefill = timed(captured(lambda: peer(prompt, places)), 10)
        decode = timed(captured(lambda: peer(token, position).argmax(-1)))
        times["PyTorch, CUDA graph"] = (prefill, decode)
        print(f"  PyTorch in a CUDA graph: {prefill:.3f} ms, {decode:.4f} ms", flush=True)
    if "compile" in names:
        step = torch.compile(
            lambda tokens, places: peer(tokens, places).argmax(-1),
            mode="reduce-overhead",
            dynamic=False,
        )
        decode = timed(lambda: step(token, position))
        times["torch.compile"] = (float("nan"), decode)
        print(f"  torch.compile: {decode:.4f} ms", flush=True)
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", default="1b", choices=decoder.SIZES)
    options.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    options.add_argument("--context", type=int, default=1024)
    options.add_argument("--prompt", type=int, default=512)
    options.add_argument("--peers", nargs="*", default=["graph", "compile"])
    options.add_argument("--timing-cache")
    options.add_argument("--layers", action="store_true", help="show the slowest layers")
    options.add_argument("--no-program", action="store_true", help="by Python alone")
    options.add_argument("--markdown", help="where the table is written")
    chosen = options.parse_args()
    size = decoder.SIZES[chosen.size]
    copy, read = card_speeds()
    name = torch.cuda.get_device_name()
    print(f"{name}: copies {copy:.0f} GB/s, reads {read:.0f} GB/s", flush=True)
    on_card = random_weights(size)
    weights = {name: tensor.cpu().numpy() for name, tensor in on_card.items()}
    total = sum(array.nbytes for array in weights.values())
    print(f"{total / 2e9:.2f} B parameters, {total / 1e9:.2f} GB", flush=True)
    room = -(-(chosen.context + 64) // 64) * 64
    table = []
    for batch in chosen.batches:
        begin = time.monotonic()
        plan = decoder.build(
            size,
            weights,
            batch=batch,
            room=room,
            prompt=chosen.prompt,
            device=trt.DeviceType.GPU,
            timing_cache=chosen.timing_cache,
        )
        print(f"batch {batch}: built in {time.monotonic() - begin:.1f} s", flush=True)
        rng = np.random.default_rng(1)
        prompt = torch.from_numpy(rng.integers(0, size.vocabulary, (batch, chosen.prompt))).cuda()
        rows = {}
        with torch.inference_mode():
            peer = Peer(size, on_card, batch, room)
            ours = Ours(plan, batch, chosen.prompt)
            if chosen.layers:
                print(
                    layer_times(ours.engine, 1), layer_times(ours.engine, 0), sep="\n", flush=True
                )
            print(f"  {compared(ours, peer, prompt)}", flush=True)
            rows["ours, Python"] = ours_by_python(ours, chosen.context)
            print("  ours: {:.3f} ms, {:.4f} ms".format(*rows["ours, Python"]), flush=True)
            del ours
            if not chosen.no_program:
                times = ours_by_program(bytes(plan), prompt.cpu().numpy(), chosen.context)
                rows["ours, program"] = times
                print("  program: {:.3f} ms, {:.4f} ms".format(*times), flush=True)
            rows |= peer_times(peer, prompt, chosen.context, chosen.peers)
        peers = [times[1] for name, times in rows.items() if not name.startswith("ours")]
        for name, (first, each) in rows.items():
            speed = total / each / 1e6
            table.append(
                f"| {batch} | {name} | {first:.2f} | {each:.4f} | {1000 * batch / each:.0f} | {speed:.0f} | "
                f"{speed / copy:.2f} | {each / min(peers, default=float('nan')):.2f} |"
            )
    text = "\n".join(
        [
            "| batch | | prefill, ms | a token, ms | tokens/s | GB/s of weights | of copying | of the faster peer |",
            "|---|---|---|---|---|---|---|---|",
            *table,
        ]
    )
    print(text)
    if chosen.markdown:
        Path(chosen.markdown).write_text(text + "\n")


if __name__ == "__main__":
    main()
