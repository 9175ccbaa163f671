"""Another process writes into the memory of this one, and notifies it."""

import multiprocessing

import linkspan


def write(url: str, remote: bytes) -> None:
    t = linkspan.Transport("cpu")
    t.connect(url)
    t.write(b"x" * 4096, linkspan.RemoteBuffer.from_bytes(remote), notify=7)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    inbox = bytearray(4096)
    t = linkspan.Transport("cpu")
    url = str(t.bind())
    other = multiprocessing.Process(target=write, args=(url, t.expose(inbox).remote.to_bytes()))
    other.start()
    t.wait_connected(30)
    assert t.wait_for_write(30) == 7
    assert inbox == b"x" * 4096
    other.join(30)
    assert other.exitcode == 0
    print("ok   Python: 4096 bytes from another process")
