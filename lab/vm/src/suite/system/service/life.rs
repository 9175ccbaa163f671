//! How the service comes, is watched, killed, masked and taken away, and what the bus is to it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{EVENTS, MANAGER, NAME, PATH, Service, by};
use crate::error::{Result, check};
use crate::files::PACKAGED;
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// Times that it is killed while it is asked all that it can do.
const KILLS: usize = 8;

/// A user's call starts it; systemd knows that it is up, and what its unit takes away from it.
pub(super) fn activated(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let before = on.show("ActiveState")?;
    check(before == "inactive", || format!("before any call the unit is {before}"))?;
    let events = on.answers("stranger", EVENTS)?;
    check(events.contains("\"present\"") && events.contains("\"0-1\""), || format!("the first call: {events}"))?;
    let wanted = [
        ("Type", "notify"),
        ("ActiveState", "active"),
        ("SubState", "running"),
        ("NRestarts", "0"),
        ("WatchdogUSec", "30s"),
    ];
    for (property, value) in wanted {
        let shown = on.show(property)?;
        check(shown == value, || format!("{property} is {shown}, not {value}"))?;
    }
    let status = on.guest.sh("systemctl status --no-pager linkspand")?;
    check(status.contains("Active: active (running)"), || status.clone())?;
    on.shows_the_cable()?;
    let stats = on.guest.sh("stat -c '%a %U:%G' /run/linkspan/stats; findmnt -no SIZE /run/linkspan/stats")?;
    let words: Vec<&str> = stats.split_whitespace().collect();
    check(words == ["3777", "root:linkspan", "64M"], || format!("/run/linkspan/stats is {stats}"))?;
    lab.say("a user's first call starts it, Type=notify; the cable and the host at its end are objects");
    let exposure = on.guest.sh_for(
        SOON,
        "systemd-analyze security --no-pager --threshold=25 linkspand.service >/run/exposure; code=$?\n\
         tail -n 1 /run/exposure; exit $code",
    )?;
    lab.say(&format!("systemd-analyze security: {}", exposure.trim()));
    Ok(())
}

/// One that stands still is ended by the watchdog and started again.
pub(super) fn watched(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let (before, since) = (on.show("MainPID")?, on.now()?);
    on.guest.sh(&format!("kill -STOP {before}"))?;
    on.another("the watchdog", &before)?;
    let journal = on.journal(&since)?;
    check(journal.contains("Watchdog timeout"), || format!("no word of the watchdog: {journal}"))?;
    on.shows_the_cable()?;
    lab.say("stopped: the watchdog of 30 s ends it, systemd starts it again");
    Ok(())
}

/// Killed in the middle of whatever it is asked, it comes again with what it remembers and no object too many.
pub(super) fn killed(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let uuid = on.peer()?;
    let ask = |words: &str| format!("busctl call {NAME} {PATH} {MANAGER} {words} >/dev/null 2>&1");
    let busy = on.guest.spawn(&format!(
        "while :; do {}; {}; {}; {}; {}; {}; {}; {}; udevadm trigger --subsystem-match=thunderbolt; done",
        ask(&format!("Allow s {uuid}")),
        ask(&format!("Forget s {uuid}")),
        ask("SetUp qq 1 8"),
        ask("GetStatistics b true"),
        ask("GetEvents tb 0 true"),
        ask("Watch ub 1000 true"),
        ask("LendQueues suuau lo 1 1 0"),
        ask("EndLending s lo"),
    ))?;
    for round in 0..KILLS {
        let before = on.show("MainPID")?;
        // systemd gives up on a unit that it has started five times in ten seconds.
        on.guest.sh(&format!("systemctl reset-failed linkspand; sleep 0.{}; kill -9 {before}", round * 13 % 10))?;
        on.another("the service after kill -9", &before)?;
    }
    busy.kill();
    let left = on.remembered()?;
    check(left.is_subset(&BTreeSet::from([uuid.clone()])), || format!("remembered after {KILLS} kills: {left:?}"))?;
    on.shows_the_cable()?;
    on.answers("root", &format!("Allow s {uuid}"))?;
    let before = on.show("MainPID")?;
    on.guest.sh(&format!("systemctl reset-failed linkspand; kill -9 {before}"))?;
    on.another("the service after kill -9", &before)?;
    let remembered = on.of_peer("Remembered")?;
    check(remembered == "b true", || format!("allowed and killed, and then remembered is {remembered}"))?;
    on.answers("root", &format!("Forget s {uuid}"))?;
    check(on.remembered()?.is_empty(), || "forgotten, and still on the disk".to_owned())?;
    on.shows_the_cable()?;
    lab.say(&format!(
        "killed {KILLS} times in the middle of calls and once after Allow: no stale object, what was said holds"
    ));
    Ok(())
}

