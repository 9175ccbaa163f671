//! The client's side: requests and transfers, with a peer that serves.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan::{Context, Transport, Url};

use crate::Error;
use crate::engine::{Clock, Violation};
use crate::fs::{Fs, Kind, RealFs};
use crate::link::{ASKING, Control, Incoming, Line, say};
use crate::name::{Name, RelPath};
use crate::ops;
use crate::sink::DestDir;
use crate::source::{self, Load, Source, Start};
pub use crate::transfer::Watcher;
use crate::transfer::{self, Outcome};
use crate::wire::{Answer, Delete, Entry, Fault, FaultKind, Message, PeerPath, Request, Sum, VERSION};

/// How long a connection may take to come up, and how long a lost one is made again.
const CONNECT: Duration = Duration::from_secs(20);

/// A session with a serving peer.
pub struct Client {
    context: Context,
    find: Box<dyn Fn() -> Result<Url, Error> + Send>,
    url: Url,
    session: [u8; 16],
    number: u64,
    control: Control,
    /// Connections that have been made.
    epoch: u64,
    /// The peer's boot, and the connection on which it said so.
    boot: Option<(u64, Vec<u8>)>,
    /// What was asked for with [`Client::ask`] and is not answered.
    open: VecDeque<u64>,
    /// A transfer, or what was asked for without waiting, has failed on this one.
    spent: bool,
    identity: String,
    wanted: Box<dyn Fn() -> bool + Send>,
    stop: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({:?})", self.url)
    }
}

impl Client {
    /// Connects. `find` names the listener of the peer, again after a connection was lost; `stop` is asked about ten times a second
    /// whether to go on waiting.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Lost`], [`Error::Full`], [`Error::Version`], and those of `find`.
    pub fn connect(
        context: Context,
        find: impl Fn() -> Result<Url, Error> + Send + 'static,
        stop: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Client, Error> {
        let mut session = [0; 16];
        getrandom::fill(&mut session)
            .map_err(|error| Error::system("random numbers", std::io::Error::other(error.to_string())))?;
        let (url, stop): (Url, Arc<dyn Fn() -> bool + Send + Sync>) = (find()?, Arc::new(stop));
        let (control, identity) = hello(&context, &url, session, &stop)?;
        Ok(Client {
            context,
            find: Box::new(find),
            url,
            session,
            number: 0,
            control,
            epoch: 1,
            boot: None,
            open: VecDeque::new(),
            spent: false,
            identity,
            wanted: Box::new(|| true),
            stop,
        })
    }

    /// By which name the peer knows us.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Another number once a connection is lost: cursors and open files of the one before are gone.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A value that is another one after every boot of the peer.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn boot(&mut self) -> Result<Vec<u8>, Error> {
        if let Some((epoch, boot)) = &self.boot
            && *epoch == self.epoch
        {
            return Ok(boot.clone());
        }
        let Answer::Bytes(boot) = self.request(Request::Boot)? else { return Err(wrong()) };
        self.boot = Some((self.epoch, boot.clone()));
        Ok(boot)
    }

    /// What carries the control messages, one line.
    pub fn path(&self) -> Option<String> {
        self.control.path()
    }

    /// Asks for something. After a lost connection it is asked once more under the same number, which has effect once.
    ///
    /// # Errors
    /// [`Error::Refused`]: the peer did not do it. [`Error::Lost`], [`Error::Malformed`], [`Error::Violation`],
    /// [`Error::Stopped`].
    pub fn request(&mut self, what: Request) -> Result<Answer, Error> {
        self.number += 1;
        self.fresh()?;
        match self.asked(&what) {
            Err(Error::Lost(why)) => {
                self.again()?;
                if (self.wanted)() { self.asked(&what) } else { Err(Error::Lost(why)) }
            }
            other => other,
        }
    }

    /// From now on what was asked when the connection was lost is asked again only if somebody still waits for it then.
    pub fn wanted_while(&mut self, wanted: impl Fn() -> bool + Send + 'static) {
        self.wanted = Box::new(wanted);
    }

