//! What a page is made of.

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
    /// Asks for the service again.
    Retry,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Its button.
    pub button: Option<Button>,
    /// What is shown when it is opened.
    pub details: Vec<Row>,
}

/// Rows below a heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The groups.
    pub groups: Vec<Group>,
    /// Where there is nothing.
    pub empty: Option<Empty>,
}

/// All that the window shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Above all pages; empty: nothing.
    pub banner: String,
    /// This machine, its cables and the hosts at them.
    pub overview: Page,
    /// Processes that use linkspan.
    pub jobs: Page,
    /// What the doctor has found.
    pub findings: Page,
    /// What happened.
    pub events: Page,
}
