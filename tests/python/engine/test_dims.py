"""Dims2 to Dims4, DimsHW and Permutation, where shapes are taken."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt


def test_they_are_sequences_of_extents():
    assert trt.Dims2(3, 4) == (3, 4) == trt.Dims2([3, 4])
    assert tuple(trt.Dims3((1, 2, 3))) == (1, 2, 3)
    assert trt.Dims4() == (0, 0, 0, 0)
    assert isinstance(trt.DimsHW(1, 2), trt.Dims2) and isinstance(trt.Dims4(), trt.Dims)
    assert str(trt.Dims2(3, 4)) == "(3, 4)" and len(trt.Dims3()) == 3


def test_height_and_width():
    window = trt.DimsHW(5, 7)
    assert (window.h, window.w) == (5, 7)
    window.h, window.w = 2, 3
    assert window == (2, 3)


@pytest.mark.parametrize("extents", [(1,), (1, 2, 3), ((1, 2, 3),), ([],)])
def test_another_number_of_extents(extents):
    with pytest.raises(ValueError, match="DimsHW has 2 extents"):
        trt.DimsHW(*extents)


def test_layers_take_them():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, trt.Dims4(1, 2, 4, 6))
    pool = network.add_pooling_nd(x, trt.PoolingType.MAX, trt.DimsHW(2, 3))
    pool.stride_nd = trt.DimsHW(2, 3)
    shuffle = network.add_shuffle(pool.get_output(0))
    shuffle.first_transpose = trt.Permutation([0, 2, 3, 1])
    shuffle.reshape_dims = trt.Dims2(4, 2)
    network.mark_output(shuffle.get_output(0))
    values = np.random.default_rng(0).standard_normal((1, 2, 4, 6), np.float32)
    pooled = values.reshape(1, 2, 2, 2, 2, 3).max((3, 5))
    expected = pooled.transpose(0, 2, 3, 1).reshape(4, 2)
    engine = trt.build(network, device="cpu", timing=False)
    np.testing.assert_array_equal(engine(values), expected)
