"""Options of sessions and runs, and providers, by ONNX Runtime's names."""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _core
from ._errors import InvalidArgument, not_here

CPU, CUDA, TENSORRT = (
    "CPUExecutionProvider",
    "CUDAExecutionProvider",
    "TensorrtExecutionProvider",
)


class GraphOptimizationLevel(enum.IntEnum):
    """The optimization level. Below ORT_ENABLE_EXTENDED no kernel is timed, whatever the session's
    entries say. Optimizations that change results only by rounding are always on."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Stored without effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Stored without effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class RunOptions:
    """Options of a run. ``terminate`` keeps a run from beginning; the others are stored without
    effect."""

    def __init__(self) -> None:
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.terminate = False
        self.only_execute_path_to_fetches = False
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Stored without effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The entry of add_run_config_entry; an empty text without one."""
        return self._entries.get(key, "")


class SessionOptions:
    """Options of a session.

    These have an effect: ``intra_op_num_threads`` (threads of a run on the CPU; 0: as many as the
    process may use), ``graph_optimization_level``, ``optimized_model_filepath`` (the path to which
    the engine file is written once it is built; a session reads it), ``log_severity_level``,
    ``enable_profiling`` and ``profile_file_prefix`` (a Chrome trace of builds and runs), and
    ``add_free_dimension_override_by_name``. The others are kept.

    Entries of ``add_session_config_entry`` that count are ``opwright.timing`` ("1": kernels are timed
    on this machine, and the fastest ones taken; otherwise each layer takes its first one, so that a
    session begins at once), ``opwright.timing_cache`` (a file of measured times, which are timed
    once), ``opwright.fp16``, ``opwright.bf16`` and ``opwright.allow_host_code`` ("1").
    """

    # The attributes with their docstrings.
    __slots__ = {
        "_denotations": None,
        "_entries": None,
        "_free": None,
        "_providers": None,
        "enable_cpu_mem_arena": "Kept, without effect.",
        "enable_mem_pattern": "Kept, without effect.",
        "enable_mem_reuse": "Kept, without effect.",
        "enable_profiling": "Whether builds and runs are written down as a Chrome trace.",
        "execution_mode": "Kept, without effect.",
        "execution_order": "Kept, without effect.",
        "graph_optimization_level": "Below ORT_ENABLE_EXTENDED kernels are not timed.",
        "inter_op_num_threads": "Kept, without effect.",
        "intra_op_num_threads": "Threads of a run on the CPU; 0: as many as the process may use.",
        "log_severity_level": "What is told: 0 all, 2 warnings, 3 errors; -1: as the process is set.",
        "log_verbosity_level": "Kept, without effect.",
        "logid": "Kept, without effect.",
        "optimized_model_filepath": "Where the engine file goes once one is built.",
        "profile_file_prefix": "What the name of the trace begins with.",
        "use_deterministic_compute": "Kept, without effect.",
        "use_per_session_threads": "Kept, without effect.",
    }

    def __init__(self) -> None:
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = 0
        self.intra_op_num_threads = 0
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self._entries: dict[str, str] = {}
        self._free: dict[str, int] = {}
        self._denotations: dict[str, int] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Fixes all extents of that name to this number in every run."""
        if dim_value < 1:
            raise InvalidArgument(f"free dimension '{dim_name}': {dim_value} is no extent")
        self._free[dim_name] = int(dim_value)

    def add_free_dimension_override_by_denotation(self, denotation: str, dim_value: int) -> None:
        """Kept, without effect: denotations are not read."""
        self._denotations[denotation] = int(dim_value)

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:
        """Adds a provider for sessions without explicit providers."""
        self._providers.append((name, dict(options or {})))

    def has_providers(self) -> bool:
        """Whether a provider was added."""
        return bool(self._providers)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry. The class lists the entries that have an effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value that add_session_config_entry got.

        :raises InvalidArgument: there is no such entry.
        """
        if key not in self._entries:
            raise InvalidArgument(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> None:
        """Raises NotImplemented: operators are plugins here."""
        not_here(
            f"the interface of the custom operators in '{os.fspath(path)}'",
            "write them as plugins (opwright.plugin), whose libraries "
            "opwright.get_plugin_registry().load_library loads",
        )

    def add_initializer(self, name: str, ortvalue: Any) -> None:
        """Raises NotImplemented."""
        not_here("add_initializer", "put the weights into the model")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Raises NotImplemented."""
        not_here("add_external_initializers", "put the weights into the model")


def is_gpu_usable() -> bool:
    """Whether there is a GPU that can run engines."""
    return not _core._device_obstacle("cuda")


def get_available_providers() -> list[str]:
    """The providers that this machine supports: a GPU's before the CPU's."""
    return [CUDA, CPU] if is_gpu_usable() else [CPU]


def get_all_providers() -> list[str]:
    """The providers that sessions accept. TensorRT's runs on the GPU as CUDA's does."""
    return [TENSORRT, CUDA, CPU]


def get_device() -> str:
    """ "GPU" or "CPU"."""
    return "GPU" if is_gpu_usable() else "CPU"


def normalize_providers(
    providers: Sequence[Any] | None, provider_options: Sequence[Mapping[Any, Any]] | None
) -> dict[str, dict[str, str]]:
    """The available providers with their options, in order.

    :raises ValueError: for anything but names and (name, options).
    """
    if providers is None:
        if provider_options is not None:
            raise ValueError("'provider_options' needs 'providers'")
        return {name: {} for name in get_available_providers()}
    if provider_options is not None and len(providers) != len(provider_options):
        raise ValueError(
            "'providers' and 'provider_options' should be the same length if both are given."
        )
    taken: dict[str, dict[str, str]] = {}
    available = get_available_providers()
    for index, provider in enumerate(providers):
        options: Any = provider_options[index] if provider_options is not None else {}
        name = provider
        if isinstance(provider, (tuple, list)) and len(provider) == 2:
            name, options = provider
        if not isinstance(name, str) or not isinstance(options, Mapping):
            raise ValueError(
                "'providers' values must be either strings or (string, dict) tuples; "
                f"{provider!r} was given"
            )
        if name not in available and not (name == TENSORRT and CUDA in available):
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(available)}'",
                stacklevel=4,
            )
            continue
        taken.setdefault(name, {str(key): str(value) for key, value in options.items()})
    taken.setdefault(CPU, {})
    return taken


def device_of(providers: Mapping[str, Mapping[str, str]]) -> str:
    """The engine's name of the first provider's device."""
    name, options = next(iter(providers.items()))
    return "cpu" if name == CPU else f"cuda:{options.get('device_id', '0')}"
