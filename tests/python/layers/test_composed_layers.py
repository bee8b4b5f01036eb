"""Einsum, attention, rotary embedding, mixtures of experts and what else is made of other layers,
against NumPy and PyTorch."""

import numpy as np
import pytest
import torch

import opwright as trt
from nets import Net

NUMBERS = np.random.default_rng(0)


def normal(*shape):
    return NUMBERS.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    "equation,shapes",
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("i,j->ij", [(3,), (4,)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (2, 5, 4, 2)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]),
        ("ij,jk", [(2, 3), (3, 4)]),
    ],
)
def test_einsum(equation, shapes):
    net = Net()
    names = [f"x{i}" for i in range(len(shapes))]
    inputs = [net.input(n, trt.float32, s) for n, s in zip(names, shapes, strict=True)]
    layer = net.network.add_einsum(inputs, equation)
    assert (layer.type, layer.equation) == (trt.LayerType.EINSUM, equation)
    run = net.build([layer.get_output(0)])
    given = [normal(*s) for s in shapes]
    made = run(**dict(zip(names, given, strict=True)))[0]
    np.testing.assert_allclose(made, np.einsum(equation, *given), rtol=1e-4, atol=1e-5)


def test_einsum_follows_shapes_and_its_equation():
    net = Net()
    a, b = (net.input(n, trt.float32, (-1, 4)) for n in "ab")
    layer = net.network.add_einsum([a, b], "ij,ij->ij")
    layer.equation = "ij,kj->ik"
    assert tuple(layer.get_output(0).shape) == (-1, -1)
    shapes = ((1, 4), (3, 4), (5, 4))
    run = net.build([layer.get_output(0)], {"a": shapes, "b": shapes})
    for rows in (1, 5):
        xs, ys = normal(rows, 4), normal(6 - rows, 4)
        np.testing.assert_allclose(run(a=xs, b=ys)[0], xs @ ys.T, rtol=1e-4, atol=1e-5)
    layer.equation = "ij->i"
    with pytest.raises(trt.Error, match="Einsum.*1 terms for 2 inputs"):
        _ = layer.get_output(0).shape


def test_ragged_softmax():
    net = Net()
    x = net.input("x", trt.float32, (2, 3, 5))
    bounds = net.input("bounds", trt.int32, (2, 3, 1))
    layer = net.network.add_ragged_softmax(x, bounds)
    assert layer.type == trt.LayerType.RAGGED_SOFTMAX
    run = net.build([layer.get_output(0)])
    given = normal(2, 3, 5)
    counts = np.array([0, 1, 2, 3, 5, 4], np.int32).reshape(2, 3, 1)
    kept = np.arange(5) < counts
    powers = np.where(kept, np.exp(given), 0)
    expected = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30)
    np.testing.assert_allclose(run(x=given, bounds=counts)[0], expected, rtol=1e-5, atol=1e-7)


