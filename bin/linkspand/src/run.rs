//! The service while it runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use linkspan_bus::{NAME, Server, system_bus, zbus};
use linkspan_service::events::Event;
use linkspan_service::observe::{Changes, KernelWatch};
use linkspan_service::system::{Places, System};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::cli::Cli;
use crate::config::Config;
use crate::log::{Log, Priority};

/// Between two looks that the kernel causes: a cable that is plugged in says several things at once.
const GAP: Duration = Duration::from_millis(100);

/// Between two tries to reach a bus that has gone.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// How long a bus may take to answer: two of these and half of the unit's WatchdogSec, in which the service tells that it lives, are less than all of it.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// How long it may when the service starts, as with a machine that does. Within systemd's TimeoutStartSec.
pub(crate) const START: Duration = Duration::from_secs(30);

/// Threads for what may block: calls of clients, and looks.
const THREADS: usize = 8;

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(cli: &Cli, config: Config, log: Arc<Log>) -> Result<(), String> {
    // One for each stream of a job that is steered to lent queues.
    linkspan_user::serve::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(THREADS).build();
    let runtime = runtime.map_err(|error| format!("no event loop: {error}"))?;
    let places = Places {
        root: cli.root.clone(),
        allowed: cli.state.join("allowed"),
        statistics: config.statistics().to_owned(),
        devmem: cli.runtime.clone(),
    };
    let lines = log.clone();
    let tell = move |warns: bool, line: &str| {
        lines.line(if warns { Priority::Warning } else { Priority::Info }, line);
    };
    let system = Arc::new(System::new(places, config.events(), Box::new(tell)));
    let service = Service { system, log, server: None, changed: Arc::default() };
    runtime.block_on(service.serve(cli, config))
}

/// What comes of it, unless the bus takes too long.
pub(crate) async fn within<T>(most: Duration, what: impl Future<Output = zbus::Result<T>>) -> zbus::Result<T> {
    timeout(most, what).await.unwrap_or_else(|_| Err(zbus::Error::Failure(format!("no answer within {most:?}"))))
}

/// What the kernel says next. `None`, once: it says nothing any more.
async fn heard(kernel: &mut Option<mpsc::Receiver<Changes>>) -> Option<Changes> {
    let Some(changes) = kernel else { return std::future::pending().await };
    let next = changes.recv().await;
    if next.is_none() {
        *kernel = None;
    }
    next
}

struct Service {
    system: Arc<System>,
    log: Arc<Log>,
    /// `None`: the bus has gone.
    server: Option<Server>,
    /// A client has changed something.
    changed: Arc<Notify>,
}

