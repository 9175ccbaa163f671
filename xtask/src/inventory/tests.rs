use super::*;

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

fn found(path: &str, text: &str) -> Vec<String> {
    tests(&[source("a/Cargo.toml", "[package]\nname = \"krate\"\n"), source(path, text)]).into_iter().collect()
}

#[test]
fn tests_are_named_by_crate_and_module() {
    let text = "mod tests {\n mod deep { #[test]\n fn one() { if x { y } } }\n #[test]\n #[should_panic]\n fn two() {}\n}\n\
                proptest! {\n #[test]\n fn three(x in 0..1) {}\n}\nfn four() {}\n// #[test] fn five() {}";
    assert_eq!(found("a/src/lib.rs", text), ["krate tests::deep::one", "krate tests::two", "krate three"]);
    assert_eq!(found("a/src/b/c.rs", "#[test]\nfn d() {}"), ["krate b::c::d"]);
    assert_eq!(found("a/src/b/mod.rs", "#[test]\nfn d() {}"), ["krate b::d"]);
}

#[test]
fn integration_tests_keep_their_names_when_programs_are_joined() {
    let text = "#[test]\nfn d() {}";
    for path in ["a/tests/b.rs", "a/tests/integration/b.rs", "a/tests/b/main.rs", "a/tests/integration/b/mod.rs"] {
        assert_eq!(found(path, text), ["krate tests::b::d"], "{path}");
    }
}

#[test]
fn tests_that_macros_make_are_found_where_these_are_used() {
    let text = "macro_rules! planted { ($($run:ident($k:ident) $name:ident,)*) => { $(#[test] fn $name() { $run(); })* }; }\n\
                planted!(\n engine(A::B) lost,\n rail(C) twice,\n);\nbehaviours!(order::tags, load::many,);\n\
                mod usual { conformance_suite!(single_threaded direct, Transport::new(a, b)); }\n\
                fn expands() { $crate::conformance_suite!(single_threaded $suite, $transport); }";
    let all = ["krate lost", "krate many", "krate tags", "krate twice", "krate usual::direct (suite)"];
    assert_eq!(found("a/src/lib.rs", text), all);
}

#[test]
fn python_tests_count_too() {
    let text =
        "def helper():\n    pass\n\ndef test_a(x):\n    pass\n\nclass T:\n    async def test_b(self):\n        pass\n";
    assert_eq!(found("a/tests/test_x.py", text), ["krate tests::test_x::test_a", "krate tests::test_x::test_b"]);
}

fn today(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

#[test]
fn a_test_that_is_gone_needs_a_line() {
    assert_eq!(compared("# all\nk a\nk b\n", "", &today(&["k a", "k b", "k new"])), Vec::<String>::new());
    let problems = compared("k a\nk b\n", "", &today(&["k a"]));
    assert!(problems.len() == 1 && problems[0].contains("test k b is gone"), "{problems:?}");
    assert!(compared("k b\n", "k b -> - b cannot happen any more", &today(&[])).is_empty());
    assert!(compared("k b\n", "k b -> k c", &today(&["k c"])).is_empty());
    assert!(compared("k b\n", "k b -> k c", &today(&[]))[0].contains("test k c (then k b) is gone"));
}

#[test]
fn renamings_follow_one_another() {
    let moved = "old x::* -> new y::*\nnew y::a -> new z::b\nnew y::c -> - d has it\n";
    assert!(compared("old x::a\nold x::c\nold x::e\n", moved, &today(&["new z::b", "new y::e"])).is_empty());
}

#[test]
fn lines_that_say_nothing_are_refused() {
    let has = |moved: &str, part: &str| compared("k a\n", moved, &today(&["k a"])).iter().any(|p| p.contains(part));
    assert!(has("k x -> k y", "fits no test"));
    assert!(has("k a -> -", "without a reason"));
    assert!(has("k * -> - all of them", "more than one"));
    assert!(has("k * -> k b", "one side only"));
    assert!(has("k a", "is not 'old -> new'"));
    assert!(has("k a -> - it is not needed", "but is there"));
}

#[test]
fn tests_that_documents_name_are_there() {
    let rust = "mod strangers { #[test]\n fn silent_ones_wait() {} }";
    let named = |text: &str| {
        let manifest = source("a/Cargo.toml", "[package]\nname = \"linkspan-krate\"\n");
        unknown(&[manifest, source("a/src/b.rs", rust), source("docs/x.md", text)]).len()
    };
    for good in [
        "krate strangers::*",
        "linkspan-krate b::strangers::silent*",
        "krate strangers::silent_ones_wait",
        "a command",
        "x A::b",
    ] {
        assert_eq!(named(&format!("- `{good}`")), 0, "{good}");
    }
    for bad in [
        "krate stranger::*",
        "other strangers::*",
        "krate strangers::silent_ones",
        "krate rangers::silent*",
        "krate b::silent*",
    ] {
        assert_eq!(named(&format!("- `{bad}`")), 1, "{bad}");
    }
}
