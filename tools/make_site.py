"""Makes the documentation's site, build/site/html, with MkDocs Material: make site.

The repository's pages are the site's pages, at the same paths, so links need no second form. Files
that a page links to are copied beside the pages. So are the licenses of MkDocs and its theme, whose
scripts and icons the site contains. A warning fails the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# Pages of figures name everything. In the search those that explain come first.
LESS_WEIGHT = "---\nsearch:\n  boost: 0.2\n---\n\n"
FENCE = re.compile(r"^```(\w+) +(.*)$", re.MULTILINE)


def fence(match: re.Match[str]) -> str:
    """A block's first line in MkDocs' form. Words for the tests become a title or disappear."""
    file = re.search(r"file=(\S+)", match[2])
    return f"```{match[1]}" + (f' title="{file[1]}"' if file else "")


def listed_pages() -> set[str]:
    """The pages in the navigation of mkdocs.yml."""
    text = (ROOT / "mkdocs.yml").read_text()
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    pages = set()
    remaining = list(nav)
    while remaining:
        (value,) = remaining.pop().values()
        if isinstance(value, str):
            pages.add(value)
        else:
            remaining += value
    return pages


def gather(pages: Path) -> None:
    """Copies all pages, and the files that they link to, into a folder."""
    shutil.rmtree(pages, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    results = {name for name in listed if name.startswith("docs/results/")}
    if missing := sorted(set(listed) - results - listed_pages()):
        sys.exit(f"site: the navigation in mkdocs.yml lacks {', '.join(missing)}")
    wanted = set(listed)
    for page in listed:
        for target in LINK.findall((ROOT / page).read_text()):
            if re.match(r"[a-z]+:|#", target):
                continue
            path = (ROOT / page).parent / target.partition("#")[0]
            if path.is_file() and path.resolve().is_relative_to(ROOT):
                wanted.add(path.resolve().relative_to(ROOT).as_posix())
    for name in wanted:
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            weight = LESS_WEIGHT if name in results or name == "CHANGELOG.md" else ""
            (pages / name).write_text(weight + FENCE.sub(fence, (ROOT / name).read_text()))
        else:
            shutil.copyfile(ROOT / name, pages / name)
    shutil.copyfile(ROOT / "tools" / "site.css", pages / "site.css")


def copy_licenses(html: Path) -> None:
    for package in ("mkdocs", "mkdocs-material"):
        for file in files(package) or []:
            if file.name.startswith("LICENSE"):
                # The package's own license lies in its metadata, licenses of icons in the icons'
                # folders.
                part = "" if ".dist-info" in str(file) else f"-{file.parent.name}"
                target = html / "assets" / "licenses" / f"{package}{part}"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)


def main() -> int:
    gather(SITE / "pages")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    done = subprocess.run([*command, "-f", ROOT / "mkdocs.yml"], cwd=SITE, env=env)
    if done.returncode == 0:
        copy_licenses(SITE / "html")
        print(f"-- site: {SITE / 'html' / 'index.html'}")
        print(f"-- with search: python3 -m http.server --directory {SITE / 'html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
