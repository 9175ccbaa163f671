//! The ring driver of Thunderbolt and USB4 cables: its module, and the nodes of its links.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use super::{Line, Verdict};

/// A line for the module and one for the nodes; `root` is where `sys` and `dev` are.
pub(super) fn lines(root: &Path) -> [Line; 2] {
    let folder = root.join("sys/module/linkspan");
    if !folder.is_dir() {
        let why = "cannot be tested here: linkspan.ko is not loaded (kernel/README.md tells how to build it); cables are used \
                   without it, by USB4STREAM or thunderbolt_net";
        return [Line::new("kernel module", Verdict::Skip, why), Line::new("device node", Verdict::Skip, why)];
    }
    let version = fs::read_to_string(folder.join("version")).unwrap_or_default();
    let module = Line::new("kernel module", Verdict::Pass, format!("linkspan.ko {} is loaded", version.trim()));
    [module, nodes(&root.join("dev/linkspan"))]
}

fn nodes(folder: &Path) -> Line {
    let found = fs::read_dir(folder).map(|list| list.flatten().map(|entry| entry.path()).collect::<Vec<PathBuf>>());
    let mut found = found.unwrap_or_default();
    found.sort();
    if found.is_empty() {
        let why = "cannot be tested here: no cable leads to a host with the same module that is allowed (`lspan status` shows cables, `lspan link allow` allows hosts)";
        return Line::new("device node", Verdict::Skip, why);
    }
    let shut = found.iter().find_map(|node| {
        let error = OpenOptions::new().read(true).write(true).open(node).err()?;
        Some(format!("{}: {error}; its group is `linkspan`: add this user to it", node.display()))
    });
    match shut {
        Some(why) => Line::new("device node", Verdict::Fail, why),
        None => {
            let names: Vec<String> = found.iter().map(|node| node.display().to_string()).collect();
            Line::new("device node", Verdict::Pass, format!("{} can be opened", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests;
