//! `lspan perf matrix` over ranks: real processes with the names that launchers set, in a folder of their own.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::schema;
use crate::signals::wait_until;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("lspan-ranks-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Place(dir)
    }

    /// A rank as a script starts it that tells torch of its ranks by the environment.
    fn rank(&self, rank: &str, size: usize, job: &str, more: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        command.args(["perf", "matrix", "--duration", "20ms"]).args(more.split_whitespace()).current_dir(&self.0);
        for name in ["TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID", "PMI_RANK", "LINKSPAN_PSK_FILE"] {
            command.env_remove(name);
        }
        command.env("RANK", rank).env("WORLD_SIZE", size.to_string()).env("MASTER_PORT", job);
        command
            .env("LINKSPAN_IFNAME", "=lo")
            .env("LINKSPAN_STATS_DIR", "off")
            .env("XDG_CONFIG_HOME", self.0.join("none"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, rank: usize, size: usize, job: &str, more: &str) -> Child {
        self.rank(&rank.to_string(), size, job, more).spawn().unwrap()
    }

    fn folder(&self, job: &str) -> PathBuf {
        self.0.join(format!("lspan-matrix-{job}"))
    }

    /// What rank 0 says of itself.
    fn first(&self, job: &str) -> Value {
        let file = self.folder(job).join("rank-0");
        let read = || serde_json::from_slice(&fs::read(&file).ok()?).ok();
        wait_until("rank 0 came", || read().is_some_and(|_: Value| true));
        read().unwrap()
    }

    fn is_tidy(&self) -> bool {
        fs::read_dir(&self.0)
            .unwrap()
            .flatten()
            .all(|entry| !entry.file_name().to_string_lossy().starts_with("lspan-matrix"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn end(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn ranks_measure_each_pair_and_rank_0_alone_prints() {
    let place = Place::new("three");
    let ranks: Vec<Child> =
        [(0, "--json --report page.html"), (1, ""), (2, "")].map(|(rank, more)| place.start(rank, 3, "1", more)).into();
    let mut ended: Vec<_> = ranks.into_iter().map(end).collect();
    let (code, out, said) = ended.remove(0);
    // Equal pairs on a busy machine are not equal.
    assert!(matches!(code, Some(0 | 3)), "{code:?} {out} {said}");
    for (code, out, said) in ended {
        assert_eq!((code, &*out, &*said), (Some(0), "", ""));
    }
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema::problems("matrix-1.json", &value), Vec::<String>::new());
    let pairs = value["pairs"].as_array().unwrap();
    assert_eq!((pairs.len(), value["hosts"].as_array().unwrap().len()), (6, 3));
    for pair in pairs {
        assert!(pair["bw_gbit_s"].as_f64().is_some_and(|rate| rate > 0.0), "{pair}");
        assert!(pair["path"].as_str().is_some_and(|path| path.starts_with("shm")), "{pair}");
    }
    let page = fs::read_to_string(place.0.join("page.html")).unwrap();
    assert!(page.contains(value["hosts"][2].as_str().unwrap()), "{page}");
    assert!(place.is_tidy());
}

#[test]
fn a_rank_that_does_not_come_is_named_and_the_others_end() {
    let place = Place::new("missing");
    let ranks = [0, 2].map(|rank| place.start(rank, 4, "1", "--timeout 3s"));
    let [first, other] = ranks.map(end);
    assert_eq!(first.0, Some(4), "{first:?}");
    assert!(first.1.is_empty() && first.2.contains("LS0749") && first.2.contains(": 1, 3;"), "{first:?}");
    assert!(other.0 == Some(1) && other.2.contains("LS0752"), "{other:?}");
    assert!(place.is_tidy());
    let alone = end(place.start(1, 2, "1", "--timeout 100ms"));
    assert!(alone.0 == Some(4) && alone.2.contains("LS0750"), "{alone:?}");
}

#[test]
fn two_jobs_in_one_folder_keep_apart_and_two_of_one_name_are_told() {
    let place = Place::new("two");
    let waiting = place.start(0, 2, "1", "");
    place.first("1");
    // The other has another name, and is not disturbed.
    let ended = [0, 1].map(|rank| place.start(rank, 2, "2", "")).map(end);
    assert!(matches!(ended[0].0, Some(0 | 3)) && ended[1].0 == Some(0), "{ended:?}");
    let again = end(place.start(0, 2, "1", ""));
    assert!(again.0 == Some(1) && again.2.contains("LS0748"), "{again:?}");
    let other_size = end(place.start(1, 3, "1", ""));
    assert!(other_size.0 == Some(1) && other_size.2.contains("LS0755"), "{other_size:?}");
    let (code, _, said) = end(waiting);
    assert!(code == Some(1) && said.contains("LS0755"), "{code:?} {said}");
    // The same rank twice.
    let waiting = [0, 1].map(|rank| place.start(rank, 3, "1", "--timeout 5s"));
    place.first("1");
    wait_until("rank 1 came", || place.folder("1").join("rank-1").exists());
    let twice = end(place.start(1, 3, "1", ""));
    assert!(twice.0 == Some(1) && twice.2.contains("LS0751"), "{twice:?}");
    assert_eq!(waiting.map(end)[0].0, Some(4));
    assert!(place.is_tidy());
}

#[test]
fn ranks_of_another_version_and_what_is_no_file_of_ours_are_told() {
    let place = Place::new("version");
    let first = place.start(0, 2, "1", "");
    let mut member = place.first("1");
    member["format"] = json!(99);
    member["version"] = json!("9.9.9\u{1b}[2J");
    fs::write(place.folder("1").join("rank-1"), member.to_string()).unwrap();
    let (code, _, said) = end(first);
    assert!(code == Some(1) && said.contains("LS0754") && said.contains("9.9.9"), "{code:?} {said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    // A later version of ours that does it in the same way is a note, and a rank without a server costs its pairs alone.
    let first = place.start(0, 2, "1", "--timeout 1s");
    let mut member = place.first("1");
    member["version"] = json!("0.0.9");
    member["error"] = json!("lspan perf serve: no port");
    fs::write(place.folder("1").join("rank-1"), member.to_string()).unwrap();
    let (code, out, said) = end(first);
    assert!(code == Some(1) && said.contains("runs lspan 0.0.9"), "{code:?} {said}");
    assert!(out.contains("lspan perf serve: no port") && out.contains("rank 1 did not answer within"), "{out}");
    let first = place.start(0, 2, "1", "--timeout 1s");
    place.first("1");
    fs::write(place.folder("1").join("rank-1"), "[[[[").unwrap();
    let (code, _, said) = end(first);
    assert!(code == Some(4) && said.contains("LS0749"), "{code:?} {said}");
    assert!(place.is_tidy());
}

/// What stands between: it says what its arguments were, and plays `lspan` on the hosts, whose words have control characters.
const RSH: &str = r#"
echo "$*" >> calls
case "$*" in
bad*serve*) printf 'no port\033[2J\n' >&2 ;;
*serve*) echo 'lspan: waiting on 192.0.2.1:5' >&2; cat > none ;;
*)
    test ! -e ctrl-c || kill -INT $PPID
    printf '{"results":[{"bw_gbit_s":1.0,"transport":"tcp","path":"p\u001b[2J"}],"downgrades":["slow\u001b[2J"]}' ;;
esac
"#;

fn over_hosts(place: &Place, hosts: &str) -> (Option<i32>, String, String) {
    fs::write(place.0.join("rsh"), RSH).unwrap();
    let mut command = place.rank("0", 1, "1", "");
    // As on a terminal, which gets what a pipe is spared.
    command.env("CLICOLOR_FORCE", "1");
    end(command.args(["--rsh", "sh rsh"]).args(hosts.split(' ')).spawn().unwrap())
}

#[test]
fn what_other_hosts_say_has_no_control_characters() {
    let place = Place::new("said");
    let (code, out, said) = over_hosts(&place, "a b bad");
    assert_eq!(code, Some(1), "{out}{said}");
    for part in ["degraded: slow", "lspan perf serve on bad: no port"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains('\u{1b}'), "{out:?}");
}

#[test]
fn ctrl_c_starts_no_further_server() {
    let place = Place::new("ctrl-c");
    fs::write(place.0.join("ctrl-c"), "").unwrap();
    let (code, out, said) = over_hosts(&place, "a b c");
    assert!(code == Some(130) && out.contains("1.00"), "{code:?} {out} {said}");
    let calls = fs::read_to_string(place.0.join("calls")).unwrap();
    assert_eq!(calls.lines().count(), 2, "one server and one measurement: {calls}");
}

#[test]
fn what_no_launcher_says_is_refused() {
    let place = Place::new("usage");
    let usage = |rank: &str, size: usize| {
        let output = place.rank(rank, size, "1", "").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (rank, size, wanted) in
        [("", 2, "no host is named"), ("x", 2, "LS0745"), ("2", 2, "LS0746"), ("0", 1, "LS0747"), ("0", 33, "LS0747")]
    {
        let (code, said) = usage(rank, size);
        assert!(code == Some(2) && said.contains(wanted), "{rank} of {size}: {code:?} {said}");
    }
    assert!(place.is_tidy());
}
