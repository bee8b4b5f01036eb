"""ILoop: recurrences, trip limits, iterators and outputs, against NumPy.

The programs are those that TensorRT's users write: sums, cumulative sums as TensorRT-LLM has them,
recurrent cells as the ONNX parser of TensorRT writes them.
"""

import numpy as np
import pytest
import torch

import opwright as trt
from nets import Net


def doubling(net, x, trips, kept, kind=trt.LoopOutput.CONCATENATE, axis=0):
    """x, 2x, 4x, ...: the last value, and what each iteration makes."""
    loop = net.network.add_loop()
    loop.name = "doubling"
    loop.add_trip_limit(trips, trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    twice = net.binary(state.get_output(0), state.get_output(0))
    state.set_input(1, twice)
    last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
    all_of_them = loop.add_loop_output(twice, kind, axis)
    all_of_them.set_input(1, kept)
    return last.get_output(0), all_of_them.get_output(0)


def doubled(x, trips, kept):
    return np.stack([x * 2.0 ** (i + 1) if i < trips else x * 0 for i in range(kept)])


@pytest.mark.parametrize("kept", [3, 5, 7])
def test_constant_count(kept):
    net = Net()
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype(np.float32)
    given = net.input("x", trt.float32, x.shape)
    run = net.build(doubling(net, given, net.constant(5, np.int32), net.constant(kept, np.int32)))
    last, stacked = run(x=x)
    np.testing.assert_allclose(last, x * 32, rtol=1e-6)
    np.testing.assert_allclose(stacked, doubled(x, 5, kept), rtol=1e-6)


@pytest.mark.parametrize("trips", [0, 3, 6, 9])
def test_count_at_run_time(trips):
    net = Net()
    x = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    given = net.input("x", trt.float32, x.shape)
    count = net.input("count", trt.int32, ())
    run = net.build(doubling(net, given, count, net.constant(6, np.int64)))
    last, stacked = run(x=x, count=np.array(trips, np.int32))
    np.testing.assert_allclose(last, x * 2.0**trips, rtol=1e-6)
    np.testing.assert_allclose(stacked, doubled(x, trips, 6), rtol=1e-6)


@pytest.mark.parametrize("at_run_time", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reverse_along_axes(axis, at_run_time):
    net = Net()
    x = np.random.default_rng(2).normal(size=(2, 3)).astype(np.float32)
    given = net.input("x", trt.float32, x.shape)
    count = net.input("count", trt.int64, (1,)) if at_run_time else net.constant(4, np.int64)
    outputs = doubling(net, given, count, net.constant(4, np.int32), trt.LoopOutput.REVERSE, axis)
    run = net.build(outputs)
    inputs = {"count": np.array([4])} if at_run_time else {}
    _, stacked = run(x=x, **inputs)
    np.testing.assert_allclose(stacked, np.moveaxis(doubled(x, 4, 4)[::-1], 0, axis), rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 4, 6])
@pytest.mark.parametrize("dim", [0, 1])
def test_cumulative_sum_over_an_open_axis(rows, dim):
    net = Net()
    x = net.input("x", trt.float32, (-1, 3) if dim == 0 else (3, -1))
    network = net.network
    shape = network.add_shape(x).get_output(0)
    length = network.add_gather(shape, net.constant(dim, np.int32), 0).get_output(0)
    loop = network.add_loop()
    loop.add_trip_limit(length, trt.TripLimit.COUNT)
    slice_ = loop.add_iterator(x, dim)
    assert (slice_.axis, slice_.reverse) == (dim, False)
    total = loop.add_recurrence(net.constant(np.zeros(3)))
    sums = net.binary(slice_.get_output(0), total.get_output(0))
    total.set_input(1, sums)
    output = loop.add_loop_output(sums, trt.LoopOutput.CONCATENATE, dim)
    output.set_input(1, length)
    shapes = [(1, 3), (4, 3), (6, 3)] if dim == 0 else [(3, 1), (3, 4), (3, 6)]
    run = net.build([output.get_output(0)], {"x": tuple(shapes)})
    given = np.random.default_rng(3).normal(size=(rows, 3)).astype(np.float32)
    given = given if dim == 0 else given.T.copy()
    np.testing.assert_allclose(run(x=given)[0], np.cumsum(given, dim), rtol=1e-5)


@pytest.mark.parametrize("at_run_time", [False, True])
def test_reversed_iterator(at_run_time):
    net = Net()
    x = np.random.default_rng(4).normal(size=(4, 3)).astype(np.float32)
    given = net.input("x", trt.float32, x.shape)
    count = net.input("count", trt.int32, ()) if at_run_time else net.constant(4, np.int32)
    loop = net.network.add_loop()
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    row = loop.add_iterator(given, 0, True)
    output = loop.add_loop_output(
        net.binary(row.get_output(0), row.get_output(0)), trt.LoopOutput.CONCATENATE
    )
    output.set_input(1, net.constant(4, np.int32))
    run = net.build([output.get_output(0)])
    inputs = {"count": np.array(4, np.int32)} if at_run_time else {}
    np.testing.assert_allclose(run(x=x, **inputs)[0], 2 * x[::-1], rtol=1e-6)


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("start", [1.0, 50.0, 200.0])
def test_while(start, limit):
    """while x < 100: x *= 2, at most `limit` times."""
    net = Net()
    x = net.input("x", trt.float32, ())
    loop = net.network.add_loop()
    state = loop.add_recurrence(x)
    goes_on = net.binary(state.get_output(0), net.constant(100.0), "LESS")
    loop.add_trip_limit(goes_on, trt.TripLimit.WHILE)
    if limit is not None:
        loop.add_trip_limit(net.constant(limit, np.int32), trt.TripLimit.COUNT)
    state.set_input(1, net.binary(state.get_output(0), state.get_output(0)))
    last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
    steps = loop.add_loop_output(state.get_output(0), trt.LoopOutput.CONCATENATE)
    steps.set_input(1, net.constant(8, np.int32))
    run = net.build([last.get_output(0), steps.get_output(0)])
    value, seen = start, []
    while value < 100 and (limit is None or len(seen) < limit):
        seen.append(value)
        value *= 2
    last, steps = run(x=np.array(start, np.float32))
    assert last == value
    np.testing.assert_array_equal(steps, seen + [0] * (8 - len(seen)))


def test_while_over_an_iterator():
    """The sum of elements up to the first one that is not positive."""
    net = Net()
    x = net.input("x", trt.float32, (6,))
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(6, np.int32), trt.TripLimit.COUNT)
    element = loop.add_iterator(x).get_output(0)
    total = loop.add_recurrence(net.constant(0.0))
    loop.add_trip_limit(net.binary(element, net.constant(0.0), "GREATER"), trt.TripLimit.WHILE)
    total.set_input(1, net.binary(total.get_output(0), element))
    last = loop.add_loop_output(total.get_output(0), trt.LoopOutput.LAST_VALUE)
    run = net.build([last.get_output(0)])
    for x, y in [([1, 2, 3, 0, 5, 6], 6), ([-1, 2, 3, 4, 5, 6], 0), ([1, 2, 3, 4, 5, 6], 21)]:
        assert run(x=np.array(x, np.float32))[0] == y


