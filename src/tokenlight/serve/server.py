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
from tokenlight.serve.worker import JobQueue

HOST, PORT, TRIES = "127.0.0.1", 8765, 20


class Server(WarnedServer):
    """A server that stops its jobs first on Ctrl-C, so that open responses do not delay its end."""

    session: Session
    queue: JobQueue

    def __init__(self, config: uvicorn.Config, session: Session, queue: JobQueue):
        super().__init__(config, on_signal=queue.stop, on_end=lambda: queue.close(patience=0.0))
        self.session = session
        self.queue = queue


def listen(port: int | None) -> socket.socket:
    """A socket on this port; for None, on the default port or the next free one."""
    for candidate in range(PORT, PORT + TRIES) if port is None else (port,):
        # asyncio sets TCP_NODELAY only if the protocol is given explicitly.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, candidate))
            sock.listen()  # reserves the port while the model is loaded
            return sock
        except OSError as error:
            sock.close()
            if port is None and error.errno == errno.EADDRINUSE:
                continue
            reason = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
            raise RefusedValue(f"cannot listen on port {candidate}: {reason}; choose another with --port") from error
    raise RefusedValue(f"the ports {PORT} to {PORT + TRIES - 1} are all in use: choose another with --port")


def make_server(explainer: Explainer, sock: socket.socket, mask: HeadMask | None = None) -> Server:
    """A server for this socket. Without a mask, the head map shows the one that comes with the model."""
    session = Session(explainer, own_heads(explainer.inner) if mask is None else mask)
    queue = JobQueue()
    app = make_app(session, queue, sock.getsockname()[1])
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
    return Server(config, session, queue)


def run(explainer: Explainer, sock: socket.socket, browser: bool, mask: HeadMask | None = None) -> None:
    """Serve until Ctrl-C."""
    server = make_server(explainer, sock, mask)
    if browser:
        port = sock.getsockname()[1]
        opening = threading.Timer(0.5, webbrowser.open, [f"http://{HOST}:{port}/"])
        opening.daemon = True  # a text browser in the terminal must not delay the end
        opening.start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[sock])
    if not server.queue.close(patience=0.5):
        sys.stdout.flush()
        os._exit(0)  # a pass of a large model can take minutes, during which Python cannot exit
