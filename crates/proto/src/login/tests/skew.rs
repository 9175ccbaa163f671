//! Against a peer of another version. A later version differs only after the reply, so its first two messages are
//! made here with the same code and another span.

use super::*;

const fn span(min: u16, max: u16) -> Versions {
    Versions { min, max }
}

fn versions(client: Versions, server: Versions) -> (Outcome, Outcome) {
    let (mut c, mut s) = (client_params(), server_params());
    c.versions = client;
    s.versions = server;
    run_params((c, s))
}

#[test]
fn the_newest_common_version_is_chosen() {
    for (a, b) in [((2, 2), (2, 2)), ((2, 3), (1, 2)), ((1, 2), (2, 9)), ((2, 2), (2, 65535))] {
        let (c, s) = versions(span(a.0, a.1), span(b.0, b.1));
        assert_eq!((c.unwrap().version, s.unwrap().version), (2, 2));
    }
    assert_eq!(span(1, 3).common(span(2, 5)), Some(3));
    assert_eq!(span(2, 5).common(span(1, 3)), Some(3));
    assert_eq!(span(1, 2).common(span(3, 5)), None);
}

#[test]
fn without_one_both_sides_name_both() {
    for (a, b) in [(span(1, 1), span(2, 2)), (span(2, 2), span(1, 1)), (span(3, 5), span(2, 2))] {
        let (c, s) = versions(a, b);
        assert_eq!(c.unwrap_err(), LoginError::Version { ours: a, theirs: b });
        let error = s.unwrap_err();
        assert_eq!(error, LoginError::Version { ours: b, theirs: a });
        let text = error.to_string();
        assert!(text.contains(&format!("version {b},")) && text.contains(&format!("uses {a}:")), "{text}");
    }
}

#[test]
fn a_stranger_is_not_told_our_versions() {
    let mut other = client_params();
    other.versions = span(3, 3);
    other.token = Token::new(*b"another 16 bytes");
    let mut s = server(server_params());
    s.feed(&drain(&mut client(other)));
    assert_eq!(s.output(), b"");
    assert!(matches!(s.poll(T0), Progress::Failed(LoginError::Code { .. })));
}

#[test]
fn a_refusal_is_sent_before_the_login_fails() {
    let mut other = client_params();
    other.versions = span(3, 3);
    let mut s = server(server_params());
    s.feed(&drain(&mut client(other)));
    assert_eq!(s.output().len(), 80);
    assert!(matches!(s.poll(T0), Progress::Pending));
    drain(&mut s);
    assert!(matches!(s.poll(T0), Progress::Failed(LoginError::Version { .. })));
}

#[test]
fn a_version_that_this_build_cannot_speak_is_refused_even_if_offered() {
    let (c, s) = versions(span(2, 3), span(2, 3));
    assert!(matches!(c.unwrap_err(), LoginError::Version { .. }));
    assert!(matches!(s.unwrap_err(), LoginError::Version { .. }));
}

#[test]
fn nonsense_spans_are_refused_at_once() {
    for bad in [span(0, 1), span(2, 1), span(0, 0)] {
        let (mut c, mut s) = (client_params(), server_params());
        c.versions = bad;
        s.versions = bad;
        assert!(Login::client(c, seed(1), T0).is_err());
        assert!(Login::server(s, seed(1), T0).is_err());
    }
}

/// A reply as a later version may write it: unknown flags, reserved bytes in use.
#[test]
fn fields_of_a_later_version_are_passed_over() {
    use crate::login::secret::mac;
    use crate::login::wire::LABEL_HELLO;
    let mut hello = drain(&mut client(client_params()));
    hello[9] |= 0xF0;
    hello[12..16].copy_from_slice(b"late");
    let code = mac(token().expose(), LABEL_HELLO, &[&hello[..64]]);
    hello[64..].copy_from_slice(&code);
    let mut s = server(server_params());
    s.feed(&hello);
    assert_eq!((s.output().len(), s.output()[4]), (80, 1), "not welcome");
}

#[test]
fn an_unknown_reason_is_reported_with_both_versions() {
    use crate::login::secret::mac;
    use crate::login::wire::LABEL_REPLY;
    let mut old = client_params();
    old.versions = span(1, 1);
    let mut c = client(old.clone());
    let hello = drain(&mut c);
    let mut s = server(server_params());
    s.feed(&hello);
    let mut reply = drain(&mut s);
    reply[12] = 77;
    let code = mac(token().expose(), LABEL_REPLY, &[&hello, &reply[..48]]);
    reply[48..].copy_from_slice(&code);
    c.feed(&reply);
    let want = LoginError::Refused { reason: 77, ours: span(1, 1), theirs: span(2, 2) };
    assert!(matches!(c.poll(T0), Progress::Failed(error) if error == want));
}
