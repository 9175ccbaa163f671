//! How long a connection whose only path is dead waits for a way around: not only as long as its keepalive connection, which counts from the
//! last answer before the cut.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use linkspan_mesh::Mesh;
use linkspan_proto::login::{Guard, Token};
use linkspan_proto::mesh::{MeshPort, Node};
use linkspan_topology::mesh::Route;
use linkspan_transport::MAX_RAILS;

use super::*;

/// The peer's host, and one that leads around.
const PEER: u64 = 77;
const OTHER: u64 = 78;

/// A fabric in a mesh that knows what it is told.
fn meshed(strict: bool) -> (Fabric, Lines) {
    let mut name = [0; 8];
    getrandom::fill(&mut name).unwrap();
    let key = std::env::temp_dir().join(format!("around{:x}.psk", u64::from_ne_bytes(name)));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key).unwrap();
    file.write_all("01fe".repeat(16).as_bytes()).unwrap();
    let lines = Lines::default();
    let said = lines.clone();
    let log = Log::to(move |_, line| said.lock().unwrap().push(line.to_owned()));
    let get = |name: &str| match name {
        "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        "LINKSPAN_MESH_PORT" => Some("7475".to_owned()),
        "LINKSPAN_PSK_FILE" => Some(key.to_str().unwrap().to_owned()),
        "LINKSPAN_STRICT" => strict.then(|| "1".to_owned()),
        _ => None,
    };
    let config = Config::read(&get).unwrap();
    std::fs::remove_file(&key).unwrap();
    let Guard::Psk { psk, .. } = config.guard.clone() else { panic!("a key was given") };
    let fabric = Fabric::apart(config, log, true, Vec::new()).unwrap();
    fabric.join(Mesh::deaf(1, psk).unwrap());
    (fabric, lines)
}

/// What the neighbour on the way around tells of the peer's host, whose end of the dead cable has this address.
fn beacon(fabric: &Fabric, seq: u64, addr: Option<Ipv4Addr>) {
    let port = |addr: Ipv4Addr| MeshPort {
        name: "lan1".into(),
        addr: Some((addr.into(), 24)),
        mtu: 1500,
        mbps: 0,
        carrier: true,
        rdma: true,
        gid: true,
        twin: None,
    };
    let ports = addr.map(port).into_iter().collect();
    let node =
        Node { id: PEER, epoch: 1, seq, name: "peer".into(), relays: true, server_port: 1, ports, heard: Vec::new() };
    fabric.mesh().unwrap().unwrap().hear(OTHER, seq, node);
}

fn dials(host: u64) -> ReconnectPolicy {
    let handle = Handle::new(9, Token::random().unwrap(), host);
    ReconnectPolicy::Dials { handle, conn: 5, next: 64, reconnectors: Vec::new() }
}

fn accepts(fabric: &Fabric) -> ReconnectPolicy {
    ReconnectPolicy::Accepts {
        acceptor: fabric.listen(0).unwrap().acceptor,
        conn: Arc::new(ConnId { number: 5, peer_key: None }),
        relayed: false,
    }
}

/// Two ends of a queue pair on `interface`.
fn rails(net: &SoftNet, interface: &str, subnet: u8) -> (SoftNic, [linkspan_transport::BoxRail; 2]) {
    let nics = [1, 2].map(|n| net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, subnet, n), 1)));
    let config = RailConfig { timeout: 31, interface: interface.into(), ..RailConfig::default() };
    let [one, two] = nics.each_ref().map(|nic| Setup::new(Domain::new(nic.clone()), config.clone()).unwrap());
    let (one, two) = join(one, two).unwrap();
    let [first, _] = nics;
    (first, [one, two].map(|rail| Box::new(rail) as _))
}

/// Both ends of a connection over one queue pair on `lo`; the second one's keepalive connection is about to fall silent there.
fn ends(fabric: &Fabric, policy: ReconnectPolicy) -> (SoftNet, SoftNic, [Channel; 2], TcpStream) {
    let (net, (keepalive, far)) = (SoftNet::new(1), silenced());
    let (nic, [one, two]) = rails(&net, "lo", 0);
    let channel = |rail, keepalive, policy| {
        let conn = Conn::new([fabric.staged(rail)], true);
        let device = "lo".to_owned();
        Channel::new(
            fabric,
            Parts { conn, keepalive, policy, device, verb: "made", peer_key: None, left_out: Vec::new() },
        )
    };
    let ends = [channel(one, None, ReconnectPolicy::Never), channel(two, Some(keepalive), policy)];
    (net, nic, ends, far)
}

/// The cable is cut, the keepalive connection ends, and the mesh still reports the host: the connection waits, and goes on over what comes.
fn waits(fabric: &Fabric, lines: &Lines, policy: ReconnectPolicy, interface: &str) {
    let (net, nic, [mut a, mut b], _far) = ends(fabric, policy);
    let (since, mut seq) = (Instant::now(), 1);
    // Known while the keepalive connection's path is there; afterwards the host tells of the cable no more.
    beacon(fabric, seq, Some(Ipv4Addr::LOCALHOST));
    b.know_peer();
    net.cable(&nic, false);
    while !said(lines, "waiting for another route") {
        assert!(since.elapsed() < LONG, "{lines:?}");
        seq += 1;
        beacon(fabric, seq, None);
        assert!(b.progress().is_ok(), "{:?} {lines:?}", b.lost());
    }
    let (_, [one, two]) = rails(&net, interface, 1);
    a.add(one, MAX_RAILS as u32, Instant::now());
    b.add(two, MAX_RAILS as u32, Instant::now());
    let (src, dst) = (StaticBuf::new(100_000), StaticBuf::new(100_000));
    assert!(src.slice().fill(0, &[7; 100_000]));
    let recv = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
    let mut send = None;
    while b.test(recv).unwrap().is_none() {
        assert!(since.elapsed() < 2 * LONG, "{lines:?}");
        a.progress().unwrap();
        b.progress().unwrap();
        if send.is_none() {
            send = a.post_send(1, src.slice()).unwrap();
        }
    }
    assert!(dst.slice().to_vec().iter().all(|&byte| byte == 7));
    while !said(lines, "other paths carry on") {
        assert!(since.elapsed() < 2 * LONG, "{lines:?}");
        a.progress().unwrap();
        b.progress().unwrap();
    }
}

