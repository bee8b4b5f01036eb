"""The short API: build and load engines in one call."""

from __future__ import annotations

import operator
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _core
from ._progress import BuildProgress

Shape = Sequence[int]
ShapeRange = tuple[Shape, Shape, Shape]


class ParseError(_core.Error):
    """Raised for an ONNX model that cannot be imported."""

    def __init__(self, errors: Sequence[_core.ParserError]) -> None:
        super().__init__("\n".join(error.desc() for error in errors))
        self.codes = {error.code() for error in errors}
        self.needed_constants = {name for error in errors for name in error.needed_constants()}


class _Callback:
    """Passes a build's progress to `report(phase, done, total)`."""

    def __init__(self, report: Callable[[str, int, int], Any]):
        self._report = report
        self._totals: dict[str, int] = {}

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self._totals[phase_name] = num_steps

    def step_complete(self, phase_name: str, step: int) -> bool:
        return self._report(phase_name, step, self._totals[phase_name]) is not False

    def phase_finish(self, phase_name: str) -> None:
        pass


def _parse(
    model: Any,
    builder: _core.Builder,
    logger: _core.ILogger,
    flags: int,
    allow_links: bool,
    shapes: Mapping[str, Shape | ShapeRange],
    constants: Mapping[str, Any],
    bounds: Mapping[str, int],
    seconds: float,
    files: list[str],
) -> _core.INetworkDefinition:
    network = builder.create_network(flags)
    parser = _core.OnnxParser(network, logger)
    parser._set_logs_errors(False)  # errors are raised instead
    parser._set_in_short_api()
    if seconds > 0:
        parser.time_limit = seconds
    parser.links_allowed = allow_links
    for name, shape in shapes.items():
        low, _, high = range_of(shape)
        if len(low) == len(high):
            parser.set_input_shape(name, [a if a == b else -1 for a, b in zip(low, high)])
    for name, array in constants.items():
        parser.set_constant_input(name, array)
    for name, most in bounds.items():
        parser.set_upper_bound(name, most)
    if isinstance(model, (str, os.PathLike)):
        taken = parser.parse_from_file(os.fspath(model))
    elif hasattr(model, "SerializeToString"):
        taken = parser.parse(model.SerializeToString())
    else:
        try:
            memoryview(model)
        except TypeError:
            raise TypeError(
                "build: the model is the path of an ONNX file, its bytes, an onnx.ModelProto, an "
                f"INetworkDefinition or a module of PyTorch; {type(model).__name__} was given"
            ) from None
        taken = parser.parse(model)
    if not taken:
        raise ParseError([parser.get_error(i) for i in range(parser.num_errors)])
    files += parser._files
    return network


def _check_ranges(
    given: Any, argument: str, parts: Callable[[Any], tuple[Any, ...]], expected: str
) -> None:
    """Raises TypeError unless it is a dict of what ``parts`` makes lists of integers of."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"build: {argument} is a dict by the names of the model's inputs; "
            f"{type(given).__name__} was given"
        )
    for name, value in given.items():
        try:
            for part in parts(value):
                list(map(operator.index, part))
        except (TypeError, ValueError):
            message = f"build: {argument} has {value!r} for {name!r}; expected {expected}"
            raise TypeError(message) from None


def _values_of(values: ShapeRange) -> tuple[Any, ...]:
    low, opt, high = values
    return tuple(map(np.atleast_1d, (low, opt, high)))


def range_of(shape: Shape | ShapeRange) -> tuple[Any, Any, Any]:
    """(min, opt, max) of a shape argument of ``build``."""
    is_range = len(shape) == 3 and all(isinstance(part, (tuple, list)) for part in shape)
    low, opt, high = shape if is_range else (shape, shape, shape)
    return low, opt, high


def _profile(
    builder: _core.Builder, shapes: Mapping[str, Shape | ShapeRange]
) -> _core.IOptimizationProfile:
    profile = builder.create_optimization_profile()
    for name, shape in shapes.items():
        profile.set_shape(name, *range_of(shape))
    return profile


def _checked_example(example: Any, constants: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(example, Mapping):
        raise TypeError(
            "build: example is a dict of arrays by the names of the model's inputs, "
            f'example={{"x": x}}; {type(example).__name__} was given'
        )
    for name, array in example.items():
        if not isinstance(name, str) or array is None or isinstance(array, str):
            raise TypeError(
                f"build: example has {type(array).__name__} for {name!r}; expected a dict of arrays "
                "by the names of the model's inputs"
            )
    return {name: array for name, array in example.items() if name not in constants}


def _example_shapes(example: Mapping[str, Any]) -> dict[str, Shape]:
    return {name: tuple(np.shape(array)) for name, array in example.items()}


def _example_values(
    example: Mapping[str, Any], network: _core.INetworkDefinition
) -> dict[str, ShapeRange]:
    """The example's values for inputs whose values decide shapes."""
    values: dict[str, ShapeRange] = {}
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    known = [tensor.name for tensor in inputs]
    for name in example:
        if name not in known:
            raise TypeError(f"build: example has {name!r}; the model's inputs are {known}")
    for tensor in inputs:
        if tensor.name in example and tensor.is_shape_tensor:
            array = example[tensor.name]
            held = array.tolist() if hasattr(array, "tolist") else array
            flat = [int(value) for value in np.asarray(held).ravel()]
            values[tensor.name] = (flat, flat, flat)
    return values


