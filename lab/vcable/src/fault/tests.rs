use super::*;
use crate::time::MS;
use crate::topology::Topology;

fn names() -> Topology {
    Topology::preset("chain3").unwrap()
}

#[test]
fn scripts_have_times_and_frames() {
    let text = "# a script\nunplug ab\n\nat 20ms replug ab # again\nframe bc 7 width bc dual\n";
    let script = Script::parse(text, &names()).unwrap();
    assert_eq!(
        script.0,
        [
            (When::At(0), Command::Plug { cable: 0, plugged: false }),
            (When::At(20 * MS), Command::Plug { cable: 0, plugged: true }),
            (When::Frame { cable: 1, count: 7 }, Command::Width { cable: 1, width: Width::Dual }),
        ]
    );
}

#[test]
fn rules_hit_once_or_go_on_by_chance() {
    let rule = |line: &str| match Command::parse(line, &names()).unwrap() {
        Command::Rule(rule) => rule,
        other => panic!("{other:?}"),
    };
    let drop = rule("drop xdomain from=a to=b nth=3 type=uuid-request");
    assert_eq!((drop.from, drop.to, drop.kind, drop.skip, drop.left), (Some(0), Some(1), Some(12), 2, 1));
    assert_eq!(rule("delay reply by=5us count=9").damage, Damage::Delay(5000));
    assert_eq!(rule("corrupt frame p=0.5 hop=8").left, u64::MAX);
}

#[test]
fn what_is_no_command_is_refused_with_what_is_wanted() {
    for line in [
        "",
        "unplug",
        "unplug zz",
        "drop",
        "drop frame p=2",
        "speed ab 5",
        "retrain ab lanes=3",
        "retrain ab gen=1",
        "lose-irq a x=1",
        "stall a ring=64",
    ] {
        let error = Command::parse(line, &names()).unwrap_err().to_string();
        assert!(error.starts_with("LS0921"), "{error}");
    }
}
