"""`opwright run --steps`: outputs become inputs of the next step, and state is kept in place."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import opwright as trt
from nets import CPU, Net
from test_cli import Cli


@pytest.fixture(scope="module")
def cli(program, tmp_path_factory) -> Cli:
    """Engines of y = 2 x + 1, of any length, with a second output that is as long as two of it, and
    of a cache that takes a token at a time."""
    made = Cli(program, tmp_path_factory.mktemp("steps"))
    net = Net()
    x = net.input("x", trt.float32, (-1,))
    ones = net.network.add_constant((1,), np.ones(1, np.float32)).get_output(0)
    two = net.network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    y = net.network.add_elementwise(two, ones, trt.ElementWiseOperation.SUM).get_output(0)
    longer = net.network.add_concatenation([y, y])
    longer.axis = 0
    for name, tensor in (("y", y), ("longer", longer.get_output(0))):
        tensor.name = name
        net.network.mark_output(tensor)
    trt.build(net.network, shapes={"x": ((1,), (2,), (8,))}, timing=False, device=CPU).save(
        str(made.folder / "line.engine")
    )
    net = Net()
    cache = net.input("cache", trt.float32, (1, 1, 6, 2))
    update = net.input("update", trt.float32, (1, 1, 1, 2))
    at = net.input("at", trt.int32, (1,))
    present = net.network.add_kv_cache_update(cache, update, at, trt.KVCacheMode.LINEAR)
    one = net.network.add_constant((1,), np.ones(1, np.int32)).get_output(0)
    behind = net.network.add_elementwise(at, one, trt.ElementWiseOperation.SUM)
    doubled = net.network.add_elementwise(update, update, trt.ElementWiseOperation.SUM)
    results = (("present", present), ("behind", behind), ("next", doubled))
    for name, layer in results:
        layer.get_output(0).name = name
        net.network.mark_output(layer.get_output(0))
    trt.build(net.network, timing=False, device=CPU).save(str(made.folder / "cache.engine"))
    np.save(made.folder / "x.npy", np.array([1, -2], np.float32))
    np.save(made.folder / "update.npy", np.array([[[[1, 10]]]], np.float32))
    np.save(made.folder / "at.npy", np.array([1], np.int32))
    return made


def test_outputs_become_inputs(cli):
    run = ["run", "line.engine", "--input", "x=x.npy", "--feed", "y=x", "--output", "y=y.npy"]
    text = cli.ok(*run, "--steps", "4")
    assert re.search(r"4 steps: the first [\d.]+ (us|ms|s), then [\d.]+ (ns|us|ms) each", text)
    expected, x = [], np.array([1, -2], np.float32)
    for _ in range(4):
        x = 2 * x + 1
        expected.append(x)
    np.testing.assert_array_equal(np.load(cli.folder / "y.npy"), expected)
    cli.ok(*run)  # one step has no axis of steps
    np.testing.assert_array_equal(np.load(cli.folder / "y.npy"), expected[0])
    times = json.loads(cli.ok(*run, "--steps", "3", "--json"))
    assert times["first_ms"] > 0 and times["step_ms"] > 0


def test_shapes_follow(cli):
    run = ["run", "line.engine", "--input", "x=x.npy", "--feed", "longer=x"]
    assert "y: FP32 8" in cli.ok(*run, "--steps", "3")
    cli.fails(*run, "--steps", "4", match="(?=.*16)(?=.*profile 0)")
    cli.fails(*run, "--steps", "3", "--output", "y=y.npy", match="'y' is 2 first and 4 in step 2")


def test_state_stays_in_place(cli):
    """A cache that is not given begins as zeros; it is written where it lies."""
    run = ["run", "cache.engine", "--input", "update=update.npy", "--input", "at=at.npy"]
    run += ["--feed", "behind=at", "--feed", "next=update", "--output", "present=present.npy"]
    cli.ok(*run, "--steps", "3")
    expected = np.zeros((1, 1, 6, 2), np.float32)
    expected[0, 0, 1:4] = [[1, 10], [2, 20], [4, 40]]
    np.testing.assert_array_equal(np.load(cli.folder / "present.npy"), expected)
    given = np.full((1, 1, 6, 2), 7, np.float32)
    np.save(cli.folder / "given.npy", given)
    cli.ok(*run, "--input", "cache=given.npy")
    given[0, 0, 1] = [1, 10]
    np.testing.assert_array_equal(np.load(cli.folder / "present.npy"), given)
    assert (np.load(cli.folder / "given.npy") == 7).all()


@pytest.mark.parametrize(
    "feed, match",
    [
        ("y", "--feed 'y'; expected OUTPUT=INPUT"),
        ("z=x", "no output 'z'"),
        ("y=z", "no input 'z'"),
    ],
)
def test_wrong_feeds(cli, feed, match):
    run = ["run", "line.engine", "--input", "x=x.npy", "--steps", "2"]
    cli.fails(*run, "--feed", feed, match=match)


def test_feeds_of_other_types_and_of_state(cli):
    run = ["run", "cache.engine", "--input", "update=update.npy", "--input", "at=at.npy"]
    run += ["--steps", "2"]
    cli.fails(*run, "--feed", "next=at", match="'next' is FP32, input 'at' INT32")
    cli.fails(*run, "--feed", "present=cache", match="'present' lies in the memory of an input")
