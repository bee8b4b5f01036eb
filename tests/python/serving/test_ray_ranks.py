"""opwright.ray.ShardedEngine on a cluster of several nodes on this machine."""

from __future__ import annotations

import json
import socket
import urllib.request

import numpy as np
import onnxruntime
import pytest

import opwright
import sharded_models as models

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

import opwright.ray  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    for _ in range(2):
        nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def manifest(tmp_path):
    plan = [("up*", "columns"), ("down*", "rows")]
    shards = opwright.shard(models.mlp(), ranks=2, plan=plan, folder=tmp_path)
    return shards.build(shapes={"x": ((1, 32), (4, 32), (8, 32))}, timing=False).manifest


def test_ranks_on_other_nodes_compute_what_one_process_does(cluster, manifest):
    session = onnxruntime.InferenceSession(models.mlp().SerializeToString())
    random = np.random.default_rng(5)
    with opwright.ray.ShardedEngine(manifest, strategy="SPREAD", timeout=20) as engine:
        for rows in (1, 5, 8):
            x = random.standard_normal((rows, 32)).astype(np.float32)
            (expected,) = session.run(None, {"x": x})
            np.testing.assert_allclose(engine(x), expected, rtol=1e-4, atol=2e-4)
        with pytest.raises(opwright.Error, match="outside of profile"):
            engine(np.zeros((9, 32), np.float32))
        ray.kill(engine._others[0]._actor)
        with pytest.raises(opwright.Error, match="rank 1"):
            engine(x)


def test_a_cluster_without_room_is_an_error(cluster, manifest):
    with pytest.raises(opwright.Error, match="has no room for 1 actors"):
        opwright.ray.ShardedEngine(manifest, resources={"CPU": 64}, timeout=1)


def test_a_deployment_of_ranks_answers_as_one_process(cluster, manifest):
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(opwright.ray.deployment({"mlp": manifest}, ranks=2))
        x = np.random.default_rng(6).standard_normal((2, 32)).astype(np.float32)
        session = onnxruntime.InferenceSession(models.mlp().SerializeToString())
        (expected,) = session.run(None, {"x": x})
        tensor = {"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist()}
        url = f"http://127.0.0.1:{port}/v2/models/mlp/infer"
        body = json.dumps({"inputs": [tensor]}).encode()
        with urllib.request.urlopen(url, body, timeout=60) as answer:
            (output,) = json.load(answer)["outputs"]
        got = np.array(output["data"], np.float32).reshape(output["shape"])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-4)
    finally:
        serve.shutdown()
