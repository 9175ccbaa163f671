use super::*;
use crate::mock::{Faults, MockConnector};
use crate::spec::{Stop, Test};

#[test]
fn streams_add_up() {
    let connector = MockConnector { faults: Faults::default() };
    let spec = Spec { stop: Stop::Messages(30), ..Spec::new(Test::Bw, 100) };
    let out = multi(&connector, 3, &spec, Some(Duration::from_secs(20)), &Interrupt::new()).unwrap();
    assert_eq!((out.each.len(), out.messages(), out.bytes()), (3, 90, 9000));
    assert!(out.each.iter().all(|one| one.wrong_bytes == Some(0)));
    assert!(out.fairness() > 0.0 && out.fairness() <= 1.0);
}

#[test]
fn one_stream_that_fails_fails_all() {
    let connector = MockConnector { faults: Faults { die_after: 20, ..Faults::default() } };
    let spec = Spec { stop: Stop::Messages(30), ..Spec::new(Test::Bw, 100) };
    assert!(multi(&connector, 2, &spec, Some(Duration::from_secs(20)), &Interrupt::new()).is_err());
}
