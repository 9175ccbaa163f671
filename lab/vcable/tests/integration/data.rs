//! Frames: paths, credits, overflow, masks, damage, interrupts.

use crate::driver::{Lab, us};
use linkspan_vcable::nhi::regs::*;
use linkspan_vcable::peer::pattern;
use linkspan_vcable::router::layout::*;
use linkspan_vcable::time::MS;
use linkspan_vcable::world::Options;

const MASKS: u32 = 1 << 17 | 1 << 2;

/// TX ring 1 of host 0 to RX ring 1 of host 1, without end-to-end flow control.
fn one_way(lab: &mut Lab, size: u16, posted: u16) {
    lab.start_tx(0, 1, 64, 0);
    lab.start_rx(1, 1, size, 0, MASKS);
    lab.path_in(1, 1, 8, 1, 14);
    lab.path_out(0, 1, 1, 8);
    lab.post(1, 1, posted);
}

#[test]
fn frames_of_every_length_arrive_whole_and_in_order() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 64);
    let lengths = [1, 255, 256, 257, 4095, 4096, 12];
    lab.post(1, 1, 20);
    for (number, len) in lengths.iter().enumerate() {
        lab.send(0, 1, &pattern(number as u64, *len), 1, 2);
    }
    lab.run(MS);
    let got = lab.reap(1, 1);
    assert_eq!(got.len(), lengths.len());
    for (number, (data, sof, eof, flags)) in got.into_iter().enumerate() {
        assert_eq!(data, pattern(number as u64, lengths[number]));
        assert_eq!((sof, eof), (1, 2));
        assert_eq!(flags, DESC_COMPLETED | DESC_INTERRUPT, "posted is cleared: the same bit means overrun");
    }
    assert_eq!(lab.world.host_stats(0).frames_sent, 7);
    lab.assert_clean();
}

#[test]
fn a_sender_with_flow_control_waits_for_descriptors() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 64);
    for number in 0..40 {
        lab.send(0, 1, &pattern(number, 4096), 1, 2);
    }
    lab.run(10 * MS);
    assert_eq!(lab.world.host_stats(1).frames_received, 0);
    lab.post(1, 1, 10);
    lab.run(10 * MS);
    assert_eq!(lab.reap(1, 1).len(), 10);
    assert_eq!(lab.reap_tx(0, 1), 10);
    lab.post(1, 1, 50);
    lab.run(10 * MS);
    assert_eq!(lab.reap(1, 1).len(), 30);
    assert_eq!(lab.world.host_stats(1).overflows, 0);
    lab.assert_clean();
}

#[test]
fn without_flow_control_a_late_receiver_loses_and_is_told() {
    let mut lab = Lab::up("pair");
    one_way(&mut lab, 16, 3);
    for number in 0..8 {
        lab.send(0, 1, &pattern(number, 1000), 1, 2);
    }
    lab.run(MS);
    assert_eq!(lab.reap(1, 1).len(), 3);
    assert_eq!(lab.reap_tx(0, 1), 8);
    assert_eq!(lab.world.host_stats(1).overflows, 5);
    // Third field: 32 TX bits, 32 RX bits, then overflow.
    assert_eq!(lab.world.bar_read(1, NOTIFY + 8), 1 << 1);
    lab.assert_clean();
}

#[test]
fn masks_let_through_what_they_name() {
    let mut lab = Lab::up("pair");
    one_way(&mut lab, 16, 10);
    for (sof, eof) in [(1, 2), (1, 3), (2, 2), (1, 2)] {
        lab.send(0, 1, &[sof, eof], sof, eof);
    }
    lab.run(MS);
    assert_eq!(lab.reap(1, 1).len(), 2);
    assert_eq!(lab.world.host_stats(1).masked, 2);
}

