"""opwright.onnxruntime beside ONNX Runtime: the same script, both modules."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import numpy as np
import onnx
import onnx.parser
import onnxruntime as reference
import pytest
from onnx import TensorProto, helper

import opwright
import opwright.onnxruntime as ort
from opwright.onnxruntime.capi import onnxruntime_pybind11_state as state

CPU = ["CPUExecutionProvider"]


def parse(text: str) -> bytes:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 19]> ' + text)
    return model.SerializeToString()


MODEL = parse("""g (float[n, 8] x, float[n, 8] y) => (float[n, 8] z, float[n] s)
    { z = Add(x, y)  axes = Constant<value_ints = [1]>()  s = ReduceSum<keepdims = 0>(z, axes) }""")


def session(model: bytes | str = MODEL, **kwargs) -> ort.InferenceSession:
    return ort.InferenceSession(model, providers=CPU, **kwargs)


@pytest.fixture(scope="module")
def both() -> tuple[ort.InferenceSession, reference.InferenceSession]:
    return session(), reference.InferenceSession(MODEL, providers=CPU)


def feed(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {name: rng.standard_normal((n, 8)).astype(np.float32) for name in "xy"}


def assert_same(ours, theirs, fed, names=None):
    got, want = ours.run(names, fed), theirs.run(names, fed)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


# --- What a model has


def test_arguments_of_nodes(both):
    for get in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        ours, theirs = ([(a.name, a.type, a.shape) for a in getattr(each, get)()] for each in both)
        assert ours == theirs


@pytest.mark.parametrize(
    "type_, shape",
    [
        (TensorProto.DOUBLE, [3]),
        (TensorProto.FLOAT16, ["batch", 3]),
        (TensorProto.INT64, []),
        (TensorProto.UINT8, [None, 4]),
        (TensorProto.BOOL, [2, "m"]),
    ],
)
def test_types_and_shapes_of_arguments(type_, shape):
    value = [helper.make_tensor_value_info(name, type_, shape) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", value[:1], value[1:]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    model = made.SerializeToString()
    ours, theirs = session(model), reference.InferenceSession(model, providers=CPU)
    a, b = ours.get_inputs()[0], theirs.get_inputs()[0]
    assert (a.type, a.shape) == (b.type, b.shape)
    x = np.ones(
        [2 if not isinstance(e, int) else e for e in shape], helper.tensor_dtype_to_np_dtype(type_)
    )
    assert_same(ours, theirs, {"x": x})


def test_metadata():
    model = onnx.ModelProto.FromString(MODEL)
    model.producer_name, model.domain, model.doc_string = "me", "org.me", "what it does"
    model.model_version, model.graph.doc_string = 7, "the graph"
    helper.set_model_props(model, {"names": "['cat']", "stride": "32"})
    made = model.SerializeToString()
    ours, theirs = (
        module.InferenceSession(made, providers=CPU).get_modelmeta() for module in (ort, reference)
    )
    for name in (
        "producer_name",
        "domain",
        "description",
        "version",
        "graph_name",
        "graph_description",
        "custom_metadata_map",
    ):
        assert getattr(ours, name) == getattr(theirs, name)


# --- Runs


def test_shapes_as_they_come(both):
    for n in (3, 1, 5, 40, 0, 7):
        assert_same(*both, feed(n))


def test_outputs_by_name(both):
    for names in (None, [], ["s"], ["s", "z"], ["z", "z"]):
        assert_same(*both, feed(4), names)


def test_lists_become_arrays(both):
    assert_same(*both, {"x": [[1.0] * 8], "y": [[2.0] * 8]})


def test_values_that_decide_shapes():
    model = parse("g (float[a, b] x, int64[r] size) => (float[c, d] y) { y = Reshape(x, size) }")
    ours, theirs = session(model), reference.InferenceSession(model, providers=CPU)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for size in ([2, 6], [12, 1], [-1, 3]):
        assert_same(ours, theirs, {"x": x, "size": np.array(size)})


def test_inputs_that_have_to_be_constants():
    model = parse(
        "g (float[a, b] x, int64[r] axes) => (float[c] y) { y = ReduceSum<keepdims = 0>(x, axes) }"
    )
    ours, theirs = session(model), reference.InferenceSession(model, providers=CPU)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for axis in (0, 1, 0):
        assert_same(ours, theirs, {"x": x, "axes": np.array([axis])})


def test_overridable_initializers():
    w = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "w")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [w],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    ours = session(model.SerializeToString())
    assert [a.name for a in ours.get_inputs()] == ["x"]
    assert [a.name for a in ours.get_overridable_initializers()] == ["w"]
    np.testing.assert_array_equal(ours.run(None, {"x": np.ones(2, np.float32)})[0], [2, 3])


def test_threads_share_a_session(both):
    failures = []

    def work(seed):
        for n in (3, 9, 17):
            try:
                assert_same(*both, feed(n + seed))
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_run_async(both):
    done = threading.Event()
    heard = []

    def callback(results, user_data, error):
        heard.append((results, user_data, error))
        done.set()

    both[0].run_async(None, feed(2), callback, "mine")
    assert done.wait(60)
    ((results, user_data, error),) = heard
    assert user_data == "mine" and error == ""
    np.testing.assert_array_equal(results[0], feed(2)["x"] + feed(2)["y"])


# --- What is wrong


WRONG = [
    ({"x": feed(2)["x"]}, ValueError, "Required inputs"),
    ({**feed(2), "q": feed(2)["x"]}, "InvalidArgument", "q"),
    ({**feed(2), "x": feed(2)["x"].astype(np.float64)}, "InvalidArgument", "tensor.double"),
    ({**feed(2), "x": feed(2)["x"][0]}, "InvalidArgument", "rank"),
    ({**feed(2), "x": feed(2)["x"][:, :4]}, "InvalidArgument", "Got: 4 Expected: 8"),
]


@pytest.mark.parametrize("fed, kind, message", WRONG)
def test_wrong_feeds_raise_the_classes_of_onnx_runtime(both, fed, kind, message):
    from onnxruntime.capi import onnxruntime_pybind11_state as theirs

    ours, other = both
    with pytest.raises(getattr(state, kind) if isinstance(kind, str) else kind, match=message):
        ours.run(None, fed)
    with pytest.raises(getattr(theirs, kind) if isinstance(kind, str) else kind):
        other.run(None, fed)


def test_wrong_outputs_files_and_models(both, tmp_path):
    with pytest.raises(state.InvalidArgument, match="Invalid output name: nothing"):
        both[0].run(["nothing"], feed(2))
    with pytest.raises(state.NoSuchFile, match="File doesn't exist"):
        session(str(tmp_path / "none.onnx"))
    with pytest.raises(state.InvalidProtobuf):
        session(b"no model")
    with pytest.raises(state.NotImplemented, match="Nothing"):
        session(
            onnx.parser.parse_model(
                '<ir_version: 9, opset_import: ["": 19, "no": 1]> g (float[n] x) => (float[n] y) { y = no.Nothing(x) }'
            ).SerializeToString()
        )
    with pytest.raises(state.NotImplemented, match="element type 4, which is not supported"):
        session(parse("g (uint16[2] x) => (uint16[2] y) { y = Identity(x) }"))
    assert issubclass(state.Fail, opwright.Error)
    with pytest.raises(TypeError, match="input_feed is a dict"):
        both[0].run(None, [feed(2)["x"]])


def test_a_run_that_is_to_end():
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(state.Fail, match="terminate"):
        session().run(None, feed(2), options)


# --- Options


def test_free_dimensions(both):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("n", 4)
    ours = session(sess_options=options)
    assert ours.get_inputs()[0].shape == [4, 8]
    np.testing.assert_array_equal(ours.run(["z"], feed(4))[0], feed(4)["x"] + feed(4)["y"])
    with pytest.raises(state.InvalidArgument, match="Got: 3 Expected: 4"):
        ours.run(None, feed(3))


def test_the_optimized_model_is_an_engine_that_a_session_reads(tmp_path):
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.engine")
    want = session(sess_options=options).run(None, feed(4))
    for given in (
        tmp_path / "model.engine",
        (tmp_path / "model.engine").read_bytes(),
        opwright.load(tmp_path / "model.engine"),
    ):
        ours = session(given)
        assert [a.name for a in ours.get_inputs()] == ["x", "y"]
        assert ours.get_inputs()[0].type == "tensor(float)" and ours.get_inputs()[0].shape[1] == 8
        for a, b in zip(ours.run(None, feed(4)), want):
            np.testing.assert_array_equal(a, b)


def test_a_profile_is_a_trace(tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    ours = session(sess_options=options)
    ours.run(None, feed(2))
    assert ours.get_profiling_start_time_ns() > 0
    events = json.loads(open(ours.end_profiling()).read())
    assert [e["name"] for e in events] == ["model_loading", "model_run"]
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)


def test_options_exist_as_in_onnx_runtime():
    for kind in ("SessionOptions", "RunOptions"):
        ours, theirs = getattr(ort, kind)(), getattr(reference, kind)()
        for name in dir(ours):
            if not name.startswith("_") and not callable(getattr(ours, name)):
                assert hasattr(theirs, name), name
    with pytest.raises(AttributeError):
        ort.SessionOptions().intra_threads = 1
    options = ort.SessionOptions()
    options.add_session_config_entry("a", "b")
    assert options.get_session_config_entry("a") == "b"
    with pytest.raises(state.InvalidArgument):
        options.get_session_config_entry("c")
    with pytest.raises(state.NotImplemented, match="plugins"):
        options.register_custom_ops_library("lib.so")


def test_providers():
    assert "CPUExecutionProvider" in ort.get_available_providers()
    assert ort.get_device() in ("CPU", "GPU")
    assert session().get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="'NoneExecutionProvider' is not in available"):
        ours = ort.InferenceSession(
            MODEL, providers=["NoneExecutionProvider", ("CPUExecutionProvider", {"a": 1})]
        )
    assert ours.get_provider_options() == {"CPUExecutionProvider": {"a": "1"}}
    ours.set_providers(CPU)
    assert ours.get_provider_options() == {"CPUExecutionProvider": {}}
    with pytest.raises(ValueError, match="strings or"):
        ort.InferenceSession(MODEL, providers=[3])


# --- Bound arrays


def test_io_binding(both):
    fed = feed(3)
    want = both[1].run(None, fed)
    binding = both[0].io_binding()
    binding.bind_cpu_input("x", fed["x"])
    y = fed["y"]
    binding.bind_input("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_output("z")
    s = np.zeros(3, np.float32)
    binding.bind_output("s", "cpu", 0, np.float32, s.shape, s.ctypes.data)
    both[0].run_with_iobinding(binding)
    for got, expected in zip(binding.copy_outputs_to_cpu(), want):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_allclose(s, want[1], rtol=1e-5)
    assert [v.shape() for v in binding.get_outputs()] == [[3, 8], [3]]
    binding.clear_binding_outputs()
    binding.bind_output("s", "cpu", 0, np.float32, (2,), s.ctypes.data)
    with pytest.raises(state.InvalidArgument, match="of shape .3.; memory for"):
        both[0].run_with_iobinding(binding)
    with pytest.raises(state.InvalidArgument, match="Invalid input name"):
        binding.bind_cpu_input("q", y)


def test_ort_values(both):
    fed = feed(3)
    for module, each in zip((ort, reference), both):
        value = module.OrtValue.ortvalue_from_numpy(fed["x"])
        assert value.shape() == [3, 8] and value.data_type() == "tensor(float)"
        assert value.element_type() == TensorProto.FLOAT and value.device_name() == "cpu"
        assert value.is_tensor() and value.has_value() and not value.is_sparse_tensor()
        np.testing.assert_array_equal(value.numpy(), fed["x"])
        made = module.OrtValue.ortvalue_from_shape_and_type([3, 8], np.float32)
        made.update_inplace(fed["y"])
        binding = each.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_input("y", made)
        out = module.OrtValue.ortvalue_from_shape_and_type([3, 8], np.float32)
        binding.bind_ortvalue_output("z", out)
        each.run_with_iobinding(binding)
        np.testing.assert_allclose(out.numpy(), fed["x"] + fed["y"], rtol=1e-6)
        (z,) = each.run_with_ort_values(["z"], {"x": value, "y": made})
        np.testing.assert_allclose(z.numpy(), fed["x"] + fed["y"], rtol=1e-6)


LAZY = """
import sys
import opwright
late = {"opwright.onnxruntime", "opwright._engine_tensors"}
assert not late & set(sys.modules), late & set(sys.modules)
assert {"InferenceSession", "onnxruntime", "build"} <= set(dir(opwright))
assert not late & set(sys.modules), late & set(sys.modules)
try:
    opwright.InferenceSessions
except AttributeError as error:
    assert str(error) == "module 'opwright' has no attribute 'InferenceSessions'", error
from opwright import *
assert InferenceSession is opwright.InferenceSession is opwright.onnxruntime.InferenceSession
from opwright import onnxruntime
assert onnxruntime is sys.modules["opwright.onnxruntime"]
"""


def test_the_module_is_imported_when_it_is_asked_for():
    subprocess.run([sys.executable, "-c", LAZY], check=True)


def test_names_that_scripts_use_are_there():
    ours = set(dir(ort)) | {"OrtDevice", "SparseTensor", "IOBinding"}
    for name in (
        "InferenceSession SessionOptions RunOptions GraphOptimizationLevel ExecutionMode OrtValue NodeArg "
        "ModelMetadata get_available_providers get_all_providers get_device set_default_logger_severity"
    ).split():
        assert name in ours and hasattr(reference, name)
    assert opwright.InferenceSession is ort.InferenceSession
