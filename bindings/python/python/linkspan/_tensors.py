"""What no protocol says about tensors and devices."""

import sys
from contextlib import suppress
from typing import Any


def fix_storage(tensor: Any) -> None:
    """Makes the storage of a torch tensor one that cannot be resized, which would free the bytes under an operation.

    torch does so itself whenever it lends a storage to numpy, which takes none of a GPU: there the program must not resize it.
    """
    storage = tensor.untyped_storage()
    if storage.device.type != "cpu" or not storage.resizable():
        return
    torch = sys.modules["torch"]
    with suppress(RuntimeError):  # Numpy is not available.
        torch.empty(0, dtype=torch.uint8).set_(storage, 0, (0,)).numpy()
    if storage.resizable():
        raise BufferError("torch without numpy lets every storage be resized; install numpy")


def hides_pointers(exporter: Any) -> bool:
    """Whether there are Python objects or pointers where the format of a buffer shows none.

    numpy shows a selection of fields with padding in the place of the others; ctypes leaves out what is in unions, packed structures and
    base classes.
    """
    whole = getattr(getattr(exporter, "base", None), "dtype", None)
    return getattr(whole, "hasobject", False) is True or holds_pointers(type(exporter))


def holds_pointers(kind: Any) -> bool:
    """Whether a type of ctypes has Python objects or pointers in it."""
    ctypes: Any = sys.modules.get("ctypes")
    if ctypes is None or not issubclass(kind, ctypes.Structure.__base__):
        return False
    if issubclass(kind, (ctypes._Pointer, ctypes._CFuncPtr)):
        return True
    inner: Any = getattr(kind, "_type_", None)
    if isinstance(inner, str):
        return inner in "OPzZ"
    if inner is not None:
        return holds_pointers(inner)
    fields: list[Any] = [field for base in kind.__mro__ for field in base.__dict__.get("_fields_", ())]
    return any(holds_pointers(field[1]) for field in fields)


def device_name(device: Any) -> str:
    """The name of a device as this package takes it, of a name or a ``torch.device``.

    torch calls AMD's GPUs "cuda" too.
    """
    name = str(device)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device) and torch.version.hip is not None:
        name = name.replace("cuda", "hip")
    return name
