//! Listening and connecting.

use linkspan_fabric::{Connecting, Fabric, HANDLE_LEN as FABRIC_HANDLE, Listener};

use crate::memory::Domain;
use crate::path::{Receiving, Sending};
use crate::plugin::{Machine, Plugin, fail};
use crate::{Connecting as NcclConnecting, Fail, HANDLE_LEN, ListenComm, Logger, Opened, OpenedRecv, OpenedSend};

// The fabric's handle ends in bytes that are always zero; NCCL's interface keeps 8 of those for itself.
const _: () = assert!(HANDLE_LEN >= linkspan_fabric::HANDLE_USED && HANDLE_LEN <= FABRIC_HANDLE);

/// A listener as NCCL holds it.
pub struct Listening {
    log: Logger,
    fabric: Fabric,
    listener: Listener,
    unpacks: bool,
}

impl Listening {
    pub(crate) fn new(
        log: Logger,
        fabric: &Fabric,
        (dev, unpacks): (usize, bool),
        handle: &mut [u8; HANDLE_LEN],
    ) -> Result<Listening, Fail> {
        let listener = fabric.listen(dev).map_err(|error| fail(log, &error))?;
        handle.copy_from_slice(&listener.handle()[..HANDLE_LEN]);
        Ok(Listening { log, fabric: fabric.clone(), listener, unpacks })
    }
}

impl<M: Machine> ListenComm<Plugin<M>> for Listening {
    fn accept(&mut self) -> Result<Option<OpenedRecv<Plugin<M>>>, Fail> {
        let channel = self.listener.accept().map_err(|error| fail(self.log, &error))?;
        Ok(channel.map(|channel| {
            let domain = Domain::receiving(&self.fabric, &channel);
            Opened { path: Receiving::new(self.log, channel), domain }
        }))
    }

    fn unpacks(&self) -> bool {
        self.unpacks
    }
}

/// A connection that is coming up.
pub struct Dialling {
    log: Logger,
    fabric: Fabric,
    connecting: Connecting,
}

impl Dialling {
    pub(crate) fn new(
        log: Logger,
        fabric: &Fabric,
        dev: usize,
        traffic_class: Option<u8>,
        handle: &[u8; HANDLE_LEN],
    ) -> Result<Dialling, Fail> {
        let mut whole = [0; FABRIC_HANDLE];
        whole[..HANDLE_LEN].copy_from_slice(handle);
        let fabric = match traffic_class {
            Some(class) => fabric.with_traffic_class(class),
            None => fabric.clone(),
        };
        let connecting = fabric.connect(dev, &whole).map_err(|error| fail(log, &error))?;
        Ok(Dialling { log, fabric, connecting })
    }
}

impl<M: Machine> NcclConnecting<Plugin<M>> for Dialling {
    fn poll(&mut self) -> Result<Option<OpenedSend<Plugin<M>>>, Fail> {
        let channel = self.connecting.poll().map_err(|error| fail(self.log, &error))?;
        Ok(channel.map(|channel| {
            let domain = Domain::sending(&self.fabric, &channel);
            Opened { path: Sending::new(self.log, channel), domain }
        }))
    }
}
