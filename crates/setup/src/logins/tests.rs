use linkspan_proto::login::{Guard, LoginTable, Psk, Token};
use linkspan_stream::{Dial, Listen, Options};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn until<T>(mut f: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}");
    }
}

/// The streams of a peer and of a listener whose login has come this far. Who has another key gets as far as its hello.
fn login(standing: Standing, table: &std::sync::Arc<LoginTable>) -> (LoginRun, LoginRun) {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), PATIENCE).unwrap();
    let near = until(|| dial.poll().unwrap());
    let far = until(|| listen.accept().unwrap()).0;
    let guard = |key: u8| Guard::Psk { psk: Psk::new([key; 32]), encrypt: false };
    let token = Token::new([3; 16]);
    let client = ClientParams {
        guard: guard(if standing == Standing::Proven { 7 } else { 8 }),
        ..ClientParams::new(1, token.clone(), standing as u64, 0)
    };
    let server = ServerParams { guard: guard(7), ..ServerParams::new(1, token, table.clone()) };
    let mut near = LoginRun::client(near, client).unwrap();
    let mut far = LoginRun::server(far, server).unwrap();
    if standing != Standing::Silent {
        until(|| {
            let _ = near.poll();
            // Another key fails later, when the proof is due.
            let _ = far.poll();
            (far.login.standing() == standing).then_some(())
        });
    }
    (near, far)
}

#[test]
fn those_that_said_nothing_give_way_first_then_hellos_without_proof_and_nobody_who_is_young_or_proven() {
    let table = std::sync::Arc::new(LoginTable::new(16));
    let old = Instant::now().checked_sub(UNPROVEN * 2).unwrap();
    let mut peers = Vec::new();
    let mut pending: Vec<(LoginRun, Slot)> = Vec::new();
    for (standing, since) in [
        (Standing::Silent, old),
        (Standing::Hello, old),
        (Standing::Proven, old),
        (Standing::Silent, Instant::now() + PATIENCE),
        (Standing::Hello, Instant::now() + PATIENCE),
    ] {
        let (near, far) = login(standing, &table);
        peers.push(near);
        pending.push((far, Slot { since, ..Slot::take().unwrap() }));
    }
    let mut left = || {
        drop_unproven(&mut pending, &Stats::default(), |(run, slot)| Some((run, slot)));
        pending.iter().map(|(run, slot)| (run.login.standing(), slot.since == old)).collect::<Vec<_>>()
    };
    let young = [(Standing::Silent, false), (Standing::Hello, false)];
    assert_eq!(left(), [&[(Standing::Hello, true), (Standing::Proven, true)][..], &young].concat());
    assert_eq!(left(), [&[(Standing::Proven, true)][..], &young].concat());
    assert_eq!(left(), [&[(Standing::Proven, true)][..], &young].concat());
}
