//! Standard output for results, a progress line on a terminal's standard error.

use std::io::{self, IsTerminal, Write};

use crate::exit::Failure;

/// Prints results. A reader that has left (`lspan | head`) is no error: everything further is dropped.
#[derive(Debug, Default)]
pub(crate) struct Out {
    gone: bool,
}

impl Out {
    /// Writes text as it is, colours only where the terminal and NO_COLOR allow them.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.gone {
            return Ok(());
        }
        let mut out = anstream::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            Err(error) => Err(Failure::system("standard output", &error)),
            Ok(()) => Ok(()),
        }
    }

    /// Whether the reader has left.
    pub(crate) fn gone(&self) -> bool {
        self.gone
    }

    /// Writes a value as one JSON line, or spread over lines where `pretty`.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize, pretty: bool) -> Result<(), Failure> {
        let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        let text = text.map_err(|error| Failure::new(crate::exit::Exit::Failed, format!("JSON: {error}")))?;
        self.text(&(text + "\n"))
    }
}

/// A line that says what is being done, on a terminal only.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    tty: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { shown: false, tty: io::stderr().is_terminal() }
    }

    /// Shows the line in place of the one before.
    pub(crate) fn say(&mut self, line: &str) {
        if self.tty {
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
            self.shown = true;
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            let _ = io::stderr().write_all(b"\r\x1b[K");
            self.shown = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
