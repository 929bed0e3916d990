"""One record as this client sees it: the server's value, with the unconfirmed edits on top.

At most one write of a record is in flight, with the version that it expects to make. Edits that are made before its answer are sent
together in the next write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Union

from ._awaitable import Deferred
from ._connection import Connection, Refused
from ._error import TidewireError, invalid, refused
from ._json import MISSING, Path, checked_path, copied, is_equal, is_same_value, payload, reuse, value_at, value_of, with_value
from ._protocol import Message, RecordAction, Topic


@dataclass(frozen=True)
class Conflict:
    """The argument of a merge function."""

    name: str
    remote: Any
    """The server's value."""
    local: Any
    """This client's value with its edits."""
    base: Any
    """The last value that both had."""


Merge = Union[Literal["local", "remote"], Callable[[Conflict], Any]]
"""How edits are merged if another client wrote first.

`local` applies them again to the new value, each at its path. `remote` discards them. A function returns the new value of the record.
"""


class Patch(NamedTuple):
    """A change at one path, or of the whole document without a path. MISSING removes the value there."""

    path: Path | None
    value: Any


class Seen(NamedTuple):
    """The state of a record that the client has seen. A repeated write names the one of its first attempt."""

    incarnation: int
    version: int


class Edit:
    """An edit that already shows. Await it until the edit is on the server's disk; it raises if the server refuses the edit.

    If the server refuses an edit that no task has awaited by then, `on_error` of the client receives the error.
    """

    def __init__(self) -> None:
        self._outcome: Deferred[None] = Deferred()
        self._is_awaited = False

    def __await__(self) -> Generator[Any, None, None]:
        self._is_awaited = True
        return self._outcome.__await__()


@dataclass(eq=False)
class _Unconfirmed:
    """A change that the server has not confirmed yet."""

    patches: list[Patch]
    update: Callable[[Any], Any] | None = None
    edits: list[Edit] = field(default_factory=list)
    """The edits of the app that this change contains: several after a merge."""


@dataclass(eq=False)
class _Flight:
    """A write that was sent to the server and has no answer yet."""

    message: Message
    count: int
    base: Any
    result: Any
    seen: Seen | None
    """The state of the record when the write was sent first."""
    is_repeated: bool = False
    """Whether the write was sent in an earlier session, which may have made it."""
    is_unknown: bool = False
    """Whether the server does not know if it has made the write."""

    @property
    def version(self) -> int:
        return self.message.version or 0


_EDITS_MAX = 100
"""The most edits in one write."""
_VERSION_MAX = 2**31 - 1
_CHANGES = (RecordAction.UPDATE, RecordAction.PATCH, RecordAction.PATCH_MULTI)


def _next(version: int) -> int:
    return 1 if version == _VERSION_MAX else version + 1


@dataclass(eq=False)
class _Watcher:
    path: Path | None
    callback: Callable[[Any], object]
    last: Any
    is_notified: bool = False


