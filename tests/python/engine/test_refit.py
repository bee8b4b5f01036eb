"""Weights of engines are exchanged: by name and by layer, also where they were folded or packed."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import light_models
import opwright as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
REFIT = trt.BuilderFlag.REFIT


def build(model, *flags, mark=(), cache=None):
    builder = trt.Builder(LOGGER)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    config.builder_optimization_level = 0  # the schedule is the same for all weights
    for flag in flags:
        config.set_flag(flag)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, LOGGER)
    assert parser.parse(model.SerializeToString())
    for name in mark:
        assert network.mark_weights_refittable(name)
    data = builder.build_serialized_network(network, config)
    return trt.Runtime(LOGGER).deserialize_cuda_engine(data)


def run(engine, inputs, context=None):
    context = context or engine.create_execution_context()
    outputs = {}
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if name in inputs:
            context.set_tensor_address(name, inputs[name].ctypes.data)
        else:
            outputs[name] = np.empty(tuple(context.get_tensor_shape(name)), np.float32)
            context.set_tensor_address(name, outputs[name].ctypes.data)
    assert context.execute_async_v3(0)
    return next(iter(outputs.values()))


def weights_of(model):
    arrays = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return arrays


def refit(engine, model):
    refitter = trt.Refitter(engine, LOGGER)
    new = weights_of(model)
    for name in refitter.get_all_weights():
        assert refitter.set_named_weights(name, new[name])
    assert refitter.get_missing_weights() == []
    assert refitter.refit_cuda_engine()


MODEL = """
    <ir_version: 9, opset_import: ["" : 19]>
    net (float[2, 3, 8, 8] x) => (float[2, 5] y)
    <float[8, 3, 3, 3] w, float[8] b, float[8] g, float[8] h, float[8] m, float[8] v,
     float[8, 4, 1, 1] w2, float[1, 8, 1, 1] s, float[8, 5] fc, float[5] fb, float t>
    {
        a = Conv <pads = [1, 1, 1, 1]> (x, w, b)
        n = BatchNormalization (a, g, h, m, v)
        r = Relu (n)
        c = Conv <group = 2> (r, w2)
        d = Mul (c, s)
        e = Add (d, r)
        p = GlobalAveragePool (e)
        f = Flatten (p)
        q = MatMul (f, fc)
        u = Add (q, fb)
        y = Mul (u, t)
    }"""


def filled(seed):
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(seed)
    shapes = {
        "w": (8, 3, 3, 3), "b": (8,), "g": (8,), "h": (8,), "m": (8,), "v": (8,),
        "w2": (8, 4, 1, 1), "s": (1, 8, 1, 1), "fc": (8, 5), "fb": (5,), "t": (),
    }  # fmt: skip
    del model.graph.initializer[:]
    for name, shape in shapes.items():
        values = rng.uniform(0.5, 2, shape) if name == "v" else rng.normal(size=shape)
        model.graph.initializer.append(
            numpy_helper.from_array(np.asarray(values, np.float32), name)
        )
    return model


X = {"x": np.random.default_rng(9).standard_normal((2, 3, 8, 8)).astype(np.float32)}


def test_folded_and_packed_weights_become_those_of_a_fresh_build():
    engine = build(filled(0), REFIT)
    assert engine.refittable
    expected = [run(build(filled(seed), REFIT), X) for seed in (0, 1)]
    context = engine.create_execution_context()
    np.testing.assert_array_equal(run(engine, X, context), expected[0])
    refit(engine, filled(1))
    np.testing.assert_array_equal(run(engine, X, context), expected[1])  # the context that exists
    np.testing.assert_array_equal(run(engine, X), expected[1])
    np.testing.assert_allclose(expected[1], run(build(filled(1)), X), rtol=1e-4, atol=1e-5)
    refit(engine, filled(0))
    np.testing.assert_array_equal(run(engine, X, context), expected[0])


def test_a_stored_engine_that_was_refitted_has_its_weights():
    engine = build(filled(0), REFIT)
    refit(engine, filled(1))
    again = trt.Runtime(LOGGER).deserialize_cuda_engine(engine.serialize())
    np.testing.assert_array_equal(run(again, X), run(engine, X))
    refit(again, filled(0))
    np.testing.assert_array_equal(run(again, X), run(build(filled(0), REFIT), X))
    assert bytes(again.serialize()) == bytes(build(filled(0), REFIT).serialize())


@pytest.mark.parametrize("flags", [(), (REFIT,), (trt.BuilderFlag.REFIT_IDENTICAL,)])
def test_a_stripped_engine_that_is_refitted_equals_the_full_one(flags, tmp_path):
    model = filled(0)
    onnx.save(model, tmp_path / "model.onnx")
    engine = build(model, trt.BuilderFlag.STRIP_PLAN, *flags)
    full = build(model, *flags) if flags else build(model, trt.BuilderFlag.REFIT_IDENTICAL)
    assert engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) > 0
    assert engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE) < full.get_engine_stat(
        trt.EngineStat.TOTAL_WEIGHTS_SIZE
    )
    context = engine.create_execution_context()
    with pytest.raises(trt.Error, match="stored without its weights .*Refitter"):
        run(engine, X, context)
    stripped = bytes(engine.serialize())
    refitter = trt.Refitter(engine, LOGGER)
    assert set(refitter.get_missing_weights()) == set(refitter.get_all_weights())
    with pytest.raises(trt.Error, match="weights are missing"):
        refitter.refit_cuda_engine()
    parser = trt.OnnxParserRefitter(refitter, LOGGER)
    assert parser.refit_from_file(tmp_path / "model.onnx")
    assert refitter.refit_cuda_engine()
    np.testing.assert_array_equal(run(engine, X), run(full, X))
    np.testing.assert_array_equal(run(engine, X, context), run(full, X))
    # Stored for good, as one that remains refittable, and without weights.
    config = engine.create_serialization_config()
    kept = trt.Runtime(LOGGER).deserialize_cuda_engine(engine.serialize_with_config(config))
    assert not kept.refittable
    np.testing.assert_array_equal(run(kept, X), run(full, X))
    config.set_flag(trt.SerializationFlag.INCLUDE_REFIT)
    kept = trt.Runtime(LOGGER).deserialize_cuda_engine(engine.serialize_with_config(config))
    assert kept.refittable
    np.testing.assert_array_equal(run(kept, X), run(full, X))
    config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    assert bytes(engine.serialize_with_config(config)) == stripped


def test_weights_that_the_engine_has_only_combined_must_be_set_together():
    wide = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 128] x) => (float[2, 128] y) <float[128, 128] w, float[128] s, float[128, 128] o>
        { a = MatMul (x, w)
          b = Mul (a, s)
          y = MatMul (b, o) }""")
    rng = np.random.default_rng(0)
    new = {}
    del wide.graph.initializer[:]
    for name, shape in (("w", (128, 128)), ("s", (128,)), ("o", (128, 128))):
        new[name] = rng.standard_normal(shape).astype(np.float32)
        wide.graph.initializer.append(numpy_helper.from_array(new[name], name))
    engine = build(wide, REFIT)
    refitter = trt.Refitter(engine, LOGGER)
    refitter.set_named_weights("s", 2 * new["s"])
    assert refitter.get_missing_weights() == ["w"]
    with pytest.raises(trt.Error, match=r"'w' \(FP32, 128x128\)"):
        refitter.refit_cuda_engine()
    refitter.set_named_weights("w", new["w"])
    assert refitter.refit_cuda_engine()
    x = rng.standard_normal((2, 128)).astype(np.float32)
    expected = x @ new["w"] * (2 * new["s"]) @ new["o"]
    np.testing.assert_allclose(run(engine, {"x": x}), expected, rtol=1e-3, atol=1e-2)
    refitter = trt.Refitter(engine, LOGGER)
    refitter.set_named_weights("w", new["w"] / 2)  # small ones are kept
    assert refitter.get_missing_weights() == []
    assert refitter.refit_cuda_engine()
    np.testing.assert_allclose(run(engine, {"x": x}), expected / 2, rtol=1e-3, atol=1e-2)


