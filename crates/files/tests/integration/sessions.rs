//! Sessions with a peer in another process: what is left of one after a transfer that failed, and a peer of another release.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linkspan::{Config, Context, Listener, Log, Memory, Transport, Url};
use linkspan_files::Error;
use linkspan_files::client::{Client, Watcher};
use linkspan_files::engine::{Event, Happened};
use linkspan_files::fs::{Change, Ident, OpenHow, RealFs, Rename, Time};
use linkspan_files::name::{Name, RelPath};
use linkspan_files::serve::{Answered, Identity, PER_PEER_OPEN, Server, Share};
use linkspan_files::sink::DestDir;
use linkspan_files::source::{Load, Start};
use linkspan_files::wire::{
    Answer, Delete, Entry, FaultKind, FileInfo, Item, Message, New, PeerPath, Request, VERSION, What,
};

/// Far more than any step takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Tag of control messages.
pub(crate) const TAG: u32 = 1;

pub(crate) fn context() -> Context {
    let get = |name: &str| {
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        base.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
    };
    Context::new(Config::read(&get).unwrap(), Log::off()).unwrap()
}

pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let dir = std::env::temp_dir().join(format!("linkspan-files-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("share")).unwrap();
        fs::create_dir_all(dir.join("src")).unwrap();
        Folder(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Set in the child: the part it plays, or the folder whose `share` it serves.
const PEER: &str = "LINKSPAN_TEST_PEER";

/// Makes itself heard on a listener, and answers what stays open.
type Part = fn(&Listener) -> Vec<Transport>;

/// Servers that no release has.
const PARTS: [(&str, Part); 3] = [("old", old), ("stale", stale), ("gives others", gives_others)];

/// The peer's part; not a test of its own.
#[test]
fn child() {
    let Ok(peer) = std::env::var(PEER) else { return };
    // Up to its end what a part leaves open stays so.
    let _open = match PARTS.iter().find(|part| part.0 == peer) {
        Some((_, part)) => {
            let listener = context().listen().unwrap();
            tell('@', &listener.url().to_string());
            part(&listener)
        }
        None => {
            serves(Path::new(&peer));
            Vec::new()
        }
    };
    std::io::stdin().lines().for_each(drop);
}

/// A line to the other process: '@' before URLs and answers, '!' before what the server says.
fn tell(mark: char, line: &str) {
    let mut out = std::io::stdout().lock();
    // The harness has begun a line.
    writeln!(out, "\n{mark}{line}").and_then(|()| out.flush()).unwrap();
}

/// Serves `share`, also as one that is read-only. `close` closes the server, `next` begins another one, which goes on from its answers.
fn serves(dir: &Path) {
    let answered = Answered::default();
    let begin = || {
        let share = |name, writable| Share::open(name, &dir.join("share"), writable).unwrap();
        let shares = vec![share("data", true), share("fixed", false)];
        let server = Server::new(shares, Vec::new(), None, 1 << 30, answered.clone(), |line: &str| tell('!', line));
        let listener = context().listen().unwrap();
        tell('@', &listener.url().to_string());
        let accepts = server.clone();
        std::thread::spawn(move || {
            loop {
                if let Ok(transport) = listener.accept_blocking(LONG) {
                    accepts.accept(transport, Identity::Cluster);
                }
            }
        });
        server
    };
    let mut server = begin();
    for line in std::io::stdin().lines() {
        if line.unwrap() == "next" {
            server = begin();
        } else {
            server.close();
            tell('@', "closed");
        }
    }
}

/// The peer: this program once more, which runs [`child`] alone. It ends with this value.
pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    url: Url,
}

/// The next line with this mark.
fn next(lines: &Receiver<String>, mark: char) -> String {
    loop {
        let line = lines.recv_timeout(LONG).expect("the peer says nothing");
        if let Some(rest) = line.strip_prefix(mark) {
            return rest.to_owned();
        }
    }
}

impl Peer {
    fn start(peer: &str) -> Peer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sessions::child", "--nocapture"])
            .env(PEER, peer)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let url = next(&lines, '@').parse().unwrap();
        Peer { input: child.stdin.take(), child, lines, url }
    }

    pub(crate) fn serve(folder: &Folder) -> Peer {
        Peer::start(folder.0.to_str().unwrap())
    }

    /// The next line that the server says.
    pub(crate) fn said(&self) -> String {
        next(&self.lines, '!')
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        next(&self.lines, '@')
    }

    pub(crate) fn client(&self) -> Result<Client, Error> {
        let url = self.url.clone();
        Client::connect(context(), move || Ok(url.clone()), || false)
    }

    pub(crate) fn dial(&self) -> Transport {
        let transport = context().transport().unwrap();
        transport.connect_blocking(&self.url, LONG).unwrap();
        transport
    }

    /// Its control connection of this session.
    pub(crate) fn session(&self, number: u8) -> Transport {
        let transport = self.dial();
        say(&transport, &Message::Hello { version: VERSION, session: [number; 16] });
        assert!(matches!(hear(&transport), Message::Welcome { version: VERSION, .. }));
        transport
    }

    /// Its part is over, and all was as it expects.
    fn finish(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success(), "the peer failed");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn place() -> PeerPath {
    PeerPath { share: "data".into(), path: RelPath::default() }
}

/// Stops a transfer once so much has moved.
struct StopAfter {
    most: u64,
    /// A file has not come: the peer has not let go of it since the transfer before.
    busy: bool,
}

impl Watcher for StopAfter {
    fn event(&mut self, event: Event) {
        self.busy |= matches!(event.what, Happened::Failed(_));
    }

    fn tick(&mut self, moved: u64, _: u64) -> bool {
        moved < self.most
    }
}

#[test]
fn a_client_whose_transfer_was_stopped_asks_and_sends_on() {
    let folder = Folder::new("stopped");
    let peer = Peer::serve(&folder);
    fs::write(folder.0.join("src/f"), vec![7; 64 << 20]).unwrap();
    let root = Arc::new(RealFs::root(&folder.0.join("src")).unwrap());
    let mut client = peer.client().unwrap();
    let send = |client: &mut Client, most| {
        let load = Load::new(Arc::new(RealFs), u64::MAX);
        let (name, path) = (Name::new(b"f").ok(), RelPath::new(b"f").unwrap());
        let start = Start { dir: root.clone(), name, path, shallow: false, opened: None };
        let mut watcher = StopAfter { most, busy: false };
        let result = client.send(load, vec![start], &place(), true, None, &mut watcher);
        assert!(!watcher.busy, "the transfer before has not ended");
        result
    };
    for round in 0..4 {
        let stopped = send(&mut client, 1 + (round << 20));
        assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
        let answer = client.request(Request::Shares);
        assert!(matches!(&answer, Ok(Answer::Shares(shares)) if shares.len() == 2), "{answer:?}");
        assert_eq!(client.epoch(), 2 + round, "over the connection of the transfer");
    }
    send(&mut client, u64::MAX).unwrap();
    assert!(fs::read(folder.0.join("share/f")).unwrap() == vec![7; 64 << 20]);
}

pub(crate) fn say(transport: &Transport, message: &Message) {
    try_say(transport, message).unwrap();
}

pub(crate) fn try_say(transport: &Transport, message: &Message) -> Result<u64, linkspan::Error> {
    let bytes = message.encode();
    let memory = Memory::host(bytes.len());
    memory.fill(0, &bytes).unwrap();
    transport.send_blocking(TAG, &memory.slice(0, bytes.len()).unwrap(), Some(LONG))
}

pub(crate) fn hear(transport: &Transport) -> Message {
    try_hear(transport).unwrap()
}

pub(crate) fn try_hear(transport: &Transport) -> Result<Message, linkspan::Error> {
    let memory = Memory::host(4096);
    let len = transport.recv_blocking(TAG, &memory.view_mut().unwrap(), Some(LONG))?;
    let mut bytes = vec![0; len as usize];
    memory.read(0, &mut bytes).unwrap();
    Ok(Message::decode(&bytes).unwrap())
}

/// Names both versions, and says what to do.
fn names_both(line: &str) -> bool {
    let both = line.contains("version 1 ") && line.contains(&format!("version {VERSION}:"));
    both && line.contains("LS1802") && line.contains("install the same release")
}

/// A server of the first version.
fn old(listener: &Listener) -> Vec<Transport> {
    let transport = listener.accept_blocking(LONG).unwrap();
    assert!(matches!(hear(&transport), Message::Hello { version: VERSION, .. }));
    say(&transport, &Message::Welcome { version: 1, identity: "cluster".into() });
    vec![transport]
}

#[test]
fn a_peer_of_another_version_is_refused_by_either_side_and_both_versions_are_named() {
    let folder = Folder::new("version");
    let peer = Peer::serve(&folder);
    let old = peer.dial();
    say(&old, &Message::Hello { version: 1, session: [1; 16] });
    assert!(matches!(hear(&old), Message::Welcome { version: VERSION, .. }), "it learns the version of the server");
    let line = peer.said();
    assert!(names_both(&line), "{line}");

    let peer = Peer::start("old");
    let error = peer.client().unwrap_err();
    assert!(matches!(error, Error::Version(1)) && names_both(&error.to_string()), "{error}");
    peer.finish();
}

#[test]
fn a_peer_opens_a_bounded_number_of_files_and_listings_in_all_of_its_sessions() {
    let folder = Folder::new("open");
    fs::write(folder.0.join("share/f"), "f").unwrap();
    // A listing is open as long as there are names that were not told.
    (0..600).for_each(|n| fs::write(folder.0.join(format!("share/{n}")), "").unwrap());
    let peer = Peer::serve(&folder);
    let file = PeerPath { share: "data".into(), path: RelPath::new(b"f").unwrap() };
    let fills = |sessions: &mut Vec<Client>| {
        let mut descriptors = 0;
        for client in sessions {
            for (what, each) in [(Request::List(place()), 2), (Request::Open(file.clone(), OpenHow::READ), 1)] {
                while let Ok(answer) = client.request(what.clone()) {
                    assert!(matches!(answer, Answer::List(_, Some(_)) | Answer::Opened(..)), "{answer:?}");
                    descriptors += each;
                }
            }
        }
        descriptors
    };
    let mut sessions: Vec<Client> = (0..3).map(|_| peer.client().unwrap()).collect();
    assert_eq!(fills(&mut sessions), PER_PEER_OPEN);
    let error = sessions[2].request(Request::Open(file.clone(), OpenHow::READ)).unwrap_err();
    assert!(error.to_string().contains(&format!("the {PER_PEER_OPEN} files and listings")), "{error}");
    // What a session had open comes back with its end, which the server hears of by itself.
    drop(sessions.remove(0));
    let began = std::time::Instant::now();
    while sessions[1].request(Request::Open(file.clone(), OpenHow::READ)).is_err() {
        assert!(began.elapsed() < LONG, "its descriptors are not given back");
    }
}

pub(crate) fn in_share(share: &str, path: &str) -> PeerPath {
    PeerPath { share: share.into(), path: RelPath::new(path.as_bytes()).unwrap() }
}

/// The kind of fault with which it is refused.
pub(crate) fn refusal(client: &mut Client, what: Request) -> FaultKind {
    match client.request(what.clone()) {
        Err(Error::Refused(fault)) => fault.kind,
        other => panic!("{what:?}: {other:?}"),
    }
}

/// Everything that changes something at this place, in one way or another.
fn changes(share: &str, path: &str) -> Vec<Request> {
    let (at, new) = (|| in_share(share, path), RelPath::new(b"new").unwrap());
    let how = |write, create| OpenHow { write, create, ..OpenHow::READ };
    let change = |mode, size, mtime| Request::Set(at(), None, Change { mode, size, mtime });
    vec![
        Request::Open(at(), how(true, None)),
        Request::Open(at(), OpenHow { again: true, ..how(true, None) }),
        Request::Open(at(), how(false, Some(0o600))),
        Request::Make(at(), New::Dir(0o700)),
        Request::Make(at(), New::Symlink(b"x".to_vec())),
        Request::Link(at(), None, new.clone()),
        change(Some(0o600), None, None),
        change(None, Some(0), None),
        change(None, None, Some(Some(Time::default()))),
        Request::Unlink(at(), false),
        Request::Unlink(at(), true),
        Request::Move(at(), new.clone(), Rename::Replace),
        Request::Move(at(), new, Rename::Exchange),
    ]
}

#[test]
fn a_peer_changes_nothing_of_a_share_that_is_read_only_and_nothing_outside_of_one_that_is_not() {
    let folder = Folder::new("changes");
    let (inside, outside) = (folder.0.join("share"), folder.0.join("src"));
    for dir in [&inside, &outside] {
        fs::write(dir.join("f"), "old").unwrap();
    }
    std::os::unix::fs::symlink("../src", inside.join("out")).unwrap();
    std::os::unix::fs::symlink("../src/f", inside.join("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, inside.join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let known = |dir: &Path| {
        let stat = fs::metadata(dir.join("f")).unwrap();
        (
            fs::read(dir.join("f")).unwrap(),
            stat.permissions(),
            stat.modified().unwrap(),
            fs::read_dir(dir).unwrap().count(),
        )
    };
    let before = (known(&inside), known(&outside));
    let peer = Peer::serve(&folder);
    let mut client = peer.client().unwrap();
    for what in changes("fixed", "f").into_iter().chain([Request::SyncDir(in_share("fixed", ""))]) {
        assert_eq!(refusal(&mut client, what), FaultKind::ReadOnly);
    }
    let Ok(Answer::Opened(handle, entry, ..)) = client.request(Request::Open(in_share("fixed", "f"), OpenHow::READ))
    else {
        panic!("it cannot be read")
    };
    for offset in [Some(0), None] {
        refusal(&mut client, Request::Write { handle, offset, bytes: b"new".to_vec() });
    }
    let each = [
        Change { size: Some(0), ..Change::default() },
        Change { mode: Some(0o600), ..Change::default() },
        Change { mtime: Some(None), ..Change::default() },
    ];
    for change in each {
        assert_eq!(refusal(&mut client, Request::Change(handle, change)), FaultKind::Denied);
    }
    assert!(matches!(client.request(Request::Known(handle)), Ok(Answer::Stat(Entry { ino, .. })) if ino == entry.ino));

    // The trash is for what was there before.
    for what in changes("data/.lspan/trash", "f") {
        assert_eq!(refusal(&mut client, what), FaultKind::ReadOnly);
    }
    // A program that runs as its owner, also where root serves it; and what a directory has that is not shown.
    fs::set_permissions(inside.join("f"), Permissions::from_mode(0o4755)).unwrap();
    let write = OpenHow { write: true, ..OpenHow::default() };
    assert_eq!(refusal(&mut client, Request::Open(in_share("data", "f"), write)), FaultKind::Forbidden);
    let change = Change { size: Some(0), ..Change::default() };
    assert_eq!(refusal(&mut client, Request::Set(in_share("data", "f"), None, change)), FaultKind::Forbidden);
    fs::set_permissions(inside.join("f"), before.0.1.clone()).unwrap();
    fs::create_dir(inside.join("all")).unwrap();
    fs::set_permissions(inside.join("all"), Permissions::from_mode(0o1777)).unwrap();
    let change = Change { mode: Some(0o755), ..Change::default() };
    client.request(Request::Set(in_share("data", "all"), None, change)).unwrap();
    assert_eq!(fs::metadata(inside.join("all")).unwrap().permissions().mode() & 0o7777, 0o1755);
    fs::remove_dir(inside.join("all")).unwrap();

    // Through a link to a directory, and what a link leads to.
    for what in changes("data", "out/f") {
        refusal(&mut client, what);
    }
    let mut itself = |what| drop(client.request(what));
    for what in changes("data", "link") {
        if !matches!(what, Request::Unlink(..) | Request::Move(..)) {
            itself(what);
        }
    }
    assert_eq!(fs::read(outside.join("f")).unwrap(), b"old");
    fs::remove_file(inside.join("new")).unwrap();
    for mode in [0o4755, 0o2755, 0o1777] {
        let change = Change { mode: Some(mode), ..Change::default() };
        assert_eq!(refusal(&mut client, Request::Set(in_share("data", "f"), None, change)), FaultKind::Forbidden);
        let how = OpenHow { create: Some(mode), exclusive: true, ..write };
        assert_eq!(refusal(&mut client, Request::Open(in_share("data", "set"), how)), FaultKind::Forbidden);
    }
    // Another file has the name by now.
    let change = Change { size: Some(0), mode: Some(0o600), mtime: Some(None) };
    for which in [(entry.dev, entry.ino + 1), (entry.dev + 1, entry.ino)] {
        let set = Request::Set(in_share("data", "f"), Some(which), change);
        assert_eq!(refusal(&mut client, set), FaultKind::NotFound);
        let link = Request::Link(in_share("data", "f"), Some(which), RelPath::new(b"new").unwrap());
        assert_eq!(refusal(&mut client, link), FaultKind::NotFound);
    }
    refusal(&mut client, Request::Open(in_share("data", "fifo"), write));
    refusal(&mut client, Request::Open(in_share("data", "fifo"), OpenHow { create: Some(0o600), ..write }));
    assert!((known(&inside), known(&outside)) == before, "something was changed");
}

#[test]
fn a_directory_that_looks_empty_is_removed_with_what_transfers_have_left_there_unless_one_is_under_way() {
    let folder = Folder::new("left");
    let part = |dir: &str| folder.0.join("share").join(dir).join(".lspan-0123456789abcdef.part");
    for dir in ["mount", "command", "other"] {
        fs::create_dir(folder.0.join("share").join(dir)).unwrap();
        fs::write(part(dir), "half").unwrap();
    }
    fs::write(folder.0.join("share/other/mine"), "").unwrap();
    let peer = Peer::serve(&folder);
    let mut client = peer.client().unwrap();
    let ways = |dir| [Request::Unlink(in_share("data", dir), true), Request::Remove(in_share("data", dir), false)];
    for (dir, what) in ["mount", "command"].into_iter().zip([0, 1]) {
        let under_way = fs::File::options().write(true).open(part(dir)).unwrap();
        rustix::fs::flock(&under_way, rustix::fs::FlockOperation::LockExclusive).unwrap();
        for what in ways(dir) {
            assert_eq!(refusal(&mut client, what), FaultKind::NotEmpty);
        }
        drop(under_way);
        client.request(ways(dir)[what].clone()).unwrap();
        assert!(!folder.0.join("share").join(dir).exists());
    }
    for what in ways("other") {
        assert_eq!(refusal(&mut client, what), FaultKind::NotEmpty);
    }
    assert!(part("other").exists(), "something of the owner's is there, and so it stays");
}

#[test]
fn of_one_peer_s_sessions_none_waits_for_what_another_asks() {
    let folder = Folder::new("two-sessions");
    fs::File::create(folder.0.join("share/large")).unwrap().set_len(4 << 30).unwrap();
    let peer = Peer::serve(&folder);
    let (mut slow, mut quick) = (peer.client().unwrap(), peer.client().unwrap());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            slow.request(Request::Hash(in_share("data", "large"))).unwrap();
            is_done.store(true, Relaxed);
        });
        for n in 0..20 {
            quick.request(Request::Make(in_share("data", &n.to_string()), New::Dir(0o700))).unwrap();
        }
        assert!(!is_done.load(Relaxed), "they waited until 4 GiB were read");
    });
}

