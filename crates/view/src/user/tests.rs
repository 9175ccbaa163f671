use linkspan_bus::{Dict, to_dict};
use serde_json::{Value, json};

use super::{Answer, Ask, Update};
use crate::{Action, Choice, Field, Input, Kind, Model, Mood, Page, Pick, Row};

const TASK: &str = "/org/linkspan/User1/task/7";

fn up() -> Model {
    let mut model = Model::new("mini1");
    tell(&mut model, Update::Up("0.1.0".into()));
    model
}

fn tell(model: &mut Model, told: Update) {
    assert_eq!(model.apply(Input::User(told)), []);
}

fn dicts(values: &[Value]) -> Vec<Dict> {
    values.iter().map(to_dict).collect()
}

fn rows(page: &Page) -> Vec<&Row> {
    page.groups.iter().flat_map(|group| &group.rows).collect()
}

fn find(page: &Page, id: &str) -> Row {
    rows(page).into_iter().find(|row| row.id == id).unwrap_or_else(|| panic!("{id}: {page:#?}")).clone()
}

fn has(page: &Page, id: &str) -> bool {
    rows(page).iter().any(|row| row.id == id)
}

fn works(row: &Row) -> bool {
    row.button.as_ref().unwrap().works
}

fn runs(model: &mut Model, kind: &str, arguments: Value, progress: Value) {
    let task = json!({ "Kind": kind, "Peer": "mini2", "Arguments": arguments, "Started": 1 });
    tell(model, Update::Tasks(vec![(TASK.into(), to_dict(&task))]));
    tell(model, Update::Progress(vec![(TASK.into(), to_dict(&progress))], 1_000_000));
}

fn bw(size: u64, gbyte_s: f64) -> Value {
    json!({ "test": "bw", "transport": "tcp", "reason": "one cable", "size_bytes": size, "bw_gbyte_s": gbyte_s })
}

fn test_record(id: u64, state: &str, results: &[Value]) -> Value {
    json!({ "id": id, "kind": "test", "peer": "mini2", "arguments": ["bw"], "started_unix_s": 1, "ended_unix_s": 100, "state": state,
        "error": "LS0732 nobody answers", "path": "tcp thunderbolt0", "results": results, "done": results.len(), "of": 2 })
}

#[test]
fn a_test_starts_when_a_peer_is_named_and_none_runs() {
    let mut model = up();
    let start = |model: &Model| find(&model.pages(0).tests, "start");
    assert!(!works(&start(&model)), "no peer is named");
    model.apply(Input::Typed(Field::Peer, "  mini2 ".into()));
    model.apply(Input::Chosen(Choice::Test, 1));
    let ask = Ask::Test { test: "lat", peer: "mini2".into() };
    assert_eq!(start(&model).button.unwrap().action, Action::User(ask.clone()));
    assert!(works(&start(&model)));
    tell(&mut model, Update::Asked(ask.clone()));
    assert!(!works(&start(&model)), "it is asked for already");
    let refused = Update::Answered(ask.clone(), Err("LS1842 a test is under way".into()));
    let news = model.apply(Input::User(refused));
    assert_eq!((news[0].title.as_str(), news[0].text.as_str()), ("A test failed", "LS1842 a test is under way"));
    assert!(works(&start(&model)) && start(&model).subtitle == "LS1842 a test is under way");
    tell(&mut model, Update::Asked(ask.clone()));
    tell(&mut model, Update::Answered(ask, Ok(Answer::Done)));
    runs(&mut model, "test", json!(["lat"]), json!({ "state": "running", "done": 1, "of": 4, "measuring": "8 B" }));
    assert!(!works(&start(&model)), "one runs");
    let row = find(&model.pages(0).tests, TASK);
    assert_eq!((&*row.title, &row.kind), ("Latency to mini2", &Kind::Progress(Some(0.25))));
    assert_eq!(row.button.unwrap().action, Action::User(Ask::Cancel(TASK.into())));
    tell(&mut model, Update::Tasks(Vec::new()));
    assert!(works(&start(&model)) && !has(&model.pages(0).tests, TASK));
}