def test_marked_weights_alone_are_refittable():
    engine = build(filled(0), trt.BuilderFlag.REFIT_INDIVIDUAL, mark=["w", "fc"])
    refitter = trt.Refitter(engine, LOGGER)
    assert refitter.get_all_weights() == ["w", "fc"]
    mixed = filled(0)
    new = weights_of(filled(1))
    for tensor in mixed.graph.initializer:
        if tensor.name in ("w", "fc"):
            tensor.CopyFrom(numpy_helper.from_array(new[tensor.name], tensor.name))
    refit(engine, mixed)
    np.testing.assert_allclose(run(engine, X), run(build(mixed), X), rtol=1e-4, atol=1e-5)
    with pytest.raises(trt.Error, match="no refittable weights 'b'"):
        refitter.set_named_weights("b", new["b"])
    with pytest.raises(trt.Error, match="cannot be refitted: build it with BuilderFlag.REFIT"):
        trt.Refitter(build(filled(0)), LOGGER)
    with pytest.raises(trt.Error, match="REFIT_INDIVIDUAL is set beside REFIT"):
        build(filled(0), REFIT, trt.BuilderFlag.REFIT_INDIVIDUAL)


def api_network(builder):
    network = builder.create_network(0)
    rng = np.random.default_rng(0)
    arrays = {
        "kernel": rng.standard_normal((4, 3, 1, 1)).astype(np.float32),
        "bias": rng.standard_normal(4).astype(np.float32),
        "shift": rng.standard_normal(4).astype(np.float32),
        "scale": rng.standard_normal(4).astype(np.float32),
    }
    x = network.add_input("x", trt.float32, (1, 3, 2, 2))
    conv = network.add_convolution_nd(x, 4, (1, 1), arrays["kernel"], arrays["bias"])
    conv.name = "conv"
    scale = network.add_scale(
        conv.get_output(0),
        trt.ScaleMode.CHANNEL,
        arrays["shift"],
        arrays["scale"],
        np.ones(4, np.float32),  # powers, which no role names
    )
    scale.name = "scale"
    network.mark_output(scale.get_output(0))
    return network, arrays


