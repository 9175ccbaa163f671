//! What can be wrong with a topology, a script or a command.

/// An error of the text that describes a world or tells it what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A line of a topology.
    #[error("LS0920 topology line {line}: {what}")]
    Topology {
        /// Counted from 1.
        line: usize,
        /// What is wrong and what is wanted.
        what: String,
    },
    /// A command or a line of a script.
    #[error("LS0921 command '{command}': {what}")]
    Command {
        /// As written.
        command: String,
        /// What is wrong and what is wanted.
        what: String,
    },
    /// A file that is not a trace.
    #[error("LS0922 trace: {0}; a file that 'vcable serve --trace' wrote is wanted")]
    Trace(String),
}
