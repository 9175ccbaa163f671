//! A registration is not used for what is mapped where its memory was.

use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linkspan_mem::gone;
use linkspan_thunderbolt::soft::{SoftRing, SoftRingLink};
use linkspan_thunderbolt::{RingDevice, RingRail};
use linkspan_transport::{Buf, Conn, MemSlice, Rail, StaticBuf};
use linkspan_uffd::Unmaps;
use linkspan_verbs::{Config, Domain, Setup, join};
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};

const LEN: usize = 256 << 10;

/// An address where nothing is, far below those that the kernel chooses: no other thread gets it while it is unmapped.
fn place() -> *mut libc::c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000_0000_0000);
    std::ptr::without_provenance_mut(NEXT.fetch_add(16 * LEN, Ordering::Relaxed))
}

fn map(at: *mut libc::c_void) -> *mut libc::c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: new memory, which replaces none.
    let at = unsafe { libc::mmap(at, LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at
}

/// Memory where another thread unmaps what was there, as soon as the addresses are free: that call has not returned then. It is to be joined.
fn map_anew(at: *mut libc::c_void) -> std::thread::JoinHandle<()> {
    let from = at.addr();
    let unmapping = std::thread::spawn(move || {
        // SAFETY: memory of the caller's own, which no operation uses any more.
        assert_eq!(unsafe { libc::munmap(std::ptr::without_provenance_mut(from), LEN) }, 0);
    });
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which replaces none.
    while unsafe { libc::mmap(at, LEN, prot, flags | libc::MAP_FIXED_NOREPLACE, -1, 0) } != at {
        std::thread::yield_now();
    }
    unmapping
}

/// From now on what is unmapped is heard of late: the thread that hears has this thread's processor when nothing else wants it.
fn hear_late() {
    if Unmaps::of_process().is_err() {
        return;
    }
    let listener = || {
        let mut threads = std::fs::read_dir("/proc/self/task").expect("proc").map(|t| t.expect("an entry").path());
        threads.find(|t| std::fs::read_to_string(t.join("comm")).is_ok_and(|name| name.trim() == "linkspan unmaps"))
    };
    // It gives itself its name.
    let path = std::iter::repeat_with(listener).find_map(|t| t).expect("endless");
    let tid = path.file_name().and_then(|id| id.to_str()?.parse().ok()).expect("a number");
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: plain data, for which zeros are valid.
    let mut cpu = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: a set of ours, large enough for all processors; a thread of ours that never ends.
    let done = unsafe {
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpu);
        [
            libc::sched_setaffinity(0, size, &cpu),
            libc::sched_setaffinity(tid, size, &cpu),
            libc::setpriority(libc::PRIO_PROCESS, tid as u32, 19),
        ]
    };
    assert_eq!(done, [0; 3]);
}

/// A file's pages, of all of which the kernel does not tell: of one on a disk and of one in memory in turn.
fn map_file(at: *mut libc::c_void, byte: u8) {
    let path = format!("{}/{:x}-{byte}", env!("CARGO_TARGET_TMPDIR"), at.addr());
    let (mut file, flags) = if byte.is_multiple_of(2) {
        let file = std::fs::File::create_new(&path).expect("made");
        std::fs::remove_file(&path).expect("there");
        (file, libc::MAP_PRIVATE)
    } else {
        // SAFETY: a name that ends with a zero; the descriptor is nobody else's.
        let file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"linkspan".as_ptr(), libc::MFD_CLOEXEC)) };
        (file, libc::MAP_SHARED)
    };
    file.write_all(&[byte; LEN]).expect("written");
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: new memory, which replaces none.
    assert_eq!(unsafe { libc::mmap(at, LEN, prot, flags, file.as_raw_fd(), 0) }, at);
}

fn slice(at: *mut libc::c_void) -> MemSlice {
    // SAFETY: mapped until each operation on it has reported; see the test.
    unsafe { MemSlice::new(at.cast(), LEN) }
}

