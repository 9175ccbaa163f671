//! Control channel, hot plug, bonding, links.

use crate::driver::Lab;
use linkspan_vcable::control::pdf;
use linkspan_vcable::nhi::regs::*;
use linkspan_vcable::router::layout::*;
use linkspan_vcable::time::{MS, SEC};
use linkspan_vcable::world::Options;

fn plugs(lab: &mut Lab, host: usize) -> Vec<u32> {
    lab.poll();
    lab.drivers[host].events.drain(..).filter(|(kind, _)| *kind == pdf::EVENT).map(|(_, w)| w[2]).collect()
}

#[test]
fn both_ends_hear_of_the_cable_when_both_are_ready() {
    let mut lab = Lab::new("pair");
    lab.start(0);
    lab.run(SEC);
    assert!(plugs(&mut lab, 0).is_empty());
    assert_eq!(lab.lane_state(0, 1), LANE_UNPLUGGED);
    lab.start(1);
    lab.run(SEC);
    for host in 0..2 {
        assert_eq!(plugs(&mut lab, host), [1]);
        assert_eq!(lab.lane_state(host, 1), LANE_UP);
    }
    lab.assert_clean();
}

#[test]
fn unplug_and_replug() {
    let mut lab = Lab::up("pair");
    plugs(&mut lab, 0);
    lab.world.command("unplug ab").unwrap();
    assert_eq!(plugs(&mut lab, 0), [1 | 1 << 31]);
    assert_eq!(lab.lane_state(1, 1), LANE_UNPLUGGED);
    lab.world.command("replug ab").unwrap();
    lab.run(SEC);
    assert_eq!(plugs(&mut lab, 0), [1]);
    assert_eq!(lab.lane_state(1, 1), LANE_UP);
    lab.assert_clean();
}

#[test]
fn a_guest_that_loses_power_unplugs_the_other_and_may_come_back() {
    let mut lab = Lab::up("pair");
    plugs(&mut lab, 0);
    lab.world.detach(1);
    assert_eq!(plugs(&mut lab, 0), [1 | 1 << 31]);
    let ram = lab.drivers[1].ram.clone();
    lab.world.attach(1, Box::new(ram));
    lab.start(1);
    lab.run(SEC);
    assert_eq!(plugs(&mut lab, 0), [1]);
}

#[test]
fn an_event_that_nobody_answers_is_repeated() {
    let mut lab = Lab::new("pair");
    for host in 0..2 {
        lab.start(host);
    }
    // Nobody reaps: the answers never come.
    lab.world.advance(10 * SEC);
    lab.poll();
    let all = lab.drivers[0].events.iter().filter(|(kind, _)| *kind == pdf::EVENT).count();
    assert_eq!(all, 4, "once and three times more");
}

#[test]
fn a_route_to_the_other_host_is_an_error_and_says_which() {
    let mut lab = Lab::up("pair");
    let read = |lab: &mut Lab, route: u32| lab.request(0, pdf::READ, &[0, route, 1 << 13 | 2 << 25]).unwrap();
    assert_eq!(read(&mut lab, 1), (pdf::ERROR, vec![1 << 31, 1, 8]));
    lab.world.command("unplug ab").unwrap();
    assert_eq!(read(&mut lab, 1), (pdf::ERROR, vec![1 << 31, 1, 0]));
    assert_eq!(read(&mut lab, 3), (pdf::ERROR, vec![1 << 31, 3, 0]));
}

#[test]
fn spaces_end_where_they_end() {
    let mut lab = Lab::up("pair");
    assert_eq!(lab.read(0, 0, 2, 0x100, 1), Err(2));
    assert_eq!(lab.read(0, 0, 2, 0xff, 2), Err(2));
    assert_eq!(lab.read(0, 0, 2, 0xff, 1), Ok(vec![0]));
    assert_eq!(lab.read(0, 4, 1, 0, 1), Err(4));
    assert_eq!(lab.read(0, 1, 0, 64, 1), Err(2));
    assert_eq!(lab.read(0, 1, 3, 0, 1), Err(2));
    assert_eq!(lab.read(0, 0, 1, 0, 1), Err(2));
}

#[test]
fn damaged_and_malformed_control_packets_are_failures_and_answered_by_nobody() {
    let mut lab = Lab::up("pair");
    lab.poll();
    let before = lab.drivers[0].events.len();
    lab.send(0, 0, &[0; 16], 0, pdf::READ);
    lab.send(0, 0, &[0; 3], 0, pdf::READ);
    lab.control(0, pdf::READ, &[0, 0, 61 << 13 | 2 << 25]);
    lab.control(0, pdf::WRITE, &[0, 0, 2 << 13 | 2 << 25, 7]);
    lab.poll();
    assert_eq!(lab.drivers[0].events.len(), before);
    let codes: Vec<String> = lab.world.failures().iter().map(|f| f.what.to_string()[..6].to_owned()).collect();
    assert_eq!(codes, ["LS0905"; 4]);
}

