"""IKVCacheUpdateLayer, which writes into its input's memory."""

import numpy as np
import pytest

import opwright as trt
from nets import CPU, Net

CACHE = (2, 3, 8, 4)


def updated(cache, update, at):
    result = cache.copy()
    for b, first in enumerate(at):
        count = min(update.shape[2], max(0, cache.shape[2] - first))
        result[b, :, first : first + count] = update[b, :, :count]
    return result


def network_of(tokens, packed=False):
    net = Net()
    cache = net.input("cache", trt.float32, CACHE)
    shape = (-1, 3, 4) if packed else (2, 3, tokens, 4)
    update = net.input("update", trt.float32, shape)
    at = net.input("at", trt.int32, (2,))
    layer = net.network.add_kv_cache_update(cache, update, at, trt.KVCacheMode.LINEAR)
    assert layer.cache_mode == trt.KVCacheMode.LINEAR
    assert layer.update_form == trt.AttentionIOForm.PADDED_BHND
    if packed:
        layer.update_form = trt.AttentionIOForm.PACKED_NHD
        layer.update_lengths = net.input("lengths", trt.int64, (3,))
    output = layer.get_output(0)
    output.name = "present"
    net.network.mark_output(output)
    return net


def built(net, **options):
    return trt.build(net.network, timing=False, device=CPU, **options)


def test_writes_in_place():
    """As programs for TensorRT bind it: the output has the cache's address."""
    engine = built(network_of(2)).engine
    assert engine.get_aliased_input_tensor("present") == "cache"
    context = engine.create_execution_context()
    rng = np.random.default_rng(0)
    cache = rng.normal(size=CACHE).astype(np.float32)
    expected = cache
    update = np.empty((2, 3, 2, 4), np.float32)
    at = np.empty(2, np.int32)
    for name, array in (("cache", cache), ("present", cache), ("update", update), ("at", at)):
        context.set_tensor_address(name, array.ctypes.data)
    for first in ([0, 3], [2, 5], [4, 7]):
        expected = updated(expected, new := rng.normal(size=update.shape).astype("f4"), first)
        update[:], at[:] = new, first
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(cache, expected)


def test_tokens_without_room_are_left_out():
    engine = built(network_of(3))
    rng = np.random.default_rng(1)
    cache = rng.normal(size=CACHE).astype(np.float32)
    update = rng.normal(size=(2, 3, 3, 4)).astype(np.float32)
    for first in ([6, 7], [8, 100], [0, 2**31 - 1]):
        made = engine(cache=cache.copy(), update=update, at=np.array(first, np.int32))
        np.testing.assert_array_equal(made, updated(cache, update, first))


def test_packed_updates():
    engine = built(
        network_of(0, packed=True),
        shapes={"update": ((1, 3, 4), (4, 3, 4), (9, 3, 4))},
    )
    rng = np.random.default_rng(2)
    cache = rng.normal(size=CACHE).astype(np.float32)
    update = rng.normal(size=(5, 3, 4)).astype(np.float32)
    lengths, at = np.array([0, 2, 5]), np.array([1, 4], np.int32)
    made = engine(cache=cache.copy(), update=update, at=at, lengths=lengths)
    expected = cache.copy()
    expected[0, :, 1:3] = update[:2].transpose(1, 0, 2)
    expected[1, :, 4:7] = update[2:].transpose(1, 0, 2)
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("is_output", [True, False])
def test_a_cache_that_a_layer_makes(is_output):
    net = Net()
    made = net.network.add_cumulative(
        net.input("cache", trt.float32, CACHE),
        net.network.add_constant((), np.array(3, np.int32)).get_output(0),
        trt.CumulativeOperation.SUM,
        False,
        False,
    ).get_output(0)
    update = net.input("update", trt.float32, (2, 3, 2, 4))
    at = net.input("at", trt.int32, (2,))
    layer = net.network.add_kv_cache_update(made, update, at, trt.KVCacheMode.LINEAR)
    y = layer.get_output(0)
    if not is_output:
        y = net.network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
    net.network.mark_output(y)
    rng = np.random.default_rng(4)
    cache = rng.normal(size=CACHE).astype(np.float32)
    new = rng.normal(size=(2, 3, 2, 4)).astype(np.float32)
    got = built(net)(cache=cache, update=new, at=np.array([1, 5], np.int32))
    expected = updated(np.cumsum(cache, axis=3), new, [1, 5])
    np.testing.assert_allclose(got, expected if is_output else -expected, atol=1e-5)


def test_attention_over_a_cache():
    """Decoding token by token gives what attention over all tokens at once gives."""
    net = Net()
    heads, room, size = 2, 6, 4
    q, k, v = (net.input(n, trt.float32, (1, heads, 1, size)) for n in "qkv")
    at, length = net.input("at", trt.int32, (1,)), net.input("length", trt.int32, (1,))
    presents = []
    for name, new in (("ck", k), ("cv", v)):
        cache = net.input(name, trt.float32, (1, heads, room, size))
        update = net.network.add_kv_cache_update(cache, new, at, trt.KVCacheMode.LINEAR)
        presents.append(update.get_output(0))
    attention = net.network.add_attention_v2(
        q, *presents, trt.AttentionNormalizationOp.SOFTMAX, trt.CausalMaskKind.NONE
    )
    attention.key_value_lengths = length
    for name, tensor in (("y", attention.get_output(0)), ("pk", presents[0]), ("pv", presents[1])):
        tensor.name = name
        net.network.mark_output(tensor)
    context = built(net).engine.create_execution_context()
    rng = np.random.default_rng(3)
    tokens = {n: rng.normal(size=(1, heads, room, size)).astype(np.float32) for n in "qkv"}
    arrays = {n: np.zeros((1, heads, room, size), np.float32) for n in ("ck", "cv")}
    arrays |= {n: np.empty((1, heads, 1, size), np.float32) for n in "qkvy"}
    arrays |= {"at": np.empty(1, np.int32), "length": np.empty(1, np.int32)}
    arrays |= {"pk": arrays["ck"], "pv": arrays["cv"]}
    for name, array in arrays.items():
        context.set_tensor_address(name, array.ctypes.data)
    for step in range(room):
        for n in "qkv":
            arrays[n][:] = tokens[n][:, :, step : step + 1]
        arrays["at"][:], arrays["length"][:] = step, step + 1
        assert context.execute_async_v3(0)
        scores = np.einsum("bhqd,bhkd->bhqk", arrays["q"], tokens["k"][:, :, : step + 1])
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        expected = np.einsum("bhqk,bhkd->bhqd", weights, tokens["v"][:, :, : step + 1])
        np.testing.assert_allclose(arrays["y"], expected, rtol=1e-4, atol=1e-5)


def test_errors():
    net = Net()
    cache = net.input("cache", trt.float32, CACHE)
    at = net.input("at", trt.int32, (2,))
    update = net.input("update", trt.float32, (2, 4, 1, 4))
    layer = net.network.add_kv_cache_update(cache, update, at, trt.KVCacheMode.LINEAR)
    with pytest.raises(trt.Error, match="input 1 .update.*heads of the cache"):
        _ = layer.get_output(0).shape
