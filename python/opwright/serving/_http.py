"""HTTP/1.1 of ``opwright serve``: uvicorn's, with refusals before a request becomes a task."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ._app import (
    READ_SECONDS,
    RETRY_SECONDS,
    ModelSource,
    ServedModel,
    body_limit,
    create_admitted_app,
    refusal,
)
from ._repository import UnknownModelError

_INFER = re.compile(rb"/v2/models/([^/?]+)(?:/versions/1)?/infer(?:\?|$)")
_MAX_HEAD = 1 << 16  # bytes of a request's line and headers, or of what is around a body's pieces
_EXPECT_SECONDS = 1.0


def protocol_for(source: ModelSource) -> Callable[..., asyncio.Protocol]:
    """uvicorn's ``http`` for the application of a source."""

    class BoundProtocol(_Protocol):
        models = source
        admitted = staticmethod(create_admitted_app(source))

    return BoundProtocol


class _Protocol(HttpToolsProtocol):
    """What has no place in a model's queue is answered when its headers are there, before there is
    a task for it; its body is dropped as it comes, and the connection goes on."""

    models: ModelSource
    admitted: Callable[..., Awaitable[None]]  # answers what has a place

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._model: ServedModel | None = None  # that the request which begins is for
        self._unfinished = 0  # bytes since the last head, piece of a body or end
        self._to_drop: int | None = None  # bytes that a refused body may still have
        self._stays_open = True
        self._drop_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self._unfinished += len(data)
        super().data_received(data)
        # httptools keeps what is between these for as long as it grows.
        if self._unfinished > _MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"A head has at most {_MAX_HEAD} bytes.")
        if self._to_drop is not None and self._drop_timer is None:
            seconds = _EXPECT_SECONDS if self.expect_100_continue else READ_SECONDS
            self._drop_timer = self.loop.call_later(seconds, self.transport.close)

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        self._model = None
        # One behind others that are not answered is looked at when it is its turn.
        if self.cycle is None or self.cycle.response_complete:
            name, self._model = self._wanted()
            if self._model is not None and self._refuse(name, self._model):
                return
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        model, self._model = self._model, None
        if model is None:
            super()._start_asgi_task(cycle, app)
            return
        # The place is taken now: others' headers come before the task runs.
        model.metrics.in_flight += 1

        async def run(scope: Any, receive: Any, send: Any) -> None:
            try:
                await self.admitted(scope, receive, send)
            finally:
                model.metrics.in_flight -= 1

        super()._start_asgi_task(cycle, run)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        if self._to_drop is None:
            super().on_body(body)
            return
        self._to_drop -= len(body)
        if self._to_drop < 0:
            self.transport.close()

    def on_message_complete(self) -> None:
        self._unfinished = 0
        if self._to_drop is None:
            super().on_message_complete()
            return
        self._to_drop = None
        if self._drop_timer is not None:
            self._drop_timer.cancel()
            self._drop_timer = None
        if self._stays_open:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        super().connection_lost(exc)

    def _wanted(self) -> tuple[str, ServedModel | None]:
        """The name and the model that a request of inference is for."""
        match = _INFER.match(self.url)
        if match is None or self.parser.get_method() != b"POST":
            return "", None
        name = unquote(match[1].decode("ascii", "replace"))
        try:
            return name, self.models.model(name)
        except UnknownModelError:
            return name, None

    def _refuse(self, name: str, model: ServedModel) -> bool:
        """Whether there is no place for one more request, which is answered then."""
        content = refusal(name, model)
        if content is None:
            return False
        # Whether the body comes behind `Expect: 100-continue` is the client's choice.
        self._stays_open = (
            self.parser.get_http_version() != "1.0"
            and self.parser.should_keep_alive()
            and not self.expect_100_continue
        )
        self._to_drop = body_limit(model.signature)
        head = [b"HTTP/1.1 503 Service Unavailable\r\n"]
        for key, value in self.server_state.default_headers:
            head += [key, b": ", value, b"\r\n"]
        head.append(b"content-type: application/json\r\nretry-after: %d\r\n" % RETRY_SECONDS)
        if not self._stays_open:
            head.append(b"connection: close\r\n")
        head.append(b"content-length: %d\r\n\r\n" % len(content))
        self.transport.write(b"".join([*head, content]))
        return True
