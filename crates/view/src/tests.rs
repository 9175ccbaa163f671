use std::collections::HashMap;

use linkspan_bus::{Dict, to_dict};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const UUID: &str = "d2040000-0080-7518-b3c8-e1ac3a6b0201";
const PEER: &str = "/org/linkspan/Link1/peer/b";
const CABLE: &str = "/org/linkspan/Link1/cable/0_2d1";

fn cable(lanes: u32, usable: bool) -> Value {
    json!({ "Name": "0-1", "Medium": "thunderbolt", "Peer": PEER, "ReceiveLanes": lanes, "ReceiveLaneMbps": 20_000,
        "SendLanes": lanes, "SendLaneMbps": 20_000, "Usable": usable, "Notes": [], "Paths":
        [{ "means": "linkspan.ko", "over": "linkspan0", "usable": usable, "reason": "the interface has no address" }] })
}

fn peer(name: &str, driver: &str, allowed: bool) -> Value {
    json!({ "Name": name, "Uuid": UUID, "Vendor": "Linux", "Driver": driver, "Allowed": allowed, "Remembered": allowed })
}

fn objects(list: &[(&str, &str, Value)]) -> Input {
    let one = |(path, kind, value): &(&str, &str, Value)| {
        let interface = format!("org.linkspan.Link1.{kind}");
        ((*path).to_owned(), HashMap::from([(interface, to_dict(value))]))
    };
    Input::Objects(list.iter().map(one).collect())
}

fn up() -> Model {
    let mut model = Model::new("strix-a");
    model.apply(Input::Up("0.1.0".into()));
    model
}

fn rows(page: &Page) -> Vec<&Row> {
    page.groups.iter().flat_map(|group| &group.rows).collect()
}

fn find<'a>(page: &'a Page, id: &str) -> &'a Row {
    rows(page).into_iter().find(|row| row.id == id).unwrap_or_else(|| panic!("{id}: {page:#?}"))
}

#[test]
fn a_cable_is_shown_below_its_host_with_speed_and_way() {
    let mut model = up();
    model.apply(objects(&[(PEER, "Peer", peer("strix-b", "up", true)), (CABLE, "Cable", cable(2, true))]));
    let page = model.pages(0).overview;
    let group = page.groups.iter().find(|group| group.title == "strix-b").unwrap();
    let row = &group.rows[0];
    assert_eq!((row.end.as_str(), row.mood), ("40 Gb/s", Mood::Good), "{row:#?}");
    assert_eq!(row.subtitle, "Works, by linkspan.ko");
    assert_eq!(row.details[0].subtitle, "2 × 20 Gb/s, as both ends agreed");
    assert_eq!(group.rows[1].button.as_ref().unwrap().action, Action::Forget(UUID.into()));
    let summary = model.summary();
    assert_eq!((summary.icon, summary.peers), ("network-idle-symbolic", vec!["strix-b: 40 Gb/s".to_owned()]));
}

#[test]
fn a_downgrade_and_a_cable_without_a_way_are_said_with_their_mend() {
    let mut model = up();
    model.apply(objects(&[(PEER, "Peer", peer("b", "up", true)), (CABLE, "Cable", cable(2, true))]));
    model.apply(objects(&[(PEER, "Peer", peer("b", "up", true)), (CABLE, "Cable", cable(1, true))]));
    let page = model.pages(0).overview;
    let row = find(&page, CABLE);
    assert_eq!(row.mood, Mood::Slow);
    assert!(row.subtitle.starts_with("20 Gb/s in place of 40 Gb/s: unplug"), "{}", row.subtitle);
    assert_eq!(model.summary().icon, "dialog-warning-symbolic");
    model.apply(objects(&[(PEER, "Peer", peer("b", "up", true)), (CABLE, "Cable", cable(1, false))]));
    let page = model.pages(0).overview;
    assert_eq!(find(&page, CABLE).subtitle, "the interface has no address");
    assert_eq!(model.summary().icon, "network-error-symbolic");
}

