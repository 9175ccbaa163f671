//! The transport of device-memory TCP over io_uring's zero-copy receive, in its mode without a card.

use super::tb::SOON;
use crate::error::{Result, check};
use crate::lab::Lab;

pub(crate) fn uring(lab: &mut Lab) -> Result<()> {
    let mut spec = lab.guest("a");
    spec.cpus = 2;
    spec.deadline = SOON * 40;
    let [a] = lab.boot([&spec])?;
    a.sh("ip link set lo up")?;
    let probe = a.sh("lspan devmem probe 2>&1 || true")?;
    check(probe.contains("io_uring") && probe.contains("without a card"), || {
        format!("lspan devmem probe does not tell of io_uring's mode without a card:\n{probe}")
    })?;
    lab.say("lspan devmem probe names the mode");
    let said = a.run(SOON * 30, "uring-conformance 2>&1")?;
    check(said.code == 0 && said.out.ends_with("passed\n"), || {
        format!("uring-conformance ended with {}: {}{}", said.code, said.out, said.err)
    })?;
    let count = |word: &str| said.out.lines().filter(|line| line.contains(word)).count();
    check(count("planted: ") == 3 && count("a killed peer: ") == 1 && count(": ok, ") > 8, || {
        format!("not all was tried:\n{}", said.out)
    })?;
    lab.say("the suite with 512 and with 24 pages, planted bugs caught, a killed peer told");
    lab.finish([a])
}
