use std::time::Duration;

use super::*;
use crate::mock::{Faults, MockConnector};

#[test]
fn as_many_as_asked_for() {
    let connector = MockConnector { faults: Faults::default() };
    assert_eq!(connects(&connector, Stop::Messages(7), &Interrupt::new()).unwrap().handshakes.count(), 7);
    let timed = connects(&connector, Stop::After(Duration::from_millis(5)), &Interrupt::new()).unwrap();
    assert!(timed.handshakes.count() > 0 && timed.elapsed_ns >= 5_000_000);
}
