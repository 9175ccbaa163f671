use super::*;

fn table(version: u32) -> Table {
    let device = Device { name: "lo".into(), speed: 10_000, ptr_support: PTR_HOST | PTR_DMABUF };
    Table { version, name: "linkspan".into(), devices: vec![device] }
}

#[test]
fn complete_tables_that_agree() {
    let tables: Vec<Table> = VERSIONS.map(table).collect();
    let text = summary(&tables).unwrap();
    assert_eq!(text, "tables v6 to v12, v12 calls itself linkspan: lo, 10000 Mb/s, host and dma-buf memory");
    let old = summary(&tables[..6]).unwrap_err();
    assert!(old.contains("lacks ncclNetPlugin_v12"), "{old}");
    let mut odd = tables.clone();
    odd[1].devices.clear();
    assert!(summary(&odd).unwrap_err().contains("disagree: v7 calls itself linkspan: no device"));
}

#[test]
fn a_missing_file_is_skipped_and_says_what_makes_one() {
    let missing = line(NAMES[0], &[std::env::temp_dir().join("no-such-folder")]);
    assert_eq!(missing.verdict, Verdict::Skip);
    assert!(missing.text.contains("linkspan-nccl") && missing.text.contains("--plugin"));
}
