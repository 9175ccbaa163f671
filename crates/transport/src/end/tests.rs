use super::*;

#[test]
fn an_end_is_told_alike_however_often() {
    let reset = End::of_call("sendmsg", &io::Error::from_raw_os_error(104));
    assert_eq!(reset, End::Gone("connection reset".into()));
    for _ in 0..2 {
        assert_eq!(reset.down("a - b").to_string(), "LS0101 the peer at a - b is gone: connection reset");
    }
    let full = End::of_call("sendmsg", &io::Error::from_raw_os_error(105));
    assert_eq!(full, End::System("sendmsg", 105));
    assert_eq!(full.down("a - b").to_string(), "LS0102 sendmsg on a - b failed");
    let refused = End::Refused("ibv_reg_mr", "no".into()).down("p");
    assert!(matches!(refused, Down::System { call: "ibv_reg_mr", source, .. } if source.to_string() == "no"));
    assert!(matches!(End::from(Violation("no".into())).down("p"), Down::Protocol { why, .. } if why == "no"));
    assert!(matches!(End::Device("hot".into()).down("p"), Down::Device { why, .. } if why == "hot"));
}
