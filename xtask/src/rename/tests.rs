use super::apply::{Class, apply, classes, parts};
use super::table::{Table, covers, words};
use super::{collisions, moves};

fn applied(table: &str, file: &str, text: &str) -> String {
    let table = Table::parse(table).expect("a table");
    apply(&table.rules(file).expect("no two for one thing"), file, text).text
}
