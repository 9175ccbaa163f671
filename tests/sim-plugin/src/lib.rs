//! The NCCL plugin, but for the machine that it sees: every interface has a network card in software that puts payload into
//! pages of GPU memory. `tests/plugin-host` plays NCCL's kernels on it. The released plugin has nothing of this.
#![deny(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use linkspan_devmem::sim::{SimConfig, SimSocket};
use linkspan_devmem::{Owner, Socket};
use linkspan_fabric::Fabric;
use linkspan_fabric::devmem::Ports;
use linkspan_stream::Stream;

linkspan_plugin::export!(|config, log| Fabric::with_ports(config, log, false, Arc::new(Cards)));

/// Every interface has one.
#[derive(Debug)]
struct Cards;

#[allow(unsafe_code)]
// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Ports for Cards {
    fn ready(&self, _interface: &str) -> Result<(), String> {
        Ok(())
    }

    fn socket(&self, stream: Stream) -> Box<dyn Socket> {
        let (path, seed) = (stream.path(), u64::from(stream.local_addr().port()));
        let config = SimConfig { seed, pages: 2048, lends: false, ..SimConfig::default() };
        Box::new(SimSocket::beside_any(Held(Some(stream)), path, config))
    }
}

/// A stream that still arrives when it is dropped.
#[derive(Debug)]
struct Held(Option<Stream>);

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("held until it is dropped").as_fd()
    }
}

impl Owner for Held {
    fn ends(&self) -> (SocketAddr, SocketAddr) {
        let stream = self.0.as_ref().expect("held until it is dropped");
        (stream.local_addr(), stream.peer_addr())
    }

    fn cut(&mut self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            stream.leave();
        }
    }
}
