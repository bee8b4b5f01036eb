"""Opwright: an inference engine built around the custom operator.

The short way::

    import opwright

    engine = opwright.build("model.onnx")
    y = engine(x)
    engine.save("model.engine")
    y = opwright.load("model.engine")(x)

Underneath lies TensorRT's API, name for name: ``import opwright as trt`` gives ``trt.Builder``,
``trt.OnnxParser``, ``trt.Runtime`` and the rest. Operators of your own are made with
``opwright.plugin``.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

from . import aot, plugin
from ._api import build, load
from ._core import *  # noqa: F403
from ._core import Communicator, DataType, DeviceArray, Engine, Error, QueueFullError, Trace
from ._dims import *  # noqa: F403
from ._engine_streams import *  # noqa: F403
from ._plugins.classes import *  # noqa: F403
from ._plugins.classes_quick import *  # noqa: F403
from ._plugins.classes_v2 import *  # noqa: F403
from ._progress import BuildProgress
from ._runtime_classes import *  # noqa: F403
from ._tensorrt.absent_classes import *  # noqa: F403
from ._types import (
    bfloat16,
    bool,
    e8m0,
    float16,
    float32,
    fp4,
    fp8,
    int4,
    int8,
    int32,
    int64,
    nptype,
    uint8,
    volume,
)

__version__ = "0.2.0"

__all__ = [
    "BuildProgress",
    "Communicator",
    "DataType",
    "DeviceArray",
    "Engine",
    "Error",
    "InferenceSession",
    "QueueFullError",
    "ShardedEngine",
    "Trace",
    "aot",
    "bfloat16",
    "bool",
    "build",
    "e8m0",
    "float16",
    "float32",
    "fp4",
    "fp8",
    "int4",
    "int8",
    "int32",
    "int64",
    "load",
    "nptype",
    "plugin",
    "shard",
    "uint8",
    "volume",
]


if _typing.TYPE_CHECKING:
    from . import _engine_tensors as _engine_tensors
    from . import onnxruntime as onnxruntime
    from . import sharding as sharding
    from .onnxruntime import InferenceSession
    from .sharding import ShardedEngine, shard
else:
    _LATE = {
        "InferenceSession": "onnxruntime",
        "ShardedEngine": "sharding",
        "onnxruntime": "onnxruntime",
        "shard": "sharding",
        "sharding": "sharding",
    }

    def __getattr__(name: str) -> object:
        """Imports names at their first use."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _importlib.import_module(f".{_LATE[name]}", __name__)
        value = globals()[name] = module if name == _LATE[name] else getattr(module, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATE})
