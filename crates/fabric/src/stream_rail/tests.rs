use std::time::{Duration, Instant};

use linkspan_stream::{Dial, Listen, Options, Stream};

use super::*;

/// Both ends of a stream.
fn pair() -> [Stream; 2] {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), Duration::from_secs(20)).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let (mut a, mut b) = (None, None);
    loop {
        a = a.or_else(|| dial.poll().unwrap());
        b = b.or_else(|| listen.accept().unwrap().map(|b| b.0));
        match (a, b) {
            (Some(a), Some(b)) => return [a, b],
            rest => (a, b) = rest,
        }
        assert!(Instant::now() < end, "not within 20 s");
    }
}

#[test]
fn who_demands_encryption_never_gets_a_rail_in_clear() {
    let [a, b] = pair().map(|stream| Secured::new(stream, None));
    let error = StreamRail::new(a, RailConfig::default(), true).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("LS0513") && error.to_string().contains("127.0.0.1"), "{error}");
    assert!(matches!(StreamRail::new(b, RailConfig::default(), false).unwrap(), StreamRail::Plain(_)));
}
