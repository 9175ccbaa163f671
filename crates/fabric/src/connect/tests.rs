//! Ways whose rails take long to come up, and cables that may lead to another host.

use std::sync::Arc;

use linkspan_proto::login::{LoginTable, ServerParams, Token, USED_BOUND};
use linkspan_setup::handshake::Handshake;
use linkspan_setup::logins::LoginRun;
use linkspan_setup::secured::Secured;
use linkspan_stream::{Dial, Listen, Options, Stream};
use linkspan_topology::IfAddr;
use linkspan_topology::mesh::Route;

use super::*;
use crate::device::DeviceInterface;
use crate::{Config, Log};

const SOON: Duration = Duration::from_secs(30);

fn fabric() -> Fabric {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
    let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
    Fabric::apart(config, Log::off(), false, Vec::new()).unwrap()
}

fn streams() -> (Stream, Stream) {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), SOON).unwrap();
    let (mut a, mut b) = (None, None);
    while a.is_none() || b.is_none() {
        a = a.or_else(|| dial.poll().unwrap());
        b = b.or_else(|| listen.accept().unwrap().map(|b| b.0));
    }
    (a.unwrap(), b.unwrap())
}

/// The far end sets its queue pairs up, which soft-RoCE takes seconds for: the way is not given up for another meanwhile, or it
/// never comes up.
#[test]
fn a_way_over_others_is_waited_for_while_its_rails_are_set_up() {
    let here = fabric();
    let device = here.devices().iter().position(|d| d.name == "lo").unwrap();
    let handle = fabric().listen(device).unwrap().handle();
    let mut connecting = Connecting::new(&here, device, &handle).unwrap();
    let (near, far) = streams();
    let hops = vec![far.local_addr(), far.local_addr()];
    let reach = Path::Over(Route { interface: "lo".into(), from: hops[0].ip(), hops, over: vec!["b".into()], mbps: 0 });
    connecting.tries.clear();
    connecting.start(reach, "a test", 0);
    connecting.tries[0].setup.state = SetupState::Rails(Box::new((Secured::new(near, None), Handshake::answer())));
    (connecting.relayed, connecting.asked) = (true, Some((Instant::now(), String::new())));

    let since = Instant::now();
    while since.elapsed() < ASK_ANEW * 2 {
        assert!(connecting.poll().unwrap().is_none());
    }
    assert!(connecting.tries.iter().any(|t| t.setup.is_handshake()), "given up while the far end was at work");

    // It ends as the far end has it.
    let (mut far, mut refusal) = (Secured::new(far, None), Handshake::decline("no".into()));
    while connecting.tries[0].setup.is_handshake() {
        assert!(since.elapsed() < SOON);
        let _ = refusal.poll(&mut far, &|_| Err("no".into()));
        assert!(connecting.poll().unwrap().is_none());
    }
    assert!(connecting.tries[0].setup.rails.as_ref().is_err_and(|why| why.contains("the peer says: no")));
}

/// The other one takes the connection and says nothing, as a cable over which large packets are lost.
#[test]
fn a_silent_way_is_waited_for_a_quarter_of_the_time_at_most_and_200_ms_where_the_connection_is_made_again() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (timeout, once, strict, grace) in [
        ("20000", false, "0", LOGIN_GRACE),
        ("8000", false, "0", Duration::from_secs(2)),
        ("20000", true, "0", RECONNECT_GRACE),
        ("20000", true, "1", LOGIN_GRACE),
    ] {
        let env = [
            ("LINKSPAN_IFNAME", "=lo"),
            ("LINKSPAN_STATS_DIR", "off"),
            ("LINKSPAN_PATH", "tcp"),
            ("LINKSPAN_CONNECT_TIMEOUT_MS", timeout),
            ("LINKSPAN_STRICT", strict),
        ];
        let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
        let here = Fabric::apart(config, Log::off(), false, Vec::new()).unwrap();
        let listener = fabric().listen(0).unwrap();
        let mut connecting = Connecting::new(&here, 0, &listener.handle()).unwrap();
        connecting.once = once;
        let at = connecting.tries.len();
        let to = silent.local_addr().unwrap();
        connecting.start(Path::Plain { from: None, to, device: None }, "a test", 0);
        let (since, mut up, mut there) = (Instant::now(), None, None);
        let mut poll = |connecting: &mut Connecting| {
            assert!(since.elapsed() < SOON);
            there = there.take().or_else(|| listener.accept().unwrap());
            up = up.take().or_else(|| connecting.poll().transpose());
            up.as_ref().map(Result::is_ok)
        };
        while connecting.first_up.is_none() || connecting.tries[at].setup.login_run().is_none() {
            poll(&mut connecting);
        }
        assert_eq!(connecting.grace(&connecting.tries[at]), grace, "{timeout} {once} {strict}");
        connecting.first_up = connecting.first_up.map(|up| up - grace);
        let up = loop {
            if let Some(up) = poll(&mut connecting) {
                break up;
            }
        };
        assert_eq!(up, strict == "0", "strict mode makes do with no less");
    }
}

