//! Futures under several executors, foreign event loops, several threads, aborts.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::common::{LONG, PATHS, check, filled, pair, until};
use linkspan::{Access, Error, Memory, Notify, RemoteBuffer, Transport};

fn open(of: &Transport, len: usize) -> (Memory, RemoteBuffer) {
    let memory = Memory::host(len);
    let remote = of.expose(&memory.view(), Access::ReadWrite).unwrap().remote();
    (memory, remote)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(LONG),
        }
    }
}

async fn exchange(a: &Transport, b: &Transport) {
    let (inbox, remote) = open(b, 1 << 20);
    for n in 0..20 {
        let len = [8, 100_000, 1 << 20][n as usize % 3];
        let src = filled(len, n);
        let write = a.write(&src.view(), &remote, Some(Notify::value(n)), Some(LONG));
        assert_eq!(b.wait_for_write(Some(LONG)).await.unwrap(), n);
        check(&inbox, 0, len, n);
        assert_eq!(write.await.unwrap(), len as u64);
        let dst = Memory::host(len);
        assert_eq!(a.read(&dst.view_mut().unwrap(), &remote, Some(LONG)).await.unwrap(), len as u64);
        check(&dst, 0, len, n);
    }
}

#[test]
fn futures_under_a_hand_made_executor() {
    for (_, extra) in PATHS {
        let (a, b) = pair(extra);
        block_on(exchange(&a, &b));
    }
}

#[test]
fn futures_under_tokio() {
    let single = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    for (_, extra) in PATHS {
        for runtime in [&single, &several] {
            let (a, b) = pair(extra);
            runtime.block_on(async {
                let both = async { tokio::join!(exchange(&a, &b), exchange(&b, &a)) };
                tokio::time::timeout(LONG, both).await.unwrap();
            });
        }
    }
}

#[test]
fn tasks_on_tokio_share_a_transport() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let (a, b) = pair(PATHS[0].1);
    let (inbox, remote) = open(&b, 64 * 1024);
    let a = Arc::new(a);
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|n| {
                let (a, remote) = (a.clone(), remote.slice(n * 1024, 1024).unwrap());
                tokio::spawn(async move {
                    let src = filled(1024, n);
                    a.write(&src.view(), &remote, Some(Notify::COUNT), Some(LONG)).await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        for _ in 0..64 {
            b.wait_for_write(Some(LONG)).await.unwrap();
        }
    });
    (0..64).for_each(|n| check(&inbox, n as usize * 1024, 1024, n));
}

#[test]
fn an_epoll_loop_drives_by_event_fd_and_poll() {
    use rustix::event::epoll;
    for (_, extra) in PATHS {
        let (a, b) = pair(extra);
        let (_inbox, remote) = open(&b, 1 << 20);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for (n, end) in [&a, &b].into_iter().enumerate() {
            let data = epoll::EventData::new_u64(n as u64);
            epoll::add(&set, end.event_fd().unwrap(), data, epoll::EventFlags::IN).unwrap();
        }
        let src = filled(1 << 20, 1);
        for round in 0..20 {
            let mut write = Some(a.write(&src.view(), &remote, Some(Notify::value(round)), None));
            let mut wait = Some(b.wait_for_write(None));
            let end = Instant::now() + LONG;
            while write.is_some() || wait.is_some() {
                assert!(Instant::now() < end, "round {round}: no event within {LONG:?}");
                let mut events =
                    [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(9) }; 4];
                let most = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
                let n = epoll::wait(&set, &mut events, Some(&most)).unwrap();
                assert!(n > 0, "round {round}: slept for 5 s, write {write:?}, wait {wait:?}");
                for event in &events[..n] {
                    if event.data.u64() == 0 {
                        a.poll()
                    } else {
                        b.poll()
                    };
                }
                if let Some(report) = write.as_mut().and_then(linkspan::Op::test) {
                    assert_eq!(report.unwrap(), 1 << 20);
                    write = None;
                }
                if let Some(report) = wait.as_mut().and_then(linkspan::Op::test) {
                    assert_eq!(report.unwrap(), round);
                    wait = None;
                }
            }
        }
    }
}

#[test]
fn a_descriptor_that_is_asked_for_late_tells_what_had_reported_before() {
    let (a, b) = pair(PATHS[0].1);
    let (_inbox, remote) = open(&b, 8);
    let mut wait = b.wait_for_write(None);
    a.write_blocking(&filled(8, 1).view(), &remote, Some(Notify::value(3)), Some(LONG)).unwrap();
    until("the engine thread to take it", || b.stats().pending == 0);
    assert!(readable(b.event_fd().unwrap()), "the report is not told");
    b.poll();
    assert!(matches!(wait.test(), Some(Ok(3))));
    assert!(!readable(b.event_fd().unwrap()), "it is told once");
}

fn readable(fd: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
}

