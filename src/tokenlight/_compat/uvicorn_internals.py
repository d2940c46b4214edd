"""Private interfaces of uvicorn."""

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn


class WarnedServer(uvicorn.Server):
    """A server with callbacks before it handles a signal and before it shuts down."""

    on_signal: Callable[[], object]
    on_end: Callable[[], object]

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[], object], on_end: Callable[[], object]):
        super().__init__(config)
        self.on_signal, self.on_end = on_signal, on_end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.on_signal()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.on_end()
        await super().shutdown(sockets)
