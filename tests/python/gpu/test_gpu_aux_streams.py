"""Layers that run beside each other on several streams: against NumPy and an engine that has one, where their tensors
lie, streams of the application, graphs. The emulated driver runs a stream's work as late as it can, and only what is
waited for, so that a wait that lacks shows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emulated_gpu
import opwright as trt
from cuda_driver import DeviceArray, Stream, driver

pytestmark = emulated_gpu.emulated_only

SHAPE = (4, 48)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Branches:
    """A network of layers that stay layers, and what it computes."""

    def __init__(self) -> None:
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.builder = trt.Builder(trt.Logger())
        self.network = self.builder.create_network(flags)
        self.random = np.random.default_rng(3)
        self.x = self.random.uniform(-2, 2, SHAPE).astype(np.float32)
        self.tensors = [(self.network.add_input("x", trt.float32, SHAPE), self.x.astype(float))]

    def softmax(self, of: int) -> int:
        tensor, value = self.tensors[of]
        layer = self.network.add_softmax(tensor)
        layer.axes = 2
        return self._add(layer, softmax(value))

    def shuffle(self, of: int) -> int:
        """In another order each time, so that no two layers are the same."""
        tensor, value = self.tensors[of]
        order = self.random.permutation(SHAPE[1]).astype(np.int32)
        index = self.network.add_constant(order.shape, trt.Weights(order)).get_output(0)
        return self._add(self.network.add_gather(tensor, index, 1), value[:, order])

    def sum(self, of: list[int]) -> int:
        total = of[0]
        for other in of[1:]:
            (a, x), (b, y) = self.tensors[total], self.tensors[other]
            layer = self.network.add_elementwise(a, b, trt.ElementWiseOperation.SUM)
            total = self._add(layer, x + y)
        return total

    def _add(self, layer: trt.ILayer, value: np.ndarray) -> int:
        self.tensors.append((layer.get_output(0), value))
        return len(self.tensors) - 1

    def mark(self, outputs: list[int]) -> None:
        for i, output in enumerate(outputs):
            self.tensors[output][0].name = f"y{i}"
            self.network.mark_output(self.tensors[output][0])

    def build(self, cache: trt.ITimingCache | None = None, **values: object) -> trt.ICudaEngine:
        config = self.builder.create_builder_config()
        config.default_device_type = trt.DeviceType.GPU
        for name, value in values.items():
            setattr(config, name, value)
        if cache is not None:
            config.set_timing_cache(cache, False)
        engine = self.builder.build_engine_with_config(self.network, config)
        assert engine is not None
        return engine

    def builds_on_streams(self, count: int, **values: object) -> Iterator[trt.ICudaEngine]:
        """As on a GPU where layers take 10 us each: an engine for each of the whole ones that may be the fastest."""
        config = self.builder.create_builder_config()
        config.default_device_type = trt.DeviceType.GPU
        cache = config.create_timing_cache(b"")
        self.build(cache, max_aux_streams=0)
        for key in cache.queryKeys():
            value = cache.query(key)
            value.timingMSec = 0.01
            assert cache.update(key, value)
        self.build(cache, max_aux_streams=count)
        engines = [key for key in cache.queryKeys() if str(key).startswith("Engine|")]
        for fastest in engines:
            for key in engines:
                value = cache.query(key)
                value.timingMSec = 0.1 if key == fastest else 1
                assert cache.update(key, value)
            yield self.build(cache, max_aux_streams=count, **values)
        if not engines:
            yield self.build(cache, max_aux_streams=count, **values)

    def build_on_streams(self, count: int, **values: object) -> trt.ICudaEngine:
        """Where the whole is faster on several streams, or, if no engine is, the last of them."""
        for engine in self.builds_on_streams(count, **values):
            if engine.num_aux_streams > 0:
                break
        return engine


def information(engine: trt.ICudaEngine) -> dict:
    inspector = engine.create_engine_inspector()
    return json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))


def groups(layers: list[dict]) -> list[list[dict]]:
    """Steps of layers that run beside each other."""
    found = itertools.groupby(layers, lambda layer: "Stream" in layer)
    return [list(group) for has_stream, group in found if has_stream]


def check_memory(engine: trt.ICudaEngine) -> None:
    """Layers of a group share memory only where one needs what the other has computed."""
    info = information(engine)
    place = {t["Index"]: t for t in info["Tensors"] if t["Location"] == "arena" and t["Bytes"]}
    for group in groups(info["Layers"]):
        writer = {t["Tensor"]: i for i, layer in enumerate(group) for t in layer["Outputs"]}
        after: list[set[int]] = []
        for layer in group:
            needs = {writer[t["Tensor"]] for t in layer["Inputs"] if t["Tensor"] in writer}
            after.append(needs.union(*(after[need] for need in needs)))
        for i, k in itertools.combinations(range(len(group)), 2):
            if i in after[k]:
                continue
            for wrote, other in ((i, k), (k, i)):
                for a in group[wrote]["Outputs"]:
                    for b in group[other]["Inputs"] + group[other]["Outputs"]:
                        p, q = place.get(a["Tensor"]), place.get(b["Tensor"])
                        if p is None or q is None:
                            continue
                        apart = (
                            p["Offset"] + p["Bytes"] <= q["Offset"]
                            or q["Offset"] + q["Bytes"] <= p["Offset"]
                        )
                        assert apart, (group[wrote]["Name"], group[other]["Name"])


def run(engine: trt.ICudaEngine, x: np.ndarray, streams: list[int] | None = None, runs: int = 6):
    """The outputs of some runs. The last ones are replayed."""
    context = engine.create_execution_context()
    if streams is not None:
        context.set_aux_streams(streams)
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    outputs = [DeviceArray(np.zeros(SHAPE, np.float32)) for _ in names[1:]]
    given = DeviceArray(x)
    for name, array in zip(names, [given, *outputs]):
        context.set_tensor_address(name, array.ptr)
    results = []
    stream = Stream().handle
    for _ in range(runs):
        for output in outputs:
            driver().write(output.ptr, np.full(SHAPE, np.nan, np.float32))
        assert context.execute_async_v3(stream)
        results.append([output.numpy() for output in outputs])
    return results


def inception() -> Branches:
    """Two times four branches of two and three layers."""
    model = Branches()
    last = 0
    for _ in range(2):
        last = model.softmax(last)
        ends = []
        for length in (2, 3, 3, 3):
            end = last
            for _ in range(length):
                end = model.shuffle(end)
            ends.append(end)
        last = model.sum(ends)
    model.mark([last])
    return model


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_random_networks(data):
    model = Branches()
    for _ in range(data.draw(st.integers(6, 16))):
        count = len(model.tensors)
        if data.draw(st.integers(0, 2)):
            layer = data.draw(st.sampled_from([model.softmax, model.shuffle, model.shuffle]))
            layer(data.draw(st.integers(max(0, count - 5), count - 1)))
        else:
            model.sum(data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=3)))
    used = data.draw(st.integers(1, 3))
    outputs = [len(model.tensors) - 1 - i for i in range(used)]
    outputs = [output for output in outputs if output > 0]
    model.mark(outputs)
    engine = model.build_on_streams(data.draw(st.sampled_from([1, 3])))
    check_memory(engine)
    for results in run(engine, model.x, runs=5):
        for result, output in zip(results, outputs):
            np.testing.assert_allclose(result, model.tensors[output][1], rtol=1e-5, atol=1e-6)


def test_branches_run_on_streams_of_their_own():
    model = inception()
    engine = model.build_on_streams(3)
    assert engine.num_aux_streams == 3
    assert len(groups(information(engine)["Layers"])) == 2
    check_memory(engine)
    before = driver().calls("cuStreamWaitEvent")
    results = run(engine, model.x)
    assert driver().calls("cuStreamWaitEvent") > before
    alone = model.build(max_aux_streams=0)
    assert alone.num_aux_streams == 0 and not groups(information(alone)["Layers"])
    expected = run(alone, model.x, runs=1)[0][0]
    np.testing.assert_allclose(expected, model.tensors[-1][1], rtol=1e-5, atol=1e-6)
    for result in results:
        np.testing.assert_array_equal(result[0], expected)


def test_streams_that_do_not_pay_are_left_out():
    """The times of whole engines decide. Here they are in the timing cache: those of a busy machine vary."""
    assert sorted(engine.num_aux_streams for engine in inception().builds_on_streams(3)) == [0, 3]


@pytest.mark.parametrize("graphs", [True, False])
def test_streams_of_the_application(graphs):
    model = inception()
    engine = model.build_on_streams(3, cuda_graphs=graphs)
    for count in (0, 1, 3, 5):  # fewer and more than there are
        streams = [Stream().handle for _ in range(count)]
        for result in run(engine, model.x, streams):
            np.testing.assert_allclose(result[0], model.tensors[-1][1], rtol=1e-5, atol=1e-6)
    context = engine.create_execution_context()
    with pytest.raises(trt.Error, match="auxiliary stream 1 of .* is the default stream"):
        context.set_aux_streams([Stream().handle, 0])
    stream = Stream().handle
    with pytest.raises(trt.Error, match="auxiliary stream 1 of .* is there twice"):
        context.set_aux_streams([stream, stream])


def test_a_file_keeps_the_streams():
    model = inception()
    engine = model.build_on_streams(2)
    assert engine.num_aux_streams == 2
    runtime = trt.Runtime(trt.Logger())
    runtime.engine_device_code_allowed = True
    again = runtime.deserialize_cuda_engine(engine.serialize())
    assert again.num_aux_streams == 2
    check_memory(again)
    np.testing.assert_array_equal(run(again, model.x)[-1][0], run(engine, model.x)[-1][0])


def test_nothing_is_beside_anything_on_the_cpu():
    model = inception()
    engine = model.build(max_aux_streams=3, default_device_type=trt.DeviceType.CPU)
    assert engine.num_aux_streams == 0
    engine.create_execution_context().set_aux_streams([1, 2])
