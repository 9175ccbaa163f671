//! Trees of many names: what either end holds does not go with their number.

use std::fs::{self, File};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::World;
use super::places::peak;

/// Names of the larger tree in `cargo test`; `LINKSPAN_NAMES=1000000` is the full number.
fn names() -> u64 {
    std::env::var("LINKSPAN_NAMES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

/// Names of the tree that it is compared with, at most.
const FEW: u64 = 20_000;

/// KiB that either end may have more for the larger tree: up to a bound the names of a directory are in memory, and the rings between both fill.
/// Of 18,000 more names that is 4 MiB.
fn more() -> u64 {
    if names() > 100_000 { 32 << 10 } else { 12 << 10 }
}

/// Empty files, 1,000 in each directory, and a tenth of them in one.
fn plant(dir: &Path, names: u64) {
    let of = |n: u64| if n < names / 10 { "one".to_owned() } else { format!("{:04}", n / 1000) };
    for n in 0..names {
        let dir = dir.join(of(n));
        if n % 1000 == 0 || n == names / 10 {
            fs::create_dir_all(&dir).unwrap();
        }
        File::create(dir.join(format!("a name as long as others {n}"))).unwrap();
    }
}

/// Runs it to its good end; the most memory that it had, in KiB.
fn peak_of(world: &World, args: &[&str]) -> u64 {
    let mut command = world.lspan(args);
    let mut child = command.stdout(File::create(world.path("said")).unwrap()).spawn().unwrap();
    let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let now_and_then = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let mut most = 0;
    // It is not told of one that has ended.
    while poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&now_and_then)).unwrap() == 0 {
        most = peak(child.id()).unwrap_or(most);
    }
    assert!(child.wait().unwrap().success(), "{args:?}");
    most
}

/// Everything that is done with whole trees, with this one.
fn all(world: &World, tree: &str) -> Vec<(String, u64)> {
    let place = |path: &str| world.place(&format!("data/{path}"));
    let (own, all) = (format!("src/{tree}"), place(""));
    let (there, one) = (place(tree), place(&format!("{tree}/one")));
    let own_one = format!("{own}/one");
    let each = [
        &["send", &own, &all][..],
        &["send", &own, &all],
        &["send", &own, &all, "--delete"],
        &["get", &there, "out"],
        &["mirror", &own, &there, "--init"],
        &["du", &there],
        &["ls", &one],
        // It asks for each file.
        &["verify", &own_one, &one],
        &["rm", "-r", &there],
    ];
    each.map(|args| (args[0].to_owned(), peak_of(world, args))).into()
}

#[test]
fn the_memory_of_either_end_does_not_grow_with_the_names_of_a_tree() {
    let world = World::new("many");
    let server = world.serve(&[], ":rw");
    for (tree, names) in [("few", FEW.min(names() / 10)), ("many", names())] {
        plant(&world.path("src").join(tree), names);
    }
    let few = all(&world, "few");
    let before = peak(server.child.id()).unwrap();
    let many = all(&world, "many");
    let after = peak(server.child.id()).unwrap();
    eprintln!("KiB at the server: {before}, then {after}; at the client: {few:?}, then {many:?}");
    assert!(after < before + more(), "the server's grew from {before} to {after} KiB");
    for ((what, few), (_, many)) in few.into_iter().zip(many) {
        assert!(many < few + more(), "that of lspan {what} grew from {few} to {many} KiB");
    }
}