#[test]
fn messages_reach_the_other_host_with_its_route() {
    let mut lab = Lab::up("triangle");
    for (from, port, to, arrives) in [(0, 1, 1, 1), (0, 3, 2, 3), (1, 3, 2, 1)] {
        lab.drivers.iter_mut().for_each(|d| d.events.clear());
        lab.control(from, pdf::XDOMAIN_REQUEST, &[0, port, 7, 1, 2, 3, 4, 99]);
        lab.poll();
        let got = lab.drivers[to].events.pop_back().unwrap();
        assert_eq!(got, (pdf::XDOMAIN_REQUEST, vec![1 << 31, arrives, 7, 1, 2, 3, 4, 99]));
    }
    lab.assert_clean();
}

#[test]
fn messages_take_their_time_and_are_lost_with_their_link() {
    let mut lab = Lab::with("pair", Options { latency: 50 * MS, ..Options::default() });
    lab.start_all();
    lab.drivers.iter_mut().for_each(|d| d.events.clear());
    lab.control(0, pdf::XDOMAIN_REQUEST, &[0, 1, 7]);
    lab.run(49 * MS);
    lab.poll();
    assert!(lab.drivers[1].events.is_empty());
    lab.run(2 * MS);
    lab.poll();
    assert_eq!(lab.drivers[1].events.pop_back().unwrap(), (pdf::XDOMAIN_REQUEST, vec![1 << 31, 1, 7]));

    lab.control(0, pdf::XDOMAIN_REQUEST, &[0, 1, 8]);
    lab.world.command("unplug ab").unwrap();
    lab.world.command("replug ab").unwrap();
    lab.run(SEC);
    lab.poll();
    assert!(lab.drivers[1].events.iter().all(|(kind, _)| *kind != pdf::XDOMAIN_REQUEST));
    lab.assert_clean();
}

#[test]
fn lanes_are_bonded_when_both_ends_want_it() {
    let mut lab = Lab::up("host a\nhost b\ncable ab a:1 b:1 lanes=2");
    let target = |lab: &mut Lab, host: usize, bond: u32| {
        for adapter in [2, 1] {
            let word = lab.read(host, adapter, 1, CAP_PHY + 1, 1).unwrap()[0];
            lab.write(host, adapter, 1, CAP_PHY + 1, &[word & !(3 << 4) | 3 << 4 | bond << 15]);
        }
    };
    target(&mut lab, 0, 0);
    target(&mut lab, 1, 0);
    assert_eq!(lab.lane_rate(0, 1), (4, 1));
    target(&mut lab, 0, 1);
    assert_eq!(lab.lane_rate(0, 1), (4, 2));
    assert_eq!(lab.lane_rate(1, 1), (4, 2));
    lab.world.command("width ab single").unwrap();
    assert_eq!(lab.lane_rate(1, 1), (4, 1));
    lab.world.command("unplug ab").unwrap();
    lab.world.command("replug ab").unwrap();
    lab.run(SEC);
    assert_eq!(lab.lane_rate(1, 1), (4, 1), "bonding is asked for anew");
}

#[test]
fn a_retrained_link_has_no_more_than_it_was_told() {
    let mut lab = Lab::up("host a\nhost b\ncable ab a:1 b:1 lanes=2");
    let bond = |lab: &mut Lab| {
        for (host, last) in [(0, 0), (1, 1)] {
            for adapter in [2, 1] {
                let word = lab.read(host, adapter, 1, CAP_PHY + 1, 1).unwrap()[0];
                lab.write(host, adapter, 1, CAP_PHY + 1, &[word & !(3 << 4) | 3 << 4 | last << 15]);
            }
        }
    };
    bond(&mut lab);
    assert_eq!(lab.lane_rate(0, 1), (4, 2));
    plugs(&mut lab, 0);
    lab.world.command("retrain ab lanes=1 gen=2").unwrap();
    lab.run(SEC);
    assert_eq!(plugs(&mut lab, 0), [1 | 1 << 31, 1], "down and up again");
    assert_eq!(lab.lane_rate(0, 1), (8, 1));
    bond(&mut lab);
    assert_eq!(lab.lane_rate(1, 1), (8, 1), "the second lane is not there to be bonded");
    lab.world.command("retrain ab").unwrap();
    lab.run(SEC);
    bond(&mut lab);
    assert_eq!(lab.lane_rate(1, 1), (4, 2));
    let mut fast = Lab::up("host a gen=4\nhost b gen=4\ncable ab a:1 b:1 lanes=2");
    assert!(fast.world.command("retrain ab lanes=1").unwrap_err().to_string().contains("gen=3"));
}

#[test]
fn commands_wait_for_a_time_or_for_frames_from_now_on() {
    let mut lab = Lab::up("pair");
    lab.run(SEC);
    lab.world.command("at 50ms unplug ab").unwrap();
    lab.run(49 * MS);
    assert!(lab.world.is_up(0));
    lab.run(2 * MS);
    assert!(!lab.world.is_up(0));
    lab.world.command("replug ab").unwrap();
    lab.run(SEC);
    lab.stream([0, 1], 1, 64);
    lab.post(1, 1, 60);
    let send = |lab: &mut Lab, frames: u8| {
        for number in 0..frames {
            lab.send(0, 1, &[number; 100], 1, 2);
        }
        lab.run(MS);
    };
    send(&mut lab, 5);
    lab.world.command("frame ab 10 unplug ab").unwrap();
    send(&mut lab, 9);
    assert!(lab.world.is_up(0));
    send(&mut lab, 1);
    assert!(!lab.world.is_up(0));
}

