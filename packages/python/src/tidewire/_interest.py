"""The names that a session subscribes to, provides or opens: events, users, rpcs and records.

Names that are added in one turn of the event loop are sent in one message. A new session asks for all names again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ._awaitable import Deferred
from ._connection import Connection, Part, Refused
from ._error import TidewireError, refused
from ._protocol import Message, NamedPosition

_BULK_MAX = 1_000
"""The most names of one message."""
_BULK_BYTES_MAX = 256 * 1024
"""About the most bytes of one message, so that it stays small."""


@dataclass(frozen=True)
class InterestActions:
    """The messages that subscribe to names and unsubscribe from them."""

    topic: int
    subscribe: int
    unsubscribe: int
    refused: Callable[[str, TidewireError], None]
    """The server refused a name, or revoked it; the client does not subscribe to it again."""
    subscribe_existing: int | None = None
    """Subscribes to names that must not be created, if the primitive has such names."""
    is_existing: Callable[[str], bool] = lambda name: False
    positions: Callable[[list[str]], list[NamedPosition]] = lambda names: []
    """The positions that the message that subscribes to the names has."""
    confirmed: Callable[[list[str]], None] = lambda names: None
    """The server has confirmed names for the first time in this session."""


@dataclass
class _Asked:
    """A name that the session has requested: the id of the message that did so, and the outcome of the request."""

    id: str
    ready: Deferred[None] | None


class Interest(Part):
    """Keeps the names of one kind subscribed."""

    def __init__(self, connection: Connection, actions: InterestActions) -> None:
        self._connection = connection
        self._actions = actions
        self._wanted: dict[str, Deferred[None]] = {}
        self._asked: dict[str, _Asked] = {}
        self._bulks: dict[str, list[str]] = {}
        self._changed: dict[str, None] = {}
        self._count = 0

    def want(self, name: str) -> Deferred[None]:
        """Subscribes to `name`, once for any number of calls. Settled when the server has confirmed."""
        ready = self._wanted.get(name)
        if ready is None:
            ready = self._wanted[name] = Deferred()
            self._change(name)
        return ready

    def drop(self, name: str) -> None:
        """Unsubscribes from `name`."""
        if self._wanted.pop(name, None) is not None:
            self._change(name)

    def forget(self, name: str) -> None:
        """The server has ended the subscription to `name` by itself, and the client no longer needs it."""
        self._asked.pop(name, None)
        self._wanted.pop(name, None)

    def handle(self, message: Message, code: str | None) -> bool:
        """Handles acknowledgements and refusals; False if `message` is neither."""
        actions = self._actions
        subscribes = (actions.subscribe, actions.subscribe_existing or actions.subscribe)
        if message.is_ack and message.action in (*subscribes, actions.unsubscribe):
            self._confirm(message.correlation_id or "")
            return True
        if code is None or message.original_action not in subscribes:
            return False
        self._handle_refusal(message, code)
        return True

    def _confirm(self, correlation_id: str) -> None:
        confirmed: list[str] = []
        for name in self._take(correlation_id):
            asked = self._asked.get(name)
            if asked is not None and asked.id == correlation_id:
                confirmed.append(name)
                if asked.ready is not None:
                    asked.ready.resolve(None)
        if confirmed:
            self._actions.confirmed(confirmed)

    def _handle_refusal(self, message: Message, code: str) -> None:
        # A refusal without a name refuses the whole message. A refusal without a correlation id revokes a right.
        correlation_id, name = message.correlation_id or "", message.name
        asked = self._take(correlation_id)
        left = [one for one in asked if one != name]
        if name is not None and left:
            self._bulks[correlation_id] = left
        for one in asked if name is None else [name]:
            last = self._asked.get(one)
            if last is not None and correlation_id in ("", last.id):
                self._refuse(one, refused(code, one))

    def opened(self, is_new: bool) -> None:
        """In a new session, subscribes to all names. In the same session, sends the changes that have waited for the connection."""
        if is_new:
            self.lost(None)
            self._changed = dict.fromkeys(self._wanted)
        self._flush()

    def lost(self, refused: Refused | None) -> None:
        self._asked.clear()
        self._bulks.clear()

    def closed(self, reason: TidewireError) -> None:
        """Rejects the outcomes that still wait. After the next `connect()`, the client subscribes to the names again."""
        for ready in self._wanted.values():
            ready.reject(reason)

    def _change(self, name: str) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._changed[name] = None

    def _flush(self) -> None:
        if self._connection.state != "open":
            return
        changed, self._changed = list(self._changed), {}
        # If a name was dropped and is wanted again, the session unsubscribes and subscribes again, so that it receives the current value.
        unwanted = [name for name in changed if name in self._asked and self._asked[name].ready is not self._wanted.get(name)]
        for name in unwanted:
            del self._asked[name]
        wanted = [name for name in changed if name in self._wanted and name not in self._asked]
        actions = self._actions
        self._send(actions.unsubscribe, unwanted)
        self._send(actions.subscribe, [name for name in wanted if not actions.is_existing(name)])
        if actions.subscribe_existing is not None:
            self._send(actions.subscribe_existing, [name for name in wanted if actions.is_existing(name)])

    def _send(self, action: int, names: list[str]) -> None:
        """Sends the names in as few messages as their sizes allow."""
        # A name may occur in two fields, one of which also has numbers.
        bytes_max = min(_BULK_BYTES_MAX, self._connection.message_bytes_max / 2)
        bulk: list[str] = []
        size = 0
        for name in names:
            own = len(name.encode()) * 2 + 40
            if bulk and (len(bulk) == _BULK_MAX or size + own > bytes_max):
                self._send_bulk(action, bulk)
                bulk, size = [], 0
            bulk.append(name)
            size += own
        if bulk:
            self._send_bulk(action, bulk)

    def _send_bulk(self, action: int, names: list[str]) -> None:
        correlation_id = str(self._count)
        self._count += 1
        self._bulks[correlation_id] = names
        message = Message(self._actions.topic, action, correlation_id=correlation_id, names=names)
        if action != self._actions.unsubscribe:
            message.positions = self._actions.positions(names)
            for name in names:
                self._asked[name] = _Asked(correlation_id, self._wanted.get(name))
        try:
            self._connection.send(message)
        except TidewireError as error:
            self._take(correlation_id)
            for name in names:
                self._refuse(name, error)

    def _take(self, correlation_id: str) -> list[str]:
        return self._bulks.pop(correlation_id, [])

    def _refuse(self, name: str, error: TidewireError) -> None:
        ready = self._wanted.get(name)
        self.forget(name)
        if ready is not None:
            ready.reject(error)
            self._actions.refused(name, error)