#[test]
fn a_host_that_waits_has_a_card_whose_button_works_once_at_a_time() {
    let mut model = up();
    let waits = || objects(&[(PEER, "Peer", peer("b", "waiting", false))]);
    assert_eq!(model.apply(waits()).len(), 1, "it is told");
    assert_eq!(model.apply(waits()), [], "and not twice");
    let card = |model: &Model| {
        let page = model.pages(0).overview;
        (find(&page, &format!("allow {UUID}"))).clone()
    };
    assert!(card(&model).button.unwrap().works);
    model.apply(Input::Asked(live::Ask::Allow(UUID.into())));
    assert!(!card(&model).button.unwrap().works);
    model.apply(Input::Answered(live::Ask::Allow(UUID.into()), Err("LS3221 polkit refuses it".into())));
    let refused = card(&model);
    assert!(refused.button.unwrap().works && refused.subtitle == "LS3221 polkit refuses it");
    // Unplugged and back it is told again; let in it has no card.
    model.apply(objects(&[]));
    assert_eq!(model.apply(waits()).len(), 1);
    model.apply(objects(&[(PEER, "Peer", peer("b", "up", true))]));
    assert!(rows(&model.pages(0).overview).iter().all(|row| !row.id.starts_with("allow")));
}

#[test]
fn a_host_that_could_not_be_forgotten_says_so_in_its_own_row_and_nowhere_else() {
    let mut model = up();
    model.apply(objects(&[(PEER, "Peer", peer("b", "up", true))]));
    let row = |model: &Model| {
        let page = model.pages(0).overview;
        find(&page, &format!("remembered {UUID}")).clone()
    };
    let forget = || live::Ask::Forget(UUID.into());
    model.apply(Input::Asked(forget()));
    assert!(!row(&model).button.unwrap().works);
    model.apply(Input::Answered(forget(), Err("LS3221 polkit refuses it".into())));
    let refused = row(&model);
    assert_eq!((&*refused.subtitle, refused.mood), ("LS3221 polkit refuses it", Mood::Trouble));
    assert!(refused.button.unwrap().works);
    model.apply(objects(&[(PEER, "Peer", peer("b", "waiting", false))]));
    let page = model.pages(0).overview;
    let card = find(&page, &format!("allow {UUID}"));
    assert!(card.mood == Mood::Plain && card.subtitle.starts_with("UUID"), "{card:?}");
}

#[test]
fn a_service_that_goes_takes_what_it_said_with_it() {
    let mut model = up();
    model.apply(objects(&[(PEER, "Peer", peer("b", "up", true)), (CABLE, "Cable", cable(2, true))]));
    model.apply(Input::Asked(live::Ask::Allow(UUID.into())));
    model.apply(Input::Down("it has ended".into()));
    let pages = model.pages(0);
    for page in [&pages.overview, &pages.jobs, &pages.events] {
        let empty = page.empty.as_ref().unwrap();
        assert!(page.groups.is_empty() && empty.text.contains("systemctl start linkspand"), "{page:#?}");
        assert_eq!(empty.button.as_ref().unwrap().action, Action::Retry);
    }
    assert_eq!(model.summary().peers, [""; 0]);
    model.apply(Input::Up("9.9.9".into()));
    model.apply(objects(&[(PEER, "Peer", peer("b", "waiting", false))]));
    assert!(rows(&model.pages(0).overview).iter().any(|row| row.button.as_ref().is_some_and(|button| button.works)));
}

#[test]
fn only_what_is_new_and_worse_is_news() {
    let event = |time: u64, kind: &str| to_dict(&json!({ "time_us": time, "kind": kind, "text": "0-1" }));
    let mut model = up();
    assert_eq!(model.apply(Input::Events(vec![event(5, "degraded")])), [], "that was before");
    let news = model.apply(Input::Events(vec![event(5, "degraded"), event(6, "recovered"), event(7, "slow_path")]));
    assert_eq!(news.iter().map(|notice| notice.id.as_str()).collect::<Vec<_>>(), ["slow_path "]);
    assert_eq!(model.apply(Input::Events(vec![event(7, "slow_path"), event(3, "degraded")])), []);
    let page = model.pages(120_000_007).events;
    assert_eq!((page.groups[0].rows[0].id.as_str(), page.groups[0].rows[0].end.as_str()), ("7", "2 min ago"));
    let many: Vec<Dict> = (8..10_008).map(|time| event(time, "plugged")).collect();
    model.apply(Input::Events(many));
    assert_eq!(rows(&model.pages(0).events).len(), events::KEPT);
}

