//! End to end, against a listener that lives as long as the fuzzer: an unauthenticated client that sends anything, and a peer that has
//! the handle, logs in and then sends anything, over one or two streams. The listener goes on, an honest peer gets
//! through, and no byte outside what was granted changes. libFuzzer holds memory against its limits.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use linkspan_fabric::{Access, Buf, Channel, Fabric, Listener, MemSlice};
use linkspan_fuzz::frames::{self, Likely};
use linkspan_fuzz::{Input, peer};
use linkspan_proto::plan::{Carrier, Plan};
use linkspan_proto::{Head, Kind};
use linkspan_transport::StaticBuf;

/// Clients that stay connected: more than a listener keeps half-open.
const STRANGERS: usize = 272;

/// Inputs between two honest connections.
const HONEST: u64 = 32;

/// Posted receives and regions in one buffer whose gaps must stay as they are.
const GRANTED: [(u64, u64); 3] = [(4096, 100), (8192, 20_000), (40_000, 64)];
const REGIONS: [(u64, u64); 2] = [(50_000, 1000), (55_000, 500)];
const ALL: usize = 64 << 10;

struct World {
    fabric: Fabric,
    listener: Listener,
    strangers: VecDeque<TcpStream>,
    inputs: u64,
}

thread_local! {
    static WORLDS: RefCell<Vec<World>> = RefCell::new([false, true].into_iter().map(World::new).collect());
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let choice = input.u8();
    WORLDS.with_borrow_mut(|worlds| {
        let world = &mut worlds[usize::from(choice & 1)];
        world.inputs += 1;
        if choice & 6 == 0 {
            world.stranger(input)
        } else {
            world.enemy(input, choice & 8 != 0)
        }
        if world.inputs.is_multiple_of(HONEST) {
            world.still_works();
        }
    });
});

impl World {
    fn new(acked: bool) -> World {
        let fabric = peer::fabric(acked);
        let listener = fabric.listen(0).expect("loopback");
        World { fabric, listener, strangers: VecDeque::new(), inputs: 0 }
    }

    /// A client without the handle.
    fn stranger(&mut self, mut input: Input<'_>) {
        let stays = input.u8() & 1 == 0;
        let mut stream = peer::dial(peer::address(&self.listener));
        while !input.is_empty() {
            let len = usize::from(input.u8()) + 1;
            if stream.write(input.bytes(len)).is_err() {
                break;
            }
            assert!(
                self.listener.accept().expect("a listener that lives").is_none(),
                "an unauthenticated client was accepted"
            );
        }
        if stays {
            self.strangers.push_back(stream);
            if self.strangers.len() > STRANGERS {
                self.strangers.pop_front();
            }
        }
    }

    /// A client with the handle.
    fn enemy(&mut self, mut input: Input<'_>, two: bool) {
        let honest = input.u8() < 220;
        let greeting = if honest { &[2, 0, 0, 0, 0, 0, 0, 0] } else { input.bytes(100) };
        let conn = self.inputs;
        let mut streams = Vec::new();
        for number in 0..1 + u16::from(two) {
            let Some(stream) = peer::log_in(&self.listener, conn, number, greeting) else { return };
            streams.push(stream);
        }
        let mut plan = Plan {
            carrier: Carrier::Tcp,
            acked: two || input.u8() & 1 == 0,
            streams: (0..streams.len() as u16).collect(),
            keepalive: None,
        };
        if input.u8() & 7 == 0 && two {
            plan = Plan { streams: vec![0], keepalive: Some(1), ..plan };
        }
        let mut bytes = plan.encode();
        if input.u8() > 220 {
            for _ in 0..input.below(4) {
                bytes[input.below(32)] = input.u8();
            }
        }
        if streams[0].write(&bytes).is_err() {
            return;
        }
        let start = Instant::now();
        let channel = loop {
            // A plan that is no plan drops the connection and nothing else.
            match self.listener.accept() {
                Ok(Some(channel)) => break channel,
                Ok(None) if start.elapsed().as_millis() < 3 => {}
                Ok(None) | Err(_) => return,
            }
        };
        attack(channel, streams, &mut input);
    }

