//! Deleting, the trash and mirrors, with the peer in another process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Running, World, err, noise, text, until};

/// Makes a tree of `src`.
fn plant(world: &World) {
    for sub in ["a", "a/deep", "b"] {
        fs::create_dir_all(world.path("src").join(sub)).unwrap();
    }
    for (n, path) in ["one", "a/two", "a/deep/three", "b/four", "b/five"].iter().enumerate() {
        fs::write(world.path("src").join(path), noise(5000 + n, n as u64)).unwrap();
    }
    fs::write(world.path("src/large"), noise((5 << 20) + 17, 99)).unwrap();
}

/// Everything visible is the same on both sides.
fn equal(a: &Path, b: &Path) -> bool {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).filter(|name| name != ".lspan").collect();
        names.retain(|name| !name.to_string_lossy().starts_with(".lspan-"));
        names.sort();
        names
    };
    names(a) == names(b)
        && names(a).iter().all(|name| {
            let (a, b) = (a.join(name), b.join(name));
            if a.is_dir() { b.is_dir() && equal(&a, &b) } else { fs::read(a).ok() == fs::read(b).ok() }
        })
}

/// The trash's files, each with its path behind the run.
fn trashed(world: &World, place: &str) -> Vec<String> {
    let list = text(&world.ok(&["trash", "list", place]));
    let path = |line: &str| line.rsplit(' ').next().unwrap().split_once('/').unwrap().1.to_owned();
    list.lines().map(path).collect()
}

