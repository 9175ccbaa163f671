//! A guest's driver against a host in software: discovery, properties, bonding, frames, faults.

use std::sync::{Arc, Mutex};

use crate::driver::Lab;
use linkspan_vcable::control::{pdf, route};
use linkspan_vcable::nhi::Frame;
use linkspan_vcable::nhi::regs::*;
use linkspan_vcable::peer::{Announced, Peer, PeerIo, Service, SoftHost, pattern};
use linkspan_vcable::time::{MS, SEC};
use linkspan_vcable::xdomain::property::{Directory, Value};
use linkspan_vcable::xdomain::{Body, Message, Uuid};

const GUEST: Uuid = Uuid([1; 16]);

fn soft(lanes: u8) -> SoftHost {
    SoftHost::new("soft", 0x77, lanes).with(Box::new(Announced::new("stream", GUEST, [1, 1, 1, 0])))
}

fn lab(lanes: u8) -> Lab {
    let mut lab = Lab::new(&format!("host a\npeer p\ncable ap a:1 p:1 lanes={lanes}"));
    lab.world.set_peer(1, Box::new(soft(lanes)));
    lab.start_all();
    lab
}

/// Answers the peer's requests as a Linux host would; gives what was asked.
fn answer(lab: &mut Lab, properties: &Directory) -> Vec<&'static str> {
    let mut asked = Vec::new();
    loop {
        lab.run(MS);
        let Some(at) = lab.drivers[0].events.iter().position(|(kind, _)| *kind == pdf::XDOMAIN_REQUEST) else {
            return asked;
        };
        let (_, words) = lab.drivers[0].events.remove(at).unwrap();
        assert_eq!(route(&words), 1);
        let message = Message::decode(&words).unwrap();
        let (body, name) = match message.body().unwrap() {
            Body::UuidRequest { .. } => (Body::UuidResponse { source: GUEST, route: 1 }, "uuid"),
            Body::LinkStatusRequest => {
                let body = Body::LinkStatusResponse {
                    status: 0,
                    supported_width: 3,
                    target_width: 1,
                    supported_speed: 0xc,
                    target_speed: 0xc,
                };
                (body, "status")
            }
            Body::LinkChangeRequest { width: 3, .. } => (Body::LinkChangeResponse { status: 0 }, "change"),
            Body::PropertiesRequest { source, target: GUEST, offset } => {
                let block = properties.block();
                let data = block[offset.into()..].iter().take(45).copied().collect();
                let body = Body::PropertiesResponse {
                    source: GUEST,
                    target: source,
                    offset,
                    total: block.len() as u16,
                    generation: 1,
                    data,
                };
                (body, "properties")
            }
            Body::Changed { .. } => (Body::ChangedAck, "changed"),
            other => panic!("{other:?}"),
        };
        asked.push(name);
        let reply = Message::discovery(1, message.seq, &body).encode();
        lab.control(0, pdf::XDOMAIN_RESPONSE, &reply);
    }
}

fn ask(lab: &mut Lab, body: &Body) -> Option<Body> {
    let words = Message::discovery(1, 1, body).encode();
    lab.drivers[0].events.clear();
    lab.control(0, pdf::XDOMAIN_REQUEST, &words);
    lab.run(MS);
    let (_, words) = lab.drivers[0].events.iter().find(|(kind, _)| *kind == pdf::XDOMAIN_RESPONSE)?;
    assert_eq!(route(words), 1);
    let message = Message::decode(words).unwrap();
    assert_eq!(message.seq, 1);
    message.body()
}

fn large() -> Directory {
    let service = Directory::with_uuid(Uuid([9; 16])).number("prtcid", 1).text("note", "more than one packet of it");
    (0..6).fold(Directory::default().text("deviceid", "guest"), |d, n| d.directory(&format!("svc{n}"), service.clone()))
}

