"""How V3 plugins are tuned: what is timed, what is found in the timing cache, and caches themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import opwright as trt
from plugin_testing import network
from v3_plugins import Log, Twice, as_array, layers_of, registered

X = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
F = trt.TensorFormat


class Tuned(Twice):
    """Runs in FP32 and FP16, LINEAR and HWC; the tactics depend on the type."""

    plugin_name = "Tuned"
    tactics = {trt.float32: [1, 2], trt.float16: [2]}
    configured = None
    asked: list = []
    enqueued: list = []

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc, first = in_out[pos].desc, in_out[0].desc
        return (
            desc.format in (F.LINEAR, F.HWC)
            and desc.type in self.tactics
            and (desc.type, desc.format) == (first.type, first.format)
        )

    def configure_plugin(self, inputs, outputs):
        assert inputs[0].desc.type == outputs[0].desc.type
        self.configured = inputs[0].desc.type, inputs[0].desc.format

    def get_valid_tactics(self):
        Tuned.asked.append(self.configured)
        return self.tactics[self.configured[0]]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        Tuned.enqueued.append((input_desc[0].type, input_desc[0].format, self.tactic))
        as_array(outputs[0], output_desc[0])[...] = 0


@pytest.fixture(autouse=True)
def fresh():
    Tuned.asked.clear()
    Tuned.enqueued.clear()


def chain(plugins, x=X):
    net = network()
    tensor = net.add_input("x", trt.float32, x.shape)
    for i, plugin in enumerate(plugins):
        layer = net.add_plugin_v3([tensor], [], plugin)
        layer.name = f"layer {i}"
        tensor = layer.get_output(0)
    tensor.name = "y"
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


def test_every_combination_and_tactic_is_timed():
    with registered(Tuned()):
        log = Log()
        engine = build(chain([Tuned()]), log, flags=[trt.BuilderFlag.FP16])
    expected = {
        (type, format, tactic)
        for type in (trt.float32, trt.float16)
        for format in (F.LINEAR, F.HWC)
        for tactic in Tuned.tactics[type]
    }
    assert set(Tuned.enqueued) == expected
    assert set(Tuned.asked) == {(type, format) for type, format, _ in expected}
    (candidates,) = [
        layer["Candidates"] for layer in layers_of(engine) if layer["LayerType"] == "PluginV3"
    ]
    types, formats = {trt.float32: "FP32", trt.float16: "FP16"}, {F.LINEAR: "", F.HWC: ":HWC"}
    shown = {(c["Types"], c["TacticValue"]) for c in candidates}
    assert shown == {
        (f"{types[t]}{formats[f]} -> {types[t]}{formats[f]}", tactic) for t, f, tactic in expected
    }
    assert len(candidates) == len(expected) == 6
    assert sum(c["Chosen"] for c in candidates) == 1
    line = line_of(log, "layer 0")
    assert "(PluginV3 'Tuned'): 6 candidates, 6 timed, 0 found in the timing cache" in line
    rows = line.splitlines()[2:]
    assert len(rows) == 6 and sum(row.lstrip().startswith("*") for row in rows) == 1
    assert all(f"  {types} -> {types}  " in line for types in ("FP32", "FP32:HWC", "FP16:HWC"))


def test_the_limit_of_combinations_holds():
    class Limited(Tuned):
        plugin_name = "Limited"
        format_combination_limit = 2

    with registered(Limited()):
        build(chain([Limited()]), flags=[trt.BuilderFlag.FP16])
    assert len({(type, format) for type, format, _ in Tuned.enqueued}) == 2


def test_identical_instances_are_timed_once():
    class CallsBefore(trt.IProgressMonitor):
        """How often the plugins were called when each phase began."""

        def __init__(self):
            super().__init__()
            self.calls: dict[str, int] = {}

        def phase_start(self, phase_name, parent_phase, num_steps):
            self.calls[phase_name] = len(Tuned.enqueued)

        def step_complete(self, phase_name, step):
            return True

        def phase_finish(self, phase_name):
            pass

    with registered(Tuned()):
        log, before = Log(), CallsBefore()
        build(chain([Tuned()] * 200), log, monitor=before)
        calls_200 = before.calls["selecting formats"]
        Tuned.enqueued.clear()
        build(chain([Tuned()]))
    assert "4 timed, 0 found in the timing cache" in line_of(log, "layer 0")
    for layer in ("layer 1", "layer 199"):
        line = line_of(log, layer)
        assert "(PluginV3 'Tuned'): 4 candidates, 0 timed, 4 found in the timing cache" in line
        assert line.count("as layer 'layer 0'") == 4
    # Each candidate has so many runs at most, however many instances there are.
    assert calls_200 < 4 * len(Tuned.enqueued)


@pytest.mark.parametrize(
    "change",
    [{"timing_cache_id": "other"}, {"timing_cache_id": None}],
    ids=["another id", "no id"],
)
def test_other_instances_are_timed_too(change):
    other = type("Tuned", (Tuned,), change)()
    with registered(Tuned()):
        log = Log()
        build(chain([Tuned(), other]), log)
    assert "4 timed, 0 found in the timing cache" in line_of(log, "layer 1")


def test_caches_through_the_api():
    with registered(Tuned()):
        cache = new_cache()
        build(chain([Tuned()]), cache=cache)
        keys = cache.queryKeys()
        assert Tuned.enqueued and sum("PluginV3 'Tuned'" in str(key) for key in keys) == 4
        Tuned.enqueued.clear()
        log = Log()
        again = new_cache(cache.serialize())
        build(chain([Tuned()]), log, again)
        assert not Tuned.enqueued
        assert "0 timed, 4 found in the timing cache" in line_of(log, "layer 0")

        other = new_cache()
        assert other.combine(cache, ignore_mismatch=False)
        assert other.queryKeys() == keys
        assert other.reset()
        assert not other.queryKeys()
        build(chain([Tuned()]), cache=other)
        assert Tuned.enqueued, "a cache that was reset knows nothing"
        with pytest.raises(trt.Error, match="no timing cache"):
            new_cache(b"something else entirely, of some length, that is none")


def test_a_miss_can_be_an_error():
    flag = trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS
    with registered(Tuned()):
        cache = new_cache()
        with pytest.raises(trt.Error, match="layer 0.*Tuned.*not in the timing cache"):
            build(chain([Tuned()]), cache=cache, flags=[flag])
        assert not Tuned.enqueued
        build(chain([Tuned()]), cache=cache)
        Tuned.enqueued.clear()
        build(chain([Tuned()]), cache=cache, flags=[flag])
        assert not Tuned.enqueued
        with pytest.raises(trt.Error, match="layer 0.*not in the timing cache"):
            build(chain([Tuned()], np.ones((1, 3, 4, 5))), cache=cache, flags=[flag])


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
