"""One WebSocket, with a `send` that does not wait. The connection above it is one state machine without `await`."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI
from websockets.uri import parse_uri

from ._error import TidewireError

_SECURE = ("https", "wss")
_PLAIN = ("http", "ws")
_CLOSED_WITHOUT_CODE = 1006


class SocketEvents(Protocol):
    """The callbacks of a socket. After `closed` there are no more."""

    def opened(self, socket: Socket) -> None: ...

    def received(self, socket: Socket, data: str | bytes) -> None: ...

    def closed(self, socket: Socket, why: str, code: int) -> None: ...


def socket_url(address: str) -> str:
    """Returns the address of the native protocol for `address`.

    `address` is `host:port`, or an address that begins with `ws`, `wss`, `http` or `https`.
    """
    scheme, separator, rest = address.partition("://")
    if not scheme.isalnum() or separator == "":
        scheme, rest = "", address
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(host) :]
    if host == "":
        raise TidewireError("INVALID_URL", 'the client needs an address, such as "localhost:6020"')
    if scheme and scheme.lower() not in (*_SECURE, *_PLAIN):
        raise TidewireError("INVALID_URL", f'"{address}" is not a ws:, wss:, http: or https: address')
    secure = "wss" if scheme.lower() in _SECURE else "ws"
    url = f"{secure}://{host}{'/deepstream' if path in ('', '/') else path}"
    try:
        parse_uri(url)
    except (InvalidURI, ValueError) as cause:
        raise TidewireError("INVALID_URL", f'"{address}" is not an address: {cause}') from cause
    return url


class Socket:
    """A WebSocket that connects when it is created."""

    def __init__(self, url: str, events: SocketEvents, tls: ssl.SSLContext | None) -> None:
        self._url = url
        self._events = events
        self._tls = tls
        self._queue: deque[bytes] = deque()
        self._queued = asyncio.Event()
        self._is_closing = False
        self._socket: ClientConnection | None = None
        self.buffered_bytes = 0
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"tidewire {url}")

    def send(self, frame: bytes) -> None:
        """Sends `frame` after all earlier ones."""
        if self._is_closing:
            return
        self._queue.append(frame)
        self.buffered_bytes += len(frame)
        self._queued.set()

    def close(self) -> None:
        """Closes the connection after the frames that wait."""
        self._is_closing = True
        self._queued.set()
        if self._socket is None:
            self.task.cancel()

    def terminate(self) -> None:
        """Ends the connection without waiting for the other side."""
        self._is_closing = True
        self.task.cancel()

    async def _run(self) -> None:
        why, code = "closed", _CLOSED_WITHOUT_CODE
        try:
            self._socket = await self._connect()
            await self._exchange(self._socket)
        except ConnectionClosed as closed:
            if closed.rcvd is not None:
                code = closed.rcvd.code
                why = f"closed with {code} {closed.rcvd.reason}".rstrip()
            else:
                why = f"closed with {code}"
        except InvalidStatus as refused:
            why = f"the server answered the upgrade with HTTP {refused.response.status_code}"
        except Exception as cause:  # The library, the resolver and TLS raise many types; each means that there is no connection.
            why = f"{type(cause).__name__}: {cause}"
        self._is_closing = True
        self._events.closed(self, why, code)

    async def _connect(self) -> ClientConnection:
        # A redirect may lead to a plain address, which takes no settings for TLS.
        tls = self._tls if self._url.startswith("wss:") else None
        # The client has its own heartbeats and timeouts. The server's messages have any size.
        if tls is None:
            return await connect(self._url, max_size=None, ping_interval=None, open_timeout=None)
        return await connect(self._url, max_size=None, ping_interval=None, open_timeout=None, ssl=tls)

    async def _exchange(self, socket: ClientConnection) -> None:
        writer = asyncio.create_task(self._write(socket))
        try:
            self._events.opened(self)
            while True:
                self._events.received(self, await socket.recv())
        except asyncio.CancelledError:
            socket.transport.abort()
            raise
        finally:
            writer.cancel()
            # The reader reports the end of the connection.
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, socket: ClientConnection) -> None:
        """Sends the queued frames until the connection ends, and closes it if the client is closed."""
        while self._queue or not self._is_closing:
            while self._queue:
                frame = self._queue.popleft()
                await socket.send(frame)
                self.buffered_bytes -= len(frame)
            if not self._is_closing:
                self._queued.clear()
                await self._queued.wait()
        await socket.close()
