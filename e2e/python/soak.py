"""Events and edits of records through kills of the server and cut connections. Started by `soak.test.ts`.

    soak.py SERVER PROXY LOSSES EVENTS RECORDS KILLS [FAULT]

First LOSSES answers are lost by construction: the proxy discards them, the server has stored what they confirm, and then the connection or the
server ends. After that EVENTS events and edits of RECORDS records pass through KILLS kills and as many cuts at any moment. Each event must
arrive exactly once, in order and without a gap; only events that were on their way when the publisher lost its connection may be missing,
and are sent again. Each acknowledged edit of a record must be made exactly once. FAULT plants a fault in the client behind the proxy.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

from tidewire import Client, Event, Record, State, Stream, TidewireError, connect
from tidewire._connection import Connection, Options
from tidewire._protocol import Message, NamedPosition, Topic

_OPTIONS: dict[str, float] = {"reconnect_min_s": 0.02, "reconnect_max_s": 0.2, "request_timeout_s": 60.0}
_NAMES = [f"soak/{number}" for number in range(4)]
_BATCH = 250
"""The events that the publisher sends before it waits until they have arrived."""
_ARRIVAL_S = 60.0
"""How long an event may take, also while the server restarts."""
_WRITERS = 64
"""The records that are edited at a time."""
_ROUNDS = 4
"""The edits of each kind that each of the two editors makes in each record."""
_PROBLEMS_MAX = 20


class NewKeys(Connection):
    """A planted fault: a write that is repeated has a new key."""

    def send(self, message: Message) -> bool:
        if message.topic == Topic.RECORD and message.seen_version is not None:
            message = replace(message, key=f"{message.key} again", incarnation=None, seen_version=None)
        return super().send(message)


async def client(address: str, fault: str = "") -> Client:
    if fault != "keys":
        made = await connect(address, **_OPTIONS)  # type: ignore[arg-type]
    else:
        made = Client(NewKeys(address, Options(auth={}, **_OPTIONS)))  # type: ignore[arg-type]
        await made.connect()
    if fault == "positions":
        # A planted fault: the client subscribes without history, and never names its position in the history.
        interest = made.event._interest
        interest._actions = replace(interest._actions, positions=lambda names: [NamedPosition(name, None) for name in names])
    return made


class Troubles:
    """Asks the test to break connections and to kill the server: a line on standard output, answered by a line on standard input."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._answers = asyncio.StreamReader()

    async def open(self) -> None:
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._answers), sys.stdin)

    async def make(self, trouble: str) -> None:
        """Returns when it has happened: `silence` discards the server's answers, `cut` and `kill` end that."""
        async with self._turn:
            print(json.dumps({"trouble": trouble}), flush=True)
            await self._answers.readline()


class Progress:
    """Makes cuts and kills in turn, evenly over the work."""

    def __init__(self, troubles: Troubles, total: int, kills: int) -> None:
        self._troubles = troubles
        self._total = total
        self._count = 2 * kills
        self._done = 0
        self._made: list[asyncio.Task[None]] = []

    def add(self, count: int) -> None:
        self._done += count
        while len(self._made) < self._count and self._done * (self._count + 1) >= self._total * (len(self._made) + 1):
            trouble = "kill" if len(self._made) % 2 else "discard"
            self._made.append(asyncio.ensure_future(self._troubles.make(trouble)))

    async def end(self) -> None:
        """Waits until all troubles have happened."""
        assert len(self._made) == self._count
        await asyncio.gather(*self._made)


