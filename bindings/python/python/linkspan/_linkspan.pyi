"""Types of the native half; the classes are documented there and in `linkspan`."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, final

from _typeshed import ReadableBuffer

__version__: str

Access: TypeAlias = Literal["read", "write", "readwrite"]

class SupportsDLPack(Protocol):
    """A tensor of torch, jax, cupy or any other library that supports DLPack."""

    # Libraries differ in the keywords that they take.
    @property
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

class SupportsCudaArray(Protocol):
    """An array of numba, cupy or any other library that says where it lies on a CUDA device."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

MemoryLike: TypeAlias = View | ReadableBuffer | SupportsDLPack | SupportsCudaArray
"""What operations take as memory: a view, or an object whose whole memory is meant."""

Indices: TypeAlias = ReadableBuffer | SupportsDLPack | Iterable[int]
"""Numbers of pages: an array of whole numbers with one dimension, on the host, or a sequence."""

_T_co = TypeVar("_T_co", covariant=True)

class View:
    """A range of bytes of an object that stays alive, and in place, with it. Slicing gives smaller ones: `view[16:48]`."""

    @property
    def nbytes(self) -> int:
        """Bytes in it."""
    @property
    def readonly(self) -> bool:
        """Whether it can only be read from."""
    @property
    def address(self) -> int:
        """Address of the first byte; of a GPU's memory, the GPU's."""
    @property
    def device(self) -> str:
        """Where they are: "cpu", "cuda:0", "hip:1"."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice[int | None, int | None, None], /) -> View: ...
    def view(self, offset: int = 0, length: int | None = None) -> View:
        """A part of it.

        Args:
            offset: First byte.
            length: Bytes; None is up to the end.

        Returns:
            The part, which keeps the whole alive.

        Raises:
            OutOfBounds: It reaches over the end.
            BadNumber: A number below 0, or too large.
        """
    def pages(
        self,
        nbytes: int,
        *,
        count: int | None = None,
        stride: int | None = None,
        pieces: int = 1,
        piece_stride: int | None = None,
    ) -> Pages:
        """Pages in it, to be moved by their numbers. Page `i` is the bytes from `i * stride`, `nbytes` of them; with more pieces, those
        from `piece * piece_stride + i * stride` of each piece, as where `i` is not the first index of a tensor.

        Args:
            nbytes: Bytes of one piece of a page.
            count: Pages; None is as many as fit: one at least, and with more pieces nothing may be left over of any.
            stride: Bytes from a page to the next one; None is `nbytes`.
            pieces: Pieces of each page.
            piece_stride: Bytes from a piece to the next one of its page; None divides the memory into equal parts.

        Returns:
            The pages, which keep the memory alive.

        Raises:
            OutOfBounds: They reach over the end, overlap, or have no bytes; without `count`, none fits or something is left over.
            BadNumber: A number below 0, or too large.
        """
    def tobytes(self) -> bytes:
        """A copy of the bytes, from a GPU too.

        Returns:
            The copy.

        Raises:
            DeviceFailed: The GPU or its driver failed.
        """

@final
class Memory(View):
    """All bytes of a tensor, an array or a buffer, which stay alive and in place with it.

    Args:
        object: With the buffer protocol, DLPack or `__cuda_array_interface__`.

    Raises:
        UnsupportedMemory, NotContiguous: It shows no memory that can be used, or memory with gaps.
        DeviceMemory: It lies on a device whose memory is not moved.
    """

    def __new__(cls, object: ReadableBuffer | SupportsDLPack | SupportsCudaArray) -> Self: ...

@final
class Url:
    """What a peer needs to connect. It carries a secret: `str(url)` and pickling give all of it, `repr(url)` leaves the secret
    out.

    Args:
        text: What `str(url)` gave.

    Raises:
        UrlError: Text that is no URL of ours.
    """

    def __new__(cls, text: str) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RemoteBuffer:
    """A place in a peer's memory, with its length, generation and rights: plain data that travels pickled or as 40 bytes."""

    @property
    def nbytes(self) -> int:
        """Bytes in it."""
    @property
    def access(self) -> Access:
        """What may be done with it: "read", "write" or "readwrite"."""
    @property
    def generation(self) -> int:
        """How often the region's number had been given out before, and once: an older one is refused."""
    @property
    def key(self) -> int:
        """The region's key, which its owner checks at every use."""
    def pages(
        self,
        nbytes: int,
        *,
        count: int | None = None,
        stride: int | None = None,
        pieces: int = 1,
        piece_stride: int | None = None,
    ) -> RemotePages:
        """Pages in it, as `View.pages` has them in memory of this process.

        Args:
            nbytes: Bytes of one piece of a page.
            count: Pages; None is as many as fit: one at least, and with more pieces nothing may be left over of any.
            stride: Bytes from a page to the next one; None is `nbytes`.
            pieces: Pieces of each page.
            piece_stride: Bytes from a piece to the next one of its page; None divides the memory into equal parts.

        Returns:
            The pages.

        Raises:
            OutOfBounds: They reach over the end, overlap, or have no bytes; without `count`, none fits or something is left over.
            BadNumber: A number below 0, or too large.
        """
    def to_bytes(self) -> bytes:
        """The 40 bytes it travels as.

        Returns:
            The bytes.
        """
    @staticmethod
    def from_bytes(data: bytes | bytearray) -> RemoteBuffer:
        """A remote buffer from the bytes of `to_bytes`.

        Args:
            data: 40 bytes.

        Returns:
            The remote buffer.

        Raises:
            BadRemoteBuffer: These bytes are none.
        """
    def view(self, offset: int = 0, length: int | None = None) -> RemoteBuffer:
        """A part of it.

        Args:
            offset: First byte.
            length: Bytes; None is up to the end.

        Returns:
            The part, with the same rights.

        Raises:
            OutOfBounds: It reaches over the end.
            BadNumber: A number below 0, or too large.
        """
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice[int | None, int | None, None], /) -> RemoteBuffer: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Exposed:
    """A region that a peer has been given access to."""

    @property
    def remote(self) -> RemoteBuffer:
        """What to send to the peer."""
    @property
    def reused_registration(self) -> bool:
        """The same range was exposed with the same rights already: this is that region again, with its key."""

