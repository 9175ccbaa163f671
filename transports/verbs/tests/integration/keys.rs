//! What a key opens, for whom and until when, against a sender that means harm: it writes with any key it likes through the queue
//! pair of a rail. These tests are the promise of `docs/THREAT-MODEL.md`, what is not promised included.

use std::net::Ipv4Addr;

use crate::common::config;
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, MemSlice, Rail, Sink, StaticBuf, Violation};
use linkspan_verbs::{Domain, Hold, Setup, VerbsRail, join};
use linkspan_verbs_sys::soft::{SoftConfig, SoftMr, SoftNet, SoftNic};
use linkspan_verbs_sys::{Access, Keys, Mr, Nic, SendOp, SendWr};

const PAGE: u64 = 4096;

/// The one that means harm, and a domain of its victim.
struct Attack {
    net: SoftNet,
    from: SoftNic,
    at: SoftNic,
    domain: Domain<SoftNic>,
    attacker: VerbsRail<SoftNic>,
    victim: VerbsRail<SoftNic>,
    bytes: (StaticBuf, SoftMr),
}

impl Attack {
    /// A rail from the attacker to a domain of the victim's device, made of the first.
    fn over(choose: impl Fn(&Domain<SoftNic>) -> Domain<SoftNic>) -> Attack {
        let net = SoftNet::new(1);
        let nic = |last| net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1));
        let (from, at) = (nic(1), nic(2));
        let domain = Domain::new(at.clone());
        let side = |domain: Domain<SoftNic>| Setup::new(domain, config()).unwrap();
        let (attacker, victim) = join(side(Domain::new(from.clone())), side(choose(&domain))).unwrap();
        let buf = StaticBuf::new(PAGE as usize);
        assert!(buf.slice().fill(0, &[0x5a; PAGE as usize]));
        let mr = from.register(buf.slice(), Access::LOCAL_READ).unwrap();
        Attack { net, from, at, domain, attacker, victim, bytes: (buf, mr) }
    }

    fn new() -> Attack {
        Attack::over(Domain::clone)
    }

    /// What a peer may be told: targets that cover the memory.
    fn keys(&self, mem: MemSlice) -> Vec<Keys> {
        let covers = |keys: &Keys| keys.covers(mem.as_ptr() as u64, mem.len() as u64);
        self.at.targets().into_iter().filter(covers).collect()
    }

    /// Whether 16 bytes that the attacker writes there by this key land. The victim does nothing meanwhile.
    fn lands(&self, keys: &Keys, mem: MemSlice) -> bool {
        let place = mem.sub(0, 16).unwrap();
        assert!(place.fill(0, &[0; 16]));
        let own = self.bytes.1.keys();
        let op = SendOp::Write { addr: place.as_ptr() as u64, rkey: keys.rkey() };
        let sent = self.net.forge(&self.from, self.attacker.qpn(), SendWr::new(0, op, own.sge(own.addr(), 16)));
        assert!(sent.is_ok(), "{sent:?}");
        let before = self.net.packets();
        self.net.run();
        assert!(self.net.packets() > before, "nothing travelled");
        match &*place.to_vec() {
            [0x5a, ..] => true,
            [0, ..] => false,
            other => panic!("{other:?}"),
        }
    }
}

fn part(buf: &StaticBuf, from: u64, len: u64) -> MemSlice {
    buf.slice().sub(from, len).unwrap()
}

/// Has every chunk land at one place.
struct At(MemSlice);

impl Sink for At {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(Some(self.0))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        Ok(())
    }
}

/// A card checks the registered region, not the receive in it, and keys do not end with the receive.
#[test]
fn a_key_opens_all_of_its_region_and_not_a_byte_more() {
    for (at, inside) in
        [(PAGE, true), (2 * PAGE, true), (3 * PAGE - 16, true), (PAGE - 1, false), (3 * PAGE - 15, false)]
    {
        let mut attack = Attack::new();
        let buf = StaticBuf::new(4 * PAGE as usize);
        let held = attack.domain.hold(part(&buf, PAGE, 2 * PAGE), true).unwrap();
        attack.victim.granted(7, part(&buf, PAGE, 100));
        let keys = attack.keys(part(&buf, PAGE, 100));
        assert_eq!(keys.len(), 1);
        assert_eq!(attack.lands(&keys[0], part(&buf, at, 16)), inside, "at {at}");
        drop(held);
    }
}

