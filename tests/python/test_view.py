"""Engines to look at: the page that `opwright view` and Engine.view write, in a real browser where there is one."""

from __future__ import annotations

import html
import html.parser
import json
import re
import subprocess

import numpy as np
import onnx.parser
import pytest

import opwright
from chromium import CHROMIUM, Browser

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
HOSTILE = "</script><img src=x onerror=document.title=1><!--<script>"


def chain(nodes: int, name: str = "net", activation: str = "Softmax") -> opwright.Engine:
    """An engine of one step a node: softmax is not fused."""
    lines = [f"t{i + 1} = {activation}(t{i})" for i in range(nodes)]
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 8] t0) => (float[2, 8] t{nodes}) {{ {" ".join(lines)} }}""")
    model.graph.name = name
    for i, node in enumerate(model.graph.node):
        node.name = f"{name}_{i}"
    return opwright.build(model, timing=False)


def data_of(page: str) -> list[dict]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


class Elements(html.parser.HTMLParser):
    """What a browser made of a page: tags, and the texts below elements with an id."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str | None] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(dict(attrs).get("id"))

    def handle_endtag(self, tag: str) -> None:
        if self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for name in self.open:
            if name is not None:
                self.texts.setdefault(name, []).append(data)

    def text(self, name: str) -> str:
        return " ".join(self.texts.get(name, []))


def browse(path, view: str = "graph") -> Elements:
    """The page's document after its script has run, which must not have failed."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--window-size=1400,900", "--virtual-time-budget=4000", "--dump-dom"]
    done = subprocess.run(
        [*command, f"file://{path}#{view}"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr, done.stderr
    elements = Elements()
    elements.feed(done.stdout)
    return elements


def test_page_has_what_the_inspector_tells(tmp_path):
    engine = chain(3)
    engine.view().save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    (shown,) = data_of(page)
    assert shown["label"] == "net"
    assert shown["Layers"] == engine.layers
    assert "http" not in page.replace("http-equiv", ""), "the page must need no network"


def test_tensors_have_places(tmp_path):
    (shown,) = data_of(chain(4).view().html)
    tensors = {tensor["Index"]: tensor for tensor in shown["Tensors"]}
    assert sorted(tensors) == list(range(len(tensors)))
    for layer in shown["Layers"]:
        for port in layer["Inputs"] + layer["Outputs"]:
            assert tensors[port["Tensor"]]["Name"] == port["Name"]
    inner = [tensor for tensor in tensors.values() if tensor["Location"] == "arena"]
    assert len(inner) == 3
    for tensor in inner:
        assert tensor["Bytes"] == 2 * 8 * 4
        assert 0 <= tensor["Offset"] <= shown["Profiles"][0]["ArenaBytes"] - tensor["Bytes"]


def test_names_cannot_end_the_script():
    page = chain(2, HOSTILE).view().html
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert data_of(page)[0]["Name"] == HOSTILE


def test_a_notebook_shows_a_page_of_its_own():
    shown = chain(2, HOSTILE).view()._repr_html_()
    elements = Elements()
    elements.feed(shown)
    assert elements.tags == ["iframe"]


NOTEBOOK = """
import opwright, onnx.parser
model = onnx.parser.parse_model('''
    <ir_version: 9, opset_import: ["" : 19]>
    net (float[2, 8] x) => (float[2, 8] y) { a = Softmax(x)  y = Softmax(a) }''')
engine = opwright.build(model, timing=False)
engine.view()
"""


@needs_browser
def test_a_notebook_draws_the_graph_within_its_frame(tmp_path):
    """Of a kernel of its own, in a page that gives the frame its size after it is there."""
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    (output,) = book.cells[0].outputs
    shown = output.data["text/html"]
    # The page itself says where the middles of its boxes are, and how wide the canvas is.
    probe = html.escape(
        "<script>setInterval(() => { const x = graph().boxes.map((box) => camera.x + camera.zoom *"
        " (box.x + kWidth / 2)); parent.postMessage([canvas.parentElement.clientWidth, ...x], '*');"
        " }, 100)</script>"
    )
    (tmp_path / "notebook.html").write_text(f"""<!doctype html>
        <script>addEventListener("message", (event) => window.told = event.data)</script>
        <div id="cell" style="width: 0">{shown.replace('" sandbox', probe + '" sandbox')}</div>""")
    browser = Browser(tmp_path / "browser")
    try:
        browser.open((tmp_path / "notebook.html").as_uri())
        browser.until("window.told?.length")
        browser.until("cell.style.width = '1000px'")
        width, *middles = browser.until("window.told[0] > 500 && window.told")
        assert len(middles) == 2
        wanted = f"window.told.slice(1).every((x) => Math.abs(x - {width} / 2) < 2)"
        assert browser.until(wanted, seconds=5)
    finally:
        browser.close()


def test_program_writes_the_page(program, tmp_path):
    chain(2).save(tmp_path / "a.engine")
    chain(3).save(tmp_path / "b.engine")
    done = subprocess.run(
        [program, "view", tmp_path / "a.engine"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "a.engine.html")
    assert len(data_of((tmp_path / "a.engine.html").read_text())) == 1
    output = tmp_path / "both.html"
    subprocess.run(
        [program, "view", tmp_path / "a.engine", tmp_path / "b.engine", "-o", output], check=True
    )
    assert [shown["label"] for shown in data_of(output.read_text())] == ["a.engine", "b.engine"]


def test_program_says_what_is_no_engine(program, tmp_path):
    (tmp_path / "no.engine").write_bytes(b"not an engine")
    done = subprocess.run([program, "view", tmp_path / "no.engine"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "no.engine" in done.stderr
    assert not (tmp_path / "no.engine.html").exists()


@needs_browser
def test_browser_lists_the_steps(tmp_path):
    engine = chain(5)
    engine.view().save(tmp_path / "page.html")
    elements = browse(tmp_path / "page.html", "steps")
    for layer in engine.layers:
        assert layer["Name"] in elements.text("steps")
    assert f"{len(engine.layers)} steps" in elements.text("facts")
    assert "softmax" in elements.text("time").lower() or elements.text("time") == ""


@needs_browser
@pytest.mark.parametrize("view", ["graph", "steps", "time", "memory"])
def test_browser_shows_names_as_text(tmp_path, view):
    chain(2, HOSTILE).view().save(tmp_path / "page.html")
    elements = browse(tmp_path / "page.html", view)
    assert "img" not in elements.tags
    assert elements.text("title").strip() == HOSTILE


@needs_browser
def test_browser_compares_two_engines(tmp_path):
    chain(2, "few").view(chain(3, "few")).save(tmp_path / "page.html")
    text = browse(tmp_path / "page.html", "compare").text("compare")
    assert "in 2 steps, then" in text and "in 3 steps" in text
    assert text.count("few_1") == 2 and text.count("few_2") == 1


@needs_browser
def test_browser_opens_many_steps(tmp_path):
    chain(3000).view().save(tmp_path / "page.html")
    assert browse(tmp_path / "page.html", "steps").tags.count("tr") > 3000


def test_view_of_dynamic_shapes_names_symbols():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[n, 4] x) => (float[n, 4] y) { y = Tanh(x) }""")
    engine = opwright.build(model, shapes={"x": ((1, 4), (2, 4), (8, 4))})
    engine(np.zeros((3, 4), np.float32))
    (shown,) = data_of(engine.view().html)
    assert shown["Layers"][0]["Outputs"][0]["Dimensions"] == ["n", 4]