#[test]
fn raw_rings_take_packets_one_by_one_and_without_masks() {
    let mut lab = Lab::up("pair");
    lab.start_tx(0, 1, 16, 0);
    lab.start_rx(1, 1, 64, RAW, 0);
    lab.path_in(1, 1, 8, 1, 14);
    lab.path_out(0, 1, 1, 8);
    lab.post(1, 1, 40);
    lab.send(0, 1, &pattern(5, 600), 1, 7);
    lab.run(MS);
    let got = lab.reap(1, 1);
    let lengths: Vec<usize> = got.iter().map(|(d, ..)| d.len()).collect();
    assert_eq!(lengths, [256, 256, 88]);
    assert!(got.iter().all(|(_, sof, eof, _)| (*sof, *eof) == (0, 7)));
}

#[test]
fn a_packet_beyond_256_bytes_on_a_raw_ring_is_a_failure() {
    let mut lab = Lab::up("pair");
    lab.start_tx(0, 1, 16, RAW);
    lab.path_out(0, 1, 1, 8);
    lab.send(0, 1, &[1; 300], 0, 2);
    lab.run(MS);
    assert!(lab.world.failures()[0].what.to_string().starts_with("LS0907"));
}

#[test]
fn a_frame_beyond_the_buffer_is_cut_and_says_so() {
    let mut lab = Lab::up("pair");
    one_way(&mut lab, 16, 3);
    // The size register says 512 bytes per buffer.
    lab.world.bar_write(1, RX_RINGS + 16 + 12, 16 | 512 << 16);
    lab.send(0, 1, &pattern(1, 600), 1, 2);
    lab.run(MS);
    let (data, _, _, flags) = lab.reap(1, 1).remove(0);
    assert_eq!(data, pattern(1, 600)[..512]);
    assert_eq!(flags & DESC_OVERRUN, DESC_OVERRUN);
}

#[test]
fn damage_is_flagged_and_other_faults_do_what_they_say() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 64);
    lab.post(1, 1, 30);
    for command in ["corrupt frame nth=2", "drop frame nth=4", "duplicate frame nth=6"] {
        lab.world.command(command).unwrap();
    }
    for number in 0..20 {
        lab.send(0, 1, &pattern(number, 300), 1, 2);
        lab.run(us(10));
    }
    let got = lab.reap(1, 1);
    assert_eq!(got.len(), 20, "one lost, one twice");
    let damaged: Vec<bool> = got.iter().map(|(.., flags)| flags & DESC_CRC_ERROR != 0).collect();
    assert_eq!(damaged.iter().filter(|d| **d).count(), 1);
    let bad = damaged.iter().position(|d| *d).unwrap();
    assert_ne!(got[bad].0, pattern(bad as u64, 300));
    assert_eq!(lab.world.host_stats(0).faulted, 3);
    lab.assert_clean();
}

/// Two paths on one lane; the receiver of the first is stuck in the middle of a frame. Gives what the second got.
fn stuck_and_free(ignore_credits: bool) -> (usize, u64) {
    let mut lab = Lab::up("pair");
    for ring in [1, 2] {
        lab.stream([0, 1], ring, 128);
        lab.post(1, ring, 127);
    }
    if ignore_credits {
        lab.world.command("ignore-credits on").unwrap();
    }
    lab.world.command("stall b ring=1").unwrap();
    for number in 0..100 {
        lab.send(0, 1, &pattern(number, 4096), 1, 2);
        lab.send(0, 2, &pattern(1000 + number, 4096), 1, 2);
    }
    lab.run(10 * MS);
    assert_eq!(lab.world.host_stats(1).overflows, 0);
    let got = lab.reap(1, 2);
    let whole = got.iter().enumerate().filter(|(n, (d, ..))| *d == pattern(1000 + *n as u64, 4096)).count();
    assert!(lab.reap(1, 1).is_empty());
    let lost = lab.world.cable_stats(0).packets_lost;
    if !ignore_credits {
        lab.world.command("resume b ring=1").unwrap();
        lab.run(10 * MS);
        assert_eq!(lab.reap(1, 1).len(), 100);
        lab.assert_clean();
    }
    (whole, lost)
}

#[test]
fn a_stuck_path_does_not_stop_another_on_its_lane() {
    assert_eq!(stuck_and_free(false), (100, 0));
}

#[test]
fn ignoring_credits_is_found() {
    let (whole, lost) = stuck_and_free(true);
    assert!(lost > 0 && whole < 100, "{whole} whole frames, {lost} packets lost");
}

