use linkspan_transport::Caps;

use super::*;

fn rail(transport: &'static str, path: &str) -> RailInfo {
    let caps = Caps {
        one_sided: false,
        device_memory: false,
        ordered: true,
        chunk: 1,
        speed: 0,
        local: false,
        tells_end: true,
    };
    RailInfo::new(transport, path.into(), String::new(), caps)
}

#[test]
fn ports_and_queue_pairs_do_not_make_another_place() {
    let mut lost = MissingRails::default();
    lost.note(&rail("verbs", "rxe1/1 10.1.1.1 -> 10.1.1.2 (GID 1, MTU 4096, queue pairs 0x11 -> 0x12)"));
    lost.note(&rail("tcp", "lan1 10.1.1.1:40000 -> 10.1.1.2:5000"));
    lost.note(&rail("tcp", "lan1 [fd77::1]:40000 -> [fd77::2]:5000"));
    // The way around is none of them, in whatever order they come.
    assert!(!lost.is_back(&rail("tcp", "lan0 10.1.0.2:40001 -> 10.1.0.1:7475")));
    assert!(lost.is_back(&rail("tcp", "lan1 [fd77::1]:40002 -> [fd77::2]:5000")));
    assert!(lost.is_back(&rail("tcp", "lan1 10.1.1.1:40003 -> 10.1.1.2:5000")));
    assert!(lost.is_back(&rail("verbs", "rxe1/1 10.1.1.1 -> 10.1.1.2 (GID 2, MTU 1024, queue pairs 0x13 -> 0x14)")));
    assert!(!lost.is_back(&rail("tcp", "lan1 10.1.1.1:40004 -> 10.1.1.2:5000")), "each comes back once");
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut lost = MissingRails::default();
    for n in 0..1000 {
        lost.note(&rail("tcp", &format!("lan{n} 10.1.1.1:1 -> 10.1.1.2:2")));
    }
    assert_eq!(lost.0.len(), MOST);
    assert!(lost.is_back(&rail("tcp", "lan999 10.1.1.1:9 -> 10.1.1.2:9")));
}
