"""Calls of other runtimes on the CPU, with as many threads as this process has cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from timing import threads

Arrays = Mapping[str, np.ndarray]


def onnx_runtime(model: bytes, call: Arrays) -> Callable[[], Any]:
    """A call of ONNX Runtime's CPU provider."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(call))


def openvino(
    model: bytes, calls: Sequence[Arrays], is_exact: bool = True
) -> Callable[[], Any] | None:
    """A call of OpenVINO on the first of `calls`, for the range of shapes of all of them. None where
    OpenVINO is not installed, or refuses the model. `is_exact`: it computes in FP32. Otherwise it
    may compute in BF16, and quantize what narrow weights multiply, as it does by default."""
    try:
        import openvino as ov
    except ImportError:
        return None
    try:
        core = ov.Core()
        network = core.read_model(model)
        shapes = {}
        for name in calls[0]:
            extents = np.array([call[name].shape for call in calls]).reshape(len(calls), -1)
            least, most = extents.min(axis=0), extents.max(axis=0)
            shapes[name] = ov.PartialShape(
                [ov.Dimension(int(low), int(high)) for low, high in zip(least, most)]
            )
        network.reshape(shapes)
        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads(),
            "NUM_STREAMS": 1,
        }
        if is_exact:
            config |= {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
        compiled = core.compile_model(network, "CPU", config)
        first = dict(calls[0])
        run = lambda: compiled(first, share_inputs=True, share_outputs=True)  # noqa: E731
        run()
        return run
    except Exception as problem:
        print(f"OpenVINO refuses: {str(problem).splitlines()[-1][:150]}")
        return None
