use super::*;

#[test]
fn addresses_of_a_path() {
    let at = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
    assert_eq!(ends("lo 127.0.0.1:4000 -> 127.0.0.2:5000"), (at("127.0.0.1:4000"), at("127.0.0.2:5000")));
    assert_eq!(ends("eth0 [fd00::1]:4000 -> [fd00::2]:5000 (x)"), (at("[fd00::1]:4000"), at("[fd00::2]:5000")));
    assert_eq!(ends("memory of process 7"), (None, None));
    assert_eq!(ends("a -> b"), (None, None));
}

#[test]
fn a_link_local_address_of_a_path_keeps_its_scope() {
    let (local, peer) = ends("cab0 [fe80::1%7]:4000 -> [fe80::2%7]:5000");
    let scope = |end: Option<SocketAddr>| matches!(end, Some(SocketAddr::V6(addr)) if addr.scope_id() == 7);
    assert!(scope(local) && scope(peer), "{local:?} {peer:?}");
}
