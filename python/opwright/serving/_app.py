"""The HTTP side: an ASGI application for any server, such as uvicorn or Ray Serve."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from .. import __version__, _core
from ._metrics import ModelMetrics
from ._model import ModelOptions, OverloadedError
from ._protocol import (
    JSON_LENGTH_HEADER,
    decode_request,
    decompress,
    encode_response,
    parse_json,
)
from ._repository import UnknownModelError
from ._signature import BadRequestError, Signature
from ._tracing import Tracing

_PLATFORM = "opwright"
# Limit of a number's bytes in JSON, with its comma. The second limit is for names and the like.
_JSON_BYTES_PER_ELEMENT = 32
_JSON_BYTES = 1 << 16
READ_SECONDS = 60.0
RETRY_SECONDS = 1  # time after which a refused client may retry
_LARGE = 1 << 16  # body size above which parsing or writing would delay others


class ServedModel(Protocol):
    """A model that answers requests: an engine in this process or elsewhere."""

    @property
    def signature(self) -> Signature: ...
    @property
    def options(self) -> ModelOptions: ...
    @property
    def metrics(self) -> ModelMetrics: ...
    async def infer(
        self, inputs: Mapping[str, np.ndarray[Any, Any]]
    ) -> Mapping[str, np.ndarray[Any, Any]]: ...


class ModelSource(Protocol):
    """The source in which the application finds models."""

    @property
    def is_ready(self) -> bool: ...
    def model(self, name: str) -> ServedModel: ...
    async def load(self, name: str) -> None: ...
    async def unload(self, name: str) -> None: ...
    def index(self) -> list[dict[str, str]]: ...
    def metrics_text(self) -> str: ...


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


def _failed(status: int, text: object) -> Response:
    return _json({"error": str(text)}, status)


async def _discard(request: Request, limit: int) -> None:
    """Reads the rest of a refused client's request, so that the client reads the answer."""
    length = 0
    async for chunk in request.stream():
        length += len(chunk)
        if length > limit:
            return


async def _read(request: Request, limit: int) -> bytes:
    """The decompressed body.

    :raises BadRequestError: for more than `limit` bytes, before they are read.
    """
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limit:  # the server has checked that it is a number
        raise BadRequestError(
            f"the body has {declared} bytes; the largest request that the model takes has {limit}"
        )
    chunks, length = [], 0
    seconds = request.app.state.read_seconds
    try:
        async with _timeout(seconds):
            async for chunk in request.stream():
                length += len(chunk)
                if length > limit:
                    raise BadRequestError(f"the body has more than {limit} bytes")
                chunks.append(chunk)
    except asyncio.TimeoutError:
        raise BadRequestError(f"the body did not come within {seconds:g} s") from None
    body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    return decompress(body, request.headers.get("content-encoding", "").strip().lower(), limit)


class _timeout:
    """asyncio.timeout, which Python 3.10 lacks."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._is_over = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None

        def end() -> None:
            self._is_over = True
            task.cancel()

        self._timer = asyncio.get_running_loop().call_later(self._seconds, end)

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._timer.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError


def body_limit(signature: Signature) -> int:
    """Bytes of the largest body that can be a request."""
    return _JSON_BYTES + max(signature.max_bytes, _JSON_BYTES_PER_ELEMENT * signature.max_elements)


@functools.lru_cache(64)
def _refusal_text(name: str, max_queue: int) -> bytes:
    return json.dumps(
        {
            "error": f"model '{name}' has {max_queue} requests to answer, as many as its queue "
            "holds (--max-queue); come back later"
        }
    ).encode()


def refusal(name: str, model: ServedModel) -> bytes | None:
    """The body of a 503 for a request that the queue has no place for, which is counted; None if
    there is a place."""
    if model.metrics.in_flight < model.options.max_queue:
        return None
    model.metrics.requests[503] += 1
    return _refusal_text(name, model.options.max_queue)


async def _admit(source: ModelSource, request: Request) -> Response:
    """Answers a request of inference if its model's queue has a place, and refuses it otherwise."""
    name = request.path_params["model"]
    model = source.model(name)
    # The request takes a place before its body is read, so that waiting requests are bounded
    # together with bodies being received.
    if (refused := refusal(name, model)) is not None:
        async with _timeout(request.app.state.read_seconds):
            await _discard(request, body_limit(model.signature))
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return Response(refused, 503, headers=headers, media_type="application/json")
    model.metrics.in_flight += 1
    try:
        return await _infer(source, request)
    finally:
        model.metrics.in_flight -= 1


async def _infer(source: ModelSource, request: Request) -> Response:
    """Answers a request of inference that has a place."""
    name = request.path_params["model"]
    model = source.model(name)
    metrics = model.metrics
    tracing: Tracing | None = request.app.state.tracing
    started = time.monotonic()
    try:
        if tracing is None:
            response = await _answer(name, model, request)
        else:
            with tracing.request(name, request) as trace:
                response = await _answer(name, model, request)
                trace.answer(response)
    except Exception:
        metrics.requests[500] += 1
        raise
    metrics.requests[response.status_code] += 1
    metrics.seconds.observe(time.monotonic() - started)
    return response


