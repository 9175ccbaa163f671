//! The other side of a test as a child process of ours, found over a pipe.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};

use linkspan_fabric::{HANDLE_LEN, MemoryName};

use crate::cli::PathArg;
use crate::exit::{Exit, Failure};

/// A serving process. It ends when this value is dropped, or when this process ends in any way: the pipe to its
/// standard input is closed then.
pub(crate) struct OtherSide {
    child: Child,
    /// Held open for as long as the child is to live.
    stdin: Option<ChildStdin>,
    pub(crate) handle: [u8; HANDLE_LEN],
}

impl OtherSide {
    /// Starts it and fetches its handle.
    pub(crate) fn start(path: PathArg, device: usize, memory: MemoryName) -> Result<OtherSide, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::system("our own program file", &error))?;
        let mut child = Command::new(program)
            .args(["perf", "serve", "--stdio", "--path", path.name(), "--device", &device.to_string()])
            .args(["--mem", &memory.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::system("starting the other side", &error))?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        // A line of 256 digits; more would not be a handle. The end of the child ends the line.
        let read = child.stdout.take().map(|out| BufReader::new(out.take(1024)).read_line(&mut line));
        let mut side = OtherSide { child, stdin, handle: [0; HANDLE_LEN] };
        match (read, decode(line.trim())) {
            (Some(Ok(_)), Some(handle)) => side.handle = handle,
            _ => {
                drop(side.stdin.take());
                let status = side.child.wait().map_err(|error| Failure::system("the other side", &error))?;
                let why = format!("LS0736 the other side did not start: {status}; what it said is above");
                return Err(Failure::new(Exit::of_code(status.code()), why));
            }
        }
        Ok(side)
    }
}

impl Drop for OtherSide {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends by itself within a moment; killing makes that sure, and waiting leaves no zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The handle as hexadecimal digits.
pub(crate) fn encode(handle: &[u8; HANDLE_LEN]) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(text: &str) -> Option<[u8; HANDLE_LEN]> {
    let mut handle = [0; HANDLE_LEN];
    if text.len() != HANDLE_LEN * 2 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in handle.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(handle)
}
