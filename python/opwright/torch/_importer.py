"""Converts a graph of PyTorch's operators to layers of a network."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from .. import _core
from . import (  # noqa: F401 (they fill CONVERTERS)
    _attention,
    _complex,
    _elementwise,
    _layers,
    _movement,
    _normalization,
    _pooling,
    _random,
    _reductions,
    _scans,
)
from ._complex import Complex, complex_converter, is_complex, real_meta, stacked, unstacked
from ._converters import CONVERTERS, FOREIGN, Converter
from ._custom_ops import custom_converter
from ._writer import TO_NETWORK, Unsupported, Writer

# Operators that make a number of a one-element tensor.
_ELEMENTS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


# Operators that write into a copy of their first operand, so they can write into the operand
# itself.
_WRITES = {
    torch.ops.aten.index_copy.default,
    torch.ops.aten.index_put.default,
    torch.ops.aten.scatter.src,
    torch.ops.aten.scatter.value,
    torch.ops.aten.scatter_add.default,
}


def writes_into(node: Node) -> Node | None:
    """The placeholder in whose memory the node's result may lie; None if there is none."""
    if node.op != "call_function" or node.target not in _WRITES:
        return None
    source = node.args[0]
    return source if isinstance(source, Node) and source.op == "placeholder" else None


def value_of(node: Node) -> Any:
    """PyTorch's description of a node's result: a fake tensor, a number, or several."""
    return node.meta.get("val", node.meta.get("example_value"))


def is_number(node: Node) -> bool:
    return isinstance(value_of(node), NUMBERS)


def is_double_number(node: Node) -> bool:
    """Whether the node is an input or constant that is a single FP64 number.

    PyTorch represents traced numbers of Python and NumPy in this way. It computes in the type of
    the tensor that such a number is combined with.
    """
    value = value_of(node)
    is_number = isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype == torch.double
    return is_number and node.op in ("placeholder", "get_attr")


def find_converter(target: Any) -> Converter | None:
    if target in CONVERTERS:
        return CONVERTERS[target]
    if isinstance(target, torch._ops.OpOverload) and target._schema.name in FOREIGN:
        return FOREIGN[target._schema.name]
    return custom_converter(target)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)) and not isinstance(value, Complex):
        return [each for part in value for each in _flat(part)]
    return [value]


def obstacle(node: Node) -> str:
    """Why a node cannot be a layer, according to its operator and types; empty if it can."""
    if node.target is operator.getitem or is_number(node):
        return ""
    inputs = [value_of(each) for each in node.all_input_nodes if not is_double_number(each)]
    parts = _flat(value_of(node)) + _flat(inputs)
    if is_complex(parts):
        if complex_converter(node.target) is None:
            return "no layer computes it of complex numbers"
    elif find_converter(node.target) is None:
        return "no layer computes it"
    for tensor in parts:
        if isinstance(tensor, torch.Tensor) and tensor.dtype not in (*TO_NETWORK, torch.complex64):
            return f"tensors of {tensor.dtype}"
    return ""


def input_type(value: torch.Tensor) -> tuple[torch.dtype, list[Any]]:
    """The type and shape of a network's tensor for a PyTorch tensor. Complex tensors become those
    of torch.view_as_real."""
    if value.dtype == torch.complex64:
        return torch.float32, [*value.shape, 2]
    return value.dtype, list(value.shape)


