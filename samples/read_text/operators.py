"""The two steps of reading text that no ONNX operator does, as custom operators: where the text is, and what it says.

How much they find depends on the data, so that their results have sizes that are known when they have run.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np
from scipy import ndimage

import opwright as trt
import opwright.plugin as trtp


@trtp.register("text::boxes")
def boxes_desc(
    probabilities: trtp.TensorDesc, threshold: float, least_score: float, unclip: float, most: int
) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
    """[1, 1, height, width] of a text detector (DB, Liao et al., 2020) to INT32 [boxes, 4]: left, top, right, bottom,
    in the order in which one reads."""
    count = trtp.size_tensor(
        opt=probabilities.shape_expr[0] * 8, upper_bound=probabilities.shape_expr[0] * most
    )
    return trtp.from_shape_expr((count.expr(), 4), dtype=trt.int32), count


def find_boxes(
    probabilities: np.ndarray, threshold: float, least_score: float, unclip: float, most: int
) -> np.ndarray:
    height, width = probabilities.shape
    regions, _ = ndimage.label(probabilities > threshold)
    found = []
    for index, (rows, columns) in enumerate(ndimage.find_objects(regions), 1):
        inside = regions[rows, columns] == index
        score = probabilities[rows, columns][inside].mean()
        high, wide = inside.shape
        if score < least_score or min(high, wide) < 3:
            continue
        # The detector shrinks text by its area over its outline; this takes that back.
        grow = unclip * high * wide / (2 * (high + wide))
        found.append(
            (
                max(round(columns.start - grow), 0),
                max(round(rows.start - grow), 0),
                min(round(columns.stop + grow), width),
                min(round(rows.stop + grow), height),
            )
        )
    # Line by line: what begins above the middle of a line's first box belongs to it.
    found.sort(key=lambda box: box[1])
    lines: list[list[tuple]] = []
    for box in found[:most]:
        if lines and box[1] < (lines[-1][0][1] + lines[-1][0][3]) / 2:
            lines[-1].append(box)
        else:
            lines.append([box])
    ordered = [box for line in lines for box in sorted(line)]
    return np.array(ordered, np.int32).reshape(-1, 4)


@trtp.impl("text::boxes")
def boxes(probabilities, threshold, least_score, unclip, most, outputs, stream):
    found = find_boxes(np.asarray(probabilities)[0, 0], threshold, least_score, unclip, most)
    np.asarray(outputs[0].aliased(found.shape))[...] = found
    np.asarray(outputs[1])[...] = len(found)


@trtp.register("text::decode")
def decode_desc(
    probabilities: trtp.TensorDesc,
) -> Tuple[trtp.TensorDesc, trtp.TensorDesc, trtp.TensorDesc]:
    """[1, steps, classes] of a recognizer to the classes of its letters, INT32 [letters], and how sure it is of each:
    the best class of each step, once where it is repeated, without blanks (CTC, Graves et al., 2006)."""
    bound = probabilities.shape_expr[1]
    count = trtp.size_tensor(opt=bound // 2, upper_bound=bound)
    letters = trtp.from_shape_expr((count.expr(),), dtype=trt.int32)
    return letters, trtp.from_shape_expr((count.expr(),), dtype=trt.float32), count


def find_letters(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best = probabilities.argmax(-1)
    kept = (best != 0) & (best != np.concatenate([[-1], best[:-1]]))
    return best[kept].astype(np.int32), probabilities.max(-1)[kept]


@trtp.impl("text::decode")
def decode(probabilities, outputs, stream):
    letters, sure = find_letters(np.asarray(probabilities)[0])
    np.asarray(outputs[0].aliased(letters.shape))[...] = letters
    np.asarray(outputs[1].aliased(sure.shape))[...] = sure
    np.asarray(outputs[2])[...] = len(letters)
