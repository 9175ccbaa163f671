//! Who may do what, as the real polkitd says: with our actions, rules of our own, and the users of this system.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use linkspan_bus::zbus::blocking::fdo::DBusProxy;
use linkspan_bus::{NAME, PATH};

use super::{PEER, Running, is_root, until};

const POLKITD: &str = "/usr/lib/polkit-1/polkitd";

/// `daemon` may let this one host in and may not shut it out, nor lend queues of `lo`; nothing is said of others. `bin` may let all hosts
/// in but this one.
const RULES: &str = r#"polkit.addRule(function(action, subject) {
    if (subject.user == "bin" && action.id == "org.linkspan.link.allow")
        return action.lookup("uuid") == "d2040000-0080-7518-b3c8-e1ac3a6b0201" ? polkit.Result.NO : polkit.Result.YES;
    if (subject.user != "daemon") return;
    if (action.id == "org.linkspan.statistics.read-all") return polkit.Result.YES;
    if (action.id == "org.linkspan.link.allow" && action.lookup("host") == "strix-b" &&
        action.lookup("uuid") == "d2040000-0080-7518-b3c8-e1ac3a6b0201") return polkit.Result.YES;
    if (action.id == "org.linkspan.devmem.configure" && action.lookup("interface") == "lo") return polkit.Result.NO;
    if (action.id == "org.linkspan.link.configure" && action.lookup("streams") == "1" && action.lookup("first_hop") == "9")
        return polkit.Result.NO;
    if (action.id == "org.linkspan.link.forget") return polkit.Result.NO;
});"#;

/// Users of every Debian: daemon, bin and nobody.
const DAEMON: u32 = 1;
const BIN: u32 = 2;
const NOBODY: u32 = 65_534;

struct Polkit(Child);

impl Drop for Polkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// polkitd in a mount namespace in which our files lie where it looks for them.
fn polkit(running: &Running) -> Option<Polkit> {
    let (actions, rules) = (running.fix.root.join("actions"), running.fix.root.join("rules"));
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/org.linkspan.policy");
    std::fs::create_dir_all(&actions).unwrap();
    std::fs::copy(policy, actions.join("org.linkspan.policy")).unwrap();
    running.fix.file("rules/10-test.rules", RULES);
    let script = format!(
        "mount --bind {} /usr/share/polkit-1/actions && mount --bind {} /etc/polkit-1/rules.d && exec {POLKITD} --no-debug",
        actions.display(),
        rules.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script]);
    command.env("DBUS_SYSTEM_BUS_ADDRESS", running.bus.address()).stdout(Stdio::null());
    let polkit = Polkit(command.spawn().ok()?);
    let bus = DBusProxy::new(&running.client()).unwrap();
    let name = "org.freedesktop.PolicyKit1";
    until("polkitd is there", || bus.name_has_owner(name.try_into().unwrap()).unwrap());
    Some(polkit)
}

/// Calls a method as a user: what came, or the error.
fn call(running: &Running, uid: u32, method: &str, arguments: &[&str]) -> Result<String, String> {
    let uid = uid.to_string();
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "--clear-groups",
        "gdbus",
        "call",
        "--address",
        &running.bus.address(),
    ]);
    let method = format!("org.linkspan.Link1.Manager.{method}");
    let output = command.args(["-d", NAME, "-o", PATH, "-m", &method]).args(arguments).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn can_run() -> bool {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let can = is_root() && Path::new(POLKITD).exists() && there("setpriv") && there("unshare");
    let can = can && Command::new("gdbus").arg("help").output().is_ok();
    if !can {
        eprintln!("skipped: needs root, polkitd, setpriv, unshare and gdbus");
    }
    can
}