#[test]
fn a_notice_takes_the_place_of_the_one_before_about_the_same_cable_or_process() {
    let mut model = up();
    model.apply(Input::Events(Vec::new()));
    let mut ids = |time: u64, kind: &str, of: Value| {
        let mut event = json!({ "time_us": time, "kind": kind, "text": "x" });
        event.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
        let told = model.apply(Input::Events(vec![to_dict(&event)]));
        told.into_iter().map(|notice| notice.id).collect::<Vec<_>>()
    };
    let cable = |name: &str| json!({ "cable": name });
    let first = ids(1, "plugged", cable("0-1"));
    assert_eq!((first.len(), &ids(2, "plugged", cable("0-1"))), (1, &first));
    assert_ne!(ids(3, "plugged", cable("0-3")), first);
    let lost = |device: &str| json!({ "pid": 7, "device": device });
    let first = ids(4, "rail_lost", lost("linkspan0"));
    assert_eq!((first.len(), &ids(5, "rail_lost", lost("linkspan0"))), (1, &first));
    assert_ne!(ids(6, "rail_lost", lost("linkspan1")), first);
}

#[test]
fn what_a_stranger_may_cause_is_told_once_in_ten_minutes_of_each_process() {
    let mut model = up();
    model.apply(Input::Events(Vec::new()));
    let mut told = |seconds: u64, kind: &str, pid: u32| {
        let event = json!({ "time_us": seconds * 1_000_000, "kind": kind, "pid": pid, "text": "x" });
        model.apply(Input::Events(vec![to_dict(&event)])).len()
    };
    let kinds = ["peer_refused", "connection_failed", "slow_path"];
    for (at, kind) in [10, 110, 210].into_iter().zip(kinds) {
        assert_eq!((told(at, kind, 7), told(at + 1, kind, 7), told(at + 2, kind, 8)), (1, 0, 1), "{kind}");
    }
    assert_eq!((300..610).map(|at| told(at, kinds[0], 7)).sum::<usize>(), 0);
    assert_eq!((told(610, kinds[0], 7), told(611, kinds[0], 7)), (1, 0));
    // What no stranger causes is told each time.
    assert_eq!((told(620, "rail_lost", 7), told(621, "rail_lost", 7)), (1, 1));
}

#[test]
fn rates_are_those_between_two_looks() {
    let process = |bytes: u64| {
        to_dict(&json!({ "pid": 7, "comm": "train", "downgrades": 1, "last_downgrade": "no RDMA port", "paths": [
            { "device": "thunderbolt0", "transport": "tcp", "tx_host_bytes": bytes, "connections_open": 2, "stalls": 3 }] }))
    };
    let mut model = up();
    assert!(model.pages(0).jobs.empty.unwrap().text.contains("lspan perf bw"));
    model.apply(Input::Statistics(vec![process(1_000_000)], 1_000_000));
    assert_eq!(find(&model.pages(0).jobs, "0").end, "↑ 0.0 MB/s\n↓ 0.0 MB/s");
    model.apply(Input::Statistics(vec![process(5_001_000_000)], 3_000_000));
    let page = model.pages(0).jobs;
    assert!(page.groups[0].text.ends_with("slower than this machine could give: no RDMA port"), "{:?}", page.groups[0]);
    let row = find(&page, "0");
    assert_eq!(row.end, "↑ 2.50 GB/s\n↓ 0.0 MB/s");
    assert_eq!(row.subtitle, "2 open, 0 rails lost, 3 stalls, 0 failed");
    // A counter that goes back is another process of the same number.
    model.apply(Input::Statistics(vec![process(0)], 4_000_000));
    assert_eq!(find(&model.pages(0).jobs, "0").end, "↑ 0.0 MB/s\n↓ 0.0 MB/s");
}

