use super::*;
use crate::spec::Spec;
use crate::wire::Params;

fn roles(spec: &Spec) -> Vec<Role> {
    phases(&Params::new(spec).plan().unwrap(), false).iter().map(|phase| phase.role).collect()
}

#[test]
fn phases_of_each_test() {
    assert_eq!(roles(&Spec::new(Test::Bw, 8)), [Role::Warm, Role::Timed, Role::Verify]);
    assert_eq!(roles(&Spec::new(Test::Load, 8)), [Role::Warm, Role::Idle, Role::Timed, Role::Verify]);
    let bare = Spec { warmup: 0, verify: false, ..Spec::new(Test::Lat, 8) };
    assert_eq!(roles(&bare), [Role::Timed]);
}

#[test]
fn only_the_timed_part_of_a_jitter_test_is_paced() {
    let spec = Spec::new(Test::Jitter, 8);
    let paced: Vec<bool> = phases(&Params::new(&spec).plan().unwrap(), false)
        .iter()
        .map(|phase| phase.pings.is_some_and(|pings| pings.interval.is_some()))
        .collect();
    assert_eq!(paced, [false, true, false]);
}

#[test]
fn device_memory_is_looked_at_in_full_or_not_at_all() {
    let plan = Params::new(&Spec::new(Test::Bw, 4096)).plan().unwrap();
    let checks = |device| phases(&plan, device).iter().map(|phase| phase.check).collect::<Vec<_>>();
    assert_eq!(checks(false), [Check::Stamp, Check::Stamp, Check::Full]);
    assert_eq!(checks(true), [Check::No, Check::No, Check::Full]);
}
