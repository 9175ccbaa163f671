use super::*;

#[test]
fn uuids_are_read_in_their_usual_form_only() {
    let bytes = uuid("00112233-4455-6677-8899-aabbccddeeff").expect("a uuid");
    assert_eq!(bytes[..4], [0x00, 0x11, 0x22, 0x33]);
    assert_eq!(bytes[15], 0xff);
    for bad in ["", "0011", "00112233-4455-6677-8899-aabbccddeefg", "é0112233-4455-6677-8899-aabbccddeef"] {
        assert_eq!(uuid(bad), None, "{bad}");
    }
}

#[test]
fn routes_of_hosts_behind_other_devices_are_read_in_hexadecimal() {
    for (name, is) in [("0-1", Some(1)), ("1-0", Some(0)), ("0-c01", Some(0xc01))] {
        assert_eq!(route(name), is, "{name}");
    }
    for other in ["0-1.2", "0-0:1.1", "0000:03:00", "usb4_port1", "1-1:1", "domain0"] {
        assert_eq!(route(other), None, "{other}");
    }
}

#[test]
fn a_machine_without_anything_says_what_is_missing() {
    let ports = Root("/nowhere".into()).ports();
    assert!(ports.cables.is_empty() && !ports.plugged);
    assert!(ports.why_not(Tier::Ring).contains("linkspan.ko"));
    assert!(ports.why_not(Tier::Stream).contains("Linux 7.2"));
}
