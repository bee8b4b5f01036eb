"""NOTICE names all software of others that is compiled into what users get, and each has its license there."""

import importlib.metadata
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

import opwright
from paths import ROOT

BUILD = ROOT / "build" / "dev"
# What is compiled, by the folder of CMake's target.
PRODUCTS = {
    r"src/CMakeFiles/opwright_threads\.dir": "libopwright_threads.so",
    r"src/CMakeFiles/opwright_cuda_objects\.dir": "libopwright_cuda.so",
    r"src/CMakeFiles/": "libopwright.so",
    r"cli/CMakeFiles/": "opwright (the program)",
    r"python/CMakeFiles/": "_core (wheels)",
}
# The system's libraries are linked to dynamically; GCC's headers have its runtime exception.
NO_NOTICE = re.compile(r"lib(c6|crypt|gcc-[\d.]+|stdc\+\+-[\d.]+)-dev|linux-libc-dev")
# Interfaces that are only declared, wherever they are from: the CUDA driver's interface, Python's.
DECLARATIONS = re.compile(r".*/cuda\.h|.*/include/python3\.\d+/.*")
SYSTEM_LIBRARY = re.compile(r"lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s)\.so|ld-linux")


def notice() -> dict[str, set[str]]:
    """The names of the texts, and what each software is in."""
    rows = re.findall(r"^\|(.+)\|$", (ROOT / "NOTICE").read_text(), re.MULTILINE)[2:]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return {text: set(places.split(", ")) for _, _, places, text in cells}


def headers_by_product() -> dict[str, set[Path]]:
    """The files that the compilers read for each product, from the build's own records."""
    ninja = shutil.which("ninja")
    if ninja is None or not (BUILD / ".ninja_deps").exists():
        pytest.skip("there is no build in build/dev")
    output = subprocess.run(
        [ninja, "-C", BUILD, "-t", "deps"], check=True, capture_output=True, text=True
    )
    found = defaultdict(set)
    for record in output.stdout.split("\n\n"):
        target, *files = record.strip().splitlines() or [""]
        product = next((p for pattern, p in PRODUCTS.items() if re.match(pattern, target)), None)
        if product and "(VALID)" in target:
            found[product] |= {(BUILD / file.strip()).resolve() for file in files}
    return found


def distributions() -> dict[Path, str]:
    """Files of the environment's packages, and which package each is of."""
    return {
        Path(file.locate()).resolve(): package.name
        for package in importlib.metadata.distributions()
        if re.match("nanobind|onednn", package.name)
        for file in package.files or []
    }


def debian_packages(files: set[Path]) -> dict[Path, str]:
    done = subprocess.run(["dpkg", "-S", *sorted(files)], capture_output=True, text=True)
    owners = (line.partition(": ") for line in done.stdout.splitlines())
    return {Path(file): re.sub(r":\w+", "", package) for package, _, file in owners}


def text_of(package: str, file: Path) -> str:
    """The name in NOTICE of what a file of a package is."""
    if "robin_map" in file.parts:
        return "robin_map"
    if package.startswith("onednn"):
        return "onednn"
    return re.sub(r"^lib|-dev$", "", package)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="it asks dpkg whose a header is")
def test_notice_names_what_is_compiled():
    headers = headers_by_product()
    assert set(headers) == set(PRODUCTS.values())
    everything = {
        file
        for files in headers.values()
        for file in files
        if (not file.is_relative_to(ROOT) or ".venv" in file.parts)
        and not DECLARATIONS.fullmatch(str(file))
    }
    owners = distributions()
    owners |= debian_packages(everything - set(owners))
    carried = defaultdict(set)
    for product, files in headers.items():
        for file in files & everything:
            owner = owners.get(file)
            assert owner, f"{file} is in {product}: whose is it?"
            if not NO_NOTICE.fullmatch(owner):
                carried[text_of(owner, file)].add(product)
    carried["onednn"] = carried["onednn-third-party"] = {"libopwright_dnnl.so.3"}
    assert dict(carried) == notice()


def test_libraries_of_others_are_the_systems_or_in_notice(program):
    folder = Path(opwright.__file__).parent / "lib"
    files = [*folder.glob("*.so*"), *folder.parent.glob("_core*.so"), program]
    names = {file.name for file in files}
    ours = re.compile(
        r"libopwright(_cuda|_threads|_tensorrt|_nv\w+_1[01])?\.so|_core\..*so|opwright"
    )
    assert {name for name in names if not ours.fullmatch(name)} == {"libopwright_dnnl.so.3"}
    for file in files:
        output = subprocess.run(["readelf", "-d", file], check=True, capture_output=True, text=True)
        needed = set(re.findall(r"NEEDED.*\[(.+)\]", output.stdout))
        assert {name for name in needed - names if not SYSTEM_LIBRARY.match(name)} == set()


def test_the_package_has_the_texts_of_all_licenses():
    package = importlib.metadata.distribution("opwright")
    texts = {
        file.as_posix().partition(".dist-info/licenses/")[2]: file.read_text()
        for file in package.files or []
        if ".dist-info/licenses/" in file.as_posix()
    }
    assert set(texts) == {"LICENSE", "NOTICE", *(f"third-party/{name}" for name in notice())}
    for name in ("LICENSE", "NOTICE"):
        assert texts[name] == (ROOT / name).read_text()
    for name, text in texts.items():
        assert re.search(r"(?i)copyright", text) and len(text) > 500, name
    assert "MIT License" in texts["third-party/robin_map"]
    assert "tsl" not in texts["third-party/robin_map"]
    assert package.metadata["License-Expression"] == "Apache-2.0"
    assert package.metadata.get_all("License-File") == ["LICENSE", "NOTICE"]


def test_the_license_is_apaches():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    debian = Path("/usr/share/common-licenses/Apache-2.0")
    if debian.exists():
        assert text == debian.read_text()
