use super::*;
use crate::fixture::Fixture;

#[test]
fn complete_entries_are_kept() {
    let fix = Fixture::new();
    fix.file(
        "proc/net/arp",
        "IP address       HW type     Flags       HW address            Mask     Device\n\
         10.0.0.2         0x1         0x2         02:00:00:00:00:02     *        thunderbolt0\n\
         10.0.0.3         0x1         0x0         00:00:00:00:00:00     *        thunderbolt0\n\
         10.0.0.4         0x1         0x6         02:00:00:00:00:04     *        eth0\n\
         10.0.0.5         0x1         two         02:00:00:00:00:04     *        eth0\n\
         cut off in the mid",
    );
    let found = read(&fix.roots());
    let shown: Vec<(&str, String)> = found.iter().map(|n| (&*n.interface, n.ip.to_string())).collect();
    assert_eq!(shown, [("thunderbolt0", "10.0.0.2".into()), ("eth0", "10.0.0.4".into())]);
    assert!(read(&Fixture::new().roots()).is_empty());
}
