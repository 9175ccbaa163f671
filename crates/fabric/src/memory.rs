//! The memory of the devices under a connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use linkspan_transport::{DirectBy, MemSlice, Rail, Refusal, Registrar, Registration};

use crate::chain;

/// The memory of the RDMA devices and cables under a connection: registered here, it costs the connection's operations nothing more.
/// Cheap to copy; copies are one, and know the paths that have come since.
#[derive(Clone, Default)]
pub struct ConnMemory(Arc<Mutex<Known>>);

/// What there is, and what paths that come later are told of.
#[derive(Default)]
struct Known {
    /// Of the paths that are up.
    devices: Vec<Arc<dyn Registrar>>,
    /// Device memory that is registered by its dma-buf.
    lent: Vec<Weak<Loan>>,
}

/// A dma-buf, for as long as the memory that is registered by it.
struct Loan {
    fd: OwnedFd,
    offset: u64,
    mem: MemSlice,
    target: bool,
    holds: Mutex<Vec<Registration>>,
}

fn refused(why: Refusal) -> String {
    chain(&*why)
}

impl ConnMemory {
    /// A path has come: what was registered before its time is taken back from it too, and device memory is registered with it by the
    /// dma-buf. Where that cannot be, the path has that memory staged, and why is what comes back.
    pub(crate) fn take_in(&self, rail: &(dyn Rail + Send)) -> Result<(), String> {
        let Some(device) = rail.registrar() else { return Ok(()) };
        // Under the lock: a thread that takes memory back meanwhile finds it registered here, or not at all.
        let mut known = self.lock();
        let Known { devices, lent } = &mut *known;
        lent.retain(|lent| lent.strong_count() > 0);
        devices.retain(|device| !device.is_over());
        if devices.iter().any(|known| known.id() == device.id()) {
            return Ok(());
        }
        devices.push(device.clone());
        lent.iter().filter_map(Weak::upgrade).try_for_each(|l| l.to(&*device))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// As they are now, without those that are gone: system calls are made without the lock.
    fn now(&self) -> Vec<Arc<dyn Registrar>> {
        let mut devices = self.lock().devices.clone();
        devices.retain(|device| !device.is_over());
        devices
    }

    /// Whether device memory is never registered here, only lent for sending.
    pub fn only_lends(&self) -> bool {
        let devices = &self.lock().devices;
        !devices.is_empty() && devices.iter().all(|device| device.lends_only())
    }

    /// Lends device memory by its dma-buf, `mem` at `offset` of it, to cards that send it from where it lies; for as long as the
    /// value lives. `None`: nothing here has a use for it.
    pub fn lend(&self, dmabuf: BorrowedFd<'_>, offset: u64, mem: MemSlice) -> Option<Registered> {
        let lent = self.now().iter().find_map(|device| device.lend(dmabuf, offset, mem))?;
        let mut lends = self.registered(mem);
        lends.sends = Some(lent);
        Some(lends)
    }

    /// Whether the connection has devices that registration means something to.
    pub fn is_registered(&self) -> bool {
        !self.lock().devices.is_empty()
    }

    /// Registers host memory with every RDMA device: for the peer to write where `target`, else to send from. (Rails over
    /// cables register by themselves, what is used.) It stays registered until the value is dropped, which must be before the
    /// memory is unmapped; paths that come up in the meantime forget it then, too.
    ///
    /// # Errors
    /// The error of the device that refused (`ibv_reg_mr(3)`), as text for the log.
    pub fn register(&self, mem: MemSlice, target: bool) -> Result<Registered, String> {
        let mut made = self.registered(mem);
        for device in self.now() {
            made.holds.extend(device.register(mem, target).map_err(refused)?);
        }
        Ok(made)
    }

    /// The same for memory that the peer may write from now on: where a device refuses, the chunk that needs it says so.
    pub(crate) fn exposed(&self, mem: MemSlice) -> Registered {
        let mut made = self.registered(mem);
        if mem.is_host() {
            made.holds.extend(self.now().iter().filter_map(|device| device.register(mem, true).ok().flatten()));
        }
        made
    }

    fn registered(&self, mem: MemSlice) -> Registered {
        Registered { mem, holds: Vec::new(), of: self.clone(), lent: None, sends: None }
    }
}

impl ConnMemory {
    /// Registers device memory with every device, so that they move it without staging: by its dma-buf, where `mem` lies at an
    /// offset, else by its address. `Ok` says how, and what was tried before without success.
    ///
    /// # Errors
    /// A device refuses both the dma-buf and the address; the text has both reasons. The memory has to be staged
    /// through host memory.
    pub fn register_device(
        &self,
        dmabuf: Option<(BorrowedFd<'_>, u64)>,
        mem: MemSlice,
        target: bool,
    ) -> Result<(Registered, DirectBy, Option<String>), String> {
        let mut why = "no dma-buf of it was given".to_owned();
        if let Some((fd, offset)) = dmabuf {
            // What took it before another did not forgets it with this.
            let mut held = self.registered(mem);
            match self.by_dmabuf(fd, offset, mem, target) {
                Ok(lent) => {
                    held.lent = Some(lent);
                    return Ok((held, DirectBy::DmaBuf, None));
                }
                Err(error) => why = error,
            }
        }
        let mut held = self.registered(mem);
        let devices = self.now();
        let mut by_address = devices.iter().filter(|device| !device.lends_only());
        match by_address.try_for_each(|d| d.register_peer(mem, target).map(|hold| held.holds.push(hold))) {
            Ok(()) => Ok((held, DirectBy::PeerMemory, dmabuf.map(|_| why))),
            Err(error) => Err(format!("by dma-buf: {why}; as peer memory: {}", refused(error))),
        }
    }

    /// With everything that there is, and with what comes later for as long as the result lives.
    fn by_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, mem: MemSlice, target: bool) -> Result<Arc<Loan>, String> {
        let fd = fd.try_clone_to_owned().map_err(|e| format!("its descriptor cannot be copied: {e}"))?;
        let lent = Arc::new(Loan { fd, offset, mem, target, holds: Mutex::default() });
        // Known first: a path that comes at this moment registers it too, which does no harm.
        let devices = {
            let mut known = self.lock();
            known.lent.retain(|lent| lent.strong_count() > 0);
            known.lent.push(Arc::downgrade(&lent));
            known.devices.clone()
        };
        // A cable that is away takes it when it is back.
        devices.iter().filter(|device| !device.is_over()).try_for_each(|device| lent.to(&**device))?;
        Ok(lent)
    }
}

impl Loan {
    fn to(&self, device: &dyn Registrar) -> Result<(), String> {
        let made = device.register_dmabuf(self.fd.as_fd(), self.offset, self.mem, self.target).map_err(refused)?;
        self.holds.lock().unwrap_or_else(|e| e.into_inner()).extend(made);
        Ok(())
    }
}

/// Memory registered by [`ConnMemory::register`].
///
/// When it has been dropped no peer writes there by RDMA any more, unless the same bytes are registered otherwise, by another
/// connection or by another value of this one.
pub struct Registered {
    mem: MemSlice,
    holds: Vec<Registration>,
    of: ConnMemory,
    /// What paths that come later register it by.
    lent: Option<Arc<Loan>>,
    /// Takes the memory back from cards that send from it.
    sends: Option<Registration>,
}

impl Registered {
    /// The memory.
    pub fn mem(&self) -> MemSlice {
        self.mem
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // First, so that no path that comes now registers it again.
        let devices = {
            let known = self.of.lock();
            self.lent = None;
            known.devices.clone()
        };
        self.holds.clear();
        // And what paths have registered by themselves.
        devices.iter().for_each(|device| device.invalidate(self.mem));
    }
}

#[cfg(test)]
mod tests {
    use linkspan_transport::StaticBuf;

    use super::*;

    #[test]
    fn device_memory_that_was_taken_back_leaves_nothing_behind() {
        let (memory, file) = (ConnMemory::default(), std::fs::File::open("/dev/null").unwrap());
        let buf = StaticBuf::new(8);
        for _ in 0..10 {
            let (lent, by, _) = memory.register_device(Some((file.as_fd(), 0)), buf.slice(), true).unwrap();
            assert_eq!(by, DirectBy::DmaBuf);
            drop(lent);
        }
        assert_eq!(memory.lock().lent.len(), 1);
    }
}
