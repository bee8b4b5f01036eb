"""opwright.ray on a cluster of this machine: builds, datasets, and Ray Serve with a replica that is killed."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import opwright
from serving_process import build_rows, rows

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

# Pydantic, of Ray's own code.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

import opwright.ray  # noqa: E402
from opwright.ray import _build  # noqa: E402
from opwright.ray._schedule import Schedule  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False
    )
    yield
    ray.shutdown()


def weights(layers):
    random = np.random.default_rng(1)
    sizes = [16 + i for i in range(layers + 1)]
    return [
        random.standard_normal((a, b)).astype(np.float32) / np.float32(np.sqrt(a))
        for a, b in zip(sizes, sizes[1:])
    ]


def chain(layers):
    """Products of distinct shapes, each followed by a hyperbolic tangent."""
    nodes, name = [], "x"
    matrices = weights(layers)
    for i in range(layers):
        nodes += [
            helper.make_node("MatMul", [name, f"w{i}"], [f"p{i}"], name=f"product{i}"),
            helper.make_node("Tanh", [f"p{i}"], [f"y{i}"], name=f"tanh{i}"),
        ]
        name = f"y{i}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 16 + layers])],
        [numpy_helper.from_array(each, f"w{i}") for i, each in enumerate(matrices)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def expected(x, layers):
    for each in weights(layers):
        x = np.tanh(x @ each)
    return x


# Builds


@given(
    layers=st.lists(st.integers(0, 40), max_size=120),
    workers=st.integers(1, 50),
    lost=st.sets(st.integers(0, 60)),
)
def test_a_schedule_gives_out_each_candidate(layers, workers, lost):
    schedule = Schedule([(str(layer), str(i)) for i, layer in enumerate(layers)], workers)
    given, turn = [], 0
    while portion := schedule.take():
        if turn in lost:
            schedule.give_back(portion)
        else:
            given += portion
        turn += 1
    assert sorted(given, key=int) == [str(i) for i in range(len(layers))]


def test_candidates_are_those_that_a_build_times(tmp_path):
    builder, network, config = opwright._api.definition(chain(5), device="cpu")
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    candidates = _build.untimed(builder, network, config)
    assert len(cache) == 0  # nothing was timed
    opwright.build(chain(5), device="cpu", timing_cache=tmp_path / "times")
    built = opwright.ITimingCache.load(str(tmp_path / "times"))
    assert {key for _, key in candidates} == set(map(str, built.queryKeys()))


def test_what_the_filter_raises_ends_the_timing():
    builder, network, config = opwright._api.definition(chain(2), device="cpu")
    config.set_timing_cache(config.create_timing_cache(b""), False)

    def wrong(layer, key):
        raise KeyError("wrong")

    with pytest.raises(KeyError, match="wrong"):
        builder._time_candidates(network, config, wrong)
    config.timing = False
    with pytest.raises(opwright.Error, match="a config that times"):
        builder._time_candidates(network, config, lambda layer, key: True)


def test_a_build_on_workers_is_that_of_one_machine(cluster, tmp_path, caplog):
    times = tmp_path / "times"
    one = {"num_cpus": 1}
    engine = opwright.ray.build(
        chain(12), device="cpu", workers=3, timing_cache=times, worker_options=one
    )
    assert "left out" not in caplog.text
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    np.testing.assert_allclose(engine(x), expected(x, 12), rtol=1e-4, atol=1e-5)
    before = times.read_bytes()
    opwright.build(chain(12), device="cpu", timing_cache=times).save(tmp_path / "one.engine")
    assert times.read_bytes() == before  # one machine found all times there
    engine.save(tmp_path / "many.engine")
    assert (tmp_path / "many.engine").read_bytes() == (tmp_path / "one.engine").read_bytes()


def test_a_network_cannot_be_sent():
    builder = opwright.Builder(opwright.Logger())
    with pytest.raises(opwright.Error, match="give it an ONNX model"):
        opwright.ray.build(builder.create_network(0))


def timed_with(actor, model, count):
    """Workers, the keys that a build wants, and the cache that _time fills."""
    builder, network, config = opwright._api.definition(model, device="cpu")
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    candidates = _build.untimed(builder, network, config)
    arguments = (ray.put(model.SerializeToString()), {"device": "cpu"}, opwright.max_threads())
    remote = ray.remote(num_cpus=1)(actor)
    workers = _build._start(remote, arguments, count, cache.device_identity, 120)
    _build._time(workers, Schedule(candidates, max(1, len(workers))), config, cache)
    return workers, {key for _, key in candidates}, set(map(str, cache.queryKeys()))


def test_a_worker_that_dies_costs_its_candidates_time_alone(cluster, tmp_path, caplog):
    marker = str(tmp_path / "died")

    class Mortal(_build.TimingWorker):
        def time(self, keys):
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return super().time(keys)
            os._exit(1)

    workers, wanted, timed = timed_with(Mortal, chain(10), 2)
    assert len(workers) == 2 and timed == wanted
    assert "another one times" in caplog.text


def test_what_kills_every_worker_is_left_to_this_machine(cluster, caplog):
    class Doomed(_build.TimingWorker):
        def time(self, keys):
            os._exit(1)

    _, wanted, timed = timed_with(Doomed, chain(3), 3)
    assert wanted and not timed


def test_workers_with_another_device_are_left_out(cluster, caplog):
    class Foreign(_build.TimingWorker):
        def identity(self):
            return "another processor"

    workers, _, timed = timed_with(Foreign, chain(2), 1)
    assert not workers and not timed and "another processor" in caplog.text


# Datasets


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray-engines")
    build_rows(folder / "rows.engine")
    return folder


def y_of(batch):
    return batch["x"] * np.float32(2) + batch["n"].astype(np.float32)


@pytest.mark.parametrize("n", [1, 16, 17, 50])
def test_a_batch_of_numpy(engines, n):
    predictor = opwright.ray.Predictor(engines / "rows.engine")
    batch = rows(n)
    result = predictor(batch)
    np.testing.assert_allclose(result["y"], y_of(batch), rtol=1e-6, atol=1e-6)
    assert np.array_equal(result["z"], ~batch["flag"]) and result["x"] is batch["x"]


def test_a_batch_of_arrow_is_not_copied(engines):
    import pyarrow
    from ray.data.extensions import ArrowTensorArray

    from opwright.ray._data import _column

    batch = rows(9)
    columns = {k: ArrowTensorArray.from_numpy(v) for k, v in batch.items()}
    table = pyarrow.table({**columns, "id": np.arange(9)})
    first, again = _column(table, "x"), _column(table, "x")
    assert first.ctypes.data == again.ctypes.data  # both are the table's own memory
    assert not first.flags.owndata
    result = opwright.ray.Predictor(engines / "rows.engine")(table)
    assert isinstance(result, pyarrow.Table) and result.column_names[-2:] == ["y", "z"]
    np.testing.assert_allclose(_column(result, "y"), y_of(batch), rtol=1e-6, atol=1e-6)
    only = opwright.ray.Predictor(engines / "rows.engine", keep=False)(table)
    assert only.column_names == ["y", "z"]


def test_columns_of_other_names(engines):
    batch = rows(3)
    batch["image"] = batch.pop("x")
    with pytest.raises(opwright.Error, match=r"no columns \['x'\]"):
        opwright.ray.Predictor(engines / "rows.engine")(batch)
    result = opwright.ray.Predictor(engines / "rows.engine", columns={"x": "image"})(batch)
    assert result["y"].shape == (3, 4)
    with pytest.raises(opwright.Error, match="has no inputs"):
        opwright.ray.Predictor(engines / "rows.engine", columns={"q": "image"})


@pytest.mark.parametrize("batch_format", ["numpy", "pyarrow"])
def test_a_dataset(cluster, engines, batch_format):
    import ray.data

    data = rows(60)
    dataset = ray.data.from_items([{k: v[i] for k, v in data.items()} for i in range(60)])
    results = dataset.map_batches(
        opwright.ray.Predictor,
        fn_constructor_args=[str(engines / "rows.engine")],
        compute=ray.data.ActorPoolStrategy(size=2),
        batch_size=16,
        batch_format=batch_format,
    ).take_all()
    assert len(results) == 60
    for row in results:
        np.testing.assert_allclose(row["y"], y_of(row), rtol=1e-6, atol=1e-6)


# Ray Serve


@pytest.fixture(scope="module")
def serve(cluster):
    from ray import serve

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.address = f"127.0.0.1:{port}"
    yield serve
    serve.shutdown()


def infer(address, seed=0):
    """The factor of the engine that answered, by tritonclient."""
    client = pytest.importorskip("tritonclient.http")
    inputs = rows(1, seed)
    types = {"x": "FP32", "n": "INT32", "flag": "BOOL"}
    tensors = []
    for name, array in inputs.items():
        tensors.append(client.InferInput(name, array.shape, types[name]))
        tensors[-1].set_data_from_numpy(array)
    with client.InferenceServerClient(address, network_timeout=60) as opened:
        y = opened.infer("rows", tensors).as_numpy("y")
    return float(np.round((y - inputs["n"])[0, 0] / inputs["x"][0, 0]))


def processes(word):
    """Of Ray, those whose title has the word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::") and word in title:
            found.append(int(folder.name))
    return found


