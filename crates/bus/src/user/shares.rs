//! `org.linkspan.User1.Shares`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use linkspan_user::shares::{Kept, Status, Where};
use zbus::message::Header;
use zbus::object_server::{InterfaceRef, SignalEmitter};
use zbus::{Connection, interface};

use super::UserError;
use super::call::{Calls, options, texts};
use crate::dict::plain;
use crate::{Dict, to_dict};

/// The interface, with what was last told.
pub(crate) struct Shares {
    calls: Calls,
    status: Mutex<Status>,
}

impl Shares {
    pub(crate) fn new(calls: Calls) -> Shares {
        let status = Mutex::new(calls.user.shares.status());
        Shares { calls, status }
    }

    fn told(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Directories of this user that peers see.
#[interface(name = "org.linkspan.User1.Shares")]
impl Shares {
    /// Whether they are served now.
    #[zbus(property)]
    fn serving(&self) -> bool {
        self.told().serving
    }

    /// Where.
    #[zbus(property)]
    fn addresses(&self) -> Vec<String> {
        self.told().addresses.clone()
    }

    /// Why they are not, though they should be; begins with an error code.
    #[zbus(property)]
    fn error(&self) -> String {
        plain(self.told().error.clone())
    }

    /// All of them. Keys: name, directory (s), writable (b).
    #[zbus(out_args("shares"))]
    async fn list(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Vec<Dict>, UserError> {
        self.calls
            .blocking(connection, &header, |user| Ok(user.shares.status().shares.iter().map(to_dict).collect()))
            .await
    }

    /// The list is another one: List has it.
    #[zbus(signal)]
    async fn shares_changed(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;

    /// Lets peers see a directory under a name, whenever shares are served. `writable`: they may change it.
    async fn add(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        name: String,
        directory: String,
        writable: bool,
    ) -> Result<(), UserError> {
        texts("share", [&name, &directory])?;
        let new = Kept { name, directory: directory.into(), writable };
        self.calls.blocking(connection, &header, move |user| user.shares.add(new)).await?;
        (self.calls.user.changed)();
        Ok(())
    }

    /// Ends that.
    async fn remove(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        name: String,
    ) -> Result<(), UserError> {
        texts("share", [&name])?;
        self.calls.blocking(connection, &header, move |user| user.shares.remove(&name)).await?;
        (self.calls.user.changed)();
        Ok(())
    }

    /// Serves them to paired peers, or to those who have the cluster key, now and whenever the service runs. Options: bind (as, addresses;
    /// else every usable interface), port (q). These are where they are found: data, after a login, comes by every interface that linkspan
    /// uses (LINKSPAN_IFNAME).
    async fn serve(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        options: Dict,
    ) -> Result<(), UserError> {
        let at: Where = self::options(&options)?;
        self.calls.blocking(connection, &header, move |user| user.shares.serve(at)).await?;
        (self.calls.user.changed)();
        Ok(())
    }

    /// Serves them no more. Answers whether they were to be.
    #[zbus(out_args("served"))]
    async fn stop(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<bool, UserError> {
        let served = self.calls.blocking(connection, &header, |user| user.shares.stop()).await?;
        (self.calls.user.changed)();
        Ok(served)
    }
}

/// Tells those who listen what is different. A call that changes something may be under way, and is not waited for.
pub(crate) async fn change(object: &InterfaceRef<Shares>) -> zbus::Result<()> {
    let (emitter, shares) = (object.signal_emitter(), object.get().await);
    let now = shares.calls.user.shares.status();
    let old = std::mem::replace(&mut *shares.told(), now.clone());
    if old.serving != now.serving {
        shares.serving_changed(emitter).await?;
    }
    if old.addresses != now.addresses {
        shares.addresses_changed(emitter).await?;
    }
    if old.error != now.error {
        shares.error_changed(emitter).await?;
    }
    if old.shares != now.shares {
        Shares::shares_changed(emitter).await?;
    }
    Ok(())
}
