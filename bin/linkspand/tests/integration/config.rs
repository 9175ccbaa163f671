//! `linkspand config`, and a configuration that cannot be.

use super::{Fixture, Running, program};

#[test]
fn every_value_is_shown_with_its_origin_and_an_unknown_key_is_refused() {
    let fix = Fixture::new();
    let run = |words: &[&str]| program().args(words).arg("--config").arg(&fix.root).output().unwrap();
    let shown = String::from_utf8(run(&["config", "show", "--origin"]).stdout).unwrap();
    assert_eq!(shown.lines().next(), Some("events = 1024 # default"));
    fix.file("linkspand.d/10-more.toml", "events = 9");
    let shown = String::from_utf8(run(&["config", "show", "--origin"]).stdout).unwrap();
    assert!(shown.starts_with("events = 9 # ") && shown.contains("10-more.toml"), "{shown}");
    assert!(!String::from_utf8(run(&["config", "show"]).stdout).unwrap().contains('#'));
    fix.file("linkspand.toml", "evnts = 9");
    for words in [&["config", "show"][..], &["-f"]] {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("LS3232") && said.contains("evnts") && said.contains("linkspand.toml"), "{said}");
    }
}

#[test]
fn a_configuration_that_went_bad_leaves_the_service_as_it_was() {
    let Some(running) = Running::start() else { return };
    std::fs::write(running.config().join("linkspand.toml"), "events = \"many\"").unwrap();
    running.signal(rustix::process::Signal::HUP);
    // The answer comes from a service that has read it.
    running.plug(false);
    super::until("the cable is gone", || {
        running.manager().get_events(0, false).unwrap().iter().any(|event| format!("{event:?}").contains("unplugged"))
    });
}
