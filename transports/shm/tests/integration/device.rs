//! The suite with the memory of a simulated GPU, staged: through the ring alone, and with direct copies from and to the
//! pinned buffers.

use crate::common::bed::Shm;
use linkspan_gpu::conformance::Staged;
use linkspan_shm::Config;

mod direct {
    use super::*;
    linkspan_transport::conformance_suite!(
        device,
        Staged::new(Shm(Config::default())),
        ignored { revocation: "below a rail is only the peer process: processes::*::revocation stops that" }
    );
}

mod batches {
    use super::*;
    linkspan_transport::conformance_suite!(
        device,
        Staged::new(Shm(Config { batches: true, ..Config::default() })),
        ignored { revocation: "below a rail is only the peer process: processes::*::revocation stops that" }
    );
}

mod ring {
    use super::*;
    linkspan_transport::conformance_suite!(
        device,
        Staged::new(Shm(Config { cma: false, ..Config::default() })),
        ignored { revocation: "below a rail is only the peer process: processes::*::revocation stops that" }
    );
}
