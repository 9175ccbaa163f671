//! Queues of a card, lent to processes over a local socket.
//!
//! A process is who its socket says (SO_PEERCRED), and may steer only streams of its own user: a rule for another user's
//! stream would bring that one's payload into this one's memory. So a rule must not outlive its stream, whose addresses the next
//! stream may have: the stream's socket comes with the question and is kept, which leaves the addresses taken. What frees them
//! nevertheless (a reset, both sides' end, a process that disconnects the socket) is looked for every few milliseconds: poll(2)
//! would wake for each notice of a zero-copy send too. A rule that the card does not end now keeps socket and queue until it does.
//!
//! What a process has ends with the process, also where a child of it has its socket. What it has sent, and its socket with what lies
//! in the queue, is closed aside: that takes as long as the process wants.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linkspan_fabric::devmem::client;
use linkspan_fabric::devmem::wire::{BrokerReply, BrokerRequest, QUESTION_LEN};
use linkspan_net::{AcceptPause, Aside, aside_full, drop_aside};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::card::Card;

/// Processes at a time, and streams of each.
const SESSIONS: usize = 64;
const RULES: usize = 1024;

/// Most descriptors of a message, SCM_MAX_FD of the kernel: those for which there is no place it would close here and now.
const FDS_MAX: usize = 253;

/// No user.
const NOBODY: u32 = u32::MAX;

/// Longest time until the end is looked for, and until that of streams is.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const LOOK_AT_STREAMS: Duration = Duration::from_millis(20);

/// Users whose processes may use the queues.
#[derive(Clone, Debug)]
pub(super) struct Allowed(Vec<u32>);

impl Allowed {
    /// These, and root.
    pub(super) fn new(users: &[u32]) -> Allowed {
        let mut users: Vec<u32> = users.iter().copied().chain([0]).collect();
        users.sort_unstable();
        users.dedup();
        Allowed(users)
    }

    /// Processes that each may have at a time, so that none takes the places of the others.
    fn each(&self) -> usize {
        (SESSIONS / self.0.len()).max(1)
    }

    /// How many others than this one were named and have no queue. Root is none of them: it may set the card up anew.
    fn without(&self, user: u32, sessions: &[Session]) -> usize {
        let has = |other| sessions.iter().any(|s| s.user == other && s.bound.is_some());
        self.0.iter().filter(|&&other| other != 0 && other != user && !has(other)).count()
    }
}

/// Queues for a process that asks.
struct Free {
    queues: Vec<u32>,
    /// Of these, one for each user without any.
    kept: usize,
    /// Queues of the process's user.
    has: usize,
}

/// A process.
struct Session {
    fd: Aside<OwnedFd>,
    user: u32,
    process: i32,
    /// Tells its end; `None` where it is not seen from here, as from another namespace.
    life: Option<OwnedFd>,
    bound: Option<Lease>,
    rules: BTreeMap<u32, Steered>,
    next: u32,
}

/// A stream and its rule, which is to be ended first.
struct Steered {
    stream: Aside<OwnedFd>,
    local: SocketAddr,
    peer: SocketAddr,
    queue: u32,
    place: u32,
}

impl Steered {
    fn end(&self, card: &dyn Card) -> Result<(), String> {
        card.unsteer(Some(self.place), self.local, self.peer)
    }

    /// Whether the socket is still that of the stream.
    fn holds(&self) -> bool {
        // A socket that is connected no more has no peer.
        let is = |addr: Option<SocketAddrAny>, end| {
            addr.and_then(|addr| SocketAddr::try_from(addr).ok()).is_some_and(|addr| same(addr, end))
        };
        is(rustix::net::getsockname(&*self.stream).ok(), self.local)
            && is(rustix::net::getpeername(&*self.stream).ok().flatten(), self.peer)
    }
}

fn same(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
}

/// Queues that are a process's, and the binding that fills its memory.
struct Lease {
    queues: Vec<u32>,
    _binding: Box<dyn Any>,
}

/// The socket, until this is dropped.
pub(super) struct DevmemBroker {
    listener: Aside<OwnedFd>,
    path: PathBuf,
    allowed: Allowed,
    queues: Vec<u32>,
    each: u32,
}

