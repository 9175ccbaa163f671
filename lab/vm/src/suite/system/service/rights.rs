//! Who may do what, as the guest's polkitd says.

use super::super::containers;
use super::{Service, by};
use crate::error::{Result, check};
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// What everybody but root needs leave for: the action that polkit is asked for, whether a password given for it is kept for a while, and
/// calls.
const ACTIONS: [(&str, bool, &[&str]); 5] = [
    ("org.linkspan.link.allow", true, &["Allow s PEER"]),
    ("org.linkspan.link.forget", true, &["Forget s PEER"]),
    ("org.linkspan.link.configure", true, &["SetUp qq 1 8"]),
    ("org.linkspan.statistics.read-all", true, &["GetStatistics b true", "Watch ub 1000 true", "GetEvents tb 0 true"]),
    ("org.linkspan.devmem.configure", false, &["LendQueues suuau lo 1 1 0", "EndLending s lo"]),
];

/// Its exit code where a password would be asked for (pkcheck(1)).
const CHALLENGE: i32 = 2;

/// Without a rule a user is refused with polkit's answer, and root is not.
pub(super) fn asked(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let uuid = on.peer()?;
    for (action, kept, calls) in ACTIONS {
        let line = format!("pkcheck --action-id {action} --process $$");
        let said = on.guest.run(SOON, &by(on.guest, "stranger").line(&line))?;
        check(said.code == CHALLENGE, || format!("{line} ended with {}: {}{}", said.code, said.out, said.err))?;
        let keeps = said.out.contains("retains_authorization_after_challenge=1");
        check(keeps == kept, || format!("{action}: a password is kept: {keeps}: {}{}", said.out, said.err))?;
        for words in calls {
            refused(on, "stranger", action, &words.replace("PEER", &uuid))?;
        }
    }
    check(on.remembered()?.is_empty(), || "a call that was refused has let a host in".to_owned())?;
    let (allow, forget) = (format!("Allow s {uuid}"), format!("Forget s {uuid}"));
    for words in [&*allow, &forget, "GetStatistics b true", "GetEvents tb 0 true"] {
        on.answers("root", words)?;
    }
    let lent = on.call("root", "LendQueues suuau lo 1 1 0")?;
    check(lent.code != 0 && !lent.err.contains("LS3221"), || {
        format!("root's lending of lo: {}{}", lent.out, lent.err)
    })?;
    lab.say("a user is refused what polkit wants an administrator's password for (auth_admin_keep, of queues auth_admin), root may");
    Ok(())
}

fn refused(on: Service<'_>, user: &str, action: &str, words: &str) -> Result<()> {
    let said = on.call(user, words)?;
    let right = ["LS3221", action, "a password is needed"].iter().all(|part| said.err.contains(part));
    check(said.code != 0 && right, || format!("{words} as {user} ended with {}: {}{}", said.code, said.out, said.err))
}

/// A rule lets a group in: its member may by `lspan` too, another user may not, and the member may nothing else.
pub(super) fn ruled(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let uuid = on.peer()?;
    on.rule()?;
    let allow = format!("lspan link allow {uuid}");
    let said = on.guest.run(SOON, &by(on.guest, "friend").line(&allow))?;
    let told = format!("{uuid} is allowed whenever it is plugged in");
    check(said.code == 0 && said.out.contains(&told), || format!("{allow} as friend: {}{}", said.out, said.err))?;
    check(on.remembered()?.contains(&uuid), || "allowed, and not remembered".to_owned())?;
    let remembered = on.of_peer("Remembered")?;
    check(remembered == "b true", || format!("the object says of the host that it is remembered: {remembered}"))?;
    refused(on, "friend", "org.linkspan.link.forget", &format!("Forget s {uuid}"))?;
    refused(on, "stranger", "org.linkspan.link.allow", &format!("Allow s {uuid}"))?;
    // 5: not permitted.
    let said = on.guest.run(SOON, &by(on.guest, "stranger").line(&allow))?;
    check(said.code == 5 && said.err.contains("LS3221"), || format!("{allow} as stranger: {said:?}"))?;
    let said = on.guest.run(SOON, &by(on.guest, "stranger").line("lspan events --all"))?;
    check(said.code == 5 && said.err.contains("LS3221"), || format!("lspan events --all as stranger: {said:?}"))?;
    on.answers("root", &format!("Forget s {uuid}"))?;
    lab.say("a polkit rule lets a group allow hosts: its member by lspan link allow, and nothing else; nobody else");
    Ok(())
}

