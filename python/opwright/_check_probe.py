"""A plugin with its functions watched, in an engine of its own, run on memory with guard bytes."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core
from ._check_memory import PaddedMemory, loaded, stored
from ._core import DataType, TensorFormat
from ._core._plugin import AutoTuneCombination, Definition, TensorDesc
from ._types import nptype
from .plugin._decorators import Plugin

# What memory holds before a run, as two values of a byte: what depends on it differs between them.
PATTERNS = (0x5A, 0xA5)

_DATA_TYPES = (
    DataType.FLOAT,
    DataType.HALF,
    DataType.INT8,
    DataType.UINT8,
    DataType.INT32,
    DataType.INT64,
    DataType.BOOL,
    DataType.BF16,
    DataType.FP8,
)


def data_type(dtype: np.dtype) -> DataType:
    """The engine's type of an array's."""
    for candidate in _DATA_TYPES:
        try:
            if np.dtype(nptype(candidate)) == dtype:
                return candidate
        except TypeError:
            continue  # ml_dtypes is not installed
    raise TypeError(f"no tensor of a network has the type {dtype}: convert the example's input")


@dataclass(frozen=True)
class Combination:
    """Types and formats of inputs and outputs, and a tactic (0: none)."""

    types: tuple[DataType, ...]
    formats: tuple[TensorFormat, ...]
    tactic: int

    def __str__(self) -> str:
        ports = (
            f"{t.name} {f.name}" if f != TensorFormat.LINEAR else t.name
            for t, f in zip(self.types, self.formats)
        )
        return ", ".join(ports) + (f", tactic {self.tactic}" if self.tactic else "")


@dataclass
class Function:
    """One of the user's functions and the attributes that it takes, as places."""

    call: Callable[..., Any]
    attributes: list[int] = field(default_factory=list)
    wants_tactic: bool = False


def _by_position(call: Callable[..., Any], keywords: Sequence[str]) -> Callable[..., Any]:
    """A function whose last parameters are keyword-only as one that takes all by position."""
    if not keywords:
        return call

    @functools.wraps(call)
    def function(*arguments: Any) -> Any:
        count = len(arguments) - len(keywords)
        return call(*arguments[:count], **dict(zip(keywords, arguments[count:])))

    return function


class _Capture:
    """Stands in for a definition, to learn what was decorated."""

    def __init__(self, plugin: Plugin):
        self.impl: Function | None = None
        self.autotune: Function | None = None
        self.aot: Function | None = None
        for apply in plugin.functions.values():
            apply(self)  # type: ignore[arg-type]

    def set_impl(
        self,
        device: Any,
        call: Any,
        attributes: list[int],
        wants_tactic: bool,
        keywords: list[str],
    ) -> None:
        if device != _core.DeviceType.GPU:
            self.impl = Function(_by_position(call, keywords), attributes, wants_tactic)

    def set_autotune(self, call: Any, attributes: list[int], keywords: list[str]) -> None:
        self.autotune = Function(_by_position(call, keywords), attributes)

    def set_aot_impl(self, call: Any, attributes: list[int], keywords: list[str]) -> None:
        self.aot = Function(_by_position(call, keywords), attributes)


