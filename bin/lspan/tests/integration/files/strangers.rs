//! Peers that mean harm.

use std::fs;
use std::process::{Command, Stdio};

use super::{World, err, noise, text, until};

#[test]
fn links_that_lead_out_of_a_share_lead_nowhere() {
    let world = World::new("out");
    let _server = world.serve(&[], ":rw");
    fs::write(world.path("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink("../secret", world.path("share/file")).unwrap();
    std::os::unix::fs::symlink("..", world.path("share/dir")).unwrap();
    std::os::unix::fs::symlink(&world.dir, world.path("share/absolute")).unwrap();
    fs::write(world.path("src/secret"), b"overwritten").unwrap();
    for args in [
        &["get", &world.place("data/dir/secret"), "out"][..],
        &["get", &world.place("data/absolute/secret"), "out"],
        &["verify", "secret", &world.place("data/file")],
        &["send", "src/secret", &world.place("data/dir/")],
        &["send", "src/secret", &world.place("data/dir/secret")],
        &["rm", &world.place("data/dir/secret")],
        &["mv", &world.place("data/dir/secret"), &world.place("data/x")],
        &["rm", "-r", &world.place("data/absolute/share")],
    ] {
        let output = world.run(args);
        assert_ne!(output.status.code(), Some(0), "{args:?} went well: {}", err(&output));
    }
    assert_eq!(fs::read(world.path("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(world.path("out")).unwrap().count(), 0);
    // Removing a link removes the link.
    world.ok(&["rm", "-r", &world.place("data/dir")]);
    assert!(world.path("secret").exists());
}

#[test]
fn names_that_are_kept_for_linkspan_are_neither_listed_nor_taken() {
    let world = World::new("kept");
    let _server = world.serve(&[], ":rw");
    fs::create_dir(world.path("share/.lspan")).unwrap();
    fs::write(world.path("share/.lspan-0123456789abcdef.part"), b"x").unwrap();
    fs::write(world.path("share/seen"), b"x").unwrap();
    assert_eq!(text(&world.ok(&["ls", &world.place("data")])), "seen\n");
    let output = world.run(&["get", &world.place("data/.lspan-0123456789abcdef.part"), "out"]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
}

#[test]
fn directories_that_turn_into_links_while_files_arrive_lead_no_byte_out() {
    let world = World::new("swap");
    let _server = world.serve(&[], ":rw");
    fs::create_dir_all(world.path("outside")).unwrap();
    fs::create_dir_all(world.path("src/d")).unwrap();
    for n in 0..400 {
        fs::write(world.path(&format!("src/d/{n}")), noise(3000, n)).unwrap();
    }
    fs::create_dir_all(world.path("share/src/d")).unwrap();
    let mut client = world.lspan(&["send", "src", &world.place("data/")]).spawn().unwrap();
    let (real, aside) = (world.path("share/src/d"), world.path("share/aside"));
    until("the transfer does not end", || {
        // To and fro, as fast as it goes.
        if fs::rename(&real, &aside).is_ok() {
            let _ = std::os::unix::fs::symlink("../../outside", &real);
            let _ = fs::remove_file(&real);
            let _ = fs::rename(&aside, &real);
        }
        client.try_wait().unwrap().is_some()
    });
    assert_eq!(fs::read_dir(world.path("outside")).unwrap().count(), 0, "files arrived outside of the share");
}

#[test]
fn no_path_reaches_a_system_call_after_the_share_was_opened() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let world = World::new("paths");
    fs::create_dir_all(world.path("src/deep/er")).unwrap();
    fs::write(world.path("src/deep/er/f"), noise(3 << 20, 1)).unwrap();
    fs::write(world.path("src/deep/g"), b"g").unwrap();
    let log = world.path("log").display().to_string();
    let server = world.serve(&["strace", "-f", "-qq", "-o", &log, "--trace=%file"], ":rw");
    for _ in 0..2 {
        world.ok(&["send", "src", &world.place("data/")]);
        fs::write(world.path("src/deep/g"), b"other").unwrap();
    }
    world.ok(&["get", &world.place("data/src"), "out"]);
    fs::remove_dir_all(world.path("src/deep/er")).unwrap();
    world.ok(&["send", "src", &world.place("data/"), "--delete"]);
    world.ok(&["trash", "list", &world.place("data")]);
    world.ok(&["trash", "restore", &world.place("data"), "src/deep/er"]);
    world.ok(&["mirror", "src", &world.place("data/copy"), "--init"]);
    world.ok(&["trash", "empty", &world.place("data")]);
    world.ok(&["mv", &world.place("data/src"), &world.place("data/dst")]);
    world.ok(&["rm", "-r", &world.place("data/dst")]);
    super::killed::stop(server);
    let text = fs::read_to_string(&log).unwrap();
    let share = world.path("share").display().to_string();
    // Strings that a call has as arguments.
    let strings = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let opened = |line: &&str| strings(line).iter().any(|text| *text == "share" || *text == share);
    let after: Vec<&str> = text.lines().skip_while(|line| !opened(line)).skip(1).collect();
    assert!(after.iter().any(|line| line.contains("RESOLVE_BENEATH")), "the look-ups are not in the log");
    // The system's own files, the journals and the key; nothing else of this folder, and nothing by the working directory.
    let (all, state, key) = (world.dir.display().to_string(), world.path("state"), world.path("key"));
    let ours = [state.display().to_string(), key.display().to_string()];
    let allowed = |path: &String| {
        path.starts_with('/') && (!path.starts_with(&all) || ours.iter().any(|own| path.starts_with(own)))
    };
    for line in after.into_iter().filter(|line| !strings(line).first().is_some_and(allowed)) {
        // Where another call came between, the end of this one, which has what the link says.
        if line.contains("<... readlink resumed>") {
            continue;
        }
        // Relative to the working directory, or from the root of the system.
        let loose = line.contains("AT_FDCWD") || strings(line).iter().any(|path| path.starts_with('/'));
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        if loose && !strings(line).iter().all(allowed) && !call.starts_with("execve") && !call.starts_with("readlink(")
        {
            panic!("a path string: {line}");
        }
        // A name below a descriptor has no slash, but where openat2 keeps it beneath the share.
        let beneath = line.contains("RESOLVE_BENEATH");
        let below = strings(line).iter().any(|path| path.contains('/') && !path.starts_with('/'));
        assert!(!below || beneath || line.contains("symlinkat"), "a path below a descriptor: {line}");
    }
}
