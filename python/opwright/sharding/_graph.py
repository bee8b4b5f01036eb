"""Splits a whole graph: where the plan's rules begin, and the walk through the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from .. import _core
from ._operators import LINEAR, MICROSOFT, RANDOM, RULES, like_input
from ._plan import Rule, blocks_of, matches
from ._split import WHOLE, Result, Splitter, attributes_of, captured


@dataclass(frozen=True)
class Use:
    """A product or a lookup that uses a weight, in terms of the weight's axes."""

    node: onnx.NodeProto
    outputs: int
    """The axis of output features; of a lookup, the axis of the indices."""
    inputs: int
    """The axis of input features."""
    is_lookup: bool = False


def split_graph(model: onnx.ModelProto, ranks: int, rules: Sequence[Rule], strict: bool) -> Result:
    """The graph for all ranks.

    :param model: without functions; its Constant nodes become initializers.
    :param strict: whether each rule must match something.
    :raises Error: naming the node that a cut cannot pass, or the rule that matches nothing.
    """
    _hoist_constants(model.graph)
    s = Splitter(model, ranks, rules)
    _keep_batches_apart(s)
    _cut_inputs(s)
    seeded = _cut_weights(s)
    if not seeded and not any(axis is not None for axis in s.result.inputs.values()):
        raise _core.Error(
            "shard: no rule of the plan cuts a weight of the model; its weights are "
            + _some(s.weights)
        )
    for node in s.graph.node:
        _pass(s, node)
    s.end()
    for rule in rules if strict else ():
        if rule not in s.result.rules:
            names = [*s.weights, *(n.name for n in s.graph.node if n.name)]
            meant = _core._did_you_mean(rule.pattern.strip("*."), names)
            raise _core.Error(
                f"shard: the rule ('{rule.pattern}', '{rule.action}') matches no weight that a product or a "
                f"lookup uses{meant}; the model has {_some(s.weights)}"
            )
    return s.result


def _some(names: object) -> str:
    names = [f"'{name}'" for name in names]  # type: ignore[attr-defined]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _hoist_constants(graph: onnx.GraphProto) -> None:
    kept = []
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            kept.append(node)
            continue
        (attribute,) = node.attribute
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.name == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(value)
        elif attribute.name in ("value_int", "value_ints"):
            tensor = numpy_helper.from_array(np.array(value, np.int64))
        elif attribute.name in ("value_float", "value_floats"):
            tensor = numpy_helper.from_array(np.array(value, np.float32))
        else:  # a text or a sparse tensor
            kept.append(node)
            continue
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
    del graph.node[:]
    graph.node.extend(kept)


def _keep_batches_apart(s: Splitter) -> None:
    """Replaces three nodes that merge leading axes, transpose, and split the axes again by one
    Transpose. `torch.onnx` writes them for the keys of an attention, and a cut of heads could not
    pass them."""
    outputs = {each.name for each in s.graph.output}

    def only_user(node: onnx.NodeProto, op: str) -> onnx.NodeProto | None:
        users = s.users.get(node.output[0], [])
        fits = len(users) == 1 and users[0].op_type == op and node.output[0] not in outputs
        return users[0] if fits and users[0].input[0] == node.output[0] else None

    gone: set[str] = set()
    for first in s.graph.node:
        if first.op_type != "Reshape":
            continue
        turn = only_user(first, "Transpose")
        last = turn and only_user(turn, "Reshape")
        if turn is None or last is None:
            continue
        names = (first.input[0], first.output[0], last.output[0])
        if not all(s.is_known(name) for name in names):
            continue
        before, merged, after = (s.shape(first, name) for name in names)
        order = attributes_of(turn).get("perm", list(range(len(merged)))[::-1])
        lead = len(before) - len(merged) + 1
        perm = [*range(lead), *(lead + i - 1 for i in order[1:])]
        kept = None not in before and merged[1:] == before[lead:]
        if lead > 1 and order[0] == 0 and kept and after == tuple(before[i] for i in perm):
            gone |= {first.output[0], turn.output[0]}
            last.CopyFrom(
                onnx.helper.make_node("Transpose", names[:1], names[2:], last.name, perm=perm)
            )
            s.users[names[0]].remove(first)
            s.users[names[0]].append(last)
    nodes = [node for node in s.graph.node if not gone & set(node.output)]
    del s.graph.node[:]
    s.graph.node.extend(nodes)


