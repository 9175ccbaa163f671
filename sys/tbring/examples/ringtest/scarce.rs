//! Memory that is short.

use std::fs;
use std::io::Error;
use std::time::Duration;

use crate::{Done, expect};

const PAGE: usize = 4096;

/// Pages taken between two looks at what is left.
const STEP: u64 = 32;

/// Pages that must be free again beyond what was left before more are taken: a program that takes pages while others take the last ones is
/// killed for it.
const AGAIN: u64 = 512;

/// Pages of every size that are free, from `/proc/buddyinfo`: "Node 0, zone DMA32 1 2 3 ...", blocks of 1, 2, 4 pages and so on.
fn free() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/buddyinfo").map_err(|e| e.to_string())?;
    let mut pages = 0;
    for line in text.lines() {
        for (order, count) in line.split_whitespace().skip(4).enumerate() {
            pages += count.parse::<u64>().map_err(|e| format!("{line}: {e}"))? << order;
        }
    }
    Ok(pages)
}

/// Takes all memory but for `left` pages and goes on taking what others let go of, until it is killed: the first to be, where memory
/// runs out altogether.
pub(crate) fn squeeze(left: u64) -> Done {
    fs::write("/proc/self/oom_score_adj", "1000").map_err(|e| e.to_string())?;
    // Twice what is free: what others let go of is taken too.
    let most = 2 * free()? as usize * PAGE;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), most, protection, flags, -1, 0) };
    expect(base != libc::MAP_FAILED, || Error::last_os_error().to_string())?;
    // SAFETY: the mapping that was just made: small pages, each of which stays once it is touched.
    let stays = unsafe {
        libc::madvise(base, most, libc::MADV_NOHUGEPAGE);
        libc::mlock2(base, most, libc::MLOCK_ONFAULT)
    };
    expect(stays == 0, || format!("mlock2: {}", Error::last_os_error()))?;
    let (mut taken, mut more) = (0, STEP);
    loop {
        while free()? > left + more && taken < most {
            for _ in 0..STEP.min(((most - taken) / PAGE) as u64) {
                // SAFETY: inside the mapping, which is ours alone and lives as long as the process.
                unsafe { base.cast::<u8>().add(taken).write_volatile(1) };
                taken += PAGE;
            }
        }
        if std::mem::replace(&mut more, AGAIN) != AGAIN {
            println!("squeezed: {} MiB taken, {} pages free", taken >> 20, free()?);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
