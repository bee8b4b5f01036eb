"""Loops whose body is the cell of an LSTM, a GRU or an RNN become one recurrent layer.

The loops are written as programs for TensorRT write them, and as ONNX's Scan and Loop; PyTorch,
NumPy and ONNX Runtime say what they have to give. Cells that differ in something stay loops.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import emulated_gpu
import opwright as trt
from attention_models import steps
from nets import CPU, Net
from onnx_graphs import as_list, assert_close, reference_session

MATRIX, BINARY = trt.MatrixOperation, trt.ElementWiseOperation
ORDERS = {"LSTM": "ifgo", "GRU": "rzn", "RNN": "h"}
CLASSES = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "RNN": torch.nn.RNN}


def torch_layer(kind, inner, hidden, bias=True, seed=0, **options):
    torch.manual_seed(seed)
    return CLASSES[kind](inner, hidden, bias=bias, **options)


def gate_weights(layer, kind):
    """By each gate's letter: weights of the input and of the state, and both biases."""
    weights = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    count = len(ORDERS[kind])
    parts = {name: np.split(value, count) for name, value in weights.items()}
    zeros = [None] * count
    return {
        letter: (
            parts["weight_ih_l0"][i],
            parts["weight_hh_l0"][i],
            parts.get("bias_ih_l0", zeros)[i],
            parts.get("bias_hh_l0", zeros)[i],
        )
        for i, letter in enumerate(ORDERS[kind])
    }


class Cell:
    """A cell in a loop, from a layer's weights; methods are replaced to make near misses."""

    order = None  # of the gates in fused weights; None: a product for each gate
    transposed = False  # whether weights are [in, out]
    sum_biases = False
    joined = False  # one product of the input and the state beside each other
    projected = False  # the input's product before the loop

    def __init__(self, net, kind, layer, **options):
        self.net, self.network, self.kind = net, net.network, kind
        self.gates = gate_weights(layer, kind)
        self.hidden = layer.hidden_size
        self.activation = {"RNN": "TANH"}.get(kind, "SIGMOID")
        self.__dict__.update(options)

    def times(self, x, weights):
        if self.transposed:
            weights = np.ascontiguousarray(weights.T)
        op = MATRIX.NONE if self.transposed else MATRIX.TRANSPOSE
        layer = self.network.add_matrix_multiply(x, MATRIX.NONE, self.net.constant(weights), op)
        return layer.get_output(0)

    def plus(self, a, bias):
        if bias is None:
            return a
        shape = (1,) * (len(a.shape) - 1) + (-1,)
        return self.net.binary(a, self.net.constant(bias.reshape(shape)))

    def act(self, x, kind, *params):
        layer = self.network.add_activation(x, getattr(trt.ActivationType, kind))
        if params:
            layer.alpha, layer.beta = params
        return layer.get_output(0)

    def part(self, gates, letter):
        start = self.order.index(letter) * self.hidden
        rank = len(gates.shape)
        begin = (0,) * (rank - 1) + (start,)
        shape = [*gates.shape[:-1], self.hidden]
        if min(shape) < 0:
            size = self.network.add_shape(gates).get_output(0)
            count = len(self.order)
            divisor = np.array([1] * (rank - 1) + [count])
            size = self.net.binary(size, self.net.constant(divisor, np.int64), "FLOOR_DIV")
            layer = self.network.add_slice(gates, begin, (0,) * rank, (1,) * rank)
            layer.set_input(2, size)
        else:
            layer = self.network.add_slice(gates, begin, shape, (1,) * rank)
        return layer.get_output(0)

    def stack(self, which):
        parts = [self.gates[letter][which] for letter in self.order]
        return None if parts[0] is None else np.concatenate(parts)

    def linear(self, x, which, letter=None):
        """x times weights, with the bias that belongs to them."""
        w, b = (
            (self.stack(which), self.stack(which + 2))
            if letter is None
            else (self.gates[letter][which], self.gates[letter][which + 2])
        )
        return self.plus(self.times(x, w), b)

    def before_loop(self, x):
        return self.linear(x, 0) if self.projected else x

    def sums(self, x, h):
        """What each gate adds up, by its letter."""
        if self.joined:
            both = self.network.add_concatenation([x, h])
            both.axis = len(h.shape) - 1
            w = np.concatenate([self.stack(0), self.stack(1)], 1)
            gates = self.plus(self.times(both.get_output(0), w), self.stack(2) + self.stack(3))
            return lambda letter: self.part(gates, letter)
        if self.order is None:
            return lambda letter: self.net.binary(
                self.linear(x, 0, letter), self.linear(h, 1, letter)
            )
        of_input = x if self.projected else self.linear(x, 0)
        gates = self.net.binary(of_input, self.linear(h, 1))
        return lambda letter: self.part(gates, letter)

    def step(self, x, h, c):
        return getattr(self, f"step_{self.kind.lower()}")(x, h, c)

    def step_rnn(self, x, h, _):
        return self.act(self.sums(x, h)("h"), self.activation), None

    def memory(self, i, f, g, c):
        return self.net.binary(self.net.binary(f, c, "PROD"), self.net.binary(i, g, "PROD"))

    def step_lstm(self, x, h, c):
        sums = self.sums(x, h)
        i, f, o = (self.act(sums(letter), self.activation) for letter in "ifo")
        c = self.memory(i, f, self.act(sums("g"), "TANH"), c)
        return self.net.binary(o, self.act(c, "TANH"), "PROD"), c

    def blend(self, z, n, h):
        rest = self.net.binary(self.net.constant(np.ones((1,) * len(h.shape))), z, "SUB")
        return self.net.binary(self.net.binary(rest, n, "PROD"), self.net.binary(z, h, "PROD"))

    def step_gru(self, x, h, _):
        """PyTorch's: the reset gate multiplies the product."""
        if self.order is None:
            wx, uh = (lambda a: self.linear(x, 0, a)), (lambda a: self.linear(h, 1, a))
        else:
            of_input = x if self.projected else self.linear(x, 0)
            of_state = self.linear(h, 1)
            wx, uh = (lambda a: self.part(of_input, a)), (lambda a: self.part(of_state, a))
        r, z = (self.act(self.net.binary(wx(a), uh(a)), self.activation) for a in "rz")
        n = self.act(self.net.binary(wx("n"), self.net.binary(r, uh("n"), "PROD")), "TANH")
        return self.blend(z, n, h), None

    def loop(self, x, count, first_h, first_c=None, axis=0, reverse=False, kept=None, stack=None):
        """Outputs of all steps, and the last states."""
        loop = self.network.add_loop()
        loop.add_trip_limit(count, trt.TripLimit.COUNT)
        xt = loop.add_iterator(self.before_loop(x), axis, reverse).get_output(0)
        h = loop.add_recurrence(first_h)
        c = loop.add_recurrence(first_c) if first_c is not None else None
        next_h, next_c = self.step(xt, h.get_output(0), c.get_output(0) if c else None)
        h.set_input(1, next_h)
        if c:
            c.set_input(1, next_c)
        y = loop.add_loop_output(next_h, stack or trt.LoopOutput.CONCATENATE)
        y.set_input(1, kept if kept is not None else count)
        last = [
            loop.add_loop_output(s.get_output(0), trt.LoopOutput.LAST_VALUE)
            for s in (h, c)
            if s is not None
        ]
        return [layer.get_output(0) for layer in (y, *last)]


