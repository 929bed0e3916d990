"""Presence: which users are online, and which join or leave. Changes during a lost connection are reported after it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ._awaitable import Deferred, Inbox, Stream
from ._connection import Connection, Part
from ._error import TidewireError, check_name, invalid, invalid_message, refused
from ._interest import Interest, InterestActions
from ._json import value_of
from ._protocol import Message, PresenceAction, Topic
from ._request import Requests


@dataclass(frozen=True)
class PresenceChange:
    """The known state of a user at first, and later a change of it."""

    user: str
    is_online: bool


PresenceCallback = Callable[[PresenceChange], object]
EndCallback = Callable[[TidewireError], object]


@dataclass(eq=False)
class _Subscriber:
    connection: Connection
    callback: PresenceCallback | None
    on_end: EndCallback | None
    inbox: Inbox[PresenceChange] | None

    def deliver(self, change: PresenceChange) -> None:
        if self.callback is not None:
            self.connection.call(self.callback, change)
        elif self.inbox is not None:
            # A slow loop sees only the newest state of each user.
            self.inbox.push(change, change.user)

    def end(self, error: TidewireError) -> None:
        if self.inbox is not None:
            self.inbox.end(error)


@dataclass(eq=False)
class _Watch:
    """The watch of one user, or of all users."""

    known: Deferred[None] = field(default_factory=Deferred)
    subscribers: list[_Subscriber] = field(default_factory=list)
    online: set[str] | None = None
    """The watched users that are online; None until the server has answered."""
    newer: dict[str, bool] = field(default_factory=dict)
    """Changes that arrived after the query was sent, and are newer than its answer."""


_EVERYONE = ""
"""The key of the watch of all users; no user has this name."""
_ALL = "all"
"""The query for all users has no correlation id, and waits for its answer under this key."""


class Presence:
    """Which users are online: `client.presence`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests = Requests(connection)
        self._watches: dict[str, _Watch] = {}
        # The answer to a query for all users has no correlation id, so each query waits for the answer to the previous one.
        self._turn = asyncio.Lock()
        self._interest = Interest(
            connection,
            InterestActions(
                Topic.PRESENCE,
                PresenceAction.SUBSCRIBE,
                PresenceAction.UNSUBSCRIBE,
                self._end,
                confirmed=self._confirmed,
            ),
        )
        connection.parts[Topic.PRESENCE] = [self._interest, self._requests, _PresencePart(self)]

    async def all(self, *, timeout_s: float | None = None) -> list[str]:
        """Returns the ids of all other users that are online."""
        async with self._turn:
            message = Message(Topic.PRESENCE, PresenceAction.QUERY_ALL)
            return (await self._requests.ask(message, True, timeout_s, _ALL)).names

    async def query(self, users: Iterable[str], *, timeout_s: float | None = None) -> dict[str, bool]:
        """Tells for each of `users` whether it is online."""
        names = list(users)
        if isinstance(users, str) or not names:
            raise invalid("users must be a list that is not empty")
        for user in names:
            check_name(user, "user")
        message = Message(Topic.PRESENCE, PresenceAction.QUERY, names=names)
        answer = value_of((await self._requests.ask(message, True, timeout_s)).data)
        if not isinstance(answer, dict):
            raise invalid_message("the answer to a query for users is not an object")
        return answer

    def subscribe(self, user: str, callback: PresenceCallback | None = None, *, on_end: EndCallback | None = None) -> Stream[PresenceChange]:
        """Reports whether `user` is online, now and whenever that changes: to a callback, or to an `async for` loop over the result.

        `ready` is settled after the first report. A slow loop skips states that were already replaced.

        Args:
            on_end: Called when the server refused the subscription or revoked the right to it. A loop raises that error.
        """
        check_name(user, "user")
        return self._watch(user, callback, on_end)

    def subscribe_all(self, callback: PresenceCallback | None = None, *, on_end: EndCallback | None = None) -> Stream[PresenceChange]:
        """Reports all other users that are online, and later each user that joins or leaves. It takes the arguments of `subscribe`."""
        return self._watch(_EVERYONE, callback, on_end)

    def _watch(self, key: str, callback: PresenceCallback | None, on_end: EndCallback | None) -> Stream[PresenceChange]:
        if callback is None:
            self._connection.check_use()
            subscriber = _Subscriber(self._connection, None, on_end, Inbox())
        else:
            self._connection.check_callback(callback)
            subscriber = _Subscriber(self._connection, callback, on_end, None)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._start(key)
        watch.subscribers.append(subscriber)
        if watch.online is not None:
            asyncio.get_running_loop().call_soon(self._deliver_known, key, watch, subscriber)
        started = watch

        def remove() -> None:
            if subscriber in started.subscribers:
                started.subscribers.remove(subscriber)
            if not started.subscribers and self._watches.get(key) is started:
                self._stop(key)

        return Stream(watch.known, remove, subscriber.inbox)

    def _start(self, key: str) -> _Watch:
        watch = self._watches[key] = _Watch()
        if key == _EVERYONE:
            self._send_all(PresenceAction.SUBSCRIBE_ALL)
        else:
            self._interest.want(key)
        return watch

    def _stop(self, key: str) -> None:
        del self._watches[key]
        if key == _EVERYONE:
            self._send_all(PresenceAction.UNSUBSCRIBE_ALL)
        else:
            self._interest.drop(key)

    def _send_all(self, action: PresenceAction) -> None:
        self._connection.answer(Message(Topic.PRESENCE, action))

    def _handle(self, message: Message, code: str | None) -> None:
        action, name = message.action, message.name or ""
        if code is not None:
            self._handle_refusal(message, refused(code))
        elif action == PresenceAction.QUERY_RESPONSE:
            self._requests.settle(message.correlation_id, message)
        elif action == PresenceAction.QUERY_ALL_RESPONSE:
            self._requests.settle(_ALL, message)
        elif action == PresenceAction.SUBSCRIBE_ALL and message.is_ack:
            self._connection.run(self._learn_all())
        elif action in (PresenceAction.JOIN, PresenceAction.LEAVE):
            self._change(name, name, action == PresenceAction.JOIN)
        elif action in (PresenceAction.JOIN_ALL, PresenceAction.LEAVE_ALL):
            self._change(_EVERYONE, name, action == PresenceAction.JOIN_ALL)

    def _handle_refusal(self, message: Message, error: TidewireError) -> None:
        key = _ALL if message.original_action == PresenceAction.QUERY_ALL else message.correlation_id
        if message.original_action == PresenceAction.SUBSCRIBE_ALL:
            self._end(_EVERYONE, error)
        elif not self._requests.settle(key, error):
            self._connection.report(error)

    def _opened(self, is_new: bool) -> None:
        if is_new and _EVERYONE in self._watches:
            self._send_all(PresenceAction.SUBSCRIBE_ALL)

    def _closed(self, reason: TidewireError) -> None:
        for watch in self._watches.values():
            watch.known.reject(reason)
            for subscriber in watch.subscribers:
                subscriber.end(reason)

    def _confirmed(self, users: list[str]) -> None:
        """The server has just confirmed the subscription to `users`."""
        self._connection.run(self._learn(users))

    async def _learn(self, users: list[str]) -> None:
        asked = [self._asking(user) for user in users]
        states = await self._known(self.query(users))
        for user, watch in zip(users, asked):
            self._take(user, watch, None if states is None else {user} if states.get(user) else set())

    async def _learn_all(self) -> None:
        asked = self._asking(_EVERYONE)
        users = await self._known(self.all())
        self._take(_EVERYONE, asked, None if users is None else set(users))

    def _asking(self, key: str) -> _Watch | None:
        """Starts a query: only changes that arrive after this are newer than its answer."""
        watch = self._watches.get(key)
        if watch is not None:
            watch.newer.clear()
        return watch

    async def _known(self, query: Any) -> Any:
        """Returns the answer to a query. If it failed, reports that, unless the client was closed: the next session queries again."""
        try:
            return await query
        except TidewireError as error:
            if error.code != "CLOSED":
                self._connection.report(error)
            return None

    def _take(self, key: str, watch: _Watch | None, answer: set[str] | None) -> None:
        """Applies the answer to the query of `watch`."""
        if watch is None or self._watches.get(key) is not watch:
            return
        if answer is not None:
            for user, is_online in watch.newer.items():
                _put(answer, user, is_online)
            if watch.online is None:
                watch.online = answer
                for subscriber in list(watch.subscribers):
                    self._deliver_known(key, watch, subscriber)
            else:
                for user in sorted(watch.online | answer):
                    self._set(watch, user, user in answer)
        watch.known.resolve(None)

    def _deliver_known(self, key: str, watch: _Watch, subscriber: _Subscriber) -> None:
        """Reports the known state to a new subscriber."""
        if subscriber in watch.subscribers and watch.online is not None:
            for user in sorted(watch.online) if key == _EVERYONE else [key]:
                subscriber.deliver(PresenceChange(user, user in watch.online))

    def _change(self, key: str, user: str, is_online: bool) -> None:
        watch = self._watches.get(key)
        if watch is not None:
            watch.newer[user] = is_online
            self._set(watch, user, is_online)

    def _set(self, watch: _Watch, user: str, is_online: bool) -> None:
        if watch.online is None or (user in watch.online) == is_online:
            return
        _put(watch.online, user, is_online)
        for subscriber in list(watch.subscribers):
            subscriber.deliver(PresenceChange(user, is_online))

    def _end(self, key: str, error: TidewireError) -> None:
        watch = self._watches.pop(key, None)
        subscribers = [] if watch is None else watch.subscribers
        if watch is not None:
            watch.known.reject(error)
        for subscriber in subscribers:
            subscriber.end(error)
        callbacks = [subscriber.on_end for subscriber in subscribers if subscriber.on_end is not None]
        if callbacks or all(subscriber.inbox is None for subscriber in subscribers):
            self._connection.call_ends(callbacks, error)


class _PresencePart(Part):
    """The messages of presence that concern no subscription to one user."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    def handle(self, message: Message, code: str | None) -> bool:
        self._presence._handle(message, code)
        return True

    def opened(self, is_new: bool) -> None:
        self._presence._opened(is_new)

    def closed(self, reason: TidewireError) -> None:
        self._presence._closed(reason)


def _put(users: set[str], user: str, is_online: bool) -> None:
    if is_online:
        users.add(user)
    else:
        users.discard(user)
