//! A sysfs and procfs of our own making for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Roots;

pub(crate) struct Fixture {
    pub(crate) root: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let unique = format!("linkspan-topology-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(unique);
        fs::create_dir_all(root.join("sys/class/net")).unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        Fixture { root }
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::under(&self.root)
    }

    pub(crate) fn file(&self, path: &str, text: &str) -> &Fixture {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    /// An interface that is up, with these further attributes.
    pub(crate) fn iface(&self, index: u32, name: &str, attributes: &[(&str, &str)]) -> &Fixture {
        let dir = format!("sys/class/net/{name}");
        let index = index.to_string();
        let usual = [
            ("ifindex", &*index),
            ("iflink", &index),
            ("type", "1"),
            ("flags", "0x1003"),
            ("operstate", "up"),
            ("carrier", "1"),
            ("mtu", "1500"),
            ("address", "02:00:00:00:00:01"),
            ("uevent", "INTERFACE=x"),
        ];
        for (file, text) in usual.iter().chain(attributes) {
            self.file(&format!("{dir}/{file}"), text);
        }
        self
    }

    /// Puts the interface on a device below this PCI path, with this driver.
    pub(crate) fn device(&self, name: &str, pci: &str, numa: &str, driver: &str) -> &Fixture {
        let device = format!("sys/devices/{pci}");
        self.file(&format!("{device}/numa_node"), numa);
        let drivers = self.root.join("sys/bus/drivers").join(driver);
        fs::create_dir_all(&drivers).unwrap();
        symlink(&drivers, self.root.join(&device).join("driver")).unwrap();
        symlink(self.root.join(&device), self.root.join("sys/class/net").join(name).join("device")).unwrap();
        self
    }

    pub(crate) fn link(&self, path: &str, to: &str) -> &Fixture {
        symlink(to, self.root.join(path)).unwrap();
        self
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
