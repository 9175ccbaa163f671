//! What the kernel says when devices come and go (uevents) and links and their addresses change (rtnetlink). It is a reason to look again, not more: what is
//! there is read from sysfs, so a message that is lost, late or made up changes nothing.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketAddrAny, SocketFlags, SocketType, bind, recvfrom, socket_with,
};

/// The kernel's own uevents; those of group 2 are udev's (`enum udev_monitor_netlink_group` of libudev).
const UEVENT_KERNEL: u32 = 1;

/// NETLINK_ROUTE of linux/netlink.h is protocol 0, which is the one without a number.
const NETLINK_ROUTE: Option<Protocol> = None;

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR of linux/rtnetlink.h.
const LINK: u32 = 1;
const ADDRESSES: u32 = 0x10 | 0x100;

/// Longest uevent: UEVENT_BUFFER_SIZE of linux/kobject.h and the line before it. Longer ones are cut, which harms nothing.
const MESSAGE: usize = 4096;

/// Most names of removed cables that are kept between two looks. There are no more ports on any machine.
const REMOVED: usize = 256;

/// Most messages that are read before the next look.
const MESSAGES: usize = 10_000;

/// What may be different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Something that linkspan shows.
    pub any: bool,
    /// Thunderbolt hosts that went, by name; they may be there again.
    pub removed: BTreeSet<String>,
}

/// Sockets on which the kernel speaks. Needs no privilege.
#[derive(Debug)]
pub struct KernelWatch {
    uevents: OwnedFd,
    links: OwnedFd,
}

impl KernelWatch {
    /// Listens from now on.
    ///
    /// # Errors
    /// The error of socket(2) or bind(2), as in a container that forbids netlink.
    pub fn open() -> io::Result<KernelWatch> {
        let uevents = listen(Some(KOBJECT_UEVENT), UEVENT_KERNEL)?;
        // An interface without an address carries nothing, and often gets it some seconds after its link.
        Ok(KernelWatch { uevents, links: listen(NETLINK_ROUTE, LINK | ADDRESSES)? })
    }

    /// Readable when there is something to [`KernelWatch::take`].
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.uevents.as_fd(), self.links.as_fd()]
    }

    /// Waits until the kernel says something, or for so many milliseconds.
    ///
    /// # Errors
    /// The error of poll(2); a signal is none.
    pub fn wait(&self, ms: u64) -> io::Result<()> {
        let mut fds = self.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let most = Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000) as i64 * 1_000_000 };
        match poll(&mut fds, Some(&most)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What was said since the last call.
    pub fn take(&self) -> Changes {
        let mut changes = Changes::default();
        drain(&self.uevents, &mut |message| match message {
            Some(bytes) => changes.hear(bytes),
            None => changes.any = true,
        });
        drain(&self.links, &mut |_| changes.any = true);
        changes
    }
}

/// Hears of it when interfaces, or their addresses, come and go. Needs no privilege.
#[derive(Debug)]
pub(crate) struct AddressWatch(OwnedFd);

impl AddressWatch {
    /// Listens from now on.
    pub(crate) fn open() -> io::Result<AddressWatch> {
        listen(NETLINK_ROUTE, LINK | ADDRESSES).map(AddressWatch)
    }

    /// Readable when something may be different.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether something may be different since the last call.
    pub(crate) fn changed(&self) -> bool {
        let mut any = false;
        drain(&self.0, &mut |_| any = true);
        any
    }
}

fn listen(protocol: Option<Protocol>, groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
    bind(&fd, &SocketAddrNetlink::new(0, groups))?;
    Ok(fd)
}

/// Hands each message of the kernel to `with`; `None`: some were lost.
fn drain(fd: &OwnedFd, with: &mut dyn FnMut(Option<&[u8]>)) {
    let mut space = [MaybeUninit::uninit(); MESSAGE];
    for _ in 0..MESSAGES {
        match recvfrom(fd, &mut space, RecvFlags::DONTWAIT) {
            Ok(((bytes, _), _, from)) if from_kernel(from.as_ref()) => with(Some(bytes)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::NOBUFS) => with(None),
            Err(_) => return,
        }
    }
}

