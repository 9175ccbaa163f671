use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Task, ended, of_pid, of_socket, this_thread};

fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pidfd_tells_the_end() {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let fd = of_pid(child.id() as i32).unwrap();
    assert!(!ended(&fd));
    child.kill().unwrap();
    until("the end shows", || ended(&fd));
    child.wait().unwrap();
    assert!(ended(&fd), "also after it was reaped");
}

#[test]
fn the_socket_knows_its_peer() {
    let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(super::credentials(&a).unwrap().0, std::process::id() as i32);
    match of_socket(&a) {
        Ok(fd) => assert!(!ended(&fd), "the peer is this process"),
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOPROTOOPT), "only an old kernel may refuse"),
    }
}

#[test]
fn a_stopped_a_sleeping_and_a_missing_thread_are_outside() {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id() as i32;
    let task = Task::new(pid, pid as u64);
    until("it sleeps in another call", || task.outside());
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    until("it shows as stopped", || task.state().is_ok_and(|s| s == 'T'));
    assert!(task.outside());
    assert!(Task::new(pid, u64::from(u32::MAX)).outside(), "no such thread");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(task.outside());
}

#[test]
fn a_running_thread_is_outside_only_after_it_has_run_a_while() {
    static STOP: AtomicBool = AtomicBool::new(false);
    static TID: AtomicU64 = AtomicU64::new(0);
    let spinner = std::thread::spawn(|| {
        TID.store(this_thread(), Ordering::Release);
        while !STOP.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    until("it runs", || TID.load(Ordering::Acquire) != 0);
    let task = Task::new(std::process::id() as i32, TID.load(Ordering::Acquire));
    if task.start.is_some() {
        assert!(!task.outside(), "it has not run for 100 ms yet");
        until("it has run for 100 ms", || task.outside());
    }
    STOP.store(true, Ordering::Relaxed);
    spinner.join().unwrap();
}
