"""Messages go to Python's logging, and each error appears once."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys
import threading

import numpy as np
import onnx.parser
import pytest

import opwright

WARNED = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 19]>
    g (double[3] x) => (double[3] y) { y = Relu(x) }""")  # "takes it in FP32"
WRONG = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 19, "nowhere": 1]>
    g (float[3] x) => (float[3] y) { y = nowhere.Nothing(x) }""")


@pytest.fixture(autouse=True)
def default_levels(caplog):
    """Libraries that other tests import change the root logger's level; these tests need its own."""
    caplog.set_level(logging.WARNING)


def test_warnings_of_a_build_are_records(caplog):
    opwright.build(WARNED, timing=False)
    (record,) = [r for r in caplog.records if "double precision" in r.getMessage()]
    assert (record.name, record.levelname) == ("opwright.build", "WARNING")


def test_levels_that_are_asked_for(caplog):
    opwright.build(WARNED, timing=False)
    assert all(r.levelno >= logging.WARNING for r in caplog.records)
    with caplog.at_level(logging.ERROR, "opwright"):
        caplog.clear()
        opwright.build(WARNED, timing=False)
        assert not caplog.records


def test_an_error_is_raised_and_not_logged(caplog, capfd):
    with pytest.raises(opwright.Error, match="Nothing"):
        opwright.build(WRONG, timing=False)
    assert not caplog.records
    assert capfd.readouterr().err == ""


def test_a_logger_of_ones_own_hears_no_error_that_is_raised():
    class Own(opwright.ILogger):
        def __init__(self):
            super().__init__()
            self.heard = []

        def log(self, severity, msg):
            self.heard.append((severity, msg))

    own = Own()
    with pytest.raises(opwright.Error):
        opwright.build(WRONG, timing=False, logger=own)
    assert all(severity > opwright.ILogger.ERROR for severity, _ in own.heard)
    opwright.build(WARNED, timing=False, logger=own)
    assert any("double precision" in msg for _, msg in own.heard)


def test_trt_loggers_hear_errors_as_in_tensorrt(capfd):
    logger = opwright.Logger(opwright.Logger.WARNING)
    network = opwright.Builder(logger).create_network()
    parser = opwright.OnnxParser(network, logger)
    assert not parser.parse(WRONG.SerializeToString())
    assert capfd.readouterr().err.count("operator 'Nothing'") == 1


def test_without_configuration_warnings_are_on_stderr():
    code = (
        "import onnx.parser, opwright\n"
        f"model = onnx.ModelProto.FromString({WARNED.SerializeToString()!r})\n"
        "opwright.build(model, timing=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("double precision") == 1


def test_redirected_stderr_gets_them():
    handler = logging.StreamHandler(text := io.StringIO())
    logger = logging.getLogger("opwright")
    logger.addHandler(handler)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            opwright.build(WARNED, timing=False)
    finally:
        logger.removeHandler(handler)
    assert "double precision" in text.getvalue()


def test_builds_in_many_threads_while_handlers_log(caplog):
    """Threads without the interpreter's lock speak while others hold it."""
    failures = []

    def work():
        try:
            opwright.build(WARNED, timing=False)(np.ones(3, np.float32))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures
    assert sum("double precision" in r.getMessage() for r in caplog.records) == len(threads)


def test_a_handler_that_raises_breaks_no_build(capsys):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("broken handler")

    logger = logging.getLogger("opwright")
    broken = Broken()
    logger.addHandler(broken)
    unraisable = []
    before, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        engine = opwright.build(WARNED, timing=False)
    finally:
        sys.unraisablehook = before
        logger.removeHandler(broken)
    np.testing.assert_array_equal(engine(np.full(3, -1, np.float32)), np.zeros(3))
    assert unraisable and "broken handler" in str(unraisable[0].exc_value)


def test_a_daemon_thread_that_builds_does_not_keep_the_process(tmp_path):
    code = (
        "import threading, onnx, opwright\n"
        f"model = onnx.ModelProto.FromString({WARNED.SerializeToString()!r})\n"
        "def work():\n"
        "    while True:\n"
        "        opwright.build(model, timing=False)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "opwright.build(model, timing=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