def _is_torch(model: Any) -> bool:
    """True for a PyTorch module or exported program. Does not import torch."""
    torch = sys.modules.get("torch")
    kinds = (
        getattr(getattr(torch, "nn", None), "Module", None),
        getattr(getattr(torch, "export", None), "ExportedProgram", None),
    )
    return any(kind is not None and isinstance(model, kind) for kind in kinds)


def definition(
    model: Any,
    args: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    example: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Shape | ShapeRange] | None = None,
    values: Mapping[str, ShapeRange] | None = None,
    constants: Mapping[str, Any] | None = None,
    bounds: Mapping[str, int] | None = None,
    device: str | _core.DeviceType | None = None,
    fp16: bool = False,
    bf16: bool = False,
    strongly_typed: bool = False,
    prefer_aot: bool | None = None,
    allow_links: bool = False,
    limits: _core.Limits | None = None,
    logger: _core.ILogger | None = None,
    files: list[str] | None = None,
    **settings: Any,
) -> tuple[_core.Builder, _core.INetworkDefinition, _core.IBuilderConfig]:
    """The builder, network and config of ``build``, without timing cache and progress.

    :param files: gets the names of the model's files.
    :param settings: properties of the config.
    """
    for name in settings:
        if not hasattr(_core.IBuilderConfig, name):
            raise TypeError(f"build: there is no argument {name!r}")
    start = time.monotonic()
    logger = logger or _core._logger("opwright.build")
    builder = _core.Builder(logger)
    is_torch = _is_torch(model)
    if not is_torch and (args is not None or kwargs is not None or dynamic_shapes is not None):
        raise TypeError("build: args, kwargs and dynamic_shapes are for modules of PyTorch")
    flag = _core.NetworkDefinitionCreationFlag
    flags = 0
    # A module fixes the type of every tensor. The types stay unless FP16 or BF16 is allowed.
    if strongly_typed or (is_torch and not (fp16 or bf16)):
        flags |= 1 << int(flag.STRONGLY_TYPED)
    if prefer_aot is not None:
        flags |= 1 << int(
            flag.PREFER_AOT_PYTHON_PLUGINS if prefer_aot else flag.PREFER_JIT_PYTHON_PLUGINS
        )
    config = builder.create_builder_config()
    config._in_short_api = True
    if is_torch and example is not None:
        raise TypeError(
            "build: example is for ONNX models and networks; args are examples of a module's "
            "arguments"
        )
    _check_ranges(shapes or {}, "shapes", range_of, "a shape, or three: (min, opt, max)")
    _check_ranges(values or {}, "values", _values_of, "lists of integers: (min, opt, max)")
    given = _checked_example({} if example is None else example, constants or {})
    shapes = {**_example_shapes(given), **(shapes or {})}
    if device is not None:
        config._device = _core._parse_device(device)
    if isinstance(model, _core.INetworkDefinition):
        network = model
    elif is_torch:
        from .torch._export import export, network_of

        if constants or bounds:
            raise TypeError("build: constants and bounds are for ONNX models")
        network = builder.create_network(flags)
        program = export(model, args, kwargs, dynamic_shapes)
        on_gpu = config.default_device_type == _core.DeviceType.GPU
        exported = network_of(program, network, shapes, on_gpu)
        shapes = {**exported.shapes, **shapes}
        values = {**exported.values, **(values or {})}
    else:
        network = _parse(
            model,
            builder,
            logger,
            flags,
            allow_links,
            shapes,
            constants or {},
            bounds or {},
            limits.build_seconds if limits is not None else 0,
            [] if files is None else files,
        )

    values = {**_example_values(given, network), **(values or {})}
    for name, value in settings.items():
        setattr(config, name, value)
    if limits is not None:
        config.limits = limits
        if limits.build_seconds > 0:  # reading the model counts towards the limit
            left = limits.build_seconds - (time.monotonic() - start)
            config.limits.build_seconds = max(left, 1e-9)
    if fp16:
        config.set_flag(_core.BuilderFlag.FP16)
    if bf16:
        config.set_flag(_core.BuilderFlag.BF16)
    if shapes or values:
        profile = _profile(builder, shapes)
        for name, (low, opt, high) in values.items():
            profile.set_shape_input(name, low, opt, high)
        config.add_optimization_profile(profile)
    return builder, network, config