class Probe:
    """The plugin with wrapped functions: they tell what they saw."""

    def __init__(self, plugin: Plugin):
        captured = _Capture(plugin)
        self.plugin = plugin
        self.register = _by_position(
            plugin.sources["register"],
            [a.name for a in plugin.signature.attributes if a.is_keyword_only],
        )
        self.impl, self.autotune, self.aot = captured.impl, captured.autotune, captured.aot
        self.num_inputs = len(plugin.signature.tensors)
        self.num_outputs = plugin.signature.num_outputs
        # What the functions saw last.
        self.aliased: list[int | None] = [None] * self.num_outputs
        self.addresses: list[int] = []
        self.shapes: list[tuple[int, ...]] = []
        self.combination: Combination | None = None
        self.values: dict[str, Any] = {}
        # Where set, calls of impl wait for each other.
        self.barrier: threading.Barrier | None = None

    def _watched_register(
        self, combination: Combination | None, *positional: Any, **keywords: Any
    ) -> Any:
        """What `register` makes, of the types that the combination has: then the engine converts
        no output, so that the plugin writes to the network's own."""
        arguments = (*positional, *keywords.values())
        made = self.register(*arguments)
        inputs = arguments[: self.num_inputs]
        descs = made if isinstance(made, (tuple, list)) else [made]
        for o, desc in enumerate(descs[: self.num_outputs]):
            if getattr(desc, "is_aliased", False):
                source = desc.get_aliased()
                self.aliased[o] = next(i for i, x in enumerate(inputs) if x is source)
            elif combination is not None and isinstance(desc, TensorDesc):
                desc.dtype = combination.types[self.num_inputs + o]
        return made

    def _look(self, function: Function, arguments: tuple[Any, ...]) -> list[Any]:
        inputs = arguments[: self.num_inputs]
        count = self.num_inputs + len(function.attributes)
        ports = [*inputs, *arguments[count]]
        tactic = arguments[count + 2] if function.wants_tactic else 0
        self.combination = Combination(
            tuple(p.dtype for p in ports), tuple(p.format for p in ports), tactic
        )
        self.addresses = [p.data_ptr for p in ports]
        self.shapes = [tuple(p.shape) for p in ports]
        names = [self.plugin.signature.attributes[i].name for i in function.attributes]
        self.values = dict(zip(names, arguments[self.num_inputs : count]))
        return ports

    def _watched_impl(self, *arguments: Any) -> Any:
        assert self.impl is not None
        self._look(self.impl, arguments)
        barrier = self.barrier
        if barrier is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(5)
        return self.impl.call(*arguments)

    def define(self, combination: Combination | None = None) -> Definition:
        """The watched plugin, which can run in this combination alone where one is given."""
        signature = self.plugin.signature
        namespace, name = self.plugin.id.split("::")
        definition = Definition(
            namespace,
            name,
            signature.parameters,
            self.num_outputs,
            signature.text,
            functools.partial(self._watched_register, combination),
        )
        if self.impl is not None:
            definition.set_impl(
                None, self._watched_impl, self.impl.attributes, self.impl.wants_tactic
            )
        if self.autotune is not None:
            call, attributes = self.autotune.call, self.autotune.attributes
            if combination is not None:
                chosen = AutoTuneCombination(
                    ", ".join(t.name for t in combination.types),
                    ", ".join(f.name for f in combination.formats),
                    [combination.tactic] if combination.tactic else None,
                )
                call, attributes = lambda *_: [chosen], []
            definition.set_autotune(call, attributes)
        if self.aot is not None:
            definition.set_aot_impl(self.aot.call, self.aot.attributes)
        return definition

    def combinations(self, inputs: Sequence[np.ndarray], fields: list[Any]) -> list[Combination]:
        """All that the engine would compare for these inputs, with FP16 and BF16 allowed."""
        seen: dict[Combination, None] = {}
        definition = self.define()
        attributes = list(range(len(self.plugin.signature.attributes)))
        look = Function(lambda: None, attributes, True)

        def note(*arguments: Any) -> None:
            ports = self._look(look, arguments)
            assert self.combination is not None
            seen[self.combination] = None
            for port in ports[self.num_inputs :]:
                if port.ndim == 0:  # perhaps a size tensor, whose value the engine checks
                    np.asarray(port)[...] = 0

        definition.set_impl(None, note, attributes, True)
        types = [data_type(x.dtype) for x in inputs]
        shapes = [x.shape for x in inputs]
        engine = self.build(definition, types, shapes, fields, tune=True)
        EngineRun(engine, self).run(inputs)  # a single combination was not timed
        return list(seen)

    def build(self, definition: Definition, *arguments: Any, **options: Any) -> _core.ICudaEngine:
        """`build_alone`, with an engine that calls the watched functions."""
        with self.findable(definition):
            return build_alone(definition, *arguments, **options)

    @contextlib.contextmanager
    def findable(self, definition: Definition) -> Iterator[None]:
        """Engines that are loaded meanwhile call the watched functions."""
        definition.register()
        try:
            yield
        finally:
            if self.plugin.registered:
                self.plugin.definition.register()
            else:
                definition.deregister()


