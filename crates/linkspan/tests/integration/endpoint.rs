//! Many peers by their names: they come, go, are killed, and take each other's names.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{LONG, PATHS, check, context, filled, until};
use linkspan::{Access, Endpoint, Error, Event, Memory, Notify, RemoteBuffer, Transport};

fn endpoint(path: usize, name: &str) -> Endpoint {
    context(PATHS[path].1).endpoint(name).unwrap()
}

fn event(endpoint: &Endpoint) -> Event {
    endpoint.next_event_blocking(Some(LONG)).unwrap()
}

fn came(peer: &str) -> Event {
    Event::Connected { peer: peer.into() }
}

fn told(peer: &str, value: u64) -> Event {
    Event::Notified { peer: peer.into(), value }
}

#[test]
fn one_remote_buffer_is_good_for_all_peers_and_one_queue_tells_of_all() {
    const EACH: usize = 10_000;
    for path in 0..PATHS.len() {
        let hub = endpoint(path, "hub");
        let inbox = Memory::host(5 * EACH);
        let early = hub.expose(&inbox.view(), Access::Write).unwrap().remote();
        let workers: Vec<Endpoint> = (0..5).map(|n| endpoint(path, &format!("w{n}"))).collect();
        for worker in &workers {
            worker.connect_blocking("hub", hub.url(), LONG).unwrap();
            assert_eq!(event(worker), came("hub"));
        }
        // Peers that are there are given it too.
        let outbox = filled(EACH, 9);
        let late = hub.expose(&outbox.view(), Access::Read).unwrap().remote();
        std::thread::scope(|s| {
            for (n, worker) in workers.iter().enumerate() {
                s.spawn(move || {
                    let to_hub = worker.peer("hub").unwrap();
                    let own = filled(EACH, n as u64);
                    let place = early.slice((n * EACH) as u64, EACH as u64).unwrap();
                    to_hub.write_blocking(&own.view(), &place, Some(Notify::value(n as u64)), Some(LONG)).unwrap();
                    let back = Memory::host(EACH);
                    to_hub.read_blocking(&back.view_mut().unwrap(), &late, Some(LONG)).unwrap();
                    check(&back, 0, EACH, 9);
                });
            }
        });
        let mut seen = BTreeMap::<String, Vec<Event>>::new();
        for _ in 0..10 {
            let event = event(&hub);
            seen.entry(event.peer().to_string()).or_default().push(event);
        }
        for n in 0..5 {
            let name = format!("w{n}");
            assert_eq!(seen[&name], [came(&name), told(&name, n as u64)]);
            check(&inbox, n * EACH, EACH, n as u64);
        }
        assert_eq!(hub.try_event().unwrap(), None);
        assert_eq!(hub.peers().len(), 5);
    }
}

#[test]
fn what_is_taken_back_is_taken_from_all_peers_at_once() {
    let hub = endpoint(0, "hub");
    let mut inbox = Memory::host(100);
    let exposed = hub.expose(&inbox.view(), Access::Write).unwrap();
    let again = hub.expose(&inbox.view(), Access::Write).unwrap();
    assert!(!exposed.reused_registration() && again.reused_registration());
    let workers = [endpoint(0, "a"), endpoint(0, "b")];
    let peers = workers.each_ref().map(|worker| worker.connect_blocking("hub", hub.url(), LONG).unwrap());
    let (word, remote) = (filled(8, 1), exposed.remote());
    let write = |peer: &Transport| peer.write_blocking(&word.view(), &remote, None, Some(LONG));
    assert!(peers.iter().all(|peer| write(peer).is_ok()));
    // One of two uses.
    hub.unexpose(&again, LONG).unwrap();
    assert!(peers.iter().all(|peer| write(peer).is_ok()));
    hub.unexpose(&exposed, LONG).unwrap();
    for peer in &peers {
        assert!(matches!(write(peer), Err(Error::Op(_))));
    }
    inbox.get_mut().expect("nobody has the memory any more")[0] = 7;
    assert!(matches!(hub.unexpose(&exposed, LONG), Err(Error::NotExposed(_))));
    // The number is given out anew, with a key that the old one is not; what is for one peer is no other's.
    let fresh = hub.expose(&inbox.view(), Access::Write).unwrap().remote();
    assert_ne!(fresh.key(), remote.key());
    let only_a = hub.peer("a").unwrap().expose(&inbox.view(), Access::Write).unwrap();
    assert_ne!(only_a.remote().key(), fresh.key());
    peers[0].write_blocking(&word.view(), &only_a.remote(), None, Some(LONG)).unwrap();
    let refused = peers[1].write_blocking(&word.view(), &only_a.remote(), None, Some(LONG));
    assert!(matches!(refused, Err(Error::WrongPeer)));
    assert!(matches!(hub.unexpose(&only_a, LONG), Err(Error::NotExposed(_))));
    // A peer that comes later is given what is there, and not what has gone.
    let late = endpoint(0, "c");
    let peer = late.connect_blocking("hub", hub.url(), LONG).unwrap();
    peer.write_blocking(&word.view(), &fresh, None, Some(LONG)).unwrap();
    assert!(matches!(write(&peer), Err(Error::Op(_))));
}

