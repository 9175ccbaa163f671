use std::time::{Duration, Instant};

use super::*;
use crate::state::tests::connected;
use crate::{Config, Log};

pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn context() -> Context {
    let settings = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
    let config = Config::read(&|name| settings.iter().find(|p| p.0 == name).map(|p| p.1.to_owned()));
    Context::new(config.expect("settings"), Log::off()).expect("a context")
}

fn connect(ctx: &Context, name: &str, hub: &Endpoint, timeout: Duration) -> Result<Endpoint, Error> {
    let worker = ctx.endpoint(name).expect("an endpoint");
    worker.connect_blocking(hub.name(), hub.url(), timeout).map(|_| worker)
}

#[test]
fn peers_have_a_bound_and_those_that_were_lost_count_until_their_event_is_taken() {
    let ctx = context();
    let hub = ctx.endpoint("hub").expect("an endpoint");
    let mut workers: Vec<_> = (0..MOST_PEERS).map(|n| connect(&ctx, &format!("w{n}"), &hub, LONG)).collect();
    // A machine that is busy may take longer to ask.
    let refused = [300, 2000, 20_000].into_iter().any(|ms| {
        let error = connect(&ctx, "more", &hub, Duration::from_millis(ms)).expect_err("the endpoint is full");
        error.to_string().contains("as many peers as it can")
    });
    assert!(refused);
    let error = hub.connect_blocking("other", hub.url(), LONG).expect_err("the endpoint is full");
    assert!(matches!(error, Error::TooManyPeers(_, MOST_PEERS)), "{error}");
    drop(workers.pop());
    connect(&ctx, "more", &hub, Duration::from_millis(300)).expect_err("nobody has taken the event");
    while !matches!(hub.next_event_blocking(Some(LONG)).expect("an event"), Event::Lost { .. }) {}
    connect(&ctx, "more", &hub, LONG).expect("there is a place again");
}

#[test]
fn peers_that_never_came_about_give_their_place_up() {
    let ctx = context();
    let (hub, gone) = (ctx.endpoint("hub").expect("an endpoint"), ctx.endpoint("gone").expect("an endpoint"));
    let url = gone.url().clone();
    drop(gone);
    for n in 0..3 * MOST_PEERS {
        let error =
            hub.connect_blocking(&format!("w{n}"), &url, Duration::from_millis(50)).expect_err("nobody is there");
        assert!(matches!(error, Error::Connect(_)) && error.to_string().contains(&format!("w{n}")), "{error}");
    }
    assert!(hub.peers().is_empty());
    connect(&ctx, "w", &hub, LONG).expect("there is a place");
}

#[test]
fn peers_that_never_came_about_are_unknown_and_no_more_are_kept_than_peers_that_did() {
    let ctx = context();
    let (hub, gone) = (ctx.endpoint("hub").expect("an endpoint"), ctx.endpoint("gone").expect("an endpoint"));
    let url = gone.url().clone();
    drop(gone);
    for name in ["a", "b"] {
        hub.connect(name, &url, Duration::from_millis(50)).expect("begun").wait().expect_err("nobody is there");
        assert!(matches!(hub.peer(name), Err(Error::UnknownPeer { .. })));
        assert!(matches!(hub.remove(name), Err(Error::UnknownPeer { .. })));
        assert!(hub.state.lock().peers.len() <= 1, "each keeps a descriptor");
    }
    // The end of the one before is told all the same, and until then its name is known.
    drop(connect(&ctx, "w", &hub, LONG).expect("connected"));
    let event = || hub.next_event_blocking(Some(LONG)).expect("an event");
    assert!(matches!(event(), Event::Connected { .. }));
    let began = Instant::now();
    while !hub.peers().is_empty() && began.elapsed() < LONG {
        std::thread::yield_now();
    }
    hub.connect_blocking("w", &url, Duration::from_millis(50)).expect_err("nobody is there");
    assert!(hub.peer("w").is_ok());
    assert!(matches!(event(), Event::Lost { .. }));
    assert!(matches!(hub.peer("w"), Err(Error::UnknownPeer { .. })));
}

