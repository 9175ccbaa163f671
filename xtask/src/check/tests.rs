use super::links::Item;
use super::{behaviours, codes, findings, hosts, layers, links, locks, params, unsafety, words};
use crate::lex::tokens;
use crate::tree::Source;
use std::path::Path;

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

fn has(problems: &[String], part: &str) -> bool {
    problems.iter().any(|p| p.contains(part))
}

#[test]
fn sources_below_a_src_are_seen_whatever_their_folder_is_called() {
    let all = crate::tree::sources(&crate::tree::root());
    assert!(all.iter().any(|source| source.path == "xtask/src/dist/elf.rs"));
    assert!(!all.iter().any(|source| source.path.starts_with("target/")));
}

#[test]
fn unsafe_is_counted_by_use() {
    let text = "// SAFETY: x\nunsafe { f() }\nunsafe fn g() {}\nunsafe impl Send for X {}\n#[unsafe(no_mangle)]\nstatic A: unsafe extern \"C\" fn() = h; // unsafe\n";
    let count = unsafety::count(&tokens(text));
    assert_eq!((count.blocks, count.fns, count.impls, count.attributes, count.arguments), (1, 2, 1, 1, 1));
}

#[test]
fn unsafe_outside_the_list_and_missing_forbid_are_found() {
    let tree = [
        source("crates/proto/src/lib.rs", "//! x\nfn f() { unsafe { g() } }"),
        source("crates/transport/src/lib.rs", "#![deny(unsafe_code)]"),
        source("sys/net/src/lib.rs", "unsafe { g() }"),
    ];
    let problems = unsafety::problems(&tree);
    assert!(has(&problems, "crates/proto/src/lib.rs: unsafe outside"));
    assert!(has(&problems, "crates/proto/src/lib.rs: the crate root lacks #![forbid(unsafe_code)]"));
    assert!(!has(&problems, "crates/transport/src/lib.rs"));
    assert!(!has(&problems, "sys/net/src/lib.rs"));
    assert!(has(&problems, "sys/shmring/: on the unsafe allow-list, but not in the tree"));
}

#[test]
fn findings_are_read_and_checked() {
    let given = "# all\nLS2101 a-b\nLS2102 gone\n";
    let list = |text: &str| {
        findings::problems(&[source("crates/doctor/src/list.rs", text), source("crates/doctor/codes.txt", given)])
    };
    let entry = |code: &str, slug: &str| format!("X = \"{code} {slug}\", Broken, \"t\", \"c\", \"m\", [];");
    assert_eq!(list(&entry("LS2101", "a-b")), Vec::<String>::new());
    assert!(has(&list(&(entry("LS2101", "a") + &entry("LS2101", "b"))), "of one finding"));
    assert!(has(&list(&(entry("LS2101", "a") + &entry("LS2102", "a"))), "of one finding"));
    assert!(has(&list(&(entry("LS2102", "a") + &entry("LS2101", "b"))), "behind a larger code"));
    assert!(has(&list(&entry("LS3101", "a")), "in no area"));
    assert!(has(&list("\"1499\" \"x\" Slower \"t\", \"c\";"), "LS1499 is defined nowhere"));
    assert!(has(&list("nothing"), "no entry"));
    assert!(has(&list(&entry("LS2102", "a-b")), "LS2102 was given to gone and is a-b now: take another code"));
    assert!(has(&list(&entry("LS2103", "a-b")), "add the line `LS2103 a-b`"));
}

#[test]
fn links_are_followed_to_files_headings_and_symbols() {
    let code = source("crates/x/src/lib.rs", "pub struct Head; impl Head { fn decode() {} }");
    let other = source("docs/other.md", "# Big `Title`, twice\n## Big title twice\n");
    let good = "[a](docs/other.md#big-title-twice) [b](docs/other.md#big-title-twice-1) [`Head::decode`](crates/x/src/lib.rs)\n\
                `crates/x/src/lib.rs:decode` [c](docs) [d](https://example.com/x) [e](#top)\n\n# top\n```\n[f](nowhere.md)\n```\n";
    let bad = "[a](nowhere.md)\n[b](docs/other.md#none)\n[`encode`](crates/x/src/lib.rs)\n[c](crates/x/src/lib.rs#L3)\n\
               `crates/x/src/lib.rs:encode`\n`crates/x/src/gone.rs`\n[d](../out.md)\n";
    assert_eq!(links::problems(&[code, other, source("a.md", good)]), Vec::<String>::new());
    let code = source("crates/x/src/lib.rs", "pub struct Head; impl Head { fn decode() {} }");
    let other = source("docs/other.md", "# Title\n");
    let problems = links::problems(&[code, other, source("a.md", bad)]);
    for line in 1..=7 {
        assert!(has(&problems, &format!("a.md:{line}: ")), "line {line} of {problems:?}");
    }
    assert_eq!(problems.len(), 7);
}

