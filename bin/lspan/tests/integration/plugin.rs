//! `lspan selftest` and the plugin file: a whole one, and what is none.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The plugin's line of a selftest.
fn line(dir: &Path, part: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lspan"))
        // A peer that is not there costs no time; the paths have tests of their own.
        .args(["selftest", "--json", "127.0.0.1:1"])
        .env("LD_LIBRARY_PATH", dir)
        .env("LINKSPAN_IFNAME", "=lo")
        .output()
        .unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let line = found["parts"].as_array().unwrap().iter().find(|one| one["part"] == part).unwrap();
    assert_eq!(output.status.code(), Some(4), "{found}");
    (line["verdict"].as_str().unwrap().to_owned(), line["text"].as_str().unwrap().to_owned())
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("lspan-plugin-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Where cargo puts the plugin, which is among the needs of these tests.
fn built() -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let file = beside.join("liblinkspan_nccl.so");
    assert!(file.is_file(), "{} is not built", file.display());
    file
}

#[test]
fn the_plugin_is_loaded_and_asked() {
    let dir = folder("whole");
    for (name, part) in [("libnccl-net-linkspan.so", "NCCL plugin"), ("librccl-net-linkspan.so", "RCCL plugin")] {
        std::os::unix::fs::symlink(built(), dir.join(name)).unwrap();
        let (verdict, text) = line(&dir, part);
        assert_eq!(verdict, "pass", "{text}");
        for wanted in ["tables v6 to v12", "calls itself", "Mb/s", "host memory"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_is_no_plugin_says_why() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().find_map(|line| line.split_whitespace().last().filter(|name| name.contains("/libc.so")));
    let libc = std::fs::read(libc.unwrap()).unwrap();
    let plugin = std::fs::read(built()).unwrap();
    for (name, content, why) in [
        ("text", &b"not a library at all, but long enough to have a header of sixty-four bytes or so"[..], "ELF"),
        ("other", &libc, "no net plugin"),
        // The dynamic linker refuses it, or touches what is not there.
        ("cut", &plugin[..8192], "load"),
        ("empty", b"", "file too short"),
    ] {
        let dir = folder(name);
        std::fs::write(dir.join("libnccl-net-linkspan.so"), content).unwrap();
        let (verdict, text) = line(&dir, "NCCL plugin");
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(verdict, "fail", "{name}: {text}");
        assert!(text.contains(why) && text.contains("libnccl-net-linkspan.so"), "{name}: {text}");
    }
}