class Received:
    """The numbers that a subscriber has received under each name, where they only increase."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.problems: list[str] = []
        self._last = dict.fromkeys(_NAMES, -1)
        self._waiting: dict[int, asyncio.Event] = {}

    def take(self, event: Event) -> None:
        number = int(event.payload)
        if number <= self._last[event.name]:
            self.problems.append(f"{number} arrived after {self._last[event.name]}")
        self._last[event.name] = number
        self.seen.add(number)
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.set()

    async def arrived(self, number: int) -> None:
        if number not in self.seen:
            waiting = self._waiting.setdefault(number, asyncio.Event())
            await asyncio.wait_for(waiting.wait(), _ARRIVAL_S)


async def until(record: Record[Any], path: str, expected: Any) -> None:
    """Waits until the value at `path` is the expected one."""
    async for value in record.changes(path):
        if value == expected:
            return


def _increment(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "count": document.get("count", 0) + 1}


class Losses:
    """A client behind the proxy loses an event and the acknowledgement of a write, both of which the server has stored.

    The witnesses are connected directly. When they have received the event, the server has stored it. When a later write of theirs is
    acknowledged, the earlier write of the same record is stored too.
    """

    def __init__(self, troubles: Troubles, losing: Client, writer: Client, reader: Client) -> None:
        self._troubles = troubles
        self._writer = writer
        self._near: Record[Any] = losing.record("soak/lost")
        self._far: Record[Any] = writer.record("soak/lost")
        self._received, self._witnessed = Received(), Received()
        self._next = 0
        self.gaps: list[object] = []
        self.problems: list[str] = self._received.problems
        self._ready = [
            losing.event.subscribe(_NAMES[0], self._received.take, on_gap=self.gaps.append).ready,
            reader.event.subscribe(_NAMES[0], self._witnessed.take).ready,
            self._near.ready,
            self._far.ready,
        ]

    async def run(self, count: int) -> None:
        await asyncio.gather(*self._ready)
        for number in range(count):
            await self._lose("kill" if number % 2 else "cut")

    async def _lose(self, trouble: str) -> None:
        made = self._far.get("count", 0)
        await self._troubles.make("silence")
        update = self._near.update(_increment)
        lost = await self._emit()
        await until(self._far, "count", made + 1)
        await self._far.set("stored", lost)
        await self._troubles.make(trouble)
        try:
            await update
        except TidewireError as error:
            self.problems.append(f"a write that the server had stored failed with {error.code} after a {trouble}")
        # The acknowledgement shows that the writer is connected again.
        await self._far.set("after", lost)
        await until(self._near, "after", lost)
        if self._far.get("count") != made + 1:
            self.problems.append(f"an update was made {self._far.get('count') - made} times after a {trouble}")
        last = await asyncio.wait_for(self._resumed(lost), _ARRIVAL_S)
        await self._received.arrived(last)
        missing = set(range(lost, last + 1)) - self._received.seen
        if missing:
            self.problems.append(f"{len(missing)} events are missing after a {trouble}")

    async def _resumed(self, lost: int) -> int:
        """Emits events until the client receives one at once, because its new session has subscribed; returns the last event's number."""
        while True:
            last = await self._emit()
            if self._received.seen.intersection(range(lost + 1, last + 1)):
                return last

    async def _emit(self) -> int:
        """Emits the next number, and returns it when the server has stored it."""
        number = self._next
        self._next += 1
        self._writer.event.emit(_NAMES[0], number)
        await self._witnessed.arrived(number)
        return number


async def lose(troubles: Troubles, server: str, proxy: str, count: int, fault: str) -> dict[str, Any]:
    clients = [await client(proxy, fault), await client(server), await client(server)]
    losses = Losses(troubles, *clients)
    await losses.run(count)
    for one in clients:
        await one.close()
    return {"losses": count, "gaps": len(losses.gaps), "problems": losses.problems[:_PROBLEMS_MAX]}


async def opened(client: Client) -> None:
    """Waits until the client is open."""
    reached = asyncio.Event()

    def note(state: State, _: object) -> None:
        if state == "open":
            reached.set()

    remove = client.on_state(note)
    if client.state != "open":
        await reached.wait()
    remove()


class Publisher:
    """Emits numbered events until `count` of them have arrived."""

    def __init__(self, client: Client, received: Received) -> None:
        self._client = client
        self._received = received
        self._next = 0
        self._lost = asyncio.Event()
        self.repeated = 0
        client.on_state(self._note)

    def _note(self, state: State, _: object) -> None:
        if state == "waiting":
            self._lost.set()

    async def run(self, count: int, progress: Progress) -> None:
        done = 0
        while done < count:
            sent = self._emit(min(_BATCH, count - done))
            if await self._is_lost(sent):
                missing = sorted(set(sent) - await self._settled())
                self.repeated += len(missing)
                sent = sorted(set(sent) - set(missing))
            done += len(sent)
            progress.add(len(sent))

    def _emit(self, count: int) -> list[int]:
        self._lost.clear()
        numbers = list(range(self._next, self._next + count))
        self._next += count
        for number in numbers:
            self._client.event.emit(_NAMES[number % len(_NAMES)], number)
        return numbers

    async def _is_lost(self, sent: list[int]) -> bool:
        """Waits until all events of a batch have arrived; True if the connection was lost instead."""
        # Events of one publisher and name arrive in order, so the last ones of all names show that all have arrived.
        arrival = asyncio.ensure_future(_all(*(self._received.arrived(number) for number in sent[-len(_NAMES) :])))
        loss = asyncio.ensure_future(self._lost.wait())
        await asyncio.wait([arrival, loss], return_when=asyncio.FIRST_COMPLETED)
        loss.cancel()
        if arrival.done():
            await arrival
            missing = set(sent) - self._received.seen
            if missing:
                self._received.problems.append(f"{len(missing)} events are missing, although the connection of their publisher lasted")
            return False
        arrival.cancel()
        return True

    async def _settled(self) -> set[int]:
        """Waits until an event of each name has arrived that was sent after the loss. Earlier events do not arrive after it."""
        while True:
            await opened(self._client)
            markers = self._emit(len(_NAMES))
            if not await self._is_lost(markers):
                return self._received.seen


