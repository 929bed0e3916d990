"""One connection that reconnects: it dials, logs in, checks that the server still answers, and reports its state.

The primitives are elsewhere.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, Union

from ._awaitable import Deferred
from ._codec import UnreadableError, decode, encode
from ._error import TidewireError, invalid, invalid_message, too_large
from ._json import none_if_missing, payload, value_of
from ._protocol import AuthAction, ConnectionAction, Message, RpcAction, Topic, refusal
from ._socket import Socket, socket_url

P = ParamSpec("P")

State = Literal["closed", "connecting", "authenticating", "open", "checking", "stale", "waiting"]
"""The state of the connection.

- `closed`: not started, closed by the app, or refused for good; only `connect()` leaves this state
- `connecting`: a socket is being opened
- `authenticating`: the server has accepted the connection and receives the credentials
- `open`: messages flow
- `checking`: the app called `check()`; the state is `open` again after one round trip
- `stale`: the server has not answered a heartbeat in time; no messages flow at the moment
- `waiting`: the connection was lost; the next attempt follows after a delay
"""

Credentials = Mapping[str, Any]
"""Credentials as the server's auth chain requires them, such as `{"token": token}`."""


@dataclass(frozen=True)
class AuthContext:
    """The argument of a function that returns credentials."""

    refusal: Any
    """The reason why the server refused the previous credentials; None if it did not."""
    renew_in: Callable[[float], None]
    """Calls the function again after this number of seconds, to renew the login while the session is open."""


Auth = Union[Credentials, Callable[[AuthContext], Union[Credentials, Awaitable[Credentials]]]]
"""Credentials, or a function that returns them; the client calls it before each login."""


@dataclass(frozen=True)
class Options:
    """The options of a client. Times are in seconds."""

    auth: Auth
    tls: ssl.SSLContext | None = None
    request_timeout_s: float = 15.0
    pending_max: int = 10_000
    heartbeat_interval_s: float = 15.0
    stale_after_s: float = 4.0
    check_timeout_s: float = 2.0
    connect_timeout_s: float = 10.0
    reconnect_min_s: float = 0.5
    reconnect_max_s: float = 10.0
    send_buffer_bytes_max: int = 16 * 1024 * 1024
    traceparent: Callable[[], str | None] | None = None


@dataclass(frozen=True)
class Refused:
    """A message that must not be sent again, and the reason."""

    message: Message
    error: TidewireError


class Part:
    """A part of the client that handles the messages of a topic."""

    def handle(self, message: Message, code: str | None) -> bool:
        """Handles `message`; if it is a refusal, `code` is its code. Returns True if no further part needs the message."""
        return False

    def opened(self, is_new: bool) -> None:
        """Messages flow. If `is_new`, the session has no state of the previous one; otherwise the same session continues."""

    def unanswered(self) -> list[Message]:
        """The messages that still wait for an answer from the server."""
        return []

    def lost(self, refused: Refused | None) -> None:
        """The session has ended. If it ended because a message was too large for the server, `refused` is that message."""

    def closed(self, reason: TidewireError) -> None:
        """The connection is closed for `reason`."""


_TOO_BIG = 1009
"""The close code of a server whose peer has sent too large a message."""
_SLEPT_S = 5.0
"""A timer that fires more than this late shows that the process was asleep."""
_REDIRECTS_MAX = 5
_CLOSE_TIMEOUT_S = 2.0
"""How long `wait_closed` waits for the server to answer the close frame."""
_CANCEL_TIMEOUT_S = 0.1
"""How long `wait_closed` waits for the tasks that it has cancelled."""

_log = logging.getLogger("tidewire")


