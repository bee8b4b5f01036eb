"""The documentation's site: all pages, links and pictures, nothing from elsewhere, search in a browser."""

import functools
import html
import http.server
import re
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

import pytest

from chromium import CHROMIUM, Browser
from paths import ROOT


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
    """The pages as a browser gets them: a heading that MkDocs takes for text has no place."""
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


def test_the_licenses_of_its_scripts_and_icons_are_there(site):
    licenses = site / "assets" / "licenses"
    assert {"mkdocs", "mkdocs-material", "mkdocs-material-material"} <= {
        path.name for path in licenses.iterdir()
    }
    assert "Martin Donath" in (licenses / "mkdocs-material").read_text()
    for name in ("LICENSE", "NOTICE"):
        assert (site / name).read_text() == (ROOT / name).read_text()


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
        ("allow_host_code trust", "docs/engine-file.html"),
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
@pytest.mark.parametrize("words", ["attention", "decoder", "FP8", "timing cache", "convolution"])
def test_search_lists_pages_that_explain_before_figures(browser, address, words):
    browser.open(f"{address}/index.html?q={words.replace(' ', '+')}")
    links = browser.until(
        "Array.from(document.querySelectorAll('a.md-search-result__link'), a => a.pathname)"
    )
    kinds = ["/docs/results/" in link or link.endswith("/CHANGELOG.html") for link in links]
    assert len(kinds) > 5 and not any(kinds[:5]), links[:5]


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
