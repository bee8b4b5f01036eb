"""Squeeze, unsqueeze and assertions, against NumPy."""

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
from nets import Net

on_each_device = pytest.mark.parametrize(
    "device",
    [
        trt.DeviceType.CPU,
        pytest.param(trt.DeviceType.GPU, marks=emulated_gpu.required),
    ],
)


def test_squeeze_and_unsqueeze():
    net = Net()
    x = net.input("x", trt.float32, (1, -1, 1, 4))
    squeezed = net.network.add_squeeze(x, net.constant([0, -2], np.int32))
    assert squeezed.type == trt.LayerType.SQUEEZE
    assert tuple(squeezed.get_output(0).shape) == (-1, 4)
    wide = net.network.add_unsqueeze(squeezed.get_output(0), net.constant([1, 3], np.int64))
    assert wide.type == trt.LayerType.UNSQUEEZE
    shapes = {"x": ((1, 1, 1, 4), (1, 2, 1, 4), (1, 5, 1, 4))}
    run = net.build([squeezed.get_output(0), wide.get_output(0)], shapes)
    given = np.random.default_rng(0).normal(size=(1, 3, 1, 4)).astype(np.float32)
    for made, expected in zip(
        run(x=given), (given[0, :, 0], given[0, :, 0][:, None, :, None]), strict=True
    ):
        np.testing.assert_array_equal(made, expected)
    squeezed.set_input(1, net.constant([3], np.int32))
    with pytest.raises(trt.Error, match="Squeeze.*axis 3.*extent 4.*only an axis of extent 1"):
        _ = squeezed.get_output(0).shape


@on_each_device
def test_squeeze_of_all_axes(device):
    """Without axes those go that have extent 1 in the network, whatever comes at run time."""
    net = Net()
    x = net.input("x", trt.float32, (1, -1, 2, 1, 4))
    squeezed = net.network.add_squeeze(x)
    assert squeezed.num_inputs == 1
    assert tuple(squeezed.get_output(0).shape) == (-1, 2, 4)
    empty = net.network.add_squeeze(net.constant(np.zeros((1, 0, 1))), axes=None)
    assert tuple(empty.get_output(0).shape) == (0,)
    shapes = {"x": ((1, 1, 2, 1, 4), (1, 3, 2, 1, 4), (1, 5, 2, 1, 4))}
    run = net.build([squeezed.get_output(0)], shapes, device=device)
    for rows in (1, 3):
        given = np.random.default_rng(0).normal(size=(1, rows, 2, 1, 4)).astype(np.float32)
        np.testing.assert_array_equal(run(x=given)[0], given.reshape(rows, 2, 4))


def test_shapes_are_followed_through_them():
    """A reshape to what a scalar that was taken out of a shape says."""
    net = Net()
    x = net.input("x", trt.float32, (-1, 6))
    network = net.network
    rows = network.add_slice(network.add_shape(x).get_output(0), (0,), (1,), (1,)).get_output(0)
    scalar = network.add_squeeze(rows, net.constant([0], np.int32)).get_output(0)
    twice = net.binary(scalar, net.constant(2, np.int64), "PROD")
    row = network.add_unsqueeze(twice, net.constant([0], np.int32)).get_output(0)
    shape = network.add_concatenation([row, net.constant([3], np.int64)])
    shape.axis = 0
    moved = network.add_shuffle(x)
    moved.set_input(1, shape.get_output(0))
    run = net.build([moved.get_output(0)], {"x": ((1, 6), (2, 6), (4, 6))})
    given = np.arange(18, dtype=np.float32).reshape(3, 6)
    np.testing.assert_array_equal(run(x=given)[0], given.reshape(6, 3))


@on_each_device
def test_assertion(device, tmp_path):
    net = Net()
    x = net.input("x", trt.float32, (3,))
    layer = net.network.add_assertion(
        net.binary(x, net.constant([0.0]), "GREATER"), "x must be positive"
    )
    layer.name = "positive"
    assert (layer.type, layer.message) == (trt.LayerType.ASSERTION, "x must be positive")
    assert layer.num_outputs == 0
    built = net.build([net.binary(x, x)], device=device).engine
    built.save(tmp_path / "engine.ow")
    for engine in (built, trt.load(tmp_path / "engine.ow")):
        # So often that a GPU replays what it captured.
        for _ in range(4):
            np.testing.assert_array_equal(engine(x=np.ones(3, np.float32)), [2, 2, 2])
            with pytest.raises(trt.Error, match="'positive' failed: x must be positive"):
                engine(x=np.array([1, -1, 1], np.float32))


