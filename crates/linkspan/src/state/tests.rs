use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Fabric, Listener, PeerState, RemoteSlice};
use linkspan_gpu::{SimConfig, SimGpu};
use linkspan_transport::StaticBuf;
use linkspan_verbs::Rdma;
use linkspan_verbs_sys::mock::MockNic;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet};
use linkspan_verbs_sys::{self as nic, Mr, Nic, SendOp, SendWr};

use crate::hello::Hello;
use crate::ops::{Kind, Part};
use crate::shared::Shared;
use crate::{Access, Config, Context, Error, Gpu, Log, Memory, Notify, Transport, Url};

const LONG: Duration = Duration::from_secs(60);

fn config(path: &str) -> Config {
    config_with(path, "auto")
}

fn config_with(path: &str, gpu: &str) -> Config {
    let settings =
        [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", path), ("LINKSPAN_GPU", gpu), ("LINKSPAN_STATS_DIR", "off")];
    Config::read(&|name| settings.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).expect("settings")
}

fn context() -> Context {
    Context::new(config("tcp"), Log::off()).expect("a context")
}

fn target(url: &Url) -> super::Target {
    super::Target { handle: url.handle.clone(), to: url.id, key: None }
}

/// A channel, and what it needs: the listener and its other end.
pub(crate) fn connected(fabric: &Fabric) -> (Channel, Listener, Channel) {
    let listener = fabric.listen(0).expect("a listener");
    let mut connecting = fabric.connect(0, &listener.handle()).expect("a dial");
    let (since, mut here, mut there) = (Instant::now(), None, None);
    while here.is_none() || there.is_none() {
        assert!(since.elapsed() < LONG, "not connected");
        here = here.or_else(|| connecting.poll().expect("a connection"));
        there = there.or_else(|| listener.accept().expect("a connection"));
    }
    (here.expect("connected"), listener, there.expect("connected"))
}

/// Where neither number is smaller, neither side has precedence: both often take the path that the other one makes, and abandon their own,
/// which is in use there.
#[test]
fn sides_that_dial_at_once_and_take_each_others_path_stay_connected() {
    let (ours, theirs) = (context(), context());
    let dial = |shared: &Shared, own: &Transport, to: &Url| {
        let mut state = shared.lock();
        state.connect(target(to), Instant::now() + LONG).expect("begun");
        shared.see_to_it(state);
        own.wait_connected_blocking(LONG).expect("it connects");
    };
    for _ in 0..50 {
        let of = |ctx| Shared::new(super::TransportState::new(ctx, 0, 41)).expect("a transport");
        let (shared_a, shared_b) = (of(&ours), of(&theirs));
        let (a, b) = (Transport::from_shared(shared_a.clone()), Transport::from_shared(shared_b.clone()));
        let (to_a, to_b) = (a.bind().expect("a URL"), b.bind().expect("a URL"));
        std::thread::scope(|s| {
            s.spawn(|| dial(&shared_a, &a, &to_b));
            s.spawn(|| dial(&shared_b, &b, &to_a));
        });
        let (inbox, source) = (Memory::host(100), Memory::copy_of(&[7; 100]));
        let remote = b.expose(&inbox.view(), Access::Write).expect("exposed").remote();
        a.write_blocking(&source.view(), &remote, Some(Notify::COUNT), Some(LONG)).expect("written");
        b.wait_for_write_blocking(Some(LONG)).expect("notified");
        let mut got = [0; 100];
        inbox.read(0, &mut got).expect("read");
        assert_eq!(got, [7; 100]);
    }
}

#[test]
fn of_sides_that_dial_each_other_the_smaller_number_refuses_the_others_path_for_300_ms() {
    let (ours, theirs) = (context(), context());
    let url = theirs.transport().expect("a transport").bind().expect("a URL");
    let mut state = super::TransportState::new(&ours, 0, 41);
    state.connect(target(&url), Instant::now() + LONG).expect("begun");
    let (channel, _listener, _other) = connected(ours.fabric());
    let mut objects = |from: u64, since: Instant| {
        let super::Phase::Making(making) = &mut state.phase else { panic!("it does not dial") };
        let path = ours.fabric().connect(0, url.handle.expose()).expect("a dial");
        (making.dial, making.since) = (super::Dial::Connecting(Box::new(path)), since);
        state.peer = from;
        state.objection(&Hello { from, to: 41, epoch: 1, ..Hello::default() }, &channel)
    };
    // A time to come has not passed, however slow the machine.
    let (now, later) = (Instant::now(), Instant::now() + LONG);
    assert_eq!(objects(42, later), Some("we dial the peer ourselves at this moment"));
    assert_eq!(objects(40, later), None, "the peer's number is the smaller one");
    assert_eq!(objects(42, now - Duration::from_millis(300)), None, "the time is over");
}

#[test]
fn a_connect_whose_time_is_up_leaves_nothing_under_way() {
    let (ours, theirs) = (context(), context());
    let url = theirs.transport().expect("a transport").bind().expect("a URL");
    let mut state = super::TransportState::new(&ours, 0, 41);
    let until = Instant::now() + LONG;
    state.connect(target(&url), until).expect("begun");
    state.ops.start(Kind::Connect, None, Some(until));
    state.expire(until);
    assert!(matches!(state.phase, super::Phase::Idle), "it may connect again at once");
}

#[test]
fn a_connect_that_is_dropped_is_given_up_and_a_wait_that_is_dropped_leaves_it_alone() {
    let (ours, theirs) = (context(), context());
    // It takes nobody in.
    let silent = theirs.fabric().listen(0).expect("a listener");
    let nobody = Url::new(crate::UrlKind::Transport, 7, silent.handle());
    let (a, b) = (ours.transport().expect("a transport"), theirs.transport().expect("a transport"));
    let connect = a.connect(&nobody, Duration::MAX);
    drop(a.wait_connected(LONG));
    assert!(matches!(a.connect(&nobody, LONG).wait(), Err(Error::HasPeer)));
    let waits = a.wait_connected(LONG);
    drop(connect);
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("it may connect to another peer at once");
    waits.wait().expect("it has a time of its own");
}

#[test]
fn a_wait_for_the_peer_outlives_a_connect_that_fails() {
    let (ours, theirs) = (context(), context());
    // It takes nobody in.
    let silent = theirs.fabric().listen(0).expect("a listener");
    let nobody = Url::new(crate::UrlKind::Transport, 7, silent.handle());
    let (a, b) = (ours.transport().expect("a transport"), theirs.transport().expect("a transport"));
    let waits = a.wait_connected(LONG);
    assert!(matches!(a.connect_blocking(&nobody, Duration::from_millis(20)), Err(Error::Connect(_))));
    b.connect_blocking(&a.bind().expect("a URL"), LONG).expect("connected");
    waits.wait().expect("its time is not up");
}

/// A waker is called by the thread that drives, in the middle of its call.
#[test]
fn a_waker_that_polls_for_the_next_notification_does_not_wait_for_its_own_thread() {
    use std::sync::mpsc::{Sender, channel};
    struct Polls(Arc<Transport>, Sender<Result<u64, Error>>);
    impl std::task::Wake for Polls {
        fn wake(self: Arc<Polls>) {
            let _ = self.1.send(self.0.wait_for_write_blocking(Some(Duration::ZERO)));
        }
    }
    let (ours, theirs) = (context(), context());
    let shared = Shared::new(super::TransportState::new(&ours, 0, 41)).expect("a transport");
    let (a, b) = (Arc::new(Transport::from_shared(shared.clone())), theirs.transport().expect("a transport"));
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    b.wait_connected_blocking(LONG).expect("connected");
    let inbox = Memory::host(100);
    let remote = a.expose(&inbox.view(), Access::Write).expect("exposed").remote();
    let (tell, told) = channel();
    let waker = std::task::Waker::from(Arc::new(Polls(a.clone(), tell)));
    let mut first = Box::pin(a.wait_for_write(None));
    assert!(first.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let drives = std::thread::spawn({
        let a = a.clone();
        move || a.recv_blocking(1, &Memory::host(100).view_mut().expect("ours"), Some(LONG))
    });
    let since = Instant::now();
    while shared.lock().driver == super::Driver::Nobody {
        assert!(since.elapsed() < LONG, "it does not drive");
        std::thread::yield_now();
    }
    let source = Memory::host(100);
    let notified = b.write(&source.view(), &remote, Some(Notify::COUNT), None);
    let told = told.recv_timeout(LONG).expect("it waits for itself");
    assert!(matches!(told, Err(Error::Timeout)), "{told:?}");
    notified.wait().expect("written");
    b.send_blocking(1, &source.view(), Some(LONG)).expect("sent");
    drives.join().expect("no panic").expect("received");
}

#[test]
fn a_path_that_came_while_a_first_one_was_dialled_and_is_gone_again_leaves_the_dial_to_go_on() {
    let (ours, theirs) = (context(), context());
    let url = theirs.transport().expect("a transport").bind().expect("a URL");
    let mut state = super::TransportState::new(&ours, 0, 41);
    let id = state.begin_connect(&url, LONG).expect("begun");
    let (mut channel, _listener, _other) = connected(ours.fabric());
    let src = StaticBuf::new(8000);
    while channel.waiting() == 0 {
        channel.post_send(1, src.slice()).expect("up").expect("not busy");
        channel.flush();
    }
    // No hello of ours can be said there.
    state.adopt(channel, &Hello { from: url.id, to: 41, epoch: 1, ..Hello::default() });
    assert!(matches!(&state.phase, super::Phase::Making(super::Making { dial: super::Dial::At(_), .. })));
    assert!(!state.ops.is_reported(id));
}

#[test]
fn calls_that_share_a_dial_to_an_endpoints_peer_do_not_end_it_for_each_other() {
    let (ours, theirs) = (context(), context());
    let silent = theirs.fabric().listen(0).expect("a listener");
    let url = Url::of_listener(&silent.handle()).expect("a URL");
    let hub = ours.endpoint("hub").expect("an endpoint");
    let connect = |timeout| hub.connect("peer", &url, timeout).expect("begun");
    let (short, dropped, long) = (connect(Duration::from_millis(20)), connect(2 * LONG), connect(LONG));
    assert!(matches!(short.wait(), Err(Error::Connect(_))));
    drop(dropped);
    let peer = hub.peer("peer").expect("it is dialled");
    let (to, since) = (peer.shared.lock().id, Instant::now());
    let mut there = loop {
        assert!(since.elapsed() < LONG, "no path");
        if let Some(there) = silent.accept().expect("a connection") {
            break there;
        }
    };
    assert!(super::say(&mut there, Hello { from: 7, to, epoch: 1, ..Hello::default() }));
    long.wait().expect("connected");
}

#[test]
fn a_region_of_another_transport_is_not_taken_back_although_its_key_is_the_same_number() {
    let ours = context();
    let [a, b] = [(); 2].map(|()| ours.transport().expect("a transport"));
    let memory = Memory::host(8);
    let expose = |of: &Transport| of.expose(&memory.view(), Access::Write).expect("exposed");
    let (of_a, of_b) = (expose(&a), expose(&b));
    assert_eq!(of_a.remote().key(), of_b.remote().key());
    assert!(matches!(a.unexpose(&of_b, LONG), Err(Error::NotExposed(_))));
    a.unexpose(&of_a, LONG).expect("it is there still");
}

/// The peer may use that path already.
#[test]
fn a_region_is_taken_from_a_path_whose_hello_is_awaited() {
    let (ours, theirs) = (context(), context());
    let listener = theirs.fabric().listen(0).expect("a listener");
    let transport = ours.transport().expect("a transport");
    let memory = Memory::host(100);
    let exposed = transport.expose(&memory.view(), Access::Write).expect("exposed");
    let url = Url::new(crate::UrlKind::Transport, 7, listener.handle());
    let mut state = transport.shared.lock();
    state.connect(target(&url), Instant::now() + LONG).expect("begun");
    transport.shared.see_to_it(state);
    let (since, mut there) = (Instant::now(), None);
    let mut state = loop {
        assert!(since.elapsed() < LONG, "no path");
        there = there.or_else(|| listener.accept().expect("a connection"));
        let mut state = transport.shared.lock();
        if state.phase.exposing().is_some() {
            break state;
        }
        drop(state);
        std::thread::yield_now();
    };
    // Something is arriving there.
    state.regions.take_back(exposed.remote().key()).expect("exposed");
    state.revoke_reach(Instant::now());
    assert!(!state.regions.is_leaving(exposed.remote().key()));
    let super::Phase::Making(making) = &state.phase else { panic!("it is not made again") };
    assert!(matches!(making.dial, super::Dial::At(_)));
    drop(state);
    let mut there = there.expect("a path");
    while there.progress().is_ok() {
        assert!(since.elapsed() < LONG, "the peer does not hear of it");
    }
}

#[test]
fn notifications_that_had_come_are_kept_over_the_end_of_their_path() {
    let (ours, theirs) = (context(), context());
    let (a, b) = (ours.transport().expect("a transport"), theirs.transport().expect("a transport"));
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    let (inbox, source) = (Memory::host(100), Memory::copy_of(&[7; 100]));
    let remote = b.expose(&inbox.view(), Access::Write).expect("exposed").remote();
    for _ in 0..3 {
        a.write_blocking(&source.view(), &remote, Some(Notify::COUNT), Some(LONG)).expect("written");
    }
    // A receive that is under way when its time is up takes its path with it.
    a.recv_blocking(1, &source.view_mut().expect("ours"), Some(Duration::from_millis(1)))
        .expect_err("nothing was sent");
    let since = Instant::now();
    while b.epoch() < 2 {
        assert!(since.elapsed() < LONG, "no new path");
        std::thread::yield_now();
    }
    for n in 0..3 {
        b.wait_for_write_blocking(Some(Duration::from_secs(10))).unwrap_or_else(|e| panic!("notification {n}: {e}"));
    }
}

#[test]
fn a_message_that_was_under_way_when_its_path_ended_is_interrupted() {
    let (ours, theirs) = (context(), context());
    let (a, b) = (ours.transport().expect("a transport"), theirs.transport().expect("a transport"));
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    let (one, two) = (Memory::host(100), Memory::host(100));
    let (one, two) = (one.view_mut().expect("ours"), two.view_mut().expect("ours"));
    let under_way = a.recv(2, &two, Some(Duration::from_secs(10)));
    a.recv_blocking(1, &one, Some(Duration::from_millis(1))).expect_err("nothing was sent");
    let end = under_way.wait();
    assert!(matches!(end, Err(Error::Interrupted)), "{end:?}");
}

#[test]
fn what_had_arrived_when_a_path_is_cut_is_reported_as_done() {
    let (ours, theirs) = (context(), context());
    let shared = Shared::new(super::TransportState::new(&ours, 0, 41)).expect("a transport");
    let (a, b) = (Transport::from_shared(shared.clone()), theirs.transport().expect("a transport"));
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    let (inbox, source) = (Memory::host(100), Memory::copy_of(&[7; 100]));
    let message = a.recv(2, &inbox.view_mut().expect("ours"), Some(LONG));
    let mut state = shared.lock();
    // The message arrives, and nobody asks after it.
    let (since, mut sent) = (Instant::now(), b.send(2, &source.view(), Some(LONG)));
    while !matches!(sent.test(), Some(Ok(100))) {
        assert!(since.elapsed() < LONG, "nothing arrives");
        state.channel().expect("up").progress().expect("up");
    }
    state.revoke("the test wants it", Instant::now());
    shared.wake_all(state);
    assert!(matches!(message.wait(), Ok(100)));
}

#[test]
fn a_receive_that_waits_for_a_path_gets_what_had_been_sent_although_none_comes() {
    let (ours, theirs) = (context(), context());
    let shared = Shared::new(super::TransportState::new(&ours, 0, 41)).expect("a transport");
    let (a, b) = (Transport::from_shared(shared.clone()), theirs.transport().expect("a transport"));
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    let (inbox, source) = (Memory::host(100), Memory::copy_of(&[7; 100]));
    b.send_blocking(2, &source.view(), Some(LONG)).expect("sent");
    let mut state = shared.lock();
    state.revoke("the test wants it", Instant::now());
    let (id, view) = (state.ops.start(Kind::Recv(2), None, None), inbox.view());
    state.ops.part(id, Part { local: view.raw(), remote: RemoteSlice { key: 0, offset: 0 } }, view.hold());
    state.ops.submit(id);
    state.breaks("the test wants it");
    assert!(matches!(state.ops.take(id), Some((Ok(100), _))));
    assert_eq!(inbox.to_vec(), [7; 100]);
}

#[test]
fn the_engine_thread_leaves_a_call_that_waits_alone_and_takes_over_when_it_has_ended() {
    let (ours, theirs) = (context(), context());
    let shared = Shared::new(super::TransportState::new(&ours, 0, 41)).expect("a transport");
    let (a, b) = (Transport::from_shared(shared.clone()), theirs.transport().expect("a transport"));
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    let (inbox, source) = (Memory::host(100), Memory::copy_of(&[7; 100]));
    let until = |is: fn(&super::TransportState) -> bool| {
        let since = Instant::now();
        while !is(&shared.lock()) {
            assert!(since.elapsed() < LONG, "the engine thread does not look at it");
            std::thread::yield_now();
        }
        since.elapsed()
    };
    let takes = || {
        let view = inbox.view_mut().expect("ours");
        std::thread::scope(|s| {
            let waits = s.spawn(|| a.recv_blocking(1, &view, Some(LONG)));
            until(|state| state.left_alone);
            b.send_blocking(1, &source.view(), Some(LONG)).expect("sent");
            waits.join().expect("no panic").expect("received");
        });
        until(|state| state.armed)
    };
    // It looks once a second at one that it leaves alone.
    assert!((0..5).any(|_| takes() < Duration::from_millis(500)), "nobody wakes it");
}

/// Its bytes are dropped when this returns, so it must not wait for anything.
#[test]
fn a_hello_that_would_wait_is_not_said() {
    let (mut channel, _listener, _other) = connected(context().fabric());
    let hello = || Hello { from: 1, to: 2, epoch: 1, ..Hello::default() };
    assert!(super::say(&mut channel, hello()));
    let src = StaticBuf::new(8000);
    while channel.waiting() == 0 {
        channel.post_send(1, src.slice()).expect("up").expect("not busy");
        channel.flush();
    }
    assert!(!super::say(&mut channel, hello()), "there is no credit for it");
    assert_eq!(channel.waiting(), 1, "it was withdrawn");
}

#[test]
fn a_lost_path_is_dialled_for_10_s_and_awaited_until_who_dials_has_heard_of_it() {
    for (revoke, dials, told, silent) in [(1000, 10, 10, 20), (6000, 10, 12, 20), (20_000, 20, 40, 30)] {
        let limit = |can_dial, peer| super::patience(can_dial, Duration::from_millis(revoke), &peer).as_secs();
        assert_eq!(limit(true, PeerState::Silent), dials, "{revoke} ms");
        assert_eq!(limit(false, PeerState::Open), told, "{revoke} ms");
        assert_eq!(limit(false, PeerState::Silent), silent, "{revoke} ms");
    }
}

/// The peer's card knows the key; its program writes when it likes.
#[test]
fn what_is_exposed_no_more_is_closed_to_the_peers_card_when_unexpose_returns() {
    let net = SoftNet::new(1);
    let lo = linkspan_net::interface_of(Ipv4Addr::LOCALHOST.into(), 0).expect("interfaces").expect("lo").index;
    let nics = [1, 2].map(|n| net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, n), lo)));
    let _engine = net.engine();
    let [a, b] = nics.each_ref().map(|nic| {
        let nics = vec![nic.clone()];
        let fabric =
            Fabric::apart(config("verbs"), Log::off(), true, vec![Box::new(Rdma::given(nics))]).expect("a fabric");
        Context::over(fabric).and_then(|context| context.transport()).expect("a transport")
    });
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    let memory = Memory::host(1 << 20);
    let exposed = b.expose(&memory.view(), Access::Write).expect("exposed");
    a.write_blocking(&Memory::host(1 << 20).view(), &exposed.remote(), None, Some(LONG)).expect("written");
    let targets = || nics[1].targets().into_iter().filter(|keys| keys.covers(memory.as_ptr() as u64, 1 << 20));
    let key = targets().next().expect("a key that the peer was told");

    let bytes = StaticBuf::new(16);
    assert!(bytes.slice().fill(0, &[0x5a; 16]));
    let own = nics[0].register(bytes.slice(), nic::Access::LOCAL_READ).expect("registered");
    let lands = || {
        memory.fill(0, &[0; 16]).expect("filled");
        let (own, op) = (own.keys(), SendOp::Write { addr: memory.as_ptr() as u64, rkey: key.rkey() });
        let (before, since) = (net.packets(), Instant::now());
        // Its first queue pair; see SoftConfig.
        net.forge(&nics[0], 0x11, SendWr::new(0, op, own.sge(own.addr(), 16))).expect("posted");
        while net.packets() == before {
            assert!(since.elapsed() < LONG, "nothing travels");
            net.run();
        }
        net.run();
        memory.to_vec()[..16] == [0x5a; 16]
    };
    assert!(lands(), "as long as it is exposed");
    b.unexpose(&exposed, LONG).expect("taken back");
    assert_eq!(targets().count(), 0);
    assert!(!lands());
}

