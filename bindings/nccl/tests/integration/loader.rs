//! Files that are no plugin, or a broken one. A whole one is loaded by the tests of `lspan selftest`.

use std::path::PathBuf;

use linkspan_plugin::loader::{LoadError, inspect};

fn temporary(name: &str, content: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("linkspan-loader-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn no_file_and_no_library() {
    for (name, content, why) in [
        ("empty", &b""[..], "file too short"),
        ("text", b"this is not a library, whatever its name says, and it goes on for longer than a header", "ELF"),
        ("cut", b"\x7fELF\x02\x01\x01\0", "file too short"),
    ] {
        let file = temporary(name, content);
        let error = inspect(&file).unwrap_err();
        let _ = std::fs::remove_file(&file);
        assert!(matches!(&error, LoadError::Load { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("LS0830") && text.contains(why) && text.contains(name), "{text}");
    }
    let text = inspect(&PathBuf::from("/no/such/plugin.so")).unwrap_err().to_string();
    assert!(text.contains("/no/such/plugin.so") && text.contains("No such file"), "{text}");
}

#[test]
fn a_library_that_is_no_plugin() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().find_map(|line| line.split_whitespace().last().filter(|name| name.contains("/libc.so")));
    let text = inspect(&PathBuf::from(libc.unwrap())).unwrap_err().to_string();
    assert!(text.starts_with("LS0831") && text.contains("no net plugin"), "{text}");
}

#[test]
fn a_table_with_nothing_behind_it() {
    // Cargo builds the example beside this test.
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples");
    let text = inspect(&folder.join("libwrong_table.so")).unwrap_err().to_string();
    assert!(text.starts_with("LS0832 ncclNetPlugin_v12 is no table: init is 0x"), "{text}");
}
