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


def residual(blocks: int, timing: bool = False) -> opwright.Engine:
    """Blocks of three steps. The last step reads what the block reads and an input of the network; the first
    block's result is read at the end, too."""
    lines = []
    for i in range(blocks):
        lines += [
            f"a{i} = Softmax(x{i})",
            f"b{i} = Softmax(a{i})",
            f"x{i + 1} = Max(b{i}, x{i}, mask)",
        ]
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 8] x0, float[2, 8] mask) => (float[4, 8] y)
        {{ {" ".join(lines)} last = Softmax(x{blocks}) y = Concat<axis=0>(x1, last) }}""")
    for i, node in enumerate(model.graph.node):
        node.name = f"block.{i // 3}/{node.op_type}{i % 3}"
    return opwright.build(model, timing=timing)


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens an engine's page and waits for its graph."""

    def show(engine: opwright.Engine, place: str = "graph"):
        engine.view().save(tmp_path / "page.html")
        browser.open("about:blank")
        browser.open(f"{(tmp_path / 'page.html').as_uri()}#{place}")
        browser.until("location.hash !== '' && typeof placed !== 'undefined' && placed !== null")
        return browser

    return show


# What is wrong in the picture, by the places that the page draws at: lines within boxes, by points on them; and
# texts, boxes of other texts among them, that share room.
FAULTS = """(() => {
  const faults = [], { boxes, rows } = graph();
  const at = ([a, b, c, d], u) => (1-u)**3*a + 3*(1-u)**2*u*b + 3*(1-u)*u*u*c + u**3*d;
  for (const { links } of rows) for (const { x0, x1, y0, y1, turn, b, net } of links) {
    const middle = (turn + y1) / 2, points = [];
    for (let u = 0; u <= 1.001; u += 1 / 32)
      points.push([x0, y0 + (turn - y0) * u], [at([x0, x0, x1, x1], u), at([turn, middle, middle, y1], u)]);
    for (const { x, y, width, height, key } of boxes)
      if (points.some(([px, py]) => px > x && px < x + width && py > y + 0.5 && py < y + height - 0.5))
        faults.push(`${net.from.key} to ${b.item?.key} crosses ${key}`);
  }
  const texts = boxes.flatMap((box) => textsOf(box).map((text) => ({ ...text, box })));
  for (const text of texts)
    if (text.x < text.box.x || text.x + text.width > text.box.x + text.box.width
        || text.y + text.height > text.box.y + text.box.height)
      faults.push(`${text.text} leaves its box`);
  const labels = rows.flatMap(({ labels }) => labels).map((label) => ({ ...label, y: label.y - 9 }));
  const areas = [...texts, ...labels];
  areas.forEach((a, i) => areas.slice(i + 1).forEach((b) => {
    if (a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height)
      faults.push(`${a.text} covers ${b.text}`);
  }));
  for (const label of labels) for (const box of boxes)
    if (label.x < box.x + box.width && box.x < label.x + label.width
        && label.y < box.y + box.height && box.y < label.y + label.height)
      faults.push(`${label.text} covers ${box.key}`);
  return { faults, boxes: boxes.length, labels: labels.map(({ text }) => text), texts: texts.map(({ text }) => text) };
})()"""


