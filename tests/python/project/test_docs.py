"""Every block of code in README.md and docs/ runs, every link and every path in the pages leads somewhere.

The blocks of a page run in their order: python in one namespace, bash in the same directory, which is
empty at first. A block of any language that names a file (```cpp file=plugin.cpp) is written there; cpp
and cmake blocks always do, and the page's bash builds them. `make` is not run, since `make test` runs
this, but its target must exist. A text block is output or a diagram. A python block that imports a
framework which is not installed is not run; it says so by its own import statements. Nor is one that
is marked ```python gpu: tests/python/gpu/test_gpu_docs.py runs these.
"""

import ast
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

import pytest

from opwright.aot import _nvrtc
from paths import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
]
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
ALL_PAGES = [
    *PAGES,
    *REFERENCE,
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("samples/*/README.md")),
]
FRAMEWORKS = {
    "torch",
    "triton",
    "numba_cuda",
    "ray",
    "warp",
    "onnxscript",
}  # that users of the package may not have
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    file: str | None
    line: int
    """The number of lines above the block's first."""
    code: str
    needs_gpu: bool = False


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        language, info, code = match.groups()
        file = re.search(r"file=(\S+)", info)
        line = text.count("\n", 0, match.start(3))
        found.append(Block(language, file and file[1], line, code, "gpu" in info.split()))
    return found


def lacks_framework(block: Block) -> bool:
    """Whether the block imports a framework that is not installed here."""
    imports = [node for node in ast.walk(ast.parse(block.code)) if isinstance(node, ast.Import)]
    names = {alias.name.partition(".")[0] for node in imports for alias in node.names}
    if any(importlib.util.find_spec(name) is None for name in names & FRAMEWORKS):
        return True
    return "aot.cuda(" in block.code and not has_nvrtc()


def has_nvrtc() -> bool:
    try:
        return bool(_nvrtc.nvrtc())
    except _nvrtc.NvrtcError:
        return False


def run_python(page: Path, block: Block, namespace: dict) -> None:
    # Empty lines above make the line numbers of a traceback those of the page.
    code = compile("\n" * block.line + block.code, name_of(page), "exec", dont_inherit=True)
    before = dict(sys.modules)
    exec(code, namespace)
    # A page shows how this module is replaced.
    for name in [n for n in sys.modules if n.partition(".")[0] == "onnxruntime"]:
        sys.modules[name] = before.get(name, sys.modules[name])
        if name not in before and sys.modules[name].__name__ != name:
            del sys.modules[name]


def run_bash(block: Block, folder: Path, program: Path) -> None:
    lines = [line for line in block.code.splitlines() if not line.startswith("make ")]
    if not any(lines):
        return
    script = folder.parent / f"block-{block.line}.sh"
    script.write_text("set -euo pipefail\n" + "\n".join(lines) + "\n")
    path = [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        ["bash", "-x", script],
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.usefixtures("creators_end")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_runs(page, program, tmp_path, monkeypatch):
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    namespace = {"__name__": "__main__"}
    for block in blocks(page):
        where = f"{name_of(page)}, line {block.line + 1}"
        try:
            if block.file:
                (folder / block.file).write_text(block.code)
            elif block.language == "python":
                if block.needs_gpu or lacks_framework(block):
                    continue
                with contextlib.redirect_stdout(io.StringIO()):
                    run_python(page, block, namespace)
            elif block.language == "bash":
                run_bash(block, folder, program)
            else:
                assert block.language == "text", (
                    f"a block of '{block.language}' needs file=NAME; output is 'text'"
                )
        except Exception as error:
            pytest.fail(f"{where}: {error}\n{traceback.format_exc()}", pytrace=False)


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    used = set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))
    assert used <= targets


def test_the_index_has_all_pages():
    def linked(page: Path) -> set[Path]:
        links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text())
        return {(page.parent / link).resolve() for link in links}

    pages = {*PAGES, *REFERENCE, *ROOT.glob("samples/*/README.md"), ROOT / "CONTRIBUTING.md"}
    results = ROOT / "docs" / "results"
    index = ROOT / "docs" / "README.md"
    assert pages - linked(index) == {index, ROOT / "README.md"}
    assert set(results.glob("*.md")) - linked(results / "README.md") == {results / "README.md"}
    assert index in linked(ROOT / "README.md")


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    if not heading or not target.exists():
        return target.exists()
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", target.read_text()), re.MULTILINE)
    return heading in [re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles]


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_and_paths_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")]
    missing = [link for link in links if not leads_somewhere(page, link)]
    folders = "bench|cli|cmake|docs|include|python|samples|src|tests|tools"
    paths = re.findall(rf"`((?:{folders})/[\w./-]*)`", text)
    missing += [path for path in paths if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", ["compiled-operators", "function-plugins"])
def test_messages_are_those_of_the_sources(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    (table,) = re.findall(r"^\| message \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [row.split(" | ")[0] for row in table.splitlines() if "NumPy's" not in row]
    fragments = [
        f for cell in cells for m in re.findall(r"`([^`]+)`", cell) for f in m.split(" … ")
    ]
    assert len(fragments) > 10
    files = [f for folder in ("cli", "src", "python") for f in (ROOT / folder).rglob("*.[cp][py]*")]
    # Literals that follow each other are one; what stands between pieces of a message goes.
    text = re.sub(r'"\s*f?"', "", "\n".join(f.read_text() for f in files if f.is_file()))
    assert [f for f in fragments if f not in text] == []


def test_a_block_for_a_framework_that_is_not_installed_is_found(monkeypatch):
    block = Block("python", None, 0, "import numpy as np\nimport torch.nn\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert lacks_framework(block)
    assert not lacks_framework(block._replace(code="import numpy\n"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert not lacks_framework(block)


def test_a_failing_block_is_found(program, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nok = 1\n```\n\n```bash\ntrue\nfalse\n```\n")
    python, bash = blocks(page)
    assert (python.language, python.line) == ("python", 3)
    folder = tmp_path / "page"
    folder.mkdir()
    with pytest.raises(AssertionError, match="exit status 1"):
        run_bash(bash, folder, program)
