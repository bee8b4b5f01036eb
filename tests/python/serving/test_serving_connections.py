"""Connections of `opwright serve`: what they may take, how long, how many; and how the server ends."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serving_process import build_rows, rows, serving

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

HEAD = b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
TYPES = {"x": "FP32", "n": "INT32", "flag": "BOOL"}
BODY = json.dumps(
    {
        "inputs": [
            {"name": k, "datatype": TYPES[k], "shape": v.shape, "data": v.tolist()}
            for k, v in rows(2).items()
        ]
    }
).encode()


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "rows.engine"
    build_rows(path)
    return str(path)


@pytest.fixture(scope="module")
def server(engine):
    with serving(engine, "--max-queue", "1") as opened:
        yield opened


def connect(address, receive_buffer=None):
    host, port = address.split(":")
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(30)
    connection.connect((host, int(port)))
    return connection


def received(connection):
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, answer.headers, answer.read()


def status(address):
    with connect(address) as connection:
        connection.sendall(GET)
        return received(connection)[0]


def takes_connections(address):
    """Whether the server answers. One that has too many connections closes some without an answer."""
    with contextlib.suppress(ConnectionError):
        return status(address) == 200
    return False


def metric(address, name):
    with connect(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        text = received(connection)[2].decode()
    return sum(float(x.split()[-1]) for x in text.splitlines() if x.startswith(name))


def resident(process):
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) * 1024


def send_until_stuck(connection, unit, most):
    """How many bytes the other side, which has nothing read of its answers, takes."""
    connection.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError, socket.timeout):
        while sent < most:
            sent += connection.send(unit[sent % len(unit) :])
    connection.settimeout(30)
    return sent


@pytest.mark.parametrize("kind", ["get", "infer", "refused", "chunked"])
def test_pipelined_requests_wait_in_the_socket(server, kind):
    infer = HEAD % len(BODY) + BODY
    chunked = HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked")
    chunked += b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    request = {"get": GET, "infer": infer, "refused": infer, "chunked": chunked}[kind]
    address, process = server
    with connect(address) as first, connect(address, 4096) as connection:
        if kind == "refused":
            # The requests of the test before may still have the place.
            while metric(address, "opwright_in_flight") > 0:
                time.sleep(0.01)
            first.sendall(HEAD % len(BODY))
            while metric(address, "opwright_in_flight") < 1:
                time.sleep(0.01)
        before = resident(process)
        most = 12 << 20
        sent = send_until_stuck(connection, request * 1000, most)
        assert sent < most, "the server reads on though none of its answers is read"
        assert resident(process) - before < 8 << 20
        assert status(address) == 200  # others do not suffer
        # All that was read is answered in order, a refusal as well.
        expected = 503 if kind == "refused" else 200
        count = 50
        with connection.makefile("rb") as file:
            for _ in range(count):
                assert b" %d " % expected in file.readline()
                length = 0
                while line := file.readline().strip():
                    name, _, value = line.partition(b":")
                    length = int(value) if name == b"content-length" else length
                assert len(file.read(length)) == length


def test_an_answer_that_nobody_takes_keeps_its_place(tmp_path):
    build_rows(tmp_path / "rows.engine", highest=1 << 20)
    # 2^18 rows are 4 MiB of y, more than the system takes for a socket with small buffers.
    n = 1 << 18
    sizes = {"x": ("FP32", 4, 16), "n": ("INT32", 1, 4), "flag": ("BOOL", 2, 2)}
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": name,
                    "datatype": datatype,
                    "shape": [n, extent],
                    "parameters": {"binary_data_size": n * size},
                }
                for name, (datatype, extent, size) in sizes.items()
            ],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    body = header + bytes(n * 22)
    more = b"Inference-Header-Content-Length: %d\r\n\r\n" % len(header)
    head = HEAD % len(body)
    options = ("--max-queue", "1", "--answer-seconds", "1")
    with serving(f"{tmp_path}/rows.engine", *options) as (address, process):
        with connect(address, 4096) as connection:
            connection.sendall(head[:-2] + more + body)
            while metric(address, "opwright_batch_rows_count") < 1:
                time.sleep(0.02)
            with connect(address) as second:
                second.sendall(head[:-2] + more)
                assert received(second)[0] == 503
            deadline = time.monotonic() + 20
            while metric(address, "opwright_in_flight") > 0:
                assert time.monotonic() < deadline, "the answer is not given up"
                time.sleep(0.05)
        process.terminate()
        assert "nothing of an answer was read for 1 s" in process.stderr.read()


@pytest.mark.parametrize("kind", ["short", "long", "trailers"])
def test_heads_have_a_size(server, kind):
    begin = b"GET /v2 HTTP/1.1\r\n"
    header = b"a: 1\r\n" if kind != "long" else b"a: " + b"1" * 1000 + b"\r\n"
    if kind == "trailers":
        begin = b"POST /v2/models/rows/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    address, _ = server
    with connect(address) as connection:
        connection.sendall(begin + header * 99 + b"\r\n")  # as many as there may be
        assert received(connection)[0] in (200, 400)
    with connect(address) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(begin)
            for _ in range(1000):
                connection.sendall(header * (90 if kind == "long" else 100))
        code, _, body = received(connection)
        assert code == 400 and (b"65536" if kind == "long" else b"100 headers") in body


def until_closed(connection):
    """The bytes that still come."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            data += more
    return data


