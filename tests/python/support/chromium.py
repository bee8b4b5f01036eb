"""A browser for tests of pages: Chromium, if it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


class Browser:
    """Chromium, controlled by its DevTools protocol: JSON messages on two pipes, which are its
    files 3 and 4. Search runs in a worker, for which `--dump-dom` does not wait."""

    def __init__(self, folder: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()

        def as_3_and_4() -> None:
            ours = os.dup(commands), os.dup(answers)
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [CHROMIUM, *options, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=as_3_and_4,
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._read = b""
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

    def _ask(self, method: str, session: str | None = None, **params) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._read:
                piece = os.read(self._answers, 1 << 16)
                assert piece, "Chromium has ended"
                self._read += piece
            one, _, self._read = self._read.partition(b"\0")
            answer = json.loads(one)
            if answer.get("id") == self._number:
                return answer["result"]

    def open(self, url: str) -> None:
        self._ask("Page.navigate", self._session, url=url)

    def until(self, script: str, seconds: float = 30):
        """The result of a script, once it is no longer empty."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self._ask(
                "Runtime.evaluate", self._session, expression=script, returnByValue=True
            )
            if value := answer["result"].get("value"):
                return value
            time.sleep(0.1)
        raise AssertionError(f"nothing after {seconds} s: {script}")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._commands)
        os.close(self._answers)
