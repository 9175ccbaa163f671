//! Exit codes, and which error leads to which.

use std::io;

use linkspan_fabric::{Error, MeshError, chain};
use linkspan_perf::{LinkError, PerfError};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// All went well.
    Ok = 0,
    /// Something failed.
    Failed = 1,
    /// The command line or the environment cannot be understood.
    Usage = 2,
    /// It works, but worse than it should.
    Degraded = 3,
    /// No peer, no device.
    NoPeer = 4,
    /// Not allowed.
    Permission = 5,
    /// Wrong data arrived.
    WrongData = 6,
    /// The time was up.
    Timeout = 124,
    /// `lspan run` did not run the command. These three as env(1) and timeout(1) have them.
    NotRun = 125,
    /// The command could not be started.
    NotStarted = 126,
    /// There is no such command.
    NotFound = 127,
    /// Ctrl-C (SIGINT or SIGTERM); what had been measured was printed. 128 and the number of SIGINT, as shells have it.
    Interrupted = 130,
}

impl Exit {
    /// Of a process of this program that ended with this code.
    pub(crate) fn of_code(code: Option<i32>) -> Exit {
        let known = [Exit::Usage, Exit::Degraded, Exit::NoPeer, Exit::Permission, Exit::Timeout, Exit::Interrupted];
        known.into_iter().find(|exit| code == Some(*exit as i32)).unwrap_or(Exit::Failed)
    }
}

/// The table for the manual page and `--help`.
pub(crate) const TABLE: &str = "Exit codes:
  0    ok, also if a WARN line reported something that does not affect a path, such as an unknown setting
  1    failed
  2    the command line or an environment value cannot be understood
  3    degraded: a path is missing, slower than this machine could give, relayed, or lost during the run (lspan, lspan status, lspan doctor, lspan mesh, lspan perf; every command with LINKSPAN_STRICT=1); something was left out that the other side cannot recreate (send, get, mirror); entries could not be read (du); a pair of hosts is far slower than the others (perf matrix); the other side did not confirm (pair)
  4    no peer or no device
  5    not permitted
  6    wrong data arrived
  124  timeout
  125  lspan run: the command was not run (if it was run, the exit code is that of the command)
  126  lspan run: the command could not be started
  127  lspan run: there is no such command
  130  interrupted by Ctrl-C; what was measured until then is printed";

/// Why the program ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    /// From the system, with what was done to what.
    pub(crate) fn system(what: &str, error: &io::Error) -> Failure {
        let exit = if error.kind() == io::ErrorKind::PermissionDenied { Exit::Permission } else { Exit::Failed };
        Failure::new(exit, format!("{what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match &error {
            Error::Param(_)
            | Error::Setting { .. }
            | Error::Filter(_)
            | Error::Psk { .. }
            | Error::Mesh(MeshError::File { .. } | MeshError::Read { .. }) => Exit::Usage,
            Error::PskRead { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Exit::Permission,
            Error::PskRead { .. } => Exit::Usage,
            Error::NoInterface { .. } | Error::NoDevice { .. } | Error::Unreachable { .. } | Error::Forced { .. } => {
                Exit::NoPeer
            }
            Error::Timeout { .. } => Exit::Timeout,
            Error::Strict { .. } => Exit::Degraded,
            Error::Refused { .. } => Exit::Permission,
            _ => Exit::Failed,
        };
        Failure::new(exit, chain(&error))
    }
}

impl From<linkspan::Error> for Failure {
    fn from(error: linkspan::Error) -> Failure {
        let exit = match error {
            linkspan::Error::Fabric(error) => return error.into(),
            ref error if error.is_timeout() => Exit::Timeout,
            ref error if error.is_refused() => Exit::Permission,
            linkspan::Error::Connect(_) => Exit::NoPeer,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        PerfError::from(error).into()
    }
}

impl From<PerfError> for Failure {
    fn from(error: PerfError) -> Failure {
        if let PerfError::Link(LinkError::Failed { source, .. }) = &error
            && let Some(inner) = source.downcast_ref::<Error>()
        {
            let exit = match inner {
                Error::Timeout { .. } => Exit::Timeout,
                Error::Refused { .. } => Exit::Permission,
                Error::Strict { .. } => Exit::Degraded,
                _ => Exit::Failed,
            };
            return Failure::new(exit, chain(&error));
        }
        let exit = match &error {
            PerfError::Link(LinkError::NoPeer { .. }) => Exit::NoPeer,
            PerfError::Timeout(_) => Exit::Timeout,
            PerfError::Link(LinkError::Interrupted) => Exit::Interrupted,
            _ => Exit::Failed,
        };
        Failure::new(exit, chain(&error))
    }
}