class Connection:
    """The connection of one client, with the parts that handle its messages."""

    def __init__(self, address: str, options: Options) -> None:
        self.options = options
        self.parts: dict[int, list[Part]] = {}
        """The parts of each topic, in the order in which they are notified."""
        self.login_data: Any = None
        """The client data that the server sent at the login."""
        self.reason: TidewireError | None = None
        """The reason why the connection is closed; None before the first `connect()`."""
        self.state: State = "closed"
        self.message_bytes_max: float = float("inf")
        """The limit of a message in bytes, as the server announced it."""
        self.on_state: dict[object, Callable[[State, TidewireError | None], object]] = {}
        self.on_error: dict[object, Callable[[TidewireError], object]] = {}
        self._address = address
        self._auth = options.auth
        self._socket: Socket | None = None
        self._opening: Deferred[None] | None = None
        self._renewal: Deferred[None] | None = None
        # The timer of the current phase: opening a socket, time between heartbeats, waiting for their answers, or delay before the next
        # attempt.
        self._timer: asyncio.TimerHandle | None = None
        self._renew_timer: asyncio.TimerHandle | None = None
        # The largest message of this session that the server does not answer, such as an event, and its bytes.
        self._largest: tuple[int, Message] | None = None
        # The login was due for renewal while the connection was not open.
        self._is_renewal_due = False
        self._credentials: Deferred[Credentials] | None = None
        self._attempts = 0
        self._redirects = 0
        self._opened_at: float | None = None
        # Messages that wait until the server has proved that the connection is alive.
        self._held: list[Message] = []
        # The number of heartbeats without an answer.
        self._pings = 0
        # A heartbeat was sent, and no message has arrived since.
        self._is_answer_due = False
        self._refusal: Any = None
        self._was_asked_again = False
        # The tasks of the current socket, and of earlier ones that are being closed.
        self._sockets: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def connect(self, auth: Auth | None = None) -> None:
        """Dials if the connection is closed. Returns when the connection is open; raises when it is closed for good."""
        if auth is not None:
            self._auth = auth
        if self.state == "open":
            return
        is_first = self.state == "closed"
        opening = self._opening = self._opening or Deferred()
        if is_first:
            self.reason = None
            self._attempts = self._redirects = 0
            self._dial(self._address)
        try:
            await opening
        except asyncio.CancelledError:
            # The call that began to connect ends the attempts; any other call only stops waiting.
            if is_first and opening is self._opening:
                self.close()
            raise

    async def renew(self, auth: Auth | None = None) -> None:
        """Logs the open session in again, with other credentials of the same user."""
        if auth is not None:
            self._auth = auth
        session = self._opened_at
        await self.connect()
        if auth is not None and self._renewal is not None:
            # The renewal in progress may have sent other credentials.
            with suppress(TidewireError):
                await self._renewal
        # The wait was for a new session, which has already logged in with these credentials.
        if session is None or session != self._opened_at:
            return
        if self._renewal is None:
            renewal = self._renewal = Deferred()
            self.run(self._send_renewal(renewal))
        await self._renewal

    async def _send_renewal(self, renewal: Deferred[None]) -> None:
        try:
            credentials = await self._ask()
            if self._renewal is renewal:
                self._write(Message(Topic.AUTH, AuthAction.REQUEST, payload(credentials)))
        except TidewireError as error:
            self._settle_renewal(error)

    def check(self) -> None:
        """Checks by a round trip that the connection is alive. If the client waits before its next attempt, it dials at once."""
        if self.state == "waiting":
            self._dial(self._address)
        elif self.is_logged_in:
            self._ping()
            self._after(self.options.check_timeout_s, lambda: self._lose("no answer after a pause"))
            self._become("checking")

    def close(self) -> None:
        """Closes the connection; messages that were sent before still leave."""
        if self.state != "closed":
            self._end(TidewireError("CLOSED", "the client was closed"))

    async def wait_closed(self) -> None:
        """Waits until the messages that were sent before `close()` have left, for at most two seconds."""
        if self._sockets:
            await asyncio.wait(self._sockets, timeout=_CLOSE_TIMEOUT_S)
        tasks = (self._sockets | self._tasks) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            # A function of the app may take any time to end.
            await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT_S)

    @property
    def is_logged_in(self) -> bool:
        return self._opened_at is not None

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs a coroutine as a task, which is cancelled when the client is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def check_size(self, message: Message) -> None:
        """Raises TOO_LARGE if `message` exceeds the limit that the server has announced."""
        self._frame(message)

    def send(self, message: Message) -> bool:
        """Sends `message` if the connection is open, else returns False. Raises TOO_LARGE if the message exceeds the server's limit."""
        if self.state != "open":
            return False
        self._write(message)
        return True

    def answer(self, message: Message) -> TidewireError | None:
        """Sends `message` in this session or not at all.

        While the client checks whether the connection is alive, the message waits. Returns the error of a message that is too large.
        """
        try:
            if self.send(message) or not self.is_logged_in:
                return None
            self.check_size(message)
            self._held.append(message)
        except TidewireError as error:
            return error
        return None

    def report(self, error: TidewireError) -> None:
        """Passes on an error that no other callback and no caller receives. Without a callback, it goes to the log."""
        if not self.on_error:
            _log.error("%s", error, exc_info=error)
        for callback in list(self.on_error.values()):
            try:
                callback(error)
            except Exception:
                _log.exception("a callback for errors failed")

    def call(self, callback: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls a function of the app. If it raises, `report` receives the error, and other callbacks still run."""
        try:
            callback(*args, **kwargs)
        except Exception as cause:
            error = TidewireError("CALLBACK_FAILED", f"a callback failed: {cause!r}")
            error.__cause__ = cause
            self.report(error)

    def call_ends(self, callbacks: Iterable[Callable[[TidewireError], object] | None], error: TidewireError) -> None:
        """Calls every callback for the end of a subscription. If there is none, `report` receives the error."""
        found = [callback for callback in callbacks if callback is not None]
        if not found:
            self.report(error)
        for callback in found:
            self.call(callback, error)

    def check_callback(self, callback: object) -> None:
        """Does what `check_use` does, for a function that registers `callback`."""
        self.check_use()
        if not callable(callback):
            raise invalid("the callback must be a function")
        if inspect.iscoroutinefunction(callback):
            raise invalid("the callback must be a plain function: to await in the handler, use `async for`")

    def check_use(self) -> None:
        """Raises if the connection was closed, or if too many bytes wait in its socket."""
        if self.reason is not None:
            error = TidewireError("CLOSED", f"the client is closed: {self.reason.args[0]}")
            error.__cause__ = self.reason
            raise error
        limit = self.options.send_buffer_bytes_max
        if self._socket is not None and self._socket.buffered_bytes > limit:
            raise TidewireError("OVERLOADED", f"more than {limit} bytes wait to be sent: send less, or raise send_buffer_bytes_max")

    # The callbacks of the socket.

    def opened(self, socket: Socket) -> None:
        if socket is not self._socket:
            return
        self._write(Message(Topic.CONNECTION, ConnectionAction.CHALLENGE, sdk_type="tidewire-python", batches=True, jumps=True))
        self._beat()

    def received(self, socket: Socket, data: str | bytes) -> None:
        if socket is not self._socket:
            return
        if isinstance(data, str):
            self._lose_unreadable(invalid_message("the server sent text: is this the path of the native protocol?"))
            return
        try:
            messages = decode(data)
        except UnreadableError as cause:
            self._lose_unreadable(invalid_message(str(cause), cause))
            return
        if self._is_answer_due:
            self._beat()
        for message in messages:
            # The message before this one may have closed or replaced the socket.
            if socket is not self._socket:
                return
            try:
                self._handle(message)
            except Exception as cause:  # Such as a path that no client of this server can write.
                self._lose_unreadable(invalid_message(f"a message of the server can't be handled: {cause!r}", cause))
                return
        if socket is self._socket and self.state == "stale":
            self._go_on()

    def closed(self, socket: Socket, why: str, code: int) -> None:
        if socket is self._socket:
            self._lose(why, code)

    # The states.

    def _dial(self, address: str) -> None:
        try:
            url = socket_url(address)
        except TidewireError as error:
            self._end(error)
            return
        self._largest = None
        self._pings = 0
        self._refusal = None
        self._was_asked_again = False
        self._socket = Socket(url, self, self.options.tls)
        self._sockets.add(self._socket.task)
        self._socket.task.add_done_callback(self._sockets.discard)
        self._credentials = self._asking()
        self._after(self.options.connect_timeout_s, lambda: self._lose("the server could not be reached in time"))
        self._become("connecting")

    def _asking(self) -> Deferred[Credentials]:
        """Starts to ask the app for credentials."""
        found: Deferred[Credentials] = Deferred()

        async def ask() -> None:
            try:
                found.resolve(await self._ask())
            except TidewireError as error:
                found.reject(error)

        self.run(ask())
        return found

    async def _ask(self) -> Credentials:
        """Returns the credentials; if the app gave a function, calls it."""
        auth = self._auth
        if not callable(auth):
            return auth
        self._stop_renew_timer()
        self._is_renewal_due = False
        try:
            given = auth(AuthContext(self._refusal, self._renew_in))
            return await given if inspect.isawaitable(given) else given
        except (Exception, asyncio.CancelledError) as cause:  # The function may wait for a task that is cancelled.
            raise TidewireError("AUTH_CALLBACK_FAILED", f"the function that gives credentials failed: {cause!r}") from cause

    def _renew_in(self, seconds: float) -> None:
        self._stop_renew_timer()
        self._renew_timer = asyncio.get_running_loop().call_later(seconds, self._renew_by_itself)

    def _stop_renew_timer(self) -> None:
        if self._renew_timer is not None:
            self._renew_timer.cancel()
            self._renew_timer = None

    def _renew_by_itself(self) -> None:
        self.run(self._renew_and_report())

    async def _renew_and_report(self) -> None:
        # The connection may have been lost or closed since the renewal was due.
        if self.state != "open":
            self._is_renewal_due = self.state != "closed"
            return
        try:
            await self.renew()
        except TidewireError as error:
            # If the session has ended, the next one asks for credentials again.
            if error.code not in ("CLOSED", "CONNECTION_LOST"):
                self.report(error)
            if error.code in ("AUTH_CALLBACK_FAILED", "AUTH_UNAVAILABLE"):
                self._renew_in(self.options.reconnect_max_s)

    def _lose_unreadable(self, error: TidewireError) -> None:
        self.report(error)
        self._lose("bytes that are not a message")

    def _handle(self, message: Message) -> None:
        if message.topic == Topic.CONNECTION:
            self._handle_connection(message)
        elif message.topic == Topic.AUTH:
            self._handle_auth(message)
        elif self.is_logged_in:
            code = refusal(message)
            for part in self.parts.get(message.topic, ()):
                if part.handle(message, code):
                    break

    def _handle_connection(self, message: Message) -> None:
        if message.action == ConnectionAction.PONG:
            self._pings -= 1
            if self.state == "checking" and self._pings == 0:
                self._go_on()
        elif message.action == ConnectionAction.ACCEPT:
            limits = value_of(message.data)
            bytes_max = limits.get("messageBytesMax") if isinstance(limits, dict) else None
            self.message_bytes_max = bytes_max if isinstance(bytes_max, int) else float("inf")
            self._become("authenticating")
            if self._credentials is not None:
                self.run(self._login(self._credentials))
        elif message.action == ConnectionAction.REDIRECT:
            self._redirects += 1
            if self._redirects > _REDIRECTS_MAX:
                self._lose(f"more than {_REDIRECTS_MAX} redirects")
            else:
                self._drop(None)
                self._dial(message.url or "")
        elif message.action == ConnectionAction.REJECT:
            self._end(TidewireError("CONNECTION_REJECTED", "the server rejected this client"))
        elif message.action == ConnectionAction.AUTHENTICATION_TIMEOUT:
            self._end(TidewireError("AUTHENTICATION_TIMEOUT", "no credentials were accepted in time"))

    async def _login(self, credentials: Deferred[Credentials]) -> None:
        socket = self._socket
        try:
            given = await credentials
        except TidewireError as error:
            if socket is self._socket:
                self.report(error)
                self._lose("no credentials")
            return
        if socket is not self._socket:
            return
        try:
            self._write(Message(Topic.AUTH, AuthAction.REQUEST, payload(given)))
        except TidewireError as error:
            self._end(error)

    def _handle_auth(self, message: Message) -> None:
        data = none_if_missing(value_of(message.data))
        if message.action == AuthAction.SUCCESSFUL:
            self.login_data = data
            self._refusal = None
            if self.is_logged_in:
                self._settle_renewal(None)
            else:
                self._opened_at = time.monotonic()
                self._redirects = 0
                self._go_on(True)
        elif message.action == AuthAction.UNSUCCESSFUL:
            self._refusal = data
            self._handle_refused_login(data)
        elif message.action in (AuthAction.TOO_MANY_ATTEMPTS, AuthAction.INVALID_MESSAGE_DATA):
            self._refuse_login(data if self._refusal is None else self._refusal)

    def _handle_refused_login(self, data: Any) -> None:
        if self._renewal is not None:
            code = data.get("code") if isinstance(data, dict) else None
            self._settle_renewal(TidewireError(str(code or "AUTH_REFUSED"), "the login was not renewed", data=data))
        elif self.is_logged_in:
            # The session is open: the server's next message ends it.
            return
        elif callable(self._auth) and not self._was_asked_again:
            self._was_asked_again = True
            self.run(self._login(self._asking()))
        else:
            self._refuse_login(data)

    def _refuse_login(self, data: Any) -> None:
        """Ends the attempts. In development mode the server explains why it refused the login."""
        why = data.get("explanation") if isinstance(data, dict) else None
        self._end(TidewireError("AUTH_REFUSED", f"the server refused the credentials{f': {why}' if why else ''}", data=data))

    def _settle_renewal(self, error: TidewireError | None) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is None:
            return
        if error is None:
            renewal.resolve(None)
        else:
            renewal.reject(error)

    def _go_on(self, is_new: bool = False) -> None:
        """Makes the connection `open`: after the login of a new session, or again after `checking` or `stale`."""
        # The state changes first, so that the parts can send. The app is notified last: by then the parts have sent the subscriptions of a
        # new session.
        self.state = "open"
        self._beat()
        for part in self._all_parts():
            part.opened(is_new)
        held, self._held = self._held, []
        for message in held:
            self._write(message)
        self._notify_state(None)
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.resolve(None)
        if self._is_renewal_due:
            self._is_renewal_due = False
            self._renew_by_itself()

    def _all_parts(self) -> list[Part]:
        return [part for parts in self.parts.values() for part in parts]

    def _become(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self._notify_state(None)

    def _notify_state(self, reason: TidewireError | None) -> None:
        state = self.state
        for callback in list(self.on_state.values()):
            self.call(callback, state, reason)

    # Heartbeats.

    def _beat(self) -> None:
        """Schedules the next heartbeat."""
        interval = self.options.heartbeat_interval_s
        # The monotonic clock does not count the time in which the machine was asleep.
        due = time.time() + interval
        self._after(interval, lambda: self._heartbeat(due))

    def _heartbeat(self, due: float) -> None:
        if self.is_logged_in and time.time() - due > _SLEPT_S:
            self.check()
            return
        self._ping()
        self._expect_answer(self._stall)

    def _stall(self) -> None:
        self._expect_answer(lambda: self._lose("no answer to a heartbeat"))
        if self.is_logged_in:
            self._become("stale")

    def _expect_answer(self, late: Callable[[], None]) -> None:
        """Calls `late` if no message arrives in time. A message that arrives schedules the next heartbeat instead."""
        self._after(self.options.stale_after_s, late)
        self._is_answer_due = True

    def _ping(self) -> None:
        self._pings += 1
        self._write(Message(Topic.CONNECTION, ConnectionAction.PING))

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Sets the timer of the next phase, in place of the last one's."""
        self._stop_timer()
        self._is_answer_due = False
        self._timer = asyncio.get_running_loop().call_later(seconds, callback)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Sending.

    def _write(self, message: Message) -> None:
        frame = self._frame(message)
        is_answered = message.action == RpcAction.REQUEST if message.topic == Topic.RPC else message.topic != Topic.EVENT
        if not is_answered and (self._largest is None or len(frame) > self._largest[0]):
            self._largest = (len(frame), message)
        if self._socket is not None:
            self._socket.send(frame)

    def _frame(self, message: Message) -> bytes:
        """Encodes `message`. Raises TOO_LARGE if the bytes exceed the server's limit."""
        frame = encode(message)
        if len(frame) > self.message_bytes_max:
            raise too_large(len(frame), int(self.message_bytes_max), message.name)
        return frame

    def _too_big(self) -> Refused | None:
        """The message that was too large, so that the server closed the connection: the largest of the unanswered ones.

        The server does not answer a message that is too large, so an answered one cannot be the cause.
        """
        sent = [(len(encode(message)), message) for part in self._all_parts() for message in part.unanswered()]
        if self._largest is not None:
            sent.append(self._largest)
        if not sent:
            return None
        size, message = max(sent, key=lambda one: one[0])
        error = too_large(size, None, message.name)
        if self._largest is not None and message is self._largest[1]:
            self.report(error)
        return Refused(message, error)

    # The end of a session, and of the connection.

    def _lose(self, why: str, code: int | None = None) -> None:
        """Gives up the socket and schedules another attempt."""
        is_too_big = code == _TOO_BIG
        refused = self._too_big() if is_too_big and self.is_logged_in else None
        # A callback for the error of the cause may have closed the client.
        if self.state == "closed":
            return
        if is_too_big and not self.is_logged_in:
            self._end(TidewireError("TOO_LARGE", "the credentials have more bytes than the server accepts"))
            return
        reason = TidewireError("CONNECTION_LOST", f"the connection was lost: {why}", data=code)
        lasted = 0 if self._opened_at is None else time.monotonic() - self._opened_at
        # The delay is random, so that clients do not reconnect at the same moment. Its limit starts again after a session that lasted
        # longer than the longest delay.
        longest = self.options.reconnect_max_s
        if lasted > longest:
            self._attempts = 0
        delay = random.random() * min(longest, self.options.reconnect_min_s * 2.0 ** min(self._attempts, 64))
        self._attempts += 1
        self.state = "waiting"
        self._after(delay, lambda: self._dial(self._address))
        self._drop(reason, refused)
        # The parts call functions of the app, which may have closed the client.
        if self.state == "waiting":
            self._notify_state(reason)

    def _drop(self, reason: TidewireError | None, refused: Refused | None = None) -> None:
        """Closes the socket. If that ends a session, notifies the parts."""
        socket, self._socket = self._socket, None
        was_logged_in = self.is_logged_in
        self._opened_at = None
        self._held = []
        if socket is not None:
            if reason is not None and reason.code == "CLOSED":
                socket.close()
            else:
                socket.terminate()
        self._settle_renewal(reason)
        if was_logged_in:
            for part in self._all_parts():
                part.lost(refused)

    def _end(self, reason: TidewireError) -> None:
        """Closes the connection for good; no other attempt follows."""
        self._stop_timer()
        self._stop_renew_timer()
        self.state = "closed"
        self.reason = reason
        opening, self._opening = self._opening, None
        self._drop(reason)
        for part in self._all_parts():
            part.closed(reason)
        self._notify_state(reason)
        if opening is not None:
            opening.reject(reason)
