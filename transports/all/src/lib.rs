//! The transports whose rails come up beside a stream, as linkspan is released with them: the one list of them. Whoever makes a fabric
//! gives it this list, or one of their own.
#![forbid(unsafe_code)]

use linkspan_thunderbolt::Cables;
use linkspan_transport::Provider;
use linkspan_verbs::Rdma;

/// All of them, best first: where two hosts could take several, they take the first.
pub fn all() -> Vec<Box<dyn Provider>> {
    vec![Box::new(Rdma::default()), Box::new(Cables::default())]
}

/// Their names, in the same order.
pub fn names() -> Vec<&'static str> {
    all().iter().map(|transport| transport.name()).collect()
}