#[test]
fn a_later_connection_of_a_session_is_given_its_answers_and_ends_the_one_before() {
    let folder = Folder::new("later");
    let peer = Peer::serve(&folder);
    let make = |number, name| Message::Request { number, what: Request::Make(in_share("data", name), New::Dir(0o700)) };
    let before = peer.session(9);
    say(&before, &make(1, "once"));
    let answer = hear(&before);
    assert!(matches!(answer, Message::Answer { number: 1, result: Ok(Answer::Stat(_)) }), "{answer:?}");
    // Its answer is taken for lost, and it is asked for again over the next one.
    let after = peer.session(9);
    say(&after, &make(1, "once"));
    assert_eq!(hear(&after), answer);
    // What arrives now over the one before was asked for again, or given up.
    let _ = try_say(&before, &make(2, "late"));
    assert!(try_hear(&before).is_err());
    say(&after, &make(2, "other"));
    assert!(matches!(hear(&after), Message::Answer { number: 2, result: Ok(Answer::Stat(_)) }));
    assert!(folder.0.join("share/other").exists() && !folder.0.join("share/late").exists());
}

#[test]
fn a_later_connection_of_a_session_ends_the_transfer_of_the_one_before() {
    let folder = Folder::new("cut");
    let peer = Peer::serve(&folder);
    let (before, bulk) = (peer.session(9), peer.dial());
    let what = Request::Put { to: place(), dry_run: false, no_fsync: true, delete: None };
    say(&before, &Message::Request { number: 1, what });
    let Message::Answer { result: Ok(Answer::Ready(token)), .. } = hear(&before) else { panic!("it does not begin") };
    say(&bulk, &Message::Bulk { token });
    assert!(matches!(hear(&before), Message::Slots { .. }));
    // The path of the one before is lost here, and the server does not know.
    let after = peer.session(9);
    assert!(try_hear(&before).is_err(), "the transfer goes on");
    say(&after, &Message::Request { number: 2, what: Request::Shares });
    assert!(matches!(hear(&after), Message::Answer { number: 2, result: Ok(Answer::Shares(_)) }));
}

