//! Lines for the journal, with fields, or for standard error. A bounded number of them in a minute, whatever callers, peers and jobs do;
//! those about users' jobs are bounded by themselves, so that they never take the place of the machine's own.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use linkspan_net::LineLimit;
use linkspan_service::events::Event;

/// Where journald listens (systemd's `JOURNAL_NATIVE_PROTOCOL`).
const SOCKET: &str = "/run/systemd/journal/socket";

/// Lines in a minute about the machine, and as many about all users' jobs.
const LINES: usize = 60;

/// Lines in a minute about one user's jobs.
const USER_LINES: usize = 12;

/// Users whose lines are counted one by one: as many as statistics are read of.
const USERS: usize = 256;

/// What may still be written in this minute.
#[derive(Debug)]
struct Limits {
    machine: LineLimit,
    jobs: LineLimit,
    users: HashMap<u32, LineLimit>,
}

impl Limits {
    fn new() -> Limits {
        Limits { machine: LineLimit::new(LINES), jobs: LineLimit::new(LINES), users: HashMap::new() }
    }

    /// As [`LineLimit::admit`], for a line about the machine or about a job of this user.
    fn admit(&mut self, uid: Option<u32>, now: Instant) -> Option<u64> {
        let Some(uid) = uid else { return self.machine.admit("", now) };
        // Begun anew rather than grown: the limit of all users holds.
        if self.users.len() >= USERS && !self.users.contains_key(&uid) {
            self.users.clear();
        }
        let own = self.users.entry(uid).or_insert_with(|| LineLimit::new(USER_LINES)).admit("", now)?;
        Some(own + self.jobs.admit("", now)?)
    }
}

/// As syslog(3) counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// Where lines go.
#[derive(Debug)]
pub(crate) struct Log {
    journal: Option<UnixDatagram>,
    limits: Mutex<Limits>,
}

impl Log {
    /// To standard error.
    pub(crate) fn stderr() -> Log {
        Log { journal: None, limits: Mutex::new(Limits::new()) }
    }

    /// To the journal; to standard error where there is none.
    pub(crate) fn journal() -> Log {
        let connected = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(SOCKET)?;
            // A journal that is full loses lines; the service does not wait for it.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Log { journal: connected.ok(), limits: Mutex::new(Limits::new()) }
    }

    /// Writes a line, if there may be one more in this minute.
    pub(crate) fn line(&self, priority: Priority, text: &str) {
        self.bounded(None, priority, text, &[]);
    }

    fn bounded(&self, uid: Option<u32>, priority: Priority, text: &str, fields: &[(&str, &str)]) {
        let admitted = self.limits.lock().unwrap_or_else(PoisonError::into_inner).admit(uid, Instant::now());
        let Some(left_out) = admitted else { return };
        if left_out > 0 {
            let whose = if uid.is_some() { " about jobs" } else { "" };
            self.write(Priority::Warning, &format!("{left_out} more lines{whose} were left out"), &[]);
        }
        self.write(priority, text, fields);
    }

    fn write(&self, priority: Priority, text: &str, fields: &[(&str, &str)]) {
        // Who reads standard error may have gone.
        let _ = match &self.journal {
            Some(journal) => journal.send(&message(priority, text, fields)).map(drop),
            None => writeln!(std::io::stderr(), "linkspand: {text}"),
        };
    }

    /// An event, with its fields.
    pub(crate) fn event(&self, event: &Event) {
        let priority = if event.kind.warns() { Priority::Warning } else { Priority::Info };
        let numbers = [event.uid.map(|n| n.to_string()), event.pid.map(|n| n.to_string())];
        let all = [
            ("LSPAN_EVENT", Some(event.kind.name())),
            ("LSPAN_CABLE", event.cable.as_deref()),
            ("LSPAN_PEER", event.peer.as_deref()),
            ("LSPAN_PEER_UUID", event.peer_uuid.as_deref()),
            ("LSPAN_UID", numbers[0].as_deref()),
            ("LSPAN_PID", numbers[1].as_deref()),
            ("LSPAN_COMM", event.comm.as_deref()),
            ("LSPAN_DEVICE", event.device.as_deref()),
            ("LSPAN_TRANSPORT", event.transport.as_deref()),
        ];
        let fields: Vec<(&str, &str)> = all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        self.bounded(event.uid, priority, &event.text, &fields);
    }
}

/// A message in the journal's native protocol: `KEY=value` lines; a value that has a line end itself stands behind its length.
fn message(priority: Priority, text: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let number = (priority as u8).to_string();
    let own = [("MESSAGE", text), ("PRIORITY", &number), ("SYSLOG_IDENTIFIER", "linkspand")];
    for (key, value) in own.iter().chain(fields) {
        bytes.extend_from_slice(key.as_bytes());
        if value.contains('\n') {
            bytes.push(b'\n');
            bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            bytes.push(b'=');
        }
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_jobs_leave_those_about_the_machine_and_about_other_users_alone() {
        let (mut limits, now) = (Limits::new(), Instant::now());
        let mut written = |uid: Option<u32>| (0..1000).filter(|_| limits.admit(uid, now).is_some()).count();
        assert_eq!(written(Some(1000)), USER_LINES);
        assert_eq!(written(Some(1001)), USER_LINES);
        assert_eq!((1002..2000).map(|uid| written(Some(uid))).sum::<usize>(), LINES - 2 * USER_LINES);
        assert_eq!(written(None), LINES, "hosts let in, cables pulled, errors");
        assert!(limits.users.len() <= USERS);
        // What was left out is told.
        assert_eq!(limits.admit(None, now + std::time::Duration::from_secs(60)), Some(1000 - LINES as u64));
    }

    #[test]
    fn no_value_can_begin_a_field_of_its_own() {
        let bytes = message(Priority::Info, "one", &[("LSPAN_PEER", "a\nPRIORITY=0")]);
        let mut want = b"MESSAGE=one\nPRIORITY=6\nSYSLOG_IDENTIFIER=linkspand\nLSPAN_PEER\n".to_vec();
        want.extend_from_slice(&12_u64.to_le_bytes());
        want.extend_from_slice(b"a\nPRIORITY=0\n");
        assert_eq!(bytes, want);
    }
}