#[test]
fn where_the_service_tells_as_many_processes_as_it_may_the_page_says_that_there_may_be_more() {
    let mut model = up();
    let processes = |n: usize| (1..=n).map(|pid| to_dict(&json!({ "pid": pid }))).collect();
    model.apply(Input::Statistics(processes(127), 1));
    assert_eq!(model.pages(0).jobs.groups.len(), 127);
    model.apply(Input::Statistics(processes(128), 2));
    let page = model.pages(0).jobs;
    assert!(find(&page, "more").title.contains("128"), "{:?}", page.groups.last());
}

#[test]
fn the_page_of_events_says_that_nothing_is_heard_of_a_service_that_has_gone() {
    let mut model = up();
    model.apply(Input::Events(vec![to_dict(&json!({ "time_us": 5, "kind": "plugged" }))]));
    model.apply(Input::Down("it has ended".into()));
    let page = model.pages(5).events;
    assert!(
        find(&page, "absent").button.as_ref().unwrap().action == Action::Retry && find(&page, "5").mood == Mood::Good
    );
    model.apply(Input::Up("0.1.0".into()));
    assert!(rows(&model.pages(5).events).iter().all(|row| row.id != "absent"));
}

#[test]
fn processes_of_one_number_in_two_containers_have_rates_of_their_own() {
    let mut model = up();
    let process = |start: u64, sent: u64| {
        to_dict(
            &json!({ "pid": 1, "start_unix_us": start, "paths": [{ "device": "eth0", "transport": "tcp", "tx_host_bytes": sent }] }),
        )
    };
    model.apply(Input::Statistics(vec![process(1, 0), process(2, 0)], 1_000_000));
    model.apply(Input::Statistics(vec![process(1, 1_000_000_000), process(2, 0)], 2_000_000));
    let page = model.pages(0).jobs;
    let ends: Vec<&str> = rows(&page).iter().map(|row| row.end.lines().next().unwrap()).collect();
    assert_eq!(ends, ["↑ 1.00 GB/s", "↑ 0.0 MB/s"]);
}

#[test]
fn findings_have_their_commands_to_copy_and_another_schema_is_refused() {
    let report = |schema: &str| {
        json!({ "schema": schema, "findings": [{ "code": "LS2306", "name": "no-address", "severity": "broken", "title": "No address",
            "what": "thunderbolt0 has no address", "cost": "TCP does not use it",
            "mend": [{ "run": "ip address add 10.0.0.1/30 dev thunderbolt0" }, { "run": "rm\nx" }, { "do": "Wait" }] }] })
        .to_string()
    };
    let mut model = up();
    let button = |model: &Model| model.pages(0).findings.empty.and_then(|empty| empty.button).unwrap();
    assert!(button(&model).works);
    model.apply(Input::Examining);
    assert!(!button(&model).works);
    model.apply(Input::Examined(Ok(report("linkspan.doctor/1"))));
    let page = model.pages(0).findings;
    let copies: Vec<&Action> = rows(&page).iter().filter_map(|row| Some(&row.button.as_ref()?.action)).collect();
    let command = Action::Copy("ip address add 10.0.0.1/30 dev thunderbolt0".into());
    assert_eq!(copies, [&command, &Action::Examine], "a command that cannot be shown as it is, is not to be copied");
    model.apply(Input::Examined(Ok(report("linkspan.doctor/9"))));
    assert!(model.pages(0).findings.empty.unwrap().text.contains("linkspan.doctor/9"));
}

