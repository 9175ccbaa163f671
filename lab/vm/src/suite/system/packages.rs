//! Debian's packages in two whole systems on a cable: installed by apt, used, changed under a job, and taken away.

use super::doctor::{Asker, serves, way};
use super::driver;
use super::host::{self, Pair};
use super::net::{TWO_LANES, link_local, two_lanes};
use crate::error::{Result, check};
use crate::files::DEBS;
use crate::guest::{Guest, Job, Output, Spec};
use crate::lab::Lab;
use crate::setup::system::HEADERS;
use crate::suite::tb::SOON;

/// It compiles on an emulated processor.
const BUILD: u32 = 40;

/// What hosts with a cable between them install by name; the rest comes by itself.
const NAMES: &str = "linkspan-thunderbolt liblinkspan-dev python3-linkspan linkspan-tray";

/// All that is there then.
const ALL: &str = "linkspan linkspan-dkms linkspan-nccl linkspan-thunderbolt linkspan-tray liblinkspan0 liblinkspan-dev python3-linkspan";

/// apt without questions; recommended packages come too, as by default.
const APT: &str = "DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0";

/// The packages of a folder as a repository that apt knows.
const REPOSITORY: &str = "add() { (cd $1 && dpkg-scanpackages -m . >Packages 2>/dev/null) && \
                          echo \"deb [trusted=yes] file:$1 ./\" >/etc/apt/sources.list.d/$(basename $1).list && apt-get -qq update; }";

/// The next version of each package: another number, and a module that is another one. Packed without compression, since the processor is
/// emulated.
const NEXT: &str = "set -e; mkdir -p /srv/next; cd /srv/debs\n\
    version=$(dpkg-deb -f linkspan_*.deb Version); version=${version%-*}\n\
    for deb in *.deb; do\n\
        rm -rf /tmp/next; dpkg-deb -R $deb /tmp/next; sed -i \"s/$version/$version.1/g\" /tmp/next/DEBIAN/*\n\
        old=/tmp/next/usr/src/linkspan-$version\n\
        if [ -d $old ]; then\n\
            mv $old $old.1; sed -i \"s/$version/$version.1/\" $old.1/dkms.conf\n\
            sed -i 's/MODULE_VERSION(\".*\")/MODULE_VERSION(\"next\")/' $old.1/main.c; grep -q '\"next\"' $old.1/main.c\n\
        fi\n\
        dpkg-deb -Znone -b --root-owner-group /tmp/next /srv/next/ >/dev/null\n\
    done; rm -rf /tmp/next; echo $version";

/// All that packages could leave behind: files, users, units and modules. What others write while a system runs is left out.
const STATE: &str = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /srv -o -path \"$HOME\" \
                     -o -path /var/cache -o -path /var/log -o -path /var/tmp -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path '/var/lib/dkms/mok.*' \
                     -o -path '/var/lib/NetworkManager/*' -o -path '/var/lib/systemd/timers/*' -o -path '/etc/apt/*' -o -name __pycache__ \\) -prune -o -print | \
                     grep -vxE '/etc/(ld.so.cache|group-|gshadow-|passwd-|shadow-|subuid-|subgid-)' | sort; \
                     find /run/linkspan 2>/dev/null; cat /etc/passwd /etc/group; \
                     systemctl list-unit-files --no-legend --no-pager; lsmod | grep ^linkspan || true";

/// Statistics have a file system of their own, which belongs to the group.
const STATS: &str = "is=$(echo $(stat -c '%a %U:%G' /run/linkspan/stats) $(findmnt -no SIZE /run/linkspan/stats))\n\
                     [ \"$is\" = '3777 root:linkspan 64M' ] || { echo \"$is\"; ls -lA /run/linkspan/stats; systemctl status run-linkspan-stats.mount; exit 1; } >&2";

/// Nothing of ours runs.
const REMOVED: &str =
    "! systemctl is-active linkspand lspan-metrics && ! findmnt /run/linkspan/stats && ! command -v lspan";

/// The process of a service.
fn process(guest: &Guest, unit: &str) -> Result<String> {
    guest.sh(&format!("systemctl show --value -p MainPID {unit}"))
}

pub(super) fn packages(lab: &mut Lab) -> Result<()> {
    let files = lab.packages()?;
    let change = |spec: &mut Spec| {
        spec.given(&files);
        (spec.cpus, spec.deadline) = (2, SOON * 40);
    };
    let (cable, specs) = host::planned(lab, &TWO_LANES, change)?;
    let guests = lab.boot(specs.each_ref())?;
    for (guest, address) in guests.iter().zip(host::LAN) {
        host::settled(guest)?;
        host::lan(guest, address)?;
        // The group is what the lab's systems have for other tests.
        guest.sh(&format!("groupdel linkspan && ! command -v lspan && {REPOSITORY} && add {DEBS}"))?;
    }
    let [a, b] = guests;
    let before = a.sh(STATE)?;
    let a = match lab.kernel.version() < driver::SINCE {
        true => without_driver(lab, a, &b)?,
        false => with_driver(lab, &specs[0], a, &b)?,
    };
    gone(lab, &a, &before)?;
    let pair = Pair { cable, guests: [a, b] };
    host::apart(&pair)?;
    lab.finish(pair.guests)?;
    pair.cable.finish()
}

