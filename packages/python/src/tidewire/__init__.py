"""The Python client of Tidewire: records, events, rpc and presence over one connection that reconnects.

>>> async with connect("localhost:6020", auth={"username": "ann"}) as client:
...     async with client.record("board/1") as board:
...         await board.set("title", "Plan")
"""

from ._awaitable import Deferred, Stream, Subscription
from ._client import Client, Connecting, connect
from ._connection import Auth, AuthContext, Credentials, State
from ._error import RpcError, RpcReject, TidewireError
from ._event import Event, Events, Gap
from ._json import MISSING, Missing, Path, Step
from ._presence import Presence, PresenceChange
from ._protocol import Position
from ._record import Conflict, Edit, Merge
from ._records import Record, Records
from ._rpc import Call, Rpcs

__all__ = [
    "MISSING",
    "Auth",
    "AuthContext",
    "Call",
    "Client",
    "Conflict",
    "Connecting",
    "Credentials",
    "Deferred",
    "Edit",
    "Event",
    "Events",
    "Gap",
    "Merge",
    "Missing",
    "Path",
    "Position",
    "Presence",
    "PresenceChange",
    "Record",
    "Records",
    "RpcError",
    "RpcReject",
    "Rpcs",
    "State",
    "Step",
    "Stream",
    "Subscription",
    "TidewireError",
    "connect",
]
