//! Where a rail's stream leads and by which path: a cable of ours, the kernel's routes, or other hosts of a mesh.

use std::net::SocketAddr;
use std::time::Duration;

use linkspan_mesh::Approach;
use linkspan_mesh::hops::{self, Hops, RelayMark};
use linkspan_proto::greeting::Greeting;
use linkspan_setup::handshake::Handshake;
use linkspan_setup::secured::Secured;
use linkspan_stream::{Dial, Options, Stream};
use linkspan_topology::is_link_local;
use linkspan_topology::mesh::{MeshLink, Route};
use linkspan_transport::{Offer, Provider, Role, Site};

use crate::stream_setup::SetupState;
use crate::{Fabric, chain};

/// A path to an address of the peer's listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// To it at once, from an address and out of an interface where those are fixed.
    Plain { from: Option<SocketAddr>, to: SocketAddr, device: Option<String> },
    /// Over other hosts.
    Over(Route),
}

impl Path {
    pub(crate) fn link(link: &MeshLink) -> Path {
        let from = Some(SocketAddr::new(link.from, 0));
        Path::Plain { from, to: link.to, device: Some(link.interface.clone()) }
    }

    pub(crate) fn from(&self) -> Option<SocketAddr> {
        match self {
            Path::Plain { from, .. } => *from,
            Path::Over(route) => Some(SocketAddr::new(route.from, 0)),
        }
    }

    /// Where it ends.
    pub(crate) fn to(&self) -> SocketAddr {
        match self {
            Path::Plain { to, .. } => *to,
            // A route has at least one hop.
            Path::Over(route) => route.hops.last().copied().unwrap_or(SocketAddr::new(route.from, 0)),
        }
    }

    /// Whether both lead to the same place by the same way, whatever is known of its speed.
    pub(crate) fn is_same(&self, other: &Path) -> bool {
        let ends = |r: &Path| (r.from().map(|f| f.ip()), r.to(), r.relays());
        match (self, other) {
            (Path::Over(a), Path::Over(b)) => a.hops == b.hops && a.from == b.from,
            _ => ends(self) == ends(other),
        }
    }

    /// What rails can be set up with beside a stream of this way. `Err` as [`Provider::offer`] has it.
    pub(crate) fn offer(
        &self,
        fabric: &Fabric,
        provider: &dyn Provider,
        stream: &Stream,
        hops: Option<Hops>,
    ) -> Result<Beside, String> {
        let site = fabric.config().site(stream.local_addr());
        let to = self.to();
        let (Path::Over(route), Some(hops)) = (self, hops) else {
            return provider.offer(&site).map(|offer| Beside::new(offer, to));
        };
        if provider.relayer().is_none() {
            return Err(String::new());
        }
        let reason = format!("relayed over {}: {}", route.over.join(", "), hops::shown("rdma", &route.over));
        let offer = provider.offer(&Site { relayed: Some(&reason), ..site }).map_err(|why| match &hops {
            // On a cable a host without a device is no news; on a way of several hops others have theirs for nothing.
            Hops::Rdma(_) if why.is_empty() => {
                format!("the host that connects has no RDMA device to use on {}", stream.interface())
            }
            Hops::Tcp(hop) if why.is_empty() && provider.is_present() => hop.clone(),
            _ => why,
        })?;
        match hops {
            Hops::Rdma(mark) => Ok(Beside { mark: Some(mark), ..Beside::new(offer, to) }),
            Hops::Tcp(why) if why.is_empty() => Err(hops::EARLIER.into()),
            Hops::Tcp(why) => Err(why),
        }
    }

    /// Whether it leads over a cable of ours that may have another host at its other end: link-local addresses do not say.
    pub(crate) fn is_guess(&self) -> bool {
        matches!(self, Path::Plain { from: Some(_), to, .. } if is_link_local(to.ip()))
    }

    /// Hosts on the way.
    pub(crate) fn relays(&self) -> usize {
        match self {
            Path::Plain { .. } => 0,
            Path::Over(route) => route.over.len(),
        }
    }

    /// The reason of a path over other hosts: which they are.
    pub(crate) fn relayed(&self) -> Option<String> {
        match self {
            Path::Plain { .. } => None,
            Path::Over(route) => Some(format!("relayed over {}", route.over.join(", "))),
        }
    }

    /// Its relays and its end as text for the log; `None` for a route without relays.
    pub(crate) fn way(&self) -> Option<String> {
        match self {
            Path::Plain { .. } => None,
            Path::Over(route) => Some(format!("the route over {} to {}", route.over.join(", "), self.to())),
        }
    }

    /// Begins to connect a stream.
    pub(crate) fn start(&self, fabric: &Fabric, limit: Duration) -> Result<SetupState, String> {
        match self {
            Path::Plain { from, to, device } => {
                let options = Options { device: device.clone(), ..fabric.tcp_options() };
                Dial::start(*from, *to, &options, limit).map(SetupState::Dial).map_err(|e| chain(&e))
            }
            Path::Over(route) => {
                let mesh = fabric.mesh().map_err(|e| chain(&e))?.ok_or("this process is in no mesh")?;
                let approach = Approach::start(&mesh.means, &route.interface, route.from, &route.hops, limit)?;
                Ok(SetupState::Approach(Box::new(approach)))
            }
        }
    }
}

/// Rails that may come up beside a stream of ours.
pub(crate) struct Beside {
    pub(crate) offer: Box<dyn Offer>,
    /// Where the peer is.
    to: SocketAddr,
    /// What tells the relays of the stream's route.
    mark: Option<RelayMark>,
}

impl Beside {
    /// Beside a stream without relays to `to`.
    pub(crate) fn new(offer: Box<dyn Offer>, to: SocketAddr) -> Beside {
        Beside { offer, to, mark: None }
    }

    /// Begins behind the login of their stream, or says why it does not, empty where people need not be told.
    ///
    /// # Errors
    /// A text for the log: the route over other hosts broke before it changed to RDMA. The stream is of no more use.
    pub(crate) fn begin(
        &self,
        role: Role,
        secured: &mut Secured,
        peer: &Greeting,
    ) -> Result<Result<Handshake, String>, &'static str> {
        let asks = peer.asks == self.offer.name();
        Ok(match &self.mark {
            _ if secured.is_sealed() => Err(String::new()),
            _ if role == Role::Answerer => Ok(Handshake::answer()),
            // On a cable a host without a device is not worth a line; on a route of several hops the others have theirs for nothing.
            None if !asks && peer.why_not.is_empty() => Err(String::new()),
            _ if !asks => Err(hops::refusal(peer, self.to)),
            // A listener that answers so waits for a handshake: it is told, too, that there is none.
            None => Ok(Handshake::begin(&*self.offer)),
            // A stream on which nothing is under way takes these few bytes.
            Some(mark) if matches!(secured.stream.try_write(&mark.0), Ok(Some(RelayMark::LEN))) => {
                Ok(Handshake::answer())
            }
            Some(_) => return Err(hops::BROKE),
        })
    }
}
