use super::*;

#[test]
fn an_offer_is_read_as_it_was_written_and_nothing_else_is() {
    let mut offers = OneSidedOffers::new(PathArg::TCP, 0, true);
    let text = offers.offer(4096, linkspan_perf::Quota::new(4096).take(4096).unwrap()).unwrap();
    assert!(text.len() <= linkspan_perf::wire::OFFER_MAX);
    let (_, remote) = read_offer(&text).unwrap();
    assert_eq!(remote.len(), 4096);
    for bad in ["", "x", "x y", &text[1..], &text[..text.len() - 1], &text.replace(' ', "  "), &format!("{text}é")] {
        assert!(read_offer(bad).is_err(), "{bad}");
    }
}

#[test]
fn only_timed_operations_put_there_what_is_checked() {
    for way in [Direction::Write, Direction::Read] {
        let mut offers = OneSidedOffers::new(PathArg::TCP, 0, true);
        let text = offers.offer(4096, linkspan_perf::Quota::new(4096).take(4096).unwrap()).unwrap();
        let (url, remote) = read_offer(&text).unwrap();
        let transport = fabric::one_sided(PathArg::TCP, true).unwrap().transport_on(0).unwrap();
        transport.connect_blocking(&url, CONNECT).unwrap();
        let (memory, interrupt) = (Memory::host(4096), Interrupt::new());
        let side = Side { transport, remote, memory, timeout: CONNECT, way, interrupt };
        let pattern = side.prepare(4096).unwrap();
        assert_eq!(side.check(4096, &pattern).unwrap_err().exit, Exit::WrongData, "{way:?}");
        let pattern = side.prepare(4096).unwrap();
        assert_eq!(side.turns(way, 4096, 3).unwrap(), 3);
        side.check(4096, &pattern).unwrap();
    }
}