#[test]
fn a_server_that_is_closed_ends_its_sessions_and_begins_none_and_the_next_one_has_its_answers() {
    let folder = Folder::new("closed");
    let mut peer = Peer::serve(&folder);
    let before = peer.session(7);
    let make = |number, name| Message::Request { number, what: Request::Make(in_share("data", name), New::Dir(0o700)) };
    say(&before, &make(1, "once"));
    let answer = hear(&before);
    assert!(matches!(answer, Message::Answer { number: 1, result: Ok(_) }), "{answer:?}");
    assert_eq!(peer.ask("close"), "closed");
    let _ = try_say(&before, &make(2, "late"));
    assert!(try_hear(&before).is_err(), "a session goes on");
    let late = peer.dial();
    let hello = try_say(&late, &Message::Hello { version: VERSION, session: [7; 16] });
    assert!(hello.and_then(|_| try_hear(&late)).is_err(), "a session begins");
    assert!(!folder.0.join("share/late").exists());
    // Its answer is taken for lost.
    peer.url = peer.ask("next").parse().unwrap();
    let after = peer.session(7);
    say(&after, &make(1, "once"));
    assert_eq!(hear(&after), answer);
}

#[test]
fn a_transfer_is_not_begun_over_another_connection_than_the_last_answer_and_the_next_try_is() {
    let folder = Folder::new("another-connection");
    fs::write(folder.0.join("src/f"), b"x").unwrap();
    let mut peer = Peer::serve(&folder);
    let url = Arc::new(Mutex::new(peer.url.clone()));
    let find = url.clone();
    let mut client = Client::connect(context(), move || Ok(find.lock().unwrap().clone()), || false).unwrap();
    client.request(Request::Shares).unwrap();
    peer.ask("close");
    *url.lock().unwrap() = peer.ask("next").parse().unwrap();
    let root = Arc::new(RealFs::root(&folder.0.join("src")).unwrap());
    let mut send = || {
        let start = Start { dir: root.clone(), name: None, path: RelPath::default(), shallow: false, opened: None };
        let load = Load::new(Arc::new(RealFs), u64::MAX);
        client.send(load, vec![start], &place(), true, None, &mut StopAfter { most: u64::MAX, busy: false })
    };
    let first = send();
    assert!(matches!(first, Err(Error::Lost(_))) && !folder.0.join("share/f").exists(), "{first:?}");
    send().unwrap();
    assert!(folder.0.join("share/f").exists());
}

