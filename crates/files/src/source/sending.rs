//! One large file that is being sent.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::{Geometry, Violation};
use crate::fs::{Fs, Ident, Stat};
use crate::hash::{Merger, Value};
use crate::wire::{Known, VALUES_MAX};

/// State of one large file.
pub(super) struct Sending<F: Fs> {
    pub(super) file: Arc<F::File>,
    /// What it has to be at the end; `None` for a copy that nobody else has.
    pub(super) ident: Option<Ident>,
    pub(super) stat: Stat,
    pub(super) chunks: u64,
    /// The first chunk that no job and no message is about.
    pub(super) next: u64,
    pub(super) merger: Merger,
    /// Jobs under way.
    pub(super) jobs: usize,
    pub(super) hash: Option<Value>,
    /// What the receiver knows of the chunks from `next` on; empty where it was not asked.
    known: VecDeque<Known>,
    compare: bool,
    asked: Option<(u64, u16)>,
}

impl<F: Fs> Sending<F> {
    pub(super) fn new(file: F::File, ident: Option<Ident>, stat: Stat, of: &Geometry, compare: bool) -> Sending<F> {
        Sending {
            file: Arc::new(file),
            ident,
            stat,
            chunks: of.chunks(stat.size),
            next: 0,
            merger: Merger::default(),
            jobs: 0,
            hash: None,
            known: VecDeque::new(),
            compare,
            asked: None,
        }
    }

    /// What to ask the receiver next, so that it works ahead of us.
    pub(super) fn question(&mut self) -> Option<(u64, u16)> {
        let from = self.next + self.known.len() as u64;
        if !self.compare || self.asked.is_some() || from >= self.chunks || self.known.len() >= VALUES_MAX {
            return None;
        }
        let question = (from, (self.chunks - from).min(VALUES_MAX as u64) as u16);
        self.asked = Some(question);
        Some(question)
    }

    pub(super) fn answer(&mut self, first: u64, known: Vec<Known>) -> Result<(), Violation> {
        if self.asked.take() != Some((first, known.len() as u16)) {
            return Err(Violation("chunk values that were not asked for"));
        }
        self.known.extend(known);
        Ok(())
    }

    /// Values of the next chunks that need not even be read.
    pub(super) fn verified(&self, most: u64) -> Vec<Value> {
        let value = |known: &Known| if let Known::Verified(value) = known { Some(*value) } else { None };
        self.known.iter().take(most as usize).map_while(value).collect()
    }

    /// The next chunks to be read, with what to compare them with. A chunk that may be the same goes alone, so that its
    /// neighbours are not sent with it.
    pub(super) fn unverified(&self, most: u64) -> Vec<Known> {
        if !self.compare {
            return vec![Known::Nothing; (self.chunks - self.next).min(most) as usize];
        }
        match self.known.front() {
            Some(content @ Known::Content(_)) => vec![*content],
            _ => self.known.iter().take(most as usize).take_while(|known| **known == Known::Nothing).copied().collect(),
        }
    }

    pub(super) fn take(&mut self, count: u64) {
        self.next += count;
        let known = self.known.len().min(count as usize);
        self.known.drain(..known);
    }

    /// Whether every chunk has a value.
    pub(super) fn is_read(&self) -> bool {
        self.next == self.chunks && self.jobs == 0
    }
}
