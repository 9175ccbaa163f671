//! Planted bugs of the transport, each of which must be caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use std::sync::Arc;

use crate::common::SimRail;
use crate::common::bed::{Devmem, PAYLOAD};
use linkspan_devmem::sim::SimConfig;
use linkspan_devmem::{PlantedBug, plant};
use linkspan_gpu::Gpu;
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_transport::Buf;
use linkspan_transport::conformance::{Level, Patience, Testbed, Want, behaviours};

/// Memory that is used again as soon as its send reports.
fn source_used_again() {
    let mut bed = Devmem::new(SimConfig { seed: 5, ..SimConfig::default() });
    let any: Arc<dyn Gpu> = bed.gpu.clone();
    let (mut a, mut b) = bed.pair(Want::PLAIN);
    let (src, dst) = (StaticGpuBuf::new(&any, 1 << 20).unwrap(), StaticGpuBuf::new(&any, 1 << 20).unwrap());
    for round in 0..8u8 {
        assert!(src.slice().fill(0, &vec![round; 1 << 20]));
        let recv = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
        let (mut send, mut sent) = (None, false);
        crate::common::until("the message", || {
            send = send.or_else(|| a.post_send(1, src.slice()).unwrap());
            a.progress().unwrap();
            b.progress().unwrap();
            if !sent && a.test(send?).unwrap().is_some() {
                sent = true;
                assert!(src.slice().fill(0, &vec![0xEE; 1 << 20]));
            }
            b.test(recv).unwrap()
        });
        assert!(dst.slice().to_vec() == vec![round; 1 << 20], "round {round}");
    }
}

/// The first behaviour that fails, by name.
fn caught_by() -> Option<&'static str> {
    if catch_unwind(source_used_again).is_err() {
        return Some("source_used_again");
    }
    let tried = behaviours::<SimRail>().into_iter().filter(|b| PAYLOAD[1..4].contains(&b.0));
    tried.into_iter().find_map(|(name, behaviour)| {
        let run = || {
            let mut bed = Devmem::new(SimConfig { seed: 3, pages: 96, linear: 7, plain: 29, ..SimConfig::default() });
            bed.patience = Patience::Wall(Duration::from_secs(20));
            behaviour(&mut bed, Level::Quick);
        };
        catch_unwind(AssertUnwindSafe(run)).is_err().then_some(name)
    })
}

#[test]
fn every_planted_bug_is_caught() {
    assert_eq!(caught_by(), None, "without a bug");
    for bug in [
        PlantedBug::TokensEarly,
        PlantedBug::NoFlush,
        PlantedBug::LandedEarly,
        PlantedBug::ReusedEarly,
        PlantedBug::TakenEarly,
        PlantedBug::SplitToken,
    ] {
        plant(Some(bug));
        let caught = caught_by();
        plant(None);
        println!("{bug:?} is caught by {}", caught.unwrap_or_else(|| panic!("{bug:?} was not caught")));
    }
}