def build(
    model: Any,
    args: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    example: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Shape | ShapeRange] | None = None,
    values: Mapping[str, ShapeRange] | None = None,
    constants: Mapping[str, Any] | None = None,
    bounds: Mapping[str, int] | None = None,
    device: str | _core.DeviceType | None = None,
    fp16: bool = False,
    bf16: bool = False,
    strongly_typed: bool = False,
    prefer_aot: bool | None = None,
    timing: bool = True,
    timing_cache: str | os.PathLike[str] | None = None,
    plugins_to_serialize: Sequence[str | os.PathLike[str]] = (),
    embed_python_plugins: bool = False,
    debug_plugins: bool = False,
    verify: bool | str = False,
    all_tactics: bool = False,
    allow_links: bool = False,
    limits: _core.Limits | None = None,
    progress: bool | Callable[[str, int, int], Any] = False,
    logger: _core.ILogger | None = None,
) -> _core.Engine:
    """Build an engine that is called like a function.

    :param model: the path of an ONNX file, the bytes of one, an ``onnx.ModelProto``, an
        ``INetworkDefinition``, a ``torch.nn.Module`` or a ``torch.export.ExportedProgram``.
    :param args: for a module: a tuple of example arguments, with which ``torch.export`` calls it.
    :param kwargs: for a module: example keyword arguments.
    :param dynamic_shapes: for a module: the open extents, as for ``torch.export.export``. The
        ranges of ``torch.export.Dim`` become those of the optimization profile. The example's
        extents are the typical ones.
    :param example: for an ONNX model or a network: arrays by input name. The engine takes only
        inputs of these shapes and, for inputs whose values decide shapes, only these values.
        ``shapes`` and ``values`` override the example. For a module, ``args`` fix the extents that
        ``dynamic_shapes`` leaves out.
    :param shapes: a shape, or (min, opt, max), for each input of dynamic shape.
    :param values: (min, opt, max) for each input whose values decide shapes.
    :param constants: arrays with the elements of an ONNX model's inputs in every run. The engine
        lacks these inputs.
    :param bounds: upper bounds, by name, of an ONNX model's tensors whose elements decide extents.
        Needed if no bound follows from their computation. Memory is planned for them; a run with a
        larger extent fails.
    :param device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``DeviceType``; by default a usable GPU,
        else the CPU.
    :param fp16: allow FP16 if it is faster; inputs and outputs keep their types.
    :param bf16: allow BF16 in the same way.
    :param strongly_typed: keep the model's types everywhere.
    :param prefer_aot: for plugins with both, takes the compiled implementation (True) or the Python
        one (False); None: a model with such a plugin must choose.
    :param timing: False times nothing and runs no plugin. Each layer takes its fastest candidate of
        the timing cache, or else its first one.
    :param timing_cache: a file of measured times, which the build reads and extends. It keeps the
        times of all its devices. Any other file is an error.
    :param plugins_to_serialize: paths of plugin libraries that the engine carries; load them first
        with ``get_plugin_registry().load_library``.
    :param embed_python_plugins: whether the engine carries the sources of Python plugins.
    :param debug_plugins: whether the engine checks every call of a plugin, which is slower. A fault
        of the plugin's memory raises ``Error``. NaN made of finite inputs is a warning.
    :param verify: True compares the results of each layer's candidates with a reference, as
        ``IBuilderConfig.verify``. A candidate that differs by more than its types allow is dropped
        with a warning, or raises ``Error`` with ``"strict"``. False compares only plugins.
    :param all_tactics: whether to time all candidates that can compute a layer, not only those that
        may be the fastest for its sizes.
    :param allow_links: permits external data behind symbolic links that lead out of the model's
        folder, as in a store of models that keeps each file once. Allow it if you trust the author
        of the links.
    :param limits: limits of the build and of the engine, such as ``opwright.Limits(build_memory=2
        << 30, build_seconds=60)``; None: the defaults.
    :param progress: True shows the phase, a bar and the time left, as ``BuildProgress`` does. A
        function is called as ``progress(phase, done, total)``; it cancels by returning False.
    :param logger: gets the messages; None: ``logging.getLogger("opwright.build")``. Errors are
        raised and not logged.
    :raises Error: with the faulty node or layer. Nothing is left half made.
    """
    files: list[str] = []
    builder, network, config = definition(
        model,
        args,
        kwargs=kwargs,
        dynamic_shapes=dynamic_shapes,
        example=example,
        shapes=shapes,
        values=values,
        constants=constants,
        bounds=bounds,
        device=device,
        fp16=fp16,
        bf16=bf16,
        strongly_typed=strongly_typed,
        prefer_aot=prefer_aot,
        timing=timing,
        plugins_to_serialize=plugins_to_serialize,
        embed_python_plugins=embed_python_plugins,
        debug_plugins=debug_plugins,
        verify=verify,
        all_tactics=all_tactics,
        allow_links=allow_links,
        limits=limits,
        logger=logger,
        files=files,
    )
    cache = None
    if timing_cache is not None:
        cache = open_timing_cache(timing_cache, config)
        config.set_timing_cache(cache, False)
    try:
        engine = run_build(builder, network, config, progress)
    finally:  # measured times are kept, however the build ended
        if timing_cache is not None and cache is not None:
            cache.save(os.fspath(timing_cache))
    engine._set_model_files(files)
    return engine


