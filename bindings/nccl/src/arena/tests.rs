use super::*;

#[test]
fn addresses_live_die_and_are_used_again() {
    let arena: Arena<String> = Arena::new(Kind::Listen, || ());
    let a = arena.insert(|_| "one".into());
    // SAFETY: live.
    assert_eq!(unsafe { arena.find(a).unwrap().body() }.unwrap(), "one");
    assert_eq!(arena.list(|s| s == "one"), [a]);
    let removed = arena.remove(a).unwrap();
    assert_eq!(removed.body.as_deref(), Some("one"));
    drop(removed);
    assert!(arena.is_empty());
    assert_eq!(arena.find(a).err(), Some(Misuse::Stranger("listen comm", a as usize)));
    // SAFETY: an address of this arena.
    let stale = unsafe { Cell::<String>::from_address(a, Kind::Listen) };
    assert!(stale.is_err());
    let b = arena.insert(|_| "two".into());
    assert_eq!(a, b);
    assert!(arena.find(b).is_ok());
    drop(arena.remove(b));
    // SAFETY: the addresses are not used any more.
    unsafe { arena.release() };
}

#[test]
fn wrong_kind_and_wild_addresses_are_refused() {
    let arena: Arena<u32> = Arena::new(Kind::Send, || ());
    let a = arena.insert(|_| 1);
    // SAFETY: an address of this library.
    let as_recv = unsafe { Cell::<u32>::from_address(a, Kind::Recv) };
    assert_eq!(as_recv.err(), Some(Misuse::Stranger("receive comm", a as usize)));
    // SAFETY: refused before it is read, for its alignment.
    assert!(unsafe { Cell::<u32>::from_address(a.wrapping_byte_add(1), Kind::Send) }.is_err());
    assert!(arena.find(8 as *mut c_void).is_err());
    assert!(arena.remove(std::ptr::null_mut()).is_err());
    drop(arena.remove(a));
    assert!(arena.remove(a).is_err());
    // SAFETY: as above.
    unsafe { arena.release() };
}