#[test]
fn a_disabled_path_is_pending_until_its_packets_are_gone() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 64);
    lab.post(1, 1, 30);
    lab.world.command("stall b ring=1").unwrap();
    for number in 0..5 {
        lab.send(0, 1, &pattern(number, 4096), 1, 2);
    }
    lab.run(MS);
    let entry = lab.read(1, 1, 0, 16, 2).unwrap();
    lab.write(1, 1, 0, 16, &[entry[0] & !(1 << 31), entry[1]]);
    assert_eq!(lab.read(1, 1, 0, 17, 1).unwrap()[0] >> 28 & 1, 1);
    lab.world.command("resume b ring=1").unwrap();
    lab.run(MS);
    assert_eq!(lab.read(1, 1, 0, 17, 1).unwrap()[0] >> 28 & 1, 0);
}

#[test]
fn promising_more_buffers_than_there_are_is_a_failure() {
    let mut lab = Lab::up("pair");
    lab.path_in(1, 1, 8, 1, 100);
    lab.assert_clean();
    lab.path_in(1, 1, 9, 2, 100);
    assert!(lab.world.failures()[0].what.to_string().starts_with("LS0906"));
}

#[test]
fn dma_outside_the_windows_is_a_failure() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 16);
    lab.post(1, 1, 5);
    // The driver unmaps a receive buffer that the device still owns.
    let buffer = lab.buffer(1, true, 1, 1);
    lab.unmap(1, buffer, 4096);
    for number in 0..3 {
        lab.send(0, 1, &pattern(number, 100), 1, 2);
    }
    lab.run(MS);
    let failures = lab.world.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].host, "b");
    assert!(failures[0].what.to_string().starts_with("LS0901 DMA Write of 100 bytes"), "{}", failures[0]);
    // And a transmit buffer that is only readable is never written.
    assert_eq!(lab.reap(1, 1).len(), 3);
}

#[test]
fn a_ring_without_a_descriptor_table_is_a_failure() {
    let mut lab = Lab::up("pair");
    lab.start_tx(0, 1, 16, 0);
    lab.path_out(0, 1, 1, 8);
    lab.world.bar_write(0, TX_RINGS + 16, 0);
    lab.world.bar_write(0, TX_RINGS + 20, 0);
    lab.send(0, 1, &[1; 10], 1, 2);
    lab.run(MS);
    assert!(lab.world.failures()[0].what.to_string().starts_with("LS0901 DMA Read of 16 bytes at 0x0"));
}

#[test]
fn indices_beyond_the_ring_are_failures() {
    let mut lab = Lab::up("pair");
    lab.start_rx(0, 3, 16, 0, MASKS);
    lab.world.bar_write(0, RX_RINGS + 48 + 8, 16);
    assert!(lab.world.failures()[0].what.to_string().starts_with("LS0902 RX ring 3: index 16"));
    lab.world.bar_write(0, TX_OPTIONS + 4 * 32, ENABLE);
    assert!(lab.world.failures()[1].what.to_string().starts_with("LS0903 TX ring 4"));
}

#[test]
fn throttling_bounds_interrupts_of_a_burst() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 512);
    lab.post(1, 1, 300);
    let vector = Lab::vector(1, true);
    lab.world.bar_write(1, THROTTLE + 4 * vector as u32, 128_000 / 256);
    let before = lab.drivers[1].interrupts[vector];
    for number in 0..256 {
        lab.send(0, 1, &pattern(number, 4096), 1, 2);
    }
    lab.run(10 * MS);
    assert_eq!(lab.reap(1, 1).len(), 256);
    let count = lab.drivers[1].interrupts[vector] - before;
    // 256 frames of 4 KiB take 426 us at 20 Gb/s: one interrupt at once, then one per 128 us, and the last.
    assert!((4..=5).contains(&count), "{count} interrupts");
    lab.assert_clean();
}

