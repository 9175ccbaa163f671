//! Two logins on a simulated wire.

mod flow;
mod golden;
mod hostile;
mod keys;
mod noise;
mod secrecy;
mod skew;
mod tables;

use super::*;
use std::sync::Arc;

const T0: Duration = Duration::from_secs(1000);
const LISTEN: u64 = 0x1111_2222_3333_4444;
const CONN: u64 = 0xAAAA_BBBB_CCCC_DDDD;
const STREAM: u16 = 3;

fn token() -> Token {
    Token::new(*b"sixteen byte key")
}

fn psk(byte: u8) -> Psk {
    let mut key = [byte; 32];
    key[0] = 0x5A;
    Psk::new(key)
}

fn guard(key: u8, encrypt: bool) -> Guard {
    Guard::Psk { psk: psk(key), encrypt }
}

fn pair(byte: u8) -> KeyPair {
    KeyPair::new(Secret::new([byte; 32]))
}

fn only(keys: &[u8]) -> Admit {
    Admit::Only(keys.iter().map(|byte| pair(*byte).public()).collect())
}

fn keys(own: u8, admit: Admit) -> Guard {
    Guard::Keys { own: pair(own), admit, encrypt: false }
}

/// Deterministic and different for each `start`.
fn seed(start: u8) -> Seed {
    let mut next = start;
    Seed::from_fn(|out| {
        for byte in out {
            *byte = next;
            next = next.wrapping_mul(5).wrapping_add(17);
        }
    })
}

fn client_params() -> ClientParams {
    let mut params = ClientParams::new(LISTEN, token(), CONN, STREAM);
    params.blob = b"client blob".to_vec();
    params
}

fn server_params() -> ServerParams {
    let mut params = ServerParams::new(LISTEN, token(), Arc::default());
    params.blob = Some(b"server blob".to_vec());
    params
}

fn guarded(client: Guard, server: Guard) -> (ClientParams, ServerParams) {
    let (mut c, mut s) = (client_params(), server_params());
    c.guard = client;
    s.guard = server;
    (c, s)
}

fn client(params: ClientParams) -> Login {
    Login::client(params, seed(1), T0).unwrap()
}

fn server(params: ServerParams) -> Login {
    Login::server(params, seed(99), T0).unwrap()
}

fn drain(login: &mut Login) -> Vec<u8> {
    let bytes = login.output().to_vec();
    login.sent(bytes.len());
    bytes
}

/// How one side ended.
type Outcome = Result<Box<Session>, LoginError>;

fn outcome(login: &mut Login, now: Duration) -> Option<Outcome> {
    match login.poll(now) {
        Progress::Done(session) => Some(Ok(session)),
        Progress::Failed(error) => Some(Err(error)),
        Progress::Pending | Progress::Asked => None,
    }
}

/// Which message of a login a tap sees: 0 hello, 1 reply, 2 confirm, 3 finish.
type Tap<'a> = &'a mut dyn FnMut(usize, &mut Vec<u8>);

/// Runs both to their ends with a tap on the wire. A side that ends closes its stream, as transports do; one that is left
/// waiting runs into its deadline.
fn run(mut c: Login, mut s: Login, tap: Tap<'_>) -> (Outcome, Outcome) {
    let (mut cr, mut sr) = (None, None);
    for turn in 0..4 {
        let up = turn % 2 == 0;
        let (from, to) = if up { (&mut c, &mut s) } else { (&mut s, &mut c) };
        let mut bytes = drain(from);
        tap(turn, &mut bytes);
        to.feed(&bytes);
        cr = cr.or_else(|| outcome(&mut c, T0));
        sr = sr.or_else(|| outcome(&mut s, T0));
        if matches!(cr, Some(Err(_))) {
            s.closed();
        }
        if matches!(sr, Some(Err(_))) {
            c.closed();
        }
    }
    let late = T0 + LOGIN_DEADLINE;
    let end = |r: Option<Outcome>, login: &mut Login| r.or_else(|| outcome(login, late)).expect("the deadline ends it");
    (end(cr, &mut c), end(sr, &mut s))
}

fn run_params((c, s): (ClientParams, ServerParams)) -> (Outcome, Outcome) {
    run(client(c), server(s), &mut |_, _| ())
}

/// The four messages of a good login.
fn messages(params: (ClientParams, ServerParams)) -> [Vec<u8>; 4] {
    let mut seen = [const { Vec::new() }; 4];
    let (c, s) = run(client(params.0), server(params.1), &mut |turn, bytes| seen[turn].clone_from(bytes));
    c.unwrap();
    s.unwrap();
    seen
}

/// The guards under which everything is tried.
fn all_guards() -> [Guard; 5] {
    let mutual = |encrypt| Guard::Keys { own: pair(1), admit: only(&[1]), encrypt };
    [Guard::Token, guard(7, false), guard(7, true), mutual(false), mutual(true)]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Listeners hand logins and sessions to other threads.
#[test]
fn parts_may_change_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Login>();
    send::<Session>();
    sync::<LoginTable>();
    sync::<Token>();
}
