use super::{Kind, tokens};

fn words(text: &str) -> Vec<String> {
    tokens(text)
        .into_iter()
        .filter_map(|t| match t.kind {
            Kind::Word(w) => Some(w),
            _ => None,
        })
        .collect()
}

fn texts(text: &str) -> Vec<String> {
    tokens(text)
        .into_iter()
        .filter_map(|t| match t.kind {
            Kind::Text(w) => Some(w),
            _ => None,
        })
        .collect()
}

#[test]
fn comments_and_strings_hide_their_words() {
    assert_eq!(words("a // unsafe\nb /* unsafe /* nested */ unsafe */ c \"unsafe\" d"), ["a", "b", "c", "d"]);
    assert_eq!(words(r####"a r"unsafe" b r#"unsafe " unsafe"# c br##"unsafe"## d"####), ["a", "b", "c", "d"]);
}

#[test]
fn comments_are_for_the_item_below_or_for_readers() {
    let kinds: Vec<Kind> =
        tokens("//! File.\n/// Item.\n//// x\n// SAFETY: y\n/** z */").into_iter().map(|t| t.kind).collect();
    assert_eq!(kinds, [Kind::Doc("Item.".into()), Kind::Note("// x".into()), Kind::Note("SAFETY: y".into())]);
}

#[test]
fn quotes_are_characters_or_lifetimes() {
    assert_eq!(words(r#"f('"') 'x' '\'' '\u{41}' &'a str unsafe"#), ["f", "a", "str", "unsafe"]);
}

#[test]
fn strings_resolve_continuation_lines() {
    assert_eq!(texts("x(\"LS0001 one \\\n     two \\\"three\\\"\")"), ["LS0001 one two \"three\""]);
}

#[test]
fn lines_count_through_every_kind_of_token() {
    let all = tokens("/* 1\n2 */ \"a\nb\" r\"\n\" last");
    assert_eq!(all.last().map(|t| t.line), Some(4));
}

#[test]
fn text_that_never_ends_is_survived() {
    for text in ["\"abc", "/* abc", "r#\"abc", "'", "'\\", "b\"\\", "r#", "\\"] {
        tokens(text);
    }
}