#[test]
fn a_result_is_compared_with_the_one_before_and_both_are_plotted() {
    let mut model = up();
    let newest = test_record(3, "done", &[bw(8, 0.5), bw(1 << 20, 3.0)]);
    let failed = test_record(2, "failed", &[]);
    let oldest = test_record(1, "done", &[bw(8, 0.5), bw(1 << 20, 2.0)]);
    tell(&mut model, Update::History(dicts(&[newest, failed, oldest])));
    let page = model.pages(160_000_000).tests;
    assert!(matches!(find(&page, "plot").kind, Kind::Plot(_)), "it stays until the next one");
    let row = find(&page, "3");
    assert_eq!((&*row.title, &*row.end), ("Bandwidth to mini2", "3.00 GB/s"));
    assert_eq!(row.subtitle, "1 min ago, tcp, 50 % better than before");
    let Kind::Plot(plot) = &row.details[0].kind else { panic!("{row:#?}") };
    assert_eq!((&plot.now, &plot.before, plot.points[1].as_str()), (&vec![0.5, 3.0], &vec![0.5, 2.0], "1 MiB"));
    assert_eq!(row.details[0].subtitle, "8 B: 500.0 MB/s, 1 MiB: 3.00 GB/s", "the plot in words");
    assert_eq!((&*row.details[1].subtitle, &*row.details[2].subtitle), ("as before", "50 % better than before"));
    let row = find(&page, "2");
    assert!(row.mood == Mood::Trouble && row.subtitle.ends_with("LS0732 nobody answers"), "{row:#?}");
    // The plot of one that runs grows, beside the last one that went well.
    runs(
        &mut model,
        "test",
        json!(["bw"]),
        json!({ "state": "running", "done": 1, "of": 2, "results": [bw(8, 0.25)] }),
    );
    let Kind::Plot(plot) = find(&model.pages(0).tests, "plot").kind else { panic!() };
    assert_eq!((plot.now, plot.before), (vec![0.25], vec![0.5, 3.0]));
}

#[test]
fn a_test_has_a_report_if_its_results_are_whole() {
    let mut row =
        linkspan_perf::record::Row { test: "bw".into(), transport: "tcp".into(), size_bytes: 64, ..Default::default() };
    row.bw_gbyte_s = 2.5;
    let whole = to_dict(&test_record(1, "done", &[serde_json::to_value(&row).unwrap()]));
    let mut model = up();
    tell(&mut model, Update::History(vec![whole, to_dict(&test_record(2, "done", &[bw(8, 1.0)]))]));
    let (name, page) = model.report("1").unwrap();
    assert_eq!(name, "linkspan-bw-mini2.html");
    assert!(page.contains("2.5000") && page.contains("bw mini2"), "{page}");
    assert_eq!(model.report("2"), None, "a result without its numbers");
    assert_eq!(model.report("9"), None);
    let again = find(&model.pages(0).tests, "1").details.pop().unwrap();
    assert_eq!(again.second.unwrap().action, Action::Report("1".into()));
}

#[test]
fn files_go_to_the_share_that_is_open_and_wait_until_one_is() {
    let mut model = up();
    model.apply(Input::ToSend(vec!["/home/me/a".into(), "/home/me/b".into()]));
    let waiting = |model: &Model| find(&model.pages(0).files, "waiting");
    assert!(waiting(&model).title == "a and 1 more" && !works(&waiting(&model)));
    model.apply(Input::Typed(Field::Place, "mini2".into()));
    let peer = Ask::List("linkspan://mini2/".into());
    assert_eq!(find(&model.pages(0).files, "place").button.unwrap().action, Action::User(peer.clone()));
    tell(&mut model, Update::Asked(peer.clone()));
    let shares = dicts(&[json!({ "kind": "share", "name": "in", "writable": true })]);
    tell(&mut model, Update::Answered(peer, Ok(Answer::Listed(shares, true))));
    assert!(!works(&waiting(&model)), "a peer alone is no place for files");
    assert_eq!(model.target(), None);
    let share = Ask::List("linkspan://mini2/in/".into());
    assert_eq!(find(&model.pages(0).files, "share in").button.unwrap().action, Action::User(share.clone()));
    tell(&mut model, Update::Asked(share.clone()));
    let entries = [
        json!({ "kind": "file", "name": "b <i>", "size_bytes": 2_000_000 }),
        json!({ "kind": "directory", "name_hex": "ff" }),
        json!({ "kind": "file", "name": "../x" }),
    ];
    tell(&mut model, Update::Answered(share, Ok(Answer::Listed(dicts(&entries), false))));
    let page = model.pages(0).files;
    let row = find(&page, "file b%20%3Ci%3E");
    assert_eq!((&*row.title, &*row.end), ("b <i>", "2.0 MB"));
    assert_eq!(row.button.unwrap().action, Action::Get("linkspan://mini2/in/b%20%3Ci%3E".into()));
    assert_eq!(
        find(&page, "directory %FF").button.unwrap().action,
        Action::User(Ask::List("linkspan://mini2/in/%FF/".into()))
    );
    assert!(has(&page, "more") && !rows(&page).iter().any(|row| row.title.contains("..")), "no way out of it");
    let Action::Copy(profile) = find(&page, "both ways").button.unwrap().action else { panic!("{page:#?}") };
    assert!(
        profile.contains("\nroot = ssh://mini2//FOLDER") && profile.contains("ProxyCommand lspan pipe mini2 ssh\n"),
        "{profile}"
    );
    let pick = Pick::Files("linkspan://mini2/in/".into());
    assert_eq!(find(&page, "send").button.unwrap().action, Action::Pick(pick));
    let (from, to) = (vec!["/home/me/a".into(), "/home/me/b".into()], "linkspan://mini2/in/".into());
    let send = Ask::Send { from, to, options: String::new() };
    assert!(works(&waiting(&model)) && waiting(&model).button.unwrap().action == Action::User(send.clone()));
    tell(&mut model, Update::Asked(send.clone()));
    tell(&mut model, Update::Answered(send, Ok(Answer::Done)));
    assert!(!has(&model.pages(0).files, "waiting"));
}

