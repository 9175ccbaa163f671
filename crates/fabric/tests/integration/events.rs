//! Who was not let in, and what had to be tried again, is counted by its reason.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use linkspan_fabric::stats::{Event, read};
use linkspan_fabric::{Config, Fabric, Listener, Log};
use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, Guard, Login, Psk, Seed, Token, Versions};
use linkspan_proto::plan::{Carrier, Plan};

use super::common::{log_stream_in, reset, try_log_stream_in};

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
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("events-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let base =
            [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", dir.to_str().unwrap())];
        let get = |name: &str| more.iter().chain(&base).find(|p| p.0 == name).map(|p| p.1.to_owned());
        let fabric = Fabric::new(Config::read(&get).unwrap(), Log::off(), true, Vec::new()).unwrap();
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
}

/// NCCL ends a job for an error of `accept`.
#[test]
fn a_peer_that_goes_with_its_plan_or_plans_what_cannot_be_is_counted_and_costs_the_listener_nothing() {
    let counted = Counted::new("plans", &[("LINKSPAN_PATH", "auto")]);
    let listener = counted.fabric.listen(0).unwrap();
    let planned = |conn, carrier| {
        let mut stream = log_stream_in(&listener, Guard::Token, conn, 0);
        let plan = Plan { carrier, acked: true, streams: vec![0], keepalive: None };
        stream.write_all(&plan.encode()).unwrap();
        stream
    };
    reset(planned(1, Carrier::Tcp));
    counted.until(&listener, Event::SetupsDropped, 1);
    let _offers_nothing = planned(2, Carrier::Offered);
    counted.until(&listener, Event::SetupsDropped, 2);
    let _good = planned(3, Carrier::Tcp);
    let until = Instant::now() + PATIENCE;
    while listener.accept().unwrap().is_none() {
        assert!(Instant::now() < until, "the next one does not come up");
    }
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