impl Drop for DevmemBroker {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl DevmemBroker {
    /// Makes the socket in this folder.
    pub(super) fn open(
        folder: &Path,
        interface: &str,
        allowed: Allowed,
        queues: Vec<u32>,
        each: u32,
    ) -> Result<DevmemBroker, String> {
        let path = client::path(folder, interface);
        let no = |what: &str, why: &dyn std::fmt::Display| format!("{what} {}: {why}", path.display());
        super::make_folder(folder).map_err(|e| no("the folder of", &e))?;
        if client::Session::open(&path).is_ok() {
            return Err(no("`lspan devmem up` runs for this interface already:", &"it answers"));
        }
        // One that was killed leaves its socket.
        let _ = std::fs::remove_file(&path);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| no("a socket for", &e))?;
        let addr = SocketAddrUnix::new(&path).map_err(|e| no("the name", &e))?;
        rustix::net::bind(&listener, &addr).map_err(|e| no("bind", &e))?;
        rustix::net::listen(&listener, 16).map_err(|e| no("listen at", &e))?;
        // Any process may connect; which are admitted is decided by the credentials that the kernel reports.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, open).map_err(|e| no("permissions of", &e))?;
        let listener = Aside::new(NOBODY, listener);
        Ok(DevmemBroker { listener, path, allowed, queues, each })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Serves until `end` says so.
    pub(super) fn serve(
        &self,
        card: &dyn Card,
        end: &mut dyn FnMut() -> bool,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        let mut sessions: Vec<Session> = Vec::new();
        // Rules of processes that have gone, which the card did not end.
        let mut stuck: Vec<Steered> = Vec::new();
        let mut pause = AcceptPause::new();
        let mut held_up = None;
        let mut looked = Instant::now();
        let mut ended = Ok(());
        while !end() {
            let full = aside_full();
            if let (Some(user), true) = (full, full != held_up) {
                say(&format!(
                    "no process can connect: user {user} sent what takes long to close, and too much waits for it: end its processes"
                ));
            }
            held_up = full;
            let admits =
                if full.is_none() && pause.is_over(Instant::now()) { PollFlags::IN } else { PollFlags::empty() };
            let mut fds = vec![PollFd::new(&*self.listener, admits)];
            for s in &sessions {
                fds.extend([&*s.fd, s.life.as_ref().unwrap_or(&s.fd)].map(|fd| PollFd::new(fd, PollFlags::IN)));
            }
            let steers = !stuck.is_empty() || sessions.iter().any(|s| !s.rules.is_empty());
            let left = LOOK_AT_STREAMS.saturating_sub(looked.elapsed());
            let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            match rustix::event::poll(&mut fds, Some(if steers { &left } else { &LOOK })) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    ended = Err(format!("poll: {e}"));
                    break;
                }
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if looked.elapsed() >= LOOK_AT_STREAMS {
                for session in &mut sessions {
                    session.rules.retain(|_, rule| rule.holds() || rule.end(card).is_err());
                }
                stuck.retain(|rule| rule.end(card).is_err());
                looked = Instant::now();
            }
            for n in (0..sessions.len()).rev() {
                let (asks, over) = (ready[1 + 2 * n], ready[2 + 2 * n] && sessions[n].life.is_some());
                if !asks && !over {
                    continue;
                }
                let free = self.free(&sessions, &stuck, sessions[n].user);
                let served = if over { Err(String::new()) } else { sessions[n].serve(card, &free, self.each) };
                if let Err(why) = served {
                    let gone = sessions.remove(n);
                    say(&format!("process {} of user {} has disconnected{why}", gone.process, gone.user));
                    let before = stuck.len();
                    stuck.extend(gone.end(card));
                    if stuck.len() > before {
                        let (n, queue) = (stuck.len() - before, stuck[before].queue);
                        say(&format!("the card does not end {n} of its rules, as to queue {queue}: it is asked again"));
                    }
                }
            }
            if ready[0] {
                self.admit(&mut sessions, &mut pause, say);
            }
        }
        // What is stuck then is for the card's journal.
        sessions.into_iter().for_each(|session| drop(session.end(card)));
        ended
    }

    /// What a process of this user may have.
    fn free(&self, sessions: &[Session], stuck: &[Steered], user: u32) -> Free {
        let leases = || sessions.iter().filter_map(|s| s.bound.as_ref().map(|lease| (s.user, &lease.queues)));
        let used = |q| leases().any(|(_, queues)| queues.contains(&q)) || stuck.iter().any(|rule| rule.queue == q);
        let queues: Vec<u32> = self.queues.iter().copied().filter(|&q| !used(q)).collect();
        let has = leases().filter(|lease| lease.0 == user).map(|(_, queues)| queues.len()).sum();
        // Who has none may take the last one.
        let most = if has == 0 { queues.len().saturating_sub(1) } else { queues.len() };
        Free { kept: self.allowed.without(user, sessions).min(most), queues, has }
    }

