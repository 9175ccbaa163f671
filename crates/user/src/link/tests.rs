use super::*;

#[test]
fn addresses_of_a_path() {
    let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    assert_eq!(ends("lo 127.0.0.1:4000 -> 127.0.0.2:5000"), (ip("127.0.0.1"), ip("127.0.0.2")));
    assert_eq!(ends("eth0 [fd00::1]:4000 -> [fd00::2]:5000 (x)"), (ip("fd00::1"), ip("fd00::2")));
    assert_eq!(ends("memory of process 7"), (None, None));
    assert_eq!(ends("a -> b"), (None, None));
}