class Document:
    """The document that all handles of a record share."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        new_key: Callable[[], str],
        ended: Callable[[TidewireError], None],
        settled: Callable[[], None],
    ) -> None:
        self.name = name
        self.value: Any = MISSING
        """The value with the edits of this client; MISSING while it is unknown."""
        self.ready: Deferred[None] = Deferred()
        self.has_provider = False
        self.provider_watchers: dict[object, Callable[[bool], object]] = {}
        self.handles = 0
        """The number of open handles."""
        self.version = -1
        self.not_found: TidewireError | None = None
        """The error if the server has no such record and the document must not create it."""
        self.merge: Merge = "local"
        self.is_created = False
        """Whether the record is created if the server has none."""
        self._connection = connection
        self._new_key = new_key
        # Called when the server has refused the record.
        self._ended = ended
        # Called when all edits are confirmed.
        self._settled = settled
        self._watchers: list[_Watcher] = []
        self._base: Any = MISSING
        self._incarnation: int | None = None
        self._edits: list[_Unconfirmed] = []
        self._flight: _Flight | None = None
        # The number of edits that are sent one at a time, because the server refused a write that contained all of them.
        self._alone = 0
        self._removed: TidewireError | None = None
        # Whether the record's value has arrived in this session.
        self._is_read = False

    @property
    def is_saved(self) -> bool:
        return not self._edits

    def at(self, path: Path | None) -> Any:
        """The value at `path`, or the whole value; MISSING if there is none."""
        return self.value if path is None else value_at(self.value, path)

    def watch(self, path: Path | None, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Calls `callback` with the value at `path` as soon as it has arrived and at every change; returns the removal."""
        path = None if path is None else checked_path(path)
        watcher = _Watcher(path, callback, self.at(path))
        self._watchers.append(watcher)

        def first() -> None:
            # If the record has changed in this turn of the event loop, the watcher knows the new value.
            if watcher in self._watchers and not watcher.is_notified:
                watcher.is_notified = True
                self._connection.call(callback, watcher.last)

        if self.value is not MISSING:
            asyncio.get_running_loop().call_soon(first)

        def remove() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        return remove

    async def saved(self) -> None:
        """Returns when all edits so far are durable; raises the first refusal."""
        await asyncio.gather(*(edit for unconfirmed in self._edits for edit in unconfirmed.edits))

    def edit(self, patches: list[Patch], update: Callable[[Any], Any] | None = None) -> Edit:
        """Makes an edit, which shows at once. Raises if the edit itself is wrong; then nothing changes."""
        self._connection.check_use()
        over = self._removed or self.not_found
        if over is not None:
            raise over
        edit = Edit()
        unconfirmed = _Unconfirmed(_checked(patches), update, [edit])
        if self.version >= 0:
            # An update that fails changes nothing, and its caller receives the error.
            _applied(self.value, [unconfirmed])
        self._edits.append(unconfirmed)
        # Written before it is shown: if the server's limit is known, an edit that exceeds it never shows.
        self._write()
        self._show()
        return edit

    def handle(self, message: Message, code: str | None) -> None:
        """Handles a message about this record."""
        action, flight = message.action, self._flight
        is_own = flight is not None and message.correlation_id == flight.message.correlation_id
        if action == RecordAction.READ_RESPONSE:
            if self._handle_value(message):
                return
        elif action == RecordAction.INVALID_VERSION:
            # The server's version is older than this client's: the server has lost writes that this client has seen.
            if is_own:
                self._flight = None
            self._read()
        elif flight is not None and is_own and self._handle_answer(message, flight):
            pass
        elif action == RecordAction.WRITE_UNKNOWN:
            # It answers a write that no longer waits.
            return
        elif code is not None:
            if flight is not None and is_own:
                self._refuse(flight.count, refused(code, self.name))
            elif not self._is_read:
                self._ended(refused(code, self.name))
        elif action in (RecordAction.HAS_PROVIDER, RecordAction.HAS_NO_PROVIDER):
            self._provided(action == RecordAction.HAS_PROVIDER)
        elif action in _CHANGES:
            self._handle_change(message)
        else:
            # An answer to a write of an earlier session, or a notice, such as that the session has already subscribed to the record.
            return
        self._write()

    def _handle_value(self, message: Message) -> bool:
        """Takes the value that the session has read. Returns True if the record is missing."""
        version, flight = message.version or 0, self._flight
        self._is_read = True
        self._incarnation = message.incarnation
        if version < 0:
            self._miss()
            return True
        if flight is not None and flight.is_unknown:
            self._conflict(flight, value_of(message.data), version)
        else:
            self._take(value_of(message.data), version)
        self.ready.resolve(None)
        if flight is not None and flight.is_repeated and not flight.is_unknown:
            self._repeat(flight)
        return False

    def _handle_answer(self, message: Message, flight: _Flight) -> bool:
        """Handles the answer to the write in flight; False if the server refused it."""
        if message.action == RecordAction.WRITE_ACKNOWLEDGEMENT:
            self._confirm(flight)
        elif message.action == RecordAction.VERSION_EXISTS:
            if message.data is None:
                self._conflict_unseen(flight)
            else:
                self._conflict(flight, value_of(message.data), message.version or 0)
        elif message.action == RecordAction.WRITE_UNKNOWN:
            # The value shows what to do next, as after a conflict.
            flight.is_unknown = True
            self._read()
        else:
            return False
        return True

    def _handle_change(self, message: Message) -> None:
        """Takes another client's write."""
        version, flight = message.version or 0, self._flight
        if version == _next(self.version) or message.action == RecordAction.UPDATE:
            # An update has the whole value, so it is taken even if versions between are missing. `_next` also covers the step from the
            # largest version to 1.
            if self.version < version or version == _next(self.version):
                self._take(_remote(self._base, message), version)
        elif flight is not None and version == _next(flight.version) and flight.version == _next(self.version):
            # The change follows this client's own write, whose acknowledgement still waits for the disk.
            self._take(_remote(flight.result, message), version)
        elif version > self.version and self._is_read:
            self._read()

    def opened(self, is_new: bool) -> None:
        if not is_new:
            self._write()

    def unanswered(self) -> list[Message]:
        return [] if self._flight is None else [self._flight.message]

    def lost(self, too_large: Refused | None) -> None:
        self._is_read = False
        self._provided(False)
        flight = self._flight
        if flight is not None:
            flight.is_repeated = True
            if too_large is not None and flight.message is too_large.message:
                self._refuse(flight.count, too_large.error)

    def create(self) -> bool:
        """Makes the document create a missing record. True if the session has to subscribe to it again for that."""
        if self.is_created:
            return False
        self.is_created = True
        if self.version >= 0:
            return False
        if self.not_found is not None:
            self.ready = Deferred()
        self.not_found = None
        self._is_read = False
        return True

    def end(self, error: TidewireError) -> None:
        """Discards all edits."""
        self.ready.reject(error)
        self._flight = None
        edits, self._edits = self._edits, []
        self._fail(edits, error)
        self._show()

    def remove(self, error: TidewireError) -> None:
        """The record is gone for good: subscribers receive MISSING."""
        self._removed = error
        self.end(error)
        self._take(MISSING, -1)

    def _miss(self) -> None:
        """The server has no such record. If another client creates it, that arrives as a change."""
        missing = TidewireError("RECORD_NOT_FOUND", f'there is no record "{self.name}"', subject=self.name)
        self.end(missing)
        # If the record existed before, its outcome is already settled and can't fail.
        self.ready = Deferred()
        self.ready.reject(missing)
        self.not_found = missing
        self._take(MISSING, -1)
        self._settled()

    def _provided(self, has_provider: bool) -> None:
        if self.has_provider != has_provider:
            self.has_provider = has_provider
            for callback in list(self.provider_watchers.values()):
                self._connection.call(callback, has_provider)

    def _read(self) -> None:
        self._is_read = False
        self._connection.answer(Message(Topic.RECORD, RecordAction.READ, name=self.name))

    def _take(self, value: Any, version: int) -> None:
        if self.not_found is not None and version >= 0:
            self.not_found = None
            self.ready = Deferred()
            self.ready.resolve(None)
        self._base = reuse(self._base, value)
        self.version = version
        self._show()

    def _show(self) -> None:
        """Computes the value from the base and the edits, and notifies the watchers whose part has changed."""
        shown = MISSING if self.version < 0 else _applied(self._base, self._edits, skips_failures=True)
        self.value = reuse(self.value, shown)
        for watcher in list(self._watchers):
            part = self.at(watcher.path)
            if watcher in self._watchers and not is_same_value(part, watcher.last):
                watcher.last, watcher.is_notified = part, True
                self._connection.call(watcher.callback, part)

    def _repeat(self, flight: _Flight) -> None:
        """Sends a write again that an earlier session may have made."""
        if flight.seen is not None:
            flight.message = replace(flight.message, incarnation=flight.seen.incarnation, seen_version=flight.seen.version)
        try:
            self._connection.send(flight.message)
        except TidewireError as error:
            self._refuse(flight.count, error)

    def _write(self) -> None:
        """If no write is in flight, sends the next edits: as many as fit in one message."""
        count = 1 if self._alone > 0 else _EDITS_MAX
        while self._flight is None and self._edits and self._is_read:
            edits = self._edits[:count]
            try:
                if not self._send(edits):
                    return
            except TidewireError as error:
                if len(edits) > 1:
                    count = len(edits) // 2
                else:
                    self._refuse(1, error)
                    count = 1 if self._alone > 0 else _EDITS_MAX

    def _send(self, edits: list[_Unconfirmed]) -> bool:
        """Sends one write with `edits`; False without a connection. Raises if they are too large together."""
        patches = [patch for edit in edits for patch in edit.patches]
        try:
            result = _applied(self._base, edits)
        except TidewireError:
            raise
        except Exception as cause:
            raise TidewireError("CALLBACK_FAILED", f"the function of an update failed: {cause!r}", subject=self.name) from cause
        key = self._new_key()
        message = Message(
            Topic.RECORD,
            name=self.name,
            version=_next(self.version),
            is_write_ack=True,
            key=key,
            correlation_id=key,
        )
        _fill_write(message, edits, patches, result)
        if not self._connection.send(message):
            return False
        seen = None if self._incarnation is None else Seen(self._incarnation, self.version)
        self._flight = _Flight(message, len(edits), self._base, result, seen)
        return True

    def _confirm(self, flight: _Flight) -> None:
        self._flight = None
        self._alone = max(0, self._alone - 1)
        edits, self._edits = self._edits[: flight.count], self._edits[flight.count :]
        if flight.version == _next(self.version):
            self._take(flight.result, flight.version)
        else:
            # The base already includes this write: its value, or a later one, has arrived first.
            self._show()
        for edit in _edits_of(edits):
            edit._outcome.resolve(None)
        if self.is_saved:
            self._settled()

    def _is_doubtful(self, flight: _Flight) -> bool:
        """Whether a conflict leaves open if an earlier attempt was made.

        A server that sends incarnations reads the state that a repetition names.
        """
        return flight.is_repeated and (flight.message.seen_version is None or self._incarnation is None)

    def _conflict(self, flight: _Flight, value: Any, version: int) -> None:
        """Another client wrote first: merges the edits with its value."""
        # An update must not be made twice.
        is_once = any(edit.update is not None for edit in self._edits[: flight.count])
        # An older server that no longer knows the key answers with the value, which may be the result of the first attempt. It may also be
        # the result of another client's equal write. For patches the difference does not matter; of two equal updates one would be lost.
        is_doubtful = self._is_doubtful(flight)
        is_equal_result = is_doubtful and version == flight.version and is_equal(flight.result, value)
        if is_equal_result and not is_once:
            self._confirm(flight)
            return
        self._flight = None
        # If another client has made the version that this write was to make, with another value, this write was not made. In all other
        # cases it may have been.
        is_unknown = flight.is_unknown or (is_doubtful and (is_equal_result or version != flight.version))
        if is_unknown and is_once:
            edits, self._edits = self._edits[: flight.count], self._edits[flight.count :]
            self._fail(edits, TidewireError("WRITE_UNKNOWN", "the update may have been made", subject=self.name))
        elif self.merge == "remote":
            edits, self._edits = self._edits, []
            code = "WRITE_UNKNOWN" if flight.is_unknown else "CONFLICT"
            self._fail(edits, TidewireError(code, "another client was faster", subject=self.name))
        elif callable(self.merge):
            self._merge_by(self.merge, Conflict(self.name, value, self.value, flight.base))
        self._take(value, version)
        if self.is_saved:
            self._settled()

    def _merge_by(self, merge: Callable[[Conflict], Any], conflict: Conflict) -> None:
        """Replaces all edits by the value that the app's function returns."""
        edits, self._edits = self._edits, []
        try:
            merged = copied(merge(conflict))
            _check_document(merged)
        except Exception as cause:
            error = TidewireError("CONFLICT", f"the function that merges failed: {cause!r}", subject=self.name)
            error.__cause__ = cause
            self._fail(edits, error)
            return
        self._edits = [_Unconfirmed([Patch(None, merged)], None, _edits_of(edits))]

    def _conflict_unseen(self, flight: _Flight) -> None:
        """Another client wrote first, and this session may not read that value.

        There is nothing to merge with, so the edits of this write fail. The shown value belongs to an older version, so the session reads
        the record again. Later edits wait for that answer.
        """
        self._flight = None
        self._alone = max(0, self._alone - 1)
        # If the write was repeated, its first attempt may have made the version.
        code = "WRITE_UNKNOWN" if self._is_doubtful(flight) else "CONFLICT"
        edits, self._edits = self._edits[: flight.count], self._edits[flight.count :]
        self._fail(edits, TidewireError(code, "the newer value may not be read", subject=self.name))
        self._read()
        self._show()
        if self.is_saved:
            self._settled()

    def _refuse(self, count: int, error: TidewireError) -> None:
        """The server refused a write of `count` edits. Several are sent again one by one, to find the refused one."""
        self._flight = None
        if count > 1:
            self._alone = count
            return
        self._alone = max(0, self._alone - 1)
        edits, self._edits = self._edits[:1], self._edits[1:]
        self._fail(edits, error)
        # The store may have made the write in spite of the error.
        if error.code == "RECORD_UPDATE_ERROR":
            self._read()
        self._show()
        if self.is_saved:
            self._settled()

    def _fail(self, edits: list[_Unconfirmed], error: TidewireError) -> None:
        for edit in _edits_of(edits):
            edit._outcome.reject(error)
            # If an edit fails at once, `asyncio.wait_for` and `asyncio.gather` await it in the next turn of the event loop.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._report_unless_awaited, edit, error)

    def _report_unless_awaited(self, edit: Edit, error: TidewireError) -> None:
        if not edit._is_awaited:
            self._connection.report(error)


