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

from . import _engine_tensors as _engine_tensors
from . import aot, plugin
from ._absent_classes import *  # noqa: F403
from ._api import build, load
from ._core import *  # noqa: F403
from ._core import DataType, DeviceArray, Engine, Error, QueueFullError, Trace
from ._dims import *  # noqa: F403
from ._engine_streams import *  # noqa: F403
from ._plugin_classes import *  # noqa: F403
from ._plugin_classes_quick import *  # noqa: F403
from ._plugin_classes_v2 import *  # noqa: F403
from ._progress import BuildProgress
from ._runtime_classes import *  # noqa: F403
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
from .onnxruntime import InferenceSession

__version__ = "0.2.0"

__all__ = [
    "BuildProgress",
    "DataType",
    "DeviceArray",
    "Engine",
    "Error",
    "InferenceSession",
    "QueueFullError",
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
    "uint8",
    "volume",
]