/// Something that makes a key, and what is to be kept meanwhile.
type Grant = fn(&mut Attack, &StaticBuf) -> Option<Hold<SoftNic>>;

#[test]
fn a_key_opens_nothing_once_its_memory_is_taken_back_although_the_rail_is_idle() {
    let ways: [(&str, Grant); 4] = [
        ("a receive was granted", |attack, buf| {
            attack.victim.granted(7, buf.slice());
            None
        }),
        ("a chunk was told its place and never comes", |attack, buf| {
            let mut head = Head::new(Kind::Chunk);
            head.len.set(PAGE as u32);
            head.total.set(PAGE);
            assert!(attack.attacker.data(&head, attack.bytes.0.slice()).is_ok());
            attack.attacker.flush().unwrap();
            while attack.keys(buf.slice()).is_empty() {
                attack.victim.poll(&mut At(buf.slice())).unwrap();
                attack.victim.flush().unwrap();
            }
            None
        }),
        ("the memory was registered ahead", |attack, buf| {
            let held = attack.domain.hold(buf.slice(), true).unwrap();
            attack.victim.granted(7, part(buf, 100, 1000));
            Some(held)
        }),
        ("a larger region took its place", |attack, buf| {
            attack.victim.granted(7, part(buf, 0, 100));
            attack.victim.granted(8, buf.slice());
            None
        }),
    ];
    for (what, grant) in ways {
        let mut attack = Attack::new();
        let (buf, other) = (StaticBuf::new(PAGE as usize), StaticBuf::new(PAGE as usize));
        let _stays = attack.domain.hold(other.slice(), true).unwrap();
        let held = grant(&mut attack, &buf);
        let known = attack.keys(part(&buf, 0, 100));
        let key = known.iter().min_by_key(|keys| keys.len()).unwrap();
        assert!(attack.lands(key, buf.slice()), "{what}");
        match held {
            Some(held) => drop(held),
            None => attack.domain.invalidate(part(&buf, 10, 1)),
        }
        assert_eq!(attack.keys(part(&buf, 0, 100)), [], "{what}");
        assert_eq!(attack.keys(other.slice()).len(), 1, "{what}: what was not taken back stays");
        assert!(!attack.lands(key, buf.slice()), "{what}");
    }
}

#[test]
fn memory_registered_twice_is_open_until_the_last_registration_ends() {
    let mut attack = Attack::new();
    let buf = StaticBuf::new(PAGE as usize);
    let [one, two] = [(); 2].map(|()| attack.domain.hold(buf.slice(), true).unwrap());
    let key = attack.keys(buf.slice())[0];
    attack.victim.granted(7, buf.slice());
    drop(one);
    attack.domain.invalidate(buf.slice());
    assert_eq!(attack.keys(buf.slice()), [key], "the other holder has receives there");
    assert!(attack.lands(&key, buf.slice()));
    drop(two);
    assert!(!attack.lands(&key, buf.slice()));
}

#[test]
fn a_registration_inside_another_does_not_keep_that_open() {
    let mut attack = Attack::new();
    let buf = StaticBuf::new(2 * PAGE as usize);
    let wide = attack.domain.hold(buf.slice(), true).unwrap();
    let key = attack.keys(buf.slice())[0];
    let _narrow = attack.domain.hold(part(&buf, 0, PAGE), true).unwrap();
    drop(wide);
    let registered = attack.domain.registrations();
    attack.victim.granted(7, part(&buf, 100, 100));
    assert_eq!(attack.domain.registrations(), registered, "the narrow one is found");
    assert_eq!(attack.keys(part(&buf, 0, PAGE)).len(), 1);
    assert!(!attack.lands(&key, part(&buf, 0, 16)));
}

#[test]
fn a_rail_of_another_protection_domain_reaches_nothing_whatever_key_it_uses() {
    let attack = Attack::over(|domain| domain.isolated().unwrap());
    let buf = StaticBuf::new(PAGE as usize);
    let _held = attack.domain.hold(buf.slice(), true).unwrap();
    assert!(!attack.lands(&attack.keys(buf.slice())[0], buf.slice()));
}