def _edits_of(unconfirmed: list[_Unconfirmed]) -> list[Edit]:
    return [edit for change in unconfirmed for edit in change.edits]


def _checked(patches: list[Patch]) -> list[Patch]:
    """Returns `patches` with copies of their values. Raises for patches that the server would refuse."""
    for path, value in patches:
        if path is None:
            _check_document(value)
    return [Patch(None if path is None else checked_path(path), copied(value)) for path, value in patches]


def _check_document(value: object) -> None:
    if not isinstance(value, (dict, list, tuple)):
        raise invalid("a record is an object or an array")


def _updated(value: Any, update: Callable[[Any], Any]) -> Any:
    """Returns the result of the app's function, which may change its argument."""
    result = copied(update(copied(value)))
    _check_document(result)
    return result


def _applied(value: Any, edits: list[_Unconfirmed], skips_failures: bool = False) -> Any:
    """Returns `value` after `edits`.

    An update may fail on a newer value than the one for which it was made. With `skips_failures` it then counts as no change: it fails
    when it is sent.
    """
    own: dict[int, Any] = {}
    for edit in edits:
        if edit.update is not None:
            try:
                value = _updated(value, edit.update)
            except Exception:
                if not skips_failures:
                    raise
        for path, leaf in edit.patches:
            value = leaf if path is None else with_value(value, path, leaf, own)
    return value


def _remote(base: Any, message: Message) -> Any:
    """Returns `base` after a write of another client."""
    value = value_of(message.data)
    if message.action == RecordAction.UPDATE:
        return value
    if message.action == RecordAction.PATCH:
        return with_value(base, message.path or "", value)
    for patch in value:
        base = with_value(base, patch["path"], patch.get("data", MISSING))
    return base


def _fill_write(message: Message, edits: list[_Unconfirmed], patches: list[Patch], result: Any) -> None:
    """Sets the action, path and payload of a write."""
    if any(edit.update is not None for edit in edits) or any(path is None for path, _ in patches):
        message.action = RecordAction.UPDATE
        message.data = payload(result)
        return
    path, value = patches[0]
    # Only a list of patches takes a path that no text can spell.
    if len(patches) > 1 or not isinstance(path, str):
        message.action = RecordAction.PATCH_MULTI
        listed = [{"path": path} if value is MISSING else {"path": path, "data": value} for path, value in patches]
        message.data = payload(listed)
        return
    message.action = RecordAction.ERASE if value is MISSING else RecordAction.PATCH
    message.path = path
    message.data = payload(value)
