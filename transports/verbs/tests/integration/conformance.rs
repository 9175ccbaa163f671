//! The suite of all transports, over the software NIC: on a good wire, with every chunk asking for its place, and
//! on a wire that loses, doubles and delays packets.

use crate::common::Verbs;

mod good {
    use super::*;
    linkspan_transport::conformance_suite!(roce, Verbs::new());
}

mod bad {
    use super::*;
    linkspan_transport::conformance_suite!(lossy, Verbs::lossy());
}

mod infiniband {
    use super::*;
    linkspan_transport::conformance_suite!(lid, Verbs::infiniband());
}

linkspan_transport::processes_suite!(
    ignored processes,
    "the NIC in software lives in one process; over soft-RoCE the lab joins two machines"
);
