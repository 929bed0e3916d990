"""Requests that have one answer each: they wait until the answer, the deadline, a cancellation, or the loss of the connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ._awaitable import Deferred
from ._connection import Connection, Part, Refused
from ._error import TidewireError, too_many
from ._protocol import Message


@dataclass(eq=False)
class _Pending:
    key: str
    message: Message
    is_repeatable: bool
    """Whether the request may be sent twice without harm."""
    timer: asyncio.TimerHandle
    answer: Deferred[Message] = field(default_factory=Deferred)
    waiting: int = 0
    """The number of tasks that wait for the answer."""
    is_sent: bool = False


class Requests(Part):
    """The requests of one topic."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pending: dict[str, _Pending] = {}
        self._count = 0

    async def ask(self, message: Message, is_repeatable: bool, timeout_s: float | None = None, key: str | None = None) -> Message:
        """Sends `message` as soon as the connection is open, and waits until `settle` is called for it.

        Without `key`, the message gets a new correlation id. With it, the answer to an equal request that waits already serves both. If the
        waiting task is cancelled, the server may still carry out the request.
        """
        self._connection.check_use()
        pending = self._pending.get(key or "")
        if pending is None:
            pending = self._start(message, is_repeatable, timeout_s, key)
        pending.waiting += 1
        try:
            return await pending.answer
        finally:
            pending.waiting -= 1
            if pending.waiting == 0:
                self._forget(pending)

    def _start(self, message: Message, is_repeatable: bool, timeout_s: float | None, key: str | None) -> _Pending:
        options = self._connection.options
        if len(self._pending) >= options.pending_max:
            raise too_many(options.pending_max)
        if key is None:
            key = message.correlation_id = str(self._count)
            self._count += 1
        is_sent = self._connection.send(message)
        timeout_s = options.request_timeout_s if timeout_s is None else timeout_s
        timer = asyncio.get_running_loop().call_later(timeout_s, self._time_out, key, timeout_s)
        pending = self._pending[key] = _Pending(key, message, is_repeatable, timer, is_sent=is_sent)
        return pending

    def _time_out(self, key: str, timeout_s: float) -> None:
        pending = self._pending[key]
        why = "no answer came" if pending.is_sent else "there was no connection"
        self._fail(pending, TidewireError("TIMEOUT", f"{why} within {timeout_s:g} s", subject=pending.message.name))

    def settle(self, key: str | None, answer: Message | TidewireError) -> bool:
        """Settles the request `key` with an answer or an error; False if the request no longer waits."""
        pending = self._pending.get(key or "")
        if pending is None:
            return False
        if isinstance(answer, TidewireError):
            self._fail(pending, answer)
        else:
            self._forget(pending)
            pending.answer.resolve(answer)
        return True

    def _fail(self, pending: _Pending, error: TidewireError) -> None:
        self._forget(pending)
        pending.answer.reject(error)

    def _forget(self, pending: _Pending) -> None:
        pending.timer.cancel()
        # A later request may have the same key.
        if self._pending.get(pending.key) is pending:
            del self._pending[pending.key]

    def opened(self, is_new: bool) -> None:
        for pending in list(self._pending.values()):
            try:
                pending.is_sent = pending.is_sent or self._connection.send(pending.message)
            except TidewireError as error:
                self._fail(pending, error)

    def unanswered(self) -> list[Message]:
        return [pending.message for pending in self._pending.values() if pending.is_sent]

    def lost(self, refused: Refused | None) -> None:
        """A repeatable request is sent again in the next session.

        Any other request fails if it was sent, because the server may have carried it out.
        """
        for pending in list(self._pending.values()):
            if refused is not None and pending.message is refused.message:
                self._fail(pending, refused.error)
            elif pending.is_repeatable:
                pending.is_sent = False
            elif pending.is_sent:
                text = "the connection was lost before the answer: the server may have carried out the request"
                self._fail(pending, TidewireError("CONNECTION_LOST", text, subject=pending.message.name))

    def closed(self, reason: TidewireError) -> None:
        for pending in list(self._pending.values()):
            self._fail(pending, reason)
