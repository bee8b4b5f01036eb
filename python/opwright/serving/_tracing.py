"""Spans of OpenTelemetry for requests. OpenTelemetry is imported only if tracing is requested."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import __version__

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


class RequestTrace:
    """The span of a request and its inner spans."""

    def __init__(self, tracer: Any, span: Any, context: Any):
        self._tracer = tracer
        self._span = span
        self._context = context

    def add(self, name: str, begin: int, end: int, attributes: dict[str, Any]) -> None:
        """Adds a span of a finished part of the request. Times are of ``time.time_ns()``."""
        span = self._tracer.start_span(
            name, context=self._context, start_time=begin, attributes=attributes
        )
        span.end(end)

    def answer(self, response: Response) -> None:
        """Notes the answer in the span."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("http.response.status_code", response.status_code)
        if response.status_code >= 500:
            self._span.set_status(Status(StatusCode.ERROR))


_current: contextvars.ContextVar[RequestTrace | None] = contextvars.ContextVar(
    "opwright_request_trace", default=None
)


def current_trace() -> RequestTrace | None:
    """The trace of the request that the calling task answers, or None."""
    return _current.get()


class Tracing:
    """Makes spans with a tracer provider."""

    def __init__(self, provider: Any):
        """:param provider: an ``opentelemetry.trace.TracerProvider``."""
        self._tracer = provider.get_tracer("opwright.serving", __version__)

    @contextlib.contextmanager
    def request(self, model: str, request: Request) -> Iterator[RequestTrace]:
        """The span of a request of inference, as a child of the span that its headers name."""
        from opentelemetry import propagate, trace

        span = self._tracer.start_span(
            f"infer {model}",
            context=propagate.extract(dict(request.headers)),
            kind=trace.SpanKind.SERVER,
            attributes={
                "http.request.method": request.method,
                "url.path": request.url.path,
                "opwright.model": model,
            },
        )
        with trace.use_span(span, end_on_exit=True):
            made = RequestTrace(self._tracer, span, trace.set_span_in_context(span))
            token = _current.set(made)
            try:
                yield made
            finally:
                _current.reset(token)


def exporting_provider() -> Any:
    """A provider that exports spans as the environment says: that of ``opentelemetry-instrument``,
    or else OTLP over HTTP, whose variables begin with ``OTEL_``.

    :raises ModuleNotFoundError: OpenTelemetry's SDK or exporter is not installed.
    """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    current = trace.get_tracer_provider()
    if isinstance(current, TracerProvider):
        return current
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
