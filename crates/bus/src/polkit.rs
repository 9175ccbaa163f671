//! Who may do what: root everything, others what polkit says.

use std::collections::HashMap;

use zbus::message::{Flags, Header};
use zbus::names::UniqueName;
use zbus::zvariant::Value;
use zbus::{Connection, fdo, proxy};

use crate::Error;

#[proxy(
    interface = "org.freedesktop.PolicyKit1.Authority",
    default_service = "org.freedesktop.PolicyKit1",
    default_path = "/org/freedesktop/PolicyKit1/Authority",
    gen_blocking = false
)]
trait Authority {
    fn check_authorization(
        &self,
        subject: &(&str, HashMap<&str, Value<'_>>),
        action_id: &str,
        details: &HashMap<&str, &str>,
        flags: u32,
        cancellation_id: &str,
    ) -> zbus::Result<(bool, bool, HashMap<String, String>)>;
}

/// AllowUserInteraction of polkit's CheckAuthorizationFlags.
const INTERACTION: u32 = 1;

/// Who calls.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) name: UniqueName<'static>,
    pub(crate) uid: u32,
    interactive: bool,
}

impl Caller {
    /// The sender of a call, as the bus knows it.
    pub(crate) async fn of(connection: &Connection, header: &Header<'_>) -> Result<Caller, Error> {
        let name = header.sender().ok_or_else(|| fdo::Error::Failed("a call without a sender".into()));
        let name = name.map_err(|error| Error::ZBus(error.into()))?.to_owned();
        let bus = fdo::DBusProxy::new(connection).await?;
        let uid = bus.get_connection_unix_user(name.clone().into()).await.map_err(|e| Error::ZBus(e.into()))?;
        let interactive = header.primary().flags().contains(Flags::AllowInteractiveAuth);
        Ok(Caller { name, uid, interactive })
    }

    /// Whether it may do this. `details`, for rules of polkit and for who is asked: what it is to be done to.
    pub(crate) async fn may(
        &self,
        connection: &Connection,
        action: &str,
        details: &[(&str, String)],
    ) -> Result<(), Error> {
        if self.uid == 0 {
            return Ok(());
        }
        let no = |why: &str| Err(Error::NotAuthorized(format!("LS3221 user {} may not ({action}): {why}", self.uid)));
        let subject = ("system-bus-name", HashMap::from([("name", Value::from(self.name.as_str()))]));
        let flags = if self.interactive { INTERACTION } else { 0 };
        let details: HashMap<&str, &str> = details.iter().map(|(key, value)| (*key, &**value)).collect();
        let asked = async {
            let authority = AuthorityProxy::new(connection).await?;
            authority.check_authorization(&subject, action, &details, flags, "").await
        };
        match asked.await {
            Ok((true, ..)) => Ok(()),
            Ok((false, true, _)) => {
                no("a password is needed, and nobody was there to be asked; use sudo, or a rule of polkit")
            }
            Ok((false, false, _)) => no("polkit refuses it"),
            Err(error) => no(&format!("polkit does not answer ({error}); root may")),
        }
    }
}
