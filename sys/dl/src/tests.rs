//! Against the C library, which every machine has.
#![allow(clippy::unwrap_used)]

use super::*;

api! {
    /// Two functions of the C library, and one that it has not.
    struct Some2;
    fn labs(libc::c_long) -> libc::c_long;
    optional;
    fn getpid() -> libc::c_int;
    fn no_such_function_anywhere() -> libc::c_int;
}

api! {
    struct Missing;
    fn labs(libc::c_long) -> libc::c_long;
    fn no_such_function_anywhere() -> libc::c_int;
    optional;
}

#[test]
fn functions_are_found_and_can_be_called() {
    let libc = Library::open_first(&["no-such-library.so.9", "libc.so.6"]).unwrap();
    assert_eq!(libc.name(), "libc.so.6");
    let table = Some2::load(&libc).unwrap();
    // SAFETY: these are the functions of the C library with their types.
    let (five, pid) = unsafe { ((table.labs)(-5), (table.getpid.unwrap())()) };
    assert_eq!((five, pid as u32), (5, std::process::id()));
    assert!(table.no_such_function_anywhere.is_none());
}

#[test]
fn what_is_missing_is_named() {
    let libc = Library::open("libc.so.6").unwrap();
    assert_eq!(
        Missing::load(&libc).map(|t| (t.labs, t.no_such_function_anywhere)).unwrap_err(),
        "no_such_function_anywhere"
    );
    let why = Library::open_first(&["no-such-library.so.9", "nor-this.so"]).unwrap_err();
    assert!(why.contains("no-such-library.so.9") && why.contains("nor-this.so"), "{why}");
    assert!(Library::open("a\0b").is_err());
}
