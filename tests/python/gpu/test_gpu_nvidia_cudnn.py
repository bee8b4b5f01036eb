"""Convolutions by NVIDIA's cuDNN, against PyTorch in FP64: on the device, with the library that is there."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from gpu_engines import TYPES, Log
from library_engines import CUDNN, favour, tactics

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]

torch = pytest.importorskip("torch")

TOLERANCE = {np.float32: 2e-5, np.float16: 1e-2}


def built(x, w, bias=None, residual=None, after=None, stride=1, padding=0, dilation=1, groups=1):
    """An engine that takes the library wherever it can."""
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    axes = x.ndim - 2
    y = network.add_input("x", TYPES[x.dtype], x.shape)
    constant = trt.Weights(bias) if bias is not None else trt.Weights(TYPES[x.dtype])
    layer = network.add_convolution_nd(y, w.shape[0], w.shape[2:], trt.Weights(w), constant)
    layer.stride_nd, layer.padding_nd = (stride,) * axes, (padding,) * axes
    layer.dilation_nd, layer.num_groups = (dilation,) * axes, groups
    y = layer.get_output(0)
    if residual is not None:
        r = network.add_input("r", TYPES[x.dtype], residual.shape)
        y = network.add_elementwise(y, r, trt.ElementWiseOperation.SUM).get_output(0)
    if after is not None:
        y = network.add_activation(y, trt.ActivationType[after]).get_output(0)
    network.mark_output(y)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.set_tactic_sources(1 << int(trt.TacticSource.CUDNN))
    assert favour(builder, network, config, CUDNN), log.text
    if "cuDNN cannot be loaded" in log.text:
        pytest.skip("cuDNN is not installed")
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, log.text
    return trt.Engine(engine)


CASES = {
    "3x3": ((2, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    "pointwise": ((4, 256, 14, 14), (1024, 256, 1, 1), {}),
    "stem": ((2, 3, 64, 64), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "dilated": ((1, 32, 33, 33), (48, 32, 3, 3), {"dilation": 2, "padding": 2}),
    "groups": ((2, 64, 20, 20), (64, 16, 3, 3), {"groups": 4, "padding": 1}),
    "one axis": ((2, 32, 100), (48, 32, 5), {"padding": 2}),
    "three axes": ((1, 16, 9, 10, 11), (24, 16, 3, 3, 3), {"padding": 1}),
}
FUNCTIONS = {"RELU": torch.relu, "SIGMOID": torch.sigmoid, "TANH": torch.tanh, None: lambda y: y}


@pytest.mark.parametrize("after", ["RELU", None])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", CASES)
def test_convolutions(rng, name, dtype, after, tmp_path):
    x_shape, w_shape, how = CASES[name]
    x, w, bias = (
        rng.uniform(-1, 1, shape).astype(dtype) for shape in (x_shape, w_shape, w_shape[:1])
    )
    function = [torch.conv1d, torch.conv2d, torch.conv3d][x.ndim - 3]
    wide = [torch.from_numpy(array.astype(np.float64)) for array in (x, w, bias)]
    y = function(*wide, **how)
    feeds = {"x": x}
    residual = None
    if after is not None:
        residual = feeds["r"] = rng.uniform(-1, 1, tuple(y.shape)).astype(dtype)
        y = y + torch.from_numpy(residual.astype(np.float64))
    expected = FUNCTIONS[after](y).numpy()
    try:
        engine = built(x, w, bias, residual, after, **how)
    except trt.Error as error:
        pytest.fail(str(error))
    chosen = tactics(engine)
    assert any(tactic.startswith("cuDNN") for tactic in chosen), chosen
    limit = TOLERANCE[dtype] * np.sqrt(w[0].size)
    first = engine(**feeds)
    np.testing.assert_allclose(first, expected, rtol=limit, atol=limit)
    for _ in range(6):  # from a graph in the end, the same bits each time
        np.testing.assert_array_equal(engine(**feeds), first)
    assert engine.engine.tactic_sources == 1 << int(trt.TacticSource.CUDNN)
    engine.save(tmp_path / "convolution.engine")
    loaded = trt.load(tmp_path / "convolution.engine", allow_device_code=True)
    np.testing.assert_array_equal(loaded(**feeds), first)
