"""The blocks of code in the pages that are marked ```python gpu run, in their order."""

from __future__ import annotations

import re

import pytest

from paths import ROOT

pytestmark = pytest.mark.usefixtures("on_gpu")

FENCE = re.compile(r"^```python gpu\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if FENCE.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_runs(page, torch):
    text, namespace = page.read_text(), {"__name__": "__main__"}
    for block in FENCE.finditer(text):
        above = text.count("\n", 0, block.start(1))  # so that line numbers are those of the page
        exec(compile("\n" * above + block[1], page.name, "exec", dont_inherit=True), namespace)