async def _answer(name: str, model: ServedModel, request: Request) -> Response:
    signature = model.signature
    limit = body_limit(signature)
    try:
        body = await _read(request, limit)
        length = request.headers.get(JSON_LENGTH_HEADER)
        if len(body) > _LARGE:
            wanted = await asyncio.to_thread(decode_request, body, length, signature)
        else:
            wanted = decode_request(body, length, signature)
        results = await model.infer(wanted.inputs)
        if sum(results[each].nbytes for each in wanted.outputs) > _LARGE:
            content, json_length = await asyncio.to_thread(
                encode_response, name, wanted, results, signature
            )
        else:
            content, json_length = encode_response(name, wanted, results, signature)
    except BadRequestError as error:
        return _failed(400, error)
    except OverloadedError as error:
        response = _failed(503, f"model '{name}': {error}; come back later")
        response.headers["Retry-After"] = str(RETRY_SECONDS)
        return response
    except ClientDisconnect:
        return _failed(400, "the client went before its request was complete")
    except Exception as error:  # a plugin may raise anything
        return _failed(500, f"model '{name}': {error}")
    if json_length is None:
        return Response(content, media_type="application/json")
    headers = {JSON_LENGTH_HEADER: str(json_length)}
    return Response(content, headers=headers, media_type="application/octet-stream")


def _metadata(name: str, signature: Signature) -> dict[str, Any]:
    return {
        "name": name,
        "versions": ["1"],
        "platform": _PLATFORM,
        "inputs": [spec.to_json() for spec in signature.inputs],
        "outputs": [spec.to_json() for spec in signature.outputs],
    }


def create_app(
    source: ModelSource,
    *,
    read_seconds: float = READ_SECONDS,
    tracer_provider: Any = None,
    **options: Any,
) -> Starlette:
    """An ASGI application that serves the KServe v2 protocol over HTTP.

    :param source: the models, such as a ``Repository``.
    :param read_seconds: the time in which a request's body must come.
    :param tracer_provider: an ``opentelemetry.trace.TracerProvider`` that gets spans of each
        answered request, of its time in the queue and of its run; None: no spans.
    :param options: options of ``Starlette``, such as ``lifespan``.
    """
    return _application(source, _admit, read_seconds, tracer_provider, **options)


def create_admitted_app(
    source: ModelSource, read_seconds: float, tracer_provider: Any
) -> Starlette:
    """The same for a server that has already counted each request of inference."""
    return _application(source, _infer, read_seconds, tracer_provider)


def _application(
    source: ModelSource,
    answer: Callable[[ModelSource, Request], Awaitable[Response]],
    read_seconds: float,
    tracer_provider: Any,
    **options: Any,
) -> Starlette:
    Endpoint = Callable[[Request], Awaitable[Response]]

    def handled(endpoint: Endpoint) -> Endpoint:
        async def run(request: Request) -> Response:
            try:
                version = request.path_params.get("version", "1")
                if version != "1":
                    raise UnknownModelError(
                        f"the model has no version '{version[:100]}'; it has version '1'"
                    )
                return await endpoint(request)
            except UnknownModelError as error:
                return _failed(404, error)
            except BadRequestError as error:
                return _failed(400, error)

        return run

    async def live(request: Request) -> Response:
        return Response()

    async def ready(request: Request) -> Response:
        return Response(status_code=200 if source.is_ready else 503)

    async def server(request: Request) -> Response:
        return _json(
            {
                "name": "opwright",
                "version": __version__,
                "extensions": ["binary_tensor_data", "model_repository"],
            }
        )

    async def model_ready(request: Request) -> Response:
        source.model(request.path_params["model"])
        return Response()

    async def metadata(request: Request) -> Response:
        name = request.path_params["model"]
        return _json(_metadata(name, source.model(name).signature))

    async def infer(request: Request) -> Response:
        return await answer(source, request)

    async def index(request: Request) -> Response:
        only_ready = parse_json(await _read(request, _JSON_BYTES)).get("ready", False)
        return _json([e for e in source.index() if e["state"] == "READY" or not only_ready])

    async def models(request: Request) -> Response:
        return _json({"models": [entry["name"] for entry in source.index()]})

    async def load(request: Request) -> Response:
        if parse_json(await _read(request, _JSON_BYTES)).get("parameters"):
            raise BadRequestError(
                "a load takes no parameters here: it reads the file that the server was started with"
            )
        name = request.path_params["model"]
        try:
            await source.load(name)
        except _core.Error as error:
            return _failed(400, f"model '{name}' could not be loaded: {error}")
        return Response()

    async def unload(request: Request) -> Response:
        await _read(request, _JSON_BYTES)
        await source.unload(request.path_params["model"])
        return Response()

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(source.metrics_text(), media_type="text/plain; version=0.0.4")

    get: list[tuple[str, Endpoint]] = [
        ("/v2", server),
        ("/v2/health/live", live),
        ("/v2/health/ready", ready),
        ("/v2/models", models),
        ("/metrics", metrics),
    ]
    post: list[tuple[str, Endpoint]] = [
        ("/v2/repository/index", index),
        ("/v2/repository/models/{model}/load", load),
        ("/v2/repository/models/{model}/unload", unload),
    ]
    for prefix in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        get += [(prefix, metadata), (prefix + "/ready", model_ready)]
        post.append((prefix + "/infer", infer))
    # Routes are tried in order. Nearly all requests are of inference, the last entry of `post`.
    routes = [Route(path, handled(run), methods=["POST"]) for path, run in reversed(post)]
    routes += [Route(path, handled(run), methods=["GET"]) for path, run in get]

    async def not_found(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        return _failed(status, f"{request.method} {request.url.path[:200]}: no such endpoint")

    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found}, **options)
    app.state.read_seconds = read_seconds
    app.state.tracing = None if tracer_provider is None else Tracing(tracer_provider)
    return app
