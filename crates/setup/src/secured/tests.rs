use std::time::{Duration, Instant};

use linkspan_proto::login::{ClientParams, Guard, Login, LoginTable, Psk, Seed, ServerParams, Token};
use linkspan_stream::{Dial, Listen, Options};

use super::*;
use crate::clock;
use crate::logins::{LoginRun, LoginStep};

fn until<T>(mut f: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(Instant::now() < end, "not within 20 s");
    }
}

/// Both ends of a stream behind a login, the one that connected first.
fn pair(encrypt: bool) -> (Secured, Secured) {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), Duration::from_secs(20)).unwrap();
    let a = until(|| dial.poll().unwrap());
    let b = until(|| listen.accept().unwrap()).0;
    let guard = Guard::Psk { psk: Psk::new([7; 32]), encrypt };
    let token = Token::new([3; 16]);
    let client = ClientParams { guard: guard.clone(), ..ClientParams::new(1, token.clone(), 2, 0) };
    let server = ServerParams { guard, ..ServerParams::new(1, token, LoginTable::new(4).into()) };
    let seed = || Seed::random().unwrap();
    let mut a = LoginRun { stream: a, login: Login::client(client, seed(), clock::now()).unwrap() };
    let mut b = LoginRun { stream: b, login: Login::server(server, seed(), clock::now()).unwrap() };
    let done = |run: &mut LoginRun| match run.poll().unwrap() {
        LoginStep::Done(session) => Some(session),
        _ => None,
    };
    let (mut x, mut y) = (None, None);
    until(|| {
        x = x.take().or_else(|| done(&mut a));
        y = y.take().or_else(|| done(&mut b));
        (x.is_some() && y.is_some()).then_some(())
    });
    (Secured::new(a.stream, x.unwrap().ciphers), Secured::new(b.stream, y.unwrap().ciphers))
}

fn give(from: &mut Secured, bytes: &[u8]) {
    assert_eq!(from.stream.try_write(bytes).unwrap(), Some(bytes.len()));
}

/// The bytes of a message, which does not leave.
fn packed(from: &mut Secured, text: &[u8]) -> Vec<u8> {
    let begin = from.out.len();
    from.pack(text).unwrap();
    from.out.split_off(begin)
}

#[test]
fn messages_arrive_in_pieces_and_nothing_behind_them_is_read() {
    for encrypt in [false, true] {
        let (mut a, mut b) = pair(encrypt);
        let first = packed(&mut a, b"the first of two");
        let second = packed(&mut a, b"2nd");
        assert_eq!(first.windows(5).any(|w| w == b"first"), !encrypt);
        let all = [first.clone(), second].concat();
        for cut in 0..first.len() {
            assert!(b.read::<16>().unwrap().is_none(), "{cut} of {} bytes", first.len());
            if cut + 1 == first.len() {
                give(&mut a, &all[cut..]);
            } else {
                give(&mut a, &all[cut..cut + 1]);
            }
        }
        assert_eq!(&until(|| b.read::<16>().unwrap()), b"the first of two");
        assert_eq!(&until(|| b.read::<3>().unwrap()), b"2nd");
        drop(a);
        assert!(matches!(until(|| b.read::<3>().err()), MessageError::Io(_)));
    }
}

#[test]
fn what_the_stream_does_not_take_at_once_leaves_later() {
    for encrypt in [false, true] {
        let (mut a, mut b) = pair(encrypt);
        let text = [7; 1 << 16];
        let mut sent = 0;
        while a.flush().unwrap() {
            a.send(&text).unwrap();
            sent += 1;
        }
        for _ in 0..sent {
            let got = until(|| {
                a.flush().unwrap();
                b.read::<{ 1 << 16 }>().unwrap()
            });
            assert!(got == text);
        }
        assert!(a.flush().unwrap());
    }
}

#[test]
fn changed_and_misfitting_records_are_refused() {
    let (mut a, mut b) = pair(true);
    let mut bytes = packed(&mut a, b"four");
    bytes[5] ^= 1;
    give(&mut a, &bytes);
    let error = until(|| b.read::<4>().err());
    assert!(error.to_string().starts_with("LS0252"), "{error}");
    let (mut a, mut b) = pair(true);
    a.send(b"fo").unwrap();
    let error = until(|| b.read::<4>().err());
    assert!(matches!(error, MessageError::Len { got: 2, want: 4 }), "{error}");
    let (mut a, mut b) = pair(true);
    give(&mut a, b"LSPL");
    let error = until(|| b.read::<32>().err());
    assert!(error.to_string().starts_with("LS0251"), "{error}");
}
