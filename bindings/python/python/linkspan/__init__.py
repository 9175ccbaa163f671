"""One-sided writes and reads between the memories of processes, over the best path there is between the two.

The side that is written to::

    import linkspan

    target = linkspan.Transport("cpu")
    inbox = bytearray(5)                                        # or an array of numpy, a tensor of torch
    remote = target.expose(inbox).remote
    print(str(target.bind()), remote.to_bytes().hex())          # give both to the other side
    target.wait_connected()
    target.wait_for_write()
    print(inbox)

The side that writes::

    import sys

    import linkspan

    url, remote = sys.argv[1], linkspan.RemoteBuffer.from_bytes(bytes.fromhex(sys.argv[2]))
    source = linkspan.Transport("cpu")
    source.connect(url)
    source.write(b"hello", remote, notify=True)

Every call that waits comes twice: ``write`` blocks (without Python's lock), ``await write_async(...)`` runs in an asyncio
loop. Times are in seconds, sizes and offsets in bytes.
"""

from ._aio import find_host_async
from ._errors import (
    Aborted,
    BadNumber,
    BadRemoteBuffer,
    BadSetting,
    BadType,
    BadValue,
    Broken,
    Closed,
    ConnectFailed,
    DeviceFailed,
    DeviceMemory,
    Error,
    Forked,
    HasPeer,
    Interrupted,
    InUse,
    MessageTooLong,
    NoRight,
    NotConnected,
    NotContiguous,
    NotExposed,
    NotPaired,
    OutOfBounds,
    ReadOnly,
    Refused,
    SystemFailed,
    TimedOut,
    TimedOutUnrevoked,
    TooMany,
    UnknownPeer,
    UnsupportedMemory,
    UrlError,
    WrongPeer,
)
from ._linkspan import (
    Endpoint,
    Event,
    Exposed,
    Listener,
    Memory,
    Op,
    Pages,
    RemoteBuffer,
    RemotePages,
    Support,
    Transport,
    Url,
    View,
    __version__,
    find_host,
)
from ._log import log_to_logging

__all__ = [
    "Aborted",
    "BadNumber",
    "BadRemoteBuffer",
    "BadSetting",
    "BadType",
    "BadValue",
    "Broken",
    "Closed",
    "ConnectFailed",
    "DeviceFailed",
    "DeviceMemory",
    "Endpoint",
    "Error",
    "Event",
    "Exposed",
    "Forked",
    "HasPeer",
    "InUse",
    "Interrupted",
    "Listener",
    "Memory",
    "MessageTooLong",
    "NoRight",
    "NotConnected",
    "NotContiguous",
    "NotExposed",
    "NotPaired",
    "Op",
    "OutOfBounds",
    "Pages",
    "ReadOnly",
    "Refused",
    "RemoteBuffer",
    "RemotePages",
    "Support",
    "SystemFailed",
    "TimedOut",
    "TimedOutUnrevoked",
    "TooMany",
    "Transport",
    "UnknownPeer",
    "UnsupportedMemory",
    "Url",
    "UrlError",
    "View",
    "WrongPeer",
    "__version__",
    "find_host",
    "find_host_async",
    "log_to_logging",
]
