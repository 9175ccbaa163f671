//! Reading a kernel's log: what in it fails a test.

/// Parts of lines that mean that something is wrong, and what it is. Sources: the texts of `__warn`, `die`,
/// `lockdep`, `khungtaskd`, KASAN, kmemleak, UBSAN and the DMA API debugging code of the kernel.
const WRONG: [(&str, &str); 26] = [
    ("WARNING: ", "a warning"),
    ("BUG: ", "a bug"),
    ("kernel BUG at", "a bug"),
    ("Oops: ", "an oops"),
    ("general protection fault", "an oops"),
    ("Unable to handle kernel", "an oops"),
    ("Kernel panic", "a panic"),
    ("Call Trace:", "a trace"),
    ("blocked for more than", "a hung task"),
    ("detected stall", "a stall"),
    ("soft lockup", "a lockup"),
    ("hard LOCKUP", "a lockup"),
    ("possible recursive locking", "a lockdep splat"),
    ("possible circular locking", "a lockdep splat"),
    ("inconsistent lock state", "a lockdep splat"),
    ("suspicious RCU usage", "a lockdep splat"),
    ("Invalid wait context", "a lockdep splat"),
    ("KASAN:", "a memory error"),
    ("kmemleak: ", "a leak"),
    ("UBSAN:", "undefined behaviour"),
    ("DMA-API:", "a wrong DMA mapping"),
    ("refcount_t:", "a wrong reference count"),
    ("list_add corruption", "a broken list"),
    ("list_del corruption", "a broken list"),
    ("cannot create duplicate filename", "a name used twice"),
    ("DMAR: [DMA", "a DMA fault"),
];

/// Lines that look like the above and are not.
const HARMLESS: [&str; 6] = [
    "kmemleak: Kernel memory leak detector",
    "kmemleak: Automatic memory scanning",
    "DMA-API: preallocated",
    "DMA-API: debugging enabled",
    "DMA-API: enable driver filter",
    "WARNING: Spectre",
];

/// Warnings of the kernel's own code that are not ours to mend: words that occur in them, all of them.
///
/// udmabuf makes segments as long as its folios, whatever the device that its buffers are attached to says it takes; here a host interface, for which
/// nobody has said anything, so that 64 KiB count. Of a dma-buf of which more than seven parts are attached to a device the checker cannot count the
/// mappings. Linux 7.3's `thunderbolt_net` masks a ring's interrupt while it polls; where the interface goes down just then `tb_ring_stop` finds it
/// masked already and says so. Nothing comes of any of that. It takes the domain's lock under one that the work waits for which receives control
/// packets, and a host that is powered off waits for that work under the domain's lock.
const THE_KERNELS_OWN: [&[&str]; 4] = [
    &[LOCKDEP, "tb_domain_remove", "tbnet_tear_down", "tbnet_handle_packet"],
    &["exceeded 7 overlapping mappings of cacheline", "get_sg_table", "dma_buf_map_attachment"],
    &["mapping sg segment longer than device claims to support", "get_sg_table", "dma_buf_map_attachment"],
    &["ring_interrupt_active", "tb_ring_stop", "tbnet_stop"],
];

/// How lockdep begins; its reports end with their only stack, others by a line of their own.
const LOCKDEP: &str = "possible circular locking dependency detected";

/// The log without warnings of the kernel's own.
fn but_for_its_own(log: &str) -> Vec<&str> {
    let mut kept: Vec<&str> = Vec::new();
    let mut begun = None;
    for line in log.lines() {
        // The line before was cut off: it comes again whole, or the guest is off.
        if line.contains("** replaying previous printk message **") {
            kept.pop();
            continue;
        }
        // That line is not in every report.
        if line.contains("[ cut here ]") || begun.is_none() && THE_KERNELS_OWN.iter().any(|all| line.contains(all[0])) {
            begun = Some(kept.len());
        }
        kept.push(line);
        let Some(from) = begun else { continue };
        let has = |part: &str| kept[from..].iter().any(|line| line.contains(part));
        let of_locks = has(LOCKDEP);
        if line.contains(if of_locks { "</TASK>" } else { "---[ end trace" }) {
            begun = None;
            if THE_KERNELS_OWN.iter().any(|all| all.iter().all(|part| has(part))) && !(of_locks && has("[linkspan]")) {
                kept.truncate(from);
            }
        }
    }
    kept
}

/// The first wrong thing of a log, with some lines around it; `allowed` are parts of lines that this test expects.
pub(crate) fn wrong(log: &str, allowed: &[&str]) -> Option<String> {
    let lines = but_for_its_own(log);
    let is_wrong = |line: &&str| {
        WRONG.iter().any(|(part, _)| line.contains(part))
            && !HARMLESS.iter().chain(allowed).any(|part| line.contains(part))
    };
    let at = lines.iter().position(is_wrong)?;
    let what = WRONG.iter().find(|(part, _)| lines[at].contains(part)).map_or("", |(_, what)| what);
    let around = lines[at.saturating_sub(3)..lines.len().min(at + 25)].join("\n    ");
    Some(format!("    {around}\n({what})"))
}

#[cfg(test)]
mod tests;
