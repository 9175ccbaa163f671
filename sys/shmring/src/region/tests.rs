use super::{Entry, Region, WORDS};
use crate::sync::AtomicU64;

const REGION: Region = Region { address: 0x1000, len: 64, rights: 3 };

#[test]
fn an_entry_is_found_by_its_own_key_until_it_is_withdrawn() {
    let words: [AtomicU64; WORDS] = Default::default();
    let entry = Entry { words: words.each_ref() };
    assert_eq!(entry.find(1 << 12), None);
    entry.publish(1 << 12, REGION);
    assert_eq!(entry.find(1 << 12), Some(REGION));
    assert_eq!(entry.find(2 << 12), None, "another generation");
    entry.withdraw();
    assert_eq!(entry.find(1 << 12), None);
    assert_eq!(entry.find(0), None, "what stood there is no region of key 0");
    entry.publish(2 << 12, Region { len: 8, ..REGION });
    assert_eq!(entry.find(1 << 12), None);
    assert_eq!(entry.find(2 << 12).map(|region| region.len), Some(8));
}