def answers_while(address, act, seconds=2.0):
    stop = threading.Event()

    def ask(seed):
        seen = []
        while not stop.is_set():
            seen.append(infer(address, seed))
        return seen

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(ask, seed) for seed in range(4)]
        time.sleep(1)
        act()
        time.sleep(seconds)
        stop.set()
        return sum((client.result() for client in clients), [])


def test_ray_serve(serve, engines):
    client = pytest.importorskip("tritonclient.http")
    path = engines / "served.engine"
    build_rows(path, 2)
    # With the delay there are always requests in the replicas.
    serve.run(opwright.ray.deployment({"rows": path}, replicas=2, delay=0.05))
    with client.InferenceServerClient(serve.address) as opened:
        assert opened.is_server_ready() and opened.is_model_ready("rows")
        assert len(opened.get_model_metadata("rows")["inputs"]) == 3
        with pytest.raises(client.InferenceServerException, match="no model 'nobody'"):
            opened.get_model_metadata("nobody")
        with pytest.raises(client.InferenceServerException, match="serve.run"):
            opened.load_model("rows")
    assert infer(serve.address) == 2

    # A replica is killed amid requests.
    killed = []

    def kill():
        before = processes(b"engine-rows")
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        killed.append(before[0])

    seen = answers_while(serve.address, kill, 3)
    assert killed and set(seen) == {2.0} and len(seen) > 20

    # A new engine takes the place of the old one amid requests.
    def reload():
        build_rows(path, 3)
        serve.run(opwright.ray.deployment({"rows": path}, replicas=2))

    seen = answers_while(serve.address, reload)
    assert set(seen) == {2.0, 3.0} and infer(serve.address) == 3


