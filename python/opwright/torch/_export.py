"""Converts PyTorch modules and exported programs to networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch._dynamo.exc import UserError
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from .. import _core
from .._api import range_of
from ._complex import is_complex
from ._fold import fold_constants
from ._importer import (
    Importer,
    describe,
    find_converter,
    input_type,
    is_double_number,
    is_number,
    value_of,
    writes_into,
)
from ._writer import Unsupported, network_type

Range = tuple[list[int], list[int], list[int]]


class Exported(NamedTuple):
    """A network, and the ranges of its inputs for an optimization profile."""

    network: _core.INetworkDefinition
    shapes: dict[str, Range]
    """The smallest, typical and largest shape of each input of dynamic shape."""
    values: dict[str, Range]
    """The smallest, typical and largest value of each input that is a number."""


def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of operators without a layer."""
    table = torch.export.default_decompositions()
    return {op: function for op, function in table.items() if find_converter(op) is None}


def _buffer_as_constant(program: torch.export.ExportedProgram) -> tuple[str, str] | None:
    """A buffer that shares its memory with a constant of the program, and that constant.

    If a tensor is both a buffer and an attribute of an object that is not a module, as in
    transformers' static caches, the exporter makes an input of each.
    """
    tensors = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    buffers = {}
    for spec in specs:
        tensor = tensors.get(spec.target) if spec.kind == InputKind.BUFFER else None
        if isinstance(tensor, torch.Tensor) and tensor.data_ptr() != 0:  # 0: it has no memory
            buffers[tensor.data_ptr()] = str(spec.target)
    for spec in specs:
        tensor = tensors.get(spec.target) if spec.kind == InputKind.CONSTANT_TENSOR else None
        if isinstance(tensor, torch.Tensor) and tensor.data_ptr() in buffers:
            return buffers[tensor.data_ptr()], str(spec.target)
    return None


