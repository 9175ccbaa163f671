use linkspan_topology::fixture::{Fixture, STRIX_HALO};

use super::*;

/// UUID of the host at the fixture's cable, and of the machine's own router.
const PEER: &str = "d2040000-0080-7518-b3c8-e1ac3a6b0201";
const OWN: &str = "c5030000-0070-6508-a3c8-f1ac3a6b0101";

struct Machine {
    fix: Fixture,
    admissions: Admissions,
}

impl Machine {
    /// With linkspan.ko's device for the peer, or without.
    fn new(driver: bool) -> Machine {
        let fix = Fixture::tree(STRIX_HALO);
        if driver {
            for (file, text) in [("peer", PEER), ("state", "waiting"), ("allowed", "0")] {
                fix.file(&format!("sys/class/linkspan/linkspan0/{file}"), text);
            }
        }
        let admissions = Admissions::new(&fix.root.join("var"), &fix.root);
        Machine { fix, admissions }
    }

    fn look(&self) -> Look {
        Look::take(&self.fix.roots())
    }

    fn allowed(&self) -> String {
        fs::read_to_string(self.fix.root.join("sys/class/linkspan/linkspan0/allowed")).unwrap().trim().to_owned()
    }
}

#[test]
fn a_host_is_let_in_remembered_and_let_in_again_when_it_comes_back() {
    let machine = Machine::new(true);
    let one = &machine.admissions;
    assert_eq!(one.allow(&machine.look(), &PEER.to_uppercase()).unwrap(), ["linkspan0"]);
    assert_eq!(machine.allowed(), "1");
    let host = &one.hosts(&machine.look())[0];
    assert!(host.allowed && host.remembered && host.cables == ["0-1"], "{host:?}");
    assert!(one.apply(&machine.look()).is_empty(), "nobody waits");
    // Plugged in again, a new device of the driver's waits.
    machine.fix.file("sys/class/linkspan/linkspan0/allowed", "0");
    let told: Vec<String> = one.apply(&machine.look()).into_iter().map(Result::unwrap).collect();
    assert_eq!((told, machine.allowed()), (vec![PEER.to_owned()], "1".to_owned()));
    assert_eq!(one.forget(PEER).unwrap(), ["linkspan0"]);
    assert_eq!((machine.allowed(), one.remembered().len()), ("0".to_owned(), 0));
    assert!(one.apply(&machine.look()).is_empty());
}

#[test]
fn a_host_that_is_forgotten_stays_shut_out_whoever_looks_meanwhile() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let machine = Machine::new(true);
    let (one, look, over) = (&machine.admissions, machine.look(), AtomicBool::new(false));
    let left_in = std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    one.apply(&look);
                }
            });
        }
        let turn = |_: &u32| {
            one.allow(&look, PEER).unwrap();
            one.forget(PEER).unwrap();
            machine.allowed() != "0" || !one.remembered().is_empty()
        };
        let left_in = (0..200).filter(turn).count();
        over.store(true, Ordering::Relaxed);
        left_in
    });
    assert_eq!(left_in, 0, "of 200 times");
}

#[test]
fn a_host_that_could_not_be_remembered_for_good_is_not_let_in_later() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new(true);
    let (one, look, folder) = (&machine.admissions, machine.look(), machine.fix.root.join("var"));
    fs::create_dir(&folder).unwrap();
    // The file can be made, and its folder cannot be written to the disk: root may open anything, this thread is another user.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o333)).unwrap();
    let error = std::thread::scope(|threads| {
        let allow = || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            one.allow(&look, PEER).unwrap_err()
        };
        threads.spawn(allow).join().unwrap()
    });
    assert!(matches!(error, AdmissionError::Folder { .. }), "{error}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(one.remembered().is_empty() && one.apply(&machine.look()).is_empty());
    assert_eq!(machine.allowed(), "0");
}

