"""The result of `Engine.submit`."""

from __future__ import annotations

import concurrent.futures
from typing import Any

from . import _core


class SubmittedCall(concurrent.futures.Future[Any]):
    """The future of a call of an engine."""

    def __init__(self, call: _core._SubmittedCall):
        super().__init__()
        self._call = call

    def cancel(self) -> bool:
        """Cancel the call if it has not begun, which frees its place in the queue at once.

        :returns: whether it is cancelled.
        """
        if not super().cancel():
            return False
        if self._call._withdraw():
            # No thread of the queue will see the call, so waiters are notified here.
            self.set_running_or_notify_cancel()
        return True
