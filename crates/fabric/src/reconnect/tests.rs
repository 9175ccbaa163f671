//! What is said of ways over others that come to nothing, or to less than was wanted.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use linkspan_mesh::hops::{self, RelayMark};
use linkspan_proto::login::Token;
use linkspan_stream::{Dial, Options};
use linkspan_topology::mesh::Route;
use linkspan_verbs::Rdma;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet};

use super::*;
use crate::{Config, Log};

const LONG: Duration = Duration::from_secs(60);

type Lines = Arc<Mutex<Vec<String>>>;

/// A fabric on `lo`, with an RDMA device there or with none.
fn fabric(device: bool, path: &str) -> (Fabric, Lines) {
    let lines = Lines::default();
    let said = lines.clone();
    let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
    let get = |name: &str| match name {
        "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        "LINKSPAN_PATH" => Some(path.to_owned()),
        _ => None,
    };
    let lo = linkspan_net::interface_of(Ipv4Addr::LOCALHOST.into(), 0).unwrap().unwrap().index;
    let nic = || SoftNet::new(1).nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, 1), lo));
    let nics = device.then(nic).into_iter().collect();
    (Fabric::apart(Config::read(&get).unwrap(), log, false, vec![Box::new(Rdma::given(nics))]).unwrap(), lines)
}

fn stream() -> Stream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut dial = Dial::start(None, listener.local_addr().unwrap(), &Options::default(), LONG).unwrap();
    loop {
        if let Some(stream) = dial.poll().unwrap() {
            return stream;
        }
    }
}

/// What only tests make.
impl Reconnector {
    /// One whose stream is in its login, which nobody answers.
    pub(crate) fn logging_in(reach: Path, stream: Stream) -> Reconnector {
        let params = ClientParams::new(9, Token::random().unwrap(), 5, 64);
        let mut setup = Box::new(StreamSetup::dial(Err(String::new())));
        setup.login(stream, params, None).unwrap();
        Reconnector { state: State::Trying(setup, 64), ..Reconnector::later(reach) }
    }
}

fn way() -> Reconnector {
    let from = Ipv4Addr::LOCALHOST.into();
    let hops = vec!["10.0.0.2:7475".parse().unwrap(), "10.0.1.2:7475".parse().unwrap(), "10.0.2.2:99".parse().unwrap()];
    let over = vec!["spark-b".to_owned(), "spark-c".to_owned()];
    Reconnector::now(Path::Over(Route { interface: "lo".into(), from, hops, over, mbps: 0 })).wanting(Some("verbs"))
}

const NONE: &str = "spark-c has no RDMA device to use on cab1";

#[test]
fn a_way_that_goes_by_tcp_says_which_hop_has_no_rdma() {
    let ours = "the host that connects has no RDMA device to use on lo";
    for (device, hops, why) in [
        (true, Hops::Tcp(NONE.into()), Some(NONE)),
        (true, Hops::Tcp(String::new()), Some(hops::EARLIER)),
        (true, Hops::Rdma(RelayMark([7; RelayMark::LEN])), None),
        (false, Hops::Rdma(RelayMark([7; RelayMark::LEN])), Some(ours)),
    ] {
        let (fabric, lines) = fabric(device, "auto");
        assert_eq!(way().candidate(&fabric, &stream(), Some(hops)).is_some(), why.is_none());
        let said =
            |why| format!("Warn downgrade: the route over spark-b, spark-c to 10.0.2.2:99 uses TCP, not RDMA: {why}");
        assert_eq!(*lines.lock().unwrap(), why.map(said).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn what_the_far_end_refused_is_said_when_the_stream_has_to_do() {
    let (fabric, lines) = fabric(true, "auto");
    let mut way = way();
    assert!(matches!(way.without(&fabric, "the peer says: no", Instant::now()), State::Down { .. }));
    assert!(lines.lock().unwrap().is_empty(), "the stream is still to come");
    assert!(way.candidate(&fabric, &stream(), Some(Hops::Rdma(RelayMark([7; RelayMark::LEN])))).is_none());
    assert!(lines.lock().unwrap().iter().all(|line| line.ends_with("not RDMA: the peer says: no")));
    assert_eq!(lines.lock().unwrap().len(), 1);
}

/// Nobody has RDMA, or nobody wants it: TCP is what was to be had.
#[test]
fn where_tcp_is_all_there_is_nothing_is_said() {
    for (device, path, hops) in [
        (false, "auto", Hops::Tcp(NONE.into())),
        (true, "tcp", Hops::Tcp(NONE.into())),
        (true, "tcp", Hops::Rdma(RelayMark([7; RelayMark::LEN]))),
    ] {
        let (fabric, lines) = fabric(device, path);
        assert!(way().candidate(&fabric, &stream(), Some(hops)).is_none());
        assert_eq!(*lines.lock().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn tries_that_come_to_nothing_are_a_second_apart_then_twice_as_long_each_time_up_to_eight() {
    let (mut reconnect, now) = (way(), Instant::now());
    let mut waits = Vec::new();
    for _ in 0..5 {
        let State::Down { next } = reconnect.again(now) else { panic!("it is tried again") };
        waits.push((next - now).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 8]);
    // Once up and lost again it begins anew.
    (reconnect.paths, reconnect.state) = (vec!["path".to_owned()], State::Up);
    reconnect.lost("path", now);
    let State::Down { next } = reconnect.state else { panic!("it is lost") };
    assert_eq!((next - now, reconnect.wait), (RECONNECT, RECONNECT));
}

#[test]
fn queue_pairs_that_were_set_up_together_are_dialled_for_when_the_last_one_is_lost() {
    let (mut reconnect, now) = (way(), Instant::now());
    (reconnect.paths, reconnect.state) = (vec!["one".to_owned(), "two".to_owned()], State::Up);
    reconnect.lost("one", now);
    reconnect.lost("somebody else's", now);
    assert!(reconnect.is_up(), "the other one carries");
    reconnect.lost("two", now);
    assert!(!reconnect.is_up());
}

#[test]
fn rails_over_a_stream_have_numbers_that_no_stream_and_no_other_rail_has() {
    let mut numbers: Vec<u32> =
        [0, 1, 2, u16::MAX].iter().flat_map(|&number| (0..MAX_RAILS).map(move |n| rail_id(number, n))).collect();
    assert!(numbers.iter().all(|id| *id > u32::from(u16::MAX) && *id != u32::MAX));
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
}

#[test]
fn nobody_is_dialled_for_queue_pairs_or_a_cable_while_there_is_no_port_or_cable_of_ours() {
    let to = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let from = Some((Ipv4Addr::LOCALHOST, 0).into());
    let direct = || Reconnector::now(Path::Plain { from, to, device: None });
    let no_cable = || Reconnector { plug: Some("0-1".to_owned()), ..direct().wanting(Some("thunderbolt")) };
    for (device, mut reconnect, dials) in [
        (false, direct().wanting(Some("verbs")), false),
        (true, direct().wanting(Some("verbs")), true),
        (true, no_cable(), false),
        (false, direct(), true),
    ] {
        let (fabric, _) = fabric(device, "auto");
        let (handle, now) = (Handle::new(9, Token::random().unwrap(), 7), Instant::now());
        assert!(reconnect.poll(&fabric, Dialled { handle: &handle, conn: 5, peer_key: None }, &mut 64, now).is_none());
        assert_eq!(reconnect.is_busy(), dials);
        // It asks its own host as seldom as it would dial.
        assert_eq!(reconnect.wait, if dials { RECONNECT } else { 2 * RECONNECT });
    }
}
