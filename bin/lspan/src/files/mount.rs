//! `lspan mount`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use linkspan_user::Dialer;
use linkspan_user::mount::{How, detach, detach_dead, open};
use linkspan_user::place::Place;
use sd_notify::NotifyState;

use super::reach;
use crate::cli::files::MountArgs;
use crate::exit::{Exit, Failure};
use crate::{peer_lines, signals};

pub(crate) fn run(args: &MountArgs) -> Result<Exit, Failure> {
    let place = Place::whole(&args.from)?;
    let (context, find) = reach(&place.peer, &args.peer)?;
    // Before anything is mounted, so that no signal is missed.
    let stop = signals::descriptor()?;
    let interrupt = signals::interrupt()?;
    let asked = interrupt.clone();
    let way = Dialer::new(context, find);
    let how = How { data: args.timeout, writable: args.rw };
    detach_dead(&args.dir)?;
    let mut mounted = open(place, &args.from, &args.dir, how, &way, move || asked.raised())?;
    let can = if args.rw { "read and write" } else { "read-only" };
    eprintln!("lspan: {} is mounted at {}, {can}, until Ctrl-C or umount", args.from, args.dir.display());
    let (mut unmounter, at) = (mounted.unmounter(), args.dir.clone());
    let waiting = move || {
        let mut stop = [rustix::event::PollFd::new(&stop, rustix::event::PollFlags::IN)];
        while rustix::event::poll(&mut stop, None).is_err() {}
        // One that is in use is taken from its directory all the same, fusermount3 does so by itself: whoever is in it gets errors then.
        let gone = unmounter.unmount().or_else(|busy| detach(&at).map_err(|why| format!("{busy}; {}", why.text())));
        let exit = match gone {
            Ok(()) => Exit::Interrupted,
            Err(why) => {
                peer_lines::tell(&format!("lspan: cannot unmount: {why}"));
                Exit::Failed
            }
        };
        std::process::exit(exit as i32);
    };
    thread::Builder::new()
        .name("unmount".into())
        .spawn(waiting)
        .map_err(|error| Failure::system("a thread", &error))?;
    watchdog(&args.dir).map_err(|error| Failure::system("a thread", &error))?;
    mounted.run().map_err(|error| Failure::system("/dev/fuse", &error))?;
    Ok(if interrupt.raised() { Exit::Interrupted } else { Exit::Ok })
}

/// Tells the service manager that it is mounted, and where that one watches (`WatchdogSec=`) that requests are answered: before each
/// word one is. With the peer gone that takes as long as names may.
fn watchdog(dir: &Path) -> io::Result<()> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        return Ok(());
    };
    let dir = dir.to_owned();
    let watch = move || {
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        loop {
            // An error is an answer, too. Another process asks: a thread of this one that waits for its own process's answer cannot be
            // killed, and keeps /dev/fuse and with it the mount for good.
            let mut ask = Command::new("stat");
            let _ = ask
                .args(["-f", "--"])
                .arg(&dir)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            thread::sleep(limit / 3);
        }
    };
    thread::Builder::new().name("watchdog".into()).spawn(watch).map(drop)
}
