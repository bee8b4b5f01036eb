"""The progress of builds: on a terminal, in a log, in a notebook, in the program and in Python."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import nbclient
import nbformat
import onnx
import onnx.parser
import pytest

import opwright
import opwright as trt

PHASES = ["optimizing", "tuning", "selecting formats", "planning memory", "writing", "done"]
BUILD = "import opwright\nopwright.build('m.onnx', progress=True)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = " ".join(f"t{i + 1} = Softmax(t{i})" for i in range(4))
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 8] t0) => (float[2, 8] t4) {{ {steps} }}""")
    onnx.save(model, "m.onnx")
    return tmp_path


def on_terminal(*command, term="xterm", columns=100) -> str:
    """What a command writes to a terminal that is its stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        command, stderr=theirs, stdout=subprocess.DEVNULL, env=os.environ | {"TERM": term}
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the terminal is gone
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    assert process.returncode == 0, written
    return written.decode()


def phases_of(text: str) -> list[str]:
    names = re.findall("|".join(PHASES), text)
    return [name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]


def commands(program):
    return {
        "program": [program, "build", "m.onnx", "-o", "m.engine"],
        "python": [sys.executable, "-c", BUILD],
    }


@pytest.mark.parametrize("who", ["program", "python"])
def test_a_terminal_has_one_line_that_goes_away(program, who):
    written = on_terminal(*commands(program)[who])
    assert phases_of(written) == PHASES
    assert re.search(r"\r\x1b\[K\[[#.]{24}\] tuning 0/4", written)
    assert "\n" not in written
    assert written.endswith("\r\x1b[K")


def test_a_line_is_no_wider_than_the_terminal(program):
    written = on_terminal(*commands(program)["program"], columns=12)
    assert max(map(len, written.split("\r\x1b[K"))) <= 11


@pytest.mark.parametrize("who", ["program", "python"])
def test_elsewhere_each_phase_has_a_line(program, who):
    done = subprocess.run(commands(program)[who], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert [re.sub(r" \d+/\d+$", "", line) for line in lines] == PHASES
    assert "\x1b" not in done.stderr
    assert on_terminal(*commands(program)[who], term="dumb").replace("\r\n", "\n") == done.stderr


def test_messages_stand_above_the_line(program):
    written = on_terminal(*commands(program)["program"], "--verbose")
    messages = [line for line in written.split("\n") if "opwright: " in line]
    assert messages
    for line in messages:
        # The line is erased first, or there was none.
        assert re.search(r"(^|\x1b\[K)opwright: ", line), line


def test_quiet_and_json_say_nothing(program):
    for option in ("--quiet", "--json"):
        assert on_terminal(*commands(program)["program"], option) == ""


def test_python_is_quiet_unless_it_is_asked(capfd):
    opwright.build("m.onnx")
    opwright.build("m.onnx", progress=False)
    assert capfd.readouterr().err == ""


def test_a_stream_that_stands_for_stderr_gets_the_lines(capsys):
    opwright.build("m.onnx", progress=True)
    assert phases_of(capsys.readouterr().err) == PHASES


def test_a_builder_shows_it_too(capsys):
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, logger).parse_from_file("m.onnx")
    config = builder.create_builder_config()
    config.progress_monitor = trt.BuildProgress()
    for _ in range(2):  # one after the other
        assert builder.build_serialized_network(network, config) is not None
        assert phases_of(capsys.readouterr().err) == PHASES


def notebook(*cells: str) -> list:
    """The outputs of the cells of a notebook that a kernel of its own ran."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=True).execute()
    return [cell.outputs for cell in book.cells]


def test_a_notebook_has_an_element_that_is_rewritten():
    failing = (
        "import opwright.plugin as trtp\n"
        "from onnx.parser import parse_model\n"
        "@trtp.register('progress::fails')\n"
        "def desc(x: trtp.TensorDesc) -> trtp.TensorDesc: return x.like()\n"
        "@trtp.impl('progress::fails')\n"
        "def fails(x, outputs, stream): raise ValueError('no <b>')\n"
        'model = parse_model(\'\'\'<ir_version: 9, opset_import: ["" : 19, "progress" : 1]>\n'
        "  m (float[4] x) => (float[4] y) { y = progress.fails (x) }''')\n"
        "engine = opwright.build(model, progress=True)"
    )
    built, failed = notebook(BUILD.replace("opwright.build", "engine = opwright.build"), failing)
    # One element, whatever was shown in it before; nothing on stderr.
    (element,) = built
    assert element.output_type == "display_data"
    assert re.fullmatch(
        r'<div><progress max="1" value="1"></progress> built in \d+ s</div>',
        element.data["text/html"],
    )
    assert re.fullmatch(r"built in \d+ s", element.data["text/plain"])
    element = next(output for output in failed if output.output_type == "display_data")
    assert re.fullmatch(r"failed in 'tuning' after \d+ s", element.data["text/plain"])
    assert any(output.output_type == "error" for output in failed)
