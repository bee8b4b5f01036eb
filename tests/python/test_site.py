"""The documentation's site: all pages, links and pictures, nothing from elsewhere, search in a browser."""

import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


@pytest.fixture(scope="module")
def site() -> Path:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_site.py"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr  # a warning is an error, too
    assert "WARNING" not in done.stdout + done.stderr
    return ROOT / "build" / "site" / "html"


def test_pages_ask_nothing_of_other_servers(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"([^\"]+)\"", page.read_text()
        )
        assert [url for url in loaded if url.startswith(("http", "//"))] == [], page


def test_links_lead_to_a_place_that_is_there(site):
    """Of the pages as a browser gets them: a heading that MkDocs takes for text has no place."""
    places = {
        page: set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in site.rglob("*.html")
    }
    missing = []
    for page in places.keys() - {site / "404.html"}:  # whose links begin at the server's root
        for url in re.findall(r'(?:href|src)="([^"]*)"', page.read_text()):
            if re.match(r"[a-z]+:", url):
                continue
            file, _, place = html.unescape(urllib.parse.unquote(url)).partition("#")
            target = (page.parent / file.partition("?")[0]).resolve() if file else page
            is_there = target.is_file() and (not place or place in places.get(target, {place}))
            if not is_there and place != "__skip":
                missing.append(f"{page.relative_to(site)}: {url}")
    assert missing == []


def test_pictures_and_the_reference_are_there(site):
    index = (site / "index.html").read_text()
    picture = re.search(r'<img alt="[^"]+" src="([^"]+)"', index)
    assert (site / picture[1]).stat().st_size > 1000
    reference = (site / "docs" / "reference" / "opwright.html").read_text()
    assert "BuildProgress" in reference


def test_blocks_of_code_are_blocks(site):
    """A fence that MkDocs does not understand is text."""
    blocks = 0
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r"<p>``", text), page
        blocks += text.count('<div class="highlight">')
    sources = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")]
    fences = sum(len(re.findall(r"^```\w", path.read_text(), re.MULTILINE)) for path in sources)
    assert blocks >= fences
    plugins = (site / "docs" / "class-plugins.html").read_text()
    assert '<span class="filename">shift_plugin.cpp</span>' in plugins


class Browser:
    """Chromium, told what to do in its DevTools protocol: messages of JSON on two pipes, which are its
    files 3 and 4. Search runs in a worker, for which `--dump-dom` does not wait."""

    def __init__(self, folder: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()

        def as_3_and_4() -> None:
            ours = os.dup(commands), os.dup(answers)
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [CHROMIUM, *options, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=as_3_and_4,
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._read = b""
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

    def _ask(self, method: str, session: str | None = None, **params) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._read:
                piece = os.read(self._answers, 1 << 16)
                assert piece, "Chromium has ended"
                self._read += piece
            one, _, self._read = self._read.partition(b"\0")
            answer = json.loads(one)
            if answer.get("id") == self._number:
                return answer["result"]

    def open(self, url: str) -> None:
        self._ask("Page.navigate", self._session, url=url)

    def until(self, script: str, seconds: float = 30):
        """What a script says, once that is no longer empty."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self._ask(
                "Runtime.evaluate", self._session, expression=script, returnByValue=True
            )
            if value := answer["result"].get("value"):
                return value
            time.sleep(0.1)
        raise AssertionError(f"nothing after {seconds} s: {script}")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._commands)
        os.close(self._answers)


@pytest.fixture(scope="module")
def address(site):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize(
    "words, page",
    [
        ("bounded queue", "docs/serving.html"),
        ("refit_cuda_engine", "docs/reference/tensorrt.html"),
        ("host code", "docs/engine-file.html"),
    ],
)
def test_search_finds_a_page(browser, address, words, page):
    browser.open(f"{address}/index.html?q={words.replace(' ', '+')}")
    links = browser.until(
        "Array.from(document.querySelectorAll('a.md-search-result__link'), a => a.pathname)"
        ".slice(0, 60)"
    )
    assert f"/{page}" in links


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_pictures_are_drawn_and_pages_hang_together(browser, address):
    browser.open(f"{address}/index.html")
    drawn = "document.querySelector('article img')?.complete && "
    assert browser.until(drawn + "document.querySelector('article img').naturalWidth") > 300
    sections = browser.until(
        "Array.from(document.querySelectorAll('.md-nav--primary a.md-nav__link'), a => a.pathname)"
    )
    for page in ("getting-started", "security", "reference/plugin", "architecture"):
        assert f"/docs/{page}.html" in sections