#[test]
fn a_transfer_shows_how_far_it_is_and_goes_on_where_it_was_paused() {
    let mut model = up();
    let progress =
        |moved: u64| json!({ "state": "running", "moved_bytes": moved, "total_bytes": 4_000_000, "kept_bytes": 0 });
    let arguments = json!(["/home/me/a", "linkspan://mini2/in/"]);
    runs(&mut model, "send", arguments.clone(), progress(1_000_000));
    tell(&mut model, Update::Progress(vec![(TASK.into(), to_dict(&progress(2_000_000)))], 1_500_000));
    let row = find(&model.pages(0).files, TASK);
    assert_eq!((&*row.title, &row.kind), ("a to mini2:in", &Kind::Progress(Some(0.5))));
    assert_eq!(row.subtitle, "2.0 MB of 4.0 MB, 2.0 MB/s");
    assert_eq!(row.button.unwrap().action, Action::User(Ask::Cancel(TASK.into())));
    let record = |id: u64, state: &str| {
        let mut record = json!({ "id": id, "kind": "send", "peer": "mini2", "arguments": arguments, "state": state });
        record
            .as_object_mut()
            .unwrap()
            .extend(json!({ "moved_bytes": 2, "files_done": 1 }).as_object().unwrap().clone());
        record
    };
    tell(&mut model, Update::Tasks(Vec::new()));
    let mut mirror = record(6, "cancelled");
    mirror["kind"] = json!("mirror");
    let mut done = record(8, "done");
    done["arguments"] = json!(["/home/me/b", "linkspan://mini2/in/"]);
    tell(&mut model, Update::History(dicts(&[done, record(7, "cancelled"), mirror])));
    let page = model.pages(0).files;
    let (from, to) = (vec!["/home/me/a".into()], "linkspan://mini2/in/".into());
    let again = Ask::Send { from, to, options: String::new() };
    assert_eq!(find(&page, "7").button.unwrap().action, Action::User(again));
    assert!(find(&page, "8").button.is_none() && find(&page, "8").mood == Mood::Good);
    assert!(find(&page, "6").button.is_some() && find(&page, "6").mood == Mood::Plain);
}

#[test]
fn a_transfer_that_could_not_be_cancelled_says_so_among_the_transfers() {
    let mut model = up();
    runs(&mut model, "send", json!(["/home/me/a", "linkspan://mini2/in/"]), json!({ "state": "running" }));
    let cancel = Ask::Cancel(TASK.into());
    tell(&mut model, Update::Asked(cancel.clone()));
    let refused = Update::Answered(cancel.clone(), Err("LS3242 32 calls are being answered already".into()));
    assert_eq!(model.apply(Input::User(refused))[0].title, "It could not be done");
    let page = model.pages(0).files;
    let row = find(&page, "cancel");
    assert!(row.mood == Mood::Trouble && row.title.starts_with("LS3242"), "{row:?}");
    tell(&mut model, Update::Asked(cancel));
    assert!(!has(&model.pages(0).files, "cancel"));
}

