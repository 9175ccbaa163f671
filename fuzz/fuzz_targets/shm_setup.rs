//! The set-up of shared memory: the blobs alone, and both sides of the exchange against a peer that sends other messages,
//! other descriptors, or other memory than it should. Nothing panics or waits forever; what comes up is a rail.
#![no_main]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use linkspan_fuzz::Input;
use linkspan_shm::{Accepting, Config, Connecting, IDENTITY_LEN, Identity, ShmRail, identity};
use linkspan_shmring::{Map, Side};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

const RING: usize = 64 << 10;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    let mut input = Input::new(bytes);
    let own = identity().expect("a Linux with /proc");
    if input.u8() & 1 == 0 { against_accepting(&mut input, &own) } else { against_connecting(&mut input, &own) }
});

fn decode(bytes: &[u8]) {
    if let Some((raw, _)) = bytes.split_first_chunk::<IDENTITY_LEN>()
        && let Ok(identity) = Identity::decode(raw)
    {
        assert_eq!(identity.encode(), *raw);
    }
}

fn config(input: &mut Input<'_>) -> Config {
    Config { ring: RING, cma: input.u8() & 1 == 0, ..Config::default() }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

/// A true message, damaged here and there, and sometimes of another length.
fn damaged(input: &mut Input<'_>, mut bytes: Vec<u8>) -> Vec<u8> {
    if input.u8() < 100 {
        return bytes;
    }
    for _ in 0..input.below(4) {
        let at = input.below(bytes.len());
        bytes[at] ^= input.u8();
    }
    let len = input.near(bytes.len() as u64).min(300) as usize;
    bytes.resize(len.max(1), 0xA5);
    bytes
}

/// Where the socket's name and the token are in an identity.
const NAME: std::ops::Range<usize> = 48..64;
const TOKEN: std::ops::Range<usize> = 64..80;

/// The name of the socket of a side that listens.
fn address(listener: &Identity) -> SocketAddrUnix {
    let hex: String = listener.encode()[NAME].iter().map(|b| format!("{b:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("linkspan-{hex}").as_bytes()).expect("a short name")
}

fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    // The other side may have hung up already.
    let _ =
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// A message of kind 1 (hello), 2 (welcome) or 3 (ready), for or from this listener.
fn message(kind: u8, listener: &Identity, verdict: u32, words: [u64; 4]) -> Vec<u8> {
    let mut out = vec![b'L', b'S', b'm', kind];
    out.extend(verdict.to_le_bytes());
    out.extend(&listener.encode()[TOKEN]);
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    out
}

fn against_accepting(input: &mut Input<'_>, own: &Identity) {
    let mut accepting = Accepting::new(config(input), own, own, soon()).expect("a listener");
    let poll = |accepting: &mut Accepting| accepting.poll(Instant::now());
    for _ in 0..input.below(3) {
        let stranger = socket();
        let _ = rustix::net::connect(&stranger, &address(own));
        send(&stranger, input.bytes(40), &[]);
        let _ = poll(&mut accepting);
    }
    let peer = socket();
    if rustix::net::connect(&peer, &address(own)).is_err() {
        return;
    }
    let map = Map::create(RING).expect("memory");
    let nonce = [3, 4];
    map.set_nonce(Side::A, nonce);
    for _ in 0..input.below(4) {
        let at = usize::from(input.u16()) & !7;
        map.corrupt(at % 256, input.near(map.peek(at % 256)));
    }
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let fds: &[BorrowedFd<'_>] = match input.u8() {
        0..=219 => &[map.fd()],
        220..=229 => &[],
        230..=239 => &[null.as_fd()],
        _ => &[map.fd(), null.as_fd()],
    };
    let gate = input.near(nonce.as_ptr() as u64);
    let hello = damaged(input, message(1, own, 1, [RING as u64, gate, nonce[0], nonce[1]]));
    send(&peer, &hello, fds);
    let mut rail: Option<ShmRail> = poll(&mut accepting).ok().flatten();
    let ready = damaged(input, message(3, own, 0, [0; 4]));
    send(&peer, &ready, &[]);
    rail = rail.or_else(|| poll(&mut accepting).ok().flatten());
    drop(peer);
    rail = rail.or_else(|| poll(&mut accepting).ok().flatten());
    drop(rail);
}

fn against_connecting(input: &mut Input<'_>, own: &Identity) {
    let listener = socket();
    rustix::net::bind(&listener, &address(own)).expect("an unused name");
    rustix::net::listen(&listener, 4).expect("a listener");
    let mut connecting = Connecting::new(config(input), own, own, soon()).expect("memory");
    if !matches!(connecting.poll(Instant::now()), Ok(None)) {
        return;
    }
    let peer = rustix::net::accept(&listener).expect("it has connected");
    let mut bytes = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    rustix::net::recvmsg(&peer, &mut parts, &mut control, RecvFlags::DONTWAIT).expect("a hello");
    let fds = control.drain().filter_map(|m| match m {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let memory = fds.flatten().next().expect("the memory");
    let map = Map::open(memory, RING).expect("a map of ours");
    let nonce = [5, 6];
    if input.u8() < 240 {
        map.set_nonce(Side::B, nonce);
    }
    let gate = input.near(nonce.as_ptr() as u64);
    let welcome = damaged(input, message(2, own, 0, [0, gate, nonce[0], nonce[1]]));
    send(&peer, &welcome, &[]);
    let mut rail = connecting.poll(Instant::now()).ok().flatten();
    drop(peer);
    rail = rail.or_else(|| connecting.poll(Instant::now()).ok().flatten());
    drop(rail);
}
