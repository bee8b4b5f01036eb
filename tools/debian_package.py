"""Makes the Debian package of the program from the C++ archive: make dist.

    python3 tools/debian_package.py dist/opwright-VERSION-linux-x86_64.tar.gz

It holds the program, its libraries in a folder of their own, and the licenses: no headers, since
programs link to the archive or to the Python package. What it depends on is read from the files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html: the version of GCC that has a symbol version.
GCC_OF_GLIBCXX = {28: "9", 29: "11", 30: "12", 31: "13.1", 32: "13.2", 33: "14"}


def needed_versions(files: list[Path]) -> dict[str, tuple[int, ...]]:
    """The newest versions of the symbols that the files take from GLIBC, GLIBCXX and GCC."""
    newest: dict[str, tuple[int, ...]] = {}
    for file in files:
        output = subprocess.run(
            ["readelf", "-VW", file], check=True, capture_output=True, text=True
        ).stdout
        for name, number in re.findall(r"Name: (GLIBC|GLIBCXX|GCC)_([\d.]+)", output):
            newest[name] = max(newest.get(name, ()), tuple(map(int, number.split("."))))
    return newest


def dependencies(files: list[Path]) -> str:
    newest = needed_versions(files)
    parts = [f"libc6 (>= {'.'.join(map(str, newest['GLIBC']))})"]
    if "GCC" in newest:
        parts.append(f"libgcc-s1 (>= {'.'.join(map(str, newest['GCC'][:2]))})")
    if "GLIBCXX" in newest:
        minor = newest["GLIBCXX"][2]
        if minor not in GCC_OF_GLIBCXX:
            sys.exit(f"debian_package: add the GCC of GLIBCXX_3.4.{minor} to GCC_OF_GLIBCXX")
        parts.append(f"libstdc++6 (>= {GCC_OF_GLIBCXX[minor]})")
    return ", ".join(parts)


def copyright_of(licenses: Path) -> str:
    """A single text of our license, NOTICE, and the licenses of the package's contents."""
    texts = {name: (licenses / name).read_text() for name in ("NOTICE", "LICENSE")}
    others = sorted((licenses / "third-party").iterdir())
    texts |= {f"third-party/{path.name}": path.read_text() for path in others}
    return "\n\n".join(f"{name}\n{'=' * len(name)}\n\n{text}" for name, text in texts.items())


def project_name() -> str:
    """The project's name in pyproject.toml, which stands for the package's maintainers."""
    found = re.search(r'^name = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].capitalize()


def make(archive: Path) -> Path:
    match = re.fullmatch(r"opwright-([\d.]+)-linux-(\w+)\.tar\.gz", archive.name)
    if match is None or match[2] not in ARCHITECTURES:
        sys.exit(f"debian_package: {archive} is no archive of make dist for a known processor")
    version, architecture = match[1], ARCHITECTURES[match[2]]
    target = archive.with_name(f"opwright_{version}_{architecture}.deb")
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["tar", "-xzf", archive, "-C", work], check=True)
        (prefix,) = Path(work).iterdir()
        root = Path(work) / "package"
        libraries = root / "usr" / "lib" / "opwright"
        documents = root / "usr" / "share" / "doc" / "opwright"
        for folder in (root / "DEBIAN", root / "usr" / "bin", libraries, documents):
            folder.mkdir(parents=True)
        shutil.copy(prefix / "bin" / "opwright", root / "usr" / "bin")
        # Not in a folder of PATH, which may have TensorRT's own trtexec.
        (libraries / "bin").mkdir()
        (libraries / "bin" / "trtexec").symlink_to("../../../bin/opwright")
        for part in ("bash-completion", "zsh", "fish", "man"):
            shutil.copytree(prefix / "share" / part, root / "usr" / "share" / part)
        trials = prefix / "lib" / "opwright-trials"
        for file in [*(prefix / "lib").glob("libopwright*.so*"), trials]:
            shutil.copy(file, libraries)
        licenses = prefix / "share" / "licenses" / "opwright"
        (documents / "copyright").write_text(copyright_of(licenses))
        files = [root / "usr" / "bin" / "opwright", *libraries.glob("*.so*")]
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        (root / "DEBIAN" / "control").write_text(
            "Package: opwright\n"
            f"Version: {version}\n"
            f"Architecture: {architecture}\n"
            f"Maintainer: {project_name()}\n"
            f"Installed-Size: {-(-size // 1024)}\n"
            f"Depends: {dependencies(files)}\n"
            "Section: science\n"
            "Priority: optional\n"
            "Description: build, run and inspect inference engines with custom operators\n"
            " The program builds engines from ONNX models, runs and times them, and shows what\n"
            " is in them, on the CPU and on NVIDIA GPUs.\n"
        )
        for path in [root, *root.rglob("*")]:
            if path.is_symlink():
                continue
            is_program = path == files[0] or path.name == trials.name
            path.chmod(0o755 if path.is_dir() or is_program else 0o644)
        command = ["dpkg-deb", "--root-owner-group", "--build", root, target]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return target


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = make(Path(sys.argv[1]).resolve())
    print(f"-- {target.name}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