def _cut_inputs(s: Splitter) -> None:
    for given in s.graph.input:
        if given.name in s.weights:
            continue
        rule = s.rule_for(given.name)
        s.result.inputs[given.name] = None
        if rule is None or rule.action != "split":
            continue
        node = onnx.helper.make_node("Input", [], [given.name], name=given.name)
        cut = s.make_cut(node, given.name, _axis(rule, given.name, len(s.shape(node, given.name))))
        s.seed(given.name, cut)
        s.result.inputs[given.name] = cut.axis
        given.type.tensor_type.shape.dim[cut.axis].dim_value = cut.extent // s.ranks


def _axis(rule: Rule, name: str, rank: int) -> int:
    assert rule.axis is not None
    if not -rank <= rule.axis < rank:
        raise _core.Error(
            f"shard: the rule for '{rule.pattern}' cuts axis {rule.axis}, and '{name}' has {rank} axes"
        )
    return rule.axis % rank


def _cut_weights(s: Splitter) -> int:
    """Sets the states of weights by the rules. Returns how many are cut."""
    count = 0
    for name, weight in s.weights.items():
        rank = len(weight.dims)
        uses = list(_uses(s, name, list(range(rank)))) if rank > 1 else []
        if not uses:
            continue
        names = [name, *(use.node.name for use in uses)]
        rule = next((rule for rule in s.rules if matches(rule, *names)), None)
        if rule is None:
            continue
        s.result.rules.add(rule)
        if rule.action in ("replicate", "gather"):
            continue
        axes = {_axis_of(rule, use, name, rank) for use in uses}
        node = uses[0].node
        if len(axes) > 1:
            raise s.error(
                node,
                f"the rule ('{rule.pattern}', '{rule.action}') would cut '{name}' along the axes "
                f'{sorted(axes)} for the nodes that use it; say one: Rule("{name}", "split", axis=0)',
            )
        (axis,) = axes
        s.seed(name, s.make_cut(node, name, axis, blocks_of(rule, weight.dims[axis])))
        count += 1
    return count


def _axis_of(rule: Rule, use: Use, name: str, rank: int) -> int:
    if rule.action == "split":
        return _axis(rule, name, rank)
    if rule.action == "experts":
        if rank < 3:
            raise _core.Error(
                f"shard: the rule ('{rule.pattern}', 'experts') cuts the first axis of a weight that has all "
                f"experts, and '{name}' has {rank} axes; cut the weights of single experts by 'columns' "
                "and 'rows'"
            )
        return 0
    if rule.action == "rows":
        return use.inputs
    if use.is_lookup and rule.action != "vocabulary":
        return use.inputs  # the features of a table
    return use.outputs


def _uses(s: Splitter, name: str, axes: list[int]) -> Iterator[Use]:
    """Products and lookups of a weight, also behind nodes that move or convert it.

    :param axes: the weight's axis that each axis of the tensor is.
    """
    for node in s.users.get(name, []):
        op, given = node.op_type, attributes_of(node)
        place = list(node.input).index(name)
        if op in ("Identity", "Cast") or (op == "DequantizeLinear" and place == 0):
            yield from _uses(s, node.output[0], axes)
        elif op == "Transpose":
            order = given.get("perm", list(range(len(axes)))[::-1])
            yield from _uses(s, node.output[0], [axes[i] for i in order])
        elif op == "MatMul" or (op == "Gemm" and place < 2):
            turned = bool(given.get("transA" if place == 0 else "transB")) and op == "Gemm"
            first, second = (axes[-1], axes[-2]) if turned else (axes[-2], axes[-1])
            yield Use(node, first, second) if place == 0 else Use(node, second, first)
        elif (op == "Conv" and place == 1) or (op == "MatMulNBits" and place == 1):
            yield Use(node, axes[0], axes[1])
        elif op == "Gather" and place == 0:
            axis = given.get("axis", 0)
            yield Use(node, axes[axis], axes[-1], is_lookup=True)


def _pass(s: Splitter, node: onnx.NodeProto) -> None:
    """Adds a node to the result, with what its inputs' states need."""
    like_input(s, node)
    s.infer(node)
    inner = captured(node)
    names = [name for name in (*node.input, *inner) if name]
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in ("", MICROSOFT) or node.op_type not in LINEAR:
        for name in names:
            if s.state(name).is_sum:
                s.whole(node, name)
    if node.op_type in RANDOM and "seed" not in attributes_of(node):
        raise s.error(node, "the ranks would draw different numbers; give it the attribute seed")
    function = RULES.get((domain, node.op_type))
    if all(s.state(name) == WHOLE for name in names):
        if any(s.name(name) != name for name in inner):
            raise s.error(node, "its graphs use a sum over the ranks; pass it as an input")
        s.emit(node, WHOLE)
    elif function is None or any(s.cut(name) for name in inner):
        for name in names:
            s.whole(node, name)  # says which cannot be
    else:
        function(s, node)
    s.finish(node)
