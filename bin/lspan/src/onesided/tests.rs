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