#[test]
fn the_peer_asks_what_linux_asks_and_reads_properties_in_parts() {
    let mut lab = lab(1);
    assert_eq!(answer(&mut lab, &large()), ["uuid", "properties", "properties", "properties", "properties"]);
    assert!(lab.world.command("peer p state").unwrap().contains("ready"));
    lab.assert_clean();
}

#[test]
fn the_peer_answers_what_linux_asks() {
    let mut lab = lab(1);
    answer(&mut lab, &large());
    let uuid = soft(1).uuid();
    assert_eq!(ask(&mut lab, &Body::UuidRequest { old: false }), Some(Body::UuidResponse { source: uuid, route: 1 }));
    let mut block = Vec::new();
    loop {
        let request = Body::PropertiesRequest { source: GUEST, target: uuid, offset: block.len() as u16 };
        let Some(Body::PropertiesResponse { total, data, target, .. }) = ask(&mut lab, &request) else { panic!() };
        assert_eq!(target, GUEST);
        block.extend(data);
        if block.len() >= total.into() {
            break;
        }
    }
    let directory = Directory::parse(&block).unwrap();
    assert_eq!(directory.get("deviceid"), Some(&Value::Number(4)));
    assert_eq!(directory.get_directory("stream").unwrap().get("prtcid"), Some(&Value::Number(1)));
    let wrong = Body::PropertiesRequest { source: GUEST, target: GUEST, offset: 0 };
    assert_eq!(ask(&mut lab, &wrong), Some(Body::Error { code: 2 }));
}

#[test]
fn two_lanes_are_bonded_by_the_smaller_uuid() {
    // The UUID of this peer begins with 0x77, the guest's with 1: the guest leads.
    let mut lab = lab(2);
    assert_eq!(answer(&mut lab, &Directory::default()), ["uuid", "status", "properties"]);
    let mut lab = Lab::new("host a\npeer p\ncable ap a:1 p:1 lanes=2");
    lab.world.set_peer(1, Box::new(SoftHost::new("soft", 0, 2)));
    lab.start_all();
    assert_eq!(answer(&mut lab, &Directory::default()), ["uuid", "status", "change", "properties"]);
    assert_eq!(lab.lane_rate(0, 1), (4, 1));
    for adapter in [2, 1] {
        let word = lab.read(0, adapter, 1, 0x11, 1).unwrap()[0];
        lab.write(0, adapter, 1, 0x11, &[word | 3 << 4]);
    }
    assert_eq!(lab.lane_rate(0, 1), (4, 2));
}

#[test]
fn a_lost_request_is_sent_again_and_a_silent_guest_is_given_up() {
    let mut lab = Lab::new("host a\npeer p\ncable ap a:1 p:1");
    lab.world.set_peer(1, Box::new(soft(1)));
    lab.world.command("drop xdomain type=uuid-request to=a").unwrap();
    lab.start_all();
    assert_eq!(answer(&mut lab, &large()).len(), 0);
    lab.run(2 * SEC);
    assert_eq!(answer(&mut lab, &large())[0], "uuid");
    lab.world.command("retrain ap").unwrap();
    lab.run(30 * SEC);
    let asked = lab.drivers[0].events.iter().filter(|(kind, _)| *kind == pdf::XDOMAIN_REQUEST).count();
    assert_eq!(asked, 10);
}

