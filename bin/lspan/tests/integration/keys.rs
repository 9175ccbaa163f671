//! `lspan key` and `lspan pair` as their users type them.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A user with a home of its own.
struct User(PathBuf);

impl Drop for User {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl User {
    fn new(name: &str) -> User {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("user-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        User(dir)
    }

    fn lspan(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        command.args(line.split_whitespace()).env("LINKSPAN_STATS_DIR", "off").env("XDG_CONFIG_HOME", &self.0);
        command.env("LINKSPAN_IFNAME", "=lo").stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.lspan(line).output().unwrap()
    }

    fn given(&self, line: &str, input: impl AsRef<[u8]>) -> Output {
        self.given_with(line, &[], input)
    }

    /// With words that may have blanks, or be empty.
    fn given_with(&self, line: &str, words: &[&str], input: impl AsRef<[u8]>) -> Output {
        let mut command = self.lspan(line);
        command.args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_ref()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn keys_are_added_through_a_pipe_listed_and_forgotten() {
    let (ada, bob) = (User::new("pipe-ada"), User::new("pipe-bob"));
    let shown = out(&ada.run("key show --name adas-box"));
    let added = bob.given("key add --host 10.0.0.7", &shown);
    assert_eq!(added.status.code(), Some(0), "{}", err(&added));
    assert!(out(&added).starts_with("adas-box is trusted; its key is "), "{}", out(&added));
    let listed = out(&bob.run("key list --json"));
    let json: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(crate::schema::problems("keys-1.json", &json), Vec::<String>::new());
    assert_eq!(json["peers"][0]["name"], "adas-box");
    assert_eq!(json["peers"][0]["hosts"][0], "10.0.0.7");
    assert!(shown.contains(json["peers"][0]["key"].as_str().unwrap()));
    assert!(out(&bob.run("key list")).contains("adas-box"));
    assert!(out(&bob.run("status")).contains("paired peers: adas-box"));
    assert_eq!(bob.run("key forget adas-box").status.code(), Some(0));
    let gone = bob.run("key forget adas-box");
    assert!(gone.status.code() == Some(2) && err(&gone).contains("LS0530"), "{}", err(&gone));
    assert!(out(&bob.run("key list")).contains("no peer is trusted yet"));
}

#[test]
fn what_is_no_key_is_refused_and_changes_nothing() {
    let (ada, bob) = (User::new("bad-ada"), User::new("bad-bob"));
    let shown = out(&ada.run("key show --name ada"));
    for (line, input, code) in [
        ("key add", "ssh-ed25519 AAAA ada@host\n", "LS0526"),
        ("key add", &shown[..30], "LS0526"),
        ("key add", "", "LS0526"),
        ("key add --as cluster", &shown, "LS0527"),
        ("key add --host a;b", &shown, "LS0526"),
        ("pair - ", "curl | sh", "LS0541"),
        ("pair LSPAAAA", "", "LS0542"),
        ("pair --as 10.0.0.1", "", "LS0527"),
    ] {
        let output = bob.given(line, input);
        assert!(output.status.code() == Some(2) && err(&output).contains(code), "{line}: {}", err(&output));
    }
    for (words, code) in
        [(["--as", "ada evil.example"], "LS0527"), (["--as", ""], "LS0527"), (["--host", "a evil.example"], "LS0526")]
    {
        let output = bob.given_with("key add", &words, &shown);
        assert!(output.status.code() == Some(2) && err(&output).contains(code), "{words:?}: {}", err(&output));
    }
    let noise = bob.given("pair -", [0xff; 99]);
    assert!(noise.status.code() == Some(2) && err(&noise).contains("LS0541"), "{}", err(&noise));
    let own = out(&bob.run("key show --name bob"));
    assert!(err(&bob.given("key add", own)).contains("LS0529"));
    assert!(out(&bob.run("key list")).contains("no peer is trusted yet"));
    let again = bob.run("key new");
    assert!(again.status.code() == Some(2) && err(&again).contains("LS0525"), "{}", err(&again));
}

#[test]
fn two_users_pair_by_the_printed_line_and_scripts_read_json() {
    let (ada, bob) = (User::new("pair-ada"), User::new("pair-bob"));
    let mut command = ada.lspan("pair --name ada --as bobby --json");
    let mut offer = Ended(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(offer.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(crate::schema::problems("pair-1.json", &first), Vec::<String>::new());
    let line = first["join_line"].as_str().unwrap();
    let joined = bob.given("pair - --name bob", line);
    assert_eq!(joined.status.code(), Some(0), "{}", err(&joined));
    let second = lines.next().unwrap();
    let second: serde_json::Value = serde_json::from_str(&second).unwrap();
    assert_eq!(crate::schema::problems("pair-1.json", &second), Vec::<String>::new());
    assert_eq!((&second["peer"]["name"], &second["calls_itself"]), (&"bobby".into(), &"bob".into()));
    assert!(out(&joined).contains(second["fingerprint"].as_str().unwrap()), "{}", out(&joined));
    assert_eq!(offer.0.wait().unwrap().code(), Some(0));
    assert!(out(&ada.run("key list")).contains("bobby") && out(&bob.run("key list")).contains("ada"));
}

/// script(1) is the terminal.
#[test]
fn a_terminal_is_shown_the_join_line_as_a_code_too() {
    let ada = User::new("pair-code");
    let plain = ada.lspan("pair");
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--command", &format!("{} pair", plain.get_program().display()), "/dev/null"]);
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(terminal) = command.spawn() else { return eprintln!("skipped: there is no script (package bsdutils)") };
    let mut terminal = Ended(terminal);
    let mut lines = BufReader::new(terminal.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line.starts_with("lspan pair LSP")));
    let code: Vec<String> = lines.take_while(|line| !line.contains("type this line")).collect();
    let blocks = code.iter().filter(|row| row.contains(['\u{2580}', '\u{2584}', '\u{2588}'])).count();
    assert!(blocks > 15, "{code:#?}");
}

#[test]
fn a_join_line_that_leads_to_this_host_alone_is_not_given() {
    let ada = User::new("pair-alone");
    let alone = ada.lspan("pair").env("LINKSPAN_IFNAME", "=nowhere9").output().unwrap();
    assert_eq!((alone.status.code(), out(&alone).as_str()), (Some(4), ""), "{}", err(&alone));
    assert!(err(&alone).contains("LS0549") && err(&alone).contains("set LINKSPAN_IFNAME"), "{}", err(&alone));
}

/// Whoever is paired measures by name; this user from elsewhere does too; others are told what to do.
#[test]
fn a_served_peer_lets_in_whom_it_is_paired_with() {
    let (ada, bob, eve) = (User::new("serve-ada"), User::new("serve-bob"), User::new("serve-eve"));
    let show = |user: &User, name: &str| out(&user.run(&format!("key show --name {name}")));
    assert_eq!(bob.given("key add", show(&ada, "ada")).status.code(), Some(0));
    assert_eq!(ada.given("key add --host 127.0.0.1", show(&bob, "bob")).status.code(), Some(0));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let serve = |more: &str| {
        let mut command = bob.lspan(&format!("perf serve --port {port} {more}"));
        let mut server = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        (server, lines.find(|line| line.contains("waiting on")).unwrap(), lines)
    };
    let (server, said, _lines) = serve("");
    assert!(said.contains("for paired peers (ada)"), "{said}");
    for (user, peer, code, text) in
        [(&ada, "bob", 0, ""), (&ada, "127.0.0.1", 0, ""), (&bob, "127.0.0.1", 0, ""), (&eve, "127.0.0.1", 5, "LS0740")]
    {
        let output = user.run(&format!("perf lat -s 8 -n 5 {peer}:{port}"));
        assert!(output.status.code() == Some(code) && err(&output).contains(text), "{peer}: {}", err(&output));
    }
    assert_eq!(eve.run("key new").status.code(), Some(0));
    for refused in ["perf lat -s 8 -n 5 127.0.0.1:{}", "ls 127.0.0.1: --port {}", "pipe 127.0.0.1 ssh --port {}"] {
        let output = eve.run(&refused.replace("{}", &port.to_string()));
        assert!(output.status.code() == Some(5) && err(&output).contains("LS0230"), "{refused}: {}", err(&output));
    }
    drop(server);

    // Where everybody is let in, a paired peer's name is not what answers there.
    let (_server, said, _lines) = serve("--open");
    assert!(!said.contains("paired peers ("), "{said}");
    assert_eq!(eve.run(&format!("perf lat -s 8 -n 5 127.0.0.1:{port}")).status.code(), Some(0));
    let output = ada.run(&format!("perf lat -s 8 -n 5 bob:{port}"));
    assert!(output.status.code() == Some(5) && err(&output).contains("LS0739"), "{}", err(&output));
}

#[test]
fn a_server_that_no_other_host_can_reach_says_so_whoever_is_let_in() {
    let (ada, bob) = (User::new("alone-ada"), User::new("alone-bob"));
    let bobs = out(&bob.run("key show --name bob"));
    assert_eq!(ada.given("key add", &bobs).status.code(), Some(0));
    for more in ["", "--open"] {
        let mut serve = ada.lspan(&format!("perf serve --port 0 {more}"));
        serve.env("LINKSPAN_IFNAME", "=nowhere9").env("LINKSPAN_LOG", "off").stderr(Stdio::piped());
        let mut server = Ended(serve.spawn().unwrap());
        let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains("waiting on")).unwrap();
        assert!(said.contains("for this host only: no network interface is usable"), "{more}: {said}");
    }
    let carl = User::new("alone-carl");
    let mut serve = carl.lspan("perf serve --port 0 --open");
    serve.env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_LOG", "off").stderr(Stdio::piped());
    let mut server = Ended(serve.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("waiting on")).unwrap();
    assert!(said.contains("LINKSPAN_IFNAME chooses only loopback") && !said.contains("--open"), "{said}");
}

/// `lspan perf serve` as a service manager starts it: with this as the socket that is passed.
fn activated(user: &User, socket: impl Into<Stdio>, more: &str) -> Command {
    let serve = user.lspan(&format!("perf serve {more}"));
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 </dev/null"]);
    command.arg(serve.get_program()).args(serve.get_args()).stdin(socket).stderr(Stdio::piped());
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[test]
fn on_a_passed_socket_those_who_pair_are_served_and_nobody_else() {
    let (ada, bob, eve) = (User::new("passed-ada"), User::new("passed-bob"), User::new("passed-eve"));
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let passed = || std::os::fd::OwnedFd::from(socket.try_clone().unwrap());
    // Whoever comes before it runs is waited for by the socket.
    let mut early = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut server = Ended(activated(&bob, passed(), "").spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("waiting on")).unwrap();
    assert!(said.contains(&format!("waiting on 127.0.0.1:{port}, for paired peers (none yet")), "{said}");
    let mut hello = [0; 8];
    std::io::Read::read_exact(&mut early, &mut hello).unwrap();
    assert_eq!(&hello, b"LSPANRV1");
    let measured = |user: &User, peer: &str, code: i32, text: &str| {
        let output = user.run(&format!("perf lat -s 8 -n 5 {peer}:{port}"));
        assert!(output.status.code() == Some(code) && err(&output).contains(text), "{peer}: {}", err(&output));
    };
    measured(&eve, "127.0.0.1", 5, "LS0740");
    let show = |user: &User, name: &str| out(&user.run(&format!("key show --name {name}")));
    assert_eq!(bob.given("key add", show(&ada, "ada")).status.code(), Some(0));
    assert_eq!(ada.given("key add --host 127.0.0.1", show(&bob, "bob")).status.code(), Some(0));
    assert_eq!(eve.run("key new").status.code(), Some(0));
    measured(&ada, "bob", 0, "");
    measured(&eve, "127.0.0.1", 5, "LS0230");
    drop(server);
    let refused = activated(&bob, passed(), "--bind 127.0.0.1").output().unwrap();
    assert!(refused.status.code() == Some(2) && err(&refused).contains("--bind"), "{}", err(&refused));
    let datagrams: std::os::fd::OwnedFd = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
    for other in [Stdio::null(), datagrams.into()] {
        let refused = activated(&bob, other, "").output().unwrap();
        assert!(refused.status.code() == Some(1) && err(&refused).contains("no TCP socket"), "{}", err(&refused));
    }
}
