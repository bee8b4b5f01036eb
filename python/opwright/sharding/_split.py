"""Cuts a graph for ranks: each tensor's state is followed through the nodes.

The method is that of Megatron-LM (Shoeybi et al., 2019): the weights of a pair of products are cut
along output features and then along input features, so that one sum over the ranks follows the
pair. Here the cut of each weight is passed on from operator to operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .. import _core
from ._plan import Rule, matches

Dim = int | str | None
Shape = tuple[Dim, ...]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cut:
    """Each rank has a part of the tensor along an axis."""

    axis: int
    blocks: tuple[int, ...]
    """The whole tensor's extents along the axis. A rank has its part of each block."""

    @property
    def extent(self) -> int:
        return sum(self.blocks)


@dataclass(frozen=True)
class State:
    """How a tensor lies on the ranks: whole on each, cut, or as a sum of the ranks' tensors."""

    cut: Cut | None = None
    is_sum: bool = False

    def __str__(self) -> str:
        if self.is_sum:
            return "a sum over the ranks"
        return "whole" if self.cut is None else f"cut along axis {self.cut.axis}"


WHOLE, SUM = State(), State(is_sum=True)


@dataclass
class Part:
    """An initializer of the result: a weight of the model, or a rank's part of it."""

    source: str
    cut: Cut | None


@dataclass
class Result:
    """A graph for all ranks. Only constants and parts of weights differ between the ranks."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    constants: dict[str, Callable[[int], TensorProto]] = field(default_factory=dict)
    inputs: dict[str, int | None] = field(default_factory=dict)
    """The axis along which a rank has a part of each input."""
    outputs: dict[str, int | None] = field(default_factory=dict)
    rules: set[Rule] = field(default_factory=set)
    """The rules that matched something."""
    collectives: dict[str, int] = field(default_factory=dict)
    """How many nodes there are of each operation."""


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def label(node: onnx.NodeProto) -> str:
    return f"node '{node.name or node.output[0]}' ({node.op_type})"


def captured(node: onnx.NodeProto) -> set[str]:
    """Names of outer tensors that the node's graphs use."""
    names: set[str] = set()
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {t.name for t in (*graph.initializer, *graph.input)}
            for inner in graph.node:
                names |= {n for n in (*inner.input, *captured(inner)) if n and n not in own}
                own |= set(inner.output)
    return names


