//! The border as this machine's kernel shows it, above all of a thread that is held in the middle of a copy: by a page of its own
//! memory that is missing until we bring it (userfaultfd).
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linkspan_transport::{Buf, StaticBuf};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Pid, Signal, kill_process};

use super::system::{Peer, Thread};
use super::{AccessGuard, Proof, provable, revoke};
use crate::page::tests::{NO_FORK, spawn};
use crate::peer::{ended, ended as readable, of_pid, this_thread};

fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stopped_a_sleeping_and_a_missing_thread_are_at_their_border() {
    let mut child = spawn(Command::new("sleep").arg("60").stdin(Stdio::null()));
    let pid = child.id() as i32;
    let thread = Thread::new(pid, pid as u64);
    provable(pid).unwrap();
    until("it sleeps in another call", || thread.at_border());
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    until("it shows as stopped", || thread.state().is_ok_and(|s| s == 'T'));
    assert!(thread.at_border());
    assert!(Thread::new(pid, u64::from(u32::MAX)).at_border(), "no such thread");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(thread.at_border());
    assert!(provable(pid).is_err());
}

#[test]
fn a_thread_that_runs_is_not_proven_however_long_it_has_run() {
    static STOP: AtomicBool = AtomicBool::new(false);
    static TID: AtomicU64 = AtomicU64::new(0);
    let spinner = std::thread::spawn(|| {
        TID.store(this_thread(), Ordering::Release);
        while !STOP.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    until("it runs", || TID.load(Ordering::Acquire) != 0);
    let thread = Thread::new(std::process::id() as i32, TID.load(Ordering::Acquire));
    let run_ms = || {
        let text = std::fs::read_to_string(format!("{}/schedstat", thread.0)).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).map_or(u64::MAX, |ns| ns / 1_000_000)
    };
    let from = run_ms();
    while run_ms().saturating_sub(from) < 200 && from != u64::MAX {
        assert!(!thread.at_border(), "it runs");
    }
    STOP.store(true, Ordering::Relaxed);
    spinner.join().unwrap();
    until("it has ended", || thread.at_border());
}

const PAGE: usize = 4096;

/// include/uapi/linux/userfaultfd.h: `UFFDIO_API`, `UFFDIO_REGISTER` of missing pages, `UFFDIO_COPY`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_COPY: libc::Ioctl = 0xc028_aa03_u32 as libc::Ioctl;

/// A process whose copy into `place` has passed our guard page and waits for a page of its own.
struct Held {
    pid: i32,
    thread: Thread,
    pidfd: OwnedFd,
    /// Brings the page.
    faults: OwnedFd,
    page: u64,
    place: StaticBuf,
    said: File,
    go: File,
}

/// The process: copies twice, tells of each call what it returned, and ends.
///
/// # Safety
/// In a child of fork, which may use nothing but system calls.
unsafe fn copier(parent: i32, page: u64, guard: u64, place: u64, said: i32, go: i32) -> ! {
    let iov = |base: u64, len: usize| libc::iovec { iov_base: base as *mut libc::c_void, iov_len: len };
    // SAFETY: system calls on memory of this function and of the page, which stays mapped.
    unsafe {
        let tell = |n: i64| _ = libc::write(said, (&raw const n).cast(), 8);
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) as i32;
        let mut api = [0xAAu64, 0, 0];
        let mut range = [page, PAGE as u64, 1, 0];
        if fd < 0
            || libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) != 0
            || libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()) != 0
        {
            tell(-i64::from(*libc::__errno_location()));
            libc::_exit(0);
        }
        tell(fd.into());
        for _ in 0..2 {
            let word = 0u64;
            let ours = [iov(&raw const word as u64, 8), iov(page, PAGE)];
            let theirs = [iov(guard, 8), iov(place, PAGE)];
            let n = libc::process_vm_writev(parent, ours.as_ptr(), 2, theirs.as_ptr(), 2, 0);
            tell(if n < 0 { -i64::from(*libc::__errno_location()) } else { n as i64 });
            let mut byte = 0u8;
            libc::read(go, (&raw mut byte).cast(), 1);
        }
        libc::_exit(0);
    }
}

