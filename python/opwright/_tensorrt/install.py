"""Puts the package `tensorrt` into the running environment and takes it out again."""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._core import Error
from . import package as package
from .names import PACKAGES


def _site_packages() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _is_ours(folder: Path) -> bool:
    """Whether `install` put this folder `tensorrt` or `tensorrt_bindings` there."""
    try:
        text = (folder / "__init__.py").read_text()
    except OSError:
        return False
    return text.startswith((package.MARK, package.BINDINGS))


def _installed() -> tuple[list[Path], str | None]:
    """Our files in the environment, and the version."""
    site = _site_packages()
    infos = []
    for info in sorted(site.glob("tensorrt-*.dist-info")):
        try:
            installer = (info / "INSTALLER").read_text().strip()
        except OSError:
            continue
        if installer == package.INSTALLER:
            infos.append(info)
    version = infos[-1].name[len("tensorrt-") : -len(".dist-info")] if infos else None
    folders = [site / name for name in PACKAGES]
    # If our metadata exists, a folder that has lost its module is ours, too.
    is_emptied = [bool(infos) and f.is_dir() and not (f / "__init__.py").exists() for f in folders]
    found = [f for f, emptied in zip(folders, is_emptied) if emptied or _is_ours(f)]
    return [*found, *infos], version


def _provides_tensorrt(distribution: importlib.metadata.Distribution) -> bool:
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
    if re.fullmatch(r"tensorrt(-cu\d+)?(-bindings|-libs)?", name):
        return True
    provided = (distribution.read_text("top_level.txt") or "").split()
    provided += [file.parts[0] for file in distribution.files or ()]
    return any(name in provided for name in PACKAGES)


def _other() -> str | None:
    """A description of another `tensorrt` that programs would find here; None if there is none."""
    for found in importlib.metadata.distributions():
        ours = (found.read_text("INSTALLER") or "").strip() == package.INSTALLER
        if not ours and _provides_tensorrt(found):
            where = found.locate_file("")
            return f"the distribution '{found.metadata['Name']}' {found.version} in {where}"
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        # A mere folder of that name is not a package and has no origin.
        if spec and spec.origin and not _is_ours(Path(spec.origin).parent):
            return f"the module '{name}' in {spec.origin}"
    return None


@contextmanager
def _staging(site: Path) -> Iterator[Path]:
    """A folder beside the installed packages, for one process at a time."""
    try:
        lock = os.open(site, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = Path(tempfile.mkdtemp(prefix=".opwright-", dir=site))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
    except OSError as error:
        raise Error(
            f"tensorrt: {site} cannot be changed ({error.strerror}); use a virtual environment, or "
            "python -m opwright.trt, which installs nothing"
        ) from error


def _exchange(old: list[Path], new: list[Path], staging: Path, site: Path) -> None:
    """Replaces the old files by the new ones. If that fails, everything stays as it was."""
    moved: list[tuple[Path, Path]] = []
    (staging / "old").mkdir()
    steps = [(path, staging / "old" / path.name) for path in old]
    steps += [(path, site / path.name) for path in new]
    try:
        for source, target in steps:
            os.rename(source, target)
            moved.append((source, target))
    except OSError:
        for source, target in reversed(moved):
            os.rename(target, source)
        raise


def install(version: str) -> str:
    """Installs `tensorrt` with that version, replacing an earlier installation by this function.

    :param version: the version in ``__version__`` and the metadata.
    :returns: what was done, in words.
    :raises opwright.Error: another `tensorrt` is there, or the environment cannot be written.
    """
    site = _site_packages()
    if other := _other():
        raise Error(
            f"tensorrt: not installed, because {other} is there already; uninstall it first, or leave it and "
            "use python -m opwright.trt"
        )
    with _staging(site) as staging:
        old, before = _installed()
        if before == version and package.is_complete(site, version):
            return f"tensorrt {version} is there already, in {site}"
        new = staging / "new"
        new.mkdir()
        package.write(new, version)
        _exchange(old, sorted(new.iterdir()), staging, site)
    instead = f" in the place of {before}" if before else ""
    return f"tensorrt {version} is Opwright now{instead}, in {site}"


def remove() -> str:
    """Removes the packages that `install` installed.

    :returns: what was done, in words.
    :raises opwright.Error: the environment cannot be written.
    """
    site = _site_packages()
    if not _installed()[0]:
        return f"nothing to remove: {status()[0]}"
    with _staging(site) as staging:
        old, version = _installed()
        _exchange(old, [], staging, site)
    return f"tensorrt {version or ''} is removed from {site}".replace("  ", " ")


def status() -> tuple[str, bool]:
    """A description of this environment's `tensorrt`, and whether `install` installed it."""
    found, version = _installed()
    if version and package.is_complete(_site_packages(), version):
        return f"tensorrt {version} is Opwright, in {_site_packages()}", True
    if found:
        return f"tensorrt is incomplete in {_site_packages()}; install or remove it again", False
    other = _other()
    return (f"tensorrt is {other}" if other else "tensorrt is not installed"), False
