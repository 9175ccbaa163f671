//! The login, both sides. The first byte chooses the scene:
//!
//! - even: arbitrary bytes into a server and into a client, in pieces of arbitrary size;
//! - odd: a whole login with arbitrary damage on the way. Without damage it succeeds on both sides with one key; a
//!   server never succeeds on bytes that its client did not send.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use linkspan_proto::login::{
    Admit, BLOB_MAX, ClientParams, Guard, KeyPair, Login, LoginTable, Progress, Psk, Secret, Seed, ServerParams,
    Session, Token,
};

const NOW: Duration = Duration::from_secs(1);

fuzz_target!(|bytes: &[u8]| {
    let Some((scene, rest)) = bytes.split_first() else { return };
    let (mut client, mut server) = sides(scene >> 1);
    if scene & 1 == 0 {
        pour(&mut server, rest);
        pour(&mut client, rest);
    } else {
        damaged(&mut client, &mut server, rest);
    }
});

/// Two sides that know each other; the bits choose the guard of each.
fn sides(choice: u8) -> (Login, Login) {
    let guard = |bits: u8| match bits & 3 {
        0 => Guard::Token,
        1 => Guard::Keys { own: KeyPair::new(Secret::new([9; 32])), admit: Admit::Anyone, encrypt: false },
        bits => Guard::Psk { psk: Psk::new([9; 32]), encrypt: bits == 3 },
    };
    let mut client = ClientParams::new(7, Token::new([3; 16]), 11, 2);
    client.guard = guard(choice);
    client.blob = vec![5; 40];
    let mut server = ServerParams::new(7, Token::new([3; 16]), Arc::new(LoginTable::new(16)));
    server.guard = guard(if choice & 16 == 0 { choice } else { choice >> 2 });
    server.blob = Some(vec![6; 50]);
    let seed = |first: u8| Seed::from_fn(move |out| out.iter_mut().zip(first..).for_each(|(b, n)| *b = n));
    (
        Login::client(client, seed(1), NOW).expect("fixed values"),
        Login::server(server, seed(101), NOW).expect("fixed values"),
    )
}

fn pour(login: &mut Login, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((size, tail)) = rest.split_first() {
        let piece = &tail[..tail.len().min(usize::from(*size) + 1)];
        let wanted = login.wants();
        let used = login.feed(piece);
        assert!(used <= piece.len());
        assert!(wanted <= BLOB_MAX + 1024, "wants {wanted} bytes of an unauthenticated client");
        let ready = login.output().len();
        login.sent(ready);
        match login.poll(NOW) {
            Progress::Done(_) => panic!("logged in on bytes out of nowhere"),
            Progress::Failed(_) => return,
            _ => {}
        }
        rest = &tail[piece.len()..];
    }
    let ready = login.output().len();
    login.sent(ready);
    login.closed();
    assert!(matches!(login.poll(NOW), Progress::Failed(_)));
}

/// Carries bytes both ways; `script` has pairs (position, what to XOR) for the bytes in the order in which they pass.
fn damaged(client: &mut Login, server: &mut Login, script: &[u8]) {
    let mut damage = script
        .chunks_exact(3)
        .map(|c| (usize::from(u16::from_le_bytes([c[0], c[1]])) % 1024, c[2]))
        .collect::<Vec<_>>();
    damage.retain(|(_, xor)| *xor != 0);
    let mut passed = 0usize;
    let mut touched = [false; 2];
    let (mut done_client, mut done_server): (Option<Box<Session>>, Option<Box<Session>>) = (None, None);
    for _ in 0..64 {
        for to_server in [true, false] {
            let (from, to) = if to_server { (&mut *client, &mut *server) } else { (&mut *server, &mut *client) };
            let mut bytes = from.output().to_vec();
            from.sent(bytes.len());
            let before = bytes.clone();
            for (at, byte) in bytes.iter_mut().enumerate() {
                for (_, xor) in damage.iter().filter(|(position, _)| *position == passed + at) {
                    *byte ^= xor;
                }
            }
            passed += bytes.len();
            let used = to.feed(&bytes);
            // Only bytes that were taken count: a side that has ended reads no more.
            touched[usize::from(!to_server)] |= bytes[..used] != before[..used];
        }
        if let Progress::Done(session) = client.poll(NOW) {
            done_client = Some(session);
        }
        if let Progress::Done(session) = server.poll(NOW) {
            done_server = Some(session);
        }
    }
    assert!(done_server.is_none() || !touched[0], "the server logged in a client whose bytes were changed");
    assert!(done_client.is_none() || !touched[1], "the client logged in on a server whose bytes were changed");
    if let (Some(client), Some(server)) = (&done_client, &done_server) {
        assert!(client.session_key == server.session_key, "two ends, two keys");
        assert_eq!((client.conn_id, client.stream, client.version), (server.conn_id, server.stream, server.version));
    }
}
