//! Files of a share are reached by descriptors alone: after its root was opened no path leads to one, so that no link or renamed
//! directory can lead elsewhere. Here stand the calls by path that `crates/files` and `crates/mount` make.

use crate::tree::Source;

/// A call by path, or a path.
const WORDS: [&str; 8] =
    ["std::fs::", "fs::CWD", "File::open", "File::create", "File::options", "OpenOptions", "canonicalize", "\"/"];

/// Where one may stand, and why.
const PLACES: [(&str, &str, &str); 12] = [
    ("crates/files/src/fs/real.rs", "fs::CWD", "the root itself is opened"),
    ("crates/files/src/fs/real.rs", "std::fs::", "the number of this boot"),
    ("crates/files/src/fs/real.rs", "\"/", "the number of this boot"),
    ("crates/files/src/mirror/inotify.rs", "\"/", "inotify takes paths alone: that of a descriptor"),
    ("crates/files/src/mirror/watch.rs", "\"/", "names that are compared"),
    ("crates/files/src/name.rs", "\"/", "behind the name of a share, its trash"),
    ("crates/files/src/pipe.rs", "std::fs::", "the two ends, which are open"),
    ("crates/files/src/pipe/ends.rs", "std::fs::", "the two ends, which are open"),
    ("crates/files/src/pipe/service.rs", "canonicalize", "the configuration that the owner names"),
    ("crates/files/src/pipe/service.rs", "\"/", "programs, and the configuration that the owner names"),
    ("crates/mount/src/fs.rs", "std::fs::", "who mounts"),
    ("crates/mount/src/fs.rs", "\"/", "who mounts"),
];

/// Every other one.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let ours = |s: &&Source| s.path.starts_with("crates/files/src/") || s.path.starts_with("crates/mount/src/");
    let mut problems = Vec::new();
    for source in sources.iter().filter(ours).filter(|s| s.is_rust() && !s.is_test() && !s.path.contains("/sim/")) {
        let code = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        problems.extend(found(&source.path, code));
    }
    problems
}

fn found(path: &str, code: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(code.lines()).filter(|(_, text)| !text.trim_start().starts_with("//")) {
        for word in WORDS.iter().filter(|word| text.contains(**word)) {
            if !PLACES.iter().any(|(place, allowed, _)| *place == path && allowed == word) {
                problems.push(format!(
                    "{path}:{line}: `{word}`: files are reached by descriptors and names, never by a path of the system"
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_where_it_may_not_stand() {
        let path = "crates/files/src/ops.rs";
        assert_eq!(found(path, "fn f() {}\nlet file = std::fs::File::open(path)?;").len(), 2);
        assert_eq!(found(path, "// std::fs::File\n/// \"/etc\"").len(), 0);
        assert_eq!(found("crates/files/src/fs/real.rs", "fs::openat(fs::CWD, path)").len(), 0);
        assert_eq!(found("crates/files/src/fs/real.rs", "std::fs::read(\"/etc\"); File::open(x)").len(), 1);
    }
}