@final
class Support:
    """One way by which bytes may travel."""

    @property
    def path(self) -> str:
        """What LINKSPAN_PATH takes, such as "tcp"; and "cma" (within "shm", large messages without a copy in between)."""
    @property
    def usable(self) -> bool:
        """Whether it may be taken."""
    @property
    def why(self) -> str:
        """Over what, or why not."""

@final
class Op(Coroutine[Any, Any, _T_co]):
    """An operation that has begun. `await op` in an asyncio loop, or `op.wait()` in any thread; both give its result and may be
    repeated. Letting go of it before that cancels it.
    """

    def wait(self) -> _T_co:
        """Waits for the report; this thread drives the path meanwhile.

        Returns:
            Its result, each time that it is asked for.

        Raises:
            Error: Those of the call that began it.
            Aborted: It was cancelled.
            InUse: Another thread waits for it.
            Forked: In a child of fork(2).
        """
    def done(self) -> bool:
        """Whether it has reported. To ask moves its path on, without Python's lock, where no other thread does: a loop that asks needs no
        other help.

        Returns:
            True when `wait` would return or raise at once.

        Raises:
            Forked: In a child of fork(2).
        """
    def cancel(self) -> bool:
        """Cancels it: when this returns, nothing of it reads or writes local memory any more.

        Returns:
            True if it was under way.

        Raises:
            InUse: Another thread waits for it, which only `abort` and `close` of its transport, listener or endpoint end.
            Forked: In a child of fork(2).
        """
    def send(self, value: Any) -> Any:
        """As a coroutine has it: an operation can be given to `asyncio.create_task` and `TaskGroup.create_task`.

        Args:
            value: None.

        Returns:
            The future that is waited for.

        Raises:
            StopIteration: It has reported; with its result.
            Error: Those of the call that began it.
        """
    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """As a coroutine has it: `asyncio.CancelledError` cancels the operation.

        Args:
            typ: An exception or its class.
            val: Its value, where a class was given.
            tb: Its traceback.

        Returns:
            The future that is waited for.

        Raises:
            BaseException: That which was thrown.
        """
    def close(self) -> None:
        """As a coroutine has it: cancels the operation.

        Raises:
            InUse: Another thread waits for it.
            Forked: In a child of fork(2).
        """
    def __await__(self) -> Generator[Any, Any, _T_co]: ...
    def _watch(self, notifier: Notifier, token: int) -> bool:
        """Looks once; if it is still under way, `notifier` is signaled with `token` when it has reported."""