@on_each_device
def test_timing_meets_no_assertion(device):
    """The values that a build times layers with are not those that a program asserts."""
    net = Net()
    x = net.input("x", trt.float32, (3,))
    net.network.add_assertion(net.binary(x, net.constant([1e6]), "GREATER"), "x must be great")
    doubled = net.binary(x, x)
    doubled.name = "y"
    net.network.mark_output(doubled)
    engine = trt.build(net.network, device=device, timing=True)
    np.testing.assert_array_equal(engine(x=np.full(3, 2e6, np.float32)), [4e6] * 3)
    with pytest.raises(trt.Error, match="x must be great"):
        engine(x=np.ones(3, np.float32))


@on_each_device
def test_assertion_of_an_open_shape(device):
    net = Net()
    x = net.input("x", trt.float32, (-1,))
    net.network.add_assertion(net.binary(x, net.constant([0.0]), "GREATER"), "x must be positive")
    run = net.build([net.binary(x, x)], {"x": ((0,), (3,), (1000,))}, device=device)
    for count in (3, 1000, 0, 1):
        given = np.ones(count, np.float32)
        np.testing.assert_array_equal(run(x=given)[0], 2 * given)
        if count > 0:
            given[-1] = -1
            with pytest.raises(trt.Error, match="failed: x must be positive"):
                run(x=given)


@on_each_device
def test_assertion_of_one_branch(device):
    net = Net()
    x, chosen = net.input("x", trt.float32, (3,)), net.input("chosen", trt.bool, ())
    conditional = net.network.add_if_conditional()
    conditional.set_condition(chosen)
    inside = conditional.add_input(x).get_output(0)
    net.network.add_assertion(net.binary(inside, net.constant([0.0]), "GREATER"), "x is negative")
    output = conditional.add_output(net.binary(inside, inside), inside)
    run = net.build([output.get_output(0)], device=device)
    given = np.array([1, -1, 1], np.float32)
    np.testing.assert_array_equal(run(x=np.abs(given), chosen=np.True_)[0], [2, 2, 2])
    with pytest.raises(trt.Error, match="failed: x is negative"):
        run(x=given, chosen=np.True_)


def test_assertions_that_are_known():
    net = Net()
    x = net.input("x", trt.float32, (3, 3))
    extents = net.network.add_shape(x).get_output(0)
    a, b = (
        net.network.add_gather(extents, net.constant(i, np.int32), 0).get_output(0) for i in (0, 1)
    )
    net.network.add_assertion(net.binary(a, b, "EQUAL"), "x must be square")
    run = net.build([net.binary(x, x)])
    np.testing.assert_array_equal(run(x=np.ones((3, 3), np.float32))[0], 2 * np.ones((3, 3)))
    inspector = run.engine.engine.create_engine_inspector()
    assert "Assertion" not in inspector.get_engine_information(trt.LayerInformationFormat.ONELINE)
    net.network.add_assertion(net.constant([True, False], np.bool_), "never")
    with pytest.raises(trt.Error, match="its condition is false: never"):
        net.build([])


@pytest.mark.parametrize("rows,columns", [(3, 3), (3, 2)])
@pytest.mark.parametrize(
    "relation,message",
    [
        # Extents that have to be equal are one, so that the run does not get to the assertion.
        (
            "EQUAL",
            "dimension 1 of input 'x' is 2, but dimension 0 of input 'x' is 3; "
            "assertion 'relation': x must not be high",
        ),
        ("LESS", "x must not be high"),
    ],
)
def test_assertion_about_shapes(relation, message, rows, columns):
    net = Net()
    x = net.input("x", trt.float32, (-1, -1))
    extents = net.network.add_shape(x).get_output(0)
    a, b = (
        net.network.add_gather(extents, net.constant(i, np.int32), 0).get_output(0) for i in (0, 1)
    )
    if relation == "LESS":
        b = net.binary(b, net.constant(1, np.int64), "SUM")
    layer = net.network.add_assertion(net.binary(a, b, relation), "x must not be high")
    layer.name = "relation"
    run = net.build([net.binary(x, x)], {"x": ((1, 1), (2, 2), (5, 5))})
    given = np.ones((rows, columns), np.float32)
    if rows == columns:
        np.testing.assert_array_equal(run(x=given)[0], 2 * given)
    else:
        with pytest.raises(trt.Error, match=message):
            run(x=given)
