"""Fourier transforms, windows and random choices of ONNX, against NumPy."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import opwright as trt
from onnx_graphs import FLOAT, INT64, model


def engine_of(node, inputs, constants=None, shapes=None, opset=20):
    made = model([node], inputs, ["y"], constants, opset)
    return trt.build(made.SerializeToString(), timing=False, shapes=shapes)


def as_parts(z):
    return np.stack([z.real, z.imag], -1)


def transform(x, axis, length, inverse, onesided):
    """x and the result with their parts in the last axis."""
    z = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if inverse and onesided:
        return np.fft.irfft(z, length, axis)[..., None]
    if inverse:
        return as_parts(np.fft.ifft(z, length, axis))
    y = np.fft.fft(z, length, axis)
    if onesided:
        y = np.take(y, range(y.shape[axis] // 2 + 1), axis)
    return as_parts(y)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("length", [None, 7, 12])
@pytest.mark.parametrize(
    "parts, inverse, onesided",
    [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1), (1, 1, 0)],
)
@pytest.mark.parametrize("opset", [17, 20])
def test_dft(opset, parts, inverse, onesided, length, axis):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 9, 10, parts)).astype(np.float32)
    attributes = {"inverse": inverse, "onesided": onesided}
    constants = {}
    if length is not None:
        constants["length"] = np.array(length)
    names = ["x", "length" if length is not None else ""]
    if opset < 20:
        attributes["axis"] = axis
    else:
        names.append("axis")
        constants["axis"] = np.array(axis - 4)
    node = helper.make_node("DFT", names, ["y"], **attributes)
    dims = ["n", 9, 10, parts]
    engine = engine_of(
        node,
        {"x": (FLOAT, dims)},
        constants,
        {"x": ((1, *dims[1:]), (2, *dims[1:]), (3, *dims[1:]))},
        opset,
    )
    want = transform(x.astype(np.float64), axis, length, inverse, onesided)
    np.testing.assert_allclose(engine(x), want, rtol=1e-4, atol=1e-4)


# One factor of the length, two, three with a remainder in the last one, and a prime number.
@pytest.mark.parametrize(
    "length, given", [(64, 64), (400, 400), (1001, 900), (4096, 5000), (131, 131)]
)
@pytest.mark.parametrize(
    "parts, inverse, onesided",
    [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1), (1, 1, 0)],
)
def test_long_dft(parts, inverse, onesided, length, given):
    x = np.random.default_rng(1).standard_normal((3, given, 2, parts)).astype(np.float32)
    if inverse and onesided:
        x = x[:, : given // 2 + 1]
    node = helper.make_node(
        "DFT", ["x", "length", "axis"], ["y"], inverse=inverse, onesided=onesided
    )
    constants = {"length": np.array(length), "axis": np.array(1)}
    engine = engine_of(node, {"x": (FLOAT, list(x.shape))}, constants)
    want = transform(x.astype(np.float64), 1, length, inverse, onesided)
    np.testing.assert_allclose(engine(x), want, rtol=0, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize("length, step", [(8, 3), (160, 50)])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("has_window", [False, True])
def test_stft(has_window, onesided, length, step):
    constants = {"step": np.array(step), "length": np.array(length)}
    if has_window:
        constants["window"] = np.hanning(length).astype(np.float32)
    node = helper.make_node(
        "STFT",
        ["x", "step", "window" if has_window else "", "length"],
        ["y"],
        onesided=onesided,
    )
    counts = (length, length + 4 * step, length + 11 * step - 1)
    engine = engine_of(
        node, {"x": (FLOAT, [2, "t", 1])}, constants, {"x": tuple((2, n, 1) for n in counts)}, 17
    )
    for count in counts:
        x = np.random.default_rng(count).standard_normal((2, count, 1)).astype(np.float32)
        frames = [x[:, i : i + length] for i in range(0, count - length + 1, step)]
        frames = np.stack(frames, 1).astype(np.float64)
        if has_window:
            frames = frames * constants["window"][:, None]
        want = transform(frames, 2, None, 0, onesided)
        np.testing.assert_allclose(engine(x), want, rtol=1e-4, atol=1e-4)


def test_a_spectrum_is_an_output_by_its_exported_name():
    node = helper.make_node(
        "STFT", ["x", "step", "", "length"], ["/stft/STFT_output_0"], name="/stft/STFT"
    )
    constants = {"step": np.array(3), "length": np.array(8)}
    made = model([node], {"x": (FLOAT, [1, 20, 1])}, ["/stft/STFT_output_0"], constants, 17)
    engine = trt.build(made.SerializeToString(), timing=False)
    assert engine.outputs == ["/stft/STFT_output_0"]
    x = np.random.default_rng(1).standard_normal((1, 20, 1)).astype(np.float32)
    frames = np.stack([x[:, i : i + 8] for i in range(0, 13, 3)], 1)
    want = transform(frames.astype(np.float64), 2, None, 0, 1)
    np.testing.assert_allclose(engine(x), want, rtol=1e-4, atol=1e-4)


def test_what_a_transform_needs():
    node = helper.make_node("DFT", ["x"], ["y"])
    with pytest.raises(trt.Error, match="expected 1 for real numbers or 2 for complex ones"):
        engine_of(node, {"x": (FLOAT, [2, 5, 3])})
    with pytest.raises(trt.Error, match="axis 1 of 'x' must have a constant extent"):
        engine_of(node, {"x": (FLOAT, [2, "n", 2])}, None, {"x": ((2, 1, 2), (2, 2, 2), (2, 3, 2))})
    with pytest.raises(trt.Error, match="needs a matrix of 100003 x 200006, since its factors"):
        engine_of(node, {"x": (FLOAT, [1, 100_003, 1])})


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("kind", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("output", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_windows_of_extents_that_are_open(output, kind, periodic):
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Squeeze", ["shape"], ["size"]),
        helper.make_node(kind, ["size"], ["y"], periodic=periodic, output_datatype=output),
    ]
    made = model(nodes, {"x": (FLOAT, ["n"])}, ["y"])
    engine = trt.build(made.SerializeToString(), timing=False, shapes={"x": ((2,), (10,), (50,))})
    for n in (2, 10, 33):
        x = np.zeros(n, np.float32)
        want = ReferenceEvaluator(made).run(None, {"x": x})[0]
        np.testing.assert_allclose(engine(x), want, atol=3e-3 if output != FLOAT else 2e-6)


def test_bernoulli_is_as_likely_as_it_is_told():
    node = helper.make_node("Bernoulli", ["x"], ["y"], dtype=TensorProto.INT32, seed=3.0)
    engine = engine_of(node, {"x": (FLOAT, [4, 20000])}, opset=15)
    chances = np.float32([0, 0.25, 0.75, 1])
    got = engine(np.repeat(chances[:, None], 20000, 1))
    assert got.dtype == np.int32
    assert set(np.unique(got)) == {0, 1}
    np.testing.assert_allclose(got.mean(1), chances, atol=0.02)


def test_multinomial_is_as_likely_as_it_is_told():
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=20000, dtype=INT64, seed=1.0)
    engine = engine_of(node, {"x": (FLOAT, [2, 3])}, opset=15)
    chances = np.float32([[0.2, 0.5, 0.3], [0.9, 0, 0.1]])
    with np.errstate(divide="ignore"):
        got = engine(np.log(chances) + np.float32([[3], [-2]]))
    assert got.shape == (2, 20000)
    assert got.dtype == np.int64
    for row, want in zip(got, chances):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 20000, want, atol=0.02)
