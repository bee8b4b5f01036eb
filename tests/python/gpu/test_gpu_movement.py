"""Layers that move elements on a GPU: random networks of them against NumPy, with fixed and with dynamic shapes."""

import numpy as np
import pytest

import opwright as trt

TYPES = {
    np.dtype(np.float32): trt.float32,
    np.dtype(np.float16): trt.float16,
    np.dtype(np.int32): trt.int32,
    np.dtype(np.int64): trt.int64,
    np.dtype(np.int8): trt.int8,
}
PAD_MODES = {
    trt.SampleMode.FILL: "constant",
    trt.SampleMode.WRAP: "wrap",
    trt.SampleMode.CLAMP: "edge",
    trt.SampleMode.REFLECT: "reflect",
}


def make_network():
    return trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()


def run(network, feeds, dynamic):
    """The outputs, of an engine whose profile has the shapes, or shapes around them."""
    shapes = {}
    for name, array in feeds.items():
        shape = array.shape
        if dynamic:
            shapes[name] = (
                tuple(max(1, n // 2) for n in shape),
                shape,
                tuple(n + 3 for n in shape),
            )
    engine = trt.build(network, shapes=shapes, device=trt.DeviceType.GPU, timing=False)
    return engine(**feeds)


def add_input(network, name, array, dynamic):
    shape = (-1,) * array.ndim if dynamic else array.shape
    return network.add_input(name, TYPES[array.dtype], shape)


def numbers(rng, shape, dtype):
    return rng.integers(-100, 100, shape).astype(dtype)


def shape_of(rng, least=1, most=4):
    return tuple(int(n) for n in rng.integers(1, 9, rng.integers(least, most + 1)))


cases = pytest.mark.parametrize("seed", range(3))
both = pytest.mark.parametrize("dynamic", [False, True])


@cases
@both
@pytest.mark.parametrize("mode", PAD_MODES)
def test_padding(mode, dynamic, seed):
    rng = np.random.default_rng(seed)
    dtype = rng.choice(list(TYPES))
    x = numbers(rng, tuple(n + 1 for n in shape_of(rng, 2)), dtype)
    pads = [tuple(int(p) for p in rng.integers(0, 6, 2)) for _ in x.shape]
    network = make_network()
    tensor = add_input(network, "x", x, dynamic)
    before = [-low for low, _ in pads]
    size = [n + low + high for n, (low, high) in zip(x.shape, pads)]
    layer = network.add_slice(tensor, [0] * x.ndim, [1] * x.ndim, [1] * x.ndim)
    layer.mode = mode
    layer.start, layer.shape = before, size
    if dynamic:  # the size follows the input's
        extents = network.add_shape(tensor).get_output(0)
        more = network.add_constant((x.ndim,), np.array([a + b for a, b in pads], np.int64))
        total = network.add_elementwise(extents, more.get_output(0), trt.ElementWiseOperation.SUM)
        layer.set_input(2, total.get_output(0))
    network.mark_output(layer.get_output(0))
    np.testing.assert_array_equal(run(network, {"x": x}, dynamic), np.pad(x, pads, PAD_MODES[mode]))


@cases
@both
def test_strided_slices(dynamic, seed):
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape_of(rng), rng.choice(list(TYPES)))
    start, size, stride, index = [], [], [], []
    for n in x.shape:
        first, last = (int(v) for v in rng.integers(0, n, 2))
        step = int(rng.integers(1, 4)) * (1 if first <= last else -1)
        count = (last - first) // step + 1
        start.append(first), size.append(count), stride.append(step)
        index.append(first + step * np.arange(count))
    network = make_network()
    layer = network.add_slice(add_input(network, "x", x, False), start, size, stride)
    network.mark_output(layer.get_output(0))
    np.testing.assert_array_equal(run(network, {"x": x}, False), x[np.ix_(*index)])


@cases
@both
def test_concatenations(dynamic, seed):
    rng = np.random.default_rng(seed)
    shape, dtype = shape_of(rng), rng.choice(list(TYPES))
    axis = int(rng.integers(0, len(shape)))
    parts = {}
    for i in range(int(rng.integers(2, 6))):
        extents = list(shape)
        extents[axis] = int(rng.integers(1, 40))
        parts[f"x{i}"] = numbers(rng, extents, dtype)
    network = make_network()
    tensors = [add_input(network, name, x, dynamic) for name, x in parts.items()]
    layer = network.add_concatenation(tensors[:1])
    layer.axis = axis
    for i, tensor in enumerate(tensors):
        layer.set_input(i, tensor)
    network.mark_output(layer.get_output(0))
    expected = np.concatenate(list(parts.values()), axis)
    np.testing.assert_array_equal(run(network, parts, dynamic), expected)


@cases
@both
def test_transpositions(dynamic, seed):
    rng = np.random.default_rng(seed)
    x = numbers(rng, (5, *rng.integers(1, 40, 2)), rng.choice(list(TYPES)))
    permutation = tuple(int(axis) for axis in rng.permutation(3))
    network = make_network()
    layer = network.add_shuffle(add_input(network, "x", x, dynamic))
    layer.first_transpose = permutation
    network.mark_output(layer.get_output(0))
    np.testing.assert_array_equal(run(network, {"x": x}, dynamic), x.transpose(permutation))


@cases
@both
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_gathers(index_type, dynamic, seed):
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape_of(rng), rng.choice(list(TYPES)))
    axis = int(rng.integers(0, x.ndim))
    n = x.shape[axis]
    indices = rng.integers(-n, n, shape_of(rng, 1, 2)).astype(index_type)
    network = make_network()
    tensors = add_input(network, "x", x, dynamic), add_input(network, "indices", indices, dynamic)
    network.mark_output(network.add_gather(*tensors, axis).get_output(0))
    expected = np.take(x, indices, axis)
    np.testing.assert_array_equal(run(network, {"x": x, "indices": indices}, dynamic), expected)


