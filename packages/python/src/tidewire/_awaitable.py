"""What an app awaits or iterates: outcomes, subscriptions, and streams of the values that arrive."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from ._error import TidewireError

T = TypeVar("T")
H = TypeVar("H", bound="Handle")


class Deferred(Generic[T]):
    """An outcome that the client settles, and that any number of tasks may await.

    A task that is cancelled while it waits does not cancel the outcome. A failure that no task awaits is not logged, because the client also
    reports it in other ways.
    """

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.shield(self._future).__await__()

    def resolve(self, value: T) -> None:
        """Settles the outcome, unless it is settled."""
        if not self._future.done():
            self._future.set_result(value)

    def reject(self, error: TidewireError) -> None:
        """Settles the outcome with a failure, unless it is settled."""
        if not self._future.done():
            self._future.set_exception(error)
            # Marks the failure as retrieved, so that asyncio does not log it.
            self._future.exception()


class Handle:
    """What an `async with` block waits for at its beginning, and closes at its end."""

    def __init__(self, ready: Deferred[None]) -> None:
        self._ready = ready

    def close(self) -> None:
        """Ends the use of the handle. It may be called more than once."""
        raise NotImplementedError

    async def __aenter__(self: H) -> H:
        """Waits until the handle is ready."""
        try:
            await self._ready
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()


class Subscription(Handle):
    """A subscription or a provider. Leaving its `async with` block removes it."""

    def __init__(self, ready: Deferred[None], remove: Callable[[], None]) -> None:
        super().__init__(ready)
        self._remove = remove
        self._is_removed = False

    @property
    def ready(self) -> Deferred[None]:
        """Await it for the server's confirmation, after which nothing is missed. It raises when the server refuses."""
        return self._ready

    def close(self) -> None:
        """Removes the subscription. It may be called more than once."""
        if not self._is_removed:
            self._is_removed = True
            self._remove()


class Inbox(Generic[T]):
    """The values that wait for an `async for` loop. The subscription decides how many may wait."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[object, T] = OrderedDict()
        self._changed = asyncio.Event()
        self._error: TidewireError | None = None
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, value: T, key: object = None) -> None:
        """Adds a value. With a key, it replaces the value that waits under the same key."""
        if not self._has_ended:
            key = object() if key is None else key
            self._waiting.pop(key, None)
            self._waiting[key] = value
            self._changed.set()

    def drop_oldest(self) -> None:
        self._waiting.popitem(last=False)

    def end(self, error: TidewireError | None = None) -> None:
        """No more values arrive. The loop gets the waiting ones, and then `error`, unless the app itself has closed the subscription."""
        if not self._has_ended:
            self._has_ended = True
            self._error = None if error is None or error.code == "CLOSED" else error
            self._changed.set()

    def __aiter__(self) -> Inbox[T]:
        return self

    async def __anext__(self) -> T:
        while not self._waiting:
            if self._has_ended:
                error, self._error = self._error, None
                raise StopAsyncIteration if error is None else error
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popitem(last=False)[1]


class Stream(Subscription, Generic[T]):
    """A subscription that an `async for` loop can follow, if it was made without a callback."""

    def __init__(self, ready: Deferred[None], remove: Callable[[], None], inbox: Inbox[T] | None) -> None:
        super().__init__(ready, remove)
        self._inbox = inbox

    def close(self) -> None:
        super().close()
        if self._inbox is not None:
            self._inbox.end()

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        if self._inbox is None:
            raise TypeError("a subscription with a callback has no loop: subscribe without a callback")
        return await self._inbox.__anext__()
