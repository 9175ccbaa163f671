//! A guest that does anything: registers, configuration space, memory, control packets. The world goes on, and what it
//! holds for a guest stays bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_vcable::control::seal;
use linkspan_vcable::memory::{Ram, Window};
use linkspan_vcable::nhi::regs::*;
use linkspan_vcable::time::MS;
use linkspan_vcable::topology::Topology;
use linkspan_vcable::world::{Options, World};

const RAM: u64 = 64 * 1024;
/// Descriptors of ring 0, and the buffer of what is sent on it.
const TX: u64 = 0x100;
const RX: u64 = 0x200;
const PACKET: u64 = 0x400;

/// Places where something happens.
const PLACES: [u32; 14] = [
    TX_RINGS,
    TX_RINGS + 16,
    RX_RINGS,
    RX_RINGS + 16,
    TX_OPTIONS,
    TX_OPTIONS + 32,
    RX_OPTIONS,
    RX_OPTIONS + 32,
    NOTIFY,
    INTERRUPT,
    THROTTLE,
    VECTOR,
    DMA_MISC,
    RESET,
];

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }
    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }
}

fn boot(world: &mut World, ram: &Ram) {
    ram.map(Window { iova: 0, len: RAM, at: 0, writable: true });
    world.attach(0, Box::new(ram.clone()));
    for (ring, options, at) in [(TX_RINGS, TX_OPTIONS, TX), (RX_RINGS, RX_OPTIONS, RX)] {
        world.bar_write(0, ring, at as u32);
        world.bar_write(0, ring + 4, 0);
        world.bar_write(0, ring + 12, 16 | 256 << 16);
        world.bar_write(0, options, ENABLE | RAW);
    }
    for index in 0..16 {
        let mut desc = (0x1000_u64 + 0x100 * index).to_le_bytes().to_vec();
        desc.extend([0; 8]);
        ram.poke(RX + 16 * index, &desc);
    }
    world.bar_write(0, RX_RINGS + 8, 15);
}

fn control(world: &mut World, ram: &Ram, input: &mut Input<'_>) {
    let kind = input.byte() & 0xf;
    let words: Vec<u32> = (0..3 + input.byte() % 60).map(|_| input.word()).collect();
    let bytes = seal(&words);
    let index = world.bar_read(0, TX_RINGS + 8) & 0xf;
    let mut desc = PACKET.to_le_bytes().to_vec();
    desc.extend((bytes.len() as u32 & 0xfff | u32::from(kind) << 12 | 8 << 20).to_le_bytes());
    ram.poke(PACKET, &bytes);
    ram.poke(TX + 16 * u64::from(index), &desc);
    world.bar_write(0, TX_RINGS + 8, (index + 1 & 0xf) << 16);
}

fuzz_target!(|bytes: &[u8]| {
    let topology = Topology::parse("host a\npeer p\ncable ap a:1 p:1 lanes=2").expect("the text is right");
    let mut world = World::new(
        &topology,
        Options { wire_time: bytes.len() % 2 == 0, latency: bytes.len() as u64 % 3 * MS, ..Options::default() },
    );
    world.set_peer(1, linkspan_vcable::peer::standard(1, &topology.hosts[1]));
    let ram = Ram::new(RAM as usize);
    boot(&mut world, &ram);
    let mut input = Input(bytes);
    for _ in 0..200 {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 8 {
            0 => control(&mut world, &ram, &mut input),
            1 => {
                let place = PLACES[usize::from(input.byte()) % PLACES.len()] + u32::from(input.byte() & 0x3c);
                let value = input.word();
                world.bar_write(0, place, value);
            }
            2 => {
                let (place, value) = (input.word() % (BAR0_SIZE + 64), input.word());
                world.bar_write(0, place, value);
                let _ = world.bar_read(0, place);
            }
            3 => {
                let at = u64::from(input.byte()) * 16;
                let data: Vec<u8> = (0..16).map(|_| input.byte()).collect();
                ram.poke(at, &data);
            }
            4 => {
                let to = world.now() + u64::from(input.byte()) * 10 * MS;
                world.advance(to);
            }
            5 => {
                let at = usize::from(input.byte());
                let data = [input.byte(), input.byte()];
                world.config_write(0, at, &data);
            }
            6 => boot(&mut world, &ram),
            _ => {
                let commands = ["unplug ap", "replug ap", "peer p send 1 8 1 2 9 4096", "stall a ring=1", "clear"];
                let _ = world.command(commands[usize::from(input.byte()) % commands.len()]);
            }
        }
        let _ = world.take_actions();
    }
    assert!(world.failures().len() <= 1000);
});
