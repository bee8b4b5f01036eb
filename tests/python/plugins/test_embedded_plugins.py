"""Plugins in the engine file: C++ libraries and Python sources, loaded where nothing else is."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest

import opwright as trt
from plugin_testing import network, wrap
from small_models import circular_padding

X = np.random.default_rng(3).random((2, 3, 5, 7), np.float32)
PADS = [2, 1, 0, 3]

# The user's files. A class-based plugin whose module registers nothing by itself; its parts are
# spread over a package with relative imports, a folder without __init__.py and a lazy import.
FILES = {
    "shift/__init__.py": """
        from .plugin import ShiftCreator, ShiftPlugin
        """,
    "shift/plugin.py": """
        from __future__ import annotations

        from dataclasses import dataclass

        import numpy as np
        import opwright as trt

        from . import arrays
        from .registry import Registered


        @dataclass
        class State:
            offset: float


        class ShiftPlugin(
            trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
        ):
            plugin_name = "shift"
            plugin_version = "1"
            plugin_namespace = "embedded"
            num_outputs = 1

            def __init__(self, offset):
                super().__init__()
                self.state = State(offset)

            def clone(self):
                return ShiftPlugin(self.state.offset)

            def get_output_data_types(self, input_types):
                return [input_types[0]]

            def get_output_shapes(self, inputs, shape_inputs, expr_builder):
                return [trt.DimsExprs(inputs[0])]

            def supports_format_combination(self, pos, in_out, num_inputs):
                desc = in_out[pos].desc
                return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

            def get_fields_to_serialize(self):
                offset = np.array([self.state.offset], np.float32)
                return trt.PluginFieldCollection([trt.PluginField("offset", offset)])

            def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
                import numbers_of.limits  # only now

                if self.state.offset > numbers_of.limits.LARGEST:
                    raise ValueError("the offset is too large")
                x = arrays.as_array(inputs[0], input_desc[0])
                arrays.as_array(outputs[0], output_desc[0])[...] = x + self.state.offset


        class ShiftCreator(Registered, trt.IPluginCreatorV3One):
            name = "shift"
            plugin_version = "1"
            plugin_namespace = "embedded"

            def create_plugin(self, name, fields, phase):
                return ShiftPlugin(float(fields[0].data[0]))
        """,
    "shift/registry.py": """
        class Registered:
            field_names = None
        """,
    "shift/arrays.py": """
        import ctypes

        import numpy as np


        def as_array(address, desc):
            floats = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
            return np.ctypeslib.as_array(floats, tuple(desc.dims))
        """,
    "numbers_of/limits.py": """
        LARGEST = 1e3
        """,
    # Function plugins, in two modules.
    "double.py": """
        import numpy as np
        import opwright.plugin as trtp


        @trtp.register("embedded::double")
        def double_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()
        """,
    "double_impl.py": """
        import double
        import numpy as np
        import opwright.plugin as trtp
        from factors import FACTOR


        @trtp.impl("embedded::double")
        def double_impl(x, outputs, stream):
            np.multiply(np.asarray(x), np.float32(FACTOR), out=np.asarray(outputs[0]))
        """,
    "factors.py": """
        import os

        FACTOR = 2
        if "OPWRIGHT_TEST_MARK" in os.environ:
            open(os.environ["OPWRIGHT_TEST_MARK"], "w").close()
        """,
    # A script whose class is in __main__, and which registers itself when it is imported.
    "script.py": """
        import sys

        import numpy as np
        import opwright as trt
        from shift.plugin import ShiftCreator, ShiftPlugin


        class ScriptPlugin(ShiftPlugin):
            plugin_name = "script"

            def clone(self):
                return ScriptPlugin(self.state.offset)


        class ScriptCreator(ShiftCreator):
            name = "script"

            def create_plugin(self, name, fields, phase):
                return ScriptPlugin(float(fields[0].data[0]))


        trt.get_plugin_registry().register_creator(ScriptCreator(), "")

        if __name__ == "__main__":
            from build import save

            save(ScriptPlugin(3.0), sys.argv[1])
        """,
    # What the builds share; no plugin needs it.
    "build.py": """
        import sys

        import opwright as trt


        def add_input(net):
            return net.add_input("x", trt.float32, (2, 3, 5, 7))


        def save(plugin, path, embed=True):
            net = trt.Builder(trt.Logger()).create_network()
            if isinstance(plugin, trt.IPluginV3):
                layer = net.add_plugin_v3([add_input(net)], [], plugin)
            else:
                layer = net.add_plugin(plugin(add_input(net)))
            layer.get_output(0).name = "y"
            net.mark_output(layer.get_output(0))
            trt.build(net, embed_python_plugins=embed, timing=False).save(path)


        if __name__ == "__main__":
            import double_impl
            import opwright.plugin as trtp
            import shift

            trt.get_plugin_registry().register_creator(shift.ShiftCreator(), "")
            save(shift.ShiftPlugin(1.5), sys.argv[1] + "/shift.engine")
            save(shift.ShiftPlugin(5e3), sys.argv[1] + "/fails.engine")
            save(shift.ShiftPlugin(1.5), sys.argv[1] + "/bare.engine", embed=False)
            save(trtp.op.embedded.double, sys.argv[1] + "/double.engine")
        """,
}


def run_python(*arguments, cwd: Path, check: bool = True, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip())
    return folder


@pytest.fixture(scope="module")
def engines(tmp_path_factory) -> Path:
    """A folder with engines that carry the plugins of FILES, which are elsewhere."""
    folder = tmp_path_factory.mktemp("engines")
    user = write(tmp_path_factory.mktemp("user"), FILES)
    run_python("build.py", folder, cwd=user)
    run_python("script.py", folder / "script.engine", cwd=user)
    np.save(folder / "x.npy", X)
    return folder


LOAD = """
import sys
import numpy as np
import opwright as trt
x = np.load("x.npy")
"""


def load(engines: Path, code: str, **options):
    """Runs code in a fresh process, in the folder of the engines."""
    return run_python("-c", LOAD + textwrap.dedent(code), cwd=engines, **options)


# Python sources


def test_sources_run_in_a_process_that_imported_nothing(engines):
    load(
        engines,
        """
        before = set(sys.modules)
        for name, expected in ("shift", x + 1.5), ("double", 2 * x), ("script", x + 3):
            engine = trt.load(name + ".engine", allow_host_code=True)
            np.testing.assert_array_equal(engine(x), expected)
            np.testing.assert_array_equal(engine(x[::-1].copy()), expected[::-1])
        # Nothing leaks: neither definitions nor modules under the users' names.
        assert not trt.get_plugin_registry().all_creators
        assert not dir(trt.plugin.op)
        users = {"shift", "shift.plugin", "double", "factors", "script", "numbers_of", "build"}
        assert not users & set(sys.modules)
        embedded = {n.split(".", 2)[-1] for n in set(sys.modules) - before if "embedded" in n}
        assert {"shift.plugin", "double_impl", "script", "numbers_of.limits"} <= embedded
        assert "build" not in embedded
        """,
    )


def test_what_is_embedded_is_shown(program, engines):
    def inspect(*arguments):
        return subprocess.check_output(
            [program, "inspect", *arguments], cwd=engines, text=True, stderr=subprocess.STDOUT
        )

    shown = inspect("shift.engine")
    for path in ("shift/__init__.py", "shift/arrays.py", "numbers_of/limits.py"):
        assert re.search(rf"{path}, plugin source for python, .* runs on the host", shown), shown
    assert shown_code(program, engines / "double.engine") == [
        "double.py",
        "double_impl.py",
        "factors.py",
        "definitions.json",
    ]
    # Not what only the script needs.
    names = shown_code(program, engines / "script.engine")
    assert "script.py" in names and "build.py" not in names
    assert "LARGEST = 1e3" in inspect("shift.engine", "--sources")
    assert "contains code" not in inspect("bare.engine")


def test_without_permission_nothing_is_run(program, engines, tmp_path):
    mark = tmp_path / "mark"
    code = """
        try:
            trt.load("double.engine")
        except trt.Error as error:
            assert "'double.py' (python)" in str(error) and "allow_host_code" in str(error), error
        else:
            raise AssertionError
        runtime = trt.Runtime(trt.Logger())
        data = open("double.engine", "rb").read()
        try:
            engine = runtime.deserialize_cuda_engine(data)
        except trt.Error:
            engine = None
        assert engine is None
        """
    load(engines, code, OPWRIGHT_TEST_MARK=str(mark))
    native = [program, "run", "double.engine", "--input", "x.npy", "--output", "y.npy"]
    environment = {**os.environ, "OPWRIGHT_TEST_MARK": str(mark)}
    done = subprocess.run(native, cwd=engines, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "--allow-host-code" in done.stderr, done.stderr
    assert not mark.exists()
    load(engines, 'trt.load("double.engine", allow_host_code=True)', OPWRIGHT_TEST_MARK=str(mark))
    assert mark.exists()


def test_the_process_that_embedded_sources_needs_no_permission(tmp_path):
    files = {
        name: FILES[name] for name in ("double.py", "double_impl.py", "factors.py", "build.py")
    }
    files["go.py"] = """
        import numpy as np
        import double_impl
        import opwright as trt
        from build import save

        save(trt.plugin.op.embedded.double, "double.engine")
        x = np.ones((2, 3, 5, 7), np.float32)
        assert (trt.load("double.engine")(x) == 2).all()
        """
    run_python("go.py", cwd=write(tmp_path, files))


def test_what_is_registered_comes_first_and_no_source_is_run(engines, tmp_path):
    mark = tmp_path / "mark"
    code = """
        import opwright.plugin as trtp

        @trtp.register("embedded::double")
        def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl("embedded::double")
        def compute(x, outputs, stream):
            np.asarray(outputs[0])[...] = 7

        engine = trt.load("double.engine", allow_host_code=True)
        assert (engine(x) == 7).all()
        """
    load(engines, code, OPWRIGHT_TEST_MARK=str(mark))
    assert not mark.exists()


def test_modules_of_the_process_and_of_the_engine_do_not_mix(engines, tmp_path):
    # Another `factors`, and `double` as it is in the engine.
    write(
        tmp_path, {"factors.py": "FACTOR = 100", "limits.py": "", "double.py": FILES["double.py"]}
    )
    load(
        engines,
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import factors
        engine = trt.load("double.engine", allow_host_code=True)
        assert (engine(x) == 2 * x).all()
        assert sys.modules["factors"] is factors and factors.FACTOR == 100
        """,
    )