@final
class Pages:
    """Pages in memory of this process, made once and used with any indices."""

    @property
    def count(self) -> int:
        """Pages."""
    @property
    def nbytes(self) -> int:
        """Bytes of one page."""
    @property
    def readonly(self) -> bool:
        """Whether they can only be written from."""
    def __len__(self) -> int: ...

@final
class RemotePages:
    """Pages in the peer's memory, made once and used with any indices."""

    @property
    def count(self) -> int:
        """Pages."""
    @property
    def nbytes(self) -> int:
        """Bytes of one page."""
    def __len__(self) -> int: ...

@final
class Notifier:
    """An eventfd that can be read when an operation that was given to it has reported, and the tokens of those that have."""

    def fileno(self) -> int: ...
    def drain(self) -> list[int]:
        """Silences it and returns the tokens of what may have reported."""

@final
class LogLines:
    """Lines of the library's log, from when it is made until `close`. Each thread that logs has its own: a lock of the parent's is no use in a
    child of fork(2).
    """

    def __new__(cls) -> LogLines: ...
    def wait(self) -> list[tuple[int, str]]:
        """Waits for lines, each with its level; none are left once it was closed."""
    def close(self) -> None:
        """From now on lines go to standard error again."""

@final
class Event:
    """What has happened at a peer of an endpoint."""

    @property
    def kind(self) -> Literal["connected", "notified", "lost"]:
        """"connected", "notified" or "lost"."""
    @property
    def peer(self) -> str:
        """The peer's name."""
    @property
    def value(self) -> int | None:
        """What a notification brought along, 0 for `notify=True`; None for other kinds."""
    @property
    def why(self) -> str | None:
        """Why a peer was lost; None for other kinds."""

