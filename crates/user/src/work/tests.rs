use super::*;
use crate::task::Kind;

/// Whether a transfer comes to its end whose connection is lost that often, each time after so many bytes.
fn ends(losses: u32, bytes: u64) -> bool {
    let folder = std::env::temp_dir().join(format!("linkspan-work-{}-{losses}-{bytes}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tasks = Tasks::new(folder.join("history"), Arc::new(|_| {}), Box::new(|| {}));
    let task = tasks.prepare(Kind::Send, "x", Vec::new()).unwrap();
    let mut carry = Carry::new(&task);
    let mut connections = 0;
    let outcome = drive(&mut carry, |carry| {
        connections += 1;
        for part in [bytes / 2, bytes] {
            assert!(carry.tick(part, 0));
        }
        if connections > losses { Ok(Outcome::default()) } else { Err(FilesError::Lost("cut".into())) }
    });
    std::fs::remove_dir_all(&folder).unwrap();
    outcome.is_ok()
}

#[test]
fn a_transfer_goes_on_after_any_number_of_lost_connections_while_bytes_of_a_file_arrive_and_ends_when_none_do() {
    assert!(ends(8, 1000));
    assert!(!ends(8, 0));
}