#[test]
fn a_lost_interrupt_is_lost_and_its_status_stays() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 16);
    lab.post(1, 1, 10);
    let vector = Lab::vector(1, true);
    lab.world.command(&format!("lose-irq b vector={vector} count=2")).unwrap();
    for count in 1..=3 {
        lab.send(0, 1, &[1; 64], 1, 2);
        lab.run(MS);
        assert_eq!(lab.drivers[1].interrupts[vector], u64::from(count == 3));
        assert_eq!(lab.world.bar_read(1, NOTIFY + 4) >> 1 & 1, 1);
    }
    assert_eq!(lab.world.host_stats(1).interrupts_lost, 2);
}

#[test]
fn speed_and_width_set_the_time_on_the_wire() {
    let time = |gen_: &str, width: &str, from: usize| {
        let mut lab = Lab::up(&format!("host a {gen_}\nhost b {gen_}\ncable ab a:1 b:1 lanes=2 {width}"));
        lab.stream([0, 1], 1, 64);
        lab.post(1 - from, 1, 60);
        let start = lab.world.now();
        for number in 0..50 {
            lab.send(from, 1, &pattern(number, 4096), 1, 2);
        }
        while lab.world.host_stats(1 - from).frames_received < 50 {
            let next = lab.world.next_event().unwrap();
            lab.world.advance(next);
        }
        (lab.world.now() - start) as f64
    };
    let base = time("gen=3", "", 0);
    let ratio = |t: f64| (base / t * 100.0).round() / 100.0;
    // 50 frames of 4160 bytes at 20 Gb/s.
    assert!((83_000.0..85_000.0).contains(&base), "{base}");
    assert!((0.45..0.55).contains(&ratio(time("gen=2", "", 0))));
    assert!((1.95..2.05).contains(&ratio(time("gen=3", "width=dual", 0))));
    // Generation 4 comes up bonded.
    assert!((3.9..4.1).contains(&ratio(time("gen=4", "", 0))));
    assert!((5.8..6.2).contains(&ratio(time("gen=4", "width=asym-tx", 0))));
    assert!((1.95..2.05).contains(&ratio(time("gen=4", "width=asym-tx", 1))));
}

#[test]
fn a_cable_pulled_in_the_middle_of_a_frame_loses_it_and_hangs_nobody() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 64);
    lab.post(1, 1, 60);
    let script = linkspan_vcable::fault::Script::parse("frame ab 10 unplug ab\nat 5s replug ab", &lab.world).unwrap();
    lab.world.load(script);
    for number in 0..40 {
        lab.send(0, 1, &pattern(number, 4096), 1, 2);
    }
    lab.run(MS);
    assert!(!lab.world.is_up(0));
    let got = lab.reap(1, 1).len();
    assert!(got < 11, "{got}");
    // With the link down nothing waits for credits: the ring runs dry.
    assert_eq!(lab.reap_tx(0, 1), 40);
    lab.run(6_000 * MS);
    assert!(lab.world.is_up(0));
    lab.send(0, 1, &pattern(77, 4096), 1, 2);
    lab.run(MS);
    assert_eq!(lab.reap(1, 1).pop().unwrap().0, pattern(77, 4096));
}

#[test]
fn frames_that_a_driver_takes_back_are_counted() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 64);
    lab.post(1, 1, 7);
    for number in 0..10 {
        lab.send(0, 1, &pattern(number, 64), 1, 2);
    }
    lab.run(MS);
    lab.world.bar_write(0, TX_OPTIONS + 32, 0);
    let stats = lab.world.host_stats(0);
    assert_eq!((stats.frames_sent, stats.taken_back), (7, 3));
}

