//! The suite that every room passes: with the direct copy from its usual size on, with short chunks in rows, with every chunk copied directly
//! through the smallest ring, and with the ring alone.

use linkspan_shm::{Config, ShmRail, pair};
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

struct Shm(Config);

impl Room for Shm {
    type R = ShmRail;

    fn pair(&mut self, want: Want) -> (Conn<ShmRail>, Conn<ShmRail>) {
        let rails: Vec<_> = (0..want.rails).map(|_| pair(self.0).expect("a rail")).collect();
        let (a, b): (Vec<_>, Vec<_>) = rails.into_iter().unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        2
    }

    fn extra_rail(&mut self) -> Option<(ShmRail, ShmRail)> {
        pair(self.0).ok()
    }
}

fn tiny() -> Config {
    Config { ring: 64 << 10, cma_from: 1, slice: 4096, ..Config::default() }
}

mod usual {
    use super::*;
    linkspan_transport::conformance_suite!(direct, Shm(Config::default()));
}

mod small {
    use super::*;
    linkspan_transport::conformance_suite!(tiny, Shm(tiny()));
}

mod rows {
    use super::*;
    linkspan_transport::conformance_suite!(rows, Shm(Config { ring: 64 << 10, rows: true, ..Config::default() }));
}

mod without {
    use super::*;
    linkspan_transport::conformance_suite!(ring, Shm(Config { cma: false, ..Config::default() }));
}