/// A kernel that our driver is not for: one line says so, nothing is built, and TCP goes over the cable.
fn without_driver(lab: &mut Lab, a: Guest, b: &Guest) -> Result<Guest> {
    let said = installed(lab, &a, b)?;
    for guest in [&a, b] {
        link_local(guest)?;
        two_lanes(guest)?;
    }
    let mut word = "";
    for (guest, said) in [&a, b].into_iter().zip(&said) {
        let own: Vec<&str> = said.out.lines().filter(|line| line.starts_with("linkspan-dkms: ")).collect();
        check(own.len() == 1 && own[0].contains("Linux 6.8 or newer"), || failed("one word of the driver", said))?;
        word = own[0];
        guest.sh("dkms status linkspan | grep '^linkspan/[^,]*: added$' && ! find /lib/modules/ /var/lib/dkms/ -name 'linkspan.ko*' | grep . && \
                  test ! -e /sys/module/linkspan")?;
        Asker::root(guest).silent("")?;
        let status = guest.sh("lspan status")?;
        let line = |parts: [&str; 2]| status.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        check(line(["no Thunderbolt tier 1 (ring): ", "Linux 6.8"]) && line(["tcp over thunderbolt0", "yes"]), || {
            format!("{}: lspan status: {status}", guest.name())
        })?;
    }
    lab.say(&format!("of {}: {word}; lspan doctor is silent, lspan status says what there is", lab.kernel.release));
    main_job(lab, &a)?;
    for peer in ["cable", host::LAN[0]] {
        let path = way(Asker::root(&a), Asker::root(b), peer, &["tcp "], true)?;
        lab.say(&format!("lspan perf bw {peer}: {path}"));
    }
    let said = a.run(SOON * BUILD, &format!("{APT} remove {ALL}"))?;
    check(said.code == 0, || failed("removing", &said))?;
    consistent(&a)?;
    a.sh(REMOVED)?;
    a.sh_for(SOON * BUILD, &format!("{APT} purge {ALL}"))?;
    consistent(&a)?;
    Ok(a)
}

/// One that it is for: built for two kernels, and used by a job while the packages are changed and taken away.
fn with_driver(lab: &mut Lab, spec: &Spec, a: Guest, b: &Guest) -> Result<Guest> {
    installed(lab, &a, b)?;
    for guest in [&a, b] {
        guest.sh("test -d /sys/module/linkspan && modinfo -n linkspan | grep updates/dkms")?;
    }
    lab.say("linkspan-thunderbolt brought the driver too: built by DKMS, loaded");
    ring(&a, b)?;
    lab.say("hosts let in as lspan doctor prints it; lspan perf bw over rings of linkspan.ko");
    main_job(lab, &a)?;
    let other = other_kernel(lab, &a)?;
    let version = a.sh_for(SOON * BUILD, NEXT)?.trim().to_owned();

    // The link, the service and who is let in come again by themselves.
    a.ends_by("sudo reboot")?;
    let [a] = lab.boot([spec])?;
    host::settled(&a)?;
    a.sh(STATS)?;
    ring(&a, b)?;
    lab.say(
        "booted again: the module, the service, the file system of statistics and the host that was let in are there",
    );

    let server = serves(Asker::root(b))?;
    // At a pace that leaves the emulated processors to the packages.
    let job = a.spawn("exec lspan perf jitter cable --path thunderbolt --size 64K --interval 20ms --duration 7200s")?;
    let mut work = Work { on: b, job };
    b.until("the job to move bytes", SOON, "lspan stats | grep -q thunderbolt")?;
    work.goes_on("at its start")?;
    a.sh(&format!("{REPOSITORY} && add /srv/next"))?;
    refused(lab, &a, &mut work)?;
    changed(lab, &a, &mut work, &version)?;
    removed(lab, &a, &mut work)?;
    work.job.kill();
    a.until("the job to end", SOON, "! pidof lspan >/dev/null")?;
    drop(server);
    b.sh("kill -INT $(pidof lspan); true")?;
    a.sh_for(SOON * BUILD, &format!("rmmod linkspan && {APT} purge {ALL}"))?;
    // What depmod has written for a kernel without an image stays with whoever takes the headers away.
    a.sh(&format!("! find /usr/lib/modules/{other} -name '*linkspan*' | grep . && rm -rf /usr/lib/modules/{other}"))?;
    Ok(a)
}