fn port(name: &str, ip: &str, scope: u32) -> DeviceInterface {
    let addr = IfAddr { ip: ip.parse().unwrap(), prefix: if ip.contains(':') { 64 } else { 16 }, scope };
    DeviceInterface { name: name.into(), addr, beside: None, mbps: 10_000 }
}

#[test]
fn ranks_of_a_host_that_cannot_be_identified_take_tcp_with_a_warning_or_not_at_all() {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_STRICT", "1")];
    let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
    let here = Fabric::apart(config, Log::off(), false, Vec::new()).unwrap();
    let device = here.devices().iter().position(|d| d.name == "lo").unwrap();
    let listener = here.listen(device).unwrap();
    let mut connecting = Connecting::new(&here, device, &listener.handle()).unwrap();
    connecting.own = Err("there is no boot_id".into());
    let since = Instant::now();
    let refused = loop {
        assert!(since.elapsed() < SOON);
        let _ = listener.accept();
        match connecting.poll() {
            Ok(up) => assert!(up.is_none(), "it is up by a slower path"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, Error::Strict { what } if what.contains("boot_id")), "{refused:?}");
}

/// From what, tied to which interface, to what, with the scope.
fn shown(ports: Vec<DeviceInterface>, theirs: &[&str]) -> Vec<String> {
    let fabric = fabric();
    let device = Device { ports, ..fabric.devices().remove(0) };
    let mut handle = Handle::new(1, Token::random().unwrap(), 2);
    for ip in theirs {
        let prefix = if ip.contains(':') { 64 } else { 16 };
        handle.push(Addr { ip: ip.parse().unwrap(), port: 7, prefix }).unwrap();
    }
    let list = pairs(&fabric, &device, &handle, false);
    let shown = list.iter().map(|(path, ..)| match path {
        Path::Plain { from, to, device } => {
            let from = from.map_or("any".into(), |from| from.to_string());
            format!("{from} {} {to}", device.as_deref().unwrap_or("-"))
        }
        Path::Over(_) => panic!(),
    });
    shown.collect()
}

/// A cable with a routed address, and this link-local one beside it.
fn both(name: &str, ip: &str, scope: u32) -> DeviceInterface {
    let local = port(name, &format!("fe80::{scope}"), scope).addr;
    DeviceInterface { beside: Some(local), ..port(name, ip, 0) }
}

#[test]
fn every_pair_of_interfaces_has_a_stream_before_any_has_a_second() {
    let ports: Vec<_> = (0..5)
        .map(|n| DeviceInterface { mbps: 100_000, ..port(&format!("eth{n}"), &format!("10.{n}.0.1"), 0) })
        .collect();
    let theirs: Vec<String> = (0..5).map(|n| format!("10.{n}.9.1")).collect();
    let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
    let list = shown(ports, &theirs);
    let first: Vec<String> = (0..5).map(|n| format!("10.{n}.0.1:0 - 10.{n}.9.1:7")).collect();
    assert_eq!(list[..5], first);
    assert_eq!(list[5..], first[..3], "eight rails at most, two of each interface of 100 Gb/s");
    let slow = vec![port("eth0", "10.0.0.1", 0), port("eth1", "10.1.0.1", 0), port("eth2", "10.2.0.1", 0)];
    assert_eq!(shown(slow, &theirs).len(), 3, "by the speed of each, not of all together");
}

#[test]
fn a_cable_that_shares_no_subnet_with_the_peer_is_tried_by_its_link_local_address() {
    let cable = || both("tb1", "10.7.0.1", 1);
    let eth = || port("eth0", "10.1.0.1", 0);
    let [subnet, scope] = ["10.7.0.1:0 - 10.7.9.1:7", "[fe80::1%1]:0 - [fe80::9:1%1]:7"];
    assert_eq!(
        shown(vec![cable()], &["10.7.9.1", "fe80::9:1"]),
        [subnet],
        "where both have addresses nothing is guessed"
    );
    let ethernet = "10.1.0.1:0 - 10.1.9.1:7";
    assert_eq!(shown(vec![eth(), cable()], &["10.1.9.1", "fe80::9:1"]), [ethernet, scope]);
    // The peer's end has a routed address too, in another subnet.
    assert_eq!(shown(vec![cable()], &["10.8.9.1", "fe80::9:1"]), ["any - 10.8.9.1:7", scope]);
    let two = vec![cable(), both("tb2", "10.9.0.1", 2)];
    let second = "[fe80::2%2]:0 - [fe80::9:2%2]:7";
    let crossed = "[fe80::2%2]:0 - [fe80::9:1%2]:7";
    assert_eq!(shown(two, &["10.7.9.1", "fe80::9:2", "fe80::9:1"]), [subnet, second, crossed]);
}

#[test]
fn a_link_local_address_is_tried_from_each_cable_and_by_no_route() {
    let v4 = |n| port(&format!("tb{n}"), &format!("169.254.0.{n}"), 0);
    let v6 = |n| port(&format!("tb{n}"), &format!("fe80::{n}"), n);
    let eth = || port("eth0", "10.1.0.1", 0);
    let four = ["169.254.0.1:0 tb1 169.254.9.1:7", "169.254.0.2:0 tb2 169.254.9.2:7"];
    let crossed = ["169.254.0.1:0 tb1 169.254.9.2:7", "169.254.0.2:0 tb2 169.254.9.1:7"];
    assert_eq!(shown(vec![v4(1), v4(2)], &["169.254.9.1", "169.254.9.2"]), [four, crossed].concat());
    let six = ["[fe80::1%1]:0 - [fe80::9:1%1]:7", "[fe80::2%2]:0 - [fe80::9:1%2]:7"];
    assert_eq!(shown(vec![v6(1), v6(2)], &["fe80::9:1"]), six);
    let both = ["10.1.0.1:0 - 10.1.9.1:7", six[0]];
    assert_eq!(shown(vec![eth(), v6(1)], &["10.1.9.1", "fe80::9:1"]), both);
    let routed = ["any - 10.2.9.1:7", six[0]];
    assert_eq!(shown(vec![eth(), v6(1)], &["10.2.9.1", "fe80::9:1"]), routed, "routes still count");
    assert_eq!(shown(vec![eth()], &["10.2.9.1", "169.254.9.1", "fe80::9:1"]), routed[..1]);
    assert!(shown(vec![eth()], &["169.254.9.1"]).is_empty(), "a route leads anywhere but there");
    assert!(shown(vec![v4(1)], &["fe80::9:1"]).is_empty());
}

#[test]
fn on_one_host_the_first_address_that_the_host_has_is_taken() {
    let here = fabric();
    let device = here.devices().remove(0);
    for (addrs, taken) in [
        (["192.0.2.1", "127.0.0.1"], "127.0.0.1:7"),
        (["127.0.0.1", "192.0.2.1"], "127.0.0.1:7"),
        (["192.0.2.2", "192.0.2.1"], "192.0.2.2:7"),
    ] {
        let mut handle = Handle::new(1, Token::random().unwrap(), here.host_hash());
        for ip in addrs {
            handle.push(Addr { ip: ip.parse().unwrap(), port: 7, prefix: 24 }).unwrap();
        }
        let list = pairs(&here, &device, &handle, true);
        assert_eq!(list.iter().map(|(path, ..)| path.to().to_string()).collect::<Vec<_>>(), [taken]);
    }
}

#[test]
fn an_answer_that_has_arrived_counts_although_the_time_is_over() {
    let here = fabric();
    let listener = here.listen(0).unwrap();
    let mut connecting = Connecting::new(&here, 0, &listener.handle()).unwrap();
    let since = Instant::now();
    let _there = loop {
        assert!(since.elapsed() < SOON);
        if connecting.proposed.is_none() {
            assert!(connecting.poll().unwrap().is_none());
        }
        if let Some(there) = listener.accept().unwrap() {
            break there;
        }
    };
    connecting.since -= here.config().connect_timeout;
    assert!(connecting.poll().unwrap().is_some());
}

#[test]
fn a_listener_whose_greeting_is_of_another_version_is_no_listener_without_abilities() {
    let here = fabric();
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut handle = Handle::new(1, Token::random().unwrap(), here.host_hash());
    let at = listen.local_addr();
    handle.push(Addr { ip: at.ip(), port: at.port(), prefix: 8 }).unwrap();
    let mut connecting = Connecting::new(&here, 0, &handle.encode()).unwrap();
    let table = Arc::new(LoginTable::new(USED_BOUND));
    let (since, mut server) = (Instant::now(), None);
    while connecting.failed_before.is_empty() {
        assert!(since.elapsed() < SOON);
        assert!(connecting.poll().unwrap().is_none());
        if let Some((stream, _)) = listen.accept().unwrap() {
            let params = ServerParams::new(1, handle.token.clone(), table.clone());
            let params = ServerParams { blob: Some(vec![3, 0, 0]), ..params };
            server = Some(LoginRun::server(stream, params).unwrap());
        }
        server.as_mut().map(LoginRun::poll);
    }
    assert!(connecting.failed_before.contains("another version of linkspan"), "{}", connecting.failed_before);
}
