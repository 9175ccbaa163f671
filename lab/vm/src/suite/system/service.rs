//! The system service as packages install it, in two whole systems.

mod clients;
mod life;
pub(super) mod plugs;
mod rights;

use std::collections::BTreeSet;
use std::time::Duration;

use super::doctor::Asker;
use super::host::{self, Pair};
use super::net::TWO_LANES;
use crate::error::{Result, check};
use crate::files::PACKAGED;
use crate::guest::{Guest, Output, Spec};
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// The name on the bus, its object, and the interface with the methods.
const NAME: &str = "org.linkspan.Link1";
const PATH: &str = "/org/linkspan/Link1";
const MANAGER: &str = "org.linkspan.Link1.Manager";

/// All the time of a guest: half an hour.
const LIFE: Duration = Duration::from_secs(1800);

/// Members of a group may let hosts in, and nothing else.
const RULE: &str = r#"polkit.addRule(function(action, subject) {
    if (action.id == "org.linkspan.link.allow" && subject.isInGroup("linkspan")) return polkit.Result.YES;
});"#;

/// What one asks that nobody forbids.
const EVENTS: &str = "GetEvents tb 0 false";

/// The service on one guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service<'a> {
    guest: &'a Guest,
}

/// How a user of the guest types commands: with their groups and their home, and without a session.
fn by<'a>(guest: &'a Guest, user: &'a str) -> Asker<'a> {
    let under = match user {
        "root" => "sh -c",
        "friend" => "setpriv --reuid friend --regid friend --init-groups env HOME=/home/friend sh -c",
        _ => "setpriv --reuid stranger --regid stranger --init-groups env HOME=/home/stranger sh -c",
    };
    Asker { guest, under, first: "" }
}

impl<'a> Service<'a> {
    /// Puts its files where packages have them, and does what these do then, but for starting it.
    pub(super) fn install(guest: &'a Guest) -> Result<()> {
        let service = Service { guest };
        guest.sh(&format!("test -x {PACKAGED}/usr/sbin/linkspand && cp -a {PACKAGED}/. /"))?;
        service.reload()?;
        guest.sh("systemd-tmpfiles --create linkspan.conf && systemctl start run-linkspan-stats.mount").map(drop)
    }

    /// Has systemd and the bus look at their files again.
    fn reload(self) -> Result<()> {
        let bus = "busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig";
        self.guest.sh(&format!("systemctl daemon-reload && {bus}")).map(drop)
    }

    /// A property of its unit.
    fn show(self, property: &str) -> Result<String> {
        Ok(self.guest.sh(&format!("systemctl show --value -p {property} linkspand"))?.trim().to_owned())
    }

    /// A call as this user: `METHOD SIGNATURE ARGUMENT...`.
    fn call(self, user: &str, words: &str) -> Result<Output> {
        self.guest.run(SOON, &by(self.guest, user).line(&format!("busctl call {NAME} {PATH} {MANAGER} {words}")))
    }

    /// The same, which must be answered.
    fn answers(self, user: &str, words: &str) -> Result<String> {
        let said = self.call(user, words)?;
        check(said.code == 0, || format!("{}: {words} as {user}: {}", self.guest.name(), said.err))?;
        Ok(said.out)
    }

    /// The objects of Thunderbolt cables and of hosts.
    fn objects(self) -> Result<BTreeSet<String>> {
        let all = self.guest.sh(&format!("busctl tree --list {NAME}"))?;
        let found = all.lines().map(str::trim).filter(|path| path.contains("/cable/0_2d") || path.contains("/peer/"));
        Ok(found.map(str::to_owned).collect())
    }

    /// The UUID of the host at the cable, as sysfs has it.
    fn peer(self) -> Result<String> {
        self.guest.read("/sys/bus/thunderbolt/devices/0-1/unique_id")
    }