def reference(x, a):
    y = np.einsum("oc,nchw->nohw", a["kernel"][:, :, 0, 0], x) + a["bias"][:, None, None]
    return y * a["scale"][:, None, None] + a["shift"][:, None, None]


def test_layers_and_roles_find_weights():
    builder = trt.Builder(LOGGER)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    config.set_flag(REFIT)
    network, arrays = api_network(builder)
    assert network.set_weights_name(arrays["kernel"], "the kernel")
    with pytest.raises(trt.Error, match="no layer of the network has these weights"):
        network.set_weights_name(np.zeros(3, np.float32), "none")
    with pytest.raises(trt.Error, match="name of other weights"):
        network.set_weights_name(arrays["bias"], "the kernel")
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine, LOGGER)
    role = trt.WeightsRole
    roles = {
        ("conv", role.KERNEL),
        ("conv", role.BIAS),
        ("scale", role.SHIFT),
        ("scale", role.SCALE),
    }
    assert set(zip(*refitter.get_all(), strict=True)) == roles
    assert "the kernel" in refitter.get_all_weights()
    new = {name: 2 * array + 1 for name, array in arrays.items()}
    for name, (layer, kind) in {
        "kernel": ("conv", role.KERNEL),
        "bias": ("conv", role.BIAS),
        "shift": ("scale", role.SHIFT),
        "scale": ("scale", role.SCALE),
    }.items():
        assert refitter.set_weights(layer, kind, new[name])
    assert refitter.refit_cuda_engine()
    x = np.random.default_rng(3).standard_normal((1, 3, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(run(engine, {"x": x}), reference(x, new), rtol=1e-5, atol=1e-5)
    with pytest.raises(trt.Error, match="no refittable weights of a layer 'other'"):
        refitter.set_weights("other", role.KERNEL, new["kernel"])
    with pytest.raises(trt.Error, match="'conv' has no refittable weights in the role SCALE"):
        refitter.set_weights("conv", role.SCALE, new["scale"])


def test_wrong_weights_are_refused_and_nothing_changes():
    engine = build(filled(0), REFIT)
    before = run(engine, X)
    refitter = trt.Refitter(engine, LOGGER)
    with pytest.raises(trt.Error, match="'w' have 216 elements .8x3x3x3., the new ones 5"):
        refitter.set_named_weights("w", np.zeros(5, np.float32))
    with pytest.raises(trt.Error, match="'w' are FP32 in the engine, the new ones FP16"):
        refitter.set_named_weights("w", np.zeros((8, 3, 3, 3), np.float16))
    with pytest.raises(trt.Error, match="were not set"):
        refitter.get_named_weights("w")
    assert not refitter.unset_named_weights("w")
    new = np.ones((8, 3, 3, 3), np.float32)
    refitter.set_named_weights("w", new)
    np.testing.assert_array_equal(refitter.get_named_weights("w").numpy(), new)
    assert refitter.get_weights_location("w") == trt.TensorLocation.HOST
    assert refitter.unset_named_weights("w")
    assert refitter.get_weights_prototype("w").size == 216
    refitter.refit_cuda_engine()
    np.testing.assert_array_equal(run(engine, X), before)
    refitter.max_threads = 2
    assert refitter.max_threads == 2 and refitter.weights_validation
    with pytest.raises(trt.Error, match="cannot use 0 threads"):
        refitter.max_threads = 0


def test_a_model_that_lacks_weights_is_an_error(tmp_path):
    engine = build(filled(0), REFIT, trt.BuilderFlag.STRIP_PLAN)
    refitter = trt.Refitter(engine, LOGGER)
    parser = trt.OnnxParserRefitter(refitter, LOGGER)
    model = filled(0)
    kept = [i for i in model.graph.initializer if i.name != "w"]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    assert not parser.refit_from_bytes(model.SerializeToString())
    assert parser.num_errors == 1
    assert "no initializer or Constant node 'w'" in parser.get_error(0).desc()
    assert not parser.refit_from_bytes(b"none")
    assert not parser.refit_from_file(tmp_path / "absent.onnx")
    assert parser.num_errors == 1
    parser.clear_errors()
    assert parser.num_errors == 0
    assert parser.load_model_proto(filled(1).SerializeToString())
    new = np.full((8, 3, 3, 3), 0.5, np.float32)
    assert not parser.load_initializer("w", new[:1])
    assert parser.load_initializer("w", new)
    assert parser.refit_model_proto()
    assert refitter.refit_cuda_engine()
    changed = filled(1)
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(new, "w"))
    assert changed.graph.initializer[0].name == "w"
    np.testing.assert_allclose(run(engine, X), run(build(changed), X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["squeezenet", "inception_v1", "resnet50", "shufflenet"])
def test_real_models_take_other_weights(name):
    models = [light_models.randomized(name, seed) for seed in (0, 1)]
    inputs = light_models.sample_input(models[0])
    engine = build(models[0], REFIT)
    refit(engine, models[1])
    np.testing.assert_array_equal(run(engine, inputs), run(build(models[1], REFIT), inputs))
