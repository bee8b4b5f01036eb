"""IIfConditional, against what Python's `if` gives."""

import numpy as np
import pytest

import opwright as trt
from nets import Net


def yes_or_no(value):
    return np.array(value, np.bool_)


def conditional(net, condition):
    branch = net.network.add_if_conditional()
    branch.name = "choice"
    branch.set_condition(condition)
    return branch


@pytest.mark.parametrize("known", [None, True, False])
def test_branches_of_one_shape(known):
    """As in NVIDIA's samples: twice x, or x itself."""
    net = Net()
    x = net.input("x", trt.float32, (2, 3))
    condition = net.input("flag", trt.bool, ()) if known is None else net.constant(known, np.bool_)
    branch = conditional(net, condition)
    inside = branch.add_input(x).get_output(0)
    twice = net.binary(inside, inside)
    same = net.network.add_identity(inside).get_output(0)
    output = branch.add_output(twice, same)
    assert output.type == trt.LayerType.CONDITIONAL_OUTPUT
    assert isinstance(output, trt.IIfConditionalBoundaryLayer)
    assert output.conditional.name == "choice"
    run = net.build([output.get_output(0)])
    given = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    for flag in (True, False) if known is None else (known,):
        inputs = {"flag": yes_or_no(flag)} if known is None else {}
        np.testing.assert_array_equal(run(x=given, **inputs)[0], given * 2 if flag else given)


def test_condition_that_data_decides():
    net = Net()
    x = net.input("x", trt.float32, (4,))
    total = net.network.add_reduce(x, trt.ReduceOperation.SUM, 1, False).get_output(0)
    branch = conditional(net, net.binary(total, net.constant(0.0), "GREATER"))
    inside = branch.add_input(x).get_output(0)
    positive = net.network.add_unary(inside, trt.UnaryOperation.SQRT).get_output(0)
    output = branch.add_output(positive, net.binary(inside, net.constant([1.0]), "SUB"))
    run = net.build([output.get_output(0)])
    np.testing.assert_allclose(run(x=np.array([1, 4, 9, 16], np.float32))[0], [1, 2, 3, 4])
    np.testing.assert_allclose(run(x=-np.ones(4, np.float32))[0], -2 * np.ones(4))


@pytest.mark.parametrize("rows", [1, 3])
def test_branches_of_different_shapes(rows):
    """x, or x twice, one behind the other: the extent is known when it has run."""
    net = Net()
    x = net.input("x", trt.float32, (-1, 3))
    branch = conditional(net, net.input("flag", trt.bool, ()))
    inside = branch.add_input(x).get_output(0)
    both = net.network.add_concatenation([inside, inside])
    both.axis = 0
    output = branch.add_output(both.get_output(0), net.network.add_identity(inside).get_output(0))
    run = net.build(
        [net.binary(output.get_output(0), net.constant([[1.0]]))],
        {"x": ((1, 3), (2, 3), (4, 3))},
    )
    given = np.random.default_rng(1).normal(size=(rows, 3)).astype(np.float32)
    for flag in (True, False):
        expected = (np.concatenate([given, given]) if flag else given) + 1
        np.testing.assert_allclose(run(x=given, flag=yes_or_no(flag))[0], expected, rtol=1e-6)


