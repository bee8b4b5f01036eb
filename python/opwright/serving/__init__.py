"""A server of engines: the KServe v2 protocol over HTTP, with dynamic batching and bounded queues.

``opwright serve model.engine`` is the command; :func:`create_app` gives the same as an ASGI
application. Needs ``pip install opwright[serve]``.
"""

from __future__ import annotations

from ._app import create_app
from ._model import Model, ModelOptions, OverloadedError
from ._protocol import BadRequestError, InferRequest, decode_request, encode_response
from ._repository import Repository, UnknownModelError
from ._signature import Signature, TensorSpec

__all__ = [
    "BadRequestError",
    "InferRequest",
    "Model",
    "ModelOptions",
    "OverloadedError",
    "Repository",
    "Signature",
    "TensorSpec",
    "UnknownModelError",
    "create_app",
    "decode_request",
    "encode_response",
]
