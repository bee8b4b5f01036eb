"""Source text, its includes, and its name in messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import _core
from ._code import MOST_CODE, CompileError

_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include\b[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S))', re.MULTILINE
)


@dataclass
class Source:
    """C++ or CUDA source."""

    text: str
    file: str
    """Its name in messages."""
    folder: Path | None
    """The folder of a source file, in which quoted includes are searched; None for text."""

    @property
    def line_directive(self) -> str:
        """The directive that makes the following line the source's first line."""
        name = self.file.replace("\\", "\\\\").replace('"', '\\"')
        return f'#line 1 "{name}"\n'


def read(maker: str, source: str | os.PathLike[str], unnamed: str) -> Source:
    """The source, which is text or the path of a file; `unnamed` is its name if it has none."""
    if isinstance(source, str):
        return Source(source, unnamed, None)
    if not isinstance(source, os.PathLike):
        raise TypeError(
            f"{maker}: the source must be a str of source text or the pathlib.Path of a file; "
            f"{type(source).__name__} came"
        )
    path = Path(source)
    try:
        text = _core._read_file(os.fspath(path), MOST_CODE).decode()
        text = text.replace("\r\n", "\n")
        return Source(text, str(path), path.resolve().parent)
    except (_core.Error, UnicodeError) as error:
        raise CompileError(f"{maker}: the source {path} cannot be read: {error}") from error


def absolute_folders(flags: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Flags with the folders that they name to include from made absolute, and these folders."""
    made, folders, is_next = [], [], False
    for flag in flags:
        known = next((p for p in ("-I", "--include-path=") if flag.startswith(p)), None)
        if is_next or (known and flag != "-I"):
            prefix = "" if is_next or known is None else known
            folders.append(Path(flag[len(prefix) :]).resolve())
            flag = f"{prefix}{folders[-1]}"
        is_next = flag == "-I"
        made.append(flag)
    return made, folders


def included(source: Source, folders: Sequence[Path]) -> list[bytes] | None:
    """The contents of the user's files on which the code depends: those that the source includes,
    directly or not. None if an include cannot be followed.

    An include that no compiler would follow, for instance in a comment, does no harm.
    """
    contents: dict[Path, bytes] = {}
    pending = [(source.text, source.folder)]
    while pending:
        text, folder = pending.pop()
        for names in _INCLUDE.finditer(text):
            if names[3]:
                return None  # the name comes from a macro
            for path in _candidates(names, folder, folders):
                if path in contents:
                    break
                try:
                    contents[path] = path.read_bytes()
                except OSError:
                    continue
                pending.append((contents[path].decode("utf-8", "replace"), path.parent))
                break
    return [content for _, content in sorted(contents.items())]


def _candidates(
    names: re.Match[str], folder: Path | None, folders: Sequence[Path]
) -> Iterator[Path]:
    if names[1] and folder is not None:
        yield folder / names[1]
    for each in folders:
        yield each / (names[1] or names[2])
