//! The suite with the memory of a simulated GPU, staged: through the ring alone, and with direct copies from and to the
//! pinned buffers.

use crate::common::bed::Shm;
use linkspan_gpu::conformance::Staged;
use linkspan_shm::Config;

macro_rules! suite {
    ($module:ident, $config:expr) => {
        mod $module {
            use super::*;
            linkspan_transport::conformance_suite!(
                device,
                Staged::new(Shm($config)),
                ignored {
                    revocation: "below a rail there is nothing but the peer process: processes::*::revocation stops that"
                }
            );
        }
    };
}

suite!(direct, Config::default());
suite!(rows, Config { rows: true, ..Config::default() });
suite!(ring, Config { cma: false, ..Config::default() });