@pytest.mark.parametrize("at_run_time", [False, True])
def test_lstm_cell(at_run_time):
    """A cell as the ONNX parser of TensorRT writes it, against PyTorch."""
    steps, batch, inner, hidden = 5, 2, 3, 4
    torch.manual_seed(0)
    cell = torch.nn.LSTM(inner, hidden)
    weights = {k: v.detach().numpy() for k, v in cell.named_parameters()}
    net = Net()
    network, matrix = net.network, trt.MatrixOperation
    x = net.input("x", trt.float32, (steps, batch, inner))
    count = net.input("count", trt.int32, ()) if at_run_time else net.constant(steps, np.int32)
    loop = network.add_loop()
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    xt = loop.add_iterator(x).get_output(0)
    h = loop.add_recurrence(net.constant(np.zeros((batch, hidden))))
    c = loop.add_recurrence(net.constant(np.zeros((batch, hidden))))

    def times(a, w):
        return network.add_matrix_multiply(
            a, matrix.NONE, net.constant(w), matrix.TRANSPOSE
        ).get_output(0)

    gates = net.binary(
        times(xt, weights["weight_ih_l0"]), times(h.get_output(0), weights["weight_hh_l0"])
    )
    bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]
    gates = net.binary(gates, net.constant(bias[None]))

    def gate(i, kind):
        part = network.add_slice(gates, (0, i * hidden), (batch, hidden), (1, 1)).get_output(0)
        return network.add_activation(part, getattr(trt.ActivationType, kind)).get_output(0)

    i, f, g, o = gate(0, "SIGMOID"), gate(1, "SIGMOID"), gate(2, "TANH"), gate(3, "SIGMOID")
    ct = net.binary(net.binary(f, c.get_output(0), "PROD"), net.binary(i, g, "PROD"))
    ht = net.binary(o, network.add_activation(ct, trt.ActivationType.TANH).get_output(0), "PROD")
    h.set_input(1, ht)
    c.set_input(1, ct)
    y = loop.add_loop_output(ht, trt.LoopOutput.CONCATENATE)
    y.set_input(1, net.constant(steps, np.int32))
    last_h = loop.add_loop_output(h.get_output(0), trt.LoopOutput.LAST_VALUE)
    last_c = loop.add_loop_output(c.get_output(0), trt.LoopOutput.LAST_VALUE)
    run = net.build([t.get_output(0) for t in (y, last_h, last_c)])
    given = np.random.default_rng(5).normal(size=(steps, batch, inner)).astype(np.float32)
    with torch.no_grad():
        expected, (eh, ec) = cell(torch.from_numpy(given))
    inputs = {"count": np.array(steps, np.int32)} if at_run_time else {}
    for made, wanted in zip(run(x=given, **inputs), (expected, eh[0], ec[0]), strict=True):
        np.testing.assert_allclose(made, wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("outer_at_run_time", [False, True])
@pytest.mark.parametrize("inner_at_run_time", [False, True])
def test_loop_in_a_loop(outer_at_run_time, inner_at_run_time):
    """The product of all elements of each row, summed."""
    net = Net()
    x = np.random.default_rng(6).uniform(0.5, 1.5, (3, 4)).astype(np.float32)
    given = net.input("x", trt.float32, x.shape)

    def count(name, number, at_run_time):
        if at_run_time:
            return net.input(name, trt.int32, ())
        return net.constant(number, np.int32)

    outer = net.network.add_loop()
    outer.add_trip_limit(count("rows", 3, outer_at_run_time), trt.TripLimit.COUNT)
    row = outer.add_iterator(given).get_output(0)
    total = outer.add_recurrence(net.constant(0.0))
    inner = net.network.add_loop()
    inner.add_trip_limit(count("columns", 4, inner_at_run_time), trt.TripLimit.COUNT)
    element = inner.add_iterator(row).get_output(0)
    product = inner.add_recurrence(net.constant(1.0))
    product.set_input(1, net.binary(product.get_output(0), element, "PROD"))
    of_row = inner.add_loop_output(product.get_output(0), trt.LoopOutput.LAST_VALUE)
    total.set_input(1, net.binary(total.get_output(0), of_row.get_output(0)))
    last = outer.add_loop_output(total.get_output(0), trt.LoopOutput.LAST_VALUE)
    run = net.build([last.get_output(0)])
    inputs = {}
    if outer_at_run_time:
        inputs["rows"] = np.array(3, np.int32)
    if inner_at_run_time:
        inputs["columns"] = np.array(4, np.int32)
    np.testing.assert_allclose(run(x=x, **inputs)[0], x.prod(1).sum(), rtol=1e-5)


def test_layers_around_loops_and_in_them_keep_their_names():
    net = Net()
    x = net.input("x", trt.float32, (3,))
    before = net.binary(x, x)
    before.name = "before"
    last, stacked = doubling(net, before, net.constant(2, np.int32), net.constant(2, np.int32))
    last.name = "last"
    behind = net.binary(last, last)
    run = net.build([behind, stacked])
    given = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(x=given)[0], given * 16)
    layers = [net.network[i] for i in range(net.network.num_layers)]
    kinds = [layer.type for layer in layers]
    for kind in ("TRIP_LIMIT", "RECURRENCE", "LOOP_OUTPUT"):
        assert getattr(trt.LayerType, kind) in kinds
    limit = next(layer for layer in layers if layer.type == trt.LayerType.TRIP_LIMIT)
    assert isinstance(limit, trt.ITripLimitLayer)
    assert isinstance(limit, trt.ILoopBoundaryLayer)
    assert limit.kind == trt.TripLimit.COUNT
    assert limit.loop.name == "doubling"


