#![allow(clippy::unwrap_used)]

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Folder {
        let folder = std::env::temp_dir().join(format!("linkspand-config-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_last_file_wins_and_each_value_names_its_own() {
    let files = [
        ("linkspand.toml", "events = 10\ninterval_s = 5\n"),
        ("linkspand.d/20-b.toml", "events = 30"),
        ("linkspand.d/10-a.toml", "events = 20\nstatistics = \"/srv/a b\""),
        ("linkspand.d/README", "not TOML"),
    ];
    let folder = Folder::new("order", &files);
    let config = Config::read(&folder.0).unwrap();
    assert_eq!((config.events(), config.interval().as_secs()), (30, 5));
    assert_eq!(config.text(false), "events = 30\ninterval_s = 5\nstatistics = \"/srv/a b\"\n");
    let text = config.text(true);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("/linkspand.d/20-b.toml") && lines[1].ends_with("/linkspand.toml"), "{text}");
    let other = Folder::new("other", &[("README", "no file of ours")]);
    assert_eq!(Config::read(&other.0).unwrap(), Config::default());
    assert!(Config::read(Path::new("/nowhere")).is_err(), "a folder that was named");
    assert!(Config::default().text(true).lines().all(|line| line.ends_with("# default")));
    // What is shown can be read again.
    let mut again = Config::default();
    again.add(Path::new("x"), &text).unwrap();
    assert_eq!(again.text(false), config.text(false));
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    for (text, want) in [
        ("evnts = 1", "unknown field `evnts`"),
        ("events = ", "line 1"),
        ("events = 0", "events is 0, and must be 1 to 65536"),
        ("events = -1", "line 1"),
        ("events = 65537", "must be 1 to 65536"),
        ("interval_s = 3601", "interval_s is 3601"),
        ("statistics = \"stats\"", "must be an absolute path"),
        ("statistics = 7", "invalid type"),
    ] {
        let folder = Folder::new("bad", &[("linkspand.toml", text)]);
        let error = Config::read(&folder.0).unwrap_err().to_string();
        assert!(error.starts_with("LS32") && error.contains("linkspand.toml") && error.contains(want), "{error}");
    }
}
