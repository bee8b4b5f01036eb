"""The Dockerfile. With OPWRIGHT_DOCKERFILE=1 its steps run in bare roots, as root, without Docker: debootstrap
makes what debian:bookworm-slim is, and each step runs in a chroot. That compiles the whole library."""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from paths import ROOT

BASE = "debian:bookworm-slim"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What Debian's slim images leave out.
SLIM = """
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
"""
CERTIFICATES = "/etc/host-certificates.crt"
CHECK = """
import numpy as np, opwright
import opwright.plugin as trtp

@trtp.register("image::double")
def double_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("image::double")
def double(x, outputs, stream):
    np.multiply(np.asarray(x), 2, out=np.asarray(outputs[0]))

x = np.load("x.npy")
np.testing.assert_array_equal(np.load("y.npy"), opwright.load("m.engine")(x))
network = opwright.Builder(opwright.Logger()).create_network()
given = network.add_input("given", opwright.float32, x.shape)
network.mark_output(network.add_plugin(trtp.op.image.double(given)).get_output(0))
np.testing.assert_array_equal(opwright.build(network, device="cpu")(x), 2 * x)
"""


def steps(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile and what follows them, continued lines as one."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def ignored(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore leaves a file out: the last pattern that fits it, or a folder of it, decides."""
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    answer = False
    for pattern in patterns:
        wanted = pattern.lstrip("!")
        names = parts if wanted.startswith("**/") else above
        if any(fnmatch.fnmatchcase(name, wanted.removeprefix("**/")) for name in names):
            answer = not pattern.startswith("!")
    return answer


def context() -> list[str]:
    """The repository's files that `COPY . .` copies."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    return [name for name in names.splitlines() if not ignored(name, patterns)]


@dataclass
class Stage:
    """A root in which a stage's steps run, and what the steps have set so far."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)

    def run(self, command: list[str]) -> str:
        """Runs a program as the steps' user, with nothing of this machine but its network and its certificates."""
        kept = {k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}
        if "SSL_CERT_FILE" in os.environ:
            shutil.copy(os.environ["SSL_CERT_FILE"], f"{self.root}{CERTIFICATES}")
            kept |= {"PIP_CERT": CERTIFICATES, "SSL_CERT_FILE": CERTIFICATES}
        shutil.copy("/etc/resolv.conf", self.root / "etc" / "resolv.conf")
        settings = [f"{name}={value}" for name, value in {**kept, **self.env}.items()]
        # Its /proc goes away with the processes.
        inside = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.root / 'proc'}"]
        inside += ["chroot", f"--userspec={self.user}", self.root, "env", "-i", *settings]
        inside += ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", self.folder, *command]
        done = subprocess.run(inside, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def inside(self, path: str) -> Path:
        """Where a path of the image is on this machine."""
        return self.root / os.path.join(self.folder, path).lstrip("/")


def megabytes(folder: Path) -> int:
    done = subprocess.run(["du", "-sm", folder], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


def run_steps(text: str, work: Path) -> Stage:
    """Runs all stages; the last one."""
    stages: dict[str, Stage] = {}
    for number, (instruction, rest) in enumerate(steps(text)):
        print(f"-- {instruction} {rest[:90]}", flush=True)
        if instruction == "FROM":
            image, _, name = rest.partition(" AS ")
            assert image == BASE
            stage = stages[name] = Stage(work / f"stage-{number}")
            subprocess.run(["cp", "-a", work / "base", stage.root], check=True)
        elif instruction == "RUN":
            stage.run(["sh", "-c", rest])
        elif instruction == "COPY" and rest.startswith("--from="):
            source, given, target = rest.removeprefix("--from=").split()
            to = stage.inside(target)
            to.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-aT", stages[source].inside(given), to], check=True)
        elif instruction == "COPY":
            assert rest == ". ."
            for name in context():
                to = stage.inside(name)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, to)
        elif instruction == "ENV":
            stage.env |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif instruction == "WORKDIR":
            stage.folder = os.path.join(stage.folder, rest)
            stage.inside("").mkdir(parents=True, exist_ok=True)
        elif instruction == "USER":
            stage.user = rest
        elif instruction == "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        else:
            assert instruction == "CMD", f"{instruction} is new here"
            assert "Usage" in stage.run(stage.entrypoint + json.loads(rest))
    return stage


def test_the_image_takes_what_the_sources_have_and_nothing_else():
    pyproject = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^sdist\.include = \[(.*?)\]", pyproject, re.MULTILINE | re.DOTALL)
    wanted = {name.strip("/") for name in re.findall(r'"(/[^"]+)"', listed)}
    assert {name.split("/")[0] for name in context()} == wanted
    assert not ignored("src/base/error.cpp", ["*", "!src", "**/__pycache__"])
    assert ignored("python/opwright/__pycache__/a.pyc", ["*", "!python", "**/__pycache__"])
    assert ignored("tests/python/a.py", ["*", "!python", "**/__pycache__"])


def test_the_image_has_a_user_and_its_build_installs_what_the_setup_does():
    found = steps((ROOT / "Dockerfile").read_text())
    assert [rest for name, rest in found if name == "USER"] == ["opwright"]
    after = [name for name, _ in found][[name for name, _ in found].index("USER") :]
    assert "RUN" not in after and "COPY" not in after
    setup = (ROOT / "tools" / "setup.py").read_text()
    (required,) = re.findall(r"^REQUIRED = \{(.*?)\}", setup, re.MULTILINE | re.DOTALL)
    packages = set(re.findall(r'"([\w-]+)":', required)) - {"libgtest-dev", "libbenchmark-dev"}
    install = next(rest for name, rest in found if name == "RUN" and "g++" in rest)
    assert packages <= set(install.split())


@pytest.mark.skipif(
    not os.environ.get("OPWRIGHT_DOCKERFILE"), reason="OPWRIGHT_DOCKERFILE is not set"
)
def test_the_steps_run_in_bare_roots(tmp_path):
    onnx = pytest.importorskip("onnx")
    assert os.geteuid() == 0, "run it as root"
    assert shutil.which("debootstrap"), "apt-get install debootstrap"
    base = tmp_path / "base"
    mirror = os.environ.get("OPWRIGHT_DEBIAN_MIRROR", "http://deb.debian.org/debian")
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", base, mirror], check=True)
    (base / "etc" / "dpkg" / "dpkg.cfg.d" / "slim").write_text(SLIM)
    # What those who are no user of the image may enter, too.
    tmp_path.chmod(0o755)
    image = run_steps((ROOT / "Dockerfile").read_text(), tmp_path)

    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    np.save(image.inside("x.npy"), x)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 19]> net (float[n, 4] x) => (float[n, 4] y) { y = Tanh(x) }'
    )
    onnx.save(model, image.inside("m.onnx"))
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", image.run([*image.entrypoint, "--version"]))
    build = ["build", "m.onnx", "-o", "m.engine", "--shapes", "x:1x4,3x4,8x4"]
    image.run([*image.entrypoint, *build])
    image.run([*image.entrypoint, "run", "m.engine", "--input", "x=x.npy", "--output", "y=y.npy"])
    y = np.load(image.inside("y.npy"))
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-5, atol=1e-6)
    image.run(["python", "-c", CHECK])
    assert image.run(["id", "-un"]) == "opwright\n"
    assert image.inside("m.engine").stat().st_uid != 0
    assert not list(image.root.glob("usr/bin/*g++*"))
    for name in ("LICENSE", "NOTICE", "third-party/hwy", "third-party/onednn"):
        pattern = f"opt/opwright/lib/python3*/site-packages/opwright-*.dist-info/licenses/{name}"
        assert len(list(image.root.glob(pattern))) == 1, name
    added = megabytes(image.root) - megabytes(base)
    print(f"-- the image: {BASE} and {added} MB")
    assert added < 300