class Splitter:
    """Follows the states of tensors through a graph and writes the nodes of the result."""

    def __init__(self, model: onnx.ModelProto, ranks: int, rules: Sequence[Rule]):
        """:param model: without functions. Weights may lack their elements."""
        self.ranks, self.rules = ranks, rules
        self.graph = model.graph
        self.opset = {o.domain: o.version for o in model.opset_import}
        self.result = Result()
        self._states: dict[str, State] = {}
        self._names: dict[str, str] = {}  # of the tensors in the result
        self._cuts: dict[tuple[str, Cut], str] = {}
        self._count = 0
        self._outputs = {each.name for each in self.graph.output}
        self.weights = {each.name: each for each in self.graph.initializer}
        self._values: dict[str, Array] = {}
        self._types: dict[str, tuple[int, Shape | None]] = {}
        self._read_types(model)
        self.users: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.users.setdefault(name, []).append(node)

    # What is known of tensors

    def _read_types(self, model: onnx.ModelProto) -> None:
        for weight in self.graph.initializer:
            self._types[weight.name] = (weight.data_type, tuple(weight.dims))
        try:
            graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except onnx.shape_inference.InferenceError as error:
            raise _core.Error(f"shard: the model's shapes cannot be inferred: {error}") from None
        for info in (*graph.value_info, *graph.output, *graph.input):
            self.learn(info)

    def learn(self, info: onnx.ValueInfoProto) -> None:
        tensor = info.type.tensor_type
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param or None
                for d in tensor.shape.dim
            )
        self._types.setdefault(info.name, (tensor.elem_type, shape))

    def infer(self, node: onnx.NodeProto) -> None:
        """The types of outputs behind operators that ONNX does not know."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        if all(self.is_known(name) for name in node.output if name) or captured(node):
            return
        if not all(self.is_known(name) for name in node.input if name):
            return
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset.get(domain, 1), domain)
            types = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {n: helper.make_tensor_type_proto(*self._types[n]) for n in node.input if n},
                {
                    n: numpy_helper.from_array(value, n)
                    for n in node.input
                    if n and (value := self.value(n)) is not None
                },
                opset_imports=[helper.make_opsetid(d, v) for d, v in self.opset.items()],
            )
        except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError):
            return
        for name, kind in types.items():
            if not self.is_known(name):
                self._types.pop(name, None)
                self.learn(onnx.ValueInfoProto(name=name, type=kind))

    def set_type(self, name: str, dtype: int, shape: Shape | None) -> None:
        """For outputs of operators that ONNX does not know."""
        if self._types.get(name, (0, None))[1] is None:
            self._types[name] = (dtype, shape)

    def is_known(self, name: str) -> bool:
        return self._types.get(name, (0, None))[1] is not None

    def is_shared(self, name: str) -> bool:
        """Whether more than one node reads the tensor, or the graph's users may."""
        return len(self.users.get(name, ())) > 1 or name in self._outputs

    def dtype(self, name: str) -> int:
        return self._types.get(name, (0, None))[0]

    def shape(self, node: onnx.NodeProto, name: str) -> Shape:
        shape = self._types.get(name, (0, None))[1]
        if shape is None:
            raise self.error(
                node,
                f"the rank of '{name}' is unknown, so that a cut cannot be followed; add its "
                "shape to the model (onnx.shape_inference, value_info)",
            )
        return shape

    def extent(self, node: onnx.NodeProto, name: str, axis: int) -> int:
        extent = self.shape(node, name)[axis]
        if not isinstance(extent, int):
            raise self.error(
                node, f"axis {axis} of '{name}' would be cut, and its extent is not a constant"
            )
        return extent

    def value(self, name: str) -> Array | None:
        """The elements of a small constant."""
        if name not in self._values and name in self.weights:
            weight = self.weights[name]
            if np.prod(weight.dims, dtype=np.int64) > 4096 or (
                weight.data_location == TensorProto.EXTERNAL
            ):
                return None
            self._values[name] = numpy_helper.to_array(weight)
        return self._values.get(name)

    def state(self, name: str) -> State:
        return self._states.get(name, WHOLE)

    def cut(self, name: str) -> Cut | None:
        return self.state(name).cut

    def error(self, node: onnx.NodeProto, message: str) -> _core.Error:
        return _core.Error(f"shard: {label(node)}: {message}")

    # Tensors of the result

    def _fresh(self, stem: str, what: str) -> str:
        self._count += 1
        return f"{stem}/{what}_{self._count}"

    def name(self, name: str) -> str:
        """The tensor of the result, in the tensor's state."""
        if name in self.weights and name not in self._names:
            state = self._states.get(name, WHOLE)
            self._names[name] = name
            self.result.parts[name] = Part(name, state.cut)
        return self._names.get(name, name)

    def constant(self, array: Array | Callable[[int], Array], stem: str = "shard") -> str:
        """A constant; a function gives that of each rank."""
        name = self._fresh(stem, "constant")
        make = array if callable(array) else (lambda rank: array)
        self.result.constants[name] = lambda rank: numpy_helper.from_array(make(rank), name)
        return name

    def ints(self, values: Iterable[int]) -> str:
        return self.constant(np.array(list(values), np.int64))

    def add(
        self, op: str, inputs: Sequence[str], output: str = "", domain: str = "", **attributes: Any
    ) -> str:
        """Adds a node to the result and returns its output's name."""
        output = output or self._fresh("shard", op)
        node = helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes)
        self.result.nodes.append(node)
        return output

    def collective(self, operation: str, tensor: str, stem: str, **attributes: Any) -> str:
        self.result.collectives[operation] = self.result.collectives.get(operation, 0) + 1
        return self.add(
            "DistCollective",
            [tensor],
            self._fresh(stem, operation),
            collective_operation=operation,
            nb_rank=self.ranks,
            group_size=self.ranks,
            **attributes,
        )

    def emit(
        self,
        node: onnx.NodeProto,
        states: Sequence[State] | State,
        inputs: Sequence[str] | None = None,
        **attributes: Any,
    ) -> None:
        """Adds the node with the states of its outputs.

        :param inputs: tensors of the result; by default the node's, in their states.
        :param attributes: those that differ from the node's; None removes one.
        """
        new = onnx.NodeProto()
        new.CopyFrom(node)
        given = inputs if inputs is not None else [n and self.name(n) for n in node.input]
        new.input[:] = given
        for key, value in attributes.items():
            kept = [each for each in new.attribute if each.name != key]
            del new.attribute[:]
            new.attribute.extend(kept)
            if value is not None:
                new.attribute.append(helper.make_attribute(key, value))
        new.output[:] = []
        for i, output in enumerate(node.output):
            state = states if isinstance(states, State) else states[i]
            new.output.append(self.define(output, state) if output else "")
        self.result.nodes.append(new)

    def define(self, output: str, state: State) -> str:
        """Sets the state of a node's output and returns its name in the result."""
        self._states[output] = state
        is_part = output in self._outputs and state != WHOLE
        self._names[output] = f"{output}/part" if is_part else output
        return self._names[output]

    # Conversions between states

    def divided(self, node: onnx.NodeProto, what: str, extent: int) -> int:
        if extent % self.ranks:
            raise self.error(
                node,
                f"{what} is {extent}, which {self.ranks} ranks do not divide; take fewer ranks, or "
                "leave these weights whole (the action 'replicate')",
            )
        return extent // self.ranks

    def make_cut(
        self, node: onnx.NodeProto, name: str, axis: int, blocks: Sequence[int] = ()
    ) -> Cut:
        extent = self.extent(node, name, axis)
        blocks = tuple(blocks) or (extent,)
        if sum(blocks) != extent:
            raise self.error(
                node,
                f"the blocks {list(blocks)} do not add up to {extent}, axis {axis} of '{name}'",
            )
        for block in blocks:
            self.divided(node, f"axis {axis} of '{name}'", block)
        return Cut(axis, blocks)

    def seed(self, name: str, cut: Cut) -> None:
        self._states[name] = State(cut)

    def whole(self, node: onnx.NodeProto, name: str) -> str:
        """The whole tensor. The sum of ranks is made once, for all who use it."""
        state = self.state(name)
        if state.is_sum:
            total = self.collective("all_reduce", self.name(name), name, reduce_op="sum")
            self._states[name], self._names[name] = WHOLE, total
        elif state.cut is not None:
            raise self.error(
                node,
                f"'{name}' is {state}, and this operator needs all of it; cut the next product along "
                "its rows, leave the weights before it whole ('replicate'), or make the tensor whole "
                f'with a rule: ("{name}", "gather")',
            )
        return self.name(name)

    def part(self, node: onnx.NodeProto, name: str, cut: Cut) -> str:
        """The tensor with this cut. Each rank takes its part of a whole tensor."""
        if self.cut(name) == cut:
            return self.name(name)
        key = (name, cut)
        if key in self._cuts:
            return self._cuts[key]
        is_weight = name in self.weights and self.state(name) == WHOLE
        whole = name if is_weight else self.whole(node, name)
        if self.extent(node, name, cut.axis) != cut.extent:
            raise self.error(
                node, f"axis {cut.axis} of '{name}' is to be cut, and is not {cut.extent} long"
            )
        if is_weight:
            part = self._fresh(name, "part")
            self.result.parts[part] = Part(name, cut)
        else:
            begin, pieces = 0, []
            for block in cut.blocks:
                bounds = self._bounds(begin, block // self.ranks)
                pieces.append(self.add("Slice", [whole, *bounds, self.ints([cut.axis])]))
                begin += block
            part = pieces[0]
            if len(pieces) > 1:
                part = self.add("Concat", pieces, axis=cut.axis)
        self._cuts[key] = part
        return part

    def _bounds(self, begin: int, size: int) -> tuple[str, str]:
        """Each rank's first place, and the one behind its last, of parts of that size."""

        def place(number: int) -> str:
            return self.constant(lambda rank: np.array([begin + (rank + number) * size]))

        return place(0), place(1)

    def gather(self, node: onnx.NodeProto, name: str) -> str:
        """The whole tensor, of all ranks' parts."""
        cut = self.cut(name)
        if cut is None:
            return self.whole(node, name)
        if len(cut.blocks) > 1:
            raise self.error(
                node,
                f"'{name}' is cut in {len(cut.blocks)} blocks, which an all-gather does not put back "
                "in order; gather the parts after they are split",
            )
        tensor, rank = self.name(name), len(self.shape(node, name))
        front = [cut.axis, *(i for i in range(rank) if i != cut.axis)]
        if cut.axis:
            tensor = self.add("Transpose", [tensor], perm=front)
        tensor = self.collective("all_gather", tensor, name)
        if cut.axis:
            tensor = self.add("Transpose", [tensor], perm=[front.index(i) for i in range(rank)])
        self._states[name], self._names[name] = WHOLE, tensor
        return tensor

    # The graph

    def rule_for(self, *names: str) -> Rule | None:
        found = next((rule for rule in self.rules if matches(rule, *names)), None)
        if found is not None:
            self.result.rules.add(found)
        return found

    def finish(self, node: onnx.NodeProto) -> None:
        """Applies the rules 'gather' to the node's outputs."""
        for output in filter(None, node.output):
            rule = self.rule_for(output) if self.state(output) != WHOLE else None
            if rule is not None and rule.action == "gather":
                self.gather(node, output)

    def end(self) -> None:
        """Makes the graph's outputs whole, but for those that a rule splits."""
        for output in self.graph.output:
            name = output.name
            state, rule = self.state(name), self.rule_for(name)
            kept = rule is not None and rule.action == "split" and state.cut is not None
            if kept and (state.cut.axis != rule.axis or len(state.cut.blocks) > 1):  # type: ignore[union-attr]
                raise _core.Error(
                    f"shard: the output '{name}' is {state}; its rule says axis {rule.axis}"  # type: ignore[union-attr]
                )
            self.result.outputs[name] = state.cut.axis if kept else None  # type: ignore[union-attr]
            end = helper.make_node("Identity", [name], [name], name=f"output {name}")
            tensor = self.name(name) if kept else self.gather(end, name)
            if tensor != name:
                self.add("Identity", [tensor], name)
