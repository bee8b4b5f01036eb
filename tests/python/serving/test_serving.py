"""`opwright serve` by the clients that others wrote: tritonclient and curl."""

from __future__ import annotations

import concurrent.futures
import gzip
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import onnx.parser
import pytest

import opwright
from serving_process import build_rows, build_slow, rows, serving

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from opwright.serving import ModelOptions  # noqa: E402
from opwright.serving._metrics import ModelMetrics  # noqa: E402
from opwright.serving._model import Model  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines")
    build_rows(folder / "rows.engine")
    build_slow(folder / "slow.engine")
    return folder


@pytest.fixture(scope="module")
def address(folder):
    with serving(f"{folder}/rows.engine", f"other={folder}/rows.engine", "--delay", "2") as (
        address,
        _,
    ):
        yield address


def expected(inputs, factor=2.0):
    return {
        "y": inputs["x"] * np.float32(factor) + inputs["n"].astype(np.float32),
        "z": ~inputs["flag"],
    }


def post(address, path, body, headers=None):
    """Status and parsed answer."""
    connection = http.client.HTTPConnection(address, timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, headers or {})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


def json_request(inputs):
    types = {"x": "FP32", "n": "INT32", "flag": "BOOL"}
    return {
        "inputs": [
            {"name": k, "datatype": types[k], "shape": v.shape, "data": v.tolist()}
            for k, v in inputs.items()
        ]
    }


def infer_y(address, inputs, model="rows"):
    status, answer = post(address, f"/v2/models/{model}/infer", json_request(inputs))
    assert status == 200, answer
    outputs = {each["name"]: each for each in answer["outputs"]}
    return np.array(outputs["y"]["data"], np.float32).reshape(outputs["y"]["shape"])


# tritonclient


def triton_inputs(inputs, binary):
    from tritonclient import http as client

    types = {"x": "FP32", "n": "INT32", "flag": "BOOL"}
    result = []
    for name, array in inputs.items():
        each = client.InferInput(name, array.shape, types[name])
        each.set_data_from_numpy(array, binary_data=binary)
        result.append(each)
    return result


@pytest.fixture
def triton(address):
    client = pytest.importorskip("tritonclient.http")
    with client.InferenceServerClient(address, concurrency=8) as opened:
        yield opened


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
@pytest.mark.parametrize("n", [1, 3, 16])
def test_tritonclient_infers(triton, n, binary_in, binary_out):
    from tritonclient import http as client

    inputs = rows(n)
    outputs = None
    if binary_out is not None:
        outputs = [client.InferRequestedOutput(k, binary_data=binary_out) for k in ("z", "y")]
    result = triton.infer(
        "rows", triton_inputs(inputs, binary_in), outputs=outputs, request_id="one"
    )
    for name, value in expected(inputs).items():
        np.testing.assert_allclose(result.as_numpy(name), value, atol=1e-5)
        assert result.as_numpy(name).dtype == value.dtype
    assert result.get_response()["id"] == "one"
    assert result.get_response()["model_name"] == "rows"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritonclient_compresses(triton, algorithm):
    inputs = rows(5)
    result = triton.infer(
        "rows", triton_inputs(inputs, True), request_compression_algorithm=algorithm
    )
    np.testing.assert_allclose(result.as_numpy("y"), expected(inputs)["y"], atol=1e-5)


def test_tritonclient_asks_for_what_there_is(triton):
    assert triton.is_server_live() and triton.is_server_ready()
    assert triton.is_model_ready("rows") and triton.is_model_ready("rows", "1")
    assert not triton.is_model_ready("nobody")
    assert triton.get_server_metadata()["name"] == "opwright"
    assert triton.get_model_metadata("rows") == {
        "name": "rows",
        "versions": ["1"],
        "platform": "opwright",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "n", "datatype": "INT32", "shape": [-1, 1]},
            {"name": "flag", "datatype": "BOOL", "shape": [-1, 2]},
        ],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "z", "datatype": "BOOL", "shape": [-1, 2]},
        ],
    }
    assert [each["name"] for each in triton.get_model_repository_index()] == ["rows", "other"]


