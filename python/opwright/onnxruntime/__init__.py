"""ONNX Runtime's Python API over engines. A script only changes its import.

::

    import opwright.onnxruntime as ort

    session = ort.InferenceSession("model.onnx")
    (y,) = session.run(None, {"x": x})
"""

from __future__ import annotations

import warnings as _warnings

from . import _session
from . import capi as capi
from ._binding import IOBinding
from ._errors import not_here as _not_here
from ._model import ModelMetadata, NodeArg
from ._options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    get_all_providers,
    get_available_providers,
    get_device,
)
from ._session import InferenceSession
from ._values import OrtValue

#: The version of ONNX Runtime that the API follows.
__version__ = "1.20.0"


def get_version_string() -> str:
    """`__version__`."""
    return __version__


def get_build_info() -> str:
    """A description of this package."""
    import opwright

    return f"ORT API {__version__} over opwright {opwright.__version__}"


def set_default_logger_severity(severity: int) -> None:
    """Sets the log level of sessions without their own.

    :param severity: 0 (verbose) to 4 (fatal).
    """
    _session.default_severity = int(severity)


def set_default_logger_verbosity(level: int) -> None:
    """Without effect.

    :param level: any.
    """


def set_seed(seed: int) -> None:
    """Only warns: random layers take no seed from it.

    :param seed: any.
    """
    _warnings.warn("opwright.onnxruntime: set_seed has no effect", stacklevel=2)


def enable_telemetry_events() -> None:
    """Without effect: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Without effect: there is no telemetry."""


def preload_dlls(*args: object, **kwargs: object) -> None:
    """Without effect: engines find the libraries of NVIDIA's packages.

    :param args: any.
    :param kwargs: any.
    """


def has_collective_ops() -> bool:
    """False."""
    return False


def create_and_register_allocator(*args: object) -> None:
    """Not here.

    :param args: any.
    :raises NotImplemented: always.
    """
    _not_here("create_and_register_allocator", "leave it out: engines have their own memory")


__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "create_and_register_allocator",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]
