"""MatMulNBits, whose weights stay packed, against ONNX Runtime and the numbers in double precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import emulated_gpu
import opwright
from nets import loaded
from onnx_graphs import as_list


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes along the last axis as bytes, the first in the lowest bits; filled up with zeros."""
    per_byte = 8 // bits
    missing = -codes.shape[-1] % per_byte
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    codes = codes.reshape(*codes.shape[:-1], -1, per_byte).astype(np.uint8)
    return np.bitwise_or.reduce(codes << (np.arange(per_byte) * bits).astype(np.uint8), axis=-1)


class Product:
    def __init__(self, rows, columns, bits=4, block=32, zeros=None, bias=False, dtype=np.float32):
        rng = np.random.default_rng(rows + columns + bits)
        blocks = -(-columns // block)
        self.rows, self.columns, self.bits, self.block = rows, columns, bits, block
        self.codes = rng.integers(0, 1 << bits, (rows, blocks * block)).astype(np.uint8)
        self.scales = rng.uniform(0.01, 0.05, (rows, blocks)).astype(dtype)
        self.zeros = None
        if zeros == "packed":
            self.zeros = rng.integers(0, 1 << bits, (rows, blocks)).astype(np.uint8)
        elif zeros == "numbers":
            self.zeros = rng.uniform(0, 1 << bits, (rows, blocks)).astype(dtype)
        self.bias = rng.normal(size=rows).astype(dtype) if bias else None
        self.dtype = np.dtype(dtype)

    def weights(self) -> np.ndarray:
        zeros = float(1 << (self.bits - 1)) if self.zeros is None else self.zeros.astype(float)
        spread = np.repeat(np.broadcast_to(zeros, self.scales.shape), self.block, 1)
        numbers = (self.codes - spread) * np.repeat(self.scales.astype(float), self.block, 1)
        return numbers[:, : self.columns]

    def expected(self, a: np.ndarray) -> np.ndarray:
        y = a.astype(float) @ self.weights().T
        return y if self.bias is None else y + self.bias.astype(float)

    def model(self, shape, constant=True, rank_of_codes=3, **attributes) -> bytes:
        zeros = self.zeros
        if zeros is not None and zeros.dtype == np.uint8:
            zeros = pack(zeros, self.bits)
        codes = pack(self.codes.reshape(self.rows, -1, self.block), self.bits)
        given = {
            "B": codes if rank_of_codes == 3 else codes.reshape(self.rows, -1),
            "scales": self.scales,
            "zero_points": zeros,
            "bias": self.bias,
        }
        self.given = {k: v for k, v in given.items() if v is not None}
        names = ["A", "B", "scales", "zero_points" if zeros is not None else "", ""]
        names.append("bias" if self.bias is not None else "")
        while not names[-1]:
            names.pop()
        attributes = {
            "K": self.columns,
            "N": self.rows,
            "bits": self.bits,
            "block_size": self.block,
            **attributes,
        }
        node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attributes)
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        inputs = [helper.make_tensor_value_info("A", kind, shape)]
        tensors = []
        for name, value in self.given.items():
            of = helper.np_dtype_to_tensor_dtype(value.dtype)
            if constant:
                tensors.append(numpy_helper.from_array(value, name))
            else:
                inputs.append(helper.make_tensor_value_info(name, of, value.shape))
        graph = helper.make_graph(
            [node], "net", inputs, [helper.make_tensor_value_info("y", kind, None)], tensors
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def check(product: Product, *shape, device="cpu", tolerance=1e-5, **options):
    model = product.model(shape)
    engine = opwright.build(model, timing=False, device=device, **options)
    a = np.random.default_rng(1).normal(size=shape).astype(product.dtype)
    got = as_list(engine(A=a))[0]
    wanted = product.expected(a)
    assert got.shape == wanted.shape and got.dtype == product.dtype
    np.testing.assert_allclose(
        got.astype(float), wanted, rtol=0, atol=tolerance * np.abs(wanted).max()
    )
    return model, a, got


def runtime(model: bytes, a: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"A": a})[0]


# Vectors one by one, weights unpacked for all of them, and both borders.
VECTORS = [1, 2, 7, 8, 9, 33]


@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("zeros", [None, "packed", "numbers"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bits(bits, zeros, vectors):
    check(Product(37, 160, bits, 32, zeros, bias=True), vectors, 160)


@pytest.mark.parametrize("vectors", [1, 10])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256, 1024])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_blocks(bits, block, vectors):
    """Columns that do not fill their last block, and blocks larger than they are."""
    check(Product(9, 200, bits, block, "packed"), vectors, 200)


@pytest.mark.parametrize("vectors", [1, 128])
@pytest.mark.parametrize("zeros", [None, "packed", "numbers"])
def test_against_onnx_runtime(zeros, vectors):
    product = Product(512, 1024, 4, 32, zeros, bias=True)
    model, a, got = check(product, vectors, 1024)
    np.testing.assert_allclose(got, runtime(model, a), rtol=0, atol=1e-4 * np.abs(got).max())


