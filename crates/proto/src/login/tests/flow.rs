use super::*;

fn same_keys(c: &Session, s: &Session) {
    assert_eq!(c.session_key, s.session_key);
    assert_eq!((c.version, c.conn_id, c.stream, c.psk), (2, CONN, STREAM, s.psk));
    assert_eq!((s.version, s.conn_id, s.stream), (2, CONN, STREAM));
    assert_eq!(c.peer_blob, b"server blob");
    assert_eq!(s.peer_blob, b"client blob");
}

#[test]
fn every_guard_logs_in() {
    for g in all_guards() {
        let (c, s) = run_params(guarded(g.clone(), g.clone()));
        let (c, s) = (c.unwrap(), s.unwrap());
        same_keys(&c, &s);
        assert_eq!(c.psk, matches!(g, Guard::Psk { .. }));
        assert_eq!(c.peer_key.is_some(), matches!(g, Guard::Keys { .. }));
        let encrypts = matches!(g, Guard::Psk { encrypt: true, .. } | Guard::Keys { encrypt: true, .. });
        assert_eq!(c.ciphers.is_some(), encrypts);
        assert_eq!(s.ciphers.is_some(), c.ciphers.is_some());
    }
}

#[test]
fn either_sides_wish_encrypts() {
    for (a, b) in [(true, false), (false, true)] {
        for (c, s) in [
            guarded(guard(7, a), guard(7, b)),
            guarded(
                Guard::Keys { own: pair(1), admit: only(&[2]), encrypt: a },
                Guard::Keys { own: pair(2), admit: only(&[1]), encrypt: b },
            ),
        ] {
            let (c, s) = run_params((c, s));
            let (mut c_seal, mut c_open) = c.unwrap().ciphers.unwrap();
            let (mut s_seal, mut s_open) = s.unwrap().ciphers.unwrap();
            for (seal, open) in [(&mut c_seal, &mut s_open), (&mut s_seal, &mut c_open)] {
                let mut text = *b"between the two of us";
                let (head, tag) = seal.seal(&mut text).unwrap();
                assert_ne!(&text, b"between the two of us");
                assert_eq!(Opener::text_len(head), Ok(text.len()));
                open.open(&mut text, tag).unwrap();
                assert_eq!(&text, b"between the two of us");
            }
        }
    }
}

#[test]
fn keys_differ_by_stream_direction_and_guard() {
    let mut keys = Vec::new();
    for g in all_guards() {
        for stream in [0, 1] {
            let (mut c, s) = guarded(g.clone(), g.clone());
            c.stream = stream;
            keys.push(*run_params((c, s)).0.unwrap().session_key.expose());
        }
    }
    let fresh = run(Login::client(client_params(), seed(2), T0).unwrap(), server(server_params()), &mut |_, _| ());
    keys.push(*fresh.0.unwrap().session_key.expose());
    for (i, key) in keys.iter().enumerate() {
        assert!(!keys[..i].contains(key), "key {i} twice");
    }

    let (c, s) = guarded(guard(7, true), guard(7, true));
    let (mut up, _) = run_params((c, s)).0.unwrap().ciphers.unwrap();
    let (c, s) = guarded(guard(7, true), guard(7, true));
    let (mut down, _) = run_params((c, s)).1.unwrap().ciphers.unwrap();
    let (mut a, mut b) = ([0; 64], [0; 64]);
    up.seal(&mut a).unwrap();
    down.seal(&mut b).unwrap();
    assert_ne!(a, b, "both directions under one key and nonce");
}

/// Feeds a whole recorded direction in two parts, cut at every byte.
#[test]
fn the_stream_may_be_cut_anywhere() {
    for g in all_guards() {
        let params = || guarded(g.clone(), g.clone());
        let [hello, reply, confirm, finish] = messages(params());
        let (up, down) = ([hello, confirm].concat(), [reply, finish].concat());
        for cut in 0..=up.len() {
            let mut s = server(params().1);
            let mut sent = Vec::new();
            for part in [&up[..cut], &up[cut..]] {
                assert_eq!(s.feed(part), part.len());
                sent.extend(drain(&mut s));
            }
            assert_eq!(sent, down);
            assert!(matches!(s.poll(T0), Progress::Done(_)), "cut at {cut}");
        }
        for cut in 0..=down.len() {
            let mut c = client(params().0);
            let mut sent = drain(&mut c);
            for part in [&down[..cut], &down[cut..]] {
                assert_eq!(c.feed(part), part.len());
                sent.extend(drain(&mut c));
            }
            assert_eq!(sent, up);
            assert!(matches!(c.poll(T0), Progress::Done(_)), "cut at {cut}");
        }
    }
}

