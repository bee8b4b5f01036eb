"""The backend of torch.compile: parts of a graph become engines, and PyTorch runs the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._sympy.printers import PythonPrinter

from .. import _core
from ._complex import is_complex
from ._converters import CONVERTERS
from ._export import decompositions
from ._fold import fold_constants, remove_conversions
from ._importer import (
    Importer,
    describe,
    input_type,
    is_double_number,
    is_number,
    obstacle,
    value_of,
    writes_into,
)
from ._random import RANDOM
from ._writer import Unsupported, network_type

_log = logging.getLogger("opwright.torch")
_GROWTH = 2  # factor by which a range grows when an engine is too small for a shape
_VIEWS = {
    getattr(torch.ops.aten, name)
    for name in "t permute transpose expand slice select unsqueeze squeeze view detach alias".split()
}


@dataclasses.dataclass
class Options:
    """The options of ``torch.compile(..., options={...})``."""

    fp16: bool = False
    bf16: bool = False
    timing: bool = True
    timing_cache: str | None = None
    min_nodes: int = 3
    """A part of fewer operators stays with PyTorch, unless it is the whole graph."""


class _TimingCaches:
    """A timing cache for each kind of device, which all graphs of the process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caches: dict[str, _core.ITimingCache] = {}

    def use(self, config: _core.IBuilderConfig, path: str | None) -> _core.ITimingCache:
        fresh = config.create_timing_cache(b"")
        with self._lock:
            key = f"{fresh.device_identity} {path}"
            if key not in self._caches:
                stored = None if path is None else _core.ITimingCache.load(path)
                matches = stored is not None and stored.device_identity == fresh.device_identity
                self._caches[key] = stored if matches and stored is not None else fresh
            cache = self._caches[key]
        config.set_timing_cache(cache, False)
        return cache


_timing_caches = _TimingCaches()


_TYPICAL = 8191  # example of an extent that depends on data; only its place in strides matters


def _hint(extent: Any) -> int:
    if not isinstance(extent, torch.SymInt):
        return extent
    if extent.node.has_hint():
        return int(extent.node.hint)
    expr = extent.node.expr
    return int(expr.xreplace({symbol: _TYPICAL for symbol in expr.free_symbols}))


def _order(meta: torch.Tensor) -> list[int] | None:
    """The axes in the order of a tensor's memory, the slowest first; None if they are in order."""
    strides = [_hint(stride) for stride in meta.stride()]
    axes = sorted(range(meta.dim()), key=lambda axis: -strides[axis])
    expected, dense = 1, True
    for axis in reversed(range(meta.dim())):
        extent = _hint(meta.shape[axis])
        dense = dense and (extent == 1 or strides[axis] == expected)
        expected *= extent
    return None if dense or 0 in strides else axes


# A graph ends with one of these for each input that it changes.
_COPY = torch.ops.aten.copy_.default


