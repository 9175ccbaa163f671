use linkspan_perf::LinkError;

use super::*;

#[test]
fn a_peer_that_gives_no_bare_connection_leaves_the_row_with_a_note() {
    let refused = without(PerfError::Refused("no baseline here".into())).unwrap();
    let gone = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let closed = without(PerfError::Baseline { what: "connect", source: gone }).unwrap();
    for (found, part) in [(refused, "LS0704"), (closed, "LS0707")] {
        assert!(found.comparisons.is_empty() && found.notes.len() == 1 && found.notes[0].contains(part), "{found:?}");
    }
    assert!(without(PerfError::Link(LinkError::Interrupted)).is_err(), "the link itself is at its end");
}
