//! What a guest is made of, and the command line that says so.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::error::{At, Result};
use crate::proc;
use crate::root;

/// A guest before it is started.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Its name, which is its hostname too.
    pub(crate) name: String,
    /// Memory, MiB.
    pub(crate) memory: u32,
    /// Virtual processors.
    pub(crate) cpus: u32,
    /// All its time, from start to end.
    pub(crate) deadline: Duration,
    /// Every limit of time is multiplied by this.
    pub(crate) slow: u32,
    /// Parts of lines of its kernel's log that this test expects.
    pub(crate) allowed: Vec<&'static str>,
    /// Words behind the kernel's own.
    pub(crate) append: String,
    /// Whether DMA goes through an emulated IOMMU with strict unmapping.
    pub(crate) viommu: bool,
    /// Sockets of virtual Thunderbolt host interfaces.
    pub(crate) cables: Vec<PathBuf>,
    /// An archive behind the initramfs: its files are taken in place of those before.
    pub(crate) more: Option<PathBuf>,
    /// A file that is a disk: what the guest has written to it is there in its next life.
    pub(crate) disk: Option<PathBuf>,
    nics: Vec<Nic>,
    system: Option<SystemDisk>,
    root: PathBuf,
    image: PathBuf,
    initrd: PathBuf,
    run: PathBuf,
    logs: PathBuf,
}

#[derive(Clone, Debug)]
struct Nic {
    own: PathBuf,
    peer: PathBuf,
    address: String,
}

/// What a whole system boots from.
#[derive(Clone, Debug)]
pub(crate) struct SystemDisk {
    /// The disk as setup made it. Guests write to files of their own on top.
    pub(crate) base: PathBuf,
    /// An archive of files that are put in at each boot.
    pub(crate) files: PathBuf,
}

/// Folders and files that all guests of a test share.
#[derive(Clone, Debug)]
pub(crate) struct SharedFolders {
    /// The Debian root.
    pub(crate) root: PathBuf,
    /// The kernel's image.
    pub(crate) image: PathBuf,
    /// The initramfs.
    pub(crate) initrd: PathBuf,
    /// Sockets: a short path, since a socket's is at most 107 bytes long (unix(7)).
    pub(crate) run: PathBuf,
    /// Consoles.
    pub(crate) logs: PathBuf,
    /// Whether the kernel has checkers, which cost several times the time, and memory.
    pub(crate) checked: bool,
    /// Where guests are whole systems.
    pub(crate) system: Option<SystemDisk>,
}

impl Spec {
    /// A small guest without any device.
    pub(crate) fn new(name: &str, place: &SharedFolders) -> Spec {
        Spec {
            name: name.to_owned(),
            // The root file system lies in it: with every program some 120 MiB. The suite over a device takes 230.
            memory: if place.checked || place.system.is_some() { 1024 } else { 640 },
            cpus: 1,
            deadline: Duration::from_secs(600),
            slow: if place.checked || place.system.is_some() { 4 } else { 1 },
            allowed: Vec::new(),
            append: String::new(),
            viommu: false,
            cables: Vec::new(),
            more: None,
            disk: None,
            nics: Vec::new(),
            system: place.system.clone(),
            root: place.root.clone(),
            image: place.image.clone(),
            initrd: place.initrd.clone(),
            run: place.run.clone(),
            logs: place.logs.clone(),
        }
    }

    /// Joins this guest and another by an Ethernet cable: `lanN` on each, N counted per guest.
    pub(crate) fn ethernet(&mut self, other: &mut Spec) {
        let socket =
            |from: &Spec, to: &Spec| from.run.join(format!("{}-{}-{}.eth", from.name, to.name, from.nics.len()));
        let (here, there) = (socket(self, other), socket(other, self));
        // Locally administered addresses of QEMU's own prefix; the last byte is the interface's number.
        let address = |spec: &Spec| {
            let sum = spec.name.bytes().fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
            format!("52:54:00:4c:{sum:02x}:{:02x}", spec.nics.len())
        };
        let (own, peer) = (address(self), address(other));
        self.nics.push(Nic { own: here.clone(), peer: there.clone(), address: own });
        other.nics.push(Nic { own: there, peer: here, address: peer });
    }

    /// A whole system gets these files at its boots in place of the usual ones.
    pub(crate) fn given(&mut self, files: &Path) {
        if let Some(system) = &mut self.system {
            system.files = files.to_owned();
        }
    }

    /// Where its kernel writes.
    pub(crate) fn console(&self) -> PathBuf {
        self.logs.join(format!("{}.console", self.name))
    }

    /// The socket of its agent's port.
    pub(crate) fn channel(&self) -> PathBuf {
        self.run.join(format!("{}.agent", self.name))
    }

    /// Starts QEMU.
    pub(crate) fn start(&self) -> Result<Child> {
        for socket in self.nics.iter().map(|nic| nic.own.as_path()).chain([self.channel().as_path()]) {
            // Left by an earlier life of the same guest.
            let _ = std::fs::remove_file(socket);
        }
        let errors = self.logs.join(format!("{}.qemu", self.name));
        let errors = std::fs::File::create(&errors).at(errors.display())?;
        let mut command = self.command(&self.initramfs()?, self.disks()?.as_ref().map(<[String; 2]>::as_slice));
        command.stdout(Stdio::null()).stderr(errors);
        command.spawn().at(proc::shown(&command))
    }

