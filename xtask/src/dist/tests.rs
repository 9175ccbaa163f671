use super::elf::{Elf, version};
use super::{GLIBC_MAX, exports};

#[test]
fn this_very_test_program_is_read() {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let elf = Elf::read(&bytes).unwrap();
    assert!(elf.needed.iter().any(|n| n == "libc.so.6"), "{:?}", elf.needed);
    assert!(elf.newest("GLIBC_").unwrap() >= (2, 2));
    assert!(elf.loaded > 0 && elf.loaded < bytes.len() as u64 * 2);
}

#[test]
fn the_c_librarys_names_come_with_their_versions_and_its_versions_are_no_names() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
    let elf = Elf::read(&std::fs::read(libc).unwrap()).unwrap();
    assert_eq!(elf.soname.as_deref(), Some("libc.so.6"));
    assert!(elf.relro);
    assert!(elf.exports.iter().any(|(name, version)| name == "malloc" && version.starts_with("GLIBC_")));
    assert!(!elf.exports.iter().any(|(name, _)| name.starts_with("GLIBC_")));
}

#[test]
fn cut_and_damaged_files_are_refused_or_survived() {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    assert!(Elf::read(&bytes[..bytes.len().min(200)]).is_err());
    assert!(Elf::read(b"#!/bin/sh\n").is_err());
    let mut head = bytes[..bytes.len().min(1 << 16)].to_vec();
    for at in 0..64 {
        let was = std::mem::replace(&mut head[at], 0xff);
        let _ = Elf::read(&head);
        head[at] = was;
    }
}

#[test]
fn versions_compare_as_numbers() {
    assert_eq!(version("GLIBC_2.2.5", "GLIBC_"), Some((2, 2)));
    assert!(version("GLIBC_2.9", "GLIBC_") < version("GLIBC_2.34", "GLIBC_"));
    assert!(version("GLIBC_2.35", "GLIBC_") > Some(GLIBC_MAX));
    assert_eq!(version("GLIBC_PRIVATE", "GLIBC_"), None);
    assert_eq!(version("GCC_3.0", "GLIBC_"), None);
}

#[test]
fn plugin_exports_are_exact() {
    let all: Vec<String> = (6..=12).map(|v| format!("ncclNetPlugin_v{v}")).collect();
    assert_eq!(exports(&all), Vec::<String>::new());
    assert_eq!(exports(&all[1..]), ["does not export ncclNetPlugin_v6"]);
    let more = |name: &str| all.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
    assert_eq!(exports(&more("ncclTunerPlugin_v4")), Vec::<String>::new());
    assert_eq!(exports(&more("helper")), ["exports helper, which NCCL does not ask for"]);
}
