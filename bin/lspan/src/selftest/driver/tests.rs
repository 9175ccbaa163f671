use super::*;

fn root(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("lspan-driver-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn told(root: &Path) -> [(Verdict, String); 2] {
    lines(root).map(|line| (line.verdict, line.text))
}

#[test]
fn each_state_of_the_driver_is_told() {
    let root = root("states");
    let [module, node] = told(&root);
    assert!(module.0 == Verdict::Skip && node.0 == Verdict::Skip && module.1.contains("not loaded"), "{module:?}");

    fs::create_dir_all(root.join("sys/module/linkspan")).unwrap();
    fs::write(root.join("sys/module/linkspan/version"), "0.1.0\n").unwrap();
    let [module, node] = told(&root);
    assert_eq!(module, (Verdict::Pass, "linkspan.ko 0.1.0 is loaded".to_owned()));
    assert!(node.0 == Verdict::Skip && node.1.contains("no cable"), "{node:?}");

    let nodes = root.join("dev/linkspan");
    fs::create_dir_all(&nodes).unwrap();
    fs::write(nodes.join("0"), "").unwrap();
    let [_, node] = told(&root);
    assert!(node.0 == Verdict::Pass && node.1.contains("linkspan/0 can be opened"), "{node:?}");

    // What cannot be opened for writing: here a folder.
    fs::create_dir(nodes.join("1")).unwrap();
    let [_, node] = told(&root);
    assert!(node.0 == Verdict::Fail && node.1.contains("linkspan/1: "), "{node:?}");
    fs::remove_dir_all(&root).unwrap();
}