    /// The usual one, or a file of its own with [`Spec::more`] behind it.
    fn initramfs(&self) -> Result<PathBuf> {
        let Some(more) = &self.more else { return Ok(self.initrd.clone()) };
        let both = self.run.join(format!("{}.initrd", self.name));
        let read = |path: &Path| std::fs::read(path).at(path.display());
        std::fs::write(&both, [read(&self.initrd)?, read(more)?].concat()).at(both.display())?;
        Ok(both)
    }

    /// QEMU's words for the disks of a whole system. What the guest has written to its own is still there after a reboot of
    /// the same test.
    fn disks(&self) -> Result<Option<[String; 2]>> {
        let Some(system) = &self.system else { return Ok(None) };
        let own = self.run.join(format!("{}.qcow2", self.name));
        if !own.exists() {
            let mut make = root::program(&self.root, "usr/bin/qemu-img");
            make.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(&system.base).arg(&own);
            proc::output(&mut make)?;
        }
        Ok(Some([
            format!("file={},format=qcow2,cache=unsafe", own.display()),
            format!("file={},format=raw,readonly=on", system.files.display()),
        ]))
    }

    fn command(&self, initramfs: &Path, disks: Option<&[String]>) -> Command {
        let mut command = root::program(&self.root, "usr/bin/qemu-system-x86_64");
        let memory = format!("memory-backend-memfd,id=mem,size={}M,share=on", self.memory);
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", &self.cpus.to_string()]);
        command.args(["-m", &format!("{}M", self.memory), "-object", &memory]);
        command.args(["-machine", "q35,memory-backend=mem", "-nodefaults", "-display", "none", "-no-reboot"]);
        for folder in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            command.arg("-L").arg(self.root.join(folder));
        }
        command.arg("-serial").arg(option("file:", &self.console()));
        if self.viommu {
            // Before the devices whose DMA it translates.
            command.args(["-device", "intel-iommu,intremap=off,caching-mode=on"]);
        }
        for socket in &self.cables {
            command.arg("-device").arg(format!(
                r#"{{"driver":"vfio-user-pci","socket":{{"path":"{}","type":"unix"}}}}"#,
                socket.display()
            ));
        }
        command.arg("-chardev").arg(format!("socket,id=agent,server=on,wait=off,path={}", self.channel().display()));
        command.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=lab"]);
        for (n, nic) in self.nics.iter().enumerate() {
            command.arg("-netdev").arg(format!(
                "dgram,id=n{n},local.type=unix,local.path={},remote.type=unix,remote.path={}",
                nic.own.display(),
                nic.peer.display()
            ));
            command.arg("-device").arg(format!("virtio-net-pci,netdev=n{n},mac={},romfile=", nic.address));
        }
        for (n, disk) in disks.into_iter().flatten().enumerate() {
            command.arg("-drive").arg(format!("{disk},if=none,id=disk{n}"));
            command.arg("-device").arg(format!("virtio-blk-pci,drive=disk{n}"));
        }
        if let Some(disk) = &self.disk {
            command.arg("-drive").arg(format!("file={},format=raw,cache=unsafe,if=none,id=own", disk.display()));
            command.args(["-device", "virtio-blk-pci,drive=own"]);
        }
        command.arg("-kernel").arg(&self.image).arg("-initrd").arg(initramfs).arg("-append").arg(self.words());
        command
    }

    /// The kernel's command line. `no_timer_check`, `tsc=reliable` and a long time until RCU and the watchdogs complain (two
    /// minutes, the soft lockup detector's being twice its threshold): on a busy machine an emulated processor stands still
    /// for want of time, not for a fault. Time comes from the HPET, whose frequency is known: that of the TSC is measured at
    /// boot, and on a busy machine guests' clocks then ran three times as fast. The self-tests of the crypto API, seconds of
    /// emulated elliptic curves, are not under test here.
    fn words(&self) -> String {
        let iommu = if self.viommu { "intel_iommu=on iommu.strict=1 iommu.passthrough=0" } else { "intel_iommu=off" };
        let system = match self.system {
            // Soft lockups are measured by the TSC, whose frequency is that of a busy machine: 180 s of it were seen in 20. Units that
            // have started within 90 s on a quiet machine take longer than that on a busy one.
            Some(_) => format!(
                "root=/dev/vda rw nosoftlockup systemd.default_timeout_start_sec=600 systemd.hostname={}",
                self.name
            ),
            None => format!("lab.name={}", self.name),
        };
        format!(
            "console=ttyS0 quiet loglevel=5 panic=-1 log_buf_len=4M mitigations=off no_timer_check \
             tsc=reliable clocksource=hpet rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60 \
             workqueue.watchdog_thresh=120 cryptomgr.notests=1 audit=0 {iommu} {system} {}",
            self.append
        )
    }
}

/// A path behind a prefix.
fn option(prefix: &str, path: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(prefix);
    text.push(path);
    text
}
