use super::*;
use crate::tree as files;

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

/// A library that re-exports from its own modules and from another crate.
fn tree() -> Vec<Source> {
    vec![
        source("crates/linkspan/Cargo.toml", "[package]\nname = \"linkspan\"\n"),
        source(
            "crates/linkspan/src/lib.rs",
            "mod inner;\npub mod open;\npub use inner::{Thing as Named, helper};\npub use other_crate::Deep;\n\
             pub(crate) use inner::Hidden;\n#[cfg(test)]\nmod tests;\n",
        ),
        source(
            "crates/linkspan/src/inner.rs",
            "/// Doc.\n#[derive(Clone)]\n#[allow(dead_code)]\npub struct Thing { pub a: u8, b: u16 }\npub struct Hidden;\n\
             impl Thing { /// Doc.\n pub fn get(&self, n: usize) -> Option<u8> { self.b; None }\n fn private(&self) {} }\n\
             impl Default for Thing { fn default() -> Thing { todo() } }\n\
             pub fn helper<T: Into<u8>>(t: T) where T: Copy { t; }\nmod far { pub struct Thing; impl Thing { pub fn no(&self) {} } }",
        ),
        source("crates/linkspan/src/open.rs", "pub const LEN: usize = 4;\nconst OWN: usize = 5;\n"),
        source("crates/other/Cargo.toml", "[package]\nname = \"other-crate\"\n"),
        source("crates/other/src/lib.rs", "mod deep;\npub use deep::Deep;\n"),
        source("crates/other/src/deep.rs", "pub trait Deep { fn must(&self) -> u8; fn may(&self) { self.must(); } }\n"),
    ]
}

#[test]
fn surface_has_what_is_public_and_nothing_else() {
    let text = rust(&tree()).expect("a surface");
    for part in [
        "// linkspan::Named",
        "#[derive(Clone)]\npub struct Thing {\n    pub a: u8,\n    _private: _,\n}",
        "pub fn get(&self, n: usize) -> Option<u8> {}",
        "impl Default for Thing {}",
        "pub fn helper<T: Into<u8>>(t: T)\nwhere\n    T: Copy,\n{}",
        "// linkspan::Deep (of other_crate::deep)",
        "fn must(&self) -> u8;\n    fn may(&self) {}",
        "// linkspan::open::LEN\npub const LEN: usize = 4;",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    for part in ["Hidden", "fn private", "fn no", "OWN", "Doc.", "dead_code", "u16"] {
        assert!(!text.contains(part), "{part} is in\n{text}");
    }
}

#[test]
fn a_changed_signature_changes_the_surface() {
    let was = rust(&tree()).expect("a surface");
    let mut changed = tree();
    changed[2].text = changed[2].text.replace("n: usize", "n: u32");
    let is = rust(&changed).expect("a surface");
    let lines = difference(&was, &is);
    assert_eq!(
        lines,
        "-    pub fn get(&self, n: usize) -> Option<u8> {}\n+    pub fn get(&self, n: u32) -> Option<u8> {}\n"
    );
    changed[2].text = changed[2].text.replace("self.b; None", "None");
    assert_eq!(rust(&changed).as_ref(), Ok(&is), "what a function does is not its signature");
}

#[test]
fn a_name_that_leads_nowhere_is_an_error() {
    let mut broken = tree();
    broken[1].text.push_str("pub use inner::Missing;\n");
    assert!(rust(&broken).expect_err("refused").contains("inner::Missing"));
}

#[test]
fn surface_of_c_has_declarations_and_versions() {
    let map = capi::HEADER.replace("include/linkspan.h", MAP);
    let tree = [source(&map, "# Why.\nLINKSPAN_0 {\n  global:\n    linkspan_open;\n};\n")];
    let header = "/* About. */\n#define A 1\n\n// What it does.\nint32_t linkspan_open(uint32_t flags);\n";
    let text = c(&tree, header).expect("a surface");
    assert!(text.ends_with(
        "#define A 1\nint32_t linkspan_open(uint32_t flags);\n\nLINKSPAN_0 {\n  global:\n    linkspan_open;\n};\n"
    ));
}

#[test]
fn the_surface_of_this_tree_is_the_one_in_docs() {
    let root = files::root();
    let sources = files::sources(&root);
    let header = capi::header(&root).expect("a header");
    for (path, now) in [(RUST, rust(&sources)), (C, c(&sources, &header))] {
        let now = now.expect("a surface");
        let then = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        assert!(then == now, "{path} is stale; `cargo xtask gen` accepts:\n{}", difference(&then, &now));
    }
}
