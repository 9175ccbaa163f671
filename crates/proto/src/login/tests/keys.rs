//! Logins by key pairs.

use super::*;
use crate::login::noise::Noise;
use crate::login::secret::{MAC_LEN, mac};
use crate::login::wire::*;

/// The values are those of another implementation of Noise (Python's `noiseprotocol`), of hashlib and of base64.
#[test]
fn noise_messages_keys_and_fingerprints() {
    let (alice, bob) = (pair(0x44), pair(0x55));
    let (mut s, first) = Noise::keys_server(&alice, b"prologue", Secret::new([0x22; 32])).unwrap();
    assert_eq!(hex(&first), "0faa684ed28867b97f4a6a2dee5df8ce974e76b7018e3f22a1c4cf2678570f20");
    let mut c = Noise::keys_client(&bob, b"prologue", &first, Secret::new([0x11; 32])).unwrap();
    let second = c.write(b"client blob").unwrap();
    assert_eq!(
        hex(&second),
        "7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13c018668a50cfb6251d2d48e6e9ca1e19c2bd5a961eb2eefe9f796685b40b3ffaa82e66f6beb68ccd3927b68bf60fb0a7191b0a7b38751f54e0453f4ef2ecf170201cf74a2938b93507a221"
    );
    assert_eq!(s.read(&second).unwrap(), b"client blob");
    let third = s.write(b"server blob").unwrap();
    assert_eq!(
        hex(&third),
        "5afb88ecacba3a35dae51202f9613915791ddc0b58ca2cdd46457e855f209c3aa9c308d1a210076cf89c93839d12f03dc2288f1d461c301d96955ebc297562093a68ca1b55541b480dfc84"
    );
    assert_eq!(c.read(&third).unwrap(), b"server blob");
    assert_eq!((s.peer_key(), c.peer_key()), (Some(bob.public()), Some(alice.public())));
    for noise in [s, c] {
        let (up, down) = noise.split();
        assert_eq!(hex(up.expose()), "00299a7a4c300b06058fa37eddb9f5a9523c637127b186744c32f94df7529fd7");
        assert_eq!(hex(down.expose()), "90fb603bcaefd52ae3c50330e0e2ed3e82ceac90b3bbbab9eb99c3b00e493149");
    }
    assert_eq!(hex(alice.public().bytes()), "ff2ee45601ec1b67310c7790404585ae697331eee1c1f8cf2419731c1fff3e6b");
    assert_eq!(alice.public().fingerprint(), "BJZO-NFUO-F7JH-4EPA");
    assert_eq!(format!("{:?}", bob.public()), "32EW-SD57-KL5V-HYXJ");
    for (a, b) in [(&alice, &bob), (&bob, &alice)] {
        assert_eq!(pair_fingerprint(&a.public(), &b.public()), "P3DR-YUEY-HXND-LTYL");
    }
}

#[test]
fn each_side_is_told_whose_key_the_other_has() {
    let (c, s) = run_params(guarded(keys(1, Admit::Anyone), keys(2, only(&[1, 3]))));
    assert_eq!(c.unwrap().peer_key, Some(pair(2).public()));
    assert_eq!(s.unwrap().peer_key, Some(pair(1).public()));
    let (c, s) = run_params(guarded(guard(7, false), guard(7, false)));
    assert_eq!((c.unwrap().peer_key, s.unwrap().peer_key), (None, None));
}

#[test]
fn a_key_that_is_not_admitted_is_refused_and_both_sides_name_it() {
    let (ours, theirs) = (pair(1).public(), pair(2).public());
    let (c, s) = run_params(guarded(keys(1, Admit::Anyone), keys(2, only(&[3]))));
    assert_eq!(s.unwrap_err(), LoginError::KeyNotAdmittedHere { key: ours });
    assert_eq!(c.unwrap_err(), LoginError::KeyNotAdmittedThere { key: ours });
    // The client's own list: the server is done by then, and finds a closed stream.
    let (c, s) = run_params(guarded(keys(1, only(&[3])), keys(2, Admit::Anyone)));
    assert_eq!(c.unwrap_err(), LoginError::KeyNotAdmittedHere { key: theirs });
    assert!(s.is_ok());
}

/// The number of a connection is in clear in its hellos.
#[test]
fn a_stream_that_logged_in_by_one_key_is_not_used_up_for_another() {
    let table = Arc::new(LoginTable::default());
    let log_in = |key| {
        let (c, s) = guarded(keys(key, Admit::Anyone), keys(2, only(&[1, 3])));
        run_params((c, ServerParams { table: table.clone(), ..s })).1
    };
    assert!(log_in(1).is_ok());
    assert!(log_in(3).is_ok());
    assert_eq!(log_in(3).unwrap_err(), LoginError::Used { conn_id: CONN, stream: STREAM });
    assert_eq!(table.len(), 2);
}