#[test]
fn weights_share_a_link() {
    let mut lab = Lab::up("pair");
    for ring in [1, 2] {
        lab.stream([0, 1], ring, 256);
        lab.post(1, ring, 255);
    }
    // Ring 2 has three times the weight.
    let nhi = 3;
    let entry = lab.read(0, nhi, 0, 4, 2).unwrap();
    lab.write(0, nhi, 0, 4, &[entry[0], entry[1] & !0xf | 3]);
    for number in 0..200 {
        lab.send(0, 1, &pattern(number, 4096), 1, 2);
        lab.send(0, 2, &pattern(number, 4096), 1, 2);
    }
    lab.run(us(250));
    let (one, two) = (lab.reap(1, 1).len() as f64, lab.reap(1, 2).len() as f64);
    assert!((2.5..3.5).contains(&(two / one)), "{one} and {two}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed: u64| {
        let mut lab = Lab::with("pair", Options { seed, ..Options::default() });
        lab.start_all();
        lab.stream([0, 1], 1, 256);
        lab.post(1, 1, 200);
        lab.world.command("corrupt frame p=0.2").unwrap();
        lab.world.command("drop frame p=0.1").unwrap();
        for number in 0..150 {
            lab.send(0, 1, &pattern(number, 512), 1, 2);
            lab.run(us(2));
        }
        lab.run(MS);
        lab.reap(1, 1)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn without_wire_time_everything_arrives_at_once() {
    let mut lab = Lab::with("pair", Options { wire_time: false, ..Options::default() });
    lab.start_all();
    lab.stream([0, 1], 1, 64);
    lab.post(1, 1, 60);
    lab.send(0, 1, &pattern(1, 4096), 1, 2);
    assert_eq!(lab.reap(1, 1).len(), 1);
    assert_eq!(lab.lane_state(0, 1), LANE_UP);
}

#[test]
fn the_largest_ring_that_the_register_can_say_works() {
    let mut lab = Lab::up("pair");
    lab.start_tx(0, 1, 16, 0);
    lab.world.bar_write(0, TX_RINGS + 16 + 12, 65_535);
    lab.send(0, 1, &[1; 64], 1, 2);
    lab.run(MS);
    assert_eq!(lab.world.host_stats(0).unrouted, 1);
    lab.assert_clean();
}

#[test]
fn two_cables_between_two_hosts_carry_their_own_frames() {
    let mut lab = Lab::up("pair2");
    for (ring, port) in [(1, 1), (2, 2)] {
        lab.start_tx(0, ring, 64, 0);
        lab.start_rx(1, ring, 64, 0, MASKS);
        lab.path_in(1, port, 8, ring, 14);
        lab.path_out(0, ring, port, 8);
        lab.post(1, ring, 60);
    }
    for number in 0..20 {
        lab.send(0, 1, &pattern(number, 1000), 1, 2);
        lab.send(0, 2, &pattern(100 + number, 1000), 1, 2);
    }
    lab.run(MS);
    lab.world.command("unplug ab1").unwrap();
    for number in 20..30 {
        lab.send(0, 1, &pattern(number, 1000), 1, 2);
        lab.send(0, 2, &pattern(100 + number, 1000), 1, 2);
    }
    lab.run(MS);
    for (ring, first, count) in [(1, 0, 20), (2, 100, 30)] {
        let got = lab.reap(1, ring);
        assert_eq!(got.len(), count);
        assert!(got.iter().enumerate().all(|(n, (data, ..))| *data == pattern(first + n as u64, 1000)));
    }
    let frames = [0, 1].map(|cable| lab.world.cable_stats(cable).frames);
    assert_eq!(frames, [20, 30]);
    lab.assert_clean();
}

#[test]
fn flow_control_needs_the_way_back() {
    let mut lab = Lab::up("pair");
    lab.stream([0, 1], 1, 64);
    lab.post(1, 1, 10);
    // The receiver's path for credits is off: nothing may start.
    let entry = lab.read(1, 3, 0, 2, 1).unwrap()[0];
    lab.write(1, 3, 0, 2, &[entry & !(1 << 31)]);
    lab.send(0, 1, &[1; 64], 1, 2);
    lab.run(MS);
    assert!(lab.reap(1, 1).is_empty());
    lab.write(1, 3, 0, 2, &[entry]);
    lab.run(MS);
    assert_eq!(lab.reap(1, 1).len(), 1);
    // Ignoring end-to-end credits overflows the ring, and is told.
    lab.world.command("ignore-credits on").unwrap();
    for number in 0..15 {
        lab.send(0, 1, &pattern(number, 64), 1, 2);
    }
    lab.run(MS);
    assert_eq!((lab.reap(1, 1).len(), lab.world.host_stats(1).overflows), (9, 6));
}