def kinds_of(engine):
    return [kind for kind in ("Recurrence", "Loop") if steps(engine, kind)]


def torch_result(layer, x, h, c=None):
    with torch.no_grad():
        state = torch.from_numpy(h)[None]
        if c is not None:
            state = (state, torch.from_numpy(c)[None])
        y, last = layer(torch.from_numpy(x), state)
    last = last if isinstance(last, tuple) else (last,)
    return [y.numpy(), *(s[0].numpy() for s in last)]


def numbers(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def check(
    kind, options, steps_=5, batch=2, inner=3, hidden=4, bias=True, runs=None, **loop_options
):
    layer = torch_layer(kind, inner, hidden, bias)
    net = Net()
    x = net.input("x", trt.float32, (steps_, batch, inner))
    states = [net.input(n, trt.float32, (batch, hidden)) for n in "hc"[: 1 + (kind == "LSTM")]]
    cell = Cell(net, kind, layer, **options)
    run = net.build(cell.loop(x, net.constant(steps_, np.int32), *states, **loop_options))
    assert kinds_of(run.engine) == ["Recurrence"]
    given = numbers(steps_, batch, inner)
    first = [numbers(batch, hidden, seed=2 + i) for i in range(len(states))]
    made = run(x=given, **dict(zip("hc", first)))
    if loop_options.get("reverse"):
        given = given[::-1].copy()
    wanted = torch_result(layer, given, *first)
    if loop_options.get("stack") == trt.LoopOutput.REVERSE:
        wanted[0] = wanted[0][::-1]
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    return run


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_product_for_each_gate(kind, transposed, bias):
    check(kind, {"transposed": transposed}, bias=bias)


@pytest.mark.parametrize("order", ["ifgo", "iofg", "gofi", "figo"])
@pytest.mark.parametrize("transposed", [False, True])
def test_gates_of_an_lstm_in_any_order(order, transposed):
    check("LSTM", {"order": order, "transposed": transposed})


@pytest.mark.parametrize("order", ["rzn", "zrn", "nzr"])
def test_gates_of_a_gru_in_any_order(order):
    check("GRU", {"order": order})


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_the_input_and_the_state_in_one_product(kind):
    check(kind, {"order": ORDERS[kind], "joined": True})


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_the_inputs_product_before_the_loop(kind):
    check(kind, {"order": ORDERS[kind], "projected": True})


@pytest.mark.parametrize("stacked", ["CONCATENATE", "REVERSE"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_backwards(kind, stacked):
    check(kind, {}, reverse=True, stack=getattr(trt.LoopOutput, stacked))


@pytest.mark.parametrize("count", [1, 40, 700])
def test_long_and_short(count):
    """Few iterations would have become their layers, many a loop."""
    check("LSTM", {"order": "ifgo"}, steps_=count, hidden=33, inner=17)


def test_open_extents_and_batches_first():
    layer = torch_layer("LSTM", 3, 4, batch_first=True)
    net = Net()
    x = net.input("x", trt.float32, (-1, -1, 3))
    shape = net.network.add_shape(x).get_output(0)

    def extent(axis):
        return net.network.add_gather(shape, net.constant(axis, np.int32), 0).get_output(0)

    dims = net.network.add_concatenation(
        [
            net.network.add_gather(shape, net.constant([0], np.int32), 0).get_output(0),
            net.constant([4], np.int64),
        ]
    ).get_output(0)
    fill = net.network.add_fill((2,), trt.FillOperation.LINSPACE, trt.float32)
    fill.set_input(0, dims)
    fill.set_input(1, net.constant(0.0))
    fill.set_input(2, net.constant([0.0, 0.0]))
    zeros = fill.get_output(0)
    cell = Cell(net, "LSTM", layer, order="ifgo")
    outputs = cell.loop(x, extent(1), zeros, zeros, axis=1)
    run = net.build(outputs, {"x": ((1, 1, 3), (2, 6, 3), (5, 30, 3))})
    assert kinds_of(run.engine) == ["Recurrence"]
    for batch, length in [(1, 1), (2, 6), (5, 30), (3, 11)]:
        given = numbers(batch, length, 3)
        with torch.no_grad():
            y, (h, c) = layer(torch.from_numpy(given))
        made = run(x=given)
        for a, b in zip(made, (y.transpose(0, 1), h[0], c[0]), strict=True):
            np.testing.assert_allclose(a, b.numpy(), atol=1e-5)


@pytest.mark.parametrize("trips", [0, 1, 3, 5])
def test_a_count_at_run_time(trips):
    """As in NVIDIA's sampleCharRNN: the length of the sequence is an input."""
    layer = torch_layer("LSTM", 3, 4)
    net = Net()
    x = net.input("x", trt.float32, (5, 2, 3))
    count = net.input("count", trt.int32, ())
    states = [net.input(n, trt.float32, (2, 4)) for n in "hc"]
    cell = Cell(net, "LSTM", layer, order="ifgo")
    run = net.build(cell.loop(x, count, *states, kept=net.constant(5, np.int32)))
    assert kinds_of(run.engine) == ["Recurrence"]
    given, h, c = numbers(5, 2, 3), numbers(2, 4, seed=2), numbers(2, 4, seed=3)
    made = run(x=given, h=h, c=c, count=np.array(trips, np.int32))
    if trips == 0:
        wanted = [np.zeros((5, 2, 4)), h, c]
    else:
        wanted = torch_result(layer, given[:trips], h, c)
        wanted[0] = np.concatenate([wanted[0], np.zeros((5 - trips, 2, 4))])
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("count, kept", [(3, 3), (5, 2), (4, 3)])
def test_fewer_iterations_than_elements(count, kept):
    layer = torch_layer("GRU", 3, 4)
    net = Net()
    x, h = net.input("x", trt.float32, (5, 2, 3)), net.input("h", trt.float32, (2, 4))
    cell = Cell(net, "GRU", layer)
    limit, length = net.constant(count, np.int32), net.constant(kept, np.int32)
    run = net.build(cell.loop(x, limit, h, kept=length))
    assert kinds_of(run.engine) == ["Recurrence"]
    given, first = numbers(5, 2, 3), numbers(2, 4, seed=2)
    y, last = torch_result(layer, given[:count], first)
    made = run(x=given, h=first)
    np.testing.assert_allclose(made[0], y[:kept], atol=1e-5)
    np.testing.assert_allclose(made[1], last, atol=1e-5)


def test_vectors():
    """A batch of one, as sampleCharRNN has it: weights times vectors."""
    layer = torch_layer("RNN", 3, 4)
    net = Net()
    network = net.network
    x, h0 = net.input("x", trt.float32, (6, 3)), net.input("h", trt.float32, (4,))
    w, r, b, rb = gate_weights(layer, "RNN")["h"]
    loop = network.add_loop()
    loop.add_trip_limit(net.constant(6, np.int32), trt.TripLimit.COUNT)
    xt, h = loop.add_iterator(x).get_output(0), loop.add_recurrence(h0)
    of_input = network.add_matrix_multiply(net.constant(w), MATRIX.NONE, xt, MATRIX.VECTOR)
    of_state = network.add_matrix_multiply(
        h.get_output(0), MATRIX.VECTOR, net.constant(r), MATRIX.TRANSPOSE
    )
    total = net.binary(of_input.get_output(0), net.binary(of_state.get_output(0), net.constant(b)))
    total = net.binary(net.constant(rb), total)
    state = network.add_activation(total, trt.ActivationType.TANH).get_output(0)
    h.set_input(1, state)
    y = loop.add_loop_output(state, trt.LoopOutput.CONCATENATE)
    y.set_input(1, net.constant(6, np.int32))
    last = loop.add_loop_output(h.get_output(0), trt.LoopOutput.LAST_VALUE)
    run = net.build([y.get_output(0), last.get_output(0)])
    assert kinds_of(run.engine) == ["Recurrence"]
    given, first = numbers(6, 3), numbers(4, seed=2)
    y, last = torch_result(layer, given[:, None], first[None])
    made = run(x=given, h=first)
    np.testing.assert_allclose(made[0], y[:, 0], atol=1e-5)
    np.testing.assert_allclose(made[1], last[0], atol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def written_out(kind, gates, x, h, c=None, options=None):
    """The steps in double precision, with what PyTorch's cells do not have."""
    options = options or {}
    f = options.get("gate", sigmoid)
    pw = options.get("peepholes", {})
    y = []
    for xt in x.astype(np.float64):

        def total(letter, h, xt=xt):
            w, r, b, rb = gates[letter]
            return xt @ w.T + b + h @ r.T + rb

        if kind == "LSTM":
            i = f(total("i", h) + pw.get("i", 0) * c)
            forget = f(total("f", h) + pw.get("f", 0) * c)
            if options.get("coupled"):
                forget = 1 - i
            c = forget * c + i * np.tanh(total("g", h))
            h = f(total("o", h) + pw.get("o", 0) * c) * np.tanh(c)
        elif kind == "GRU":
            r, z = f(total("r", h)), f(total("z", h))
            n = np.tanh(total("n", r * h))
            h = z * n + (1 - z) * h if options.get("exchanged") else (1 - z) * n + z * h
        else:
            h = options["activation"](total("h", h))
        y.append(h)
    return [np.stack(y), h] + ([c] if c is not None else [])


def check_written_out(kind, make_cell, options=None, recognized=True):
    layer = torch_layer(kind, 3, 4)
    net = Net()
    x = net.input("x", trt.float32, (5, 2, 3))
    states = [net.input(n, trt.float32, (2, 4)) for n in "hc"[: 1 + (kind == "LSTM")]]
    cell = make_cell(net, kind, layer)
    run = net.build(cell.loop(x, net.constant(5, np.int32), *states))
    assert ("Recurrence" in kinds_of(run.engine)) == recognized
    given = numbers(5, 2, 3)
    first = [numbers(2, 4, seed=2 + i) for i in range(len(states))]
    wanted = written_out(kind, cell.gates, given, *first, options=options)
    for a, b in zip(run(x=given, **dict(zip("hc", first))), wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


class ResetFirst(Cell):
    """The reset gate multiplies the state, as in the first paper and in ONNX's default."""

    def step_gru(self, x, h, _):
        r, z = (
            self.act(self.net.binary(self.linear(x, 0, a), self.linear(h, 1, a)), "SIGMOID")
            for a in "rz"
        )
        reset = self.net.binary(r, h, "PROD")
        n = self.net.binary(self.linear(x, 0, "n"), self.linear(reset, 1, "n"))
        return self.blend(z, self.act(n, "TANH"), h), None


class JoinedReset(ResetFirst):
    """As TensorFlow's GRUCell: products of what lies beside each other."""

    def step_gru(self, x, h, _):
        def total(letter, state):
            both = self.network.add_concatenation([x, state])
            both.axis = 1
            w, r, b, rb = self.gates[letter]
            return self.plus(self.times(both.get_output(0), np.concatenate([w, r], 1)), b + rb)

        r, z = (self.act(total(a, h), "SIGMOID") for a in "rz")
        n = self.act(total("n", self.net.binary(r, h, "PROD")), "TANH")
        return self.blend(z, n, h), None


class ByDifference(ResetFirst):
    def blend(self, z, n, h):
        return self.net.binary(n, self.net.binary(z, self.net.binary(h, n, "SUB"), "PROD"))


class Exchanged(ResetFirst):
    def blend(self, z, n, h):
        return super().blend(z, h, n)


class ExchangedByDifference(ResetFirst):
    def blend(self, z, n, h):
        return self.net.binary(h, self.net.binary(z, self.net.binary(n, h, "SUB"), "PROD"))


@pytest.mark.parametrize("make", [ResetFirst, JoinedReset, ByDifference])
def test_a_gru_that_resets_the_state(make):
    check_written_out("GRU", make)


@pytest.mark.parametrize("make", [Exchanged, ExchangedByDifference])
def test_a_gru_whose_update_gate_is_the_other_way(make):
    check_written_out("GRU", make, {"exchanged": True})


class Peepholes(Cell):
    def __init__(self, *args):
        super().__init__(*args)
        self.peepholes = {letter: numbers(4, seed=ord(letter)) for letter in "ifo"}

    def step_lstm(self, x, h, c):
        sums = self.sums(x, h)

        def gate(letter, memory):
            seen = self.net.binary(memory, self.net.constant(self.peepholes[letter][None]), "PROD")
            return self.act(self.net.binary(sums(letter), seen), "SIGMOID")

        new = self.memory(gate("i", c), gate("f", c), self.act(sums("g"), "TANH"), c)
        return self.net.binary(gate("o", new), self.act(new, "TANH"), "PROD"), new


def test_peepholes():
    weights = {letter: numbers(4, seed=ord(letter)) for letter in "ifo"}
    check_written_out("LSTM", Peepholes, {"peepholes": weights})


class Coupled(Cell):
    def memory(self, i, f, g, c):
        rest = self.net.binary(self.net.constant([[1.0]]), i, "SUB")
        return super().memory(i, rest, g, c)


def test_a_forget_gate_that_is_what_the_input_gate_leaves():
    check_written_out("LSTM", Coupled, {"coupled": True})


ACTIVATIONS = {
    "RELU": ((), lambda x: np.maximum(x, 0)),
    "LEAKY_RELU": ((0.3, 0), lambda x: np.where(x < 0, 0.3 * x, x)),
    "ELU": ((0.7, 0), lambda x: np.where(x < 0, 0.7 * np.expm1(x), x)),
    "SOFTSIGN": ((), lambda x: x / (1 + np.abs(x))),
    "HARD_SIGMOID": ((0.2, 0.5), lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "SCALED_TANH": ((1.2, 0.8), lambda x: 1.2 * np.tanh(0.8 * x)),
    "SOFTPLUS": ((1, 1), lambda x: np.log1p(np.exp(x))),
    "SIGMOID": ((), sigmoid),
}


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_activations(name):
    params, function = ACTIVATIONS[name]

    class Other(Cell):
        def act(self, x, kind, *_):
            return super().act(x, name, *params)

    check_written_out("RNN", Other, {"activation": function})


# Near misses, which are not taken for cells.


class TwoActivations(Cell):
    """The output gate has another activation than the others, which the operator cannot have."""

    def step_lstm(self, x, h, c):
        sums = self.sums(x, h)
        i, f = (self.act(sums(letter), "SIGMOID") for letter in "if")
        c = self.memory(i, f, self.act(sums("g"), "TANH"), c)
        o = self.act(sums("o"), "HARD_SIGMOID", 0.2, 0.5)
        return self.net.binary(o, self.act(c, "TANH"), "PROD"), c


class OldMemory(Cell):
    """h follows from the cell before the step."""

    def step_lstm(self, x, h, c):
        sums = self.sums(x, h)
        i, f, o = (self.act(sums(letter), "SIGMOID") for letter in "ifo")
        new = self.memory(i, f, self.act(sums("g"), "TANH"), c)
        return self.net.binary(o, self.act(c, "TANH"), "PROD"), new


class ForgetsInput(Cell):
    """f g + i c would be an LSTM, i i c would not."""

    def memory(self, i, f, g, c):
        return self.net.binary(
            self.net.binary(self.net.binary(i, i, "PROD"), c, "PROD"), self.net.binary(i, g, "PROD")
        )


class Residual(Cell):
    def step_rnn(self, x, h, _):
        return self.net.binary(self.act(self.sums(x, h)("h"), "TANH"), h), None


class Twice(Cell):
    """A state that is added once more, not by weights."""

    def sums(self, x, h):
        sums = super().sums(x, h)
        return lambda letter: self.net.binary(sums(letter), h)


class UnequalBlend(ResetFirst):
    """2 - z instead of 1 - z."""

    def blend(self, z, n, h):
        rest = self.net.binary(self.net.constant([[2.0]]), z, "SUB")
        return self.net.binary(self.net.binary(rest, n, "PROD"), self.net.binary(z, h, "PROD"))


class Halved(Cell):
    def sums(self, x, h):
        sums = super().sums(x, h)
        return lambda letter: self.net.binary(sums(letter), self.net.constant([[0.5]]), "PROD")


def unrolled(cell_class, kind, first, x):
    """The same cell outside of a loop, step by step: what an engine without recognition gives."""
    net = Net()
    given = net.input("x", trt.float32, x.shape)
    states = [net.input(n, trt.float32, s.shape) for n, s in zip("hc", first)]
    cell = cell_class(net, kind, torch_layer(kind, x.shape[2], first[0].shape[1]))
    h, c = states[0], states[1] if len(states) > 1 else None
    for t in range(x.shape[0]):
        part = net.network.add_slice(given, (t, 0, 0), (1, *x.shape[1:]), (1, 1, 1)).get_output(0)
        shuffle = net.network.add_shuffle(part)
        shuffle.reshape_dims = x.shape[1:]
        h, c = cell.step(shuffle.get_output(0), h, c)
    run = net.build([t for t in (h, c) if t is not None])
    return run(x=x, **dict(zip("hc", first)))


@pytest.mark.parametrize(
    "kind, make",
    [
        ("LSTM", TwoActivations),
        ("LSTM", OldMemory),
        ("LSTM", ForgetsInput),
        ("RNN", Residual),
        ("RNN", Twice),
        ("LSTM", Twice),
        ("GRU", UnequalBlend),
        ("RNN", Halved),
        ("LSTM", Halved),
    ],
)
def test_near_misses(kind, make):
    net = Net()
    x = net.input("x", trt.float32, (5, 2, 3))
    states = [net.input(n, trt.float32, (2, 4)) for n in "hc"[: 1 + (kind == "LSTM")]]
    cell = make(net, kind, torch_layer(kind, 3, 4))
    run = net.build(cell.loop(x, net.constant(5, np.int32), *states))
    assert "Recurrence" not in kinds_of(run.engine)
    given = numbers(5, 2, 3)
    first = [numbers(2, 4, seed=2 + i) for i in range(len(states))]
    made = run(x=given, **dict(zip("hc", first)))
    for a, b in zip(made[1:], unrolled(make, kind, first, given), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_bias_for_each_row_is_none():
    """What is added has the extent of the batch, which may be that of the hidden units."""
    layer = torch_layer("RNN", 3, 4)
    net = Net()
    rows = numbers(4, 1, seed=9)

    class Rows(Cell):
        def sums(self, x, h):
            sums = super().sums(x, h)
            return lambda letter: self.net.binary(sums(letter), self.net.constant(rows))

    x, h = net.input("x", trt.float32, (5, 4, 3)), net.input("h", trt.float32, (4, 4))
    cell = Rows(net, "RNN", layer)
    run = net.build(cell.loop(x, net.constant(5, np.int32), h))
    given, first = numbers(5, 4, 3), numbers(4, 4, seed=2)
    w, r, b, rb = cell.gates["h"]
    wanted = first
    for xt in given:
        wanted = np.tanh(xt @ w.T + b + wanted @ r.T + rb + rows)
    np.testing.assert_allclose(run(x=given, h=first)[1], wanted, atol=1e-5)
    assert "Recurrence" not in kinds_of(run.engine)


def test_the_memory_of_all_steps_is_none_of_the_outputs():
    layer = torch_layer("LSTM", 3, 4)
    net = Net()
    x = net.input("x", trt.float32, (5, 2, 3))
    states = [net.input(n, trt.float32, (2, 4)) for n in "hc"]

    class Swapped(Cell):
        def step_lstm(self, x, h, c):
            # The loop's helper stacks the first of the states.
            new_h, new_c = super().step_lstm(x, c, h)
            return new_c, new_h

    cell = Swapped(net, "LSTM", layer)
    run = net.build(cell.loop(x, net.constant(5, np.int32), states[1], states[0]))
    assert "Recurrence" not in kinds_of(run.engine)
    given, h, c = numbers(5, 2, 3), numbers(2, 4, seed=2), numbers(2, 4, seed=3)
    memory = []
    for t in range(5):
        memory.append(torch_result(layer, given[: t + 1], h, c)[2])
    np.testing.assert_allclose(run(x=given, h=h, c=c)[0], np.stack(memory), atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_of_sequences(reverse):
    """A mask keeps the state behind the end of each sequence; there the outputs are 0."""
    layer = torch_layer("GRU", 3, 4)
    net = Net()
    network = net.network
    x, h0 = net.input("x", trt.float32, (6, 3, 3)), net.input("h", trt.float32, (3, 4))
    lengths = net.input("lengths", trt.int32, (3, 1))
    loop = network.add_loop()
    count = net.constant(6, np.int32)
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    xt = loop.add_iterator(x, 0, reverse).get_output(0)
    numbered = net.constant(np.arange(6).reshape(6, 1, 1), np.int32)
    place = loop.add_iterator(numbered, 0, reverse).get_output(0)
    h = loop.add_recurrence(h0)
    cell = Cell(net, "GRU", layer)
    new, _ = cell.step(xt, h.get_output(0), None)
    within = net.binary(place, lengths, "LESS")
    h.set_input(1, network.add_select(within, new, h.get_output(0)).get_output(0))
    zeros = net.constant(np.zeros((1, 1)))
    y = loop.add_loop_output(
        network.add_select(within, new, zeros).get_output(0), trt.LoopOutput.CONCATENATE
    )
    y.set_input(1, count)
    last = loop.add_loop_output(h.get_output(0), trt.LoopOutput.LAST_VALUE)
    run = net.build([y.get_output(0), last.get_output(0)])
    assert kinds_of(run.engine) == ["Recurrence"]
    given, first = numbers(6, 3, 3), numbers(3, 4, seed=2)
    length = np.array([[4], [6], [1]], np.int32)
    made = run(x=given, h=first, lengths=length)
    for n, count in enumerate(length[:, 0]):
        part = given[:count, n : n + 1]
        y, last = torch_result(layer, part[::-1].copy() if reverse else part, first[n : n + 1])
        row = np.zeros((6, 4), np.float32)
        row[:count] = y[:, 0]
        if reverse:  # the first iterations are behind the end
            row = np.concatenate([row[count:], row[:count]])
        np.testing.assert_allclose(made[0][:, n], row, atol=1e-5)
        np.testing.assert_allclose(made[1][n], last[0], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_types(dtype):
    """Steps in double precision from rounded weights."""
    import ml_dtypes

    numpy_type = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    layer = torch_layer("LSTM", 3, 4)
    net = Net()
    of = getattr(trt, dtype)

    class Narrow(Cell):
        def plus(self, a, bias):
            return self.net.binary(a, self.constant(bias[None]))

        def constant(self, value):
            return self.network.add_cast(self.net.constant(value), of).get_output(0)

        def times(self, x, weights):
            return self.network.add_matrix_multiply(
                x, MATRIX.NONE, self.constant(weights), MATRIX.TRANSPOSE
            ).get_output(0)

    x = net.input("x", of, (5, 2, 3))
    states = [net.input(n, of, (2, 4)) for n in "hc"]
    cell = Narrow(net, "LSTM", layer)
    run = net.build(cell.loop(x, net.constant(5, np.int32), *states))
    assert kinds_of(run.engine) == ["Recurrence"]
    given = numbers(5, 2, 3).astype(numpy_type)
    first = [numbers(2, 4, seed=2 + i).astype(numpy_type) for i in range(2)]
    gates = {k: [w.astype(numpy_type).astype(np.float64) for w in v] for k, v in cell.gates.items()}
    wanted = written_out("LSTM", gates, given, *(s.astype(np.float64) for s in first))
    for a, b in zip(run(x=given, h=first[0], c=first[1]), wanted, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b, atol=0.03)


def test_weights_stay_those_of_the_network(tmp_path):
    """The engine can be refitted with other weights, which the gates' order goes for, too."""
    layer, other = torch_layer("LSTM", 3, 4), torch_layer("LSTM", 3, 4, seed=1)
    net = Net()
    x = net.input("x", trt.float32, (5, 2, 3))
    states = [net.input(n, trt.float32, (2, 4)) for n in "hc"]
    cell = Cell(net, "LSTM", layer, order="ifgo")
    named = {}

    def times(x, weights):
        constant = net.network.add_constant(weights.shape, np.ascontiguousarray(weights))
        name = "W" if weights.shape[1] == 3 else "R"
        constant.get_output(0).name = name
        named[name] = weights
        return net.network.add_matrix_multiply(
            x, MATRIX.NONE, constant.get_output(0), MATRIX.TRANSPOSE
        ).get_output(0)

    cell.times = times
    outputs = cell.loop(x, net.constant(5, np.int32), *states)
    run = net.build(outputs, flags=[trt.BuilderFlag.REFIT])
    assert kinds_of(run.engine) == ["Recurrence"]
    refitter = trt.Refitter(run.engine.engine, net.logger)
    assert {"W", "R"} <= set(refitter.get_all_weights())
    given = numbers(5, 2, 3)
    first = [numbers(2, 4, seed=2 + i) for i in range(2)]
    with torch.no_grad():
        for name in ("bias_ih_l0", "bias_hh_l0"):
            getattr(other, name).copy_(getattr(layer, name))
    refitter.set_named_weights("W", other.weight_ih_l0.detach().numpy())
    refitter.set_named_weights("R", other.weight_hh_l0.detach().numpy())
    assert refitter.refit_cuda_engine()
    for a, b in zip(
        run(x=given, h=first[0], c=first[1]), torch_result(other, given, *first), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-5)


@emulated_gpu.required
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_on_a_gpu(kind, reverse):
    layer = torch_layer(kind, 3, 4)
    net = Net()
    x = net.input("x", trt.float32, (5, 2, 3))
    states = [net.input(n, trt.float32, (2, 4)) for n in "hc"[: 1 + (kind == "LSTM")]]
    cell = Cell(net, kind, layer, order=ORDERS[kind])
    outputs = cell.loop(x, net.constant(5, np.int32), *states, reverse=reverse)
    run = net.build(outputs, device="cuda")
    given = numbers(5, 2, 3)
    first = [numbers(2, 4, seed=2 + i) for i in range(len(states))]
    wanted = torch_result(layer, given[::-1].copy() if reverse else given, *first)
    for a, b in zip(run(x=given, **dict(zip("hc", first))), wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


# ONNX


def scan_of(kind, layer, length, batch=2, reverse=False, outside=True, extra=None):
    """A Scan with the cell of PyTorch's layer; weights are initializers of the graph or the body."""
    hidden, inner = layer.hidden_size, layer.input_size
    weights = {
        name: numpy_helper.from_array(value, name)
        for name, value in {
            "W": layer.weight_ih_l0.detach().numpy().T.copy(),
            "R": layer.weight_hh_l0.detach().numpy(),
            "WB": layer.bias_ih_l0.detach().numpy(),
            "RB": layer.bias_hh_l0.detach().numpy(),
            "one": np.array(1, np.float32),
        }.items()
    }
    node = helper.make_node
    nodes = [
        node("MatMul", ["xt", "W"], ["xw"]),
        node("Add", ["xw", "WB"], ["xs"]),
        node("Gemm", ["h", "R", "RB"], ["hs"], transB=1),
    ]
    if kind == "LSTM":
        nodes += [
            node("Add", ["xs", "hs"], ["s"]),
            node("Split", ["s"], ["si", "sf", "sg", "so"], axis=1),
            node("Sigmoid", ["si"], ["i"]),
            node("Sigmoid", ["sf"], ["f"]),
            node("Tanh", ["sg"], ["g"]),
            node("Sigmoid", ["so"], ["o"]),
            node("Mul", ["f", "c"], ["fc"]),
            node("Mul", ["i", "g"], ["ig"]),
            node("Add", ["fc", "ig"], ["cn"]),
            node("Tanh", ["cn"], ["ct"]),
            node("Mul", ["o", "ct"], ["hn"]),
        ]
    elif kind == "GRU":
        nodes += [
            node("Split", ["xs"], ["xr", "xz", "xn"], axis=1),
            node("Split", ["hs"], ["hr", "hz", "hn_"], axis=1),
            node("Add", ["xr", "hr"], ["sr"]),
            node("Add", ["xz", "hz"], ["sz"]),
            node("Sigmoid", ["sr"], ["r"]),
            node("Sigmoid", ["sz"], ["z"]),
            node("Mul", ["r", "hn_"], ["rn"]),
            node("Add", ["xn", "rn"], ["sn"]),
            node("Tanh", ["sn"], ["n"]),
            node("Sub", ["one", "z"], ["z1"]),
            node("Mul", ["z1", "n"], ["a"]),
            node("Mul", ["z", "h"], ["b"]),
            node("Add", ["a", "b"], ["hn"]),
        ]
    else:
        nodes += [node("Add", ["xs", "hs"], ["s"]), node("Tanh", ["s"], ["hn"])]
    nodes += extra or []
    nodes.append(node("Identity", ["hn"], ["yt"]))
    states = ["h", "c"][: 1 + (kind == "LSTM")]

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    body = helper.make_graph(
        nodes,
        "cell",
        [info(s, batch, hidden) for s in states] + [info("xt", batch, inner)],
        [info(s + "n", batch, hidden) for s in states] + [info("yt", batch, hidden)],
        [] if outside else list(weights.values()),
    )
    scan = node(
        "Scan",
        [s + "0" for s in states] + ["x"],
        [s + "1" for s in states] + ["y"],
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[int(reverse)],
        scan_output_directions=[int(reverse)],
    )
    graph = helper.make_graph(
        [scan],
        "net",
        [info(s + "0", batch, hidden) for s in states] + [info("x", length, batch, inner)],
        [info(s + "1", batch, hidden) for s in states] + [info("y", length, batch, hidden)],
        list(weights.values()) if outside else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check_scan(model, layer, length, recognized=True, **options):
    engine = trt.build(model.SerializeToString(), timing=False, device=CPU, **options)
    assert (kinds_of(engine) == ["Recurrence"]) == recognized
    inputs = {"x": numbers(length, 2, layer.input_size), "h0": numbers(2, 4, seed=2)}
    if isinstance(layer, torch.nn.LSTM):
        inputs["c0"] = numbers(2, 4, seed=3)
    got = as_list(engine(**inputs))
    for a, b in zip(got, reference_session(model).run(None, inputs), strict=True):
        assert_close(a, b)
    return engine


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [6, 2000])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_scan(kind, length, reverse, outside):
    layer = torch_layer(kind, 3, 4)
    check_scan(scan_of(kind, layer, length, reverse=reverse, outside=outside), layer, length)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_scan_with_open_extents(kind, reverse):
    layer = torch_layer(kind, 3, 4)
    model = scan_of(kind, layer, "steps", batch="batch", reverse=reverse)
    shapes = {"x": [(1, 1, 3), (4, 2, 3), (50, 3, 3)]}
    for state in ["h0", "c0"][: 1 + (kind == "LSTM")]:
        shapes[state] = [(1, 4), (2, 4), (3, 4)]
    shapes = {name: tuple(shape) for name, shape in shapes.items()}
    check_scan(model, layer, 7, shapes=shapes)


def test_a_scan_that_is_no_cell():
    """The output of a step is doubled: the last state and the outputs no longer agree."""
    layer = torch_layer("RNN", 3, 4)
    model = scan_of("RNN", layer, 6)
    body = model.graph.node[0].attribute[0].g
    body.node[-1].CopyFrom(helper.make_node("Add", ["hn", "hn"], ["yt"]))
    check_scan(model, layer, 6, recognized=False)


@pytest.mark.parametrize("known", [True, False])
def test_an_onnx_loop_that_picks_by_its_number(known):
    """What torch.jit.script exports for `for t in range(...)`."""
    layer = torch_layer("GRU", 3, 4)
    scan = scan_of("GRU", layer, 6)
    cell = scan.graph.node[0].attribute[0].g
    node = helper.make_node
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["on"]),
            node("Gather", ["x", "t"], ["xt"], axis=0),
            *cell.node,
        ],
        "body",
        [
            helper.make_tensor_value_info("t", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, (2, 4)),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ()), *cell.output],
    )
    nodes = [node("Loop", ["trips", "", "h0"], ["h1", "y"], body=body)]
    initializers = list(scan.graph.initializer)
    steps_ = 6 if known else "steps"
    if known:
        initializers.append(numpy_helper.from_array(np.array(6, np.int64), "trips"))
    else:
        nodes = [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["trips"], axis=0),
            *nodes,
        ]
        initializers.append(numpy_helper.from_array(np.array(0, np.int64), "zero"))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [
            info("h0", TensorProto.FLOAT, (2, 4)),
            info("x", TensorProto.FLOAT, (steps_, 2, 3)),
        ],
        [info("h1", TensorProto.FLOAT, (2, 4)), info("y", TensorProto.FLOAT, (steps_, 2, 4))],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = {} if known else {"shapes": {"x": ((1, 2, 3), (6, 2, 3), (9, 2, 3))}}
    check_scan(model, layer, 6, **options)