#[test]
fn whoever_is_not_admitted_is_not_proven() {
    let (c, s) = guarded(keys(1, Admit::Anyone), keys(2, only(&[3])));
    let (mut c, mut s) = (client(c), server(s));
    for _ in 0..2 {
        s.feed(&drain(&mut c));
        c.feed(&drain(&mut s));
    }
    assert_eq!(s.standing(), Standing::Hello);
}

#[test]
fn a_login_by_keys_meets_no_other_method() {
    use LoginError::{KeysMissingHere, KeysMissingThere, PskMissingHere, PskMissingThere};
    let keyed = || keys(1, Admit::Anyone);
    for (client, server, at_client, at_server) in [
        (keyed(), Guard::Token, KeysMissingThere, KeysMissingHere),
        (Guard::Token, keyed(), KeysMissingHere, KeysMissingThere),
        (keyed(), guard(7, false), PskMissingHere, PskMissingThere),
        (guard(7, false), keyed(), KeysMissingHere, KeysMissingThere),
    ] {
        let (c, s) = run_params(guarded(client, server));
        let (c, s) = (c.unwrap_err(), s.unwrap_err());
        assert!(c.is_refusal() && s.is_refusal());
        assert_eq!((c, s), (at_client, at_server));
    }
}

/// One who holds the token but no key that is admitted: between the two, in both directions.
#[test]
fn the_token_alone_is_nobody_s_key() {
    // With a key of its own it is another peer.
    let (c, s) = run_params(guarded(keys(1, only(&[2])), keys(9, Admit::Anyone)));
    assert_eq!(c.unwrap_err(), LoginError::KeyNotAdmittedHere { key: pair(9).public() });
    assert!(s.is_ok());

    // What the client said to it proves nothing to the true server, whose ephemeral key is another.
    let (mut c, mut s) = (client(client_params_of(keys(1, only(&[2])))), server(server_params_of(keys(2, only(&[1])))));
    let mut between = Login::server(server_params_of(keys(9, Admit::Anyone)), seed(50), T0).unwrap();
    let hello = drain(&mut c);
    between.feed(&hello);
    s.feed(&hello);
    let reply = drain(&mut s);
    c.feed(&drain(&mut between));
    let mut confirm = drain(&mut c);
    reseal(&mut confirm, LABEL_CONFIRM, &[hello, reply].concat());
    s.feed(&confirm);
    assert_eq!(s.output(), b"", "it is told nothing");
    assert!(matches!(s.poll(T0), Progress::Failed(LoginError::KeyProof)));
}

#[test]
fn the_token_alone_cannot_strip_the_encryption() {
    let params = guarded(keys(1, only(&[2])), Guard::Keys { own: pair(2), admit: only(&[1]), encrypt: true });
    let (mut c, mut s) = (client(params.0), server(params.1));
    let hello = drain(&mut c);
    s.feed(&hello);
    let genuine = drain(&mut s);
    assert_eq!(genuine[5], FLAG_KEYS | FLAG_ENCRYPT);
    let mut reply = genuine.clone();
    reply[5] &= !FLAG_ENCRYPT;
    reseal(&mut reply, LABEL_REPLY, &hello);
    c.feed(&reply);
    let mut confirm = drain(&mut c);
    reseal(&mut confirm, LABEL_CONFIRM, &[hello, genuine].concat());
    s.feed(&confirm);
    assert!(matches!(s.poll(T0), Progress::Failed(LoginError::KeyProof)));
}

#[test]
fn a_point_of_low_order_for_a_key_ends_the_login() {
    for point in [0, 1] {
        let params = guarded(keys(1, Admit::Anyone), keys(2, Admit::Anyone));
        let (mut c, mut s) = (client(params.0), server(params.1));
        let hello = drain(&mut c);
        s.feed(&hello);
        let mut reply = drain(&mut s);
        reply[16..48].fill(0);
        reply[16] = point;
        reseal(&mut reply, LABEL_REPLY, &hello);
        c.feed(&reply);
        assert_eq!(c.output(), b"");
        assert!(matches!(c.poll(T0), Progress::Failed(LoginError::KeyProof)));
    }
}

fn client_params_of(guard: Guard) -> ClientParams {
    ClientParams { guard, ..client_params() }
}

fn server_params_of(guard: Guard) -> ServerParams {
    ServerParams { guard, ..server_params() }
}

fn reseal(bytes: &mut [u8], label: &str, before: &[u8]) {
    let at = bytes.len() - MAC_LEN;
    let code = mac(token().expose(), label, &[before, &bytes[..at]]);
    bytes[at..].copy_from_slice(&code);
}