/// What `lspan events --json` prints of cables that are there, without the times, and what it says beside.
fn present(on: Service<'_>) -> Result<(BTreeSet<String>, String)> {
    let said = on.guest.run(SOON, "lspan events --json")?;
    check(said.code == 0, || format!("lspan events ended with {}: {}", said.code, said.err))?;
    let mut lines = BTreeSet::new();
    for line in said.out.lines() {
        let Ok(mut event) = serde_json::from_str::<Value>(line) else { continue };
        if event["kind"] == "present" {
            event["time_us"] = Value::Null;
            lines.insert(event.to_string());
        }
    }
    Ok((lines, said.err))
}

/// Masked and absent: `lspan` prints the same of the machine and of the cables, and says that nobody keeps events.
pub(super) fn without(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let guest = on.guest;
    // From now on its first look is the latest.
    guest.sh("systemctl reset-failed linkspand; systemctl restart linkspand")?;
    let status = || guest.sh("lspan status --json");
    let (with, (events, said)) = (status()?, present(on)?);
    check(!events.is_empty() && said.is_empty(), || format!("with the service: {events:?}, {said}"))?;
    for (how, script) in [
        ("masked", "systemctl mask --now linkspand 2>&1".to_owned()),
        (
            "absent",
            format!(
                "systemctl unmask linkspand && (cd {PACKAGED} && find . -type f) | (cd / && xargs rm) && systemctl daemon-reload"
            ),
        ),
    ] {
        guest.sh(&script)?;
        let now = status()?;
        check(now == with, || format!("{how}: lspan status --json is another one: {now}\nwith the service: {with}"))?;
        let (seen, told) = present(on)?;
        check(seen == events, || format!("{how}: lspan events: {seen:?}\nwith the service: {events:?}"))?;
        check(told.contains("linkspand does not run"), || format!("{how}: lspan events says {told:?}"))?;
        let allow = format!("lspan link allow {}", on.peer()?);
        let refused = guest.run(SOON, &by(guest, "friend").line(&allow))?;
        check(refused.code != 0 && refused.err.contains("LS"), || format!("{how}: {allow}: {refused:?}"))?;
        lab.say(&format!(
            "{how}: lspan status gives the same JSON, lspan events the same cables; a user's {allow}: {}",
            refused.err.trim()
        ));
    }
    Service::install(guest)?;
    on.answers("stranger", EVENTS)?;
    on.shows_the_cable()
}

/// Times of events in an answer of `GetEvents`.
fn times(answer: &str) -> BTreeSet<String> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    let times = words.windows(3).filter(|words| words[0] == "\"time_us\"" && words[1] == "t");
    times.map(|words| words[2].to_owned()).collect()
}

/// The bus is started again: the service is there with its process and its events. It comes last, for others take it worse.
pub(super) fn bus(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let (pid, before) = (on.show("MainPID")?, times(&on.answers("root", EVENTS)?));
    on.guest.sh("systemctl restart dbus")?;
    let has = "busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus NameHasOwner s";
    on.guest.until("the name on the new bus", SOON, &format!("{{ {has} {NAME} 2>/dev/null | grep -q true; }}"))?;
    let after = times(&on.answers("root", EVENTS)?);
    check(!before.is_empty() && before.is_subset(&after), || {
        format!("events before the new bus: {before:?}, after: {after:?}")
    })?;
    let now = on.show("MainPID")?;
    check(now == pid, || format!("the process was {pid} and is {now}"))?;
    on.shows_the_cable()?;
    lab.say("dbus restarted: the same process is back with its objects and its events");
    on.guest.sh("systemctl restart NetworkManager systemd-logind polkit").map(drop)
}
