//! What a page is made of.

use crate::user::Ask;

/// How something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Neither good nor bad.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// It works, slower than it could.
    Slow,
    /// It does not work.
    Trouble,
}

/// What a button does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Lets the host with this UUID in.
    Allow(String),
    /// Shuts it out and remembers it no more.
    Forget(String),
    /// Puts this text on the clipboard.
    Copy(String),
    /// Has the doctor look.
    Examine,
    /// Asks for the services again.
    Retry,
    /// Asks the user's service for something.
    User(Ask),
    /// Lets the person choose something of this machine, for what follows.
    Pick(Pick),
    /// Gets this place of a peer into the folder for downloads.
    Get(String),
    /// Puts the files that wait to be sent aside.
    SetAside,
    /// The fingerprint of this pairing was compared.
    Compared(String),
    /// Saves the page of this test, which [`Model::report`](crate::Model::report) makes.
    Report(String),
}

/// What a person chooses of this machine, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Files to send to this place.
    Files(String),
    /// A folder to send to this place.
    Folder(String),
    /// A folder to make a copy of at this place, and to keep the copy like it.
    Mirror(String),
    /// A folder that peers may see, and with `true` change.
    Share(bool),
}

/// A text that a person types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Whom to test.
    Peer,
    /// Which peer's files to look at.
    Place,
    /// A join line of another machine.
    JoinLine,
}

/// One of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// Which test.
    Test,
}

/// A plot: values over a few named points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// The points, from left to right.
    pub points: Vec<String>,
    /// The unit of the values.
    pub unit: &'static str,
    /// Values from the first point on; there may be fewer than points.
    pub now: Vec<f64>,
    /// Those of the run before, for comparison.
    pub before: Vec<f64>,
}

/// What a row has beside its texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Kind {
    /// Nothing.
    #[default]
    Line,
    /// A text to type, as far as it is typed.
    Field(Field, String),
    /// One of these, and which.
    Choice(Choice, Vec<String>, usize),
    /// On or off; the row's button says what comes of the other.
    Switch(bool),
    /// How far it is, 0 to 1; `None`: nobody knows.
    Progress(Option<f64>),
    /// A plot; the row's texts say the same in words.
    Plot(Plot),
}

/// A button: its label, its accessible name, what it does, and whether it can be pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Button {
    /// On it.
    pub label: String,
    /// What a screen reader says: the label with its object.
    pub name: String,
    /// What it does.
    pub action: Action,
    /// Whether it works now.
    pub works: bool,
}

/// A line of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Names it among the rows of its group, also when its texts change.
    pub id: String,
    /// First line.
    pub title: String,
    /// Second line.
    pub subtitle: String,
    /// At its end, such as a speed.
    pub end: String,
    /// How it is.
    pub mood: Mood,
    /// What it has beside its texts.
    pub kind: Kind,
    /// Its button.
    pub button: Option<Button>,
    /// Another one, of less weight.
    pub second: Option<Button>,
    /// What is shown when it is opened.
    pub details: Vec<Row>,
}

/// Rows below a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The heading.
    pub title: String,
    /// A sentence below it; empty: none.
    pub text: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// In place of an empty page: what to plug in or type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Empty {
    /// Name of an icon.
    pub icon: &'static str,
    /// What is so.
    pub title: String,
    /// What to do.
    pub text: String,
    /// What to press.
    pub button: Option<Button>,
}

/// A page: groups, or why there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The groups.
    pub groups: Vec<Group>,
    /// Where there is nothing.
    pub empty: Option<Empty>,
}

/// All that the window shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pages {
    /// Above all pages; empty: nothing.
    pub banner: String,
    /// This machine, its cables, the hosts at them, and whom this user trusts.
    pub overview: Page,
    /// Measurements against peers.
    pub tests: Page,
    /// Files of peers, transfers, and what peers see.
    pub files: Page,
    /// Processes that use linkspan.
    pub jobs: Page,
    /// What the doctor has found.
    pub findings: Page,
    /// What happened.
    pub events: Page,
}
