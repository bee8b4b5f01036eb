"""What `debug_plugins` finds in plugins of every kind: writes beside tensors and workspace, and what was left out."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import opwright as trt
from plugin_kinds import KINDS, VERSION, Behaviour
from v3_plugins import Log

X = np.random.default_rng(0).standard_normal((4, 5), np.float32)


class Checked(Behaviour):
    """y = 2 x, then what `fault` does; its workspace has 16 bytes."""

    fault = None

    def workspace(self, inputs, outputs):
        return 16

    def run(self, call):
        super().run(call)
        if self.fault is not None:
            self.fault(call)


def element(address: int, number: int) -> np.ndarray:
    """An element counted from a tensor's first one, wherever it is."""
    return np.frombuffer((ctypes.c_byte * 4).from_address(address + 4 * number), np.float32)


def write_output(number):
    return lambda call: element(call.ports_out[0].address, number).fill(1.5)


def write_workspace(offset):
    return lambda call: ctypes.memset(call.workspace + offset, 1, 1)


def change_input(call):
    element(call.ports_in[0].address, 7).fill(1.5)


BEYOND_OUTPUT = ["4 bytes behind the end of output 0 ('y0': FP32 4x5)", "element 20 on", "1.5"]
BEFORE_OUTPUT = ["4 bytes before the start of output 0 ('y0': FP32 4x5)", "element -2 on"]
CHANGED = ["input 0 ('x0': FP32 4x5) was changed in 1 of 20", "at [1, 2] from"]
BEHIND = ["1 bytes behind the end of the workspace (16 bytes)"]
CASES = [
    *((kind, write_output(20), BEYOND_OUTPUT) for kind in KINDS),
    *((kind, write_output(-2), BEFORE_OUTPUT) for kind in KINDS),
    *((kind, change_input, CHANGED) for kind in KINDS),
    *((kind, write_workspace(16), BEHIND) for kind in ("V3", "V2")),
    *(
        (kind, write_workspace(-1), ["1 bytes before the start of the workspace"])
        for kind in ("V3", "V2")
    ),
]


def debugged(made, log=None):
    """An engine that is built without a run of the plugin, which would end the build."""
    return made.build(X.shape, debug_plugins=True, timing=False, logger=log)


@pytest.mark.parametrize("kind, fault, parts", CASES, ids=[f"{k} {p[0]}" for k, _, p in CASES])
def test_faults_name_plugin_call_port_and_element(kind, fault, parts, make_plugin):
    does = Checked()
    made = make_plugin(kind, does, "Checked")
    engine = debugged(made)
    engine(X)
    does.fault = fault
    with pytest.raises(trt.Error) as caught:
        engine(X)
    message = str(caught.value)
    version = "1" if kind == "function" else VERSION
    who = f"plugin 'Checked' (version {version}, namespace '{made.namespace}')"
    assert message.startswith(f"layer 'the layer': {who}, call 2 "), message
    for part in parts:
        assert part in message
    does.fault = None
    np.testing.assert_array_equal(engine(X), 2 * X)


def test_what_is_not_written(kind, make_plugin):
    class Partial(Behaviour):
        def run(self, call):
            np.multiply(call.inputs[0][:3], 2, out=call.outputs[0][:3])

    engine = debugged(make_plugin(kind, Partial()))
    with pytest.raises(trt.Error, match=r"was not written in 5 of 20.*the first at \[3, 0\]") as e:
        engine(X)
    assert "output 0 ('y0': FP32 4x5)" in str(e.value)


def test_a_faultless_plugin_computes_as_ever(kind, make_plugin):
    log = Log()
    engine = debugged(make_plugin(kind, Checked()), log)
    for x in (X, -X):
        np.testing.assert_array_equal(engine(x), 2 * x)
    assert [text for level, text in log.lines if level == trt.ILogger.WARNING] == []


def test_exceptions_pass_as_they_are(kind, make_plugin):
    class Raising(Behaviour):
        def run(self, call):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        debugged(make_plugin(kind, Raising()))(X)
