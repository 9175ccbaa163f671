use proptest::prelude::*;

use super::super::{Pcap, Record, Sink};
use super::*;

fn written(records: &[Record<'_>], snap: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut pcap, switch) = Pcap::new(&mut bytes, &["a".to_owned(), "b".to_owned()], snap);
    for record in records {
        pcap.record(record);
    }
    switch.set(false);
    pcap.record(&Record { at: 1, host: 0, what: What::Event("not any more") });
    drop(pcap);
    bytes
}

#[test]
fn what_was_written_is_read() {
    let long = [7; 300];
    let frame = |bytes| What::Frame { direction: Direction::In, hop: 9, ring: 3, sof: 1, eof: 2, damaged: true, bytes };
    let records = [
        Record { at: 5, host: 0, what: What::Control { direction: Direction::Out, pdf: 6, bytes: &[1, 2, 3, 4, 5] } },
        Record { at: 1 << 40, host: 1, what: frame(&long) },
        Record { at: 1 << 41, host: 2, what: What::Event("link up") },
    ];
    let bytes = written(&records, 100);
    let trace = Trace::parse(&bytes).unwrap();
    assert_eq!(trace.names, ["a", "b", "world"]);
    let entry = |n: usize| trace.entries[n];
    assert_eq!(entry(0), Entry { at: 5, host: 0, what: records[0].what, full_len: 5 });
    assert_eq!(entry(1), Entry { at: 1 << 40, host: 1, what: frame(&long[..100]), full_len: 300 });
    assert_eq!(entry(2), Entry { at: 1 << 41, host: 2, what: records[2].what, full_len: 7 });
    assert_eq!(trace.entries.len(), 3);
}

#[test]
fn a_file_that_is_cut_ends_early_and_another_is_refused() {
    let record = Record { at: 5, host: 0, what: What::Event("here") };
    let bytes = written(&[record, record], 9);
    for len in 12..bytes.len() {
        assert!(Trace::parse(&bytes[..len]).unwrap().entries.len() < 2);
    }
    assert!(Trace::parse(b"GIF89a, and what follows it").unwrap_err().to_string().starts_with("LS0922"));
}

proptest! {
    #[test]
    fn reading_is_total(flips in proptest::collection::vec((0usize..600, any::<u8>()), 0..8)) {
        let record = Record { at: 5, host: 0, what: What::Event("here") };
        let mut bytes = written(&[record, record, record], 9);
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let _ = Trace::parse(&bytes);
    }
}