async def _all(*work: Any) -> None:
    await asyncio.gather(*work)


async def publish(server: str, proxy: str, count: int, progress: Progress) -> dict[str, Any]:
    publisher, subscriber = await client(server), await client(proxy)
    received = Received()
    gaps: list[object] = []
    streams = [subscriber.event.subscribe(name, on_gap=gaps.append) for name in _NAMES]

    async def follow(events: Stream[Event]) -> None:
        async for event in events:
            received.take(event)

    follows = [asyncio.ensure_future(follow(events)) for events in streams]
    await asyncio.gather(*(events.ready for events in streams))
    run = Publisher(publisher, received)
    await run.run(count, progress)
    for events in streams:
        events.close()
    await asyncio.gather(*follows)
    await publisher.close()
    await subscriber.close()
    return {"repeated": run.repeated, "gaps": len(gaps), "problems": received.problems[:_PROBLEMS_MAX]}


class Editor:
    """One client that edits records, and counts the edits that the server has acknowledged."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client
        self.unknown = 0

    async def edit(self, record: str) -> tuple[int, int, set[str]]:
        """Edits a record; returns how many updates were acknowledged, how many may have been made, and the rounds whose edit may have been."""
        acknowledged = unknown = 0
        doubtful: set[str] = set()
        async with self.client.record(record) as opened:
            for round_ in range(_ROUNDS):
                update = opened.update(_increment)
                edit = opened.set(f"{self.name}.r{round_}", round_)
                try:
                    await update
                    acknowledged += 1
                except TidewireError as error:
                    if error.code != "WRITE_UNKNOWN":
                        raise
                    unknown += 1
                try:
                    await edit
                except TidewireError as error:
                    # The edit was in the same write as an update.
                    if error.code != "WRITE_UNKNOWN":
                        raise
                    doubtful.add(f"r{round_}")
        self.unknown += unknown
        return acknowledged, unknown, doubtful


async def write(server: str, proxy: str, count: int, progress: Progress) -> dict[str, Any]:
    editors = [Editor("ann", await client(proxy)), Editor("bob", await client(server))]
    reader = await client(server)
    problems: list[str] = []
    places = asyncio.Semaphore(_WRITERS)

    async def one(number: int) -> None:
        name = f"soak/record{number}"
        async with places:
            outcomes = await asyncio.gather(*(editor.edit(name) for editor in editors))
            acknowledged = sum(acknowledged for acknowledged, _, _ in outcomes)
            unknown = sum(unknown for _, unknown, _ in outcomes)
            value = await reader.record.read(name)
        made = value["count"]
        edits = {f"r{round_}": round_ for round_ in range(_ROUNDS)}
        if not acknowledged <= made <= acknowledged + unknown:
            problems.append(f"{name}: {acknowledged} updates were acknowledged, {unknown} are unknown, {made} were made")
        for editor, (_, _, doubtful) in zip(editors, outcomes):
            made_edits = value.get(editor.name, {})
            missing = edits.keys() - made_edits.keys() - doubtful
            if missing or any(edits.get(key) != made_edit for key, made_edit in made_edits.items()):
                problems.append(f"{name}: an acknowledged edit is missing in {value}")
        progress.add(2 * _ROUNDS)

    await asyncio.gather(*(one(number) for number in range(count)))
    unknown = sum(editor.unknown for editor in editors)
    for closed in [*(editor.client for editor in editors), reader]:
        await closed.close()
    return {"edits": count * 4 * _ROUNDS, "unknown": unknown, "problems": problems[:_PROBLEMS_MAX]}


async def main() -> None:
    server, proxy, *numbers = sys.argv[1:7]
    fault = "".join(sys.argv[7:])
    count, events, records, kills = map(int, numbers)
    troubles = Troubles()
    await troubles.open()
    lost = await lose(troubles, server, proxy, count, fault)
    progress = Progress(troubles, events + records * 2 * _ROUNDS, kills)
    published, written = await asyncio.gather(publish(server, proxy, events, progress), write(server, proxy, records, progress))
    await progress.end()
    print(json.dumps({"lost": lost, "published": published, "written": written}), flush=True)


asyncio.run(main())