#[test]
fn links_are_those_that_a_reader_sees() {
    let text =
        "[a\n`b`](x.md) [c][r] `d\ne` ![f](y.svg)\n\n~~~\n[g](z.md)\n~~~\n\n| `h` | `i\\|j` |\n|-|-|\n\n[r]: v.md\n";
    let link = |codes: &[&str], target: &str| Item::Link {
        codes: codes.iter().map(|code| (*code).to_owned()).collect(),
        target: target.to_owned(),
    };
    let code = |code: &str| Item::Code(code.to_owned());
    let all = [
        (1, link(&["b"], "x.md")),
        (2, link(&[], "v.md")),
        (2, code("d e")),
        (3, link(&[], "y.svg")),
        (9, code("h")),
        (9, code("i|j")),
    ];
    assert_eq!(links::items(text), all);
}

#[test]
fn hosts_and_own_paths_are_found() {
    let root = Path::new("/some/where/tree");
    let web = format!("{}://", "https");
    let tree = [source(
        "a.md",
        &format!(
            "{web}github.com/x\n{web}mirror.invalid/x\nsee /some/where/tree/x\n/some/where/trees\n{web}127.0.0.1:80/\n"
        ),
    )];
    let problems = hosts::problems(root, &tree);
    assert!(has(&problems, "a.md:2: names the host mirror.invalid"));
    assert!(has(&problems, "a.md:3: names /some/where/tree"));
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn error_codes_are_unique_and_known() {
    let one = "enum E {\n/// First.\n#[error(\"LS0001 a {0}\")] A(u8),\n/// Second.\n#[error(\"LS0002 b\")] B }";
    let two = "fn f() { warn(\"LS0002: c\") }";
    let tree = [
        source("crates/a/src/lib.rs", one),
        source("crates/b/src/lib.rs", two),
        source("crates/a/src/tests.rs", "\"LS0001 a\""),
        source("docs/a.md", "LS0001 and LS0009\n"),
    ];
    let all = codes::definitions(&tree);
    assert_eq!(all["LS0001"].len(), 1);
    assert_eq!((all["LS0001"][0].doc.as_str(), all["LS0001"][0].message.as_str()), ("First.", "a {0}"));
    assert_eq!(all["LS0002"][0].doc, "Second.");
    let problems = codes::problems(&tree);
    assert!(has(&problems, "LS0002 is defined 2 times"));
    assert!(has(&problems, "docs/a.md:1: mentions LS0009"));
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn dependencies_go_down_only() {
    let manifest = |name: &str, needs: &str| {
        format!(
            "[package]\nname = \"{name}\"\n[dependencies]\n{needs}\n[dev-dependencies]\nlinkspan-shm.workspace = true\n"
        )
    };
    let tree = [
        source("transports/tcp/Cargo.toml", &manifest("linkspan-tcp", "linkspan-shm.workspace = true")),
        source("transports/shm/Cargo.toml", &manifest("linkspan-shm", "linkspan-proto = { path = \"x\" }")),
        source("crates/proto/Cargo.toml", &manifest("linkspan-proto", "zerocopy = \"1\"")),
        source("crates/new/Cargo.toml", &manifest("linkspan-new", "")),
    ];
    let problems = layers::problems(Path::new("/nonexistent"), &tree);
    assert!(has(&problems, "transports/tcp/Cargo.toml: depends on transports/shm"));
    assert!(has(&problems, "crates/new: has no layer"));
    assert!(!has(&problems, "transports/shm/Cargo.toml: depends"));
    assert!(!has(&problems, "crates/proto/Cargo.toml: depends"));
}

#[test]
fn parameters_come_from_the_table_and_strays_are_found() {
    let table = "params! {\n A = \"LINKSPAN_A\", Takes::Switch, \"0\",\n \"Does a.\";\n B = \"LINKSPAN_B\", Takes::Number(1, 3_600_000), \"\", \"Does b.\";\n C = \"LINKSPAN_C\", Takes::Word(&[\"x\", \"y\"]), \"x\", \"Does c.\";\n}";
    let tree = [
        source("crates/fabric/src/params.rs", table),
        source("README.md", "LINKSPAN_A and LINKSPAN_* and LINKSPAN_Z\n"),
    ];
    let all = params::table(&tree);
    let takes: Vec<&str> = all.iter().map(|p| p.takes.as_str()).collect();
    assert_eq!(takes, ["`0` or `1`", "1 to 3600000", "`x`, `y`"]);
    assert_eq!((all[2].default.as_str(), all[2].text.as_str()), ("x", "Does c."));
    let problems = params::problems(&tree);
    assert!(has(&problems, "README.md:1: mentions LINKSPAN_Z"));
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn a_range_that_is_an_expression_is_refused() {
    let table = "params! {\n A = \"LINKSPAN_A\", Takes::Number(8, 1 << 20), \"8\", \"Does a.\";\n}";
    let tree = [source("crates/fabric/src/params.rs", table)];
    let problems = params::problems(&tree);
    assert!(has(&problems, "LINKSPAN_A: write its range as two numbers"), "{problems:?}");
}

#[test]
fn a_lock_file_that_lacks_a_dependency_is_found() {
    let dir = std::env::temp_dir().join(format!("linkspan-locks-{}", std::process::id()));
    let write = |path: &str, text: &str| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
        std::fs::write(path, text).expect("write");
    };
    let package = |name: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}")
    };
    write("a/src/lib.rs", "");
    write("b/src/lib.rs", "");
    write("b/Cargo.toml", &package("b", ""));
    write("a/Cargo.toml", &package("a", "[workspace]\n"));
    write("a/Cargo.lock", "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n");
    assert_eq!(locks::problem(&dir.join("a"), "a"), None);
    write("a/Cargo.toml", &package("a", "[workspace]\n[dependencies]\nb = { path = \"../b\" }\n"));
    let problem = locks::problem(&dir.join("a"), "a").expect("a stale lock file");
    assert!(problem.contains("a/Cargo.lock does not fit"), "{problem}");
    std::fs::remove_dir_all(&dir).expect("remove");
}

