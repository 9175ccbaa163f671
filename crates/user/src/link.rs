//! A fabric channel as the performance tests want it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use linkspan_fabric::{
    Channel, ChannelError, Error, Fabric, Gpu, GpuBuf, GpuError, HANDLE_LEN, HostBuf, MemSlice, MemoryName, Poll,
};
use linkspan_net::WaitSet;
use linkspan_perf::Interrupt;
use linkspan_perf::link::{Connector, Leftovers, Link, LinkDesc, LinkError, MessageMemory, Ticket};

/// A channel, and where messages are.
pub struct FabricLink {
    channel: Channel,
    memory: MemoryName,
    /// Its rails as it came up, for messages: one that is lost has none.
    path: String,
    /// Dropped after the channel.
    leftovers: Leftovers,
}

/// Device memory of a test. Another test wants another size, and other users of the device want what it does not.
#[derive(Debug)]
struct OnDevice {
    buf: GpuBuf,
    _then: GivesBack,
}

#[derive(Debug)]
struct GivesBack(Arc<dyn Gpu>);

impl Drop for GivesBack {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

#[allow(unsafe_code)]
impl MessageMemory for OnDevice {
    unsafe fn slice(&self) -> MemSlice {
        // SAFETY: the caller's promise.
        unsafe { self.buf.slice() }
    }
}

impl FabricLink {
    /// Messages in memory of this GPU, or on the host.
    pub fn new(mut channel: Channel, gpu: Option<&Arc<dyn Gpu>>) -> Result<FabricLink, GpuError> {
        let memory = match gpu {
            Some(gpu) => {
                channel.attach(gpu)?;
                MemoryName::Device(gpu.info().kind, gpu.info().ordinal)
            }
            None => MemoryName::Host,
        };
        let mut link = FabricLink { channel, memory, path: String::new(), leftovers: Leftovers::default() };
        link.path = link.describe().path;
        Ok(link)
    }

    #[cold]
    fn failed(&self, what: &'static str, error: ChannelError) -> LinkError {
        let now = self.describe().path;
        let path = if now.is_empty() { self.path.clone() } else { now };
        match error {
            ChannelError::Lost => {
                let why = self.channel.lost().unwrap_or_else(|| "the connection is lost".into());
                LinkError::PeerGone { path, why }
            }
            ChannelError::Closed => LinkError::PeerGone { path, why: "it closed the connection".into() },
            other => LinkError::Failed { what, path, source: Box::new(other) },
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: memory is posted on a channel, which forgets it when the operation has reported or the link is dropped.
unsafe impl Link for FabricLink {
    fn describe(&self) -> LinkDesc {
        let join = |parts: Vec<&str>| {
            let mut once: Vec<&str> = Vec::new();
            for part in parts {
                if !once.contains(&part) {
                    once.push(part);
                }
            }
            once.join(", ")
        };
        let rails: Vec<_> = self.channel.rails().collect();
        let ends = rails.first().map_or((None, None), |rail| ends(&rail.path));
        LinkDesc {
            transport: join(rails.iter().map(|rail| rail.transport).collect()),
            path: join(rails.iter().map(|rail| &*rail.path).collect()),
            reason: join(rails.iter().map(|rail| &*rail.reason).collect()),
            lines: self.channel.path_lines(),
            memory: self.memory,
            local: ends.0,
            peer: ends.1,
        }
    }

    fn leftovers(&self) -> Leftovers {
        self.leftovers.clone()
    }

    fn memory(&self, len: usize) -> Result<Box<dyn MessageMemory>, LinkError> {
        let Some(gpu) = self.channel.gpu() else { return Ok(Box::new(HostBuf::new(len))) };
        match GpuBuf::new(gpu, len) {
            Ok(buf) => Ok(Box::new(OnDevice { buf, _then: GivesBack(gpu.clone()) })),
            Err(error) => {
                Err(LinkError::Failed { what: "device memory", path: self.describe().path, source: Box::new(error) })
            }
        }
    }

    fn post_send(&mut self, tag: u32, mem: MemSlice) -> Result<Option<Ticket>, LinkError> {
        match self.channel.post_send(tag, mem) {
            Ok(ticket) => Ok(ticket.map(|ticket| Ticket(ticket.to_u64()))),
            Err(error) => Err(self.failed("send", error)),
        }
    }

    fn post_recv(&mut self, tag: u32, mem: MemSlice) -> Result<Option<Ticket>, LinkError> {
        match self.channel.post_recv(&[(tag, mem)]) {
            Ok(ticket) => Ok(ticket.map(|ticket| Ticket(ticket.to_u64()))),
            Err(error) => Err(self.failed("receive", error)),
        }
    }

    fn progress(&mut self) -> Result<bool, LinkError> {
        match self.channel.progress() {
            Ok(poll) => Ok(poll == Poll::Active),
            Err(error) => Err(self.failed("progress", error)),
        }
    }

    fn test(&mut self, ticket: Ticket) -> Result<Option<usize>, LinkError> {
        match self.channel.test(linkspan_fabric::Ticket::from_u64(ticket.0)) {
            Ok(done) => Ok(done.map(|bytes| bytes as usize)),
            Err(error) => Err(self.failed("operation", error)),
        }
    }

    fn wait(&mut self, most: Duration) -> Result<(), LinkError> {
        self.channel.wait(most);
        Ok(())
    }
}

/// The addresses in a path such as `lo 127.0.0.1:4000 -> 127.0.0.1:5000`; none in a path without addresses.
fn ends(path: &str) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let addr = |part: &str| part.split_whitespace().find_map(|word| word.parse().ok());
    match path.split_once("->") {
        Some((local, peer)) => (addr(local), addr(peer)),
        None => (None, None),
    }
}

/// Connects through a fabric to one listener.
pub struct FabricConnector {
    /// Of this side.
    pub fabric: Fabric,
    /// Its device.
    pub device: usize,
    /// That of the listener.
    pub handle: [u8; HANDLE_LEN],
    /// Where messages are on this side; `None`: on the host.
    pub gpu: Option<Arc<dyn Gpu>>,
    /// Whom the handle is from, for messages.
    pub peer: String,
    /// Ends the attempt.
    pub interrupt: Interrupt,
}

impl Connector for FabricConnector {
    type Link = FabricLink;

    fn connect(&self) -> Result<FabricLink, LinkError> {
        let failed = |error: Error| match error {
            Error::Unreachable { .. } | Error::Forced { .. } | Error::Vanished { .. } | Error::NoDevice { .. } => {
                LinkError::NoPeer { peer: self.peer.clone(), why: linkspan_fabric::chain(&error) }
            }
            error => LinkError::Failed { what: "connect", path: self.peer.clone(), source: Box::new(error) },
        };
        let mut connecting = self.fabric.connect(self.device, &self.handle).map_err(failed)?;
        let (mut waits, mut fds) = (WaitSet::new(), Vec::new());
        loop {
            if let Some(channel) = connecting.poll().map_err(failed)? {
                let path = channel.describe();
                return FabricLink::new(channel, self.gpu.as_ref()).map_err(|error| LinkError::Failed {
                    what: "device memory",
                    path,
                    source: Box::new(error),
                });
            }
            if self.interrupt.raised() {
                return Err(LinkError::Interrupted);
            }
            waits.clear();
            fds.clear();
            connecting.wait_fds(&mut fds);
            fds.iter().for_each(|fd| {
                waits.add(*fd);
            });
            // Not everything that moves a set-up on has a descriptor; a millisecond is short beside a handshake.
            let _ = waits.wait(Some(Duration::from_millis(1)));
        }
    }
}

#[cfg(test)]
mod tests;
