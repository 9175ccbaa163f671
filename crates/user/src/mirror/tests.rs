use std::fs;
use std::sync::Mutex;

use linkspan::{Config, Context, Log, Url};
use linkspan_files::serve::{Answered, Identity, Server, Share};

use super::*;

#[test]
fn an_absolute_path_is_of_this_host_also_where_it_is_not_there() {
    let ends = Ends::parse("/none: of these/a", "mini2:in/a").unwrap();
    assert_eq!(
        (ends.own.as_path(), &*ends.peer.peer, ends.from_peer),
        (Path::new("/none: of these/a"), "mini2", false)
    );
    assert!(Ends::parse("/a", "/b:c").is_err() && Ends::parse("mini1:a", "mini2:a").is_err());
}

fn context() -> Context {
    let get = |name: &str| {
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        base.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
    };
    Context::new(Config::read(&get).unwrap(), Log::off()).unwrap()
}

/// A peer whose server can end, and another one begin.
#[derive(Clone)]
struct Peer(Arc<Mutex<(Arc<Server>, Url)>>);

impl Peer {
    fn serve(dir: &Path) -> (Arc<Server>, Url) {
        let shares = vec![Share::open("data", dir, true).unwrap()];
        let server = Server::new(shares, Vec::new(), None, 1 << 30, Answered::default(), |_: &str| {});
        let listener = context().listen().unwrap();
        let (url, accepts) = (listener.url().clone(), Arc::downgrade(&server));
        std::thread::spawn(move || {
            while let (Ok(transport), Some(server)) =
                (listener.accept_blocking(Duration::from_secs(60)), accepts.upgrade())
            {
                server.accept(transport, Identity::Cluster);
            }
        });
        (server, url)
    }

    fn new(dir: &Path) -> Peer {
        Peer(Arc::new(Mutex::new(Peer::serve(dir))))
    }

    /// The server ends, and one begins that has another directory under the name of the share.
    fn becomes(&self, dir: &Path) {
        let mut now = self.0.lock().unwrap();
        now.0.close();
        *now = Peer::serve(dir);
    }

    fn client(&self) -> Client {
        let now = self.0.clone();
        Client::connect(context(), move || Ok(now.lock().unwrap().1.clone()), || false).unwrap()
    }
}

/// Where the peer's disk goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Planned,
    Transferring,
}

struct Away<'a> {
    peer: Peer,
    bare: &'a Path,
    when: When,
}

impl Watcher for Away<'_> {
    fn event(&mut self, _: Event) {
        if self.when == When::Transferring {
            self.when = When::Planned;
            self.peer.becomes(self.bare);
        }
    }

    fn tick(&mut self, _: u64, _: u64) -> bool {
        true
    }
}

impl Face for Away<'_> {
    type Failure = Error;

    fn carry(&mut self, once: &mut dyn FnMut(&mut dyn Watcher) -> Result<Outcome, FilesError>) -> Result<bool, Error> {
        if self.when == When::Planned {
            self.peer.becomes(self.bare);
        }
        let mut ran = once(self);
        while matches!(ran, Err(FilesError::Lost(_))) {
            ran = once(self);
        }
        assert_eq!(self.when, When::Planned, "nothing was transferred when it was to go away");
        Ok(ran.map(|_| true)?)
    }

    fn renamed(&mut self, _: &RelPath, _: &RelPath) {}

    fn say(&mut self, _: &str) {}

    fn ask(&mut self, _: &str) -> bool {
        false
    }

    fn stopped(&self) -> bool {
        false
    }

    fn resting(&mut self, _: bool) {}

    fn failed(&mut self, failure: Error, _: &mut dyn FnMut() -> Duration) -> Result<(), Error> {
        Err(failure)
    }
}

#[test]
fn a_disk_of_the_peer_that_goes_away_with_a_connection_of_a_run_stops_it_and_changes_nothing() {
    for (when, from_peer) in
        [When::Planned, When::Transferring].into_iter().flat_map(|when| [(when, true), (when, false)])
    {
        let base = std::env::temp_dir().join(format!("linkspan-user-away-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let dir = |name: &str| base.join(name);
        ["share", "bare", "own"].iter().for_each(|name| fs::create_dir_all(dir(name)).unwrap());
        let (source, copy) = if from_peer { ("share", "own") } else { ("own", "share") };
        for side in [source, copy] {
            fs::create_dir(dir(side).join(".lspan")).unwrap();
            fs::write(dir(side).join(".lspan/mirror"), b"m").unwrap();
            // What is the same is told before anything moves.
            let same = fs::File::create(dir(side).join("a")).unwrap();
            same.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        }
        fs::write(dir(copy).join("kept"), b"x").unwrap();
        fs::write(dir(source).join("z"), vec![7; 8 << 20]).unwrap();
        let peer = Peer::new(&dir("share"));
        let ends = Ends { own: dir("own"), peer: Place::whole("peer:data").unwrap(), from_peer };
        let (face, how) = (Away { peer: peer.clone(), bare: &dir("bare"), when }, How::default());
        let mut mirror = Mirror::open(&ends, peer.client(), None, how, false, face).unwrap();
        let ended = mirror.once();
        assert_eq!(
            fs::read_dir(dir("bare")).unwrap().count(),
            0,
            "{when:?}, {from_peer}: its mount point is written to"
        );
        for name in ["a", "kept"] {
            assert!(dir(copy).join(name).exists(), "{when:?}, {from_peer}: {name} is gone");
        }
        assert!(matches!(ended, Err(Error::Files(FilesError::Unmarked(_)))), "{when:?}, {from_peer}: {ended:?}");
        fs::remove_dir_all(&base).unwrap();
    }
}
