"""Events: publish and subscribe. If the server keeps a history of an event, a new session receives the events that it missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._awaitable import Inbox, Stream
from ._connection import Connection, Part, Refused
from ._error import TidewireError, check_name, invalid, refused, too_many
from ._interest import Interest, InterestActions
from ._json import MISSING, payload, value_of
from ._protocol import EventAction, Message, NamedPosition, Position, Topic


@dataclass(frozen=True)
class Event:
    """One event."""

    name: str
    payload: Any
    """The JSON value, or bytes; MISSING if the event has none."""
    position: Position | None = None
    """The position in the event's history, for a later `start`. None if the server keeps no history, and for events of this client."""
    traceparent: str | None = None
    """The trace context of the event (W3C Trace Context); None if the event has no trace."""
    content_type: str | None = None
    """The content type of bytes, such as `image/png`; None for JSON."""


@dataclass(frozen=True)
class Gap:
    """Events that were missed and will not arrive."""

    name: str
    """The name of the events, or the pattern of the subscription."""
    missed: int | None = None
    """The number of missed events; None if it is unknown."""


EventCallback = Callable[[Event], object]
GapCallback = Callable[[Gap], object]
EndCallback = Callable[[TidewireError], object]


class _Waiting(NamedTuple):
    """An event that waits for a connection."""

    message: Message
    deadline: float


@dataclass(eq=False)
class Subscriber:
    """A subscription to events: its callback, or the inbox of its loop."""

    key: str
    connection: Connection
    callback: EventCallback | None
    on_gap: GapCallback | None
    on_end: EndCallback | None
    inbox: Inbox[Event] | None
    _has_overflowed: bool = False

    def deliver(self, event: Event) -> None:
        if self.callback is not None:
            self.connection.call(self.callback, event)
        elif self.inbox is not None:
            self._keep(self.inbox, event)

    def _keep(self, inbox: Inbox[Event], event: Event) -> None:
        """Adds an event to the loop's inbox. If too many wait, the oldest one is dropped."""
        pending_max = self.connection.options.pending_max
        if len(inbox) >= pending_max:
            inbox.drop_oldest()
            if self.on_gap is not None:
                self.report_gap(Gap(self.key, 1))
            elif not self._has_overflowed:
                text = f'a loop over "{self.key}" is too slow, and the oldest events are dropped: pass on_gap, or raise pending_max'
                self.connection.report(TidewireError("TOO_MANY_PENDING", text, subject=self.key))
            self._has_overflowed = True
        inbox.push(event)

    def report_gap(self, gap: Gap) -> None:
        if self.on_gap is not None:
            self.connection.call(self.on_gap, gap)

    def end(self, error: TidewireError) -> None:
        if self.inbox is not None:
            self.inbox.end(error)


