"""Folds constant parts of a graph that no layer computes. PyTorch computes them once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from ._importer import is_double_number, is_number, obstacle, value_of

_LARGEST = 1 << 24  # the most elements of a constant that is made here
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _is_pure(node: Node) -> bool:
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    return not node.target._schema.is_mutable and not random


def _constants(graph: GraphModule, given: Mapping[Node, torch.Tensor]) -> dict[Node, Any]:
    """The nodes that depend on no input, with their tensors, or None if not computed yet."""
    found: dict[Node, Any] = dict(given)
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            tensor = getattr(graph, str(node.target), None)
            if isinstance(tensor, torch.Tensor):
                found[node] = tensor
        elif node.op == "call_function" and _is_pure(node):
            arguments = pytree.tree_leaves((node.args, node.kwargs))
            if all(each in found for each in node.all_input_nodes) and not any(
                isinstance(argument, _SYMBOLIC) for argument in arguments
            ):
                found[node] = None
    return found


def _compute(node: Node, known: dict[Node, Any]) -> Any:
    """Computes a node and its operands. Exceptions of operators pass."""
    if known[node] is None:
        args, options = torch.fx.node.map_arg(
            (node.args, node.kwargs), lambda each: _compute(each, known)
        )
        known[node] = node.target(*args, **options)  # type: ignore[operator]
    return known[node]


def _is_wanted(node: Node) -> bool:
    """Whether the node cannot be a layer, or has an FP64 number as an operand."""
    if not isinstance(value_of(node), torch.Tensor):
        return False
    return bool(obstacle(node)) or any(is_double_number(each) for each in node.all_input_nodes)


def _is_small(node: Node) -> bool:
    for value in pytree.tree_leaves(value_of(node)):
        if isinstance(value, torch.Tensor):
            extents = [each for each in value.shape if isinstance(each, int)]
            if torch.Size(extents).numel() > _LARGEST:
                return False
    return True


def _substitute(value: Any, symbols: Mapping[Any, Any]) -> Any:
    """A fake tensor with these symbols replaced in its extents."""

    def known(extent: Any) -> Any:
        if not isinstance(extent, torch.SymInt) or not extent.node.expr.free_symbols & set(symbols):
            return extent
        expr = sympy.sympify(extent.node.expr.xreplace(symbols))
        return int(expr) if expr.is_number else extent

    if isinstance(value, (list, tuple)):
        return type(value)(_substitute(each, symbols) for each in value)
    if isinstance(value, torch.SymInt):
        return known(value)
    if not isinstance(value, torch.Tensor):
        return value
    shape = [known(extent) for extent in value.shape]
    if all(ours is theirs for ours, theirs in zip(shape, value.shape)):
        return value
    strides = [known(stride) for stride in value.stride()]
    mode = getattr(value, "fake_mode", None)
    if mode is None:
        return value
    with mode:
        return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


_CONVERSIONS = [
    getattr(getattr(torch.ops.prims, "convert_element_type", None), "default", None),
    torch.ops.aten._to_copy.default,
]


def remove_conversions(graph: GraphModule) -> None:
    """Removes, in place, conversions of numbers to the type that they already have. PyTorch writes
    such conversions for Python's numbers."""
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or node.target not in _CONVERSIONS:
            continue
        (source,) = node.all_input_nodes or (None,)
        ours, theirs = value_of(node), value_of(source) if source is not None else None
        if (
            isinstance(theirs, torch.Tensor)
            and theirs.dim() == 0
            and (ours.dtype, ours.device) == (theirs.dtype, theirs.device)
            and not any(user.op == "output" for user in node.users)
        ):
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)


def fold_constants(
    graph: GraphModule,
    given: Mapping[Node, torch.Tensor],
    hold: Callable[[str, torch.Tensor], None],
) -> None:
    """Replaces, in place, nodes that no layer computes and that are the same in every run.

    :param given: placeholders that never change, with their tensors.
    :param hold: keeps a tensor under the name that a get_attr node will have.
    """
    known = _constants(graph, given)
    symbols: dict[Any, Any] = {}
    for number, node in enumerate(list(graph.graph.nodes)):
        if node not in known or node.op != "call_function" or not node.users:
            continue
        if not is_number(node) and not _is_wanted(node):
            continue
        if not _is_small(node):
            continue
        try:
            value = _compute(node, known)
        except Exception:
            continue  # the operator's own message appears when it is run
        if isinstance(value, torch.Tensor):
            name = f"_folded_{number}"
            hold(name, value)
            with graph.graph.inserting_before(node):
                made = graph.graph.get_attr(name)
            made.meta["val"] = value_of(node)
            known[made] = value
            node.replace_all_uses_with(made)
        else:
            expr = getattr(getattr(value_of(node), "node", None), "expr", None)
            if expr is not None and expr.is_Symbol:
                symbols[expr] = value
            _replace(node, value)
    if symbols:
        for node in graph.graph.nodes:
            for key in ("val", "example_value"):
                if key in node.meta:
                    node.meta[key] = _substitute(node.meta[key], symbols)
    _erase_unused(graph, known)


def _replace(node: Node, value: Any) -> None:
    """Replaces a node by the number that it is known to be."""
    for user in list(node.users):
        if user.op == "output":
            continue
        user.args, user.kwargs = torch.fx.node.map_arg(
            (user.args, user.kwargs), lambda each: value if each is node else each
        )


def _erase_unused(graph: GraphModule, nodes: Iterable[Node]) -> None:
    unused = set(nodes)
    for node in reversed(list(graph.graph.nodes)):
        if node in unused and node.op != "placeholder" and not node.users:
            graph.graph.erase_node(node)
