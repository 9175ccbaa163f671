use super::{Level, Words};

fn read(line: &str) -> Option<Words> {
    Words::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn words_are_read() {
    let words = read("run a b --level full --kernel 6.12 --module x.ko").unwrap();
    assert_eq!((words.command.as_str(), words.names.join(" ").as_str()), ("run", "a b"));
    assert_eq!((words.level, words.kernels()), (Level::Full, vec!["6.12".to_owned()]));
    assert_eq!(words.modules, [std::path::PathBuf::from("x.ko")]);
    assert_eq!(read("shell --hosts 3").unwrap().hosts, 3);
    assert!(read("run all --once").unwrap().once && !words.once);
}

#[test]
fn kernels_follow_the_level() {
    let quick = read("run all").unwrap().kernels();
    let full = read("run all --level full").unwrap().kernels();
    assert_eq!(quick.len(), 2);
    assert!(full.len() > quick.len() && quick.iter().all(|kernel| full.contains(kernel)));
    assert_eq!(read("shell").unwrap().one_kernel(), quick[0]);
}

#[test]
fn nonsense_is_refused() {
    for line in ["", "run --level some", "run a --kernel", "run --what", "shell --hosts 9", "shell --hosts two"] {
        assert_eq!(read(line), None, "{line}");
    }
}
