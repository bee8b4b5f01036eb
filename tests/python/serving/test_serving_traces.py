"""Spans of OpenTelemetry from the server, by its own SDK and by OTLP over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from serving_process import build_rows, rows, serving

pytest.importorskip("starlette")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

from opwright.serving import ModelOptions, Repository, create_app  # noqa: E402

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines")
    build_rows(folder / "rows.engine")
    return folder


def body(count: int) -> bytes:
    types = {"x": "FP32", "n": "INT32", "flag": "BOOL"}
    return json.dumps(
        {
            "inputs": [
                {"name": k, "datatype": types[k], "shape": v.shape, "data": v.tolist()}
                for k, v in rows(count).items()
            ]
        }
    ).encode()


async def post(app, content: bytes, headers: dict[str, str]) -> int:
    """The status of the answer to a request of inference."""
    told, statuses = [{"type": "http.request", "body": content}], []

    async def receive():
        return told.pop() if told else await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/v2/models/rows/infer",
        "query_string": b"",
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
    }
    await app(scope, receive, send)
    return statuses[0]


@pytest.fixture
def spans(folder):
    """What ran in the application, whose spans are given by name."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def ask(*requests: tuple[bytes, dict[str, str]], delay: float = 0.0):
        async def run():
            repository = Repository(
                {"rows": folder / "rows.engine"}, ModelOptions(delay=delay, max_batch=8)
            )
            app = create_app(repository, tracer_provider=provider)
            return await asyncio.gather(*(post(app, *each) for each in requests))

        statuses = asyncio.run(run())
        return statuses, exporter.get_finished_spans()

    return ask


def test_a_request_is_below_the_span_of_its_caller(spans):
    statuses, made = spans((body(2), {"traceparent": PARENT}))
    assert statuses == [200]
    by_name = {span.name: span for span in made}
    assert sorted(by_name) == ["infer rows", "queue", "run"]
    request = by_name["infer rows"]
    assert request.kind == SpanKind.SERVER
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == CALLER
    assert request.attributes["opwright.model"] == "rows"
    assert request.attributes["http.response.status_code"] == 200
    for name in ("queue", "run"):
        assert by_name[name].parent.span_id == request.context.span_id
        assert by_name[name].context.trace_id == request.context.trace_id
    order = [request.start_time, by_name["queue"].start_time, by_name["queue"].end_time]
    order += [by_name["run"].start_time, by_name["run"].end_time, request.end_time]
    assert order == sorted(order)
    assert by_name["queue"].end_time == by_name["run"].start_time


def test_requests_of_a_batch_have_spans_of_their_own(spans):
    statuses, made = spans((body(2), {}), (body(3), {}), delay=0.2)
    assert statuses == [200, 200]
    runs = [span for span in made if span.name == "run"]
    assert [span.attributes["opwright.batch.rows"] for span in runs] == [5, 5]
    assert [span.attributes["opwright.batch.requests"] for span in runs] == [2, 2]
    assert len({span.context.trace_id for span in made}) == 2


def test_the_status_is_that_of_the_answer(spans):
    statuses, made = spans((b"{", {}))
    assert statuses == [400]
    (request,) = made
    assert request.attributes["http.response.status_code"] == 400
    assert request.status.status_code == StatusCode.UNSET  # the client's fault


def test_nothing_is_imported_without_it():
    code = "import sys, opwright.serving; assert 'opentelemetry' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def collector():
    """The address of a receiver of OTLP, and what came."""
    came: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            assert self.path == "/v1/traces"
            came.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", came
    server.shutdown()


def test_the_command_sends_spans_where_the_environment_says(folder, collector, monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    address, came = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    with serving(f"{folder}/rows.engine", "--otel") as (host, process):
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("POST", "/v2/models/rows/infer", body(1), {"traceparent": PARENT})
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    requests = [ExportTraceServiceRequest.FromString(each) for each in came]
    resources = [resource for request in requests for resource in request.resource_spans]
    names = {a.value.string_value for r in resources for a in r.resource.attributes}
    assert "shop" in names
    spans = [s for r in resources for scope in r.scope_spans for s in scope.spans]
    assert sorted(span.name for span in spans) == ["infer rows", "queue", "run"]
    assert {span.trace_id.hex() for span in spans} == {TRACE}


def test_the_command_says_what_is_missing(folder, tmp_path):
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text(
        "raise ModuleNotFoundError('none', name='opentelemetry')"
    )
    command = [sys.executable, "-m", "opwright", "serve", f"{folder}/rows.engine", "--otel"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 2
    assert "pip install 'opwright[otel]'" in done.stderr
