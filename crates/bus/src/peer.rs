//! `org.linkspan.Link1.Peer`.

use linkspan_service::admission::Host;
use zbus::interface;
use zbus::object_server::InterfaceRef;
use zbus::zvariant::OwnedObjectPath;

use crate::object_path;

/// A host as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerObject(pub(crate) Host);

/// A host at the other end of a Thunderbolt or USB4 cable. UUID and names are what it says of itself; nothing proves them.
#[interface(name = "org.linkspan.Link1.Peer")]
impl PeerObject {
    /// UUID of its router.
    #[zbus(property(emits_changed_signal = "const"))]
    fn uuid(&self) -> &str {
        &self.0.uuid
    }

    /// What it calls itself; empty: nothing.
    #[zbus(property)]
    fn name(&self) -> &str {
        self.0.name.as_deref().unwrap_or_default()
    }

    /// Its vendor; `Linux` for Linux 7.3, `Intel Corp.` for 6.12.
    #[zbus(property)]
    fn vendor(&self) -> &str {
        self.0.vendor.as_deref().unwrap_or_default()
    }

    /// The cables to it.
    #[zbus(property)]
    fn cables(&self) -> Vec<OwnedObjectPath> {
        self.0.cables.iter().map(|name| object_path("cable", name)).collect()
    }

    /// State of the link of the driver linkspan.ko to it, as in `up` or `waiting`; empty: it has none.
    #[zbus(property)]
    fn driver(&self) -> &str {
        self.0.driver.as_deref().unwrap_or_default()
    }

    /// Whether that driver lets it in now.
    #[zbus(property)]
    fn allowed(&self) -> bool {
        self.0.allowed
    }

    /// Whether it is let in whenever it is plugged in.
    #[zbus(property)]
    fn remembered(&self) -> bool {
        self.0.remembered
    }
}

/// As [`crate::cable::change`].
pub(crate) async fn change(object: &InterfaceRef<PeerObject>, new: PeerObject) -> zbus::Result<()> {
    let emitter = object.signal_emitter();
    let old = std::mem::replace(&mut *object.get_mut().await, new).0;
    let now = object.get().await;
    if old.name != now.0.name {
        now.name_changed(emitter).await?;
    }
    if old.vendor != now.0.vendor {
        now.vendor_changed(emitter).await?;
    }
    if old.cables != now.0.cables {
        now.cables_changed(emitter).await?;
    }
    if old.driver != now.0.driver {
        now.driver_changed(emitter).await?;
    }
    if old.allowed != now.0.allowed {
        now.allowed_changed(emitter).await?;
    }
    if old.remembered != now.0.remembered {
        now.remembered_changed(emitter).await?;
    }
    Ok(())
}