fn message<R: Rail>(a: &mut Conn<R>, b: &mut Conn<R>, src: MemSlice, dst: MemSlice) {
    let receive = b.post_recv(&[(1, dst)]).expect("up").expect("transport");
    let (mut send, mut sent, mut got) = (None, false, false);
    let since = Instant::now();
    while !sent || !got {
        assert!(since.elapsed() < Duration::from_secs(30));
        a.progress().expect("up");
        b.progress().expect("up");
        match send {
            None => send = a.post_send(1, src).expect("up"),
            Some(ticket) => sent = sent || a.test(ticket).expect("up").is_some(),
        }
        got = got || b.test(receive).expect("up").is_some();
    }
}

/// As a program does that sends the parts of a model, each in a file of its own.
#[test]
fn a_file_mapped_where_another_was_is_registered_anew_and_none_is_kept_but_by_promise() {
    let net = SoftNet::new(1);
    let domain = |end| Domain::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, end), 1))).watching();
    let (here, there) = (domain(1), domain(2));
    if let Err(why) = here.watches() {
        println!("nothing shown here: {why}");
        return;
    }
    let side = |d: &Domain<SoftNic>| Setup::new(d.clone(), Config::default()).expect("a side");
    let (a, b) = join(side(&here), side(&there)).expect("joined");
    let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
    let kept = StaticBuf::new(LEN);
    message(&mut a, &mut b, kept.slice(), kept.slice());
    message(&mut b, &mut a, kept.slice(), kept.slice());
    let (known, at) = (here.kept(), place());
    let range = (at.addr() as u64, (at.addr() + LEN) as u64);
    for (round, promised) in (1..20u8).zip([false, false, true].into_iter().cycle()) {
        map_file(at, round);
        if promised {
            gone::promise(range);
        }
        let before = here.registrations();
        message(&mut a, &mut b, slice(at), kept.slice());
        assert!(kept.slice().to_vec().iter().all(|&x| x == round), "another file came");
        assert!(here.registrations() > before, "the registration of another file was used");
        message(&mut b, &mut a, kept.slice(), slice(at));
        let before = here.registrations();
        message(&mut a, &mut b, slice(at), kept.slice());
        assert_eq!(here.registrations() - before, u64::from(!promised), "known where its owner tells, else once");
        assert_eq!(here.kept() > known, promised);
        if promised {
            gone::tell(range);
        }
        // SAFETY: no operation uses it any more.
        assert_eq!(unsafe { libc::munmap(at, LEN) }, 0);
    }
    let mut told = Vec::new();
    let each = a.try_each_rail(|rail| {
        told.extend(std::iter::from_fn(|| rail.event()));
        Ok::<(), ()>(())
    });
    assert!(each.is_ok() && told.len() == 1 && told[0].contains("for each chunk anew"), "{told:?}");
}

/// One after the other: what another thread maps would come where one has just unmapped its own.
#[test]
fn memory_mapped_where_registered_memory_was_is_registered_anew() {
    over_queue_pairs();
    over_a_cable();
}

/// In one round what is mapped anew is sent from, in the next it is received into.
fn anew<R: Rail>(a: &mut Conn<R>, b: &mut Conn<R>, round: u8, at: *mut libc::c_void, kept: MemSlice) {
    let (from, to) = if round.is_multiple_of(2) { (slice(at), kept) } else { (kept, slice(at)) };
    assert!(from.fill(0, &[!round; LEN]));
    if round.is_multiple_of(2) {
        message(a, b, from, to)
    } else {
        message(b, a, from, to)
    }
    assert!(to.to_vec().iter().all(|&x| x == !round), "other bytes came");
}

