//! Disks that are full or cannot be written, and trees that are larger than any disk here.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{World, err, noise, text};

/// A server whose share is a disk of its own, which this command makes; `None`, with a word: this host does not let us.
pub(super) fn on_disk(world: &World, make: &str) -> Option<super::Server> {
    let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let script = format!("{make} && exec \"$@\"");
    let before = ["unshare", flags, "sh", "-c", &script, "sh"];
    let mut may = Command::new("unshare");
    may.args([flags, "sh", "-c", make]).current_dir(&world.dir).stderr(Stdio::null());
    if !may.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: a disk for the share cannot be mounted here");
        return None;
    }
    Some(world.serve(&before, ":rw"))
}

#[test]
fn a_full_disk_is_said_before_a_byte_is_written_and_what_fits_arrives() {
    let world = World::new("full");
    let Some(_server) = on_disk(&world, "mount -t tmpfs -o size=6m tmpfs share") else { return };
    fs::write(world.path("src/large"), noise(48 << 20, 1)).unwrap();
    fs::write(world.path("src/fits"), noise(3 << 20, 2)).unwrap();
    let full = world.run(&["send", "src/large", &world.place("data/"), "--json"]);
    assert_eq!(full.status.code(), Some(1));
    assert!(err(&full).contains("50331648 bytes are needed"), "{}", err(&full));
    let end: serde_json::Value = serde_json::from_str(text(&full).lines().last().unwrap()).unwrap();
    // No more than the slots has come, and none of it was written.
    assert!(end["moved_bytes"].as_u64().unwrap() <= super::killed::WINDOW && end["files_done"] == 0, "{end}");
    assert_eq!(text(&world.ok(&["ls", &world.place("data")])), "", "something of it is there");
    // The rest of a tree comes, and nothing is left of what does not fit.
    let part = world.run(&["send", "src", &world.place("data/")]);
    assert_eq!(part.status.code(), Some(1));
    world.ok(&["verify", "src/fits", &world.place("data/src/fits")]);
    assert_eq!(text(&world.ok(&["ls", &world.place("data/src")])), "fits\n");
    // Many small ones fill it in the middle of a pack.
    fs::create_dir(world.path("src/small")).unwrap();
    (0..600).for_each(|n| fs::write(world.path(&format!("src/small/{n}")), noise(9_000, n)).unwrap());
    let some = world.run(&["send", "src/small", &world.place("data/")]);
    assert!(some.status.code() == Some(1) && err(&some).contains("No space left"), "{}", err(&some));
    world.ok(&["get", &world.place("data/small"), "out"]);
    for there in fs::read_dir(world.path("out/small")).unwrap() {
        let name = there.unwrap().file_name();
        super::same(&world.path("src/small").join(&name), &world.path("out/small").join(&name));
    }
    world.ok(&["rm", "-r", &world.place("data/small")]);
    world.ok(&["rm", &world.place("data/src/fits")]);
    fs::write(world.path("src/large"), noise(5 << 20, 1)).unwrap();
    world.ok(&["send", "src/large", &world.place("data/")]);
}

#[test]
fn a_directory_at_which_a_disk_is_mounted_is_sent_and_verified() {
    let world = World::new("mounted");
    let _server = world.serve(&[], ":rw");
    let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mount = "mount -t tmpfs tmpfs src && echo x > src/f";
    let send = "\"$0\" send src 127.0.0.1:data/ --port $1 && \"$0\" verify src 127.0.0.1:data/src --port $1";
    for script in [mount, &format!("{mount} && {send}")] {
        let mut command = Command::new("unshare");
        command.args([flags, "sh", "-c", script, env!("CARGO_BIN_EXE_lspan"), &world.port.to_string()]);
        world.settings(&mut command);
        let output = command.output().unwrap();
        if script == mount && !output.status.success() {
            return eprintln!("skipped: nothing can be mounted here: {}", err(&output));
        }
        assert!(output.status.success(), "{}", err(&output));
    }
    assert_eq!(fs::read(world.path("share/src/f")).unwrap(), b"x\n");
}

#[test]
fn a_share_on_a_read_only_file_system_is_read_and_refuses_the_rest_with_a_reason() {
    let world = World::new("readonly-disk");
    fs::write(world.path("share/f"), b"x").unwrap();
    fs::write(world.path("src/g"), b"y").unwrap();
    let make = "mount --bind share share && mount -o remount,bind,ro share";
    let Some(_server) = on_disk(&world, make) else { return };
    world.ok(&["get", &world.place("data/f"), "out"]);
    for args in [&["send", "src/g", &world.place("data/")][..], &["rm", &world.place("data/f")]] {
        let output = world.run(args);
        assert_ne!(output.status.code(), Some(0), "{args:?}");
        assert!(err(&output).contains("Read-only file system"), "{args:?}: {}", err(&output));
    }
    assert_eq!(text(&world.ok(&["ls", &world.place("data")])), "f\n");
}

