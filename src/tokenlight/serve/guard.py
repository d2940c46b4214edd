"""Before every request: is it from our own page? After it: headers that keep the browser strict."""

from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenlight.serve.responses import told

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STRICT = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def own_hosts(port: int) -> frozenset[str]:
    """What a browser on this machine calls us."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


@dataclass(frozen=True)
class Guard:
    """Another site's page can send requests here, and a name of its own can lead here: both are refused."""

    app: ASGIApp
    hosts: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in STRICT.items():
                    headers[name] = value
            await send(message)

        refusal = self.refusal(scope["method"], Headers(scope=scope))
        answer = self.app if refusal is None else told(*refusal)
        await answer(scope, receive, send_strictly)

    def refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence, or None for a request that may go on."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 403, f"this server answers to {' and '.join(sorted(self.hosts))}, not to another Host"
        if any(origin.lower() not in {f"http://{host}" for host in self.hosts} for origin in origins):
            return 403, "this request comes from another page, whose Origin is not this server's"
        if method not in ("GET", "HEAD"):
            kind = headers.get("content-type", "").split(";")[0].strip().lower()
            if kind != "application/json":
                return 415, "expected Content-Type: application/json"
        return None