/// Whether it is the kernel that speaks: its port number is 0.
fn from_kernel(from: Option<&SocketAddrAny>) -> bool {
    from.and_then(|addr| SocketAddrNetlink::try_from(addr.clone()).ok()).is_some_and(|addr| addr.pid() == 0)
}

impl Changes {
    /// A uevent: `ACTION@PATH` and `KEY=VALUE`, each with a zero byte behind it.
    fn hear(&mut self, message: &[u8]) {
        let mut parts = message.split(|byte| *byte == 0).filter_map(|part| std::str::from_utf8(part).ok());
        let Some((action, path)) = parts.next().and_then(|head| head.split_once('@')) else { return };
        let (mut subsystem, mut devtype) = ("", "");
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key {
                "SUBSYSTEM" => subsystem = value,
                "DEVTYPE" => devtype = value,
                _ => {}
            }
        }
        self.any |= matches!(subsystem, "thunderbolt" | "net" | "infiniband" | "linkspan");
        let name = path.rsplit('/').next().unwrap_or_default();
        if action == "remove" && devtype == "thunderbolt_xdomain" && self.removed.len() < REMOVED {
            self.removed.insert(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(message: &[u8]) -> Changes {
        let mut changes = Changes::default();
        changes.hear(message);
        changes
    }

    #[test]
    fn of_uevents_only_those_of_cables_count() {
        let message = b"remove@/devices/pci0000:00/0000:00:0d.2/domain0/0-0/0-1\0ACTION=remove\0SUBSYSTEM=thunderbolt\0DEVTYPE=thunderbolt_xdomain\0SEQNUM=7\0";
        let changes = heard(message);
        assert!(changes.any && changes.removed.contains("0-1"), "{changes:?}");
        let changes = heard(b"change@/devices/virtual/net/lo\0SUBSYSTEM=net\0");
        assert!(changes.any && changes.removed.is_empty());
        for junk in [&b""[..], b"\0\0", b"add", b"add@/x\0SUBSYSTEM=block\0", b"\xff\xfe@\0SUBSYSTEM=net", b"libudev\0"]
        {
            assert_eq!(heard(junk), Changes::default(), "{junk:?}");
        }
    }

    #[test]
    fn however_many_go_a_bounded_number_of_names_is_kept() {
        let mut changes = Changes::default();
        for n in 0..10_000 {
            let text = format!("remove@/devices/0-{n:x}\0SUBSYSTEM=thunderbolt\0DEVTYPE=thunderbolt_xdomain\0");
            changes.hear(text.as_bytes());
        }
        assert_eq!(changes.removed.len(), REMOVED);
    }

    /// Set for the process in a network namespace of its own.
    const ALONE: &str = "LSPAN_TEST_ALONE";

    #[test]
    fn an_address_that_comes_and_one_that_goes_are_heard() {
        use std::process::Command;
        if std::env::var_os(ALONE).is_none() {
            let name = "observe::kernel::tests::an_address_that_comes_and_one_that_goes_are_heard";
            let mut alone = Command::new("unshare");
            alone.arg("-rn").arg(std::env::current_exe().unwrap()).args(["--exact", name]).env(ALONE, "1");
            let can = Command::new("unshare").args(["-rn", "ip", "address"]).output();
            if !can.is_ok_and(|can| can.status.success()) {
                return eprintln!("skipped: needs unshare and ip, and leave for a network namespace");
            }
            let output = alone.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        let watch = KernelWatch::open().unwrap();
        for change in ["add", "delete"] {
            watch.take();
            let ip = Command::new("ip").args(["address", change, "127.0.0.2/8", "dev", "lo"]).status().unwrap();
            assert!(ip.success() && watch.take().any, "{change}");
        }
    }

    #[test]
    fn the_kernels_sockets_open_without_privilege_and_are_empty_at_first() {
        let watch = KernelWatch::open().unwrap();
        watch.take();
        watch.wait(0).unwrap();
        assert_eq!(watch.fds().len(), 2);
    }
}
