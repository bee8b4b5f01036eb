"""INetworkDefinition and its layers, against NumPy."""

import numpy as np
import pytest

import opwright as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
STRONGLY_TYPED = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED


@pytest.fixture
def builder():
    return trt.Builder(LOGGER)


@pytest.fixture
def network(builder):
    return builder.create_network()


def count(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def result(network, layer, *inputs):
    """What the layer gives, as the network's only output."""
    network.mark_output(layer.get_output(0))
    return trt.build(network, timing=False)(*inputs)


def test_an_input_of_a_layer_can_decide_shapes(network):
    extents = network.add_input("extents", trt.int64, (2,))
    x = network.add_input("x", trt.float32, (1, 1))
    repeat = network.add_slice(x, (0, 0), (1, 1), (0, 0))
    repeat.set_input(2, extents)
    assert tuple(repeat.get_output(0).shape) == (-1, -1)
    network.mark_output(repeat.get_output(0))
    engine = trt.build(network, values={"extents": ((1, 1), (2, 3), (3, 4))}, timing=False)
    y = engine(extents=np.array([3, 2], np.int64), x=np.array([[5]], np.float32))
    np.testing.assert_array_equal(y, np.full((3, 2), 5, np.float32))


class TestIndices:
    """A network is a sequence of its layers."""

    @pytest.fixture
    def network(self, network):
        tensor = network.add_input("x", trt.float32, (2,))
        for name in "abcd":
            layer = network.add_identity(tensor)
            layer.name, tensor = name, layer.get_output(0)
        return network

    def test_as_of_a_list(self, network):
        assert len(network) == 4
        assert [layer.name for layer in network] == ["a", "b", "c", "d"]
        assert network[-1].name == "d" and network[-4].name == "a"
        for index in (4, -5):
            with pytest.raises(IndexError):
                _ = network[index]

    @pytest.mark.parametrize("where", [slice(1, 3), slice(None, None, -2), slice(-1, None)])
    def test_slices(self, network, where):
        assert [layer.name for layer in network[where]] == list("abcd"[where])


class TestTypes:
    """Layers of a network have their class and say their type."""

    @pytest.fixture
    def layers(self, network):
        x = network.add_input("x", trt.float32, (1, 2, 4, 4))
        ones = np.ones((2, 2, 1, 1), np.float32)
        layers = [network.add_convolution_nd(x, 2, (1, 1), ones)]
        layers.append(network.add_activation(x, trt.ActivationType.RELU))
        layers.append(network.add_pooling_nd(x, trt.PoolingType.AVERAGE, (2, 2)))
        layers.append(network.add_padding_nd(x, (1, 0), (0, 2)))
        layers.append(network.add_shape(x))
        return layers

    def test_classes(self, network, layers):
        classes = [
            trt.IConstantLayer,
            trt.IConvolutionLayer,
            trt.IActivationLayer,
            trt.IPoolingLayer,
            trt.IPaddingLayer,
            trt.IShapeLayer,
        ]
        assert [type(layer).__name__ for layer in network] == [c.__name__ for c in classes]
        for layer, expected in zip(network, classes):
            assert isinstance(layer, expected)

    def test_types(self, network, layers):
        kind = trt.LayerType
        expected = [
            kind.CONSTANT,
            kind.CONVOLUTION,
            kind.ACTIVATION,
            kind.POOLING,
            kind.PADDING,
            kind.SHAPE,
        ]
        assert [layer.type for layer in network] == expected

    def test_a_class_that_has_a_type_of_its_own_is_given_by_the_program(self, network, layers):
        activation, pooling = network[2], network[3]
        assert (
            activation == layers[1]
            and hash(activation) == hash(layers[1])
            and activation != pooling
        )
        activation.__class__ = trt.IActivationLayer
        pooling.__class__ = trt.IPoolingLayer
        assert (
            activation.type == trt.ActivationType.RELU and pooling.type == trt.PoolingType.AVERAGE
        )
        activation.type = trt.ActivationType.TANH
        assert layers[1].type == trt.ActivationType.TANH
        assert network[2].type == trt.LayerType.ACTIVATION

    def test_every_layer_takes_its_own_class(self, network, layers):
        for layer in network:
            layer.__class__ = type(layer)
            assert layer.name

    def test_another_layers_class_is_an_error_when_it_is_used(self, network, layers):
        convolution = network[1]
        convolution.__class__ = trt.IPoolingLayer
        with pytest.raises(
            trt.Error, match="window_size_nd: layer .* is a Convolution, not a Pooling"
        ):
            _ = convolution.window_size_nd
        with pytest.raises(trt.Error, match="is a Convolution"):
            convolution.window_size_nd = (1, 1)
        convolution.__class__ = trt.IConstantLayer
        with pytest.raises(trt.Error, match="is a Convolution"):
            _ = convolution.weights

    def test_padding_says_what_it_adds(self, layers):
        padding = layers[3]
        assert tuple(padding.pre_padding_nd) == (0, 0, 1, 0)
        assert tuple(padding.post_padding_nd) == (0, 0, 0, 2)

    def test_values_of_layer_type_are_those_of_tensorrt(self):
        assert int(trt.LayerType.CONVOLUTION) == 0 and int(trt.LayerType.CAST) == 1
        assert int(trt.LayerType.DIST_COLLECTIVE) == len(trt.LayerType.__members__) - 1 == 56


class TestWeights:
    """Weights of layers are read and replaced."""

    @pytest.mark.parametrize("transposed", [False, True])
    def test_of_convolutions(self, network, transposed):
        x = network.add_input("x", trt.float32, (1, 2, 3, 3))
        add = network.add_deconvolution_nd if transposed else network.add_convolution_nd
        layer = add(x, 2, (1, 1), count(2, 2, 1, 1))
        np.testing.assert_array_equal(layer.kernel, [0, 1, 2, 3])
        assert layer.bias.size == 0
        kernel, bias = count(2, 2) + 1, np.float32([5, -5])
        layer.kernel, layer.bias = kernel.reshape(2, 2, 1, 1), trt.Weights(bias)
        np.testing.assert_array_equal(layer.bias, bias)
        values = count(1, 2, 3, 3)
        product = (kernel.T if transposed else kernel) @ values.reshape(2, 9)
        expected = product.reshape(1, 2, 3, 3) + bias.reshape(2, 1, 1)
        np.testing.assert_allclose(result(network, layer, values), expected, rtol=1e-6)

    def test_of_a_kernel_that_is_computed(self, network):
        x = network.add_input("x", trt.float32, (1, 1, 2, 2))
        layer = network.add_convolution_nd(x, 1, (1, 1), trt.Weights())
        with pytest.raises(trt.Error, match="there is no kernel yet"):
            layer.kernel = np.ones(1, np.float32)
        layer.kernel = np.full((1, 1, 1, 1), 3, np.float32)
        np.testing.assert_array_equal(
            result(network, layer, count(1, 1, 2, 2)), 3 * count(1, 1, 2, 2)
        )

    def test_of_a_scale(self, network):
        x = network.add_input("x", trt.float32, (1, 2, 2, 2))
        factors = np.float32([2, 3])
        layer = network.add_scale_nd(x, trt.ScaleMode.CHANNEL, factors, factors, factors, 1)
        np.testing.assert_array_equal(layer.power, factors)
        layer.shift, layer.scale, layer.power = np.float32([1, 0]), np.float32([4, 5]), None
        assert layer.power.size == 0
        expected = count(1, 2, 2, 2) * [[[4]], [[5]]] + [[[1]], [[0]]]
        np.testing.assert_allclose(result(network, layer, count(1, 2, 2, 2)), expected)

    def test_of_a_constant(self, network):
        layer = network.add_constant((2, 2), count(2, 2))
        layer.weights = count(4) + 1
        layer.shape = (4, 1)
        assert tuple(layer.shape) == (4, 1) and layer.weights.shape == (4,)
        np.testing.assert_array_equal(result(network, layer), count(4, 1) + 1)
        with pytest.raises(trt.Error, match=r"3 elements came; the shape 4x1 has 4"):
            layer.weights = count(3)

    @pytest.mark.parametrize("dtype", [np.float16, np.int64, "bfloat16", "int4"])
    def test_of_other_types(self, network, dtype):
        if isinstance(dtype, str):
            ml_dtypes = pytest.importorskip("ml_dtypes")
            dtype = getattr(ml_dtypes, dtype)
        values = np.array([1, -2, 3], dtype)
        weights = network.add_constant((3,), values).weights
        assert weights.dtype == values.dtype
        np.testing.assert_array_equal(weights, values)
        with pytest.raises(ValueError, match="read-only"):
            network.add_constant((3,), values.astype(np.float32)).weights[0] = 1


class TestDefinition:
    """What a network says of itself, and what is marked in it."""

    def test_flags_and_builder(self, builder):
        flags = 1 << int(STRONGLY_TYPED) | 1 << int(
            trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH
        )
        network = builder.create_network(flags)
        assert network.flags == flags and network.get_flag(STRONGLY_TYPED)
        assert not network.get_flag(trt.NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS)
        assert network.builder is builder

    def test_the_builder_lives_as_long_as_its_network(self):
        network = trt.Builder(LOGGER).create_network()
        assert network.builder.create_network().num_layers == 0

    def test_an_input_that_nothing_uses_is_removed(self, network):
        x, y = (network.add_input(name, trt.float32, (-1,)) for name in "xy")
        network.mark_output(network.add_identity(y).get_output(0))
        network.remove_tensor(x)
        network.remove_tensor(y)  # a warning: a layer needs it
        assert [network.get_input(i).name for i in range(network.num_inputs)] == ["y"]
        with pytest.raises(trt.Error, match="it was removed"):
            network.add_identity(x)
        engine = trt.build(network, shapes={"y": ((1,), (2,), (3,))}, timing=False)
        np.testing.assert_array_equal(engine(count(2)), count(2))

    def test_shape_tensors_are_outputs_where_they_are_marked(self, network):
        x = network.add_input("x", trt.float32, (-1, 3))
        shape = network.add_shape(x).get_output(0)
        assert not network.mark_output_for_shapes(network.add_identity(x).get_output(0))
        assert network.mark_output_for_shapes(shape) and shape.is_network_output
        assert network.unmark_output_for_shapes(shape) and not network.unmark_output_for_shapes(
            shape
        )
        network.mark_output_for_shapes(shape)
        engine = trt.build(network, shapes={"x": ((1, 3), (2, 3), (4, 3))}, timing=False)
        np.testing.assert_array_equal(engine(np.zeros((4, 3), np.float32)), [4, 3])

    def test_tensors_lie_on_the_device(self, network):
        x = network.add_input("x", trt.float32, (1,))
        x.location = trt.TensorLocation.DEVICE
        assert x.location == trt.TensorLocation.DEVICE and not x.broadcast_across_batch
        with pytest.raises(trt.Error, match="on the device"):
            x.location = trt.TensorLocation.HOST
