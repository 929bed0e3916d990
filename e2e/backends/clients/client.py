"""A client of python-socketio that a test drives: it reads commands from its input and prints what happens, one JSON object in each line.

Bytes are {"bytes": BASE64}. The first argument selects the class: `threads` or `asyncio`.
"""

import asyncio
import base64
import json
import sys
import threading

import socketio

lock = threading.Lock()


def plain(value):
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def rich(value):
    if isinstance(value, dict) and list(value) == ["bytes"]:
        return base64.b64decode(value["bytes"])
    return [rich(one) for one in value] if isinstance(value, list) else value


def tell(on, **more):
    with lock:
        print(json.dumps({"on": on, **plain_values(more)}), flush=True)


def plain_values(values):
    return {name: plain(value) for name, value in values.items()}


def handle(client):
    """The handlers, which both classes call from their own thread or loop."""
    client.on("connect", lambda: tell("connect", id=client.get_sid()))
    client.on("connect_error", lambda data=None: tell("refused", data=data))
    client.on("disconnect", lambda reason=None: tell("disconnect"))

    def on_event(event, *arguments):
        if event == "echo":
            return arguments
        tell("event", name=event, values=arguments)
        return None

    client.on("*", on_event)


def commands():
    for line in sys.stdin:
        yield json.loads(line)


def connecting(command):
    return {"transports": command["transports"], "auth": command["auth"], "wait_timeout": 15}


def run_threads():
    client = socketio.Client(reconnection_delay=0.1, reconnection_delay_max=0.5)
    handle(client)
    for command in commands():
        if command["do"] == "connect":
            try:
                client.connect(command["url"], **connecting(command))
            except socketio.exceptions.ConnectionError:
                tell("failed")
        elif command["do"] == "emit":
            client.emit(command["event"], tuple(rich(command["values"])))
        else:
            answer = client.call(command["event"], tuple(rich(command["values"])), timeout=15)
            tell("answer", value=answer)
    client.disconnect()


async def run_asyncio():
    client = socketio.AsyncClient(reconnection_delay=0.1, reconnection_delay_max=0.5)
    handle(client)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        if command["do"] == "connect":
            try:
                await client.connect(command["url"], **connecting(command))
            except socketio.exceptions.ConnectionError:
                tell("failed")
        elif command["do"] == "emit":
            await client.emit(command["event"], tuple(rich(command["values"])))
        else:
            answer = await client.call(command["event"], tuple(rich(command["values"])), timeout=15)
            tell("answer", value=answer)
    await client.disconnect()


if sys.argv[1] == "asyncio":
    asyncio.run(run_asyncio())
else:
    run_threads()
