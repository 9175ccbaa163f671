use std::ffi::CStr;

use linkspan::Error;

use super::{Refusal, Report, TEXTS, border, last_status, text_of};
use crate::types as t;

fn last() -> String {
    let mut text = String::new();
    // What C sees, read without following a pointer.
    super::LAST.with(|last| {
        let last = last.borrow();
        let words: &CStr = last.text.as_deref().unwrap_or_else(|| text_of(last.status));
        text = words.to_str().unwrap().to_owned();
    });
    text
}

#[test]
fn constants_are_the_codes_of_the_errors() {
    let errors: [(i32, Refusal); 23] = [
        (t::LINKSPAN_TIMEOUT, Error::Timeout.into()),
        (t::LINKSPAN_TIMED_OUT_UNREVOKED, Error::TimedOutUnrevoked.into()),
        (t::LINKSPAN_ABORTED, Error::Aborted.into()),
        (t::LINKSPAN_BROKEN, Error::Broken("gone".into()).into()),
        (t::LINKSPAN_INTERRUPTED, Error::Interrupted.into()),
        (t::LINKSPAN_NOT_CONNECTED, Error::NotConnected.into()),
        (t::LINKSPAN_HAS_PEER, Error::HasPeer.into()),
        (t::LINKSPAN_NO_CONNECTION, Error::Connect("refused".into()).into()),
        (t::LINKSPAN_BOUNDS, Error::Bounds { offset: 1, len: 2, of: "memory", have: 2 }.into()),
        (t::LINKSPAN_NOT_INSIDE, Error::NotInside { address: 1, len: 1, base: 2, have: 1 }.into()),
        (t::LINKSPAN_WRONG_PEER, Error::WrongPeer.into()),
        (t::LINKSPAN_READ_ONLY_MEMORY, Error::ReadOnly.into()),
        (t::LINKSPAN_NOT_EXPOSED, Error::NotExposed(7).into()),
        (t::LINKSPAN_REMOTE_ACCESS, Error::Op(linkspan::OpError::RemoteAccess { key: 7 }).into()),
        (t::LINKSPAN_NULL, Refusal::Null("out")),
        (t::LINKSPAN_HANDLE, Refusal::Handle { word: "memory", handle: 9 }),
        (t::LINKSPAN_MEMORY_IN_USE, Refusal::MemoryInUse),
        (t::LINKSPAN_OP_TAKEN, Refusal::Taken),
        (t::LINKSPAN_FORKED, Refusal::Forked),
        (t::LINKSPAN_IN_CALL, Refusal::InCall("ring")),
        (t::LINKSPAN_QUEUE_FULL, Refusal::QueueFull),
        (t::LINKSPAN_LINK_LOST, linkspan_tbring::Error::Gone.into()),
        (t::LINKSPAN_REGION_BOUNDS, linkspan_tbring::Error::Range { offset: 1, length: 2, region: 2 }.into()),
    ];
    for (status, error) in errors {
        let shown = error.to_string();
        assert_eq!(border(|| Err(error)), status, "{shown}");
        assert_eq!(last_status(), status);
        assert!(last().starts_with(&format!("LS{status:04}")), "{}", last());
        assert!(text_of(status).to_str().unwrap().starts_with(&format!("LS{status:04} ")), "{status}");
    }
}

#[test]
fn the_text_names_value_and_argument() {
    border(|| Err(Refusal::Value { name: "timeout_ms", value: -7, takes: "-1 or more" }));
    assert_eq!(last(), "LS1153 argument timeout_ms is -7: it takes -1 or more");
}

#[test]
fn a_panic_ends_at_the_border() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let status = border(|| panic!("planted {}", 7));
    std::panic::set_hook(hook);
    assert_eq!(status, 1157);
    assert!(last().ends_with("planted 7"), "{}", last());
}

#[test]
fn threads_have_errors_of_their_own() {
    border(|| Err(Refusal::Null("here")));
    std::thread::spawn(|| {
        assert_eq!(last_status(), 0);
        border(|| Err(Refusal::MemoryInUse));
    })
    .join()
    .unwrap();
    assert_eq!(last_status(), t::LINKSPAN_NULL);
}

#[test]
fn every_text_is_found_by_its_code() {
    assert!(TEXTS.is_sorted_by_key(|(code, _)| *code) && TEXTS.len() > 100);
    for (code, text) in TEXTS {
        assert_eq!(text_of(*code), *text);
        assert!(text.to_str().unwrap().starts_with(&format!("LS{code:04} ")));
    }
    assert_eq!(text_of(0), c"no error");
    assert_eq!(text_of(-1), c"not a status of this release");
    let report = Report::from(Refusal::Full("thing"));
    assert_eq!(report.status, 1158);
}
