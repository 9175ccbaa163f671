//! From bytes back to frames, at whatever places the stream was cut.

use linkspan_proto::head::HEAD_LEN;
use linkspan_transport::{Buf, Head, Kind, MemSlice, Sink};

/// A frame whose payload is arriving.
#[derive(Debug)]
enum Open {
    /// Payload gathered for the sink.
    Control(Head),
    /// Payload written to its place as it comes, or nowhere.
    Chunk(Head, Option<MemSlice>, usize),
}

/// One lane's state.
#[derive(Debug)]
pub(crate) struct Parser {
    head: [u8; HEAD_LEN],
    have: usize,
    body: Vec<u8>,
    open: Option<Open>,
}

impl Parser {
    pub(crate) fn new() -> Parser {
        Parser { head: [0; HEAD_LEN], have: 0, body: Vec::new(), open: None }
    }

    /// Whether a chunk has begun and is not complete.
    pub(crate) fn is_inside_chunk(&self) -> bool {
        matches!(self.open, Some(Open::Chunk(..)))
    }

    /// Takes bytes in. The error text says what broke the protocol.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut dyn Sink) -> Result<(), String> {
        loop {
            self.finish(sink)?;
            if bytes.is_empty() {
                return Ok(());
            }
            match &mut self.open {
                None => {
                    let n = (HEAD_LEN - self.have).min(bytes.len());
                    self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
                    self.have += n;
                    bytes = &bytes[n..];
                    if self.have == HEAD_LEN {
                        self.have = 0;
                        self.open(sink)?;
                    }
                }
                Some(Open::Control(head)) => {
                    let n = (head.len.get() as usize - self.body.len()).min(bytes.len());
                    self.body.extend_from_slice(&bytes[..n]);
                    bytes = &bytes[n..];
                }
                Some(Open::Chunk(head, place, done)) => {
                    let n = (head.len.get() as usize - *done).min(bytes.len());
                    if let Some(place) = place
                        && !place.fill(*done as u64, &bytes[..n])
                    {
                        return Err("a place smaller than its chunk".into());
                    }
                    *done += n;
                    bytes = &bytes[n..];
                }
            }
        }
    }

    fn open(&mut self, sink: &mut dyn Sink) -> Result<(), String> {
        let (head, kind): (Head, Kind) = Head::decode(&self.head).map_err(|bad| bad.to_string())?;
        self.open = Some(if kind.is_payload() {
            let place = sink.place(&head).map_err(|v| v.0)?;
            Open::Chunk(head, place, 0)
        } else {
            self.body.clear();
            Open::Control(head)
        });
        Ok(())
    }

    /// Hands over what is complete.
    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), String> {
        match &self.open {
            Some(Open::Control(head)) if self.body.len() == head.len.get() as usize => {
                let head = *head;
                self.open = None;
                sink.ctrl(&head, &self.body).map_err(|v| v.0)
            }
            Some(Open::Chunk(head, _, done)) if *done == head.len.get() as usize => {
                let head = *head;
                self.open = None;
                sink.landed(&head).map_err(|v| v.0)
            }
            _ => Ok(()),
        }
    }
}