class Subscribers:
    """The subscribers of each name or pattern, and the interest that subscribes to it while it has one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._by_key: dict[str, list[Subscriber]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def keys(self) -> list[str]:
        return list(self._by_key)

    def of(self, key: str) -> list[Subscriber]:
        return list(self._by_key.get(key, ()))

    def add(self, subscriber: Subscriber, interest: Interest, forget: Callable[[str], None]) -> Stream[Event]:
        """Adds a subscriber. When the last one of its key is removed, calls `forget` and ends the interest."""
        self._by_key.setdefault(subscriber.key, []).append(subscriber)

        def remove() -> None:
            left = self._by_key.get(subscriber.key, [])
            if subscriber not in left:
                return
            left.remove(subscriber)
            if not left:
                forget(subscriber.key)
                self.forget(subscriber.key)
                interest.drop(subscriber.key)

        return Stream(interest.want(subscriber.key), remove, subscriber.inbox)

    def report_gap(self, gap: Gap) -> None:
        for subscriber in self.of(gap.name):
            subscriber.report_gap(gap)

    def end(self, key: str, error: TidewireError) -> None:
        """The server ended the subscription: informs the loops and callbacks. If there are none, the client reports the error."""
        subscribers = self.of(key)
        self.forget(key)
        for subscriber in subscribers:
            subscriber.end(error)
        loops = [subscriber for subscriber in subscribers if subscriber.inbox is not None]
        callbacks = [subscriber.on_end for subscriber in subscribers if subscriber.on_end is not None]
        if callbacks or not loops:
            self._connection.call_ends(callbacks, error)

    def end_loops(self, error: TidewireError) -> None:
        """The client is closed: the loops end."""
        for key in self.keys():
            for subscriber in self.of(key):
                subscriber.end(error)

    def forget(self, key: str) -> None:
        self._by_key.pop(key, None)


class Events:
    """The events of a client: `client.event`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._subscribers = Subscribers(connection)
        self._positions: dict[str, Position] = {}
        # Names with missed events that can't be recovered, because the server keeps no history of them.
        self._unkept: set[str] = set()
        # Names whose subscription the server has begun with a position or a gap. Events with an offset that arrive earlier belong to a former
        # subscription of the name, and come again in this one.
        self._begun: set[str] = set()
        self._queue: list[_Waiting] = []
        self._interest = Interest(
            connection,
            InterestActions(
                Topic.EVENT,
                EventAction.SUBSCRIBE,
                EventAction.UNSUBSCRIBE,
                self._end,
                positions=lambda names: [NamedPosition(name, self._positions.get(name)) for name in names],
            ),
        )
        self._patterns = Patterns(connection)
        connection.parts[Topic.EVENT] = [self._interest, self._patterns, _EventPart(self)]

    def emit(self, name: str, value: Any = MISSING) -> None:
        """Publishes an event to all other subscribers of its name, and at once to the subscribers in this client.

        The server does not acknowledge it. Without a connection the event waits at most `request_timeout_s`; if it is too late then,
        `on_error` reports it.

        Raises:
            TidewireError: INVALID_ARGUMENT if JSON can't express `value`, TOO_LARGE if the event exceeds the server's limit, OVERLOADED if
                too many bytes wait to be sent, TOO_MANY_PENDING if too many events wait for a connection, CLOSED after `close()`.
        """
        check_name(name)
        connection = self._connection
        connection.check_use()
        options = connection.options
        traceparent = None if options.traceparent is None else options.traceparent()
        message = Message(Topic.EVENT, EventAction.EMIT, payload(value), name=name, traceparent=traceparent or None)
        # If other events wait, this one waits behind them, so that they keep their order.
        if self._queue or not connection.send(message):
            connection.check_size(message)
            if len(self._queue) >= options.pending_max:
                raise too_many(options.pending_max)
            self._queue.append(_Waiting(message, time.monotonic() + options.request_timeout_s))
        self._deliver(message)

    def subscribe(
        self,
        name: str,
        callback: EventCallback | None = None,
        *,
        start: Position | None = None,
        on_gap: GapCallback | None = None,
        on_end: EndCallback | None = None,
    ) -> Stream[Event]:
        """Subscribes to every event of `name`: with a callback, or with an `async for` loop over the result.

        Args:
            callback: A plain function that is called with each Event. Without it, the events wait for the loop.
            start: The position after which the events continue, as an earlier event had it. Only for the first subscription of a name.
            on_gap: Called when events were missed: the server keeps no history of them, the history has ended, or this client reads too
                slowly.
            on_end: Called when the server refused the subscription or revoked the right to it: no more events arrive. A loop raises that
                error.
        """
        check_name(name)
        subscriber = self._subscriber(name, callback, on_gap, on_end)
        if start is not None:
            if name in self._subscribers:
                raise invalid(f'"{name}" has a subscription already, whose place can\'t be changed', name)
            self._positions[name] = Position(*start)
        return self._subscribers.add(subscriber, self._interest, self._forget)

    def subscribe_pattern(
        self,
        pattern: str,
        callback: EventCallback | None = None,
        *,
        on_gap: GapCallback | None = None,
        on_end: EndCallback | None = None,
    ) -> Stream[Event]:
        """Subscribes to every event whose name matches `pattern`. The server authorizes each name.

        Segments are divided by `/`; `*` matches one segment, and `**` at the end matches one or more. It takes the arguments of
        `subscribe`, without `start`. A Gap has the pattern as its name.
        """
        check_name(pattern, "pattern")
        return self._patterns.add(self._subscriber(pattern, callback, on_gap, on_end))

    def _subscriber(self, key: str, callback: EventCallback | None, on_gap: GapCallback | None, on_end: EndCallback | None) -> Subscriber:
        if callback is None:
            self._connection.check_use()
            return Subscriber(key, self._connection, None, on_gap, on_end, Inbox())
        self._connection.check_callback(callback)
        return Subscriber(key, self._connection, callback, on_gap, on_end, None)

    def _handle(self, message: Message, code: str | None) -> None:
        name = message.name or ""
        if code is not None:
            self._connection.report(refused(code, name))
        elif message.action == EventAction.EMIT:
            self._deliver(message)
        elif name not in self._subscribers:
            return
        elif message.action == EventAction.POSITION and message.epoch is not None:
            self._begin(name, Position(message.epoch, message.offset or 0))
        elif message.action == EventAction.GAP:
            # The position of a gap is the position of the first event after it.
            if message.epoch is not None and message.offset is not None:
                self._begin(name, Position(message.epoch, message.offset - 1))
            # If the gap has no position and no count, the server keeps no history. A lagging subscriber gets a count and keeps its position.
            elif message.missed is None:
                self._positions.pop(name, None)
            self._subscribers.report_gap(Gap(name, message.missed))

    def _opened(self, is_new: bool) -> None:
        queue, self._queue = self._queue, []
        for message, deadline in queue:
            try:
                if deadline <= time.monotonic():
                    raise TidewireError("TIMEOUT", "an event waited too long for a connection", subject=message.name)
                self._connection.send(message)
            except TidewireError as error:
                self._connection.report(error)
        if is_new:
            unkept, self._unkept = self._unkept, set()
            for name in unkept:
                self._subscribers.report_gap(Gap(name))

    def _lost(self) -> None:
        self._unkept.update(name for name in self._subscribers.keys() if name not in self._positions)

    def _closed(self, reason: TidewireError) -> None:
        self._queue = []
        self._subscribers.end_loops(reason)

    def _deliver(self, message: Message) -> None:
        name = message.name or ""
        is_early = message.offset is not None and name not in self._begun
        subscribers = ([] if is_early else self._subscribers.of(name)) + self._patterns.of(name)
        if not subscribers:
            return
        last = self._positions.get(name)
        position = None if message.offset is None or last is None else Position(last.epoch, message.offset)
        if position is not None:
            self._positions[name] = position
        payload = message.content
        for subscriber in subscribers:
            # Each subscriber may change its value, so each gets a copy.
            value = value_of(message.data) if payload is None else payload
            subscriber.deliver(Event(name, value, position, message.traceparent, message.content_type))

    def _begin(self, name: str, position: Position) -> None:
        self._positions[name] = position
        self._begun.add(name)

    def _end(self, name: str, error: TidewireError) -> None:
        self._forget(name)
        self._subscribers.end(name, error)

    def _forget(self, name: str) -> None:
        self._positions.pop(name, None)
        self._begun.discard(name)
        self._unkept.discard(name)


