"""The API reference says what the package says: every public name has a docstring, and the pages are up to date."""

import enum
import importlib
import inspect
import re
import subprocess
import sys

import pytest

from paths import ROOT

MODULES = [
    "opwright",
    "opwright.aot",
    "opwright.onnxruntime",
    "opwright.plugin",
    "opwright.ray",
    "opwright.serving",
    "opwright.sharding",
    "opwright.testing",
]


def imported(name: str):
    """The module; the test is skipped where it needs an optional extra that is not installed."""
    if name in ("opwright.ray", "opwright.serving"):
        return pytest.importorskip(name)
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def reference():
    """The pages by name, and the warnings."""
    pytest.importorskip("griffe")
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("reference").pages()
    finally:
        sys.path.remove(str(ROOT / "tools"))


def text_of(value) -> str:
    """The docstring without the signature that nanobind puts first."""
    return re.sub(r"^\w*\(.*\)( -> .*)?$", "", inspect.getdoc(value) or "", flags=re.M).strip()


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    module = imported(name)
    symbols = {n: getattr(module, n) for n in module.__all__}
    symbols = {n: s for n, s in symbols.items() if inspect.isclass(s) or callable(s)}
    assert [n for n, symbol in symbols.items() if not text_of(symbol)] == []


def test_every_enumeration_has_a_docstring():
    core = importlib.import_module("opwright._core")
    enums = [e for e in vars(core).values() if inspect.isclass(e) and issubclass(e, enum.Enum)]
    undocumented = {None, enum.Enum.__doc__, enum.IntEnum.__doc__, int.__doc__}
    assert len(enums) > 40
    assert [e.__name__ for e in enums if e.__doc__ in undocumented] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_member_of_a_public_class_has_a_docstring(name):
    module = imported(name)
    classes = [getattr(module, n) for n in module.__all__ if inspect.isclass(getattr(module, n))]
    missing = [
        f"{c.__name__}.{n}"
        for c in classes
        if c.__module__.startswith("opwright") and not issubclass(c, int)
        for n, member in vars(c).items()
        if not n.startswith("_") and not isinstance(member, (str, int))
        if not text_of(member)
    ]
    assert missing == []


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_tell_of_every_parameter(name):
    module = imported(name)
    functions = [f for f in map(module.__dict__.get, module.__all__) if inspect.isfunction(f)]
    missing = [
        f"{f.__name__}({p})"
        for f in functions
        for p in inspect.signature(f).parameters
        if f":param {p}:" not in f.__doc__ and "parameters are those of" not in f.__doc__
    ]
    assert missing == []


def test_the_pages_are_made_without_warnings(reference):
    _, warnings = reference
    assert warnings == []


def test_the_pages_are_up_to_date(reference):
    pages, _ = reference
    folder = ROOT / "docs" / "reference"
    assert sorted(pages) == sorted(page.name for page in folder.glob("*.md"))
    stale = [name for name, text in pages.items() if (folder / name).read_text() != text]
    assert stale == [], "make docs writes them"


def test_the_pages_have_every_public_name(reference):
    pages, _ = reference
    for name in MODULES:
        module = imported(name)
        page = pages[f"{name.rpartition('.')[2]}.md"]
        names = [n for n in module.__all__ if not inspect.ismodule(getattr(module, n))]
        assert [n for n in names if f"`{n}`" not in page] == []


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--help"], 0), (["--fold"], 2), (["a", "b"], 2)]
)
def test_the_program_writes_no_pages_for_other_arguments(tmp_path, arguments, status):
    pytest.importorskip("griffe")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "reference.py"), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert "usage: reference.py" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
