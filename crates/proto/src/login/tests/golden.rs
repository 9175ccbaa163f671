//! Bytes fixed forever (hello, reply) or for version 2 (confirm, finish). The codes were computed from the layout in
//! `docs/PROTOCOL.md` by another HMAC (Python's `hmac`), the Noise messages by snow's own resolver.

use super::*;
use crate::login::noise::Noise;
use crate::login::secret::{mac, mac_is};

#[test]
fn the_four_messages() {
    let [hello, reply, confirm, finish] = messages((client_params(), server_params()));
    assert_eq!(
        hex(&hello),
        concat!(
            "4c5368c6",                                                         // magic
            "0200",                                                             // oldest version
            "0200",                                                             // newest version
            "01",                                                               // role
            "00",                                                               // flags
            "0300",                                                             // stream
            "00000000",                                                         // reserved
            "4444333322221111",                                                 // listen id
            "ddddccccbbbbaaaa",                                                 // connection id
            "01167f8ccd126b28d94e970425ca0320b186af7c7d829b1889bec7f4d53a3310", // nonce
            "630ee67d70572dcb5ed4c8373965d635f720a1cc5cc5daffec5404f1cf59c338", // code
        )
    );
    assert_eq!(
        hex(&reply),
        concat!(
            "4c5372c6",                                                         // magic
            "01",                                                               // welcome
            "00",                                                               // flags
            "0200",                                                             // version
            "0200",                                                             // oldest version
            "0200",                                                             // newest version
            "0000",                                                             // reason
            "0000",                                                             // reserved
            "630011660f5cdd62fbf8e99e27d4351a93f0c1d63f4c8dd22be8990e57c4e58a", // nonce
            "7933a262508e51e8ae3f4f86fe3258de8896f7af5b68a0a5cf86dd84c6d6f332", // code
        )
    );
    assert_eq!(
        hex(&confirm),
        concat!(
            "4c5363c6",                                                         // magic
            "0b00",                                                             // length
            "0000",                                                             // reserved
            "636c69656e7420626c6f62",                                           // blob
            "c1fca97bd4ce4c697c2bc6e51f3ee546d5cf73d6c333ce2ea09880e99edd91a4", // code
        )
    );
    assert_eq!(
        hex(&finish),
        concat!(
            "4c5366c6",                                                         // magic
            "0b00",                                                             // length
            "0000",                                                             // reserved
            "73657276657220626c6f62",                                           // blob
            "33948d3033fd970bd64b27b7a15727b644cfcd9b8ab1bd3f267d8273d70fe20e", // code
        )
    );
    let (c, _) = run_params((client_params(), server_params()));
    assert_eq!(
        hex(c.unwrap().session_key.expose()),
        "721d53af81afbae4147cc2bf13e41099aac8b2aa3622d99af756eb2db77616d1"
    );
}

#[test]
fn noise_messages_and_keys() {
    let psk = Psk::new([0x33; 32]);
    let mut i = Noise::psk(true, &psk, b"prologue", Secret::new([0x11; 32])).unwrap();
    let mut r = Noise::psk(false, &psk, b"prologue", Secret::new([0x22; 32])).unwrap();
    let first = i.write(b"client blob").unwrap();
    assert_eq!(
        hex(&first),
        "7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13ab908f0d1ef7b1b6057cd5ea5a61c91dd83b001bb2c4be7eaf8c04"
    );
    assert_eq!(r.read(&first).unwrap(), b"client blob");
    let second = r.write(b"server blob").unwrap();
    assert_eq!(
        hex(&second),
        "0faa684ed28867b97f4a6a2dee5df8ce974e76b7018e3f22a1c4cf2678570f205e9f18734c131dacb53515b6f5bf5421b084b6672dd5f01aa6a35a"
    );
    assert_eq!(i.read(&second).unwrap(), b"server blob");
    for noise in [i, r] {
        let (up, down) = noise.split();
        assert_eq!(hex(up.expose()), "cc19e004056755d294eb4b2399b3c328e1e50b2d9812e1c7bceaeeabc204f6b7");
        assert_eq!(hex(down.expose()), "aa1797ebb4ca0d1ccdbeae9c3c102172a53c4b7c1e775e8785505a75ba30b763");
    }
}

#[test]
fn a_refusal_of_the_key() {
    let (c, s) = guarded(guard(7, false), guard(8, false));
    let mut said = [const { Vec::new() }; 4];
    let (c, _) = run(client(c), server(s), &mut |turn, bytes| said[turn].clone_from(bytes));
    assert_eq!(c.unwrap_err(), LoginError::PskDiffers);
    let (body, code) = said[3].split_at(10);
    // Magic, length 2, reserved, reason 4.
    assert_eq!(hex(body), "4c536ec6020000000400");
    let before = said[..3].concat();
    assert!(mac_is(client_params().token.expose(), "linkspan login 2 refusal", &[&before, body], code));
}

#[test]
fn points_of_low_order_are_refused() {
    use crate::login::noise::X25519;
    use snow::types::Dh;
    let mut ours = X25519::default();
    ours.set(&[0x11; 32]);
    let mut one = [0; 32];
    one[0] = 1;
    for point in [[0; 32], one] {
        assert!(ours.dh(&point, &mut [0; 32]).is_err());
    }
    let mut nine = [0; 32];
    nine[0] = 9;
    let mut public = [0; 32];
    ours.dh(&nine, &mut public).unwrap();
    assert_eq!(public, ours.pubkey());
}

#[test]
fn keyed_hash() {
    // HMAC-SHA256 under "Jefe" of the label and a zero byte, by Python's hmac.
    let code = mac(b"Jefe", "what do ya want for nothing?", &[]);
    assert_eq!(hex(&code), "4fd2cd52032b7d4c8c0faac64edd70d083ded8a88aaf5bb3b60c8e40a83de008");
    assert!(mac_is(b"Jefe", "what do ya want for nothing?", &[], &code));
    assert!(!mac_is(b"Jefe", "what do ya want for nothing", &[b"?"], &code));
    assert!(!mac_is(b"Jefe", "what do ya want for nothing?", &[], &code[..31]));
    assert!(!mac_is(b"Jefe", "what do ya want for nothing?", &[], &[]));
}
