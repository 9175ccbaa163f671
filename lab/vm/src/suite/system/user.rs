//! The service of a user and their pairing, in two whole systems, as docs/pairing.md prints it.

use super::doctor::{Asker, carries, ends};
use super::host::{self, Pair};
use super::net::link_local;
use super::service::pair;
use crate::error::{Error, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// The user `friend` with a session bus, as after a login.
const FRIEND: &str = "setpriv --reuid friend --regid friend --init-groups env -C /home/friend HOME=/home/friend USER=friend \
    XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus sh -c";

/// Another user of the same host.
const STRANGER: &str = "setpriv --reuid stranger --regid stranger --init-groups env HOME=/home/stranger sh -c";

/// The name on the session bus, and its object.
const SERVICE: &str = "org.linkspan.User1 /org/linkspan/User1";

/// Bytes of a file that is sent: enough that where they went stands out from what else goes over an interface.
const FILE: u64 = 8 << 20;

fn friend(guest: &Guest) -> Asker<'_> {
    Asker { guest, under: FRIEND, first: "" }
}

/// Runs a command of `friend` that must succeed.
fn ok(guest: &Guest, command: &str) -> Result<String> {
    guest.sh_for(SOON, &friend(guest).line(command))
}

/// A user manager without a login, and the session bus that starts the service when it is called.
fn session(lab: &mut Lab, guest: &Guest) -> Result<()> {
    let uid = guest.sh("id -u friend")?;
    check(uid.trim() == "1000", || format!("friend is user {uid}"))?;
    guest.sh("loginctl enable-linger friend")?;
    guest.until("the session bus", SOON, "test -S /run/user/1000/bus")?;
    let unit = |property: &str| ok(guest, &format!("systemctl --user show --value -p {property} linkspan-user"));
    let before = unit("ActiveState")?;
    check(before.trim() == "inactive", || format!("before any call the user's unit is {before}"))?;
    ok(guest, &format!("busctl --user call {SERVICE} org.linkspan.User1.Manager GetHistory u 0"))?;
    for (property, value) in
        [("Type", "notify"), ("ActiveState", "active"), ("SubState", "running"), ("NRestarts", "0")]
    {
        let shown = unit(property)?;
        check(shown.trim() == value, || format!("the user's unit: {property} is {shown}, not {value}"))?;
    }
    lab.say(&format!(
        "{}: the session bus of a user without a login starts linkspan-user.service, Type=notify",
        guest.name()
    ));
    Ok(())
}

/// The guide that they follow.
const GUIDE: &str = include_str!("../../../../../docs/pairing.md");

/// By a join line, typed as the guide says and `lspan pair` prints it.
fn paired(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    let typed: Vec<&str> = GUIDE.lines().filter_map(|line| line.strip_prefix("$ ")).take(2).collect();
    let [first, second] = typed[..] else { return Err(Error::Check("docs/pairing.md has no commands".to_owned())) };
    let mut offer = a.spawn(&friend(a).line(first))?;
    let line = offer.expect("lspan pair LSPA", SOON)?;
    let join = line.rsplit(' ').next().unwrap_or_default();
    let command: Vec<&str> = second.split(' ').map(|word| if word.starts_with("LSPA") { join } else { word }).collect();
    let joined = ok(b, &command.join(" "))?;
    let end = offer.wait(SOON)?;
    check(end.code == 0 && joined.contains("paired with a"), || format!("{joined}; on a: {}{}", end.out, end.err))?;
    let fingerprint = |text: &str| -> Option<String> {
        Some(text.lines().find(|line| line.starts_with("fingerprint of the pairing: "))?.trim().to_owned())
    };
    let (here, there) = (fingerprint(&end.out), fingerprint(&joined));
    check(here.is_some() && here == there, || format!("fingerprints {here:?} and {there:?}"))?;
    lab.say(&format!("two users who knew nothing of each other paired by the line; {}", here.unwrap_or_default()));
    Ok(())
}

fn moved(guest: &Guest) -> Result<u64> {
    Ok(guest.read("/sys/class/net/thunderbolt0/statistics/tx_bytes")?.parse().unwrap_or(0))
}

/// Sends a new file to the paired name: the bytes are there, and so many went over the cable.
fn sent(a: &Guest, b: &Guest, name: &str) -> Result<u64> {
    let before = moved(a)?;
    ok(a, &format!("head -c {FILE} /dev/urandom >{name} && lspan send {name} b:in/"))?;
    let sum = |guest: &Guest, at: &str| -> Result<String> { ok(guest, &format!("md5sum <{at}{name}")) };
    let (here, there) = (sum(a, "")?, sum(b, "in/")?);
    check(here == there, || format!("{name}: {here} was sent, {there} is there"))?;
    Ok(moved(a)? - before)
}