#[test]
fn a_behaviour_without_its_test_is_found() {
    let list = "# x\nA | a_works | - | test_a\nB | b_works, c_works | b_works | -\nC | - | - | -\nD | d\n";
    let tree = [
        source("crates/linkspan/tests/behaviours.txt", list),
        source("crates/linkspan/tests/x.rs", "#[test]\nfn a_works() {}\n#[test]\nfn b_works() {}\nfn c_works() {}\n"),
        source("bindings/c/tests/c/x.c", "static void other(void) { b_works(); }\n"),
        source("bindings/python/tests/x.py", "import x\ndef test_a() -> None:\n"),
    ];
    let problems = behaviours::problems(&tree);
    let wanted = [
        ":3: no test c_works",
        ":3: no test b_works below bindings/c/",
        ":4: not a",
        ":5: not a",
        "behaviours, there were",
    ];
    assert!(wanted.iter().all(|part| has(&problems, part)), "{problems:?}");
    assert_eq!(problems.len(), wanted.len(), "{problems:?}");
}

#[test]
fn retired_words_are_found_in_identifiers_and_text_where_they_are_refused() {
    let list =
        "# note\ntransport -> transport not lab/\nmark -> rule in docs/\n\"in vain\" -> \"without effect\"\nbad line\n";
    let tree = [
        source("xtask/retired-words.txt", list),
        source("a.rs", "let with_transport = AnyTransport;\n// In vain; classrooms, mark\n"),
        source("docs/a.md", "a mark\n"),
        source("lab/a.rs", "transport\n"),
        source("CHANGELOG.md", "transport\n"),
    ];
    let problems = words::problems(&tree);
    let wanted = [
        "a.rs:1: `transport`",
        "a.rs:1: `transport`",
        "a.rs:2: `in vain` is now `without effect`",
        "docs/a.md:1: `mark`",
        ":5: a word",
    ];
    assert!(wanted.iter().all(|part| has(&problems, part)), "{problems:?}");
    assert_eq!(problems.len(), wanted.len(), "{problems:?}");
    assert!(words::problems(&tree[1..]).is_empty(), "nothing is refused without the list");
}