@final
class Endpoint:
    """Any number of peers by their names, each with a `Transport`, and memory that is exposed once for all of them. All methods may be
    called from several threads at a time; those that wait release Python's lock.

    Args:
        name: What peers call it: 1 to 64 visible characters of ASCII, another one for each endpoint of a job.
        device: As for `Transport`, of the transports of all peers.
        paired: As for `Transport`.

    Raises:
        BadValue: The name cannot be one.
        NotPaired, DeviceMemory, DeviceFailed, SystemFailed, BadSetting, Forked: As for `Transport`.
    """

    def __new__(cls, name: str, device: object = None, *, paired: bool = False) -> Self: ...
    def serve_at(self, port: int = 24682) -> int:
        """Gives the URL to whoever asks for it at this TCP port of the host, until `close`: paired hosts find it by name then
        (`find_host`). Only those whose keys are trusted get in. For `paired` endpoints.

        Args:
            port: 24682 where nothing is said; 0: one that is free.

        Returns:
            The port.

        Raises:
            NotPaired: The endpoint was made without `paired`.
            SystemFailed: Another process has the port.
            BadNumber: A port that there cannot be.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    @property
    def name(self) -> str:
        """What peers call it.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    @property
    def url(self) -> Url:
        """What peers connect to, any number of them. It carries a secret.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def connect(
        self,
        peer: str,
        url: Url | str | Callable[[str], Url | str | None],
        timeout: float | None = 10.0,
    ) -> Transport:
        """Connects to the endpoint called `peer`. Where it is connected already, or connects to this one meanwhile, that is the connection.

        Args:
            peer: Its name.
            url: A `Url`, its text, or a function that is called with the name and returns one of these, or None as long as nobody has
                it: a lookup in a store that all processes have.
            timeout: Seconds from 0; None waits a year.

        Returns:
            The peer's transport, connected.

        Raises:
            ConnectFailed: No path came about in time, an endpoint of another name answered, or another process there has our name.
            BadValue: A name that cannot be one, or is that of a peer with another URL; a timeout below 0 or no number.
            UrlError: Text that is no URL of ours.
            BadType: Neither a `Url` nor text nor a function.
            TooMany: There are as many peers as there can be.
            Broken, Aborted: The peer was lost or removed meanwhile.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def connect_async(self, peer: str, url: Url | str, timeout: float | None = 10.0) -> Op[Transport]:
        """As `connect`, with its arguments and errors, to be awaited; it begins at once. A function has no place here: await what it
        asks for first.

        Returns:
            An operation that has begun, of which the result is the peer's transport.
        """
    def peers(self) -> list[str]:
        """The peers that are connected, or whose path is being made again.

        Returns:
            Their names, sorted.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def peer(self, name: str) -> Transport:
        """The transport of a peer, for everything that goes to it or comes from it. Closing it removes the peer.

        Args:
            name: The peer's name.

        Returns:
            Its transport; of a peer that was lost, until its "lost" event was taken, one that is broken.

        Raises:
            UnknownPeer: No peer has this name; the message has those that are there.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def remove(self, name: str) -> None:
        """Closes the connection to a peer: what is under way ends with `Aborted`, and no event of it comes any more. It may connect again.

        Args:
            name: The peer's name.

        Raises:
            UnknownPeer: No peer has this name.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def expose(self, memory: MemoryLike, access: Access = "readwrite") -> Exposed:
        """Gives all peers access to memory, those to come included, until `unexpose` or the end of the endpoint, which keep the memory alive.
        One remote buffer is good for every peer.

        Args:
            memory: A view, or an object whose whole memory is meant.
            access: What the peers may do: "read", "write" or "readwrite".

        Returns:
            The region; its `remote` is for the peers.

        Raises:
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            ReadOnly: Memory that must not be written to, and `access` lets peers write.
            DeviceMemory: Memory of a GPU that this endpoint does not carry.
            BadValue: Another word for `access`.
            TooMany: No more regions can be exposed.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def unexpose(self, region: Exposed, timeout: float = 10.0) -> None:
        """Takes access back from all peers. When this returns nothing of any of them lands in the region or is read from it any more.

        Args:
            region: What `expose` returned.
            timeout: Seconds from 0 for the peers to confirm; paths of those that do not answer are revoked.

        Raises:
            NotExposed: The region was taken back already, or is of one transport.
            BadValue: A timeout below 0 or no number.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def next_event(self, timeout: float | None = None) -> Event:
        """Waits for the next event of any peer. Events of one peer come in order, and peers take turns. `next_event(0)` is the way to poll.

        Args:
            timeout: Seconds from 0; None waits without limit.

        Returns:
            A peer that has connected, notified, or was lost.

        Raises:
            TimedOut: Nothing happened in time.
            BadValue: A timeout below 0 or no number.
            Closed: After `close`, also of another thread meanwhile.
            Forked: In a child of fork(2).
        """
    def next_event_async(self) -> Op[Event]:
        """As `next_event`, to be awaited; `asyncio.timeout` limits it.

        Returns:
            An operation of which the result is the event.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def events(self) -> AsyncGenerator[Event, None]:
        """The events of all peers, one after the other, for `async for`.

        Returns:
            An iterator over them, which ends when the endpoint is closed.

        Raises:
            Forked: From the iterator, in a child of fork(2).
        """
    def fileno(self) -> int:
        """For event loops other than asyncio's: a descriptor that can be read when there is an event, or an operation with any peer has
        reported. Then call `poll`, `next_event(0)` until it is `TimedOut`, and `Op.done`.

        Returns:
            The descriptor, which stays the same and is closed with the endpoint.

        Raises:
            SystemFailed: No descriptor is left to this process.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def poll(self) -> bool:
        """Silences the descriptor of `fileno`.

        Returns:
            True where there may be events.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def close(self) -> None:
        """Closes all connections, ends everything pending with `Aborted`, and turns new peers away. Closing again does nothing.

        Raises:
            Forked: In a child of fork(2).
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> Coroutine[Any, Any, None]: ...

@final
class Listener:
    """Accepts any number of peers at one URL, each with a transport of its own.

    Args:
        device: As for `Transport`, of the transports that it accepts.
        paired: As for `Transport`.

    Raises:
        NotPaired, DeviceMemory, DeviceFailed, SystemFailed, BadSetting, Forked: As for `Transport`.
    """

    def __new__(cls, device: object = None, *, paired: bool = False) -> Self: ...
    def serve_at(self, port: int = 24682) -> int:
        """Gives the URL to whoever asks for it at this TCP port of the host, until `close`: paired hosts find it by name then
        (`find_host`). Only those whose keys are trusted get in. For `paired` listeners.

        Args:
            port: 24682 where nothing is said; 0: one that is free.

        Returns:
            The port.

        Raises:
            NotPaired: The listener was made without `paired`.
            SystemFailed: Another process has the port.
            BadNumber: A port that there cannot be.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    @property
    def url(self) -> Url:
        """What peers connect to.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def accept(self, timeout: float | None = None) -> Transport:
        """Waits for the next peer that has connected.

        Args:
            timeout: Seconds from 0; None waits without limit.

        Returns:
            Its transport, connected.

        Raises:
            TimedOut: Nobody connected in time; the listener goes on.
            Aborted: `close` came meanwhile.
            BadValue: A timeout below 0 or no number.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def accept_async(self) -> Op[Transport]:
        """As `accept`, to be awaited; `asyncio.timeout` limits it.

        Returns:
            An operation of which the result is the transport; `close` ends it with `Aborted`.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def close(self) -> None:
        """Turns new peers away, those included that were not accepted yet, and ends what waits for one with `Aborted`; transports that were
        accepted live on. Closing again does nothing.

        Raises:
            Forked: In a child of fork(2).
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> Coroutine[Any, Any, None]: ...