/// Accepts a client's control connection, up to its first request.
fn begin(listener: &Listener) -> (Transport, u64, Request) {
    let control = listener.accept_blocking(LONG).unwrap();
    assert!(matches!(hear(&control), Message::Hello { .. }));
    say(&control, &Message::Welcome { version: VERSION, identity: "cluster".into() });
    let Message::Request { number, what } = hear(&control) else { panic!("something else than a request") };
    (control, number, what)
}

/// Fails a transfer, and then says a word too much of it.
fn stale(listener: &Listener) -> Vec<Transport> {
    let (first, number, what) = begin(listener);
    assert!(matches!(what, Request::Put { .. }));
    say(&first, &Message::Answer { number, result: Ok(Answer::Ready([7; 16])) });
    let bulk = listener.accept_blocking(LONG).unwrap();
    assert_eq!(hear(&bulk), Message::Bulk { token: [7; 16] });
    // No slots, and then what the client may not wait for.
    say(&first, &Message::Unpacked { slot: 0, results: Vec::new() });
    let _ = try_say(&first, &Message::Unpacked { slot: 1, results: Vec::new() });
    let (second, number, what) = begin(listener);
    assert_eq!(what, Request::Shares);
    say(&second, &Message::Answer { number, result: Ok(Answer::Shares(Vec::new())) });
    vec![first, bulk, second]
}