def test_engines_with_loops_are_stored(tmp_path):
    net = Net()
    x = net.input("x", trt.float32, (2, 3))
    count = net.input("count", trt.int32, ())
    run = net.build(doubling(net, x, count, net.constant(3, np.int32)))
    run.engine.save(tmp_path / "loop.engine")
    given = np.ones((2, 3), np.float32)
    again = trt.load(tmp_path / "loop.engine")(x=given, count=np.array(2, np.int32))
    np.testing.assert_array_equal(again["y0"], given * 4)
    np.testing.assert_array_equal(again["y1"], doubled(given, 2, 3))


class TestErrors:
    def failed(self, net, tensors, *texts):
        with pytest.raises(trt.Error) as caught:
            net.build(tensors)
        for text in texts:
            assert text in str(caught.value)

    def test_no_trip_limit(self):
        net = Net()
        loop = net.network.add_loop()
        loop.name = "endless"
        state = loop.add_recurrence(net.input("x", trt.float32, (2,)))
        state.set_input(1, net.binary(state.get_output(0), state.get_output(0)))
        last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
        self.failed(net, [last.get_output(0)], "'endless'", "no trip limit", "add_trip_limit")

    def test_no_second_input(self):
        net = Net()
        loop = net.network.add_loop()
        loop.add_trip_limit(net.constant(2, np.int32), trt.TripLimit.COUNT)
        state = loop.add_recurrence(net.input("x", trt.float32, (2,)))
        state.name = "state"
        last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
        self.failed(net, [last.get_output(0)], "'state'", "no second input", "set_input(1, tensor)")

    def test_never_ends(self):
        net = Net()
        loop = net.network.add_loop()
        state = loop.add_recurrence(net.input("x", trt.float32, (2,)))
        loop.add_trip_limit(net.constant(True, np.bool_), trt.TripLimit.WHILE)
        state.set_input(1, net.binary(state.get_output(0), state.get_output(0)))
        last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
        self.failed(net, [last.get_output(0)], "never ends")

    def test_no_length(self):
        net = Net()
        loop = net.network.add_loop()
        loop.add_trip_limit(net.constant(2, np.int32), trt.TripLimit.COUNT)
        x = loop.add_iterator(net.input("x", trt.float32, (2, 3)))
        output = loop.add_loop_output(x.get_output(0), trt.LoopOutput.CONCATENATE)
        self.failed(net, [output.get_output(0)], "set_input(1, length)")

    def test_tensor_leaves_without_output(self):
        net = Net()
        loop = net.network.add_loop()
        loop.name = "leaky"
        loop.add_trip_limit(net.constant(2, np.int32), trt.TripLimit.COUNT)
        x = loop.add_iterator(net.input("x", trt.float32, (2, 3)))
        twice = net.binary(x.get_output(0), x.get_output(0))
        self.failed(net, [twice], "leaky", "'y0'", "lies inside", "output of the network")

    def test_last_value_of_no_recurrence(self):
        net = Net()
        loop = net.network.add_loop()
        loop.add_trip_limit(net.constant(2, np.int32), trt.TripLimit.COUNT)
        x = loop.add_iterator(net.input("x", trt.float32, (2, 3)))
        last = loop.add_loop_output(x.get_output(0), trt.LoopOutput.LAST_VALUE)
        self.failed(net, [last.get_output(0)], "output of one of its recurrences")

    def test_state_of_another_shape(self):
        net = Net()
        loop = net.network.add_loop()
        loop.add_trip_limit(net.constant(2, np.int32), trt.TripLimit.COUNT)
        state = loop.add_recurrence(net.input("x", trt.float32, (2,)))
        both = net.network.add_concatenation([state.get_output(0)] * 2)
        state.set_input(1, both.get_output(0))
        last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
        self.failed(net, [last.get_output(0)], "(2)", "(4)", "expected the same")

    def test_second_limit(self):
        net = Net()
        loop = net.network.add_loop()
        loop.add_trip_limit(net.constant(2, np.int32), trt.TripLimit.COUNT)
        with pytest.raises(trt.Error, match="at most one COUNT and one WHILE"):
            loop.add_trip_limit(net.constant(3, np.int32), trt.TripLimit.COUNT)

    def test_count_from_inside(self):
        net = Net()
        loop = net.network.add_loop()
        state = loop.add_recurrence(net.input("x", trt.int32, ()))
        twice = net.binary(state.get_output(0), state.get_output(0))
        state.set_input(1, twice)
        loop.add_trip_limit(twice, trt.TripLimit.COUNT)
        last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
        self.failed(net, [last.get_output(0)], "lies inside", "comes from outside")

    def test_reverse_without_count(self):
        net = Net()
        loop = net.network.add_loop()
        loop.add_trip_limit(net.input("go", trt.bool, ()), trt.TripLimit.WHILE)
        x = loop.add_iterator(net.input("x", trt.float32, (2, 3)), 0, True)
        output = loop.add_loop_output(x.get_output(0), trt.LoopOutput.CONCATENATE)
        output.set_input(1, net.constant(2, np.int32))
        self.failed(net, [output.get_output(0)], "begins at the last iteration", "COUNT")
