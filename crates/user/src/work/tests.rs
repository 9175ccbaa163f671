use super::*;
use crate::task::Kind;

/// Whether a transfer comes to its end whose connection is lost that often, each time after so many bytes.
fn ends(losses: u32, bytes: u64) -> bool {
    let folder = std::env::temp_dir().join(format!("linkspan-work-{}-{losses}-{bytes}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tasks = Tasks::new(folder.join("history"), Arc::new(|_| {}), Box::new(|| {}));
    let task = tasks.prepare(Kind::Send, "x", Vec::new()).unwrap();
    let mut carry = Carry::new(&task, false);
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

#[test]
fn what_was_told_over_a_connection_that_was_lost_stays_in_the_record_where_the_next_one_does_not_tell_it_again() {
    use linkspan_files::fs::Kind as Of;
    let folder = std::env::temp_dir().join(format!("linkspan-work-told-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tasks = Tasks::new(folder.join("history"), Arc::new(|_| {}), Box::new(|| {}));
    for (dry_run, deleted) in [(false, 1), (true, 0)] {
        let task = tasks.prepare(Kind::Send, "x", Vec::new()).unwrap();
        let mut carry = Carry::new(&task, dry_run);
        let extra = linkspan_files::wire::Extra { kind: Of::File, size: 1, mtime: Default::default() };
        for what in
            [LeftOut::Security, LeftOut::Special].map(Happened::LeftOut).into_iter().chain([Happened::Extra(extra)])
        {
            carry.event(Event { path: RelPath::default(), what });
        }
        carry.lost("cut");
        carry.lost("cut");
        let mut progress = task.progress();
        let moved = progress.moved();
        assert_eq!((moved.entries_left_out, moved.entries_deleted), (1, deleted));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