/// Numbers of a user's job, read under the unit by root, by that user and not by another one.
pub(super) fn numbers(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    let job = on.guest.spawn(&by(on.guest, "friend").line("exec lspan perf write --size 64K --duration 300s"))?;
    let seen = |user: &str, all: bool| -> Result<bool> {
        Ok(on.answers(user, &format!("GetStatistics b {all}"))?.contains("\"lspan\""))
    };
    let ask = format!(
        "busctl call {} {} {} GetStatistics b true | grep -q '\"lspan\"'",
        super::NAME,
        super::PATH,
        super::MANAGER
    );
    on.guest.until("the statistics of a user's job", SOON, &format!("{{ {ask}; }}"))?;
    check(seen("friend", false)?, || "a user does not see its own job".to_owned())?;
    check(!seen("stranger", false)?, || "a user sees another one's job".to_owned())?;
    lab.say("the statistics of a user's job: root reads them, its user does, and no other");
    exported(on)?;
    job.kill();
    lab.say("lspan-metrics.service: a user's job and one in a container with the folder mounted, neither's pages swept by those of the other");
    Ok(())
}

/// Prints how many processes a scrape of the exporter's unit tells of.
const SCRAPE: &str = r"exec 3<>/dev/tcp/127.0.0.1/9464
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
sed -n 's/^linkspan_processes //p' <&3";

/// The exporter under its unit, as a user of its own: it tells of a user's job and of one in a container that has the folder.
fn exported(on: Service<'_>) -> Result<()> {
    let guest = on.guest;
    let enabled = guest.run(SOON, "systemctl is-enabled lspan-metrics")?.out;
    check(enabled.trim() == "disabled", || format!("lspan-metrics before anybody asked for it: {enabled}"))?;
    guest.sh(&format!("cat >/run/scrape <<'END'\n{SCRAPE}\nEND"))?;
    guest.sh("systemctl start lspan-metrics")?;
    let scraped = |what: &str, is: &str| -> Result<()> {
        guest.until(what, SOON, &format!("{{ [ \"$(bash /run/scrape)\" {is} ]; }}")).map(drop)
    };
    scraped("the processes of a user's job", "-ge 2")?;
    let alone = guest.sh("bash /run/scrape")?;
    guest.sh(containers::ROOT)?;
    // With a pid namespace of its own, as podman starts it.
    let container = containers::podman("-v /run/linkspan/stats:/run/linkspan/stats");
    let _job = guest.spawn(&format!("exec {container} 'exec lspan perf write --size 64K --duration 300s'"))?;
    let both = format!("-eq $(({} * 2))", alone.trim());
    scraped("the processes of a job in a container", &both)?;
    // The exporter may be in one too.
    guest.sh(&format!("[ \"$({container} 'lspan metrics' | sed -n 's/^linkspan_processes //p')\" {both} ]"))?;
    // A process that makes a page removes those that nobody holds; in each namespace there are processes that the other does not see.
    let brief = "lspan perf write --size 64K --duration 100ms >/dev/null";
    guest.sh(&format!("{brief} && {container} '{brief}'"))?;
    scraped("both jobs after others have begun and ended beside each", &both)?;
    guest.sh("podman kill -a >/dev/null")?;
    scraped("the end of that job", &format!("-eq {}", alone.trim()))?;
    guest.sh("systemctl stop lspan-metrics && ! systemctl --quiet is-failed lspan-metrics").map(drop)
}
