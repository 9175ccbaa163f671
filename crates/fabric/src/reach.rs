//! Where a rail's stream leads and by which way: a cable of ours, the kernel's routes, or other hosts of a mesh.

use std::net::SocketAddr;
use std::time::Duration;

use linkspan_tcp::{Dial, Options, Stream};
use linkspan_topology::mesh::{Link, Route};
use linkspan_transport::WaitFd;

use crate::mesh::Approach;
use crate::mesh::hops::{self, Hops, Mark};
use crate::rdma::{Rdma, RdmaBerth};
use crate::{Fabric, chain};

/// A way to an address of the peer's listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To it at once, from an address and out of an interface where those are fixed.
    Plain { from: Option<SocketAddr>, to: SocketAddr, device: Option<String> },
    /// Over other hosts.
    Over(Route),
}

impl Reach {
    pub(crate) fn link(link: &Link) -> Reach {
        let from = Some(SocketAddr::new(link.from, 0));
        Reach::Plain { from, to: link.to, device: Some(link.interface.clone()) }
    }

    pub(crate) fn from(&self) -> Option<SocketAddr> {
        match self {
            Reach::Plain { from, .. } => *from,
            Reach::Over(route) => Some(SocketAddr::new(route.from, 0)),
        }
    }

    /// Where it ends.
    pub(crate) fn to(&self) -> SocketAddr {
        match self {
            Reach::Plain { to, .. } => *to,
            // A route has at least one hop.
            Reach::Over(route) => route.hops.last().copied().unwrap_or(SocketAddr::new(route.from, 0)),
        }
    }

    /// Whether both lead to the same place by the same way, whatever is known of its speed.
    pub(crate) fn is_same(&self, other: &Reach) -> bool {
        let ends = |r: &Reach| (r.from().map(|f| f.ip()), r.to(), r.relays());
        match (self, other) {
            (Reach::Over(a), Reach::Over(b)) => a.hops == b.hops && a.from == b.from,
            _ => ends(self) == ends(other),
        }
    }

    /// Where queue pairs can be set up beside a stream of this way, and with what mark a relay is told to. `Err` as
    /// [`crate::rdma::Rdma::berth`] has it.
    pub(crate) fn berth(
        &self,
        fabric: &Fabric,
        stream: &Stream,
        hops: Option<Hops>,
    ) -> Result<(RdmaBerth, Option<Mark>), String> {
        let (rdma, config) = (fabric.rdma(), fabric.config());
        let berth = rdma.berth(config, stream).map_err(|why| match &hops {
            // On a cable a host without a device is no news; on a way of several hops others have theirs for nothing.
            Some(Hops::Rdma(_)) if why.is_empty() && Rdma::wanted(config) => {
                format!("the host that connects has no RDMA device to use on {}", stream.interface())
            }
            Some(Hops::Tcp(hop)) if why.is_empty() && Rdma::wanted(config) && rdma.any(config) => hop.clone(),
            _ => why,
        })?;
        match (self, hops) {
            (Reach::Over(route), Some(Hops::Rdma(mark))) => {
                let shown = hops::shown("rdma", &route.over);
                Ok((berth.relayed(format!("relayed over {}: {shown}", route.over.join(", "))), Some(mark)))
            }
            (Reach::Over(_), Some(Hops::Tcp(why))) if why.is_empty() => Err(hops::EARLIER.into()),
            (Reach::Over(_), Some(Hops::Tcp(why))) => Err(why),
            _ => Ok((berth, None)),
        }
    }

    /// Hosts on the way.
    pub(crate) fn relays(&self) -> usize {
        match self {
            Reach::Plain { .. } => 0,
            Reach::Over(route) => route.over.len(),
        }
    }

    /// Its relays and its end as text for the log; `None` for a route without relays.
    pub(crate) fn way(&self) -> Option<String> {
        match self {
            Reach::Plain { .. } => None,
            Reach::Over(route) => Some(format!("the route over {} to {}", route.over.join(", "), self.to())),
        }
    }

    pub(crate) fn start(&self, fabric: &Fabric, limit: Duration) -> Result<Arriving, String> {
        match self {
            Reach::Plain { from, to, device } => {
                let options = Options { device: device.clone(), ..fabric.tcp_options() };
                Dial::start(*from, *to, &options, limit).map(Arriving::Dial).map_err(|e| chain(&e))
            }
            Reach::Over(route) => {
                let mesh = fabric.mesh().map_err(|e| chain(&e))?.ok_or("this process is in no mesh")?;
                let approach = Approach::start(&mesh.means, &route.interface, route.from, &route.hops, limit)?;
                Ok(Arriving::Approach(Box::new(approach)))
            }
        }
    }
}

/// A stream that is being made.
pub(crate) enum Arriving {
    Dial(Dial),
    Approach(Box<Approach>),
}

impl Arriving {
    /// The stream, and where it leads over others, what those say of the hops.
    pub(crate) fn poll(&mut self) -> Result<Option<(Stream, Option<Hops>)>, String> {
        match self {
            Arriving::Dial(dial) => Ok(dial.poll().map_err(|e| chain(&e))?.map(|stream| (stream, None))),
            Arriving::Approach(approach) => {
                Ok(approach.poll()?.map(|(stream, text)| (stream, Some(Hops::parse(&text)))))
            }
        }
    }

    pub(crate) fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        match self {
            Arriving::Dial(dial) => fds.extend(dial.wait_fd().map(|(fd, _)| fd)),
            Arriving::Approach(approach) => approach.wait_fds(fds),
        }
    }
}