impl Held {
    /// `None` where this process may not have faults in the kernel brought to it.
    fn start(guard: &AccessGuard) -> Option<Held> {
        let place = StaticBuf::new(PAGE);
        assert!(place.slice().fill(0, &[0; PAGE]));
        // SAFETY: a fresh mapping, which is never touched here; the child has one of its own at the address.
        let page = unsafe {
            rustix::mm::mmap_anonymous(null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let page = page.unwrap() as u64;
        let (out, said) = rustix::pipe::pipe().unwrap();
        let (come, go) = rustix::pipe::pipe().unwrap();
        let (me, to) = (std::process::id() as i32, place.slice().as_ptr() as u64);
        let alone = NO_FORK.lock();
        // SAFETY: the child makes system calls only.
        let pid = unsafe {
            match libc::fork() {
                0 => copier(me, page, guard.address(), to, said.as_raw_fd(), come.as_raw_fd()),
                pid => pid,
            }
        };
        drop(alone);
        drop((said, come));
        let mut said = File::from(out);
        let number = answer(&mut said);
        if number < 0 {
            println!("cannot be tested here: userfaultfd: {}", std::io::Error::from_raw_os_error(-number as i32));
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(pid, null_mut(), 0) };
            // Without CAP_SYS_PTRACE; under an emulator, or built without it; pages of another size.
            assert!([libc::EPERM, libc::ENOSYS, libc::EINVAL].contains(&(-number as i32)));
            return None;
        }
        let pidfd = of_pid(pid).unwrap();
        // SAFETY: takes numbers, makes a descriptor.
        let faults = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number as i32, 0) };
        assert!(faults >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: made for us by the call above.
        let faults = unsafe { OwnedFd::from_raw_fd(faults as i32) };
        let thread = Thread::new(pid, pid as u64);
        let held = Held { pid, thread, pidfd, faults, page, place, said, go: File::from(go) };
        // To be in the call is not enough: it may wait for our address space there, which other tests change, before the gate.
        until("it has passed the gate and waits for its page", || readable(held.faults.as_fd()));
        until("it sleeps in the copy", || held.thread.call().is_ok_and(|n| n == Some(libc::SYS_process_vm_writev)));
        Some(held)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid).unwrap(), signal).unwrap();
    }

    /// Brings the page that the copy waits for.
    fn serve(&self) {
        let bytes = [7u8; PAGE];
        let mut copy = [self.page, bytes.as_ptr() as u64, PAGE as u64, 0, 0];
        // SAFETY: reads `bytes`, writes to the other process.
        let rc = unsafe { libc::ioctl(self.faults.as_raw_fd(), UFFDIO_COPY, copy.as_mut_ptr()) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }

    /// Revokes the access while the copy is under way; `meanwhile` happens then, and `after` lets it end.
    fn revoked(&self, guard: &mut AccessGuard, meanwhile: impl Fn(), after: impl Fn()) -> Proof {
        let (flag, done) = (AtomicU64::new(self.pid as u64), AtomicBool::new(false));
        std::thread::scope(|s| {
            let revoke = s.spawn(|| {
                let proof = revoke(&flag, &mut Peer::new(self.pid, guard, || ended(self.pidfd.as_fd())));
                done.store(true, Ordering::Release);
                proof
            });
            meanwhile();
            // Many looks, of which each could go wrong.
            for _ in 0..200 {
                assert!(!self.thread.at_border() && !done.load(Ordering::Acquire), "it is in the copy");
                std::thread::sleep(Duration::from_micros(500));
            }
            after();
            revoke.join().unwrap()
        })
    }

    /// The second copy, which comes when the proof is there and the memory in use again, and the end of the process.
    fn ends(mut self) {
        assert_eq!(answer(&mut self.said), (8 + PAGE) as i64, "the first copy had passed the gate");
        assert_eq!(self.place.slice().to_vec(), [7; PAGE]);
        assert!(self.place.slice().fill(0, &[0x55; PAGE]));
        self.go.write_all(&[1]).unwrap();
        assert_eq!(answer(&mut self.said), -i64::from(libc::EFAULT), "the second met a closed one");
        assert_eq!(self.place.slice().to_vec(), [0x55; PAGE]);
        self.go.write_all(&[1]).unwrap();
        self.reap();
    }

    fn reap(&self) {
        // SAFETY: no status is asked for.
        assert_eq!(unsafe { libc::waitpid(self.pid, null_mut(), 0) }, self.pid);
    }
}

fn answer(said: &mut File) -> i64 {
    let mut word = [0; 8];
    said.read_exact(&mut word).unwrap();
    i64::from_ne_bytes(word)
}

#[test]
fn a_copier_stopped_in_mid_copy_is_at_its_border_when_the_copy_is_over() {
    let mut guard = AccessGuard::new([1, 2]).unwrap();
    let Some(held) = Held::start(&guard) else { return };
    assert_eq!(held.revoked(&mut guard, || held.signal(Signal::STOP), || held.serve()), Proof::Border);
    assert_eq!(held.thread.state().unwrap(), 'T');
    held.signal(Signal::CONT);
    held.ends();
}

#[test]
fn a_copier_traced_in_mid_copy_is_at_its_border_when_the_copy_is_over() {
    let mut guard = AccessGuard::new([1, 2]).unwrap();
    let Some(held) = Held::start(&guard) else { return };
    let trace = |request| {
        // SAFETY: no memory is passed.
        let rc = unsafe { libc::ptrace(request, held.pid, null_mut::<u8>(), null_mut::<u8>()) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    };
    let interrupt = || {
        trace(libc::PTRACE_SEIZE);
        trace(libc::PTRACE_INTERRUPT);
    };
    assert_eq!(held.revoked(&mut guard, interrupt, || held.serve()), Proof::Border);
    until("it shows as traced", || held.thread.state().is_ok_and(|s| s == 't'));
    trace(libc::PTRACE_DETACH);
    held.ends();
}

#[test]
fn a_copier_that_goes_on_is_at_its_border_in_its_next_call() {
    let mut guard = AccessGuard::new([1, 2]).unwrap();
    let Some(held) = Held::start(&guard) else { return };
    assert_eq!(held.revoked(&mut guard, || {}, || held.serve()), Proof::Border);
    held.ends();
}

#[test]
fn a_copier_killed_in_mid_copy_is_proven_by_its_end() {
    let mut guard = AccessGuard::new([1, 2]).unwrap();
    let Some(held) = Held::start(&guard) else { return };
    let proof = held.revoked(&mut guard, || {}, || held.signal(Signal::KILL));
    assert!(matches!(proof, Proof::Death | Proof::Border), "{proof:?}");
    assert_eq!(held.place.slice().to_vec(), [0; PAGE]);
    until("its end shows", || ended(held.pidfd.as_fd()));
    held.reap();
}
