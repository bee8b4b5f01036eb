"""Engines of a single plugin, run on memory between guard bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import _core
from .._types import nptype
from .memory import PaddedMemory, loaded, stored
from .subject import PATTERNS, Call, Combination, Subject, Watch


def _ranges(corners: Sequence[np.ndarray]) -> tuple[list[int], tuple[list[int], ...]]:
    """The shape of an input that takes all these arrays, with -1 for varying extents, and (min,
    opt, max)."""
    extents = list(zip(*(x.shape for x in corners)))
    shape = [e[0] if len(set(e)) == 1 else -1 for e in extents]
    return shape, ([min(e) for e in extents], [e[0] for e in extents], [max(e) for e in extents])


def build(
    subject: Subject,
    watch: Watch,
    call: Call,
    corners: Sequence[Sequence[np.ndarray]] | None = None,
    *,
    aot: bool = False,
) -> _core.ICudaEngine:
    """Builds the engine of a network with only the plugin, in the watch's chosen combination. If
    none is chosen, all combinations are run.

    :param corners: inputs of all shapes that it must take, the typical ones first; by default
        those of the call.
    """
    chosen = watch.chosen
    builder = _core.Builder(_core.Logger(_core.Logger.ERROR))
    network = builder.create_network()
    config = builder.create_builder_config()
    config.default_device_type = watch.device = subject.device
    config.cuda_graphs = False  # each run must call the plugin
    config.timing = chosen is None
    config.avg_timing_iterations = 1
    for flag in (_core.BuilderFlag.FP16, _core.BuilderFlag.BF16):
        config.set_flag(flag)
    corners = corners or [call.arrays]
    ranges = [_ranges(arrays) for arrays in zip(*corners)]
    types = call.types(chosen)
    inputs = [
        network.add_input(f"x{i}", dtype, shape)
        for i, (dtype, (shape, _)) in enumerate(zip(types, ranges))
    ]
    with subject.installed(watch, call, builder.get_plugin_registry()) as add_layer:
        layer = add_layer(network, inputs, aot)
        outputs = [layer.get_output(o) for o in range(layer.num_outputs)]
        for o, tensor in enumerate(outputs):
            tensor.name = f"y{o}"
            network.mark_output(tensor)
        if chosen is not None:
            ports = [*(inputs[i] for i in call.ports), *outputs]
            for tensor, format in zip(ports, chosen.formats):
                tensor.allowed_formats = 1 << int(format)
        profile = builder.create_optimization_profile()
        for i, (shape, (low, opt, high)) in enumerate(ranges):
            if -1 in shape:
                profile.set_shape(f"x{i}", low, opt, high)
        for i in call.shape_inputs:
            values = np.stack([arrays[i].reshape(-1) for arrays in corners])
            limits = values.min(0), values[0], values.max(0)
            profile.set_shape_input(f"x{i}", *(v.tolist() for v in limits))
        if call.shape_inputs or any(-1 in shape for shape, _ in ranges):
            config.add_optimization_profile(profile)
        return builder.build_engine_with_config(network, config)


def combinations(subject: Subject, call: Call, clones: bool = True) -> list[Combination]:
    """All combinations that the engine would compare for this call, with FP16 and BF16 allowed."""
    watch = Watch(pretends=True, clones=clones)
    aot = not subject.call_name
    engine = build(subject, watch, call, aot=aot)
    EngineRun(engine, watch, call, aot).run(call.arrays)  # a single combination was not timed
    return list(watch.seen)


@dataclass
class Result:
    """Result of a run."""

    outputs: list[np.ndarray]
    damage: str
    """A description of overwritten guard bytes; empty: none."""
    changed_inputs: list[int]


class EngineRun:
    """An engine of `build` with a context."""

    def __init__(self, engine: _core.ICudaEngine, watch: Watch, call: Call, aot: bool = False):
        self.engine, self.watch, self.call, self._aot = engine, watch, call, aot
        self._context = engine.create_execution_context()
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self._inputs = [n for n in names if n.startswith("x")]
        self._outputs = [n for n in names if n.startswith("y")]

    def run(
        self,
        inputs: Sequence[np.ndarray],
        inside: int = PATTERNS[0],
        outside: int = PATTERNS[0],
        scratch: int = PATTERNS[0],
    ) -> Result:
        """Runs on copies of the inputs between guard bytes.

        :param inside: the value of each byte of the outputs before the run.
        :param outside: the value of guard bytes.
        :param scratch: the value of each byte of the workspace before the run.
        """
        engine, context, watch = self.engine, self._context, self.watch
        watch.scratch, watch.outside, watch.damage = scratch, outside, ""
        memory: dict[str, PaddedMemory] = {}
        before: list[bytes] = []
        for name, x in zip(self._inputs, inputs):
            data = stored(x, engine.get_tensor_format(name)).reshape(-1).view(np.uint8)
            is_host = engine.get_tensor_location(name) == _core.TensorLocation.HOST
            device = _core.DeviceType.CPU if is_host else watch.device
            memory[name] = PaddedMemory(data.size, 0, outside, device)
            memory[name].body[...] = data
            before.append(data.tobytes())
            context.set_input_shape(name, x.shape)
            context.set_tensor_address(name, memory[name].address)
        for o, name in enumerate(self._outputs):
            if o in watch.aliased:
                memory[name] = memory[self._inputs[watch.aliased[o]]]
            else:
                size = context.get_max_output_size(name)
                memory[name] = PaddedMemory(size, inside, outside, watch.device)
            context.set_tensor_address(name, memory[name].address)
        context.execute_async_v3(0)
        for padded in memory.values():
            padded.fetch()

        outputs = []
        # Memory for an extent that depends on data has its upper bound. Only a call tells the
        # extent.
        known = [] if self._aot else watch.shapes[-len(self._outputs) :]
        for o, name in enumerate(self._outputs):
            dtype = np.dtype(nptype(engine.get_tensor_dtype(name)))
            format = engine.get_tensor_format(name)
            shape = tuple(context.get_tensor_shape(name))
            y = loaded(memory[name].body, dtype, format, known[o] if known else shape)
            outputs.append(np.array(y[tuple(slice(extent) for extent in shape)]))
        damage = watch.damage
        for name, padded in memory.items():
            if not damage and padded.damage():
                kind = "input" if name in self._inputs else "output"
                damage = f"{kind} {name[1:]}: {padded.damage()}"
        changed = [
            i
            for i, name in enumerate(self._inputs)
            if i not in watch.aliased.values() and memory[name].body.tobytes() != before[i]
        ]
        self._addresses = {name: padded.address for name, padded in memory.items()}
        return Result(outputs, damage, changed)

    def unseen(self) -> list[str]:
        """Names of inputs and outputs that the engine converts, so that the plugin got other memory
        in the last run."""
        if self._aot:
            return []
        ports = [*(self._inputs[i] for i in self.call.ports), *self._outputs]
        pairs = zip(ports, self.watch.addresses)
        return [
            f"{'input' if name in self._inputs else 'output'} {name[1:]}"
            for name, seen in pairs
            if self._addresses[name] != seen
        ]
