use super::*;
use crate::login::secret::{MAC_LEN, mac};
use crate::login::wire::*;
use proptest::prelude::*;

fn silent(mut s: Login, bytes: &[u8]) -> LoginError {
    s.feed(bytes);
    assert_eq!(s.output(), b"", "an unauthenticated client gets an answer");
    match s.poll(T0) {
        Progress::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Every bit of every message: the receiver of the changed one never logs in.
#[test]
fn one_flipped_bit_fails_the_login() {
    for g in all_guards() {
        let params = || guarded(g.clone(), g.clone());
        let lens = messages(params()).map(|m| m.len());
        for (turn, len) in lens.into_iter().enumerate() {
            for bit in 0..len * 8 {
                let (c, s) = run(client(params().0), server(params().1), &mut |at, bytes| {
                    if at == turn {
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                });
                let (receiver, other) = if turn % 2 == 0 { (s, c) } else { (c, s) };
                assert!(receiver.is_err(), "message {turn}, bit {bit}: {receiver:?}");
                assert!(other.is_err() || turn == 3, "message {turn}, bit {bit}: the sender is done");
            }
        }
    }
}

#[test]
fn truncated_messages_end_at_the_deadline() {
    for g in all_guards() {
        let params = || guarded(g.clone(), g.clone());
        let lens = messages(params()).map(|m| m.len());
        for (turn, len) in lens.into_iter().enumerate() {
            for keep in 0..len {
                let cut = &mut |at, bytes: &mut Vec<u8>| {
                    if at == turn {
                        bytes.truncate(keep);
                    }
                };
                let (c, s) = run(client(params().0), server(params().1), cut);
                let receiver = if turn % 2 == 0 { s } else { c };
                assert!(matches!(receiver, Err(LoginError::Deadline { .. })), "message {turn} cut to {keep}");
            }
        }
    }
}

#[test]
fn a_wrong_token_gets_no_byte() {
    let mut wrong = client_params();
    wrong.token = Token::new(*b"another 16 bytes");
    let hello = drain(&mut client(wrong));
    assert_eq!(silent(server(server_params()), &hello), LoginError::Code { message: "hello" });
}

#[test]
fn strangers_get_no_byte_and_few_of_theirs_are_read() {
    for bytes in [b"GET / HTTP/1.1\r\n".as_slice(), b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-", b"LSx"] {
        assert_eq!(silent(server(server_params()), bytes), LoginError::Stranger);
    }
    let mut s = server(server_params());
    let mut flood = HELLO_MAGIC.to_vec();
    flood.resize(1 << 20, 0x55);
    assert_eq!(s.feed(&flood), HELLO_LEN);
    assert_eq!(s.wants(), 0);
    assert!(s.inbox.capacity() <= 2 * HELLO_LEN);
    assert_eq!(s.feed(&flood), 0);
}

#[test]
fn another_listener_is_named() {
    let mut other = client_params();
    other.listen_id = 5;
    let hello = drain(&mut client(other));
    assert_eq!(silent(server(server_params()), &hello), LoginError::Listener { asked: 5, ours: LISTEN });
}

#[test]
fn a_hello_reflected_to_its_sender_fails() {
    for g in all_guards() {
        let (params, _) = guarded(g.clone(), g);
        let mut c = client(params);
        let hello = drain(&mut c);
        c.feed(&hello);
        assert!(matches!(c.poll(T0), Progress::Failed(LoginError::Malformed { message: "reply", .. })));
    }
}

/// The same with the magic mended, so that only the codes stand between the roles.
#[test]
fn swapped_roles_fail_by_their_codes_too() {
    let [hello, reply, confirm, finish] = messages((client_params(), server_params()));
    let mend = |mut bytes: Vec<u8>, magic: [u8; 4]| {
        bytes[..4].copy_from_slice(&magic);
        bytes
    };
    let mut c = client(client_params());
    drain(&mut c);
    c.feed(&mend(hello, REPLY_MAGIC));
    assert!(matches!(c.poll(T0), Progress::Failed(LoginError::Code { message: "reply" })));

    let mut c = client(client_params());
    drain(&mut c);
    c.feed(&reply);
    assert_eq!(drain(&mut c), confirm);
    c.feed(&mend(confirm, FINISH_MAGIC));
    assert!(matches!(c.poll(T0), Progress::Failed(LoginError::Code { message: "finish" })));

    let mut s = server(server_params());
    s.feed(&drain(&mut client(client_params())));
    drain(&mut s);
    s.feed(&mend(finish, CONFIRM_MAGIC));
    assert!(matches!(s.poll(T0), Progress::Failed(LoginError::Code { message: "confirm" })));

    let mut hello = drain(&mut client(client_params()));
    hello[8] = 2;
    assert_eq!(silent(server(server_params()), &hello), LoginError::Stranger);
}

/// A recorded client against a server with a new nonce: the hello is genuine, the confirm is stale.
#[test]
fn a_replayed_client_fails() {
    for g in all_guards() {
        let [hello, _, confirm, _] = messages(guarded(g.clone(), g.clone()));
        let mut s = Login::server(guarded(g.clone(), g).1, seed(100), T0).unwrap();
        assert_eq!(s.standing(), Standing::Silent);
        s.feed(&hello);
        assert_eq!(s.standing(), Standing::Hello);
        drain(&mut s);
        s.feed(&confirm);
        assert!(matches!(s.poll(T0), Progress::Failed(LoginError::Code { message: "confirm" })));
        assert_eq!(s.standing(), Standing::Hello, "a replay proves nothing");
    }
}

#[test]
fn a_replayed_server_fails() {
    for g in all_guards() {
        let [_, reply, _, finish] = messages(guarded(g.clone(), g.clone()));
        let mut c = Login::client(guarded(g.clone(), g).0, seed(2), T0).unwrap();
        drain(&mut c);
        c.feed(&reply);
        c.feed(&finish);
        assert!(matches!(c.poll(T0), Progress::Failed(LoginError::Code { message: "reply" })));
        assert_eq!(c.output(), b"");
    }
}

#[test]
fn a_stream_logs_in_once() {
    let table: Arc<LoginTable> = Arc::default();
    let params = || {
        let mut params = server_params();
        params.table = Arc::clone(&table);
        params
    };
    let used = LoginError::Used { conn_id: CONN, stream: STREAM };

    // Two at the same time: both hellos are welcome, the second confirm is not.
    let (mut c1, mut c2) = (client(client_params()), Login::client(client_params(), seed(2), T0).unwrap());
    let (mut s1, mut s2) = (server(params()), server(params()));
    for (c, s) in [(&mut c1, &mut s1), (&mut c2, &mut s2)] {
        s.feed(&drain(c));
        c.feed(&drain(s));
    }
    s1.feed(&drain(&mut c1));
    drain(&mut s1);
    assert!(matches!(s1.poll(T0), Progress::Done(_)));
    s2.feed(&drain(&mut c2));
    assert!(matches!(s2.poll(T0), Progress::Failed(error) if error == used));

    // And one later: silence.
    assert_eq!(silent(server(params()), &drain(&mut client(client_params()))), used);

    // Another stream of the connection is another matter.
    let mut next = client_params();
    next.stream += 1;
    let (c, s) = run(client(next), server(params()), &mut |_, _| ());
    c.unwrap();
    s.unwrap();
}

#[test]
fn psk_mismatches_are_refused_on_both_sides() {
    let (c, s) = run_params(guarded(guard(7, false), Guard::Token));
    assert_eq!((c.unwrap_err(), s.unwrap_err()), (LoginError::PskMissingThere, LoginError::PskMissingHere));
    let (c, s) = run_params(guarded(Guard::Token, guard(7, false)));
    assert_eq!((c.unwrap_err(), s.unwrap_err()), (LoginError::PskMissingHere, LoginError::PskMissingThere));
    for encrypt in [false, true] {
        let (c, s) = run_params(guarded(guard(7, encrypt), guard(8, encrypt)));
        assert_eq!(s.unwrap_err(), LoginError::PskDiffers);
        assert_eq!(c.unwrap_err(), LoginError::PskDiffers);
    }
}

/// One who knows the token but not the cluster key cannot talk either side down to less.
#[test]
fn the_token_alone_cannot_strip_the_key_or_the_encryption() {
    let reseal = |bytes: &mut Vec<u8>, label: &str, before: &[u8]| {
        let at = bytes.len() - MAC_LEN;
        let code = mac(token().expose(), label, &[before, &bytes[..at]]);
        bytes[at..].copy_from_slice(&code);
    };
    // Take the wish for encryption out of the hello and of what the client sees.
    let (c, s) = guarded(guard(7, true), guard(7, false));
    let (mut c, mut s) = (client(c), server(s));
    let genuine = drain(&mut c);
    let mut hello = genuine.clone();
    hello[9] &= !FLAG_ENCRYPT;
    reseal(&mut hello, LABEL_HELLO, &[]);
    s.feed(&hello);
    let mut reply = drain(&mut s);
    assert_eq!(reply[5], FLAG_PSK);
    reseal(&mut reply, LABEL_REPLY, &genuine);
    c.feed(&reply);
    assert!(matches!(c.poll(T0), Progress::Failed(LoginError::Malformed { message: "reply", .. })));

    // Put it back in for the client: the transcripts differ, and Noise's prologue with them.
    let (params, _) = guarded(guard(7, true), guard(7, false));
    let mut c = client(params);
    drain(&mut c);
    let plain = reply.clone();
    reply[5] |= FLAG_ENCRYPT;
    reseal(&mut reply, LABEL_REPLY, &genuine);
    c.feed(&reply);
    let mut confirm = drain(&mut c);
    let mut theirs = plain;
    reseal(&mut theirs, LABEL_REPLY, &hello);
    reseal(&mut confirm, LABEL_CONFIRM, &[hello, theirs].concat());
    s.feed(&confirm);
    drain(&mut s);
    assert!(matches!(s.poll(T0), Progress::Failed(LoginError::PskDiffers)));
}

/// A server that holds the token but not the key, and says whatever it likes.
#[test]
fn a_forged_welcome_is_not_believed() {
    let [_, welcome, ..] = messages((client_params(), server_params()));
    for (g, flags) in [
        (guard(7, false), 0),
        (guard(7, false), FLAG_ENCRYPT),
        (guard(7, true), FLAG_PSK),
        (Guard::Token, FLAG_PSK),
        (Guard::Token, FLAG_ENCRYPT),
        (Guard::Token, FLAG_KEYS),
        (guard(7, false), FLAG_KEYS),
        (keys(1, Admit::Anyone), 0),
        (keys(1, Admit::Anyone), FLAG_PSK),
        (keys(1, Admit::Anyone), FLAG_KEYS | FLAG_PSK),
    ] {
        let mut params = client_params();
        params.guard = g;
        let mut c = client(params);
        let hello = drain(&mut c);
        let mut reply = welcome.clone();
        reply[5] = flags;
        let code = mac(token().expose(), LABEL_REPLY, &[&hello, &reply[..48]]);
        reply[48..].copy_from_slice(&code);
        c.feed(&reply);
        assert_eq!(c.output(), b"");
        let Progress::Failed(error) = c.poll(T0) else { panic!("believed {flags:#x}") };
        assert!(matches!(error, LoginError::Malformed { message: "reply", .. }));
    }

    // One with a key of its own gets as far as Noise.
    let (c, s) = run_params(guarded(guard(7, false), guard(9, false)));
    assert!(c.is_err() && s.is_err());
}

/// A version that was not in the hello, or not the newest common one.
#[test]
fn a_version_out_of_the_blue_is_not_believed() {
    let [hello, welcome, ..] = messages((client_params(), server_params()));
    for (version, min, max) in [(3, 2, 2), (3, 3, 3), (1, 1, 1), (0, 2, 2), (2, 3, 3), (2, 3, 2)] {
        let mut reply = welcome.clone();
        for (at, value) in [(6, version), (8, min), (10, max)] {
            reply[at..at + 2].copy_from_slice(&u16::to_le_bytes(value));
        }
        let code = mac(token().expose(), LABEL_REPLY, &[&hello, &reply[..48]]);
        reply[48..].copy_from_slice(&code);
        let mut c = client(client_params());
        drain(&mut c);
        c.feed(&reply);
        assert!(matches!(c.poll(T0), Progress::Failed(LoginError::Malformed { message: "reply", .. })));
    }
}

#[test]
fn oversized_bodies_are_refused_from_their_lead() {
    for g in all_guards() {
        let extra = match g {
            Guard::Token => 0,
            Guard::Psk { .. } => 48,
            Guard::Keys { .. } => 96,
        };
        let len = (BLOB_MAX + extra + 1) as u16;
        let lie = &mut |turn, bytes: &mut Vec<u8>| {
            if turn == 2 {
                bytes[4..6].copy_from_slice(&len.to_le_bytes());
            }
        };
        let (_, s) = run(client(guarded(g.clone(), g.clone()).0), server(guarded(g.clone(), g.clone()).1), lie);
        assert_eq!(s.unwrap_err(), LoginError::Blob { whose: "the peer's", len: BLOB_MAX + 1 });
        if extra > 0 {
            let short = &mut |turn, bytes: &mut Vec<u8>| {
                if turn == 2 {
                    bytes[4..6].copy_from_slice(&47u16.to_le_bytes());
                }
            };
            let (_, s) = run(client(guarded(g.clone(), g.clone()).0), server(guarded(g.clone(), g).1), short);
            assert_eq!(s.unwrap_err(), LoginError::Malformed { message: "confirm", why: "is too short" });
        }
    }
}

#[test]
fn the_deadline_cuts_a_trickle() {
    let hello = drain(&mut client(client_params()));
    let mut s = server(server_params());
    for (i, byte) in hello.iter().enumerate() {
        let now = T0 + Duration::from_millis(100) * i as u32;
        let taken = s.feed(&[*byte]);
        assert_eq!(taken, usize::from(now <= T0 + LOGIN_DEADLINE));
        assert_eq!(matches!(s.poll(now), Progress::Pending), now < T0 + LOGIN_DEADLINE);
    }
    assert_eq!(s.output(), b"");
    let want = LoginError::Deadline { allowed: LOGIN_DEADLINE, waiting: "the hello" };
    assert!(matches!(s.poll(T0 + Duration::from_secs(9)), Progress::Failed(error) if error == want));
    assert_eq!(s.deadline(), T0 + LOGIN_DEADLINE);
}

#[test]
fn a_changed_refusal_of_the_key_is_not_believed() {
    let refuse = |change: &mut dyn FnMut(&mut Vec<u8>)| {
        let (c, s) = guarded(guard(7, false), guard(8, false));
        run(client(c), server(s), &mut |turn, bytes| {
            if turn == 3 {
                change(bytes);
            }
        })
        .0
        .unwrap_err()
    };
    let mut len = 0;
    assert_eq!(refuse(&mut |bytes| len = bytes.len()), LoginError::PskDiffers);
    for bit in 0..len * 8 {
        let error = refuse(&mut |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        assert_ne!(error, LoginError::PskDiffers, "bit {bit}");
    }
}

#[test]
fn the_deadline_also_cuts_a_peer_that_takes_no_bytes() {
    let [hello, _, confirm, _] = messages((client_params(), server_params()));
    let mut s = server(server_params());
    s.feed(&hello);
    s.feed(&confirm);
    let Progress::Failed(LoginError::Deadline { waiting, .. }) = s.poll(T0 + LOGIN_DEADLINE) else { panic!() };
    assert_eq!(waiting, "the peer to take our bytes");

    // A session that is complete but not yet fetched stays one.
    let (mut c, mut s) = (client(client_params()), server(server_params()));
    for _ in 0..2 {
        s.feed(&drain(&mut c));
        c.feed(&drain(&mut s));
    }
    assert!(matches!(c.poll(T0 + 2 * LOGIN_DEADLINE), Progress::Done(_)));
}

#[test]
fn an_early_close_says_what_was_awaited() {
    let mut c = client(client_params());
    drain(&mut c);
    c.closed();
    let Progress::Failed(error) = c.poll(T0) else { panic!() };
    assert!(error.to_string().starts_with("LS0219") && error.to_string().contains("handle"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn servers_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..3000), cut in 1..200usize) {
        for prefix in [&[][..], &HELLO_MAGIC] {
            let mut s = server(server_params());
            for part in [prefix, &bytes].concat().chunks(cut) {
                s.feed(part);
            }
            prop_assert_eq!(s.output(), b"");
            prop_assert!(!matches!(s.poll(T0), Progress::Done(_)));
        }
    }

    #[test]
    fn servers_are_total_behind_a_good_hello(bytes in proptest::collection::vec(any::<u8>(), 0..3000), len in 0..1200u16, which in 0..5usize) {
        let g = all_guards()[which].clone();
        let (c, s) = guarded(g.clone(), g);
        let mut s = server(s);
        s.feed(&drain(&mut client(c)));
        drain(&mut s);
        s.feed(&[&CONFIRM_MAGIC, &len.to_le_bytes()[..], &[0, 0], &bytes].concat());
        prop_assert_eq!(s.output(), b"");
        prop_assert!(!matches!(s.poll(T0), Progress::Done(_)));
    }

    #[test]
    fn clients_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..3000), good_reply: bool) {
        let [_, reply, ..] = messages((client_params(), server_params()));
        let mut c = client(client_params());
        drain(&mut c);
        let start: &[u8] = if good_reply { &reply } else { &REPLY_MAGIC };
        c.feed(start);
        drain(&mut c);
        c.feed(&[if good_reply { &FINISH_MAGIC[..] } else { &[] }, &bytes].concat());
        prop_assert_eq!(c.output(), b"");
        prop_assert!(!matches!(c.poll(T0), Progress::Done(_)));
    }
}