/// A share of the service: served over a restart and a kill, reached by the paired name over the cable.
fn shares(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    let call = |method: &str| ok(b, &format!("busctl --user call {SERVICE} org.linkspan.User1.Shares {method}"));
    ok(b, "mkdir in")?;
    call("Add ssb in /home/friend/in true")?;
    call("Serve a{sv} 0")?;
    sent(a, b, "first")?;
    lab.say("lspan send to the paired name: 8 MiB, compared");
    for guest in [a, b] {
        guest.sh("nmcli connection down lan")?;
    }
    let serving = format!("busctl --user get-property {SERVICE} org.linkspan.User1.Shares Serving");
    let serves = |what: &str| -> Result<()> {
        b.until(what, SOON, &format!("{{ {} 2>/dev/null | grep -q true; }}", friend(b).line(&serving))).map(drop)
    };
    ok(b, "systemctl --user restart linkspan-user")?;
    serves("shares after a restart")?;
    let over = sent(a, b, "second")?;
    check(over > FILE, || format!("{over} bytes left by thunderbolt0, of {FILE}"))?;
    lab.say("without the Ethernet, after a restart of the unit: served again, every byte over the cable");
    ok(b, "kill -9 $(systemctl --user show --value -p MainPID linkspan-user)")?;
    serves("shares after kill -9")?;
    sent(a, b, "third")?;
    lab.say("and after kill -9");
    Ok(())
}

/// What the older daemon's users asked of it over their bus, asked of the service of one user about the other one's host.
fn bus(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    let call = |words: &str| ok(a, &format!("busctl --user call {SERVICE} org.linkspan.User1.{words}"));
    let begun = |words: &str| -> Result<String> {
        Ok(call(words)?.trim().trim_start_matches("o ").trim_matches('"').to_owned())
    };
    // The newest record is that of the task that ended last.
    let ended = |words: &str, how: &str| -> Result<String> {
        let task = begun(words)?;
        let newest = format!("busctl --user call {SERVICE} org.linkspan.User1.Manager GetHistory u 1");
        let tasks = "busctl --user tree --list org.linkspan.User1";
        a.until(&format!("the end of {words}"), SOON, &friend(a).line(&format!("! {tasks} | grep -qx {task}")))?;
        let record = ok(a, &newest)?;
        check(record.contains(&format!("\"{how}\"")), || format!("{words}: not {how}: {record}"))?;
        Ok(record)
    };
    ok(a, "echo by the bus >note")?;
    ended("Files Send assa{sv} 1 /home/friend/note b:in/ 0", "done")?;
    check(call("Files List s b:in/")?.contains("\"note\""), || "what was sent is not listed".to_owned())?;
    ended("Files Get assa{sv} 1 b:in/note /home/friend/back 0", "done")?;
    check(ok(a, "cat back/note back 2>/dev/null || true")?.contains("by the bus"), || {
        "what was fetched is not here".to_owned()
    })?;
    call("Files Remove sb b:in/note false")?;
    check(ok(b, "ls in")?.lines().all(|name| name != "note"), || "what was removed is there".to_owned())?;
    ok(a, "mkdir tree && echo first >tree/one")?;
    let mirror = begun("Files Mirror ssa{sv} /home/friend/tree b:in/tree 2 init b true watch b true")?;
    b.until("the mirror of a tree", SOON, "grep -q first /home/friend/in/tree/one 2>/dev/null")?;
    ok(a, "echo second >tree/two")?;
    b.until("a change in its mirror", SOON, "grep -q second /home/friend/in/tree/two 2>/dev/null")?;
    let of = |task: &str, method: &str| {
        ok(a, &format!("busctl --user call org.linkspan.User1 {task} org.linkspan.User1.Task {method}"))
    };
    let progress = of(&mirror, "GetProgress")?;
    check(progress.contains("\"files_done\""), || progress.clone())?;
    of(&mirror, "Cancel")?;
    lab.say("by the user's bus: sent, listed, fetched, removed; a mirror that follows, is asked how far it is, and cancelled");
    let record = ended("Tests Start ssa{sv} lat b 1 duration_ms t 200", "done")?;
    check(record.contains("\"results\""), || record.clone())?;
    let mut told = a.spawn(&friend(a).line("exec busctl --user monitor org.linkspan.User1"))?;
    told.expect("Monitoring bus message stream", SOON)?;
    let test = begun("Tests Start ssa{sv} bw b 1 duration_ms t 600000")?;
    let numbers = "busctl call org.linkspan.Link1 /org/linkspan/Link1 org.linkspan.Link1.Manager GetStatistics b false";
    let counted = format!("{{ {} 2>/dev/null | grep -q '\"linkspand\"'; }}", friend(a).line(numbers));
    a.until("the statistics of a test of the other host", SOON, &counted)?;
    of(&test, "Cancel")?;
    told.expect("Member=TaskEnded", SOON)?;
    told.kill();
    lab.say("and tests of the other host, with results in the history, their statistics on the system bus while they run, and their end told");
    Ok(())
}

