"""The ONNX parser's errors and version."""

from __future__ import annotations

import opwright as trt
import opwright.trt


def test_errors_stay_until_they_are_cleared():
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    network = trt.Builder(logger).create_network()
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(b"this is no model")
    assert parser.num_errors == 1
    parser.clear_errors()
    assert parser.num_errors == 0


def test_the_version_is_the_level_of_the_api():
    version = trt.get_nv_onnx_parser_version()
    parts = version // 10000, version // 100 % 100, version % 100
    assert ".".join(map(str, parts)) == opwright.trt.__version__
