"""`python -m opwright tensorrt`: a package `tensorrt` in an environment, and `--tensorrt-prefix`."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from opwright import __main__ as command_line


@pytest.fixture
def python(tmp_path):
    """The interpreter of an environment that has this one's packages and none of its own."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    here = "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (site_packages(environment) / "here.pth").write_text(here)
    return environment / "bin" / "python"


def site_packages(environment: Path) -> Path:
    (found,) = (environment / "lib").glob("python*/site-packages")
    return found


def run(python, *arguments):
    return subprocess.run(
        [str(python), *map(str, arguments)], capture_output=True, text=True, cwd=python.parent
    )


def command(python, *arguments):
    return run(python, "-m", "opwright", "tensorrt", *arguments)


def entries(python) -> list[str]:
    folder = site_packages(python.parents[1])
    return sorted(path.name for path in folder.iterdir() if path.name != "here.pth")


ASK = "import tensorrt, importlib.metadata as m; print(tensorrt.__version__, m.version('tensorrt'))"


def test_install_and_remove(python):
    assert command(python, "status").stdout == "tensorrt is not installed\n"
    assert command(python, "status").returncode == 1
    done = command(python, "install", "--api", "10.13")
    assert done.returncode == 0 and "tensorrt 10.13.0 is Opwright now" in done.stdout, done.stderr
    assert run(python, "-c", ASK).stdout == "10.13.0 10.13.0\n"
    done = command(python, "install", "--api", "10.13")
    assert done.returncode == 0 and "there already" in done.stdout
    done = command(python, "install", "--api", "11.1.0.106")
    assert done.returncode == 0 and "in the place of 10.13.0" in done.stdout
    assert run(python, "-c", ASK).stdout == "11.1.0.106 11.1.0.106\n"
    done = command(python, "status")
    assert done.returncode == 0 and "tensorrt 11.1.0.106 is Opwright" in done.stdout
    assert entries(python) == ["tensorrt", "tensorrt-11.1.0.106.dist-info", "tensorrt_bindings"]
    # The command that installs nothing has the last word.
    done = run(python, "-m", "opwright.trt", "--api", "10.9", "-c", ASK)
    assert done.stdout == "10.9.0 10.9.0\n", done.stderr
    for _ in range(2):
        assert command(python, "remove").returncode == 0
        assert entries(python) == []


def test_pip_knows_it(python):
    command(python, "install", "--api", "10.13")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    listed = subprocess.run([*pip, "list"], capture_output=True, text=True).stdout
    assert ["tensorrt", "10.13.0"] in [line.split() for line in listed.splitlines()]
    done = subprocess.run([*pip, "uninstall", "-y", "tensorrt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert entries(python) == []


@pytest.mark.parametrize("kind", ["distribution", "renamed distribution", "module alone"])
def test_another_tensorrt_is_left_alone(python, kind):
    folder = site_packages(python.parents[1])
    (folder / "tensorrt").mkdir()
    (folder / "tensorrt" / "__init__.py").write_text("__version__ = '10.0.1'")
    if kind != "module alone":
        name = "tensorrt" if kind == "distribution" else "tensorrt_cu12"
        (folder / f"{name}-10.0.1.dist-info").mkdir()
        (folder / f"{name}-10.0.1.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 10.0.1\n"
        )
    before = entries(python)
    done = command(python, "install")
    assert done.returncode == 1 and "is there already; uninstall it first" in done.stderr
    done = command(python, "remove")
    assert done.returncode == 0 and "nothing to remove" in done.stdout
    done = command(python, "status")
    assert (
        done.returncode == 1 and ("10.0.1" if kind != "module alone" else "module") in done.stdout
    )
    assert entries(python) == before
    # Programs can be run all the same.
    done = run(python, "-m", "opwright.trt", "-c", ASK)
    assert done.stdout.startswith("11."), done.stderr


def test_what_was_interrupted_is_mended(python):
    command(python, "install")
    folder = site_packages(python.parents[1])
    (info,) = folder.glob("tensorrt-*.dist-info")
    info.rename(python.parents[1] / info.name)
    done = command(python, "status")
    assert done.returncode == 1 and "incomplete" in done.stdout
    assert command(python, "install", "--api=10.1").returncode == 0
    assert run(python, "-c", ASK).stdout == "10.1.0 10.1.0\n"
    (folder / "tensorrt" / "__init__.py").unlink()
    assert "incomplete" in command(python, "status").stdout
    assert command(python, "install", "--api=10.1").returncode == 0
    assert run(python, "-c", ASK).stdout == "10.1.0 10.1.0\n"


def test_an_exchange_that_fails_changes_nothing(python):
    command(python, "install", "--api=10.1")
    program = """
import os
from opwright._tensorrt import install as installed
rename = os.rename
def fail(source, target):
    if "10.2" in str(target):
        raise OSError(28, "No space left on device")
    rename(source, target)
os.rename = fail
try:
    installed.install("10.2.0")
except installed.Error as error:
    print(error)
"""
    assert "No space left on device" in run(python, "-c", program).stdout
    assert entries(python) == ["tensorrt", "tensorrt-10.1.0.dist-info", "tensorrt_bindings"]
    assert run(python, "-c", ASK).stdout == "10.1.0 10.1.0\n"


def test_where_opwright_is_gone(python):
    command(python, "install")
    (site_packages(python.parents[1]) / "here.pth").unlink()
    done = run(python, "-c", "import tensorrt")
    assert "pip uninstall tensorrt" in done.stderr


def test_the_prefix(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "__file__", str(tmp_path / "__main__.py"))
    assert command_line.main(["--tensorrt-prefix"]) == 1
    assert "no folder" in capsys.readouterr().err
    for name in ("include", "lib"):
        (tmp_path / "tensorrt" / name).mkdir(parents=True)
    assert command_line.main(["--tensorrt-prefix"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'tensorrt'}\n"
