//! Lines for the journal, with fields, or for standard error. A bounded number of them in a minute, whatever callers, peers and jobs do.

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use std::time::Instant;

use linkspan_net::LineLimit;
use linkspan_service::events::Event;

/// Where journald listens (systemd's `JOURNAL_NATIVE_PROTOCOL`).
const SOCKET: &str = "/run/systemd/journal/socket";

/// Lines in a minute.
const LINES: usize = 60;

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
    limit: Mutex<LineLimit>,
}

impl Log {
    /// To standard error.
    pub(crate) fn stderr() -> Log {
        Log { journal: None, limit: Mutex::new(LineLimit::new(LINES)) }
    }

    /// To the journal; to standard error where there is none.
    pub(crate) fn journal() -> Log {
        let connected = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(SOCKET)?;
            // A journal that is full loses lines; the service does not wait for it.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Log { journal: connected.ok(), limit: Mutex::new(LineLimit::new(LINES)) }
    }

    /// Writes a line with these fields, if there may be one more in this minute.
    pub(crate) fn line(&self, priority: Priority, text: &str, fields: &[(&str, &str)]) {
        let admitted = self.limit.lock().unwrap_or_else(|e| e.into_inner()).admit("", Instant::now());
        let Some(left_out) = admitted else { return };
        if left_out > 0 {
            self.write(Priority::Warning, &format!("{left_out} more lines were left out"), &[]);
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
        self.line(priority, &event.text, &fields);
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
    fn no_value_can_begin_a_field_of_its_own() {
        let bytes = message(Priority::Info, "one", &[("LSPAN_PEER", "a\nPRIORITY=0")]);
        let mut want = b"MESSAGE=one\nPRIORITY=6\nSYSLOG_IDENTIFIER=linkspand\nLSPAN_PEER\n".to_vec();
        want.extend_from_slice(&12_u64.to_le_bytes());
        want.extend_from_slice(b"a\nPRIORITY=0\n");
        assert_eq!(bytes, want);
    }
}