def picture(browser) -> dict:
    """What is drawn; nothing of it may be at fault."""
    found = browser.until(FAULTS)
    assert found["faults"] == []
    return found


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
    """The notebook has a kernel of its own, and its page gives the frame its size afterwards."""
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    (output,) = book.cells[0].outputs
    shown = output.data["text/html"]
    # The page itself says where the middles of its boxes are, and how wide the canvas is.
    probe = html.escape(
        "<script>setInterval(() => { const x = graph().boxes.map((box) => camera.x + camera.zoom *"
        " (box.x + box.width / 2)); parent.postMessage([canvas.parentElement.clientWidth, ...x], '*');"
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
        assert len(middles) == 4  # two steps, and the network's input and output
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


@needs_browser
def test_long_lines_run_around_boxes(opened):
    browser = opened(residual(3, timing=True))
    found = picture(browser)
    assert found["boxes"] == 11 + 3  # the network's inputs and its output, too
    assert {"input", "x0", "mask", "output", "y"} <= set(found["texts"])
    assert found["labels"].count("2 x 8 FP32") == 12 and "4 x 8 FP32" in found["labels"]
    # A line for each that reads a tensor of another step; those that pass rows are in lanes.
    ends = browser.until(
        "graph().nets.flatMap((net) => [...net.to].map((to) => `${net.from.key} ${to.key}`))"
    )
    assert len(ends) == len(set(ends)) == 3 * 5 + 4
    assert "imask s2" in ends and "ix0 s2" in ends and "s2 s10" in ends and "s10 oy" in ends
    assert (
        browser.until(
            "graph().rows.flatMap((row) => row.links).filter((link) => link.b.item === null).length"
        )
        > 5
    )
    times = [text for text in found["texts"] if text.endswith((" ns", " us", " ms"))]
    assert len(times) == 11


@needs_browser
def test_lines_of_a_tangle_run_around_boxes(opened):
    random = np.random.default_rng(0)
    lines = ["t1 = Softmax(t0)"]
    for i in range(1, 40):
        reads = {f"t{i}", *(f"t{j}" for j in random.integers(0, i, 2))}
        lines.append(f"s{i} = Max({', '.join(sorted(reads))}) t{i + 1} = Softmax(s{i})")
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 8] t0) => (float[2, 8] t40) {{ {" ".join(lines)} }}""")
    picture(opened(opwright.build(model, timing=False)))


@needs_browser
def test_repeated_blocks_are_one_box_that_opens(opened):
    browser = opened(residual(12))
    closed = picture(browser)
    folds = browser.until(
        "engine().folds.map(({ first, period, count }) => [first, period, count])"
    )
    assert folds == [[0, 3, 12]]
    assert closed["boxes"] == 1 + 2 + 3
    assert any(text.startswith("12 x block") for text in closed["texts"])
    assert "3 steps each, 36 in all" in closed["texts"]
    # A click opens it to its blocks, one on a block to its steps, one on the minus closes them.
    click = """((x, y) => { const area = canvas.getBoundingClientRect();
        for (const type of ["pointerdown", "pointerup"]) canvas.dispatchEvent(new PointerEvent(type, { pointerId: 1,
          clientX: area.left + camera.x + camera.zoom * x, clientY: area.top + camera.y + camera.zoom * y }));
        return true; })"""
    browser.until("canvas.setPointerCapture = () => {}, true")
    middle = "(({ x, y, width, height }) => [x + width / 2, y + height / 2])"
    browser.until(f"{click}(...{middle}(graph().boxes.find((box) => box.kind === 'fold')))")
    assert picture(browser)["boxes"] == closed["boxes"] + 11
    browser.until(f"{click}(...{middle}(graph().boxes.find((box) => box.block === 4)))")
    found = picture(browser)
    assert found["boxes"] == closed["boxes"] + 11 + 2
    assert "block.4/Softmax0" in found["texts"] and "5 of 12, 3 steps" not in found["texts"]
    browser.until(f"{click}(graph().groups[0].x, graph().groups[0].y + 8)")
    assert picture(browser)["boxes"] == closed["boxes"]
    # All at once.
    browser.until("toggleAll(), true")
    assert picture(browser)["boxes"] == 38 + 3


@needs_browser
def test_few_steps_are_all_shown(opened):
    """Blocks of a graph that is seen at a glance are not closed."""
    assert picture(opened(residual(7)))["boxes"] == 23 + 3


@needs_browser
def test_a_block_with_conversions_has_its_own_name(opened):
    browser = opened(residual(12))
    # The page's own data, with the second step of each block as a conversion.
    browser.until("""(() => {
      const of = engine();
      for (const step of of.Layers.slice(0, 36)) if (step.index % 3 === 1)
        Object.assign(step, { LayerType: "Reformat", Name: `Reformat of t${step.index}` });
      engines[0] = prepare({ ...of });
      placed = null;
      render();
      return true;
    })()""")
    assert "12 x block" in picture(browser)["texts"]


@needs_browser
def test_a_step_is_shown_without_empty_space_beyond_the_graph(opened):
    browser = opened(chain(20))
    height = browser.until("canvas.parentElement.clientHeight")
    browser.until("choose(graph().boxes[0]), reveal(graph().boxes[0]), true")
    assert browser.until("camera.y") == 24
    browser.until("reveal(graph().boxes.at(-1)), true")
    bottom = browser.until("camera.y + camera.zoom * graph().bottom")
    assert bottom == pytest.approx(height - 24)


@needs_browser
def test_a_graph_that_fits_the_window_stays_at_its_top(opened):
    browser = opened(chain(2))
    browser.until("camera.zoom = 0.1, reveal(graph().boxes.at(-1)), true")
    assert browser.until("camera.y") == 24


@needs_browser
def test_an_engine_without_times_says_so(opened):
    browser = opened(chain(3))
    browser.until("show('time'), true")
    text = browser.until("byId('time').textContent")
    assert text.startswith("The build measured no times.") and "Softmax3" in text
    assert "%" not in text


@needs_browser
def test_folds_are_of_equal_steps_alone(opened):
    """Not of the same kinds with other shapes, and not where lines within the block differ."""
    lines = [f"t{i + 1} = Softmax(t{i})" for i in range(30)]
    lines[15] = "t16 = Concat<axis=1>(t15, t15)"
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 8] t0) => (float[2, 16] t30) {{ {" ".join(lines)} }}""")
    browser = opened(opwright.build(model, timing=False))
    folds = browser.until(
        "engine().folds.map(({ first, period, count }) => [first, period, count])"
    )
    assert folds == [[0, 1, 15], [16, 1, 14]]
    assert "15 x Softmax" in picture(browser)["texts"]


