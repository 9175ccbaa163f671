//! The suite of all transports: with the direct copy from its usual size on, with short chunks in rows, with every chunk copied
//! directly through the smallest ring, and with the ring alone.

use crate::common::bed::{Shm, tiny};
use linkspan_shm::Config;

macro_rules! suite {
    ($module:ident, $name:ident, $config:expr) => {
        mod $module {
            use super::*;
            linkspan_transport::conformance_suite!(
                $name,
                Shm($config),
                ignored {
                    revocation: "below a rail there is nothing but the peer process: processes::*::revocation stops that"
                }
            );
        }
    };
}

suite!(usual, direct, Config::default());
suite!(small, tiny, tiny());
suite!(rows, rows, Config { ring: 64 << 10, rows: true, ..Config::default() });
suite!(without, ring, Config { cma: false, ..Config::default() });
