"""`python -m opwright.trt`: programs that import tensorrt."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import tensorrt as trt
import tensorrt.plugin as trtp
from tensorrt.plugin import TensorDesc

assert trt.plugin is trtp and trtp.TensorDesc is TensorDesc
assert int(trt.__version__.split(".")[0]) >= 10
assert trt.nptype(trt.float32)(1) == 1 and trt.volume((2, 3)) == 6 and trt.bool.itemsize == 1
network = trt.Builder(trt.Logger()).create_network(0)
y = network.add_unary(network.add_input("x", trt.float32, (3,)), trt.UnaryOperation.NEG)
assert tuple(y.get_output(0).shape) == (3,)
import helper

print(__name__, sys.argv[1:], helper.NAME)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("NAME = 'beside the program'")
    return tmp_path


def run(folder, *arguments, **environment):
    command = [sys.executable, "-m", "opwright.trt", *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def output(folder, source, *options, **environment):
    """What the program printed, as lines."""
    (folder / "program.py").write_text(source)
    done = run(folder, *options, "program.py", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("arguments", [["program.py"], ["-m", "program"]])
def test_a_program_runs_as_python_runs_it(folder, arguments):
    done = run(folder, *arguments, "--name", "value")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ ['--name', 'value'] beside the program\n"


def test_what_a_program_raises_and_its_status(folder):
    (folder / "program.py").write_text("import tensorrt, sys\nsys.exit(3)")
    assert run(folder, "program.py").returncode == 3
    (folder / "program.py").write_text("import tensorrt\nraise KeyError('here')")
    done = run(folder, "program.py")
    assert done.returncode == 1 and "KeyError: 'here'" in done.stderr


def test_usage(folder):
    assert "usage: python -m opwright.trt" in run(folder, "--help").stdout
    for arguments, message in [
        ((), "usage"),
        (("--unknown", "program.py"), "--unknown"),
        (("--api",), "usage"),
        (("--api", "9.1", "program.py"), "'9.1', expected 10 or 11"),
        (("-m",), "expected the name of a module"),
    ]:
        done = run(folder, *arguments)
        assert done.returncode == 1 and message in done.stderr, arguments
    done = run(folder, "program.py", OPWRIGHT_TENSORRT_VERSION="new")
    assert done.returncode == 1 and "OPWRIGHT_TENSORRT_VERSION is 'new'" in done.stderr
    command = [sys.executable, "-I", "-m", "opwright.trt", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "leave -E and -I out" in done.stderr


def test_every_way_in_which_programs_look(folder):
    lines = output(
        folder,
        """
import importlib.util
print(*(importlib.util.find_spec(name) is not None for name in ["tensorrt", "tensorrt.plugin", "tensorrt.none"]))
import importlib.metadata, os
import tensorrt
import opwright.plugin, opwright.plugin._decorators
from tensorrt.tensorrt import Logger
import tensorrt.plugin as trtp, tensorrt.plugin._decorators
import tensorrt_bindings, tensorrt_bindings.plugin
print(tensorrt.__version__ == importlib.metadata.version("tensorrt"), Logger is opwright.Logger)
print(tensorrt.__name__, tensorrt.__spec__.name, os.path.isdir(tensorrt.__path__[0]))
print(trtp is opwright.plugin, tensorrt.plugin._decorators is opwright.plugin._decorators)
print(tensorrt_bindings is tensorrt, tensorrt_bindings.plugin is trtp, trtp.__spec__.name)
print(importlib.util.find_spec("tensorrt.plugin._decorators").origin == opwright.plugin._decorators.__file__)
print(importlib.metadata.packages_distributions()["tensorrt"])
from tensorrt import *
print(Builder is opwright.Builder, plugin is trtp, "trt" in globals())
""",
    )
    assert lines == [
        "True True False",
        "True True",
        "tensorrt tensorrt True",
        "True True",
        "True True opwright.plugin",
        "True",
        "['tensorrt']",
        "True True False",
    ]


def test_the_version_can_be_chosen(folder):
    source = """
import importlib.metadata, subprocess, sys, tensorrt
print(tensorrt.__version__, importlib.metadata.version("tensorrt"))
command = "import tensorrt; print(tensorrt.__version__)"
subprocess.run([sys.executable, "-c", command], check=True)
subprocess.run([sys.executable, "-m", "opwright.trt", "-c", command], check=True)
sys.stdout.flush()
"""
    for options, variable, expected in [
        (["--api", "10.13"], "", "10.13.0"),
        (["--api=10.13.3.9"], "11.2", "10.13.3.9"),
        ([], "11.2", "11.2.0"),
    ]:
        lines = output(
            folder, source, *options, OPWRIGHT_TENSORRT_VERSION=variable, PYTHONUNBUFFERED="1"
        )
        assert lines == [f"{expected} {expected}", expected, expected]


def test_processes_that_a_program_starts(folder):
    """Subprocesses, modules, console scripts and spawned workers find it, and keep their own sitecustomize."""
    (folder / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True")
    (folder / "child.py").write_text("import tensorrt\nprint(tensorrt.Builder, customized)")
    script = folder / "tool"
    script.write_text(f"#!{sys.executable}\nimport child")
    script.chmod(0o755)
    lines = output(
        folder,
        """