#[test]
fn bytes_one_by_one_and_wants_counts_them() {
    let [hello, _, confirm, _] = messages((client_params(), server_params()));
    let mut s = server(server_params());
    for byte in hello.iter().chain(&confirm) {
        assert!(s.wants() > 0);
        let before = s.wants();
        assert_eq!(s.feed(&[*byte]), 1);
        drain(&mut s);
        assert!(s.wants() < before || s.wants() >= 8 || s.wants() == 0);
    }
    assert_eq!(s.wants(), 0);
    assert!(matches!(s.poll(T0), Progress::Done(_)));
}

#[test]
fn what_follows_the_login_is_left_alone() {
    let [hello, reply, mut confirm, finish] = messages((client_params(), server_params()));
    let mut s = server(server_params());
    assert_eq!(s.feed(&hello), hello.len());
    let whole = confirm.len();
    confirm.extend(b"the first frame");
    assert_eq!(s.feed(&confirm), whole);

    let mut c = client(client_params());
    let mut down = [reply, finish].concat();
    let whole = down.len();
    down.extend(b"the first frame");
    assert_eq!(c.feed(&down), whole);
}

#[test]
fn done_waits_until_all_is_sent() {
    let [hello, reply, confirm, finish] = messages((client_params(), server_params()));
    let mut s = server(server_params());
    s.feed(&hello);
    s.feed(&confirm);
    for _ in 0..reply.len() + finish.len() {
        assert!(matches!(s.poll(T0), Progress::Pending));
        s.sent(1);
    }
    assert!(matches!(s.poll(T0), Progress::Done(_)));
    assert!(matches!(s.poll(T0), Progress::Failed(LoginError::Over(_))), "a session is given once");
}

#[test]
fn a_server_may_read_the_clients_capabilities_first() {
    for g in all_guards() {
        let (c, mut s) = guarded(g.clone(), g);
        s.blob = None;
        let (mut c, mut s) = (client(c), server(s));
        assert!(matches!(s.answer(b"too soon"), Err(LoginError::Over(_))));
        s.feed(&drain(&mut c));
        c.feed(&drain(&mut s));
        s.feed(&drain(&mut c));
        assert!(matches!(s.poll(T0), Progress::Asked));
        assert_eq!(s.wants(), 0);
        assert_eq!(s.feed(b"more"), 0);
        let mut answer = s.peer_blob().unwrap().to_vec();
        answer.extend_from_slice(b" seen");
        s.answer(&answer).unwrap();
        c.feed(&drain(&mut s));
        let Progress::Done(session) = c.poll(T0) else { panic!("not done") };
        assert_eq!(session.peer_blob, b"client blob seen");
        assert!(matches!(s.poll(T0), Progress::Done(_)));
        assert!(matches!(s.answer(b"twice"), Err(LoginError::Over(_))));
    }
}

#[test]
fn blobs_up_to_the_limit_travel_and_no_longer_ones() {
    for g in all_guards() {
        let (mut c, mut s) = guarded(g.clone(), g);
        c.blob = vec![1; BLOB_MAX];
        s.blob = Some(vec![2; BLOB_MAX]);
        let (cs, ss) = run_params((c.clone(), s.clone()));
        assert_eq!(cs.unwrap().peer_blob, vec![2; BLOB_MAX]);
        assert_eq!(ss.unwrap().peer_blob, vec![1; BLOB_MAX]);
        c.blob.push(1);
        s.blob = Some(vec![2; BLOB_MAX + 1]);
        let want = LoginError::Blob { whose: "our", len: BLOB_MAX + 1 };
        assert_eq!(Login::client(c, seed(1), T0).unwrap_err(), want);
        assert_eq!(Login::server(s, seed(1), T0).unwrap_err(), want);
    }
}

#[test]
fn operating_system_randomness_logs_in() {
    let c = Login::client(client_params(), Seed::random().unwrap(), T0).unwrap();
    let s = Login::server(server_params(), Seed::random().unwrap(), T0).unwrap();
    let (c, s) = run(c, s, &mut |_, _| ());
    same_keys(&c.unwrap(), &s.unwrap());
}