@needs_browser
def test_blocks_with_other_lines_inside_are_other_folds(opened):
    lines = []
    for i in range(12):
        other = f"a{i}" if i < 6 else f"x{i}"
        lines += [
            f"a{i} = Softmax(x{i})",
            f"b{i} = Softmax(a{i})",
            f"x{i + 1} = Max(b{i}, {other})",
        ]
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 8] x0) => (float[2, 8] x12) {{ {" ".join(lines)} }}""")
    browser = opened(opwright.build(model, timing=False))
    folds = browser.until(
        "engine().folds.map(({ first, period, count }) => [first, period, count])"
    )
    assert folds == [[0, 3, 6], [18, 3, 6]]


@needs_browser
def test_times_stand_beside_long_names(opened):
    import opwright.plugin as plugins

    name = "view::a_name_that_takes_more_room_than_a_box_of_the_graph_has"

    @plugins.register(name)
    def long(x: plugins.TensorDesc) -> plugins.TensorDesc:
        return x.like()

    @plugins.impl(name)
    def long_impl(x: plugins.Tensor, outputs, stream):
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19, "view" : 1]>
        net (float[8] {"x" * 90}) => (float[8] y) {{ y = {name.replace("::", ".")} ({"x" * 90}) }}""")
    texts = picture(opened(opwright.build(model)))["texts"]
    assert any(text.startswith("◆ view::a_name") and text.endswith("…") for text in texts)
    assert any(text.startswith("xxx") and text.endswith("…") for text in texts)


@needs_browser
def test_a_step_that_is_named_or_found_is_taken_out_of_its_fold(opened):
    browser = opened(chain(703), "graph/350")
    assert "net_350" in picture(browser)["texts"]
    browser = opened(chain(703))
    assert "703 x Softmax" in picture(browser)["texts"]
    browser.until("search('net_123'), true")
    assert browser.until("byId('facts').textContent").endswith("1 found")
    assert "1 found in it" in browser.until(FAULTS)["texts"]
    browser.until("step(1), true")
    assert browser.until("graph().byKey.get(state.item).step.Name") == "net_123"
    assert browser.until("byId('details').textContent").startswith("net_123")


