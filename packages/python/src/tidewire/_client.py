"""The client that an app creates: one connection, and the primitives that use it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator
from typing import Any

from ._connection import Auth, Connection, Options, State
from ._error import TidewireError
from ._event import Events
from ._presence import Presence
from ._records import Records
from ._rpc import Rpcs


class Client:
    """The client of one server. Call `connect` to create one.

    A client belongs to the event loop in which it was created, and its methods may be called only there. Subscriptions, providers and
    requests wait while there is no connection.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.record = Records(connection)
        """Records: documents that all clients see with the same value."""
        self.event = Events(connection)
        """Events: publish and subscribe."""
        self.rpc = Rpcs(connection)
        """Remote procedure calls: calling and providing."""
        self.presence = Presence(connection)
        """Which users are online."""

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._connection.state

    @property
    def login_data(self) -> Any:
        """The client data that the server sent at the login (`clientData`); None if it sent none."""
        return self._connection.login_data

    @property
    def close_reason(self) -> TidewireError | None:
        """Why the client is closed: an error with the code CLOSED after `close()`, else the error with which the server refused it."""
        return self._connection.reason

    async def connect(self, auth: Auth | None = None) -> None:
        """Connects and logs in. Returns when the connection is open, however long that takes; raises when the server refuses for good.

        After that, and after `close()`, it may be called again. If the task that made the first call is cancelled, the client stops trying
        and is closed.

        Args:
            auth: Credentials, or a function that returns them, instead of those that the client has.
        """
        await self._connection.connect(auth)

    async def renew(self, auth: Auth | None = None) -> None:
        """Renews the login of the open session with other credentials of the same user.

        If the server rejects them, the session continues as it was.
        """
        await self._connection.renew(auth)

    def check(self) -> None:
        """Checks by a round trip that the connection is alive. If the client waits before its next attempt, it connects at once."""
        self._connection.check()

    async def close(self) -> None:
        """Closes the connection. Returns when the messages that were sent before have left, after about two seconds at most.

        Loops over events, changes and presence end. Callbacks and providers are in use again after the next `connect()`.
        """
        self._connection.close()
        await self._connection.wait_closed()

    def on_state(self, callback: Callable[[State, TidewireError | None], object]) -> Callable[[], None]:
        """Calls `callback` with every new state, and with the reason for `waiting` and `closed`; returns the removal."""
        key = object()
        self._connection.on_state[key] = callback

        def remove() -> None:
            self._connection.on_state.pop(key, None)

        return remove

    def on_error(self, callback: Callable[[TidewireError], object]) -> Callable[[], None]:
        """Calls `callback` with each error that no other callback and no caller receives; returns the removal.

        Without a callback, errors go to the logger `tidewire`.
        """
        key = object()
        self._connection.on_error[key] = callback

        def remove() -> None:
            self._connection.on_error.pop(key, None)

        return remove

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class Connecting:
    """The result of `connect`: `async with` or `await` it for the client."""

    def __init__(self, address: str, options: Options) -> None:
        self._address = address
        self._options = options
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *exception: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> Client:
        client = Client(Connection(self._address, self._options))
        try:
            await client.connect()
        except BaseException:
            # The task may have been cancelled while the client was still trying.
            await client.close()
            raise
        return client


def connect(
    url: str,
    *,
    auth: Auth | None = None,
    tls: ssl.SSLContext | None = None,
    request_timeout_s: float = 15.0,
    pending_max: int = 10_000,
    heartbeat_interval_s: float = 15.0,
    stale_after_s: float = 4.0,
    check_timeout_s: float = 2.0,
    connect_timeout_s: float = 10.0,
    reconnect_min_s: float = 0.5,
    reconnect_max_s: float = 10.0,
    send_buffer_bytes_max: int = 16 * 1024 * 1024,
    traceparent: Callable[[], str | None] | None = None,
) -> Connecting:
    """Connects to a server and logs in: `async with connect(url) as client`, or `client = await connect(url)`.

    It waits however long that takes, and raises when the server refuses for good. To limit the time, use `asyncio.wait_for`.

    Args:
        url: `host:port`, or an address that begins with `ws`, `wss`, `http` or `https`.
        auth: Credentials such as `{"token": token}`, or a function that returns them; the client calls it before each login.
        tls: The settings for `wss` and `https` addresses; by default the settings of Python.
        request_timeout_s: Seconds until a request fails with TIMEOUT, including the time without a connection.
        pending_max: The most requests, the most events without a connection, and the most events of a slow loop that may wait at a time.
        heartbeat_interval_s: Seconds between two heartbeats. The server ends a connection that is silent for a minute.
        stale_after_s: Seconds without an answer to a heartbeat until the state is `stale`. After the same time again, the client gives the
            connection up.
        check_timeout_s: Seconds for the round trip of `check()`.
        connect_timeout_s: Seconds to open a socket.
        reconnect_min_s: The delay before the first new attempt is at most this number of seconds. For each further attempt it doubles.
        reconnect_max_s: The longest delay between two attempts in seconds.
        send_buffer_bytes_max: Bytes that may wait in the client before sending is refused with OVERLOADED.
        traceparent: Returns the `traceparent` (W3C Trace Context) of an event when it is emitted, if it has a trace.
    """
    options = Options(
        auth={} if auth is None else auth,
        tls=tls,
        request_timeout_s=request_timeout_s,
        pending_max=pending_max,
        heartbeat_interval_s=heartbeat_interval_s,
        stale_after_s=stale_after_s,
        check_timeout_s=check_timeout_s,
        connect_timeout_s=connect_timeout_s,
        reconnect_min_s=reconnect_min_s,
        reconnect_max_s=reconnect_max_s,
        send_buffer_bytes_max=send_buffer_bytes_max,
        traceparent=traceparent,
    )
    return Connecting(url, options)
