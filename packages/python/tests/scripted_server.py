"""A server that accepts logins and otherwise sends only the messages of a test, and the base of the tests that use it."""

from __future__ import annotations

import asyncio
import gc
import json
import unittest
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tidewire import Client, Connecting, State, TidewireError, connect
from tidewire._codec import decode, encode
from tidewire._protocol import AuthAction, ConnectionAction, Message, Topic

DEADLINE_S = 10.0


class ClientTest(unittest.IsolatedAsyncioTestCase):
    """A test that fails if an exception remains unobserved in a task, a future or a callback of the event loop."""

    async def asyncSetUp(self) -> None:
        unobserved: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unobserved.append(context))

        async def check() -> None:
            await asyncio.sleep(0)
            # A task or future reports an unobserved exception when it is deleted.
            gc.collect()
            self.assertEqual(unobserved, [])

        self.addAsyncCleanup(check)

    async def code_of(self, awaitable: Any) -> str:
        """The code of the error with which `awaitable` fails."""
        with self.assertRaises(TidewireError) as caught:
            await asyncio.wait_for(awaitable, DEADLINE_S)
        return caught.exception.code


async def reach(client: Client, state: State) -> None:
    """Waits until `client` is in `state`."""
    if client.state != state:
        await reaching(client, state)


def reaching(client: Client, state: State) -> Coroutine[None, None, None]:
    """Waits until `client` gets into `state`, also if it does so before the result is awaited."""
    reached = asyncio.Event()

    def note(now: State, reason: TidewireError | None) -> None:
        if now == state:
            reached.set()

    client.on_state(note)

    async def wait() -> None:
        await asyncio.wait_for(reached.wait(), DEADLINE_S)

    return wait()


class ScriptedServer:
    """Listens on a free port of the loopback address. Every message that is not part of a login or heartbeat waits in `received`."""

    def __init__(self, *, limits: dict[str, int] | None = None, refuses: Callable[[Any], Any] = lambda credentials: None) -> None:
        self.received: asyncio.Queue[Message] = asyncio.Queue()
        self.credentials: list[Any] = []
        self.is_silent = False
        self._limits = limits
        self._refuses = refuses
        self._server: Server | None = None
        self._peer: ServerConnection | None = None

    async def __aenter__(self) -> ScriptedServer:
        self._server = await serve(self._accept, "127.0.0.1", 0, max_size=None)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = next(iter(self._server.sockets)).getsockname()[:2]
        return f"{host}:{port}"

    def client(self, **options: Any) -> Connecting:
        return connect(self.address, **{"reconnect_min_s": 0.01, "reconnect_max_s": 0.02, "request_timeout_s": DEADLINE_S, **options})

    async def _accept(self, peer: ServerConnection) -> None:
        self._peer = peer
        try:
            async for data in peer:
                assert isinstance(data, bytes)
                for message in decode(data):
                    await self._handle(message)
        except ConnectionClosed:
            pass

    async def _handle(self, message: Message) -> None:
        if self.is_silent:
            return
        if message.topic == Topic.CONNECTION and message.action == ConnectionAction.CHALLENGE:
            data = None if self._limits is None else json.dumps(self._limits)
            await self.send(Message(Topic.CONNECTION, ConnectionAction.ACCEPT, data))
        elif message.topic == Topic.CONNECTION and message.action == ConnectionAction.PING:
            await self.send(Message(Topic.CONNECTION, ConnectionAction.PONG))
        elif message.topic == Topic.AUTH:
            await self._login(json.loads(message.data or "null"))
        else:
            self.received.put_nowait(message)

    async def _login(self, credentials: Any) -> None:
        self.credentials.append(credentials)
        refusal = self._refuses(credentials)
        if refusal is None:
            await self.send(Message(Topic.AUTH, AuthAction.SUCCESSFUL, '{"team":"blue"}'))
        else:
            await self.send(Message(Topic.AUTH, AuthAction.UNSUCCESSFUL, json.dumps(refusal)))

    async def send(self, *messages: Message) -> None:
        """Sends messages, several as one batch."""
        await self.send_raw(b"".join(map(encode, messages)))

    async def send_raw(self, data: bytes | str) -> None:
        """Sends one WebSocket message."""
        assert self._peer is not None
        await self._peer.send(data)

    async def next(self) -> Message:
        """The oldest message that was not taken yet."""
        return await asyncio.wait_for(self.received.get(), DEADLINE_S)

    async def expect(self, topic: Topic, action: int) -> Message:
        """The oldest message, which must have this topic and action."""
        message = await self.next()
        assert (message.topic, message.action) == (topic, action), f"received {message}"
        return message

    async def acknowledge(self, message: Message) -> None:
        await self.send(Message(message.topic, message.action, correlation_id=message.correlation_id, is_ack=True))

    async def cut(self, code: int = 1011) -> None:
        """Ends the connection."""
        assert self._peer is not None
        await self._peer.close(code)