class TestAttention:
    batch, heads, queries, keys, size = 2, 4, 3, 5, 8

    def shapes(self, name, shared, fixed):
        heads = self.heads if name == "q" else shared or self.heads
        own = self.queries if name == "q" else self.keys
        lengths = (own, own, own) if fixed else (1, 4, 8)
        return tuple((self.batch, heads, length, self.size) for length in lengths)

    def build(self, set_up=None, shared=None, version=2, causal=None, fixed=False):
        net = Net()
        q = net.input("q", trt.float32, (self.batch, self.heads, -1, self.size))
        k, v = (
            net.input(n, trt.float32, (self.batch, shared or self.heads, -1, self.size))
            for n in "kv"
        )
        softmax = trt.AttentionNormalizationOp.SOFTMAX
        if version == 2:
            causal = trt.CausalMaskKind.NONE if causal is None else causal
            attention = net.network.add_attention_v2(q, k, v, softmax, causal)
        else:
            attention = net.network.add_attention(q, k, v, softmax, causal)
        attention.decomposable = True
        attention.name = "attention"
        if set_up is not None:
            set_up(net, attention)
        shapes = {n: self.shapes(n, shared, fixed) for n in "qkv"}
        return net.build([attention.get_output(0)], shapes), attention

    def tensors(self, shared=None):
        heads = shared or self.heads
        return {
            "q": normal(self.batch, self.heads, self.queries, self.size),
            "k": normal(self.batch, heads, self.keys, self.size),
            "v": normal(self.batch, heads, self.keys, self.size),
        }

    def expected(self, given, mask=None, **options):
        q, k, v = (torch.from_numpy(given[n]) for n in "qkv")
        mask = None if mask is None else torch.from_numpy(mask)
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, mask, scale=1.0, enable_gqa=True, **options
        ).numpy()

    def close(self, made, wanted):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("shared", [None, 2, 1])
    def test_plain(self, shared):
        run, attention = self.build(shared=shared)
        given = self.tensors(shared)
        self.close(run(**given)[0], self.expected(given))
        assert attention.norm_op == trt.AttentionNormalizationOp.SOFTMAX
        assert (attention.num_inputs, attention.num_outputs, attention.causal) == (3, 1, False)

    def test_masks(self):
        allowed = NUMBERS.uniform(size=(self.batch, 1, self.queries, self.keys)) > 0.4
        allowed[..., 0] = True

        def boolean(net, attention):
            attention.mask = net.constant(allowed, np.bool_)
            assert attention.mask is not None

        given = self.tensors()
        run, _ = self.build(boolean, fixed=True)
        self.close(run(**given)[0], self.expected(given, allowed))
        added = normal(1, self.heads, self.queries, self.keys)
        run, _ = self.build(lambda net, a: setattr(a, "mask", net.constant(added)), fixed=True)
        self.close(run(**given)[0], self.expected(given, added))

    def test_causal(self):
        given = self.tensors()
        upper = np.tril(np.ones((self.queries, self.keys), np.bool_))
        lower = np.tril(np.ones((self.queries, self.keys), np.bool_), self.keys - self.queries)
        for options, mask in [
            ({"causal": trt.CausalMaskKind.UPPER_LEFT}, upper),
            ({"causal": trt.CausalMaskKind.LOWER_RIGHT}, lower),
            ({"causal": True, "version": 1}, upper),
        ]:
            run, attention = self.build(**options)
            assert attention.causal
            self.close(run(**given)[0], self.expected(given, mask))

    def test_lengths_of_keys(self):
        def set_up(net, attention):
            attention.key_value_lengths = net.input("lengths", trt.int32, (self.batch,))

        run, _ = self.build(set_up)
        given = self.tensors()
        lengths = np.array([2, 5], np.int32)
        mask = np.arange(self.keys) < lengths[:, None, None, None]
        self.close(run(lengths=lengths, **given)[0], self.expected(given, mask))

    def test_without_softmax_and_quantized(self):
        run, _ = self.build(lambda net, a: setattr(a, "norm_op", trt.AttentionNormalizationOp.NONE))
        given = self.tensors()
        plain = np.einsum(
            "bhqk,bhkd->bhqd", np.einsum("bhqd,bhkd->bhqk", given["q"], given["k"]), given["v"]
        )
        np.testing.assert_allclose(run(**given)[0], plain, rtol=1e-3, atol=1e-4)
        scale = np.float32(1 / 127)

        def quantize(net, attention):
            attention.normalization_quantize_to_type = trt.int8
            attention.normalization_quantize_scale = net.constant(scale)

        run, _ = self.build(quantize)
        scores = np.einsum("bhqd,bhkd->bhqk", given["q"], given["k"])
        weights = torch.softmax(torch.from_numpy(scores), -1).numpy()
        weights = np.clip(np.round(weights / scale), -128, 127) * scale
        np.testing.assert_allclose(
            run(**given)[0], np.einsum("bhqk,bhkd->bhqd", weights, given["v"]), atol=2e-2
        )

    def test_errors(self):
        def both(net, attention):
            attention.causal = True
            attention.mask = net.constant(np.ones((1, 1, 1, 1)), np.bool_)

        with pytest.raises(trt.Error, match="'attention'.*has a mask and is causal"):
            self.build(both)