#[test]
fn events_of_one_that_was_replaced_come_first_and_do_not_pile_up() {
    let ctx = context();
    let hub = ctx.endpoint("hub").expect("an endpoint");
    let memory = crate::Memory::host(8);
    let remote = hub.expose(&memory.view(), Access::Write).expect("exposed").remote();
    for life in 0..20 {
        let worker = connect(&ctx, "w", &hub, LONG).expect("it takes the name of the last one");
        let peer = worker.peer("hub").expect("it is there");
        for n in 0..2 {
            let notify = Some(crate::Notify::value(10 * life + n));
            peer.write_blocking(&memory.view(), &remote, notify, Some(LONG)).expect("written");
        }
        if life == 0 {
            let first = hub.next_event_blocking(Some(LONG)).expect("an event");
            assert!(matches!(first, Event::Connected { .. }));
        }
    }
    let began = Instant::now();
    while !hub.peers().is_empty() && began.elapsed() < LONG {
        std::thread::yield_now();
    }
    assert!(hub.state.events.queued() <= 1, "one name stands in the queue once");
    let mut told = Vec::new();
    while let Some(event) = hub.try_event().expect("open") {
        told.push(match event {
            Event::Connected { .. } => "connected".to_owned(),
            Event::Notified { value, .. } => value.to_string(),
            Event::Lost { .. } => "lost".to_owned(),
        });
    }
    // The first one, of which the program had heard, and the last one.
    assert_eq!(told, ["0", "1", "lost", "connected", "190", "191", "lost"]);
    assert!(hub.state.lock().peers.is_empty());
}

#[test]
fn of_peers_that_came_and_went_nothing_is_kept() {
    let ctx = context();
    let hub = ctx.endpoint("hub").expect("an endpoint");
    for n in 0..20 {
        drop(connect(&ctx, &format!("w{n}"), &hub, LONG).expect("connected"));
        while !matches!(hub.next_event_blocking(Some(LONG)).expect("an event"), Event::Lost { .. }) {}
    }
    let _last = connect(&ctx, "last", &hub, LONG).expect("connected");
    while !matches!(hub.next_event_blocking(Some(LONG)).expect("an event"), Event::Connected { .. }) {}
    assert!(hub.accepting.upgrade().expect("it listens").children_kept() <= 2);
}

#[test]
fn what_a_lost_peer_had_to_tell_outlives_a_connect_that_begins_anew_at_another_url() {
    let ctx = context();
    let (hub, worker) = (ctx.endpoint("hub").expect("an endpoint"), ctx.endpoint("w").expect("an endpoint"));
    let event = || worker.next_event_blocking(Some(LONG)).expect("an event");
    worker.connect_blocking("hub", hub.url(), LONG).expect("connected");
    assert!(matches!(event(), Event::Connected { .. }));
    drop(hub);
    let began = Instant::now();
    while !worker.peers().is_empty() && began.elapsed() < LONG {
        std::thread::yield_now();
    }
    // It takes nobody in.
    let silent = ctx.fabric().listen(0).expect("a listener");
    let mut first = Some(Url::of_listener(&silent.handle()).expect("a URL"));
    let again = ctx.endpoint("hub").expect("an endpoint");
    let find = |_: &str| Ok(first.take().or_else(|| Some(again.url().clone())));
    worker.connect_found_blocking("hub", find, LONG).expect("connected");
    assert!(matches!(event(), Event::Lost { .. }));
    assert!(matches!(event(), Event::Connected { .. }));
}

#[test]
fn an_endpoint_that_was_closed_keeps_no_peer_with_news() {
    let ctx = context();
    let hub = ctx.endpoint("hub").expect("an endpoint");
    let _worker = connect(&ctx, "worker", &hub, LONG).expect("connected");
    while !matches!(hub.next_event_blocking(Some(LONG)).expect("an event"), Event::Connected { .. }) {}
    let peer = hub.state.lock().peers.values().next().expect("a peer").shared.clone();
    hub.close();
    let kept = Arc::strong_count(&peer);
    hub.state.events.push(peer.clone());
    assert_eq!(Arc::strong_count(&peer), kept);
}

#[test]
fn a_region_that_one_thread_still_takes_back_is_not_let_go_when_another_one_has_taken_back_its_own() {
    let ctx = context();
    let hub = ctx.endpoint("hub").expect("an endpoint");
    let worker = connect(&ctx, "worker", &hub, LONG).expect("connected");
    let memory = [crate::Memory::host(8), crate::Memory::host(8), crate::Memory::host(8)];
    let expose = |n: usize| hub.expose(&memory[n].view(), Access::Write).expect("exposed");
    let (mine, other) = (expose(0), expose(1));
    let key = other.remote().key();
    // The other thread has come so far, and waits for a peer.
    let peers = hub.begin_unexpose(&other).expect("exposed").expect("the last use");
    hub.unexpose(&mine, LONG).expect("taken back");
    assert!(hub.state.lock().regions.is_leaving(key));
    // Its number is not given out, so the peer hears of the new region.
    let fresh = expose(2).remote();
    let number = |key: u32| key % (1 << crate::remote::INDEX_BITS);
    assert_ne!(number(fresh.key()), number(key));
    let peer = worker.peer("hub").expect("it is there");
    peer.write_blocking(&memory[0].view(), &fresh, None, Some(LONG)).expect("written");
    peers.iter().for_each(|peer| peer.settle_shared(key, Instant::now() + LONG));
    hub.state.lock().regions.release(key, &mut Vec::new());
    peer.write_blocking(&memory[0].view(), &other.remote(), None, Some(LONG)).expect_err("it was taken back");
    assert_eq!(number(expose(1).remote().key()), number(key), "it is free again");
}

