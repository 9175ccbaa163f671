use super::*;
use crate::mirrors::Mirrors;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("linkspan-tasks-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn tasks(&self) -> Arc<Tasks> {
        Arc::new(Tasks::new(self.0.join("history"), Arc::new(|_| {}), Box::new(|| {})))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Until it was cancelled.
fn hold(task: &Arc<Task>) -> Result<(), Error> {
    let _ = rustix::event::poll(
        &mut [rustix::event::PollFd::from_borrowed_fd(task.wake(), rustix::event::PollFlags::IN)],
        None,
    );
    Err(Error::Files(linkspan_files::Error::Stopped))
}

#[test]
fn a_bounded_number_runs_and_one_test_among_them() {
    let folder = Folder::new("bounded");
    let tasks = folder.tasks();
    let all: Vec<_> = (0..TASKS)
        .map(|n| {
            let kind = if n == 0 { Kind::Test } else { Kind::Send };
            if n == 1 {
                let refused = tasks.prepare(Kind::Test, "x", Vec::new()).unwrap_err();
                assert!(refused.text().starts_with("LS1842"), "{refused}");
            }
            let task = tasks.prepare(kind, "x", Vec::new()).unwrap();
            tasks.start(&task, hold);
            task
        })
        .collect();
    assert!(tasks.prepare(Kind::Get, "x", Vec::new()).unwrap_err().text().starts_with("LS1841"));
    tasks.end(Duration::from_secs(60));
    assert!(tasks.running().is_empty());
    let ended = tasks.take_ended();
    assert_eq!((ended.len(), tasks.take_ended().len()), (all.len(), 0));
    assert!(ended.iter().all(|record| record["state"] == "cancelled" && record["error"].is_string()), "{ended:?}");
}

#[test]
fn nothing_begins_once_the_service_ends() {
    let folder = Folder::new("ending");
    let tasks = folder.tasks();
    tasks.end(Duration::ZERO);
    let refused = tasks.prepare(Kind::Send, "x", Vec::new()).unwrap_err().text();
    assert!(refused.starts_with("LS1857") && tasks.running().is_empty(), "{refused}");
}

#[test]
fn a_mirror_runs_once_and_one_that_is_kept_has_no_record_of_the_end_of_its_service() {
    let folder = Folder::new("mirror");
    let tasks = folder.tasks();
    let mirrors = Mirrors::new(folder.0.join("mirrors.json"), &tasks.say);
    let options = json!({ "watch": true });
    let ends = || vec!["/a".to_owned(), "x:b".to_owned()];
    let prepare = |ends| {
        let task = tasks.prepare(Kind::Mirror, "x", ends).unwrap();
        task.update(|progress| progress.options = Some(options.clone()));
        task
    };
    let begin = || {
        let task = prepare(ends());
        mirrors.keep(&task, &options).unwrap();
        tasks.start(&task, hold);
        task
    };
    // Its directories are not marked yet.
    let early = prepare(vec!["/b".to_owned(), "x:b".to_owned()]);
    tasks.start(&early, hold);
    let first = begin();
    for (own, peer) in [("/a", "x:b"), ("/a/", "x:b/"), ("/c/../a/.", "linkspan://x/b")] {
        let again = tasks.prepare(Kind::Mirror, "x", vec![own.to_owned(), peer.to_owned()]).unwrap_err().text();
        assert!(again.starts_with("LS1853"), "{own}: {again}");
    }
    first.cancel();
    begin();
    while tasks.history(0).is_empty() {
        std::thread::yield_now();
    }
    tasks.end(Duration::from_secs(60));
    let ids: Vec<u64> = tasks.history(0).iter().map(|record| record["id"].as_u64().unwrap()).collect();
    assert_eq!((tasks.take_ended().len(), ids), (3, vec![early.id, first.id]));
}

#[test]
fn a_mirror_that_is_cancelled_twice_leaves_a_newer_one_of_the_same_ends_kept() {
    let folder = Folder::new("twice");
    let (tasks, file) = (folder.tasks(), folder.0.join("mirrors.json"));
    let mirrors = Mirrors::new(file.clone(), &tasks.say);
    let (ends, options) = (["/a".to_owned(), "x:b".to_owned()], json!({ "watch": true }));
    let begin = |mirrors: &Mirrors| {
        let task = tasks.prepare(Kind::Mirror, "x", ends.to_vec()).unwrap();
        mirrors.keep(&task, &options).unwrap();
        task
    };
    let kept = || Mirrors::new(file.clone(), &tasks.say).begin().len();
    let cancel = |mirrors: &Mirrors, task: &Task| {
        task.cancel();
        mirrors.release(task).unwrap();
        kept()
    };
    let first = begin(&mirrors);
    assert_eq!(cancel(&mirrors, &first), 0);
    let second = begin(&mirrors);
    assert_eq!((cancel(&mirrors, &first), cancel(&mirrors, &second)), (1, 0));
    // One of an earlier start has the task that goes on with it, and none before.
    let third = begin(&mirrors);
    let anew = Mirrors::new(file.clone(), &tasks.say);
    third.cancel();
    let fourth = begin(&anew);
    assert_eq!((cancel(&anew, &third), cancel(&anew, &fourth)), (1, 0));
    begin(&mirrors).cancel();
    let early = tasks.prepare(Kind::Mirror, "x", ends.to_vec()).unwrap();
    assert_eq!(cancel(&Mirrors::new(file.clone(), &tasks.say), &early), 0);
}

#[test]
fn the_newest_records_are_kept_over_a_restart_and_junk_among_them_is_passed_over() {
    let folder = Folder::new("history");
    let run = |tasks: &Arc<Tasks>, n: usize| {
        for _ in 0..n {
            let task = tasks.prepare(Kind::Send, "x", vec!["a".into()]).unwrap();
            tasks.start(&task, |_| Ok(()));
            while !tasks.running().is_empty() {
                std::thread::yield_now();
            }
        }
    };
    run(&folder.tasks(), 3);
    let file = folder.0.join("history");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("junk\n{text}{{\"id\":\"x\"}}\n\u{0}")).unwrap();
    let tasks = folder.tasks();
    assert_eq!(tasks.history(0).iter().map(|record| record["id"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 2, 1]);
    run(&tasks, HISTORY);
    let (kept, here) = (folder.tasks().history(0), tasks.history(0));
    assert_eq!((kept.len(), kept[0]["id"].as_u64(), &kept), (HISTORY, Some(HISTORY as u64 + 3), &here));
    assert_eq!(tasks.history(2).len(), 2);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "it has names of files");
}