/// Bytes of the tree in `cargo test`; `LINKSPAN_SPARSE_GB=60` is the full number.
fn sparse_bytes() -> u64 {
    let gb = std::env::var("LINKSPAN_SPARSE_GB").ok().and_then(|text| text.parse().ok());
    gb.map_or(512 << 20, |gb: u64| gb * 1_000_000_000)
}

/// Most memory that a process has had, in KiB; `None` for one that has ended.
pub(super) fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A file of zeros with something in three places.
fn sparse(path: &Path, len: u64, seed: u64) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    for at in [0, len / 3, len - 5000] {
        file.write_all_at(&noise(5000, seed + at), at).unwrap();
    }
}

#[test]
fn a_cache_of_hugging_face_with_sparse_blobs_arrives_as_it_is_in_little_memory() {
    let world = World::new("cache");
    let server = world.serve(&[], ":rw");
    let model = world.path("src/models--org--model");
    for sub in ["blobs", "refs", "snapshots/0123abcd"] {
        fs::create_dir_all(model.join(sub)).unwrap();
    }
    fs::write(model.join("refs/main"), "0123abcd").unwrap();
    for n in 0..4 {
        let blob = format!("{n:064x}");
        sparse(&model.join("blobs").join(&blob), sparse_bytes() / 4 + n, n);
        let link = model.join(format!("snapshots/0123abcd/model-{n}-of-4.safetensors"));
        std::os::unix::fs::symlink(format!("../../blobs/{blob}"), link).unwrap();
    }
    world.ok(&["send", "src/models--org--model", &world.place("data/")]);
    world.ok(&["get", &world.place("data/models--org--model"), "out"]);
    // Both transfers, at the server: its slots, and those of the client that sends.
    let most = 160 << 10;
    let had = peak(server.child.id()).unwrap();
    assert!(had < most, "{had} KiB");
    let disk = |root: &str, n: u64| {
        let there = fs::metadata(world.path(root).join(format!("blobs/{n:064x}"))).unwrap();
        (there.size(), there.blocks() * 512 <= 16 << 20)
    };
    for root in ["share/models--org--model", "out/models--org--model"] {
        (0..4).for_each(|n| assert_eq!(disk(root, n), (sparse_bytes() / 4 + n, true), "holes of {root} are filled"));
        let link = fs::read_link(world.path(root).join("snapshots/0123abcd/model-2-of-4.safetensors")).unwrap();
        assert_eq!(link, Path::new(&format!("../../blobs/{:064x}", 2)));
        assert_eq!(
            fs::metadata(world.path(root).join("snapshots/0123abcd/model-2-of-4.safetensors")).unwrap().size(),
            sparse_bytes() / 4 + 2
        );
    }
    world.ok(&["verify", "out/models--org--model", &world.place("data/models--org--model")]);
    world.ok(&["verify", "src/models--org--model", &world.place("data/models--org--model")]);
    let again = world.ok(&["send", "src/models--org--model", &world.place("data/")]);
    assert!(err(&again).contains("nothing was to be transferred"), "{}", err(&again));
}

#[test]
fn a_destination_that_ends_in_a_slash_is_a_directory_also_where_there_is_none_yet() {
    let world = World::new("slash");
    let _server = world.serve(&[], "");
    fs::write(world.path("share/x"), b"1").unwrap();
    fs::write(world.path("share/y"), b"2").unwrap();
    world.ok(&["get", &world.place("data/x"), "new/"]);
    world.ok(&["get", &world.place("data/y"), "new/"]);
    assert_eq!(fs::read(world.path("new/x")).unwrap(), b"1");
    assert_eq!(fs::read(world.path("new/y")).unwrap(), b"2");
    let refused = world.run(&["get", &world.place("data/y"), "new/x/"]);
    assert_ne!(refused.status.code(), Some(0));
    assert_eq!(fs::read(world.path("new/x")).unwrap(), b"1");
    for what in ["data/none", "none/x"] {
        let missing = world.run(&["get", &world.place(what), "empty/"]);
        assert_eq!(missing.status.code(), Some(1), "{}", err(&missing));
        assert!(!world.path("empty").exists(), "a directory for what is not there");
    }
}