#[test]
fn packets_can_be_delayed_doubled_overtaken_and_damaged() {
    let mut lab = lab(1);
    answer(&mut lab, &large());
    let send = |lab: &mut Lab, last: u32| {
        let words: String = [0, 0, 5, 1, 2, 3, 4, last].iter().map(|w: &u32| format!("{w:08x}")).collect();
        lab.world.command(&format!("peer p message 1 request {words}")).unwrap();
    };
    let got = |lab: &mut Lab| -> Vec<u32> {
        lab.poll();
        lab.drivers[0].events.drain(..).filter_map(|(_, w)| w.last().copied()).collect()
    };
    got(&mut lab);
    lab.world.command("delay xdomain by=30ms to=a").unwrap();
    send(&mut lab, 1);
    send(&mut lab, 2);
    assert_eq!(got(&mut lab), [2]);
    lab.run(40 * MS);
    assert_eq!(got(&mut lab), [1]);
    lab.world.command("duplicate xdomain nth=2 to=a").unwrap();
    send(&mut lab, 3);
    send(&mut lab, 4);
    assert_eq!(got(&mut lab), [3, 4, 4]);
    lab.world.command("reorder xdomain to=a").unwrap();
    send(&mut lab, 5);
    assert!(got(&mut lab).is_empty());
    send(&mut lab, 6);
    assert_eq!(got(&mut lab), [6, 5]);
    lab.world.command("reorder xdomain to=a").unwrap();
    send(&mut lab, 7);
    lab.run(30 * MS);
    assert_eq!(got(&mut lab), [7], "nothing overtook it");
    lab.world.command("corrupt xdomain to=a").unwrap();
    send(&mut lab, 8);
    lab.poll();
    assert_eq!(lab.drivers[0].events.pop_back().unwrap().0, 0xff, "the CRC tells");
    lab.world.command("silent p").unwrap();
    send(&mut lab, 9);
    lab.run(SEC);
    assert!(got(&mut lab).is_empty());
    lab.world.command("talk p").unwrap();
    send(&mut lab, 10);
    assert_eq!(got(&mut lab), [10]);
}

fn rings(lab: &mut Lab) {
    lab.start_tx(0, 1, 64, E2E);
    lab.start_rx(0, 1, 64, E2E | 1 << 12, 1 << 17 | 1 << 2);
    lab.path_in(0, 1, 9, 1, 14);
    lab.path_out(0, 1, 1, 8);
}

#[test]
fn frames_are_echoed_and_counted() {
    let mut lab = lab(1);
    lab.world.command("peer p echo 8 9").unwrap();
    rings(&mut lab);
    lab.post(0, 1, 30);
    for number in 0..40 {
        lab.send(0, 1, &pattern(number, 3000), 1, 2);
        lab.run(MS);
    }
    let got = lab.reap(0, 1);
    assert_eq!(got.len(), 30, "the rest waits for descriptors");
    lab.post(0, 1, 20);
    lab.run(MS);
    assert_eq!(lab.reap(0, 1).pop().unwrap().0, pattern(39, 3000));
    assert!(lab.world.command("peer p seen 8").unwrap().starts_with("frames=40 bytes=120000 "));
    lab.assert_clean();
}

#[test]
fn scripts_send_frames_and_stall_the_peer() {
    let mut lab = lab(1);
    rings(&mut lab);
    lab.post(0, 1, 63);
    lab.world.command("peer p send 1 9 1 2 50 4096").unwrap();
    lab.run(MS);
    let got = lab.reap(0, 1);
    assert_eq!(got.len(), 50);
    assert_eq!(got[49].0, pattern(49, 4096));
    lab.world.command("peer p data 1 9 1 2 c0ffee").unwrap();
    lab.run(MS);
    assert_eq!(lab.reap(0, 1)[0].0, [0xc0, 0xff, 0xee]);
    lab.world.command("stall p hop=8 for=10ms").unwrap();
    lab.send(0, 1, &[1; 4096], 1, 2);
    lab.run(5 * MS);
    assert_eq!(lab.world.host_stats(1).frames_received, 0);
    lab.run(10 * MS);
    assert_eq!(lab.world.host_stats(1).frames_received, 1);
}