#[test]
fn a_record_that_was_cut_has_its_end_in_the_file_from_the_next_start_on() {
    let folder = Folder::new("cut");
    let file = folder.0.join("history");
    let whole = json!({ "id": 1, "ended_unix_s": 1, "of_a_newer_release": [1] });
    std::fs::write(&file, format!("{whole}\n{}\n", json!({ "id": 2, "state": "running" }))).unwrap();
    let now = folder.tasks().history(0);
    assert!(now[0]["state"] == "failed" && now[0]["ended_unix_s"].is_u64() && now[1] == whole, "{now:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let there: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(there, [now[1].clone(), now[0].clone()]);
    // Nothing is written where nothing was cut.
    std::fs::write(&file, format!("{text}junk\n")).unwrap();
    assert_eq!((folder.tasks().history(0), std::fs::read_to_string(&file).unwrap()), (now, format!("{text}junk\n")));
}

#[test]
fn the_newest_records_are_kept_also_where_all_are_more_than_a_file_has() {
    let folder = Folder::new("long");
    let (tasks, long) = (folder.tasks(), "ä".repeat(HISTORY_MAX as usize / 8));
    for _ in 0..6 {
        let task = tasks.prepare(Kind::Send, "x", vec![long.clone()]).unwrap();
        tasks.start(&task, |_| Ok(()));
        while !tasks.running().is_empty() {
            std::thread::yield_now();
        }
    }
    let ids = |tasks: &Tasks| tasks.history(0).iter().map(|record| record["id"].as_u64().unwrap()).collect::<Vec<_>>();
    let file = folder.0.join("history");
    assert!(std::fs::metadata(&file).unwrap().len() <= HISTORY_MAX);
    assert_eq!((ids(&folder.tasks()), ids(&tasks)), (vec![6, 5, 4], vec![6, 5, 4]));
    // One of a release that wrote without a bound, and that is cut within a letter or a record.
    let before = format!("{{\"id\":1,\"arguments\":[\"{long}{long}\"],\"ended_unix_s\":1}}\n").into_bytes();
    for junk in [before.clone(), [&before[..], b"\xff\xfe\n"].concat()] {
        std::fs::write(&file, [junk, std::fs::read(&file).unwrap()].concat()).unwrap();
        assert_eq!(ids(&folder.tasks()), [6, 5, 4]);
    }
}

#[test]
fn a_task_that_panics_has_failed() {
    let folder = Folder::new("panic");
    let tasks = folder.tasks();
    let task = tasks.prepare(Kind::Send, "x", Vec::new()).unwrap();
    tasks.start(&task, |_| panic!("as the test wants it"));
    while tasks.running().len() == 1 {
        std::thread::yield_now();
    }
    let ended = tasks.take_ended();
    assert_eq!(ended[0]["state"], "failed");
    assert!(ended[0]["error"].as_str().unwrap().starts_with("LS1845"));
}
