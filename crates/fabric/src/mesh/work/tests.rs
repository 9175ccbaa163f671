use linkspan_proto::mesh::Node;

use super::*;

#[test]
fn work_for_other_hosts_has_a_bound_and_its_end_frees_a_slot() {
    let own = Node {
        id: 1,
        epoch: 0,
        seq: 0,
        name: "r".into(),
        relays: true,
        server_port: 1,
        ports: Vec::new(),
        heard: Vec::new(),
    };
    let shared = Shared::new(own, None);
    for (work, most, code) in [(Work::Measure, 8, "LS1425"), (Work::Relay, 128, "LS1406")] {
        let mut slots: Vec<WorkSlot> =
            (0..most).map(|_| WorkSlot::take(&shared, work).unwrap_or_else(|e| panic!("{e}"))).collect();
        let refused = WorkSlot::take(&shared, work).err().unwrap();
        assert!(refused.starts_with(code), "{refused}");
        slots.pop();
        assert!(WorkSlot::take(&shared, work).is_ok());
    }
}
