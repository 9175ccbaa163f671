//! Extended attributes: those that travel when asked for, and those that are left out with a line.

use std::fs;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

use super::{World, err, noise};

/// The value of an access control list with an entry for one more user: a version and (tag, permissions, number) each, as
/// linux/posix_acl_xattr.h has them.
fn acl() -> Vec<u8> {
    let entries = [(1u16, 7u16, u32::MAX), (2, 5, 12345), (4, 5, u32::MAX), (16, 5, u32::MAX), (32, 0, u32::MAX)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&number.to_le_bytes());
    }
    value
}

/// Sets an attribute; `false`, with a word: this host does not let us.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    match setxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => true,
        Err(error @ (Errno::OPNOTSUPP | Errno::PERM)) => {
            eprintln!("skipped: {name} cannot be set here: {error}");
            false
        }
        Err(error) => panic!("{name} of {}: {error}", path.display()),
    }
}

#[test]
fn access_control_lists_and_security_attributes_of_files_and_directories_have_a_line_each() {
    let world = World::new("acl");
    let _server = world.serve(&[], ":rw");
    for dir in ["src/plain", "src/inherited", "src/shared"] {
        fs::create_dir(world.path(dir)).unwrap();
    }
    for (file, len) in [("src/small", 5), ("src/large", 3 << 20), ("src/program", 9), ("src/measured", 7)] {
        fs::write(world.path(file), noise(len, 1)).unwrap();
    }
    // linux/capability.h: the second revision, with the one for low ports.
    let low_ports = [0x0200_0001u32, 1 << 10, 0, 0, 0].map(u32::to_le_bytes).concat();
    let (list, label) = ("an access control list", "security attributes, such as capabilities (security.*)");
    let told: Vec<(&str, &str)> = [
        ("src/inherited", "system.posix_acl_default", acl(), list),
        ("src/shared", "system.posix_acl_access", acl(), list),
        ("src/small", "system.posix_acl_access", acl(), list),
        ("src/large", "system.posix_acl_access", acl(), list),
        ("src/program", "security.capability", low_ports, label),
        ("src/measured", "security.something", b"x".to_vec(), label),
    ]
    .into_iter()
    .filter(|(path, name, value, _)| set(&world.path(path), name, value))
    .map(|(path, .., why)| (path, why))
    .collect();
    set(&world.path("src/plain"), "security.selinux", b"system_u:object_r:usr_t:s0\0");
    if told.is_empty() {
        return;
    }
    let sent = world.run(&["send", "src", &world.place("data/")]);
    assert_eq!(sent.status.code(), Some(3), "{}", err(&sent));
    let lines = err(&sent);
    for (path, why) in &told {
        let line = format!("{path}: left out: {why}");
        assert_eq!(lines.lines().filter(|said| said.contains(&line)).count(), 1, "{line}: {lines}");
    }
    assert_eq!(lines.matches(": left out: ").count(), told.len(), "{lines}");
    // The sender is the server.
    let back = world.run(&["get", &world.place("data/src"), "out"]);
    assert_eq!(back.status.code(), Some(0), "what was left out came through: {}", err(&back));
}

#[test]
fn attributes_of_users_arrive_where_they_are_asked_for_and_only_there() {
    let world = World::new("xattrs");
    let _server = world.serve(&[], ":rw");
    fs::create_dir(world.path("share/plain")).unwrap();
    for (file, len) in [("src/small", 5), ("src/large", 3 << 20)] {
        fs::write(world.path(file), noise(len, 1)).unwrap();
        if !set(&world.path(file), "user.origin", file.as_bytes()) {
            return;
        }
    }
    let value = |path: &str| {
        let mut value = [0; 64];
        let len = getxattr(world.path(path), "user.origin", &mut value[..])?;
        Ok::<_, Errno>(String::from_utf8_lossy(&value[..len]).into_owned())
    };
    let line = |times: &str| format!("left out {times}: attributes: trusted.*, user.*");
    let plain = world.run(&["send", "src", &world.place("data/plain/")]);
    assert!(plain.status.success() && err(&plain).contains(&line("2 times")), "{}", err(&plain));
    // Only root sees these, and they never travel.
    let trusted = set(&world.path("src/large"), "trusted.note", b"x");
    let all = world.run(&["send", "--xattrs", "src", &world.place("data/")]);
    assert!(all.status.success(), "{}", err(&all));
    assert_eq!(err(&all).contains(&line("1 time")), trusted, "{}", err(&all));
    world.ok(&["get", "--xattrs", &world.place("data/src"), "out"]);
    for name in ["small", "large"] {
        assert_eq!(value(&format!("share/plain/src/{name}")), Err(Errno::NODATA));
        for root in ["share/src", "out/src"] {
            assert_eq!(value(&format!("{root}/{name}")).as_deref(), Ok(&*format!("src/{name}")));
        }
    }
}