def run_build(
    builder: _core.Builder,
    network: _core.INetworkDefinition,
    config: _core.IBuilderConfig,
    progress: bool | Callable[[str, int, int], Any],
) -> _core.Engine:
    """Builds the engine of a network; `progress` as in ``build``."""
    shown = BuildProgress() if progress is True else None
    if shown is not None:
        config.progress_monitor = shown
    elif callable(progress):
        config.progress_monitor = _Callback(progress)
    engine = None
    try:
        engine = builder.build_engine_with_config(network, config)
    finally:
        if shown is not None:
            shown.close(engine is not None)
    return _core.Engine(engine)


def open_timing_cache(
    path: str | os.PathLike[str], config: _core.IBuilderConfig
) -> _core.ITimingCache:
    """The times in a file, or an empty cache if the file has none for the config's device."""
    fresh = config.create_timing_cache(b"")
    cache = _core.ITimingCache.load(os.fspath(path), fresh.device_identity)
    return fresh if cache is None else cache


def load(
    path: str | os.PathLike[str],
    *,
    allow_host_code: bool = False,
    allow_device_code: bool = False,
    verify_weights: bool = True,
    debug_plugins: bool | None = None,
    device: str | _core.DeviceType | None = None,
    limits: _core.Limits | None = None,
    logger: _core.ILogger | None = None,
) -> _core.Engine:
    """Load an engine file, also one from ``Builder.build_serialized_network``.

    :param path: the path of the file.
    :param allow_host_code: permits the file's host code: compiled CPU kernels, plugin libraries,
        Python sources of plugins. Allow it only for files that you trust.
    :param allow_device_code: permits the file's GPU code, which nearly all engines for a GPU hold.
        It can read and change all memory of the process that the GPU reaches. ``allow_host_code``
        implies it. An engine that this process built needs neither.
    :param verify_weights: False skips hashing the weights, for large files on trusted storage.
    :param debug_plugins: checks every call of a plugin, as in ``build``; None: the engine's own
        setting.
    :param device: one of several GPUs, ``"cuda:1"``. An engine runs on the kind of device that it
        was built for.
    :param limits: limits of the file's memory and time, such as ``opwright.Limits(memory=2 <<
        30)``; None: the defaults.
    :param logger: gets the messages; None: ``logging.getLogger("opwright.engine")``.
    :raises Error: for a file that is damaged, foreign, needs a plugin that is not registered,
        goes beyond a limit, or holds code that was not allowed.
    """
    return _core._load_engine(
        os.fspath(path),
        allow_host_code,
        allow_device_code,
        verify_weights,
        debug_plugins,
        logger,
        None if device is None else _core._parse_device(device),
        limits or _core.Limits(),
    )


def unpickle_engine(file: bytes) -> _core.Engine:
    """Loads the engine of a pickle. Its code is as trusted as the pickle itself."""
    runtime = _core.Runtime(_core._logger("opwright.engine"))
    runtime.engine_host_code_allowed = True
    return _core.Engine(runtime.deserialize_cuda_engine(file))