class Importer:
    """Adds the nodes of a graph to a network.

    :param network: the network to add layers to.
    :param constant: returns the tensor for the name of a get_attr node.
    """

    def __init__(
        self, network: _core.INetworkDefinition, constant: Callable[[str], Any] | None = None
    ):
        self.writer = Writer(network)
        self.values: dict[Node, Any] = {}
        self.in_place: set[Node] = set()
        """Nodes whose result updates an input, in the input's memory if their layer can do so."""
        self._constant = constant

    def bind(self, node: Node, tensor: _core.ITensor) -> None:
        """Gives a placeholder its tensor, which for complex numbers is that of
        torch.view_as_real."""
        value = value_of(node)
        self.values[node] = unstacked(self.writer, tensor) if is_complex(value) else tensor
        if isinstance(value, torch.Tensor):
            self.writer.learn(tensor, value)

    def bind_constant(self, node: Node, tensor: torch.Tensor) -> None:
        """Gives a node a tensor that never changes."""
        if is_complex(tensor):
            parts = torch.view_as_real(tensor.detach().resolve_conj())
            self.values[node] = Complex(*map(self.writer.constant, parts.unbind(-1)))
            return
        self.bind(node, self.writer.constant(tensor.float() if is_double_number(node) else tensor))

    def output_of(self, node: Node) -> _core.ITensor:
        """The output tensor of a node's result. Complex numbers are stacked as by
        torch.view_as_real."""
        value = self.values[node]
        return stacked(self.writer, value) if isinstance(value, Complex) else value

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            if is_number(argument):
                return value_of(argument)
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._argument(each) for each in argument]
        if isinstance(argument, Mapping):
            return {key: self._argument(each) for key, each in argument.items()}
        return argument

    def add(self, node: Node) -> None:
        """Adds the layers of a node.

        :raises Unsupported: no layer computes the node. Nothing that matters is added.
        """
        if is_number(node):  # the number's expression is written where it is used
            self._learn_element(node)
            return
        if node.op == "get_attr":
            assert self._constant is not None
            try:
                self.bind_constant(node, self._constant(str(node.target)))
            except Unsupported as error:
                user = next(iter(node.users), node)
                raise Unsupported(f"{describe(user)}: a constant: {error}") from error
            return
        if node.target is operator.getitem:
            source, index = map(self._argument, node.args)
            if source[index] is None and node.users:
                (maker,) = node.all_input_nodes
                raise Unsupported(f"{describe(maker)}: no layer computes its result {index}")
            self.values[node] = source[index]
            return
        reason = obstacle(node)
        if reason:
            raise Unsupported(f"{describe(node)}: {reason}")
        inputs = [value_of(each) for each in node.all_input_nodes]
        find = complex_converter if is_complex([value_of(node), *inputs]) else find_converter
        convert = find(node.target)
        assert convert is not None
        network = self.writer.network
        first = network.num_layers
        metas = real_meta(value_of(node))
        self.writer.meta, self.writer.used = metas, _used(node)
        self.writer.in_place = node in self.in_place
        self.writer.inputs = real_meta(inputs)
        args, options = self._argument(node.args), self._argument(node.kwargs)
        try:
            result = convert(self.writer, *args, **options)
        except Exception as error:  # an unforeseen error gets the operator's name
            refusal = Unsupported(f"{describe(node)}: {error}")
            refusal.symbol = getattr(error, "symbol", None)
            raise refusal from error
        for index in range(first, network.num_layers):
            suffix = f".{index - first}" if index > first else ""
            network.get_layer(index).name = f"{node.name}{suffix}"
        self.values[node] = result
        for i, (value, meta) in enumerate(zip(_flat(result), _flat(metas))):
            if not self.writer.uses(i):
                continue
            for tensor in value if isinstance(value, Complex) else (value,):
                if isinstance(tensor, _core.ITensor) and isinstance(meta, torch.Tensor):
                    self._check(node, tensor, meta)
                    self.writer.learn(tensor, meta)

    def _learn_element(self, node: Node) -> None:
        """Notes a number that is an element of a tensor, since it may be an extent."""
        if node.target not in _ELEMENTS or not isinstance(value_of(node), torch.SymInt):
            return
        element = self.writer.reshape(self._argument(node.args[0]), [1])
        extent = self.writer.cast(element, _core.DataType.INT64)
        self.writer.learn_extent(value_of(node).node.expr, extent)

    def _check(self, node: Node, tensor: _core.ITensor, meta: torch.Tensor) -> None:
        """Checks that the converter's result has the type and shape of PyTorch's result."""
        shape = list(tensor.shape)
        differs = len(shape) != meta.dim() or any(
            isinstance(theirs, int) and ours not in (-1, theirs)
            for ours, theirs in zip(shape, meta.shape)
        )
        if differs or TO_NETWORK[meta.dtype] != tensor.dtype:
            raise Unsupported(
                f"{describe(node)}: the layers make {tensor.dtype} {shape}, PyTorch {meta.dtype} "
                f"{list(meta.shape)}"
            )


def _used(node: Node) -> set[int] | None:
    """The indices of results that other nodes use; None if a node uses all results together."""
    used: set[int] = set()
    for user in node.users:
        index = user.args[1] if user.target is operator.getitem else None
        if not isinstance(index, int):
            return None
        if user.users:
            used.add(index)
    return used


def describe(node: Node) -> str:
    """The node as text, with the line of the program that it comes from."""
    target = node.target
    if target is getattr(torch.ops.higher_order, "with_effects", None):
        target = node.args[1]  # type: ignore[assignment]
    text = f"{node.name} ({target})"
    for line in reversed((node.meta.get("stack_trace") or "").strip().splitlines()):
        if line.strip().startswith("File "):
            return f"{text} from {line.strip()[5:]}"
    return text