@final
class Transport:
    """A connection to one peer process, for writes into and reads from its memory, and for messages. All methods may be called
    from several threads at a time; those that wait release Python's lock.

    Args:
        device: "cpu", or the GPU whose memory is carried beside that of the host: "cuda:0", "hip:1", `torch.device("cuda")`.
        paired: Both sides of the connection prove their keys (`lspan pair`): for peers by the names of their hosts, see `find_host`.

    Raises:
        NotPaired: `paired`, and this user has no key.
        DeviceMemory: There are no transports for this device, no such GPU, or no driver for it.
        DeviceFailed: The GPU or its driver refused or failed.
        SystemFailed: A system call failed.
        BadSetting: A setting (`LINKSPAN_*`) has a value that cannot be.
        Forked: In a child of fork(2).
    """

    def __new__(cls, device: object = None, *, paired: bool = False) -> Self: ...
    @staticmethod
    def supported() -> list[Support]:
        """Which paths this machine and the settings (`LINKSPAN_*`) have, and why not the others.

        Returns:
            One entry for each path.

        Raises:
            BadSetting: A setting has a value that cannot be.
            SystemFailed: A system call failed.
            Forked: In a child of fork(2).
        """
    @property
    def connected(self) -> bool:
        """Whether there is a path to the peer at this moment.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    @property
    def path(self) -> str | None:
        """What carries the bytes and why, one line; None while there is no path.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    @property
    def peer_name(self) -> str | None:
        """The name that the peer was paired under, or its key's fingerprint; None without keys (`paired`), and while there is no path.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    @property
    def epoch(self) -> int:
        """Paths to the peer so far: one, and one more for every revocation.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def bind(self) -> Url:
        """Lets one peer connect; the URL stays the same however often it is asked for.

        Returns:
            What the peer passes to `connect`. It carries a secret.

        Raises:
            BadSetting, SystemFailed: The device that was set does not exist; the system refuses a listening socket.
            Broken, Closed, Forked: The transport is beyond use; after `close`; in a child of fork(2).
        """
    def connect(self, url: Url | str, timeout: float | None = 10.0) -> None:
        """Connects to the transport or listener at `url`.

        Args:
            url: A `Url` or its text.
            timeout: Seconds from 0; None waits a year.

        Raises:
            ConnectFailed: No path came about in time; the message names every path that was tried.
            HasPeer: This transport has a peer already.
            UrlError: Text that is no URL of ours.
            BadType: Neither a `Url` nor text.
            BadValue: A timeout below 0 or no number.
            Broken, Aborted: The transport is beyond use; `abort` or `close` came.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def connect_async(self, url: Url | str, timeout: float | None = 10.0) -> Op[None]:
        """As `connect`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun: await it, or call its `wait`.
        """
    def wait_connected(self, timeout: float | None = None) -> None:
        """Waits until the peer that has our URL is connected.

        Args:
            timeout: Seconds from 0; None waits a year.

        Raises:
            ConnectFailed: No peer connected in time.
            BadValue: A timeout below 0 or no number.
            Broken, Aborted: The transport is beyond use; `abort` or `close` came.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def wait_connected_async(self, timeout: float | None = None) -> Op[None]:
        """As `wait_connected`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun: await it, or call its `wait`.
        """
    def stats(self) -> dict[str, int]:
        """What this transport has done so far. Numbers only grow, but for "pending"; `lspan stats` has those of the process.

        Returns:
            Operations that have reported and bytes that they moved, by name: "writes" and "written_bytes", "reads" and "read_bytes", "sends"
            and "sent_bytes", "receives" and "received_bytes"; "notifications" taken; "failures"; "paths" made; "pending" operations.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def expose(self, memory: MemoryLike, access: Access = "readwrite") -> Exposed:
        """Gives the peer access to memory until `unexpose` or the end of the transport, which keep the memory alive.

        Args:
            memory: A view, or an object whose whole memory is meant.
            access: What the peer may do: "read", "write" or "readwrite".

        Returns:
            The region; its `remote` is for the peer.

        Raises:
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            ReadOnly: Memory that must not be written to, and `access` lets the peer write.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            BadValue: Another word for `access`.
            TooMany: No more regions can be exposed.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def unexpose(self, region: Exposed, timeout: float = 10.0) -> None:
        """Takes access back. When this returns nothing of the peer lands in the region or is read from it any more.

        Args:
            region: What `expose` returned.
            timeout: Seconds from 0 for the peer to confirm; without an answer the path is revoked.

        Raises:
            NotExposed: The region was taken back already.
            BadValue: A timeout below 0 or no number.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def write(
        self,
        source: MemoryLike,
        to: RemoteBuffer,
        notify: bool | int | None = None,
        timeout: float | None = None,
        *,
        fence: bool = False,
    ) -> int:
        """Writes into the peer's memory, and notifies it afterwards if asked.

        Args:
            source: Memory or a view of it; it must not change until this is done.
            to: Where to; at least as long as `source`.
            notify: True counts at the peer; a number from 0 below 2**64 is brought along; None and False do nothing.
            timeout: Seconds from 0; None waits as long as the peer is alive.
            fence: The notification waits for all earlier writes, whichever call began them.

        Returns:
            Bytes written.

        Raises:
            OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            BadValue: A timeout below 0, or a `notify` that is neither.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Refused: The peer took the region back, or does not give the range or the right.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def write_async(
        self,
        source: MemoryLike,
        to: RemoteBuffer,
        notify: bool | int | None = None,
        timeout: float | None = None,
        *,
        fence: bool = False,
    ) -> Op[int]:
        """As `write`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is bytes written.
        """
    def read(self, into: MemoryLike, source: RemoteBuffer, timeout: float | None = None) -> int:
        """Reads the first bytes of `source` in the peer's memory, as many as `into` has.

        Args:
            into: Memory or a view of it that may be written to.
            source: Where from; at least as long as `into`.
            timeout: Seconds from 0; None waits as long as the peer is alive.

        Returns:
            Bytes read.

        Raises:
            ReadOnly: `into` must not be written to.
            OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            BadValue: A timeout below 0 or no number.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Refused: The peer took the region back, or does not give the range or the right.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def read_async(self, into: MemoryLike, source: RemoteBuffer, timeout: float | None = None) -> Op[int]:
        """As `read`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is bytes read.
        """
    def write_batch(
        self,
        parts: Iterable[tuple[MemoryLike, RemoteBuffer]],
        notify: bool | int | None = None,
        timeout: float | None = None,
        *,
        fence: bool = False,
    ) -> int:
        """Many writes in one call. The notification covers all of them.

        Args:
            parts: Pairs of memory here and a remote buffer.
            notify: True counts at the peer; a number from 0 below 2**64 is brought along; None and False do nothing.
            timeout: Seconds from 0; None waits as long as the peer is alive.
            fence: The notification waits for all earlier writes, whichever call began them.

        Returns:
            Bytes written in all.

        Raises:
            OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            BadValue: No parts with a notification, a timeout below 0, or a `notify` that is neither.
            BadType: A part that is no such pair.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Refused: The peer took the region back, or does not give the range or the right.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def write_batch_async(
        self,
        parts: Iterable[tuple[MemoryLike, RemoteBuffer]],
        notify: bool | int | None = None,
        timeout: float | None = None,
        *,
        fence: bool = False,
    ) -> Op[int]:
        """As `write_batch`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is bytes written in all.
        """
    def read_batch(self, parts: Iterable[tuple[MemoryLike, RemoteBuffer]], timeout: float | None = None) -> int:
        """Many reads in one call.

        Args:
            parts: Pairs of memory here, which may be written to, and a remote buffer.
            timeout: Seconds from 0; None waits as long as the peer is alive.

        Returns:
            Bytes read in all.

        Raises:
            ReadOnly: Memory that must not be written to.
            OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            BadValue: A timeout below 0 or no number.
            BadType: A part that is no such pair.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Refused: The peer took the region back, or does not give the range or the right.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def read_batch_async(
        self, parts: Iterable[tuple[MemoryLike, RemoteBuffer]], timeout: float | None = None
    ) -> Op[int]:
        """As `read_batch`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is bytes read in all.
        """
    def write_pages(
        self,
        source: Pages,
        ours: Indices | None,
        to: RemotePages,
        theirs: Indices | None,
        notify: bool | int | None = None,
        timeout: float | None = None,
        *,
        fence: bool = False,
    ) -> int:
        """Writes pages by their numbers: page `ours[n]` of `source` becomes page `theirs[n]` of `to`, for every n. One notification comes after
        all of them.

        Args:
            source: Pages here.
            ours: Their numbers: an array of whole numbers on the host (numpy, torch), or a sequence; None is all, in order.
            to: Pages at the peer, with as many bytes each.
            theirs: Their numbers, as many.
            notify: True counts at the peer; a number from 0 below 2**64 is brought along; None and False do nothing.
            timeout: Seconds from 0; None waits as long as the peer is alive.
            fence: The notification waits for all earlier writes, whichever call began them.

        Returns:
            Bytes written in all.

        Raises:
            OutOfBounds: An index that is not of a page.
            BadValue: Lists of different lengths, pages of different bytes, no pages with a notification, a timeout below 0.
            UnsupportedMemory: Indices that are no whole numbers, have more than one dimension, or lie on a GPU.
            NoRight, WrongPeer: The remote buffer does not give this right, or is of another transport.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Refused: The peer took the region back, or does not give the range or the right.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def write_pages_async(
        self,
        source: Pages,
        ours: Indices | None,
        to: RemotePages,
        theirs: Indices | None,
        notify: bool | int | None = None,
        timeout: float | None = None,
        *,
        fence: bool = False,
    ) -> Op[int]:
        """As `write_pages`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is bytes written in all.
        """
    def read_pages(
        self,
        into: Pages,
        ours: Indices | None,
        source: RemotePages,
        theirs: Indices | None,
        timeout: float | None = None,
    ) -> int:
        """Reads pages by their numbers: page `ours[n]` of `into` gets page `theirs[n]` of `source`, for every n.

        Args:
            into: Pages here, of memory that may be written to.
            ours: Their numbers: an array of whole numbers on the host (numpy, torch), or a sequence; None is all, in order.
            source: Pages at the peer, with as many bytes each.
            theirs: Their numbers, as many.
            timeout: Seconds from 0; None waits as long as the peer is alive.

        Returns:
            Bytes read in all.

        Raises:
            OutOfBounds: An index that is not of a page.
            BadValue: Lists of different lengths, pages of different bytes, or a timeout below 0.
            UnsupportedMemory: Indices that are no whole numbers, have more than one dimension, or lie on a GPU.
            ReadOnly: `into` must not be written to.
            NoRight, WrongPeer: The remote buffer does not give this right, or is of another transport.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Refused: The peer took the region back, or does not give the range or the right.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def read_pages_async(
        self,
        into: Pages,
        ours: Indices | None,
        source: RemotePages,
        theirs: Indices | None,
        timeout: float | None = None,
    ) -> Op[int]:
        """As `read_pages`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is bytes read in all.
        """
    def wait_for_write(self, timeout: float | None = None) -> int:
        """Takes the oldest notification of the peer, waiting for it if need be.

        A wait that times out leaves the path alone, so `wait_for_write(0)` is the way to poll.

        Args:
            timeout: Seconds from 0; None waits as long as the peer is alive.

        Returns:
            Its value, 0 for `notify=True`.

        Raises:
            TimedOut: None came in time.
            BadValue: A timeout below 0 or no number.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def wait_for_write_async(self, timeout: float | None = None) -> Op[int]:
        """As `wait_for_write`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is the value.
        """
    def notifications(self) -> AsyncGenerator[int, None]:
        """The notifications of the peer, one after the other, for `async for`.

        Returns:
            An iterator over their values, which ends when the peer closes its transport or this one is closed, not at `abort`.

        Raises:
            Broken: From the iterator, where the peer's process has ended, or the path could not be made again.
            NotConnected: From the iterator: there is no peer yet.
        """
    def send(self, tag: int, source: MemoryLike, timeout: float | None = None) -> int:
        """Sends a message to the peer's receive with the same tag, which may be posted later: both sides may send first.

        Args:
            tag: A number from 0 below 2**32 - 1; the k-th send with a tag meets the k-th receive with it.
            source: Memory or a view of it; it must not change until this is done.
            timeout: Seconds from 0; None waits as long as the peer is alive.

        Returns:
            Bytes sent.

        Raises:
            MessageTooLong: The receive is shorter; a small message fails at the receiver alone.
            Interrupted: Another operation revoked the path meanwhile; whether it arrived is unknown.
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            BadValue: A tag that there cannot be or that is kept for the transport, or a timeout below 0.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def send_async(self, tag: int, source: MemoryLike, timeout: float | None = None) -> Op[int]:
        """As `send`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is bytes sent.
        """
    def recv(self, tag: int, into: MemoryLike, timeout: float | None = None) -> int:
        """Receives a message with this tag. What had been sent can still be received when the peer has closed its transport or was lost.

        A receive that times out or is cancelled revokes its path, and both sides connect anew: do not poll with short timeouts, but keep one `recv_async` and
        ask its `done()`.

        Args:
            tag: That of the send.
            into: Memory or a view of it that may be written to, as long as the message at least.
            timeout: Seconds from 0; None waits as long as the peer is alive.

        Returns:
            Its length in bytes.

        Raises:
            MessageTooLong: The message is longer than `into`.
            Interrupted: Another operation revoked the path meanwhile.
            ReadOnly: `into` must not be written to.
            UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
            DeviceMemory: Memory of a GPU that this transport does not carry.
            BadValue: A tag that there cannot be or that is kept for the transport, or a timeout below 0.
            NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
            TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def recv_async(self, tag: int, into: MemoryLike, timeout: float | None = None) -> Op[int]:
        """As `recv`, with its arguments and errors, to be awaited; it begins at once.

        Returns:
            An operation that has begun, of which the result is the length in bytes.
        """
    def abort(self) -> None:
        """Ends everything pending, on every thread, with `Aborted`. The transport stays usable.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def fileno(self) -> int:
        """For event loops other than asyncio's: a descriptor that can be read when an operation has reported. Then call `poll`
        and `Op.done`.

        Returns:
            The descriptor, which stays the same and is closed with the transport; for an endpoint's peer that of the endpoint.

        Raises:
            SystemFailed: No descriptor is left to this process.
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def poll(self) -> bool:
        """Silences the descriptor of `fileno`, unless it is an endpoint's, and moves on what can move, without waiting.

        Returns:
            True where something moved.

        Raises:
            Closed, Forked: After `close`; in a child of fork(2).
        """
    def close(self) -> None:
        """Ends everything pending with `Aborted`, calls of other threads too, closes the connection and releases all memory: a call that it ends
        lets go of its own as it returns. A signal handler may close it. Closing again does nothing.

        Raises:
            Forked: In a child of fork(2).
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> Coroutine[Any, Any, None]: ...

def find_host(host: str, timeout: float | None = 10.0) -> Url:
    """Asks a paired host for the URL that a program there serves (`serve_at`). A host that serves none yet is asked again until it does.
    What connects to the URL is made with `paired=True`.

    Args:
        host: The name that it was paired under (`lspan key list`), with `:PORT` behind it where the port is not 24682: then only the
            one who has that key can be connected to at this `Url`, of which the text does not say so. It may also be an address or
            another name of a host; then the key of any paired peer will do.
        timeout: Seconds from 0; None waits a year.

    Returns:
        The URL.

    Raises:
        NotPaired: This user has no key.
        ConnectFailed: No peer and no host has this name; nobody served there in time.
        BadValue: Text that names no host; a timeout below 0 or no number.
        SystemFailed, BadSetting, Forked: As for `Transport`.
    """

def forked() -> bool: ...