#[test]
fn what_has_failed_goes_on_with_the_options_that_it_had_and_not_beside_one_that_runs() {
    let mut model = up();
    let (path, place) = ("/home/me/a", "linkspan://mini2/in/");
    let options = json!({ "delete": true, "exclude": ["*.o"], "init": true, "no_fsync": true });
    let record = |id: u64, kind: &str, arguments: [&str; 2]| json!({ "id": id, "kind": kind, "arguments": arguments, "state": "failed", "options": options, "error": "LS1828 no" });
    let records =
        [record(3, "send", [path, place]), record(2, "get", [place, path]), record(1, "mirror", [path, place])];
    tell(&mut model, Update::History(dicts(&records)));
    let (from, text) = (|one: &str| vec![one.to_owned()], options.to_string());
    let asks = [
        Ask::Send { from: from(path), to: place.into(), options: text.clone() },
        Ask::Get { from: from(place), to: path.into(), options: text.clone() },
        Ask::Mirror { source: path.into(), destination: place.into(), options: text },
    ];
    for (id, ask) in ["3", "2", "1"].into_iter().zip(asks) {
        assert_eq!(find(&model.pages(0).files, id).button.unwrap().action, Action::User(ask));
    }
    runs(&mut model, "mirror", json!([path, place]), json!({ "state": "watching" }));
    let page = model.pages(0).files;
    assert!(find(&page, "1").button.is_none() && find(&page, "3").button.is_some());
}

#[test]
fn only_the_newest_record_of_the_same_goes_on() {
    let mut model = up();
    let record = |id: u64, source: &str, state: &str| json!({ "id": id, "kind": "mirror", "arguments": [source, "linkspan://mini2/in/"], "state": state });
    let records =
        [record(4, "/a", "cancelled"), record(3, "/b", "done"), record(2, "/a", "failed"), record(1, "/c", "failed")];
    tell(&mut model, Update::History(dicts(&records)));
    let page = model.pages(0).files;
    let goes_on = ["4", "2", "1"].map(|id| find(&page, id).button.is_some());
    assert_eq!(goes_on, [true, false, true]);
}

#[test]
fn a_mirror_keeps_its_row_when_it_has_something_to_do_again() {
    let mut model = up();
    let states = ["running", "watching", "running", "waiting"];
    let kinds = states.map(|state| {
        runs(&mut model, "mirror", json!(["/home/me/a", "linkspan://mini2/in/a/"]), json!({ "state": state }));
        let row = find(&model.pages(0).files, TASK);
        assert_eq!(row.title, "mini2:in/a kept like /home/me/a");
        matches!(row.kind, Kind::Progress(_))
    });
    assert_eq!(kinds, [true; 4]);
}

#[test]
fn shares_are_served_when_there_are_some_and_it_is_said_why_they_are_not() {
    let mut model = up();
    let serve = |model: &Model| find(&model.pages(0).files, "serve");
    assert!(!works(&serve(&model)));
    let share = dicts(&[json!({ "name": "data", "directory": "/srv/data", "writable": false })]);
    tell(&mut model, Update::Shares(share.clone(), false, Vec::new(), String::new()));
    assert!(works(&serve(&model)) && serve(&model).button.unwrap().action == Action::User(Ask::Serve(true)));
    assert_eq!(find(&model.pages(0).files, "share data").subtitle, "/srv/data, peers may read it");
    tell(&mut model, Update::Shares(share.clone(), false, Vec::new(), "no peer is trusted".into()));
    assert_eq!(serve(&model).mood, Mood::Trouble);
    // It tries again by itself until it is told not to.
    let off = |row: &Row| works(row) && row.button.as_ref().unwrap().action == Action::User(Ask::Serve(false));
    assert!(serve(&model).kind == Kind::Switch(true) && off(&serve(&model)));
    tell(&mut model, Update::Shares(Vec::new(), false, Vec::new(), "no peer is trusted".into()));
    assert!(off(&serve(&model)), "also where the last share has gone");
    tell(&mut model, Update::Shares(share, true, vec!["10.0.0.1:24681".into()], String::new()));
    let row = serve(&model);
    assert_eq!((&row.kind, row.button.unwrap().action), (&Kind::Switch(true), Action::User(Ask::Serve(false))));
}

#[test]
fn a_row_is_that_of_the_same_share_or_peer_when_one_before_it_has_gone() {
    let mut model = up();
    let shares = ["data", "music"].map(|name| json!({ "name": name, "directory": "/srv", "writable": false }));
    let peers = [("mini2", "37Z4"), ("mini3", "DZWR")].map(|(name, key)| json!({ "name": name, "fingerprint": key }));
    let asked = |model: &mut Model, from: usize| {
        tell(model, Update::Shares(dicts(&shares[from..]), false, Vec::new(), String::new()));
        tell(model, Update::Keys(Ok(("line".into(), "AAAA".into(), dicts(&peers[from..])))));
        let pages = model.pages(0);
        let of = |page: &Page, ask: Ask| {
            let own = |row: &&Row| row.button.as_ref().is_some_and(|button| button.action == Action::User(ask.clone()));
            rows(page).into_iter().find(own).map(|row| row.id.clone()).unwrap()
        };
        [
            of(&pages.files, Ask::Unshare("music".into())),
            of(&pages.files, Ask::List("linkspan://mini3/".into())),
            of(&pages.overview, Ask::Distrust("mini3".into())),
        ]
    };
    let before = asked(&mut model, 0);
    assert_eq!(asked(&mut model, 1), before);
}

