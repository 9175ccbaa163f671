//! Faults of USB4STREAM, which the kernel has since 7.2.

use super::doctor::{Asker, way};
use super::host;
use super::net::{cabled, link_local};
use crate::error::{Result, check};
use crate::lab::Lab;
use crate::suite::tb::{self, SOON};

pub(super) fn faults(lab: &mut Lab) -> Result<()> {
    if lab.kernel.version() < (7, 2) {
        lab.skip("all", "USB4STREAM is in the kernel since 7.2");
        return Ok(());
    }
    let pair = cabled(lab)?;
    let [a, b] = &pair.guests;
    // Neither loads it before the other one offers it.
    a.sh("modprobe thunderbolt_stream")?;
    for guest in [a, b] {
        tb::service(guest, "stream")?;
    }
    let stream = |there: bool| {
        for guest in [a, b] {
            link_local(guest)?;
        }
        let over = if there { "tier 2 (stream)" } else { "tcp " };
        way(Asker::root(a), Asker::root(b), "cable", &[over], true)
    };

    a.sh("rmmod thunderbolt_stream")?;
    let off = Asker::root(a).finds("", "LS2117")?;
    stream(false)?;
    off.commands.iter().try_for_each(|command| Asker::root(a).types(SOON, command))?;
    a.until("a stream device", SOON, "test -c /dev/tbstream0")?;
    Asker::root(a).silent("")?;
    lab.say(&format!("its driver unloaded: LS2117 alone; `{}`; gone", off.commands.join("`, `")));

    let unset = Asker::root(b).finds("", "LS2118")?;
    check(unset.by_hand == ["the same on a"], || format!("{unset:?}"))?;
    stream(false)?;
    unset.commands.iter().try_for_each(|command| Asker::root(b).types(SOON, command))?;
    b.until("a stream device", SOON, "test -c /dev/tbstream0")?;
    Asker::root(b).silent("")?;
    let path = stream(true)?;
    lab.say(&format!("no stream set up: LS2118 alone; `{}`; gone; {path}", unset.commands.join("`, `")));
    host::end(lab, pair)
}
