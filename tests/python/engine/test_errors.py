"""Bad input to the Python API: a clear error, no crash, and everything stays usable afterwards."""

from __future__ import annotations

import io
import struct

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opwright
from small_models import convolution, model, two_inputs

X = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)


def reference(proto: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def assert_works(engine: opwright.Engine, x: np.ndarray = X, channels: int = 4) -> None:
    batch = x.shape[0]
    expected = reference(convolution("n", channels), x=x)[0]
    assert expected.shape[0] == batch
    np.testing.assert_allclose(engine(x), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def engine() -> opwright.Engine:
    return opwright.build(convolution(), timing=False)


@pytest.fixture(scope="module")
def dynamic() -> opwright.Engine:
    ranges = {"x": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}
    return opwright.build(convolution("n"), shapes=ranges, timing=False)


@pytest.fixture(scope="module")
def engine_bytes(engine, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("engine") / "small.engine"
    engine.save(path)
    return path.read_bytes()


class Errors(opwright.ILogger):
    """Keeps what is logged as an error."""

    def __init__(self):
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity, msg):
        if severity <= opwright.ILogger.ERROR:
            self.messages.append(msg)


# Model files


def test_missing_model(tmp_path):
    with pytest.raises(opwright.Error, match=r"nowhere\.onnx.*No such file"):
        opwright.build(tmp_path / "nowhere.onnx")


def test_folder_as_model(tmp_path):
    with pytest.raises(opwright.Error, match="Is a directory"):
        opwright.build(tmp_path)


def png() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"This is a text.\n" * 20, png(), b"\xff" * 64, b"PK\x03\x04" + b"\0" * 60],
    ids=["empty", "zeros", "text", "png", "ones", "zip"],
)
def test_file_that_is_no_model(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for source in (path, content):
        with pytest.raises(opwright.Error, match="ONNX"):
            opwright.build(source)


def test_model_truncated_at_every_length():
    whole = convolution(channels=2).SerializeToString()
    for length in range(len(whole)):
        with pytest.raises(opwright.Error, match="ONNX"):
            opwright.build(whole[:length])
    assert opwright.build(whole, timing=False)(X).shape == (1, 2, 8, 8)


def test_every_unknown_operator_is_listed_with_its_node():
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="after_the_first"),
        helper.make_node("Whirl", ["x"], ["c"], name="second", domain="com.example"),
        helper.make_node("Twist", ["x"], ["d"]),
        helper.make_node("Sum", ["b", "c", "d"], ["y"], name="sum"),
    ]
    shape = [2]
    proto = model(nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)])
    with pytest.raises(opwright.Error) as problem:
        opwright.build(proto)
    message = str(problem.value)
    for part in ("'first'", "'Frobnicate'", "'second'", "'Whirl'", "com.example", "'Twist'"):
        assert part in message
    # What only follows from these is not reported again.
    assert "after_the_first" not in message and "'sum'" not in message

    logger = Errors()
    builder = opwright.Builder(logger)
    parser = opwright.OnnxParser(builder.create_network(), logger)
    assert not parser.parse(proto.SerializeToString())
    assert [parser.get_error(i).node() for i in range(parser.num_errors)] == [0, 2, 3]
    assert [parser.get_error(i).node_operator() for i in range(parser.num_errors)] == [
        "Frobnicate",
        "Whirl",
        "Twist",
    ]
    assert len(logger.messages) == 3
    with pytest.raises(IndexError):
        parser.get_error(3)
    # The same builder takes a good model.
    network = builder.create_network()
    assert opwright.OnnxParser(network, logger).parse(convolution().SerializeToString())
    config = builder.create_builder_config()
    config.timing = False
    assert_works(opwright.Engine(builder.build_engine_with_config(network, config)))


