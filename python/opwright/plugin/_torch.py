"""`from_torch`: operators of PyTorch as plugins."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, List, NoReturn, Tuple

from .._core._plugin import Tensor, TensorDesc
from ._decorators import impl, register
from ._op import PluginOp

if TYPE_CHECKING:
    import torch

# Hints of attributes by the argument types in PyTorch's schemas.
_HINTS: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "List[int]": List[int],
    "List[float]": List[float],
    "List[bool]": List[bool],
}


def _find(operator: str) -> torch._ops.OpOverload:
    """The overload that "ns::op" (the default one) or "ns::op.overload" names."""
    import torch

    namespace, _, name = operator.partition("::")
    name, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    if packet is None:
        raise ValueError(
            f"from_torch: PyTorch has no operator '{operator}'; expected 'namespace::name' of an "
            "operator whose module was imported"
        )
    if (overload or "default") not in packet.overloads():
        known = ", ".join(f"'{namespace}::{name}.{each}'" for each in packet.overloads())
        raise ValueError(f"from_torch: there is no '{operator}'; its overloads are: {known}")
    return getattr(packet, overload or "default")


def _is_written(value: torch.Argument) -> bool:
    return value.alias_info is not None and value.alias_info.is_write


class _Operator:
    """An operator of PyTorch, with the mapping of a plugin's tensors and attributes to its
    arguments."""

    def __init__(self, overload: torch._ops.OpOverload, fixed: dict[str, Any]):
        self.schema = overload._schema
        self.tensors: list[str] = []
        """Required tensors, then optional ones."""
        self.required: list[str] = []
        self.variable: str | None = None
        """The argument that is a list of tensors."""
        self.mutated: list[str] = []
        """Tensors that the operator writes to."""
        self.attributes: dict[str, Any] = {}
        """The hints of the arguments that are attributes."""
        self.defaults: dict[str, Any] = {}
        self._overload = overload
        self._fixed = dict(fixed)
        known = [argument.name for argument in self.schema.arguments]
        for name in fixed:
            if name not in known:
                raise TypeError(
                    f"from_torch: `{self.schema}` has no argument '{name}'; its arguments are: "
                    f"{', '.join(known) or 'none'}"
                )
        for argument in self.schema.arguments:
            if argument.name not in fixed:
                self._take(argument)
        # Parameters with a default value go last, as Python requires.
        self.required = [name for name in self.tensors if name not in self.defaults]
        self.tensors = self.required + [name for name in self.tensors if name in self.defaults]
        names = sorted(self.attributes, key=lambda name: name in self.defaults)
        self.attributes = {name: self.attributes[name] for name in names}
        self._made = self._find_made()
        self.returned = len(self._made)
        if self.returned == 0 and not self.mutated:
            self._refuse("it returns nothing and writes to no tensor")
        # The arguments of a call, with keyword arguments last, and the slots of tensors and
        # attributes.
        arguments = sorted(self.schema.arguments, key=lambda argument: argument.kwarg_only)
        self._args = [self._fixed.get(argument.name) for argument in arguments]
        self._keywords = [argument.name for argument in arguments if argument.kwarg_only]
        places = {argument.name: i for i, argument in enumerate(arguments)}
        inputs = [*self.tensors, self.variable] if self.variable is not None else self.tensors
        self._slots = [places[name] for name in (*inputs, *self.attributes)]

    def _refuse(self, reason: str) -> NoReturn:
        raise NotImplementedError(f"from_torch: `{self.schema}` cannot be a plugin: {reason}")

    def _take(self, argument: torch.Argument) -> None:
        """Makes an argument an input, an attribute, or a constant with its default value."""
        name, kind = argument.name, str(argument.type)
        if kind == "Tensor":
            self.tensors.append(name)
            if _is_written(argument):
                self.mutated.append(name)
        elif kind == "Optional[Tensor]" and not _is_written(argument):
            self.tensors.append(name)
            self.defaults[name] = None
        elif kind == "List[Tensor]" and self.variable is None and not _is_written(argument):
            self.variable = name
        elif kind in _HINTS:
            self.attributes[name] = _HINTS[kind]
            if argument.has_default_value():
                self.defaults[name] = argument.default_value
        elif argument.has_default_value():
            self._fixed[name] = argument.default_value
            return
        else:
            self._refuse(
                f"its argument '{name}' is of type {kind}, and can be neither an input nor an "
                f"attribute; give it a value: from_torch('{self._overload.name()}', {name}=...)"
            )
        if name in ("outputs", "stream") or keyword.iskeyword(name):
            self._refuse(f"its argument cannot be named '{name}'")

    def _find_made(self) -> list[int]:
        """The indices of results that are new tensors, not arguments that were written to."""
        for result in self.schema.returns:
            if str(result.type) != "Tensor":
                self._refuse(f"it returns a {result.type}; expected tensors")
        return [i for i, result in enumerate(self.schema.returns) if not _is_written(result)]

    def values(self, tensors: Sequence[Any], attributes: Iterable[Any]) -> list[Any]:
        """The values of a call with these tensors, with the tensors of the list last."""
        count = len(self.tensors)
        lists = [list(tensors[count:])] if self.variable is not None else []
        return [*tensors[:count], *lists, *attributes]

    def __call__(self, values: Iterable[Any]) -> list[torch.Tensor]:
        """Calls the operator with `values()` and returns its new tensors."""
        args = self._args.copy()
        for slot, value in zip(self._slots, values):
            args[slot] = value
        count = len(args) - len(self._keywords)
        results = self._overload(*args[:count], **dict(zip(self._keywords, args[count:])))
        if not isinstance(results, (tuple, list)):
            results = [results]
        return [results[i] for i in self._made]


def _function(
    body: Callable[..., Any],
    name: str,
    module: str,
    hints: dict[str, Any],
    defaults: dict[str, Any],
    variable: str | None,
    keyword_only: Iterable[str] = (),
) -> Callable[..., Any]:
    """Makes the function one of `module` with that name and signature. The parameter `variable`
    takes any number of tensors."""
    parameters = []
    kind: Any = Parameter.POSITIONAL_OR_KEYWORD
    for n, hint in hints.items():
        if n == "return":
            continue
        if n in keyword_only:
            kind = Parameter.KEYWORD_ONLY
        own = Parameter.VAR_POSITIONAL if n == variable else kind
        default = defaults.get(n, Parameter.empty)
        parameters.append(Parameter(n, own, annotation=hint, default=default))
        if n == variable:
            kind = Parameter.KEYWORD_ONLY
    body.__name__, body.__module__ = name, module
    body.__annotations__ = hints
    body.__signature__ = Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=hints.get("return", Signature.empty)
    )
    return body


def from_torch(operator: str, **fixed: Any) -> PluginOp:
    """Makes a plugin of an operator of PyTorch, one of ``torch.library`` or PyTorch's own.

    The operator's fake function gives types and shapes, also dynamic ones, and the operator
    computes, on tensors that share the engine's memory. The plugin's inputs are its arguments of
    type Tensor, then those of type ``Tensor?``, which may be absent, then one of type ``Tensor[]``,
    any number. The attributes are its arguments of type int, float, bool, str and lists of int,
    float and bool, with their default values. After a list of tensors they are keyword-only. Other
    arguments keep their default value. The outputs are the operator's results, then a tensor in
    place of each that it writes to.

    :param operator: ``"namespace::name"``, which becomes the plugin's id; with ``.overload`` where
        the default one is not meant. An ONNX node of the domain `namespace` and the type `name`
        finds the plugin.
    :param fixed: arguments with a fixed value, which are not attributes.
    :returns: what ``op.namespace.name`` is: called with a network's tensors and the attributes, it
        gives what ``network.add_plugin`` takes.
    :raises NotImplementedError: for an operator with arguments or results that a plugin cannot
        have. When it is used, for outputs whose shapes depend on data.
    """
    import torch

    from ._torch_shapes import infer

    plugin_id = operator.partition(".")[0]
    torch_operator = _Operator(_find(operator), fixed)
    count, returned = len(torch_operator.tensors), torch_operator.returned
    mutated = [torch_operator.tensors.index(name) for name in torch_operator.mutated]
    num_outputs = returned + len(mutated)
    variable = torch_operator.variable

    def desc(*positional: Any, **keywords: Any) -> Any:
        end = count if variable is None else len(positional)
        tensors, attributes = positional[:end], [*positional[end:], *keywords.values()]
        present = [tensor for tensor in tensors if tensor is not None]

        def operation(fakes: Sequence[Any]) -> list[torch.Tensor]:
            rest = iter(fakes)
            all_tensors = [None if tensor is None else next(rest) for tensor in tensors]
            return torch_operator(torch_operator.values(all_tensors, attributes))

        try:
            made = infer(operation, present)
        except Exception as error:
            shapes = ", ".join(map(repr, tensors))
            kind = NotImplementedError if isinstance(error, NotImplementedError) else RuntimeError
            raise kind(f"from_torch: '{operator}' for {shapes}: {error}") from error
        outputs = (*made, *(tensors[i].aliased() for i in mutated))
        return outputs if num_outputs > 1 else outputs[0]

    def run(*positional: Any, **keywords: Any) -> None:
        end = count if variable is None else len(positional)
        *attributes, outputs, _stream = *positional[end:], *keywords.values()
        tensors = [t if t is None else t.torch() for t in positional[:end]]
        targets = [t.torch() for t in outputs]
        # Input and output share the memory, but the input's tensor may be read-only, so use the
        # output's.
        for index, target in zip(mutated, targets[returned:]):
            tensors[index] = target
        with torch.no_grad():  # on a GPU the engine's stream is the current one
            results = torch_operator(torch_operator.values(tensors, attributes))
            for index, (target, result) in enumerate(zip(targets, results)):
                if result.shape != target.shape or result.dtype != target.dtype:
                    raise RuntimeError(
                        f"from_torch: '{operator}' made {result.dtype} {tuple(result.shape)} for "
                        f"output {index}, but its fake function said {target.dtype} "
                        f"{tuple(target.shape)}"
                    )
                target.copy_(result)

    attributes = torch_operator.attributes
    name = plugin_id.rpartition("::")[2]
    # Engines that carry the sources of their plugins need the module that calls from_torch.
    module = sys._getframe(1).f_globals.get("__name__", "__main__")
    lists = [variable] if variable is not None else []
    optional = torch_operator.tensors[len(torch_operator.required) :]
    needs_value = any(name not in torch_operator.defaults for name in attributes)
    keyword_only = attributes if optional and needs_value else ()

    hints: dict[str, Any] = {tensor: TensorDesc for tensor in torch_operator.required}
    hints |= {tensor: TensorDesc | None for tensor in optional}
    hints |= {tensor: TensorDesc for tensor in lists} | attributes
    hints["return"] = Tuple[(TensorDesc,) * num_outputs]
    defaults = torch_operator.defaults
    register(plugin_id)(_function(desc, name, module, hints, defaults, variable, keyword_only))

    hints = {tensor: Tensor for tensor in torch_operator.required}
    hints |= {tensor: Tensor | None for tensor in optional}
    hints |= {tensor: Tensor for tensor in lists} | attributes
    hints |= {"outputs": Tuple[(Tensor,) * num_outputs], "stream": int}
    impl(plugin_id)(_function(run, name, module, hints, {}, variable))
    return PluginOp(plugin_id)
