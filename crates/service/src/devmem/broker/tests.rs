#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use linkspan_fabric::devmem::client::Session as Client;
use linkspan_netdev::{HeaderSplit, Rings};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

use super::*;

/// What is bound and steered at the moment, and what ever was.
type Calls = Arc<Mutex<Vec<String>>>;

/// A card that says what happens to it. A rule's place is its queue and this.
struct Fake(Calls);

const FIRST: u32 = 100;

/// Memory that takes so long to bind as this is not among the calls.
const SLOW: u64 = 8192;
const GO: &str = "go on";

/// From the first on, and until the second, the card ends no rule.
const STUCK: [&str; 2] = ["the card is busy", "the card is idle"];

/// Says that something has ended.
struct Ends(Calls, String);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(format!("end of {}", self.1));
    }
}

impl Fake {
    fn made(&self, what: String) -> Box<dyn Any> {
        self.0.lock().unwrap().push(what.clone());
        Box::new(Ends(self.0.clone(), what))
    }
}

impl Card for Fake {
    fn queues(&self) -> Result<u32, String> {
        Ok(8)
    }

    fn rings(&self) -> Result<Rings, String> {
        Ok(Rings { receive: None, split: HeaderSplit::On, threshold: None })
    }

    fn split(&self, _: bool, _: Option<u32>) -> Result<(), String> {
        Ok(())
    }

    fn spread(&self) -> Result<Vec<u32>, String> {
        Ok(vec![0; 128])
    }

    fn set_spread(&self, _: &[u32]) -> Result<(), String> {
        Ok(())
    }

    fn takes_rules(&self) -> Result<bool, String> {
        Ok(true)
    }

