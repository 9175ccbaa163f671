//! The reader of statistics pages, over files of any content and length.
#![no_main]

use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use linkspan_fabric::stats::{BUCKETS, Counter, HEADER, PAGE, RECORD, VERSION, read};

/// A folder of this process in memory. A fuzzer has no last moment to remove it in, so the next one does.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let base = PathBuf::from("/dev/shm");
        let base = if base.is_dir() { base } else { std::env::temp_dir() };
        const NAME: &str = "linkspan-fuzz-stats-";
        for entry in std::fs::read_dir(&base).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|n| n.strip_prefix(NAME)).and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let folder = base.join(format!("{NAME}{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder of our own");
        folder
    })
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    if bytes.len() < HEADER * 8 {
        return;
    }
    // Past the checks of the header: magic, version, process number, words per record.
    let mut ours = bytes.to_vec();
    let words = [u64::from_le_bytes(*b"LSPNSTAT"), VERSION, 1];
    for (to, word) in ours.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    ours[40..48].copy_from_slice(&(RECORD as u64).to_ne_bytes());
    check(&ours);
    // And the last words of a page, which inputs are too short for.
    ours.resize(PAGE * 8, 0);
    let (last, bytes) = (ours.len() - 512, &bytes[..bytes.len().min(512)]);
    ours[last..last + bytes.len()].copy_from_slice(bytes);
    check(&ours);
});

fn check(bytes: &[u8]) {
    let path = folder().join("1.stats");
    let mut file = std::fs::File::create(&path).expect("the folder is ours");
    file.write_all(bytes).expect("the folder is ours");
    // Only pages of living processes are shown, and those hold the lock.
    file.lock().expect("nobody else looks at the file");
    for process in read(folder()).expect("the folder can be read") {
        assert!(process.last_downgrade.len() <= 504);
        for record in process.records {
            assert_eq!((record.counters.len(), record.latency.len()), (Counter::ALL.len(), BUCKETS));
            assert!(record.device.len() <= 64 && record.transport.len() <= 8 && record.reason.len() <= 80);
        }
    }
}
