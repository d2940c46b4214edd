"""The uvicorn server around the app, on this machine only."""

import contextlib
import errno
import os
import socket
import sys
import threading
import webbrowser

import uvicorn

from tokenlight._compat.uvicorn_internals import WarnedServer
from tokenlight.common.errors import RefusedValue
from tokenlight.explain.explainer import Explainer
from tokenlight.heads.mask import HeadMask, own_heads
from tokenlight.serve.app import make_app
from tokenlight.serve.session import Session
from tokenlight.serve.worker import WaitingLine

HOST, PORT, TRIES = "127.0.0.1", 8765, 20


class Server(WarnedServer):
    """Ctrl-C stops the work first, so that no open answer holds the server up."""

    session: Session
    line: WaitingLine

    def __init__(self, config: uvicorn.Config, session: Session, line: WaitingLine):
        super().__init__(config, on_signal=line.stop, on_end=lambda: line.close(patience=0.0))
        self.session = session
        self.line = line


def listen(port: int | None) -> socket.socket:
    """A socket on this port; without one, on the usual port or the next that is free."""
    for wanted in range(PORT, PORT + TRIES) if port is None else (port,):
        # asyncio sends small answers without delay only where the protocol is written out.
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, wanted))
            found.listen()  # from here on the port is taken: loading the model may last
            return found
        except OSError as error:
            found.close()
            if port is None and error.errno == errno.EADDRINUSE:
                continue
            reason = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
            raise RefusedValue(f"cannot listen on port {wanted}: {reason}; choose another with --port") from error
    raise RefusedValue(f"the ports {PORT} to {PORT + TRIES - 1} are all in use: choose another with --port")


def make_server(explainer: Explainer, sock: socket.socket, mask: HeadMask | None = None) -> Server:
    """A server for this socket. Without a mask the head map is drawn from the one that comes with the model."""
    session = Session(explainer, own_heads(explainer.inner) if mask is None else mask)
    line = WaitingLine()
    app = make_app(session, line, sock.getsockname()[1])
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    return Server(config, session, line)


def run(explainer: Explainer, sock: socket.socket, browser: bool, mask: HeadMask | None = None) -> None:
    """Serve until Ctrl-C."""
    server = make_server(explainer, sock, mask)
    if browser:
        port = sock.getsockname()[1]
        opening = threading.Timer(0.5, webbrowser.open, [f"http://{HOST}:{port}/"])
        opening.daemon = True  # a browser of the terminal must not hold up the end
        opening.start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[sock])
    if not server.line.close(patience=0.5):
        sys.stdout.flush()
        os._exit(0)  # one pass of a large model can take minutes, and Python cannot end while torch computes
