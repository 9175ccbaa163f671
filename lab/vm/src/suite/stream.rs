//! `/dev/tbstreamN`, the stream devices of USB4STREAM, with the reader first: the driver of 7.2 forgets frames that wait
//! before a reader opens.

use super::tb::{SOON, service};
use crate::error::{Result, check};
use crate::guest::Guest;

/// Makes a stream device on either host, joined to the other's.
pub(super) fn open(a: &Guest, b: &Guest) -> Result<()> {
    for guest in [a, b] {
        guest.sh("modprobe thunderbolt_stream")?;
    }
    for (guest, incoming, outgoing) in [(a, 9, 10), (b, 10, 9)] {
        let folder = format!("/sys/kernel/config/thunderbolt/stream/{}/lab", service(guest, "stream")?);
        // The second host may have taken them over from the first one's properties already: then writing is refused.
        guest.sh(&format!("mkdir -p {folder}"))?;
        let set = format!(
            "{{ echo {incoming} >{folder}/in_hopid; echo {outgoing} >{folder}/out_hopid; }} 2>/dev/null;\n\
             [ $(cat {folder}/in_hopid) = {incoming} ] && [ $(cat {folder}/out_hopid) = {outgoing} ]"
        );
        guest.until("the stream's HopIDs", SOON, &set)?;
        guest.until("a stream device", SOON, "test -c /dev/tbstream0")?;
    }
    Ok(())
}

/// Sends `mib` MiB of random bytes from one to the other, compared at the end.
pub(super) fn send(from: &Guest, to: &Guest, mib: usize) -> Result<()> {
    from.sh(&format!("dd if=/dev/urandom of=/tmp/sent bs=1M count={mib} 2>/dev/null"))?;
    let reader = to.spawn(&format!("exec head -c {} /dev/tbstream0 >/tmp/got", mib << 20))?;
    // Open when the descriptor is there: the reader is a process that has it.
    to.until("the reader", SOON, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q tbstream0")?;
    let sent =
        from.sh_for(SOON, "dd if=/tmp/sent of=/dev/tbstream0 bs=64k 2>/dev/null && md5sum </tmp/sent; rm /tmp/sent")?;
    let ended = reader.wait(SOON)?;
    let got = to.sh("md5sum </tmp/got; rm /tmp/got")?;
    check(ended.code == 0 && sent == got, || format!("{mib} MiB over a stream: sent {sent}, received {got}"))
}

/// Takes the devices away.
pub(super) fn close(a: &Guest, b: &Guest) -> Result<()> {
    for guest in [a, b] {
        guest.sh("cd /sys/kernel/config/thunderbolt/stream && rmdir */lab && rmdir *")?;
    }
    Ok(())
}
