use super::*;

fn code(text: &str) -> Vec<Token> {
    without_tests(tokens(text)).0
}

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

fn krate(folder: &str, name: &str) -> Crate {
    Crate { folder: folder.to_owned(), name: name.to_owned() }
}

#[test]
fn lines_of_code_leave_out_blanks_comments_and_tests() {
    let text = "//! About.\n\nuse a::b; // why\n\n/// Doc.\n#[derive(Debug)]\nstruct A {\n    x: &'static str,\n}\n\
                const T: &str = \"one\n\ntwo\";\n/* no\ncode */\n#[cfg(test)]\n#[allow(dead_code)]\nfn only_tests() {\n    f();\n}\n\
                #[cfg(any(test, feature = \"fixture\"))]\nfn double() {\n}\n#[cfg(test)]\nmod tests;\n";
    let crates = [krate("crates/a", "a")];
    let tree = [
        source("crates/a/src/lib.rs", text),
        source("crates/a/src/tests/deep.rs", "fn f() {}\n"),
        source("crates/a/tests/x.rs", "fn f() {}\n"),
        source("crates/ab/src/lib.rs", "fn f() {}\n"),
        source("crates/a/build.rs", "fn main() {\n}\n"),
    ];
    let count = lines(&shipped(&tree, &crates));
    // One `use`, four of the struct with its attribute, three of the text, two of the build script.
    assert_eq!(count.value, 10);
    assert_eq!(count.places, ["     10 crates/a"]);
}

#[test]
fn modules_under_cfg_test_take_their_files_with_them() {
    let crates = [krate("crates/a", "a")];
    let tree = [
        source("crates/a/src/lib.rs", "mod b;\n#[cfg(all(test, unix))]\npub(crate) mod double;\n"),
        source(
            "crates/a/src/b.rs",
            "#[cfg(test)]\nmod fake {\n    fn f() {}\n}\n#[cfg(test)]\nmod model;\nfn g() {}\n",
        ),
        source("crates/a/src/b/model.rs", "fn f() {}\n"),
        source("crates/a/src/double.rs", "fn f() {}\n"),
        source("crates/a/src/double/more.rs", "fn f() {}\n"),
    ];
    let found = shipped(&tree, &crates);
    let paths: Vec<&str> = found.iter().map(|(_, code)| code.path).collect();
    assert_eq!(paths, ["crates/a/src/lib.rs", "crates/a/src/b.rs"]);
    assert_eq!(lines(&found).value, 2);
}

#[test]
fn decoders_are_told_from_parsers_of_text() {
    let text = "impl Offer {\n pub fn decode(bytes: &[u8; LEN]) -> Option<Offer> {}\n fn encode(&self) -> Vec<u8> {}\n}\n\
                fn parse_line(text: &str, more: &[u8]) {}\nfn decode(b: [u8; 4]) {}\nfn decoded(b: &[u8]) {}";
    let found = decoders(&code(text));
    assert_eq!(found, [(2, "Offer: decode".to_owned()), (6, "Offer: decode".to_owned())]);
}

#[test]
fn types_and_rails_are_counted_by_what_they_are() {
    let text = "pub struct A;\npub(crate) struct B;\npub unsafe trait C {}\npub fn d() -> impl Rail {}\n\
                impl<R: Rail> contract::Rail for Staged<R> {}\nimpl Sink for X {}\npub type E = u8;\nfn f() { for x in Rail {} }";
    let names: Vec<String> = public_types(&code(text)).into_iter().map(|(_, text)| text).collect();
    assert_eq!(names, ["struct A", "trait C", "type E"]);
    assert_eq!(rails(&code(text)), [(5, "Rail for Staged".to_owned())]);
}

#[test]
fn a_transport_may_name_itself() {
    let crates = [
        krate("transports/tcp", "linkspan-tcp"),
        krate("transports/shm", "linkspan-shm"),
        krate("crates/fabric", "linkspan-fabric"),
    ];
    let tree = [
        source("transports/shm/src/lib.rs", "fn f() {}"),
        source("transports/tcp/src/lib.rs", "use linkspan_tcp::X;\nuse linkspan_tcp_extra::Y;"),
        source("crates/fabric/src/a.rs", "use linkspan_tcp::X;\nuse linkspan_shm::Y;\nuse linkspan_tcp::Z;"),
        source("crates/fabric/src/b.rs", "// linkspan_tcp\nfn f() {}"),
    ];
    assert_eq!(mentions(&shipped(&tree, &crates)).places, ["crates/fabric/src/a.rs: linkspan_shm, linkspan_tcp"]);
}

#[test]
fn a_count_may_fall_and_not_rise() {
    let counts = |value| [Count { name: "x", what: "things", value, places: Vec::new() }];
    let allowed = |text: &str| BTreeMap::from([read(text).expect("a line")]);
    let (problems, notes) = compared(&counts(6), &allowed("x 5"));
    assert!(problems[0].contains("x is 6, over the 5") && notes.is_empty());
    let (problems, notes) = compared(&counts(4), &allowed("x 5"));
    assert!(problems.is_empty() && notes[0].contains("lower"));
    assert_eq!(compared(&counts(5), &allowed("x 5")), (vec![], vec![]));
    let (problems, _) = compared(&counts(5), &allowed("y 5"));
    assert_eq!(problems.len(), 2, "one without a number, and a number for nothing");
}
