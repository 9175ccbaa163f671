use std::os::unix::fs::PermissionsExt;

use super::*;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("linkspan-keys-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn somebody(name: &str) -> Peer {
    Peer { name: name.to_owned(), key: KeyPair::random().unwrap().public(), hosts: Vec::new() }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_key_is_made_once_closed_to_others_and_replaced_only_on_demand() {
    let dir = scratch("made");
    assert!(matches!(Keyring::open_in(&dir), Err(KeyError::NoKey)));
    let first = Keyring::make_in(&dir, false).unwrap();
    assert_eq!((mode(&dir), mode(&dir.join("key"))), (0o700, 0o600));
    assert_eq!(Keyring::open_in(&dir).unwrap().public(), first.public());
    let error = Keyring::make_in(&dir, false).unwrap_err();
    assert!(error.to_string().contains(&first.public().fingerprint()), "{error}");
    assert_eq!(Keyring::open_in(&dir).unwrap().public(), first.public());
    assert_ne!(Keyring::make_in(&dir, true).unwrap().public(), first.public());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_private_key_that_others_may_read_is_refused_and_so_is_one_that_is_damaged() {
    let dir = scratch("open");
    Keyring::make_in(&dir, false).unwrap();
    let key = dir.join("key");
    for open in [0o640, 0o604, 0o666] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(open)).unwrap();
        let error = Keyring::open_in(&dir).unwrap_err();
        assert!(error.to_string().ends_with("; chmod 600 it"), "{error}");
    }
    let foreign = KeyError::Open { path: key.clone(), mode: 0o100_600, owner: 0, user: 1000, private: true };
    assert!(foreign.to_string().ends_with("as root chown 1000 it, then chmod 600 it"), "{foreign}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let good = std::fs::read(&key).unwrap();
    for bad in [&good[..63], b"", &[b'g'; 64], &[&good[..64], b"00"].concat()] {
        std::fs::write(&key, bad).unwrap();
        assert!(matches!(Keyring::open_in(&dir), Err(KeyError::NotAKey { .. })), "{bad:?}");
    }
    std::fs::remove_file(&key).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &key, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(matches!(Keyring::open_in(&dir), Err(KeyError::File { .. })), "a fifo is not waited for");
    std::fs::remove_file(&key).unwrap();
    std::fs::write(&key, &good).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(dir.join("peers"), b"\xff").unwrap();
    let error = Keyring::open_in(&dir).unwrap_err();
    assert!(matches!(&error, KeyError::Line { place, .. } if place.contains("peers")), "{error}");
    std::fs::write(dir.join("peers"), "").unwrap();
    std::fs::set_permissions(dir.join("peers"), std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(Keyring::open_in(&dir), Err(KeyError::Open { private: false, .. })), "anybody could add a peer");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_peer_whose_line_could_not_be_read_again_is_refused_and_the_others_stay() {
    let dir = scratch("unreadable");
    let ring = Keyring::make_in(&dir, false).unwrap();
    ring.add(somebody("mini")).unwrap();
    for host in ["fe80::1%eth0@if5", "fe80::1%?", "a,b"] {
        let peer = Peer { hosts: vec![host.to_owned()], ..somebody("other") };
        assert!(ring.add(peer).is_err(), "{host}");
        assert_eq!(Keyring::open_in(&dir).unwrap().names(), ["mini"]);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn peers_are_added_renamed_and_forgotten_and_another_process_sees_it() {
    let dir = scratch("peers");
    let ring = Keyring::make_in(&dir, false).unwrap();
    let other = Keyring::open_in(&dir).unwrap();
    let (ada, bob) = (somebody("ada"), somebody("bob"));
    ring.add(bob.clone()).unwrap();
    ring.add(ada.clone()).unwrap();
    assert_eq!(&*other.peers(), [ada.clone(), bob.clone()]);
    assert_eq!(other.name_of(&ada.key).as_deref(), Some("ada"));
    assert_eq!(other.name_of(&ring.public()).as_deref(), Some("self"));
    assert_eq!(other.peer("bob"), Some(bob.clone()));
    assert_eq!(other.peer(&bob.key.fingerprint()), Some(bob.clone()));

    ring.add(Peer { name: "ada2".into(), hosts: vec!["10.0.0.1".into()], ..ada.clone() }).unwrap();
    assert_eq!(other.peers().len(), 2, "one key, one peer");
    assert_eq!(other.name_of(&ada.key).as_deref(), Some("ada2"));

    let error = ring.add(Peer { name: "bob".into(), ..somebody("x") }).unwrap_err();
    assert!(matches!(&error, KeyError::Taken { name, .. } if name == "bob"), "{error}");
    assert!(matches!(ring.add(Peer { key: ring.public(), ..somebody("me") }), Err(KeyError::Own)));
    assert_eq!(other.peers().len(), 2);

    assert_eq!(ring.forget(&bob.key.fingerprint()).unwrap(), bob);
    assert!(matches!(ring.forget("bob"), Err(KeyError::Unknown { .. })));
    assert_eq!(other.name_of(&bob.key), None);

    // As files that were merged by hand have it.
    let twice = format!("{}\n{}\n", bob.line(), Peer { name: "bob2".into(), ..bob.clone() }.line());
    std::fs::write(dir.join("peers"), twice).unwrap();
    assert_eq!(ring.forget("bob").unwrap(), bob);
    assert_eq!(other.name_of(&bob.key), None, "no other line lets it in");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn lines_travel_without_loss_and_nothing_else_is_a_line() {
    let peer = Peer { hosts: vec!["fe80::1".into(), "10.0.0.2".into(), "mini2.local".into()], ..somebody("mini2") };
    assert_eq!(Peer::parse(&peer.line()).unwrap(), peer);
    assert_eq!(Peer::parse(&somebody("a").line()).unwrap().hosts, Vec::<String>::new());
    let key = peer.line().split(' ').nth(1).unwrap().to_owned();
    for bad in [
        String::new(),
        "ssh-ed25519 AAAA me@here".into(),
        format!("linkspan2 {key} mini2"),
        format!("linkspan1 {key}"),
        format!("linkspan1 {} mini2", &key[..40]),
        format!("linkspan1 {key} mini2 10.0.0.1 more"),
        format!("linkspan1 {key} mini2 10.0.0.1,a;b"),
        format!("linkspan1 {key} mini2 -oProxyCommand=x"),
        format!("linkspan1 {key} {}", "x".repeat(3000)),
    ] {
        assert!(matches!(Peer::parse(&bad), Err(KeyError::Line { .. })), "{bad}");
    }
    let long = "x".repeat(NAME_MAX + 1);
    for name in ["cluster", "self", "localhost", "cable", "cable12", "10.0.0.1", "-x", "a\u{1b}[2J", "é", ".x", &long]
        .into_iter()
        .chain(["ABCD-EFGH-IJKL-MN27"])
    {
        assert!(matches!(Peer::parse(&format!("linkspan1 {key} {name}")), Err(KeyError::Name { .. })), "{name}");
    }
    assert!(name_fault("cables").is_none() && name_fault("mini-2.lab_1").is_none());
    assert!(name_fault("abcd-efgh-ijkl-mnop").is_none() && name_fault("ABCD-EFGH-IJKL-MN01").is_none());
    let many = ["h"; HOSTS_MAX + 3].join(",");
    assert_eq!(Peer::parse(&format!("linkspan1 {key} a {many}")).unwrap().hosts.len(), HOSTS_MAX);
}

#[test]
fn a_damaged_line_is_named_and_those_who_were_trusted_still_are() {
    let dir = scratch("damaged");
    let ring = Keyring::make_in(&dir, false).unwrap();
    let ada = somebody("ada");
    ring.add(ada.clone()).unwrap();
    std::fs::write(dir.join("peers"), format!("# hosts of the lab\n\n{}\nlinkspan1 x y\n", ada.line())).unwrap();
    assert_eq!(&*ring.peers(), std::slice::from_ref(&ada), "what is running goes on");
    let error = Keyring::open_in(&dir).unwrap_err().to_string();
    assert!(error.contains("peers, line 4: "), "{error}");
    assert!(ring.forget("ada").is_err(), "a file that cannot be read is not written over");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_number_of_peers_has_a_bound() {
    let dir = scratch("many");
    let ring = Keyring::make_in(&dir, false).unwrap();
    let lines: String = (0..PEERS_MAX).map(|n| somebody(&format!("p{n}")).line() + "\n").collect();
    std::fs::write(dir.join("peers"), lines).unwrap();
    assert_eq!(ring.peers().len(), PEERS_MAX);
    assert!(matches!(ring.add(somebody("more")), Err(KeyError::Full)));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_place_follows_the_environment() {
    let at = |xdg: Option<&str>, home: Option<&str>| {
        dir(&|name| if name == "HOME" { home } else { xdg }.map(Into::into)).map_err(|error| error.to_string())
    };
    assert_eq!(at(Some("/x"), Some("/home/a")), Ok("/x/linkspan".into()));
    assert_eq!(at(None, Some("/home/a")), Ok("/home/a/.config/linkspan".into()));
    assert_eq!(at(Some("relative"), Some("/home/a")), Ok("/home/a/.config/linkspan".into()));
    assert!(at(Some("relative"), None).unwrap_err().starts_with("LS0520"));
}
