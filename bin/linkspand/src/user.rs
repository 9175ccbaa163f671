//! The service of one user while it runs.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use linkspan_bus::user::{NAME, User, UserServer};
use linkspan_bus::zbus;
use linkspan_user::mirrors::{self, Mirrors};
use linkspan_user::shares::{self, Shares};
use linkspan_user::task::{Say, Tasks};
use linkspan_user::{Error, keys, place};
use rustix::io::{Errno, read};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::log::{Log, Priority};
use crate::run::{ANSWER, RETRY, START, failed, say_state, within};

/// Threads for calls of clients that may block, of which 32 may be under way, and for what the service does by itself.
const THREADS: usize = 32 + 8;

/// How often it is tried again to serve shares that could not be served.
const SERVE: Duration = Duration::from_secs(5);

/// How long a thread that waits for a silent peer may keep the process.
const LEAVE: Duration = Duration::from_secs(2);

/// How long tasks may take to end. Within the unit's TimeoutStopSec.
const FAREWELL: Duration = Duration::from_secs(20);

/// How long a bus may be away until the session is over.
const AWAY: Duration = Duration::from_secs(60);

/// Runs until SIGTERM or SIGINT, or the end of the session. `as_root`: shares are served also where this user is root.
pub(crate) fn run(as_root: bool, log: Arc<Log>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(THREADS).build();
    let runtime = runtime.map_err(|error| format!("no event loop: {error}"))?;
    let changed = Arc::new(Notify::new());
    let (user, _lock) = open(as_root, log.clone(), changed.clone())?;
    let ended = runtime.block_on(serve(&Arc::new(user), &log, &changed));
    runtime.shutdown_timeout(LEAVE);
    ended
}

fn open(as_root: bool, log: Arc<Log>, changed: Arc<Notify>) -> Result<(User, File), String> {
    let text = |error: Error| error.text();
    let say: Say = Arc::new(move |line: &str| log.line(Priority::Warning, line));
    let lock = place::lock_service(&say).map_err(text)?;
    let changed: Arc<dyn Fn() + Send + Sync> = Arc::new(move || changed.notify_one());
    if let Err(error) = watch(changed.clone()) {
        say(&format!("keys that other programs change are not noticed: {error}"));
    }
    let told = changed.clone();
    let tasks =
        Tasks::new(place::state_dir("service").map_err(text)?.join("history"), say.clone(), Box::new(move || told()));
    let shares = Shares::new(shares::file().map_err(text)?, as_root, say.clone(), changed.clone());
    let mirrors = Mirrors::new(mirrors::file().map_err(text)?, &say);
    Ok((User { tasks: Arc::new(tasks), mirrors, shares, say, changed }, lock))
}

async fn connect(user: &Arc<User>, most: Duration) -> zbus::Result<UserServer> {
    let uid = rustix::process::geteuid().as_raw();
    within(most, async { UserServer::start(zbus::connection::Builder::session()?, user, uid).await }).await
}

/// Has `changed` called for keys that other programs change.
fn watch(changed: Arc<dyn Fn() + Send + Sync>) -> Result<(), String> {
    let queue = keys::watch().map_err(|error| error.text())?;
    let hear = move || {
        // Which one it was is not asked.
        while !matches!(read(&queue, &mut [0; 4096]), Err(error) if error != Errno::INTR) {
            changed();
        }
    };
    let spawned = std::thread::Builder::new().name("keys-watch".into()).spawn(hear);
    spawned.map(drop).map_err(|error| failed("a thread", error))
}

async fn serve(user: &Arc<User>, log: &Log, changed: &Notify) -> Result<(), String> {
    let handler = |kind| signal(kind).map_err(|error| failed("a signal handler", error));
    let (mut end, mut stop) = (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
    let connected = tokio::select! {
        _ = end.recv() => return Ok(()),
        _ = stop.recv() => return Ok(()),
        connected = connect(user, START) => connected,
    };
    let mut server = Some(connected.map_err(|error| failed(&format!("LS3235 no {NAME} on the session bus"), error))?);
    say_state(&[NotifyState::Ready]);
    let watchdog = sd_notify::watchdog_enabled().unwrap_or(Duration::from_secs(3600));
    let (mut alive, mut retry, mut serve) = (interval(watchdog / 2), interval(RETRY), interval(SERVE));
    for ticks in [&mut alive, &mut retry, &mut serve] {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut lost_at = Instant::now();
    loop {
        let closed = server.as_ref().map(UserServer::closed);
        let lost = closed.is_none();
        tokio::select! {
            // That it lives is told however much there is to do.
            biased;
            _ = end.recv() => break,
            _ = stop.recv() => break,
            _ = alive.tick() => say_state(&[NotifyState::Watchdog]),
            () = async { match closed { Some(closed) => closed.await, None => std::future::pending().await } } => {
                log.line(Priority::Warning, "the bus has ended the connection; tasks go on, and it is tried again");
                (server, lost_at) = (None, Instant::now());
            }
            _ = serve.tick() => {
                if !user.shares.status().error.is_empty() {
                    let own = user.clone();
                    drop(spawn_blocking(move || {
                        if own.shares.retry() {
                            (own.changed)();
                        }
                    }));
                }
            }
            () = changed.notified() => {
                if let Some(bus) = &server
                    && let Err(error) = within(ANSWER, bus.update()).await
                    && let Some(bus) = server.take()
                {
                    let text = failed("the bus is left", error) + "; tasks go on, and it is tried again";
                    log.line(Priority::Warning, &text);
                    lost_at = Instant::now();
                    // What is still asked over it would keep the name.
                    let _ = timeout(ANSWER, bus.close()).await;
                }
            }
            _ = retry.tick(), if lost => {
                let connected = tokio::select! {
                    _ = end.recv() => break,
                    _ = stop.recv() => break,
                    connected = connect(user, ANSWER) => connected,
                };
                if let Ok(new) = connected {
                    log.line(Priority::Info, "on the bus again");
                    server = Some(new);
                } else if lost_at.elapsed() > AWAY {
                    log.line(Priority::Info, "the bus has not come again: the session is over");
                    break;
                }
            }
        }
    }
    say_state(&[NotifyState::Stopping]);
    let own = user.clone();
    // At once: one after the other they may take longer than systemd waits.
    let ending = move || {
        std::thread::scope(|both| {
            both.spawn(|| own.shares.end());
            own.tasks.end(FAREWELL);
        });
    };
    let _ = spawn_blocking(ending).await;
    if let Some(server) = server {
        let _ = timeout(ANSWER, server.end()).await;
    }
    Ok(())
}
