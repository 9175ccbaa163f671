//! `linkspand config`, and a configuration that cannot be.

use linkspan_service::events::{Event, Kind};

use super::service::events;
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
    let none = program().args(["config", "show", "--config"]).arg(fix.root.join("none")).output().unwrap();
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        none.status.code() == Some(2) && said.contains("LS3231") && said.contains("/none cannot be read"),
        "{said}"
    );
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
    let config = |text: &str| {
        std::fs::write(running.config().join("linkspand.toml"), text).unwrap();
        running.signal(rustix::process::Signal::HUP);
    };
    let events = || events(&running);
    // The answer comes from a service that has read it.
    let plugged = || {
        let before = events().last().map(|event| event.time_us);
        for (there, kind) in [(false, Kind::Unplugged), (true, Kind::Plugged)] {
            running.plug(there);
            let told = |event: &Event| event.kind == kind && Some(event.time_us) > before;
            super::until(&format!("{kind:?}"), || events().iter().any(told));
        }
    };
    plugged();
    assert!(events().len() > 2);
    config(&format!("events = 2\nstatistics = {:?}\n", running.fix.root.join("stats")));
    super::until("two events are kept", || events().len() == 2);
    config("events = \"many\"");
    super::until("it says why", || running.log().contains("LS3232"));
    let log = running.log();
    let line = log.lines().find(|line| line.contains("LS3232")).unwrap_or_default();
    assert!(line.contains("linkspand.toml") && log.contains("the configuration is as before"), "{log}");
    plugged();
    assert_eq!(events().len(), 2);
}