/// What the system service tells of a cable that goes and comes.
fn signals(lab: &mut Lab, pair: &Pair) -> Result<()> {
    let [a, b] = &pair.guests;
    let version =
        a.sh("busctl get-property org.linkspan.Link1 /org/linkspan/Link1 org.linkspan.Link1.Manager Version")?;
    check(version.contains(env!("CARGO_PKG_VERSION")), || version.clone())?;
    let mut told = a.spawn("exec busctl monitor org.linkspan.Link1")?;
    told.expect("Monitoring bus message stream", SOON)?;
    host::unplug(pair)?;
    told.expect("Member=InterfacesRemoved", SOON)?;
    pair.cable.tell("replug ab")?;
    told.expect("Member=InterfacesAdded", SOON)?;
    told.kill();
    lab.say("by the system bus: the version; a cable that goes and comes is told");
    [a, b].into_iter().try_for_each(host::cabled)
}

/// `lspan perf serve` as it is typed, then by its socket, which is off until somebody turns it on.
fn tests(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    let mut server = b.spawn(&friend(b).line("exec lspan perf serve"))?;
    let said = server.expect("for paired peers", SOON)?;
    check(said.contains("for paired peers (a)"), || said.clone())?;
    let path = carries(friend(a), "b", &[])?;
    ends(b, &server)?;
    lab.say(&format!("lspan perf serve, and lspan perf bw by the name: {path}"));
    let state = |what: &str| -> Result<String> {
        Ok(b.run(SOON, &friend(b).line(&format!("systemctl --user {what}")))?.out.trim().to_owned())
    };
    let before = [state("is-enabled lspan-perf.socket")?, state("is-active lspan-perf.socket")?];
    check(before == ["disabled", "inactive"], || format!("lspan-perf.socket before anybody asked for it: {before:?}"))?;
    ok(b, "systemctl --user enable --now lspan-perf.socket")?;
    check(state("is-active lspan-perf.service")? == "inactive", || "it answers before anybody asks".to_owned())?;
    // An emulated processor may take longer to start it than a client waits for an answer.
    let measured = || carries(friend(a), "b", &[]).or_else(|_| carries(friend(a), "b", &[]));
    let path = measured()?;
    check(state("is-active lspan-perf.service")? == "active", || "measured, and no service runs".to_owned())?;
    let stranger = Asker { guest: a, under: STRANGER, first: "" };
    let peer = format!("{}%thunderbolt0", link_local(b)?);
    let refused = a.run(SOON, &stranger.line(&format!("lspan perf bw {peer} --size 64K --iters 5")))?;
    // 5: not permitted.
    check(refused.code == 5 && refused.err.contains("LS0740"), || format!("a user who is not paired: {refused:?}"))?;
    ok(b, "systemctl --user stop lspan-perf.service")?;
    measured()?;
    let failed = ok(b, "systemctl --user list-units --failed --plain --no-legend --no-pager")?;
    check(failed.trim().is_empty(), || format!("units of the user that failed: {failed}"))?;
    lab.say(&format!("lspan-perf.socket, off at first: starts lspan perf serve for a paired peer, again after a stop, refuses others; {path}"));
    Ok(())
}

pub(super) fn user(lab: &mut Lab) -> Result<()> {
    let pair = pair(lab)?;
    let [a, b] = &pair.guests;
    for guest in [a, b] {
        link_local(guest)?;
        session(lab, guest)?;
    }
    paired(lab, a, b)?;
    shares(lab, a, b)?;
    tests(lab, a, b)?;
    bus(lab, a, b)?;
    signals(lab, &pair)?;
    host::end(lab, pair)
}