#[test]
fn names_are_one_bounded_line_of_text() {
    assert_eq!(text::shown("<b>&amp;\n\u{1b}[31m"), "<b>&amp;  [31m");
    let long = text::shown(&"x".repeat(10_000));
    assert_eq!((long.chars().count(), long.ends_with("…\u{2069}")), (text::LONGEST + 3, true));
    assert_eq!(text::shown("\u{202e}שלום"), "\u{2068}שלום\u{2069}", "direction is isolated");
    assert_eq!(text::shown("\u{2069}\u{2069}a"), "a", "and cannot be got out of");
    assert_eq!(text::fill("{a} {b} {", &[("a", "{b}"), ("b", "2")]), "{b} 2 {");
}

#[test]
fn five_hundred_hosts_of_a_service_of_another_version_are_bounded_and_said() {
    let mut model = up();
    let hosts = (0..500).map(|n| {
        let mut dict = to_dict(&peer(&"<i>é".repeat(3000), "waiting", false));
        dict.extend(to_dict(&json!({ "Uuid": n.to_string(), "Colour": "blue" })));
        (format!("{PEER}{n}"), HashMap::from([("org.linkspan.Link1.Peer".to_owned(), dict)]))
    });
    let told = model.apply(Input::Objects(hosts.collect()));
    assert_eq!(told.len(), links::MOST);
    let pages = model.pages(0);
    assert!(pages.banner.starts_with("244 things"), "{}", pages.banner);
    assert!(rows(&pages.overview).iter().all(|row| row.title.chars().count() <= text::LONGEST + 3));
}

/// Anything that a dictionary may have.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 16, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::from))
}