#[test]
fn several_threads_write_wait_and_read_on_one_transport() {
    const EACH: u64 = 200;
    for (_, extra) in PATHS {
        let (a, b) = pair(extra);
        let (inbox, remote) = open(&b, 4 << 16);
        let all = 4 * EACH;
        let (sum, left, a, b) = (AtomicU64::new(0), AtomicU64::new(all), &a, &b);
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let own = remote.slice(t << 16, 1 << 16).unwrap();
                s.spawn(move || {
                    for n in 0..EACH {
                        let src = filled([8, 9000, 65536][n as usize % 3], t * 1000 + n);
                        let value = Some(Notify::value(t * EACH + n));
                        a.write_blocking(&src.view(), &own, value, Some(LONG)).unwrap();
                        let dst = Memory::host(src.len());
                        a.read_blocking(&dst.view_mut().unwrap(), &own, Some(LONG)).unwrap();
                        assert!(dst.to_vec() == src.to_vec(), "thread {t} reads what it wrote");
                    }
                });
            }
            for _ in 0..3 {
                s.spawn(|| {
                    let one_less = |n: u64| n.checked_sub(1);
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                        sum.fetch_add(b.wait_for_write_blocking(Some(LONG)).unwrap() + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), all * (all + 1) / 2, "each notification was taken once");
        let more = b.wait_for_write_blocking(Some(Duration::ZERO));
        assert!(matches!(more, Err(Error::Timeout)), "{more:?}");
        assert_eq!(inbox.len(), 4 << 16);
    }
}

#[test]
fn abort_ends_what_several_threads_wait_for() {
    for (_, extra) in PATHS {
        let (a, b) = pair(extra);
        let (_inbox, remote) = open(&b, 64 << 20);
        let src = Memory::host(64 << 20);
        std::thread::scope(|s| {
            let waits: Vec<_> = (0..3).map(|_| s.spawn(|| a.wait_for_write_blocking(None))).collect();
            let write = s.spawn(|| a.write_blocking(&src.view(), &remote, Some(Notify::COUNT), None));
            std::thread::sleep(Duration::from_millis(3));
            a.abort();
            assert!(matches!(write.join().unwrap(), Err(Error::Aborted) | Ok(_)));
            let ended = Instant::now();
            while waits.iter().any(|w| !w.is_finished()) {
                assert!(ended.elapsed() < LONG, "a wait was not ended");
                // One that had not begun yet.
                a.abort();
                std::thread::sleep(Duration::from_millis(5));
            }
            for wait in waits {
                assert!(matches!(wait.join().unwrap(), Err(Error::Aborted)));
            }
        });
        a.write_blocking(&src.slice(0, 100).unwrap(), &remote, Some(Notify::value(5)), Some(LONG)).unwrap();
        until("the notification", || matches!(b.wait_for_write_blocking(Some(Duration::from_secs(1))), Ok(5)));
    }
}

#[test]
fn dropping_a_future_cancels_it_and_spares_the_others() {
    for (_, extra) in PATHS {
        let (a, b) = pair(extra);
        let theirs = filled(32 << 20, 1);
        let from = b.expose(&theirs.view(), Access::Read).unwrap().remote();
        let (inbox, to) = open(&b, 32 << 20);
        let (dst, src) = (Memory::host(32 << 20), filled(32 << 20, 2));
        let dropped = a.read(&dst.view_mut().unwrap(), &from, None);
        let kept = a.write(&src.view(), &to, Some(Notify::value(4)), Some(LONG));
        drop(dropped);
        dst.fill(0, &vec![0xEE; 32 << 20]).unwrap();
        assert_eq!(kept.wait().unwrap(), 32 << 20);
        assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 4);
        check(&inbox, 0, 32 << 20, 2);
        assert!(dst.to_vec() == vec![0xEE; 32 << 20], "bytes of a dropped read have landed");
        assert!(matches!(b.wait_for_write_blocking(Some(Duration::ZERO)), Err(Error::Timeout)), "one notification");
        // A wait that was dropped after it had been given a notification puts it back.
        let wait = b.wait_for_write(None);
        a.write_blocking(&src.slice(0, 1).unwrap(), &to, Some(Notify::value(8)), Some(LONG)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        drop(wait);
        assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 8);
    }
}

#[test]
fn a_waiting_thread_asks_whether_to_stop() {
    let (a, b) = pair(PATHS[0].1);
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    b.stop_waiting_when(move || count.fetch_add(1, Ordering::SeqCst) == 2);
    let begun = Instant::now();
    assert!(matches!(b.wait_for_write_blocking(None), Err(Error::Aborted)));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    // The wait that was given up takes no notification; the next one does.
    let (_inbox, remote) = open(&b, 8);
    a.write_blocking(&filled(8, 1).view(), &remote, Some(Notify::value(5)), Some(LONG)).unwrap();
    assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 5);
}

