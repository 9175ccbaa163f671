//! The suite of all transports: with the direct copy from its usual size on, with short chunks in batches, with every chunk copied
//! directly through the smallest ring, and with the ring alone.

use crate::common::bed::{Shm, tiny};
use linkspan_shm::Config;

mod usual {
    use super::*;
    linkspan_transport::conformance_suite!(
        direct,
        Shm(Config::default()),
        ignored { revocation: "below a rail is only the peer process: processes::*::revocation stops that" }
    );
}

mod small {
    use super::*;
    linkspan_transport::conformance_suite!(
        tiny,
        Shm(tiny()),
        ignored { revocation: "below a rail is only the peer process: processes::*::revocation stops that" }
    );
}

mod batches {
    use super::*;
    linkspan_transport::conformance_suite!(
        batches,
        Shm(Config { ring: 64 << 10, batches: true, ..Config::default() }),
        ignored { revocation: "below a rail is only the peer process: processes::*::revocation stops that" }
    );
}

mod without {
    use super::*;
    linkspan_transport::conformance_suite!(
        ring,
        Shm(Config { cma: false, ..Config::default() }),
        ignored { revocation: "below a rail is only the peer process: processes::*::revocation stops that" }
    );
}