    /// Asks for something that may be done twice, without waiting: it leaves with the next call that waits. The number under which
    /// [`Client::answered`] hands out the answer, in the order of the requests; until then nothing else is asked. It is not asked
    /// again after a lost connection.
    ///
    /// # Errors
    /// As [`Client::request`], without [`Error::Refused`].
    pub fn ask(&mut self, what: Request) -> Result<u64, Error> {
        self.fresh()?;
        self.number += 1;
        self.open.push_back(self.number);
        self.control.send(&Message::Request { number: self.number, what })?;
        Ok(self.number)
    }

    /// The next answer to what was asked for with [`Client::ask`], and its number.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn answered(&mut self) -> Result<(u64, Result<Answer, Fault>), Error> {
        let expected = self.open.pop_front();
        let answer = match next(&self.control, &self.stop) {
            Ok(Message::Answer { number, result }) if Some(number) == expected => return Ok((number, result)),
            Ok(_) => Violation("it says something else where an answer belongs").into(),
            Err(error) => error,
        };
        // What still comes answers nothing that is asked from now on.
        self.control.close();
        self.spend();
        self.open = VecDeque::new();
        Err(answer)
    }

    /// Asks for several things at once, which may be done twice, and hands out the answers in their order as they come. It is not
    /// asked again after a lost connection.
    ///
    /// # Errors
    /// As [`Client::request`], without [`Error::Refused`].
    pub fn requests(
        &mut self,
        what: Vec<Request>,
        mut each: impl FnMut(usize, Result<Answer, Fault>),
    ) -> Result<(), Error> {
        let first = self.number + 1;
        what.into_iter().try_for_each(|what| self.ask(what).map(drop))?;
        for expected in first..=self.number {
            let (_, result) = self.answered()?;
            each((expected - first) as usize, result);
        }
        Ok(())
    }

    /// Nothing more is asked on this connection; what is open there is gone with it, before there is another.
    fn spend(&mut self) {
        self.epoch += u64::from(!self.spent);
        self.spent = true;
    }

    fn again(&mut self) -> Result<(), Error> {
        let until = Instant::now() + CONNECT;
        loop {
            let made = (self.find)().and_then(|url| Ok((hello(&self.context, &url, self.session, &self.stop)?, url)));
            match made {
                Ok(((control, identity), url)) => {
                    (self.control, self.identity, self.url) = (control, identity, url);
                    self.spend();
                    self.open.clear();
                    self.spent = false;
                    return Ok(());
                }
                Err(error) if (self.stop)() || Instant::now() >= until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    fn asked(&mut self, what: &Request) -> Result<Answer, Error> {
        self.control.send(&Message::Request { number: self.number, what: what.clone() })?;
        match next(&self.control, &self.stop)? {
            Message::Answer { number, result } if number == self.number => result.map_err(Error::Refused),
            _ => Err(Violation("it says something else where an answer belongs").into()),
        }
    }

    /// Every entry of a directory, part by part.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn list(&mut self, at: &PeerPath, mut each: impl FnMut(Entry)) -> Result<(), Error> {
        let mut what = Request::List(at.clone());
        loop {
            let Answer::List(entries, more) = self.request(what)? else { return Err(wrong()) };
            entries.into_iter().for_each(&mut each);
            match more {
                Some(cursor) => what = Request::More(cursor),
                None => return Ok(()),
            }
        }
    }

    /// Sends these entries into a directory of the peer. Events of single entries go to the watcher.
    ///
    /// # Errors
    /// As [`Client::request`]; after [`Error::Lost`] running it again goes on where it was.
    pub fn send(
        &mut self,
        load: Load<RealFs>,
        starts: Vec<Start<RealFs>>,
        to: &PeerPath,
        no_fsync: bool,
        delete: Option<Delete>,
        watcher: &mut dyn Watcher,
    ) -> Result<Outcome, Error> {
        let token = self.begin(Request::Put { to: to.clone(), dry_run: load.dry_run, no_fsync, delete })?;
        let result = self.bulk(token).and_then(|line| {
            let slots = next(&self.control, &self.stop)?;
            let source = Source::new(load, Arc::new(Clock::default()), starts);
            transfer::send(source, &self.control, &line, slots, watcher)
        });
        self.over(result)
    }

    /// Gets these entries of the peer, each to a path below the place. The peer can name nothing else there.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn get(
        &mut self,
        from: Vec<(PeerPath, RelPath)>,
        xattrs: bool,
        exclude: Vec<String>,
        place: DestDir<RealFs>,
        watcher: &mut dyn Watcher,
    ) -> Result<Outcome, Error> {
        let (delete, place) = (place.delete.is_some(), place.only(from.iter().map(|(_, to)| to.clone())));
        let token = self.begin(Request::Get { from, xattrs, dry_run: place.dry_run, delete, exclude })?;
        let result = self.bulk(token).and_then(|line| transfer::receive(place, &self.control, &line, watcher));
        self.over(result)
    }

    /// Compares a local file, or everything in a local tree, with what the peer has: files by their bytes, read back from the disk at both
    /// ends, links by their targets, directories by their being there.
    ///
    /// # Errors
    /// As [`Client::request`]. What is wrong with one entry goes to `each`.
    pub fn verify(
        &mut self,
        start: Start<RealFs>,
        at: &PeerPath,
        mut each: impl FnMut(&RelPath, Result<Compared, Fault>),
    ) -> Result<(), Error> {
        let fs = RealFs;
        for (path, found) in source::below(&fs, start) {
            let there = at.path.join_path(&path).map_err(|why| Fault::new(FaultKind::Limit, why.to_string()));
            let there = there.map(|path| PeerPath { share: at.share.clone(), path });
            let result = match (found, there) {
                (Ok((_, _, Kind::Special)), _) => continue,
                (Err(fault), _) | (_, Err(fault)) => Err(fault),
                (Ok(own), Ok(there)) => match self.compare(&fs, own, there) {
                    Ok(compared) => Ok(compared),
                    Err(Error::Refused(fault)) => Err(fault),
                    Err(error) => return Err(error),
                },
            };
            each(&path, result);
        }
        Ok(())
    }

    fn compare(
        &mut self,
        fs: &RealFs,
        (dir, name, kind): (Arc<OwnedFd>, Name, Kind),
        at: PeerPath,
    ) -> Result<Compared, Error> {
        let same = |same, hash| if same { Compared::Same(hash) } else { Compared::Different };
        if kind == Kind::File {
            let name = RelPath::new(name.bytes())
                .map_err(|why| Error::Refused(Fault::new(FaultKind::Invalid, why.to_string())))?;
            let own = ops::hash(fs, &dir, &name).map_err(Error::Refused)?;
            let Answer::Hash(size, hash) = self.request(Request::Hash(at)).map_err(at_the_peer)? else {
                return Err(wrong());
            };
            return Ok(same((size, hash) == own, Some(hash)));
        }
        let looked = self.request(Request::Look(at.clone())).map_err(at_the_peer)?;
        let Answer::Stat(entry) = looked else { return Err(wrong()) };
        if kind == Kind::Dir || entry.kind != kind {
            return Ok(same(entry.kind == kind, None));
        }
        let own = fs.read_link(&dir, &name).map_err(|error| Error::Refused(Fault::io("the link", &error)))?;
        let Answer::Bytes(target) = self.request(Request::Follow(at))? else { return Err(wrong()) };
        Ok(same(own == target, None))
    }

    /// Not over another connection than the last answer came by: what it said of the place may hold no more.
    fn begin(&mut self, what: Request) -> Result<[u8; 16], Error> {
        self.number += 1;
        self.fresh()?;
        let answer = self.asked(&what);
        if matches!(answer, Err(Error::Lost(_))) {
            self.spend();
        }
        let Answer::Ready(token) = answer? else { return Err(wrong()) };
        self.control.listen()?;
        Ok(token)
    }

    fn bulk(&self, token: [u8; 16]) -> Result<Arc<Line>, Error> {
        let transport = connected(&self.context, &self.url)?;
        say(&transport, &Message::Bulk { token })?;
        Ok(Line::new(transport))
    }

    /// After a transfer that failed, messages of it are still on their way, and the peer takes what comes for more of them: the next
    /// request goes over another connection.
    fn over(&mut self, result: Result<Outcome, Error>) -> Result<Outcome, Error> {
        if result.is_err() {
            self.control.close();
            self.spend();
        }
        result
    }

    fn fresh(&mut self) -> Result<(), Error> {
        if self.spent { self.again() } else { Ok(()) }
    }
}

