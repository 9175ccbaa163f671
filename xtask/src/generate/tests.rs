use super::{documents, stale};
use crate::tree::Source;
use std::path::Path;

#[test]
fn ledger_and_error_list_name_file_count_and_meaning() {
    let tree = [
        Source {
            path: "sys/net/src/lib.rs".into(),
            text: "//! Calls. More.\n// SAFETY: y\nunsafe { a() } unsafe { b() }".into(),
        },
        Source {
            path: "crates/proto/src/head.rs".into(),
            text: "enum E {\n/// Means <this|that>.\n#[error(\"LS0001 byte {0}\")]\nA(u8) }".into(),
        },
        Source {
            path: "bindings/c/linkspan.map".into(),
            text: "# Names\nLIBLINKSPAN_0 {\n  global:\n    linkspan_b;\n    linkspan_a;\n  local:\n    *;\n};\n\
                   LIBLINKSPAN_0.2 {\n  global:\n    linkspan_c;\n} LIBLINKSPAN_0;\n"
                .into(),
        },
    ];
    let [_, (_, safety), (_, errors), _, _, (_, texts), (_, symbols)] = documents(&tree);
    assert!(safety.contains("| [sys/net/src/lib.rs](../sys/net/src/lib.rs) | 2 | 0 | 0 | 0 | Calls |"), "{safety}");
    assert!(
        errors.contains(
            "| `LS0001` | byte {0} | [crates/proto: head.rs](../crates/proto/src/head.rs) | Means &lt;this\\|that>. |"
        ),
        "{errors}"
    );
    let lines: Vec<&str> = symbols.lines().skip(2).collect();
    let old = [
        " LIBLINKSPAN_0@LIBLINKSPAN_0 0.1.0",
        " LIBLINKSPAN_0.2@LIBLINKSPAN_0.2 0.2",
        " linkspan_a@LIBLINKSPAN_0 0.1.0",
    ];
    assert_eq!(lines[..3], old);
    assert_eq!(lines[3..], [" linkspan_b@LIBLINKSPAN_0 0.1.0", " linkspan_c@LIBLINKSPAN_0.2 0.2"]);
    assert_eq!(texts, "&[\n    (1, c\"LS0001 byte {0}\"),\n]\n");
}

#[test]
fn a_missing_document_is_stale() {
    let problems = stale(Path::new("/nonexistent"), &[]);
    assert!(problems.iter().any(|p| p.starts_with("docs/SAFETY.md is stale")));
    assert!(problems.iter().any(|p| p.starts_with("docs/ERRORS.md is stale")));
    assert!(problems.iter().any(|p| p.starts_with("bindings/c/include/linkspan.h")), "{problems:?}");
}