fn any_dict() -> impl Strategy<Value = Dict> {
    let key = prop::sample::select(vec![
        "Name",
        "Medium",
        "Peer",
        "ReceiveLanes",
        "ReceiveLaneMbps",
        "SendLanes",
        "SendLaneMbps",
        "Usable",
        "Paths",
        "Notes",
        "Uuid",
        "Driver",
        "Allowed",
        "Remembered",
        "time_us",
        "kind",
        "text",
        "pid",
        "comm",
        "paths",
        "x",
    ]);
    prop::collection::hash_map(key, any_json(), 0..8).prop_map(|fields| {
        to_dict(&Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
    })
}

/// What the user's service may say.
fn any_told() -> impl Strategy<Value = Input> {
    use crate::user::{Answer, Ask, Update};
    let keys = [
        "Kind",
        "Peer",
        "Arguments",
        "state",
        "path",
        "notes",
        "done",
        "of",
        "measuring",
        "results",
        "moved_bytes",
        "total_bytes",
        "name",
        "fingerprint",
        "id",
        "kind",
        "peer",
        "arguments",
        "error",
        "directory",
        "writable",
        "name_hex",
        "size_bytes",
    ];
    let value = prop_oneof![
        any_json(),
        prop::sample::select(vec![
            "test", "send", "get", "mirror", "pair", "done", "failed", "running", "file", "share"
        ])
        .prop_map(Value::from),
        Just(json!(["/a/b", "linkspan://b/in/"])),
        Just(
            json!([{ "test": "bw", "size_bytes": 8, "bw_gbyte_s": 1.5 }, { "test": "lat", "latency": { "p50_ns": 1.0 } }])
        ),
        (0..4u64).prop_map(Value::from),
    ];
    let dict = prop::collection::hash_map(prop::sample::select(keys.to_vec()), value, 0..12).prop_map(|fields| {
        to_dict(&Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
    });
    let list = move || prop::collection::vec(dict.clone(), 0..4);
    let named =
        list().prop_map(|all| all.into_iter().enumerate().map(|(n, dict)| (format!("/task/{n}"), dict)).collect());
    let named = move || named.clone();
    let told = prop_oneof![
        "\\PC{0,20}".prop_map(Update::Up),
        Just(Update::Up("0.1.0".into())),
        "\\PC{0,20}".prop_map(Update::Down),
        named().prop_map(Update::Tasks),
        (named(), any::<u64>()).prop_map(|(list, now)| Update::Progress(list, now)),
        list().prop_map(Update::History),
        (list(), any::<bool>(), "\\PC{0,20}").prop_map(|(list, on, text)| Update::Shares(
            list,
            on,
            vec![text.clone()],
            text
        )),
        (list(), "\\PC{0,20}").prop_map(|(list, text)| Update::Keys(Ok((text.clone(), text, list)))),
        "\\PC{0,20}".prop_map(|why| Update::Keys(Err(why))),
        "\\PC{0,20}".prop_map(|place| Update::Asked(Ask::List(place))),
        (list(), any::<bool>())
            .prop_map(|(list, all)| { Update::Answered(Ask::List("b:in".into()), Ok(Answer::Listed(list, all))) }),
        Just(Update::Asked(Ask::List("b:in".into()))),
        "\\PC{0,20}".prop_map(|text| Update::Answered(Ask::Offer, Ok(Answer::Offered(text, "/task/0".into())))),
        "\\PC{0,20}".prop_map(|text| Update::Answered(Ask::Serve(true), Err(text))),
    ];
    prop_oneof![
        8 => told.prop_map(Input::User),
        1 => "\\PC{0,30}".prop_map(|text| Input::Typed(Field::Place, text)),
        1 => any::<usize>().prop_map(|n| Input::Chosen(Choice::Test, n)),
        1 => prop::collection::vec("\\PC{0,20}", 0..3).prop_map(Input::ToSend),
    ]
}

fn any_input() -> impl Strategy<Value = Input> {
    let path = prop::sample::select(vec![PEER.to_owned(), CABLE.to_owned(), "/".to_owned(), "nonsense".to_owned()]);
    let interface = prop::sample::select(vec!["Cable", "Peer", "Manager", "Colour"]);
    let known = prop_oneof![
        (1..4u32, any::<bool>()).prop_map(|(lanes, usable)| objects(&[(CABLE, "Cable", cable(lanes, usable))])),
        ("\\PC{0,300}", any::<bool>()).prop_map(|(name, allowed)| objects(&[(
            PEER,
            "Peer",
            peer(&name, "up", allowed)
        )])),
    ];
    let interfaces =
        prop::collection::hash_map(interface.prop_map(|name| format!("org.linkspan.Link1.{name}")), any_dict(), 0..3);
    prop_oneof![
        known,
        "\\PC{0,20}".prop_map(Input::Up),
        "\\PC{0,20}".prop_map(Input::Down),
        prop::collection::hash_map(path, interfaces, 0..4).prop_map(Input::Objects),
        prop::collection::vec(any_dict(), 0..4).prop_map(Input::Events),
        (prop::collection::vec(any_dict(), 0..4), any::<u64>()).prop_map(|(list, now)| Input::Statistics(list, now)),
        Just(Input::Asked(live::Ask::Allow(UUID.into()))),
        (any::<bool>(), prop::result::maybe_ok(Just(()), "\\PC{0,20}")).prop_map(|(allow, answer)| {
            let ask = if allow { live::Ask::Allow } else { live::Ask::Forget };
            Input::Answered(ask(UUID.into()), answer)
        }),
        "\\PC{0,40}".prop_map(|json| Input::Examined(Ok(json))),
        any_told(),
    ]
}

proptest! {
    #[test]
    fn whatever_a_service_says_each_page_is_whole(inputs in prop::collection::vec(any_input(), 0..40), now in any::<u64>()) {
        let mut model = Model::new("a");
        for input in inputs {
            model.apply(input);
            let pages = model.pages(now);
            for page in [&pages.overview, &pages.tests, &pages.jobs, &pages.files, &pages.findings, &pages.events] {
                prop_assert!(page.empty.is_some() == page.groups.is_empty(), "{page:?}");
                for row in rows(page) {
                    prop_assert!(!row.title.contains(char::is_control) && !row.subtitle.contains(char::is_control));
                    prop_assert!(row.button.as_ref().is_none_or(|button| !button.name.is_empty()));
                }
                for group in &page.groups {
                    let ids: std::collections::BTreeSet<&str> = group.rows.iter().map(|row| row.id.as_str()).collect();
                    prop_assert_eq!(ids.len(), group.rows.len(), "two rows of one name");
                }
            }
            prop_assert!(!model.summary().text.is_empty());
        }
    }
}
