use std::collections::BTreeMap;

use super::apply::{Applied, apply, parts};
use super::table::{Table, covers, words};
use super::{collisions, moves};

fn table(text: &str) -> Table {
    Table::parse(text).expect("a table")
}

fn apply_to(entries: &str, file: &str, text: &str) -> Applied {
    apply(&table(entries).rules(file).expect("one entry for each thing"), file, text)
}

fn applied(entries: &str, file: &str, text: &str) -> String {
    apply_to(entries, file, text).text
}

#[test]
fn words_of_a_line_are_parted_by_blanks_held_by_quotes_and_ended_by_a_hash() {
    assert_eq!(words("text \"a b\" c # d").expect("words"), ["text", "a b", "c"]);
    assert!(words("# all of it").expect("words").is_empty());
    assert!(words("text \"a b").is_err());
}

#[test]
fn an_entry_that_is_none_or_changes_nothing_is_refused() {
    for line in ["rename a b", "name a", "name a b c d", "word a a", "text \"\" b"] {
        assert!(Table::parse(line).is_err(), "{line}");
    }
}

#[test]
fn scopes_are_folders_paths_or_patterns() {
    assert!(covers("a/", "a/b.rs") && !covers("a/", "ab/c.rs"));
    assert!(covers("a/b.rs", "a/b.rs") && !covers("a/b.rs", "a/b.rs.txt"));
    assert!(covers("*.lock", "x/Cargo.lock") && covers("*/fixtures/*", "a/fixtures/b") && !covers("a*b", "a"));
}

#[test]
fn identifiers_have_parts() {
    assert_eq!(parts("with_AnyRoom2"), ["with", "_", "Any", "Room2"]);
    assert_eq!(parts("HTTPRoom"), ["HTTP", "Room"]);
    assert_eq!(parts("ROOM_MAX"), ["ROOM", "_", "MAX"]);
}

#[test]
fn a_word_changes_as_part_of_identifiers_in_each_form_and_in_prose() {
    let entry = "word room transport_kind \"kind of transport\"";
    let text = "// A room. `room` too, classroom not.\nlet with_room: AnyRoom<'room> = ROOM_MAX;\n";
    let want = "// A kind of transport. `transport_kind` too, classroom not.\n\
                let with_transport_kind: AnyTransportKind<'transport_kind> = TRANSPORT_KIND_MAX;\n";
    assert_eq!(applied(entry, "a.rs", text), want);
    assert_eq!(
        applied(entry, "a.md", "Rooms. The Room, `AnyRoom`.\n"),
        "Rooms. The Kind of transport, `AnyTransportKind`.\n"
    );
}

#[test]
fn strings_hold_prose_but_for_captured_variables() {
    let entry = "word desk broker_task \"broker\"";
    let text = "f(\"the desk of {desk}\\ndesk\");";
    assert_eq!(applied(entry, "a.rs", text), "f(\"the broker of {broker_task}\\nbroker\");");
}

#[test]
fn a_name_changes_whole_and_in_code_only() {
    let text = "// Lost `Lost` LostRail\nstruct Lost(LostRail); // \"\nlet x = \"Lost\";\n";
    let want = "// Lost `Missing` LostRail\nstruct Missing(LostRail); // \"\nlet x = \"Lost\";\n";
    assert_eq!(applied("name Lost Missing", "a.rs", text), want);
}

#[test]
fn phrases_are_found_across_comment_lines_and_keep_the_break_and_the_case() {
    let entry = "phrase \"the old door\" \"the listener\"";
    let text = "/// Through the old\n    /// door. The old door.\nlet the_old_door = 1;\n";
    let want = "/// Through the\n    /// listener. The listener.\nlet the_old_door = 1;\n";
    assert_eq!(applied(entry, "a.rs", text), want);
    assert_eq!(applied(entry, "a.rs", "f(\"the old \\\n   door\")"), "f(\"the \\\n   listener\")");
    assert_eq!(applied(entry, "a.rs", "// the\n//\n// old door"), "// the\n//\n// old door");
}

#[test]
fn texts_change_wherever_they_are_and_as_they_stand() {
    let entry = "text \"mod door;\" \"mod listener;\"";
    assert_eq!(applied(entry, "a.rs", "mod door; // mod door;\n"), "mod listener; // mod listener;\n");
    assert_eq!(applied(entry, "a.rs", "Mod door; mymod door;"), "Mod door; mymod door;");
}