class EngineModule(torch.nn.Module):
    """A part of a graph as an engine, which is built in its first call.

    :param graph: the part.
    :param weights: tensors that are a part of the engine, by the placeholder's name.
    """

    def __init__(
        self,
        graph: GraphModule,
        weights: dict[str, torch.Tensor],
        device: torch.device,
        options: Options,
    ):
        super().__init__()
        self.graph_module = [graph]  # in a list: not a submodule
        self.weights = weights
        self.options = options
        self.device = device
        self.inputs = [
            node
            for node in graph.graph.nodes
            if node.op == "placeholder" and node.name not in weights
        ]
        (output,) = [node for node in graph.graph.nodes if node.op == "output"]
        results = output.args[0]
        self.results = list(results) if isinstance(results, (list, tuple)) else [results]
        self.is_single = not isinstance(results, (list, tuple))
        metas = [value_of(node) for node in self.results]
        self.shapes = [(_order(meta), is_complex(meta)) for meta in metas]
        """The order of each result's axes, and whether the result is complex."""
        self.is_plain = all(shape == (None, False) for shape in self.shapes)
        self.updates: list[tuple[int, int]] = []
        """Results that an input becomes, as (number of the result, number of the input)."""
        self._is_impure = False  # tells PyTorch to call the module even if its results are unused
        self.engine: Any = None
        self.most: dict[str, list[int]] = {}
        self.numbers: list[int] = []
        self._lock = threading.Lock()

    def network(self, builder: _core.Builder) -> tuple[_core.INetworkDefinition, list[Node]]:
        """The part as a network, and the inputs that are numbers which the network takes."""
        flags = 0
        if not (self.options.fp16 or self.options.bf16):
            flags = 1 << int(_core.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(flags)
        (graph,) = self.graph_module
        importer = Importer(network, lambda name: getattr(graph, name))
        importer.writer.on_gpu = self.device.type != "cpu"
        importer.in_place |= {self.results[result] for result, _ in self.updates}
        numbers = []
        for node in graph.graph.nodes:
            value = value_of(node)
            if node.op != "placeholder":
                continue
            if node.name in self.weights:
                importer.bind_constant(node, self.weights[node.name])
            elif isinstance(value, torch.Tensor):
                dtype, shape = input_type(value)
                extents = [-1 if isinstance(e, torch.SymInt) else e for e in shape]
                dtype = torch.float32 if is_double_number(node) else dtype
                tensor = network.add_input(node.name, network_type(dtype), extents)
                for axis, extent in enumerate(shape):
                    if isinstance(extent, torch.SymInt):
                        tensor.set_dimension_name(axis, str(extent.node.expr))
                importer.bind(node, tensor)
            elif isinstance(value, torch.SymInt):
                numbers.append(node)
        # A number that is an extent of a tensor is known. Other numbers become inputs.
        taken = []
        for node in numbers:
            expr = value_of(node).node.expr
            if not expr.free_symbols <= set(importer.writer.symbols):
                tensor = network.add_input(node.name, _core.DataType.INT64, [1])
                importer.writer.learn_extent(expr, tensor)
                taken.append(node)
        for node in graph.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                importer.add(node)
        for index, node in enumerate(self.results):
            importer.writer.mark_output(importer.output_of(node), f"y{index}")
        return network, taken

    def build(self, args: Sequence[Any]) -> None:
        """Builds the engine for a range of shapes that exceeds those of the arguments."""
        logger = _core._logger("opwright.build")
        builder = _core.Builder(logger)
        network, numbers = self.network(builder)
        config = builder.create_builder_config()
        config._device = _core._parse_device(_device_name(self.device))
        config.timing = self.options.timing
        for name in ("fp16", "bf16"):
            if getattr(self.options, name):
                config.set_flag(getattr(_core.BuilderFlag, name.upper()))
        cache = _timing_caches.use(config, self.options.timing_cache)
        profile = builder.create_optimization_profile()
        is_dynamic = False
        for node, arg in zip(self.inputs, args):
            value = value_of(node)
            if isinstance(value, torch.Tensor):
                open_axes = [isinstance(extent, torch.SymInt) for extent in input_type(value)[1]]
                if any(open_axes):
                    is_dynamic = True
                    shape = input_type(arg)[1]
                    profile.set_shape(node.name, *self._range(node.name, shape, open_axes))
            elif node in numbers:
                is_dynamic = True
                profile.set_shape_input(node.name, *self._range(node.name, [arg], [True]))
        if is_dynamic:
            config.add_optimization_profile(profile)
        engine = builder.build_engine_with_config(network, config)
        if self.options.timing_cache is not None:
            cache.save(self.options.timing_cache)
        self.numbers = [self.inputs.index(node) for node in numbers]
        self.engine = _core.Engine(engine)
        self.engine._set_updates_arguments(bool(self.updates))
        self.copied = [
            (result, source)
            for result, source in self.updates
            if engine.get_aliased_input_tensor(f"y{result}") != self.inputs[source].name
        ]
        names = [network.get_input(i).name for i in range(network.num_inputs)]
        places = {node.name: i for i, node in enumerate(self.inputs)}
        self.places = [places[name] for name in names]
        self.doubles = [i for i, node in enumerate(self.inputs) if is_double_number(node)]
        self.takes_all = self.places == list(range(len(self.inputs)))
        self.pairs = [i for i, node in enumerate(self.inputs) if is_complex(value_of(node))]
        self.takes_all = self.takes_all and not (self.numbers or self.doubles or self.pairs)

    def _range(
        self, name: str, shape: Sequence[int], open_axes: Sequence[bool]
    ) -> tuple[list[int], list[int], list[int]]:
        before = self.most.get(name, [0] * len(shape))
        most = []
        for extent, is_open, largest in zip(shape, open_axes, before):
            grown = extent * _GROWTH if extent > largest else largest
            most.append(max(grown, 1) if is_open else extent)
        self.most[name] = most
        low = [min(1, extent) if is_open else extent for extent, is_open in zip(shape, open_axes)]
        return low, list(shape), most

    def _fits(self, args: Sequence[Any]) -> bool:
        for node, arg in zip(self.inputs, args):
            most = self.most.get(node.name, ())
            extents = arg.shape if isinstance(arg, torch.Tensor) else [arg]
            if any(a > b for a, b in zip(extents, most)):
                return False
        return True

    def forward(self, *args: Any) -> Any:
        if self.engine is None:
            with self._lock:
                if self.engine is None:
                    self.build(args)
        run = self._update if self.updates else self._compute
        try:
            return run(args)
        except _core.Error:
            with self._lock:
                if self._fits(args):
                    raise
                _log.info("an engine is built again for larger shapes")
                self.build(args)
            return run(args)

    def _update(self, args: Sequence[Any]) -> Any:
        """Updates inputs in their own memory if it is dense."""
        given = list(args)
        for _, source in self.updates:
            given[source] = given[source].contiguous()
        made = self._compute(given)
        results = [made] if self.is_single else made
        for result, source in self.updates:
            if (result, source) in self.copied:
                args[source].copy_(results[result])
            elif given[source] is not args[source]:
                args[source].copy_(given[source])
            elif not args[source].is_inference():
                torch.autograd.graph.increment_version(args[source])
        return made

    def _compute(self, args: Sequence[Any]) -> Any:
        if not self.takes_all:
            args = [self._taken(i, args[i]) for i in self.places]
        made = self.engine(*args)
        if self.is_single and self.is_plain:
            return made
        results = list(made.values()) if isinstance(made, dict) else [made]
        for index, (order, is_pair) in enumerate(self.shapes):
            if is_pair:
                results[index] = torch.view_as_complex(results[index])
            if order is not None:
                results[index] = _in_order(results[index], order)
        return results[0] if self.is_single else results

    def _taken(self, index: int, arg: Any) -> Any:
        if index in self.numbers:
            return torch.tensor([arg], dtype=torch.int64)
        if index in self.pairs:
            return torch.view_as_real(arg.resolve_conj())
        return arg.to(self.device, torch.float32) if index in self.doubles else arg


def _in_order(y: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same elements in the memory order that PyTorch would produce."""
    back = sorted(range(len(order)), key=lambda i: order[i])
    return y.permute(*order).contiguous().permute(*back)


def _device_name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"


class _Support(OperatorSupportBase):
    """Decides which nodes become layers, and keeps the reasons for others."""

    def __init__(self, device: torch.device):
        self.device = device
        self.refused: dict[str, str] = {}

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        if node.op != "call_function" or is_number(node) or node.target is _COPY:
            return False
        if node.name not in self.refused:
            reason = obstacle(node) or self._elsewhere(node)
            if reason:
                self.refused[node.name] = f"{describe(node)}: {reason}"
        return node.name not in self.refused

    def _elsewhere(self, node: Node) -> str:
        if node.target in RANDOM:
            return "PyTorch draws random numbers, whose seed it has"
        for each in (node, *node.all_input_nodes):
            value = value_of(each)
            if each.op == "get_attr" or is_double_number(each):
                continue
            if isinstance(value, torch.Tensor) and value.device != self.device:
                return f"a tensor on {value.device}, where the graph is on {self.device}"
        return ""


def _device_of(graph: GraphModule) -> torch.device:
    """The device of most of a graph's tensors."""
    counts: dict[torch.device, int] = {}
    for node in graph.graph.nodes:
        value = value_of(node)
        if isinstance(value, torch.Tensor):
            counts[value.device] = counts.get(value.device, 0) + 1
    return max(counts, key=lambda device: counts[device]) if counts else torch.device("cpu")


def _numbers_from_inputs(graph: GraphModule) -> None:
    """Makes numbers depend on only the graph's inputs, so that they do not tie parts together."""
    sources: dict[sympy.Symbol, Node] = {}
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for node in placeholders:
        value = value_of(node)
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            sources[value.node.expr] = node
    for node in list(graph.graph.nodes):
        value = value_of(node)
        if node.op != "call_function" or not isinstance(value, torch.SymInt):
            continue
        expr = value.node.expr
        symbols = sorted(expr.free_symbols, key=str)
        if not all(symbol in sources for symbol in symbols):
            continue
        if expr in sources:
            node.replace_all_uses_with(sources[expr])
        else:
            with graph.graph.inserting_after(placeholders[-1]):
                function = _function_of(expr, symbols)
                made = graph.graph.call_function(
                    _Number(function), tuple(sources[symbol] for symbol in symbols)
                )
                made.meta["val"] = value
            node.replace_all_uses_with(made)
        graph.graph.erase_node(node)


def _call_effects(graph: GraphModule) -> None:
    """Replaces calls of PyTorch's `with_effects` by direct calls of the operators that have
    effects.

    `with_effects` is written in Python and takes longer than most of these operators. Its tokens
    keep the order of calls while a graph is changed. In the final code the order is fixed.
    """
    with_effects = getattr(torch.ops.higher_order, "with_effects", None)
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or node.target is not with_effects:
            continue
        token, target, *args = node.args
        picked = all(user.target is operator.getitem for user in node.users)
        if not picked or not isinstance(target, torch._ops.OpOverload):
            continue
        with graph.graph.inserting_before(node):
            call = graph.graph.call_function(target, tuple(args), dict(node.kwargs))
        has_several = len(target._schema.returns) > 1
        for user in list(node.users):
            index = user.args[1]
            if index > 0 and has_several:
                user.args = (call, index - 1)
                continue
            user.replace_all_uses_with(call if index > 0 else token)
            graph.graph.erase_node(user)
        graph.graph.erase_node(node)


class _Number:
    """Computes an extent from other extents."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self.__name__ = "extent"
        self.__module__ = __name__

    def __call__(self, *values: int) -> int:
        return self._function(*values)


def _function_of(expr: Any, symbols: Sequence[Any]) -> Callable[..., Any]:
    """A function of the expression, printed as in PyTorch's guards."""
    text = PythonPrinter().doprint(expr)
    return eval(f"lambda {', '.join(map(str, symbols))}: {text}", {"math": math, "torch": torch})


class _Compiled:
    """A graph whose parts are engines. It is called with a list, which it may clear.

    :param weights: tensors that are a part of engines, by the index of the graph's argument.
    """

    _boxed_call = True

    def __init__(
        self, graph: GraphModule, weights: dict[int, torch.Tensor], engines: list[EngineModule]
    ):
        self._graph = graph
        self._engines = engines
        self._names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        self._seen = [(index, tensor, *_state(tensor)) for index, tensor in weights.items()]
        self._run = _only_engine(graph) or _code_of(graph)

    def __call__(self, args: list[Any]) -> Any:
        for index, tensor, address, version in self._seen:
            given = args[index]
            if (
                given is tensor
                and given.data_ptr() == address
                and (version is None or given._version == version)
            ):
                continue
            if _state(given) != (address, version):
                self._renew(args)
                break
        result = self._run(args)
        args.clear()
        return result

    def _renew(self, args: Sequence[Any]) -> None:
        """Rebuilds the engines after parameters in them have changed."""
        _log.info("parameters have changed: engines are built again")
        indices = [index for index, *_ in self._seen]
        for engine in self._engines:
            with engine._lock:
                for index in indices:
                    name = self._names[index]
                    if name in engine.weights:
                        engine.weights[name] = args[index]
                engine.engine = None
        self._seen = [(index, args[index], *_state(args[index])) for index in indices]


def _code_of(graph: GraphModule) -> Callable[[list[Any]], Any]:
    """A function that runs a graph's nodes one by one."""
    if isinstance(graph, _LazyGraphModule):
        graph.real_recompile()  # otherwise each call would check whether it was done
    for name, module in graph.named_children():
        if isinstance(module, EngineModule):
            graph.__dict__[name] = module.forward  # found first, without the module's hooks
    forward = graph.forward
    return lambda args: forward(*args)


def _only_engine(graph: GraphModule) -> Callable[[list[Any]], Any] | None:
    """A function that runs the engine of a whole graph; None if the graph contains anything
    else."""
    nodes = {
        op: [node for node in graph.graph.nodes if node.op == op]
        for op in ("placeholder", "get_attr", "call_method", "call_module", "call_function")
    }
    results = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    if len(nodes["call_module"]) != 1 or nodes["get_attr"] or nodes["call_method"]:
        return None
    (call,) = nodes["call_module"]
    engine = graph.get_submodule(str(call.target))
    if not isinstance(engine, EngineModule) or not isinstance(results, (list, tuple)):
        return None
    if not set(call.args) <= set(nodes["placeholder"]):
        return None
    run = engine.forward
    taken = [nodes["placeholder"].index(node) for node in call.args]
    if engine.is_single:
        if nodes["call_function"] or list(results) not in ([call], []):
            return None
        if not results:
            return lambda args: (run(*[args[index] for index in taken]), ())[1]
        return lambda args: (run(*[args[index] for index in taken]),)
    if any(node.target is not operator.getitem for node in nodes["call_function"]):
        return None
    picked = [node.args if isinstance(node, Node) else None for node in results]
    numbers = [each[1] for each in picked if each is not None and each[0] is call]
    if len(numbers) != len(results):
        return None
    if numbers != list(range(len(engine.results))):
        return lambda args: _chosen(run(*[args[index] for index in taken]), numbers)
    return lambda args: run(*[args[index] for index in taken])


def _chosen(results: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    return [results[number] for number in numbers]


def _state(tensor: torch.Tensor) -> tuple[int, int | None]:
    """A key that changes if the tensor is written to or gets other memory."""
    return tensor.data_ptr(), None if tensor.is_inference() else tensor._version


def _is_view(node: Node) -> bool:
    return getattr(node.target, "overloadpacket", None) in _VIEWS


def _leave_last_views(graph: GraphModule, support: _Support) -> None:
    """Leaves views at the end of a part to PyTorch, where they cost nothing and have PyTorch's
    strides."""
    for node in reversed(list(graph.graph.nodes)):
        if node.op != "call_function" or not _is_view(node) or node.name in support.refused:
            continue
        if not any(support.is_node_supported({}, user) for user in node.users):
            support.refused[node.name] = ""


def _count(graph: GraphModule) -> int:
    """The number of operators, without copies to updated inputs."""
    nodes = graph.graph.nodes
    return sum(node.op == "call_function" and node.target is not _COPY for node in nodes)


def _attributes(graph: GraphModule) -> dict[str, torch.Tensor]:
    """The tensors that a graph itself holds, by node name."""
    found = {n.name: getattr(graph, str(n.target)) for n in graph.graph.nodes if n.op == "get_attr"}
    return {name: each for name, each in found.items() if isinstance(each, torch.Tensor)}


def _split(
    graph: GraphModule, weights: dict[str, torch.Tensor], options: Options
) -> tuple[list[EngineModule], dict[str, str]]:
    """Replaces parts of a graph by engines, in place. Also returns which nodes stay, and why."""
    support = _Support(_device_of(graph))
    weights = weights | _attributes(graph)
    while True:
        _leave_last_views(graph, support)
        partitioner = CapabilityBasedPartitioner(graph, support, allows_single_node_partition=True)
        partitions = [set(part.nodes) for part in partitioner.propose_partitions()]
        total = _count(graph)
        again = False
        for nodes in partitions:
            if len(nodes) < options.min_nodes and sum(map(len, partitions)) < total:
                for node in nodes:
                    support.refused[node.name] = (
                        f"{describe(node)}: with fewer than min_nodes={options.min_nodes} others"
                    )
                again = True
        if again:
            continue
        trial = GraphModule(graph, _copy(graph))
        partitioner = CapabilityBasedPartitioner(trial, support, allows_single_node_partition=True)
        fused = partitioner.partition_and_fuse()
        engines, refusals = _engines(fused, weights, support.device, options)
        if not refusals:
            graph.graph = fused.graph
            for name, module in fused.named_children():
                graph.add_module(name, module)
            graph.recompile()
            return engines, {n: reason for n, reason in support.refused.items() if reason}
        support.refused |= refusals


def _copy(graph: GraphModule) -> torch.fx.Graph:
    copied = torch.fx.Graph()
    mapping: dict[Node, Node] = {}
    output = copied.graph_copy(graph.graph, mapping)
    made = copied.output(output)
    made.meta = dict(next(n for n in graph.graph.nodes if n.op == "output").meta)
    return copied


def _engines(
    fused: GraphModule,
    weights: dict[str, torch.Tensor],
    device: torch.device,
    options: Options,
) -> tuple[list[EngineModule], dict[str, str]]:
    """Replaces each fused module by an engine. Also returns the nodes that no layer computes."""
    engines: list[EngineModule] = []
    refusals: dict[str, str] = {}
    sources: dict[Any, Node] = {}
    for node in list(fused.graph.nodes):
        value = value_of(node)
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            sources.setdefault(value.node.expr, node)
        if node.op != "call_module":
            continue
        part = getattr(fused, str(node.target))
        placeholders = [each for each in part.graph.nodes if each.op == "placeholder"]
        given = dict(zip(placeholders, node.args))
        own = {
            inner.name: weights[outer.name]
            for inner, outer in given.items()
            if isinstance(outer, Node) and outer.name in weights
        }
        try:
            module, numbers = _engine_of(part, own, given, sources, device, options)
        except Unsupported as error:
            name = str(error).partition(" ")[0]
            if name not in {each.name for each in part.graph.nodes}:
                refusals |= {
                    n.name: str(error) for n in part.graph.nodes if n.op == "call_function"
                }
            else:
                refusals[name] = str(error)
            continue
        module.inputs = [
            inner
            for inner in module.inputs
            if isinstance(value_of(inner), torch.Tensor) or inner in numbers
        ]
        node.args = tuple(given[inner] for inner in module.inputs)
        _take_copies(node, module)
        setattr(fused, str(node.target), module)
        engines.append(module)
    fused.graph.eliminate_dead_code()
    fused.recompile()
    return engines, refusals


def _take_copies(call: Node, module: EngineModule) -> None:
    """Lets an engine write its results to inputs, and removes the copies that did this."""
    for index, result in enumerate(module.results):
        source = writes_into(result)
        if source is None or source not in module.inputs:
            continue
        outer = call.args[module.inputs.index(source)]
        made: list[Node] = [call]
        if not module.is_single:
            made = [user for user in call.users if user.args[1] == index]
        users = [user for each in made for user in each.users]
        if len(users) != 1 or users[0].target is not _COPY or users[0].args != (outer, made[0]):
            continue
        # Another reader of the input would find a value that is too new or too old.
        if set(outer.users) == {call, users[0]} and not users[0].users:  # type: ignore[union-attr]
            module.updates.append((index, module.inputs.index(source)))
            module._is_impure = True
            call.graph.erase_node(users[0])
            if not module.is_single:
                call.graph.erase_node(made[0])


def _engine_of(
    part: GraphModule,
    weights: dict[str, torch.Tensor],
    given: dict[Node, Any],
    sources: dict[Any, Node],
    device: torch.device,
    options: Options,
) -> tuple[EngineModule, list[Node]]:
    """An engine for a part of a graph, and the placeholders that are numbers which it takes.

    :param given: the values of the part's placeholders in the whole graph. A needed extent that no
        tensor of the part has becomes a further placeholder.
    :param sources: the nodes of the whole graph that are symbols, as far as known.
    """
    while True:
        module = EngineModule(part, weights, device, options)
        try:
            _, numbers = module.network(_core.Builder(_core.Logger(_core.Logger.ERROR)))
            return module, numbers
        except Unsupported as error:
            source = sources.get(error.symbol)
            if source is None or source in given.values():
                raise
        last = [each for each in part.graph.nodes if each.op == "placeholder"][-1:]
        place = part.graph.inserting_after(last[0]) if last else part.graph.inserting_before()
        with place:
            number = part.graph.placeholder(f"extent_{source.name}")
        number.meta["val"] = value_of(source)
        given[number] = source


@contextlib.contextmanager
def _whole_operators() -> Iterator[None]:
    """Keeps operators that have a layer whole, which PyTorch would split into smaller ones."""
    try:
        from torch.export.exported_program import _override_composite_implicit_decomp
    except ImportError:
        yield
        return
    kept = {}
    for target in CONVERTERS:
        key = torch._C.DispatchKey.CompositeImplicitAutograd
        has = torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key)
        schema = target._schema
        aliases = any(a.alias_info for a in (*schema.arguments, *schema.returns))
        if has and not aliases and not schema.is_mutable and schema.name not in _UNSAFE:
            kept[target] = _not_implemented
    with _override_composite_implicit_decomp(kept):
        yield


def _not_implemented(*_args: Any, **_options: Any) -> Any:
    return NotImplemented


# Operators whose results may be views, although their schemas do not say so.
_UNSAFE = {
    f"aten::{name}"
    for name in (
        "dropout feature_dropout alpha_dropout reshape contiguous flatten unflatten to type_as pad "
        "expand_as movedim swapaxes numpy_T mT squeeze chunk narrow"
    ).split()
}


def _wants_gradients(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in inputs
    )


def _is_of_module(node: Node) -> bool:
    """Whether the input belongs to a module. Other inputs with a fixed address are caches, which
    change."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    source = getattr(node, "_dynamo_source", None) or source
    kind = getattr(source, "guard_source", None) if source is not None else None
    return kind is None or "NN_MODULE" in kind.name


def _static_inputs(graph: GraphModule, inputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Parameters and buffers among a graph's inputs, by index."""
    found = {}
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for index, (node, tensor) in enumerate(zip(placeholders, inputs)):
        marked = "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
        marked = marked and _is_of_module(node)
        if isinstance(tensor, torch.nn.Parameter) or (marked and isinstance(tensor, torch.Tensor)):
            found[index] = tensor
    return found


def backend(graph: GraphModule, inputs: Sequence[Any], **settings: Any) -> Callable[..., Any]:
    """The function that ``torch.compile(module, backend="opwright")`` calls for each graph.

    The largest parts that layers can compute become engines; other operators stay with PyTorch, and
    the logger ``opwright.torch`` says which and why. Parameters and buffers are parts of the
    engines, which are built again when these have changed. If gradients are wanted, the whole graph
    stays with PyTorch, with a warning.

    :param graph: the graph of traced operators.
    :param inputs: examples of the graph's arguments.
    :param settings: ``options``: a dict of ``fp16``, ``bf16``, ``timing`` and ``timing_cache``, as
        `opwright.build` has them, and ``min_nodes``: a part of fewer operators (3) stays with
        PyTorch, unless it is the whole graph.
    :returns: a function that computes the graph.
    :raises TypeError: for unknown options.
    """
    options = Options(**(settings.get("options") or {}))
    if _wants_gradients(inputs):
        _log.warning(
            "gradients are wanted, which engines do not compute: the graph stays with PyTorch. For "
            "inference call the module within torch.inference_mode() or torch.no_grad()"
        )
        return graph.forward
    static = _static_inputs(graph, inputs)
    own = len(list(graph.parameters())) + len(list(graph.buffers()))

    def compile(lowered: GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
        placeholders = [node for node in lowered.graph.nodes if node.op == "placeholder"]
        weights = static if len(placeholders) == len(inputs) and own == 0 else {}
        context = TracingContext.try_get()
        infos = getattr(context.fw_metadata, "input_info", []) if context is not None else []
        for index, info in enumerate(infos):
            if info.mutates_data:  # for example a cache
                weights = {i: tensor for i, tensor in weights.items() if i != index}
        return _compile(lowered, weights, options)

    with _whole_operators():
        wrap = aot_autograd(
            fw_compiler=compile,
            inference_compiler=compile,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )
        return wrap(graph, inputs)


def _compile(
    graph: GraphModule, weights: dict[int, torch.Tensor], options: Options
) -> Callable[..., Any]:
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    total = _count(graph)
    _numbers_from_inputs(graph)
    by_name = {placeholders[index].name: tensor for index, tensor in weights.items()}
    with _disable_current_modes():  # modes of fake tensors, but constants are real
        remove_conversions(graph)
        fold_constants(graph, {}, graph.register_buffer)
        engines, refused = _split(graph, by_name, options)
    _log.info(
        "a graph of %d operators: %d engines, %d operators stay with PyTorch",
        total,
        len(engines),
        len(refused),
    )
    for reason in refused.values():
        _log.warning("stays with PyTorch: %s", reason)
    _call_effects(graph)
    graph.recompile()
    return _Compiled(graph, weights, engines)
