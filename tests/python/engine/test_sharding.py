"""Models cut for ranks: the ranks' results against ONNX Runtime's of the whole model, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import opwright
import sharded_models as models
from opwright.sharding import ShardedEngine, Shards

random = np.random.default_rng(7)
PAIR = [("up*", "columns"), ("down*", "rows")]


def whole(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))


def compare(
    shards: Shards, model: onnx.ModelProto, shapes: dict, calls: list[dict[str, np.ndarray]]
) -> None:
    built = shards.build(shapes=shapes, timing=False)
    with ShardedEngine(built.manifest, timeout=20) as engine:
        for inputs in calls:
            results, expected = engine(inputs), whole(model, inputs)
            if not isinstance(results, dict):
                results = {engine.outputs[0]: results}
            assert list(results) == list(expected)
            for name, result in results.items():
                np.testing.assert_allclose(
                    result, expected[name], rtol=1e-4, atol=2e-4, err_msg=name
                )


def floats(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def text(length: int, batch: int, words: int = 40) -> dict[str, np.ndarray]:
    return {"ids": random.integers(0, words, (batch, length))}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("gemm", [False, True])
def test_a_pair_of_products_has_one_sum(tmp_path, ranks, gemm):
    model = models.mlp(gemm)
    shards = opwright.shard(model, ranks=ranks, plan=PAIR, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    calls = [{"x": floats(n, 32)} for n in (1, 5)]
    compare(shards, model, {"x": ((1, 32), (4, 32), (8, 32))}, calls)


@pytest.mark.parametrize("ranks, tied", [(2, False), (2, True), (4, False)])
def test_a_decoder_of_llama(tmp_path, ranks, tied):
    """Table and head cut by words, heads by ranks, open batch and length."""
    layers = 2 if tied else 1
    model = models.llama(layers, tied=tied, shared=4 if ranks == 4 else 2)
    shards = opwright.shard(model, ranks=ranks, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1 + 2 * layers, "all_gather": 1}
    shapes = {"ids": ((1, 1), (2, 5), (3, 8))}
    compare(shards, model, shapes, [text(5, 2), text(1, 1), text(8, 3)])


def test_keys_may_stay_whole(tmp_path):
    """Of one shared head of keys, two ranks cannot have a half each."""
    model = models.llama(layers=1, shared=1)
    with pytest.raises(
        opwright.Error, match="'node_Slice.*cut along axis 3, the axis of the slice.*'replicate'"
    ):
        opwright.shard(model, ranks=2, plan="llama", folder=tmp_path)
    plan = [(f"*{n}_proj*", "replicate") for n in "kv"]
    plan += [("*q_proj*", "heads"), ("*o_proj*", "rows"), ("lm_head*", "vocabulary")]
    shards = opwright.shard(model, ranks=2, plan=plan, folder=tmp_path)
    compare(shards, model, {"ids": ((1, 1), (2, 5), (2, 6))}, [text(5, 2), text(6, 1)])


def test_queries_keys_and_values_of_one_product(tmp_path):
    model = models.gpt2()
    shards = opwright.shard(model, ranks=2, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 3}
    compare(shards, model, {"ids": ((1, 1), (2, 5), (3, 8))}, [text(5, 2), text(7, 1)])


def test_experts(tmp_path):
    model = models.experts()
    shards = opwright.shard(model, ranks=4, plan=[("*experts*", "experts")], folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    calls = [{"x": floats(n, 16)} for n in (1, 6)]
    compare(shards, model, {"x": ((1, 16), (4, 16), (8, 16))}, calls)


def test_caches_are_split(tmp_path):
    """Each rank keeps its own heads of keys and values; callers see whole ones."""
    model = models.grouped_attention()
    shards = opwright.shard(model, ranks=2, plan="llama", folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    assert [port.axis for port in shards.inputs] == [None, None, 1, 1, None]
    assert [port.axis for port in shards.outputs] == [None, 1, 1]
    inputs = {"x": floats(2, 1, 64), "skip": floats(2, 1, 64), "lengths": np.full(2, 11, np.int32)}
    inputs |= {f"past_key_values.0.{n}": floats(2, 2, 11, 16) for n in ("key", "value")}
    compare(shards, model, {name: array.shape for name, array in inputs.items()}, [inputs])
