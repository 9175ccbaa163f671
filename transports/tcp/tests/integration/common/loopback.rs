//! Rails over loopback as the suite wants them: where it stalls or kills one, its stream goes by way of a proxy.

use linkspan_stream::{Options, Stream};
use linkspan_tcp::{TcpRail, ZeroCopyPolicy};
use linkspan_transport::Rail;
use linkspan_transport::conformance::{Proxies, Side, Testbed, Want};

use super::{V4, lend_over, streams, streams_by};

/// Makes rails of both ends of a stream.
type Make<R> = Box<dyn FnMut(Want, (Stream, Stream)) -> (R, R)>;

pub(crate) struct Loopback<R> {
    make: Make<R>,
    proxies: Proxies,
}

impl<R> Loopback<R> {
    pub(crate) fn new(make: impl FnMut(Want, (Stream, Stream)) -> (R, R) + 'static) -> Loopback<R> {
        Loopback { make: Box::new(make), proxies: Proxies::default() }
    }
}

/// Plain ones.
pub(crate) fn plain() -> Loopback<TcpRail> {
    Loopback::new(|_, streams| lend_over(streams, ZeroCopyPolicy::Never))
}

impl<R: Rail> Testbed for Loopback<R> {
    type R = R;

    fn rail(&mut self, want: Want, n: usize) -> (R, R) {
        let options = Options::default();
        let streams = if want.faults {
            self.proxies.begin(n);
            streams_by(V4, &options, |listener| self.proxies.before(listener))
        } else {
            streams(V4, &options)
        };
        (self.make)(want, streams)
    }

    fn rails(&self) -> usize {
        3
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.proxies.stall(side, n);
    }

    fn release(&mut self) {
        self.proxies.release();
    }

    fn kill(&mut self, _: Side) {
        self.proxies.kill();
    }
}
