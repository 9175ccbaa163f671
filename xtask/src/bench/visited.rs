//! Which of our functions one `isend` of the plugin visits until the kernel has its bytes: under callgrind, as it is written and as users
//! have it, in which the compiler has put small functions into those that call them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::run::{self, Outcome};
use crate::stages;

/// Most of them, unoptimised. It may only fall.
const MOST: usize = 105;

/// Most of them in the plugin that users have.
const MOST_OPTIMISED: usize = 16;

/// Where NCCL's call comes in, and what is done once the kernel has taken bytes.
const ENTRY: &str = "linkspan_plugin::shim::data::isend_v10";
const EXIT: &str = "linkspan_tcp::tx::Tx::advance";

/// Counts them, in the calls of two ranks that pass small pieces round, over TCP.
pub(crate) fn run(root: &Path) -> Outcome {
    for (program, package) in [("valgrind", "valgrind"), ("cc", "gcc libc6-dev")] {
        if run::which(program).is_none() {
            return Outcome::Skipped(format!("no {program} (Debian: {package})"));
        }
    }
    for (release, most) in [(false, MOST), (true, MOST_OPTIMISED)] {
        match visited(root, release) {
            Ok(names) => match judge(&names, release, most) {
                Outcome::Done => {}
                failed => return failed,
            },
            Err(why) => return Outcome::Failed(why),
        }
    }
    Outcome::Done
}

fn judge(names: &BTreeSet<String>, release: bool, most: usize) -> Outcome {
    let mut crates: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        let krate = name.trim_start_matches('<').split("::").next().unwrap_or_default();
        crates.entry(krate).or_default().push(name);
    }
    let how = if release { "optimised" } else { "unoptimised" };
    println!(
        "{how}: one isend visits {} functions in {} crates, at most {most} are allowed:",
        names.len(),
        crates.len()
    );
    for (krate, names) in &crates {
        println!("  {krate}: {}", names.len());
        names.iter().for_each(|name| println!("    {name}"));
    }
    match names.len() {
        n if n > most => {
            Outcome::Failed(format!("{how}: one isend visits {n} functions of ours, at most {most} are allowed"))
        }
        n => {
            if n < most && !release {
                println!("fewer than allowed: lower MOST in xtask/src/bench/visited.rs to {n}");
            }
            Outcome::Done
        }
    }
}

fn visited(root: &Path, release: bool) -> Result<BTreeSet<String>, String> {
    let built = if release {
        run::must(run::cargo(root).args(["build", "--quiet", "--release", "-p", "linkspan-nccl"]))?;
        run::target_dir(root).join("release")
    } else {
        stages::programs(root)?
    };
    let host = stages::compile_plugin_host(root)?;
    let folder = run::target_dir(root).join("visited");
    // What an earlier run has left would be counted too.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--compress-strings=no", "--collect-atstart=no"]);
    // Nothing else is collected, and each call has a file of its own.
    valgrind.args([format!("--toggle-collect={ENTRY}"), format!("--dump-after={ENTRY}")]);
    valgrind.arg(format!("--callgrind-out-file={}/%p", folder.display()));
    valgrind.arg(host).arg("--plugin").arg(built.join("liblinkspan_nccl.so"));
    valgrind.args(["--version", "12", "--test", "rounds", "--ranks", "2", "--size", "64"]);
    valgrind.env("LINKSPAN_PATH", "tcp").env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_STATS_DIR", "off");
    run::output(&mut valgrind)?;
    let list = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // A connection's first call is `PID.1`. Some calls leave their bytes to the next one.
    let later = list.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|n| n != "1"));
    let calls = later.filter_map(|path| std::fs::read_to_string(path).ok()).map(|text| ours(&text));
    let usual = calls.filter(|names| names.contains(EXIT)).min_by_key(BTreeSet::len);
    usual.ok_or_else(|| format!("no call of {ENTRY} in {} reached {EXIT}", folder.display()))
}

/// The functions of ours in a profile. Closures and constants are parts of the functions that they stand in.
fn ours(profile: &str) -> BTreeSet<String> {
    let names = profile.lines().filter_map(|line| line.strip_prefix("fn="));
    let ours = names.filter(|name| name.trim_start_matches('<').starts_with("linkspan_") && !name.contains("::{{"));
    ours.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_ours_are_told_from_others_and_from_their_closures() {
        let profile = "fn=linkspan_net::data::send\n0 5\ncfn=linkspan_net::data::not_entered\nfn=core::ptr::drop_in_place<linkspan_net::A>\n\
                       fn=<linkspan_tcp::Rail as linkspan_transport::Rail>::flush\nfn=linkspan_net::data::send::{{closure}}\n\
                       fn=linkspan_net::data::send\n";
        let names: Vec<String> = ours(profile).into_iter().collect();
        assert_eq!(names, ["<linkspan_tcp::Rail as linkspan_transport::Rail>::flush", "linkspan_net::data::send"]);
    }

    #[test]
    fn more_functions_than_allowed_fail() {
        let names = |n: usize| (0..n).map(|n| format!("linkspan_tcp::f{n:03}")).collect();
        for release in [false, true] {
            assert!(matches!(judge(&names(7), release, 7), Outcome::Done));
            assert!(matches!(judge(&names(8), release, 7), Outcome::Failed(_)));
        }
    }
}