    /// Accepts a process that connects.
    fn admit(&self, sessions: &mut Vec<Session>, pause: &mut AcceptPause, say: &mut dyn FnMut(&str)) {
        let fd = match rustix::net::accept_with(&*self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(error) => {
                if pause.begin(Instant::now()) {
                    say(&format!("no process can connect at the moment: {error}"));
                }
                return;
            }
        };
        let who = linkspan_net::peer_of(fd.as_fd());
        let fd = Aside::new(who.as_ref().map_or(NOBODY, |(user, _)| *user), fd);
        let Ok((user, process)) = who else { return };
        let no = if !self.allowed.0.contains(&user) {
            Some(format!("user {user} may not use the queues of this card: lspan devmem up --allow {user}"))
        } else if sessions.len() == SESSIONS {
            Some(format!("{SESSIONS} processes use this card already"))
        } else if sessions.iter().filter(|s| s.user == user).count() >= self.allowed.each() {
            let (each, users) = (self.allowed.each(), self.allowed.0.len());
            Some(format!("user {user} has {each} processes here already, its share of {SESSIONS} among {users} users"))
        } else {
            None
        };
        if let Some(why) = no {
            say(&format!("refused process {process}: {why}"));
            // Read instead of the answer to its question.
            let _ = rustix::net::send(&*fd, &BrokerReply(Err(why)).encode(), SendFlags::NOSIGNAL);
            let _ = rustix::net::shutdown(&*fd, rustix::net::Shutdown::Read);
            drop_aside(user, Refused(fd));
            return;
        }
        say(&format!("process {process} of user {user} has connected"));
        let life = match Pid::from_raw(process).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            // A child of it has the socket.
            Some(Err(rustix::io::Errno::SRCH)) => return,
            opened => opened.and_then(Result::ok),
        };
        sessions.push(Session { fd, user, process, life, bound: None, rules: BTreeMap::new(), next: 0 });
    }
}

/// Closed with a question unread, a socket takes what was said on it along: no more may come, and what has come is read.
struct Refused(Aside<OwnedFd>);

impl Drop for Refused {
    fn drop(&mut self) {
        while rustix::net::recv(&*self.0, &mut [0u8; 1][..], RecvFlags::DONTWAIT).is_ok_and(|(n, _)| n > 0) {}
    }
}

