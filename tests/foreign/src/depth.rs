//! How deep the stack is from the plugin's `isend` to the rail: at most ten functions of linkspan's.

/// Most of them.
#[cfg(debug_assertions)]
const MOST: usize = 10;

/// Stacks looked at in a process: to name their functions takes time.
#[cfg(debug_assertions)]
const LOOKS: u32 = 512;

/// Called by the rail where a chunk is given to it.
#[cfg(not(debug_assertions))]
pub(crate) fn check() {}

/// Called by the rail where a chunk is given to it. Says how deep the first stack is that begins with `isend`.
///
/// # Panics
/// It is deeper than [`MOST`].
#[cfg(debug_assertions)]
pub(crate) fn check() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static LEFT: AtomicU32 = AtomicU32::new(LOOKS);
    if LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
        return;
    }
    let stack = std::backtrace::Backtrace::force_capture().to_string();
    // Frames are `  12: name`, places are lines of their own.
    let names =
        stack.lines().filter_map(|line| line.trim_start().split_once(": ")).filter(|(n, _)| n.parse::<u32>().is_ok());
    let ours =
        |name: &str| ["linkspan", "<linkspan", "foreign", "<foreign"].iter().any(|krate| name.starts_with(krate));
    // Closures are parts of the functions that they stand in.
    let names: Vec<&str> = names.map(|(_, name)| name).filter(|n| ours(n) && !n.contains("{{closure}}")).collect();
    let from = names.iter().position(|name| name.contains("::data") && name.contains("Rail"));
    let to = names.iter().rposition(|name| name.ends_with("::isend"));
    let (Some(from), Some(to)) = (from, to) else { return };
    LEFT.store(0, Ordering::Relaxed);
    let way = &names[from..=to];
    eprintln!("isend to data: {} functions", way.len());
    for name in way {
        eprintln!("    {name}");
    }
    assert!(way.len() <= MOST, "the stack from isend to data has {} functions, at most {MOST} are allowed", way.len());
}
