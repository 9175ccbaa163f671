use super::*;
use crate::peer::PeerOut;

const OWN: Uuid = Uuid([5; 16]);
const REMOTE: Uuid = Uuid([6; 16]);

fn io() -> PeerIo {
    PeerIo { now: 0, out: Vec::new() }
}

fn sent(io: &mut PeerIo) -> Vec<(u8, Message)> {
    let message = |out: PeerOut| match out {
        PeerOut::Message { pdf, words, .. } => Message::decode(&words).map(|m| (pdf, m)),
        _ => None,
    };
    io.out.drain(..).filter_map(message).collect()
}

/// Logged in both ways; the other host sends on HopID 9.
fn connected() -> (Network, PeerIo) {
    let (mut network, mut io) = (Network::new(8), io());
    let directory = Directory::default().directory("network", Directory::with_uuid(DIRECTORY));
    network.ready(&mut io, 1, (OWN, REMOTE), &directory);
    let (kind, login) = sent(&mut io).remove(0);
    assert_eq!((kind, &login.words[8..12]), (pdf::XDOMAIN_RESPONSE, &[LOGIN, 1, 1, 8][..]));
    let mut words = login.words.clone();
    words[11] = 9;
    assert!(network.message(&mut io, 1, true, &Message { words, ..login.clone() }));
    let answers = sent(&mut io);
    assert_eq!((answers[0].0, answers[0].1.words[8], answers[0].1.words.len()), (pdf::XDOMAIN_RESPONSE, 1, 18));
    assert_eq!(answers[1].1.words[8], LOGIN, "our own login once more");
    let mut words = answers[0].1.words.clone();
    words[8] = LOGIN_RESPONSE;
    network.message(&mut io, 1, false, &Message { words, ..login });
    (network, io)
}

/// The frames of a packet.
fn frames(packet: &[u8]) -> Vec<Frame> {
    let count = packet.len().div_ceil(PAYLOAD) as u32;
    let one = |(index, part): (usize, &[u8])| {
        let mut data = (part.len() as u32).to_le_bytes().to_vec();
        data.extend((index as u32).to_le_bytes());
        data.extend(count.to_le_bytes());
        data.extend_from_slice(part);
        Frame { data, sof: 1, eof: 2, damaged: false }
    };
    packet.chunks(PAYLOAD).enumerate().map(one).collect()
}

/// Sends a packet and puts the answer together.
fn exchange(network: &mut Network, io: &mut PeerIo, packet: &[u8]) -> Option<Vec<u8>> {
    for frame in frames(packet) {
        assert!(network.frame(io, 1, 9, &frame));
    }
    let mut answer = Vec::new();
    for out in io.out.drain(..) {
        if let PeerOut::Frame { hop: 8, frame, .. } = out {
            answer.extend_from_slice(&frame.data[HEADER..]);
        }
    }
    (!answer.is_empty()).then_some(answer)
}

fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks(2).map(|p| u32::from(p[0]) << 8 | u32::from(*p.get(1).unwrap_or(&0))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) as u16 + (sum >> 16) as u16)
}

/// An Ethernet frame with an IPv4 packet of a protocol.
fn ip(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = [[0xff; 6], [2, 9, 9, 9, 9, 9]].concat();
    packet.extend([8, 0, 0x45, 0]);
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    packet.extend_from_slice(payload);
    packet
}

#[test]
fn pings_of_one_and_of_many_frames_come_back() {
    let (mut network, mut io) = connected();
    for len in [8, 64, 4000, 30_001] {
        let mut echo = vec![8, 0, 0, 0];
        echo.extend((0..len).map(|n| n as u8));
        let sum = checksum(&echo);
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        let answer = exchange(&mut network, &mut io, &ip(1, &echo)).unwrap();
        assert_eq!(&answer[..12], [[2, 9, 9, 9, 9, 9], network.mac].concat());
        assert_eq!(answer[26..34], [10, 9, 0, 2, 10, 9, 0, 1]);
        assert_eq!((answer[34], checksum(&answer[34..])), (0, 0));
        assert_eq!(answer[38..], echo[4..]);
    }
}

#[test]
fn arp_is_answered_for_everyone_else() {
    let (mut network, mut io) = connected();
    let mut arp = [[0xff; 6], [2, 9, 9, 9, 9, 9]].concat();
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 9, 9, 9, 9, 9, 10, 9, 0, 1, 0, 0, 0, 0, 0, 0, 10, 9, 0, 2]);
    let answer = exchange(&mut network, &mut io, &arp).unwrap();
    assert_eq!(answer[20..32], [0, 2, 2, 0, 0, 0x50, 0xf7, 1, 10, 9, 0, 2]);
    assert_eq!(answer[32..42], [2, 9, 9, 9, 9, 9, 10, 9, 0, 1]);
    arp[41] = 1;
    assert_eq!(exchange(&mut network, &mut io, &arp), None, "a probe for its own address");
}

#[test]
fn datagrams_come_back_to_their_port() {
    let (mut network, mut io) = connected();
    let answer = exchange(&mut network, &mut io, &ip(17, &[0x12, 0x34, 0, 7, 0, 10, 0, 0, b'h', b'i'])).unwrap();
    assert_eq!(answer[34..], [0, 7, 0x12, 0x34, 0, 10, 0, 0, b'h', b'i']);
}

#[test]
fn frames_that_lie_are_ignored() {
    let (mut network, mut io) = connected();
    for (at, value) in [(0, 0xff), (4, 1), (8, 99), (13, 0)] {
        let mut frame = frames(&ip(1, &[8; 20])).remove(0);
        frame.data[at] = value;
        frame.data.truncate(if at == 13 { 5 } else { 4096 });
        assert!(network.frame(&mut io, 1, 9, &frame));
        assert!(!io.out.iter().any(|o| matches!(o, PeerOut::Frame { .. })));
    }
    assert!(!network.frame(&mut io, 1, 10, &frames(&[0; 60])[0]), "another HopID belongs to another path");
}

#[test]
fn a_logout_begins_anew() {
    let (mut network, mut io) = connected();
    let words = [vec![0; 8], vec![LOGOUT, 7]].concat();
    network.message(&mut io, 1, true, &Message { route: 1, seq: 1, protocol: PROTOCOL, words });
    assert_eq!(sent(&mut io)[0].1.words[8..11], [STATUS, 7, 0]);
    network.timer(&mut io, 1 << 8 | 1);
    assert!(sent(&mut io).is_empty(), "the timer of an earlier login");
    network.timer(&mut io, 2 << 8 | 1);
    assert_eq!(sent(&mut io)[0].1.words[8], LOGIN);
    network.lost(&mut io, 1);
    network.timer(&mut io, 3 << 8 | 1);
    assert!(io.out.is_empty());
}
