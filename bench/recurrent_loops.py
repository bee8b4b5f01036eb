"""A cell in a loop of the API, as it stands and recognized, beside ONNX Runtime's layer:
python bench/recurrent_loops.py"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from timing import in_turns, threads

import opwright as trt

TESTS = Path(__file__).parent.parent / "tests" / "python"
sys.path[:0] = [str(TESTS / "layers"), str(TESTS / "support")]

from test_recurrence import make_model  # noqa: E402
from test_recurrent_loops import Cell, Net, gate_weights, kinds_of, torch_layer  # noqa: E402

# Kind, steps, batch, input, hidden. Longer loops are not unrolled into layers for each iteration.
CASES = [
    ("LSTM", 64, 1, 128, 128),
    ("LSTM", 64, 8, 256, 256),
    ("LSTM", 500, 1, 128, 128),
    ("LSTM", 500, 8, 256, 256),
    ("GRU", 64, 1, 128, 128),
    ("GRU", 500, 8, 256, 256),
    ("RNN", 500, 1, 128, 128),
]
ONNX_ORDERS = {"LSTM": "iofg", "GRU": "zrn", "RNN": "h"}


def built(kind, layer, steps, batch, recognized):
    inner, hidden = layer.input_size, layer.hidden_size
    net = Net()
    x = net.input("x", trt.float32, (steps, batch, inner))
    states = [net.input(n, trt.float32, (batch, hidden)) for n in "hc"[: 1 + (kind == "LSTM")]]
    order = {"LSTM": "ifgo", "GRU": "rzn", "RNN": "h"}[kind]
    outputs = Cell(net, kind, layer, order=order).loop(x, net.constant(steps, np.int32), *states)
    if not recognized:  # an explicit precision keeps the cell from being recognized
        for i in range(net.network.num_layers):
            if net.network.get_layer(i).type == trt.LayerType.ACTIVATION:
                net.network.get_layer(i).precision = trt.float32
    engine = net.build(outputs).engine
    assert ("Recurrence" in kinds_of(engine)) == recognized
    return engine


def runtime(kind, layer, steps, batch):
    gates = gate_weights(layer, kind)
    w, r, b, rb = (np.concatenate(p)[None] for p in zip(*(gates[g] for g in ONNX_ORDERS[kind])))
    arrays = {
        "X": np.zeros((steps, batch, layer.input_size), np.float32),
        "W": w,
        "R": r,
        "B": np.concatenate([b, rb], 1),
    }
    for name in ["initial_h", "initial_c"][: 1 + (kind == "LSTM")]:
        arrays[name] = np.zeros((1, batch, layer.hidden_size), np.float32)
    options = {"linear_before_reset": 1} if kind == "GRU" else {}
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads()
    settings.log_severity_level = 4
    return onnxruntime.InferenceSession(
        make_model(kind, arrays, **options).SerializeToString(),
        settings,
        providers=["CPUExecutionProvider"],
    )


def measure(kind, steps, batch, inner, hidden, seconds):
    layer = torch_layer(kind, inner, hidden)
    engines = [built(kind, layer, steps, batch, recognized) for recognized in (False, True)]
    session = runtime(kind, layer, steps, batch)
    x = np.random.default_rng(1).normal(size=(steps, batch, inner)).astype(np.float32)
    states = [np.zeros((batch, hidden), np.float32)] * (1 + (kind == "LSTM"))
    given = {"x": x, **dict(zip("hc", states))}
    theirs = {"X": x, **{f"initial_{n}": s[None] for n, s in zip("hc", states)}}
    wanted = session.run(None, theirs)[0][:, 0]
    for engine in engines:
        np.testing.assert_allclose(engine(**given)["y0"], wanted, rtol=1e-3, atol=1e-4)
    calls = [lambda engine=engine: engine(**given) for engine in engines]
    return in_turns([*calls, lambda: session.run(None, theirs)], seconds=seconds, rounds=3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each turn")
    arguments = parser.parse_args()
    print(f"{threads()} threads; microseconds a call\n")
    print(f"{'':32}{'loop':>10}{'recognized':>12}{'runtime':>10}{'ratio':>8}")
    for case in CASES:
        kind, steps, batch, inner, hidden = case
        loop, ours, theirs = measure(*case, arguments.seconds)
        what = f"{kind} [{steps}, {batch}, {inner}] hidden {hidden}"
        print(
            f"{what:32}{loop * 1e6:10.1f}{ours * 1e6:12.1f}{theirs * 1e6:10.1f}"
            f"{ours / theirs:8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