def test_two_outputs_and_one_from_outside():
    net = Net()
    x, y = net.input("x", trt.float32, (3,)), net.input("y", trt.float32, (3,))
    branch = conditional(net, net.input("flag", trt.bool, (1,)))
    a, b = (branch.add_input(t).get_output(0) for t in (x, y))
    first = branch.add_output(net.binary(a, b), net.binary(a, b, "SUB"))
    second = branch.add_output(net.binary(a, b, "PROD"), y)
    run = net.build([first.get_output(0), second.get_output(0)])
    xs, ys = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    for flag in (True, False):
        made = run(x=xs, y=ys, flag=np.array([flag]))
        expected = (xs + ys, xs * ys) if flag else (xs - ys, ys)
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_conditional_in_a_loop_and_in_a_conditional():
    """Collatz' steps: while n > 1: n = n / 2 if n is even else 3 n + 1."""
    net = Net()
    one, two, three = (net.constant(i, np.int32) for i in (1, 2, 3))
    loop = net.network.add_loop()
    n = loop.add_recurrence(net.input("n", trt.int32, ()))
    steps = loop.add_recurrence(net.constant(0, np.int32))
    loop.add_trip_limit(net.binary(n.get_output(0), one, "GREATER"), trt.TripLimit.WHILE)
    half = net.binary(n.get_output(0), two, "FLOOR_DIV")
    branch = conditional(net, net.binary(net.binary(half, two, "PROD"), n.get_output(0), "EQUAL"))
    inside = branch.add_input(n.get_output(0)).get_output(0)
    even = net.binary(inside, two, "FLOOR_DIV")
    odd = net.binary(net.binary(inside, three, "PROD"), one)
    n.set_input(1, branch.add_output(even, odd).get_output(0))
    steps.set_input(1, net.binary(steps.get_output(0), one))
    run = net.build(
        [loop.add_loop_output(steps.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)]
    )
    for n, expected in [(1, 0), (6, 8), (27, 111)]:
        assert run(n=np.array(n, np.int32))[0] == expected


def test_loop_in_a_branch():
    net = Net()
    x = net.input("x", trt.float32, (3,))
    count = net.input("count", trt.int32, ())
    branch = conditional(net, net.input("flag", trt.bool, ()))
    inside = branch.add_input(x).get_output(0)
    loop = net.network.add_loop()
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    state = loop.add_recurrence(inside)
    state.set_input(1, net.binary(state.get_output(0), state.get_output(0)))
    last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)
    output = branch.add_output(last, net.network.add_identity(inside).get_output(0))
    run = net.build([output.get_output(0)])
    given = np.ones(3, np.float32)
    for flag in (True, False):
        made = run(x=given, count=np.array(5, np.int32), flag=yes_or_no(flag))[0]
        np.testing.assert_array_equal(made, given * (32 if flag else 1))


def test_only_the_branch_that_runs_asserts():
    net = Net()
    x = net.input("x", trt.float32, (2,))
    branch = conditional(net, net.input("flag", trt.bool, ()))
    inside = branch.add_input(x).get_output(0)
    least = net.network.add_reduce(inside, trt.ReduceOperation.MIN, 1, False).get_output(0)
    net.network.add_assertion(
        net.binary(least, net.constant(0.0), "GREATER"), "roots need positive numbers"
    )
    root = net.network.add_unary(inside, trt.UnaryOperation.SQRT).get_output(0)
    output = branch.add_output(
        net.binary(root, least), net.network.add_identity(inside).get_output(0)
    )
    run = net.build([output.get_output(0)])
    negative = np.array([-1, 4], np.float32)
    np.testing.assert_array_equal(run(x=negative, flag=yes_or_no(False))[0], negative)
    with pytest.raises(trt.Error, match="roots need positive numbers"):
        run(x=negative, flag=yes_or_no(True))
    np.testing.assert_array_equal(
        run(x=np.array([1, 4], np.float32), flag=yes_or_no(True))[0], [2, 3]
    )


def test_errors():
    net = Net()
    x = net.input("x", trt.float32, (2,))
    branch = net.network.add_if_conditional()
    branch.name = "undecided"
    inside = branch.add_input(x).get_output(0)
    output = branch.add_output(net.binary(inside, inside), inside)
    with pytest.raises(trt.Error, match="'undecided'.*no condition.*set_condition"):
        net.build([output.get_output(0)])
    branch.set_condition(net.input("flag", trt.bool, ()))
    with pytest.raises(trt.Error, match="has a condition already"):
        branch.set_condition(net.constant(True, np.bool_))
    with pytest.raises(trt.Error, match="same rank"):
        branch.add_output(inside, net.constant(1.0))
    leaking = Net()
    x = leaking.input("x", trt.float32, (2,))
    branch = conditional(leaking, leaking.input("flag", trt.bool, ()))
    inside = branch.add_input(x).get_output(0)
    branch.add_output(leaking.binary(inside, inside), inside)
    with pytest.raises(trt.Error, match="choice: tensor 'y0' lies inside"):
        leaking.build([leaking.binary(inside, inside, "PROD")])
