"""Remote procedure calls: calling the provider of a name, and providing a name."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._awaitable import Subscription
from ._connection import Connection, Part, Refused
from ._error import RpcError, RpcReject, TidewireError, check_name, invalid, refused
from ._interest import Interest, InterestActions
from ._json import MISSING, none_if_missing, payload, value_of
from ._protocol import Message, RpcAction, Topic
from ._request import Requests

_FAILED = "PROVIDER_FAILED"
"""The `data` of the caller's error if a provider fails in another way than by an RpcError. It does not reveal the cause."""


@dataclass(frozen=True)
class Call:
    """A call that a provider answers."""

    name: str
    argument: Any
    """The JSON value; MISSING if the caller gave none."""
    requestor: str | None
    """The caller's user id, if the server is configured to send it (`rpc.requestor_name`)."""
    requestor_data: Any
    """The caller's client data, if the server is configured to send it (`rpc.requestor_data`)."""


Answer = Callable[[Call], Any]
"""A function that returns the result of a call, or that is a coroutine function with that result."""


@dataclass(eq=False)
class _Provider:
    answer: Answer
    on_end: Callable[[TidewireError], object] | None


class Rpcs:
    """The rpcs of a client: `client.rpc`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests = Requests(connection)
        self._providers: dict[str, _Provider] = {}
        self._interest = Interest(connection, InterestActions(Topic.RPC, RpcAction.PROVIDE, RpcAction.UNPROVIDE, self._end))
        # The calls of this session that are being answered, also by removed providers.
        self._running: set[asyncio.Task[Any]] = set()
        connection.parts[Topic.RPC] = [self._interest, self._requests, _RpcPart(self)]

    async def call(self, name: str, argument: Any = MISSING, *, timeout_s: float | None = None) -> Any:
        """Calls `name` and returns the provider's answer; MISSING if the answer has no value.

        Raises:
            TidewireError: The code is the cause of the failure: REQUEST_ERROR with the provider's reason as `data`, NO_RPC_PROVIDER,
                ACCEPT_TIMEOUT, RESPONSE_TIMEOUT, MESSAGE_DENIED, TIMEOUT, or CONNECTION_LOST if the connection was lost before the answer,
                so that the provider may have carried out the call.
        """
        check_name(name)
        message = Message(Topic.RPC, RpcAction.REQUEST, payload(argument), name=name)
        answer = await self._requests.ask(message, False, timeout_s)
        value = value_of(answer.data)
        if answer.action == RpcAction.RESPONSE:
            return value
        raise TidewireError("REQUEST_ERROR", f'the provider of "{name}" refused the call', subject=name, data=none_if_missing(value))

    def provide(self, name: str, answer: Answer, *, on_end: Callable[[TidewireError], object] | None = None) -> Subscription:
        """Answers calls of `name` with the result of `answer`, which may be a coroutine function.

        An RpcError that it raises fails the call with its data; RpcReject passes the call to another provider. `on_error` reports other
        failures, and the caller receives PROVIDER_FAILED, or TOO_LARGE for an answer that exceeds the server's limit. If the connection is
        lost, the tasks of running calls are cancelled, because the answer can no longer be sent.

        Args:
            on_end: Called when the server refused the name or revoked the right to it: no more calls arrive.
        """
        check_name(name)
        self._connection.check_use()
        if not callable(answer):
            raise invalid("the provider must be a function", name)
        if name in self._providers:
            raise invalid(f'"{name}" is provided by this client already', name)
        provider = self._providers[name] = _Provider(answer, on_end)

        def remove() -> None:
            if self._providers.get(name) is provider:
                del self._providers[name]
                self._interest.drop(name)

        return Subscription(self._interest.want(name), remove)

    def _handle(self, message: Message, code: str | None) -> None:
        if message.action == RpcAction.REQUEST:
            self._start(message)
        elif message.action in (RpcAction.RESPONSE, RpcAction.REQUEST_ERROR):
            self._requests.settle(message.correlation_id, message)
        elif code is not None:
            # If no request has this correlation id, the server has refused an answer to a call that had already ended. That needs no report.
            self._requests.settle(message.correlation_id, refused(code, message.name))

    def _start(self, request: Message) -> None:
        provider = self._providers.get(request.name or "")
        if provider is None:
            self._send(request, RpcAction.REJECT)
            return
        self._send(request, RpcAction.ACCEPT)
        task = self._connection.run(self._answer(provider.answer, request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, answer: Answer, request: Message) -> None:
        name = request.name or ""
        try:
            data = none_if_missing(value_of(request.requestor_data))
            result = answer(Call(name, value_of(request.data), request.requestor_name, data))
            if inspect.isawaitable(result):
                result = await result
            self._reply(request, RpcAction.RESPONSE, payload(result))
        except RpcReject:
            self._reply(request, RpcAction.REJECT)
        except RpcError as error:
            self._reply_error(request, error)
        except asyncio.CancelledError:
            # The provider has cancelled itself. If the session has ended, this sends nothing.
            self._reply(request, RpcAction.REQUEST_ERROR, payload(_FAILED))
            raise
        except Exception as cause:
            self._fail(request, cause)

    def _reply_error(self, request: Message, error: RpcError) -> None:
        try:
            data = payload(error.data)
        except TidewireError as cause:
            self._fail(request, cause)
            return
        self._reply(request, RpcAction.REQUEST_ERROR, data)

    def _fail(self, request: Message, cause: Exception) -> None:
        self._reply(request, RpcAction.REQUEST_ERROR, payload(_FAILED))
        error = TidewireError(_FAILED, f'the provider of "{request.name}" failed: {cause!r}', subject=request.name)
        error.__cause__ = cause
        self._connection.report(error)

    def _reply(self, request: Message, action: RpcAction, data: str | None = None) -> None:
        """Sends the answer of the running task, unless its session has ended."""
        if asyncio.current_task() in self._running:
            self._send(request, action, data)

    def _send(self, request: Message, action: RpcAction, data: str | None = None) -> None:
        def message(action: RpcAction, data: str | None) -> Message:
            return Message(Topic.RPC, action, data, correlation_id=request.correlation_id, name=request.name)

        error = self._connection.answer(message(action, data))
        if error is not None:
            self._connection.report(error)
            self._connection.answer(message(RpcAction.REQUEST_ERROR, payload(error.code)))

    def _lost(self) -> None:
        running = list(self._running)
        # The cancelled tasks must not answer: `_reply` sends nothing for a task that is not in this set.
        self._running.clear()
        for task in running:
            task.cancel()

    def _end(self, name: str, error: TidewireError) -> None:
        provider = self._providers.pop(name, None)
        self._connection.call_ends([] if provider is None else [provider.on_end], error)


class _RpcPart(Part):
    """The messages of rpcs that concern no request of this client."""

    def __init__(self, rpcs: Rpcs) -> None:
        self._rpcs = rpcs

    def handle(self, message: Message, code: str | None) -> bool:
        self._rpcs._handle(message, code)
        return True

    def lost(self, refused: Refused | None) -> None:
        self._rpcs._lost()
