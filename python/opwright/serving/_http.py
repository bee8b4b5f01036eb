"""HTTP/1.1 of ``opwright serve``: uvicorn's, with bounded memory and a deadline for each phase, and
with refusals before a request becomes a task."""

from __future__ import annotations

import asyncio
import collections
import enum
import json
import logging
import re
import resource
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from uvicorn.protocols.http.flow_control import FlowControl
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

_log = logging.getLogger("opwright.serving")
_INFER = re.compile(rb"/v2/models/([^/?]+)(?:/versions/1)?/infer(?:\?|$)")
# An empty line ends a head, and a chunked body with its trailers.
_EMPTY_LINE = re.compile(rb"\n\r?\n")
_MAX_HEAD = 1 << 16  # bytes of a request's line and headers, or of the framing of a body's pieces
_MAX_HEADERS = 100
_PIECE = 1 << 12  # bytes that are parsed before limits are checked
_EXPECT_SECONDS = 1.0
_LINGER_SECONDS = 1.0  # time in which a refused client may read the reason
_SPARE_FILES = 32  # file descriptors reserved for engines, plugins and refusals
_SILENT_SECONDS = 10.0  # time between two log lines on the same matter


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections."""

    max_connections: int = 1000
    head_seconds: float = 10.0
    """Limit from a head's first byte, or from the connection, to the head's end."""
    body_seconds: float = READ_SECONDS
    idle_seconds: float = 5.0
    """Limit between an answer and the next request."""
    answer_seconds: float = 60.0
    """Limit in which a client takes nothing of its answer."""

    def __post_init__(self) -> None:
        if self.max_connections < 1:
            raise ValueError(f"--max-connections is {self.max_connections}; expected 1 or more")
        for name in ("head", "body", "idle", "answer"):
            seconds = getattr(self, f"{name}_seconds")
            if not seconds > 0:
                raise ValueError(f"--{name}-seconds is {seconds:g}; expected more than 0")


def protocol_for(
    source: ModelSource, limits: ConnectionLimits, tracer_provider: Any
) -> Callable[..., asyncio.Protocol]:
    """uvicorn's ``http`` for the application of a source."""

    class BoundProtocol(_Protocol):
        models = source
        admitted = staticmethod(create_admitted_app(source, limits.body_seconds, tracer_provider))
        watch = _Watch(limits)

    return BoundProtocol


def _json_answer(status: bytes, headers: list[tuple[bytes, bytes]], content: bytes) -> bytes:
    lines = [b"HTTP/1.1 ", status, b"\r\n"]
    for key, value in headers:
        lines += [key, b": ", value, b"\r\n"]
    lines.append(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content))
    return b"".join([*lines, content])


