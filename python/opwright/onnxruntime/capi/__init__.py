"""The package in which scripts look for ONNX Runtime's errors."""

from . import onnxruntime_pybind11_state

__all__ = ["onnxruntime_pybind11_state"]