class _EventPart(Part):
    """The messages of events that concern no subscription request."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def handle(self, message: Message, code: str | None) -> bool:
        self._events._handle(message, code)
        return True

    def opened(self, is_new: bool) -> None:
        self._events._opened(is_new)

    def lost(self, refused: Refused | None) -> None:
        self._events._lost()

    def closed(self, reason: TidewireError) -> None:
        self._events._closed(reason)


def _matches(pattern: list[str], name: list[str]) -> bool:
    """Whether the segments of a name match a pattern."""
    has_rest = pattern[-1] == "**"
    fixed = pattern[:-1] if has_rest else pattern
    fits = len(name) > len(fixed) if has_rest else len(name) == len(fixed)
    return fits and all(segment in ("*", own) for segment, own in zip(fixed, name))


class Patterns(Part):
    """Subscriptions to patterns of events.

    The server sends each matching event once, under its name; the client finds the subscribers that its patterns match. Contract:
    `spec/deepstream.md`, "Patterns".
    """

    def __init__(self, connection: Connection) -> None:
        self._subscribers = Subscribers(connection)
        # The segments of each pattern.
        self._segments: dict[str, list[str]] = {}
        # Patterns whose events may have been missed since the connection was lost.
        self._missed: list[str] = []
        actions = InterestActions(Topic.EVENT, EventAction.SUBSCRIBE_PATTERNS, EventAction.UNSUBSCRIBE_PATTERNS, self._end)
        self._interest = Interest(connection, actions)

    def add(self, subscriber: Subscriber) -> Stream[Event]:
        self._segments[subscriber.key] = subscriber.key.split("/")
        return self._subscribers.add(subscriber, self._interest, self._forget)

    def of(self, name: str) -> list[Subscriber]:
        """The subscribers whose patterns match the name."""
        if not self._segments:
            return []
        segments = name.split("/")
        return [one for pattern, own in self._segments.items() if _matches(own, segments) for one in self._subscribers.of(pattern)]

    def handle(self, message: Message, code: str | None) -> bool:
        if message.action != EventAction.PATTERN_GAP:
            return self._interest.handle(message, code)
        self._subscribers.report_gap(Gap(message.name or "", message.missed))
        return True

    def opened(self, is_new: bool) -> None:
        self._interest.opened(is_new)
        if is_new:
            missed, self._missed = self._missed, []
            for pattern in missed:
                self._subscribers.report_gap(Gap(pattern))

    def lost(self, refused: Refused | None) -> None:
        self._interest.lost(refused)
        self._missed = self._subscribers.keys()

    def closed(self, reason: TidewireError) -> None:
        self._interest.closed(reason)
        self._subscribers.end_loops(reason)

    def _end(self, pattern: str, error: TidewireError) -> None:
        self._forget(pattern)
        self._subscribers.end(pattern, error)

    def _forget(self, pattern: str) -> None:
        self._segments.pop(pattern, None)
