"""Opwright as a backend of the ``onnx`` package, for ``onnx.backend.test.BackendTest``.

::

    import onnx.backend.test
    from opwright import onnx_backend

    tests = onnx.backend.test.BackendTest(onnx_backend, __name__)
    globals().update(tests.test_cases)

runs the standard's own tests. `run_model` and `run_node` run a model or a node once. A model is
built in its first run, for the shapes of that run, since extents may be open in the file. Inputs
that an operator needs as constants, such as the axes of a reduction, become constants of that
engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from . import _core
from ._api import build

__all__ = ["OpwrightBackend", "OpwrightRep", "prepare", "run_model", "run_node", "supports_device"]


def _device(device: str) -> str:
    """The engine's name of a device of the onnx package: "CPU", "CUDA:1"."""
    return device.lower()


def _as_engine_type(array: Any) -> np.ndarray:
    """A dense array; double precision becomes FP32, in which the engine computes."""
    dense = np.ascontiguousarray(array).reshape(np.shape(array))
    return dense.astype(np.float32) if dense.dtype == np.float64 else dense


def _with_tensors(
    model: onnx.ModelProto, given: Mapping[str, Any]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model with tensors as inputs in place of sequences and optionals, and the arrays for
    these inputs.

    A sequence becomes an input for each element. An optional becomes an input if it has a value.
    """
    taken = onnx.ModelProto()
    taken.CopyFrom(model)
    arrays: dict[str, np.ndarray] = {}
    inputs, made = [], []

    def add(value: onnx.ValueInfoProto, type_: onnx.TypeProto, name: str, held: Any) -> None:
        """Adds the tensor or sequence `held` under this name."""
        if type_.HasField("sequence_type"):
            names = [f"{name}/{i}" for i in range(len(held))]
            for part, element in zip(names, held):
                add(value, type_.sequence_type.elem_type, part, element)
            made.append(
                onnx.helper.make_node("SequenceConstruct", names, [name])
                if names
                else onnx.helper.make_node(
                    "SequenceEmpty",
                    [],
                    [name],
                    dtype=type_.sequence_type.elem_type.tensor_type.elem_type,
                )
            )
            return
        tensor = onnx.ValueInfoProto(name=name)
        tensor.type.CopyFrom(type_)
        inputs.append(tensor)
        arrays[name] = _as_engine_type(held)

    for value in model.graph.input:
        if value.name not in given:
            inputs.append(value)
        elif not value.type.HasField("optional_type"):
            add(value, value.type, value.name, given[value.name])
        elif given[value.name] is None:
            held = value.type.optional_type.elem_type
            made.append(onnx.helper.make_node("Optional", [], [value.name], type=held))
        else:
            # An optional with a value is passed as that value.
            add(value, value.type.optional_type.elem_type, value.name, given[value.name])
    nodes = [*made, *model.graph.node]
    del taken.graph.input[:], taken.graph.node[:]
    taken.graph.input.extend(inputs)
    taken.graph.node.extend(nodes)
    return taken, arrays


def _outputs(model: onnx.ModelProto, results: Mapping[str, np.ndarray]) -> list[Any]:
    """The model's outputs in the types that it declares."""
    outputs: list[Any] = []
    for value in model.graph.output:
        if value.name not in results:
            held: list[np.ndarray] = []
            while f"{value.name}/{len(held)}" in results:
                held.append(results[f"{value.name}/{len(held)}"])
            outputs.append(held)
            continue
        is_double = value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
        result = np.asarray(results[value.name])
        outputs.append(result.astype(np.float64) if is_double else result)
    return outputs


class OpwrightRep(BackendRep):
    """A model that runs with any shapes. Each new set of shapes builds an engine.

    Double precision is computed in FP32.
    """

    def __init__(self, model: onnx.ModelProto, device: str, **options: Any) -> None:
        self._model = model
        self._device = device
        self._options = options
        initializers = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [value.name for value in model.graph.input if value.name not in initializers]
        self._engines: dict[Any, _core.Engine] = {}
        self._needed: set[str] = set()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        :param inputs: arrays in the order of the model's inputs, or a mapping of them by name; lists of
            arrays for sequences, None for empty optionals.
        :returns: the outputs, a named tuple by the model's names.
        :raises Error: the model cannot be built for these inputs.
        """
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            given = dict(zip(self._inputs, values))
        model, arrays = _with_tensors(self._model, given)
        engine = self._engine(model, arrays)
        outputs = engine(**{name: arrays[name] for name in engine.inputs})
        results = outputs if isinstance(outputs, dict) else {engine.outputs[0]: outputs}
        names = [value.name for value in self._model.graph.output]
        return namedtupledict("Outputs", names)(*_outputs(self._model, results))

    def _engine(self, model: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> _core.Engine:
        """The engine for arrays of these shapes, and of these elements if an operator needs
        them."""
        while True:
            constants = {name: arrays[name] for name in self._needed if name in arrays}
            key = (
                tuple((name, array.shape) for name, array in sorted(arrays.items())),
                tuple((name, array.tobytes()) for name, array in sorted(constants.items())),
            )
            if key not in self._engines:
                network, needed = self._parse(model, arrays, constants)
                if network is None:
                    self._needed |= needed
                    continue
                self._engines[key] = self._build(network, arrays)
            return self._engines[key]

    def _parse(
        self,
        model: onnx.ModelProto,
        arrays: Mapping[str, np.ndarray],
        constants: Mapping[str, np.ndarray],
    ) -> tuple[_core.INetworkDefinition | None, set[str]]:
        """The network, or the names of inputs that must become constants."""
        logger = _core.Logger(_core.Logger.ERROR)
        network = _core.Builder(logger).create_network(0)
        parser = _core.OnnxParser(network, logger)
        parser._set_logs_errors(False)  # errors are raised, or lead to constants
        for name, array in arrays.items():
            parser.set_input_shape(name, array.shape)
        for name, array in constants.items():
            parser.set_constant_input(name, array)
        if parser.parse(model.SerializeToString()):
            return network, set()
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        needed = {name for error in errors for name in error.needed_constants()} & arrays.keys()
        if not needed - constants.keys():
            raise _core.Error("\n".join(error.desc() for error in errors))
        return None, needed

    def _build(
        self, network: _core.INetworkDefinition, arrays: Mapping[str, np.ndarray]
    ) -> _core.Engine:
        names = [network.get_input(i).name for i in range(network.num_inputs)]
        example = {name: arrays[name] for name in names}
        return build(network, example=example, device=self._device, **self._options)


class OpwrightBackend(Backend):
    """The interface of ``onnx.backend.base.Backend``."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the device can run the model. Unsupported operators show up in the first run."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> OpwrightRep:
        """Checks the model and prepares it for any number of runs.

        :param model: the model, with its weights.
        :param device: ``"CPU"``, ``"CUDA"`` or ``"CUDA:1"``.
        :param kwargs: options of `opwright.build`; ``timing=False`` builds faster.
        """
        onnx.checker.check_model(model)
        return OpwrightRep(model, _device(device), **kwargs)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run a model once; see `OpwrightRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a node once.

        :param inputs: arrays in the order of the node's inputs that are present, or a mapping by name.
        :param kwargs: ``opset_version``, by default the newest, and options of `opwright.build`.
        """
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        arrays = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs))
        values = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array)
            )
            for name, array in arrays.items()
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", values, results)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        return OpwrightRep(model, _device(device), **kwargs).run(dict(arrays))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether engines can be built for the device here."""
        return not _core._device_obstacle(_device(device))


is_compatible = OpwrightBackend.is_compatible
prepare = OpwrightBackend.prepare
run_model = OpwrightBackend.run_model
run_node = OpwrightBackend.run_node
supports_device = OpwrightBackend.supports_device