import multiprocessing, subprocess, sys

def work(queue):
    import tensorrt
    queue.put(tensorrt.__version__)

if __name__ == "__main__":
    for command in (["./tool"], [sys.executable, "-m", "child"], [sys.executable, "child.py"]):
        subprocess.run(command, check=True)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    worker = context.Process(target=work, args=(queue,))
    worker.start()
    print(queue.get(timeout=60))
    worker.join()
""",
        "--api=10.9",
        PYTHONPATH=str(folder),
    )
    assert lines == ["<class 'opwright._core.Builder'> True"] * 3 + ["10.9.0"]


def test_programs_of_the_search_path_and_code(folder):
    script = folder / "tool"
    script.write_text(f"#!{sys.executable}\nimport sys, tensorrt\nprint(sys.argv[1:])")
    script.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = run(folder.parent, "tool", "-v", PATH=path)
    assert done.stdout == "['-v']\n", done.stderr
    done = run(folder, "-c", "import sys, tensorrt; print(sys.argv)", "--x")
    assert done.stdout == "['-c', '--x']\n", done.stderr


def test_options_of_the_interpreter_are_kept(folder):
    (folder / "program.py").write_text(
        "import sys, tensorrt\nprint(sys.flags.utf8_mode, sys.flags.optimize)"
    )
    for module in (["-m", "opwright.trt"], ["-mopwright.trt"]):
        command = [sys.executable, "-X", "utf8", "-O", *module, "program.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.stdout == "1 1\n", done.stderr


def test_a_cache_folder_that_is_damaged_or_cannot_be_written(folder):
    source = "import tensorrt\nprint(tensorrt.__file__)"
    cache = folder / "cache"
    for _ in range(2):
        (file,) = output(folder, source, OPWRIGHT_CACHE_DIR=str(cache))
        assert file.startswith(str(cache))
        with open(file, "w") as damaged:
            damaged.write("raise RuntimeError('damaged')")
    (folder / "no_folder").write_text("")
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {"OPWRIGHT_CACHE_DIR": str(folder / "no_folder"), "TMPDIR": str(temporary)}
    (file,) = output(folder, source, **environment)
    assert file.startswith(str(temporary))


def test_within_a_program(folder):
    (folder / "program.py").write_text(
        "import importlib.metadata, opwright, opwright.trt\n"
        "opwright.trt.install('10.13')\nopwright.trt.install()\n"
        "import tensorrt\n"
        "print(tensorrt.__version__, importlib.metadata.version('tensorrt'))\n"
        "try:\n    opwright.trt.install('10.14')\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout.startswith("10.13.0 10.13.0\n"), done.stderr
    assert "tensorrt 10.13.0 is imported already" in done.stdout


def test_tensorrt_that_is_imported_already(folder):
    (folder / "tensorrt.py").write_text("")
    (folder / "program.py").write_text(
        "import tensorrt, opwright.trt\n"
        "try:\n    opwright.trt.install()\n"
        "except ImportError as error:\n    print(error)"
    )
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert "TensorRT is imported already" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "options, variables, expected",
    [
        ([], {}, "False False"),
        (["--allow-device-code"], {}, "True False"),
        (["--allow-host-code"], {}, "False True"),
        (["--allow-device-code", "--allow-host-code"], {}, "True True"),
        ([], {"OPWRIGHT_ALLOW_DEVICE_CODE": "1"}, "True False"),
        ([], {"OPWRIGHT_ALLOW_DEVICE_CODE": "yes"}, "False False"),
    ],
)
def test_what_code_of_engines_may_run(folder, options, variables, expected):
    source = """
import tensorrt as trt
runtime = trt.Runtime(trt.Logger())
print(runtime.engine_device_code_allowed, runtime.engine_host_code_allowed)
"""
    assert output(folder, source, *options, **variables) == [expected]


@pytest.mark.parametrize(
    "options, variables, expected",
    [
        ([], {}, "False"),
        (["--allow-links"], {}, "True"),
        ([], {"OPWRIGHT_ALLOW_LINKS": "1"}, "True"),
        ([], {"OPWRIGHT_ALLOW_LINKS": "yes"}, "False"),
    ],
)
def test_what_links_of_models_may_lead_to(folder, options, variables, expected):
    source = """
import tensorrt as trt
logger = trt.Logger()
network = trt.Builder(logger).create_network()
print(trt.OnnxParser(network, logger).links_allowed)
"""
    assert output(folder, source, *options, **variables) == [expected]


def test_an_option_that_permits_takes_no_value(folder):
    done = run(folder, "--allow-host-code=0", "program.py")
    assert done.returncode == 1 and "usage" in done.stderr
