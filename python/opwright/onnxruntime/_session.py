"""InferenceSession: ONNX Runtime's class over engines."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _api, _core
from . import _errors as errors
from ._binding import IOBinding
from ._engines import Engines, OneEngine
from ._model import (
    Description,
    ModelMetadata,
    NodeArg,
    describe,
    describe_engine,
    numpy_type,
    type_of,
)
from ._options import (
    CPU,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    device_of,
    normalize_providers,
)
from ._values import GpuArray, OrtValue, array_of, to_value

_ENGINE_MAGIC = b"OPWRIGHT"
# Levels of logging by ONNX Runtime's levels 0 to 4: verbose, info, warning, error, fatal.
_LEVELS = [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL]


class _SessionLogger(_core.ILogger):
    """Passes messages of at least a level to the logger ``opwright.onnxruntime``."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = _LEVELS[max(0, min(level, 4))]

    def log(self, severity: Any, msg: str) -> None:
        level = [50, 40, 30, 20, 10][int(severity)]
        if level >= self._level:
            logging.getLogger("opwright.onnxruntime").log(level, "%s", msg)


class _Trace:
    """Events for Chrome's trace viewer, as ``end_profiling`` writes them."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.time_ns()
        self._zero = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        self._path = f"{prefix}{'_' if prefix and not prefix.endswith('_') else ''}{stamp}.json"

    def add(self, name: str, begin: int) -> None:
        """Adds an event that began at `begin`, by time.perf_counter_ns(), and ends now."""
        self._events.append(
            {
                "cat": "Session",
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "dur": (time.perf_counter_ns() - begin) // 1000,
                "ts": (begin - self._zero) // 1000,
                "ph": "X",
                "name": name,
                "args": {},
            }
        )

    def write(self) -> str:
        """Writes the file and returns its name."""
        _core._write_file(self._path, json.dumps(self._events, indent=1).encode())
        return self._path


class InferenceSession:
    """Runs a model as ``onnxruntime.InferenceSession`` does.

    A model with open extents is built in its first run, for the given shapes, and again for larger
    ones. A model without open extents is built at once.

    :param path_or_bytes: an ONNX file, the bytes of one, an ``onnx.ModelProto``, an engine file, its
        bytes, or an ``opwright.Engine``.
    :param sess_options: `SessionOptions`.
    :param providers: names, or (name, options), in the order of preference. Engines run on the
        device of the first available one. None: the GPU if there is one. An engine has its own
        device.
    :param provider_options: a dict for each provider.
    :raises NoSuchFile: there is no file of that name.
    :raises InvalidProtobuf: the argument is not an ONNX model.
    :raises NotImplemented: the model has an unsupported operator or type.
    :raises Fail: the model cannot be built.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._options = sess_options if sess_options is not None else SessionOptions()
        if not isinstance(self._options, SessionOptions):
            raise TypeError(
                f"sess_options: expected a SessionOptions; {type(sess_options).__name__} was given"
            )
        known = {"disabled_optimizers", "enable_fallback", "read_config_from_model"}
        if unknown := kwargs.keys() - known:
            raise TypeError(f"InferenceSession: unknown arguments {sorted(unknown)}")
        self._trace: _Trace | None = None
        if self._options.enable_profiling:
            self._trace = _Trace(self._options.profile_file_prefix)
        self._is_saved = False
        self._engine: _core.Engine | None = None
        self._model: bytes | str = b""
        self._description = self._read(path_or_bytes)
        self._inputs = {arg.name: arg for arg in self._description.inputs}
        self._outputs = {arg.name: arg for arg in self._description.outputs}
        self.set_providers(providers, provider_options)

    def _read(self, given: Any) -> Description:
        """Takes the model and returns its description."""
        if isinstance(given, _core.Engine):
            self._engine = given
            return describe_engine(given)
        if hasattr(given, "SerializeToString"):
            given = given.SerializeToString()
        if isinstance(given, (str, os.PathLike)):
            path = os.fspath(given)
            if not os.path.isfile(path):
                raise errors.NoSuchFile(
                    f"Load model from {path} failed:Load model {path} failed. File doesn't exist"
                )
            self._model = path
            given = Path(path).read_bytes()
        elif isinstance(given, (bytes, bytearray, memoryview)):
            given = self._model = bytes(given)
        else:
            raise TypeError(f"Unable to load from type '{type(given)}'")
        if given.startswith(_ENGINE_MAGIC):
            allowed = self._entry("opwright.allow_host_code") == "1"
            runtime = _core.Runtime(self._logger() or _core._logger("opwright.onnxruntime"))
            runtime.engine_host_code_allowed = allowed
            self._engine = _core.Engine(runtime.deserialize_cuda_engine(given))
            return describe_engine(self._engine)
        description = describe(given)
        free = self._options._free
        for arg in description.inputs:
            arg.shape = [free.get(e, e) if isinstance(e, str) else e for e in arg.shape]
        return description

    def _entry(self, key: str) -> str:
        return self._options._entries.get(key, "")

    def _logger(self) -> _core.ILogger | None:
        level = self._options.log_severity_level
        level = default_severity if level < 0 else level
        return None if level < 0 else _SessionLogger(level)

    def _build_options(self) -> dict[str, Any]:
        level = self._options.graph_optimization_level
        cache = self._entry("opwright.timing_cache")
        is_timed = bool(cache) or self._entry("opwright.timing") == "1"
        options: dict[str, Any] = {
            "timing": is_timed and level >= GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
            "logger": self._logger() or _core._logger("opwright.onnxruntime"),
        }
        for name in ("fp16", "bf16"):
            options[name] = self._entry(f"opwright.{name}") == "1"
        if cache:
            options["timing_cache"] = cache
        return options

    # Providers.

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
    ) -> None:
        """Sets other devices. Engines are built again."""
        if self._engine is not None:
            on_cpu = "cpu" in repr(self._engine.engine).split(":", 1)[0]
            self._providers: dict[str, dict[str, str]] = (
                {CPU: {}} if on_cpu else {"CUDAExecutionProvider": {}, CPU: {}}
            )
            self._engines: Engines | OneEngine = OneEngine(self._engine)
            return
        self._providers = normalize_providers(
            providers if providers is not None else self._options._providers or None,
            provider_options,
        )
        engines = Engines(
            self._model,
            {name: arg.shape for name, arg in self._inputs.items()},
            device_of(self._providers),
            self._build_options(),
            self._options.intra_op_num_threads,
        )
        self._engines = engines
        begin = time.perf_counter_ns()
        with _translated():
            engines.check()
            if engines.is_fixed:
                zeros = {name: _zeros(arg) for name, arg in self._inputs.items()}
                try:
                    self._saved(engines.find(zeros))
                except _core.Error:
                    # The build may depend on values of inputs, which are known in the first run.
                    pass
        if self._trace is not None:
            self._trace.add("model_loading", begin)

    def get_providers(self) -> list[str]:
        """The providers in use. The first one determines the device."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the providers in use."""
        return {name: dict(options) for name, options in self._providers.items()}

    def disable_fallback(self) -> None:
        """Without effect: there is no fallback during runs."""

    def enable_fallback(self) -> None:
        """Without effect."""

    # Description of the model.

    def get_inputs(self) -> list[NodeArg]:
        """The inputs of a run."""
        return list(self._description.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return list(self._description.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with initial values, which they keep."""
        return list(self._description.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """The model's metadata."""
        return self._description.metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_session_graph_assignment_info(self) -> list[Any]:
        """Empty: an engine runs on one device."""
        return []

    # Runs.

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs of these names as NumPy arrays; None: all.

        :param input_feed: arrays by the inputs' names, of the inputs' types; lists take them.
        :raises ValueError: an input is missing.
        :raises InvalidArgument: an unknown name, or an array of another type or shape.
        """
        results = self._call(output_names, input_feed, run_options)
        return [to_value(result).numpy() for result in results]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with OrtValues."""
        return [
            to_value(result)
            for result in self._call(output_names, input_dict_ort_values, run_options)
        ]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Sequence[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs in a thread, which then calls ``callback(results, user_data, error)``."""

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as problem:  # passed to the callback
                results, error = [], str(problem)
            callback(results, user_data, error)

        threading.Thread(target=work).start()

    def io_binding(self) -> IOBinding:
        """Makes an IOBinding for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Runs on the bound arrays."""
        iobinding._run(run_options)

    def end_profiling(self) -> str:
        """Writes the trace and returns its name."""
        if self._trace is None:
            return ""
        return self._trace.write()

    def get_profiling_start_time_ns(self) -> int:
        """The start of the trace in nanoseconds since 1970; 0 without a trace."""
        return self._trace.start_ns if self._trace is not None else 0

    def _call(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        options: RunOptions | None,
        into: Mapping[str, GpuArray] | None = None,
    ) -> list[Any]:
        """The outputs of these names. With `into` they are in GPU memory: in the arrays that it has
        for them, if the engine computes their type."""
        if options is not None and options.terminate:
            raise errors.Fail("Exiting due to terminate flag being set to true.")
        names = list(output_names) if output_names else list(self._outputs)
        for name in names:
            if name not in self._outputs:
                raise errors.InvalidArgument(f"Invalid output name: {name}")
        arrays = self._checked(feed)
        begin = time.perf_counter_ns()
        with _translated():
            engine = self._saved(self._engines.find(arrays))
            arguments = {name: _argument(arrays[name], tensor) for name, tensor in engine.inputs.items()}
            if into is None:
                results = engine(arguments)
            else:
                fitting = {
                    name: array.for_engine()
                    for name, array in into.items()
                    if type_of(array.dtype) == self._outputs[name].type != "tensor(double)"
                    and array.device_id == self._device_id()
                }
                results = engine._call_into(arguments, fitting)
        if len(engine.outputs) == 1:
            results = {engine.outputs[0]: results}
        if self._trace is not None:
            self._trace.add("model_run", begin)
        return [_as_declared(results[name], self._outputs[name].type) for name in names]

    def _saved(self, engine: _core.Engine) -> _core.Engine:
        path = self._options.optimized_model_filepath
        if path and not self._is_saved:
            engine.save(path)
            self._is_saved = True
        return engine

    def _checked(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays in the form that engines take."""
        if not isinstance(feed, Mapping):
            raise TypeError(
                "run: input_feed is a dict of arrays by the inputs' names, "
                f"{list(self._inputs)}; {type(feed).__name__} was given"
            )
        if missing := [name for name in self._inputs if name not in feed]:
            raise ValueError(
                f"Required inputs ({missing}) are missing from input feed ({list(feed)})."
            )
        for name in feed:
            if name not in self._inputs:
                raise errors.InvalidArgument(f"Invalid input name: {name}")
        return {name: self._array(arg, feed[name]) for name, arg in self._inputs.items()}

    def _array(self, arg: NodeArg, value: Any) -> Any:
        array = array_of(value)
        if not hasattr(array, "dtype"):
            try:
                array = np.asarray(array, numpy_type(arg.type))
            except (TypeError, ValueError, OverflowError) as error:
                raise errors.InvalidArgument(
                    f"input '{arg.name}' is {arg.type}; {type(value).__name__} was given, of which NumPy "
                    f"makes no such array: {error}"
                ) from None
        if hasattr(array, "detach"):  # a PyTorch tensor
            array = array.detach()
            array = array.numpy() if array.device.type == "cpu" else array
        given = type_of(array.dtype) if isinstance(array.dtype, np.dtype) else arg.type
        if given != arg.type:
            raise errors.InvalidArgument(
                f"Unexpected input data type. Actual: ({given}) , expected: ({arg.type})"
                f" (input '{arg.name}')"
            )
        shape = tuple(array.shape)
        if len(shape) != len(arg.shape) and (arg.shape or self._engine is not None):
            raise errors.InvalidArgument(
                f"Invalid rank for input: {arg.name} Got: {len(shape)} Expected: {len(arg.shape)} "
                "Please fix either the inputs/outputs or the model."
            )
        wrong = [
            f" index: {i} Got: {extent} Expected: {expected}"
            for i, (extent, expected) in enumerate(zip(shape, arg.shape))
            if isinstance(expected, int) and extent != expected
        ]
        if wrong:
            raise errors.InvalidArgument(
                f"Got invalid dimensions for input: {arg.name} for the following indices\n"
                + "\n".join(wrong)
                + "\n Please fix either the inputs/outputs or the model."
            )
        if isinstance(array, GpuArray):
            if arg.type != "tensor(double)" and array.device_id == self._device_id():
                return array
            array = array.numpy()
        fed = _fed_type(arg.type)
        return (
            array if array.dtype == fed or not isinstance(array, np.ndarray) else array.astype(fed)
        )

    def _device_id(self) -> int:
        """The number of the GPU that runs engines; -1: the CPU."""
        name, options = next(iter(self._providers.items()))
        return -1 if name == CPU else int(options.get("device_id", "0"))


#: The log level of sessions without their own; -1: the level of Python's logging.
default_severity = -1


def _fed_type(type_: str) -> np.dtype[Any]:
    """The type in which the engine takes an input: double precision is computed in FP32."""
    return np.dtype(np.float32) if type_ == "tensor(double)" else numpy_type(type_)


def _zeros(arg: NodeArg) -> np.ndarray:
    """Zeros for an input whose extents are all known."""
    return np.zeros([e for e in arg.shape if isinstance(e, int)], _fed_type(arg.type))


def _argument(array: Any, tensor: Any) -> Any:
    """The array in the form that an engine takes for that input."""
    if not isinstance(array, GpuArray):
        return array
    # Shapes are computed on the host.
    return array.for_engine() if tensor.values is None else array.numpy()


def _as_declared(result: Any, type_: str) -> Any:
    return to_value(result).numpy().astype(np.float64) if type_ == "tensor(double)" else result


class _translated:
    """Converts errors of the engine to the classes of ONNX Runtime."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if not isinstance(error, _core.Error) or isinstance(error, errors.OrtError):
            return
        codes = error.codes if isinstance(error, _api.ParseError) else set()
        made: type[errors.OrtError] = errors.Fail
        for code, kind in _KINDS.items():
            if code in codes:
                made = kind
                break
        raise made(str(error)) from error


_KINDS = {
    _core.ErrorCode.MODEL_DESERIALIZE_FAILED: errors.InvalidProtobuf,
    _core.ErrorCode.UNSUPPORTED_NODE: errors.NotImplemented,
    _core.ErrorCode.UNSUPPORTED_NODE_DATATYPE: errors.NotImplemented,
    _core.ErrorCode.INVALID_GRAPH: errors.InvalidGraph,
    _core.ErrorCode.INVALID_NODE: errors.InvalidGraph,
}
