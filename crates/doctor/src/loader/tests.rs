use linkspan_topology::fixture::Fixture;

use super::*;

/// A cache as ldconfig writes it, with an old-format head in front as older glibc has it.
fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut texts = Vec::new();
    let mut table = Vec::new();
    let begin = 48 + entries.len() * 24;
    for (name, path) in entries {
        let mut place = |text: &str| {
            let at = (begin + texts.len()) as u32;
            texts.extend(text.bytes().chain([0]));
            at
        };
        let words = [0x0303, place(name), place(path), 0, 0, 0];
        table.extend(words.iter().flat_map(|word: &u32| word.to_ne_bytes()));
    }
    let mut cache = b"ld.so-1.7.0\0\0\0\0\0glibc-ld.so.cache1.1".to_vec();
    cache.extend((entries.len() as u32).to_ne_bytes());
    cache.extend((texts.len() as u32).to_ne_bytes());
    cache.resize(16 + 48, 0);
    cache.extend(table);
    cache.extend(texts);
    cache
}

#[test]
fn the_order_is_that_of_the_dynamic_linker() {
    let fix = Fixture::new();
    for (dir, release) in [("opt/a", "0.2.0"), ("opt/b", "0.1.0"), ("usr/lib", "0.3.0")] {
        fix.file(&format!("{dir}/libx.so"), &format!("\u{7f}ELF linkspan-plugin-version={release}; more"));
    }
    std::fs::create_dir_all(fix.root.join("etc")).unwrap();
    std::fs::write(
        fix.root.join("etc/ld.so.cache"),
        cache(&[("liby.so", "/opt/b/liby.so"), ("libx.so", "/opt/b/libx.so")]),
    )
    .unwrap();
    let roots = fix.roots();
    let found = |path: &str| -> Vec<(String, String)> {
        let list = Loader::read(&roots, path).find("libx.so");
        list.into_iter().map(|plugin| (plugin.file, plugin.version.unwrap_or_default())).collect()
    };
    let plain =
        |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
    assert_eq!(found(""), plain(&[("/opt/b/libx.so", "0.1.0"), ("/usr/lib/libx.so", "0.3.0")]));
    let first = ("/opt/a/libx.so", "0.2.0");
    assert_eq!(
        found("relative:/none:/opt/a/"),
        plain(&[first, ("/opt/b/libx.so", "0.1.0"), ("/usr/lib/libx.so", "0.3.0")])
    );
    // One file by two ways is there once.
    assert_eq!(found("/opt/b").len(), 2);
}

#[test]
fn a_damaged_cache_names_nothing() {
    let whole = cache(&[("libx.so", "/opt/b/libx.so")]);
    assert_eq!(cached(&whole, "libx.so"), ["/opt/b/libx.so"]);
    for len in 0..whole.len() {
        cached(&whole[..len], "libx.so");
    }
    let mut many = whole.clone();
    many[16 + 20..16 + 24].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert_eq!(cached(&many, "libx.so"), ["/opt/b/libx.so"]);
    let mut far = whole;
    far[16 + 52..16 + 56].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert!(cached(&far, "libx.so").is_empty());
}

#[test]
fn this_systems_cache_is_understood() {
    let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else { return println!("skipped: no /etc/ld.so.cache") };
    let found = cached(&bytes, "libc.so.6");
    assert!(found.iter().any(|path| Path::new(path).is_file()), "{found:?}");
}

#[test]
fn releases_are_compared_by_number() {
    assert!(older(Some("0.9.0"), Some("0.10.0")) && older(None, Some("0.1.0")));
    assert!(!older(Some("0.1.0"), Some("0.1.0")) && !older(Some("0.1.0"), None) && !older(None, None));
}

#[test]
fn releases_are_older_as_semantic_versioning_has_it() {
    let rising = [
        "0.0.9",
        "0.1.0",
        "0.2.0-0.3.7",
        "0.2.0-alpha",
        "0.2.0-alpha.1",
        "0.2.0-alpha.beta",
        "0.2.0-beta.2",
        "0.2.0-beta.11",
        "0.2.0-rc1",
        "0.2.0",
        "0.10.0",
        "28.43.1014",
        "28.45.4028",
    ];
    for (at, a) in rising.iter().enumerate() {
        for (other, b) in rising.iter().enumerate() {
            assert_eq!(older(Some(a), Some(b)), at < other, "{a} {b}");
        }
    }
    assert!(!older(Some("0.2.0+deb1"), Some("0.2.0")) && !older(Some("0.2.0"), Some("0.2.0+deb1")));
    assert!(older(None, Some("0.0.1")) && !older(Some("0.0.1"), None) && !older(None, None));
}