#[test]
fn send_and_get_delete_what_the_source_has_not_and_the_trash_gives_it_back() {
    let world = World::new("delete");
    let _server = world.serve(&[], ":rw");
    plant(&world);
    world.ok(&["send", "src", &world.place("data/")]);
    assert!(!world.path("share/.lspan").exists(), "nothing was deleted, and there is no trash");
    fs::remove_dir_all(world.path("src/b")).unwrap();
    fs::write(world.path("src/one"), b"another").unwrap();
    fs::write(world.path("share/beside"), b"not in a directory that is sent").unwrap();
    let dry = text(&world.ok(&["send", "src", &world.place("data/"), "--delete", "--dry-run"]));
    assert_eq!(dry, "src/one\ndelete src/b/\ndelete src/b/five\ndelete src/b/four\n");
    let sent = world.ok(&["send", "src", &world.place("data/"), "--delete"]);
    assert!(err(&sent).contains("1 file, ") && err(&sent).contains("1 entry moved to the trash"), "{}", err(&sent));
    assert!(equal(&world.path("src"), &world.path("share/src")) && world.path("share/beside").exists());
    let share = world.place("data");
    assert_eq!(trashed(&world, &share), ["src/b/five", "src/b/four", "src/one"]);
    for line in text(&world.ok(&["trash", "list", &share, "--json"])).lines() {
        let problems = crate::schema::problems("trash-1.json", &serde_json::from_str(line).unwrap());
        assert!(problems.is_empty(), "{problems:?}: {line}");
    }
    // Back: a directory that is gone, and not what is there again.
    world.ok(&["trash", "restore", &share, "src/b"]);
    assert_eq!(fs::read(world.path("share/src/b/four")).unwrap(), noise(5003, 3));
    let refused = world.run(&["trash", "restore", &share, "src/one"]);
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    assert_eq!(fs::read(world.path("share/src/one")).unwrap(), b"another");
    assert_eq!(trashed(&world, &share), ["src/one"]);
    let none = world.run(&["trash", "restore", &share, "src/none"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(err(&none).contains("src/none: LS1803 it is not in the trash"), "{}", err(&none));
    for what in ["list", "empty"] {
        let nowhere = world.run(&["trash", what, &world.place("nosuch")]);
        assert!(err(&nowhere).contains("LS1803"), "a share that is not there: {}", err(&nowhere));
    }
    world.ok(&["trash", "empty", &share, "--older", "1"]);
    assert_eq!(trashed(&world, &share), ["src/one"]);
    world.ok(&["trash", "empty", &share]);
    assert_eq!(trashed(&world, &share).len(), 0);
    // The other way, with a trash of this host.
    world.ok(&["get", &world.place("data/src"), "out"]);
    fs::remove_dir_all(world.path("share/src/b")).unwrap();
    let got = world.ok(&["get", &world.place("data/src"), "out", "--delete", "--json"]);
    assert!(text(&got).contains("\"what\":\"deleted\""), "{}", text(&got));
    for line in text(&got).lines() {
        let problems = crate::schema::problems("files-1.json", &serde_json::from_str(line).unwrap());
        assert!(problems.is_empty(), "{problems:?}: {line}");
    }
    assert!(!world.path("out/src/b").exists());
    let own = world.ok(&["trash", "list", "out"]);
    assert!(text(&own).contains("src/b/five") && text(&own).contains("src/b/four"), "{}", text(&own));
    world.ok(&["trash", "restore", "out", "src/b/five"]);
    assert_eq!(fs::read(world.path("out/src/b/five")).unwrap(), noise(5004, 4));
}

#[test]
fn sources_of_one_name_do_not_delete_what_each_other_brings() {
    let world = World::new("one-name");
    let _server = world.serve(&[], ":rw");
    for (dir, name) in [("one/a", "1"), ("two/a", "2"), ("share/x/a", "1"), ("share/y/a", "2"), ("share/a", "2")] {
        fs::create_dir_all(world.path(dir)).unwrap();
        fs::write(world.path(dir).join(name), b"x").unwrap();
    }
    fs::create_dir(world.path("out/a")).unwrap();
    fs::write(world.path("out/a/2"), b"x").unwrap();
    let data = |path: &str| world.place(&format!("data{path}"));
    for args in [
        &["send", "one/a", "two/a", &data("/")][..],
        &["send", "one/a", "one/a", &data("/")],
        &["get", &data("/x/a"), &data("/y/a"), "out"],
        // What the share has not would go, and with it what the other one brings.
        &["get", &data(""), &data("/y/a"), "out"],
        &["get", &data("/x/a"), &data(""), "none/"],
    ] {
        let refused = world.run(&[args, &["--delete"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {}", err(&refused));
        assert!(err(&refused).contains("name one at a time"), "{args:?}: {}", err(&refused));
    }
    let count = |dir: &str| fs::read_dir(world.path(dir)).unwrap().count();
    assert_eq!((count("share/a"), count("out"), count("out/a"), world.path("none").exists()), (1, 1, 1, false));
    world.ok(&["send", "--delete", "one/a", "two", &data("/")]);
}

#[test]
fn more_than_may_go_goes_only_when_asked_for_and_names_of_rules_stay() {
    let world = World::new("limit");
    let _server = world.serve(&[], ":rw");
    fs::create_dir_all(world.path("share/src/many")).unwrap();
    (0..40).for_each(|n| fs::write(world.path(&format!("share/src/many/{n}")), b"x").unwrap());
    fs::write(world.path("share/src/kept.log"), b"x").unwrap();
    fs::write(world.path("src/f"), b"x").unwrap();
    fs::write(world.path("src/new.log"), b"x").unwrap();
    // With the mark that some editors begin a file with.
    fs::write(world.path("rules"), "\u{feff}*.log\r\n").unwrap();
    let rules = ["--exclude-from", "rules"];
    let send =
        |more: &[&str]| world.run(&[&["send", "src", &world.place("data/"), "--delete"], &rules[..], more].concat());
    let refused = send(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("LS1826 41 of 42 names"), "{}", err(&refused));
    assert_eq!(fs::read_dir(world.path("share/src/many")).unwrap().count(), 40);
    let shown = send(&["--dry-run"]);
    assert!(err(&shown).contains("LS1826 41 of 43 names"), "{}", err(&shown));
    assert!(text(&shown).contains("src/many/7"), "it says to look here for which: {}", text(&shown));
    let sent = send(&["--max-delete", "41"]);
    assert_eq!(sent.status.code(), Some(0), "{}", err(&sent));
    assert!(!world.path("share/src/many").exists() && world.path("share/src/kept.log").exists());
    assert!(world.path("share/src/f").exists() && !world.path("share/src/new.log").exists());
    let bad = world.run(&["send", "src", &world.place("data/"), "--exclude", "[z-a]"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(err(&bad).contains("LS1825"), "{}", err(&bad));
}

#[test]
fn a_directory_is_replaced_by_a_file_only_where_as_many_names_may_go() {
    let world = World::new("replaced");
    let _server = world.serve(&[], ":rw");
    fs::create_dir_all(world.path("share/src/big")).unwrap();
    (0..60).for_each(|n| fs::write(world.path(&format!("share/src/big/{n}")), b"x").unwrap());
    fs::write(world.path("src/big"), b"x").unwrap();
    let send = |more: &[&str]| world.run(&[&["send", "src", &world.place("data/"), "--delete"], more].concat());
    let shown = send(&["--dry-run"]);
    assert!(err(&shown).contains("LS1826 61 of 62 names"), "{}", err(&shown));
    let refused = send(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("LS1827 a directory of 61 names"), "{}", err(&refused));
    assert_eq!(fs::read_dir(world.path("share/src/big")).unwrap().count(), 60);
    let sent = send(&["--max-delete", "61"]);
    assert_eq!(sent.status.code(), Some(0), "{}", err(&sent));
    assert!(world.path("share/src/big").is_file());
}

#[test]
fn a_dry_run_shows_what_comes_where_something_else_has_the_name_of_its_directory() {
    let world = World::new("would-replace");
    let _server = world.serve(&[], ":rw");
    fs::create_dir_all(world.path("src/sub")).unwrap();
    fs::write(world.path("src/sub/in"), b"x").unwrap();
    fs::create_dir_all(world.path("share/src")).unwrap();
    for link in [false, true] {
        let there = world.path("share/src/sub");
        let _ = fs::remove_file(&there);
        if link {
            std::os::unix::fs::symlink("/", there).unwrap()
        } else {
            fs::write(there, b"y").unwrap()
        }
        let shown = world.run(&["send", "src", &world.place("data/"), "--delete", "--dry-run"]);
        assert_eq!(shown.status.code(), Some(0), "{}", err(&shown));
        assert!(text(&shown).contains("src/sub/in"), "{}", text(&shown));
    }
}

#[test]
fn ctrl_c_at_the_question_ends_a_mirror_and_deletes_nothing() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let world = World::new("question");
    let _server = world.serve(&[], ":rw");
    (0..40).for_each(|n| fs::write(world.path(&format!("src/{n}")), noise(100, n)).unwrap());
    let to = world.place("data/copy");
    world.ok(&["mirror", "src", &to, "--init"]);
    (1..40).for_each(|n| fs::remove_file(world.path(&format!("src/{n}"))).unwrap());
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = world.lspan(&["mirror", "src", &to]);
    let mut mirror = Running(command.stdin(other.try_clone().unwrap()).stderr(other).spawn().unwrap());
    drop(command);
    let (mut seen, mut shown) = (vec![0; 4096], String::new());
    while !shown.contains("[y/N]") {
        let n = rustix::io::read(&terminal, &mut seen).unwrap();
        shown += &String::from_utf8_lossy(&seen[..n]);
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&mirror.0), rustix::process::Signal::INT).unwrap();
    assert_eq!(mirror.0.wait().unwrap().code(), Some(130), "{shown}");
    assert_eq!(
        fs::read_dir(world.path("share/copy")).unwrap().filter(|e| e.as_ref().unwrap().path().is_file()).count(),
        40
    );
}

#[test]
fn a_renamed_directory_is_no_deletion() {
    let world = World::new("renamed");
    let _server = world.serve(&[], ":rw");
    fs::create_dir_all(world.path("src/d")).unwrap();
    (0..20).for_each(|n| fs::write(world.path(&format!("src/d/{n}")), noise(100 + n, 1)).unwrap());
    (0..20).for_each(|n| fs::write(world.path(&format!("src/{n}")), noise(200 + n, 1)).unwrap());
    let to = world.place("data/copy");
    world.ok(&["mirror", "src", &to, "--init"]);
    fs::rename(world.path("src/d"), world.path("src/e")).unwrap();
    let said = err(&world.ok(&["mirror", "src", &to]));
    assert_eq!(said.matches("has the name").count(), 20, "{said}");
    assert!(equal(&world.path("src"), &world.path("share/copy")));
}

#[test]
fn verify_compares_links_and_directories_too_and_names_what_is_missing() {
    let world = World::new("verify");
    let _server = world.serve(&[], ":rw");
    let link = std::os::unix::fs::symlink::<&str, std::path::PathBuf>;
    for dir in ["blobs", "snap", "empty"] {
        fs::create_dir_all(world.path("src").join(dir)).unwrap();
    }
    fs::write(world.path("src/blobs/a"), b"weights").unwrap();
    link("../blobs/a", world.path("src/snap/model")).unwrap();
    world.ok(&["send", "src", &world.place("data/")]);
    let at = world.place("data/src");
    let verify = || world.run(&["verify", "src", &at]);
    let said = err(&verify());
    assert!(said.contains("1 file and 5 directories and links are the same at both ends"), "{said}");
    fs::remove_file(world.path("share/src/snap/model")).unwrap();
    link("../blobs/b", world.path("share/src/snap/model")).unwrap();
    let other = verify();
    assert_eq!(other.status.code(), Some(6), "{}", err(&other));
    assert!(err(&other).contains("LS1813 src/snap/model"), "{}", err(&other));
    fs::remove_file(world.path("share/src/snap/model")).unwrap();
    fs::remove_dir(world.path("share/src/empty")).unwrap();
    let missing = verify();
    assert_eq!(missing.status.code(), Some(1), "{}", err(&missing));
    for name in ["src/empty", "src/snap/model"] {
        assert!(
            err(&missing).lines().any(|line| line.contains(name) && line.contains("at the peer")),
            "{}",
            err(&missing)
        );
    }
}

#[test]
fn a_mirror_becomes_its_source_and_keeps_what_it_had() {
    let world = World::new("mirror");
    let _server = world.serve(&[], ":rw");
    plant(&world);
    fs::create_dir(world.path("share/copy")).unwrap();
    fs::write(world.path("share/copy/old"), b"was here before").unwrap();
    let to = world.place("data/copy");
    let unmarked = world.run(&["mirror", "src", &to]);
    assert!(err(&unmarked).contains("LS1828"), "{}", err(&unmarked));
    world.ok(&["mirror", "src", &to, "--init"]);
    assert!(equal(&world.path("src"), &world.path("share/copy")));
    assert_eq!(trashed(&world, &world.place("data")), ["copy/old"]);
    // A renamed file is renamed, not sent; one that was changed there is kept; a directory in place of a file.
    fs::create_dir(world.path("src/new")).unwrap();
    fs::rename(world.path("src/large"), world.path("src/new/larger")).unwrap();
    fs::write(world.path("share/copy/a/two"), b"changed at the destination").unwrap();
    fs::remove_file(world.path("src/one")).unwrap();
    fs::create_dir(world.path("src/one")).unwrap();
    fs::write(world.path("src/one/in"), b"x").unwrap();
    let output = world.ok(&["mirror", "src", &to, "--json"]);
    assert!(equal(&world.path("src"), &world.path("share/copy")), "{}", err(&output));
    let end: serde_json::Value = serde_json::from_str(text(&output).lines().last().unwrap()).unwrap();
    assert!(end["moved_bytes"].as_u64().unwrap() < 10_000, "{end}");
    assert!(text(&output).contains("\"what\":\"renamed\""), "{}", text(&output));
    for line in text(&output).lines() {
        let problems = crate::schema::problems("files-1.json", &serde_json::from_str(line).unwrap());
        assert!(problems.is_empty(), "{problems:?}: {line}");
    }
    let gone = trashed(&world, &world.place("data"));
    assert!(["copy/a/two", "copy/one"].iter().all(|path| gone.iter().any(|has| has == path)), "{gone:?}");
    // An unmounted disk: nothing is deleted, whichever it is.
    fs::rename(world.path("src"), world.path("away")).unwrap();
    fs::create_dir(world.path("src")).unwrap();
    for args in [&["mirror", "src", &to][..], &["mirror", "src", &to, "--init"]] {
        let stopped = world.run(args);
        assert_eq!(stopped.status.code(), Some(1));
        assert!(err(&stopped).contains("LS1828 the source"), "{}", err(&stopped));
    }
    assert!(equal(&world.path("away"), &world.path("share/copy")));
    // Another source.
    world.ok(&["mirror", "src", &world.place("data/other"), "--init"]);
    assert!(err(&world.run(&["mirror", "src", &to])).contains("LS1829"));
    // From the peer.
    world.ok(&["mirror", &to, "out", "--init"]);
    assert!(equal(&world.path("away"), &world.path("out")));
    fs::remove_dir_all(world.path("share/copy/b")).unwrap();
    world.ok(&["mirror", &to, "out"]);
    assert!(equal(&world.path("share/copy"), &world.path("out")));
    assert!(text(&world.ok(&["trash", "list", "out"])).contains("b/four"));
    let again = world.ok(&["mirror", &to, "out"]);
    assert!(err(&again).contains("nothing was to be transferred"), "{}", err(&again));
}

/// A mirror of `src` there that watches, and what it says until its end.
fn watch(world: &World, to: &str) -> (Running, std::thread::JoinHandle<Vec<String>>) {
    let mut watching =
        Running(world.lspan(&["mirror", "src", to, "--init", "--watch"]).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("watching 4 directories")));
    let rest = std::thread::spawn(move || lines.inspect(|line| println!("{line}")).collect());
    (watching, rest)
}

#[test]
fn a_watched_source_is_followed_through_new_directories_renames_and_deletions() {
    let world = World::new("watch");
    let _server = world.serve(&[], ":rw");
    plant(&world);
    let to = world.place("data/copy");
    let (mut watching, rest) = watch(&world, &to);
    let (src, copy) = (world.path("src"), world.path("share/copy"));
    assert!(equal(&src, &copy));
    let follows = |what: &str| until(what, || equal(&src, &copy));
    // A tree that comes at once, most of it before anybody can watch it.
    for n in 0..20 {
        fs::create_dir_all(src.join(format!("fresh/{n}/deep"))).unwrap();
        fs::write(src.join(format!("fresh/{n}/deep/file")), noise(3000, n)).unwrap();
    }
    follows("a new tree does not come");
    fs::write(src.join("fresh/3/deep/file"), b"changed").unwrap();
    fs::write(src.join("one"), b"changed").unwrap();
    follows("changes do not come");
    fs::rename(src.join("fresh/3"), src.join("a/moved")).unwrap();
    follows("a renamed directory does not come");
    fs::write(src.join("a/moved/deep/later"), b"in a directory that was moved").unwrap();
    fs::remove_dir_all(src.join("b")).unwrap();
    follows("deletions do not come");
    rustix::process::kill_process(rustix::process::Pid::from_child(&watching.0), rustix::process::Signal::INT).unwrap();
    until("it does not end", || watching.0.try_wait().unwrap().is_some());
    assert_eq!(watching.0.wait().unwrap().code(), Some(130), "{:?}", rest.join().unwrap());
}

#[test]
fn a_watched_mirror_follows_the_directory_that_has_the_path() {
    let world = World::new("watch-moved");
    let _server = world.serve(&[], ":rw");
    plant(&world);
    let to = world.place("data/copy");
    let (mut watching, rest) = watch(&world, &to);
    let (src, old, copy) = (world.path("src"), world.path("old"), world.path("share/copy"));
    // Another one, which belongs to the same mirror.
    fs::create_dir_all(old.join(".lspan")).unwrap();
    fs::copy(src.join(".lspan/mirror"), old.join(".lspan/mirror")).unwrap();
    for name in ["one", "large"] {
        fs::copy(src.join(name), old.join(name)).unwrap();
    }
    fs::write(old.join("fresh"), b"of the other").unwrap();
    let (at, exchange) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(at, &src, at, &old, exchange).unwrap();
    until("the other directory does not come", || equal(&src, &copy));
    fs::write(old.join("astray"), b"x").unwrap();
    fs::write(src.join("later"), b"x").unwrap();
    until("changes of the other directory do not come", || equal(&src, &copy));
    // One that belongs to no mirror.
    fs::remove_dir_all(&old).unwrap();
    fs::create_dir(&old).unwrap();
    rustix::fs::renameat_with(at, &src, at, &old, exchange).unwrap();
    until("it does not end", || watching.0.try_wait().unwrap().is_some());
    let said = rest.join().unwrap();
    assert!(said.iter().any(|line| line.contains("src is another directory than before")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("LS1828 the source")), "{said:?}");
    assert!(equal(&old, &copy));
}

#[test]
fn a_watched_mirror_ends_only_where_more_would_go_than_may_of_the_whole_tree() {
    let world = World::new("watch-limit");
    let _server = world.serve(&[], ":rw");
    for (sub, files) in [("many", 200), ("build", 30), ("old", 30)] {
        fs::create_dir_all(world.path("src").join(sub)).unwrap();
        (0..files).for_each(|n| fs::write(world.path("src").join(format!("{sub}/{n}")), [n as u8]).unwrap());
    }
    let to = world.place("data/copy");
    let (mut watching, rest) = watch(&world, &to);
    let (src, copy) = (world.path("src"), world.path("share/copy"));
    fs::remove_dir_all(src.join("build")).unwrap();
    until("a deletion does not come", || equal(&src, &copy));
    fs::rename(src.join("old"), src.join("new")).unwrap();
    until("a renamed directory does not come", || equal(&src, &copy));
    fs::remove_dir_all(src.join("many")).unwrap();
    until("it does not end", || watching.0.try_wait().unwrap().is_some());
    assert_eq!(watching.0.wait().unwrap().code(), Some(1));
    assert!(rest.join().unwrap().iter().any(|line| line.contains("LS1826 201 of ")));
    assert_eq!(fs::read_dir(copy.join("many")).unwrap().count(), 200);
}

#[test]
fn a_watched_mirror_goes_on_where_more_directories_change_at_once_than_it_may_have_open() {
    let world = World::new("watch-many");
    let _server = world.serve(&[], ":rw");
    let (src, copy) = (world.path("src"), world.path("share/copy"));
    (0..600).for_each(|n| fs::create_dir(src.join(n.to_string())).unwrap());
    let lspan = world.lspan(&["mirror", "src", &world.place("data/copy"), "--init", "--watch"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 512; exec \"$0\" \"$@\""]).arg(lspan.get_program()).args(lspan.get_args());
    world.settings(&mut command);
    let mut watching = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("watching 601 directories")));
    let rest = std::thread::spawn(move || lines.for_each(|line| println!("{line}")));
    // As while it is busy.
    let pid = rustix::process::Pid::from_child(&watching.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    (0..600).for_each(|n| fs::write(src.join(format!("{n}/f")), b"x").unwrap());
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    until("changes do not come", || {
        assert!(watching.0.try_wait().unwrap().is_none(), "it has ended");
        equal(&src, &copy)
    });
    drop(watching);
    rest.join().unwrap();
}

#[test]
fn a_run_that_cannot_be_removed_keeps_no_other_one_in_the_trash() {
    let world = World::new("trash-stays");
    let _server = world.serve(&[], ":rw");
    for (dir, at) in [("share", world.place("data")), ("out", "out".into())] {
        let trash = world.path(dir).join(".lspan/trash");
        let (deep, other) = (trash.join("9000000000-0000000a"), trash.join("9000000001-0000000b"));
        fs::create_dir_all(deep.join("d/".repeat(140))).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("f"), b"x").unwrap();
        let output = world.run(&["trash", "empty", &at]);
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        assert!(err(&output).contains("9000000000-0000000a: "), "{}", err(&output));
        assert!(err(&output).contains("what 1 run had moved"), "{}", err(&output));
        assert!(deep.exists() && !other.exists());
    }
}

#[test]
fn a_watched_mirror_follows_a_link_that_leads_elsewhere_now() {
    let world = World::new("watch-link");
    let _server = world.serve(&[], ":rw");
    plant(&world);
    let (src, first, second, copy) =
        (world.path("src"), world.path("first"), world.path("second"), world.path("share/copy"));
    fs::rename(&src, &first).unwrap();
    std::os::unix::fs::symlink("first", &src).unwrap();
    let (_watching, _rest) = watch(&world, &world.place("data/copy"));
    fs::create_dir_all(second.join(".lspan")).unwrap();
    fs::copy(first.join(".lspan/mirror"), second.join(".lspan/mirror")).unwrap();
    for name in ["one", "large"] {
        fs::copy(first.join(name), second.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("second", world.path("next")).unwrap();
    fs::rename(world.path("next"), &src).unwrap();
    // Nothing tells of that, and this is nothing to be compared: it has the mirror look earlier.
    fs::write(first.join(".lspan-0123456789abcdef.part"), "").unwrap();
    until("the other directory does not come", || equal(&second, &copy));
    fs::write(second.join("later"), b"x").unwrap();
    until("changes of the other directory do not come", || equal(&second, &copy));
}