#[test]
fn names_that_are_unknown_or_twice_or_wrong_are_errors_that_say_so() {
    let (hub, a) = (endpoint(0, "hub"), endpoint(0, "a"));
    let said = |error: Error, parts: &[&str]| {
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    said(hub.peer("a").unwrap_err(), &["LS1133", "\"hub\"", "\"a\"", "none"]);
    said(hub.remove("a").unwrap_err(), &["LS1133"]);
    a.connect_blocking("hub", hub.url(), LONG).unwrap();
    said(a.peer("hab").unwrap_err(), &["LS1133", "\"hab\"", "it has hub"]);
    for bad in ["", "two words", &"n".repeat(65)] {
        said(a.connect_blocking(bad, hub.url(), LONG).unwrap_err(), &["LS1134"]);
        said(context(&[]).endpoint(bad).unwrap_err(), &["LS1134"]);
    }
    said(a.connect_blocking("a", hub.url(), LONG).unwrap_err(), &["LS1134", "own"]);
    // The same place again is the same peer; another one of its name is not.
    let first = a.peer("hub").unwrap();
    assert!(Arc::ptr_eq(&first, &a.connect_blocking("hub", hub.url(), LONG).unwrap()));
    let imposter = endpoint(0, "hub");
    said(a.connect_blocking("hub", imposter.url(), LONG).unwrap_err(), &["LS1135", "\"hub\""]);
    // Another name than is called there, and a name that another process has there.
    said(a.connect_blocking("hob", imposter.url(), LONG).unwrap_err(), &["\"hob\"", "is called \"hub\""]);
    let second = endpoint(0, "a");
    // A machine that is busy may take longer to ask.
    let refused = [200, 2000, 20_000].iter().find_map(|&ms| {
        let error = second.connect_blocking("hub", hub.url(), Duration::from_millis(ms)).unwrap_err();
        error.to_string().contains("another process of this one's name").then_some(error)
    });
    said(refused.expect("it is refused"), &["\"hub\"", "LS1108"]);
    assert_eq!(hub.peers(), ["a".into()]);
    // It is not in the way of the first one.
    first.write_blocking(&Memory::host(0).view(), &hub_buffer(&hub), Some(Notify::COUNT), Some(LONG)).unwrap();
}

fn hub_buffer(hub: &Endpoint) -> RemoteBuffer {
    hub.expose(&Memory::host(64).view(), Access::ReadWrite).unwrap().remote()
}

#[test]
fn endpoints_that_connect_to_each_other_at_once_get_one_connection() {
    for round in 0..15 {
        let all: Vec<Endpoint> = (0..3).map(|n| endpoint(round % 2, &format!("e{n}"))).collect();
        std::thread::scope(|s| {
            for own in &all {
                for other in all.iter().filter(|other| other.name() != own.name()) {
                    s.spawn(|| own.connect_blocking(other.name(), other.url(), LONG).unwrap());
                }
            }
        });
        for own in &all {
            assert_eq!(own.peers().len(), 2);
            for other in all.iter().filter(|other| other.name() != own.name()) {
                let remote = hub_buffer(other);
                let peer = own.peer(other.name()).unwrap();
                peer.write_blocking(&filled(64, 3).view(), &remote, Some(Notify::value(5)), Some(LONG)).unwrap();
            }
        }
        for own in &all {
            let mut events: Vec<Event> = (0..4).map(|_| event(own)).collect();
            events.sort_by_key(|event| (event.peer().clone(), *event == told(event.peer(), 5)));
            let others: Vec<_> = all.iter().map(Endpoint::name).filter(|name| *name != own.name()).collect();
            let want: Vec<Event> = others.iter().flat_map(|name| [came(name), told(name, 5)]).collect();
            assert_eq!(events, want);
            assert_eq!(own.try_event().unwrap(), None);
        }
    }
}

#[test]
fn transports_and_listeners_without_a_name_are_peers_too() {
    let ctx = context(&[]);
    let (hub, plain, listener) = (endpoint(0, "hub"), ctx.transport().unwrap(), ctx.listen().unwrap());
    plain.connect_blocking(hub.url(), LONG).unwrap();
    plain.write_blocking(&Memory::host(8).view(), &hub_buffer(&hub), Some(Notify::value(4)), Some(LONG)).unwrap();
    let name = event(&hub).peer().clone();
    assert_eq!(event(&hub), told(&name, 4));
    assert!(name.len() == 16 && hub.peers() == [name.clone()]);
    let named = hub.connect_blocking("called/so", listener.url(), LONG).unwrap();
    let accepted = listener.accept_blocking(LONG).unwrap();
    let inbox = Memory::host(8);
    let remote = accepted.expose(&inbox.view(), Access::Write).unwrap().remote();
    named.write_blocking(&filled(8, 2).view(), &remote, Some(Notify::COUNT), Some(LONG)).unwrap();
    accepted.wait_for_write_blocking(Some(LONG)).unwrap();
    assert_eq!(event(&hub), came("called/so"));
    drop(plain);
    assert!(matches!(event(&hub), Event::Lost { peer, why } if peer == name && why.contains(&*name)));
    assert!(matches!(hub.peer(&name), Err(Error::UnknownPeer { .. })));
}

#[test]
fn a_url_is_asked_for_until_it_is_there() {
    let (hub, worker) = (endpoint(0, "hub"), endpoint(0, "w"));
    let gone = endpoint(0, "hub").url().clone();
    let mut asked = Vec::new();
    worker
        .connect_found_blocking(
            "hub",
            |peer| {
                asked.push(peer.to_owned());
                // Nothing, then what a process that has ended had left.
                Ok([None, Some(gone.clone()), Some(gone.clone()), Some(hub.url().clone())][asked.len() - 1].clone())
            },
            LONG,
        )
        .unwrap();
    assert_eq!(asked, ["hub"; 4]);
    let began = Instant::now();
    let error = worker.connect_found_blocking("other", |_| Ok(None), Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("\"other\"") && began.elapsed() < LONG, "{error}");
}

#[test]
fn closing_ends_a_connect_that_asks_for_a_url_which_nobody_has() {
    let worker = endpoint(0, "w");
    let mut asked = 0;
    let closes = |_: &str| {
        asked += 1;
        if asked == 2 {
            worker.close();
        }
        Ok(None)
    };
    let end = worker.connect_found_blocking("hub", closes, LONG);
    assert!(matches!(end, Err(Error::EndpointClosed(_))), "{end:?}");
    assert_eq!(asked, 2);
}

#[test]
fn closing_ends_what_is_under_way_and_hangs_nobody() {
    for path in 0..PATHS.len() {
        let (hub, worker) = (endpoint(path, "hub"), endpoint(path, "w"));
        let peer = worker.connect_blocking("hub", hub.url(), LONG).unwrap();
        assert_eq!(event(&worker), came("hub"));
        let memory = Memory::host(1 << 20);
        std::thread::scope(|s| {
            let events = s.spawn(|| worker.next_event_blocking(None));
            let wait = s.spawn(|| peer.wait_for_write_blocking(None));
            let recv = peer.recv(3, &memory.view_mut().unwrap(), None);
            until("the wait to be under way", || peer.stats().pending == 2);
            worker.close();
            assert!(matches!(recv.wait(), Err(Error::Aborted)));
            assert!(matches!(wait.join().unwrap(), Err(Error::Aborted | Error::Broken(_))));
            assert!(matches!(events.join().unwrap(), Err(Error::EndpointClosed(name)) if &*name == "w"));
        });
        let error = peer.write_blocking(&memory.view(), &hub_buffer(&hub), None, Some(LONG)).unwrap_err();
        assert!(error.is_broken() && error.to_string().contains("\"w\""), "{error}");
        let urls = hub.url();
        assert!(matches!(worker.connect_blocking("hub", urls, LONG), Err(Error::EndpointClosed(_))));
        assert!(matches!(worker.peer("hub"), Err(Error::EndpointClosed(_))));
        assert!(matches!(worker.expose(&memory.view(), Access::Read), Err(Error::EndpointClosed(_))));
        assert_eq!(event(&hub), came("w"));
        assert!(matches!(event(&hub), Event::Lost { peer, .. } if &*peer == "w"));
    }
}

#[test]
fn a_peer_that_is_removed_tells_nothing_more_and_may_come_again() {
    let (hub, worker) = (endpoint(0, "hub"), endpoint(0, "w"));
    let remote = hub_buffer(&hub);
    for value in 0..2 {
        let peer = worker.connect_blocking("hub", hub.url(), LONG).unwrap();
        peer.write_blocking(&filled(8, 1).view(), &remote, Some(Notify::value(value)), Some(LONG)).unwrap();
        hub.remove("w").unwrap();
        assert_eq!((hub.try_event().unwrap(), hub.peers().len()), (None, 0));
        assert_eq!(event(&worker), came("hub"));
        assert!(matches!(event(&worker), Event::Lost { .. }));
    }
}

#[test]
fn a_peer_that_is_removed_after_its_end_tells_nothing_more_nor_does_the_next_one_of_its_name() {
    let hub = endpoint(0, "hub");
    let remote = hub_buffer(&hub);
    let lives = |value| {
        let worker = endpoint(0, "w");
        let peer = worker.connect_blocking("hub", hub.url(), LONG).unwrap();
        peer.write_blocking(&filled(8, 1).view(), &remote, Some(Notify::value(value)), Some(LONG)).unwrap();
        worker
    };
    drop(lives(1));
    until("its end", || hub.peers().is_empty());
    hub.give_back(came("w"));
    hub.remove("w").unwrap();
    assert_eq!(hub.try_event().unwrap(), None);
    drop(lives(2));
    assert_eq!((event(&hub), event(&hub)), (came("w"), told("w", 2)));
    until("its end", || hub.peers().is_empty());
    // This one has the end of the one before to tell.
    let third = lives(3);
    hub.remove("w").unwrap();
    assert_eq!(hub.try_event().unwrap(), None);
    drop(third);
    let _fourth = lives(4);
    assert_eq!((event(&hub), event(&hub)), (came("w"), told("w", 4)));
}

#[test]
fn messages_of_a_peer_that_has_gone_are_received_over_the_transport_that_it_had() {
    for path in 0..PATHS.len() {
        let (hub, worker) = (endpoint(path, "hub"), endpoint(path, "w0"));
        let to_hub = worker.connect_blocking("hub", hub.url(), LONG).unwrap();
        for seed in 0..3 {
            to_hub.send_blocking(5, &filled(100, seed).view(), Some(LONG)).unwrap();
        }
        assert_eq!(event(&hub), came("w0"));
        drop((to_hub, worker));
        until("its end", || hub.peers().is_empty());
        let from = hub.peer("w0").unwrap();
        let receives = |seed| {
            let into = Memory::host(100);
            assert_eq!(from.recv_blocking(5, &into.view_mut().unwrap(), Some(LONG)).unwrap(), 100);
            check(&into, 0, 100, seed);
        };
        receives(0);
        receives(1);
        assert!(matches!(event(&hub), Event::Lost { .. }));
        assert!(matches!(hub.peer("w0"), Err(Error::UnknownPeer { .. })));
        receives(2);
        let none = from.recv_blocking(5, &Memory::host(1).view_mut().unwrap(), None);
        assert!(none.as_ref().is_err_and(Error::is_broken), "{none:?}");
    }
}

#[test]
fn an_event_that_is_given_back_is_the_next_one_of_those_who_wait() {
    let (hub, worker) = (endpoint(0, "hub"), endpoint(0, "w"));
    worker.connect_blocking("hub", hub.url(), LONG).unwrap();
    let first = event(&hub);
    std::thread::scope(|s| {
        let waits = s.spawn(|| event(&hub));
        hub.give_back(first.clone());
        assert_eq!(waits.join().unwrap(), first);
    });
    hub.give_back(first);
    hub.close();
    assert!(matches!(hub.try_event(), Err(Error::EndpointClosed(_))));
}

#[test]
fn an_event_loop_waits_for_one_descriptor() {
    let (hub, worker) = (endpoint(0, "hub"), endpoint(0, "w"));
    let remote = hub_buffer(&hub);
    let connect = worker.connect("hub", hub.url(), LONG).unwrap();
    let mut seen = Vec::new();
    let mut wait_for = |wanted: Event| {
        while !seen.contains(&wanted) {
            let mut fds =
                [rustix::event::PollFd::from_borrowed_fd(hub.event_fd().unwrap(), rustix::event::PollFlags::IN)];
            let most = rustix::time::Timespec { tv_sec: 30, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&most)).unwrap(), 1, "{wanted:?} was not told");
            hub.poll();
            seen.extend(std::iter::from_fn(|| hub.try_event().unwrap()));
        }
    };
    wait_for(came("w"));
    connect.wait().unwrap();
    let peer = worker.peer("hub").unwrap();
    peer.write_blocking(&filled(8, 1).view(), &remote, Some(Notify::value(1)), Some(LONG)).unwrap();
    wait_for(told("w", 1));
    drop(worker);
    until("the loss", || hub.poll() || hub.peers().is_empty());
}