pub(crate) fn failed(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// Tells the service manager.
pub(crate) fn say_state(state: &[NotifyState<'_>]) {
    // Nobody waits for it where no service manager has started us.
    let _ = sd_notify::notify(state);
}

impl Service {
    async fn serve(mut self, cli: &Cli, mut config: Config) -> Result<(), String> {
        let handler = |kind| signal(kind).map_err(|error| failed("a signal handler", error));
        let (mut end, mut stop) = (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
        let mut reload = handler(SignalKind::hangup())?;
        let mut kernel = Some(self.listen());
        let system = self.system.clone();
        self.blocking(move || system.restore()).await;
        self.look(BTreeSet::new()).await;
        self.read_jobs().await;
        let connected = tokio::select! {
            _ = end.recv() => return Ok(()),
            _ = stop.recv() => return Ok(()),
            connected = self.connect(START) => connected,
        };
        self.server = Some(connected.map_err(|error| failed(&format!("LS3226 no {NAME} on the system bus"), error))?);
        say_state(&[NotifyState::Ready]);
        let watchdog = sd_notify::watchdog_enabled().unwrap_or(Duration::from_secs(3600));
        let mut alive = interval(watchdog / 2);
        let mut jobs = interval(config.interval());
        let mut retry = interval(RETRY);
        for ticks in [&mut alive, &mut jobs, &mut retry] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut next = Instant::now();
        loop {
            let closed = self.server.as_ref().map(Server::closed);
            let lost = closed.is_none();
            tokio::select! {
                // That it lives is told however much there is to do.
                biased;
                _ = end.recv() => break,
                _ = stop.recv() => break,
                _ = alive.tick() => say_state(&[NotifyState::Watchdog]),
                () = async { match closed { Some(closed) => closed.await, None => std::future::pending().await } } => {
                    let text = "the bus has ended the connection; events are kept, and it is tried again";
                    self.log.line(Priority::Warning, text);
                    self.server = None;
                }
                _ = reload.recv() => {
                    self.reload(cli, &mut config, &mut jobs);
                    self.look(BTreeSet::new()).await;
                    self.read_jobs().await;
                }
                _ = retry.tick(), if lost => {
                    let connected = tokio::select! {
                        _ = end.recv() => break,
                        _ = stop.recv() => break,
                        connected = self.connect(ANSWER) => connected,
                    };
                    if let Ok(server) = connected {
                        self.log.line(Priority::Info, "on the bus again");
                        self.server = Some(server);
                    }
                }
                _ = jobs.tick() => self.read_jobs().await,
                () = self.changed.notified() => self.look(BTreeSet::new()).await,
                changes = async { sleep_until(next).await; heard(&mut kernel).await } => {
                    match changes {
                        Some(changes) if changes.any => self.look(changes.removed).await,
                        Some(_) => {}
                        None => {
                            let text = "the kernel's messages are heard no more: cables are looked at on SIGHUP alone";
                            self.log.line(Priority::Warning, text);
                        }
                    }
                    next = Instant::now() + GAP;
                }
            }
        }
        say_state(&[NotifyState::Stopping]);
        let system = self.system.clone();
        self.blocking(move || system.end()).await;
        if let Some(server) = self.server.take() {
            let _ = timeout(ANSWER, server.end()).await;
        }
        Ok(())
    }

    /// What the kernel says, taken by a thread: there is no more than one look's worth of it at a time.
    fn listen(&self) -> mpsc::Receiver<Changes> {
        let (send, receive) = mpsc::channel(1);
        match KernelWatch::open() {
            Ok(watch) => {
                let hear = move || {
                    while watch.wait(60_000).is_ok() && send.blocking_send(watch.take()).is_ok() {}
                };
                let spawned = std::thread::Builder::new().name("kernel-watch".into()).spawn(hear);
                if let Err(error) = spawned {
                    self.log.line(Priority::Warning, &failed("a thread for the kernel's messages", error));
                }
            }
            Err(error) => {
                self.log.line(Priority::Warning, &failed("the kernel's messages cannot be had", error));
            }
        }
        receive
    }

    async fn connect(&self, most: Duration) -> zbus::Result<Server> {
        within(most, async { Server::start(system_bus().await?, &self.system, self.changed.clone()).await }).await
    }

    async fn blocking<T: Default + Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        match spawn_blocking(what).await {
            Ok(done) => done,
            Err(error) => {
                self.log.line(Priority::Error, &failed("LS3227 a part of the service failed", error));
                T::default()
            }
        }
    }

    fn reload(&self, cli: &Cli, config: &mut Config, jobs: &mut tokio::time::Interval) {
        match Config::read(&cli.config) {
            Ok(new) => {
                if new.statistics() != config.statistics() {
                    let text = "statistics has another value: restart the service for it";
                    self.log.line(Priority::Warning, text);
                }
                self.system.keep_events(new.events());
                *jobs = interval(new.interval());
                jobs.set_missed_tick_behavior(MissedTickBehavior::Delay);
                *config = new;
            }
            Err(error) => self.log.line(Priority::Error, &format!("{error}; the configuration is as before")),
        }
    }

    async fn look(&mut self, removed: BTreeSet<String>) {
        let system = self.system.clone();
        let events = self.blocking(move || system.look(&removed)).await;
        if let Some(server) = &mut self.server {
            let (look, hosts) = self.system.seen();
            if let Err(error) = within(ANSWER, server.update(&look, &hosts)).await {
                self.leave(&error).await;
            }
        }
        self.tell(&events).await;
    }

    async fn read_jobs(&mut self) {
        let system = self.system.clone();
        let events = self.blocking(move || system.read_jobs()).await;
        self.tell(&events).await;
    }

    async fn tell(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.log.event(event));
        if let (Some(server), Some(last)) = (&self.server, events.last())
            && let Err(error) = within(ANSWER, server.events_changed(last.time_us)).await
        {
            self.leave(&error).await;
        }
    }

    /// Leaves a bus that does not answer: what is still asked over it would keep the name.
    async fn leave(&mut self, why: &zbus::Error) {
        if let Some(server) = self.server.take() {
            let text = failed("the bus is left", why) + "; events are kept, and it is tried again";
            self.log.line(Priority::Warning, &text);
            let _ = timeout(ANSWER, server.close()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn where_the_kernel_says_nothing_any_more_it_is_told_once_and_waited_for_no_longer() {
        let (send, receive) = mpsc::channel(1);
        let mut kernel = Some(receive);
        let now = |kernel: &mut Option<mpsc::Receiver<Changes>>| {
            pin!(heard(kernel)).poll(&mut Context::from_waker(Waker::noop()))
        };
        send.try_send(Changes { any: true, ..Changes::default() }).unwrap();
        assert!(matches!(now(&mut kernel), Poll::Ready(Some(changes)) if changes.any));
        assert!(now(&mut kernel).is_pending());
        drop(send);
        assert!(matches!(now(&mut kernel), Poll::Ready(None)));
        assert!((0..3).all(|_| now(&mut kernel).is_pending()));
    }
}