def test_tritonclient_is_told_what_is_wrong(triton):
    from tritonclient.utils import InferenceServerException

    for model, inputs, words in [
        ("nobody", rows(1), "there is no model 'nobody'"),
        ("rows", rows(17), "1..16"),
        ("rows", {"x": rows(1)["x"]}, "lacks the inputs ['n', 'flag']"),
    ]:
        with pytest.raises(InferenceServerException) as caught:
            triton.infer(model, triton_inputs(inputs, True))
        assert words in caught.value.message()
        assert caught.value.status() in ("400", "404")


def test_tritonclient_asynchronously(triton):
    inputs = [rows(1 + i % 4, i) for i in range(40)]
    asked = [triton.async_infer("rows", triton_inputs(each, True)) for each in inputs]
    for each, request in zip(inputs, asked):
        result = request.get_result()
        np.testing.assert_allclose(result.as_numpy("y"), expected(each)["y"], atol=1e-5)


def test_tritonclient_of_asyncio(address):
    aio = pytest.importorskip("tritonclient.http.aio")
    import asyncio

    async def main():
        async with aio.InferenceServerClient(address) as client:
            inputs = [rows(2, i) for i in range(20)]
            calls = [client.infer("rows", triton_inputs(each, True)) for each in inputs]
            for each, result in zip(inputs, await asyncio.gather(*calls)):
                np.testing.assert_allclose(result.as_numpy("y"), expected(each)["y"], atol=1e-5)

    asyncio.run(main())


def test_tritonclient_unloads_and_loads(triton):
    triton.unload_model("other")
    assert not triton.is_model_ready("other") and not triton.is_server_ready()
    triton.load_model("other")
    assert triton.is_model_ready("other") and triton.is_server_ready()


# curl


