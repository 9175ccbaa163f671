use super::Words;
use crate::cache::{KERNELS, SYSTEMS};

fn read(line: &str) -> Option<Words> {
    Words::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn words_are_read() {
    let words = read("run a b --kernel 6.12 --module x.ko").unwrap();
    assert_eq!((words.command.as_str(), words.names.join(" ").as_str()), ("run", "a b"));
    assert_eq!(words.kernels(), ["6.12"]);
    assert_eq!(words.modules, [std::path::PathBuf::from("x.ko")]);
    assert_eq!(read("shell --hosts 3").unwrap().hosts, 3);
    assert!(read("run all --once").unwrap().once && !words.once);
    assert_eq!((words.seed, read("run a --seed 7").unwrap().seed), (1, 7));
}

#[test]
fn without_a_kernel_all_are_meant_and_the_newest_where_one_is() {
    assert_eq!(read("run all").unwrap().kernels(), KERNELS.map(|kernel| kernel.name));
    assert_eq!(read("shell").unwrap().one_kernel(), KERNELS[0].name);
}

#[test]
fn systems_are_taken_beside_kernels() {
    let words = read("run sys-boot --sys 13").unwrap();
    assert_eq!((words.systems(), words.kernels()), (vec!["13".to_owned()], Vec::new()));
    assert!(read("run all --kernel 6.12").unwrap().systems().is_empty());
    assert_eq!(read("setup").unwrap().systems(), SYSTEMS.map(|system| system.name));
}

#[test]
fn nonsense_is_refused() {
    for line in [
        "",
        "run --level full",
        "run a --kernel",
        "run --what",
        "setup --sys",
        "run a --install",
        "shell --hosts 9",
        "shell --hosts two",
        "run a --seed -1",
    ] {
        assert_eq!(read(line), None, "{line}");
    }
}
