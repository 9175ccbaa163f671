use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::reading::{ALL_PAGES, PAGES, pages};
use super::*;

/// A child shares the locks of the files that were open when it was forked, until it runs its program: tests that start one and tests
/// that ask for a free lock take turns.
static TURNS: Mutex<()> = Mutex::new(());

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("linkspan-stats-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

#[test]
fn what_is_told_is_read() {
    let _turn = TURNS.lock();
    let dir = scratch("told");
    let stats = Stats::new(Some(&dir), "").unwrap();
    let slot = stats.slot("eth0+eth1", "tcp", "").unwrap();
    let mut tally = Tally::default();
    tally.add(Counter::TxBytes, 5);
    tally.took(Duration::from_micros(3));
    stats.report(slot, &mut tally);
    tally.add(Counter::TxBytes, 2);
    stats.report(stats.slot("eth0+eth1", "tcp", "").unwrap(), &mut tally);
    let shm = stats.slot("eth0+eth1", "shm", "").unwrap();
    stats.chosen(shm, "the first of two");
    stats.chosen(shm, "same host");
    stats.downgraded(&"d".repeat(600));
    let read_back = read(&dir).unwrap();
    assert_eq!(read_back[0].downgrades, 1);
    assert_eq!(read_back[0].last_downgrade, format!("{}…", "d".repeat(501)));
    assert_eq!(read_back[0].records.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>(), ["", "same host"]);
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
fn a_process_with_several_pages_is_read_as_one_with_their_sums() {
    let _turn = TURNS.lock();
    let dir = scratch("several");
    let (first, second) = (Stats::new(Some(&dir), "9").unwrap(), Stats::new(Some(&dir), "").unwrap());
    let mut tally = Tally::default();
    for (stats, transport, bytes) in [(&first, "tcp", 5), (&second, "tcp", 2), (&second, "shm", 1)] {
        tally.add(Counter::TxBytes, bytes);
        tally.took(Duration::from_micros(3));
        stats.report(stats.slot("eth0", transport, "").unwrap(), &mut tally);
        stats.downgraded("TCP in place of RDMA: no port");
        stats.count(Event::AcceptPauses);
    }
    // Pages are read in the order of their names; this one is the first of them, and the newest.
    first.downgraded("fewer cables");
    first.chosen(first.slot("eth0", "tcp", "").unwrap(), "first");
    let found = read(&dir).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&*found[0].last_downgrade, &*found[0].records[0].reason), ("fewer cables", "first"));
    let sums = |of: &Record| (of.transport.clone(), of.counters[Counter::TxBytes as usize], of.latency[2]);
    let records: Vec<_> = found[0].records.iter().map(sums).collect();
    assert_eq!(records, [("tcp".to_owned(), 7, 2), ("shm".to_owned(), 1, 1)]);
    assert_eq!((found[0].downgrades, found[0].events[Event::AcceptPauses as usize], &*found[0].job), (4, 3, "9"));
    drop((first, second));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Whoever makes pages that say to be of one process makes nobody hold more of it than of a page.
#[test]
fn what_a_page_has_counted_that_goes_before_its_process_goes_on_in_another() {
    let _turn = TURNS.lock();
    let dir = scratch("goes-on");
    let (first, second) = (Stats::new(Some(&dir), "9").unwrap(), Stats::new(Some(&dir), "9").unwrap());
    let elsewhere = scratch("goes-on-elsewhere");
    let other = Stats::new(Some(&elsewhere), "9").unwrap();
    let mut tally = Tally::default();
    for (stats, transport, bytes) in [(&first, "tcp", 5), (&first, "rdma", 3), (&second, "tcp", 2), (&second, "shm", 1)]
    {
        tally.add(Counter::TxBytes, bytes);
        tally.took(Duration::from_micros(3));
        stats.report(stats.slot("eth0", transport, "").unwrap(), &mut tally);
        stats.count(Event::AcceptPauses);
    }
    second.downgraded("before");
    first.downgraded("TCP in place of RDMA: no port");
    // The order of records is no promise.
    let sorted = || {
        let mut found = read(&dir).unwrap();
        found[0].records.sort_by(|a, b| a.transport.cmp(&b.transport));
        found[0].uptime = Duration::ZERO;
        found
    };
    let before = sorted();
    assert_eq!(before[0].records.len(), 3);
    drop(first);
    assert_eq!(sorted(), before);
    let third = Stats::new(Some(&dir), "9").unwrap();
    drop(second);
    assert_eq!(sorted(), before);
    drop(third);
    assert!(read(&dir).unwrap().is_empty(), "the last one goes with the process");
    assert!(read(&elsewhere).unwrap()[0].records.is_empty(), "another folder has its own");
    drop(other);
    [dir, elsewhere].iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
}

#[test]
fn pages_of_a_process_that_have_too_many_records_together_stay_apart() {
    let _turn = TURNS.lock();
    let dir = scratch("apart");
    let pages = [(); 3].map(|()| Stats::new(Some(&dir), "").unwrap());
    for (n, page) in pages.iter().enumerate() {
        for device in 0..RECORDS - 1 {
            page.slot(&format!("{n}.{device}"), "tcp", "").unwrap();
        }
        page.slot("shared", "tcp", "").unwrap();
    }
    let found = read(&dir).unwrap();
    assert_eq!(found.iter().map(|process| process.records.len()).collect::<Vec<_>>(), [RECORDS; 3]);
    drop(pages);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn foreign_and_damaged_files_are_passed_over() {
    let _turn = TURNS.lock();
    let dir = scratch("foreign");
    let stats = Stats::new(Some(&dir), "").unwrap();
    stats.slot("eth0", "tcp", "").unwrap();
    let mut whole = std::fs::read(dir.join(format!("{}.stats", std::process::id()))).unwrap();
    // That of another process with this number.
    whole[8 * WHICH] ^= 1;
    // Held: a page whose lock is free is passed over before it is looked at.
    let held = |bytes: &[u8]| {
        std::fs::write(dir.join("cut.stats"), bytes).unwrap();
        let file = File::open(dir.join("cut.stats")).unwrap();
        file.lock().unwrap();
        file
    };
    for (cut, seen) in [(0, 1), (8, 1), (40, 1), (64, 1), (600, 2), (whole.len() - 8, 2)] {
        let _held = held(&whole[..cut]);
        assert_eq!(read(&dir).unwrap().len(), seen, "{cut}");
    }
    let _held = held(&[0xff; 4096]);
    assert_eq!(read(&dir).unwrap().len(), 1);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let _turn = TURNS.lock();
    use std::os::unix::fs::PermissionsExt;
    let dir = scratch("open");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Stats::new(Some(&dir), "").unwrap_err().contains("no other user can write"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_table_of_records_is_bounded() {
    let _turn = TURNS.lock();
    let dir = scratch("bound");
    let stats = Stats::new(Some(&dir), "").unwrap();
    for n in 0..RECORDS {
        assert!(stats.slot(&format!("dev{n}"), "tcp", "").is_some());
    }
    assert!(stats.slot("one more", "tcp", "").is_none());
    drop(stats);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn named_peers_have_records_of_their_own_up_to_a_bound() {
    let _turn = TURNS.lock();
    let dir = scratch("named");
    let stats = Stats::new(Some(&dir), "").unwrap();
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
    let _turn = TURNS.lock();
    let dir = scratch("run");
    let folder = RunFolder::make(&dir).unwrap();
    let stats = Stats::new(Some(folder.path()), "").unwrap();
    stats.slot("eth0", "tcp", "").unwrap();
    stats.downgraded("TCP in place of RDMA: no port");
    stats.downgraded("TCP in place of RDMA: no port");
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
    // The next run finds what a killed one left; a run that lives is not touched, whatever its number.
    for name in ["run-4194305", "run-1", "run-4194306"] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
        std::fs::write(dir.join(name).join("keep"), []).unwrap();
    }
    let lives = File::open(dir.join("run-4194306/keep")).unwrap();
    lives.lock().unwrap();
    drop(RunFolder::make(&dir).unwrap());
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["run-4194306"]);
    drop(lives);
    drop(RunFolder::make(&dir).unwrap());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_run_tells_of_the_runs_within_it_too() {
    let _turn = TURNS.lock();
    let dir = scratch("within");
    let outer = RunFolder::make(&dir).unwrap();
    let inner = RunFolder::make(outer.path()).unwrap();
    let innermost = RunFolder::make(inner.path()).unwrap();
    let of = |folder: &RunFolder| {
        let stats = Stats::new(Some(folder.path()), "").unwrap();
        stats.downgraded("TCP in place of RDMA: no port");
        stats
    };
    // The same process in each, and its sums.
    let pages = [of(&innermost), of(&inner), of(&outer)];
    let sums = |found: &[ProcessStats]| found.iter().map(|page| page.downgrades).collect::<Vec<_>>();
    assert_eq!(sums(&read(&dir).unwrap()), [3], "`lspan stats` sees them while they live");
    drop(pages);
    let told = |folder: &RunFolder| sums(&folder.read().unwrap());
    assert_eq!([told(&innermost), told(&inner), told(&outer)], [[1], [2], [3]]);
    drop(innermost);
    assert_eq!([told(&inner), told(&outer)], [[2], [3]]);
    drop(inner);
    assert_eq!(told(&outer), [3]);
    // One that was killed is in the way of nobody.
    let killed = outer.path().join("run-4194305");
    std::fs::create_dir(&killed).unwrap();
    std::fs::write(killed.join("keep"), []).unwrap();
    drop(outer);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn every_downgrade_that_is_logged_is_counted() {
    let _turn = TURNS.lock();
    let dir = scratch("counted");
    let stats = Arc::new(Stats::new(Some(&dir), "").unwrap());
    let log = crate::log::counting(crate::log::Log::off(), stats.clone());
    log.warn("downgrade: TCP in place of RDMA");
    log.warn("rail lost: eth0");
    log.info("downgrade: no warning");
    let page = read(&dir).unwrap().remove(0);
    assert_eq!((page.downgrades, &*page.last_downgrade), (1, "TCP in place of RDMA"));
    drop((log, stats));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A folder for all users, as tmpfiles.d makes it. The folders above can be entered by everybody.
fn for_all(name: &str) -> PathBuf {
    let dir = scratch(name);
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o1777)).unwrap();
    dir
}

/// Ends a process that runs until its standard input is closed. Its output stays open until then.
struct Child {
    process: std::process::Child,
    #[allow(dead_code, reason = "held open")]
    output: std::process::ChildStdout,
    said: String,
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Environment variable that makes [`a_process_with_a_page`] more than an empty test.
const PLAY: &str = "LINKSPAN_TEST_PAGE_IN";

/// The other process of the tests below: makes a page, sends 7 bytes, says so, and ends with its input.
#[test]
fn a_process_with_a_page() {
    let _turn = TURNS.lock();
    let Some(dir) = std::env::var_os(PLAY) else { return };
    let stats = Stats::new(Some(Path::new(&dir)), "42").unwrap();
    let mut tally = Tally::default();
    tally.add(Counter::TxBytes, 7);
    stats.report(stats.slot("eth0", "tcp", "").unwrap(), &mut tally);
    let uids: Vec<_> = read(dir.as_ref()).unwrap().iter().map(|p| p.uid).collect();
    println!("page made, reads those of {uids:?}");
    std::io::stdin().lines().for_each(drop);
}

/// Starts it by way of a command, as `unshare` or `setpriv`, and waits for its page. `None`: the command cannot do that here.
fn other_process(through: &[&str], dir: &Path) -> Option<Child> {
    use std::io::{BufRead, Read};
    use std::process::{Command, Stdio};
    let (program, args) = through.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(args).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "stats::tests::a_process_with_a_page", "--nocapture"]).env(PLAY, dir);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut out = std::io::BufReader::new(process.stdout.take().unwrap());
    let said = out.by_ref().lines().map_while(Result::ok).find(|line| line.contains("page made"));
    // The rest of its output is small enough for the pipe.
    let child = Child { process, output: out.into_inner(), said: said.clone().unwrap_or_default() };
    said.map(|_| child)
}

#[test]
fn a_process_of_another_pid_namespace_is_seen_and_not_swept() {
    let _turn = TURNS.lock();
    let dir = scratch("pidns");
    // In a namespace of its own each has the same number; here that is another process.
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let unshare =
        if rustix::process::geteuid().is_root() { [&unshare[..1], &unshare[3..]].concat() } else { unshare.to_vec() };
    let here = Stats::new(Some(&dir), "").unwrap();
    // Each sweeps the directory; ours is no process number there.
    let Some(one) = other_process(&unshare, &dir) else {
        return eprintln!("skipped: unshare makes no pid namespace here");
    };
    let two = other_process(&unshare, &dir).unwrap();
    assert!(two.said.ends_with("[0, 0, 0]") || !rustix::process::geteuid().is_root(), "{}", two.said);
    sweep(&dir);
    let found = read(&dir).unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    let same: Vec<u32> = found.iter().map(|p| p.pid).filter(|pid| *pid != std::process::id()).collect();
    assert_eq!(same[0], same[1], "two names for one number");
    assert!(found.iter().any(|p| p.job == "42" && p.records[0].counters[Counter::TxBytes as usize] == 7));
    drop((one, two));
    // What is killed leaves its page; its number may be that of a living process.
    let killed = other_process(&["setsid", "--wait"], &dir).map(|mut child| {
        let found = read(&dir).unwrap().into_iter().find(|p| p.job == "42").unwrap();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(found.pid as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        child.process.wait().unwrap();
        dir.join(format!("{}.stats", found.pid))
    });
    let left = killed.unwrap();
    let own = dir.join("1.stats");
    std::fs::rename(&left, &own).unwrap();
    assert_eq!(read(&dir).unwrap().len(), 1, "process 1 lives, the page does not");
    drop(here);
    drop(Stats::new(Some(&dir), "").unwrap());
    assert!(!own.exists(), "dead pages are swept");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn pages_of_another_user_in_a_shared_folder_are_read() {
    let _turn = TURNS.lock();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can start a process of another user");
    }
    let dir = for_all("users");
    std::os::unix::fs::chown(&dir, None, Some(4300)).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o3777)).unwrap();
    // Somebody else has taken the name of user 4242.
    std::fs::create_dir(dir.join("4242")).unwrap();
    let setpriv = ["setpriv", "--reuid", "4242", "--regid", "4243", "--clear-groups"];
    let Some(_theirs) = other_process(&setpriv, &dir) else {
        return eprintln!("skipped: setpriv cannot start the test as another user");
    };
    let _ours = Stats::new(Some(&dir), "").unwrap();
    let mode = |path: &str| std::fs::metadata(dir.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("4242.1") & 0o777, mode("0") & 0o777), (0o750, 0o750));
    // Members of the group read all, others their own.
    let group = ["setpriv", "--reuid", "4343", "--regid", "4343", "--groups", "4300"];
    let member = other_process(&group, &dir).unwrap();
    assert!(member.said.ends_with("[0, 4242, 4343]"), "{}", member.said);
    let stranger = other_process(&[&setpriv[..2], &["4444"], &setpriv[3..]].concat(), &dir).unwrap();
    assert!(stranger.said.ends_with("[4444]"), "{}", stranger.said);
    drop((member, stranger));
    let users = |found: Vec<ProcessStats>| found.iter().map(|p| p.uid).collect::<Vec<_>>();
    assert_eq!(users(read(&dir).unwrap()), [0, 4242]);
    // A page in a directory that is not its owner's does not count.
    let page = pages(&dir.join("4242.1")).unwrap().remove(0);
    std::fs::rename(&page, dir.join("0/1.stats")).unwrap();
    assert_eq!(users(read(&dir).unwrap()), [0]);
    std::fs::rename(dir.join("0/1.stats"), page).unwrap();
    assert_eq!(users(read(&dir).unwrap()), [0, 4242]);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn text_of_another_user_has_no_control_characters() {
    let _turn = TURNS.lock();
    let dir = scratch("control");
    let stats = Stats::new(Some(&dir), "\x1b]0;job\x07").unwrap();
    stats.slot("eth\x1b[2J\n", "tcp", "").unwrap();
    let found = read(&dir).unwrap().remove(0);
    assert_eq!(
        (found.job.as_str(), found.records[0].device.as_str()),
        ("\u{fffd}]0;job\u{fffd}", "eth\u{fffd}[2J\u{fffd}")
    );
    drop(stats);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A page as short as they can be, whose lock is held by what is returned. `owner`: whose it becomes, which takes root.
fn held_page(path: &Path, owner: Option<u32>) -> File {
    let mut words = [0; HEADER];
    words[..6].copy_from_slice(&[MAGIC, VERSION, 7, 1, RECORDS as u64, RECORD as u64]);
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
    std::os::unix::fs::chown(path.parent().unwrap(), owner, None).unwrap();
    std::os::unix::fs::chown(path, owner, None).unwrap();
    let file = File::open(path).unwrap();
    file.lock().unwrap();
    file
}

/// Pages of a user that were read.
fn of(found: &[ProcessStats], uid: u32) -> usize {
    found.iter().filter(|page| page.uid == uid).count()
}

#[test]
fn names_that_others_make_in_a_shared_folder_hide_nobody() {
    let _turn = TURNS.lock();
    let dir = for_all("names");
    let own = rustix::process::geteuid().as_raw();
    let nobody = (own == 0).then_some(65_534);
    for n in 0..300 {
        // Before every number, and the numbers themselves.
        for name in [format!("!{n:03}"), format!("0.{n}"), format!("{n}")] {
            let _squatted = held_page(&dir.join(name).join("1.stats"), nobody);
        }
    }
    // One page of 300 links, which would be 300 pages.
    let linked = held_page(&dir.join("1.links/0.stats"), nobody);
    for n in 1..300 {
        std::fs::hard_link(dir.join("1.links/0.stats"), dir.join(format!("1.links/{n}.stats"))).unwrap();
    }
    let stats = Stats::new(Some(&dir), "mine").unwrap();
    let third = (own == 0).then(|| held_page(&dir.join("70000/1.stats"), Some(70_000)));
    let found = read(&dir).unwrap();
    assert_eq!(found.iter().filter(|page| page.job == "mine").count(), 1, "its own");
    assert_eq!(found.len(), 1 + usize::from(third.is_some()), "a page counts once, or not at all: {found:?}");
    if third.is_none() {
        eprintln!("skipped: only root can make directories of other users; all of them were this user's");
    }
    drop((stats, linked));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_user_whose_names_are_all_taken_has_statistics() {
    let _turn = TURNS.lock();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can make directories of other users");
    }
    let dir = for_all("taken");
    for n in 0..SAME {
        let name = dir.join(if n == 0 { "0".to_owned() } else { format!("0.{n}") });
        std::fs::create_dir(&name).unwrap();
        std::os::unix::fs::chown(&name, Some(65_534), None).unwrap();
    }
    let (one, two) = (Stats::new(Some(&dir), "").unwrap(), Stats::new(Some(&dir), "").unwrap());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), SAME + 1, "one directory for all of its processes");
    one.downgraded("TCP in place of RDMA: no port");
    two.downgraded("fewer cables");
    assert_eq!(read(&dir).unwrap().iter().filter(|page| page.uid == 0).map(|page| page.downgrades).sum::<u64>(), 2);
    drop((one, two));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_bounded_number_of_pages_is_read_and_each_user_has_as_many_as_the_next() {
    let _turn = TURNS.lock();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can make directories of other users");
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let dir = for_all("many");
    let mut held = Vec::new();
    for uid in [4001, 4002, 4003] {
        // Over all directories of a user.
        for n in 0..PAGES + 100 {
            held.push(held_page(&dir.join(format!("{uid}.{}/{n}.stats", n % 3)), Some(uid)));
        }
    }
    assert_eq!(of(&read(&dir).unwrap(), 4001), ALL_PAGES.div_ceil(3));
    held.push(held_page(&dir.join("4004/1.stats"), Some(4004)));
    held.extend((0..900).map(|n| held_page(&dir.join(format!("0/{n}.stats")), Some(0))));
    let found = read(&dir).unwrap();
    let each = (ALL_PAGES - 901) / 3;
    assert_eq!((found.len(), of(&found, 0), of(&found, 4004)), (ALL_PAGES, 900, 1), "its own all, of others by turns");
    assert!([4001, 4002, 4003].iter().all(|uid| (each..=each + 1).contains(&of(&found, *uid))));
    drop(held);
    std::fs::remove_dir_all(&dir).unwrap();
    // Of too many users those of the lowest numbers: the higher ones may all be one user's (/etc/subuid).
    let dir = for_all("owners");
    let uids = (100_000..100_300).chain([1000, 0]);
    let held: Vec<File> = uids.map(|uid| held_page(&dir.join(format!("{uid}/1.stats")), Some(uid))).collect();
    let found = read(&dir).unwrap();
    assert_eq!((found.len(), of(&found, 0), of(&found, 1000), of(&found, 100_299)), (256, 1, 1, 0));
    drop(held);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_page_that_was_read_takes_less_than_25_kib() {
    let _turn = TURNS.lock();
    let dir = scratch("size");
    // What cannot be shown takes three bytes in place of one.
    let junk = |n: usize, most: usize| format!("{n:02}{}", "\x01".repeat(most - 2));
    let stats = Stats::new(Some(&dir), &junk(0, 64)).unwrap();
    stats.downgraded(&junk(0, 512));
    for n in 0..RECORDS {
        let peer = if n < NAMED { junk(n, 64) } else { String::new() };
        stats.chosen(stats.slot(&junk(n, 64), &junk(n, 8), &peer).unwrap(), &junk(n, 80));
    }
    let page = read(&dir).unwrap().remove(0);
    assert_eq!(page.records.len(), RECORDS);
    let record = |r: &Record| {
        let texts = r.device.capacity() + r.transport.capacity() + r.peer.capacity() + r.reason.capacity();
        size_of::<Record>() + texts + 8 * (r.counters.capacity() + r.latency.capacity())
    };
    let texts = page.comm.capacity() + page.job.capacity() + page.last_downgrade.capacity();
    let own = size_of::<ProcessStats>() + texts + 8 * page.events.capacity();
    // The list has grown by doubling.
    let spare = (page.records.capacity() - page.records.len()) * size_of::<Record>();
    let all = own + spare + page.records.iter().map(record).sum::<usize>();
    assert!(all < 25 << 10, "{all} bytes");
    drop(stats);
    std::fs::remove_dir_all(&dir).unwrap();
}
