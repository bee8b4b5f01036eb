"""ILayer.precision and set_output_type of weakly typed networks: what the engine then computes in."""

import json
from pathlib import Path

import numpy as np
import pytest

import opwright as trt

FLAG = trt.BuilderFlag
OBEY, PREFER = FLAG.OBEY_PRECISION_CONSTRAINTS, FLAG.PREFER_PRECISION_CONSTRAINTS
X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)


class Collector(trt.ILogger):
    def __init__(self):
        super().__init__()
        self.warnings = []

    def log(self, severity, message):
        if severity == trt.ILogger.WARNING:
            self.warnings.append(message)


class Model:
    """y = tanh(softmax(x) + x), each a layer of its name."""

    def __init__(self, flags=0):
        self.logger = Collector()
        self.builder = trt.Builder(self.logger)
        self.network = self.builder.create_network(flags)
        self.config = self.builder.create_builder_config()
        self.config.default_device_type = trt.DeviceType.CPU
        x = self.network.add_input("x", trt.float32, X.shape)
        self.softmax = self.network.add_softmax(x)
        self.softmax.axes = 1 << 2
        self.sum = self.network.add_elementwise(
            self.softmax.get_output(0), x, trt.ElementWiseOperation.SUM
        )
        self.tanh = self.network.add_activation(self.sum.get_output(0), trt.ActivationType.TANH)
        for name in ("softmax", "sum", "tanh"):
            getattr(self, name).name = name
        self.tanh.get_output(0).name = "y"
        self.network.mark_output(self.tanh.get_output(0))

    def build(self, *flags):
        for flag in flags:
            self.config.set_flag(flag)
        return self.builder.build_engine_with_config(self.network, self.config)


def steps(engine):
    """The types of the first input and of the output of each step, by the step's name."""
    inspector = engine.create_engine_inspector()
    found = {}
    for i in range(engine.num_layers):
        layer = json.loads(inspector.get_layer_information(i, trt.LayerInformationFormat.JSON))
        ports = layer["Inputs"][0], layer["Outputs"][0]
        found[layer["Name"]] = tuple(port["Format/Datatype"].split()[0] for port in ports)
    return found


