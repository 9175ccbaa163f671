//! Results as text and as a page.

pub mod gbench;
mod heat;
mod html;
mod human;
mod nccl;
mod perftest;

pub use heat::{Heat, heat_page};
pub use html::page;
pub use human::{histogram, table};

use crate::record::Row;

/// Columns that people know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Ours.
    Human,
    /// Of nccl-tests.
    Nccl,
    /// Of perftest (ib_write_bw and friends).
    Perftest,
}

/// Prints rows one by one; the columns' names come before the first row and wherever the kind of test changes.
#[derive(Clone, Debug)]
pub struct Printer {
    style: Style,
    last: String,
    rows: Vec<Row>,
}

impl Printer {
    /// A printer of this style.
    pub fn new(style: Style) -> Printer {
        Printer { style, last: String::new(), rows: Vec::new() }
    }

    /// The lines for one more row, each with its end of line.
    pub fn row(&mut self, row: &Row) -> String {
        let mut text = String::new();
        if row.test != self.last {
            let head = match self.style {
                Style::Human => human::head(row),
                Style::Nccl => nccl::head(row),
                Style::Perftest => perftest::head(row),
            };
            text.push_str(&head);
            self.last.clone_from(&row.test);
        }
        text.push_str(&match self.style {
            Style::Human => human::row(row),
            Style::Nccl => nccl::row(row),
            Style::Perftest => perftest::row(row),
        });
        self.rows.push(row.clone());
        text
    }

    /// The lines after the last row.
    pub fn end(&self) -> String {
        match self.style {
            Style::Nccl => nccl::end(&self.rows),
            Style::Human | Style::Perftest => String::new(),
        }
    }
}

/// The `#wrong` column: `-` where nothing was checked.
fn wrong(row: &Row) -> String {
    row.wrong_bytes.map_or_else(|| "-".into(), |wrong| wrong.to_string())
}

/// Time per message, ns: of a latency test the mean half round trip.
fn each_ns(row: &Row) -> f64 {
    match &row.latency {
        Some(latency) => latency.avg_ns,
        None => row.elapsed_ns as f64 / row.messages.max(1) as f64,
    }
}

#[cfg(test)]
mod tests;
