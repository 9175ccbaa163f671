//! Many clients of one user, and what makes no sense, in great numbers.

use super::{EVENTS, Service, by};
use crate::error::{Result, check};
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// How much more memory it may have than before, KiB: as many clients and as much junk cost it less.
const MORE: u64 = 12 << 10;

/// Lines that may be in the journal for a minute of it: what the service writes at most of the machine, and the line that says how many were left out.
const LINES: usize = 61;

/// 200 connections of one user, of which 64 may watch; then calls of methods that are not there, at objects that are not there, with other types,
/// lengths and numbers than can be, each of which must be refused; then calls that wait for no answer. Debian's firewalld brings the
/// module that it uses.
const SCRIPT: &str = r#"
import dbus, dbus.lowlevel, sys
NAME, PATH = "org.linkspan.Link1", "/org/linkspan/Link1"
MANAGER = NAME + ".Manager"
buses = [dbus.SystemBus(private=True) for _ in range(200)]
watching = 0
for bus in buses:
    try:
        bus.call_blocking(NAME, PATH, MANAGER, "Watch", "ub", (60000, False))
        watching += 1
    except dbus.DBusException as error:
        if not error.get_dbus_name().endswith(".LimitReached"):
            raise
print("watching", watching, flush=True)
long = "x" * 100000
junk = [
    (PATH, MANAGER, "Nothing", "", ()),
    (PATH, MANAGER, "Allow", "", ()),
    (PATH, MANAGER, "Allow", "u", (7,)),
    (PATH, MANAGER, "Allow", "s", (long,)),
    (PATH, MANAGER, "Allow", "s", ("../../etc/passwd",)),
    (PATH, MANAGER, "Forget", "as", ([long] * 10,)),
    (PATH, MANAGER, "SetUp", "qq", (0, 8)),
    (PATH, MANAGER, "SetUp", "qq", (65535, 65535)),
    (PATH, MANAGER, "LendQueues", "suuau", (long, 4294967295, 0, [])),
    (PATH, MANAGER, "LendQueues", "suuau", ("lo", 1, 1, list(range(10000)))),
    (PATH, MANAGER, "EndLending", "s", ("\n" * 1000,)),
    (PATH, MANAGER, "Watch", "ub", (0, False)),
    (PATH, MANAGER, "GetEvents", "tb", (18446744073709551615, True)),
    (PATH + "/cable/9_2d9", NAME + ".Cable", "Nothing", "", ()),
    ("/" + "a" * 200, "a.b", "c", "", ()),
    (PATH, "org.freedesktop.DBus.Properties", "Set", "ssv", (MANAGER, "Version", dbus.String("0"))),
    (PATH, "org.freedesktop.DBus.Properties", "Get", "ss", (long, long)),
]
refused = 0
for turn in range(10):
    for n, (path, interface, method, signature, arguments) in enumerate(junk):
        bus = buses[(turn * len(junk) + n) % len(buses)]
        try:
            bus.call_blocking(NAME, path, interface, method, signature, arguments)
            sys.exit("taken: %s %s" % (method, str(arguments)[:80]))
        except dbus.DBusException as error:
            if error.get_dbus_name().endswith((".NoReply", ".Disconnected")):
                sys.exit("%s: %s" % (method, error))
            refused += 1
print("refused", refused, flush=True)
short = [call for call in junk if len(str(call)) < 1000]
for n in range(1000):
    path, interface, method, signature, arguments = short[n % len(short)]
    call = dbus.lowlevel.MethodCallMessage(NAME, path, interface, method)
    call.append(*arguments, signature=signature)
    call.set_no_reply(True)
    buses[n % len(buses)].send_message(call)
for bus in buses:
    bus.flush()
print("flooded 1000", flush=True)
busy = 0
for bus in buses[:20]:
    while True:
        try:
            bus.call_blocking(NAME, PATH, MANAGER, "GetEvents", "tb", (0, False), timeout=300)
            break
        except dbus.DBusException as error:
            if not error.get_dbus_name().endswith(".LimitReached"):
                raise
            busy += 1
print("still answered, refused for the others", busy, flush=True)
"#;

pub(super) fn many(lab: &mut Lab, on: Service<'_>) -> Result<()> {
    on.answers("root", EVENTS)?;
    let (pid, since, before) = (on.show("MainPID")?, on.now()?, on.memory()?);
    on.guest.sh(&format!("cat >/run/clients.py <<'END'\n{SCRIPT}\nEND\nchmod 644 /run/clients.py"))?;
    let said = on.guest.run(SOON * 3, &by(on.guest, "stranger").line("python3 /run/clients.py"))?;
    check(said.code == 0 && said.out.contains("watching 64\n") && said.out.contains("still answered"), || {
        format!("clients: {}{}", said.out, said.err)
    })?;
    on.answers("root", EVENTS)?;
    let (now, grown) = (on.show("MainPID")?, on.memory()?.saturating_sub(before));
    check(now == pid, || format!("the process was {pid} and is {now}: {}", on.journal(&since).unwrap_or_default()))?;
    check(grown <= MORE, || format!("{grown} KiB more memory than the {before} before"))?;
    let (lines, minutes) = (on.journal(&since)?.lines().count(), minutes_since(on, &since)?);
    check(lines <= LINES * minutes, || format!("{lines} lines in the journal within {minutes} minutes"))?;
    check(on.remembered()?.is_empty(), || "junk has let a host in".to_owned())?;
    on.shows_the_cable()?;
    let refused = said.out.lines().find(|line| line.starts_with("refused")).unwrap_or_default().to_owned();
    lab.say(&format!(
        "200 clients of a user, of which 64 may watch, {refused} calls of junk, 1000 that wait for no answer: it lives, {grown} KiB more than \
         {before} KiB, {lines} lines in the journal"
    ));
    Ok(())
}

/// Minutes that have begun since then.
fn minutes_since(on: Service<'_>, since: &str) -> Result<usize> {
    let seconds = |text: &str| text.trim_start_matches('@').parse::<usize>().unwrap_or(0);
    Ok(seconds(&on.now()?).saturating_sub(seconds(since)) / 60 + 2)
}
