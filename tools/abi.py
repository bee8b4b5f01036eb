"""Compares the C++ interface with the last release's, as a library that was built against that sees it.

    .venv/bin/python tools/abi.py [--library libopwright.so]    says what has changed
    .venv/bin/python tools/abi.py --record                      writes the record of this version

The record has the exported functions of the public headers, the complete virtual tables of their
classes, the layout of classes and structures, and the values of enumerations. The interface that a
plugin was compiled with must not change: a break needs a new minor version while the major one is
0, and a new major one after that. clang 14 prints the tables and layouts
(https://itanium-cxx-abi.github.io/cxx-abi/abi.html).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "opwright"
RECORDS = ROOT / "tests" / "abi"
Interface = dict[str, dict[str, list[str]]]
# Classes that applications and plugins implement. The library calls their virtual tables, so it
# cannot call a function that they lack. Objects of other classes come from the library, which may
# add functions.
IMPLEMENTED_OUTSIDE = re.compile(
    r"::(IPlugin(?!Registry|Resource$)|ICommunicatingPlugin|ILogger|IProfiler|IProgressMonitor|"
    r"IErrorRecorder|IGpu|IOutputAllocator|IStream|IDebugListener|IVersionedInterface|IAlgorithmSelector|IInt8)"
)


def version() -> str:
    text = (HEADERS / "version.h").read_text()
    parts = ("MAJOR", "MINOR", "PATCH")
    return ".".join(re.search(rf"OPWRIGHT_VERSION_{part} (\d+)", text)[1] for part in parts)  # type: ignore[index]


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"abi: {' '.join(map(str, command))}:\n{done.stdout}{done.stderr[:4000]}")
    return done.stdout


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def headers() -> list[Path]:
    """The headers with declarations. Nv*.h are other names of them."""
    return [path for path in sorted(HEADERS.glob("*.h")) if not path.name.startswith("Nv")]


def scopes_of(text: str) -> list[tuple[str, str, str]]:
    """(kind, qualified name, body) of each class, structure and enumeration that a header defines."""
    found = []
    stack: list[tuple[int, str]] = []  # (depth within the braces, name)
    depth = 0
    opening = re.compile(
        r"(?:(inline\s+)?(namespace|enum class|enum|class|struct)\s+(?:alignas\([^)]*\)\s*)?"
        r"([\w:]+)\s*(?:final\s*)?(?::[^;{}]*)?)?(\{)|(\})"
    )
    for match in opening.finditer(text):
        _, kind, name, opens, _ = match.groups()
        if opens:
            depth += 1
            if kind:
                before = text[: match.start()].rstrip()
                stack.append((depth, name))
                if kind != "namespace" and not before.endswith(">"):  # not a template
                    found.append((kind, "::".join(part for _, part in stack), text[match.end() :]))
        else:
            if stack and stack[-1][0] == depth:
                stack.pop()
            depth -= 1
    return found


def declared() -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Classes, enumerations with their enumerators, and exported functions of the headers."""
    classes, enumerations, functions = [], {}, []
    for path in headers():
        text = without_comments(path.read_text())
        for kind, name, rest in scopes_of(text):
            if kind.startswith("enum"):
                body = rest[: rest.index("}")]
                values = re.findall(r"(?:^|,)\s*(\w+)\s*(?:=[^,]*)?(?=,|$)", body.strip())
                enumerations[name] = values
            else:
                classes.append(name)
        functions += re.findall(r"^(?!#).*\bOPWRIGHT_API[^;{(]*?(\w+)\s*\(", text, re.M)
        for block in re.findall(r'extern "C" \{(.*?)\n\}', text, re.DOTALL):
            functions += re.findall(r"(\w+)\s*\([^;{]*\)\s*(?:noexcept)?\s*;", block)
    return classes, enumerations, functions


def tables_and_layouts(classes: list[str], folder: Path) -> tuple[dict, dict]:
    includes = "".join(f'#include "opwright/{path.name}"\n' for path in headers())
    # The key function makes the compiler write the table. Its slot comes last.
    lines = [includes, "template <class T> constexpr unsigned long size = sizeof(T);"]
    for number, name in enumerate(classes):
        lines.append(f"static_assert(size<{name}> > 0);")
        lines.append(f"struct Derived{number} : {name} {{ virtual void key(); }};")
        lines.append(f"void Derived{number}::key() {{}}")
    source = folder / "tables.cpp"
    source.write_text("\n".join(lines))
    clang = shutil.which("clang++-14") or shutil.which("clang++")
    if clang is None:
        sys.exit("abi: clang 14 is missing: apt-get install clang-14")
    flags = ["-std=c++20", f"-I{ROOT / 'include'}", "-fno-access-control", "-w", "-c", source]
    flags += ["-o", folder / "tables.o"]
    dump = run(
        clang, *flags, "-Xclang", "-fdump-vtable-layouts", "-Xclang", "-fdump-record-layouts"
    )
    tables = {}
    blocks = r"^Vtable for 'Derived(\d+)' \(\d+ entries\)\.\n(.*?)\n\n"
    for number, body in re.findall(blocks, dump, re.M | re.S):
        slots = re.findall(r"^ *\d+ \| (?!offset_to_top)(.+(?<! RTTI))$", body, re.M)
        slots = [re.sub(r" \[(pure|deleted)\]$", "", slot) for slot in slots]
        # An overriding class gives the slot its own name, but the slot is the same.
        slots = [re.sub(r"\bopwright::(?:\w+::)*(\w+\()", r"\1", slot) for slot in slots]
        slots = [re.sub(r"^Derived\d+::~\w+\(\)", "destructor", slot) for slot in slots]
        # A class without virtual functions has only the key function's slot.
        if len(slots) > 1:
            tables[classes[int(number)]] = slots[:-1]
    layouts = {}
    for body in dump.split("*** Dumping AST Record Layout\n")[1:]:
        head = re.match(r" *0 \| (?:class|struct|union) ([\w:]+)(?: \(empty\))?$", body, re.M)
        size = re.search(r"\| \[(sizeof=\d+), dsize=\d+, (align=\d+)", body)
        if head and size and head[1].startswith("opwright"):
            fields = re.findall(r"^ *(\d+(?::\d+-\d+)?) \|   (\S.*)$", body, re.M)
            layouts[head[1]] = [*(f"{at}: {what}" for at, what in fields), *size.groups()]
    return tables, layouts