def test_8_bits_against_onnx_runtime():
    product = Product(64, 256, 8, 32, "packed")
    model, a, got = check(product, 3, 256)
    np.testing.assert_allclose(got, runtime(model, a), rtol=0, atol=1e-4 * np.abs(got).max())


@pytest.mark.parametrize("vectors", [1, 12])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_other_types(dtype, vectors):
    check(Product(40, 96, 4, 32, "numbers", True, dtype), vectors, 96, tolerance=1e-2)


def test_batches_and_open_extents():
    product = Product(20, 64, bias=True)
    model = product.model(["batch", "length", 64])
    engine = opwright.build(
        model, timing=False, device="cpu", shapes={"A": ((0, 1, 64), (2, 3, 64), (4, 40, 64))}
    )
    for batch, length in [(1, 1), (2, 3), (4, 40), (0, 5)]:
        a = np.random.default_rng(batch).normal(size=(batch, length, 64)).astype(np.float32)
        np.testing.assert_allclose(
            as_list(engine(A=a))[0], product.expected(a), rtol=1e-4, atol=1e-4
        )


def test_weights_that_are_inputs():
    product = Product(24, 96, 4, 32, "packed", bias=True)
    engine = opwright.build(product.model((3, 96), constant=False), timing=False, device="cpu")
    a = np.random.default_rng(1).normal(size=(3, 96)).astype(np.float32)
    got = as_list(engine(A=a, **product.given))[0]
    np.testing.assert_allclose(got, product.expected(a), rtol=1e-4, atol=1e-4)


def test_the_engine_has_the_packed_weights():
    product = Product(1024, 2048)
    engine = opwright.build(product.model((1, 2048)), timing=False, device="cpu")
    packed = product.codes.size // 2 + product.scales.nbytes
    size = len(memoryview(engine.engine.serialize()))
    assert packed < size < packed + 50_000  # as numbers they would take 8 MB


def test_refit():
    """Codes and scales of an engine can be exchanged."""
    first, other = Product(24, 96), Product(24, 96)
    other.codes = (15 - first.codes).astype(np.uint8)
    other.scales = first.scales * np.float32(2)
    logger = opwright.Logger(opwright.Logger.ERROR)
    builder = opwright.Builder(logger)
    config = builder.create_builder_config()
    config.default_device_type = opwright.DeviceType.CPU
    config.set_flag(opwright.BuilderFlag.REFIT)
    network = builder.create_network()
    assert opwright.OnnxParser(network, logger).parse(first.model((2, 96)))
    engine = loaded(builder.build_serialized_network(network, config))
    a = np.random.default_rng(1).normal(size=(2, 96)).astype(np.float32)
    np.testing.assert_allclose(as_list(engine(A=a))[0], first.expected(a), rtol=1e-4, atol=1e-4)
    refitter = opwright.Refitter(engine.engine, logger)
    parser = opwright.OnnxParserRefitter(refitter, logger)
    assert parser.refit_from_bytes(other.model((2, 96)))
    assert refitter.refit_cuda_engine()
    np.testing.assert_allclose(as_list(engine(A=a))[0], other.expected(a), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "attributes, message",
    [
        ({"bits": 3}, "2, 4 or 8"),
        ({"block_size": 24}, "power of two"),
        ({"N": 0}, "expected 1 to"),
        ({"N": 25}, "B has the shape"),
        ({"K": 200}, "B has the shape"),
    ],
)
def test_errors(attributes, message):
    with pytest.raises(opwright.Error, match=message):
        opwright.build(Product(24, 96).model((2, 96), **attributes), device="cpu")


def test_too_few_scales_are_refused():
    product = Product(24, 96)
    product.scales = product.scales[:-1]
    with pytest.raises(opwright.Error, match="scales has the shape .*72 elements"):
        opwright.build(product.model((2, 96)), device="cpu")


@emulated_gpu.required
@pytest.mark.parametrize("vectors", [1, 11])
@pytest.mark.parametrize("zeros", [None, "packed", "numbers"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_on_a_gpu(bits, zeros, vectors):
    check(Product(21, 100, bits, 32, zeros, bias=True), vectors, 100, device="cuda")


@emulated_gpu.required
def test_halves_and_open_extents_on_a_gpu():
    product = Product(21, 96, 4, 16, "packed", False, np.float16)
    engine = opwright.build(
        product.model(["n", 96]),
        timing=False,
        device="cuda",
        shapes={"A": ((1, 96), (4, 96), (40, 96))},
    )
    for vectors in (1, 9, 40):
        a = np.random.default_rng(vectors).normal(size=(vectors, 96)).astype(np.float16)
        np.testing.assert_allclose(
            as_list(engine(A=a))[0].astype(float), product.expected(a), rtol=0, atol=2e-2
        )


@emulated_gpu.required
@pytest.mark.parametrize("vectors", [1, 3])
@pytest.mark.parametrize("bits, block", [(2, 16), (2, 256), (8, 16)])
def test_blocks_on_a_gpu(bits, block, vectors):
    check(Product(6, 72, bits, block, "packed"), vectors, 72, device="cuda")
