//! The limit holds over all that share it, and what is dropped comes back.
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn shares_are_counted_and_come_back() {
    let memory = StageMemory::new(100);
    let one = memory.take(60).unwrap();
    let why = memory.clone().take(41).unwrap_err().to_string();
    assert!(
        why.starts_with("LS1311 41 bytes") && why.contains("60 in use: 100") && why.contains("STAGE_MEMORY"),
        "{why}"
    );
    let two = memory.take(40).unwrap();
    assert_eq!((memory.used(), one.bytes(), two.bytes()), (100, 60, 40));
    drop(one);
    assert_eq!(memory.used(), 40);
    assert!(StageMemory::default().take(1 << 40).is_ok() && StageMemory::new(10).take(usize::MAX).is_err());
}
