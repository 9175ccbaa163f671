use super::*;

fn asked(last: u8, source: bool, answers: Option<bool>, tcp: Tcp) -> Asked {
    let source = source.then_some(IpAddr::from([192, 0, 2, 1]));
    Asked {
        peer: [192, 0, 2, last].into(),
        name: None,
        port: 24_680,
        source,
        answers,
        unsent: None,
        mtu: None,
        passes: None,
        tcp,
    }
}

#[test]
fn the_address_that_answers_best_is_judged_not_the_last() {
    let none = || asked(1, false, None, Tcp::Unreachable);
    let silent = || asked(2, true, Some(false), Tcp::Silent);
    let pinged = || asked(3, true, Some(true), Tcp::Silent);
    let refused = || asked(4, true, None, Tcp::Refused);
    let open = || asked(5, true, None, Tcp::Open);
    let of = |list: Vec<Asked>| best(list.into_iter()).map(|one| one.peer.to_string());
    assert_eq!(of(vec![]), None);
    let order = [none, silent, pinged, refused, open];
    for (at, better) in order.iter().enumerate() {
        for worse in &order[..at] {
            let wanted = Some(better().peer.to_string());
            assert_eq!(of(vec![better(), worse()]), wanted);
            assert_eq!(of(vec![worse(), better(), worse()]), wanted);
        }
    }
    let mut tried = 0;
    let list = [open(), silent()].into_iter().inspect(|_| tried += 1);
    assert!(best(list).is_some() && tried == 1, "nobody else is asked once one is open");
}

#[test]
fn a_name_that_was_typed_stands_before_its_address() {
    let shown = |typed: &str| asked(2, true, None, Tcp::Open).named(typed).shown();
    for typed in
        ["192.0.2.2", "192.0.2.2:1234", "[2001:db8::2]:1234", "2001:db8::2", "fe80::1%eth0", "[fe80::1%eth0]:1234"]
    {
        assert_eq!(shown(typed), "192.0.2.2", "{typed}");
    }
    for typed in ["spark-b", "spark-b:1234"] {
        assert_eq!(shown(typed), "spark-b (192.0.2.2)", "{typed}");
    }
}

#[test]
fn a_packet_that_the_driver_drops_is_lost_and_one_that_a_router_refuses_is_not() {
    let lost = |errno: rustix::io::Errno| swallowed(&errno.into());
    assert!(lost(rustix::io::Errno::NOBUFS) && !lost(rustix::io::Errno::MSGSIZE));
}