#[test]
fn a_pairing_is_shown_with_its_fingerprint_until_it_was_compared_and_only_a_new_one() {
    let mut model = up();
    let record = |id: u64| json!({ "id": id, "kind": "pair", "state": "done", "name": "mini2", "calls_itself": "x", "fingerprint": "DZWR-7MDR", "confirmed": true });
    let peers = || dicts(&[json!({ "name": "mini2", "fingerprint": "37Z4-JLGQ", "hosts": ["10.0.0.2"] })]);
    tell(&mut model, Update::History(dicts(&[record(1)])));
    tell(&mut model, Update::Keys(Ok(("line".into(), "AAAA".into(), peers()))));
    assert!(!has(&model.pages(0).overview, "paired 1"), "it was made before");
    model.apply(Input::Typed(Field::JoinLine, "LSPAXYZ".into()));
    let join = Ask::Join("LSPAXYZ".into());
    assert_eq!(find(&model.pages(0).overview, "join").button.unwrap().action, Action::User(join.clone()));
    tell(&mut model, Update::Asked(join.clone()));
    tell(&mut model, Update::Answered(join, Ok(Answer::Done)));
    assert_eq!(
        find(&model.pages(0).overview, "join").kind,
        Kind::Field(Field::JoinLine, String::new()),
        "it is used up"
    );
    tell(&mut model, Update::History(dicts(&[record(2), record(1)])));
    let card = find(&model.pages(0).overview, "paired 2");
    assert_eq!((&*card.title, &*card.subtitle), ("mini2", "Fingerprint DZWR-7MDR"));
    assert_eq!(card.second.unwrap().action, Action::User(Ask::Distrust("mini2".into())));
    model.apply(Input::Compared("2".into()));
    assert!(!has(&model.pages(0).overview, "paired 2"));
    // A line of ours, as long as its task waits.
    tell(&mut model, Update::Answered(Ask::Offer, Ok(Answer::Offered("LSPA1".into(), TASK.into()))));
    runs(&mut model, "pair", json!([]), json!({ "state": "waiting" }));
    assert_eq!(find(&model.pages(0).overview, "line").subtitle, "LSPA1");
    assert!(!has(&model.pages(0).overview, TASK), "it has one row");
    tell(&mut model, Update::Tasks(Vec::new()));
    assert!(!has(&model.pages(0).overview, "line"));
}

#[test]
fn of_pairings_of_one_name_only_the_newest_is_to_be_compared() {
    let mut model = up();
    let record = |id: u64, fingerprint: &str| json!({ "id": id, "kind": "pair", "state": "done", "name": "mini2", "fingerprint": fingerprint, "confirmed": true });
    let peers = |some: bool| {
        Update::Keys(Ok((
            "line".into(),
            "AAAA".into(),
            if some { dicts(&[json!({ "name": "mini2" })]) } else { Vec::new() },
        )))
    };
    tell(&mut model, Update::History(Vec::new()));
    tell(&mut model, Update::History(dicts(&[record(1, "F1")])));
    tell(&mut model, peers(true));
    assert!(has(&model.pages(0).overview, "paired 1"));
    // Its fingerprint differs: the peer goes, and is paired with again.
    tell(&mut model, peers(false));
    tell(&mut model, Update::History(dicts(&[record(2, "F2"), record(1, "F1")])));
    tell(&mut model, peers(true));
    let page = model.pages(0).overview;
    assert!(has(&page, "paired 2") && !has(&page, "paired 1"), "{page:#?}");
    model.apply(Input::Compared("2".into()));
    assert!(!has(&model.pages(0).overview, "paired 1"));
}

#[test]
fn a_join_line_that_another_window_made_can_be_cancelled_and_keeps_nobody_from_joining() {
    let mut model = up();
    model.apply(Input::Typed(Field::JoinLine, "LSPAXYZ".into()));
    let pair = |model: &mut Model, state: &str| {
        runs(model, "pair", json!([]), json!({ "state": state }));
        model.pages(0).overview
    };
    let page = pair(&mut model, "waiting");
    assert!(works(&find(&page, "join")) && find(&page, "join").title == "Join line of the other machine");
    assert_eq!(find(&page, TASK).button.unwrap().action, Action::User(Ask::Cancel(TASK.into())));
    let page = pair(&mut model, "connecting");
    assert!(!works(&find(&page, "join")) && find(&page, "join").title == "Joining" && !has(&page, TASK));
}