def build_alone(
    definition: Definition,
    types: Sequence[DataType],
    shapes: Sequence[Sequence[int]],
    fields: list[Any],
    *,
    formats: Sequence[TensorFormat] | None = None,
    ranges: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]] | None = None,
    aot: bool = False,
    tune: bool = False,
) -> _core.ICudaEngine:
    """The engine of a network that is the plugin alone.

    :param shapes: of the inputs, with -1 where `ranges` has (min, opt, max).
    :param formats: of inputs and outputs; linear by default.
    :param tune: whether all combinations are to be run; False takes the first.
    """
    builder = _core.Builder(_core.Logger(_core.Logger.ERROR))
    network = builder.create_network()
    config = builder.create_builder_config()
    config.default_device_type = _core.DeviceType.CPU
    config.timing = tune
    config.avg_timing_iterations = 1
    for flag in (_core.BuilderFlag.FP16, _core.BuilderFlag.BF16):
        config.set_flag(flag)
    inputs = [network.add_input(f"x{i}", t, s) for i, (t, s) in enumerate(zip(types, shapes))]
    layer = network.add_plugin(definition.call(inputs, fields), aot=aot)
    outputs = [layer.get_output(o) for o in range(layer.num_outputs)]
    for o, tensor in enumerate(outputs):
        tensor.name = f"y{o}"
        network.mark_output(tensor)
    for tensor, format in zip([*inputs, *outputs], formats or ()):
        tensor.allowed_formats = 1 << int(format)
    if ranges is not None:
        profile = builder.create_optimization_profile()
        for i, (low, opt, high) in enumerate(ranges):
            profile.set_shape(f"x{i}", low, opt, high)
        config.add_optimization_profile(profile)
    return builder.build_engine_with_config(network, config)


@dataclass
class Result:
    """What a run left."""

    outputs: list[np.ndarray]
    damage: str
    """Of guard bytes, as text."""
    changed_inputs: list[int]


class EngineRun:
    """An engine of `build_alone` with a context."""

    def __init__(self, engine: _core.ICudaEngine, probe: Probe, aot: bool = False):
        self.engine, self._probe, self._aot = engine, probe, aot
        self._context = engine.create_execution_context()
        count = probe.num_inputs
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self._inputs, self._outputs = names[:count], names[count:]

    def run(
        self, inputs: Sequence[np.ndarray], inside: int = PATTERNS[0], outside: int = PATTERNS[0]
    ) -> Result:
        """Runs on copies of the inputs between guard bytes.

        :param inside: what outputs hold before, as the value of each byte.
        :param outside: the value of guard bytes.
        """
        engine, context = self.engine, self._context
        memory: dict[str, PaddedMemory] = {}
        before: list[bytes] = []
        for name, x in zip(self._inputs, inputs):
            data = stored(x, engine.get_tensor_format(name)).reshape(-1).view(np.uint8)
            memory[name] = PaddedMemory(data.size, 0, outside)
            memory[name].body[...] = data
            before.append(data.tobytes())
            context.set_input_shape(name, x.shape)
            context.set_tensor_address(name, memory[name].address)
        aliased = self._probe.aliased
        for o, name in enumerate(self._outputs):
            source = aliased[o]
            if source is not None:
                memory[name] = memory[self._inputs[source]]
            else:
                memory[name] = PaddedMemory(context.get_max_output_size(name), inside, outside)
            context.set_tensor_address(name, memory[name].address)
        context.execute_async_v3(0)

        outputs = []
        # An extent that depends on data has the place of its upper bound. Only impl tells it.
        known = [] if self._aot else self._probe.shapes[len(inputs) :]
        for o, name in enumerate(self._outputs):
            dtype = np.dtype(nptype(engine.get_tensor_dtype(name)))
            format = engine.get_tensor_format(name)
            shape = tuple(context.get_tensor_shape(name))
            bound = known[o] if known else shape
            y = loaded(memory[name].body, dtype, format, bound)
            outputs.append(np.array(y[tuple(slice(extent) for extent in shape)]))
        damage = ""
        for name, padded in memory.items():
            if padded.damage():
                kind = "input" if name in self._inputs else "output"
                damage = f"{kind} {name[1:]}: {padded.damage()}"
                break
        changed = [
            i
            for i, name in enumerate(self._inputs)
            if i not in aliased and memory[name].body.tobytes() != before[i]
        ]
        self.addresses = [memory[name].address for name in [*self._inputs, *self._outputs]]
        return Result(outputs, damage, changed)

    def unseen(self) -> list[int]:
        """Inputs and outputs, counted together, for which the plugin got other memory in the last
        run, since the engine converts them."""
        own = self.addresses if self._aot else self._probe.addresses
        return [i for i, (a, b) in enumerate(zip(self.addresses, own)) if a != b]
