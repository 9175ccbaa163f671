//! Kernels as Debian built them: unpacked aside, not installed.

use std::fs;

use crate::cache::{self, Cache, Known};
use crate::error::{At, Error, Result};
use crate::proc;
use crate::root;
use crate::setup::apt;

/// Parts that a kernel is made of: one package in 6.12, four since 7.0.
const PARTS: [&str; 4] = ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"];

/// Downloads the newest kernel of this line and unpacks it.
pub(crate) fn fetch(cache: &Cache, title: &str, known: Known) -> Result<()> {
    let root = cache.root();
    apt::update(&root, title)?;
    let names = apt::names(&root, &format!("linux-image-{}.", known.name))?;
    let release = newest(&names)
        .ok_or_else(|| Error::Unfit(format!("{} of this mirror has no kernel {} any more", known.suite, known.name)))?;
    let mut parts = Vec::new();
    for part in PARTS {
        let name = format!("{part}{release}");
        if apt::names(&root, &name)?.contains(&name) {
            parts.push(name);
        }
    }
    let version = apt::version(&root, &parts[0])?;
    let folder = format!("var/tmp/kernel-{}", known.name);
    apt::download(&root, title, &parts, &folder)?;
    // Where the files lie differs from kernel to kernel: /boot or the folder of modules, /lib or /usr/lib.
    let text = format!(
        "cd /{folder}\nrm -rf tree out\nfor deb in *.deb; do dpkg-deb -x \"$deb\" tree; done\n\
         mkdir -p out/modules/lib/modules\n\
         mv \"$(find tree -type f -name 'vmlinuz*' | head -n 1)\" out/vmlinuz\n\
         mv \"$(find tree -type f -name 'config*' -path '*{release}*' | head -n 1)\" out/config\n\
         for dir in tree/lib/modules/{release} tree/usr/lib/modules/{release}; do\n\
         [ ! -d $dir ] || mv $dir out/modules/lib/modules/\ndone\n\
         depmod -b /{folder}/out/modules {release}\n\
         echo {release} > out/release\necho {version} > out/version"
    );
    proc::watched(title, &mut root::script(&root, &text))?;
    let from = root.join(&folder);
    fs::create_dir_all(cache.path("kernels")).at("kernels")?;
    cache::put(&from.join("out"), &cache.kernel_dir(known.name))?;
    fs::remove_dir_all(&from).at(from.display())
}

/// Release (`uname -r`) of the newest plain amd64 kernel among these packages.
pub(crate) fn newest(names: &[String]) -> Option<String> {
    let plain = |name: &&str| {
        name.ends_with("-amd64") && !["-cloud-", "-rt-", "-unsigned", "-dbg"].iter().any(|word| name.contains(word))
    };
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    names
        .iter()
        .filter_map(|name| name.strip_prefix("linux-image-"))
        .filter(plain)
        .max_by_key(|name| numbers(name))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests;
