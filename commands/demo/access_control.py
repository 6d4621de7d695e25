"""Controls access to the page: user and password of `--auth`, and the address that the server listens on."""

import base64
import binascii
import ipaddress
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

AUTH_VARIABLE = "LOCKSTEP_DEMO_AUTH"
_PORTS_TRIED = 50


class Login(NamedTuple):
    """User and password that the browser must send (RFC 7617)."""

    user: str
    password: str


def read_login(auth: str | None, environ: Mapping[str, str] = os.environ) -> Login | None:
    """Return the login that `--auth` or the variable LOCKSTEP_DEMO_AUTH means; None without either.

    Args:
        auth: `USER:PASSWORD`, or `@FILE` with a line of this form, so that the password is in no list of processes.
        environ: environment variables.

    Raises:
        ValueError: it has another form, or the file cannot be read.
    """
    login_text, source = (environ.get(AUTH_VARIABLE), AUTH_VARIABLE) if auth is None else (auth, "--auth")
    if login_text is None:
        return None
    if login_text.startswith("@"):
        source = login_text[1:]
        try:
            login_text = Path(source).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--auth @FILE: {source} cannot be read as text in UTF-8 ({error})") from error
    user, colon, password = login_text.partition(":")
    if not (user and colon and password):
        raise ValueError(f"{source}: expected USER:PASSWORD, both not empty")
    return Login(user, password)


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in addresses)
    except (OSError, ValueError):
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 is any free port.

    Raises:
        ValueError: the port is in use (the message names a free port), or the address is not of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except (socket.gaierror, OverflowError, UnicodeError) as error:
        raise ValueError(f"--host {host}: {error}; expected an address of this machine, such as 127.0.0.1") from error
    try:
        return _bound(family, host, port)
    except PermissionError as error:
        raise ValueError(f"--port {port}: {error.strerror}; ports from 1024 on need no permission") from error
    except OSError as error:
        for other in range(port + 1, min(port + _PORTS_TRIED, 65536)):
            try:
                _bound(family, host, other).close()
            except OSError:
                continue
            raise ValueError(f"--port {port}: {error.strerror} on {host}; {other} is free: --port {other}") from error
        raise ValueError(f"--host {host} --port {port}: {error.strerror}") from error


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows the option would let two servers share a port
            # Without the option, a port stays occupied for a while after its last server has ended.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(128)
    except OSError:
        server.close()
        raise
    return server


def guard_middleware(host: str, login: Login | None) -> list[Middleware]:
    """Return the middleware that refuses requests before they reach the page.

    A server that only this machine reaches also checks the name in the request: a page of another site whose name
    resolves to 127.0.0.1 (DNS rebinding) could otherwise read it.
    """
    # Middleware runs in this order: requests of other sites and names are refused before the password is read.
    middleware = [Middleware(SameSite)]
    if is_loopback(host):
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]", host]))
    if login is not None:
        middleware.append(Middleware(RequireLogin, login=login))
    return middleware


class SameSite:
    """Refuses questions and files that a page of another site sends, which browsers mark (W3C Fetch Metadata)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 to a POST of another site."""
        # Browsers send "none" for an address that the visitor has typed. Programs other than browsers send no header.
        site = dict(scope.get("headers", ())).get(b"sec-fetch-site", b"none")
        if scope.get("method") == "POST" and site not in (b"same-origin", b"none"):
            await PlainTextResponse("the request is of another site", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class RequireLogin:
    """Refuses requests without the user and the password, which are compared in constant time."""

    def __init__(self, app: ASGIApp, login: Login) -> None:
        self._app, self._expected = app, f"{login.user}:{login.password}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 to a request without the login."""
        # ASGI's `lifespan` events have no headers.
        if scope["type"] != "http" or self._is_allowed(dict(scope["headers"])):
            await self._app(scope, receive, send)
            return
        header = {"WWW-Authenticate": 'Basic realm="Lockstep", charset="UTF-8"'}
        await PlainTextResponse("this page needs a user and a password", 401, header)(scope, receive, send)

    def _is_allowed(self, headers: Mapping[bytes, bytes]) -> bool:
        scheme, _, encoded = headers.get(b"authorization", b"").partition(b" ")
        try:
            credentials = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return False
        # Bytes are compared, because compare_digest raises for texts that are not ASCII.
        return scheme.lower() == b"basic" and secrets.compare_digest(credentials, self._expected)