#[test]
fn keys_that_cannot_be_read_are_said_with_the_way_out_and_the_service_runs() {
    let mut model = up();
    let why = format!("LS0522 {}/peers has mode 0666: chmod 644 it", "/home/me/.config/linkspan".repeat(8));
    tell(&mut model, Update::Keys(Err(why.clone())));
    let pages = model.pages(0);
    let row = find(&pages.overview, "keys");
    assert!(row.subtitle == why && row.mood == Mood::Trouble, "{}", row.subtitle);
    assert!(pages.files.empty.is_none() && pages.tests.empty.is_none());
    tell(&mut model, Update::Keys(Ok(Default::default())));
    assert!(!has(&model.pages(0).overview, "keys"));
}

#[test]
fn a_service_that_goes_leaves_what_was_typed_and_takes_the_rest() {
    let mut model = up();
    model.apply(Input::Typed(Field::Peer, "mini2".into()));
    tell(&mut model, Update::History(dicts(&[test_record(1, "done", &[bw(8, 1.0)])])));
    tell(&mut model, Update::Down("it has ended".into()));
    for page in [model.pages(0).tests, model.pages(0).files] {
        let empty = page.empty.unwrap();
        assert!(page.groups.is_empty() && empty.text.contains("systemctl --user start linkspan-user"));
        assert_eq!(empty.button.unwrap().action, Action::Retry);
    }
    tell(&mut model, Update::Up("0.1.0".into()));
    let page = model.pages(0).tests;
    assert!(works(&find(&page, "start")) && !has(&page, "1"));
    tell(&mut model, Update::Up("7.0.0".into()));
    assert!(model.pages(0).banner.contains("7.0.0"), "another version is said");
}

#[test]
fn a_folder_of_any_name_has_one_as_a_share() {
    let mut model = up();
    let names =
        [("a b", "a-b"), (".config", "config"), ("-x-", "x"), ("für", "f-r"), ("写真", "share"), ("..", "share")];
    names.iter().for_each(|(folder, name)| assert_eq!(model.share_name(folder), *name));
    assert_eq!(model.share_name(&"x".repeat(100)).len(), 64);
    let shares = ["share", "share-2"].map(|name| json!({ "name": name, "directory": "/srv", "writable": false }));
    tell(&mut model, Update::Shares(dicts(&shares), false, Vec::new(), String::new()));
    assert_eq!(model.share_name("写真"), "share-3");
}

#[test]
fn what_is_typed_is_bounded() {
    let mut model = up();
    model.apply(Input::Typed(Field::Peer, "ä".repeat(10_000)));
    let Kind::Field(_, text) = find(&model.pages(0).tests, "peer").kind else { panic!() };
    assert!(text.len() <= super::TYPED && text.chars().all(|c| c == 'ä'));
}

#[test]
fn what_has_ended_is_told_once_unless_it_was_cancelled() {
    let record = |id: u64, kind: &str, arguments: Value, state: &str| {
        json!({ "id": id, "kind": kind, "peer": "mini2", "arguments": arguments, "ended_unix_s": 100 + id, "state": state,
            "error": "LS0732 nobody answers", "results": [bw(8, 0.5)] })
    };
    let sent = |id| record(id, "send", json!(["/home/me/a", "linkspan://mini2/in/"]), "done");
    let mut model = up();
    let mut told = |records: &[Value]| model.apply(Input::User(Update::History(dicts(records))));
    assert_eq!(told(&[sent(1)]), [], "that was before");
    let got = record(3, "get", json!(["linkspan://mini2/in/b", "/home/me"]), "failed");
    let all = [
        record(8, "send", json!(["/home/me/c", "linkspan://mini2/in/"]), "done"),
        record(7, "mirror", json!(["/home/me/b", "linkspan://mini2/in/b/"]), "done"),
        record(6, "pair", json!([]), "done"),
        record(5, "test", json!(["bw"]), "failed"),
        record(4, "test", json!(["bw"]), "done"),
        got,
        record(2, "mirror", json!(["/home/me/a", "linkspan://mini2/in/a/"]), "cancelled"),
        sent(1),
    ];
    let news = told(&all);
    let said: Vec<(&str, &str)> = news.iter().map(|one| (one.title.as_str(), one.text.as_str())).collect();
    let expected = [
        ("A transfer is done", "c to mini2:in"),
        ("A test failed", "Bandwidth to mini2: LS0732 nobody answers"),
        ("Bandwidth to mini2", "500.0 MB/s"),
        ("A transfer failed", "b into /home/me: LS0732 nobody answers"),
    ];
    assert_eq!(said, expected);
    assert_eq!(told(&all), []);
    // A service whose history is lost counts from one again.
    let mut again = sent(1);
    again["ended_unix_s"] = json!(500);
    assert_eq!(told(&[again]).len(), 1);
}