    fn still_works(&mut self) {
        let (mut here, mut there) = peer::honest(&self.fabric, &self.listener);
        let (src, dst) = (StaticBuf::new(100), StaticBuf::new(100));
        assert!(src.slice().fill(0, &[7; 100]));
        let receive = there.post_recv(&[(0, dst.slice())]).expect("a fresh connection").expect("not busy");
        here.post_send(0, src.slice()).expect("a fresh connection").expect("not busy");
        let start = Instant::now();
        while there.test(receive).expect("a healthy connection").is_none() {
            assert!(start.elapsed() < peer::PATIENCE, "a message between honest peers is held up");
            here.progress().expect("a healthy connection");
            there.progress().expect("a healthy connection");
        }
        assert_eq!(dst.slice().to_vec(), [7; 100]);
    }
}

fn part(all: MemSlice, (at, len): (u64, u64)) -> MemSlice {
    all.sub(at, len).expect("inside")
}

/// A row of payloads that is almost right, heads first.
fn row(input: &mut Input<'_>, likely: &mut Likely, bytes: &mut Vec<u8>) {
    let (mut heads, mut payload) = (Vec::new(), 0);
    for _ in 0..input.below(32) {
        let (head, kind) = frames::head(input, likely);
        heads.extend_from_slice(head.as_wire());
        payload += head.len.get() as usize;
        if kind.is_payload() {
            likely.chunk = head.seq.get().wrapping_add(1);
        }
    }
    let mut all = Head::new(Kind::BatchHeads);
    all.len.set(heads.len() as u32);
    all.total.set(payload as u64);
    bytes.extend_from_slice(all.as_wire());
    bytes.append(&mut heads);
    bytes.resize(bytes.len() + payload, 0xEE);
    let padding = linkspan_proto::head::padding(payload);
    bytes.resize(bytes.len() + padding, 0xEE);
}

fn attack(mut channel: Channel, mut streams: Vec<TcpStream>, input: &mut Input<'_>) {
    let memory = StaticBuf::new(ALL);
    let all = memory.slice();
    for (tag, range) in GRANTED.into_iter().enumerate() {
        assert!(matches!(channel.post_recv(&[(tag as u32, part(all, range))]), Ok(Some(_))));
    }
    let keys = REGIONS.into_iter().zip([Access::ReadWrite, Access::Read]);
    let keys = keys.filter_map(|(range, access)| channel.expose(part(all, range), access));
    let ids = keys.chain((0..4).flat_map(|n| [n, 1 << 10 | n])).chain([u32::MAX]).collect();
    let mut likely = Likely { ids, most: 30_000, ..Likely::default() };
    let mut chunks = [0; 2];
    while !input.is_empty() {
        let at = input.below(streams.len());
        let mut bytes = Vec::new();
        match input.u8() {
            0..=229 => {
                likely.chunk = chunks[at];
                let (head, kind) = frames::head(input, &likely);
                if kind == Kind::BatchHeads {
                    row(input, &mut likely, &mut bytes);
                    chunks[at] = likely.chunk;
                } else {
                    bytes.extend_from_slice(head.as_wire());
                    bytes.resize(bytes.len() + head.len.get() as usize, 0xEE);
                }
                match kind.is_payload() {
                    _ if kind == Kind::BatchHeads => {}
                    true => chunks[at] = head.seq.get().wrapping_add(1),
                    false => likely.seq = head.seq.get().wrapping_add(1),
                }
            }
            230..=249 => {
                let len = usize::from(input.u8());
                bytes.extend_from_slice(input.bytes(len));
            }
            _ if streams.len() > 1 => {
                let _ = streams[at].shutdown(std::net::Shutdown::Both);
            }
            _ => {}
        }
        // The rest of a message that the kernel does not take is never sent: one more way to be wrong.
        if streams[at].write(&bytes).is_err() && streams.len() == 1 {
            break;
        }
        let _ = streams[at].read(&mut [0; 4096]);
        if input.u8() & 7 == 0 {
            let _ = channel.post_send(1, part(all, REGIONS[0]));
        }
        if channel.progress().is_err() {
            break;
        }
    }
    drop(streams);
    let start = Instant::now();
    while channel.progress().is_ok() {
        assert!(start.elapsed() < peer::PATIENCE, "the end of a peer goes unnoticed");
    }
    drop(channel);
    for (at, byte) in all.to_vec().into_iter().enumerate().filter(|(_, byte)| *byte != 0) {
        let inside = |(from, len): &(u64, u64)| (*from..from + len).contains(&(at as u64));
        let writable = GRANTED.iter().any(inside) || inside(&REGIONS[0]);
        assert!(writable, "byte {at} became {byte} outside every grant");
    }
}
