#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use linkspan_proto::login::Psk;
use linkspan_proto::mesh::{Keys, MeshPort};
use linkspan_setup::log::Log;
use linkspan_topology::{IfAddr, IfFilter};
use linkspan_transport::Site;

use super::*;

/// One that has found no port yet.
fn agent(file: Option<PathBuf>) -> Agent {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let (psk, local) = (Psk::new([7; 32]), (Ipv4Addr::UNSPECIFIED, 0).into());
    let config = Config {
        id: 1,
        psk: psk.clone(),
        port: free.local_addr().unwrap().port(),
        file,
        filter: Some(IfFilter::parse("a test", "=no-such-if").unwrap()),
        log: Log::off(),
        stats: Arc::default(),
        options: Options::default(),
        providers: Vec::new(),
        site: Site { local, plug: None, relayed: None, forced: false, class: 0, limit: LOOK },
    };
    let means = Means { keys: Keys::new(&psk), psk, options: Options::default() };
    Agent::new(config, means, UnixStream::pair().unwrap().1).unwrap().0
}

/// The loopback interface with this address.
fn cabled(ip: &str) -> Cabled {
    let addr = IfAddr { ip: ip.parse().unwrap(), prefix: 24, scope: 0 };
    let (name, told) = ("lo".to_owned(), Some((addr.ip, addr.prefix)));
    let port = MeshPort { name, addr: told, mtu: 0, mbps: 0, carrier: true, rdma: false, gid: false, twin: None };
    Cabled { index: 1, addr: Some(addr), port }
}

fn opened(agent: &Agent) -> Vec<IpAddr> {
    agent.listens.iter().map(|listen| listen.local_addr().ip()).collect()
}

#[test]
fn a_port_whose_address_cannot_be_had_yet_is_opened_later_beside_the_others() {
    let mut agent = agent(None);
    let [there, later] = ["127.0.0.2", "127.0.0.3"].map(|ip| ip.parse::<IpAddr>().unwrap());
    agent.replug(vec![cabled("127.0.0.2"), cabled("192.0.2.1")]);
    assert_eq!(opened(&agent), [there]);
    let epoch = agent.epoch;
    agent.open();
    assert_eq!(opened(&agent), [there]);
    agent.ports[1] = cabled("127.0.0.3");
    agent.open();
    assert_eq!(opened(&agent), [there, later]);
    assert_eq!(agent.epoch, epoch, "to its neighbours it is the same");
}

#[test]
fn a_port_that_another_process_has_leaves_it_all_of_them() {
    let mut agent = agent(None);
    agent.replug(vec![cabled("127.0.0.2"), cabled("192.0.2.1")]);
    let other = TcpListener::bind(("127.0.0.3", agent.config.port)).unwrap();
    agent.ports[1] = cabled("127.0.0.3");
    agent.open();
    assert!(opened(&agent).is_empty() && agent.taken.is_some());
    drop(other);
    agent.open();
    assert_eq!(opened(&agent).len(), 2);
    assert!(agent.taken.is_none());
}

#[test]
fn sockets_of_beacons_that_could_not_be_opened_are_tried_again() {
    let mut socket = BeaconSocket::default();
    assert!(socket.open("no-such-if", 1, 7475).is_err());
    assert_eq!(socket.wait_fds().count(), 0);
    socket.open("lo", 1, 7475).unwrap();
    assert!(socket.wait_fds().count() > 0);
}

#[test]
fn a_port_of_beacons_that_another_program_has_is_told() {
    let mut agent = agent(None);
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let said = lines.clone();
    agent.config.log = Log::to(move |_, line| said.lock().unwrap().push(line.to_owned()));
    // Over both families, and not to be shared.
    let other = std::net::UdpSocket::bind(("::", agent.config.port)).unwrap();
    agent.replug(vec![cabled("127.0.0.2")]);
    agent.open();
    let told = std::mem::take(&mut *lines.lock().unwrap());
    let port = format!("UDP port {} ", agent.config.port);
    assert_eq!(told.iter().filter(|line| line.contains(&port) && line.contains("no neighbour")).count(), 1, "{told:?}");
    assert!(agent.sockets[0].wait_fds().next().is_none());
    drop(other);
    agent.open();
    assert!(agent.sockets[0].wait_fds().next().is_some());
}

#[test]
fn rdma_devices_are_looked_at_again() {
    let mut agent = agent(None);
    let nothing = "none that there is".to_owned();
    agent.rdma.insert(nothing.clone(), false);
    let now = agent.looked_at_rdma;
    agent.look(now + LOOK);
    assert!(agent.rdma.contains_key(&nothing), "not with every look");
    agent.look(now + LOOK_AT_RDMA);
    assert!(!agent.rdma.contains_key(&nothing));
}

#[test]
fn the_line_of_a_host_in_a_declared_mesh_is_found_when_its_address_comes() {
    let file = std::env::temp_dir().join(format!("linkspan-mesh-file-{}", std::process::id()));
    std::fs::write(&file, "node a 192.0.2.1/24\nnode b 192.0.2.2/24\n").unwrap();
    let mut agent = agent(Some(file.clone()));
    std::fs::remove_file(file).unwrap();
    let own = |agent: &Agent| {
        let known = agent.shared.known();
        let graph = known.declared.as_ref().unwrap();
        graph.find(1).map(|own| graph.nodes[own].ports[0].name.clone())
    };
    assert_eq!(own(&agent), None);
    agent.replug(vec![cabled("192.0.2.1")]);
    assert_eq!(own(&agent).as_deref(), Some("lo"));
}