#[test]
fn commands_that_are_wrong_say_what_is_wanted() {
    let mut lab = lab(1);
    for (command, wanted) in [
        ("peer a state", "is a guest"),
        ("peer p send 1 8 16 2 1 1", "a number up to 15"),
        ("peer p dance", "wanted"),
        ("unplug xy", "no cable 'xy'"),
        ("drop frames", "frame wanted"),
        ("reorder frame", "stay in order"),
        ("delay xdomain", "by=TIME"),
        ("drop xdomain type=x", "XDomain message type"),
        ("lose-irq a vectors=1", "vector"),
        ("stall a", "ring=N"),
        ("refuse a", "hop=N"),
        ("refuse a hop=64", "hop=N"),
        ("peer p data 1 8 1 2 abc", "pairs of hexadecimal"),
    ] {
        let error = lab.world.command(command).unwrap_err().to_string();
        assert!(error.starts_with("LS0921") && error.contains(wanted), "{error}");
    }
}

/// A peer of a test's own: answers each frame with its length.
struct Lengths;

impl Peer for Lengths {
    fn frame(&mut self, io: &mut PeerIo, port: usize, hop: u16, frame: Frame) {
        let data = (frame.data.len() as u32).to_le_bytes().to_vec();
        io.send_frame(port, hop + 1, Frame { data, ..frame });
    }
}

#[test]
fn a_test_brings_its_own_peer() {
    let mut lab = lab(1);
    assert!(lab.world.set_peer(1, Box::new(Lengths)));
    assert!(!lab.world.set_peer(0, Box::new(Lengths)));
    rings(&mut lab);
    lab.post(0, 1, 30);
    lab.send(0, 1, &[0; 4096], 1, 2);
    lab.run(MS);
    assert_eq!(lab.reap(0, 1)[0].0, 4096_u32.to_le_bytes());
}

/// A service with a protocol of its own.
#[derive(Clone, Default)]
struct Login(Arc<Mutex<Vec<String>>>);

impl Service for Login {
    fn key(&self) -> &str {
        "login"
    }
    fn properties(&self) -> Directory {
        Directory::with_uuid(Uuid([3; 16])).number("prtcid", 9)
    }
    fn ready(&mut self, io: &mut PeerIo, _port: usize, uuids: (Uuid, Uuid), remote: &Directory) {
        let first = format!("ready {} {}", uuids.1, remote.entries.len());
        self.0.lock().unwrap().push(first);
        io.timer(io.now() + SEC, 7);
    }
    fn timer(&mut self, _io: &mut PeerIo, token: u32) {
        self.0.lock().unwrap().push(format!("timer {token}"));
    }
    fn message(&mut self, io: &mut PeerIo, port: usize, request: bool, message: &Message) -> bool {
        if message.protocol != Uuid([3; 16]) {
            return false;
        }
        self.0.lock().unwrap().push(format!("message {request} {:?}", message.words));
        let answer = Message { words: vec![0xaa], ..message.clone() };
        io.send_message(port, pdf::XDOMAIN_RESPONSE, answer.encode());
        true
    }
    fn lost(&mut self, _io: &mut PeerIo, port: usize) {
        self.0.lock().unwrap().push(format!("lost {port}"));
    }
}

#[test]
fn a_service_speaks_its_own_protocol() {
    let login = Login::default();
    let mut lab = Lab::new("host a\npeer p\ncable ap a:1 p:1");
    lab.world.set_peer(1, Box::new(soft(1).with(Box::new(login.clone()))));
    lab.start_all();
    answer(&mut lab, &large());
    let message = Message { route: 1, seq: 2, protocol: Uuid([3; 16]), words: vec![1, 2] };
    lab.drivers[0].events.clear();
    lab.control(0, pdf::XDOMAIN_REQUEST, &message.encode());
    lab.run(2 * SEC);
    let (_, words) = lab.drivers[0].events.pop_front().unwrap();
    assert_eq!(Message::decode(&words).unwrap().words, [0xaa]);
    lab.world.command("unplug ap").unwrap();
    let seen = login.0.lock().unwrap().clone();
    assert_eq!(seen, [&format!("ready {GUEST} 7"), "message true [1, 2]", "timer 7", "lost 1"]);
}