#[test]
fn polkit_says_who_may_who_may_not_and_who_would_be_asked() {
    if !can_run() {
        return;
    }
    let Some(running) = Running::start() else { return };
    let refused = |uid, method: &str, arguments: &[&str], why: &str| {
        let error = call(&running, uid, method, arguments).unwrap_err();
        assert!(error.contains("Error.NotAuthorized") && error.contains("LS3221") && error.contains(why), "{error}");
    };
    // Without polkit root alone may.
    refused(DAEMON, "Allow", &[PEER], "polkit does not answer");
    // What cannot be is refused before polkit is asked: a call waits there as long as somebody wants, and its message is kept.
    let impossible = |method: &str, arguments: &[&str], why: &str| {
        let error = call(&running, DAEMON, method, arguments).unwrap_err();
        assert!(error.contains("Error.InvalidArgument") && error.contains(why), "{error}");
    };
    let (dashes, long) = (format!("{PEER}{}", "-".repeat(100_000)), "x".repeat(100_000));
    for method in ["Allow", "Forget"] {
        impossible(method, &[&dashes], "LS3211");
        impossible(method, &[&long], "LS3211");
    }
    impossible("LendQueues", &[&long, "1", "1", "[]"], "LS3223");
    impossible("EndLending", &[&long], "LS3223");
    let polkit = polkit(&running).unwrap();
    assert_eq!(call(&running, DAEMON, "Allow", &[PEER]).unwrap().trim(), "(@as [],)");
    refused(DAEMON, "Forget", &[PEER], "polkit refuses it");
    let asked = "a password is needed";
    // Rules, and who is asked, know what it is about.
    refused(DAEMON, "Allow", &["d2040000-0080-7518-b3c8-e1ac3a6b0202"], asked);
    // However the UUID is spelt.
    let other = PEER.to_uppercase().replace('-', "");
    assert_eq!(call(&running, DAEMON, "Allow", &[&other]).unwrap().trim(), "(@as [],)");
    refused(BIN, "Allow", &[PEER], "polkit refuses it");
    refused(BIN, "Allow", &[&other], "polkit refuses it");
    refused(DAEMON, "LendQueues", &["lo", "1", "1", "[]"], "polkit refuses it");
    refused(DAEMON, "EndLending", &["lo"], "polkit refuses it");
    refused(DAEMON, "SetUp", &["1", "9"], "polkit refuses it");
    refused(DAEMON, "SetUp", &["2", "9"], asked);
    refused(NOBODY, "Allow", &[PEER], asked);
    refused(NOBODY, "Forget", &[PEER], asked);
    refused(NOBODY, "SetUp", &["1", "9"], asked);
    refused(NOBODY, "LendQueues", &["lo", "1", "1", "[]"], asked);
    refused(NOBODY, "EndLending", &["lo"], asked);
    refused(NOBODY, "GetStatistics", &["true"], asked);
    refused(NOBODY, "Watch", &["1000", "true"], asked);
    refused(NOBODY, "GetEvents", &["0", "true"], asked);
    refused(DAEMON, "LendQueues", &["eth0", "1", "1", "[]"], asked);
    // Its own numbers and the cables' events are everybody's.
    call(&running, NOBODY, "GetStatistics", &["false"]).unwrap();
    assert!(call(&running, NOBODY, "GetEvents", &["0", "false"]).unwrap().contains("strix-b"));
    call(&running, DAEMON, "GetStatistics", &["true"]).unwrap();
    assert!(running.fix.root.join("state/allowed").join(PEER).exists(), "what was refused has changed nothing");
    call(&running, 0, "Forget", &[PEER]).unwrap();
    assert!(!running.fix.root.join("state/allowed").join(PEER).exists());
    drop(polkit);
    // A user cannot take the name either.
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "1",
        "--regid",
        "1",
        "--clear-groups",
        "gdbus",
        "call",
        "--address",
        &running.bus.address(),
    ]);
    command.args(["-d", "org.freedesktop.DBus", "-o", "/", "-m", "org.freedesktop.DBus.RequestName", NAME, "4"]);
    assert!(String::from_utf8_lossy(&command.output().unwrap().stderr).contains("AccessDenied"));
}