@pytest.mark.parametrize("word", [b"ProxyActor", b"opwright-http"])
def test_a_client_that_asks_again_loses_nothing(serve, engines, word):
    urllib3 = pytest.importorskip("urllib3", minversion="2")
    path = engines / "rows.engine"
    # With the delay there are always requests behind the process that is killed.
    serve.run(opwright.ray.deployment({"rows": path}, delay=0.05))
    retries = urllib3.Retry(
        total=120,
        status=10,
        backoff_factor=0.1,
        backoff_max=1,
        status_forcelist=[500, 502, 503, 504],
        allowed_methods=None,
        raise_on_status=False,
    )
    stop = threading.Event()

    def ask(seed):
        inputs = rows(1, seed)
        request = {
            "id": str(seed),
            "inputs": [
                {"name": k, "datatype": d, "shape": inputs[k].shape, "data": inputs[k].tolist()}
                for k, d in (("x", "FP32"), ("n", "INT32"), ("flag", "BOOL"))
            ],
        }
        pool, count = urllib3.PoolManager(retries=retries), 0
        while not stop.is_set():
            answer = pool.request(
                "POST", f"http://{serve.address}/v2/models/rows/infer", body=json.dumps(request)
            )
            assert answer.status == 200 and answer.json()["id"] == str(seed)
            y = np.array(answer.json()["outputs"][0]["data"])
            np.testing.assert_allclose(y, y_of(inputs)[0], rtol=1e-5, atol=1e-5)
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(ask, seed) for seed in range(4)]
        time.sleep(1)
        killed = processes(word)
        os.kill(killed[0], signal.SIGKILL)
        deadline = time.monotonic() + 120
        while not set(processes(word)) - set(killed) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)
        stop.set()
        assert all(client.result() > 0 for client in clients)


def test_ray_serve_overload(serve, engines):
    import http.client

    path = engines / "rows.engine"
    serve.run(opwright.ray.deployment({"rows": path}, max_queue=2, delay=0.3, max_batch=16))
    body = json.dumps(
        {
            "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]},
                {"name": "n", "datatype": "INT32", "shape": [1, 1], "data": [1]},
                {"name": "flag", "datatype": "BOOL", "shape": [1, 2], "data": [True, False]},
            ]
        }
    )

    def ask(_):
        connection = http.client.HTTPConnection(serve.address, timeout=60)
        connection.request("POST", "/v2/models/rows/infer", body)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(ask, range(24)))
    assert set(statuses) == {200, 503}
    assert ask(0) == 200
