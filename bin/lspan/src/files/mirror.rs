//! `lspan mirror`.

use std::io::{BufRead, IsTerminal};
use std::os::fd::AsFd;
use std::time::Duration;

use linkspan_files::client::Watcher;
use linkspan_files::name::{RelPath, escape};
use linkspan_files::{Error, Outcome};
use linkspan_perf::Interrupt;
use linkspan_user::mirror::{Ends, Face, Mirror};
use linkspan_user::transfer::How;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::json;

use super::transfer::{View, exclude};
use super::{connect_for_transfer, state_dir};
use crate::cli::files::{HowArgs, MirrorArgs};
use crate::exit::{Exit, Failure};
use crate::{peer_lines, signals};

/// The user at a terminal.
struct User<'a> {
    how: &'a HowArgs,
    interrupt: Interrupt,
    /// Of the transfer that comes, with what was renamed before it.
    view: Option<View>,
    exit: Exit,
}

impl User<'_> {
    fn view(&mut self) -> Result<View, Failure> {
        self.view.take().map_or_else(|| View::new(self.how), Ok)
    }
}

impl Face for User<'_> {
    type Failure = Failure;

    fn carry(&mut self, once: &mut dyn FnMut(&mut dyn Watcher) -> Result<Outcome, Error>) -> Result<bool, Failure> {
        self.exit = self.view()?.drive(|view| once(view))?;
        Ok(matches!(self.exit, Exit::Ok | Exit::Degraded))
    }

    fn renamed(&mut self, old: &RelPath, new: &RelPath) {
        if let Ok(mut view) = self.view() {
            view.say(&format!("{} has the name {} now", escape(old.bytes()), escape(new.bytes())));
            view.line(new, "renamed", json!({}));
            self.view = Some(view);
        }
    }

    fn say(&mut self, line: &str) {
        peer_lines::say(&format!("lspan: {line}"));
    }

    fn ask(&mut self, what: &str) -> bool {
        asked(what)
    }

    fn stopped(&self) -> bool {
        self.interrupt.raised()
    }

    fn resting(&mut self, _: bool) {}

    fn failed(&mut self, failure: Failure, pause: &mut dyn FnMut() -> Duration) -> Result<(), Failure> {
        match failure.exit {
            Exit::Interrupted => Ok(()),
            Exit::NoPeer => {
                peer_lines::say(&format!("lspan: {}; again in {} s", failure.message, pause().as_secs()));
                Ok(())
            }
            _ => Err(failure),
        }
    }
}

pub(crate) fn run(args: &MirrorArgs) -> Result<Exit, Failure> {
    let ends = Ends::parse(&args.from, &args.to)?;
    let how = How {
        xattrs: args.how.xattrs,
        dry_run: args.how.dry_run,
        no_fsync: args.how.no_fsync,
        exclude: exclude(&args.how)?,
        delete: true,
        max_delete: args.max_delete,
        ..How::default()
    };
    let client = connect_for_transfer(&ends.peer.peer, &args.peer)?;
    let user = User { how: &args.how, interrupt: signals::interrupt()?, view: None, exit: Exit::Ok };
    let mut mirror = Mirror::open(&ends, client, state_dir(), how, args.init, user)?;
    if args.watch {
        let stop = signals::descriptor()?;
        mirror.watch(stop.as_fd())?;
        return Ok(Exit::Interrupted);
    }
    mirror.once()?;
    Ok(mirror.face.exit)
}

/// Whether a user at a terminal says yes.
fn asked(what: &str) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    // A read of standard input is begun anew after a signal.
    let Ok(stop) = signals::descriptor() else { return false };
    eprint!("lspan: {what}\nMove them to the trash? [y/N] ");
    let stdin = std::io::stdin();
    loop {
        let mut ready = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => {}
            Ok(_) if ready[1].revents().is_empty() => break,
            _ => {
                eprintln!("");
                return false;
            }
        }
    }
    let mut line = String::new();
    stdin.lock().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("y")
}
