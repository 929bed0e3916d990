"""The clients of one test file, driven by lines of JSON on the standard streams: see `e2e/harness/driver/python.ts`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from tidewire import MISSING, Call, Client, Event, PresenceChange, Record, RpcError, RpcReject, State, TidewireError
from tidewire._connection import Connection, Options
from tidewire._protocol import Message

Line = dict[str, Any]
_TIMEOUT_S = 15.0


def say(line: Line) -> None:
    """Writes a line. Without a value, the line has no member `value`."""
    text = json.dumps({key: value for key, value in line.items() if value is not MISSING})
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Tapped(Connection):
    """A connection that passes on each message from the server after the client has handled it."""

    def __init__(self, address: str, options: Options, client: int) -> None:
        super().__init__(address, options)
        self._client = client

    def _handle(self, message: Message) -> None:
        super()._handle(message)
        seen: Line = {"topic": message.topic, "action": message.action, "isAck": message.is_ack, "names": message.names}
        if message.name is not None:
            seen["name"] = message.name
        say({"client": self._client, "message": seen})


class Peer:
    """One client, with what it has opened under the ids of the test."""

    def __init__(self, client: int, line: Line) -> None:
        # Short intervals, so that the suites do not wait for the client's defaults.
        options = Options(auth=line["login"], request_timeout_s=_TIMEOUT_S, reconnect_min_s=0.02, reconnect_max_s=0.2)
        self.client = Client(Tapped(line["address"], options, client))
        self.removals: dict[int, Callable[[], None]] = {}
        self.records: dict[int, Record[Any]] = {}
        self.client.on_error(lambda error: say({"client": client, "surprise": {"code": error.code, "text": str(error)}}))

    def emit(self, line: Line) -> None:
        self.client.event.emit(line["name"], line.get("value", MISSING))

    async def subscribe(self, line: Line) -> None:
        def push(event: Event) -> None:
            say({"push": line["id"], "value": event.payload})

        subscription = self.client.event.subscribe(line["name"], push)
        self.removals[line["id"]] = subscription.close
        await subscription.ready

    def call(self, line: Line) -> Any:
        return self.client.rpc.call(line["name"], line.get("value", MISSING))

    async def provide(self, line: Line) -> None:
        async def answer(call: Call) -> Any:
            number, outcome = waiting_call()
            say({"call": number, "provider": line["id"], "value": call.argument})
            return await outcome

        subscription = self.client.rpc.provide(line["name"], answer)
        self.removals[line["id"]] = subscription.close
        await subscription.ready

    def remove(self, line: Line) -> None:
        self.removals.pop(line["id"])()

    def all(self, line: Line) -> Any:
        return self.client.presence.all()

    def query(self, line: Line) -> Any:
        return self.client.presence.query(line["users"])

    async def watch(self, line: Line) -> None:
        def push(change: PresenceChange) -> None:
            say({"push": line["id"], "value": [change.user, change.is_online]})

        presence, user = self.client.presence, line.get("user")
        subscription = presence.subscribe_all(push) if user is None else presence.subscribe(user, push)
        self.removals[line["id"]] = subscription.close
        await subscription.ready

    async def record(self, line: Line) -> None:
        record = self.records[line["id"]] = self.client.record(line["name"])
        await record.ready

    def replace(self, line: Line) -> Any:
        return self.records[line["id"]].replace(line["value"])

    def set(self, line: Line) -> Any:
        return self.records[line["id"]].set(line["path"], line.get("value", MISSING))

    def get(self, line: Line) -> Any:
        record, path = self.records[line["id"]], line.get("path")
        return record.value if path is None else record.get(path, MISSING)

    def version(self, line: Line) -> int:
        return self.records[line["id"]].version

    def changes(self, line: Line) -> None:
        # The current value is not a change.
        is_first = True
        current = self.get(line)

        def push(value: Any) -> None:
            nonlocal is_first
            if not is_first or value != current:
                say({"push": line["to"], "value": value})
            is_first = False

        self.records[line["id"]].subscribe(push, line.get("path"))

    def read(self, line: Line) -> Any:
        return self.client.record.read(line["name"])

    async def state(self, line: Line) -> None:
        reached = asyncio.Event()

        def note(state: State, _: object) -> None:
            if state == line["state"]:
                reached.set()

        remove = self.client.on_state(note)
        if self.client.state != line["state"]:
            await reached.wait()
        remove()

    async def close(self, line: Line) -> None:
        await self.client.close()


_calls: dict[int, asyncio.Future[Any]] = {}
_calls_made = 0


def waiting_call() -> tuple[int, asyncio.Future[Any]]:
    """A call that waits for the answer of a provider in the test."""
    global _calls_made
    _calls_made += 1
    outcome = _calls[_calls_made] = asyncio.get_running_loop().create_future()
    return _calls_made, outcome


def answer_call(line: Line) -> None:
    outcome = _calls.pop(line["call"])
    # The task that waits is cancelled when its connection is lost.
    if outcome.done():
        return
    if line["op"] == "send":
        outcome.set_result(line.get("value", MISSING))
    else:
        outcome.set_exception(RpcError(line["value"]) if line["op"] == "error" else RpcReject())


async def settle(line: Line, work: Any) -> None:
    """Waits for an operation, and answers it."""
    try:
        value = await work
        say({"answer": line["answer"], "value": value})
    except TidewireError as error:
        fail(line, error)


def fail(line: Line, error: TidewireError) -> None:
    say({"answer": line["answer"], "error": {"code": error.code, "text": str(error), "data": error.data}})


class Driver:
    """All clients, and their running operations."""

    def __init__(self) -> None:
        self._peers: dict[int, Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, line: Line) -> None:
        if "call" in line:
            answer_call(line)
            return
        number, op = line["client"], line["op"]
        if op == "connect":
            peer = self._peers[number] = Peer(number, line)
            self._run(settle(line, peer.client.connect()))
            return
        try:
            result = getattr(self._peers[number], op)(line)
        except TidewireError as error:
            fail(line, error)
            return
        if "answer" not in line:
            # The test does not wait: an edit is only made, and other operations run.
            if asyncio.iscoroutine(result):
                self._run(result)
        elif hasattr(result, "__await__"):
            self._run(settle(line, result))
        else:
            say({"answer": line["answer"], "value": result})

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def main() -> None:
    driver = Driver()
    reader = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while data := await reader.readline():
        driver.handle(json.loads(data))


asyncio.run(main())
