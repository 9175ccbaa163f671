//! Who was not let in, and what had to be tried again, is counted by its reason.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linkspan_fabric::stats::{Event, read};
use linkspan_fabric::{Config, Fabric, Level, Listener, Log};
use linkspan_proto::greeting::Greeting;
use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, Guard, Login, Psk, Seed, Token, Versions};
use linkspan_proto::plan::{Carrier, Plan};

use super::common::{greet, log_stream_in, reset, say, try_log_stream_in};

const PATIENCE: Duration = Duration::from_secs(60);

/// A fabric with a statistics page of its own, in a directory that goes with it.
struct Counted {
    fabric: Fabric,
    dir: PathBuf,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Counted {
    fn new(name: &str, more: &[(&str, &str)]) -> Counted {
        Counted::logging(name, more, Log::off())
    }

    fn logging(name: &str, more: &[(&str, &str)], log: Log) -> Counted {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("events-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let base =
            [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", dir.to_str().unwrap())];
        let get = |name: &str| more.iter().chain(&base).find(|p| p.0 == name).map(|p| p.1.to_owned());
        let fabric = Fabric::new(Config::read(&get).unwrap(), log, true, Vec::new()).unwrap();
        Counted { fabric, dir }
    }

    fn count(&self, event: Event) -> u64 {
        read(&self.dir).unwrap()[0].events[event as usize]
    }

    /// Serves the listener until the event was counted so often; then no other was counted meanwhile.
    fn until(&self, listener: &Listener, event: Event, times: u64) {
        let others = |event: Event| Event::ALL.iter().filter(move |other| **other != event).map(|e| self.count(*e));
        let before: Vec<u64> = others(event).collect();
        let until = Instant::now() + PATIENCE;
        while self.count(event) < times {
            assert!(Instant::now() < until, "{event:?} is not counted");
            assert!(listener.accept().unwrap().is_none());
            std::thread::yield_now();
        }
        assert_eq!(self.count(event), times);
        assert_eq!(others(event).collect::<Vec<_>>(), before, "{event:?} alone");
    }
}

/// A client that says the first message of a login.
fn hello(handle: &Handle, token: Token, guard: Guard) -> TcpStream {
    hello_of(handle, ClientParams { guard, ..ClientParams::new(handle.listen_id, token, 7, 0) })
}

fn hello_of(handle: &Handle, params: ClientParams) -> TcpStream {
    let login = Login::client(params, Seed::random().unwrap(), Duration::ZERO).unwrap();
    let mut stream = TcpStream::connect(handle.addrs()[0].socket()).unwrap();
    stream.write_all(login.output()).unwrap();
    stream
}

#[test]
fn strangers_and_refused_peers_are_counted_by_their_reason() {
    let counted = Counted::new("strangers", &[]);
    let listener = counted.fabric.listen(0).unwrap();
    let handle = Handle::decode(&listener.handle()).unwrap();
    let connect = || TcpStream::connect(handle.addrs()[0].socket()).unwrap();
    drop(connect());
    counted.until(&listener, Event::StrangersSilent, 1);
    connect().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    counted.until(&listener, Event::StrangersUnknown, 1);
    drop(hello(&handle, Token::random().unwrap(), Guard::Token));
    counted.until(&listener, Event::StrangersUnknown, 2);
    // The token is right, and what proves who has it never comes.
    let mut unproven = hello(&handle, handle.token.clone(), Guard::Token);
    unproven.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    while unproven.read(&mut [0; 512]).is_err() {
        assert!(listener.accept().unwrap().is_none());
    }
    drop(unproven);
    counted.until(&listener, Event::LoginsUnproven, 1);
    // The other side wants a key.
    let stream = hello(&handle, handle.token.clone(), Guard::Psk { psk: Psk::new([1; 32]), encrypt: false });
    counted.until(&listener, Event::RefusedKey, 1);
    drop(stream);
    // A stream that logs in, and whose connection never comes up.
    let stream = log_stream_in(&listener, Guard::Token, 9, 0);
    drop(stream);
    counted.until(&listener, Event::SetupsDropped, 1);
    // The same stream of the same connection once more.
    assert!(try_log_stream_in(&listener, Guard::Token, 9, 0).is_err());
    counted.until(&listener, Event::LoginsReplayed, 1);
    let versions = Versions { min: 900, max: 901 };
    let params = ClientParams { versions, ..ClientParams::new(handle.listen_id, handle.token.clone(), 8, 0) };
    let stream = hello_of(&handle, params);
    counted.until(&listener, Event::RefusedVersion, 1);
    drop(stream);
    // The login is of our version, and what it carries of a later one.
    assert!(say(&listener, Guard::Token, 10, 0, vec![3, 0, 0]).is_err());
    counted.until(&listener, Event::RefusedVersion, 2);
}

/// Logs in one stream of a connection after the other, and sends the plan over the first.
fn planned(listener: &Listener, conn: u64, greeting: &Greeting, carrier: Carrier, streams: u16) -> Vec<TcpStream> {
    let log_in = |n| greet(listener, Guard::Token, conn, n, greeting).unwrap();
    let mut made: Vec<TcpStream> = (0..streams).map(log_in).collect();
    let plan = Plan { carrier, acked: true, streams: (0..streams).collect(), keepalive: None };
    made[0].write_all(&plan.encode()).unwrap();
    made
}

/// NCCL ends a job for an error of `accept`.
#[test]
fn a_peer_that_goes_with_its_plan_or_plans_what_cannot_be_is_counted_and_costs_the_listener_nothing() {
    let counted = Counted::new("plans", &[("LINKSPAN_PATH", "auto")]);
    let listener = counted.fabric.listen(0).unwrap();
    let nothing = Greeting::default();
    planned(&listener, 1, &nothing, Carrier::Tcp, 1).into_iter().for_each(reset);
    counted.until(&listener, Event::SetupsDropped, 1);
    let _offers_nothing = planned(&listener, 2, &nothing, Carrier::Offered, 1);
    counted.until(&listener, Event::SetupsDropped, 2);
    let nobody = Greeting { wants_local: true, shm: vec![7; 3], ..Greeting::default() };
    let _offered_no_memory = planned(&listener, 3, &nobody, Carrier::Shm, 1);
    counted.until(&listener, Event::SetupsDropped, 3);
    let _never_asked_for_it = planned(&listener, 4, &nothing, Carrier::Devmem, 2);
    counted.until(&listener, Event::SetupsDropped, 4);
    let asks = Greeting { devmem: true, ..Greeting::default() };
    let _was_told_that_there_is_none = planned(&listener, 5, &asks, Carrier::Devmem, 2);
    counted.until(&listener, Event::SetupsDropped, 5);
    let _good = planned(&listener, 6, &nothing, Carrier::Tcp, 1);
    let until = Instant::now() + PATIENCE;
    while listener.accept().unwrap().is_none() {
        assert!(Instant::now() < until, "the next one does not come up");
    }
}

#[test]
fn what_a_peer_says_of_its_cards_again_and_again_makes_64_lines_a_minute_and_is_counted_each_time() {
    let lines = Arc::new(AtomicUsize::new(0));
    let to = lines.clone();
    let log = Log::to(move |level, _| {
        if level == Level::Warn {
            to.fetch_add(1, Ordering::Relaxed);
        }
    });
    let counted = Counted::logging("words", &[("LINKSPAN_PATH", "auto")], log);
    let listener = counted.fabric.listen(0).unwrap();
    let (before, until) = (lines.load(Ordering::Relaxed), Instant::now() + PATIENCE);
    for n in 0..70 {
        let says = Greeting { no_devmem: format!("card {n} is broken"), ..Greeting::default() };
        let _streams = planned(&listener, n, &says, Carrier::Tcp, 1);
        while listener.accept().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not come up");
        }
    }
    assert_eq!(read(&counted.dir).unwrap()[0].downgrades, 70);
    assert_eq!(lines.load(Ordering::Relaxed) - before, 64);
}

#[test]
fn a_connection_whose_streams_stay_and_that_never_comes_up_is_counted_when_it_is_given_up() {
    let counted = Counted::new("late", &[("LINKSPAN_CONNECT_TIMEOUT_MS", "100")]);
    let listener = counted.fabric.listen(0).unwrap();
    let _stays = log_stream_in(&listener, Guard::Token, 1, 0);
    counted.until(&listener, Event::SetupsDropped, 1);
    // A rail for a connection that is not there.
    let _stays = log_stream_in(&listener, Guard::Token, 2, 64);
    counted.until(&listener, Event::SetupsDropped, 2);
}

#[test]
fn connects_that_begin_again_are_counted() {
    let counted = Counted::new("connects", &[("LINKSPAN_CONNECT_TIMEOUT_MS", "1000")]);
    let handle = counted.fabric.listen(0).unwrap().handle();
    let mut connecting = counted.fabric.connect(0, &handle).unwrap();
    while matches!(connecting.poll(), Ok(None)) {
        std::thread::yield_now();
    }
    assert!(counted.count(Event::ConnectRetries) > 0);
    assert_eq!(counted.count(Event::StrangersSilent), 0);
}
