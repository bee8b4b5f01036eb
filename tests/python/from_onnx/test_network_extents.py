"""Networks of the API over extents that data decides, at every extent within the bound, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from nets import CPU, Net

ROWS, COLUMNS = 12, 16
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((COLUMNS, 5)).astype(np.float32)
KERNEL = np.random.default_rng(2).standard_normal((4, COLUMNS, 3)).astype(np.float32)


def chosen_rows(net: Net, name: str = "mask"):
    """Those rows of x for which the mask holds, and their number."""
    x = net.input("x", trt.float32, X.shape) if name == "mask" else net.network.get_input(0)
    found = net.network.add_non_zero(net.input(name, trt.bool, (ROWS,)))
    index = net.network.add_shuffle(found.get_output(0))
    index.reshape_dims = (-1,)
    rows = net.network.add_gather(x, index.get_output(0), 0)
    return rows.get_output(0), found.get_output(1)


def run_all(net: Net, outputs, expected, timing=False, **options) -> None:
    """Each number of rows, in an order that goes up and down."""
    for i, tensor in enumerate(outputs):
        tensor.name = f"y{i}"
        net.network.mark_output(tensor)
    engine = trt.build(net.network, timing=timing, device=CPU, **options)
    rng = np.random.default_rng(5)
    for count in [6, *rng.permutation(ROWS + 1)]:
        mask = rng.permutation(ROWS) < count
        want = expected(X[mask])
        got = engine(x=X, mask=mask)
        got = list(got.values()) if isinstance(got, dict) else [got]
        for result, each in zip(got, want, strict=True):
            assert result.shape == np.shape(each)
            np.testing.assert_allclose(result, each, rtol=1e-4, atol=1e-4)


def turned(net: Net, x):
    layer = net.network.add_shuffle(x)
    layer.first_transpose = (1, 0)
    return layer.get_output(0)


def multiplied(net: Net, a, b, turn_a=False, turn_b=False):
    op = {False: trt.MatrixOperation.NONE, True: trt.MatrixOperation.TRANSPOSE}
    return net.network.add_matrix_multiply(a, op[turn_a], b, op[turn_b]).get_output(0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


def convolved(x):
    """x, [COLUMNS, n], with a padding of 1 on both sides."""
    n = x.shape[1]
    wide = np.pad(x, ((0, 0), (1, 1)))
    return sum(KERNEL[:, :, k] @ wide[:, k : k + n] for k in range(3)).reshape(1, 4, n)


def convolution(net: Net, x):
    image = net.network.add_shuffle(x)
    image.first_transpose = (1, 0)
    image.reshape_dims = (1, COLUMNS, -1)
    layer = net.network.add_convolution_nd(image.get_output(0), 4, (3,), KERNEL)
    layer.padding_nd = (1,)
    return layer.get_output(0)


def reduced(net: Net, x, axes, op="SUM", keep=False):
    return net.network.add_reduce(x, getattr(trt.ReduceOperation, op), axes, keep).get_output(0)


LAYERS = {
    "product by weights": (
        lambda net, k: multiplied(net, k, net.constant(W)),
        lambda k: k @ W,
    ),
    "product of rows and columns": (
        lambda net, k: multiplied(net, k, k, turn_b=True),
        lambda k: k @ k.T,
    ),
    "product over them": (
        lambda net, k: multiplied(net, k, k, turn_a=True),
        lambda k: k.T @ k,
    ),
    "attention": (
        lambda net, k: multiplied(net, weights_of(net, k), k),
        lambda k: softmax(k @ k.T) @ k,
    ),
    "convolution": (convolution, lambda k: convolved(k.T)),
    "pointwise": (
        lambda net, k: net.binary(net.binary(k, k, "PROD"), net.constant(X[:1]), "SUM"),
        lambda k: k * k + X[:1],
    ),
    "sum over them": (lambda net, k: reduced(net, k, 1), lambda k: k.sum(0)),
    "mean of each": (
        lambda net, k: reduced(net, k, 2, "AVG", True),
        lambda k: k.mean(1, keepdims=True),
    ),
    "transpose": (turned, lambda k: k.T),
    "concatenation": (
        lambda net, k: net.network.add_concatenation([k, k]).get_output(0),
        lambda k: np.concatenate([k, k]),
    ),
}


def weights_of(net: Net, k):
    layer = net.network.add_softmax(multiplied(net, k, k, turn_b=True))
    layer.axes = 2
    return layer.get_output(0)


@pytest.mark.parametrize("timing", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_behind_what_data_chooses(name, timing):
    make, expected = LAYERS[name]
    net = Net()
    rows, count = chosen_rows(net)
    run_all(net, [make(net, rows), count], lambda k: [expected(k), len(k)], timing)


def test_several_layers_in_a_row():
    net = Net()
    rows, _ = chosen_rows(net)
    hidden = net.network.add_activation(
        multiplied(net, rows, net.constant(W)), trt.ActivationType.RELU
    ).get_output(0)
    scores = net.binary(multiplied(net, hidden, hidden, turn_b=True), net.constant([[0.5]]), "PROD")
    sums = reduced(net, scores, 2)

    def expected(k):
        h = np.maximum(k @ W, 0)
        return [h, (h @ h.T * 0.5).sum(1)]

    run_all(net, [hidden, sums], expected)


# --- Extents that have to be those of weights or of each other: a run in which they are others is refused.

FIXED = 8
TABLE = np.random.default_rng(3).standard_normal((FIXED, COLUMNS)).astype(np.float32)
BESIDE = {
    "product": (
        lambda net, k: multiplied(net, k, net.constant(TABLE), turn_a=True),
        lambda k: k.T @ TABLE,
    ),
    "product, the other way round": (
        lambda net, k: multiplied(net, net.constant(TABLE), k, turn_a=True),
        lambda k: TABLE.T @ k,
    ),
    "sum": (lambda net, k: net.binary(k, net.constant(TABLE)), lambda k: k + TABLE),
    "concatenation": (
        lambda net, k: concatenated(net, [net.constant(TABLE), k]),
        lambda k: np.concatenate([TABLE, k], 1),
    ),
    "concatenation, the other way round": (
        lambda net, k: concatenated(net, [k, net.constant(TABLE)]),
        lambda k: np.concatenate([k, TABLE], 1),
    ),
    "channels of a convolution": (
        lambda net, k: channels(net, k),
        lambda k: np.einsum("ocx,cx->o", CHANNELS, k).reshape(1, 3, 1),
    ),
    "choice": (
        lambda net, k: net.network.add_select(
            net.constant(TABLE > 0, bool), k, net.constant(TABLE)
        ).get_output(0),
        lambda k: np.where(TABLE > 0, k, TABLE),
    ),
}
CHANNELS = np.random.default_rng(4).standard_normal((3, FIXED, COLUMNS)).astype(np.float32)


def concatenated(net: Net, parts):
    layer = net.network.add_concatenation(parts)
    layer.axis = 1
    return layer.get_output(0)


def channels(net: Net, k):
    image = net.network.add_shuffle(k)
    image.reshape_dims = (1, -1, COLUMNS)
    layer = net.network.add_convolution_nd(image.get_output(0), 3, (COLUMNS,), CHANNELS)
    return layer.get_output(0)


@pytest.mark.parametrize("timing", [False, True])
@pytest.mark.parametrize("name", BESIDE)
def test_extents_that_have_to_agree(name, timing):
    make, expected = BESIDE[name]
    net = Net()
    rows, _ = chosen_rows(net)
    result = make(net, rows)
    result.name = "y"
    net.network.mark_output(result)
    engine = trt.build(net.network, timing=timing, device=CPU)
    rng = np.random.default_rng(6)
    for count in (FIXED, 3, FIXED, ROWS, 0, FIXED):
        mask = rng.permutation(ROWS) < count
        if count == FIXED:
            got = engine(x=X, mask=mask)
            np.testing.assert_allclose(got, expected(X[mask]), rtol=1e-4, atol=1e-4)
        else:
            with pytest.raises(trt.Error):
                engine(x=X, mask=mask)


def test_two_extents_that_have_to_agree():
    """Masks with different bounds, which choose as many."""
    net = Net()
    rows, _ = chosen_rows(net)
    other = net.network.add_non_zero(net.input("other", trt.bool, (ROWS, 3)))
    weights = net.network.add_cast(turned(net, other.get_output(0)), trt.float32).get_output(0)
    y = multiplied(net, rows, weights, turn_a=True)
    y.name = "y"
    net.network.mark_output(y)
    engine = trt.build(net.network, timing=False, device=CPU)
    rng = np.random.default_rng(8)
    for count in (1, ROWS, 5, 0):
        mask = rng.permutation(ROWS) < count
        grid = (rng.permutation(3 * ROWS) < count).reshape(ROWS, 3)
        want = X[mask].T @ np.argwhere(grid)
        np.testing.assert_allclose(engine(x=X, mask=mask, other=grid), want, rtol=1e-4, atol=1e-4)
    with pytest.raises(trt.Error):
        engine(x=X, mask=np.ones(ROWS, bool), other=np.zeros((ROWS, 3), bool))


def test_boxes_that_are_kept():
    """NMS, then their coordinates by a product and what lies above a threshold."""
    net = Net()
    boxes = net.input("boxes", trt.float32, (1, 20, 4))
    scores = net.input("scores", trt.float32, (1, 20, 1))
    layer = net.network.add_nms(boxes, scores, net.constant(20, np.int32))
    layer.set_input(3, net.constant(0.5))
    picked = net.network.add_slice(layer.get_output(0), (0, 2), (1, 1), (1, 1))
    size = net.network.add_concatenation(
        [reshaped(net, layer.get_output(1), (1,)), net.constant([1], np.int32)]
    )
    picked.set_input(2, size.get_output(0))
    index = reshaped(net, picked.get_output(0), (-1,))
    kept = net.network.add_gather(reshaped(net, boxes, (20, 4)), index, 0).get_output(0)
    centers = np.float32([[0.5, 0], [0, 0.5], [0.5, 0], [0, 0.5]])
    y = multiplied(net, kept, net.constant(centers))
    y.name = "y"
    net.network.mark_output(y)
    engine = trt.build(net.network, timing=False, device=CPU)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        low = rng.uniform(0, 10 + 20 * seed, (20, 2))
        given = np.concatenate([low, low + 8], 1).astype(np.float32)
        chances = rng.permutation(20).astype(np.float32)
        want = [c @ centers for c in suppressed(given, chances, 0.5)]
        got = engine(boxes=given[None], scores=chances[None, :, None])
        np.testing.assert_allclose(got, np.reshape(want, (-1, 2)), rtol=1e-5)


def reshaped(net: Net, x, dims):
    layer = net.network.add_shuffle(x)
    layer.reshape_dims = dims
    return layer.get_output(0)


def suppressed(boxes, scores, most):
    def area(a):
        return (a[2] - a[0]) * (a[3] - a[1])

    kept: list[np.ndarray] = []
    for i in np.argsort(-scores):
        box = boxes[i]
        for other in kept:
            low, high = np.maximum(box[:2], other[:2]), np.minimum(box[2:], other[2:])
            inner = np.prod(np.maximum(high - low, 0))
            if inner / (area(box) + area(other) - inner) > most:
                break
        else:
            kept.append(box)
    return kept
