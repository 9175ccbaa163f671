//! Golden bytes by hand from the offsets that a C compiler gives for include/uapi/linux/ethtool.h (x86-64), and the refusals of
//! a card that has nothing of all this.
#![allow(clippy::unwrap_used)]

use super::*;

fn bytes(command: &Command) -> Vec<u8> {
    command.0.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

#[cfg(target_endian = "little")]
#[test]
fn a_rule_is_what_the_kernel_reads() {
    let four = bytes(&rule("10.0.0.1:258".parse().unwrap(), "10.0.0.2:5".parse().unwrap(), 3, 0x0a0b));
    let mut want = vec![0; 192];
    want[0] = 0x32; // cmd, ETHTOOL_SRXCLSRLINS
    want[16] = 1; // fs.flow_type, TCP_V4_FLOW
    want[20..24].copy_from_slice(&[10, 0, 0, 2]); // fs.h_u.tcp_ip4_spec.ip4src
    want[24..28].copy_from_slice(&[10, 0, 0, 1]); // ip4dst
    want[28..32].copy_from_slice(&[0, 5, 1, 2]); // psrc, pdst
    want[92..104].fill(0xff); // fs.m_u
    want[168] = 3; // fs.ring_cookie
    want[176..178].copy_from_slice(&[0x0b, 0x0a]); // fs.location
    assert_eq!(four, want);
    let six = bytes(&rule("[fe80::1]:258".parse().unwrap(), "[fe80::2]:5".parse().unwrap(), 0, ANYWHERE));
    let mut want = vec![0; 192];
    want[0] = 0x32;
    want[16] = 5;
    (want[20], want[21], want[35]) = (0xfe, 0x80, 2);
    (want[36], want[37], want[51]) = (0xfe, 0x80, 1);
    want[52..56].copy_from_slice(&[0, 5, 1, 2]);
    want[92..128].fill(0xff);
    want[176..180].fill(0xff);
    assert_eq!(six, want);
    // Streams of a socket of both kinds come as the kind they are.
    let mapped =
        bytes(&rule("[::ffff:10.0.0.1]:258".parse().unwrap(), "[::ffff:10.0.0.2]:5".parse().unwrap(), 3, 0x0a0b));
    assert_eq!(mapped, four);
}

#[test]
fn a_rule_is_taken_for_ours_by_its_stream_and_by_nothing_else() {
    for [local, peer, other] in
        [["10.0.0.1:258", "10.0.0.2:5", "10.0.0.2:6"], ["[fe80::1]:258", "[fe80::2]:5", "[fe80::3]:5"]]
    {
        let [local, peer, other] = [local, peer, other].map(|end| end.parse().unwrap());
        let ours = rule(local, peer, 3, 7);
        // As a driver may tell it: with bits beside the flow, another place, and masks in its own way.
        let mut told = rule(local, peer, 3, ANYWHERE);
        told.put(at::SPEC, &(ours.u32(at::SPEC) | 0x8000_0000).to_ne_bytes());
        told.put(at::MASK, &[0; 36]);
        assert!(is_same(&told, &ours));
        for foreign in [rule(local, other, 3, 7), rule(peer, local, 3, 7), Command::new(RXNFC, RULE_GET)] {
            assert!(!is_same(&foreign, &ours), "{foreign:?}");
        }
    }
    let four = rule("10.0.0.1:258".parse().unwrap(), "10.0.0.2:5".parse().unwrap(), 3, 7);
    let mut udp = rule("10.0.0.1:258".parse().unwrap(), "10.0.0.2:5".parse().unwrap(), 3, 7);
    udp.put(at::SPEC, &2u32.to_ne_bytes());
    assert!(!is_same(&udp, &four));
}

#[test]
fn loopback_has_no_rules_and_no_table() {
    let errors = [
        steerable("lo").err(),
        spread("lo").err(),
        set_spread("lo", &[0, 0]).err(),
        Rule::steer("lo", "127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap(), 0).err(),
        end_rule("lo", None, "127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()).err(),
        end_rule("lo", Some(7), "127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()).err(),
    ];
    for error in errors {
        let error = error.unwrap();
        // EPERM without the capability, else EOPNOTSUPP.
        assert!(matches!(error.errno(), Some(1 | 95)), "{error}");
        assert!(error.to_string().starts_with("LS1333"), "{error}");
    }
    assert!(!takes_rules("lo").unwrap());
    assert_eq!(spread("no-such-card").unwrap_err().errno(), Some(19));
    assert!(matches!(spread("a-name-of-16-byt"), Err(Error::System { .. })));
}