def check_results(engine, tolerance):
    exponents = np.exp(X - X.max(axis=2, keepdims=True))
    expected = np.tanh(exponents / exponents.sum(axis=2, keepdims=True) + X)
    np.testing.assert_allclose(trt.Engine(engine)(X), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("flag", [OBEY, PREFER])
def test_a_precision_is_met(flag):
    model = Model()
    model.softmax.precision = trt.float32
    model.sum.precision = model.tanh.precision = trt.bfloat16
    engine = model.build(flag, FLAG.BF16)
    assert steps(engine)["softmax"][0] == "FP32"
    assert steps(engine)["sum + tanh"][0] == "BF16"
    assert model.logger.warnings == []
    check_results(engine, 0.05)


def test_layers_of_different_precisions_do_not_become_one():
    model = Model()
    model.sum.precision, model.tanh.precision = trt.float32, trt.bfloat16
    found = steps(model.build(OBEY, FLAG.BF16))
    assert found["sum"][0] == "FP32" and found["tanh"][0] == "BF16"


def test_without_a_flag_it_says_nothing():
    model = Model()
    model.softmax.precision = trt.bfloat16
    engine = model.build()
    assert steps(engine)["softmax"] == ("FP32", "FP32") and model.logger.warnings == []
    check_results(engine, 1e-6)


def test_what_cannot_be_met_is_an_error_that_says_what_can():
    model = Model()
    model.softmax.precision = trt.float16  # BuilderFlag.FP16 is not set
    with pytest.raises(
        trt.Error, match="'softmax'.*is asked to be computed in FP16.*only for FP32"
    ) as caught:
        model.build(OBEY)
    assert "PREFER_PRECISION_CONSTRAINTS" in str(caught.value)


def test_what_cannot_be_met_is_a_warning_where_it_is_preferred():
    model = Model()
    model.softmax.precision = trt.float16
    engine = model.build(PREFER)
    assert steps(engine)["softmax"][0] == "FP32"
    (warning,) = model.logger.warnings
    assert "'softmax'" in warning and "FP16" in warning
    check_results(engine, 1e-6)


@pytest.mark.parametrize("stored", [trt.float16, trt.bfloat16])
def test_an_output_of_the_network_has_the_type_that_was_set(stored):
    model = Model()
    model.tanh.set_output_type(0, stored)
    assert model.tanh.get_output(0).dtype == stored
    engine = model.build()
    assert engine.get_tensor_dtype("y") == stored
    check_results(engine, 0.01)


# oneDNN has BF16 kernels only for processors with AVX-512.
@pytest.mark.skipif(
    "avx512bw" not in Path("/proc/cpuinfo").read_text(), reason="the processor has no AVX-512"
)
def test_an_output_of_a_layer_is_stored_in_the_type_that_was_set():
    model = Model()
    model.softmax.set_output_type(0, trt.bfloat16)
    found = steps(model.build(OBEY, FLAG.BF16))
    assert found["softmax"][1] == "BF16"
    model = Model()
    model.sum.set_output_type(0, trt.float32)
    model.tanh.precision = trt.float32
    assert "sum" in steps(model.build(OBEY))  # stored, so it is a step of its own


def test_constants_and_inputs_that_are_outputs_have_the_type_that_was_set():
    model = Model()
    network = model.network
    outputs = {
        "constant": network.add_constant((2,), np.float32([1, 2])),
        "copy": network.add_identity(network.get_input(0)),
    }
    for name, layer in outputs.items():
        layer.get_output(0).name = name
        network.mark_output(layer.get_output(0))
        layer.get_output(0).dtype = trt.float16
    y, constant, copy = trt.Engine(model.build())(X).values()
    assert constant.dtype == copy.dtype == np.float16 and y.dtype == np.float32
    np.testing.assert_array_equal(constant, [1, 2])
    np.testing.assert_allclose(copy, X, atol=2e-3)


def test_an_input_whose_layers_do_not_fit_is_converted():
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (1, 1, 2, 2))
    layer = network.add_convolution_nd(x, 1, (1, 1), np.float32([[[[2]]]]))
    network.mark_output(layer.get_output(0))
    x.dtype = layer.get_output(0).dtype = trt.float16
    assert x.dtype == trt.float16 and layer.precision == trt.float32
    y = trt.build(network, device="cpu", timing=False)(np.full((1, 1, 2, 2), 1.5, np.float16))
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 2), 3))
    x.dtype = trt.float32
    assert x.dtype == trt.float32


def test_what_was_set_is_given_back_and_taken_back():
    layer = Model().softmax
    assert layer.precision == trt.float32 and not layer.precision_is_set
    layer.precision = trt.int8
    assert layer.precision == trt.int8 and layer.precision_is_set
    layer.reset_precision()
    assert layer.precision == trt.float32 and not layer.precision_is_set
    layer.set_output_type(0, trt.float16)
    assert layer.output_type_is_set(0) and layer.get_output_type(0) == trt.float16
    layer.reset_output_type(0)
    assert not layer.output_type_is_set(0) and layer.get_output_type(0) == trt.float32
    with pytest.raises(trt.Error, match="both have to be FP32, FP16 or BF16"):
        layer.set_output_type(0, trt.int32)
    with pytest.raises(trt.Error, match="no output 1"):
        layer.set_output_type(1, trt.float16)


def test_strongly_typed_networks_have_no_precisions_beside_their_types():
    model = Model(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    with pytest.raises(trt.Error, match="strongly typed"):
        model.softmax.precision = trt.float16
    with pytest.raises(trt.Error, match="strongly typed"):
        model.softmax.set_output_type(0, trt.float16)
    assert not model.softmax.precision_is_set