#[test]
fn what_the_driver_did_not_take_is_forgotten_by_another_call() {
    let machine = Machine::new(true);
    let one = &machine.admissions;
    one.allow(&machine.look(), PEER).unwrap();
    // As where the process ends in between: not remembered, and let in.
    let file = machine.fix.root.join("sys/class/linkspan/linkspan0/allowed");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(matches!(one.forget(PEER), Err(AdmissionError::Driver(_))));
    assert!(one.remembered().is_empty());
    fs::remove_dir(&file).unwrap();
    fs::write(&file, "1\n").unwrap();
    assert!(one.apply(&machine.look()).is_empty());
    assert_eq!(one.forget(PEER).unwrap(), ["linkspan0"]);
    assert_eq!(machine.allowed(), "0");
}

#[test]
fn without_the_driver_it_is_remembered_alone() {
    let machine = Machine::new(false);
    let told = machine.admissions.allow(&machine.look(), PEER).unwrap();
    let host = &machine.admissions.hosts(&machine.look())[0];
    assert!(told.is_empty() && host.remembered && !host.allowed && host.driver.is_none(), "{host:?}");
    assert!(machine.admissions.forget(PEER).unwrap().is_empty());
}

#[test]
fn whoever_is_not_at_a_cable_is_refused_and_nothing_changes() {
    let machine = Machine::new(true);
    let (one, look) = (&machine.admissions, machine.look());
    let code = |uuid: &str| one.allow(&look, uuid).unwrap_err().to_string().chars().take(6).collect::<String>();
    let (long, dashes) = ("x".repeat(100_000), format!("-{PEER}"));
    for (uuid, want) in [
        ("", "LS3211"),
        (&dashes, "LS3211"),
        ("../../etc/passwd", "LS3211"),
        (&long, "LS3211"),
        ("00000000-0000-4000-8000-000000000001", "LS3212"),
        (OWN, "LS3213"),
    ] {
        assert_eq!(code(uuid), want);
    }
    assert!(one.allow(&look, &long).unwrap_err().to_string().len() < 200);
    assert!(one.remembered().is_empty() && machine.allowed() == "0");
    assert_eq!(one.forget("00000000-0000-4000-8000-000000000001").unwrap_err().to_string().get(..6), Some("LS3215"));
}

#[test]
fn a_peer_that_says_it_is_this_host_is_none() {
    let machine = Machine::new(false);
    let dir = fs::read_link(machine.fix.root.join("sys/bus/thunderbolt/devices/0-1")).unwrap();
    for forged in [OWN, "not a uuid at all"] {
        fs::write(dir.join("unique_id"), forged).unwrap();
        assert!(machine.admissions.hosts(&machine.look()).is_empty());
    }
    assert!(machine.admissions.allow(&machine.look(), OWN).is_err());
}

#[test]
fn a_driver_that_does_not_take_it_leaves_nothing_remembered() {
    let machine = Machine::new(true);
    // A directory cannot be written, by root neither.
    let file = machine.fix.root.join("sys/class/linkspan/linkspan0/allowed");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = machine.admissions.allow(&machine.look(), PEER).unwrap_err().to_string();
    assert!(error.starts_with("LS1532"), "{error}");
    assert!(machine.admissions.remembered().is_empty());
}

#[test]
fn a_host_of_whose_links_one_does_not_take_it_is_let_in_on_none() {
    let machine = Machine::new(true);
    machine.fix.file("sys/class/linkspan/linkspan1/peer", PEER);
    fs::create_dir(machine.fix.root.join("sys/class/linkspan/linkspan1/allowed")).unwrap();
    assert!(matches!(machine.admissions.allow(&machine.look(), PEER), Err(AdmissionError::Driver(_))));
    assert_eq!((machine.allowed().as_str(), machine.admissions.remembered().len()), ("0", 0));
}

#[test]
fn a_bounded_number_is_remembered_and_other_files_are_left_alone() {
    let machine = Machine::new(false);
    let folder = machine.fix.root.join("var");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("README"), "").unwrap();
    for n in 0..REMEMBERED {
        fs::write(folder.join(format!("00000000-0000-4000-8000-{n:012}")), "").unwrap();
    }
    let error = machine.admissions.allow(&machine.look(), PEER).unwrap_err();
    assert!(matches!(error, AdmissionError::Full), "{error}");
    machine.admissions.forget("00000000-0000-4000-8000-000000000000").unwrap();
    machine.admissions.allow(&machine.look(), PEER).unwrap();
    assert!(folder.join("README").exists());
}