#[test]
fn the_summary_has_what_runs_and_a_button_for_each_peer_that_can_be_measured() {
    let mut model = up();
    model.apply(Input::Up("0.1.0".into()));
    let peers =
        dicts(&[json!({ "name": "mini2", "fingerprint": "37Z4" }), json!({ "name": "mini3", "fingerprint": "37Z5" })]);
    tell(&mut model, Update::Keys(Ok(("line".into(), "AAAA".into(), peers))));
    let summary = model.summary();
    assert_eq!((summary.icon, summary.tasks.len()), ("network-offline-symbolic", 0));
    assert_eq!(
        summary.tests.iter().map(|test| (test.label.as_str(), test.works)).collect::<Vec<_>>(),
        [("mini2", true), ("mini3", true)]
    );
    assert_eq!(summary.tests[0].action, Action::User(Ask::Test { test: "bw", peer: "mini2".into() }));
    runs(&mut model, "test", json!(["bw"]), json!({ "state": "running", "done": 1, "of": 4 }));
    let summary = model.summary();
    assert_eq!(
        (summary.icon, summary.tasks),
        ("network-transmit-receive-symbolic", vec!["Bandwidth to mini2: 25 %".to_owned()])
    );
    assert!(summary.tests.iter().all(|test| !test.works), "one at a time");
    // What waits for a change moves nothing.
    runs(&mut model, "mirror", json!(["/home/me/a", "linkspan://mini2/in/a/"]), json!({ "state": "watching" }));
    let summary = model.summary();
    assert_eq!(
        (summary.icon, summary.tasks),
        ("network-offline-symbolic", vec!["mini2:in/a kept like /home/me/a".to_owned()])
    );
}

#[test]
fn mirrors_are_paused_all_together_and_go_on_as_they_were() {
    let mut model = up();
    assert_eq!((model.summary().paused, model.pause_mirrors()), (None, Vec::new()));
    let path = |n: u32| format!("/org/linkspan/User1/task/{n}");
    let source = |n: u32| format!("/home/me/{n}");
    let run = |model: &mut Model, numbers: &[u32]| {
        let task = |n: u32| json!({ "Kind": "mirror", "Arguments": [source(n), "linkspan://mini2/in/"], "Started": 1 });
        tell(model, Update::Tasks(numbers.iter().map(|&n| (path(n), to_dict(&task(n)))).collect()));
    };
    run(&mut model, &[1, 2]);
    assert_eq!(model.summary().paused, None, "with which options they go on is not known yet");
    let watching = json!({ "state": "watching", "options": { "watch": true, "exclude": ["*.o"] } });
    tell(&mut model, Update::Progress([1, 2].map(|n| (path(n), to_dict(&watching))).into(), 1));
    assert_eq!(model.summary().paused, Some(false));
    assert_eq!(model.pause_mirrors(), [1, 2].map(|n| Ask::Cancel(path(n))));
    // One of them ends slowly, and a person asks again.
    run(&mut model, &[2]);
    assert_eq!(model.pause_mirrors(), [Ask::Cancel(path(2))]);
    run(&mut model, &[]);
    // Also over a service that goes and comes.
    tell(&mut model, Update::Down("it has ended".into()));
    tell(&mut model, Update::Up("0.1.0".into()));
    assert_eq!(model.summary().paused, Some(true));
    let mirrors = [1, 2].map(|n| Ask::Mirror {
        source: source(n),
        destination: "linkspan://mini2/in/".into(),
        // A peer that is away now is waited for.
        options: json!({ "watch": true, "exclude": ["*.o"], "again": true }).to_string(),
    });
    assert_eq!(model.pause_mirrors(), mirrors);
    assert_eq!(model.summary().paused, None);
    // One that is refused stays paused.
    let [first, second] = mirrors;
    tell(&mut model, Update::Answered(first, Ok(Answer::Done)));
    let news = model.apply(Input::User(Update::Answered(second.clone(), Err("LS1841 too many".into()))));
    assert_eq!(news[0].title, "A mirror cannot go on");
    assert_eq!((model.summary().paused, model.pause_mirrors()), (Some(true), vec![second]));
}

