//! Ciphers as a login hands them out, by a login inside this process.

use std::sync::Arc;
use std::time::Duration;

use linkspan_proto::login::{
    ClientParams, Guard, Login, LoginTable, Opener, Progress, Psk, Sealer, Seed, ServerParams, Session, Token,
};

fn session(login: &mut Login) -> Option<Box<Session>> {
    match login.poll(Duration::ZERO) {
        Progress::Done(session) => Some(session),
        Progress::Failed(error) => panic!("{error}"),
        _ => None,
    }
}

/// The ciphers of both ends of a stream.
pub(crate) fn ciphers() -> ((Sealer, Opener), (Sealer, Opener)) {
    let guard = Guard::Psk { psk: Psk::new(*b"thirty-two bytes that all share."), encrypt: true };
    let token = Token::new(*b"sixteen of these");
    let client = ClientParams { guard: guard.clone(), ..ClientParams::new(1, token.clone(), 2, 0) };
    let server = ServerParams { guard, ..ServerParams::new(1, token, Arc::new(LoginTable::new(16))) };
    let seed = || Seed::random().expect("randomness");
    let mut client = Login::client(client, seed(), Duration::ZERO).expect("a client");
    let mut server = Login::server(server, seed(), Duration::ZERO).expect("a server");
    let (mut a, mut b) = (None, None);
    while a.is_none() || b.is_none() {
        for (from, to) in [(true, false), (false, true)] {
            let bytes = if from { client.output() } else { server.output() }.to_vec();
            if from { &mut client } else { &mut server }.sent(bytes.len());
            if to { &mut client } else { &mut server }.feed(&bytes, Duration::ZERO);
        }
        a = a.or_else(|| session(&mut client));
        b = b.or_else(|| session(&mut server));
    }
    let ends = a.and_then(|a| a.ciphers).zip(b.and_then(|b| b.ciphers));
    ends.expect("ciphers for both")
}
