"""tools/model_fuzzer.py with a fixed seed, and how it treats a crash."""

import re
import subprocess
import sys

import pytest

from paths import ROOT

FUZZER = ROOT / "tools" / "model_fuzzer.py"


def run_fuzzer(*arguments):
    return subprocess.run(
        [sys.executable, FUZZER, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


def test_a_fixed_seed_finds_nothing(tmp_path):
    done = run_fuzzer("--seed", 5, "--cases", 400, "--seconds", 60, "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) operators", done.stdout)[1]) > 100
    assert "0 lost" in done.stdout


def test_all_tactics_of_compositions_agree(tmp_path):
    arguments = "--compositions --tactics --seed 5 --cases 40 --seconds 60 --out".split()
    done = run_fuzzer(*arguments, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) tactics by type", done.stdout)[1]) > 50


@pytest.mark.parametrize("compositions", [False, True])
def test_a_case_is_made_again(tmp_path, compositions):
    sys.path.insert(0, str(FUZZER.parent))
    import model_fuzzer

    first, second = (model_fuzzer.make_case(3, 7, compositions) for _ in range(2))
    assert first.model.SerializeToString() == second.model.SerializeToString()
    first.save(tmp_path)
    again = model_fuzzer.Case.load(tmp_path)
    assert again.inputs.keys() == second.inputs.keys()
    assert run_fuzzer("--run", tmp_path).returncode == 0
