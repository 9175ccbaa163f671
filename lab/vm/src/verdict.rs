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
const HARMLESS: [&str; 5] = [
    "kmemleak: Kernel memory leak detector",
    "kmemleak: Automatic memory scanning",
    "DMA-API: preallocated",
    "DMA-API: debugging enabled",
    "WARNING: Spectre",
];

/// The first wrong thing of a log, with some lines around it; `allowed` are parts of lines that this test expects.
pub(crate) fn wrong(log: &str, allowed: &[&str]) -> Option<String> {
    let lines: Vec<&str> = log.lines().collect();
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
