"""What turns the probability of speech in each frame into stretches of speech: a custom operator, since how many there
are depends on the data."""

from __future__ import annotations

from typing import Tuple

import numpy as np

import opwright as trt
import opwright.plugin as trtp


@trtp.register("speech::segments")
def segments_desc(
    probabilities: trtp.TensorDesc, begin: float, end: float, least_speech: int, least_pause: int
) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
    """[frames] to INT32 [segments, 2]: the first frame of each stretch of speech, and the first one behind it."""
    bound = (probabilities.shape_expr[0] + 1) // 2
    count = trtp.size_tensor(opt=bound // 8, upper_bound=bound)
    return trtp.from_shape_expr((count.expr(), 2), dtype=trt.int32), count


def find_segments(
    probabilities: np.ndarray, begin: float, end: float, least_speech: int, least_pause: int
) -> np.ndarray:
    """Speech begins at a probability of `begin` and ends where it stays below `end` for `least_pause` frames; what is
    shorter than `least_speech` frames is none."""
    found: list[tuple[int, int]] = []
    start = quiet = -1
    for frame, probability in enumerate(probabilities):
        if start < 0:
            if probability >= begin:
                start, quiet = frame, -1
        elif probability >= end:
            quiet = -1
        else:
            quiet = frame if quiet < 0 else quiet
            if frame - quiet + 1 >= least_pause:
                found.append((start, quiet))
                start = -1
    if start >= 0:
        found.append((start, len(probabilities) if quiet < 0 else quiet))
    kept = [segment for segment in found if segment[1] - segment[0] >= least_speech]
    return np.array(kept, np.int32).reshape(-1, 2)


@trtp.impl("speech::segments")
def segments(probabilities, begin, end, least_speech, least_pause, outputs, stream):
    found = find_segments(np.asarray(probabilities), begin, end, least_speech, least_pause)
    np.asarray(outputs[0].aliased(found.shape))[...] = found
    np.asarray(outputs[1])[...] = len(found)
