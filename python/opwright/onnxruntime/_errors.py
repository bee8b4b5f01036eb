"""ONNX Runtime's errors, under the names that scripts catch."""

from __future__ import annotations

from typing import NoReturn

from .. import _core


class OrtError(_core.Error):
    """Base of these errors: ``opwright.Error`` with ONNX Runtime's prefix in the message."""

    code, label = 1, "FAIL"

    def __init__(self, message: str) -> None:
        super().__init__(f"[ONNXRuntimeError] : {self.code} : {self.label} : {message}")


class Fail(OrtError):
    """A model that cannot be built, or a run that failed."""


class InvalidArgument(OrtError):
    """A feed, a name or an option that does not fit the model."""

    code, label = 2, "INVALID_ARGUMENT"


class NoSuchFile(OrtError):
    """There is no file of that name."""

    code, label = 3, "NO_SUCHFILE"


class NoModel(OrtError):
    """No model was given."""

    code, label = 4, "NO_MODEL"


class EngineError(OrtError):
    """Not raised."""

    code, label = 5, "ENGINE_ERROR"


class RuntimeException(OrtError):
    """A run that failed within a layer or a plugin."""

    code, label = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    """Bytes that are not an ONNX model."""

    code, label = 7, "INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    """Not raised."""

    code, label = 8, "MODEL_LOADED"


class NotImplemented(OrtError):  # noqa: A001
    """A part of ONNX Runtime or of a model that Opwright lacks."""

    code, label = 9, "NOT_IMPLEMENTED"


class InvalidGraph(OrtError):
    """A model whose nodes do not fit together."""

    code, label = 10, "INVALID_GRAPH"


class EPFail(OrtError):
    """A device that cannot be used."""

    code, label = 11, "EP_FAIL"


def not_here(what: str, instead: str) -> NoReturn:
    """Raises NotImplemented."""
    error = NotImplemented(f"{what} is not in opwright.onnxruntime; {instead}")
    raise error