/// The child's part; not a test of its own.
#[test]
fn child() {
    let Ok(words) = std::env::var("LINKSPAN_TEST_ENDPOINT") else { return };
    let [path, name, url] = <[&str; 3]>::try_from(words.split(' ').collect::<Vec<_>>()).unwrap();
    let own = endpoint(path.parse().unwrap(), name);
    own.connect_blocking("hub", &url.parse().unwrap(), LONG).unwrap();
    let memory = Memory::host(1 << 20);
    let bytes = own.expose(&memory.view(), Access::ReadWrite).unwrap().remote().encode();
    println!("\n@{}", bytes.map(|byte| format!("{byte:02x}")).concat());
    std::io::stdout().flush().unwrap();
    // It ends with its standard input, if it is not killed before.
    let _ = std::io::stdin().lines().count();
}

fn start(path: usize, name: &str, hub: &Endpoint) -> (Child, RemoteBuffer) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "endpoint::child", "--nocapture", "--test-threads=1"])
        .env("LINKSPAN_TEST_ENDPOINT", format!("{path} {name} {}", hub.url()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let hex = lines.map_while(Result::ok).find_map(|line| line.strip_prefix('@').map(str::to_owned));
    let hex = hex.expect("the child ended");
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
    (child, RemoteBuffer::decode(&bytes).unwrap())
}

#[test]
fn a_peer_killed_in_a_batch_is_named_and_another_takes_its_place_and_name() {
    for path in 0..PATHS.len() {
        let hub = endpoint(path, "hub");
        let (stays, other) = start(path, "stays", &hub);
        assert_eq!(event(&hub), came("stays"));
        let memory = filled(1 << 20, 1);
        for _ in 0..2 {
            let (mut victim, remote) = start(path, "victim", &hub);
            assert_eq!(event(&hub), came("victim"));
            let peer = hub.peer("victim").unwrap();
            let parts = vec![(memory.view(), remote); 64];
            let error = std::thread::scope(|s| {
                let batches = s.spawn(|| {
                    loop {
                        if let Err(error) = peer.write_batch_blocking(&parts, None, None) {
                            break error;
                        }
                    }
                });
                std::thread::sleep(Duration::from_millis(5));
                victim.kill().unwrap();
                batches.join().unwrap()
            });
            victim.wait().unwrap();
            assert!(error.is_broken() && error.to_string().contains("peer \"victim\""), "{error}");
            // The others go on, and the end is told.
            let beside = hub.peer("stays").unwrap();
            beside.write_blocking(&memory.view(), &other, None, Some(LONG)).unwrap();
            assert!(matches!(event(&hub), Event::Lost { peer, .. } if &*peer == "victim"));
            assert_eq!(hub.peers(), ["stays".into()]);
        }
        end(stays);
        assert!(matches!(event(&hub), Event::Lost { peer, .. } if &*peer == "stays"));
    }
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}
