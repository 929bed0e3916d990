"""The records of a client: handles that share one document for each name, and requests that need no subscription."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast, overload

from ._awaitable import Deferred, Handle, Inbox
from ._connection import Connection, Part, Refused
from ._error import TidewireError, check_name, invalid, refused
from ._interest import Interest, InterestActions
from ._json import MISSING, Path, Step, checked_path, none_if_missing, payload, steps, value_at, value_of
from ._protocol import Message, RecordAction, Topic
from ._record import Document, Edit, Merge, Patch
from ._request import Requests

D = TypeVar("D")

EndCallback = Callable[[TidewireError], object]


class Record(Handle, Generic[D]):
    """An open record: its value, with the edits of this client that the server has not confirmed yet.

    The client never changes a value, it only replaces it: an unchanged part stays the same object. The app must not change it either. The
    methods that edit return at once, and the change shows at once. Await their result until the change is on the server's disk; if the
    server refuses the change, it is rolled back. `async with` waits until the value has arrived, and closes the record at its end.
    """

    def __init__(self, document: Document, connection: Connection, release: Callable[[], None]) -> None:
        """Call `client.record` to open a record."""
        super().__init__(document.ready)
        self.name = document.name
        self._document = document
        self._connection = connection
        self._release = release
        self._stops: dict[object, Callable[[], None]] = {}
        self._is_closed = False
        # The values that wait for the loops of `changes`.
        self._inboxes: set[Inbox[Any]] = set()
        # The error with which the server has ended the record.
        self._error: TidewireError | None = None

    @property
    def ready(self) -> Deferred[None]:
        """Await it until the value has arrived.

        It raises if the server refuses the record, or RECORD_NOT_FOUND if the record is missing and must not be created.
        """
        return self._ready

    @property
    def value(self) -> D | None:
        """The document; None before `ready`, while the record does not exist, and after it was deleted."""
        return cast("D | None", none_if_missing(self._document.value))

    @property
    def version(self) -> int:
        """The version that the server has confirmed; -1 before `ready`."""
        return self._document.version

    @property
    def not_found(self) -> TidewireError | None:
        """The error RECORD_NOT_FOUND while the server has no such record and the handle must not create it."""
        return self._document.not_found

    @property
    def is_saved(self) -> bool:
        """Whether all edits are durable at the server."""
        return self._document.is_saved

    @property
    def has_provider(self) -> bool:
        """Whether a listening client provides the record."""
        return self._document.has_provider

    def get(self, path: Path, default: Any = None) -> Any:
        """Returns the value at `path`, or `default` if there is none."""
        value = self._document.at(checked_path(path))
        return default if value is MISSING else value

    def replace(self, value: D) -> Edit:
        """Replaces the whole document."""
        return self._edit([Patch(None, value)])

    def set(self, path: Path, value: Any) -> Edit:
        """Sets the value at `path`. Missing containers on the way are created."""
        return self._edit([Patch(path, value)])

    def erase(self, path: Path) -> Edit:
        """Removes the value at `path`; an entry of a list becomes None."""
        return self._edit([Patch(path, MISSING)])

    def patch(self, changes: Mapping[str, Any] | Iterable[tuple[Path, Any]]) -> Edit:
        """Changes several paths in one step: a mapping of paths to values, or pairs of them. MISSING removes the value at its path."""
        pairs = changes.items() if isinstance(changes, Mapping) else changes
        patches = [Patch(path, value) for path, value in pairs]
        if not patches:
            raise invalid("a patch needs at least one change", self.name)
        return self._edit(patches)

    def merge(self, changes: Mapping[str, Any], path: Path | None = None) -> Edit:
        """Merges an object into the document, or into the value at `path`, in one step.

        Objects inside are merged key by key; every other value replaces the value there, and MISSING removes it. Edits of other clients to
        other keys stay.
        """
        base: list[Step] = [] if path is None else steps(checked_path(path))
        current = self._document.value if path is None else self._document.at(path)
        patches = list(_merged(base, current, changes))
        if not patches:
            raise invalid("a merge needs at least one change", self.name)
        return self._edit(patches)

    def update(self, update: Callable[[D], D]) -> Edit:
        """Replaces the document with the result of `update`.

        If another client wrote first, `update` is called again, so it must have no side effects. It gets a copy, which it may change and
        return. If the connection was lost and the server does not know whether it has made the update, the edit fails with WRITE_UNKNOWN.
        """
        self._check()
        if not callable(update):
            raise invalid("the update must be a function", self.name)
        return self._document.edit([], update)

    async def saved(self) -> None:
        """Returns when everything edited so far is durable; raises the first refusal."""
        await self._document.saved()

    def subscribe(self, callback: Callable[[Any], object], path: Path | None = None) -> Callable[[], None]:
        """Calls `callback` with the document, or with the value at `path`: as soon as it has arrived, and at every change.

        A missing value is MISSING. Returns the removal.
        """
        self._check()
        self._connection.check_callback(callback)
        return self._keep(self._document.watch(path, callback))

    async def changes(self, path: Path | None = None) -> AsyncGenerator[Any, None]:
        """Yields the document, or the value at `path`: as soon as it has arrived, and at every change.

        A slow loop skips values that were already replaced. A missing value is MISSING. The loop ends when the record is closed, and raises
        the error when the record is deleted or refused.
        """
        self._check()
        self._connection.check_use()
        inbox: Inbox[Any] = Inbox()
        stop = self._keep(self._document.watch(path, lambda value: inbox.push(value, "newest")))
        self._inboxes.add(inbox)
        if self._error is not None:
            inbox.end(self._error)
        try:
            async for value in inbox:
                yield value
        finally:
            stop()
            self._inboxes.discard(inbox)

    def on_provider(self, callback: Callable[[bool], object]) -> Callable[[], None]:
        """Calls `callback` when the record gets a provider, and when it loses its last one; returns the removal."""
        self._check()
        self._connection.check_callback(callback)
        watchers, key = self._document.provider_watchers, object()
        watchers[key] = callback

        def stop() -> None:
            watchers.pop(key, None)

        return self._keep(stop)

    def close(self) -> None:
        """Closes the handle and ends its subscriptions; edits still reach the server."""
        if self._is_closed:
            return
        self._is_closed = True
        for stop in list(self._stops.values()):
            stop()
        for inbox in self._inboxes:
            inbox.end()
        self._release()

    def _edit(self, patches: list[Patch]) -> Edit:
        self._check()
        return self._document.edit(patches)

    def _keep(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Registers `stop` for the time when the handle is closed, and returns a removal that calls it earlier."""
        key = object()
        self._stops[key] = stop

        def remove() -> None:
            if self._stops.pop(key, None) is not None:
                stop()

        return remove

    def _end(self, error: TidewireError) -> None:
        """The record was deleted or refused, or the client was closed."""
        self._error = None if error.code == "CLOSED" else error
        for inbox in self._inboxes:
            inbox.end(error)

    def _check(self) -> None:
        if self._is_closed:
            raise TidewireError("CLOSED", f'the handle of "{self.name}" is closed', subject=self.name)