#[test]
fn asymmetric_links_are_wider_on_one_side() {
    let mut lab = Lab::up("host a gen=4\nhost b gen=4\ncable ab a:1 b:1 lanes=2 width=asym-tx");
    assert_eq!((lab.lane_rate(0, 1), lab.lane_rate(1, 1)), ((2, 4), (2, 8)));
    let cable = &lab.world.report().cables[0];
    assert_eq!((cable.tx_gbps, cable.rx_gbps), (120, 40));
    // The driver of the other side asks for the opposite.
    let word = lab.read(1, 1, 1, CAP_PHY + 1, 1).unwrap()[0];
    lab.write(1, 1, 1, CAP_PHY + 1, &[word & !(3 << 6) | 1 << 6]);
    lab.write(1, 1, 1, PORT_CS_19, &[1 << 24]);
    assert_eq!(lab.read(1, 1, 1, PORT_CS_19, 1).unwrap()[0] >> 24 & 1, 0);
    assert_eq!((lab.lane_rate(0, 1), lab.lane_rate(1, 1)), ((2, 8), (2, 4)));
}

#[test]
fn generation_4_links_come_up_bonded_and_are_never_single() {
    let mut lab = Lab::up("host a gen=4\nhost b gen=4\ncable ab a:1 b:1 lanes=2");
    assert_eq!((lab.lane_rate(0, 1), lab.lane_rate(1, 1)), ((2, 2), (2, 2)));
    assert!(lab.world.command("width ab single").unwrap_err().to_string().contains("two lanes"));
    lab.world.command("speed ab 3").unwrap();
    lab.world.command("width ab single").unwrap();
    assert_eq!(lab.lane_rate(0, 1), (4, 1));
    let mut lab = Lab::up("host a gen=4\nhost b gen=4\ncable ab a:1 b:1");
    assert_eq!(lab.lane_rate(0, 1), (4, 1), "one lane: generation 3");
}

#[test]
fn a_version_2_interface_is_reset_by_its_register() {
    let mut lab = Lab::up("host a router=v2\nhost b\ncable ab a:1 b:1 gen=2");
    assert_eq!(lab.lane_rate(0, 1), (8, 1));
    lab.world.bar_write(0, RESET, 1);
    assert_eq!(lab.world.bar_read(0, RESET), 0);
    assert!(!lab.world.is_up(0));
    lab.start(0);
    lab.run(SEC);
    assert!(lab.world.is_up(0));
}

#[test]
fn buffer_allocation_is_answered_and_other_operations_are_not_supported() {
    let mut lab = Lab::up("pair");
    lab.write(0, 0, 2, 26, &[1 << 31 | 0x33]);
    assert_eq!(lab.read(0, 0, 2, 25, 2), Ok(vec![1, 0x33]));
    assert_eq!(lab.read(0, 0, 2, 9, 1), Ok(vec![5 | 32 << 16]));
    lab.write(0, 0, 2, 26, &[1 << 31 | 0x24]);
    assert_eq!(lab.read(0, 0, 2, 26, 1), Ok(vec![0x24 | 1 << 30]));
}

#[test]
fn a_suspended_interface_is_woken_by_a_plug() {
    let mut lab = Lab::new("host a\nhost b\ncable ab a:1 b:1 unplugged");
    lab.start_all();
    lab.write(0, 1, 1, PORT_CS_19, &[1 << 16]); // wake on connect
    lab.stop(0, 0, true);
    lab.stop(0, 0, false);
    lab.world.config_write(0, 0x44, &[3, 1]); // D3hot, wake enabled
    lab.run(SEC);
    assert_eq!(lab.drivers[0].wakes, 0);
    lab.world.command("replug ab").unwrap();
    lab.run(10 * MS);
    assert_eq!(lab.drivers[0].wakes, 1);
    let mut status = [0; 2];
    lab.world.config_read(0, 0x44, &mut status);
    assert_eq!(status[1] >> 7, 1);
    lab.world.config_write(0, 0x44, &[0, 0x80]); // D0, status cleared
    lab.world.config_read(0, 0x44, &mut status);
    assert_eq!(status, [8, 0]);
    lab.start(0);
    lab.run(SEC);
    assert!(lab.world.is_up(0));
}

#[test]
fn two_interfaces_of_one_machine_are_two_domains() {
    let mut lab = Lab::up("twonhi");
    assert!(lab.world.is_up(0) && lab.world.is_up(1));
    let report = lab.world.report();
    assert_eq!(report.hosts[1].machine, "a");
    assert_ne!(report.hosts[0].uuid, report.hosts[1].uuid);
    lab.world.command("unplug ab1").unwrap();
    assert!(lab.world.is_up(0) && !lab.world.is_up(1));
}