/// Where two are compared, it is said which of them is missing.
fn at_the_peer(error: Error) -> Error {
    match error {
        Error::Refused(fault) if fault.kind == FaultKind::NotFound => {
            Error::Refused(Fault::new(fault.kind, format!("at the peer: {}", fault.text)))
        }
        error => error,
    }
}

/// What a comparison of two entries has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// They are the same: files with this hash; links with one target, or directories.
    Same(Option<crate::hash::Value>),
    /// They are not.
    Different,
}

/// What lies below a local directory, or is this entry of it.
///
/// # Errors
/// [`Fault`]: it cannot be opened.
pub fn usage(dir: &OwnedFd, path: &RelPath) -> Result<Sum, Fault> {
    ops::usage(&RealFs, dir, path)
}

/// Removes old partial files of earlier transfers to here, and what is old in its trash.
pub fn sweep(place: &DestDir<RealFs>, say: &dyn Fn(&str)) {
    if let Err(error) = crate::trash::expire(&*place.fs, &place.root, say) {
        say(&format!("what is old in the trash was not removed: {error}"));
    }
    if let Some(state) = &place.state
        && let Err(error) = crate::sweep::sweep(&*place.fs, state, &[&place.root], say)
    {
        say(&format!("old partial files were not looked for: {error}"));
    }
}