#[test]
fn a_mirror_that_was_paused_in_its_first_run_goes_on_with_it() {
    let mut model = up();
    let options = json!({ "init": true, "watch": true });
    runs(
        &mut model,
        "mirror",
        json!(["/a", "linkspan://mini2/in/"]),
        json!({ "state": "running", "options": options }),
    );
    assert_eq!(model.pause_mirrors(), [Ask::Cancel(TASK.into())]);
    tell(&mut model, Update::Tasks(Vec::new()));
    let (source, destination) = ("/a".into(), "linkspan://mini2/in/".into());
    assert_eq!(model.pause_mirrors(), [Ask::Mirror { source, destination, options: options.to_string() }]);
}

#[test]
fn a_pairing_that_the_other_side_may_not_have_stored_says_so() {
    let mut model = up();
    tell(&mut model, Update::History(Vec::new()));
    let record = |id: u64, name: &str, confirmed: bool| json!({ "id": id, "kind": "pair", "state": "done", "name": name, "fingerprint": "F", "confirmed": confirmed });
    tell(&mut model, Update::History(dicts(&[record(2, "mini3", true), record(1, "mini2", false)])));
    let peers = dicts(&["mini2", "mini3"].map(|name| json!({ "name": name })));
    tell(&mut model, Update::Keys(Ok(("line".into(), "AAAA".into(), peers))));
    let page = model.pages(0).overview;
    let card = find(&page, "paired 1");
    assert!(card.mood == Mood::Slow && card.subtitle.contains("pair again"), "{card:?}");
    assert_eq!((find(&page, "paired 2").mood, &*find(&page, "paired 2").subtitle), (Mood::Plain, "Fingerprint F"));
}

#[test]
fn a_mount_that_has_ended_says_so_and_not_what_arrived() {
    let mut model = up();
    let record = |id: u64, state: &str| json!({ "id": id, "kind": "mount", "arguments": ["linkspan://mini2/in/", "/mnt"], "state": state, "error": "LS1828 no" });
    let records = [record(3, "done"), record(2, "cancelled"), record(1, "failed")];
    tell(&mut model, Update::History(dicts(&records)));
    let page = model.pages(0).files;
    let said = ["3", "2", "1"].map(|id| (find(&page, id).mood, find(&page, id).subtitle));
    assert_eq!(
        said,
        [(Mood::Plain, "Ended".into()), (Mood::Plain, "Ended".into()), (Mood::Trouble, "LS1828 no".into())]
    );
}

#[test]
fn a_share_or_a_peer_that_was_refused_takes_no_other_rows_place() {
    let mut model = up();
    let share = dicts(&[json!({ "name": "data", "directory": "/srv/data", "writable": false })]);
    tell(&mut model, Update::Shares(share, true, vec!["10.0.0.1:24681".into()], String::new()));
    let add = Ask::Share { name: "data".into(), directory: "/x".into(), writable: false };
    for ask in [add, Ask::Distrust("mini2".into())] {
        tell(&mut model, Update::Asked(ask.clone()));
        model.apply(Input::User(Update::Answered(ask, Err("LS1845 no".into()))));
    }
    let pages = model.pages(0);
    let serve = find(&pages.files, "serve");
    assert!(serve.subtitle.contains("10.0.0.1:24681") && serve.mood == Mood::Plain, "{serve:?}");
    assert_eq!(find(&pages.files, "not shared").title, "LS1845 no");
    assert_eq!(
        (find(&pages.overview, "offer").mood, find(&pages.overview, "not forgotten").mood),
        (Mood::Plain, Mood::Trouble)
    );
    tell(&mut model, Update::Asked(Ask::Unshare("data".into())));
    assert!(!has(&model.pages(0).files, "not shared"));
}

#[test]
fn whoever_is_trusted_is_shown_and_what_is_too_much_or_not_understood_is_counted() {
    let mut model = up();
    let peers = |n: usize| -> Vec<Value> {
        (0..n).map(|n| json!({ "name": format!("peer{n}"), "fingerprint": n.to_string() })).collect()
    };
    tell(&mut model, Update::Keys(Ok(("line".into(), "AAAA".into(), dicts(&peers(256))))));
    let pages = model.pages(0);
    assert!(has(&pages.overview, "peer 255 peer255") && pages.banner.is_empty(), "{}", pages.banner);
    tell(&mut model, Update::Keys(Ok(("line".into(), "AAAA".into(), dicts(&peers(260))))));
    tell(&mut model, Update::Shares(dicts(&[json!({ "name": 7 })]), false, Vec::new(), String::new()));
    tell(&mut model, Update::Tasks(vec![(TASK.into(), to_dict(&json!({ "Kind": 7 })))]));
    tell(&mut model, Update::History(dicts(&[json!({ "id": "x" })])));
    assert!(model.pages(0).banner.starts_with("7 "), "{}", model.pages(0).banner);
}