class _Watch:
    """All connections of a server. Limits their number and the time of each phase."""

    def __init__(self, limits: ConnectionLimits):
        self.limits = limits
        self._open: set[_Protocol] = set()
        self._refused = 0  # open connections that were refused
        self._timer: asyncio.TimerHandle | None = None
        shortest = min(
            limits.head_seconds, limits.body_seconds, limits.idle_seconds, limits.answer_seconds
        )
        self._interval = min(1.0, shortest / 4)
        self._unsaid: collections.Counter[str] = collections.Counter()
        self._said: dict[str, float] = {}

    def add(self, connection: _Protocol) -> None:
        """Watches a connection, or refuses it."""
        if self._timer is None:
            self._timer = connection.loop.call_later(self._interval, self._look, connection.loop)
        reason = self._reason_to_refuse(connection)
        self._open.add(connection)
        if reason:
            self._refused += 1
            self.tell(connection.loop.time(), f"refused with 503: {reason}")
            connection.refuse(reason, lingers=self._refused <= _SPARE_FILES // 2)

    def remove(self, connection: _Protocol) -> None:
        self._open.discard(connection)
        self._refused -= connection.is_refused

    def tell(self, now: float, what: str) -> None:
        """Logs an event of a connection, but not each of many."""
        self._unsaid[what] += 1
        self._say(now)

    def _reason_to_refuse(self, connection: _Protocol) -> str:
        if len(self._open) - self._refused >= self.limits.max_connections:
            return f"{self.limits.max_connections} are open, as many as --max-connections allows"
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        socket = connection.transport.get_extra_info("socket")
        # The system assigns the lowest free number, so all lower ones are in use.
        if socket is None or files == resource.RLIM_INFINITY:
            return ""
        if socket.fileno() < files - min(_SPARE_FILES, files // 4):
            return ""
        return (
            f"the process has nearly as many files open as it may, {files}; raise `ulimit -n`, or "
            "lower --max-connections"
        )

    def _say(self, now: float) -> None:
        for what, count in list(self._unsaid.items()):
            if now - self._said.get(what, -_SILENT_SECONDS) >= _SILENT_SECONDS:
                self._said[what] = now
                del self._unsaid[what]
                _log.warning("opwright serve: %d connection%s %s", count, "s"[: count > 1], what)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in tuple(self._open):
            connection.check(now)
        self._say(now)
        goes_on = self._open or self._unsaid
        self._timer = loop.call_later(self._interval, self._look, loop) if goes_on else None


class _Flow(FlowControl):
    """Flow control that keeps reading paused while data is unparsed."""

    is_held = False

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class _Phase(enum.Enum):
    NEW = enum.auto()  # no request yet
    HEAD = enum.auto()
    BODY = enum.auto()
    REST = enum.auto()  # the request is complete, or answered


class _Protocol(HttpToolsProtocol):
    """Refuses a request that has no place in its model's queue as soon as its headers are complete,
    before it becomes a task. Its body is dropped as it arrives, and the connection goes on.

    A request is parsed when the earlier ones are answered and the client has taken the answers.
    Until then the data that has been read stays unparsed, and no more is read.
    """

    models: ModelSource
    admitted: Callable[..., Awaitable[None]]  # answers requests that have a place
    watch: _Watch
    flow: _Flow

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.is_refused = False
        self._model: ServedModel | None = None  # model of the request that is being parsed
        self._unfinished = 0  # bytes since the end of the last head, piece or body
        self._to_drop: int | None = None  # remaining bytes that a refused body may have
        self._stays_open = True
        self._phase = _Phase.NEW
        self._since = self.loop.time()  # when the phase began
        self._body_left = 0  # remaining bytes of a body of known length
        self._held = b""  # read and not parsed
        self._tail = b""  # end of the previous piece, where an empty line may have begun
        self._unsent = 0  # bytes of unsent answers at the last check
        self._taken_at = 0.0  # time at which they last became fewer

    # Methods that uvloop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self.watch.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held = b""
        self.watch.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_refused:
            return
        self._parse(self._held + data if self._held else data)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        # Continues after the answering task, when its place in the queue is free.
        if self._held:
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._held and not self.transport.is_closing():
            self._parse(self._held)

    def _may_parse(self) -> bool:
        if self._phase in (_Phase.HEAD, _Phase.BODY):
            return True
        return not self.flow.write_paused and (self.cycle is None or self.cycle.response_complete)

    def _parse(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self.transport.is_closing():
            if not self._may_parse():
                self._held = data[at:]
                self.flow.is_held = True
                self.flow.pause_reading()
                return
            end = self._piece_end(data, at)
            self._unfinished += end - at
            super().data_received(data[at:end])
            # httptools keeps the data between these events, however long it gets.
            if not self.transport.is_closing():
                if self._unfinished > _MAX_HEAD:
                    self.send_400_response(f"A head has at most {_MAX_HEAD} bytes.")
                elif self.headers is not None and len(self.headers) > _MAX_HEADERS:
                    self.send_400_response("")
            at = end
        self._held = b""
        if self.flow.is_held:
            self.flow.is_held = False
            self.flow.resume_reading()

    def _piece_end(self, data: bytes, at: int) -> int:
        """The end of the piece to parse at once, which never exceeds one request."""
        if self._body_left > 0:
            return min(len(data), at + self._body_left)
        tail, self._tail = self._tail, b""
        text = tail + data[at : at + _PIECE] if tail else data
        start = 0 if tail else at
        found = _EMPTY_LINE.search(text, start, start + len(tail) + _PIECE)
        if found is not None:
            return at + found.end() - start - len(tail)
        end = min(len(data), at + _PIECE)
        self._tail = (tail + data[at:end])[-2:]
        return end

    def send_400_response(self, msg: str) -> None:
        if self.headers is not None and len(self.headers) > _MAX_HEADERS:
            msg = f"A request has at most {_MAX_HEADERS} headers."
        super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        """Logs nothing: the request is answered as if it asked for no other protocol."""

    # Methods that the parser calls

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._enter(_Phase.HEAD)

    def on_headers_complete(self) -> None:
        if len(self.headers) > _MAX_HEADERS:
            raise ValueError("too many headers")  # uvicorn answers with send_400_response()
        self._unfinished = 0
        self._model = None
        self._enter(_Phase.BODY)
        self._body_left = next((int(v) for k, v in self.headers if k == b"content-length"), 0)
        # A request behind unanswered ones is checked when it is its turn.
        if self.cycle is None or self.cycle.response_complete:
            name, self._model = self._wanted()
            if self._model is not None and self._refuse_request(name, self._model):
                return
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        model, self._model = self._model, None
        if model is None:
            super()._start_asgi_task(cycle, app)
            return
        # The place is taken now, since headers of other requests may arrive before the task runs.
        model.metrics.in_flight += 1

        async def run(scope: Any, receive: Any, send: Any) -> None:
            try:
                await self.admitted(scope, receive, send)
                # An answer that the client does not take also occupies memory.
                await self.flow.drain()
            finally:
                model.metrics.in_flight -= 1

        super()._start_asgi_task(cycle, run)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        self._body_left -= len(body)
        if self._to_drop is None:
            super().on_body(body)
            return
        self._to_drop -= len(body)
        if self._to_drop < 0:
            self.transport.close()

    def on_message_complete(self) -> None:
        self._unfinished = 0
        self._body_left = 0
        self._enter(_Phase.REST)
        if self._to_drop is None:
            super().on_message_complete()
            return
        self._to_drop = None
        if not self._stays_open:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # check() reads the flag
        if self._phase is _Phase.REST:
            self._enter(_Phase.REST)
        self._go_on_soon()

    # Refusals

    def _wanted(self) -> tuple[str, ServedModel | None]:
        """The name and the model of a request of inference."""
        match = _INFER.match(self.url)
        if match is None or self.parser.get_method() != b"POST":
            return "", None
        name = unquote(match[1].decode("ascii", "replace"))
        try:
            return name, self.models.model(name)
        except UnknownModelError:
            return name, None

    def _refuse_request(self, name: str, model: ServedModel) -> bool:
        """Answers the request with a 503 if there is no place for it. Returns whether it did."""
        content = refusal(name, model)
        if content is None:
            return False
        # After `Expect: 100-continue` the client decides whether to send the body.
        self._stays_open = (
            self.parser.get_http_version() != "1.0"
            and self.parser.should_keep_alive()
            and not self.expect_100_continue
        )
        self._to_drop = body_limit(model.signature)
        self._answer_503(content, self._stays_open)
        return True

    def _answer_503(self, content: bytes, stays_open: bool) -> None:
        headers = [*self.server_state.default_headers, (b"retry-after", b"%d" % RETRY_SECONDS)]
        if not stays_open:
            headers.append((b"connection", b"close"))
        self.transport.write(_json_answer(b"503 Service Unavailable", headers, content))

    def refuse(self, reason: str, lingers: bool) -> None:
        """Answers before a request has come, and ends the connection."""
        self.is_refused = True
        text = f"the server takes no more connections: {reason}; come back later"
        self._answer_503(json.dumps({"error": text}).encode(), stays_open=False)
        if lingers and self.transport.can_write_eof():
            self.transport.write_eof()  # a client that still sends can read the answer
        else:
            self.transport.close()

    # Deadlines

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._since = self.loop.time()

    def check(self, now: float) -> None:
        """Ends the connection if its phase takes too long."""
        limits = self.watch.limits
        unsent, before = self.transport.get_write_buffer_size(), self._unsent
        self._unsent = unsent
        if unsent > 0:
            if before == 0 or unsent < before:
                self._taken_at = now
            elif now - self._taken_at > limits.answer_seconds:
                self.watch.tell(
                    now, f"closed: nothing of an answer was read for {limits.answer_seconds:g} s"
                )
                self.transport.abort()
            self._since = now
            return
        seconds = now - self._since
        if self.is_refused:
            if seconds > _LINGER_SECONDS:
                self.transport.abort()
        elif self.transport.is_closing():
            pass
        elif self._phase is _Phase.HEAD:
            if seconds > limits.head_seconds:
                self.watch.tell(now, f"closed: no head came within {limits.head_seconds:g} s")
                self.transport.write(
                    _json_answer(
                        b"408 Request Timeout",
                        [*self.server_state.default_headers, (b"connection", b"close")],
                        b'{"error": "the request\'s head did not come within %g s"}'
                        % limits.head_seconds,
                    )
                )
                self.transport.close()
        elif self._phase is _Phase.NEW:
            if seconds > limits.head_seconds:
                self.transport.close()
        elif self._phase is _Phase.BODY:
            expects = self._to_drop is not None and self.expect_100_continue
            # A task that waits for its body has its own deadline and answers by itself.
            is_ours = (
                self._to_drop is not None or self.cycle is None or self.cycle.response_complete
            )
            if is_ours and seconds > (_EXPECT_SECONDS if expects else limits.body_seconds):
                self.transport.close()
        elif self.cycle is None or self.cycle.response_complete:
            if seconds > limits.idle_seconds:
                self.transport.close()
