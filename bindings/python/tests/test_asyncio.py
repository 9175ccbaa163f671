"""Operations in asyncio loops, and in a loop of one's own."""

import asyncio
import gc
import select
import threading
import time
import weakref

import linkspan
import pytest

from conftest import LONG, Pair, make_pair, until_done


def test_await_write_and_notification(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        inbox = bytearray(1 << 20)
        remote = b.expose(inbox).remote
        waiting = asyncio.ensure_future(b.wait_for_write_async(timeout=LONG))
        await asyncio.sleep(0.01)
        assert await a.write_async(b"x" * (1 << 20), remote, notify=5, timeout=LONG) == 1 << 20
        assert await waiting == 5 and inbox == b"x" * (1 << 20)
        back = bytearray(10)
        assert await a.read_async(back, remote, timeout=LONG) == 10 and back == b"x" * 10
        parts = [(linkspan.Memory(b"yy"), remote[i : i + 2]) for i in range(0, 20, 2)]
        assert await a.write_batch_async(parts, notify=6, timeout=LONG) == 20
        assert await b.wait_for_write_async(timeout=LONG) == 6

    asyncio.run(main())


def test_connect_listen_and_messages_awaited() -> None:
    async def main() -> None:
        listener = linkspan.Listener()
        peer = linkspan.Transport()
        transport, _ = await asyncio.gather(listener.accept_async(), peer.connect_async(listener.url, timeout=LONG))
        into = bytearray(3)
        length, _ = await asyncio.gather(transport.recv_async(1, into, timeout=LONG), peer.send_async(1, b"abc"))
        assert length == 3 and into == b"abc"
        target = linkspan.Transport()
        source = linkspan.Transport()
        await asyncio.gather(target.wait_connected_async(LONG), source.connect_async(target.bind(), LONG))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await listener.accept_async()

    asyncio.run(main())


def test_many_operations_share_one_descriptor_and_no_thread(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        remote = b.expose(bytearray(8)).remote
        waits = [asyncio.ensure_future(b.wait_for_write_async(timeout=LONG)) for _ in range(500)]
        await asyncio.sleep(0)
        assert threading.active_count() == before
        await asyncio.gather(*(a.write_async(bytes(8), remote, notify=i, timeout=LONG) for i in range(500)))
        assert sorted(await asyncio.gather(*waits)) == list(range(500))

    before = threading.active_count()
    asyncio.run(main())


def test_cancelling_a_task_cancels_its_operation(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(b.wait_for_write_async(), 0.05)
        await a.write_async(b"", b.expose(bytearray(0)).remote, notify=8, timeout=LONG)
        # The cancelled wait has not taken it.
        assert await b.wait_for_write_async(timeout=LONG) == 8

    asyncio.run(main())


def test_a_notification_that_nobody_has_read_is_not_lost_with_the_operation(pair: Pair) -> None:
    a, b = pair
    remote = b.expose(bytearray(0)).remote

    async def cancelled() -> None:
        op = b.wait_for_write_async()
        task = asyncio.create_task(op)
        await asyncio.sleep(0)
        a.write(b"", remote, notify=7, timeout=LONG)
        # It has the notification, and its task has not run since.
        until_done(op)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    again = b.wait_for_write_async()
    a.write(b"", remote, notify=8, timeout=LONG)
    until_done(again)
    assert again.cancel() is False
    with pytest.raises(linkspan.Aborted):
        again.wait()
    dropped = b.wait_for_write_async()
    until_done(dropped)
    del dropped
    # In the order in which they came, and each once.
    assert [b.wait_for_write(LONG), b.wait_for_write_async(LONG).wait()] == [7, 8]
    with pytest.raises(linkspan.TimedOut):
        b.wait_for_write(0)


def test_notifications_that_nobody_has_read_come_again_in_their_order(pair: Pair) -> None:
    a, b = pair
    remote = b.expose(bytearray(0)).remote

    async def cancelled(order: list[int]) -> None:
        ops = [b.wait_for_write_async() for _ in order]
        tasks = [asyncio.create_task(op) for op in ops]
        await asyncio.sleep(0)
        for value in range(len(order)):
            a.write(b"", remote, notify=value, timeout=LONG)
        for op in reversed(ops):
            until_done(op)
        for at in order:
            tasks[at].cancel()
        await asyncio.wait(tasks)

    for order in ([0, 1, 2], [2, 0, 1]):
        asyncio.run(cancelled(order))
        assert [b.wait_for_write(LONG) for _ in order] == [0, 1, 2]


def test_errors_are_awaited_too(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        with pytest.raises(linkspan.TimedOut):
            await b.wait_for_write_async(timeout=0.02)
        op = a.write_async(bytes(9), b.expose(bytearray(8)).remote)
        for _ in range(2):
            with pytest.raises(linkspan.OutOfBounds):
                await op
        pending = b.wait_for_write_async()
        asyncio.get_running_loop().call_later(0.02, b.abort)
        with pytest.raises(linkspan.Aborted):
            await pending

    asyncio.run(main())


def test_one_operation_may_be_looked_at_while_it_is_awaited(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        op = b.wait_for_write_async(timeout=LONG)
        task = asyncio.ensure_future(op)
        await asyncio.sleep(0.01)
        assert not op.done()
        await a.write_async(b"", b.expose(bytearray(0)).remote, notify=2, timeout=LONG)
        assert await asyncio.wait_for(task, LONG) == 2 and op.done() and op.wait() == 2

    asyncio.run(main())


def test_loops_come_and_go() -> None:
    for n in range(20):
        a, b = make_pair()

        async def main() -> int:
            await a.write_async(b"", b.expose(bytearray(0)).remote, notify=n, timeout=LONG)
            return await b.wait_for_write_async(timeout=LONG)

        assert asyncio.run(main()) == n
    gc.collect()
    from linkspan import _aio

    assert len(_aio._ports) <= 1  # pyright: ignore[reportPrivateUsage]


def test_an_epoll_loop_by_fileno_and_poll(pair: Pair) -> None:
    a, b = pair
    inbox = bytearray(1 << 20)
    ops = [a.write_async(b"z" * (1 << 20), b.expose(inbox).remote, notify=1), b.wait_for_write_async()]
    poller = select.epoll()
    poller.register(a.fileno(), select.EPOLLIN)
    poller.register(b.fileno(), select.EPOLLIN)
    end = time.monotonic() + LONG
    while not all(op.done() for op in ops):
        assert time.monotonic() < end
        poller.poll(1.0)
        a.poll()
        b.poll()
    poller.close()
    assert [op.wait() for op in ops] == [1 << 20, 1] and inbox == b"z" * (1 << 20)


def test_operations_of_one_loop_from_another_thread(pair: Pair) -> None:
    a, b = pair
    op = b.wait_for_write_async()
    thread = threading.Thread(target=op.wait)
    thread.start()
    time.sleep(0.05)
    for call in (op.wait, op.cancel, op.close):
        with pytest.raises(linkspan.InUse) as caught:
            call()
        assert caught.value.code == "LS1186"

    async def cancelled() -> None:
        # Its own task ends by a cancel, and the operation goes on for the thread.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(op, 0.01)

    asyncio.run(cancelled())
    a.write(b"", b.expose(bytearray(0)).remote, notify=2, timeout=LONG)
    thread.join(LONG)
    assert op.wait() == 2


def test_tasks_and_groups_are_made_of_operations(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        inbox = bytearray(8)
        remote = b.expose(inbox).remote
        waiting = asyncio.create_task(b.wait_for_write_async(timeout=LONG))
        assert await asyncio.create_task(a.write_async(b"12345678", remote, notify=3, timeout=LONG), name="write") == 8
        assert await waiting == 3 and inbox == b"12345678"
        async with asyncio.TaskGroup() as group:
            into = bytearray(4)
            received = group.create_task(b.recv_async(7, into, timeout=LONG))
            sent = group.create_task(a.send_async(7, b"abcd", timeout=LONG))
        assert received.result() == sent.result() == 4 and into == b"abcd"
        done, _ = await asyncio.wait([asyncio.create_task(a.write_async(b"", remote, timeout=LONG))], timeout=LONG)
        assert [one.result() for one in done] == [0]
        assert await asyncio.wait_for(a.write_async(b"1", remote, timeout=LONG), LONG) == 1
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(b.wait_for_write_async())
                group.create_task(a.write_async(bytes(9), remote))
        assert caught.group_contains(linkspan.OutOfBounds)
        assert b.stats()["pending"] == 0, "the other one was cancelled"

    asyncio.run(main())


def test_all_that_await_one_operation_end_with_its_result(pair: Pair) -> None:
    a, b = pair

    async def wait(op: linkspan.Op[int]) -> int:
        return await op

    async def main() -> None:
        remote = b.expose(bytearray(8)).remote
        op = b.wait_for_write_async(timeout=LONG)
        tasks = [asyncio.create_task(wait(op)) for _ in range(3)]
        await asyncio.sleep(0)
        await a.write_async(b"", remote, notify=7, timeout=LONG)
        assert await asyncio.wait_for(asyncio.gather(*tasks, op), LONG) == [7, 7, 7, 7]
        # A task that is cancelled cancels the operation, which the others are told.
        op = b.wait_for_write_async(timeout=LONG)
        tasks = [asyncio.create_task(wait(op)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), LONG)
        assert [type(one) for one in ended] == [linkspan.Aborted, asyncio.CancelledError, linkspan.Aborted]
        # So they are by a cancel that is no task's.
        op = b.wait_for_write_async(timeout=LONG)
        task = asyncio.create_task(wait(op))
        await asyncio.sleep(0)
        assert op.cancel()
        with pytest.raises(linkspan.Aborted):
            await asyncio.wait_for(task, LONG)

    asyncio.run(main())


def test_one_operation_is_awaited_in_two_loops_while_a_thread_waits_for_it(pair: Pair) -> None:
    a, b = pair
    op, got, begun = b.wait_for_write_async(timeout=LONG), list[int](), threading.Barrier(3)

    async def main() -> int:
        task = asyncio.create_task(op)
        await asyncio.sleep(0)
        begun.wait(LONG)
        return await asyncio.wait_for(task, LONG)

    calls = [op.wait, lambda: asyncio.run(main()), lambda: asyncio.run(main())]
    threads = [threading.Thread(target=lambda call=call: got.append(call())) for call in calls]
    for thread in threads:
        thread.start()
    begun.wait(LONG)
    a.write(b"", b.expose(bytearray(8)).remote, notify=3, timeout=LONG)
    for thread in threads:
        thread.join(2 * LONG)
    assert got == [3, 3, 3]


def test_each_task_of_an_operation_has_its_result(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        remote = b.expose(bytearray(8)).remote
        op = a.write_async(b"12345678", remote, notify=1, timeout=LONG)
        assert [await asyncio.create_task(op), await asyncio.create_task(op), await op] == [8, 8, 8]
        assert await b.wait_for_write_async(timeout=LONG) == 1
        refused = a.write_async(bytes(9), remote)
        for _ in range(2):
            with pytest.raises(linkspan.OutOfBounds):
                await asyncio.wait_for(refused, LONG)
        cancelled = b.wait_for_write_async()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cancelled, 0.01)
        for _ in range(2):
            with pytest.raises(linkspan.Aborted):
                await asyncio.wait_for(cancelled, LONG)
        # Of two tasks at once, too, one of which outlives its waiter.
        op = b.wait_for_write_async(timeout=LONG)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(op), 0.01)
        again = asyncio.create_task(op)
        await asyncio.sleep(0)
        await a.write_async(b"", remote, notify=9, timeout=LONG)
        assert list(await asyncio.wait_for(asyncio.gather(again, asyncio.create_task(op)), LONG)) == [9, 9]

    asyncio.run(main())


def test_cancelled_tasks_leave_nothing_behind(pair: Pair) -> None:
    a, b = pair

    async def main() -> None:
        remote = b.expose(bytearray(8)).remote
        unbegun = [asyncio.create_task(b.wait_for_write_async()) for _ in range(20)]
        for one in unbegun:
            one.cancel()
        begun = [asyncio.create_task(b.wait_for_write_async()) for _ in range(20)]
        await asyncio.sleep(0.01)
        assert b.stats()["pending"] == 20
        for one in begun:
            one.cancel()
        ended = await asyncio.gather(*unbegun, *begun, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        assert b.stats()["pending"] == 0
        op = b.wait_for_write_async()
        watch = weakref.ref(op)
        del unbegun, begun, ended
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await asyncio.create_task(op)
        del op
        # The loop holds the task that has woken this one until this one waits again.
        await asyncio.sleep(0)
        gc.collect()
        assert watch() is None and b.stats()["pending"] == 0
        # None of them has taken what comes now.
        await a.write_async(b"", remote, notify=5, timeout=LONG)
        assert await b.wait_for_write_async(timeout=LONG) == 5

    asyncio.run(main())


def test_a_loop_that_ends_leaves_no_operation(pair: Pair) -> None:
    _, b = pair

    async def main() -> None:
        asyncio.create_task(b.wait_for_write_async())
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert b.stats()["pending"] == 0


def test_notifications_one_after_the_other(pair: Pair) -> None:
    a, b = pair

    async def main() -> list[int]:
        remote = b.expose(bytearray(8)).remote
        for value in (4, 5, 6):
            await a.write_async(b"x", remote, notify=value, timeout=LONG)
        seen = []
        async for value in b.notifications():
            seen.append(value)
            if len(seen) == 3:
                a.close()
        return seen

    assert asyncio.run(main()) == [4, 5, 6], "the end of the peer in good order ends the iterator"


def test_notifications_go_on_after_an_abort_until_their_endpoint_lets_go_of_the_peer() -> None:
    async def main() -> None:
        with linkspan.Endpoint("here") as here, linkspan.Endpoint("there") as there:
            theirs = await here.connect_async("there", there.url, LONG)
            await there.next_event_async()
            link, seen = there.peer("here"), list[int]()

            async def listen() -> None:
                async for value in link.notifications():
                    seen.append(value)

            remote = there.expose(bytearray(8)).remote
            task = asyncio.create_task(listen())
            for value in (1, 2):
                # What comes while nobody waits is an event of the endpoint.
                while link.stats()["pending"] == 0 and not task.done():
                    await asyncio.sleep(0)
                await theirs.write_async(b"", remote, notify=value, timeout=LONG)
                while value not in seen and not task.done():
                    await asyncio.sleep(0)
                link.abort()
            there.remove("here")
            await asyncio.wait_for(task, LONG)
            assert seen == [1, 2]

    asyncio.run(main())


def test_a_peer_that_nobody_has_had_is_accepted_next() -> None:
    listener, peer = linkspan.Listener(), linkspan.Transport()

    async def cancelled() -> None:
        op = listener.accept_async()
        task = asyncio.create_task(op)
        await asyncio.sleep(0)
        peer.connect(listener.url, LONG)
        # It has the peer, and its task has not run since.
        until_done(op)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    dropped = listener.accept_async()
    until_done(dropped)
    del dropped
    read = listener.accept_async()
    until_done(read)
    accepted = read.wait()
    assert read.cancel() is False and read.wait() is accepted
    del read
    with pytest.raises(linkspan.TimedOut):
        listener.accept(0)
    peer.send(1, b"there", timeout=LONG)
    accepted.recv(1, bytearray(5), timeout=LONG)


def test_closing_a_listener_ends_an_accept_that_is_awaited() -> None:
    async def main() -> None:
        listener = linkspan.Listener()
        accept = asyncio.ensure_future(listener.accept_async())
        await asyncio.sleep(0)
        listener.close()
        with pytest.raises(linkspan.Aborted):
            await asyncio.wait_for(accept, LONG)

    asyncio.run(main())


def test_async_with_closes(pair: Pair) -> None:
    async def main() -> None:
        async with linkspan.Listener() as listener, linkspan.Transport() as peer:
            await peer.connect_async(listener.url, timeout=LONG)
            async with await listener.accept_async() as transport:
                assert transport.connected
        for one in (transport, peer):
            with pytest.raises(linkspan.Closed):
                one.bind()
        with pytest.raises(linkspan.Closed):
            assert listener.url

    asyncio.run(main())


def test_asking_drives_and_other_threads_may_cancel_meanwhile(pair: Pair) -> None:
    a, b = pair
    remote = b.expose(bytearray(1 << 20)).remote
    for _ in range(50):
        op = a.write_async(bytes(1 << 20), remote, timeout=LONG)
        while not op.done():
            pass
        assert op.wait() == 1 << 20
    # A thread that asks without a break does not keep another one from the operation.
    for _ in range(20):
        wait = b.wait_for_write_async()
        ended = threading.Event()

        def ask(wait: linkspan.Op[int] = wait, ended: threading.Event = ended) -> None:
            while not wait.done():
                pass
            ended.set()

        thread = threading.Thread(target=ask)
        thread.start()
        assert wait.cancel() is True and wait.cancel() is False
        assert ended.wait(LONG)
        thread.join()
        with pytest.raises(linkspan.Aborted):
            wait.wait()


def test_uvloop(pair: Pair) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    a, b = pair

    async def main() -> None:
        remote = b.expose(bytearray(8)).remote
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(b.wait_for_write_async(timeout=LONG)) for _ in range(100)]
            for value in range(100):
                group.create_task(a.write_async(b"x", remote, notify=value, timeout=LONG))
        assert sorted(one.result() for one in waits) == list(range(100))

    uvloop.run(main())
