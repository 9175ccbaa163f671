use super::*;

#[test]
fn work_for_other_hosts_has_a_bound_and_its_end_frees_a_slot() {
    let shared = Shared::alone(1);
    for (work, most, code) in [(Work::Measure, 8, "LS1425"), (Work::Relay, 128, "LS1406")] {
        let mut slots: Vec<WorkSlot> =
            (0..most).map(|_| WorkSlot::take(&shared, work).unwrap_or_else(|e| panic!("{e}"))).collect();
        let refused = WorkSlot::take(&shared, work).err().unwrap();
        assert!(refused.starts_with(code), "{refused}");
        slots.pop();
        assert!(WorkSlot::take(&shared, work).is_ok());
    }
}
