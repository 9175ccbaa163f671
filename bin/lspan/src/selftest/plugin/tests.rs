use super::*;

#[test]
fn found_damaged_and_missing() {
    let dir = std::env::temp_dir().join(format!("lspan-plugin-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let places = [dir.clone()];
    let missing = line(NAMES[0], &places);
    assert_eq!(missing.verdict, Verdict::Skip);
    assert!(missing.text.contains("xtask dist"));

    let mut file = b"\x7fELF...\0".to_vec();
    for version in 6..12 {
        file.extend_from_slice(format!("ncclNetPlugin_v{version}\0").as_bytes());
    }
    fs::write(dir.join(NAMES[0]), &file).unwrap();
    let old = line(NAMES[0], &places);
    assert_eq!((old.verdict, old.text.ends_with("lacks ncclNetPlugin_v12")), (Verdict::Fail, true), "{}", old.text);

    file.extend_from_slice(b"ncclNetPlugin_v12\0");
    fs::write(dir.join(NAMES[0]), &file).unwrap();
    assert_eq!(line(NAMES[0], &places).verdict, Verdict::Pass);
    fs::remove_dir_all(&dir).unwrap();
}
