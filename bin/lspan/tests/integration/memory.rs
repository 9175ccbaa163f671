//! `--mem` against a stand-in for libcuda whose device memory the processor cannot touch, found as a driver is found.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the stand-in; `None`, and a line that says so, where there is no C compiler.
fn driver() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (library, source) = (dir.join("libcuda.so.1"), "../../sys/cuda/tests/fake.c");
    if library.is_file() {
        return Some(dir);
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let made = dir.join(format!("made-{:?}", std::thread::current().id()));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-fPIC", "-shared", "-o"]).arg(&made).arg(source);
    match cc.status() {
        Ok(status) => assert!(status.success(), "the stand-in does not compile"),
        Err(error) => {
            eprintln!("cannot be tested here: no C compiler ({error}); Debian: gcc libc6-dev");
            return None;
        }
    }
    std::fs::rename(made, library).unwrap();
    Some(dir)
}

fn lspan(args: &[&str], driver: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    command.args(args).env("LINKSPAN_STATS_DIR", "off").env_remove("LD_LIBRARY_PATH");
    if let Some(dir) = driver {
        command.env("LD_LIBRARY_PATH", dir);
    }
    command.output().unwrap()
}

#[test]
fn device_memory_is_measured_checked_and_named() {
    let Some(dir) = driver() else { return };
    for (test, path, sizes) in [("bw", "tcp", "8,3M"), ("lat", "shm", "3M")] {
        let args = ["perf", test, "--mem", "cuda:0", "--path", path, "-s", sizes, "-n", "4", "--warmup", "2", "--json"];
        let out = lspan(&args, Some(&dir));
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for row in json["results"].as_array().unwrap() {
            assert_eq!((&row["memory"], &row["peer_memory"]), (&"cuda:0".into(), &"cuda:0".into()));
            assert_eq!(row["wrong_bytes"], 0, "{row}");
            let reason = row["reason"].as_str().unwrap();
            let staged = "cuda:0 staged through pinned host memory: this path has no access to device memory";
            assert!(reason.contains(staged), "{reason}");
        }
    }
}

#[test]
fn no_driver_and_no_such_memory_are_said() {
    let out = lspan(&["perf", "bw", "--mem", "gpu7"], None);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("LS1312 gpu7 names no memory"));
    let Some(dir) = driver() else { return };
    let out = lspan(&["perf", "bw", "--mem", "cuda:3"], Some(&dir));
    assert_eq!(out.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&out.stderr).contains("LS1304 there is no device cuda:3: the driver shows 1"));
}
