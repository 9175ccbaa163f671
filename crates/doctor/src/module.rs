//! Kernel modules: whether one is there for the running kernel, loaded, and signed.

use linkspan_topology::Roots;

/// Whether the module is loaded or part of the kernel.
pub(crate) fn loaded(roots: &Roots, name: &str) -> bool {
    roots.has(&format!("/sys/module/{name}"))
}

/// Where the module is for this kernel: its file below `/lib/modules/RELEASE`, as depmod lists it; `None` where it is not, or
/// no list can be read, as in a container.
pub(crate) fn file(roots: &Roots, release: &str, name: &str) -> Option<String> {
    let found = |list: &str| {
        let text = roots.bytes(&format!("/lib/modules/{release}/{list}"), 4 << 20)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().map(|line| line.split(':').next().unwrap_or(line)).find(|path| is(path, name)).map(str::to_owned)
    };
    found("modules.dep").or_else(|| found("modules.builtin")).map(|path| format!("/lib/modules/{release}/{path}"))
}

/// Whether anything is known of this kernel's modules.
pub(crate) fn listed(roots: &Roots, release: &str) -> bool {
    roots.has(&format!("/lib/modules/{release}/modules.dep"))
}

/// The kernels whose modules are here, where those of the running one are not: an update of Arch takes them away with the old package.
pub(crate) fn replaced(roots: &Roots, release: &str) -> Option<String> {
    let mut others = roots.names("/lib/modules");
    others.retain(|other| listed(roots, other));
    (!others.is_empty() && !others.iter().any(|other| other == release)).then(|| others.join(", "))
}

/// Other kernels for which the module is there.
pub(crate) fn elsewhere(roots: &Roots, release: &str, name: &str) -> Vec<String> {
    let others = roots.names("/lib/modules").into_iter().filter(|other| other != release);
    others.filter(|other| file(roots, other, name).is_some()).collect()
}

/// Whether this kernel takes signed modules only.
pub(crate) fn signatures_wanted(roots: &Roots) -> bool {
    let enforced = roots.text("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y");
    let locked = roots.text("/sys/kernel/security/lockdown");
    enforced || locked.is_some_and(|modes| modes.contains("[integrity]") || modes.contains("[confidentiality]"))
}

/// `kernel/drivers/net/thunderbolt/thunderbolt_net.ko.zst` is `thunderbolt_net`; `-` and `_` are the same in names of modules.
fn is(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split(".ko").next().unwrap_or(file);
    file.contains(".ko") && stem.replace('-', "_") == name
}
