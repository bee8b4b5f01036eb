"""The ONNX standard's own tests, of the installed onnx package, through `opwright.onnx_backend`."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opwright
from opwright import onnx_backend

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import onnx.backend.test

    STANDARD = onnx.backend.test.BackendTest(
        onnx_backend, __name__, test_kwargs=dict.fromkeys((), None)
    )

REFUSED = Path(__file__).with_name("onnx_backend_refused.txt")


def refused() -> list[str]:
    """The patterns of the file; what stands behind '#' are the reasons."""
    lines = (line.split("#")[0].strip() for line in REFUSED.read_text().splitlines())
    return [line for line in lines if line]


# These download models.
STANDARD.exclude(r"test_(bvlc|densenet|inception|resnet50|shufflenet|squeezenet|vgg19|zfnet).*")
for pattern in refused():
    # One that passes is a failure, so that the list stays true.
    STANDARD.xfail(rf"^{pattern}_(cpu|cuda)$")

globals().update(STANDARD.test_cases)
