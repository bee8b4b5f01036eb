"""The folder of files that are kept between programs. Only the user may have written them."""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import stat
import warnings
from pathlib import Path

_warned: set[Path] = set()


def cache_folder() -> Path:
    """``$OPWRIGHT_CACHE_DIR``, or `opwright` in the user's cache folder. It may not exist yet."""
    if "OPWRIGHT_CACHE_DIR" in os.environ:
        return Path(os.environ["OPWRIGHT_CACHE_DIR"])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "opwright"


def _name_of(user: int) -> str:
    try:
        return f"'{pwd.getpwuid(user).pw_name}'"
    except KeyError:
        return f"user {user}"


def is_private(status: os.stat_result) -> bool:
    """Whether only the effective user or root can have written the file or folder."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _fault(folder: Path, status: os.stat_result) -> str:
    """A message: why a folder may not be used, and how to mend that."""
    owner = _name_of(status.st_uid)
    if stat.S_ISLNK(status.st_mode):
        return (
            f"it is a symbolic link of {owner}; name the folder itself with OPWRIGHT_CACHE_DIR, or "
            f"remove the link: rm '{folder}'"
        )
    if status.st_uid not in (os.geteuid(), 0):
        return (
            f"it belongs to {owner}, and this process runs as {_name_of(os.geteuid())}; name a folder "
            "of your own with the environment variable OPWRIGHT_CACHE_DIR"
        )
    return (
        f"it belongs to {owner} with mode {stat.S_IMODE(status.st_mode):o}, so that others can write in "
        f"it; remove it: rm -r '{folder}', or, where you trust what it holds: chmod 700 '{folder}'"
    )


def open_private(folder: Path, make: bool = False) -> int | None:
    """A descriptor of the folder; None if it does not exist or cannot be made. Also None, with one
    warning, if other users can write in the folder, since files in it are executed.

    :param make: make a missing folder, for only the user.
    """
    try:
        if make and not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            status = os.lstat(folder)
            if not stat.S_ISLNK(status.st_mode):
                return None
        else:
            status = os.fstat(descriptor)
            if is_private(status):
                return descriptor
            os.close(descriptor)
    except OSError:
        return None
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"the folder '{folder}' for compiled code is not used: {_fault(folder, status)}",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def read_private(folder: Path, name: str) -> bytes:
    """The bytes of a file in the folder; empty unless the file exists and only the user can have
    written it."""
    descriptor = open_private(folder)
    if descriptor is None:
        return b""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=descriptor), "rb") as file:
            status = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(status.st_mode) and is_private(status) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def write_private(folder: Path, name: str, data: bytes) -> None:
    """Writes a file so that readers see it whole or not at all. Does nothing if that fails."""
    descriptor = open_private(folder, make=True)
    if descriptor is None:
        return
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=descriptor), "wb") as file:
            try:
                file.write(data)
                file.close()
                # If the old file is a link, this replaces the link, not its target.
                os.replace(temporary, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            except OSError:
                os.unlink(temporary, dir_fd=descriptor)
    except OSError:
        pass  # a full disk or a read-only folder
    finally:
        os.close(descriptor)