def _merged(base: list[Step], current: Any, changes: Mapping[str, Any]) -> Iterable[Patch]:
    """The patches that merge `changes` into `current`, which is at the path `base`."""
    for key, value in changes.items():
        path = [*base, key]
        inside = value_at(current, [key]) if isinstance(current, dict) else MISSING
        # An empty object creates itself, and changes nothing where an object is.
        if isinstance(value, Mapping) and (value or isinstance(inside, dict)):
            yield from _merged(path, inside, value)
        else:
            yield Patch(path, value)


class Records:
    """The records of a client: `client.record` opens one, and its methods need no open record."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests = Requests(connection)
        self._documents: dict[str, Document] = {}
        self._handles: dict[Document, dict[Record[Any], EndCallback | None]] = {}
        self._key_prefix = secrets.token_urlsafe(16)
        self._keys = 0
        self._interest = Interest(
            connection,
            InterestActions(
                Topic.RECORD,
                RecordAction.SUBSCRIBE_CREATE_AND_READ,
                RecordAction.UNSUBSCRIBE,
                self._end,
                subscribe_existing=RecordAction.SUBSCRIBE_AND_READ,
                is_existing=self._is_existing,
            ),
        )
        connection.parts[Topic.RECORD] = [self._interest, self._requests, _RecordPart(self)]

    @overload
    def __call__(
        self, name: str, of: None = None, *, merge: Merge | None = None, create: bool = True, on_end: EndCallback | None = None
    ) -> Record[Any]: ...

    @overload
    def __call__(
        self, name: str, of: type[D], *, merge: Merge | None = None, create: bool = True, on_end: EndCallback | None = None
    ) -> Record[D]: ...

    def __call__(
        self, name: str, of: type[D] | None = None, *, merge: Merge | None = None, create: bool = True, on_end: EndCallback | None = None
    ) -> Record[Any]:
        """Opens the record `name`. Close it when the app no longer needs it, or use `async with`.

        Args:
            of: The type of the document, such as a TypedDict. It only informs the type checker.
            merge: How edits are merged if another client wrote first: `local` by default. It applies to all handles of the record.
            create: Whether a missing record is created. If not, `ready` and all edits fail with RECORD_NOT_FOUND, and the value arrives as
                soon as another client has written the record.
            on_end: Called when the server refused the record or revoked the right to it, or when the record was deleted: no more changes
                arrive.
        """
        check_name(name)
        self._connection.check_use()
        document = self._documents.get(name)
        if document is None:
            document = self._open(name, create)
        elif create and document.create():
            # The session may have subscribed without creating the record, so it subscribes again.
            self._interest.drop(name)
            self._interest.want(name)
        document.handles += 1
        if merge is not None:
            document.merge = merge
        opened = document
        handles = self._handles.setdefault(opened, {})

        def release() -> None:
            handles.pop(record, None)
            opened.handles -= 1
            self._tidy(opened)

        record: Record[Any] = Record(opened, self._connection, release)
        handles[record] = on_end
        return record

    def _open(self, name: str, create: bool) -> Document:
        def ended(error: TidewireError) -> None:
            self._interest.drop(name)
            self._end(name, error)

        document = Document(name, self._connection, self._new_key, ended, lambda: self._tidy(document))
        self._documents[name] = document
        document.is_created = create
        self._interest.want(name)
        return document

    async def read(self, name: str, *, timeout_s: float | None = None) -> Any:
        """Reads a record once, without opening it; MISSING if it does not exist."""
        check_name(name)
        message = Message(Topic.RECORD, RecordAction.FETCH, name=name)
        return value_of((await self._requests.ask(message, True, timeout_s)).data)

    async def write(self, name: str, value: Any, *, timeout_s: float | None = None) -> None:
        """Replaces or creates a record without opening it; returns when the write is on the server's disk."""
        check_name(name)
        message = Message(Topic.RECORD, RecordAction.CREATE_AND_UPDATE, payload(value), name=name)
        message.version, message.is_write_ack, message.key = -1, True, self._new_key()
        await self._requests.ask(message, True, timeout_s)

    async def delete(self, name: str, *, timeout_s: float | None = None) -> None:
        """Deletes a record for all clients; returns when that is on the server's disk, also if the record did not exist."""
        check_name(name)
        message = Message(Topic.RECORD, RecordAction.DELETE, name=name)
        await self._requests.ask(message, True, timeout_s, _deletion(name))

    def _is_existing(self, name: str) -> bool:
        document = self._documents.get(name)
        return document is not None and not document.is_created

    def _handle(self, message: Message, code: str | None) -> None:
        action, name = message.action, message.name or ""
        error = None if code is None else refused(code, name)
        is_gone = action in (RecordAction.DELETE_SUCCESS, RecordAction.DELETED)
        is_deletion = is_gone or message.original_action == RecordAction.DELETE or code == "RECORD_DELETE_ERROR"
        key = _deletion(name) if is_deletion else message.correlation_id
        is_answer = action != RecordAction.DELETED and self._requests.settle(key, error or message)
        if is_gone:
            self._interest.forget(name)
            self._end(name, TidewireError("RECORD_DELETED", f'"{name}" was deleted', subject=name))
        elif not is_answer:
            document = self._documents.get(name)
            if document is not None:
                document.handle(message, code)
            elif error is not None:
                self._connection.report(error)

    def _end(self, name: str, error: TidewireError) -> None:
        document = self._documents.pop(name, None)
        if document is None:
            return
        handles = self._handles.pop(document, {})
        document.remove(error)
        for record, on_end in list(handles.items()):
            record._end(error)
            if on_end is not None:
                self._connection.call(on_end, error)

    def _tidy(self, document: Document) -> None:
        """Releases a record that has no open handle and no unconfirmed edits."""
        name = document.name
        if self._documents.get(name) is document and document.handles == 0 and document.is_saved:
            del self._documents[name]
            self._handles.pop(document, None)
            self._interest.drop(name)

    def _new_key(self) -> str:
        """A key that no other write has."""
        self._keys += 1
        return f"{self._key_prefix}-{self._keys}"

    def _closed(self, reason: TidewireError) -> None:
        for document in list(self._documents.values()):
            document.end(reason)
            for record in list(self._handles.get(document, ())):
                record._end(reason)


class _RecordPart(Part):
    """The messages of records that concern no subscription request."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def _documents(self) -> list[Document]:
        return list(self._records._documents.values())

    def handle(self, message: Message, code: str | None) -> bool:
        self._records._handle(message, code)
        return True

    def opened(self, is_new: bool) -> None:
        for document in self._documents():
            document.opened(is_new)

    def unanswered(self) -> list[Message]:
        return [message for document in self._documents() for message in document.unanswered()]

    def lost(self, refused: Refused | None) -> None:
        for document in self._documents():
            document.lost(refused)

    def closed(self, reason: TidewireError) -> None:
        self._records._closed(reason)


def _deletion(name: str) -> str:
    """The key under which a deletion waits for its answer, which has no correlation id."""
    return f"delete {name}"