fn over_queue_pairs() {
    let net = SoftNet::new(1);
    let domain = |end| Domain::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, end), 1)));
    // Only one asks the kernel: what the other asks for would be known to both.
    let (here, there) = (domain(1).watching(), domain(2));
    if let Err(why) = here.watches() {
        println!("nothing shown here: {why}");
        return;
    }
    let side = |d: &Domain<SoftNic>| Setup::new(d.clone(), Config::default()).expect("a side");
    let (a, b) = join(side(&here), side(&there)).expect("joined");
    let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
    let kept = StaticBuf::new(LEN);
    hear_late();
    // Both as what is sent from and as what is received into.
    for round in 0..20u8 {
        let at = map(place());
        assert!(slice(at).fill(0, &[round; LEN]));
        message(&mut a, &mut b, slice(at), kept.slice());
        message(&mut b, &mut a, kept.slice(), slice(at));
        let (before, known) = (here.registrations(), here.kept());
        message(&mut a, &mut b, slice(at), kept.slice());
        assert_eq!(here.registrations(), before, "known");
        let unmapping = map_anew(at);
        let held = round.is_multiple_of(3).then(|| here.hold(slice(at), !round.is_multiple_of(2)).expect("registered"));
        assert_eq!(here.registrations(), before + u64::from(held.is_some()), "the old registration is held");
        anew(&mut a, &mut b, round, at, kept.slice());
        assert_eq!(here.registrations(), before + 1, "the old registration was used");
        drop(held);
        assert!(here.kept() <= known, "the old registrations are kept");
        unmapping.join().expect("unmapped");
        // SAFETY: no operation uses it any more.
        assert_eq!(unsafe { libc::munmap(at, LEN) }, 0);
    }
}

/// Both ends of a cable, which are told what is unmapped.
fn cable(link: &SoftRingLink) -> [Conn<RingRail<SoftRing>>; 2] {
    [0, 1].map(|side| {
        let mut device = link.open(side).expect("plugged in");
        for channel in [0, 1] {
            device.open_channel(channel).expect("free");
        }
        let rail = RingRail::new(device, (0, 1), format!("side {side}"), String::new(), 0, false).expect("registered");
        Conn::new([rail.watching()], false)
    })
}

/// The same over a cable, also where the kernel tells nothing.
#[test]
fn over_a_cable_files_are_registered_anew_and_none_is_kept_but_by_promise() {
    let link = SoftRingLink::new();
    let [mut a, mut b] = cable(&link);
    let (kept, at) = (StaticBuf::new(LEN), place());
    let range = (at.addr() as u64, (at.addr() + LEN) as u64);
    for (round, promised) in (1..20u8).zip([false, false, true].into_iter().cycle()) {
        map_file(at, round);
        if promised {
            gone::promise(range);
        }
        let before = link.registered();
        message(&mut a, &mut b, slice(at), kept.slice());
        assert!(kept.slice().to_vec().iter().all(|&x| x == round), "another file came");
        assert!(link.registered() > before, "the registration of another file was used");
        message(&mut b, &mut a, kept.slice(), slice(at));
        let before = link.registered();
        message(&mut a, &mut b, slice(at), kept.slice());
        assert_eq!(link.registered() - before, u64::from(!promised), "known where its owner tells, else used at once");
        if promised {
            gone::tell(range);
        }
        // SAFETY: no operation uses it any more.
        assert_eq!(unsafe { libc::munmap(at, LEN) }, 0);
    }
}

/// Where the kernel does not tell, nothing is kept.
fn over_a_cable() {
    let link = SoftRingLink::new();
    let [mut a, mut b] = cable(&link);
    let told = Unmaps::of_process().is_ok();
    let kept = StaticBuf::new(LEN);
    hear_late();
    for round in 0..20u8 {
        let at = map(place());
        assert!(slice(at).fill(0, &[round; LEN]));
        message(&mut a, &mut b, slice(at), kept.slice());
        message(&mut b, &mut a, kept.slice(), slice(at));
        let before = link.registered();
        message(&mut a, &mut b, slice(at), kept.slice());
        assert_eq!(link.registered() == before, told, "known where it is watched");
        let (before, unmapping) = (link.registered(), map_anew(at));
        anew(&mut a, &mut b, round, at, kept.slice());
        assert!(link.registered() > before, "the old registration was used");
        unmapping.join().expect("unmapped");
        // SAFETY: no operation uses it any more.
        assert_eq!(unsafe { libc::munmap(at, LEN) }, 0);
    }
}
