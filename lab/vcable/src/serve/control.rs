//! Commands over a Unix socket: one line in, one line out.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::{ServeError, Shared};

/// Longest command line that is read.
const MAX_LINE: u64 = 64 * 1024;

pub(super) fn listen(path: &Path, shared: Arc<Shared>) -> Result<(), ServeError> {
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).map_err(|e| ServeError::Socket { path: path.to_owned(), what: e.to_string() })?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = shared.clone();
            thread::spawn(move || {
                // A client that goes away in the middle ends its thread only.
                let _ = converse(&stream, &shared);
            });
        }
    });
    Ok(())
}

fn converse(stream: &UnixStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let mut limited = std::io::Read::take(&mut reader, MAX_LINE);
        if limited.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (answer, quit) = answer(line.trim(), shared);
        writeln!(&*stream, "{answer}")?;
        if quit {
            shared.lock().quit = true;
            shared.wake.notify_one();
        }
    }
}

/// `ok ...` or `error ...`, on one line; and whether to quit.
fn answer(line: &str, shared: &Shared) -> (String, bool) {
    let result = shared.with(|inner| match line {
        "stats" | "quit" => serde_json::to_string(&inner.world.report()).map_err(|e| e.to_string()),
        "check" => match inner.world.report().failure_count {
            0 => Ok(String::new()),
            n => Err(format!("{n} failures, the first: {}", inner.world.failures()[0])),
        },
        "trace on" | "trace off" => match &inner.trace {
            Some(switch) => {
                switch.set(line == "trace on");
                Ok(String::new())
            }
            None => Err("the server was started without --trace FILE".to_owned()),
        },
        command => inner.world.command(command).map_err(|e| e.to_string()),
    });
    let line_of = |text: String| text.replace('\n', " ");
    match result {
        Ok(text) => (format!("ok {}", line_of(text)).trim_end().to_owned(), line == "quit"),
        Err(text) => (format!("error {}", line_of(text)), false),
    }
}

/// Sends one command to a server and gives its answer.
///
/// # Errors
/// [`ServeError::Socket`]: the server does not answer. [`ServeError::Refused`]: it answers with an error.
pub fn ask(path: &Path, command: &str) -> Result<String, ServeError> {
    let file = |what| ServeError::File { path: path.to_owned(), what };
    let stream = UnixStream::connect(path).map_err(file)?;
    writeln!(&stream, "{}", command.replace('\n', " ")).map_err(file)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).map_err(file)?;
    let line = line.trim_end();
    match line.split_once(' ').unwrap_or((line, "")) {
        ("ok", text) => Ok(text.to_owned()),
        ("error", text) => Err(ServeError::Refused(text.to_owned())),
        _ => Err(ServeError::Refused(format!("the server at {} went away", path.display()))),
    }
}
