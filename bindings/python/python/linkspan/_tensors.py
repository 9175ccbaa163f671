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


def device_name(device: Any) -> str:
    """The name of a device as this package takes it, of a name or a ``torch.device``.

    torch calls AMD's GPUs "cuda" too.
    """
    name = str(device)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device) and torch.version.hip is not None:
        name = name.replace("cuda", "hip")
    return name
