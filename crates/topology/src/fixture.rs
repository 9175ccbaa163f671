//! A sysfs and procfs of our own making for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{AddrEntry, Interface, Roots, Verdict, default_routes, interfaces, judge};

/// Like a DGX Spark: one adapter whose two ports are each reached through two PCIe links.
pub const SPARK: &str = include_str!("../fixtures/spark.tree");
/// A mini PC with AMD Strix Halo and one USB4 cable to its twin.
pub const STRIX_HALO: &str = include_str!("../fixtures/strix-halo.tree");
/// The same with three cables to one peer and one to a Mac.
pub const TWO_CABLES: &str = include_str!("../fixtures/two-cables.tree");
/// No cable to another host.
pub const LAPTOP: &str = include_str!("../fixtures/laptop.tree");
/// Eight GPUs and eight adapters on two NUMA nodes.
pub const EIGHT_GPUS: &str = include_str!("../fixtures/eight-gpus.tree");
/// All of them, by name.
pub const ALL: [(&str, &str); 5] = [
    ("spark", SPARK),
    ("strix-halo", STRIX_HALO),
    ("two-cables", TWO_CABLES),
    ("laptop", LAPTOP),
    ("eight-gpus", EIGHT_GPUS),
];

/// A temporary folder that goes away with this value.
#[derive(Debug)]
pub struct Fixture {
    /// The folder; `sys` and `proc` are in it.
    pub root: PathBuf,
    /// Addresses that the tree told by lines `address INTERFACE IP/PREFIX`.
    pub addrs: Vec<AddrEntry>,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

#[allow(clippy::unwrap_used, missing_docs)]
impl Default for Fixture {
    fn default() -> Fixture {
        let unique = format!("linkspan-topology-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // In memory where there is such a folder: thousands of small files take a disk seconds.
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }.join(unique);
        fs::create_dir_all(root.join("sys/class/net")).unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        Fixture { root, addrs: Vec::new() }
    }
}

#[allow(clippy::unwrap_used, reason = "tests alone build fixtures, and want to stop where that fails")]
impl Fixture {
    /// An empty machine.
    pub fn new() -> Fixture {
        Fixture::default()
    }

    /// A machine from text, a line each:
    /// - `PATH<TAB>CONTENT` is a file; `\n`, `\t` and `\\` in the content stand for themselves;
    /// - `PATH -> TARGET` and `PATH<TAB>-> TARGET` are symbolic links; a target that begins with `/` is below the
    ///   fixture's root;
    /// - `address INTERFACE IP/PREFIX` is an address that the kernel would list;
    /// - `net NAME INDEX DEVICE [ATTRIBUTE=VALUE...]` is a network interface that is up, on the device `DEVICE` below
    ///   `/sys/devices` (`-` for none), `pci PATH CLASS VENDOR DEVICE [NUMA]` a PCI function;
    /// - empty lines and those with `#` are left out.
    ///
    /// A path may begin with `/`.
    ///
    /// # Panics
    /// A line that is none of these, or leads out of the fixture.
    pub fn tree(text: &str) -> Fixture {
        let mut fix = Fixture::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some((path, target)) = line.split_once("\t-> ") {
                fix.link(path, target);
            } else if let Some((path, content)) = line.split_once('\t') {
                fix.file(path, &unescaped(content));
            } else if let Some((path, target)) = line.split_once(" -> ") {
                fix.link(path, target);
            } else {
                match &words[..] {
                    ["address", name, net] => {
                        let (ip, prefix) = net.split_once('/').unwrap();
                        let (ip, prefix) = (ip.parse().unwrap(), prefix.parse().unwrap());
                        fix.addrs.push(AddrEntry { name: (*name).to_owned(), ip, prefix, scope: 0 });
                    }
                    ["net", name, index, device, attributes @ ..] => {
                        let pairs: Vec<(&str, &str)> = attributes.iter().map(|a| a.split_once('=').unwrap()).collect();
                        fix.net(name, index.parse().unwrap(), device, &pairs);
                    }
                    ["pci", path, class, vendor, id, numa @ ..] => {
                        let numa = numa.first().copied().unwrap_or("-1");
                        for (file, text) in [("class", *class), ("vendor", vendor), ("device", id), ("numa_node", numa)]
                        {
                            fix.file(&format!("sys/devices/{path}/{file}"), text);
                        }
                        let address = path.rsplit('/').next().unwrap();
                        fix.link(&format!("sys/bus/pci/devices/{address}"), &format!("/sys/devices/{path}"));
                    }
                    _ => panic!("no line of a fixture: {line:?}"),
                }
            }
        }
        fix
    }

    fn at(&self, path: &str) -> PathBuf {
        let path = Path::new(path.trim_start_matches('/'));
        assert!(path.iter().all(|part| part != ".."), "{} leads out of the fixture", path.display());
        self.root.join(path)
    }

    /// sysfs and procfs of this machine.
    pub fn roots(&self) -> Roots {
        Roots::under(&self.root)
    }

    /// Its interfaces with the verdict on each.
    pub fn survey(&self) -> Vec<(Interface, Verdict)> {
        let list = interfaces(&self.roots(), &self.addrs);
        let verdicts = judge(&list, None, &default_routes(&self.roots()));
        list.into_iter().zip(verdicts).collect()
    }

    /// Writes an attribute, with the end of line that the kernel puts.
    pub fn file(&self, path: &str, text: &str) -> &Fixture {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    /// Makes a symbolic link; a target below the fixture's root that is not there becomes a folder.
    pub fn link(&self, path: &str, to: &str) -> &Fixture {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let target = if to.starts_with('/') { self.at(to) } else { PathBuf::from(to) };
        if to.starts_with('/') && fs::symlink_metadata(&target).is_err() {
            fs::create_dir_all(&target).unwrap();
        }
        symlink(target, path).unwrap();
        self
    }

    /// An interface that is up, with these further attributes, directly below `class/net`.
    pub fn iface(&self, index: u32, name: &str, attributes: &[(&str, &str)]) -> &Fixture {
        self.attributes(&format!("sys/class/net/{name}"), index, attributes)
    }

    /// An interface where the kernel puts it: below its device, with a link from `class/net`.
    fn net(&self, name: &str, index: u32, device: &str, attributes: &[(&str, &str)]) {
        let dir = if device == "-" { format!("virtual/net/{name}") } else { format!("{device}/net/{name}") };
        self.attributes(&format!("sys/devices/{dir}"), index, attributes);
        self.link(&format!("sys/class/net/{name}"), &format!("/sys/devices/{dir}"));
        if device != "-" {
            self.link(&format!("sys/devices/{dir}/device"), &format!("/sys/devices/{device}"));
        }
    }

    fn attributes(&self, dir: &str, index: u32, attributes: &[(&str, &str)]) -> &Fixture {
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
    pub fn device(&self, name: &str, pci: &str, numa: &str, driver: &str) -> &Fixture {
        let device = format!("sys/devices/{pci}");
        let function = Path::new(&device)
            .ancestors()
            .find(|dir| dir.file_name().and_then(|name| name.to_str()).is_some_and(crate::pci::is_pci));
        self.file(&format!("{}/numa_node", function.unwrap_or(Path::new(&device)).display()), numa);
        self.link(&format!("{device}/driver"), &format!("/sys/bus/drivers/{driver}"));
        self.link(&format!("sys/class/net/{name}/device"), &format!("/{device}"))
    }
}

fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            _ => out.push(c),
        }
    }
    out
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[cfg(test)]
mod tests;
