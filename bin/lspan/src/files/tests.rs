use super::*;

#[test]
fn places_are_read_as_they_are_written() {
    let place = |text: &str| Place::parse(text).map(|p| (p.peer, p.share, escape(p.path.bytes()), p.dir)).ok();
    let is = |peer: &str, share: &str, path: &str, dir| Some((peer.into(), share.into(), path.into(), dir));
    assert_eq!(place("spark:data/a/b"), is("spark", "data", "a/b", false));
    assert_eq!(place("spark:"), is("spark", "", "", false));
    assert_eq!(place("spark:data/"), is("spark", "data", "", true));
    assert_eq!(place("[fe80::1%eth0]:data/a"), is("fe80::1%eth0", "data", "a", false));
    assert_eq!(place("data"), None);
    assert_eq!(place(":data"), None);
    assert_eq!(place("spark:data/../x"), None);
}