def test_plugin_that_is_not_registered():
    node = helper.make_node(
        "unheard_of", ["x"], ["y"], name="mine", plugin_namespace="nobody", plugin_version="7"
    )
    proto = model([node], [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
    with pytest.raises(opwright.Error, match=r"'mine'.*'unheard_of'.*register"):
        opwright.build(proto)


@pytest.mark.parametrize(
    "node, message",
    [
        (helper.make_node("Conv", ["x", "w"], ["y"], name="n", pads=[1, 1]), "pads"),
        (helper.make_node("Conv", ["x", "w"], ["y"], name="n", group=7), "n"),
        (helper.make_node("Concat", ["x", "x"], ["y"], name="n", axis=9), "axis 9"),
        (helper.make_node("Concat", ["x", "x"], ["y"], name="n"), "axis"),
        (helper.make_node("Relu", ["nobody"], ["y"], name="n"), "'nobody'"),
        (helper.make_node("Relu", [], ["y"], name="n"), "input 0 is missing"),
        (helper.make_node("Cast", ["x"], ["y"], name="n", to=99), "element type 99"),
        (helper.make_node("MatMul", ["x", "w"], ["y"], name="n"), "n"),
        (helper.make_node("Flatten", ["x"], ["y"], name="n", axis=5), "axis 5"),
        (helper.make_node("Transpose", ["x"], ["y"], name="n", perm=[0, 0, 1, 2]), "n"),
        (helper.make_node("Softmax", ["x"], ["y"], name="n", axis="text"), "axis"),
        (helper.make_node("DepthToSpace", ["x"], ["y"], name="n", blocksize=2**40), "blocksize"),
        (helper.make_node("Split", ["x"], [], name="n"), "output 'y'|n"),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)
def test_node_that_cannot_be(node, message):
    weights = {"w": np.zeros((4, 3, 3, 3), np.float32)}
    proto = model(
        [node], [("x", TensorProto.FLOAT, [1, 3, 8, 8])], [("y", TensorProto.FLOAT, None)], weights
    )
    with pytest.raises(opwright.Error, match=message):
        opwright.build(proto)


def test_external_data_outside_of_the_models_folder(tmp_path):
    proto = convolution()
    tensor = proto.graph.initializer[0]
    data = bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    location = tensor.external_data.add()
    location.key = "location"
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(data)
    for path in ("../secret.bin", "a/../../secret.bin", str(tmp_path / "secret.bin"), ""):
        location.value = path
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        with pytest.raises(opwright.Error, match="beside the model"):
            opwright.build(folder / "m.onnx")
    location.value = "weights.bin"
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(opwright.Error, match=r"weights\.bin.*No such file"):
        opwright.build(folder / "m.onnx")
    (folder / "weights.bin").write_bytes(data[:-1])
    with pytest.raises(opwright.Error, match=f"{len(data) - 1} bytes.*needs {len(data)}"):
        opwright.build(folder / "m.onnx")
    with pytest.raises(opwright.Error, match="given as bytes"):
        opwright.build(proto)
    (folder / "weights.bin").write_bytes(data)
    assert_works(opwright.build(folder / "m.onnx", timing=False))


HUGE = 1 << 40


@pytest.mark.parametrize(
    "op, shape",
    [("ConstantOfShape", [HUGE]), ("Expand", [HUGE]), ("Tile", [HUGE]), ("Range", [0])],
)
def test_small_file_that_declares_huge_tensors(op, shape):
    constants = {
        "shape": np.array(shape, np.int64),
        "one": np.ones(1, np.float32),
        "zero": np.int64(0),
        "huge": np.int64(HUGE),
        "step": np.int64(1),
    }
    inputs = {
        "ConstantOfShape": ["shape"],
        "Expand": ["one", "shape"],
        "Tile": ["one", "shape"],
        "Range": ["zero", "huge", "step"],
    }[op]
    nodes = [
        helper.make_node(op, inputs, ["big"], name="big"),
        helper.make_node("Cast", ["big"], ["z"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["z", "x"], ["y"], name="add"),
    ]
    proto = model(
        nodes,
        [("x", TensorProto.FLOAT, [1])],
        [("y", TensorProto.FLOAT, None)],
        {name: np.asarray(value) for name, value in constants.items()},
    )
    with pytest.raises(opwright.Error, match="'big'|allocate"):
        opwright.build(proto)


# Calls


def test_call_with_wrong_inputs(engine):
    wrong = [
        (lambda: engine(), r"input 'x' .*is missing"),
        (lambda: engine(X, X), r"takes 1 input: 'x'"),
        (lambda: engine(z=X), r"no input 'z'.*'x'"),
        (lambda: engine(X, x=X), r"'x' .*was given twice"),
        (lambda: engine(X.astype(np.float64)), r"'x' is FP32.*float64"),
        (lambda: engine(X.astype(np.int32)), r"'x' is FP32.*int32"),
        (lambda: engine(X[0]), r"'x'.*3x8x8"),
        (lambda: engine(X[:, :, :7]), r"1x3x7x8.*'x'"),
        (lambda: engine(np.concatenate([X, X])), r"2x3x8x8.*'x'"),
    ]
    for call, message in wrong:
        with pytest.raises(opwright.Error, match=message):
            call()
        assert_works(engine)
    for nothing in (None, object(), "text"):
        with pytest.raises((opwright.Error, TypeError, ValueError)):
            engine(nothing)
        assert_works(engine)


def test_call_with_two_inputs():
    engine = opwright.build(two_inputs(), timing=False)
    a, b = np.ones((2, 3), np.float32), np.full((2, 3), 3, np.float32)
    with pytest.raises(opwright.Error, match="input 'b' .*is missing"):
        engine(a)
    with pytest.raises(opwright.Error, match="input 'a' .*is missing"):
        engine(b=b)
    result = engine(b=b, a=a)
    assert list(result) == ["total", "difference"]
    np.testing.assert_array_equal(result["difference"], a - b)


def test_shape_outside_of_the_profile(dynamic):
    for batch in (0, 5, 1000):
        with pytest.raises(opwright.Error, match=rf"{batch}x3x8x8.*'x'"):
            dynamic(np.zeros((batch, 3, 8, 8), np.float32))
        assert_works(dynamic, np.concatenate([X] * 3))
        assert_works(dynamic, X)


def test_missing_and_wrong_profiles():
    with pytest.raises(opwright.Error, match="'x'.*shapes="):
        opwright.build(convolution("n"))
    wrong = [
        ({"nobody": (1, 3, 8, 8)}, "nobody"),
        ({"x": (3, 8, 8)}, "'x'"),
        ({"x": ((4, 3, 8, 8), (2, 3, 8, 8), (1, 3, 8, 8))}, "'x'"),
        ({"x": (1, 4, 8, 8)}, "'x'"),
        ({"x": (-1, 3, 8, 8)}, "'x'"),
    ]
    for shapes, message in wrong:
        with pytest.raises(opwright.Error, match=message):
            opwright.build(convolution("n"), shapes=shapes, timing=False)
    assert_works(opwright.build(convolution("n"), shapes={"x": (1, 3, 8, 8)}, timing=False))


def test_context_with_wrong_use(dynamic):
    context = dynamic.engine.create_execution_context()
    out = np.empty((2, 4, 8, 8), np.float32)
    x = np.ascontiguousarray(np.concatenate([X, X]))
    with pytest.raises(opwright.Error, match="'x'"):
        context.execute_async_v3(0)  # no shape, no addresses
    with pytest.raises(opwright.Error, match="no input or output 'z'"):
        context.set_input_shape("z", (2, 3, 8, 8))
    with pytest.raises(opwright.Error, match="'y' is an output"):
        context.set_input_shape("y", (2, 4, 8, 8))
    with pytest.raises(opwright.Error, match="9x3x8x8.*'x'"):
        context.set_input_shape("x", (9, 3, 8, 8))
    with pytest.raises(opwright.Error, match="profile 3"):
        context.set_optimization_profile_async(3, 0)
    context.set_input_shape("x", (2, 3, 8, 8))
    with pytest.raises(opwright.Error, match="address of input 'x'"):
        context.execute_async_v3(0)
    context.set_tensor_address("x", x.ctypes.data)
    with pytest.raises(opwright.Error, match="address of output 'y'"):
        context.execute_async_v3(0)
    with pytest.raises(opwright.Error, match="aligned"):
        context.set_tensor_address("y", out.ctypes.data + 1)
    with pytest.raises(opwright.Error, match="1 addresses; expected 2"):
        context.execute_v2([x.ctypes.data])
    context.set_tensor_address("y", out.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(out, reference(convolution("n"), x=x)[0], rtol=1e-4, atol=1e-5)


# Engine files


def test_missing_engine(tmp_path):
    with pytest.raises(opwright.Error, match=r"nowhere\.engine.*No such file"):
        opwright.load(tmp_path / "nowhere.engine")


@pytest.mark.parametrize(
    "content", [b"", b"short", b"\0" * 4096, png()], ids=["empty", "short", "zeros", "png"]
)
def test_file_that_is_no_engine(tmp_path, content):
    path = tmp_path / "some.engine"
    path.write_bytes(content)
    with pytest.raises(opwright.Error, match=r"some\.engine"):
        opwright.load(path)


def test_onnx_file_given_as_engine(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(convolution(), path)
    with pytest.raises(opwright.Error, match=r"model\.onnx"):
        opwright.load(path)


def test_engine_truncated_at_many_lengths(tmp_path, engine_bytes):
    runtime = opwright.Runtime(Errors())
    lengths = {*range(0, len(engine_bytes), 97), *range(256), len(engine_bytes) - 1}
    for length in sorted(lengths):
        with pytest.raises(opwright.Error):
            runtime.deserialize_cuda_engine(engine_bytes[:length])
    assert_works(opwright.Engine(runtime.deserialize_cuda_engine(engine_bytes)))


def test_engine_with_bytes_behind_its_end(engine_bytes):
    with pytest.raises(opwright.Error):
        opwright.Runtime(Errors()).deserialize_cuda_engine(engine_bytes + b"\0")


def test_engine_with_one_bit_changed_anywhere(engine_bytes):
    runtime = opwright.Runtime(Errors())
    rng = np.random.default_rng(3)
    places = {*range(256), *rng.integers(0, len(engine_bytes), 1500).tolist()}
    for place in sorted(places):
        damaged = bytearray(engine_bytes)
        damaged[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(opwright.Error):
            runtime.deserialize_cuda_engine(bytes(damaged))
    assert_works(opwright.Engine(runtime.deserialize_cuda_engine(engine_bytes)))


def test_engine_of_another_format_version(engine_bytes):
    # The version follows the 8 bytes of the magic.
    version = struct.unpack_from("<I", engine_bytes, 8)[0]
    other = bytearray(engine_bytes)
    struct.pack_into("<I", other, 8, version + 1)
    with pytest.raises(opwright.Error, match="version"):
        opwright.Runtime(Errors()).deserialize_cuda_engine(bytes(other))


def test_damaged_timing_cache(tmp_path):
    path = tmp_path / "times.cache"
    opwright.build(convolution(), timing_cache=path)
    whole = path.read_bytes()
    for content in (b"", whole[:9], whole[: len(whole) // 2], whole[:-1] + b"x"):
        path.write_bytes(content)
        assert_works(opwright.build(convolution(), timing_cache=path))
        assert path.read_bytes() != content
    for content in (b"no cache", whole[::-1]):
        path.write_bytes(content)
        with pytest.raises(opwright.Error, match="is no timing cache"):
            opwright.build(convolution(), timing_cache=path)
        assert path.read_bytes() == content


# Networks


def test_layers_that_cannot_be():
    builder = opwright.Builder(Errors())
    network = builder.create_network()
    x = network.add_input("x", opwright.float32, (2, 3))
    with pytest.raises(opwright.Error, match="'x'"):
        network.add_input("x", opwright.float32, (2, 3))
    y = network.add_input("y", opwright.float32, (5, 7))
    foreign = builder.create_network().add_input("x", opwright.float32, (2, 3))
    with pytest.raises(opwright.Error, match="'x' belongs to another network"):
        network.add_elementwise(x, foreign, opwright.ElementWiseOperation.SUM)
    assert network.num_layers == 0
    layer = network.add_elementwise(x, y, opwright.ElementWiseOperation.SUM)
    layer.name = "sum"
    total = layer.get_output(0)
    total.name = "total"
    network.mark_output(total)
    config = builder.create_builder_config()
    config.timing = False
    with pytest.raises(opwright.Error, match="ElementWise 'sum': .* does not broadcast"):
        builder.build_engine_with_config(network, config)
    layer.set_input(1, x)
    engine = opwright.Engine(builder.build_engine_with_config(network, config))
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(engine(x=a, y=np.zeros((5, 7), np.float32)), 2 * a)


def test_tensor_with_more_data_than_its_shape():
    proto = convolution()
    proto.graph.initializer[0].dims[0] = 5
    with pytest.raises(opwright.Error, match="'w'.*bytes"):
        opwright.build(proto)
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "b")
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0])
    tensor.int32_data.extend([1, 2, 3, 4])  # two fields at once
    proto = convolution()
    proto.graph.initializer[1].CopyFrom(tensor)
    with pytest.raises(opwright.Error, match="'b'"):
        opwright.build(proto)


def test_progress_callback_that_cancels_or_raises():
    with pytest.raises(opwright.Error, match="cancel"):
        opwright.build(convolution(), progress=lambda phase, done, total: False)

    def fail(phase, done, total):
        raise KeyError("of mine")

    with pytest.raises(KeyError, match="of mine"):
        opwright.build(convolution(), progress=fail)
    assert_works(opwright.build(convolution(), timing=False))


# Plugin libraries


def test_library_that_is_no_plugin_library(tmp_path, plugin_dir):
    registry = opwright.get_plugin_registry()
    before = len(registry.all_creators)
    whole = (plugin_dir / "identity_plugin.so").read_bytes()
    contents = {
        "text.so": b"not a library\n" * 20,
        "empty.so": b"",
        "cut.so": whole[:5000],
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    for path in [*(tmp_path / name for name in contents), tmp_path / "none.so", tmp_path]:
        with pytest.raises(opwright.Error, match=f"{path}.*cannot be opened"):
            registry.load_library(path)
    with pytest.raises(opwright.Error, match="libm.*is not a plugin library"):
        registry.load_library("libm.so.6")
    assert len(registry.all_creators) == before
    handle = registry.load_library(plugin_dir / "identity_plugin.so")
    assert len(registry.all_creators) == before + 1
    registry.deregister_library(handle)
    assert len(registry.all_creators) == before


def test_shape_arithmetic_that_doubles_with_every_node():
    """Each step uses the one before twice: 2^60 operations if they were looked at one by one."""
    depth = 60
    nodes = [helper.make_node("Shape", ["x"], ["s0"])]
    for k in range(depth):
        nodes += [
            helper.make_node("Div", [f"s{k}", "three"], [f"d{k}"]),
            helper.make_node("Add", [f"d{k}", f"s{k}"], [f"a{k}"]),
            helper.make_node("Min", [f"a{k}", "limit"], [f"s{k + 1}"]),
        ]
    nodes.append(helper.make_node("Expand", ["one", f"s{depth}"], ["y"]))
    constants = {
        "three": np.array([3], np.int64),
        "limit": np.array([50], np.int64),
        "one": np.ones(1, np.float32),
    }
    proto = model(
        nodes,
        [("x", TensorProto.FLOAT, ["n"])],
        [("y", TensorProto.FLOAT, None)],
        constants,
    )
    engine = opwright.build(proto, shapes={"x": ((1,), (4,), (9,))}, timing=False)
    for extent in (2, 3, 9):
        x = np.zeros(extent, np.float32)
        assert engine(x).shape == reference(proto, x=x)[0].shape


@pytest.mark.parametrize(
    "op, shape_a, shape_b, good, bad",
    [
        ("Add", ["n", 5], [2, "m"], ((2, 5), (2, 5)), ((2, 5), (2, 4))),
        ("Mul", ["n", 3], ["m", 3], ((1, 3), (4, 3)), ((2, 3), (4, 3))),
        ("Concat", ["n", 3], ["m", "k"], ((2, 3), (4, 3)), ((2, 3), (4, 2))),
        ("MatMul", [3, "n"], ["m", 2], ((3, 4), (4, 2)), ((3, 2), (4, 2))),
        ("MatMul", ["n", 3, 4], ["m", 4, 2], ((2, 3, 4), (2, 4, 2)), ((2, 3, 4), (3, 4, 2))),
    ],
)
def test_inputs_that_do_not_fit_each_other_at_run_time(op, shape_a, shape_b, good, bad):
    """Extents that the build left open: a kernel that believed them would read beyond the end."""
    node = helper.make_node(op, ["a", "b"], ["y"], **({"axis": 0} if op == "Concat" else {}))
    proto = model(
        [node],
        [("a", TensorProto.FLOAT, shape_a), ("b", TensorProto.FLOAT, shape_b)],
        [("y", TensorProto.FLOAT, None)],
    )

    def span(shape, opt):
        ends = [tuple(v if isinstance(d, str) else d for d in shape) for v in (1, 6)]
        return ends[0], opt, ends[1]

    shapes = {"a": span(shape_a, good[0]), "b": span(shape_b, good[1])}
    engine = opwright.build(proto, shapes=shapes, timing=False)
    rng = np.random.default_rng(0)
    for _ in range(2):
        a, b = (rng.normal(size=shape).astype(np.float32) for shape in good)
        np.testing.assert_allclose(
            engine(a, b), reference(proto, a=a, b=b)[0], rtol=1e-5, atol=1e-6
        )
        with pytest.raises(opwright.Error):
            engine(*(np.zeros(shape, np.float32) for shape in bad))


def test_reshape_that_loses_elements_at_run_time():
    constants = {"shape": np.array([4, 3], np.int64)}
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    proto = model(
        [node], [("x", TensorProto.FLOAT, ["n", 6])], [("y", TensorProto.FLOAT, None)], constants
    )
    engine = opwright.build(proto, shapes={"x": ((1, 6), (2, 6), (4, 6))}, timing=False)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(engine(x), x.reshape(4, 3))
    for extent in (1, 3, 4):
        with pytest.raises(opwright.Error):
            engine(np.zeros((extent, 6), np.float32))