def rotated(x, cosine, sine, interleaved, dim):
    dim = dim or x.shape[-1]
    turned, rest = x[..., :dim], x[..., dim:]
    cosine, sine = cosine[:, None], sine[:, None]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = np.split(turned, 2, -1)
    real, imaginary = a * cosine - b * sine, a * sine + b * cosine
    if interleaved:
        y = np.stack([real, imaginary], -1).reshape(turned.shape)
    else:
        y = np.concatenate([real, imaginary], -1)
    return np.concatenate([y, rest], -1)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("dim", [0, 4])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(interleaved, dim, positions):
    net = Net()
    half = (dim or 8) // 2
    shape = (10, half) if positions else (2, 3, half)
    x = net.input("x", trt.float32, (2, 4, 3, 8))
    tables = [net.input(n, trt.float32, shape) for n in ("cos", "sin")]
    layer = net.network.add_rotary_embedding(x, *tables, interleaved, dim)
    assert (layer.interleaved, layer.rotary_embedding_dim) == (interleaved, dim)
    inputs = {"x": normal(2, 4, 3, 8)}
    angles = NUMBERS.uniform(-3, 3, shape).astype(np.float32)
    inputs["cos"], inputs["sin"] = np.cos(angles), np.sin(angles)
    cosine, sine = inputs["cos"], inputs["sin"]
    if positions:
        layer.set_input(3, net.input("at", trt.int64, (2, 3)))
        inputs["at"] = np.array([[0, 1, 9], [5, 5, 2]])
        cosine, sine = cosine[inputs["at"]], sine[inputs["at"]]
    run = net.build([layer.get_output(0)])
    expected = rotated(inputs["x"], cosine, sine, interleaved, dim)
    np.testing.assert_allclose(run(**inputs)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("swiglu", [None, (1.0, 1.5, 0.25)])
@pytest.mark.parametrize("biased", [False, True])
def test_mixture_of_experts(biased, swiglu):
    experts, hidden, inner, k = 4, 6, 5, 2
    net = Net()
    x = net.input("x", trt.float32, (2, 3, hidden))
    chosen = net.input("chosen", trt.int32, (2, 3, k))
    scores = net.input("scores", trt.float32, (2, 3, k))
    layer = net.network.add_moe(x, chosen, scores)
    gate, up, down = normal(experts, hidden, inner), normal(experts, hidden, inner), None
    down = normal(experts, inner, hidden)
    layer.set_gated_weights(*(net.constant(w) for w in (gate, up, down)), trt.MoEActType.SILU)
    assert layer.activation_type == trt.MoEActType.SILU
    biases = [np.zeros(s, np.float32) for s in ((experts, inner), (experts, inner))]
    biases.append(np.zeros((experts, hidden), np.float32))
    if biased:
        biases = [normal(*b.shape) for b in biases]
        layer.set_gated_biases(*(net.constant(b) for b in biases))
    limit, alpha, beta = swiglu or (np.inf, 1.0, 0.0)
    if swiglu:
        layer.set_swiglu_params(*swiglu)
        assert layer.swiglu_param_alpha == 1.5
    run = net.build([layer.get_output(0)])
    given = normal(2, 3, hidden)
    which = NUMBERS.integers(0, experts, (2, 3, k)).astype(np.int32)
    weights = NUMBERS.uniform(0, 1, (2, 3, k)).astype(np.float32)
    expected = np.zeros_like(given)
    for b in range(2):
        for t in range(3):
            for j in range(k):
                e = which[b, t, j]
                g = np.minimum(given[b, t] @ gate[e] + biases[0][e], limit)
                u = np.clip(given[b, t] @ up[e] + biases[1][e], -limit, limit) + beta
                h = g / (1 + np.exp(-alpha * g)) * u
                expected[b, t] += weights[b, t, j] * (h @ down[e] + biases[2][e])
    made = run(x=given, chosen=which, scores=weights)[0]
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("version", [1, 2])
def test_group_normalization(version):
    """Scale and bias per group in the first form, per channel in the second."""
    net = Net()
    x = net.input("x", trt.float32, (2, 6, 4, 5))
    count = 3 if version == 1 else 6
    scale, bias = normal(1, count, 1, 1), normal(1, count, 1, 1)
    add = net.network.add_normalization if version == 1 else net.network.add_normalization_v2
    layer = add(x, net.constant(scale), net.constant(bias), 0b1100)
    layer.num_groups = 3
    assert layer.is_v2 == (version == 2)
    run = net.build([layer.get_output(0)])
    given = normal(2, 6, 4, 5)
    per_channel = [np.repeat(f.reshape(-1), 6 // count) for f in (scale, bias)]
    expected = torch.nn.functional.group_norm(
        torch.from_numpy(given), 3, *(torch.from_numpy(f) for f in per_channel)
    )
    np.testing.assert_allclose(run(x=given)[0], expected.numpy(), rtol=1e-4, atol=1e-5)
