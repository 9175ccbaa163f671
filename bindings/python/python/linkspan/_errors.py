"""Exceptions, each with the stable code that stands at the start of its message (docs/ERRORS.md lists them)."""


class Error(Exception):
    """Base of all exceptions of this package."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def code(self) -> str:
        """The stable code, as in ``"LS1101"``."""
        return self.message[:6]

    def __str__(self) -> str:
        return self.message


class TimedOut(Error, TimeoutError):
    """Not done within its timeout; the transport stays usable. But for ``TimedOutUnrevoked``, which is one too, no byte of it lands
    any more.

    That the peer confirms this is waited for: such a call may take up to ``LINKSPAN_REVOKE_MS`` (1 second by default) longer than its
    ``timeout``.
    """


class TimedOutUnrevoked(TimedOut):
    """A ``TimedOut`` of which the peer has not confirmed within ``LINKSPAN_REVOKE_MS`` (1 second by default) more than the ``timeout``
    that nothing lands any more: bytes may still land in the peer's memory.
    """


class Aborted(Error):
    """Ended by ``abort``, ``close``, ``cancel`` or because its transport is gone."""


class Broken(Error, ConnectionError):
    """The transport cannot be used any more; make a new one."""

    @property
    def peer_closed(self) -> bool:
        """Whether the peer closed its transport, rather than ended or was lost."""
        return "the peer closed its transport" in self.message


class Interrupted(Error):
    """The path was lost, or revoked for another operation, while the message was under way; whether it arrived is unknown."""


class NotConnected(Error, ConnectionError):
    """There is no peer yet."""


class HasPeer(Error):
    """The transport has another peer already."""


class ConnectFailed(Error, ConnectionError):
    """No connection came about; the message names every path that was tried."""


class UnknownPeer(Error, KeyError):
    """An endpoint has no peer of this name; the message has those that it has."""


class OutOfBounds(Error, IndexError):
    """A range outside of its memory or remote buffer."""


class NoRight(Error, PermissionError):
    """The remote buffer does not give this right."""


class Refused(Error, PermissionError):
    """The peer refused the operation: the region was taken back, or the range or right is not given."""


class WrongPeer(Error):
    """The remote buffer was given out by another transport."""


class ReadOnly(Error, BufferError):
    """Memory that must not be written to."""


class NotExposed(Error, KeyError):
    """The region was taken back already."""


class NotPaired(Error, PermissionError):
    """This user has no keys that can be used, or the object was made without them; ``lspan pair`` makes some."""


class BadRemoteBuffer(Error, ValueError):
    """Bytes that are not a remote buffer."""


class SystemFailed(Error, OSError):
    """A system call failed."""


class UrlError(Error, ValueError):
    """Text that is not a URL of ours."""


class MessageTooLong(Error, ValueError):
    """A message was longer than the receive it met."""


class UnsupportedMemory(Error, TypeError):
    """An object that shows no memory which can be used."""


class NotContiguous(Error, BufferError):
    """Memory with gaps."""


class DeviceMemory(Error, TypeError):
    """Memory of a device that is not carried, or a transport for a device which is not there."""


class DeviceFailed(Error, RuntimeError):
    """A GPU or its driver refused or failed."""


class Closed(Error, ValueError):
    """A transport, listener or endpoint after ``close``."""


class Forked(Error, RuntimeError):
    """Used in a child of fork(2), where the connections belong to the parent."""


class BadValue(Error, ValueError):
    """An argument that no call takes."""


class BadNumber(BadValue, OverflowError):
    """A number below 0, or too large for what it says."""


class BadType(Error, TypeError):
    """An object of another type than the call takes."""


class BadSetting(Error, ValueError):
    """A setting (``LINKSPAN_*``) has a value that cannot be, or names what this machine has not."""


class TooMany(Error, RuntimeError):
    """More peers or regions than there can be."""


class InUse(Error, RuntimeError):
    """Another thread waits for the operation."""


# As they are to be found, and as tracebacks show them.
for _class in [one for one in globals().values() if isinstance(one, type) and not one.__name__.startswith("_")]:
    _class.__module__ = "linkspan"


_CLASSES: dict[str, type[Error]] = {
    "LS0010": MessageTooLong,
    "LS0013": Refused,
    "LS0014": Broken,
    "LS0016": OutOfBounds,
    "LS0017": DeviceFailed,
    "LS0207": BadSetting,
    "LS0208": BadSetting,
    "LS0301": SystemFailed,
    "LS0302": SystemFailed,
    "LS0303": BadSetting,
    "LS0304": BadSetting,
    "LS0305": BadSetting,
    "LS0309": SystemFailed,
    "LS0312": SystemFailed,
    "LS0501": BadSetting,
    "LS0502": BadSetting,
    "LS0503": BadSetting,
    "LS0504": SystemFailed,
    "LS0505": SystemFailed,
    "LS0506": BadSetting,
    "LS0511": BadSetting,
    "LS0518": BadSetting,
    "LS0520": NotPaired,
    "LS0521": NotPaired,
    "LS0522": NotPaired,
    "LS0523": NotPaired,
    "LS0524": NotPaired,
    "LS0525": NotPaired,
    "LS0526": NotPaired,
    "LS0601": BadSetting,
    "LS0602": BadSetting,
    "LS0731": ConnectFailed,
    "LS0732": ConnectFailed,
    "LS0733": SystemFailed,
    "LS0738": BadValue,
    "LS0739": ConnectFailed,
    "LS0740": NotPaired,
    "LS0741": ConnectFailed,
    "LS1101": TimedOut,
    "LS1102": TimedOutUnrevoked,
    "LS1103": Aborted,
    "LS1104": Broken,
    "LS1105": Interrupted,
    "LS1106": NotConnected,
    "LS1107": HasPeer,
    "LS1108": ConnectFailed,
    "LS1109": OutOfBounds,
    "LS1110": OutOfBounds,
    "LS1111": NoRight,
    "LS1112": WrongPeer,
    "LS1113": ReadOnly,
    "LS1114": TooMany,
    "LS1115": NotExposed,
    "LS1116": BadRemoteBuffer,
    "LS1117": SystemFailed,
    "LS1118": BadValue,
    "LS1119": BadValue,
    "LS1120": UrlError,
    "LS1121": UrlError,
    "LS1122": UrlError,
    "LS1123": UrlError,
    "LS1124": UrlError,
    "LS1125": UrlError,
    "LS1126": UrlError,
    "LS1127": DeviceMemory,
    "LS1128": DeviceFailed,
    "LS1129": OutOfBounds,
    "LS1130": OutOfBounds,
    "LS1131": BadValue,
    "LS1132": BadValue,
    "LS1133": UnknownPeer,
    "LS1134": BadValue,
    "LS1135": BadValue,
    "LS1136": TooMany,
    "LS1137": Closed,
    "LS1138": NotPaired,
    "LS1180": UnsupportedMemory,
    "LS1181": NotContiguous,
    "LS1182": DeviceMemory,
    "LS1183": Closed,
    "LS1184": Forked,
    "LS1185": DeviceMemory,
    "LS1186": InUse,
    "LS1187": BadValue,
    "LS1188": BadValue,
    "LS1189": BadValue,
    "LS1190": BadValue,
    "LS1191": UnsupportedMemory,
    "LS1192": UnsupportedMemory,
    "LS1193": OutOfBounds,
    "LS1194": BadType,
    "LS1195": BadType,
    "LS1196": BadNumber,
    "LS1197": BadType,
    "LS1198": OutOfBounds,
    "LS1301": DeviceMemory,
    "LS1302": DeviceFailed,
    "LS1303": DeviceFailed,
    "LS1304": DeviceMemory,
    "LS1305": DeviceFailed,
    "LS1306": DeviceMemory,
    "LS1307": DeviceFailed,
    "LS1309": DeviceMemory,
    "LS1310": DeviceMemory,
    "LS1311": DeviceFailed,
    "LS1312": DeviceMemory,
    "LS1313": DeviceMemory,
}

# What keeps a connection from coming about.
for _number in (*range(201, 207), *range(210, 232), 306, 307, 308, 310, *range(507, 511), *range(512, 517), 519):
    _CLASSES[f"LS{_number:04}"] = ConnectFailed


def build(message: str) -> Error:
    """The exception for a message, by the code at its start."""
    return _CLASSES.get(message[:6], Error)(message)