#[test]
fn what_a_peer_still_says_of_a_transfer_that_failed_is_no_answer_to_the_next_request() {
    let folder = Folder::new("stale");
    let peer = Peer::start("stale");
    let root = Arc::new(RealFs::root(&folder.0.join("src")).unwrap());
    let mut client = peer.client().unwrap();
    let start = Start { dir: root, name: None, path: RelPath::default(), shallow: false, opened: None };
    let load = Load::new(Arc::new(RealFs), u64::MAX);
    let failed = client.send(load, vec![start], &place(), true, None, &mut StopAfter { most: u64::MAX, busy: false });
    assert!(matches!(failed, Err(Error::Violation(_))), "{failed:?}");
    assert_eq!(client.request(Request::Shares).unwrap(), Answer::Shares(Vec::new()));
    peer.finish();
}

/// What is given to one who asked for `wanted` alone.
fn others() -> [(&'static str, What); 6] {
    let ident = Ident { dev: 1, ino: 1, size: 1, mtime: Time::default(), ctime: Time::default() };
    let file = FileInfo { ident, settled: true, disk: 1, mode: 0o644, xattrs: Vec::new() };
    [
        ("authorized_keys", What::File(file)),
        ("wanted2", What::Dir { mode: 0o700 }),
        ("kept/d", What::Dir { mode: 0o700 }),
        ("link", What::Link { target: b"/".to_vec() }),
        // With --delete what the peer does not name in it would go.
        ("kept", What::Begin),
        ("", What::Begin),
    ]
}

fn gives_others(listener: &Listener) -> Vec<Transport> {
    for (name, what) in others() {
        let (control, number, asked) = begin(listener);
        assert!(matches!(asked, Request::Get { .. }));
        say(&control, &Message::Answer { number, result: Ok(Answer::Ready([7; 16])) });
        let bulk = listener.accept_blocking(LONG).unwrap();
        assert_eq!(hear(&bulk), Message::Bulk { token: [7; 16] });
        assert!(matches!(hear(&control), Message::Slots { .. }));
        let path = |name: &str| RelPath::new(name.as_bytes()).unwrap();
        // What was asked for is taken, but not together with something else.
        let items = [("wanted", What::Dir { mode: 0o700 }), (name, what)];
        let items = items.map(|(name, what)| Item { path: path(name), what });
        say(&control, &Message::Batch { id: 0, items: items.into() });
        let _ = try_hear(&control);
    }
    Vec::new()
}

#[test]
fn a_peer_that_gives_another_name_than_was_asked_for_is_refused_and_nothing_is_made() {
    let folder = Folder::new("another-name");
    fs::create_dir(folder.0.join("share/kept")).unwrap();
    let peer = Peer::start("gives others");
    for (name, _) in others() {
        let mut client = peer.client().unwrap();
        let root = Arc::new(RealFs::root(&folder.0.join("share")).unwrap());
        let place = DestDir::new(Arc::new(RealFs), root, RelPath::default(), None, u64::MAX);
        let place = place.with(false, true, Some(Delete { most: None, keep: Vec::new() }));
        let from = vec![(in_share("data", "theirs"), RelPath::new(b"wanted").unwrap())];
        let mut watcher = StopAfter { most: u64::MAX, busy: false };
        let got = client.get(from, false, Vec::new(), place, &mut watcher);
        assert!(matches!(got, Err(Error::Violation(_))), "{name}: {got:?}");
        let found = fs::read_dir(folder.0.join("share")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(found.collect::<Vec<_>>(), ["kept"]);
        assert_eq!(fs::read_dir(folder.0.join("share/kept")).unwrap().count(), 0);
    }
    peer.finish();
}

/// Of so many MiB how many have their first byte in the page cache.
fn cached(path: &Path) -> u64 {
    use rustix::io::{ReadWriteFlags, preadv2};
    let file = fs::File::open(path).unwrap();
    let mib = file.metadata().unwrap().len() >> 20;
    let is_there =
        |at: &u64| preadv2(&file, &mut [std::io::IoSliceMut::new(&mut [0])], at << 20, ReadWriteFlags::NOWAIT);
    (0..mib).filter(|at| is_there(at).is_ok()).count() as u64
}

#[test]
fn files_from_a_size_on_leave_the_page_cache_where_they_are_read_and_written_and_smaller_ones_stay() {
    const TMPFS: i64 = 0x0102_1994;
    let folder = Folder::new("cache");
    if rustix::fs::statfs(&folder.0).unwrap().f_type as i64 == TMPFS {
        return eprintln!("skipped: {} is a tmpfs, where all is in memory", folder.0.display());
    }
    let peer = Peer::serve(&folder);
    let mut client = peer.client().unwrap();
    let root = Arc::new(RealFs::root(&folder.0).unwrap());
    // What is written is let go of two windows of 64 MiB behind.
    for (name, len) in [("large", 160 << 20), ("small", 8 << 20)] {
        let path = folder.0.join("src").join(name);
        fs::write(&path, vec![7; len]).unwrap();
        fs::File::open(path).unwrap().sync_all().unwrap();
    }
    let count = |dir: &str| ["large", "small"].map(|name| cached(&folder.0.join(dir).join(name)));
    assert_eq!(count("src"), [160, 8]);
    let path = |text: &str| RelPath::new(text.as_bytes()).unwrap();
    let mut watcher = StopAfter { most: u64::MAX, busy: false };
    let load = Load::new(Arc::new(RealFs), 16 << 20);
    let start =
        Start { dir: root.clone(), name: Name::new(b"src").ok(), path: path("src"), shallow: false, opened: None };
    client.send(load, vec![start], &place(), true, None, &mut watcher).unwrap();
    let read = count("src");
    let from = PeerPath { share: "data".into(), path: path("src") };
    let into = DestDir::new(Arc::new(RealFs), root, RelPath::default(), None, 16 << 20);
    client.get(vec![(from, path("out"))], false, Vec::new(), into, &mut watcher).unwrap();
    let written = count("out");
    // The peer's limit is 1 GiB.
    assert_eq!(count("share/src"), [160, 8]);
    assert!(read[0] <= 16 && written[0] <= 96 + 8, "{read:?} {written:?}");
    assert_eq!((read[1], written[1]), (8, 8));
}
