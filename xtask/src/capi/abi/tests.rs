use super::{MAP, inspect, problems, promised};
use crate::dist::elf::Elf;
use crate::tree::Source;

const SCRIPT: &str = "# words; that say nothing {\nLIB_0 {\n  global:\n    one;\n  local:\n    *;\n};\nLIB_1 {\n  global:\n    two;\n} LIB_0;\n";

fn names(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn a_version_script_gives_its_names_with_their_versions() {
    assert_eq!(promised(SCRIPT), names(&[("one", "LIB_0"), ("two", "LIB_1")]));
}

#[test]
fn sources_and_script_must_agree() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let calls = "pub unsafe extern \"C\" fn one(\n    a: i32,\n) {}\npub extern \"C\" fn three() {}\n";
    let tree = [source(MAP, SCRIPT), source("bindings/c/src/calls/x.rs", calls)];
    let found = problems(&tree);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("three is missing") && found[1].contains("two is in no source"));
}

#[test]
fn a_library_must_have_what_the_script_says_and_no_more() {
    let good = || Elf {
        exports: names(&[("one", "LIB_0"), ("two", "LIB_1")]).into_iter().collect(),
        soname: Some("lib.so.0".to_owned()),
        now: true,
        nodelete: true,
        relro: true,
        ..Elf::default()
    };
    assert_eq!(inspect(&good(), SCRIPT, "lib.so.0"), Vec::<String>::new());
    assert_eq!(inspect(&good(), SCRIPT, "lib.so.1").len(), 1);
    let moved = Elf { exports: names(&[("one", "LIB_0"), ("two", "LIB_0")]).into_iter().collect(), ..good() };
    assert_eq!(inspect(&moved, SCRIPT, "lib.so.0").len(), 2);
    for broken in [Elf { now: false, ..good() }, Elf { nodelete: false, ..good() }, Elf { relro: false, ..good() }] {
        assert_eq!(inspect(&broken, SCRIPT, "lib.so.0").len(), 1);
    }
}
