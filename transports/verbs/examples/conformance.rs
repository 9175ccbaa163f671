//! The conformance suite over a real RDMA device, both ends on it, in this process.
//!
//! `cargo run --release -p linkspan-verbs --example conformance -- DEVICE [PORT]`; without a name, the first device there
//! is. Exit code 4 when there is none. `LINKSPAN_CONFORMANCE=full` takes long.

use std::time::Duration;

use linkspan_transport::conformance::{Level, Room, Verdict, Want, behaviours};
use linkspan_transport::{Conn, Rail};
use linkspan_verbs::{Config, Domain, Setup, VerbsRail, join};
use linkspan_verbs_sys::Nic;
use linkspan_verbs_sys::hw::{HwNic, devices};

struct Device {
    domain: Domain<HwNic>,
    port: u8,
}

impl Device {
    fn rails(&self) -> (VerbsRail<HwNic>, VerbsRail<HwNic>) {
        let config = Config { port: self.port, linger: Duration::from_secs(1), ..Config::default() };
        let side = || Setup::new(self.domain.clone(), config.clone()).unwrap_or_else(|e| panic!("{e}"));
        join(side(), side()).unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Room for Device {
    type R = VerbsRail<HwNic>;

    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>) {
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.rails()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        2
    }

    fn extra_rail(&mut self) -> Option<(Self::R, Self::R)> {
        Some(Device::rails(self))
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().or_else(|| devices().ok()?.into_iter().next());
    let Some(name) = name else {
        eprintln!("there is no RDMA device on this machine (rdma link; modprobe rdma_rxe for one in software)");
        std::process::exit(4);
    };
    let port = args.next().and_then(|p| p.parse().ok()).unwrap_or(1);
    let nic = HwNic::open(&name).unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(4);
    });
    println!("{name}: {:?} {:?}", nic.port(port), nic.limits());
    let mut room = Device { domain: Domain::new(nic), port };
    println!("{}", room.rails().0.info().path);
    let level = Level::from_env();
    for (name, behaviour) in behaviours::<Device>() {
        let since = std::time::Instant::now();
        if let Verdict::Skipped(why) = behaviour(&mut room, level) {
            println!("{name}: cannot be tested here: {why}");
        }
        println!("{name}: {:.1} s", since.elapsed().as_secs_f64());
    }
    println!("passed");
}
