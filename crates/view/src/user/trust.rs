//! Whom this user trusts, and how two come to trust each other.

use std::collections::BTreeSet;

use super::{Ask, Record, User};
use crate::model::Service;
use crate::row::{Action, Button, Field, Group, Kind, Mood, Row};
use crate::text::{fill, sentence, shown, tr};

/// Longest line that is shown: a join line has some 120 characters.
const LINE: usize = 1024;

impl User {
    /// Groups of the overview.
    pub(crate) fn trust(&self) -> Vec<Group> {
        if !matches!(self.service, Service::Up(_)) {
            return Vec::new();
        }
        let cards: Vec<Row> = self.fresh().map(|record| self.card(record)).collect();
        let mut groups = Vec::new();
        if !cards.is_empty() {
            let text = tr("The fingerprint of a pairing is the same on both screens, or somebody stands between.");
            groups.push(Group { title: tr("Paired just now"), text, rows: cards });
        }
        let mut rows: Vec<Row> = self.trusted.iter().map(|peer| self.peer(peer)).collect();
        if !self.fingerprint.is_empty() {
            let name = tr("Copy the line of your key");
            let copy = Button { label: tr("Copy"), name, action: Action::Copy(self.line.clone()), works: true };
            rows.push(Row {
                id: "own".into(),
                title: tr("Your own key"),
                subtitle: shown(&self.fingerprint),
                button: Some(copy),
                ..Row::default()
            });
        }
        if let Some(why) = &self.keyless {
            rows.push(Row {
                id: "keys".into(),
                title: tr("Your keys cannot be read, and nobody is trusted until they can"),
                subtitle: why.clone(),
                mood: Mood::Trouble,
                ..Row::default()
            });
        }
        rows.extend(self.refused("distrust", "not forgotten"));
        rows.extend(self.pairing());
        groups.push(Group { title: tr("Peers that you trust"), text: String::new(), rows });
        groups
    }

    fn peer(&self, peer: &super::Trusted) -> Row {
        let title = shown(&peer.name);
        let name = fill(&tr("Trust {peer} no more"), &[("peer", &title)]);
        Row {
            id: peer.id(),
            title,
            subtitle: fill(&tr("Key {fingerprint}"), &[("fingerprint", &shown(&peer.fingerprint))]),
            button: Some(self.button(tr("Forget"), name, Ask::Distrust(peer.name.clone()), true)),
            ..Row::default()
        }
    }

    /// Pairings since this program began whose fingerprint nobody has compared, of peers that are trusted still.
    fn fresh(&self) -> impl Iterator<Item = &Record> {
        let known = |record: &Record| self.trusted.iter().any(|peer| peer.name == record.end.name);
        let made = self.history.iter().filter(|record| record.kind == "pair" && record.end.state == "done");
        // The key of an older pairing of the name is trusted no more.
        let mut names = BTreeSet::new();
        made.filter(move |record| names.insert(&record.end.name)).filter(move |record| {
            Some(record.id) > self.paired_before && !self.compared.contains(&record.id.to_string()) && known(record)
        })
    }

    fn card(&self, record: &Record) -> Row {
        let title = shown(&record.end.name);
        let differs = fill(&tr("The fingerprints differ: forget {peer}"), &[("peer", &title)]);
        let same = fill(&tr("The fingerprints of {peer} are the same"), &[("peer", &title)]);
        let (mood, text) = match record.end.confirmed {
            true => (Mood::Plain, tr("Fingerprint {text}")),
            false => (
                Mood::Slow,
                tr(
                    "Fingerprint {text}. The other machine did not say that it has stored your key: pair again if it is missing there.",
                ),
            ),
        };
        Row {
            id: format!("paired {}", record.id),
            subtitle: fill(&text, &[("text", &shown(&record.end.fingerprint))]),
            title,
            mood,
            button: Some(Button {
                label: tr("The Same"),
                name: same,
                action: Action::Compared(record.id.to_string()),
                works: true,
            }),
            second: Some(self.button(tr("Differs"), differs, Ask::Distrust(record.end.name.clone()), true)),
            ..Row::default()
        }
    }

    /// A join line whose text only the program has that asked for it.
    fn waits(&self, path: &str) -> Row {
        let cancel = self.button(tr("Cancel"), tr("Cancel the pairing"), Ask::Cancel(path.to_owned()), true);
        Row {
            id: path.to_owned(),
            title: tr("A join line waits for the other machine"),
            subtitle: tr("Another program made it, or this one before its window was closed."),
            button: Some(cancel),
            ..Row::default()
        }
    }

    fn pairing(&self) -> Vec<Row> {
        let failed = self.history.iter().find(|record| record.kind == "pair");
        let failed = failed.filter(|record| record.end.state == "failed" && Some(record.id) > self.paired_before);
        let why = self.error("pair").cloned().or_else(|| failed.map(|record| sentence(&record.error)));
        let offer = match &self.offered {
            Some((line, task)) => {
                let name = tr("Copy the join line");
                let copy = Button { label: tr("Copy"), name, action: Action::Copy(line.clone()), works: true };
                let cancel = self.button(tr("Cancel"), tr("Cancel the pairing"), Ask::Cancel(task.clone()), true);
                Row {
                    id: "line".into(),
                    title: tr("Type this on the other machine within ten minutes; until then it is a secret"),
                    subtitle: crate::text::cut(line, LINE),
                    button: Some(copy),
                    second: Some(cancel),
                    ..Row::default()
                }
            }
            None => Row {
                id: "offer".into(),
                title: tr("Pair with another machine of yours"),
                subtitle: why
                    .clone()
                    .unwrap_or_else(|| tr("Make a line here and type it there, or the other way round.")),
                mood: if why.is_some() { Mood::Trouble } else { Mood::Plain },
                button: Some(self.button(tr("Make a Line"), tr("Make a join line"), Ask::Offer, true)),
                ..Row::default()
            },
        };
        let typed = self.text(Field::JoinLine);
        let others = || {
            self.tasks.values().filter(|(path, task)| {
                task.kind == "pair" && self.offered.as_ref().is_none_or(|(_, offered)| offered != path)
            })
        };
        let joins = others().any(|(_, task)| task.progress.state != "waiting");
        let ask = Ask::Join(typed.trim().to_owned());
        let join = Row {
            id: "join".into(),
            title: if joins { tr("Joining") } else { tr("Join line of the other machine") },
            kind: Kind::Field(Field::JoinLine, typed.to_owned()),
            button: Some(self.button(tr("Join"), tr("Join with this line"), ask, !typed.trim().is_empty() && !joins)),
            ..Row::default()
        };
        let waits = others().filter(|(_, task)| task.progress.state == "waiting");
        [offer].into_iter().chain(waits.map(|(path, _)| self.waits(path))).chain([join]).collect()
    }
}
