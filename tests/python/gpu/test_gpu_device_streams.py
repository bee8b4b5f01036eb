"""Branches that run beside each other: bit by bit what one stream computes, in every run, and within torch's graph."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from gpu_engines import mark, strongly_typed

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]

RUNS = 30  # the later ones are replayed


def inception(rng, blocks: int = 4):
    """Four branches of convolutions and one of pooling, several times."""
    net = strongly_typed()
    x = net.add_input("x0", trt.float16, (1, 64, 14, 14))

    def convolution(x, maps: int, size: int):
        shape = (maps, x.shape[1], size, size)
        weights = rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape).astype(np.float16)
        layer = net.add_convolution_nd(x, maps, (size, size), trt.Weights(weights), trt.Weights())
        layer.padding_nd = (size // 2, size // 2)
        relu = net.add_activation(layer.get_output(0), trt.ActivationType.RELU)
        return relu.get_output(0)

    for _ in range(blocks):
        pool = net.add_pooling_nd(x, trt.PoolingType.MAX, (3, 3))
        pool.stride_nd, pool.padding_nd = (1, 1), (1, 1)
        branches = [
            convolution(x, 64, 1),
            convolution(convolution(x, 96, 1), 128, 3),
            convolution(convolution(convolution(x, 32, 1), 32, 3), 32, 3),
            convolution(pool.get_output(0), 32, 1),
        ]
        joined = net.add_concatenation(branches)
        joined.axis = 1
        x = joined.get_output(0)
    return net, x


@pytest.fixture(scope="module")
def engines():
    """With several streams and with one, of the same kernels."""
    builder = trt.Builder(trt.Logger())
    cache = builder.create_builder_config().create_timing_cache(b"")
    made = []
    for count in (3, 0):
        config = builder.create_builder_config()
        config.set_timing_cache(cache, False)
        config.max_aux_streams = count
        net = mark(*inception(np.random.default_rng(1)))
        made.append(trt.Engine(builder.build_engine_with_config(net, config)))
    return made


def test_branches_pay(engines):
    assert [engine.engine.num_aux_streams > 0 for engine in engines] == [True, False]


def test_results_are_those_of_one_stream(engines, torch):
    several, one = engines
    for run in range(RUNS):
        x = torch.randn(1, 64, 14, 14, device="cuda", dtype=torch.float16)
        y, expected = several(x), one(x)
        assert torch.equal(y, expected), run


def test_streams_of_the_application(engines, torch):
    several, one = engines
    context = several.engine.create_execution_context()
    streams = [torch.cuda.Stream() for _ in range(several.engine.num_aux_streams)]
    context.set_aux_streams([stream.cuda_stream for stream in streams])
    x = torch.randn(1, 64, 14, 14, device="cuda", dtype=torch.float16)
    expected = one(x)
    y = torch.empty_like(expected)
    context.set_tensor_address("x0", x.data_ptr())
    context.set_tensor_address(several.outputs[0], y.data_ptr())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(RUNS):
        context.execute_async_v3(stream.cuda_stream)
        stream.synchronize()
        assert torch.equal(y, expected)
        y.zero_()
        torch.cuda.synchronize()


def test_within_a_graph_of_the_application(engines, torch):
    several, one = engines
    context = several.engine.create_execution_context()
    x = torch.randn(1, 64, 14, 14, device="cuda", dtype=torch.float16)
    y = torch.empty_like(one(x))
    context.set_tensor_address("x0", x.data_ptr())
    context.set_tensor_address(several.outputs[0], y.data_ptr())
    context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
    for _ in range(RUNS):
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, one(x))