@cases
@both
def test_gathered_elements(dynamic, seed):
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape_of(rng), rng.choice(list(TYPES)))
    axis = int(rng.integers(0, x.ndim))
    shape = list(x.shape)
    shape[axis] = int(rng.integers(1, 9))
    indices = rng.integers(0, x.shape[axis], shape).astype(np.int32)
    network = make_network()
    tensors = add_input(network, "x", x, dynamic), add_input(network, "indices", indices, dynamic)
    layer = network.add_gather(*tensors, axis)
    layer.mode = trt.GatherMode.ELEMENT
    network.mark_output(layer.get_output(0))
    expected = np.take_along_axis(x, indices, axis)
    np.testing.assert_array_equal(run(network, {"x": x, "indices": indices}, dynamic), expected)


def test_moves_in_a_row():
    """A patch embedding and its inverse: reshapes are views, transpositions and slices kernels."""
    x = np.arange(2 * 3 * 8 * 12, dtype=np.float32).reshape(2, 3, 8, 12)
    network = make_network()
    tensor = network.add_input("x", trt.float32, (-1, 3, 8, 12))
    split = network.add_shuffle(tensor)
    split.reshape_dims = (-1, 3, 2, 4, 3, 4)
    split.second_transpose = (0, 2, 4, 1, 3, 5)
    patches = network.add_shuffle(split.get_output(0))
    patches.reshape_dims = (-1, 6, 48)
    network.mark_output(patches.get_output(0))
    back = network.add_shuffle(patches.get_output(0))
    back.reshape_dims = (-1, 2, 3, 3, 4, 4)
    back.second_transpose = (0, 3, 1, 4, 2, 5)
    whole = network.add_shuffle(back.get_output(0))
    whole.reshape_dims = (-1, 3, 8, 12)
    network.mark_output(whole.get_output(0))
    shapes = {"x": ((1, 3, 8, 12), (2, 3, 8, 12), (4, 3, 8, 12))}
    engine = trt.build(network, shapes=shapes, device=trt.DeviceType.GPU, timing=False)
    for batch in (2, 1, 4):
        feed = np.resize(x, (batch, 3, 8, 12))
        found, again = engine(feed).values()
        expected = feed.reshape(batch, 3, 2, 4, 3, 4).transpose(0, 2, 4, 1, 3, 5)
        np.testing.assert_array_equal(found, expected.reshape(batch, 6, 48))
        np.testing.assert_array_equal(again, feed)


def test_a_slice_beyond_the_bounds_is_an_error():
    network = make_network()
    x = network.add_input("x", trt.float32, (8,))
    start = network.add_input("start", trt.int64, (1,))
    layer = network.add_slice(x, (0,), (3,), (1,))
    layer.set_input(1, start)
    network.mark_output(layer.get_output(0))
    values = {"start": ((0,), (1,), (7,))}
    engine = trt.build(network, values=values, device=trt.DeviceType.GPU, timing=False)
    data = np.arange(8, dtype=np.float32)
    for first in (0, 5, 6, 2):
        feeds = {"x": data, "start": np.array([first])}
        if first == 6:
            with pytest.raises(trt.Error, match="(?i)layer.*slice.*axis 0"):
                engine(**feeds)
        else:
            np.testing.assert_array_equal(engine(**feeds), data[first:][:3])


def test_fills():
    network = make_network()
    extents = network.add_input("extents", trt.int64, (2,))
    layer = network.add_fill((1, 1), trt.FillOperation.LINSPACE, trt.float32)
    layer.set_input(0, extents)
    start = network.add_constant((), np.array(2, np.float32)).get_output(0)
    steps = network.add_constant((2,), np.array([10, 0.5], np.float32)).get_output(0)
    layer.set_input(1, start)
    layer.set_input(2, steps)
    network.mark_output(layer.get_output(0))
    values = {"extents": ((1, 1), (3, 4), (5, 6))}
    engine = trt.build(network, values=values, device=trt.DeviceType.GPU, timing=False)
    for shape in ((3, 4), (5, 6), (1, 1)):
        rows, columns = np.indices(shape, dtype=np.float32)
        np.testing.assert_array_equal(engine(extents=np.array(shape)), 2 + 10 * rows + columns / 2)