def test_each_phase_has_a_deadline(engine):
    short = [w for phase in ("head", "body", "idle") for w in (f"--{phase}-seconds", "0.5")]
    with serving(engine, *short, "--answer-seconds", "0.5") as (address, process):
        begins = {
            "silent": b"",
            "blank lines": b"\r\n\r\n",
            "half a head": GET[:-5],
            "half a body": HEAD % len(BODY) + BODY[:-5],
            "a body that nobody wants": GET[:-2] + b"Content-Length: 9\r\n\r\n1234",
            "idle": GET,
            "half a second head": GET + GET[:-5],
        }
        opened = {}
        for name, data in begins.items():
            opened[name] = connect(address)
            opened[name].sendall(data)
        unread = connect(address, 4096)
        begin = time.monotonic()
        answers = {name: until_closed(each).split(b"\r\n")[0] for name, each in opened.items()}
        assert time.monotonic() - begin < 10
        words = {name: line[9:12].decode() for name, line in answers.items()}
        assert words == {
            "silent": "",
            "blank lines": "",
            "half a head": "408",
            "half a body": "400",
            "a body that nobody wants": "200",
            "idle": "200",
            "half a second head": "200",
        }
        # One that reads nothing is cut off, too.
        with pytest.raises(ConnectionError):
            for _ in range(4):
                send_until_stuck(unread, GET * 1000, 12 << 20)
        assert metric(address, "opwright_in_flight") == 0
        # A trickle does not prolong the deadline.
        with connect(address) as connection:
            begin = time.monotonic()
            with contextlib.suppress(OSError):
                for i in range(1000):
                    connection.sendall(GET[i % 20 : i % 20 + 1])
                    time.sleep(0.05)
            assert time.monotonic() - begin < 10
        process.terminate()
        assert "no head came within 0.5 s" in process.stderr.read()


@pytest.mark.parametrize("kind", ["connections", "files"])
def test_connections_have_a_number(engine, kind):
    arguments = ("--max-connections", "3") if kind == "connections" else ()
    with serving(engine, *arguments) as (address, process):
        if kind == "files":
            files = len(os.listdir(f"/proc/{process.pid}/fd")) + 40
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
        opened = []
        for _ in range(60):
            opened.append(connect(address))
            opened[-1].sendall(GET)
            code, headers, body = received(opened[-1])
            if code != 200:
                break
        word = b"--max-connections" if kind == "connections" else b"ulimit -n"
        assert (code, headers["Retry-After"], headers["Connection"]) == (503, "1", "close")
        assert word in body and opened[-1].recv(1) == b""
        assert 3 <= len(opened) - 1 < 40
        # Many more cost nothing and end; those that were there go on.
        for _ in range(100):
            opened.append(connect(address))
        opened[0].sendall(GET)
        assert received(opened[0])[0] == 200
        for each in opened:
            each.close()
        deadline = time.monotonic() + 10
        while not takes_connections(address):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        log = process.stderr.read()
        assert "refused with 503" in log and word.decode() in log and log.count("\n") < 9


# The end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_once_all_is_answered(engine, number):
    with serving(engine, "--delay", "700") as (address, process):
        with concurrent.futures.ThreadPoolExecutor(1) as pool, connect(address) as idle:
            idle.sendall(GET[:9])

            def ask():
                with connect(address) as connection:
                    connection.sendall(HEAD % len(BODY) + BODY)
                    return received(connection)[0]

            answer = pool.submit(ask)
            while metric(address, "opwright_queue_length") < 1:
                assert not answer.done()
            process.send_signal(number)
            assert answer.result() == 200
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_a_second_interrupt_waits_for_nothing(engine):
    with serving(engine, "--delay", "60000") as (address, process), connect(address) as connection:
        connection.sendall(HEAD % len(BODY) + BODY)
        while metric(address, "opwright_queue_length") < 1:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("when", ["loading", "starting"])
def test_an_interrupt_before_it_serves(engine, when):
    script = f"""
import asyncio, signal, sys
import opwright.serving, uvicorn
from opwright.__main__ import main

class Interrupted:
    def __init__(self, *arguments):
        signal.raise_signal(signal.SIGINT)

if {when!r} == "loading":
    opwright.serving.Repository = Interrupted
else:
    uvicorn.Server.serve = lambda self: Interrupted() and None
sys.exit(main(["serve", {engine!r}, "--port", "0"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