#[test]
fn a_peer_that_is_dialled_or_has_just_come_has_one_transport_whoever_connects_to_it_meanwhile() {
    let ctx = context();
    let hub = ctx.endpoint("hub").expect("an endpoint");
    let silent = ctx.fabric().listen(0).expect("a listener");
    let url = Url::of_listener(&silent.handle()).expect("a URL");
    let connects = |name: &str| hub.seat(name, &url, LONG).expect("begun");
    let (first, second) = (connects("dialled"), connects("dialled"));
    assert!(Arc::ptr_eq(&first.transport, &second.transport) && first.fresh && !second.fresh);
    let (channel, _listener, _other) = connected(ctx.fabric());
    let name = EndpointName::new("comes").expect("a name");
    let hello = Hello { from: 7, epoch: 1, name, ..Hello::default() };
    let (shared, _) = hub.state.admit(None, &hello, channel).map_err(|refused| refused.1).expect("taken");
    assert!(Arc::ptr_eq(&connects("comes").transport.shared, &shared));
}

/// The limit is one of the whole process.
#[test]
fn what_a_lost_peer_had_to_tell_outlives_a_connect_for_which_no_descriptor_is_left() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const ALONE: &str = "LINKSPAN_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().expect("this program"));
        let test = "endpoint::tests::what_a_lost_peer_had_to_tell_outlives_a_connect_for_which_no_descriptor_is_left";
        let out = alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().expect("started");
        let said = String::from_utf8_lossy(&out.stdout);
        let passed = out.status.success() && said.contains("1 passed");
        return assert!(passed, "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    }
    let ctx = context();
    let hub = ctx.endpoint("hub").expect("an endpoint");
    let event = || hub.next_event_blocking(Some(LONG)).expect("an event");
    let memory = crate::Memory::host(8);
    let remote = hub.expose(&memory.view(), Access::Write).expect("exposed").remote();
    let worker = connect(&ctx, "w", &hub, LONG).expect("connected");
    let notify = Some(crate::Notify::value(7));
    worker.peer("hub").expect("there").write_blocking(&memory.view(), &remote, notify, Some(LONG)).expect("written");
    assert!(matches!(event(), Event::Connected { .. }));
    drop(worker);
    let began = Instant::now();
    while !hub.peers().is_empty() {
        assert!(began.elapsed() < LONG, "it is not lost");
        std::thread::yield_now();
    }
    let again = ctx.endpoint("w").expect("an endpoint");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).expect("a limit");
    let begun = hub.connect("w", again.url(), LONG).map(drop);
    setrlimit(Resource::Nofile, limit).expect("the limit of before");
    assert!(matches!(begun, Err(Error::System { .. })), "{begun:?}");
    assert!(matches!(event(), Event::Notified { value: 7, .. }));
    assert!(matches!(event(), Event::Lost { .. }));
    hub.connect_blocking("w", again.url(), LONG).expect("its name is free");
}

#[derive(Default)]
pub(crate) struct Counted(pub(crate) std::sync::atomic::AtomicUsize);

impl std::task::Wake for Counted {
    fn wake(self: Arc<Counted>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn tasks_that_wait_for_events_do_not_wake_one_another_and_leave_nothing_when_they_end() {
    let hub = context().endpoint("hub").expect("an endpoint");
    let wakers: Vec<Arc<Counted>> = (0..1000).map(|_| Arc::default()).collect();
    let mut waits: Vec<_> = wakers.iter().map(|_| Box::pin(hub.next_event())).collect();
    for (wait, waker) in waits.iter_mut().zip(&wakers) {
        let waker = std::task::Waker::from(waker.clone());
        assert!(wait.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    }
    let woken = || wakers.iter().filter(|waker| waker.0.load(std::sync::atomic::Ordering::SeqCst) > 0).count();
    assert_eq!(woken(), 0, "nothing has happened");
    waits.truncate(10);
    assert_eq!(hub.state.events.wakers_kept(), 10);
    let began = Instant::now();
    hub.close();
    assert_eq!(woken(), 10);
    assert!(matches!(hub.next_event_blocking(Some(LONG)), Err(Error::EndpointClosed(_))) && began.elapsed() < LONG);
}