@needs_browser
def test_keys_go_from_box_to_box(opened):
    browser = opened(residual(12))
    press = "((key) => { dispatchEvent(new KeyboardEvent('keydown', { key })); return true; })"
    told = []
    for _ in range(3):
        browser.until(f"{press}('j')")
        told.append(browser.until("byId('details').querySelector('h2').textContent"))
    assert told[:2] == ["x0", "mask"] and told[2].startswith("12 x block")
    boxes = browser.until("graph().boxes.length")
    browser.until(f"{press}('Enter')")
    assert browser.until("graph().boxes.length") == boxes + 11


@needs_browser
def test_the_overview_shows_and_moves_the_window(opened):
    browser = opened(chain(703), "graph/10")
    before = browser.until("camera.y")
    browser.until("""(() => { const area = map.getBoundingClientRect(); map.setPointerCapture = () => {};
      map.dispatchEvent(new PointerEvent("pointerdown", { clientX: area.left + 50, clientY: area.bottom - 20 }));
      return true; })()""")
    assert browser.until("camera.y") < before - 10000


@needs_browser
def test_many_steps_open_within_a_second(opened):
    """All of 3,000 steps one by one, which is more than the page shows at first."""
    browser = opened(chain(3000))
    took = browser.until(
        "(() => { const begin = performance.now(); toggleAll(); drawGraph(); return performance.now() - begin; })()"
    )
    assert browser.until("graph().boxes.length") == 3002
    assert took < 1000


@needs_browser
def test_times_and_bytes_are_those_of_the_program(opened):
    """What rounds to the next unit, what lies between two texts, and what is not timed."""
    random = np.random.default_rng(0)
    times = [6e-5, 4.2e-7, 0.0009996, 0.00125, 0.01225, 0.9995, 12.25, 999.5, 2500.0, 1e6]
    times += (10 ** random.uniform(-7, 7, 500)).tolist()
    counts = [0, 1, 1023, 1024, 1280, 1 << 20, (1 << 20) - 1, 5 << 60, 10**19]
    counts += [int(count) for count in 2 ** random.uniform(0, 63, 300)]
    browser = opened(chain(1))
    assert browser.until(f"{json.dumps(times)}.map(ms)") == [
        opwright._core._time_text(time) for time in times
    ]
    assert browser.until(f"{json.dumps(counts)}.map(bytes)") == [
        opwright._core._bytes_text(count) for count in counts
    ]
    assert browser.until("`<${ms(0)}>`") == "<>"


@needs_browser
def test_attributes_of_plugins_have_their_names(opened):
    import opwright.plugin as plugins

    @plugins.register("view::weigh")
    def weigh(
        x: plugins.TensorDesc, factor: float, axes: list[int], mode: str
    ) -> plugins.TensorDesc:
        return x.like()

    @plugins.impl("view::weigh")
    def weigh_impl(x: plugins.Tensor, factor: float, axes: list[int], mode: str, outputs, stream):
        np.multiply(np.asarray(x), factor, out=np.asarray(outputs[0]))

    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19, "view" : 1]>
        net (float[2, 8] x) => (float[2, 8] y)
        { y = view.weigh <factor = 2.5, axes = [1, 2], mode = "nearest"> (x) }""")
    browser = opened(opwright.build(model, timing=False), "graph/0")
    rows = browser.until(
        "[...byId('details').querySelectorAll('tr')].map((row) =>"
        " [...row.children].map((cell) => cell.textContent.trim()))"
    )
    assert ["factor", "2.5  FLOAT64"] in rows
    assert ["axes", "[1,2]  INT64"] in rows
    assert ["mode", "nearest"] in rows
    assert "◆ view::weigh" in picture(browser)["texts"]


@needs_browser
def test_an_input_that_is_an_output_has_a_line(opened):
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 8] x) => (float[2, 8] x, float[2, 8] y) { y = Softmax(x) }""")
    picture(opened(opwright.build(model, timing=False)))
