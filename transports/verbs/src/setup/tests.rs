use std::collections::VecDeque;
use std::net::Ipv4Addr;

use linkspan_verbs_sys::mock::MockNic;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};
use proptest::prelude::*;

use super::*;

fn nic(net: &SoftNet, last: u8) -> SoftNic {
    net.nic(SoftConfig::roce(&format!("soft{last}"), Ipv4Addr::new(10, 0, 0, last), last.into()))
}

fn setup(nic: SoftNic, config: Config) -> Result<Setup<SoftNic>, Error> {
    Setup::new(Domain::new(nic), config)
}

#[test]
fn byte_by_byte_and_in_any_turn() {
    let net = SoftNet::new(1);
    let mut a = setup(nic(&net, 1), Config::default()).expect("a");
    let mut b = setup(nic(&net, 2), Config::default()).expect("b");
    let (mut turns, mut to_a, mut to_b) = (0, VecDeque::new(), VecDeque::new());
    while !a.is_done() || !b.is_done() {
        to_b.extend(a.output());
        if let Some(byte) = to_b.pop_front() {
            assert_eq!(b.input(&[byte]).expect("b"), 1);
        }
        a.poll().expect("a");
        b.poll().expect("b");
        to_a.extend(b.output());
        if let Some(byte) = to_a.pop_front() {
            assert_eq!(a.input(&[byte]).expect("a"), 1);
        }
        turns += 1;
        assert!(turns <= TOTAL_LEN + 2);
    }
    assert_eq!(b.input(b"more").expect("not its bytes"), 0);
    let rail = a.finish().ok().expect("done");
    let path = &linkspan_transport::Rail::info(&rail).path;
    assert!(path.contains("soft1/1 10.0.0.1 -> 10.0.0.2") && path.contains("MTU 4096"), "{path}");
}

#[test]
fn the_smaller_mtu_is_taken() {
    let net = SoftNet::new(1);
    let small = SoftConfig { mtu: Mtu::B1024, ..SoftConfig::roce("small", Ipv4Addr::new(10, 0, 0, 9), 1) };
    let (a, b) =
        join(setup(nic(&net, 1), Config::default()).expect("a"), setup(net.nic(small), Config::default()).expect("b"))
            .expect("joined");
    for rail in [linkspan_transport::Rail::info(&a), linkspan_transport::Rail::info(&b)] {
        assert!(rail.path.contains("MTU 1024"), "{}", rail.path);
    }
}

#[test]
fn reasons_are_named() {
    let net = SoftNet::new(1);
    let code = |e: Error| e.to_string().split(' ').next().map(str::to_owned);
    let unplugged = nic(&net, 1);
    net.cable(&unplugged, false);
    let refused = setup(unplugged, Config::default()).err().expect("no cable");
    assert_eq!(code(refused).as_deref(), Some("LS1211"));
    let refused = setup(nic(&net, 2), Config { ifindex: 77, ..Config::default() }).err().expect("other interface");
    assert_eq!(code(refused).as_deref(), Some("LS1212"));
    for index in [0, 9] {
        let config = Config { gid_index: Some(index), ..Config::default() };
        let refused = setup(nic(&net, 3), config).err().expect("link-local or missing");
        assert_eq!(code(refused).as_deref(), Some("LS1213"));
    }
    let ib = net.nic(SoftConfig::infiniband("ib", 5));
    let a = setup(ib, Config::default()).expect("ib");
    let b = setup(nic(&net, 4), Config::default()).expect("roce");
    assert_eq!(join(a, b).err().and_then(code).as_deref(), Some("LS1215"));
    let config = Config { deadline: Duration::ZERO, ..Config::default() };
    let slow = setup(nic(&net, 5), config).expect("made");
    assert_eq!(slow.check(Instant::now()).err().and_then(code).as_deref(), Some("LS1216"));
    assert!(slow.finish().is_err(), "not done");
    let mock = MockNic::new(nic(&net, 6));
    mock.script().modify = Some((1, 110));
    let refused = Setup::new(Domain::new(mock), Config::default()).err().expect("scripted");
    assert!(refused.to_string().contains("check cable, address and GID index"), "{refused}");
}

#[test]
fn receives_that_our_own_device_refuses_are_not_the_peers_fault() {
    let mock = MockNic::new(nic(&SoftNet::new(1), 1));
    mock.script().post_recv = Some((1, 19));
    let refused = Setup::new(Domain::new(mock), Config::default()).err().expect("scripted").to_string();
    assert!(refused.starts_with("LS1204 ibv_post_recv on soft1 failed: No such device"), "{refused}");
}

#[test]
fn a_wrong_ready_word_ends_it() {
    let net = SoftNet::new(1);
    let mut a = setup(nic(&net, 1), Config::default()).expect("a");
    let mut b = setup(nic(&net, 2), Config::default()).expect("b");
    a.input(&b.output()).expect("an offer");
    let refused = a.input(&[b'L', b'S', b'V', b'r', 0, 0, 0, 0]).expect_err("of another queue pair");
    assert!(refused.to_string().starts_with("LS1214"), "{refused}");
}

fn offer() -> QpOffer {
    QpOffer {
        magic: MAGIC,
        version: 1,
        link: 2,
        mtu: 5,
        rd_atomic: 8,
        lid: 0.into(),
        pkey: 0xffff.into(),
        qpn: 0x11.into(),
        psn: 0x123456.into(),
        slots: 64.into(),
        zero: 0.into(),
        slot_len: (SLOT as u32).into(),
        zero2: 0.into(),
        gid: [1; 16],
    }
}

#[test]
fn golden_bytes() {
    let mut want = Vec::from(*b"LSVo\x01\x02\x05\x08\x00\x00\xff\xff\x11\x00\x00\x00\x56\x34\x12\x00\x40\x00\x00\x00");
    want.extend_from_slice(&(SLOT as u32).to_le_bytes());
    want.extend_from_slice(&[0; 4]);
    want.extend_from_slice(&[1; 16]);
    assert_eq!(&offer().as_wire()[..], &want[..]);
    assert_eq!(QpOffer::decode(offer().as_wire()).ok(), Some(offer()));
}

#[test]
fn every_field_is_checked() {
    let wrong: [fn(&mut QpOffer); 9] = [
        |o| o.magic[0] = 0,
        |o| o.version = 2,
        |o| o.link = 3,
        |o| o.mtu = 6,
        |o| o.qpn.set(1 << 24),
        |o| o.psn.set(1 << 24),
        |o| o.slots.set(3),
        |o| o.slot_len.set(100),
        |o| o.gid = [0; 16],
    ];
    for change in wrong {
        let mut offer = offer();
        change(&mut offer);
        assert!(QpOffer::decode(offer.as_wire()).is_err(), "{offer:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_offer_or_refused(bytes in proptest::collection::vec(any::<u8>(), OFFER_LEN), keep in any::<bool>()) {
        let mut bytes: [u8; OFFER_LEN] = bytes.try_into().expect("that many");
        if keep {
            bytes[..6].copy_from_slice(&offer().as_wire()[..6]);
        }
        if let Ok(offer) = QpOffer::decode(&bytes) {
            prop_assert_eq!(offer.as_wire(), &bytes);
        }
    }
}