impl Session {
    /// Answers what it asks. The end of it, with a reason if there is one to tell, is an error.
    fn serve(&mut self, card: &dyn Card, free: &Free, each: u32) -> Result<(), String> {
        if aside_full() == Some(self.user) {
            return Err(": what it and others of its user sent takes long to close".into());
        }
        // One byte more than a question, so that a longer one is seen.
        let mut bytes = [0; QUESTION_LEN + 1];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::net::recvmsg(
            &*self.fd,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        );
        let n = match got {
            Ok(got) => got.bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(format!(": {e}")),
        };
        let fds =
            control.drain().filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None });
        let came: Vec<Aside<OwnedFd>> = fds.flatten().map(|fd| Aside::new(self.user, fd)).collect();
        let came = came.into_iter().next();
        if n == 0 {
            return Err(String::new());
        }
        let question = BrokerRequest::decode(&bytes[..n]).ok_or(": its request cannot be read")?;
        let answer = BrokerReply(match question {
            BrokerRequest::Bind { .. } => self.bind(card, free, each, came),
            BrokerRequest::Steer { local, peer } => self.steer(card, local, peer, came),
            BrokerRequest::Release { rule } => self.release(card, rule),
        });
        let sent = rustix::net::send(&*self.fd, &answer.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        // Who does not read its answers has no use for them.
        sent.map(|_| ()).map_err(|e| format!(": {e}"))
    }

    fn bind(&mut self, card: &dyn Card, free: &Free, each: u32, dmabuf: Option<Aside<OwnedFd>>) -> Result<u32, String> {
        let dmabuf = dmabuf.ok_or("no dma-buf came with the question")?;
        if self.bound.is_some() {
            return Err("this process has bound memory to its queues already".into());
        }
        let Free { queues, kept, has } = free;
        if queues.is_empty() {
            return Err("other processes have all queues: lspan devmem up --each gives each of them fewer".into());
        }
        let most = queues.len() - kept;
        if most == 0 {
            return Err(format!(
                "user {} has {has} queues, and the {kept} that are free stay for users who have none: lspan devmem up --queues \
                 keeps more",
                self.user
            ));
        }
        let queues = queues[..most.min(each as usize)].to_vec();
        let (id, binding) = card.bind(&queues, dmabuf.as_fd())?;
        self.bound = Some(Lease { queues, _binding: binding });
        Ok(id)
    }

    fn steer(
        &mut self,
        card: &dyn Card,
        local: SocketAddr,
        peer: SocketAddr,
        stream: Option<Aside<OwnedFd>>,
    ) -> Result<u32, String> {
        let lease = self.bound.as_ref().ok_or("this process has bound no memory yet")?;
        if self.rules.len() == RULES {
            return Err(format!("{RULES} streams are steered already"));
        }
        let stream = stream.ok_or("no socket came with the question, or this process has no descriptor left for it")?;
        match socket(local, peer) {
            None => return Err(format!("this host has no stream {peer} -> {local}")),
            Some(found) if self.user != 0 && found.user != self.user => {
                return Err(format!("the stream {peer} -> {local} is another user's"));
            }
            Some(found) if found.inode != inode(&stream)? => {
                return Err(format!("what came with the question is not the socket of the stream {peer} -> {local}"));
            }
            Some(found) if found.state != ESTABLISHED => {
                return Err(format!("the stream {peer} -> {local} is not established"));
            }
            Some(_) => {}
        }
        let number = self.next;
        let queue = lease.queues[number as usize % lease.queues.len()];
        let place = card.steer(local, peer, queue)?;
        self.next = number.wrapping_add(1);
        self.rules.insert(number, Steered { stream, local, peer, queue, place });
        Ok(number)
    }

    fn release(&mut self, card: &dyn Card, rule: u32) -> Result<u32, String> {
        self.rules.get(&rule).ok_or_else(|| format!("there is no rule {rule}"))?.end(card)?;
        self.rules.remove(&rule);
        Ok(rule)
    }

    /// Ends its rules, then its binding: the rules that the card did not end.
    fn end(self, card: &dyn Card) -> Vec<Steered> {
        self.rules.into_values().filter(|rule| rule.end(card).is_err()).collect()
    }
}

/// A TCP socket, as the kernel's tables have it.
#[derive(Debug, PartialEq, Eq)]
struct TcpSocket {
    state: u8,
    user: u32,
    inode: u64,
}

/// tcp_states.h: TCP_ESTABLISHED.
const ESTABLISHED: u8 = 1;

/// Of this descriptor, which is a socket.
fn inode(stream: &OwnedFd) -> Result<u64, String> {
    // A file's inode may have the number of a socket's, also that of a socket's name, opened with O_PATH.
    sockopt::socket_type(stream).map_err(|e| format!("what came with the question is no socket: {e}"))?;
    rustix::fs::fstat(stream).map(|stat| stat.st_ino).map_err(|e| format!("fstat: {e}"))
}

/// The socket of this TCP stream, by the tables of the network namespace in which the card is.
fn socket(local: SocketAddr, peer: SocketAddr) -> Option<TcpSocket> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    tables.iter().filter_map(|table| std::fs::read_to_string(table).ok()).find_map(|text| socket_in(&text, local, peer))
}

/// The same in one table: lines of number, local end, remote end, state, queues, timer, retransmits, user, timeout, inode.
fn socket_in(text: &str, local: SocketAddr, peer: SocketAddr) -> Option<TcpSocket> {
    text.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ends = (end(words.get(1)?)?, end(words.get(2)?)?);
        (same(ends.0, local) && same(ends.1, peer)).then_some(())?;
        Some(TcpSocket {
            state: u8::from_str_radix(words.get(3)?, 16).ok()?,
            user: words.get(7)?.parse().ok()?,
            inode: words.get(9)?.parse().ok()?,
        })
    })
}

/// An end as the table writes it: words of 32 bits in hexadecimal as this machine reads them, a colon, the port.
fn end(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = (0..ip.len() / 8)
        .map(|n| Some(u32::from_str_radix(ip.get(n * 8..n * 8 + 8)?, 16).ok()?.to_ne_bytes()))
        .collect();
    let ip: IpAddr = match *words?.concat() {
        [a, b, c, d] => [a, b, c, d].into(),
        ref six => <[u8; 16]>::try_from(six).ok()?.into(),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests;
