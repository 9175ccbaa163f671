//! Files and directories whose permissions keep out everybody but root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;

use linkspan_files::Rules;
use linkspan_files::fs::RealFs;
use linkspan_files::mirror::inotify::Tree;
use linkspan_files::mirror::watch::Heard;
use linkspan_files::name::{Name, RelPath, TRASH};
use linkspan_files::wire::{FaultKind, PeerPath, Request};

use super::sessions::{Folder, Peer, in_share, refusal};

/// Whether a test goes on here. One of root's does in a process of its own, which has no rights over files but an owner's.
fn goes_on(test: &str) -> bool {
    const CHILD: &str = "LINKSPAN_TEST_NO_RIGHTS";
    if !rustix::process::geteuid().is_root() || std::env::var_os(CHILD).is_some() {
        return true;
    }
    let plain = |program: &std::ffi::OsStr, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(program).args(args).env(CHILD, "");
        command.status().is_ok_and(|status| status.success())
    };
    if !plain("true".as_ref(), &[]) {
        eprintln!("skipped: setpriv cannot give up the rights of root");
        return false;
    }
    let own = std::env::current_exe().unwrap();
    assert!(plain(own.as_os_str(), &["--exact", &format!("rights::{test}"), "--nocapture"]), "it failed without them");
    false
}

fn mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_transfers_have_left_in_a_directory_goes_with_it_also_where_it_cannot_be_written_or_is_a_link() {
    if !goes_on("what_transfers_have_left_in_a_directory_goes_with_it_also_where_it_cannot_be_written_or_is_a_link") {
        return;
    }
    let folder = Folder::new("left-dressed");
    let part = |dir: &str| folder.0.join("share").join(dir).join(".lspan-0123456789abcdef.part");
    ["file", "link"].iter().for_each(|dir| fs::create_dir(folder.0.join("share").join(dir)).unwrap());
    fs::write(part("file"), "whole").unwrap();
    mode(&part("file"), 0o444);
    symlink("nowhere", part("link")).unwrap();
    let peer = Peer::serve(&folder);
    let mut client = peer.client().unwrap();
    for dir in ["file", "link"] {
        client.request(Request::Remove(in_share("data", dir), false)).unwrap();
        assert!(!folder.0.join("share").join(dir).exists());
    }
}

#[test]
fn a_directory_that_may_not_be_written_goes_from_the_trash_and_from_nowhere_else() {
    if !goes_on("a_directory_that_may_not_be_written_goes_from_the_trash_and_from_nowhere_else") {
        return;
    }
    let folder = Folder::new("trash-fixed");
    let (share, trash) = (folder.0.join("share"), folder.0.join("share/.lspan/trash"));
    // Of 2001, and one that is not old.
    let runs = ["1000000000-0000000a", "1000000001-0000000b", "9000000000-0000000c"].map(|run| trash.join(run));
    for dir in runs.iter().chain([&share]) {
        fs::create_dir_all(dir.join("cache/fixed/below")).unwrap();
        fs::write(dir.join("cache/fixed/below/f"), "").unwrap();
        ["cache/fixed/below", "cache/fixed"].iter().for_each(|fixed| mode(&dir.join(fixed), 0o555));
    }
    let peer = Peer::serve(&folder);
    assert_eq!(runs.each_ref().map(|run| run.exists()), [false, false, true]);
    let mut client = peer.client().unwrap();
    let run = PeerPath { share: format!("data{TRASH}"), path: RelPath::new(b"9000000000-0000000c").unwrap() };
    client.request(Request::Remove(run, true)).unwrap();
    assert!(!runs[2].exists());
    assert_eq!(refusal(&mut client, Request::Remove(in_share("data", "cache"), true)), FaultKind::Denied);
    assert!(share.join("cache/fixed/below/f").exists());
    ["cache/fixed", "cache/fixed/below"].iter().for_each(|fixed| mode(&share.join(fixed), 0o755));
}

#[test]
fn a_directory_that_may_not_be_read_keeps_no_other_one_from_being_watched_and_is_when_it_may() {
    if !goes_on("a_directory_that_may_not_be_read_keeps_no_other_one_from_being_watched_and_is_when_it_may") {
        return;
    }
    let folder = Folder::new("watch-closed");
    let src = folder.0.join("src");
    // Whatever the order of the listing, some come after it.
    for n in 0..8 {
        fs::create_dir_all(src.join(format!("{n}/below"))).unwrap();
    }
    // One that may not be read, and one that may not be searched.
    mode(&src.join("4"), 0o300);
    mode(&src.join("5"), 0o600);
    let root = Arc::new(RealFs::root(&src).unwrap());
    let mut tree = Tree::new(root, Arc::new(Rules::new(&[]).unwrap())).unwrap();
    tree.add(&RelPath::default()).unwrap();
    assert_eq!(tree.count(), 1 + 6 * 2 + 1);
    // As one that comes with these permissions.
    tree.add(&RelPath::new(b"4").unwrap()).unwrap();
    mode(&src.join("3"), 0o750);
    ["4", "5"].iter().for_each(|name| mode(&src.join(name), 0o700));
    let mut heard = Vec::new();
    tree.hear(|one| heard.push(one)).unwrap();
    heard.retain(|one| matches!(one, Heard::Came(..)));
    assert_eq!(heard, [b"4", b"5"].map(|name| Heard::Came(RelPath::default(), Name::new(name).unwrap())));
    [b"4", b"5"].iter().for_each(|name| tree.add(&RelPath::new(&name[..]).unwrap()).unwrap());
    assert_eq!(tree.count(), 1 + 8 * 2);
}
