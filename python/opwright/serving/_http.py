"""HTTP as uvicorn speaks it by httptools, with a bound for what a client may send without a body."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 1 << 16


class BoundedHttp(HttpToolsProtocol):
    """Ends connections whose head, or what stands between and behind the pieces of a body, takes
    more than HEAD_BYTES: httptools keeps all of it."""

    _unfinished = 0
    """Bytes since the last head, piece of a body or message that was complete."""

    def data_received(self, data: bytes) -> None:
        if self._unfinished > HEAD_BYTES:
            self.send_400_response(f"The head of a request has at most {HEAD_BYTES} bytes.")
            return
        self._unfinished += len(data)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        super().on_message_complete()
