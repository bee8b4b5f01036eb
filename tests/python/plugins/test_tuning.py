"""How plugins of every kind are tuned: what is timed, what is found in the timing cache, and caches themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import opwright as trt
from plugin_kinds import LINEAR, Behaviour
from plugin_testing import network
from v3_plugins import Log, layers_of

X = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
HWC = trt.TensorFormat.HWC
# V2 plugins have no tactics, and each instance is timed.
WITH_TACTICS = ["function", "V3", "Quick"]


class Tuned(Behaviour):
    """Runs in FP32 and FP16, LINEAR and HWC; the tactics depend on the type."""

    tactics = (1, 2)
    combinations = [
        [(dtype, layout)] * 2 for dtype in (trt.float32, trt.float16) for layout in (LINEAR, HWC)
    ]

    def __init__(self):
        self.ran = []

    def tactics_for(self, dtype):
        return [1, 2] if dtype == trt.float32 else [2]

    def run(self, call):
        first, second = call.ports
        assert (first.type, first.format) == (second.type, second.format)
        self.ran.append((first.type, first.format, call.tactic))
        call.outputs[0][...] = 0


def chain(*plugins, x=X):
    net = network()
    tensor = net.add_input("x", trt.float32, x.shape)
    for i, made in enumerate(plugins):
        layer = made.add(net, tensor)
        layer.name = f"layer {i}"
        tensor = layer.get_output(0)
    net.mark_output(tensor)
    return net


def build(net, log=None, cache=None, flags=(), monitor=None):
    builder = trt.Builder(log or trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    config.progress_monitor = monitor
    for flag in flags:
        config.set_flag(flag)
    if cache is not None:
        assert config.set_timing_cache(cache, ignore_mismatch=False)
    return builder.build_engine_with_config(net, config)


def new_cache(serialized=b""):
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    return builder.create_builder_config().create_timing_cache(serialized)


def line_of(log, layer):
    (line,) = [text for text in log.verbose() if text.startswith(f"Layer '{layer}' ")]
    return line


def test_every_combination_and_tactic_is_timed(kind, make_plugin):
    does, log = Tuned(), Log()
    engine = build(chain(make_plugin(kind, does, "Tuned")), log, flags=[trt.BuilderFlag.FP16])
    expected = {
        (dtype, layout, tactic)
        for dtype in (trt.float32, trt.float16)
        for layout in (LINEAR, HWC)
        for tactic in (does.tactics_for(dtype) if kind in WITH_TACTICS else [0])
    }
    ran = {(t, layout, tactic or 0) for t, layout, tactic in does.ran}
    assert ran == expected
    (candidates,) = [
        layer["Candidates"] for layer in layers_of(engine) if "Plugin" in layer["LayerType"]
    ]
    types, formats = {trt.float32: "FP32", trt.float16: "FP16"}, {LINEAR: "", HWC: ":HWC"}
    assert {(c["Types"], c["TacticValue"]) for c in candidates} == {
        (f"{types[t]}{formats[f]} -> {types[t]}{formats[f]}", tactic) for t, f, tactic in expected
    }
    count = 6 if kind in WITH_TACTICS else 4
    assert len(candidates) == len(expected) == count
    assert sum(c["Chosen"] for c in candidates) == 1
    line = line_of(log, "layer 0")
    said = f"Tuned'): {count} candidates, {count} timed, 0 found in the timing cache"
    assert said in line
    rows = line.splitlines()[2:]
    assert len(rows) == count and sum(row.lstrip().startswith("*") for row in rows) == 1
    assert all(f"  {types} -> {types}  " in line for types in ("FP32", "FP32:HWC", "FP16:HWC"))


def test_the_limit_of_combinations_holds(make_plugin):
    does = Tuned()
    made = make_plugin("V3", does, format_combination_limit=2)
    build(chain(made), flags=[trt.BuilderFlag.FP16])
    assert len({(type, format) for type, format, _ in does.ran}) == 2


@pytest.mark.parametrize("kind", WITH_TACTICS)
def test_identical_instances_are_timed_once(kind, make_plugin):
    class CallsBefore(trt.IProgressMonitor):
        """How often the plugins were called when each phase began."""

        def __init__(self):
            super().__init__()
            self.calls: dict[str, int] = {}

        def phase_start(self, phase_name, parent_phase, num_steps):
            self.calls[phase_name] = len(does.ran)

        def step_complete(self, phase_name, step):
            return True

        def phase_finish(self, phase_name):
            pass

    does, log, before = Tuned(), Log(), CallsBefore()
    made = make_plugin(kind, does, "Tuned")
    build(chain(*[made] * 50), log, monitor=before)
    calls_50 = before.calls["selecting formats"]
    does.ran.clear()
    build(chain(made))
    assert "4 timed, 0 found in the timing cache" in line_of(log, "layer 0")
    for layer in ("layer 1", "layer 49"):
        line = line_of(log, layer)
        assert "Tuned'): 4 candidates, 0 timed, 4 found in the timing cache" in line
        assert line.count("as layer 'layer 0'") == 4
    # Each candidate has so many runs at most, however many instances there are.
    assert calls_50 < 4 * len(does.ran)


@pytest.mark.parametrize(
    "kind, change",
    [(kind, id) for kind in ("V3", "Quick") for id in ("other", None)] + [("V2", "")],
)
def test_other_instances_are_timed_too(kind, change, make_plugin):
    """Of V2 plugins every instance is one."""
    log, does = Log(), Tuned()
    made = make_plugin(kind, does)
    net = chain(made)
    plugin = made.plugin_class()
    plugin.timing_cache_id = change
    layer = made.add(net, net.get_layer(0).get_output(0), plugin=plugin)
    layer.name = "layer 1"
    net.mark_output(layer.get_output(0))
    build(net, log)
    count = 2 if kind == "V2" else 4
    assert f"{count} timed, 0 found in the timing cache" in line_of(log, "layer 1")


@pytest.mark.parametrize("kind", WITH_TACTICS)
def test_caches_through_the_api(kind, make_plugin):
    does, cache = Tuned(), new_cache()
    made = make_plugin(kind, does, "Tuned")
    build(chain(made), cache=cache)
    keys = cache.queryKeys()
    assert does.ran and sum("Tuned" in str(key) for key in keys) == 4
    does.ran.clear()
    log = Log()
    again = new_cache(cache.serialize())
    build(chain(made), log, again)
    assert not does.ran
    assert "0 timed, 4 found in the timing cache" in line_of(log, "layer 0")

    other = new_cache()
    assert other.combine(cache, ignore_mismatch=False)
    assert other.queryKeys() == keys
    assert other.reset()
    assert not other.queryKeys()
    build(chain(made), cache=other)
    assert does.ran, "a cache that was reset knows nothing"
    with pytest.raises(trt.Error, match="no timing cache"):
        new_cache(b"something else entirely, of some length, that is none")


@pytest.mark.parametrize("kind", WITH_TACTICS)
def test_a_miss_can_be_an_error(kind, make_plugin):
    flags, does, cache = [trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS], Tuned(), new_cache()
    made = make_plugin(kind, does, "Tuned")
    with pytest.raises(trt.Error, match="layer 0.*Tuned.*not in the timing cache"):
        build(chain(made), cache=cache, flags=flags)
    assert not does.ran
    build(chain(made), cache=cache)
    does.ran.clear()
    build(chain(made), cache=cache, flags=flags)
    assert not does.ran
    with pytest.raises(trt.Error, match="layer 0.*not in the timing cache"):
        build(chain(made, x=np.ones((1, 3, 4, 5))), cache=cache, flags=flags)


def test_caches_of_another_device_are_refused():
    """A cache of a process with another number of threads."""
    script = (
        "import sys, opwright as trt\n"
        "config = trt.Builder(trt.Logger()).create_builder_config()\n"
        "cache = config.create_timing_cache(b'')\n"
        "sys.stdout.buffer.write(bytes(cache.serialize()))"
    )
    own = new_cache().device_identity
    foreign = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OMP_NUM_THREADS": "1" if ", 2 threads" in own else "2"},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    cache = config.create_timing_cache(foreign)
    assert cache.device_identity != own
    with pytest.raises(trt.Error, match=re.escape(cache.device_identity)):
        config.set_timing_cache(cache, ignore_mismatch=False)
    with pytest.raises(trt.Error, match=re.escape(cache.device_identity)):
        new_cache().combine(cache, ignore_mismatch=False)
    assert new_cache().combine(cache, ignore_mismatch=True)
    assert config.set_timing_cache(cache, ignore_mismatch=True)
