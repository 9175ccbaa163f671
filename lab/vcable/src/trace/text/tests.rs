use super::*;
use crate::control::seal;
use crate::xdomain::Uuid;

fn line(kind: u8, words: &[u32]) -> String {
    control(kind, &seal(words))
}

#[test]
fn control_packets_in_words() {
    let address = 0x12 | 2 << 13 | 3 << 19 | 1 << 25 | 2 << 27;
    assert_eq!(line(pdf::READ, &[0, 0, address]), "READ  route 0 adapter 3 adapter 0x12+2 seq 2");
    assert_eq!(
        line(pdf::WRITE, &[1 << 31, 1, 1 << 13 | 2 << 25, 0xabc]),
        "WRITE done route 1 adapter 0 router 0x00+1 seq 0 00000abc"
    );
    assert_eq!(line(pdf::ERROR, &[1 << 31, 1, 8 | 3 << 8]), "ERROR route 1 8 (loop) adapter 3");
    assert_eq!(line(pdf::EVENT, &[1 << 31, 0, 1 | 1 << 31]), "EVENT route 0 unplug adapter 1");
    assert!(control(pdf::READ, &[1, 2, 3]).starts_with("PDF 1: 3 bytes; whole words"));
}

#[test]
fn messages_in_words() {
    let uuid = Uuid::of_uid(0x1234);
    let say = |body: &Body| line(pdf::XDOMAIN_REQUEST, &Message::discovery(1, 2, body).encode());
    assert_eq!(say(&Body::UuidRequest { old: false }), "XDOMAIN request route 1 seq 2 uuid-request");
    assert!(say(&Body::UuidResponse { source: uuid, route: 3 }).ends_with(&format!("uuid-response {uuid} route 3")));
    let directory = Directory::default().number("a", 1).text("b", "x\x1b[0my");
    let data = directory.block();
    let total = data.len() as u16;
    let body = Body::PropertiesResponse { source: uuid, target: uuid, offset: 0, total, generation: 4, data };
    assert!(say(&body).ends_with("{a=0x1 b='x.[0my'}"), "{}", say(&body));
    assert!(say(&Body::Error { code: 4 }).ends_with("error 4 (not ready)"));
    let mut words = vec![0; 12];
    words[11] = 8;
    words[10] = 1;
    let login = Message { route: 1, seq: 0, protocol: NETWORK, words }.encode();
    assert!(line(pdf::XDOMAIN_REQUEST, &login).ends_with("usb4net login version 1 transmit HopID 8"));
}

#[test]
fn frames_of_known_services() {
    let mut bytes = 100_u32.to_le_bytes().to_vec();
    bytes.extend([1, 0, 7, 0, 3, 0, 0, 0]);
    let what =
        What::Frame { direction: Direction::Out, hop: 8, ring: 1, sof: 1, eof: 2, damaged: false, bytes: &bytes };
    assert_eq!(
        describe(&what, 112),
        "> FRAME hop 8 ring 1 sof 1 eof 2 112 bytes usb4net packet 7 frame 2 of 3, 100 bytes"
    );
    assert!(describe(&what, 113).ends_with("113 bytes 640000000100070003000000"));
}
