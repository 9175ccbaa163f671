use super::*;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("linkspan-stats-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

#[test]
fn what_is_told_is_read() {
    let dir = scratch("told");
    let stats = Stats::new(Some(&dir)).unwrap();
    let slot = stats.slot("eth0+eth1", "tcp", "").unwrap();
    let mut tally = Tally::default();
    tally.add(Counter::TxBytes, 5);
    tally.took(Duration::from_micros(3));
    stats.report(slot, &mut tally);
    tally.add(Counter::TxBytes, 2);
    stats.report(stats.slot("eth0+eth1", "tcp", "").unwrap(), &mut tally);
    stats.slot("eth0+eth1", "shm", "").unwrap();
    let read_back = read(&dir).unwrap();
    assert_eq!(read_back.len(), 1);
    assert_eq!(read_back[0].pid, std::process::id());
    let transports: Vec<_> = read_back[0].records.iter().map(|r| (r.device.as_str(), r.transport.as_str())).collect();
    assert_eq!(transports, [("eth0+eth1", "tcp"), ("eth0+eth1", "shm")]);
    assert_eq!(read_back[0].records[0].counters[Counter::TxBytes as usize], 7);
    assert_eq!(read_back[0].records[0].latency[2], 1, "3 µs are less than 4 and not less than 2");
    drop(stats);
    assert!(read(&dir).unwrap().is_empty(), "the page goes with the process");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn foreign_and_damaged_files_are_passed_over() {
    let dir = scratch("foreign");
    let stats = Stats::new(Some(&dir)).unwrap();
    stats.slot("eth0", "tcp", "").unwrap();
    let whole = std::fs::read(dir.join(format!("{}.stats", std::process::id()))).unwrap();
    for cut in [0, 8, 40, 64, 600, whole.len() - 8] {
        std::fs::write(dir.join("cut.stats"), &whole[..cut]).unwrap();
        assert!(read(&dir).unwrap().len() <= 2);
    }
    std::fs::write(dir.join("cut.stats"), [0xff; 4096]).unwrap();
    assert_eq!(read(&dir).unwrap().len(), 1);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = scratch("open");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Stats::new(Some(&dir)).unwrap_err().contains("no other user can write"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_table_of_records_is_bounded() {
    let dir = scratch("bound");
    let stats = Stats::new(Some(&dir)).unwrap();
    for n in 0..RECORDS {
        assert!(stats.slot(&format!("dev{n}"), "tcp", "").is_some());
    }
    assert!(stats.slot("one more", "tcp", "").is_none());
    drop(stats);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn named_peers_have_records_of_their_own_up_to_a_bound() {
    let dir = scratch("named");
    let stats = Stats::new(Some(&dir)).unwrap();
    let mut tally = Tally::default();
    for n in 0..NAMED + 5 {
        tally.add(Counter::TxBytes, 1);
        stats.report(stats.slot("eth0", "tcp", &format!("peer{n}")).unwrap(), &mut tally);
    }
    tally.add(Counter::TxBytes, 10);
    stats.report(stats.slot("eth0", "tcp", "peer0").unwrap(), &mut tally);
    let records = read(&dir).unwrap().remove(0).records;
    let sent = |peer: &str| {
        let one = records.iter().find(|r| r.peer == peer);
        one.map(|r| r.counters[Counter::TxBytes as usize])
    };
    assert_eq!((sent("peer0"), sent("peer1"), sent("")), (Some(11), Some(1), Some(5)));
    assert_eq!(records.len(), NAMED + 1);
    assert_eq!(records.last().unwrap().latency.iter().sum::<u64>(), 0, "a name is no latency");
    drop(stats);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn pages_of_a_run_stay_until_its_folder_goes() {
    let dir = scratch("run");
    let folder = RunFolder::make(&dir).unwrap();
    let stats = Stats::new(Some(folder.path())).unwrap();
    stats.slot("eth0", "tcp", "").unwrap();
    stats.downgraded();
    stats.downgraded();
    assert_eq!(read(&dir).unwrap().len(), 1, "`lspan stats` sees it below the usual folder");
    drop(stats);
    let pages = folder.read().unwrap();
    assert_eq!((pages.len(), pages[0].downgrades, pages[0].records.len()), (1, 2, 1));
    // What is no page is none of ours to remove.
    std::fs::write(folder.path().join("notes"), "x").unwrap();
    let path = folder.path().to_owned();
    drop(folder);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    std::fs::remove_file(path.join("notes")).unwrap();
    // The next run of this number, and the next run at all, finds what a killed one left.
    std::fs::create_dir_all(dir.join("run-4194305")).unwrap();
    std::fs::write(dir.join("run-4194305/keep"), []).unwrap();
    drop(RunFolder::make(&dir).unwrap());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn every_downgrade_that_is_logged_is_counted() {
    let dir = scratch("counted");
    let stats = std::sync::Arc::new(Stats::new(Some(&dir)).unwrap());
    let log = crate::Log::off().counting(stats.clone());
    log.warn("downgrade: TCP in place of RDMA");
    log.warn("rail lost: eth0");
    log.info("downgrade: no warning");
    assert_eq!(read(&dir).unwrap()[0].downgrades, 1);
    drop((log, stats));
    std::fs::remove_dir_all(&dir).unwrap();
}
