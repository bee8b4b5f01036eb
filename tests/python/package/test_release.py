"""What `make wheels` and `make dist` make. Run with OPWRIGHT_RELEASE=1: each compiles the whole library."""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paths import ROOT

TOOLS = ROOT / "tools"
needs_time = pytest.mark.skipif(
    not os.environ.get("OPWRIGHT_RELEASE"), reason="OPWRIGHT_RELEASE is not set"
)


@pytest.fixture(scope="module")
def release():
    sys.path.insert(0, str(TOOLS))
    spec = importlib.util.spec_from_file_location("release", TOOLS / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(TOOLS))
    return module


@needs_time
def test_wheels_are_made_and_run_in_empty_environments(tmp_path):
    command = [sys.executable, TOOLS / "release.py", "wheels", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tags = {path.name.split("-", 2)[2].rsplit("-", 1)[0] for path in tmp_path.glob("*.whl")}
    assert tags == {"cp310-cp310", "cp311-cp311", "cp312-abi3"}
    assert len(list(tmp_path.glob("*.tar.gz"))) == 1
    assert (tmp_path / "simple" / "opwright" / "index.html").read_text().count("<a ") == 4


@needs_time
def test_the_archive_and_the_debian_package_run(tmp_path):
    command = [sys.executable, TOOLS / "release.py", "dist", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (package,) = tmp_path.glob("*.deb")
    fields = subprocess.run(
        ["dpkg-deb", "--field", package, "Depends"], check=True, capture_output=True, text=True
    )
    assert re.search(r"libc6 \(>= 2\.\d+\), .*libstdc\+\+6 \(>= \d+", fields.stdout)


def wheel_of(folder: Path, name: str, *files: str) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as wheel:
        for file in files:
            wheel.writestr(file, "")
    return path


def test_what_a_wheel_must_not_be_is_seen(release, tmp_path):
    wheel = wheel_of(
        tmp_path,
        "opwright-1.0-cp312-abi3-linux_x86_64.whl",
        "opwright/tests/test_a.py",
        "opwright/lib/libgtest.a",
        "opwright/__init__.py",
    )
    problems = "; ".join(release.problems_of(wheel))
    assert "no manylinux wheel" in problems
    assert "opwright/tests/test_a.py is of no use" in problems
    assert "libgtest.a is of no use" in problems
    assert "__init__" not in problems
    for library in ("libopwright.so", "libopwright_cuda.so", "libopwright_dnnl.so.3"):
        assert f"{library} is missing" in problems
    for text in ("LICENSE", "NOTICE", "third-party/onednn", "third-party/robin_map"):
        assert f"the license {text} is missing" in problems


def test_a_wheel_for_newer_systems_alone_is_seen(release, tmp_path):
    wheel = wheel_of(tmp_path, "opwright-1.0-cp312-abi3-manylinux_2_39_x86_64.whl")
    assert any("newer than 2.36" in problem for problem in release.problems_of(wheel))


def test_symbols_that_can_be_stripped_are_seen(release, tmp_path):
    source = tmp_path / "a.c"
    source.write_text("int f(void) { return 1; }\n")
    found = {}
    for name, options in {"whole": [], "stripped": ["-s"]}.items():
        library = tmp_path / f"{name}.so"
        command = ["cc", "-shared", "-fPIC", *options, source, "-o", library]
        subprocess.run(command, check=True)
        wheel = tmp_path / f"{name}-1.0-cp312-abi3-manylinux_2_35_x86_64.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            file.write(library, f"opwright/lib/{name}.so")
        found[name] = [p for p in release.problems_of(wheel) if "stripped" in p]
    assert found == {
        "whole": ["opwright/lib/whole.so has symbols that can be stripped"],
        "stripped": [],
    }


def installable(folder: Path, version: str, tag: str) -> Path:
    """A wheel that pip installs, and that has nothing in it."""
    path = folder / f"opwright-{version}-{tag}.whl"
    metadata = f"opwright-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(
            f"{metadata}/METADATA", f"Metadata-Version: 2.1\nName: opwright\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{metadata}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n"
        )
        names = [f"{metadata}/{name}" for name in ("METADATA", "WHEEL", "RECORD")]
        wheel.writestr(names[-1], "".join(f"{name},,\n" for name in names))
    return path


def test_pip_takes_its_wheel_from_the_folder_and_from_its_index(release, tmp_path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    own = environment / "bin" / "python"
    out = tmp_path / "a folder"
    out.mkdir()
    mine, other = (
        installable(out, "1.0", f"cp3{minor}-cp3{minor}-linux_x86_64")
        for minor in (sys.version_info.minor, sys.version_info.minor + 1)
    )
    sources = out / "opwright-1.0.tar.gz"
    sources.write_bytes(b"")
    # The archive for C++ lies there, too, and its name is like one of sources.
    (out / "opwright-1.0-linux-x86_64.tar.gz").write_bytes(b"")
    release.write_index([sources, mine, other], out)
    release.install_from_folder(own, out, mine, dict(os.environ))
    with pytest.raises(SystemExit, match=f"pip took {mine.name}"):
        release.install_from_folder(own, out, other, dict(os.environ))
    # A file that is not what the index says is refused.
    installable(out, "1.0", mine.stem.split("-", 2)[2]).write_bytes(other.read_bytes())
    with pytest.raises(SystemExit, match="THESE PACKAGES DO NOT MATCH THE HASHES|HASH"):
        release.install_from_folder(own, out, mine, dict(os.environ))


def test_the_requirements_are_those_of_the_python_that_is_asked_for(release, tmp_path, monkeypatch):
    own = tmp_path / "bin" / "python"
    own.parent.mkdir()
    own.touch()
    made = []
    monkeypatch.setattr(release, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(
        release, "version_of", lambda python: "3.11" if python == own else python.name
    )
    monkeypatch.setattr(release, "output_of", lambda *command: "")
    monkeypatch.setattr(release, "run", lambda *command: made.append(command[:3]))
    monkeypatch.delenv("CXX", raising=False)
    assert release.make_environment(Path("3.11"))["CXX"] == "c++"  # not what a Python names
    assert made == [(own, "-m", "pip")]
    release.make_environment(Path("3.10"))
    assert made[1:] == [(Path("3.10"), "-m", "venv"), (own, "-m", "pip")]
    assert release.oldest_of([Path("3.12"), Path("3.9"), Path("3.10")]) == Path("3.9")


def test_a_release_has_sums_and_notes(release, tmp_path):
    section = "- a [page](docs/a.md#b), [x](https://x.org)\n  ([more\n  of it](docs/c.md)).\n"
    changes = f"# Changes\n\n## 1.1.0\n\n- new\n\n## 1.0.0\n\n{section}\n## 0.9.0\n"
    notes = release.write_notes(changes, "1.0.0", tmp_path)
    assert notes.read_text() == "- a page, [x](https://x.org).\n"
    with pytest.raises(SystemExit, match="no section '## 2.0.0'"):
        release.write_notes(changes, "2.0.0", tmp_path)
    version = release.version_of_sources()
    text = release.write_notes((ROOT / "CHANGELOG.md").read_text(), version, tmp_path).read_text()
    assert text.startswith("- ") and "\n## " not in text

    sums = release.write_sums([notes], tmp_path)
    check = ["sha256sum", "--check", "--strict", sums]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    notes.write_text("changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode != 0


def test_clearing_leaves_what_is_not_a_releases(release, tmp_path):
    (tmp_path / "simple").mkdir()
    for name in ("opwright-0.1.0.tar.gz", "opwright_0.1.0_amd64.deb", "SHA256SUMS", "mine.tar.gz"):
        (tmp_path / name).touch()
    release.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.tar.gz"]


def test_the_debian_package_has_one_text_of_all_licenses(release, tmp_path):
    licenses = tmp_path / "licenses"
    names = "cli11 flatbuffers hwy nanobind onednn onednn-third-party protozero robin_map xxhash"
    third_party = {f"third-party/{name}" for name in names.split()}
    assert release.license_files(True) == {"LICENSE", "NOTICE"} | third_party
    bindings = {"third-party/nanobind", "third-party/robin_map"}
    assert release.license_files(False) == release.license_files(True) - bindings
    for name in release.license_files(True):
        (licenses / name).parent.mkdir(parents=True, exist_ok=True)
        (licenses / name).write_text(f"text of {name}\n")
    text = release.debian_package.copyright_of(licenses)
    assert text.startswith("NOTICE\n======\n\ntext of NOTICE\n\n\nLICENSE\n")
    assert {f"text of {name}" for name in release.license_files(True)} <= set(text.splitlines())


def test_the_pages_name_the_versions_of_the_formats():
    def number(file: str) -> str:
        return re.search(r"kVersion = (\d+)", (ROOT / "src" / file).read_text())[1]

    header = (ROOT / "include" / "opwright" / "version.h").read_text()
    major, minor = re.findall(r"OPWRIGHT_VERSION_(?:MAJOR|MINOR) (\d+)", header)
    row = f"| {major}.{minor} | {number('plan/format.h')} | {number('compile/timing_cache.cpp')} |"
    assert row in (ROOT / "docs" / "engine-file.md").read_text()
    assert f"\n## {major}.{minor}." in (ROOT / "CHANGELOG.md").read_text()
