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
const HARMLESS: [&str; 8] = [
    "kmemleak: Kernel memory leak detector",
    "kmemleak: Automatic memory scanning",
    "DMA-API: preallocated",
    "DMA-API: debugging enabled",
    // What is told, and where what was complained of was mapped.
    "DMA-API: enable driver filter",
    "DMA-API: switching off dma-debug driver filter",
    "DMA-API: Mapped at:",
    "WARNING: Spectre",
];

/// Warnings of the kernel's own code that are not ours to mend: words that occur in them, all of them.
///
/// udmabuf makes segments as long as its folios, whatever the device that its buffers are attached to says it takes; here a host interface, for which
/// nobody has said anything, so that 64 KiB count. It syncs in another direction than it has mapped for. Of a dma-buf of which more than seven parts are
/// attached to a device the checker cannot count the mappings. Linux 7.3's `thunderbolt_net` masks a ring's interrupt while it polls; where the
/// interface goes down just then `tb_ring_stop` finds it masked already and says so. Nothing comes of any of that. `thunderbolt_net` takes the
/// domain's lock under one that the work waits for which receives control packets, and a host that is powered off waits for that work under the
/// domain's lock; lockdep, which tells of one circle only, is of no more use then. Linux 6.12 warns, with its stack, of a path that a router refuses,
/// beside the error that whoever asked for it is given.
const THE_KERNELS_OWN: [&[&str]; 6] = [
    &[LOCKDEP, "nhi_pci_shutdown", "tbnet_tear_down", "tbnet_handle_packet"],
    &["misc udmabuf: device driver syncs DMA memory with different direction", "_cpu_udmabuf"],
    &["exceeded 7 overlapping mappings of cacheline", "get_sg_table", "dma_buf_map_attachment"],
    &["mapping sg segment longer than device claims to support", "get_sg_table", "dma_buf_map_attachment"],
    &["ring_interrupt_active", "tb_ring_stop", "tbnet_stop"],
    &["path activation failed", "tb_path_activate", "tb_approve_xdomain_paths"],
];

/// How lockdep begins; its reports end with their only stack, KCSAN's with a rule, others by a line of their own.
const LOCKDEP: &str = "possible circular locking dependency detected";

/// How KCSAN begins. The kernel's own data races are many, and only those in which our driver has part are read.
const RACE: &str = "BUG: KCSAN: ";

/// The log without warnings of the kernel's own.
fn but_for_its_own(log: &str) -> Vec<&str> {
    let mut kept: Vec<&str> = Vec::new();
    let mut begun = None;
    let mut lines = log.lines();
    while let Some(line) = lines.next() {
        // The line before was cut off. It comes again whole, unless the guest is off by then.
        if line.contains("** replaying previous printk message **") {
            let begins = |cut: &&str| {
                let own = |word: &str| (8..word.len()).any(|n| word.get(..n).is_some_and(|part| cut.ends_with(part)));
                lines.clone().any(|later| later.starts_with(*cut)) || THE_KERNELS_OWN.iter().any(|all| own(all[0]))
            };
            if kept.last().is_some_and(begins) {
                kept.pop();
                begun = begun.filter(|at| *at < kept.len());
            }
            continue;
        }
        // The first of these is not in every report.
        if line.contains("[ cut here ]")
            || line.contains(LOCKDEP)
            || line.contains(RACE)
            || begun.is_none() && THE_KERNELS_OWN.iter().any(|all| line.contains(all[0]))
        {
            begun = Some(kept.len());
        }
        kept.push(line);
        let Some(from) = begun else { continue };
        let has = |part: &str| kept[from..].iter().any(|line| line.contains(part));
        let (of_locks, of_races) = (has(LOCKDEP), has(RACE));
        let end = match (of_locks, of_races) {
            (true, _) => "</TASK>",
            (_, true) => "=====",
            _ => "---[ end trace",
        };
        if line.contains(end) {
            begun = None;
            let alone = || kept[from..].iter().filter(|line| is_wrong(line)).count() == 1;
            let its_own = of_races && alone() || THE_KERNELS_OWN.iter().any(|all| all.iter().all(|part| has(part)));
            if its_own && !((of_locks || of_races) && has("[linkspan]")) {
                kept.truncate(from);
            }
        }
    }
    kept
}

fn is_wrong(line: &str) -> bool {
    WRONG.iter().any(|(part, _)| line.contains(part)) && !HARMLESS.iter().any(|part| line.contains(part))
}

/// The first wrong thing of a log, with some lines around it; `allowed` are parts of lines that this test expects.
pub(crate) fn wrong(log: &str, allowed: &[&str]) -> Option<String> {
    let lines = but_for_its_own(log);
    let at = lines.iter().position(|line| is_wrong(line) && !allowed.iter().any(|part| line.contains(part)))?;
    let what = WRONG.iter().find(|(part, _)| lines[at].contains(part)).map_or("", |(_, what)| what);
    let around = lines[at.saturating_sub(3)..lines.len().min(at + 25)].join("\n    ");
    Some(format!("    {around}\n({what})"))
}

#[cfg(test)]
mod tests;