def _traced(
    module: torch.nn.Module, given: tuple[Any, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """Exports the module, by strict tracing if PyTorch refuses the dynamic shapes otherwise.

    PyTorch 2.11 makes a condition of strides that it cannot prove, `min(16 * n, 32 * n) == 16 * n`,
    where heads of keys are repeated. Strict tracing does not.
    """
    try:
        return torch.export.export(module, *given, dynamic_shapes=dynamic_shapes)
    except UserError as refused:
        try:
            return torch.export.export(module, *given, dynamic_shapes=dynamic_shapes, strict=True)
        except Exception:
            raise refused from None


def export(
    model: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """Exports a module as a program of operators that have layers.

    :raises Error: for a module in training mode that changes its buffers, and for a program that
        also has a buffer as a constant.
    """
    training = isinstance(model, torch.nn.Module) and model.training
    if isinstance(model, torch.nn.Module):
        if args is None and kwargs is None:
            raise TypeError(
                f"opwright.build: to export {type(model).__name__} it is called with examples of "
                "its arguments: build(module, args) with a tuple, or build(module, kwargs={...})"
            )
        if isinstance(args, torch.Tensor):
            args = (args,)
        module, given = model, (tuple(args or ()), dict(kwargs or {}))
        model = _traced(module, given, dynamic_shapes)
        if _buffer_as_constant(model):  # strict tracing recognizes that both are the same tensor
            model = torch.export.export(module, *given, dynamic_shapes=dynamic_shapes, strict=True)
    elif args is not None or kwargs is not None or dynamic_shapes is not None:
        raise TypeError(
            "opwright.build: an ExportedProgram has its arguments' types and shapes already; args, "
            "kwargs and dynamic_shapes are for modules"
        )
    found = _buffer_as_constant(model)
    if found:
        raise _core.Error(
            f"the program has the memory of the buffer '{found[0]}' as a constant, '{found[1]}', too, "
            "so that what it writes to one does not show in the other: export it by "
            "torch.export.export(..., strict=True)"
        )
    program = model.run_decompositions(decompositions())
    for result in program.graph_signature.output_specs:
        if training and result.kind == OutputKind.BUFFER_MUTATION:
            raise _core.Error(
                f"the module changes '{result.target}' when it runs in training mode: call eval() "
                "of the module"
            )
    return program


def _bounds(
    extent: Any,
    ranges: Mapping[Any, Any],
    given: Mapping[Any, tuple[int, int, int]] | None = None,
) -> tuple[int, int, int | None]:
    """Smallest, typical and largest value of an extent; None if it has no upper bound.

    :param given: the same for symbols of which the caller knows more.
    """
    if not isinstance(extent, torch.SymInt):
        return extent, extent, extent
    expr, given = extent.node.expr, given or {}
    low, high, usual = {}, {}, {}
    for symbol in expr.free_symbols:
        low[symbol] = ranges[symbol].lower if symbol in ranges else 0
        high[symbol] = ranges[symbol].upper if symbol in ranges else 1 << 62
        if symbol in given:
            low[symbol], usual[symbol], high[symbol] = map(sympy.Integer, given[symbol])
    least, most = expr.xreplace(low), expr.xreplace(high)
    bound = int(most) if most.is_Integer and most < 1 << 31 else None
    typical = extent.node.hint if extent.node.has_hint() else None
    if len(usual) == len(expr.free_symbols):
        typical = int(expr.xreplace(usual))
    least = max(int(least), 0)
    if typical is None:
        typical = least if bound is None else bound
    return least, int(typical), bound


def _range(
    name: str,
    extents: Sequence[Any],
    ranges: Mapping[Any, Any],
    given: Mapping[Any, tuple[int, int, int]],
) -> Range:
    found = [_bounds(extent, ranges, given) for extent in extents]
    for axis, (_, _, most) in enumerate(found):
        if most is None:
            raise _core.Error(
                f"axis {axis} of input '{name}' has no largest extent: give one in dynamic_shapes, "
                f"{{{axis}: torch.export.Dim('extent', max=64)}}, or shapes={{'{name}': (min, opt, "
                "max)}"
            )
    low, high = [bounds[0] for bounds in found], [bounds[2] or 0 for bounds in found]
    opt = [min(max(a, b), c) for a, (_, b, _), c in zip(low, found, high)]
    return low, opt, high


def _given_extents(
    program: torch.export.ExportedProgram, shapes: Mapping[str, Any]
) -> dict[Any, tuple[int, int, int]]:
    """The ranges of symbols that follow from the caller's shapes.

    :raises Error: for a range that the program excludes.
    """
    given: dict[Any, tuple[int, int, int]] = {}
    for node in program.graph.nodes:
        value = value_of(node)
        if node.op != "placeholder" or node.name not in shapes:
            continue
        low, opt, high = range_of(shapes[node.name])
        if not isinstance(value, torch.Tensor) or len(low) != len(input_type(value)[1]):
            continue
        for axis, extent in enumerate(input_type(value)[1]):
            if not isinstance(extent, torch.SymInt):
                continue
            least, _, most = _bounds(extent, program.range_constraints)
            # PyTorch also takes 0 and 1, unless another minimum was requested.
            if (least > 2 and low[axis] < least) or (most is not None and high[axis] > most):
                raise _core.Error(
                    f"axis {axis} of input '{node.name}' goes from {low[axis]} to {high[axis]} in "
                    f"shapes, but from {least} to {most} in the program: export it with other "
                    "dynamic_shapes, or give shapes within"
                )
            if extent.node.expr.is_Symbol:
                given.setdefault(extent.node.expr, (low[axis], opt[axis], high[axis]))
    return given


def _relate(importer: Importer, inputs: Sequence[tuple[torch.fx.Node, _core.ITensor]]) -> None:
    """Gives equal extents of inputs one name. Declares extents that are computed from others as
    such."""
    for node, tensor in inputs:
        for axis, extent in enumerate(input_type(value_of(node))[1]):
            if isinstance(extent, torch.SymInt):
                tensor.set_dimension_name(axis, str(extent.node.expr))
    network, writer = importer.writer.network, importer.writer
    said: set[Any] = set()
    for node, tensor in inputs:
        for axis, extent in enumerate(input_type(value_of(node))[1]):
            if not isinstance(extent, torch.SymInt) or extent.node.expr in said:
                continue
            expr = extent.node.expr
            said.add(expr)
            if expr.is_Symbol and expr not in writer.numbers_given:
                continue
            if not expr.free_symbols <= set(writer.symbols):
                continue
            equal = network.add_elementwise(
                writer.extent(writer.size(tensor, axis)),
                writer.extent_of(expr),
                _core.ElementWiseOperation.EQUAL,
            )
            network.add_assertion(
                equal.get_output(0),
                f"axis {axis} of input '{node.name}' must be {expr} by the extents of the others",
            )


def _changed(program: torch.export.ExportedProgram) -> dict[str, str]:
    """The buffers and arguments that a program writes to, and the names of outputs with their new
    values.

    :raises Error: for other state that the program changes, and for names that are taken.
    """
    changed = {}
    for result in program.graph_signature.output_specs:
        if result.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            changed[str(result.target)] = f"next_{result.target}"
        # A token only keeps calls in order. An operator that makes one is refused if it has no
        # layer.
        elif result.kind not in (OutputKind.USER_OUTPUT, OutputKind.TOKEN):
            raise _core.Error(
                f"the module changes '{result.target}' when it runs ({result.kind.name}), which an "
                "engine does not: register it as a buffer, or take it as an argument and return "
                "what it becomes"
            )
    inputs = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]
    buffers = [
        str(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.BUFFER and spec.target in changed
    ]
    for name in buffers:
        if name in inputs:
            raise _core.Error(
                f"the module changes its buffer '{name}', which becomes an input of the engine, "
                f"and forward has an argument of that name: call one of them otherwise"
            )
    return changed


def _output_names(program: torch.export.ExportedProgram, count: int) -> list[str]:
    """Names of the outputs: the keys of a dict, or numbers."""
    if count == 1:
        return ["output"]
    spec = program.call_spec.out_spec
    names = []
    if spec is not None and spec.num_leaves == count:
        tree = pytree.tree_unflatten(list(range(count)), spec)
        if isinstance(tree, Mapping) and all(isinstance(leaf, int) for leaf in tree.values()):
            names = [str(key) for key in tree]
    if len(names) != count:
        names = [f"output_{i}" for i in range(count)]
    return names


def _updates(program: torch.export.ExportedProgram) -> set[torch.fx.Node]:
    """The nodes with the new value of a buffer or argument that can write into its memory."""
    nodes = {node.name: node for node in program.graph.nodes}
    sources = {
        str(spec.target if spec.kind == InputKind.BUFFER else spec.arg.name): spec.arg.name
        for spec in program.graph_signature.input_specs
    }
    results = [spec.arg.name for spec in program.graph_signature.output_specs]
    found = set()
    for spec in program.graph_signature.output_specs:
        if spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            continue
        node = nodes[spec.arg.name]
        source = writes_into(node)
        if source is not None and results.count(node.name) == 1:
            if source.name == sources.get(str(spec.target)):
                found.add(node)
    return found


def _given(
    program: torch.export.ExportedProgram, changed: Mapping[str, str]
) -> dict[torch.fx.Node, torch.Tensor]:
    """The placeholders of parameters, buffers and constants, with their tensors."""
    tensors = {**program.state_dict, **program.constants}
    names = {
        spec.arg.name: tensors[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind != InputKind.USER_INPUT and spec.target in tensors
        if spec.target not in changed
    }
    return {
        node: names[node.name].detach()
        for node in program.graph.nodes
        if node.op == "placeholder" and isinstance(names.get(node.name), torch.Tensor)
    }


def network_of(
    program: torch.export.ExportedProgram,
    network: _core.INetworkDefinition,
    shapes: Mapping[str, Any],
    on_gpu: bool,
) -> Exported:
    """Writes an exported program, in operators that have layers, into an empty network.

    :param shapes: ranges by input name from the caller, which override the program's.
    :param on_gpu: whether the engine is for a GPU.
    :raises Error: naming the operator that has no layer.
    """
    changed, outputs = _changed(program), _result_names(program)
    tensors = {**program.state_dict, **program.constants}
    importer = Importer(network, lambda name: getattr(program.graph_module, name))
    importer.writer.on_gpu = on_gpu
    fold_constants(
        program.graph_module, _given(program, changed), program.graph_module.register_buffer
    )
    given = _given_extents(program, shapes)
    inputs: list[tuple[torch.fx.Node, _core.ITensor]] = []
    made: dict[int, _core.ITensor] = {}
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    taken: dict[str, Range] = {}
    values: dict[str, Range] = {}
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind == InputKind.BUFFER and spec.target in changed:
            kind, extents = input_type(value_of(node))
            try:
                dtype = network_type(kind)
            except Unsupported as error:
                raise _core.Error(f"the buffer '{spec.target}': {error}") from error
            importer.bind(node, network.add_input(spec.target, dtype, extents))
            continue
        if spec.kind != InputKind.USER_INPUT:
            tensor = tensors.get(spec.target) if spec.target else None
            if tensor is None or not node.users:
                continue
            if is_double_number(node) or is_complex(tensor):
                importer.bind_constant(node, tensor)
                continue
            if id(tensor) not in made:
                try:
                    made[id(tensor)] = importer.writer.constant(tensor)
                except Unsupported as error:
                    raise _core.Error(f"'{spec.target}': {error}") from error
                # An output of the same name (the key of a dict) keeps the name.
                suffix = ".value" if spec.target in outputs else ""
                made[id(tensor)].name = f"{spec.target}{suffix}"
            importer.bind(node, made[id(tensor)])
            continue
        value = value_of(node)
        if isinstance(value, torch.SymInt):
            tensor = network.add_input(node.name, _core.DataType.INT64, [1])
            importer.writer.learn_extent(value.node.expr, tensor)
            values[node.name] = _range(node.name, [value], program.range_constraints, given)
        elif isinstance(value, torch.Tensor):
            kind, shape = input_type(value)
            extents = [-1 if isinstance(e, torch.SymInt) else e for e in shape]
            try:
                dtype = network_type(kind)
            except Unsupported as error:
                raise _core.Error(f"input '{node.name}': {error}") from error
            tensor = network.add_input(node.name, dtype, extents)
            importer.bind(node, tensor)
            inputs.append((node, tensor))
            if -1 in extents and node.name not in shapes:
                taken[node.name] = _range(node.name, shape, program.range_constraints, given)
    _relate(importer, inputs)
    importer.in_place |= _updates(program)
    for node in program.graph.nodes:
        if node.op not in ("placeholder", "output"):
            try:
                importer.add(node)
            except Unsupported as error:
                raise _core.Error(f"PyTorch's {error}") from error
    try:
        _mark_outputs(program, importer)
    except Unsupported as error:
        raise _core.Error(f"an output of the program: {error}") from error
    return Exported(network, taken, values)


def _result_names(program: torch.export.ExportedProgram) -> list[str]:
    """The outputs' names; empty for results that are not outputs."""
    changed = _changed(program)
    specs = program.graph_signature.output_specs
    own = sum(spec.kind == OutputKind.USER_OUTPUT for spec in specs)
    mine = iter(_output_names(program, own))
    return [
        next(mine) if spec.kind == OutputKind.USER_OUTPUT else changed.get(str(spec.target), "")
        for spec in specs
    ]


def _mark_outputs(program: torch.export.ExportedProgram, importer: Importer) -> None:
    (output,) = [node for node in program.graph.nodes if node.op == "output"]
    results = list(output.args[0])
    specs = program.graph_signature.output_specs
    names = _result_names(program)
    for name in names:
        if name and names.count(name) > 1:
            raise _core.Error(
                f"two outputs are called '{name}': the engine returns so what the module makes of "
                "its buffer; call the key of the dict that forward returns otherwise"
            )
    # Results come first, then the new values of buffers and arguments.
    order = sorted(range(len(specs)), key=lambda i: specs[i].kind != OutputKind.USER_OUTPUT)
    names, results = [names[i] for i in order], [results[i] for i in order]
    for name, value in zip(names, results):
        if not isinstance(value, torch.fx.Node):
            continue  # None, or a number that never changes
        if isinstance(value_of(value), torch.SymInt):
            tensor = importer.writer.reshape(importer.writer.extent(value_of(value)), [])
        elif is_number(value):
            raise Unsupported(f"{describe(value)} is a number that is no extent")
        else:
            tensor = importer.output_of(value)
        importer.writer.mark_output(tensor, name)