def enumerators(enumerations: dict[str, list[str]], folder: Path) -> dict[str, list[str]]:
    includes = "".join(f'#include "opwright/{path.name}"\n' for path in headers())
    prints = "".join(
        f'  std::printf("{name} {value} %lld\\n", static_cast<long long>({name}::{value}));\n'
        for name, values in enumerations.items()
        for value in values
    )
    source = folder / "values.cpp"
    source.write_text(f"{includes}#include <cstdio>\nint main() {{\n{prints}}}\n")
    compiler = shutil.which("c++") or "g++"
    flags = ["-std=c++20", f"-I{ROOT / 'include'}", "-fno-access-control", "-w"]
    run(compiler, *flags, source, "-o", folder / "values")
    found: dict[str, list[str]] = {}
    for line in run(folder / "values").splitlines():
        name, value, number = line.split()
        found.setdefault(name, []).append(f"{value} = {number}")
    return found


def exported(functions: list[str], library: Path) -> dict[str, list[str]]:
    """The symbols of the headers' functions that the library exports."""
    names = run("nm", "-D", "--defined-only", "--format=posix", library).splitlines()
    symbols = [line.split()[0].split("@")[0] for line in names]
    found = {}
    for function in functions:
        mangled = re.compile(rf"({function}|_ZN(\d+[a-z]\w*?)*{len(function)}{function}E\w*)$")
        # Most symbols are of other names, and the pattern would try each of their parts.
        named = (symbol for symbol in symbols if function in symbol)
        found[function] = sorted(symbol for symbol in named if mangled.match(symbol))
    return found


def interface(library: Path) -> Interface:
    classes, enumerations, functions = declared()
    with tempfile.TemporaryDirectory() as folder:
        tables, layouts = tables_and_layouts(classes, Path(folder))
        values = enumerators(enumerations, Path(folder))
    return {
        "functions": exported(sorted(set(functions)), library),
        "tables": tables,
        "layouts": layouts,
        "enumerations": values,
    }


def compare(old: Interface, new: Interface) -> tuple[list[str], list[str]]:
    """(changes that break programs built with the old interface, additions)."""
    breaks, additions = [], []
    for kind in old:
        for name, before in old[kind].items():
            after = new[kind].get(name)
            if after == before:
                continue
            what = f"{kind[:-1]} {name}"
            if after is None:
                breaks.append(f"{what} is gone")
            elif kind == "layouts":
                breaks.append(f"{what}: was {'; '.join(before)}; is {'; '.join(after)}")
            elif kind == "enumerations":
                lost = sorted(set(before) - set(after))
                breaks += [f"{what}: {each} is gone or has another value" for each in lost]
                additions += [f"{what}: {each}" for each in after if each not in before]
            elif kind == "functions":
                lost = sorted(set(before) - set(after))
                breaks += [f"{what}: the symbol {each} is gone" for each in lost]
                additions += [f"{what}: {each}" for each in after if each not in before]
            elif after[: len(before)] == before and not IMPLEMENTED_OUTSIDE.search(name):
                additions += [f"{what}: {each}" for each in after[len(before) :]]
            else:
                at = next(
                    (i for i, pair in enumerate(zip(before, after)) if pair[0] != pair[1]),
                    min(len(before), len(after)),
                )
                was = before[at] if at < len(before) else "none"
                now = after[at] if at < len(after) else "none"
                breaks.append(f"{what}: slot {at} was {was}; is {now}")
        additions += [f"{kind[:-1]} {name}" for name in new[kind] if name not in old[kind]]
    return breaks, additions


def number_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def last_record(before_or_at: str) -> Path | None:
    """The record of the newest release up to a version."""
    records = [path for path in RECORDS.glob("*.json")]
    records = [path for path in records if number_of(path.stem) <= number_of(before_or_at)]
    return max(records, key=lambda path: number_of(path.stem), default=None)


def may_break(old: str, new: str) -> bool:
    """Whether the version may break the interface (https://semver.org): a new major version, or a
    new minor one while the major one is 0."""
    a, b = number_of(old), number_of(new)
    return a[:1] != b[:1] or (a[0] == 0 and a[:2] != b[:2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--library", type=Path, default=ROOT / "build/dev/src/libopwright.so")
    parser.add_argument("--record", action="store_true", help="write this version's record")
    options = parser.parse_args()
    now = interface(options.library)
    if options.record:
        RECORDS.mkdir(exist_ok=True)
        target = RECORDS / f"{version()}.json"
        target.write_text(json.dumps(now, indent=1) + "\n")
        print(f"abi: {target}")
        return 0
    record = last_record(version())
    if record is None:
        sys.exit(f"abi: {RECORDS} has no record: tools/abi.py --record")
    breaks, additions = compare(json.loads(record.read_text()), now)
    for line in breaks:
        print(f"abi: break: {line}")
    for line in additions:
        print(f"abi: addition: {line}")
    if breaks and not may_break(record.stem, version()):
        print(f"abi: version {version()} may not break what {record.stem} promised")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
