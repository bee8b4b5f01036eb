"""Attention whose keys and values are split over processes: against NumPy's attention over all keys."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

import emulated_gpu
import opwright as trt
from collective_layers import Runner
from rank_processes import in_ranks

both_devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=emulated_gpu.emulated_only)]
)
HEADS, SHARED, SIZE, VALUES = 4, 2, 8, 6


def engine_of(
    ranks: int,
    device: str = "cpu",
    dtype: trt.DataType = trt.float32,
    mask: trt.DataType | None = None,
    lengths: bool = False,
    inner: trt.DataType | None = None,
    setup=lambda attention: None,
) -> trt.ICudaEngine:
    """An attention with open lengths of queries and keys."""
    builder = trt.Builder(trt.Logger())
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU if device == "cpu" else trt.DeviceType.GPU
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()

    def add(name, type, *shapes):
        open_axes = [len(set(extents)) > 1 for extents in zip(*shapes)]
        extents = [-1 if is_open else n for is_open, n in zip(open_axes, shapes[1])]
        profile.set_shape(name, *shapes)
        return network.add_input(name, type, extents)

    q = add("q", dtype, (2, HEADS, 1, SIZE), (2, HEADS, 5, SIZE), (2, HEADS, 9, SIZE))
    k = add("k", dtype, *((2, SHARED, n, SIZE) for n in (0, 7, 16)))
    v = add("v", dtype, *((2, SHARED, n, VALUES) for n in (0, 7, 16)))
    if inner is not None:
        q, k, v = (network.add_cast(x, inner).get_output(0) for x in (q, k, v))
    attention = network.add_attention(q, k, v, trt.AttentionNormalizationOp.SOFTMAX, False)
    attention.num_ranks = ranks
    assert attention.num_ranks == ranks
    if mask is not None:
        attention.mask = add("mask", mask, (2, 1, 1, 0), (2, 1, 5, 7), (2, 1, 9, 16))
    if lengths:
        attention.key_value_lengths = network.add_input("lengths", trt.int32, (2,))
    setup(attention)
    attention.name = "the attention"
    y = attention.get_output(0)
    if inner is not None:
        y = network.add_cast(y, dtype).get_output(0)
    y.name = "y"
    network.mark_output(y)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    return trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)


def reference(q, k, v, allowed=None, bias=None, normalizes: bool = True) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, HEADS // SHARED, 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf if normalizes else 0)
    if not normalizes:
        return scores @ v
    peak = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    return powers / np.maximum(powers.sum(-1, keepdims=True), 1) @ v


def inputs_of(queries: int, keys: list[int], dtype, seed: int = 0) -> tuple:
    random = np.random.default_rng(seed)
    shapes = [
        (2, HEADS, queries, SIZE),
        (2, SHARED, sum(keys), SIZE),
        (2, SHARED, sum(keys), VALUES),
    ]
    return tuple(random.normal(size=shape).astype(dtype) for shape in shapes)


def part(x: np.ndarray, keys: list[int], rank: int, axis: int) -> np.ndarray:
    """A rank's share of the keys."""
    return np.ascontiguousarray(np.split(x, np.cumsum(keys)[:-1], axis)[rank])


def check(engine, device, runs, tolerance) -> None:
    """`runs` has for each run the ranks' inputs, and what all get."""
    ranks = len(runs[0][0])

    def work(rank, communicator):
        runner = Runner(engine, communicator, device)
        results = []
        for inputs, _ in runs:
            runner.place(inputs[rank])
            results.append(runner.run()[0])
        return results

    results = in_ranks(ranks, work, device=device)
    for result in results:
        assert isinstance(result, list), result
        for (_, want), got, first in zip(runs, result, results[0], strict=True):
            np.testing.assert_array_equal(got, first)
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


@both_devices
@pytest.mark.parametrize("ranks, dtype", [(2, np.float32), (3, np.float32), (2, np.float16)])
def test_parts_of_different_lengths(device, ranks, dtype) -> None:
    engine = engine_of(ranks, device, trt.float32 if dtype == np.float32 else trt.float16)
    runs = []
    for seed, (queries, keys) in enumerate([(5, [7, 7, 7]), (1, [16, 3, 1]), (9, [0, 12, 5])]):
        q, k, v = inputs_of(queries, keys[:ranks], dtype, seed)
        inputs = [
            {"q": q, "k": part(k, keys[:ranks], r, 2), "v": part(v, keys[:ranks], r, 2)}
            for r in range(ranks)
        ]
        runs.append((inputs, reference(q, k, v)))
    check(engine, device, runs, 1e-5 if dtype == np.float32 else 5e-3)


@both_devices
def test_bfloat16_between_inputs_of_fp32(device) -> None:
    engine = engine_of(2, device, inner=trt.bfloat16)
    keys = [7, 5]
    q, k, v = inputs_of(5, keys, np.float32)
    inputs = [{"q": q, "k": part(k, keys, r, 2), "v": part(v, keys, r, 2)} for r in range(2)]
    check(engine, device, [(inputs, reference(q, k, v))], 5e-2)


