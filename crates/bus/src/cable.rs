//! `org.linkspan.Link1.Cable`.

use linkspan_topology::{Cable, Lanes};
use serde_json::json;
use zbus::interface;
use zbus::object_server::InterfaceRef;
use zbus::zvariant::{ObjectPath, OwnedObjectPath};

use crate::{Dict, object_path, to_dict};

/// A cable as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CableObject {
    name: String,
    medium: String,
    peer: OwnedObjectPath,
    receive: Lanes,
    send: Lanes,
    usable: bool,
    /// Means, what it goes over, whether it is usable, and why not.
    paths: Vec<(String, String, bool, Option<String>)>,
    notes: Vec<String>,
}

/// A link of unknown speed.
const UNKNOWN: Lanes = Lanes { lane_mbps: 0, lanes: 0 };

impl CableObject {
    /// `peer`: UUID of the host at its other end, if that has an object.
    pub(crate) fn new(cable: &Cable, peer: Option<&str>) -> CableObject {
        let path = |path: &linkspan_topology::CablePath| {
            (path.means.to_string(), path.over.clone(), path.usable, path.reason.clone())
        };
        CableObject {
            name: cable.name.clone(),
            medium: cable.medium.to_string(),
            peer: peer
                .map_or_else(|| ObjectPath::from_static_str_unchecked("/").into(), |uuid| object_path("peer", uuid)),
            receive: cable.link.rx.unwrap_or(UNKNOWN),
            send: cable.link.tx.unwrap_or(UNKNOWN),
            usable: cable.paths.iter().any(|path| path.usable),
            paths: cable.paths.iter().map(path).collect(),
            notes: cable.notes.clone(),
        }
    }
}

/// A cable with something at its other end.
#[interface(name = "org.linkspan.Link1.Cable")]
impl CableObject {
    /// The XDomain (`0-1`) or the network interface, as `lspan status` names it.
    #[zbus(property(emits_changed_signal = "const"))]
    fn name(&self) -> &str {
        &self.name
    }

    /// `thunderbolt`, `ethernet` or `infiniband`.
    #[zbus(property(emits_changed_signal = "const"))]
    fn medium(&self) -> &str {
        &self.medium
    }

    /// The host at its other end; `/` where the cable does not tell.
    #[zbus(property)]
    fn peer(&self) -> OwnedObjectPath {
        self.peer.clone()
    }

    /// Speed of one lane from the peer, Mb/s; 0: unknown.
    #[zbus(property)]
    fn receive_lane_mbps(&self) -> u32 {
        self.receive.lane_mbps
    }

    /// Lanes from the peer; 0: unknown.
    #[zbus(property)]
    fn receive_lanes(&self) -> u32 {
        self.receive.lanes
    }

    /// Speed of one lane to the peer, Mb/s; 0: unknown.
    #[zbus(property)]
    fn send_lane_mbps(&self) -> u32 {
        self.send.lane_mbps
    }

    /// Lanes to the peer; 0: unknown.
    #[zbus(property)]
    fn send_lanes(&self) -> u32 {
        self.send.lanes
    }

    /// Whether linkspan can move bytes over it.
    #[zbus(property)]
    fn usable(&self) -> bool {
        self.usable
    }

    /// Ways for bytes over it, best first: means (s), over (s), usable (b), and where there is one, reason (s).
    #[zbus(property)]
    fn paths(&self) -> Vec<Dict> {
        let dict = |(means, over, usable, reason): &(String, String, bool, Option<String>)| {
            to_dict(&json!({ "means": means, "over": over, "usable": usable, "reason": reason }))
        };
        self.paths.iter().map(dict).collect()
    }

    /// What else is worth knowing, a sentence each.
    #[zbus(property)]
    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Shows what has become of a cable, and tells those who listen what is different.
pub(crate) async fn change(object: &InterfaceRef<CableObject>, new: CableObject) -> zbus::Result<()> {
    let emitter = object.signal_emitter();
    let old = std::mem::replace(&mut *object.get_mut().await, new);
    let now = object.get().await;
    if old.peer != now.peer {
        now.peer_changed(emitter).await?;
    }
    if old.receive.lane_mbps != now.receive.lane_mbps {
        now.receive_lane_mbps_changed(emitter).await?;
    }
    if old.receive.lanes != now.receive.lanes {
        now.receive_lanes_changed(emitter).await?;
    }
    if old.send.lane_mbps != now.send.lane_mbps {
        now.send_lane_mbps_changed(emitter).await?;
    }
    if old.send.lanes != now.send.lanes {
        now.send_lanes_changed(emitter).await?;
    }
    if old.usable != now.usable {
        now.usable_changed(emitter).await?;
    }
    if old.paths != now.paths {
        now.paths_changed(emitter).await?;
    }
    if old.notes != now.notes {
        now.notes_changed(emitter).await?;
    }
    Ok(())
}
