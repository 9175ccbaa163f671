//! The mesh: requests and answers of neighbours, and beacons of nodes that know the cluster key and lie; whatever they tell,
//! the graph, the ways through it and the findings stand.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use linkspan_proto::login::Psk;
use linkspan_proto::mesh::{Beacon, Keys, MeshReply, Node, Request};
use linkspan_topology::mesh::{Database, Target, findings, nccl_settings, parse};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
    if let Some(answer) = MeshReply::decode(bytes) {
        assert_eq!(MeshReply::decode(&answer.encode()), Some(answer));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(graph) = parse(text, 7475, 1, &[])
    {
        findings(&graph);
    }
    let keys = Keys::new(&Psk::new([7; 32]));
    let own = Node {
        id: 1,
        epoch: 1,
        seq: 1,
        name: "own".into(),
        relays: true,
        server_port: 7475,
        ports: Vec::new(),
        heard: Vec::new(),
    };
    let mut database = Database::default();
    let mut rest = bytes;
    // Length, port, time since the last one, then so many bytes.
    while let Some(([a, b, port, pause], tail)) = rest.split_first_chunk::<4>() {
        let (body, next) = tail.split_at(usize::from(u16::from_le_bytes([*a, *b])).min(tail.len()));
        rest = next;
        Beacon::claimed_name(body);
        let mut sealed = body.to_vec();
        keys.seal(&mut sealed);
        if let Ok(beacon) = Beacon::decode(&sealed, &keys) {
            assert_eq!(Beacon::decode(&beacon.encode(&keys), &keys).as_ref(), Ok(&beacon));
            let now = Duration::from_millis(u64::from(*pause) * 20);
            database.take(1, *port, beacon, now);
            let mut here = own.clone();
            // As many ports as we could have, so that what is heard counts.
            here.ports = database.others(now).next().map(|n| n.ports.clone()).unwrap_or_default();
            let graph = database.graph(here, now);
            findings(&graph);
            nccl_settings(&graph);
            for node in &graph.nodes {
                let addrs = node.ports.iter().filter_map(|p| Some((p.addr?.0, 9).into())).collect();
                for reroute in [false, true] {
                    graph.way(1, &Target { id: node.id, addrs: Vec::clone(&addrs) }, reroute);
                }
            }
        }
    }
});
