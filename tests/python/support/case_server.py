"""Runs functions in processes of their own, forked from one that has imported what they need.

A process that crashes, hangs, or registers plugins disturbs no other one, and none waits for imports.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SECONDS = 120
FOLDER = "OPWRIGHT_CASE_FOLDER"
"""The environment variable that names the server's folder, which tests may put files in, too."""


class Server:
    """The server's process, which `run` asks until it is stopped. It ends with this process.

    :param modules: what it imports, beside what is installed from `modules_folder`.
    """

    def __init__(self, folder: Path, modules_folder: Path, modules: Sequence[str]) -> None:
        # Cases have one thread: a second one costs more than their small engines gain.
        few = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS")}
        self.outer = os.environ.get(FOLDER)
        os.environ[FOLDER] = str(folder)
        path = os.pathsep.join([str(modules_folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"OPWRIGHT_DEVICE": "cpu", **os.environ, **few, "PYTHONPATH": path}
        self.process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin and self.process.stdout
        if not self.process.stdout.readline():
            raise RuntimeError(f"{__file__} has not started: run it to see why")

    def stop(self) -> None:
        self.process.communicate()
        if self.outer is None:
            del os.environ[FOLDER]
        else:
            os.environ[FOLDER] = self.outer


def run(module: str, function: str, **arguments: str) -> tuple[int, str]:
    """Calls a function in a new process: its status, negative for a signal, and what it printed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.join(os.environ[FOLDER], "server"))
        request = {"module": module, "function": function, "arguments": arguments}
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as file:
            status, output = json.loads(file.readline())
    return status, output


def answer(connection: socket.socket) -> None:
    with connection.makefile() as file:
        request = json.loads(file.readline())
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            connection.close()
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            signal.alarm(SECONDS)
            module = importlib.import_module(request["module"])
            getattr(module, request["function"])(**request["arguments"])
            sys.exit()
        _, status = os.waitpid(child, 0)
        output.seek(0)
        text = output.read().decode(errors="replace")
    connection.sendall(json.dumps([os.waitstatus_to_exitcode(status), text]).encode() + b"\n")


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # what is imported would be copied and walked at each process's end
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(os.environ[FOLDER], "server"))
        listener.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return  # its end: the tests are over
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    listener.close()
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    answer(connection)
                    return


if __name__ == "__main__":
    main()