    fn take_rules(&self, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn bind(&self, queues: &[u32], dmabuf: BorrowedFd<'_>) -> Result<(u32, Box<dyn Any>), String> {
        let file = File::from(dmabuf.try_clone_to_owned().map_err(|e| e.to_string())?);
        match file.metadata().unwrap().len() {
            4096 => Ok((7, self.made(format!("binding to {queues:?}")))),
            SLOW => {
                let made = self.made(format!("slow binding to {queues:?}"));
                wait(|| self.0.lock().unwrap().iter().any(|call| call == GO));
                Ok((7, made))
            }
            _ => Err("LS1333 the kernel refuses binding device memory for receiving: Operation not supported".into()),
        }
    }

    fn steer(&self, _: SocketAddr, _: SocketAddr, queue: u32) -> Result<u32, String> {
        self.0.lock().unwrap().push(format!("rule to {queue}"));
        Ok(FIRST + queue)
    }

    fn unsteer(&self, place: Option<u32>, _: SocketAddr, _: SocketAddr) -> Result<(), String> {
        let mut calls = self.0.lock().unwrap();
        if calls.iter().rfind(|call| STUCK.contains(&&***call)).is_some_and(|call| call == STUCK[0]) {
            return Err("Device or resource busy".into());
        }
        calls.push(format!("end of rule to {}", place.unwrap() - FIRST));
        Ok(())
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("linkspan-broker-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A file of so many bytes in place of a dma-buf.
    fn buffer(&self, len: u64) -> File {
        let file = File::create(self.0.join(format!("buffer-{len}"))).unwrap();
        file.set_len(len).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves in this thread while `client` runs in another: what happened to the card, and what was said.
fn with_broker(
    folder: &Path,
    allowed: Allowed,
    each: u32,
    client: impl FnOnce(&Calls) + Send + 'static,
) -> (Vec<String>, Vec<String>) {
    let broker = DevmemBroker::open(folder, "eth9", allowed, vec![4, 5, 6], each).unwrap();
    assert!(broker.path().ends_with("devmem-eth9.sock") && broker.path().exists());
    let over = Arc::new(AtomicBool::new(false));
    let (ended, calls) = (over.clone(), Calls::default());
    let seen = calls.clone();
    let thread = std::thread::spawn(move || {
        // Said also where it panics.
        struct Says(Arc<AtomicBool>);
        impl Drop for Says {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _says = Says(ended);
        client(&seen);
    });
    let mut said = Vec::new();
    broker
        .serve(&Fake(calls.clone()), &mut || over.load(Ordering::Acquire), &mut |line| said.push(line.to_owned()))
        .unwrap();
    let path = broker.path().to_owned();
    drop(broker);
    assert!(!path.exists(), "the socket is gone with its broker");
    thread.join().unwrap();
    (std::mem::take(&mut *calls.lock().unwrap()), said)
}

#[track_caller]
fn wait(mut until: impl FnMut() -> bool) {
    let since = Instant::now();
    while !until() {
        assert!(since.elapsed() < Duration::from_secs(30), "it does not come");
        std::thread::yield_now();
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn stream() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

#[test]
fn a_process_has_its_memory_bound_and_its_streams_steered_until_it_leaves() {
    let folder = Folder::new("whole");
    let (at, buffer, wrong) = (folder.0.clone(), folder.buffer(4096), folder.buffer(100));
    let (calls, said) = with_broker(&folder.0, Allowed::new(&[me()]), 2, move |_| {
        let path = client::path(&at, "eth9");
        let ours = Client::open(&path).unwrap();
        let (a, b) = stream();
        let (local, peer) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        assert!(ours.steer(local, peer, a.as_fd()).unwrap_err().contains("no memory yet"));
        // The kernel's error is passed on.
        let refused = ours.bind(wrong.as_fd(), 100).unwrap_err();
        assert!(refused.starts_with("LS1333") && refused.ends_with("Operation not supported"), "{refused}");
        assert_eq!(ours.bind(buffer.as_fd(), 4096), Ok(7));
        assert!(ours.bind(buffer.as_fd(), 4096).unwrap_err().contains("already"));
        let none: SocketAddr = "127.0.0.1:9".parse().unwrap();
        assert!(ours.steer(local, none, a.as_fd()).unwrap_err().contains("no stream 127.0.0.1:9 -> "));
        assert_eq!((ours.steer(local, peer, a.as_fd()), ours.steer(peer, local, b.as_fd())), (Ok(0), Ok(1)));
        assert_eq!(ours.release(0), Ok(()));
        assert!(ours.release(0).unwrap_err().contains("no rule 0"));
        // Another process has what is left, a third has nothing.
        let second = Client::open(&path).unwrap();
        assert_eq!(second.bind(buffer.as_fd(), 4096), Ok(7));
        let third = Client::open(&path).unwrap();
        assert!(third.bind(buffer.as_fd(), 4096).unwrap_err().contains("--each"));
        assert_eq!(second.steer(local, peer, a.as_fd()), Ok(0));
        let of_a_child = ours.as_fd().try_clone_to_owned().unwrap();
        drop(ours);
        // What it had is free again, though a child of fork() has its socket.
        let until = Instant::now() + Duration::from_secs(10);
        while let Err(why) = third.bind(buffer.as_fd(), 4096) {
            assert!(Instant::now() < until, "{why}");
        }
        drop(of_a_child);
    });
    let one = ["binding to [4, 5]", "rule to 4", "rule to 5", "end of rule to 4", "binding to [6]", "rule to 6"];
    assert_eq!(calls[..6], one);
    let freed: Vec<&str> = calls[6..8].iter().map(String::as_str).collect();
    assert!(freed.contains(&"end of rule to 5") && freed.contains(&"end of binding to [4, 5]"), "{calls:?}");
    assert_eq!(calls[8], "binding to [4, 5]");
    // The end of the broker ends everything.
    let begun = calls.iter().filter(|c| !c.starts_with("end of")).count();
    assert_eq!(calls.len(), 2 * begun, "{calls:?}");
    assert!(
        said.iter().any(|l| l.contains("has connected")) && said.iter().any(|l| l.contains("has disconnected")),
        "{said:?}"
    );
}

#[test]
fn others_are_refused_and_told_how_they_would_not_be() {
    // Whether the question comes before the refusal, with it or after it.
    for late in [0, 0, 1, 50] {
        refused_when_it_asks_after(Duration::from_millis(late));
    }
}

fn refused_when_it_asks_after(late: Duration) {
    let folder = Folder::new("other");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let nobody = Allowed(Vec::new());
    let (calls, said) = with_broker(&folder.0, nobody, 2, move |_| {
        let client = Client::open(&client::path(&at, "eth9")).unwrap();
        std::thread::sleep(late);
        let why = client.bind(buffer.as_fd(), 4096).unwrap_err();
        assert!(why.contains("--allow"), "{why}");
    });
    assert!(calls.is_empty(), "{calls:?}");
    assert!(said.iter().any(|l| l.starts_with("refused process") && l.contains("--allow")), "{said:?}");
}

/// A socket whose last close takes until the other one, which comes second, is read: an hour at most.
fn lingering() -> (TcpStream, TcpStream) {
    let (mut full, peer) = stream();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 65536]).is_ok() {}
    sockopt::set_socket_linger(&full, Some(Duration::from_secs(3600))).unwrap();
    (full, peer)
}

/// Sends a question with descriptors.
fn send_with(client: &Client, question: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    rustix::net::sendmsg(client.as_fd(), &[IoSlice::new(question)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn who_is_refused_with_what_takes_long_to_close_holds_up_nobody_else() {
    let folder = Folder::new("linger");
    let broker = DevmemBroker::open(&folder.0, "eth9", Allowed(Vec::new()), vec![4], 1).unwrap();
    let (first, (full, peer)) = (Client::open(broker.path()).unwrap(), lingering());
    send_with(&first, &[0x5a; QUESTION_LEN], &[full.as_fd()]);
    drop(full);
    let (second, buffer) = (Client::open(broker.path()).unwrap(), folder.buffer(4096));
    let second = std::thread::spawn(move || second.bind(buffer.as_fd(), 4096));
    broker.serve(&Fake(Calls::default()), &mut || second.is_finished(), &mut |_| {}).unwrap();
    assert!(second.join().unwrap().unwrap_err().contains("--allow"));
    // Nor does who comes when it ends.
    let (last, (full, unread)) = (Client::open(broker.path()).unwrap(), lingering());
    send_with(&last, &[0x5a; QUESTION_LEN], &[full.as_fd()]);
    drop(full);
    drop((broker, last));
    assert!([peer, unread].iter().all(|peer| peer.peek(&mut [0]).unwrap() > 0));
}

#[test]
fn who_is_served_with_what_takes_long_to_close_holds_up_nobody_else() {
    let folder = Folder::new("linger-served");
    let broker = DevmemBroker::open(&folder.0, "eth9", Allowed::new(&[me()]), vec![4, 5], 1).unwrap();
    let buffer = folder.buffer(4096);
    let (nonsense, bind) = ([0x5a; QUESTION_LEN], BrokerRequest::Bind { len: 4096 }.encode());
    // All is sent, and closed here, before the broker looks: the last close is its own.
    let held = [(nonsense, 1), (bind, 1), (bind, 2)].map(|(question, count)| {
        let (client, (full, peer)) = (Client::open(broker.path()).unwrap(), lingering());
        send_with(&client, &question, &[buffer.as_fd(), full.as_fd()][2 - count..]);
        (client, peer)
    });
    let last = Client::open(broker.path()).unwrap();
    let last = std::thread::spawn(move || last.bind(buffer.as_fd(), 4096));
    broker.serve(&Fake(Calls::default()), &mut || last.is_finished(), &mut |_| {}).unwrap();
    // The one behind them is answered.
    assert_eq!(last.join().unwrap(), Ok(7));
    assert!(held.iter().all(|(_, peer)| peer.peek(&mut [0]).unwrap() > 0));
}

#[test]
fn nobody_is_admitted_while_too_much_of_a_user_waits_to_be_closed() {
    const NAME: &str = "devmem::broker::tests::nobody_is_admitted_while_too_much_of_a_user_waits_to_be_closed";
    if std::env::var_os("LSPAN_TEST_FULL").is_none() {
        // In it there is no other broker that pauses meanwhile.
        let out = alone(NAME, ("LSPAN_TEST_FULL", Path::new("1"))).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let folder = Folder::new("linger-many");
    let broker = DevmemBroker::open(&folder.0, "eth9", Allowed(Vec::new()), vec![4], 1).unwrap();
    let (full, peer) = lingering();
    drop_aside(4242, full);
    while aside_full().is_none() {
        drop_aside(4242, ());
    }
    // The thread may not have taken the first yet.
    drop_aside(4242, ());
    let fd =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap().0;
    let (rules, free) = (BTreeMap::new(), Free { queues: vec![4], kept: 0, has: 0 });
    let mut session =
        Session { fd: Aside::new(4242, fd), user: 4242, process: 1, life: None, bound: None, rules, next: 0 };
    let ended = session.serve(&Fake(Calls::default()), &free, 1);
    assert!(ended.is_err_and(|why| why.contains("long to close")));

    let (second, buffer) = (Client::open(broker.path()).unwrap(), folder.buffer(4096));
    let second = std::thread::spawn(move || second.bind(buffer.as_fd(), 4096));
    let (said, mut held) = (std::cell::RefCell::new(Vec::new()), Some(peer));
    let mut end = || {
        let over = second.is_finished();
        if !said.borrow().is_empty() && held.take().is_some() {
            assert_eq!(said.borrow().len(), 1, "{said:?}");
        }
        over
    };
    broker.serve(&Fake(Calls::default()), &mut end, &mut |line| said.borrow_mut().push(line.to_owned())).unwrap();
    assert!(second.join().unwrap().unwrap_err().contains("--allow"));
    let said = said.into_inner();
    assert!(said[0].contains("user 4242") && said[1].contains("refused process"), "{said:?}");
}

#[test]
fn nonsense_ends_a_session() {
    let folder = Folder::new("nonsense");
    let at = folder.0.clone();
    let (_, said) = with_broker(&folder.0, Allowed::new(&[me()]), 2, move |_| {
        let raw = Client::open(&client::path(&at, "eth9")).unwrap();
        rustix::net::send(raw.as_fd(), &[0x5a; QUESTION_LEN + 1], SendFlags::NOSIGNAL).unwrap();
        let (n, _) = rustix::net::recv(raw.as_fd(), &mut [0u8; 9][..], RecvFlags::empty()).unwrap();
        assert_eq!(n, 0, "closed");
        // And a second broker on the same card is not made.
        let second = DevmemBroker::open(&at, "eth9", Allowed::new(&[]), vec![1], 1);
        assert!(second.is_err_and(|why| why.contains("already")));
    });
    assert!(said.iter().any(|l| l.contains("cannot be read")), "{said:?}");
}

#[test]
fn the_kernels_tables_say_whose_a_stream_is() {
    let (a, b) = stream();
    let (local, peer) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    let found = socket(local, peer).unwrap();
    assert_eq!((found.state, found.user), (ESTABLISHED, me()));
    assert_eq!(found.inode, inode(&a.into()).unwrap());
    assert_eq!(socket(local, "127.0.0.1:9".parse().unwrap()), None);
    let four = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
                   0: 0100000A:0102 0200000A:0005 01 00000000:00000000 00:00000000 00000000  1000        0 77 1\n";
    if cfg!(target_endian = "little") {
        let owner_in = |text: &str, local, peer| socket_in(text, local, peer).map(|s| (s.state, s.user, s.inode));
        assert_eq!(owner_in(four, "10.0.0.1:258".parse().unwrap(), "10.0.0.2:5".parse().unwrap()), Some((1, 1000, 77)));
        let mapped = "[::ffff:10.0.0.1]:258".parse().unwrap();
        assert_eq!(owner_in(four, mapped, "10.0.0.2:5".parse().unwrap()), Some((1, 1000, 77)));
        let six = four
            .replace("0100000A:", "000080FE000000000000000001000000:")
            .replace("0200000A:", "000080FE000000000000000002000000:");
        assert_eq!(
            owner_in(&six, "[fe80::1]:258".parse().unwrap(), "[fe80::2]:5".parse().unwrap()),
            Some((1, 1000, 77))
        );
    }
    assert_eq!(socket_in("x\n 0: zz:1 1:2 3\n", local, peer), None);
}

/// Resets a stream from this end, as a process does whose data nobody read.
fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_rule_ends_with_its_stream() {
    let folder = Folder::new("ends");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let (calls, _) = with_broker(&folder.0, Allowed::new(&[me()]), 1, move |calls| {
        let ours = Client::open(&client::path(&at, "eth9")).unwrap();
        ours.bind(buffer.as_fd(), 4096).unwrap();
        let ways: [fn(TcpStream, TcpStream); 3] = [
            // By the peer.
            |a, b| {
                reset(b);
                drop(a);
            },
            // By both sides.
            |a, b| {
                a.shutdown(std::net::Shutdown::Write).unwrap();
                drop(b);
            },
            // By the process that asked for the rule: its own copy of the socket is as good as the broker's.
            |a, b| {
                rustix::net::connect_unspec(&a).unwrap();
                drop(b);
            },
        ];
        for (n, end) in ways.into_iter().enumerate() {
            let (a, b) = stream();
            let (local, peer) = (a.local_addr().unwrap(), b.local_addr().unwrap());
            assert_eq!(ours.steer(local, peer, a.as_fd()), Ok(n as u32));
            end(a, b);
            let ended = || calls.lock().unwrap().iter().filter(|c| *c == "end of rule to 4").count();
            let until = Instant::now() + Duration::from_secs(10);
            while ended() <= n {
                assert!(Instant::now() < until, "way {n}: the rule stands, its stream has ended");
                std::thread::yield_now();
            }
        }
        // A stream that its process lets go keeps its addresses until its rule ends.
        let (a, b) = stream();
        let (local, peer) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        assert_eq!(ours.steer(local, peer, a.as_fd()), Ok(3));
        drop(a);
        assert!(socket(local, peer).is_some_and(|s| s.state == ESTABLISHED));
        assert_eq!(ours.release(3), Ok(()));
    });
    assert_eq!(calls.len(), 2 * 5, "{calls:?}");
}

#[test]
fn only_an_established_stream_whose_socket_comes_along_is_steered() {
    let folder = Folder::new("state");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let (calls, _) = with_broker(&folder.0, Allowed::new(&[me()]), 1, move |_| {
        let ours = Client::open(&client::path(&at, "eth9")).unwrap();
        ours.bind(buffer.as_fd(), 4096).unwrap();
        let (a, b) = stream();
        let (local, peer) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        let why = ours.steer(local, peer, b.as_fd()).unwrap_err();
        assert!(why.contains("not the socket of the stream"), "{why}");
        let why = ours.steer(local, peer, buffer.as_fd()).unwrap_err();
        assert!(why.contains("no socket"), "{why}");
        a.shutdown(std::net::Shutdown::Write).unwrap();
        let why = ours.steer(local, peer, a.as_fd()).unwrap_err();
        assert!(why.contains("not established"), "{why}");
        // SYN_SENT: nobody answers where the queue is full.
        let full = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&full, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let full = TcpListener::from(full);
        let there = full.local_addr().unwrap();
        let asking = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
            let _ = rustix::net::connect(&fd, &there);
            TcpStream::from(fd)
        };
        let asking: Vec<TcpStream> = (0..4).map(|_| asking()).collect();
        let from = asking[3].local_addr().unwrap();
        assert_eq!(socket(from, there).unwrap().state, 2, "it is answered");
        let why = ours.steer(from, there, asking[3].as_fd()).unwrap_err();
        assert!(why.contains("not established"), "{why}");
    });
    assert_eq!(calls.len(), 2, "{calls:?}");
}

/// Time that this process has had a processor, in ticks of 10 ms, from its /proc/PID/stat.
fn ticks(stat: &File) -> u64 {
    let mut text = [0; 1024];
    let n = std::os::unix::fs::FileExt::read_at(stat, &mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text[..n]).into_owned();
    let words = text.rsplit(") ").next().unwrap().split(' ');
    words.skip(11).take(2).map(|word| word.parse::<u64>().unwrap()).sum()
}

#[test]
fn running_out_of_descriptors_is_a_pause() {
    const NAME: &str = "devmem::broker::tests::running_out_of_descriptors_is_a_pause";
    if std::env::var_os("LSPAN_TEST_FEW").is_none() {
        // In a process of its own, which has few: fewer than clients that wait to be accepted, so that none waits to connect.
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "ulimit -n 24; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        let out = child.args(["--exact", NAME, "--nocapture"]).env("LSPAN_TEST_FEW", "1").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let folder = Folder::new("few");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let (_, said) = with_broker(&folder.0, Allowed::new(&[me()]), 1, move |_| {
        let path = client::path(&at, "eth9");
        let stat = File::open("/proc/self/stat").unwrap();
        let spare = buffer.try_clone().unwrap();
        let mut all = Vec::new();
        while let Ok(client) = Client::open(&path) {
            all.push(client);
        }
        // One for a client and none for the broker.
        drop(spare);
        all.extend(std::iter::from_fn(|| Client::open(&path).ok()));
        // It waits and does not spin, which takes a span of time to see.
        let (before, since) = (ticks(&stat), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let used = Duration::from_millis(10) * (ticks(&stat) - before) as u32;
        assert!(used < since.elapsed() / 10, "{used:?} of {:?}", since.elapsed());
        drop(all);
        let until = Instant::now() + Duration::from_secs(30);
        while let Err(why) = Client::open(&path).and_then(|client| client.bind(buffer.as_fd(), 4096)) {
            assert!(Instant::now() < until, "{why}");
        }
    });
    assert_eq!(said.iter().filter(|line| line.contains("no process can connect")).count(), 1, "{said:#?}");
}

#[test]
fn processes_and_their_streams_are_bounded() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // The broker keeps a descriptor for each stream, and here it is in the process of its clients.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let folder = Folder::new("bounds");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let (calls, said) = with_broker(&folder.0, Allowed::new(&[me()]), 3, move |_| {
        let path = client::path(&at, "eth9");
        let first = Client::open(&path).unwrap();
        assert_eq!(first.bind(buffer.as_fd(), 4096), Ok(7));
        let (a, b) = stream();
        let steer = || first.steer(a.local_addr().unwrap(), b.local_addr().unwrap(), a.as_fd());
        for n in 0..RULES as u32 {
            assert_eq!(steer(), Ok(n));
        }
        assert!(steer().unwrap_err().contains("1024 streams are steered already"));
        assert_eq!(first.release(0), Ok(()));
        assert_eq!(steer(), Ok(RULES as u32));
        let others: Vec<Client> = (1..SESSIONS).map(|_| Client::open(&path).unwrap()).collect();
        let refused = Client::open(&path).unwrap().bind(buffer.as_fd(), 4096).unwrap_err();
        assert!(refused.contains("64 processes use this card already"), "{refused}");
        drop(others);
    });
    assert_eq!(calls.iter().filter(|c| c.starts_with("rule to")).count(), RULES + 1);
    assert_eq!(said.iter().filter(|line| line.contains("has connected")).count(), SESSIONS);
}

#[test]
fn one_user_does_not_take_the_places_of_the_others() {
    let folder = Folder::new("shares");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let allowed = Allowed::new(&[me(), 4711, 4712, 4713]);
    let each = allowed.each();
    assert!(each < SESSIONS / 3);
    with_broker(&folder.0, allowed, 3, move |_| {
        let path = client::path(&at, "eth9");
        let mut all: Vec<Client> = (0..each).map(|_| Client::open(&path).unwrap()).collect();
        let refused = Client::open(&path).unwrap().bind(buffer.as_fd(), 4096).unwrap_err();
        assert!(refused.contains("its share of 64"), "{refused}");
        all.pop();
        // Its place is free when the broker has seen its end.
        while Client::open(&path).unwrap().release(0).unwrap_err().contains("its share") {
            std::thread::yield_now();
        }
    });
}

#[test]
fn one_user_does_not_take_the_queues_of_the_others() {
    let folder = Folder::new("queues");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    // Three queues, of which each process may have all, and two users beside us.
    let (calls, _) = with_broker(&folder.0, Allowed::new(&[me(), 4711, 4712]), 3, move |_| {
        let path = client::path(&at, "eth9");
        let first = Client::open(&path).unwrap();
        assert_eq!(first.bind(buffer.as_fd(), 4096), Ok(7));
        let refused = Client::open(&path).unwrap().bind(buffer.as_fd(), 4096).unwrap_err();
        assert!(refused.contains(&format!("user {} has 1 queues, and the 2 that are free stay", me())), "{refused}");
        assert!(refused.contains("--queues"), "{refused}");
    });
    assert_eq!(calls[0], "binding to [4]", "{calls:?}");
    // Who has none has one, whoever else was named.
    let many: Vec<u32> = (4711..4720).chain([me()]).collect();
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let (calls, _) = with_broker(&folder.0, Allowed::new(&many), 3, move |_| {
        assert_eq!(Client::open(&client::path(&at, "eth9")).unwrap().bind(buffer.as_fd(), 4096), Ok(7));
    });
    assert_eq!(calls[0], "binding to [4]", "{calls:?}");
}

#[test]
fn a_rule_that_the_card_does_not_end_keeps_its_stream_and_its_queue_until_it_does() {
    let folder = Folder::new("stuck");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    let (calls, said) = with_broker(&folder.0, Allowed::new(&[me()]), 3, move |calls| {
        let path = client::path(&at, "eth9");
        let ours = Client::open(&path).unwrap();
        ours.bind(buffer.as_fd(), 4096).unwrap();
        let (a, b) = stream();
        let (local, peer) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        assert_eq!(ours.steer(local, peer, a.as_fd()), Ok(0));
        calls.lock().unwrap().push(STUCK[0].into());
        assert!(ours.release(0).unwrap_err().contains("busy"));
        drop((ours, a));
        let next = Client::open(&path).unwrap();
        wait(|| next.bind(buffer.as_fd(), 4096).is_ok());
        let bound = |calls: &Calls| calls.lock().unwrap().iter().any(|call| call == "binding to [5, 6]");
        assert!(bound(calls), "the queue of the rule is lent");
        assert!(socket(local, peer).is_some_and(|s| s.state == ESTABLISHED), "its stream is let go");
        calls.lock().unwrap().push(STUCK[1].into());
        wait(|| calls.lock().unwrap().iter().any(|call| call == "end of rule to 4"));
        drop(b);
    });
    assert!(said.iter().any(|line| line.contains("does not end 1 of its rules, as to queue 4")), "{said:?}");
    assert_eq!(calls.iter().filter(|call| *call == "end of rule to 4").count(), 1, "{calls:?}");
}

/// The test `name` in a process of its own, to which `key` says so.
fn alone(name: &str, (key, value): (&str, &Path)) -> std::process::Command {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(key, value);
    child
}

#[test]
fn what_a_process_has_ends_with_it_although_a_child_has_its_socket() {
    const NAME: &str = "devmem::broker::tests::what_a_process_has_ends_with_it_although_a_child_has_its_socket";
    if let Some(folder) = std::env::var_os("LSPAN_TEST_PARENT") {
        let folder = Folder(folder.into());
        let ours = Client::open(&client::path(&folder.0, "eth9")).unwrap();
        ours.bind(folder.buffer(4096).as_fd(), 4096).unwrap();
        // It reads, until the socket ends.
        let socket = ours.as_fd().try_clone_to_owned().unwrap();
        std::process::Command::new("cat").stdin(socket).spawn().unwrap();
        // As if killed: nothing is dropped.
        std::process::exit(0);
    }
    let folder = Folder::new("parent");
    let (at, buffer) = (folder.0.clone(), folder.buffer(4096));
    with_broker(&folder.0, Allowed::new(&[me()]), 3, move |_| {
        let parent = alone(NAME, ("LSPAN_TEST_PARENT", &at)).status().unwrap();
        assert!(parent.success());
        let ours = Client::open(&client::path(&at, "eth9")).unwrap();
        wait(|| ours.bind(buffer.as_fd(), 4096).is_ok());
    });
}

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_that_of_another_question() {
    let folder = Folder::new("late");
    let (at, slow, buffer) = (folder.0.clone(), folder.buffer(SLOW), folder.buffer(4096));
    with_broker(&folder.0, Allowed::new(&[me()]), 3, move |calls| {
        let path = client::path(&at, "eth9");
        let ours = Client::open(&path).unwrap();
        sockopt::set_socket_timeout(ours.as_fd(), sockopt::Timeout::Recv, Some(Duration::from_millis(100))).unwrap();
        let late = ours.bind(slow.as_fd(), SLOW).unwrap_err();
        assert!(late.contains("does not answer: recv"), "{late}");
        calls.lock().unwrap().push(GO.into());
        let next = ours.release(0).unwrap_err();
        assert!(next.contains("has ended this session"), "{next}");
        // Nor is what it was given in time for nobody kept.
        let other = Client::open(&path).unwrap();
        wait(|| other.bind(buffer.as_fd(), 4096).is_ok());
    });
}

/// The states of a process's threads.
fn states(process: Pid) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.filter_map(|stat| stat.rsplit(") ").next()?.chars().next()).collect()
}

/// A call with a time limit is interrupted by SIGCONT whatever the handlers are (signal(7)).
#[test]
fn a_signal_while_an_answer_is_waited_for_is_no_error() {
    use rustix::process::{Signal, kill_process};
    const NAME: &str = "devmem::broker::tests::a_signal_while_an_answer_is_waited_for_is_no_error";
    if let Some(folder) = std::env::var_os("LSPAN_TEST_SIGNAL") {
        let folder = std::mem::ManuallyDrop::new(Folder(folder.into()));
        let ours = Client::open(&client::path(&folder.0, "eth9")).unwrap();
        assert_eq!(ours.bind(folder.buffer(SLOW).as_fd(), SLOW), Ok(7));
        return;
    }
    let folder = Folder::new("signal");
    let at = folder.0.clone();
    with_broker(&folder.0, Allowed::new(&[me()]), 3, move |calls| {
        let mut child = alone(NAME, ("LSPAN_TEST_SIGNAL", &at)).spawn().unwrap();
        let process = Pid::from_child(&child);
        wait(|| calls.lock().unwrap().iter().any(|call| call.starts_with("slow")));
        let over = |child: &mut std::process::Child| child.try_wait().unwrap().is_some();
        for _ in 0..5 {
            for (signal, state) in [(Signal::STOP, 'S'), (Signal::CONT, 'T')] {
                wait(|| states(process).chars().all(|found| found == state) || over(&mut child));
                let _ = kill_process(process, signal);
            }
        }
        wait(|| !states(process).contains('T'));
        calls.lock().unwrap().push(GO.into());
        assert!(child.wait().unwrap().success());
    });
}