/// As the segments of an allocator that gives out tensors: the second one grows, as an expandable one does.
#[test]
fn tensors_of_exposed_segments_register_nothing_and_others_once_each() {
    const TENSOR: usize = 16 << 10;
    const COUNT: usize = 100;
    let net = SoftNet::new(1);
    let lo = linkspan_net::interface_of(Ipv4Addr::LOCALHOST.into(), 0).expect("interfaces").expect("lo").index;
    let nics = [1, 2].map(|n| MockNic::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, n), lo))));
    let _engine = net.engine();
    let [a, b] = nics.each_ref().map(|nic| {
        let nics = vec![nic.clone()];
        let fabric = Fabric::apart(config_with("verbs", "staged"), Log::off(), true, vec![Box::new(Rdma::given(nics))])
            .expect("a fabric");
        Context::over(fabric).and_then(|context| context.transport()).expect("a transport")
    });
    a.connect_blocking(&b.bind().expect("a URL"), LONG).expect("connected");
    let inbox = Memory::host(TENSOR);
    let there = b.expose(&inbox.view(), Access::ReadWrite).expect("exposed").remote();
    let registers = |work: &dyn Fn()| {
        let count = || nics[0].script().counts.registrations;
        let before = count();
        work();
        count() - before
    };
    let exposes = |memory: &Memory, at, len| {
        let view = memory.slice(at, len).expect("inside");
        registers(&|| assert!(!a.expose(&view, Access::ReadWrite).expect("exposed").reused_registration()))
    };
    let uses = |memory: &Memory, at: usize| {
        registers(&|| {
            let tensor = memory.slice(at, TENSOR).expect("inside");
            a.write_blocking(&tensor, &there, None, Some(LONG)).expect("written");
            let tensor = memory.slice_mut(at, TENSOR).expect("inside");
            a.read_blocking(&tensor, &there, Some(LONG)).expect("read");
        })
    };
    // Anywhere, not at multiples of their size.
    let all = |memory: &Memory, from: usize| (0..COUNT - 1).map(|n| uses(memory, from + n * TENSOR + 64)).sum::<u64>();
    let segment = Memory::host(COUNT * TENSOR);
    assert_eq!((exposes(&segment, 0, COUNT * TENSOR), all(&segment, 0), all(&segment, 0)), (1, 0, 0));

    let grown = Memory::host(2 * COUNT * TENSOR);
    assert_eq!((exposes(&grown, 0, COUNT * TENSOR), all(&grown, 0)), (1, 0));
    assert_eq!((exposes(&grown, COUNT * TENSOR, COUNT * TENSOR), all(&grown, COUNT * TENSOR)), (1, 0));
    let across = COUNT * TENSOR - 100;
    assert_eq!((uses(&grown, across), uses(&grown, across)), (2, 0), "to send from, and to read into");

    // Nobody has told of this one.
    let unknown = Memory::host(COUNT * TENSOR);
    assert_eq!((all(&unknown, 0), all(&unknown, 0)), (2 * (COUNT as u64 - 1), 0));

    // Memory of a GPU goes through memory of the host that is the path's own.
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig::default()).expect("a GPU");
    a.attach(&gpu).expect("attached");
    let device = Memory::on_gpu(&gpu, COUNT * TENSOR).expect("allocated");
    let first = uses(&device, 0);
    assert_eq!((first <= 2, all(&device, 0)), (true, 0), "{first} for the first");
}

