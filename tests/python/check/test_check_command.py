"""python -m opwright check: files of functions, of classes, and libraries; what it prints and returns."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import pytest

from opwright import testing
from paths import SAMPLES, SUPPORT

FILE = """
    import numpy as np
    import opwright.plugin as trtp
    {imports}

    @trtp.register("file{n}::good")
    def desc(x: trtp.TensorDesc, k: float{default}) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("file{n}::good")
    def run(x, k, outputs, stream):
        np.multiply(x, np.float32(k), out=np.asarray(outputs[0]))

    @trtp.register("file{n}::bad")
    def bad_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("file{n}::bad")
    def bad(x, outputs, stream):
        np.asarray(outputs[0])[:-1] = np.asarray(x)[:-1]
    {more}
"""


def write(folder, n, imports="", default=" = 2.0", more=""):
    file = folder / f"my_ops_{n}.py"
    text = FILE.format(n=n, imports=imports, default=default, more=more)
    file.write_text(textwrap.dedent(text))
    return file


def command(*arguments, folder):
    return subprocess.run(
        [sys.executable, "-m", "opwright", "check", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        # Freed memory is overwritten, so that who reads it crashes.
        env={**os.environ, "OPWRIGHT_DEVICE": "cpu", "MALLOC_PERTURB_": "165"},
    )


def test_the_command_prints_a_table_and_fails(tmp_path):
    file = write(tmp_path, 0)
    done = command(file, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    good, bad = done.stdout.split("\n\n")
    assert good.startswith("file0::good\n") and "FAIL" not in good
    assert "made here, FP32 [5], [4, 5]" in good
    assert "written        FAIL" in bad and f"at {file.name}:18 (bad)" in bad


def test_the_command_gives_json(tmp_path):
    more = 'opwright.testing.example("file1::good", inputs=[np.ones((2, 3), np.float32)], k=3.0)'
    file = write(tmp_path, 1, "import opwright.testing", "", more)
    done = command(file, "--only", "file1::good", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = json.loads(done.stdout)
    assert report["plugin"] == "file1::good" and report["ok"]
    example = next(row for row in report["rows"] if row["check"] == "example")
    assert example == {"check": "example", "result": "ok", "detail": "", "where": ""}


def test_a_plugin_that_cannot_be_tried_without_an_example(tmp_path):
    file = write(tmp_path, 2, default="")
    reports = testing.check_file(file, "file2::good")
    assert reports[0].failed == [] and reports[0].needs_example and not reports[0].ok
    row = reports[0].rows[0]
    assert row.result == "ask"
    done = command(file, "--only", "file2::good", folder=tmp_path)
    assert done.returncode == 2 and "not reached, without an example" in done.stdout
    assert "attribute 'k' is missing" in row.detail
    assert "add opwright.testing.example('file2::good', inputs=[...], k=...)" in row.detail


PICKY = """
    import numpy as np
    import opwright.plugin as trtp

    @trtp.register("picky::layer_norm")
    def norm(x: trtp.TensorDesc, scale: trtp.TensorDesc, bias: trtp.TensorDesc) -> trtp.TensorDesc:
        if x.ndim < 2 or scale.ndim != 1 or bias.ndim != 1:
            raise ValueError("x has rows, scale and bias have rank 1")
        return x.like()

    @trtp.impl("picky::layer_norm")
    def norm_impl(x, scale, bias, outputs, stream):
        x = np.asarray(x)
        if x.shape[-1] != np.asarray(scale).shape[0]:
            raise ValueError("scale has an element for each of a row")
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        np.asarray(outputs[0])[...] = y * np.asarray(scale) + np.asarray(bias)

    @trtp.register("picky::blocks")
    def blocks(x: trtp.TensorDesc) -> trtp.TensorDesc:
        if x.ndim != 2 or x.shape_expr[1].is_constant and x.shape_expr[1].constant_value() % 16:
            raise ValueError("x is a matrix whose rows are multiples of 16")
        return x.like()

    @trtp.impl("picky::blocks")
    def blocks_impl(x, outputs, stream):
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    @trtp.register("picky::pick")
    def pick(table: trtp.TensorDesc, index: trtp.TensorDesc) -> trtp.TensorDesc:
        if index.dtype.name != "INT32" or table.ndim != 2 or index.ndim != 1:
            raise TypeError("index is a vector of INT32, table a matrix")
        out = table.like()
        out.shape_expr = trtp.SymExprs.from_tuple([index.shape_expr[0], table.shape_expr[1]])
        return out

    @trtp.impl("picky::pick")
    def pick_impl(table, index, outputs, stream):
        np.take(np.asarray(table), np.asarray(index), axis=0, out=np.asarray(outputs[0]))

    @trtp.register("picky::never")
    def never(x: trtp.TensorDesc) -> trtp.TensorDesc:
        raise ValueError("only what nobody guesses")

    @trtp.impl("picky::never")
    def never_impl(x, outputs, stream):
        pass

    @trtp.register("picky::broken")
    def broken(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return undefined_name

    @trtp.impl("picky::broken")
    def broken_impl(x, outputs, stream):
        pass
"""


def test_correct_plugins_that_refuse_usual_inputs(tmp_path):
    file = tmp_path / "picky.py"
    file.write_text(textwrap.dedent(PICKY))
    reports = {report.plugin: report for report in testing.check_file(file)}
    for name in ("layer_norm", "blocks", "pick"):
        report = reports[f"picky::{name}"]
        assert report.ok, report
        assert "made here from what it refuses" in report.rows[0].detail
    assert reports["picky::never"].rows[0].result == "ask"
    assert "only what nobody guesses" in reports["picky::never"].rows[0].detail
    assert reports["picky::broken"].failed == ["example"]


def test_several_examples_make_the_profile(tmp_path):
    more = """
    for columns in (4, 2, 9):
        opwright.testing.example("file3::good", [np.ones((3, columns), np.float32)])
        opwright.testing.example("file3::bad", [np.ones((1, columns), np.float32)])
    """
    file = write(tmp_path, 3, "import opwright.testing", more=more)
    good, bad = testing.check_file(file)
    assert good.ok and bad.failed == ["written"]
    assert "(and 2 more)" in next(row.detail for row in bad.rows if row.check == "written")


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "'mine.py' registers no plugin, neither by opwright.plugin.register nor by"),
        (
            "x = 1\nraise ValueError('no')",
            "'mine.py' raised ValueError before anything was checked",
        ),
        ("import no_such_module", "'mine.py' needs the module 'no_such_module', which is not"),
        ("def f(:", "'mine.py' raised SyntaxError before"),
        ("import sys; sys.exit(3)", "'mine.py' ended the program (status 3) before anything"),
    ],
)
def test_a_file_with_nothing_to_check(tmp_path, text, says):
    (tmp_path / "mine.py").write_text(text)
    done = command("mine.py", folder=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and says in done.stderr
    assert "opwright/" not in done.stderr and "importlib" not in done.stderr
    if "ValueError" in says:
        assert 'mine.py", line 2, in <module>' in done.stderr and "ValueError: no" in done.stderr


def test_a_file_that_is_not_there(tmp_path):
    done = command("mine.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "there is no file 'mine.py'" in done.stderr


def test_several_files_and_each_failure(tmp_path):
    more = """
    for columns in (4, 2):
        opwright.testing.example("file5::bad", [np.ones((3, columns), np.float32)])
    """
    first = write(tmp_path, 5, "import opwright.testing", more=more)
    second = write(tmp_path, 6)
    done = command(first, "missing.py", second, "--verbose", folder=tmp_path)
    assert done.returncode == 2 and "there is no file 'missing.py'" in done.stderr
    tables = {table.split("\n")[0]: table for table in done.stdout.split("\n\n")}
    assert set(tables) == {"file5::good", "file5::bad", "file6::good", "file6::bad"}
    assert tables["file5::bad"].count("written        FAIL") == 2


def test_only_one_that_the_file_has(tmp_path):
    file = write(tmp_path, 4)
    with pytest.raises(testing.NothingToCheckError, match="registers no plugin 'file4::worse'"):
        testing.check_file(file, "file4::worse")


def test_what_is_done_next_is_told(tmp_path):
    told = []
    testing.check_file(write(tmp_path, 7), "file7::good", progress=told.append)
    assert "file7::good: combination 1 of 1: FLOAT, FLOAT" in told
    assert told[-1] == "file7::good: threads"


CLASSES = """
    import numpy as np
    import opwright as trt
    import opwright.testing
    from v3_plugins import Creator, Twice

    class Triple(Twice):
        plugin_name = "Triple"

    class Half(Twice):
        plugin_name = "Half"

        def get_output_shapes(self, inputs, shape_inputs, expr_builder):
            raise ArithmeticError("no luck")

    trt.get_plugin_registry().register_creator(Creator("Triple", lambda phase: Triple()), "")
    creator = Creator("Half", lambda phase: Half())
    if __name__ == "__main__":
        trt.get_plugin_registry().register_creator(creator, "")
"""


def test_creators_that_a_file_registers_or_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), *sys.path]))
    (tmp_path / "mine.py").write_text(textwrap.dedent(CLASSES))
    done = command("mine.py", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    triple, half = done.stdout.split("\n\n")
    assert triple.startswith("Triple\n") and "FAIL" not in triple
    assert "made here, FP32 [5], [4, 5]" in triple
    assert half.startswith("Half\n") and "ArithmeticError: no luck" in half
    assert "at mine.py:14 (get_output_shapes)" in half


@pytest.mark.parametrize(
    "file, plugin",
    [
        ("negate_plugin_v3", "styles::NegatePluginV3"),
        ("shared_counter_plugin", "shared_counter_plugin"),  # would crash without a context
        ("scale_plugin_v2", "ScalePluginV2"),
    ],
)
def test_a_library(tmp_path, plugin_dir, file, plugin):
    done = command(plugin_dir / f"{file}.so", folder=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(f"{plugin}\n"), done.stderr
    assert "FAIL" not in done.stdout


def test_a_library_with_examples_in_a_file(tmp_path, plugin_dir):
    library = plugin_dir / "checked_plugin.so"
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom opwright import testing\n"
        "for name in 'good', 'behind':\n"
        "    testing.example(f'checked::{name}', [np.ones((2, 3), np.float32)], k=3.0)\n"
    )
    arguments = "mine.py", "--plugins", library
    done = command(*arguments, "--only", "checked::good", folder=tmp_path)
    assert done.returncode == 0 and "FAIL" not in done.stdout
    done = command(*arguments, "--only", "checked::behind", folder=tmp_path)
    assert done.returncode == 1 and "bounds         FAIL" in done.stdout
    assert f"at {library} (enqueue of checked::behind)" in done.stdout


@pytest.mark.parametrize(
    "file, packages",
    [
        ("python_plugin/circ_pad_plugin_numpy.py", []),
        ("python_plugin/circ_pad_plugin_numba.py", ["numba"]),
        ("python_plugin/circ_pad_plugin_multi_tactic.py", ["torch", "triton"]),
        ("quickly_deployable_plugins/qdp_runner.py", ["torch", "triton", "numba"]),
    ],
)
def test_the_samples_pass(file, packages):
    if any(importlib.util.find_spec(name) is None for name in packages):
        pytest.skip(f"needs {packages}")
    path = SAMPLES / file
    done = command(path.name, folder=path.parent)
    assert done.returncode == 0 and "FAIL" not in done.stdout, done.stdout + done.stderr


def test_the_sample_of_a_library_passes(plugin_dir):
    library = plugin_dir / "circ_pad_sample.so"
    done = command("circ_pad_plugin_cpp.py", "--plugins", library, folder=SAMPLES / "python_plugin")
    assert done.returncode == 0 and "clone          ok" in done.stdout, done.stdout + done.stderr
