#![allow(clippy::unwrap_used)]

use std::ffi::CStr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use linkspan::{Config, Context, Log};
use linkspan_fabric::keys::Keyring;

use super::{CONTEXTS, ENDPOINTS, TRANSPORTS, handle, id};
use crate::calls::endpoint::*;
use crate::calls::transport::*;
use crate::types::*;

const LONG: Duration = Duration::from_secs(30);
const LONG_MS: i64 = 30_000;

/// Nobody serves there.
const HOST: &CStr = c"127.0.0.1:1";

/// A context whose users have keys.
fn paired() -> u64 {
    let get = |name: &str| {
        let settings = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        settings.iter().find(|s| s.0 == name).map(|s| s.1.to_owned())
    };
    let dir =
        std::env::temp_dir().join(format!("linkspan-capi-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut config = Config::read(&get).unwrap();
    config.use_keys(Arc::new(Keyring::make_in(&dir, false).unwrap()), None);
    std::fs::remove_dir_all(&dir).unwrap();
    CONTEXTS.insert(Arc::new(Context::new(config, Log::off()).unwrap())).unwrap()
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !what() {
        assert!(Instant::now() < end, "the call does not begin");
        std::thread::yield_now();
    }
}

fn is_in_a_call<T>(object: &Weak<T>) -> bool {
    object.strong_count() > 1
}

#[test]
fn abort_and_close_of_a_transport_end_its_search_for_a_host_that_serves_nothing() {
    let mut transport = std::ptr::null_mut();
    // SAFETY: it is a place for a handle.
    let opened = unsafe { linkspan_transport_open(handle(paired()), 0, &mut transport) };
    assert_eq!(opened, LINKSPAN_OK);
    let number = id(transport);
    let peer = Arc::downgrade(&TRANSPORTS.get(number).unwrap());
    let connects = || {
        std::thread::spawn(move || {
            // SAFETY: a text that lives for ever.
            unsafe { linkspan_transport_connect_host(handle(number), HOST.as_ptr(), LONG_MS) }
        })
    };
    let connect = connects();
    while !connect.is_finished() {
        assert_eq!(linkspan_transport_abort(transport), LINKSPAN_OK);
        std::thread::yield_now();
    }
    assert_eq!(connect.join().unwrap(), LINKSPAN_ABORTED);
    let connect = connects();
    until(|| is_in_a_call(&peer));
    assert_eq!(linkspan_transport_close(transport), LINKSPAN_OK);
    let status = connect.join().unwrap();
    assert!([LINKSPAN_ABORTED, LINKSPAN_BROKEN].contains(&status), "{status}");
}

#[test]
fn close_of_an_endpoint_ends_its_search_for_a_host_that_serves_nothing() {
    let mut endpoint = std::ptr::null_mut();
    // SAFETY: it is a place for a handle, and a text that lives for ever.
    let opened = unsafe { linkspan_endpoint_open(handle(paired()), 0, c"own".as_ptr(), &mut endpoint) };
    assert_eq!(opened, LINKSPAN_OK);
    let number = id(endpoint);
    let object = Arc::downgrade(&ENDPOINTS.get(number).unwrap());
    let connect = std::thread::spawn(move || {
        // SAFETY: texts that live for ever.
        unsafe { linkspan_endpoint_connect_host(handle(number), c"peer".as_ptr(), HOST.as_ptr(), LONG_MS) }
    });
    until(|| is_in_a_call(&object));
    assert_eq!(linkspan_endpoint_close(endpoint), LINKSPAN_OK);
    assert_eq!(connect.join().unwrap(), LINKSPAN_ENDPOINT_CLOSED);
}