#[test]
fn the_longest_wins_what_is_kept_stays_and_nothing_is_read_twice() {
    let entries = "phrase \"a b\" x\nphrase \"a b c\" y\nkeep \"no room\"\nword room hall\nword hall room\n";
    assert_eq!(applied(entries, "a.md", "a b c, a b, no room, room, hall"), "y, x, no room, hall, room");
}

#[test]
fn articles_follow_the_word_behind_them() {
    let entries = "word door entry\nword inlet sink";
    let text = "// A door, a `door`, an inlet, data door; a door\nlet a = door;\n";
    assert_eq!(
        applied(entries, "a.rs", text),
        "// An entry, an `entry`, a sink, data entry; an entry\nlet a = entry;\n"
    );
}

#[test]
fn the_longest_scope_wins_and_equal_ones_are_refused() {
    let entries = "word lane ring\nword lane cell in a/\nword lane view in a/b.rs not a/c.rs\n";
    let of = |file| applied(entries, file, "lane");
    assert_eq!([of("x.rs"), of("a/c.rs"), of("a/b.rs")], ["ring", "cell", "view"]);
    assert!(table("word a b\nword a c").rules("x").is_err());
}

#[test]
fn paths_change_with_their_files() {
    let entries = "move doors bindings\nmove doors/capi bindings/c\nmove a/b.rs a/c.rs";
    let text = "doors/capi/x, doors/nccl, ../doors/, indoors/x, doors open; a/b.rs, a/b.rsx\n";
    assert_eq!(
        applied(entries, "a.md", text),
        "bindings/c/x, bindings/nccl, ../bindings/, indoors/x, doors open; a/c.rs, a/b.rsx\n"
    );
    let (table, files) = (table(entries), ["a/b.rs", "doors/capi/x", "doors/x", "y"]);
    let moved = moves(&table, &files).expect("three places");
    assert_eq!(
        moved,
        [("a/b.rs", "a/c.rs".to_owned()), ("doors/capi/x", "bindings/c/x".into()), ("doors/x", "bindings/x".into())]
    );
}

#[test]
fn two_files_at_one_place_are_refused() {
    assert!(moves(&table("move a b"), &["a/x", "b/x"]).is_err());
    assert!(moves(&table("move a c\nmove b c"), &["a/x", "b/x"]).is_err());
    assert!(moves(&table("move a b\nmove b a"), &["a/x", "b/x"]).is_ok(), "an exchange");
}

#[test]
fn only_link_targets_change_where_records_stay() {
    let entries = "links old.md\nmove doors bindings\nword doors bindings";
    let text = "doors/x and [doors/y](../doors/y) doors\n";
    assert_eq!(applied(entries, "old.md", text), "doors/x and [doors/y](../bindings/y) doors\n");
}

#[test]
fn types_that_would_become_one_are_refused_and_others_noted() {
    let entries = "name Desk Acceptor\nname desk acceptor";
    let applied = apply_to(entries, "a.rs", "struct Desk; struct Acceptor; let (desk, acceptor) = f();");
    let (refused, noted) = collisions(&table(entries), "a.rs", &applied);
    assert_eq!(refused, ["a.rs: Acceptor, Desk would all be Acceptor"]);
    assert_eq!(noted, ["a.rs: acceptor, desk would all be acceptor"]);
    let merged = "name Desk Acceptor merge\nname desk acceptor merge";
    let (refused, noted) = collisions(&table(merged), "a.rs", &applied);
    assert!(refused.is_empty() && noted.is_empty());
}

#[test]
fn entries_are_counted_and_a_second_pass_finds_nothing() {
    let entries = "name Desk Acceptor\nword room transport\nphrase \"the way in\" \"the listener\"";
    let first = apply_to(entries, "a.rs", "struct Desk; // the way in, a room\nfn room() {}\n");
    assert_eq!(first.counts, BTreeMap::from([(0, 1), (1, 2), (2, 1)]));
    let second = apply_to(entries, "a.rs", &first.text);
    assert!(second.counts.is_empty() && second.text == first.text);
}
