//! Peers by the names of paired hosts, between processes of several users, each with keys of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use linkspan::{Access, Context, Event, Memory, Notify, RemoteBuffer, Transport};
use linkspan_fabric::keys::{Keyring, Peer};

use crate::common::LONG;

const BRIEF: Duration = Duration::from_millis(500);

fn say(text: &str) {
    println!("\n@{text}");
    std::io::stdout().flush().unwrap();
}

/// The part of a process of one user; not a test of its own.
#[test]
fn child() {
    let Ok(task) = std::env::var("LINKSPAN_TEST_PAIRED") else { return };
    let mut words = task.split(' ');
    let mut word = || words.next().unwrap();
    match word() {
        "serve" => serve(word()),
        "write" => write(word()),
        "fail" => match Context::paired() {
            Ok(ctx) => {
                let (endpoint, transport) = (ctx.endpoint("ada").unwrap(), ctx.transport().unwrap());
                match ctx.find_host(word(), BRIEF) {
                    Ok(url) => {
                        say(&endpoint.connect_blocking("hub", &url, LONG).map(drop).unwrap_err().to_string());
                        say(&transport.connect_blocking(&url, LONG).unwrap_err().to_string());
                    }
                    Err(error) => say(&error.to_string()),
                }
            }
            Err(error) => say(&error.to_string()),
        },
        "taken" => taken(word()),
        "bind" => {
            let transport = Context::paired().unwrap().transport().unwrap();
            say(&transport.bind().unwrap().to_string());
            transport.wait_connected_blocking(LONG).unwrap();
            say(&transport.peer_name().unwrap());
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "join" => {
            let transport = Context::paired().unwrap().transport().unwrap();
            transport.connect_blocking(&word().parse().unwrap(), LONG).unwrap();
            say(&transport.peer_name().unwrap());
            // The other one asks for ours while there is a path.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "come" => {
            let endpoint = Context::paired().unwrap().endpoint("hub").unwrap();
            let url = Context::paired().unwrap().find_host(word(), LONG).unwrap();
            endpoint.connect_blocking("ada", &url, LONG).unwrap();
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        other => panic!("{other}"),
    }
}

/// An endpoint with one word of memory that peers write to.
fn serve(port: &str) {
    let endpoint = Context::paired().unwrap().endpoint("hub").unwrap();
    let (inbox, addrs) = (Memory::host(8), endpoint.serve_at(port.parse().unwrap()).unwrap());
    let remote = endpoint.expose(&inbox.view(), Access::Write).unwrap().remote();
    say(&addrs[0].port().to_string());
    loop {
        match endpoint.next_event_blocking(Some(LONG)).unwrap() {
            Event::Connected { peer } => {
                let transport = endpoint.peer(&peer).unwrap();
                say(&format!("{peer} is {}", transport.peer_name().unwrap()));
                transport.send_blocking(1, &Memory::copy_of(&remote.encode()).view(), Some(LONG)).unwrap();
            }
            Event::Notified { peer, value } => say(&format!("{peer} told {value}")),
            _ => {}
        }
    }
}

fn write(host: &str) {
    let ctx = Context::paired().unwrap();
    let endpoint = ctx.endpoint("worker").unwrap();
    let url = ctx.find_host(host, LONG).unwrap();
    let by_endpoint = endpoint.connect_blocking("hub", &url, LONG).unwrap();
    let by_transport = ctx.transport().unwrap();
    by_transport.connect_blocking(&url, LONG).unwrap();
    let tell = |transport: &Transport, value| {
        let place = Memory::host(linkspan::REMOTE_BUFFER_LEN);
        transport.recv_blocking(1, &place.view_mut().unwrap(), Some(LONG)).unwrap();
        let remote = RemoteBuffer::decode(&place.to_vec()).unwrap();
        let word = Memory::copy_of(b"by name!");
        transport.write_blocking(&word.view(), &remote, Some(Notify::value(value)), Some(LONG)).unwrap();
        say(&transport.peer_name().unwrap());
    };
    tell(&by_endpoint, 1);
    tell(&by_transport, 2);
    // Until the other side was told.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Another trusted peer has come by the name that is asked for.
fn taken(host: &str) {
    let ctx = Context::paired().unwrap();
    let endpoint = ctx.endpoint("ada").unwrap();
    say(&endpoint.serve_at(0).unwrap()[0].port().to_string());
    assert_eq!(endpoint.next_event_blocking(Some(LONG)).unwrap(), Event::Connected { peer: "hub".into() });
    let url = ctx.find_host(host, LONG).unwrap();
    let error = endpoint.connect_blocking("hub", &url, LONG).map(drop).unwrap_err();
    say(&error.to_string());
}

/// One user, with a folder for its keys.
struct User(PathBuf, &'static str);

impl Drop for User {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl User {
    fn new(test: &str, name: &'static str) -> User {
        let dir = std::env::temp_dir().join(format!("linkspan-paired-{test}-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        User(dir, name)
    }

    fn keyed(test: &str, name: &'static str) -> User {
        let user = User::new(test, name);
        Keyring::make_in(&user.0.join("linkspan"), false).unwrap();
        user
    }

    fn ring(&self) -> Keyring {
        Keyring::open_in(&self.0.join("linkspan")).unwrap()
    }

    /// Both trust each other from now on, and expect each other on this host.
    fn paired_with(&self, other: &User) {
        for (one, two) in [(self, other), (other, self)] {
            let peer = Peer { name: two.1.into(), key: two.ring().public(), hosts: vec!["127.0.0.1".into()] };
            one.ring().add(peer).unwrap();
        }
    }

    fn begin(&self, task: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "paired::child", "--nocapture", "--test-threads=1"])
            .env("LINKSPAN_TEST_PAIRED", task)
            .env("XDG_CONFIG_HOME", &self.0)
            .env("LINKSPAN_IFNAME", "=lo")
            .env("LINKSPAN_STATS_DIR", "off")
            .env_remove("LINKSPAN_PSK_FILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }

    /// What is said of a host: when it is looked for, or by an endpoint and a transport that connect to it.
    fn fails(&self, host: &str) -> Vec<String> {
        let mut process = self.begin(&format!("fail {host}"));
        let _ = process.child.stdin.take();
        let lines = process.lines.by_ref().map_while(Result::ok);
        lines.filter_map(|line| Some(line.strip_prefix('@')?.to_owned())).collect()
    }
}

struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn said(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("the process ended").unwrap();
            if let Some(said) = line.strip_prefix('@') {
                return said.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody has.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn all_say(texts: &[String], parts: &[&str]) {
    assert!(!texts.is_empty());
    for text in texts {
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} are not all in: {text}");
    }
}

#[test]
fn a_paired_host_is_found_by_its_name_and_both_sides_know_who_the_other_is() {
    let (ada, bob) = (User::keyed("found", "ada"), User::keyed("found", "bob"));
    ada.paired_with(&bob);
    // It begins to serve after it has been asked for, ends, and another one serves at the same place.
    let port = free_port();
    for _ in 0..2 {
        let mut writer = ada.begin(&format!("write bob:{port}"));
        let mut hub = bob.begin(&format!("serve {port}"));
        assert_eq!(hub.said(), port.to_string());
        assert_eq!([writer.said(), writer.said()], ["bob", "bob"]);
        let mut said: Vec<String> = (0..4).map(|_| hub.said()).collect();
        said.sort();
        // A transport has no name but the one that it was paired under.
        assert_eq!(said, ["ada is ada", "ada told 2", "worker is ada", "worker told 1"]);
    }
}

#[test]
fn transports_of_paired_users_connect_by_url() {
    let (ada, bob) = (User::keyed("url", "ada"), User::keyed("url", "bob"));
    ada.paired_with(&bob);
    let mut binds = bob.begin("bind");
    let mut joins = ada.begin(&format!("join {}", binds.said()));
    assert_eq!((joins.said(), binds.said()), ("bob".to_owned(), "ada".to_owned()));
}

#[test]
fn a_host_that_does_not_answer_is_named_with_what_should_run_there() {
    let (ada, bob) = (User::keyed("silent", "ada"), User::keyed("silent", "bob"));
    ada.paired_with(&bob);
    let host = format!("bob:{}", free_port());
    let said = ada.fails(&host);
    all_say(&said, &["LS0732", &host, "serve an endpoint or a listener at this port on bob", "paired peers"]);
}

#[test]
fn a_host_that_is_not_paired_is_refused_on_either_side_with_the_way_out() {
    let (ada, bob, eve) = (User::keyed("foreign", "ada"), User::keyed("foreign", "bob"), User::new("foreign", "eve"));
    let mut hub = bob.begin("serve 0");
    let host = format!("127.0.0.1:{}", hub.said());
    all_say(&ada.fails(&host), &["does not trust our key", "`lspan pair`"]);
    all_say(&eve.fails(&host), &["LS0524", "`lspan pair`"]);
    all_say(&ada.fails("bob.invalid"), &["LS0731", "no paired peer has this name", "`lspan key list`"]);
    // Only one side trusts the other.
    let key = ada.ring().public();
    bob.ring().add(Peer { name: "ada".into(), key, hosts: Vec::new() }).unwrap();
    all_say(&ada.fails(&host), &["is not trusted here", "`lspan pair`"]);
}

#[test]
fn a_trusted_peer_does_not_pass_for_another() {
    let (ada, bob, eve) = (User::keyed("other", "ada"), User::keyed("other", "bob"), User::keyed("other", "eve"));
    ada.paired_with(&bob);
    ada.paired_with(&eve);
    let mut hub = eve.begin("serve 0");
    let port = hub.said();
    all_say(&ada.fails(&format!("bob:{port}")), &["bob was asked for", "the key of eve", "`lspan pair`"]);
    // Nor where it has come by itself, under the name that the other one's endpoint has.
    let mut real = bob.begin("serve 0");
    let mut asks = ada.begin(&format!("taken bob:{}", real.said()));
    let _eve = eve.begin(&format!("come ada:{}", asks.said()));
    all_say(&[asks.said()], &["LS1135", "\"hub\""]);
}

#[test]
fn a_context_without_keys_serves_nobody_by_name() {
    let ctx = crate::common::context(&[]);
    let endpoint = ctx.endpoint("hub").unwrap();
    let errors = [
        endpoint.serve_at(0).map(drop).unwrap_err(),
        ctx.listen().unwrap().serve_at(0).map(drop).unwrap_err(),
        ctx.find_host("bob", BRIEF).map(drop).unwrap_err(),
    ];
    all_say(&errors.map(|error| error.to_string()), &["LS1138", "Context::paired"]);
}
