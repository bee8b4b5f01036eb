"""A server whose model runs on two ranks."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import opwright
import sharded_models as models

pytest.importorskip("uvicorn")
from serving_process import serving  # noqa: E402

X = np.random.default_rng(3).standard_normal((3, 32)).astype(np.float32)


def infer(address: str, x: np.ndarray) -> np.ndarray:
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    url = f"http://{address}/v2/models/mlp/infer"
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        (output,) = json.load(answer)["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def children(process: int) -> list[int]:
    lists = Path(f"/proc/{process}/task").glob("*/children")
    found = [int(each) for threads in lists for each in threads.read_text().split()]
    return [each for each in found if b"sharding" in Path(f"/proc/{each}/cmdline").read_bytes()]


def test_a_server_of_ranks(tmp_path):
    folder = tmp_path / "mlp.2ranks"
    shards = opwright.shard(
        models.mlp(), ranks=2, plan=[("up*", "columns"), ("down*", "rows")], folder=folder
    )
    shards.build(shapes={"x": ((1, 32), (4, 32), (8, 32))}, timing=False)
    whole = opwright.build(models.mlp(), shapes={"x": X.shape}, device="cpu", timing=False)
    with serving(str(folder), "--ranks", "2") as (address, process):
        np.testing.assert_allclose(infer(address, X), whole(X), rtol=1e-4, atol=1e-4)
        with pytest.raises(urllib.error.HTTPError) as caught:
            infer(address, np.zeros((9, 32), np.float32))
        assert caught.value.code == 400
        (rank,) = children(process.pid)
        os.kill(rank, signal.SIGKILL)
        with pytest.raises(urllib.error.HTTPError) as caught:
            infer(address, X)
        assert caught.value.code == 500 and b"rank 1" in caught.value.read()
        load = f"http://{address}/v2/repository/models/mlp/load"
        urllib.request.urlopen(load, b"", timeout=30).close()
        np.testing.assert_allclose(infer(address, X), whole(X), rtol=1e-4, atol=1e-4)
        (rank,) = children(process.pid)
    end = time.monotonic() + 10
    while Path(f"/proc/{rank}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not Path(f"/proc/{rank}").exists()


def test_split_caches_are_refused(tmp_path):
    from opwright.serving import ModelOptions, Repository

    shards = opwright.shard(models.grouped_attention(), ranks=2, plan="llama", folder=tmp_path)
    with pytest.raises(
        opwright.Error, match="splits .*past_key_values.0.key.*a server needs them whole"
    ):
        Repository({"gqa": shards.manifest}, ModelOptions(ranks=2))