    /// The objects are those of the cable that is there, and no other.
    fn shows_the_cable(self) -> Result<()> {
        let wanted = BTreeSet::from([format!("{PATH}/cable/0_2d1"), self.peer_path()?]);
        let shown = self.objects()?;
        check(shown == wanted, || format!("{}: {shown:?} in place of {wanted:?}", self.guest.name()))
    }

    /// The object of the host at the cable.
    fn peer_path(self) -> Result<String> {
        Ok(format!("{PATH}/peer/{}", self.peer()?.replace('-', "_2d")))
    }

    /// A property of that object, as busctl prints it.
    fn of_peer(self, property: &str) -> Result<String> {
        let peer = self.peer_path()?;
        let said = self.guest.sh(&format!("busctl get-property {NAME} {peer} {NAME}.Peer {property}"))?;
        Ok(said.trim().to_owned())
    }

    /// Hosts that are remembered on the disk.
    fn remembered(self) -> Result<BTreeSet<String>> {
        let list = self.guest.sh("ls /var/lib/linkspan/allowed 2>/dev/null || true")?;
        Ok(list.split_whitespace().map(str::to_owned).collect())
    }

    /// Lets the group `linkspan` allow hosts, by a rule of polkit's, once that has taken it.
    fn rule(self) -> Result<()> {
        self.guest.sh(&format!("cat >/etc/polkit-1/rules.d/49-lab.rules <<'END'\n{RULE}\nEND"))?;
        let may =
            by(self.guest, "friend").line("pkcheck --action-id org.linkspan.link.allow --process $$ >/dev/null 2>&1");
        self.guest.until("polkitd's answer by the new rule", SOON, &may).map(drop)
    }

    /// Waits until another process than this is the service, and answers.
    fn another(self, what: &str, than: &str) -> Result<String> {
        let condition = format!(
            "{{ pid=$(systemctl show --value -p MainPID linkspand); [ \"$pid\" != {than} ] && [ \"$pid\" != 0 ] && \
             systemctl --quiet is-active linkspand; }}"
        );
        self.guest.until(what, SOON * 2, &condition)?;
        self.answers("root", EVENTS)?;
        self.show("MainPID")
    }

    /// Private and shared memory of the service in proportion, KiB.
    fn memory(self) -> Result<u64> {
        let pss = self
            .guest
            .sh("awk '/^Pss:/ { print $2 }' /proc/$(systemctl show --value -p MainPID linkspand)/smaps_rollup")?;
        Ok(pss.trim().parse().unwrap_or(0))
    }

    /// What it and systemd have written into the journal about it since a moment of the guest's clock, `@SECONDS`.
    fn journal(self, since: &str) -> Result<String> {
        self.guest.sh(&format!("journalctl --sync; journalctl -u linkspand --no-pager -o cat --since={since}"))
    }

    /// That moment.
    fn now(self) -> Result<String> {
        Ok(format!("@{}", self.guest.sh("date +%s")?.trim()))
    }
}

/// Two systems on a cable that both see.
pub(super) fn pair(lab: &mut Lab) -> Result<Pair> {
    let pair = host::pair(lab, &TWO_LANES, |spec: &mut Spec| spec.deadline = LIFE)?;
    for guest in &pair.guests {
        host::cabled(guest)?;
    }
    Ok(pair)
}

/// All that one service does and suffers.
pub(super) fn alone(lab: &mut Lab) -> Result<()> {
    let pair = pair(lab)?;
    let on = Service { guest: &pair.guests[0] };
    on.guest.sh("systemctl stop linkspand")?;
    life::activated(lab, on)?;
    rights::asked(lab, on)?;
    rights::ruled(lab, on)?;
    rights::numbers(lab, on)?;
    life::watched(lab, on)?;
    life::killed(lab, on)?;
    clients::many(lab, on)?;
    life::without(lab, on)?;
    life::bus(lab, on)?;
    // Forgets how often it was killed.
    on.guest.sh("systemctl reset-failed linkspand")?;
    host::end(lab, pair)
}