/// Each side has a thread that sends and one that receives. A send that the connection does not take waits for the peer's receives, and
/// so do the peer's sends: receives that queue behind sends would end both.
#[test]
fn messages_both_ways_at_once_do_not_wait_for_each_other() {
    for (_, extra) in PATHS {
        for (count, len) in [(3000u64, 1000), (200, 100_000)] {
            let (a, b) = pair(extra);
            std::thread::scope(|scope| {
                for side in [&a, &b] {
                    scope.spawn(move || {
                        (0..count).for_each(|n| {
                            side.send_blocking(2, &filled(len, n).view(), Some(LONG)).unwrap();
                        })
                    });
                    scope.spawn(move || {
                        let memory = Memory::host(len);
                        (0..count).for_each(|n| {
                            side.recv_blocking(2, &memory.view_mut().unwrap(), Some(LONG)).unwrap();
                            check(&memory, 0, len, n);
                        })
                    });
                }
            });
        }
    }
}

/// A waker that keeps the thread which wakes it until the test lets go.
struct Hold {
    woken: Mutex<Sender<()>>,
    released: Mutex<Receiver<()>>,
}

impl Wake for Hold {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().send(()).unwrap();
        let _ = self.released.lock().unwrap().recv_timeout(LONG);
    }
}

#[test]
fn asking_time_and_again_drives_without_the_engine_thread() {
    for (_, extra) in PATHS {
        let ours = crate::common::context(extra);
        let [(a, b), (held, peer)] = [(); 2].map(|()| {
            let (a, b) = (ours.transport().unwrap(), crate::common::context(extra).transport().unwrap());
            a.connect_blocking(&b.bind().unwrap(), LONG).unwrap();
            b.wait_connected_blocking(LONG).unwrap();
            (a, b)
        });
        let (inbox, remote) = open(&b, 1 << 20);
        let (_own, there) = open(&held, 8);
        // The engine thread of `a` wakes somebody, which takes until this test is over.
        let ((woken, engine_is_held), (release, released)) = (channel(), channel::<()>());
        let waker = Waker::from(Arc::new(Hold { woken: Mutex::new(woken), released: Mutex::new(released) }));
        let mut wait = held.wait_for_write(Some(LONG));
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
        peer.write_blocking(&filled(8, 1).view(), &there, Some(Notify::COUNT), Some(LONG)).unwrap();
        engine_is_held.recv_timeout(LONG).unwrap();
        for n in 0..20 {
            let len = [8, 100_000, 1 << 20][n as usize % 3];
            let src = filled(len, n);
            let mut write = a.write(&src.view(), &remote, Some(Notify::value(n)), Some(LONG));
            let end = Instant::now() + LONG;
            let moved = loop {
                match write.test() {
                    Some(report) => break report.unwrap(),
                    None => assert!(Instant::now() < end, "{n}: nobody has driven it"),
                }
            };
            assert_eq!(moved, len as u64);
            assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), n);
            check(&inbox, 0, len, n);
        }
        release.send(()).unwrap();
    }
}

#[test]
fn an_operation_that_is_begun_and_not_asked_after_is_driven_all_the_same() {
    for (_, extra) in PATHS {
        let (a, b) = pair(extra);
        let (inbox, remote) = open(&b, 4 << 20);
        let src = filled(4 << 20, 3);
        // Asked after until it is done: the next one is left to whoever asks.
        let mut first = a.write(&src.view(), &remote, None, Some(LONG));
        until("the first write", || first.test().is_some_and(|report| report.unwrap() == 4 << 20));
        let again = filled(4 << 20, 4);
        let second = a.write(&again.view(), &remote, Some(Notify::value(2)), Some(LONG));
        // Nobody asks, and it arrives.
        assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 2);
        check(&inbox, 0, 4 << 20, 4);
        assert_eq!(second.wait().unwrap(), 4 << 20);
    }
}

/// To ask is to move things on, which ends the sleep that the engine thread has prepared.
#[test]
fn an_awaited_operation_is_told_at_once_though_another_one_was_asked_after() {
    const ROUNDS: u32 = 10;
    for (_, extra) in PATHS {
        let (a, b) = pair(extra);
        let (_own, there) = open(&b, 8);
        let never = Memory::host(8);
        let mut never = b.recv(7, &never.view_mut().unwrap(), Some(LONG));
        let (woken, told) = channel();
        let (release, released) = channel();
        let waker = Waker::from(Arc::new(Hold { woken: Mutex::new(woken), released: Mutex::new(released) }));
        drop(release);
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            let mut wait = b.wait_for_write(Some(LONG));
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
            // It sleeps by then: it looks every millisecond.
            std::thread::sleep(Duration::from_millis(10));
            assert!(never.test().is_none());
            a.write_blocking(&filled(8, 1).view(), &there, Some(Notify::COUNT), Some(LONG)).unwrap();
            told.recv_timeout(LONG).unwrap();
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_ready());
        }
        // A second each where it slept on.
        assert!(begun.elapsed() < Duration::from_secs(ROUNDS.into()) / 2, "{:?}", begun.elapsed());
    }
}