/// By name, with what is recommended: a server gets neither a compiler nor a driver, a host with a cable both. What apt said on each.
fn installed(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<Vec<Output>> {
    let plan = a.sh("apt-get -s install linkspan | sed -n 's/^Inst \\([^ ]*\\) .*/\\1/p' | sort | paste -sd ' '")?;
    check(plan.trim() == "linkspan linkspan-nccl", || format!("`apt install linkspan` installs {plan}"))?;
    let both = [a, b].map(|guest| guest.spawn(&format!("{APT} install {NAMES}")));
    let mut all = Vec::new();
    for job in both {
        let said = job?.wait(SOON * BUILD)?;
        check(said.code == 0 && !said.out.contains("could not be loaded"), || failed("installing", &said))?;
        all.push(said);
    }
    for guest in [a, b] {
        consistent(guest)?;
        guest.sh("systemctl is-enabled linkspand && systemctl is-active linkspand && getent group linkspan")?;
        guest.sh(STATS)?;
    }
    lab.say(
        "`apt install linkspan` would bring the plugin alone; linkspan-thunderbolt is installed, the service running",
    );
    Ok(all)
}

/// What autopkgtest runs in a system with a service manager.
fn main_job(lab: &mut Lab, guest: &Guest) -> Result<()> {
    for test in ["main-job", "service"] {
        let said = guest.run(SOON * BUILD, &format!("sh {DEBS}/tests/{test}"))?;
        check(said.code == 0, || failed(test, &said))?;
        let seen: Vec<&str> = said.out.lines().filter_map(|line| line.strip_prefix("ok   ")).collect();
        check(!seen.is_empty(), || failed(test, &said))?;
        lab.say(&format!("debian/tests/{test}: {}", seen.join("; ")));
    }
    Ok(())
}

/// Headers of another kernel come after the package and go before it: the hooks of dpkg build for it, or leave it out. Its release.
fn other_kernel(lab: &mut Lab, guest: &Guest) -> Result<String> {
    let said = guest.run(SOON * BUILD, &format!("dpkg -i {HEADERS}/*.deb"))?;
    check(said.code == 0, || failed("the headers of another kernel", &said))?;
    consistent(guest)?;
    let list = "for dir in /lib/modules/*/; do d=$(basename $dir); [ $d = $(uname -r) ] || echo $d; done";
    let other = guest.sh(list)?.trim().to_owned();
    let built = guest.sh(&format!("ls /lib/modules/{other}/updates/dkms/ 2>/dev/null; true"))?.contains("linkspan.ko");
    if other.starts_with("6.1.") {
        check(!built, || failed(&format!("a module for {other}"), &said))?;
        lab.say(&format!("headers of {other}, which came after the package: installed, the module is left out"));
    } else {
        check(built, || failed(&format!("no module for {other}"), &said))?;
        lab.say(&format!("headers of {other}, which came after the package: dpkg's hooks have DKMS build for it"));
    }
    let names = format!("for deb in {HEADERS}/*.deb; do dpkg-deb -f $deb Package; done");
    guest.sh_for(SOON * BUILD, &format!("dpkg -P $({names})"))?;
    Ok(other)
}

/// A full disk, and a /usr that may not be written to: refused with their reason, and the job goes on. [`changed`] has the same command do it.
fn refused(lab: &mut Lab, a: &Guest, work: &mut Work<'_>) -> Result<()> {
    const FILL: &str = "set -- $(stat -f -c '%f %S' /); fallocate -l $(($1 * $2 - 65536)) /fill; dd if=/dev/zero of=/fill2 bs=4k 2>/dev/null; sync";
    let cases = [
        (FILL, "rm -f /fill /fill2", "No space left on device"),
        ("mount --bind /usr /usr && mount -o remount,bind,ro /usr", "umount -l /usr", "Read-only file system"),
    ];
    for (spoil, mend, word) in cases {
        a.sh_for(SOON, spoil)?;
        let said = a.run(SOON * BUILD, &format!("{APT} install {ALL}"))?;
        let all = format!("{}{}", said.out, said.err);
        a.sh(mend)?;
        check(said.code != 0 && all.contains(word), || failed(&format!("no word of {word}"), &said))?;
        work.goes_on(word)?;
        lab.say(&format!("the next version refused: `{word}`; the job goes on"));
    }
    Ok(())
}

/// The next version over it and back, while bytes move through the module.
fn changed(lab: &mut Lab, a: &Guest, work: &mut Work<'_>, version: &str) -> Result<()> {
    const IN_USE: &str = "cat /sys/module/linkspan/srcversion /sys/module/linkspan/version";
    // It is off by default.
    a.sh("systemctl start lspan-metrics")?;
    let (module, service, metrics) = (a.sh(IN_USE)?, process(a, "linkspand")?, process(a, "lspan-metrics")?);
    let upgrade = a.run(SOON * BUILD, &format!("{APT} install {ALL}"))?;
    check(upgrade.code == 0, || failed("the next version", &upgrade))?;
    let word = upgrade.out.lines().find(|line| line.contains("another version and stays in use")).unwrap_or_default();
    check(!word.is_empty(), || failed("no word of the module that is loaded", &upgrade))?;
    work.goes_on("upgraded")?;
    consistent(a)?;
    check(a.sh(IN_USE)? == module, || "the module that is loaded is another one".to_owned())?;
    for (unit, before) in [("linkspand", service), ("lspan-metrics", metrics)] {
        let now = process(a, unit)?;
        check(now != before && now.trim() != "0", || format!("{unit} is the one of the version before: {before}"))?;
    }
    a.sh("modinfo -F version linkspan | grep -x next")?;
    lab.say(&format!(
        "the next version with a job over the module: the services are the new ones, the job goes on; {word}"
    ));

    let old: String =
        ALL.split(' ').map(|name| format!(" {name}=$(dpkg-deb -f {DEBS}/{name}_*.deb Version)")).collect();
    let back =
        format!("rm /etc/apt/sources.list.d/next.list && apt-get -qq update && {APT} --allow-downgrades install{old}");
    let downgrade = a.run(SOON * BUILD, &back)?;
    check(downgrade.code == 0, || failed("going back", &downgrade))?;
    work.goes_on("downgraded")?;
    consistent(a)?;
    a.sh(&format!("systemctl is-active linkspand && dkms status linkspan | grep {version} && ! dkms status linkspan | grep {version}.1"))?;
    check(a.sh(IN_USE)? == module, || "the module that is loaded is another one".to_owned())?;
    lab.say("back to the version before: the same");
    Ok(())
}

/// Removed while the module is in use: it stays, which is said, and the job goes on.
fn removed(lab: &mut Lab, a: &Guest, work: &mut Work<'_>) -> Result<()> {
    let said = a.run(SOON * BUILD, &format!("{APT} remove {ALL}"))?;
    check(said.code == 0 && said.out.contains("stays loaded until 'rmmod linkspan'"), || failed("removing", &said))?;
    work.goes_on("removed")?;
    a.sh(&format!("{REMOVED} && test -d /sys/module/linkspan"))?;
    lab.say("removed with the module in use: it stays loaded, which is said, and the job goes on");
    Ok(())
}

/// Nothing is left.
fn gone(lab: &mut Lab, guest: &Guest, before: &str) -> Result<()> {
    let after = guest.sh(STATE)?;
    check(before.lines().count() > 10_000, || format!("the system had no files before: {before}"))?;
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let left: Vec<&&str> = new.iter().filter(|line| !old.contains(line)).collect();
    let lost: Vec<&&str> = old.iter().filter(|line| !new.contains(line)).collect();
    check(left.is_empty() && lost.is_empty(), || format!("purging left {left:?} and took {lost:?}"))?;
    lab.say(&format!("purged: of {} files, users and units none is left or missing", old.len()));
    Ok(())
}

/// Rings over the cable, with each host let in by what lspan doctor prints.
fn ring(a: &Guest, b: &Guest) -> Result<String> {
    for guest in [a, b] {
        link_local(guest)?;
        driver::allowed(guest)?;
    }
    for guest in [a, b] {
        guest.until("the link to be up", SOON, "grep -q '^up$' /sys/class/linkspan/linkspan0/state")?;
    }
    way(Asker::root(a), Asker::root(b), "cable", &["tier 1 (ring)"], true)
}

/// dpkg has nothing half done.
fn consistent(guest: &Guest) -> Result<()> {
    let audit = guest.sh("dpkg --audit")?;
    check(audit.is_empty(), || format!("dpkg --audit: {audit}"))
}

fn failed(what: &str, said: &Output) -> String {
    format!("{what}: ended with {}: {}{}", said.code, said.out, said.err)
}

/// A job that moves bytes from one host to another one, as the other one's statistics have it.
struct Work<'a> {
    on: &'a Guest,
    job: Job,
}

impl Work<'_> {
    /// It moves bytes now.
    fn goes_on(&mut self, when: &str) -> Result<()> {
        // Nothing where there are no statistics, which is 0.
        const MOVED: &str = "lspan stats --json | sed -n 's/^ *\"rx_ops\": \\([0-9]*\\).*/+ \\1/p'";
        self.on.until(
            &format!("the job to go on, {when}"),
            SOON,
            &format!("now=$((0 $({MOVED}))); sleep 0.2; test $((0 $({MOVED}))) -gt $now"),
        )?;
        self.job.latest("")?;
        check(!self.job.is_over(), || format!("the job has ended, {when}: {}", self.job.tail()))
    }
}
