//! A byte stream to a service of the peer and back. Each direction ends by itself, is taken no faster than the other side takes
//! it, and says that all of it has arrived; whatever ends otherwise is an error at both ends.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use linkspan::{Context, Url};
use rustix::event::PollFlags;

use crate::Error;
use crate::client::connected;
use crate::engine::Violation;
use crate::link::{Line, first_message, say};
use crate::lock;
use crate::wire::{Answer, Fault, FaultKind, Message, VERSION};

mod ends;
mod flow;
mod service;

pub use ends::Ends;
pub use service::{BadService, Service};
pub(crate) use service::{Say, serve};

use flow::{Flow, Frame, Sender};

/// How long the peer may take to reach its service: its own limit for that is shorter.
const ANSWER: Duration = Duration::from_secs(30);

/// Whether these bytes are a frame of a pipe.
pub fn is_frame(bytes: &[u8]) -> bool {
    Frame::decode(bytes).is_ok()
}

/// How a service has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both directions, one after the other.
    Both,
    /// Its program, with this code; 128 and the number of a signal that killed it.
    Program(u8),
}

/// A service of the peer that has answered.
#[derive(Debug)]
pub struct Pipe(Arc<Line>);

impl Pipe {
    /// Connects to a service.
    ///
    /// # Errors
    /// [`Error::Refused`]: it is not allowed, or cannot be reached there. [`Error::Link`], [`Error::Full`], [`Error::Unjoined`],
    /// [`Error::Malformed`], [`Error::Violation`].
    pub fn open(context: &Context, url: &Url, service: &str) -> Result<Pipe, Error> {
        let transport = connected(context, url)?;
        let unjoined = |error| match error {
            Error::Lost(why) => Error::Unjoined(why),
            other => other,
        };
        say(&transport, &Message::Pipe { version: VERSION, service: service.to_owned() }).map_err(unjoined)?;
        match first_message(&transport, ANSWER).map_err(unjoined)? {
            Message::Answer { result: Ok(Answer::Done), .. } => Ok(Pipe(Line::new(transport))),
            Message::Answer { result: Err(fault), .. } if fault.kind == FaultKind::Limit => Err(Error::Full(fault)),
            Message::Answer { result: Err(fault), .. } => Err(Error::Refused(fault)),
            _ => Err(Violation("it says something else where its service belongs").into()),
        }
    }

    /// What carries it, one line.
    pub fn path(&self) -> Option<String> {
        self.0.path()
    }

    /// Joins the service to these ends until both directions are over. With an error they are cut off, so that whoever is behind a
    /// socket sees no proper end; for standard output that is the caller's exit code.
    ///
    /// # Errors
    /// [`Error::Cut`]: the connection was lost before the end. [`Error::Refused`]: the service was cut off, or did not take all.
    /// [`Error::System`]: the own ends failed. [`Error::Malformed`], [`Error::Violation`].
    pub fn join(self, ends: Ends) -> Result<Ended, Error> {
        let (mut flow, sender) = Flow::new(&self.0)?;
        let Ends { mut reader, mut writer, tail } = ends;
        let failed: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let (out, failure) = (sender.clone(), failed.clone());
        let pump = thread::Builder::new()
            .name("pipe out".into())
            .spawn(move || {
                let sent = match pump(&mut reader, &out) {
                    Ok(()) => out.end(),
                    Err(Stopped::Lost(error)) => Err(error),
                    Err(Stopped::Source(error)) => {
                        let fault = Fault::io("what was sent", &error);
                        *lock(&failure) = Some(error);
                        out.failed(&fault)
                    }
                };
                // A connection that is lost is told by the side that receives.
                let _ = sent;
            })
            .map_err(|error| Error::system("a thread", error))?;
        let (mut ended, mut taken) = (false, false);
        let result = loop {
            match flow.next() {
                Ok(Frame::Data(bytes)) => match writer.as_mut().map(|writer| ends::put(writer, bytes, None)) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => break Err(Error::system("writing what the service sends", error)),
                    None => break Err(Violation("it sends after its end").into()),
                },
                Ok(Frame::End) => {
                    ends::end(writer.take());
                    ended = true;
                }
                Ok(Frame::Taken) => taken = true,
                Ok(Frame::Failed(fault)) => break Err(Error::Refused(fault)),
                Ok(Frame::Exit(code)) => break Ok(Ended::Program(code)),
                Err(error) => {
                    let own = lock(&failed).take();
                    break Err(own.map_or(error, |error| Error::system("reading what is to be sent", error)));
                }
            }
            if ended && taken {
                break Ok(Ended::Both);
            }
        };
        self.0.close();
        match &result {
            Ok(Ended::Both | Ended::Program(0)) => tail.finish(),
            _ => tail.cut(),
        }
        // Standard input cannot be woken from its read: its thread ends with the process.
        if tail.is_socket() {
            let _ = pump.join();
        }
        result
    }
}

/// Why no more is read.
enum Stopped {
    Source(io::Error),
    Lost(Error),
}

/// Sends all that comes until its end.
fn pump(reader: &mut File, out: &Sender) -> Result<(), Stopped> {
    let mut piece = vec![0; flow::PIECE];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => out.data(&piece[..len]).map_err(Stopped::Lost)?,
            Err(error) => ends::again(reader, PollFlags::IN, error, None).map_err(Stopped::Source)?,
        }
    }
}

/// The peer asks for another version.
fn other_version(version: u16) -> Fault {
    let text = format!(
        "version {version} of the file protocol is not spoken here, but {VERSION}: install the same release on both sides"
    );
    Fault::new(FaultKind::Invalid, text)
}
