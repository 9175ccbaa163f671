use super::targets;

#[test]
fn targets_are_the_bin_entries_only() {
    let manifest = "# a [[bin]] below\n[package]\nname = \"all\"\n[[bin]]\nname = \"head\"\npath = \"x\"\n\n[[bin]]\npath = \"y\"\nname = \"login\"\n[dependencies]\nname = \"no\"\n";
    assert_eq!(targets(manifest), ["head", "login"]);
}

#[test]
fn every_target_in_the_tree_has_its_source_and_seeds() {
    let dir = crate::tree::root().join("fuzz");
    let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    let names = targets(&manifest);
    assert!(names.contains(&"head"));
    for name in names {
        assert!(dir.join("fuzz_targets").join(format!("{name}.rs")).is_file(), "{name} has no source");
        assert!(std::fs::read_dir(dir.join("corpus").join(name)).unwrap().count() > 0, "{name} has no seed");
    }
}