def test_a_module_that_the_process_has_is_not_run_again(engines, tmp_path):
    write(tmp_path, {"factors.py": FILES["factors.py"]})
    load(
        engines,
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import factors
        factors.FACTOR = 5  # the mark of the very module
        import opwright as trt
        assert (trt.load("double.engine", allow_host_code=True)(x) == 5 * x).all()
        """,
    )


def test_engines_that_come_and_go_leave_nothing(engines):
    load(
        engines,
        """
        trt.load("shift.engine", allow_host_code=True)(x)
        modules = len(sys.modules)
        for i in range(50):
            engine = trt.load("shift.engine", allow_host_code=True)
        assert (engine(x) == x + 1.5).all()
        del engine
        assert len(sys.modules) == modules
        assert not trt.get_plugin_registry().all_creators
        """,
    )


def test_threads_load_the_same_sources_at_once(engines):
    load(
        engines,
        """
        from concurrent.futures import ThreadPoolExecutor
        data = open("script.engine", "rb").read()
        runtime = trt.Runtime(trt.Logger())
        runtime.engine_host_code_allowed = True
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(8) as pool:
            engines = list(pool.map(lambda _: runtime.deserialize_cuda_engine(data), range(16)))
        for engine in engines:
            assert (trt.Engine(engine)(x) == x + 3).all()
        """,
    )


def test_errors_show_the_source(engines):
    load(
        engines,
        """
        import inspect
        import traceback
        try:
            trt.load("fails.engine", allow_host_code=True)(x)
        except ValueError:
            shown = traceback.format_exc()
        assert "shift/plugin.py\\", line" in shown, shown
        assert 'raise ValueError("the offset is too large")' in shown, shown  # the line itself
        trt.load("double.engine", allow_host_code=True)
        module = next(m for n, m in sys.modules.items() if n.endswith(".double_impl"))
        assert "np.multiply" in inspect.getsource(module.double_impl)
        """,
    )


def test_a_source_that_fails_is_named(engines):
    code = """
        sys.modules["ctypes"] = None  # what shift.arrays imports
        try:
            trt.load("shift.engine", allow_host_code=True)
        except trt.Error as error:
            assert "plugin 'shift' (version 1, namespace 'embedded')" in str(error), error
            assert "shift/arrays.py, line 1, failed: ModuleNotFoundError" in str(error), error
            assert isinstance(error.__cause__, ModuleNotFoundError)
        else:
            raise AssertionError
        del sys.modules["ctypes"]
        assert (trt.load("shift.engine", allow_host_code=True)(x) == x + 1.5).all()
        """
    load(engines, code)


def shown_code(program: Path, path: Path) -> list[str]:
    """The names of the code that an engine carries."""
    shown = json.loads(subprocess.check_output([program, "inspect", path, "--json"]))
    return [code["Name"] for code in shown["Code"]]


def test_a_module_that_runs_as_main_keeps_its_package(program, engines, tmp_path):
    files = {name: FILES[name] for name in FILES if name.startswith(("shift", "numbers"))}
    files["mine/build.py"] = FILES["build.py"]
    files["mine/constants.py"] = ""
    script = textwrap.dedent(FILES["script.py"]).replace("from build", "from ..build")
    files["mine/tools/script.py"] = "from .. import constants\n" + script
    run_python("-m", "mine.tools.script", engines / "main.engine", cwd=write(tmp_path, files))
    load(engines, 'assert (trt.load("main.engine", allow_host_code=True)(x) == x + 3).all()')
    names = shown_code(program, engines / "main.engine")
    assert {"mine/__init__.py", "mine/tools/script.py", "mine/constants.py"} <= set(names)


def test_sources_that_import_tensorrt(program, engines, tmp_path):
    """They are Opwright's where nothing else answers to that name, and where TensorRT does."""
    files = {
        name: text.replace("import opwright as trt", "import tensorrt as trt")
        .replace("import opwright.plugin as trtp", "import tensorrt.plugin as trtp")
        .replace("trt.build(", "__import__('opwright').build(")
        for name, text in FILES.items()
    }
    imports = "from tensorrt import Logger\nfrom tensorrt.plugin import register\n"
    files["factors.py"] = imports + textwrap.dedent(files["factors.py"])
    user = write(tmp_path / "user", files)
    saved = tmp_path / "saved"
    saved.mkdir()
    run_python("-m", "opwright.trt", "build.py", saved, cwd=user)
    assert "tensorrt/__init__.py" not in shown_code(program, saved / "double.engine")
    np.save(saved / "x.npy", X)
    code = """
        for name, expected in ("shift", x + 1.5), ("double", 2 * x):
            engine = trt.load(name + ".engine", allow_host_code=True)
            np.testing.assert_array_equal(engine(x), expected)
        assert "tensorrt" not in sys.modules
        """
    load(saved, code)
    write(saved, {"tensorrt/__init__.py": "raise RuntimeError('the other one')"})
    load(saved, code)


def test_installed_packages_are_left_out_unless_they_define_the_plugin(program, tmp_path):
    files = {
        "lib/site-packages/installed/__init__.py": "from . import double_impl",
        "lib/site-packages/installed/double.py": FILES["double.py"],
        "lib/site-packages/installed/double_impl.py": FILES["double_impl.py"]
        .replace("import double", "from . import double")
        .replace("from factors", "from other.factors"),
        "lib/site-packages/other/factors.py": FILES["factors.py"],
        "build.py": FILES["build.py"],
        "go.py": """
            import installed
            import opwright as trt
            from build import save

            save(trt.plugin.op.embedded.double, "double.engine")
            """,
    }
    site = write(tmp_path, files) / "lib" / "site-packages"
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    run_python("go.py", cwd=tmp_path, PYTHONPATH=path)
    modules = ("__init__", "double", "double_impl")
    expected = [f"installed/{name}.py" for name in modules] + ["definitions.json"]
    assert shown_code(program, tmp_path / "double.engine") == expected


# What cannot be embedded


def source_error(plugin: trt.IPluginV3) -> str:
    net = network()
    layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], plugin)
    net.mark_output(layer.get_output(0))
    with pytest.raises(trt.Error) as caught:
        trt.build(net, embed_python_plugins=True)
    return str(caught.value)