def test_curl(address, tmp_path):
    (tmp_path / "request.json").write_text(json.dumps(json_request(rows(2))))
    done = subprocess.run(
        [
            *("curl", "-sS", "--fail", "-d", "@request.json"),
            f"http://{address}/v2/models/rows/infer",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    y = json.loads(done.stdout)["outputs"][0]
    np.testing.assert_allclose(np.reshape(y["data"], y["shape"]), expected(rows(2))["y"], atol=1e-5)


# Batches, queues, reloads


def metric(address, line):
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return sum(float(each.split()[-1]) for each in text.splitlines() if each.startswith(line))


def test_requests_are_run_as_batches(folder):
    with serving(f"{folder}/rows.engine", "--delay", "100") as (address, _):
        inputs = [rows(2, i) for i in range(16)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            results = list(pool.map(lambda each: infer_y(address, each), inputs))
        for each, y in zip(inputs, results):
            np.testing.assert_allclose(y, expected(each)["y"], atol=1e-5)
        assert metric(address, "opwright_batch_rows_sum") == 32
        assert metric(address, "opwright_batch_rows_count") <= 6  # 2, with no other load
        assert metric(address, 'opwright_requests_total{model="rows",status="200"}') == 16


def test_overload_is_503_at_once_and_nothing_accepted_is_lost(folder):
    with serving(f"{folder}/slow.engine", "--max-queue", "3") as (address, _):
        x = np.full((768, 768), 0.001, np.float32)
        header = json.dumps(
            {
                "inputs": [
                    {
                        "name": "x",
                        "datatype": "FP32",
                        "shape": x.shape,
                        "parameters": {"binary_data_size": x.nbytes},
                    }
                ],
                "outputs": [{"name": "w", "parameters": {"binary_data": True}}],
            }
        ).encode()
        headers = {"Inference-Header-Content-Length": str(len(header))}

        def ask(_):
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.request("POST", "/v2/models/slow/infer", header + x.tobytes(), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(ask, range(64)))
        statuses = [status for status, _ in answers]
        assert set(statuses) == {200, 503}
        assert all(len(body) > x.nbytes for status, body in answers if status == 200)
        assert all(b"--max-queue" in body for status, body in answers if status == 503)
        assert metric(address, "opwright_requests_total") == 64
        assert ask(0)[0] == 200


HEAD = "POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{}\r\n"


def received(connection):
    """Status, headers and body of the next answer on a socket."""
    answer = http.client.HTTPResponse(connection, method="POST")
    answer.begin()
    return answer.status, answer.headers, answer.read()


@pytest.fixture
def full(folder):
    """The address of a server with one place, and a connection whose request has taken it: its
    headers are there and its body is not."""
    with serving(f"{folder}/rows.engine", "--max-queue", "1") as (address, _):
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(HEAD.format(len(BODY), "").encode())
            while metric(address, "opwright_in_flight") < 1:
                time.sleep(0.01)
            yield (host, int(port)), connection


BODY = json.dumps(json_request(rows(2))).encode()


def test_a_refusal_comes_before_the_body(full):
    address, first = full
    with socket.create_connection(address, 30) as second:
        for _ in range(2):  # the connection goes on
            second.sendall(HEAD.format(len(BODY), "").encode())
            status, headers, body = received(second)
            assert (status, headers["Retry-After"], headers["Connection"]) == (503, "1", None)
            assert b"--max-queue" in body
            second.sendall(BODY)
        first.sendall(BODY)
        assert received(first)[0] == 200
        second.sendall(HEAD.format(len(BODY), "").encode() + BODY)
        status, _, body = received(second)
        assert status == 200 and json.loads(body)["outputs"][0]["shape"] == [2, 4]


@pytest.mark.parametrize("more", ["Expect: 100-continue\r\n", "Connection: close\r\n"])
def test_a_refused_connection_that_cannot_go_on_is_closed(full, more):
    with socket.create_connection(full[0], 30) as second:
        second.sendall(HEAD.format(len(BODY), more).encode())
        status, headers, _ = received(second)
        assert (status, headers["Connection"]) == (503, "close")
        if "Expect" not in more:
            second.sendall(BODY)
        assert second.recv(1) == b""


def test_a_refused_body_is_read_no_further_than_one_can_be_long(full):
    with socket.create_connection(full[0], 30) as second:
        second.sendall(HEAD.format(2**40, "").encode())
        assert received(second)[0] == 503
        with pytest.raises(OSError):
            for _ in range(1000):
                second.sendall(bytes(1 << 20))


def test_a_client_that_goes_gives_its_place_back(full):
    address, first = full
    first.sendall(BODY[:9])
    first.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if post(":".join(map(str, address)), "/v2/models/rows/infer", BODY)[0] == 200:
            return
    pytest.fail("the place was not given back")


def test_requests_behind_each_other_on_a_connection(address):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall((HEAD.format(len(BODY), "").encode() + BODY) * 5)
        file = connection.makefile("rb")
        for _ in range(5):
            assert b" 200 " in file.readline()
            length = 0
            while line := file.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name == b"content-length" else length
            assert len(json.loads(file.read(length))["outputs"]) == 2
    assert metric(address, "opwright_in_flight") == 0


def load_while(address, act, seconds=1.5):
    """The factors that 4 clients saw in a row each, while `act` runs amid their requests."""
    stop = threading.Event()

    def ask(seed):
        seen = []
        while not stop.is_set():
            inputs = rows(1, seed)
            y = infer_y(address, inputs)
            seen.append(float(np.round((y - inputs["n"])[0, 0] / inputs["x"][0, 0])))
        return seen

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(ask, seed) for seed in range(4)]
        time.sleep(seconds / 3)
        act()
        time.sleep(seconds)
        stop.set()
        return [client.result() for client in clients]


@pytest.mark.parametrize("way", ["request", "signal"])
def test_a_reload_loses_no_request(tmp_path, way):
    build_rows(tmp_path / "rows.engine", 2)
    with serving(f"{tmp_path}/rows.engine") as (address, process):

        def act():
            build_rows(tmp_path / "rows.engine", 3)
            if way == "signal":
                process.send_signal(signal.SIGHUP)
            else:
                assert post(address, "/v2/repository/models/rows/load", {})[0] == 200

        for seen in load_while(address, act):
            assert seen == sorted(seen) and set(seen) == {2.0, 3.0}


def test_a_damaged_file_leaves_the_engine_before(tmp_path):
    path = tmp_path / "rows.engine"
    build_rows(path)
    with serving(str(path)) as (address, _):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[: len(data) // 2])
        status, answer = post(address, "/v2/repository/models/rows/load", {})
        assert status == 400 and "could not be loaded" in answer["error"]
        np.testing.assert_allclose(infer_y(address, rows(1)), expected(rows(1))["y"], atol=1e-5)


def test_what_was_accepted_is_answered_before_the_end(folder):
    with serving(f"{folder}/rows.engine", "--delay", "700") as (address, process):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(infer_y, address, rows(1))
            while metric(address, "opwright_queue_length") < 1:
                assert not answer.done()
            process.terminate()
            np.testing.assert_allclose(answer.result(), expected(rows(1))["y"], atol=1e-5)
        assert process.wait(30) in (0, -signal.SIGTERM)


# What is wrong


X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
N = {"name": "n", "datatype": "INT32", "shape": [1, 1], "data": [1]}
FLAG = {"name": "flag", "datatype": "BOOL", "shape": [1, 2], "data": [True, False]}


def with_x(**changes):
    return {"inputs": [{**X, **changes}, N, FLAG]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 60_000, "nested too deeply"),
        (b'{"inputs": ' + b"9" * 10_000 + b"}", "no JSON"),
        (b"[]", "expected an object"),
        ({}, "'inputs'"),
        ({"inputs": [1]}, "an input is 1"),
        ({"inputs": [X, X, N, FLAG]}, "twice"),
        (with_x(name=None), "no input 'None'"),
        (with_x(datatype="FP99"), "'datatype' is 'FP99'; expected 'FP32'"),
        (with_x(shape=[1, -4]), "'shape'"),
        (with_x(shape=[2**62, 2**62]), "4 elements"),
        (with_x(shape=[1] * 99), "at most 8"),
        (with_x(shape=[True, 4]), "'shape'"),
        ({"inputs": [X, {**N, "shape": [2, 1], "data": [1, 2]}, FLAG]}, "must be equal"),
        (with_x(shape=[4, 1]), "takes no inputs of shapes"),
        (with_x(data=[1, 2, 3]), "3 elements; the shape has 4"),
        (with_x(data=[1, 2, 3, "4"]), "'4' in 'data' is no FP32"),
        (with_x(data=[1, 2, 3, 10**400]), "too large"),
        (with_x(data=[[1, 2], 3, 4]), "side by side"),
        (with_x(data=None), "'data' is None"),
        (with_x(parameters={"binary_data_size": 16}), "both 'data'"),
        (with_x(parameters=[]), "'parameters'"),
        (with_x(parameters={"shared_memory_region": "a"}), "shared memory"),
        ({"inputs": [X, {**N, "data": [1.5]}, FLAG]}, "1.5 in 'data' is no INT32"),
        ({"inputs": [X, {**N, "data": [2**31]}, FLAG]}, "too large for INT32"),
        ({"inputs": [X, N, {**FLAG, "data": [1, 0]}]}, "is no BOOL"),
        ({**with_x(), "outputs": [{"name": "q"}]}, "no output 'q'"),
        ({**with_x(), "outputs": [{"name": "y", "parameters": {"classification": 2}}]}, "classif"),
        ({**with_x(), "parameters": {"binary_data_output": 1}}, "expected true or false"),
        ({**with_x(), "id": 5}, "'id'"),
    ],
)
def test_a_wrong_request_is_told_why(address, body, words):
    status, answer = post(address, "/v2/models/rows/infer", body)
    assert (status, words in answer["error"]) == (400, True), answer
    assert infer_y(address, rows(1)).shape == (1, 4)


@pytest.mark.parametrize("length", ["-1", "x", "99999", "9" * 5000, "²", "١"])
def test_a_wrong_length_of_the_json(address, length):
    headers = {"Inference-Header-Content-Length": length.encode()}
    status, answer = post(address, "/v2/models/rows/infer", with_x(), headers)
    assert status == 400 and "Inference-Header-Content-Length" in answer["error"]


def binary_request(sizes, data):
    inputs = [
        {"name": n, "datatype": t, "shape": s, "parameters": {"binary_data_size": size}}
        for (n, t, s), size in zip(
            [("x", "FP32", [1, 4]), ("n", "INT32", [1, 1]), ("flag", "BOOL", [1, 2])], sizes
        )
    ]
    header = json.dumps({"inputs": inputs}).encode()
    return header + data, {"Inference-Header-Content-Length": str(len(header))}


@pytest.mark.parametrize(
    ("sizes", "data", "words"),
    [
        ((16, 4, 2), bytes(21), "needs 2 bytes of binary data; 1 are left"),
        ((16, 4, 2), bytes(23), "1 bytes of binary data belong to no input"),
        ((15, 4, 2), bytes(22), "has 16 bytes"),
        ((-16, 4, 2), bytes(22), "has 16 bytes"),
        ((2**64, 4, 2), bytes(22), "has 16 bytes"),
        (("16", 4, 2), bytes(22), "has 16 bytes"),
        ((16, 4, 2), bytes(21) + b"\x07", "neither 0 nor 1"),
    ],
)
def test_wrong_sizes_of_binary_data(address, sizes, data, words):
    status, answer = post(address, "/v2/models/rows/infer", *binary_request(sizes, data))
    assert (status, words in answer["error"]) == (400, True), answer


def test_a_body_that_is_too_large_is_not_read(address):
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.putrequest("POST", "/v2/models/rows/infer")
    connection.putheader("Content-Length", str(2**60))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400 and b"the largest request" in answer.read()


def test_what_unpacks_to_too_much_is_not_unpacked(address):
    bomb = gzip.compress(b" " * (1 << 28))
    status, answer = post(address, "/v2/models/rows/infer", bomb, {"Content-Encoding": "gzip"})
    assert status == 400 and ("unpacked" in answer["error"] or "largest" in answer["error"])
    cut = gzip.compress(json.dumps(with_x()).encode())[:-9]
    status, answer = post(address, "/v2/models/rows/infer", cut, {"Content-Encoding": "gzip"})
    assert status == 400 and "cut off" in answer["error"]


def test_there_is_no_such_endpoint(address):
    for path in ("/v3", "/v2/models/rows/versions/2/infer", "/v2/models/%2e%2e/infer"):
        assert post(address, path, with_x())[0] in (404, 405)


def test_nan_is_not_json(address):
    request = json_request(rows(1))
    request["inputs"][0]["data"] = [1e300, 1, 1, 1]  # infinite in FP32
    status, answer = post(address, "/v2/models/rows/infer", request)
    assert status == 400 and "'binary_data': true" in answer["error"]


# The command

OPERATORS = """
import numpy as np
import opwright.plugin as trtp

@trtp.register("served::triple")
def triple_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("served::triple")
def triple(x, outputs, stream):
    np.multiply(x, np.float32(3), out=np.asarray(outputs[0]))
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.engine"], "nothing.engine"),
        (["a=x", "a=y"], "two models have the name 'a'"),
        (["--max-queue", "0", "x.engine"], "max_queue is 0; expected 1 or more"),
        (["x.engine", "--plugins", "none.py"], "'none.py': No such file"),
        (["x.engine", "--plugins", "none.so"], "none.so"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, words):
    command = [sys.executable, "-m", "opwright", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_operators_in_python_are_served(tmp_path):
    operators = tmp_path / "operators.py"
    operators.write_text(OPERATORS)
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 19, "served" : 1]>
        net (float[n, 2] x) => (float[n, 2] y) { y = served.triple (x) }"""
    )
    onnx.save(model, tmp_path / "m.onnx")
    program = [sys.executable, "-m", "opwright", "build", "m.onnx", "-o", "m.engine"]
    shapes = ["--shapes", "x:1x2,4x2,8x2", "--plugins", "operators.py", "--no-timing"]
    subprocess.run([*program, *shapes], cwd=tmp_path, check=True)
    request = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, -2.0]}
    with serving(f"{tmp_path}/m.engine", "--plugins", str(operators)) as (address, _):
        status, answer = post(address, "/v2/models/m/infer", {"inputs": [request]})
    assert status == 200 and answer["outputs"][0]["data"] == [3.0, -6.0], answer


def test_the_program_becomes_the_command(program, tmp_path):
    done = subprocess.run([program, "serve", "no.engine"], capture_output=True, text=True)
    assert done.returncode == 1 and "no.engine" in done.stderr
    environment = {"PATH": str(tmp_path), "OPWRIGHT_PYTHON": "/nobody"}
    command = [program, "serve", "a.engine", "--port", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "'opwright[serve]'" in done.stderr


def test_rows_that_depend_on_each_other_are_not_put_together(tmp_path):
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 19]>
        net (float[b, 4] x) => (float[b, 4] y) { y = Softmax <axis = 0> (x) }"""
    )
    path = tmp_path / "net.engine"
    opwright.build(model, shapes={"x": ((1, 4), (2, 4), (8, 4))}).save(path)
    assert not Model(path, ModelOptions(), ModelMetrics()).is_batched
    build_rows(path)
    assert Model(path, ModelOptions(), ModelMetrics()).is_batched
    assert not Model(path, ModelOptions(max_batch=1), ModelMetrics()).is_batched
