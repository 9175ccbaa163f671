use linkspan_transport::Caps;

use super::*;

fn rail(transport: &'static str, path: &str, reason: &str) -> RailInfo {
    let caps = Caps {
        one_sided: false,
        device_memory: false,
        ordered: true,
        chunk: 1,
        speed: 0,
        local: false,
        tells_end: true,
    };
    RailInfo::new(transport, path.into(), reason.into(), caps)
}

#[test]
fn a_reason_that_rails_share_is_stated_once_and_each_rail_has_a_line() {
    let rails = [
        rail("tcp", "cab0 a -> b", "same subnet"),
        rail("verbs", "rxe0 c -> d", "a device"),
        rail("tcp", "cab1 e -> f", "same subnet"),
    ];
    assert_eq!(line(rails.iter()), "3 rails: tcp cab0 a -> b, cab1 e -> f (same subnet); verbs rxe0 c -> d (a device)");
    assert_eq!(
        lines(rails.iter()),
        ["tcp, 2 rails (same subnet):", "  cab0 a -> b", "  cab1 e -> f", "verbs rxe0 c -> d (a device)"]
    );
    assert_eq!(line(rails[..1].iter()), "tcp cab0 a -> b (same subnet)");
    assert_eq!(lines(rails[..1].iter()), ["tcp cab0 a -> b (same subnet)"]);
    assert_eq!(line([].iter()), "no rail");
}