#[test]
fn who_dials_waits_while_the_mesh_hears_the_peers_host() {
    let (fabric, lines) = meshed(false);
    waits(&fabric, &lines, dials(PEER), "another0");
}

#[test]
fn who_accepted_waits_too() {
    let (fabric, lines) = meshed(false);
    waits(&fabric, &lines, accepts(&fabric), "another0");
}

#[test]
fn a_rail_that_has_come_up_since_carries_on_whatever_its_interface() {
    let (fabric, lines) = meshed(false);
    waits(&fabric, &lines, dials(PEER), "lo");
}

#[test]
fn a_relayed_stream_that_is_being_set_up_is_waited_for_though_nobody_hears_the_peers_host() {
    let (fabric, lines) = meshed(false);
    let (stream, _server) = stream();
    let (from, hops) = (Ipv4Addr::LOCALHOST.into(), vec![stream.peer_addr(), "10.0.9.9:7".parse().unwrap()]);
    let route = Route { interface: "lo".into(), from, hops, over: vec!["spark-b".into()], mbps: 0 };
    let ReconnectPolicy::Dials { handle, conn, next, .. } = dials(PEER) else { panic!("it dials") };
    let reconnectors = vec![Reconnector::logging_in(Path::Over(route), stream)];
    let policy = ReconnectPolicy::Dials { handle, conn, next, reconnectors };
    let (net, nic, [_a, mut b], _far) = ends(&fabric, policy);
    net.cable(&nic, false);
    let since = Instant::now();
    while !said(&lines, "waiting for another route") {
        assert!(since.elapsed() < LONG, "{lines:?}");
        assert!(b.progress().is_ok(), "{:?} {lines:?}", b.lost());
    }
}

/// How a connection ends at once whose keepalive connection falls silent.
fn ended(strict: bool, heard: bool, policy: ReconnectPolicy) {
    let (fabric, lines) = meshed(strict);
    let (net, nic, [_a, mut b], _far) = ends(&fabric, policy);
    net.cable(&nic, false);
    let (since, mut seq) = (Instant::now(), 0);
    while b.progress().is_ok() {
        assert!(since.elapsed() < LONG && !said(&lines, "is waited for"), "{lines:?}");
        seq += 1;
        if heard {
            beacon(&fabric, seq, None);
        }
    }
    let why = b.lost().unwrap();
    assert!(why.starts_with("LS0101") && why.contains("timed out"), "{why}");
}

#[test]
fn a_host_that_nobody_hears_is_dead_with_its_keepalive() {
    ended(false, false, dials(PEER));
}

#[test]
fn nobody_waits_for_what_cannot_come() {
    // Strict: a relayed way would be refused. Never: no rail can be added.
    ended(true, true, dials(PEER));
    ended(false, true, ReconnectPolicy::Never);
    // The one that is heard is another host.
    ended(false, true, dials(OTHER + 1));
}

#[test]
fn the_wait_has_an_end() {
    let (fabric, lines) = meshed(false);
    let (net, nic, [_a, mut b], _far) = ends(&fabric, dials(PEER));
    net.cable(&nic, false);
    let (since, mut seq) = (Instant::now(), 0);
    while !said(&lines, "waiting for another route") {
        assert!(since.elapsed() < LONG, "{lines:?}");
        seq += 1;
        beacon(&fabric, seq, None);
        b.progress().unwrap();
    }
    b.watch(Instant::now() + Duration::from_secs(20));
    assert!(b.lost().is_none());
    b.watch(Instant::now() + Duration::from_secs(26));
    assert!(b.lost().unwrap().starts_with("LS0101"));
}

/// A way around that fails is told of each time: over whom, why, and what comes next.
#[test]
fn a_way_around_that_fails_is_told() {
    let (fabric, lines) = meshed(false);
    // Nobody is there any more.
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (from, hops) = (Ipv4Addr::LOCALHOST.into(), vec![server, "10.0.9.9:7".parse().unwrap()]);
    let route = Route { interface: "lo".into(), from, hops, over: vec!["spark-b".into()], mbps: 0 };
    let (mut way, handle) = (Reconnector::now(Path::Over(route)), Handle::new(9, Token::random().unwrap(), PEER));
    let (since, mut now, mut number) = (Instant::now(), Instant::now(), 64);
    let failed = || -> Vec<String> { lines.lock().unwrap().iter().filter(|l| l.contains("failed")).cloned().collect() };
    while failed().len() < 3 {
        assert!(since.elapsed() < LONG, "{lines:?}");
        assert!(way.poll(&fabric, Dialled { handle: &handle, conn: 5, peer_key: None }, &mut number, now).is_none());
        // The next try is due at once.
        now += if way.is_busy() { Duration::ZERO } else { Duration::from_secs(1) };
    }
    for (line, wait) in failed().iter().zip([1, 2, 4]) {
        assert!(line.starts_with("mesh: the route over spark-b to 10.0.9.9:7 has failed: "), "{line}");
        assert!(line.contains("refused") && line.ends_with(&format!("; next try in {wait} s")), "{line}");
    }
}
