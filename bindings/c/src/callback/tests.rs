#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan::{Access, Config, Context, Log, Memory, Notify, RemoteBuffer, Transport};

use super::defer_wakeups;
use crate::op::Started;
use crate::status::Report;
use crate::types::LINKSPAN_ABORTED;

const LONG: Duration = Duration::from_secs(30);

fn pair() -> (Transport, Transport, RemoteBuffer) {
    let get = |name: &str| {
        let settings = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        settings.iter().find(|s| s.0 == name).map(|s| s.1.to_owned())
    };
    let context = Context::new(Config::read(&get).unwrap(), Log::off()).unwrap();
    let (a, b) = (context.transport().unwrap(), context.transport().unwrap());
    a.connect_blocking(&b.bind().unwrap(), LONG).unwrap();
    b.wait_connected_blocking(LONG).unwrap();
    let remote = b.expose(&Memory::host(4096).view(), Access::Write).unwrap().remote();
    (a, b, remote)
}

fn wait(of: &Transport) -> Arc<Started> {
    Started::new(of.wait_for_write(None))
}

type Told = Receiver<Result<u64, i32>>;

fn told(op: &Arc<Started>) -> Told {
    let (tell, told) = channel();
    let call = move |report: Result<u64, Report>| tell.send(report.map_err(Report::tell)).unwrap();
    op.then(Box::new(call)).map_err(|e| e.to_string()).unwrap();
    told
}

#[test]
fn a_call_comes_when_the_operation_reports_and_nobody_waits() {
    let (a, b, remote) = pair();
    let op = wait(&b);
    let told = told(&op);
    assert!(op.test().is_none());
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
    a.write_blocking(&Memory::host(8).view(), &remote, Some(Notify::value(7)), Some(LONG)).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(7));
    assert_eq!(op.test().unwrap().unwrap(), 7, "it can still be asked");
    assert_eq!(op.wait().unwrap(), 7);
    let (tell, late) = channel();
    op.then(Box::new(move |report| tell.send(report.unwrap()).unwrap())).unwrap();
    assert_eq!(late.try_recv().unwrap(), 7, "one that has reported calls at once");
}

#[test]
fn a_freed_operation_calls_with_aborted_and_takes_no_notification_along() {
    let (a, b, remote) = pair();
    let first = wait(&b);
    let told = told(&first);
    Started::free(first);
    assert_eq!(told.try_recv().unwrap(), Err(LINKSPAN_ABORTED));
    a.write_blocking(&Memory::host(8).view(), &remote, Some(Notify::value(8)), Some(LONG)).unwrap();
    assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 8);
}

#[test]
fn a_freed_operation_is_over_for_a_call_of_another_thread_that_had_begun() {
    let (a, b, remote) = pair();
    let op = wait(&b);
    // As a thread has it that is at the beginning of linkspan_op_test.
    let begun = op.clone();
    Started::free(op);
    a.write_blocking(&Memory::host(8).view(), &remote, Some(Notify::value(8)), Some(LONG)).unwrap();
    assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 8);
    assert_eq!(begun.test().unwrap().map_err(Report::tell), Err(LINKSPAN_ABORTED));
    let told = told(&begun);
    assert_eq!(told.try_recv().unwrap(), Err(LINKSPAN_ABORTED));
}

#[test]
fn one_operation_has_one_call() {
    let (_a, b, _) = pair();
    let op = wait(&b);
    let _told = told(&op);
    let second = op.then(Box::new(|_| panic!("called")));
    assert!(second.unwrap_err().to_string().starts_with("LS1160"));
    Started::free(op);
}

#[test]
fn calls_may_free_one_another() {
    let (_a, b, _) = pair();
    let ops: Arc<Mutex<Vec<Arc<Started>>>> = Arc::new(Mutex::new((0..64).map(|_| wait(&b)).collect()));
    let calls = Arc::new(AtomicU32::new(0));
    for op in ops.lock().unwrap().clone() {
        let (ops, calls) = (ops.clone(), calls.clone());
        let call = move |report: Result<u64, Report>| {
            assert_eq!(report.map_err(Report::tell), Err(LINKSPAN_ABORTED));
            calls.fetch_add(1, Ordering::SeqCst);
            let next = ops.lock().unwrap().pop();
            next.into_iter().for_each(Started::free);
        };
        op.then(Box::new(call)).unwrap();
    }
    b.abort();
    let end = Instant::now() + LONG;
    while calls.load(Ordering::SeqCst) < 64 {
        assert!(Instant::now() < end, "{calls:?} of 64");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_woken_while_a_lock_is_held_calls_afterwards() {
    let (_a, b, _) = pair();
    let op = wait(&b);
    let told = told(&op);
    let put_off = defer_wakeups();
    b.abort();
    // The engine thread may have been faster, this thread has not called.
    let before = told.try_recv();
    drop(put_off);
    let report = before.or_else(|_| told.recv_timeout(LONG));
    assert_eq!(report.unwrap(), Err(LINKSPAN_ABORTED));
}

#[test]
fn calls_come_exactly_once_while_threads_free_and_others_notify() {
    let (a, b, remote) = pair();
    let (rounds, calls) = (300, Arc::new(AtomicU32::new(0)));
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in 0..rounds {
                let note = Some(Notify::value(n));
                a.write_blocking(&Memory::host(8).view(), &remote, note, Some(LONG)).unwrap();
            }
        });
        for _ in 0..rounds {
            let op = wait(&b);
            let counted = calls.clone();
            op.then(Box::new(move |_| _ = counted.fetch_add(1, Ordering::SeqCst))).unwrap();
            Started::free(op);
        }
    });
    assert_eq!(calls.load(Ordering::SeqCst), rounds as u32, "a free returns after the end, and each end has its call");
}