@both_devices
@pytest.mark.parametrize("kind", ["allowed", "added"])
def test_each_rank_has_its_part_of_the_mask(device, kind) -> None:
    """Some queries may meet no key of a rank, one of them no key of any rank. All keys of rank 1 are masked once."""
    is_bool = kind == "allowed"
    engine = engine_of(3, device, mask=trt.bool if is_bool else trt.float32)
    runs = []
    for seed, (queries, keys) in enumerate([(5, [7, 4, 6]), (3, [2, 16, 1])]):
        q, k, v = inputs_of(queries, keys, np.float32, seed)
        random = np.random.default_rng(seed + 50)
        allowed = random.random((2, 1, queries, sum(keys))) < 0.6
        allowed[:, :, :, keys[0] : keys[0] + keys[1]] = False
        allowed[1, 0, 1] = False
        bias = np.where(allowed, random.normal(size=allowed.shape), -np.inf).astype(np.float32)
        mask = allowed if is_bool else bias
        want = reference(q, k, v, allowed, None if is_bool else np.where(allowed, bias, 0))
        assert (want[1, :, 1] == 0).all()
        inputs = [
            {
                "q": q,
                "k": part(k, keys, r, 2),
                "v": part(v, keys, r, 2),
                "mask": part(mask, keys, r, 3),
            }
            for r in range(3)
        ]
        runs.append((inputs, want))
    check(engine, device, runs, 1e-5)


def test_lengths_count_a_ranks_keys() -> None:
    engine = engine_of(2, lengths=True)
    keys, counts = [6, 8], [[6, 2], [0, 5]]
    q, k, v = inputs_of(4, keys, np.float32)
    allowed = np.zeros((2, 1, 1, sum(keys)), bool)
    for batch in range(2):
        for rank, begin in enumerate((0, keys[0])):
            allowed[batch, 0, 0, begin : begin + counts[rank][batch]] = True
    inputs = [
        {
            "q": q,
            "k": part(k, keys, r, 2),
            "v": part(v, keys, r, 2),
            "lengths": np.array(counts[r], np.int32),
        }
        for r in range(2)
    ]
    check(engine, "cpu", [(inputs, reference(q, k, v, allowed))], 1e-5)


def test_without_a_softmax_the_parts_are_added() -> None:
    def setup(attention):
        attention.norm_op = trt.AttentionNormalizationOp.NONE

    engine = engine_of(2, setup=setup)
    keys = [5, 3]
    q, k, v = inputs_of(4, keys, np.float32)
    inputs = [{"q": q, "k": part(k, keys, r, 2), "v": part(v, keys, r, 2)} for r in range(2)]
    check(engine, "cpu", [(inputs, reference(q, k, v, normalizes=False))], 1e-4)


def test_scores_beyond_the_exponentials_range() -> None:
    """A rank's scores may be far from another's."""
    engine = engine_of(2)
    keys = [7, 7]
    q, k, v = inputs_of(5, keys, np.float32)
    q *= 40
    k[:, :, :7] *= 0.01
    inputs = [{"q": q, "k": part(k, keys, r, 2), "v": part(v, keys, r, 2)} for r in range(2)]
    check(engine, "cpu", [(inputs, reference(q, k, v))], 1e-4)


def test_what_the_inspector_shows() -> None:
    engine = engine_of(2)
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    steps = [step for step in json.loads(text)["Layers"] if step["LayerType"] == "DistCollective"]
    assert len(steps) == 1 and "the attention" in steps[0]["Name"]
    assert "2" in json.dumps(steps[0])


def test_a_run_without_a_communicator_names_the_attention() -> None:
    engine = engine_of(2)
    q, k, v = inputs_of(5, [7], np.float32)
    runner = Runner(engine, None)
    runner.place({"q": q, "k": k, "v": v})
    with pytest.raises(trt.Error, match="the attention.*has no communicator.*set_communicator"):
        runner.run()


def causal(attention) -> None:
    attention.causal_kind = trt.CausalMaskKind.LOWER_RIGHT


def none(attention) -> None:
    attention.num_ranks = 0


@pytest.mark.parametrize(
    "setup, message",
    [
        (causal, "the attention.*is causal.*over 2 ranks"),
        (none, "works with 0 ranks; expected 1 to"),
    ],
)
def test_what_is_refused(setup, message) -> None:
    with pytest.raises(trt.Error, match=message):
        engine_of(2, setup=setup)


def engine_of_onnx(**attributes) -> trt.ICudaEngine:
    def port(name, heads, size):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, heads, 7, size])

    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], name="shared", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [port("q", HEADS, SIZE), port("k", SHARED, SIZE), port("v", SHARED, VALUES)],
        [port("y", HEADS, VALUES)],
    )
    opsets = [helper.make_opsetid("", 23)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    builder = trt.Builder(trt.Logger())
    network = builder.create_network()
    parser = trt.OnnxParser(network, trt.Logger())
    if not parser.parse(model.SerializeToString()):
        raise trt.Error(parser.get_error(0).desc())
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    plan = builder.build_serialized_network(network, config)
    return trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)


def test_nodes_of_onnx() -> None:
    engine = engine_of_onnx(nbRanks=2, softcap=3.0)
    keys = [7, 7]
    q, k, v = inputs_of(7, keys, np.float32)
    inputs = [{"q": q, "k": part(k, keys, r, 2), "v": part(v, keys, r, 2)} for r in range(2)]
    scale = 1 / np.sqrt(SIZE)
    scores = q.astype(np.float64) @ np.repeat(k, HEADS // SHARED, 1).swapaxes(2, 3) * scale
    powers = np.exp(3 * np.tanh(scores / 3))
    want = powers / powers.sum(-1, keepdims=True) @ np.repeat(v, HEADS // SHARED, 1)
    check(engine, "cpu", [(inputs, want)], 1e-5)
    with pytest.raises(trt.Error, match="is causal or has a window.*over 2 ranks"):
        engine_of_onnx(nbRanks=2, is_causal=1)
