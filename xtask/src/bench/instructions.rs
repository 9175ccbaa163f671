//! Instructions per message, which no other program on the machine can change: a second measure beside times.

use std::fmt::Write as _;
use std::process::Command;

use super::figures::{COSTS, Program};
use super::sides::Side;
use crate::run;

/// The program whose instructions are counted.
pub(crate) const PROGRAM: Program = Program::Example(NAME);
const NAME: &str = "cost";

/// Two counts of messages: what the set-up costs is in both, so their difference has the messages alone.
const COUNTS: [u64; 2] = [2000, 6000];

/// The table; a line that says why not where valgrind or the program is not there.
pub(crate) fn table(sides: &[Side; 2]) -> Result<String, String> {
    if run::which("valgrind").is_none() {
        return Ok("Instructions per message: not counted, there is no valgrind (Debian: valgrind).\n".to_owned());
    }
    let mut table =
        String::from("| instructions per message, both sides | base | head | head/base |\n|---|---|---|---|\n");
    for (word, what) in COSTS {
        let mut each = [0.0; 2];
        for (side, found) in sides.iter().zip(&mut each) {
            let Some(program) = side.example(NAME) else {
                return Ok(format!("Instructions per message: {} has no example {NAME}.\n", &side.commit[..12]));
            };
            let few = counted(program, word, COUNTS[0])?;
            let many = counted(program, word, COUNTS[1])?;
            *found = (many as f64 - few as f64) / (COUNTS[1] - COUNTS[0]) as f64;
        }
        let _ = writeln!(table, "| {what} | {:.0} | {:.0} | {:.3} |", each[0], each[1], each[1] / each[0]);
    }
    Ok(table)
}

fn counted(program: &std::path::Path, word: &str, count: u64) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program).args([word, &count.to_string()]);
    let out = valgrind.output().map_err(|e| format!("valgrind did not start: {e}"))?;
    let text = String::from_utf8_lossy(&out.stderr);
    let collected = text.lines().find_map(|l| l.split_once("Collected : ")).map(|(_, n)| n.trim());
    match (out.status.success(), collected.and_then(|n| n.parse().ok())) {
        (true, Some(n)) => Ok(n),
        _ => Err(format!("valgrind {}: {}: {text}", program.display(), out.status)),
    }
}