/// A user with keys, in a directory that goes with it.
struct Keyed(std::path::PathBuf, Arc<linkspan_fabric::keys::Keyring>);

impl Drop for Keyed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Keyed {
    fn new(name: &str) -> Keyed {
        let dir = std::env::temp_dir().join(format!("linkspan-state-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let ring = linkspan_fabric::keys::Keyring::make_in(&dir, false).expect("keys");
        Keyed(dir, Arc::new(ring))
    }

    fn trusts(&self, other: &Keyed, name: &str) {
        let peer = linkspan_fabric::keys::Peer { name: name.into(), key: other.1.public(), hosts: Vec::new() };
        self.1.add(peer).expect("added");
    }

    fn context(&self) -> Context {
        let mut config = config("tcp");
        config.use_keys(self.1.clone(), None);
        Context::new(config, Log::off()).expect("a context")
    }
}

/// Both are trusted, and one has read the numbers of the other's transport from the cable.
#[test]
fn a_peer_with_another_key_does_not_take_a_transport_over() {
    let (ada, bob, eve) = (Keyed::new("ada"), Keyed::new("bob"), Keyed::new("eve"));
    for peer in [&ada, &eve] {
        peer.trusts(&bob, "bob");
    }
    bob.trusts(&ada, "ada");
    bob.trusts(&eve, "eve");
    let (near, far, bad) = (ada.context(), bob.context(), eve.context());
    let listener = far.listen().expect("a listener");
    let transport = near.transport().expect("a transport");
    transport.connect_blocking(listener.url(), LONG).expect("connected");
    let there = listener.accept_blocking(LONG).expect("accepted");
    assert_eq!(there.peer_name().as_deref(), Some("ada"));

    let forged = bad.transport().expect("a transport");
    let number = transport.shared.lock().id;
    {
        let mut state = forged.shared.lock();
        (state.id, state.epoch) = (number, 5);
    }
    let url = Url::new(crate::UrlKind::Transport, there.shared.lock().id, *listener.url().handle.expose());
    assert!(forged.connect_blocking(&url, Duration::from_secs(3)).is_err(), "it took the path of another peer");
    assert_eq!(there.peer_name().as_deref(), Some("ada"));
    let (inbox, source) = (Memory::host(100), Memory::copy_of(&[7; 100]));
    let remote = there.expose(&inbox.view(), Access::Write).expect("exposed").remote();
    transport.write_blocking(&source.view(), &remote, Some(Notify::COUNT), Some(LONG)).expect("written");
    there.wait_for_write_blocking(Some(LONG)).expect("notified");
}

/// A transport has no name of its own, so it has the one that its key was paired under.
#[test]
fn a_paired_peer_of_an_endpoint_is_called_as_it_was_paired() {
    let (ada, bob, eve) = (Keyed::new("named-ada"), Keyed::new("named-bob"), Keyed::new("named-eve"));
    for (peer, name) in [(&ada, "ada"), (&eve, "eve")] {
        peer.trusts(&bob, "bob");
        bob.trusts(peer, name);
    }
    let hub = bob.context().endpoint("hub").expect("an endpoint");
    let transports = [&eve, &ada].map(|user| user.context().transport().expect("a transport"));
    for transport in &transports {
        transport.connect_blocking(hub.url(), LONG).expect("connected");
    }
    assert_eq!(hub.peers(), ["ada".into(), "eve".into()]);
    // A second connection of the same user is refused while the first one is there.
    let again = ada.context().transport().expect("a transport");
    again.connect_blocking(hub.url(), Duration::from_millis(300)).expect_err("the name is taken");
    assert_eq!(hub.peer("ada").expect("it is there").peer_name().as_deref(), Some("ada"));
}