fn wrong() -> Error {
    Violation("it gives an answer to another question").into()
}

pub(crate) fn connected(context: &Context, url: &Url) -> Result<Transport, Error> {
    let transport = context.transport()?;
    transport.connect_blocking(url, CONNECT)?;
    Ok(transport)
}

fn hello(
    context: &Context,
    url: &Url,
    session: [u8; 16],
    stop: &Arc<dyn Fn() -> bool + Send + Sync>,
) -> Result<(Control, String), Error> {
    let (transport, stopped) = (context.transport()?, stop.clone());
    transport.stop_waiting_when(move || stopped());
    match transport.connect_blocking(url, CONNECT) {
        Err(linkspan::Error::Aborted) => return Err(Error::Stopped),
        made => made?,
    }
    let control = Control::new(Line::new(transport), ASKING);
    control.send(&Message::Hello { version: VERSION, session })?;
    match next(&control, stop)? {
        Message::Welcome { version: VERSION, identity } => Ok((control, crate::name::escape(identity.as_bytes()))),
        Message::Welcome { version, .. } => Err(Error::Version(version)),
        Message::Answer { result: Err(fault), .. } => Err(Error::Full(fault)),
        _ => Err(Violation("it says something else where its welcome belongs").into()),
    }
}

/// The next message; a stop is asked for meanwhile.
fn next(control: &Control, stop: &Arc<dyn Fn() -> bool + Send + Sync>) -> Result<Message, Error> {
    loop {
        let arrival = match control.arrival() {
            Some(Incoming::Lost(_)) if stop() => return Err(Error::Stopped),
            Some(arrival) => Ok(arrival),
            None => control.inbox.recv_timeout(Duration::from_millis(100)),
        };
        match arrival {
            Ok(Incoming::Message(message)) => return Ok(message),
            Ok(Incoming::Lost(why)) => return Err(Error::Lost(why)),
            Ok(Incoming::Malformed(malformed)) => return Err(malformed.into()),
            // What a transfer that failed has left.
            Ok(Incoming::Sent(_) | Incoming::Sunk(_) | Incoming::Bulk(..)) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if stop() => return Err(Error::Stopped),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Error::Lost("its reader has ended".into()));
            }
        }
    }
}
