//! Helper threads: none unless asked for, and what a connection says of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, Fabric, Log, Poll, wait_any};
use linkspan_transport::StaticBuf;

type Env = &'static [(&'static str, &'static str)];

fn fabric(extra: Env) -> Fabric {
    let get = move |name: &str| {
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        base.iter().chain(extra).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())
    };
    Fabric::new(Config::read(&get).unwrap(), Log::off(), false, Vec::new()).unwrap()
}

fn until<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not within 60 s");
    }
}

fn pair(fabric: &Fabric) -> (Channel, Channel) {
    let listener = fabric.listen(0).unwrap();
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    let (mut here, mut there) = (None, None);
    until("a connection", || {
        here = here.take().or_else(|| connecting.poll().unwrap());
        there = there.take().or_else(|| listener.accept().unwrap());
        here.is_some().then(|| there.is_some().then_some(())).flatten()
    });
    (here.unwrap(), there.unwrap())
}

/// Names of this process's helper threads.
fn names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("linkspan-nic")).collect()
}

/// Threads are counted over the whole process: one test at a time, of all that have helpers.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    until("no helper thread", || names().is_empty().then_some(()));
    guard
}

/// One message, by a caller that sleeps.
fn message(a: &mut Channel, b: &mut Channel, len: usize) {
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
    let pattern = (0..256).map(|i| (i * 7 + len) as u8).collect::<Vec<u8>>().repeat(len / 256 + 1);
    let pattern = &pattern[..len];
    assert!(src.slice().fill(0, pattern));
    let received = b.post_recv(&[(3, dst.slice())]).unwrap().unwrap();
    let (mut sent, mut got) = (None, None);
    let mut left = None;
    until("a message", || {
        sent = sent.or_else(|| a.post_send(3, src.slice()).unwrap());
        let idle = [a.progress().unwrap(), b.progress().unwrap()] == [Poll::Idle; 2];
        left = left.or_else(|| sent.and_then(|ticket| a.test(ticket).unwrap()));
        got = got.or_else(|| b.test(received).unwrap());
        if idle && (left.is_none() || got.is_none()) {
            let asleep = Instant::now();
            wait_any(&mut [&mut *a, &mut *b], Duration::from_secs(1));
            assert!(asleep.elapsed() < Duration::from_secs(1), "it was not woken");
        }
        left.zip(got)
    });
    assert_eq!((left, got), (Some(len as u64), Some(len as u64)));
    assert!(dst.slice().to_vec() == pattern, "{len} bytes differ");
}

#[test]
fn without_the_wish_there_is_no_thread() {
    let _alone = alone();
    let fabric = fabric(&[]);
    let (mut a, mut b) = pair(&fabric);
    message(&mut a, &mut b, 3 << 20);
    assert!(!a.describe().contains("helper"), "{}", a.describe());
    assert_eq!(names(), [""; 0]);
}

#[test]
fn a_link_that_is_not_known_to_be_fast_has_none_and_says_so() {
    let _alone = alone();
    let fabric = fabric(&[("LINKSPAN_HELPERS", "2")]);
    let (mut a, mut b) = pair(&fabric);
    message(&mut a, &mut b, 1 << 20);
    for end in [&a, &b] {
        let line = end.describe();
        assert!(line.contains("no helper thread: lo does not report its speed (LINKSPAN_HELPERS=force:2"), "{line}");
    }
    assert_eq!(names(), [""; 0]);
}

#[test]
fn forced_ones_carry_messages_of_all_sizes_and_end_with_their_connections() {
    let _alone = alone();
    let fabric = fabric(&[("LINKSPAN_HELPERS", "force:1")]);
    assert_eq!(names(), [""; 0], "no connection yet");
    for _ in 0..3 {
        let (mut a, mut b) = pair(&fabric);
        for end in [&a, &b] {
            let line = end.describe();
            assert!(line.contains("; helper thread linkspan-nic0, not pinned"), "{line}");
        }
        until("its name", || (names() == ["linkspan-nic0"]).then_some(()));
        for len in [0, 1, 8, 8192, 8193, 65_536, 1 << 20, (3 << 20) + 7, 32 << 20] {
            message(&mut a, &mut b, len);
            message(&mut b, &mut a, len);
        }
        drop(b);
        until("the loss", || a.progress().is_err().then_some(()));
        drop(a);
        until("its end", || names().is_empty().then_some(()));
    }
}

#[test]
fn shared_memory_needs_none() {
    let _alone = alone();
    let fabric = fabric(&[("LINKSPAN_HELPERS", "force:1"), ("LINKSPAN_PATH", "shm")]);
    let (mut a, mut b) = pair(&fabric);
    message(&mut a, &mut b, 1 << 20);
    assert_eq!(names(), [""; 0]);
}

#[test]
fn a_sleeping_caller_is_woken_by_the_thread() {
    let _alone = alone();
    let fabric = fabric(&[("LINKSPAN_HELPERS", "force:1")]);
    let (mut a, mut b) = pair(&fabric);
    message(&mut a, &mut b, 100);
    let dst = StaticBuf::new(8);
    let ticket = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
    while b.progress().unwrap() == Poll::Active {}
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let src = StaticBuf::new(8);
        until("a send", || {
            a.progress().unwrap();
            a.post_send(1, src.slice()).unwrap()
        });
        a.progress().unwrap();
        (a, src)
    });
    let mut sleeps = 0;
    while b.test(ticket).unwrap().is_none() {
        b.progress().unwrap();
        if b.test(ticket).unwrap().is_some() {
            break;
        }
        b.wait(Duration::from_secs(1));
        sleeps += 1;
        assert!(sleeps < 50, "it does not sleep, or is never woken");
    }
    drop(sender.join().unwrap());
}
