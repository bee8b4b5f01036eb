"""INetworkDefinition and its layers, against NumPy."""

import numpy as np

import opwright as trt


def test_an_input_of_a_layer_can_decide_shapes():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    extents = network.add_input("extents", trt.int64, (2,))
    x = network.add_input("x", trt.float32, (1, 1))
    repeat = network.add_slice(x, (0, 0), (1, 1), (0, 0))
    repeat.set_input(2, extents)
    assert tuple(repeat.get_output(0).shape) == (-1, -1)
    network.mark_output(repeat.get_output(0))
    engine = trt.build(network, values={"extents": ((1, 1), (2, 3), (3, 4))}, timing=False)
    y = engine(extents=np.array([3, 2], np.int64), x=np.array([[5]], np.float32))
    np.testing.assert_array_equal(y, np.full((3, 2), 5, np.float32))
