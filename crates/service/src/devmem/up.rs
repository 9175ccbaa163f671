//! The set-up of a card: what is there, what has to change, and all of it undone.

use linkspan_netdev::{HeaderSplit, Rings};

use super::card::{Card, splits};
use super::journal::Journal;

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct CardState {
    pub(super) queues: u32,
    pub(super) rings: Rings,
    pub(super) table: Vec<u32>,
    pub(super) rules: bool,
}

impl CardState {
    /// Reads it.
    pub(super) fn read(card: &dyn Card) -> Result<CardState, String> {
        Ok(CardState {
            queues: card.queues()?,
            rings: card.rings()?,
            table: card.spread()?,
            rules: card.takes_rules()?,
        })
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Rules for streams are switched on.
    Rules,
    /// Headers and payload go to buffers of their own, whatever the packet's length. The threshold only where there is one.
    Split { threshold: Option<u32> },
    /// All streams without a rule go to the first so many queues.
    Spread { queues: u32, table: Vec<u32> },
}

/// What has to change so that the last `kept` queues are for device memory alone.
pub(super) fn plan(state: &CardState, kept: u32) -> Result<Vec<Change>, String> {
    if state.queues <= kept {
        return Err(format!(
            "it has {} receive queues, and besides {kept} for GPU memory one must stay for everything else: --queues {}, or \
             more of them with ethtool -L",
            state.queues,
            state.queues.saturating_sub(1).max(1)
        ));
    }
    if state.table.is_empty() {
        return Err("it has no table that spreads streams over queues, so no queue can be kept free of them".into());
    }
    if !splits(&state.rings) {
        return Err("its driver does not say that it splits headers and payload".into());
    }
    let mut changes = Vec::new();
    if !state.rules {
        changes.push(Change::Rules);
    }
    if state.rings.split != HeaderSplit::On || state.rings.threshold.is_some_and(|bytes| bytes > 0) {
        changes.push(Change::Split { threshold: state.rings.threshold.map(|_| 0) });
    }
    let queues = state.queues - kept;
    if state.table.iter().any(|&q| q >= queues) {
        let table = (0..state.table.len() as u32).map(|n| n % queues).collect();
        changes.push(Change::Spread { queues, table });
    }
    Ok(changes)
}

impl Change {
    /// The command that does the same.
    fn command(&self, name: &str) -> String {
        match self {
            Change::Rules => format!("ethtool -K {name} ntuple on"),
            Change::Split { threshold: None } => format!("ethtool -G {name} tcp-data-split on"),
            Change::Split { threshold: Some(n) } => format!("ethtool -G {name} tcp-data-split on hds-thresh {n}"),
            Change::Spread { queues, .. } => format!("ethtool -X {name} equal {queues}"),
        }
    }

    fn make(&self, card: &dyn Card) -> Result<(), String> {
        match self {
            Change::Rules => card.take_rules(true),
            Change::Split { threshold } => card.split(true, *threshold),
            Change::Spread { table, .. } => card.set_spread(table),
        }
    }

    fn undo(&self, card: &dyn Card, state: &CardState) -> Result<(), String> {
        match self {
            Change::Rules => card.take_rules(false),
            Change::Split { .. } => card.split(state.rings.split == HeaderSplit::On, state.rings.threshold),
            Change::Spread { .. } => card.set_spread(&state.table),
        }
    }
}

/// The plan for people.
pub(super) fn text(name: &str, state: &CardState, changes: &[Change], kept: u32) -> String {
    let (first, last) = (state.queues - kept, state.queues - 1);
    let mut text =
        format!("{name}: receive queues {first} to {last} of {} would be kept for GPU memory\n", state.queues);
    for change in changes {
        text.push_str(&format!("  {}\n", change.command(name)));
    }
    if changes.is_empty() {
        text.push_str("  nothing has to be changed for that\n");
    }
    text.push_str("and all of it undone at the end; memory is bound and streams are steered as processes ask for it\n");
    text
}

/// A card that is set up, until this is dropped.
pub(super) struct SetUp<'a> {
    card: &'a dyn Card,
    state: &'a CardState,
    done: Vec<&'a Change>,
    journal: Option<&'a Journal>,
}

impl<'a> SetUp<'a> {
    /// Makes the changes, once the journal has them. One that fails undoes those before it.
    pub(super) fn make(
        card: &'a dyn Card,
        state: &'a CardState,
        changes: &'a [Change],
        journal: Option<&'a Journal>,
    ) -> Result<SetUp<'a>, String> {
        if let Some(journal) = journal {
            journal.begin(state, changes)?;
        }
        let mut made = SetUp { card, state, done: Vec::new(), journal };
        for change in changes {
            // Undone also where it fails: a driver may have done half of it.
            made.done.push(change);
            if let Err(why) = change.make(card) {
                return Err(format!("{why}; {}", made.end().1));
            }
        }
        Ok(made)
    }
}

impl SetUp<'_> {
    /// Undoes the changes: whether all of them, and what is to be said of that.
    pub(super) fn end(mut self) -> (bool, String) {
        match self.undo().as_slice() {
            [] => (true, "all settings are restored".to_owned()),
            failed => (false, format!("not restored: {}; `lspan devmem down` tries again", failed.join("; "))),
        }
    }

    /// What could not be undone. The journal is kept then, and nothing is tried again here.
    fn undo(&mut self) -> Vec<String> {
        let (card, state, journal) = (self.card, self.state, self.journal.take());
        let undone = |change: &Change| change.undo(card, state).map_err(|why| format!("{change:?}: {why}"));
        let mut failed = journal.map(|journal| journal.end_streams(card)).unwrap_or_default();
        failed.extend(self.done.drain(..).rev().filter_map(|change| undone(change).err()));
        if failed.is_empty()
            && let Some(journal) = journal
        {
            failed.extend(journal.clear().err());
        }
        failed
    }
}

impl Drop for SetUp<'_> {
    fn drop(&mut self) {
        for why in self.undo() {
            eprintln!("linkspan: a change could not be undone: {why}");
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