class Copy(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """A plugin that is called what the test says."""

    num_outputs = 1

    def __init__(self, name: str):
        super().__init__()
        self.plugin_name = name

    def clone(self):
        return Copy(self.plugin_name)

    def get_output_data_types(self, input_types):
        return input_types

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        ctypes.memmove(outputs[0], inputs[0], 4 * math.prod(input_desc[0].dims))


class NeedsArguments(trt.IPluginCreatorV3One):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def create_plugin(self, name, fields, phase):
        return Copy(self.name)


@pytest.fixture
def registered():
    """Registers creators until the test is over."""
    creators = []

    def register(creator):
        assert trt.get_plugin_registry().register_creator(creator, "")
        creators.append(creator)

    yield register
    for creator in creators:
        trt.get_plugin_registry().deregister_creator(creator)


def test_a_plugin_without_creator_is_refused():
    message = source_error(Copy("embed_orphan"))
    assert "plugin 'embed_orphan' (version 1, namespace '')" in message
    assert "no creator is registered" in message


def test_a_creator_that_needs_arguments_is_refused(registered):
    registered(NeedsArguments("embed_arguments"))
    message = source_error(Copy("embed_arguments"))
    assert "embed_arguments" in message and "NeedsArguments" in message
    assert "default values" in message


def test_a_local_class_is_refused(registered):
    class Local(NeedsArguments):
        def __init__(self):
            super().__init__("embed_local")

    registered(Local())
    message = source_error(Copy("embed_local"))
    assert "embed_local" in message and "top level" in message


def test_definitions_without_a_file_are_refused(tmp_path):
    """As in a notebook or at the prompt."""
    code = """
        import numpy as np
        import opwright as trt
        import opwright.plugin as trtp

        def error_of(layer, x):
            net.mark_output(layer.get_output(0))
            try:
                trt.build(net, embed_python_plugins=True)
            except trt.Error as error:
                return str(error)

        @trtp.register("here::same")
        def same_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl("here::same")
        def same_impl(x, outputs, stream):
            np.copyto(np.asarray(outputs[0]), np.asarray(x))

        net = trt.Builder(trt.Logger()).create_network()
        x = net.add_input("x", trt.float32, (2,))
        message = error_of(net.add_plugin(trtp.op.here.same(x)), x)
        assert "plugin 'same' (version 1, namespace 'here')" in message, message
        assert "put the definition into a .py file" in message, message
        """
    run_python("-c", textwrap.dedent(code), cwd=tmp_path)
    write(tmp_path, {name: FILES[name] for name in FILES if name.startswith(("shift", "numbers"))})
    code = """
        import opwright as trt
        from shift import ShiftCreator, ShiftPlugin

        class Here(ShiftCreator):
            pass

        trt.get_plugin_registry().register_creator(Here(), "")
        net = trt.Builder(trt.Logger()).create_network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, (2,))], [], ShiftPlugin(1.0))
        net.mark_output(layer.get_output(0))
        try:
            trt.build(net, embed_python_plugins=True)
        except trt.Error as error:
            assert "notebook or an interactive session" in str(error), error
        else:
            raise AssertionError
        """
    run_python("-c", textwrap.dedent(code), cwd=tmp_path)


def test_a_damaged_list_of_definitions_is_an_error(engines):
    """Whoever permits code gets it run, but not a crash of the engine's own."""
    code = """
        from opwright._plugins import embedded as _embedded
        for bad in (b"", b"[", b"{}", b"[1]", b'[{"plugin": 3}]', b"\\xff"):
            try:
                _embedded.open_sources([("definitions.json", bad), ("a.py", b"")], [])
            except trt.Error as error:
                assert "definitions.json" in str(error), error
            else:
                assert bad == b"{}", bad
        """
    load(engines, code)


# The native program


def native(program: Path, engines: Path, *arguments, **environment):
    return subprocess.run(
        [program, *arguments],
        cwd=engines,
        env={**os.environ, "OPWRIGHT_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def run_native(program: Path, engines: Path, engine: str, *arguments, **environment):
    """The output of an engine on X, and whether libpython was mapped."""
    out = engines / "native.npy"
    out.unlink(missing_ok=True)
    command = ["run", engine, "--input", "x.npy", "--output", out, "--json", *arguments]
    done = native(program, engines, *command, **environment)
    assert done.returncode == 0, done.stderr
    libraries = json.loads(done.stdout)["libraries"]
    return np.load(out), any("libpython" in path for path in libraries)


def test_the_program_runs_sources_with_the_systems_python(program, engines):
    for name, expected in ("shift", X + 1.5), ("double", 2 * X), ("script", X + 3):
        y, has_python = run_native(program, engines, f"{name}.engine", "--allow-host-code")
        np.testing.assert_array_equal(y, expected)
        assert has_python
    command = ["bench", "double.engine", "--allow-host-code", "--iterations", "3", "--json"]
    done = native(program, engines, *command)
    assert json.loads(done.stdout)["runs"] == 3, done.stderr


def test_the_program_loads_no_python_for_other_engines(program, engines, plugin_dir):
    onnx.save(circular_padding(PADS), engines / "pad.onnx")
    library = plugin_dir / "circ_pad_plugin.so"
    command = ["build", "pad.onnx", "-o", "pad.engine", "--embed-plugins", library, "--no-timing"]
    done = native(program, engines, *command)
    assert done.returncode == 0, done.stderr
    x = X.flat[:40].reshape(1, 2, 4, 5)
    np.save(engines / "pad.npy", x)
    command = ["run", "pad.engine", "--input", "pad.npy", "--output", "padded.npy", "--json"]
    refused = native(program, engines, *command)
    assert refused.returncode == 1 and "--allow-host-code" in refused.stderr
    done = native(program, engines, *command, "--allow-host-code")
    assert done.returncode == 0, done.stderr
    assert "libpython" not in done.stdout
    np.testing.assert_array_equal(np.load(engines / "padded.npy"), wrap(x, PADS))


def test_the_program_says_why_python_cannot_be_used(program, engines, tmp_path):
    command = ["run", "double.engine", "--input", "x.npy", "--allow-host-code"]
    done = native(program, engines, *command, OPWRIGHT_PYTHON=str(tmp_path / "none"))
    assert done.returncode == 1
    assert "no Python interpreter" in done.stderr and "OPWRIGHT_PYTHON" in done.stderr

    # An interpreter whose package fails to import.
    write(
        tmp_path,
        {
            "sitecustomize.py": """
                import sys

                class Refuse:
                    @staticmethod
                    def find_spec(name, *_):
                        if name == "opwright":
                            raise RuntimeError("not this one")

                sys.meta_path.insert(0, Refuse)
            """
        },
    )
    done = native(program, engines, *command, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "cannot be imported" in done.stderr and "RuntimeError: not this one" in done.stderr

    # One that is linked statically and has no library.
    fake = tmp_path / "python3"
    fake.write_text(
        "#!/bin/sh\nprintf '/x/python3\\n3.99\\n/x:/x\\nlibpython3.99.a\\n/x\\n/x\\n/x\\n'\n"
    )
    fake.chmod(0o755)
    done = native(program, engines, *command, OPWRIGHT_PYTHON=str(fake))
    assert done.returncode == 1
    package = Path(trt.__file__).parent
    if "OPWRIGHT_PROGRAM" not in os.environ and [*package.glob("_core.cpython-*")]:
        # The program of an installed package whose extension is for one version of Python.
        assert "Python 3.99, the package is for 3." in done.stderr
    else:
        assert "shared library of Python 3.99" in done.stderr and "--enable-shared" in done.stderr

    # A source that fails.
    done = native(program, engines, "run", "fails.engine", "--input", "x.npy", "--allow-host-code")
    assert done.returncode == 1 and "the offset is too large" in done.stderr


# C++ libraries


@pytest.fixture(scope="module")
def pad_engine(engines, plugin_dir) -> Path:
    """An engine with the library circ_pad_plugin.so in it."""
    library = plugin_dir / "circ_pad_plugin.so"

    def serialize():
        creator = trt.get_plugin_registry().get_creator("circ_pad_plugin", "1", "")
        fields = trt.PluginFieldCollection([trt.PluginField("pads", np.array(PADS, np.int32))])
        plugin = creator.create_plugin("pad", fields, trt.TensorRTPhase.BUILD)
        builder = trt.Builder(trt.Logger())
        net = builder.create_network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], plugin)
        layer.get_output(0).name = "y"
        net.mark_output(layer.get_output(0))
        config = builder.create_builder_config()
        config.plugins_to_serialize = [library]
        assert config.plugins_to_serialize == [str(library)]
        return bytes(builder.build_serialized_network(net, config))

    handle = trt.get_plugin_registry().load_library(library)
    (engines / "library.engine").write_bytes(serialize())
    trt.get_plugin_registry().deregister_library(handle)
    return engines / "library.engine"


def test_an_embedded_library_runs_where_it_is_not_registered(pad_engine, engines):
    np.save(engines / "expected.npy", wrap(X, PADS))
    load(
        engines,
        """
        try:
            trt.load("library.engine")
        except trt.Error as error:
            assert "circ_pad_plugin.so" in str(error) and "allow_host_code" in str(error)
        else:
            raise AssertionError
        expected = np.load("expected.npy")
        first = trt.load("library.engine", allow_host_code=True)
        runtime = trt.Runtime(trt.Logger())
        runtime.engine_host_code_allowed = True
        second = runtime.deserialize_cuda_engine(open("library.engine", "rb").read())
        np.testing.assert_array_equal(first(x), expected)
        del first
        np.testing.assert_array_equal(trt.Engine(second)(x), expected)
        assert trt.get_plugin_registry().get_creator("circ_pad_plugin", "1", "") is None
        """,
    )


def test_plugins_to_serialize_takes_a_list_of_paths(plugin_dir):
    config = trt.Builder(trt.Logger()).create_builder_config()
    with pytest.raises(TypeError, match="list of paths"):
        config.plugins_to_serialize = str(plugin_dir / "circ_pad_plugin.so")
    assert config.plugins_to_serialize == []
    assert config.embed_python_plugins is False


def test_libraries_of_a_library_can_be_embedded_before_it(tmp_path):
    """They run only when that is permitted, and one that is missing is named."""

    def compile(name: str, code: str, *options: str) -> Path:
        source, library = tmp_path / f"{name}.cpp", tmp_path / f"lib{name}.so"
        source.write_text(code)
        command = ["c++", "-shared", "-fPIC", "-o", library, source, f"-Wl,-soname,lib{name}.so"]
        subprocess.run([*command, *options], check=True)
        return library

    mark = tmp_path / "mark"
    below = compile("opw_below", 'extern "C" int below() { return 1; }')
    above = compile(
        "opw_above",
        f"""
        #include <cstdio>
        extern "C" int below();
        __attribute__((constructor)) static void run() {{
          if (below()) std::fclose(std::fopen("{mark}", "w"));
        }}""",
        f"-L{tmp_path}",
        "-lopw_below",
    )

    def serialized(libraries) -> bytes:
        builder = trt.Builder(trt.Logger())
        net = builder.create_network()
        relu = net.add_activation(net.add_input("x", trt.float32, (2,)), trt.ActivationType.RELU)
        net.mark_output(relu.get_output(0))
        config = builder.create_builder_config()
        config.plugins_to_serialize = libraries
        return bytes(builder.build_serialized_network(net, config))

    (tmp_path / "alone.engine").write_bytes(serialized([above]))
    (tmp_path / "both.engine").write_bytes(serialized([below, above]))
    below.unlink()
    above.unlink()
    assert not mark.exists()
    code = """
        import os
        import opwright as trt
        def error_of(path, **options):
            try:
                trt.load(path, **options)
            except trt.Error as error:
                return str(error)
        assert "allow_host_code" in error_of("both.engine")
        message = error_of("alone.engine", allow_host_code=True)
        assert "libopw_above.so" in message and "libopw_below.so" in message, message
        assert "before this one" in message, message
        assert not os.path.exists("mark")
        trt.load("both.engine", allow_host_code=True)
        assert os.path.exists("mark")
        """
    run_python("-c", textwrap.dedent(code), cwd=tmp_path)


# Sources that do more than define plugins

SCRIPT = """
import sys
import numpy as np
import opwright as trt
import opwright.plugin as trtp
{before}

@trtp.register("embedded::script")
def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("embedded::script")
def compute(x, outputs, stream):
    np.copyto(np.asarray(outputs[0]), np.asarray(x) + 1)

def build(path):
    net = trt.Builder(trt.Logger()).create_network()
    layer = net.add_plugin(trtp.op.embedded.script(net.add_input("x", trt.float32, (3,))))
    net.mark_output(layer.get_output(0))
    trt.build(net, device="cpu", embed_python_plugins=True, timing=False).save(path)

{after}
"""


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("", "build(sys.argv[1])", "script"),
        ("path = sys.argv[1]", "build(path)", "IndexError"),
        ("import os", "os._exit(5) if len(sys.argv) < 2 else build(sys.argv[1])", "status 5"),
    ],
)
def test_sources_that_loading_could_not_run_are_refused(before, after, reason, tmp_path):
    write(tmp_path, {"user.py": SCRIPT.format(before=before, after=after)})
    done = run_python("user.py", tmp_path / "e.engine", cwd=tmp_path, check=False)
    assert done.returncode == 1 and not (tmp_path / "e.engine").exists()
    *_, message = done.stderr.strip().splitlines()
    for part in ("plugin 'script'", reason, 'if __name__ == "__main__":'):
        assert part in message, message


def test_sources_are_run_for_what_is_no_script(tmp_path):
    """An engine is built twice with the same sources, which are run once."""
    mark = 'import os\nopen("runs", "a").write(f"{os.getpid()}\\n")'
    guarded = 'if __name__ == "__main__":\n    build(sys.argv[1]), build(sys.argv[1])'
    write(tmp_path, {"user.py": SCRIPT.format(before=mark, after=guarded)})
    run_python("user.py", "e.engine", cwd=tmp_path)
    assert len((tmp_path / "runs").read_text().split()) == 2  # the script, and the trial
    np.save(tmp_path / "x.npy", X)
    code = """
        engine = trt.load("e.engine", allow_host_code=True)
        assert (engine(np.ones(3, np.float32)) == 2).all()
        """
    load(tmp_path, code)
