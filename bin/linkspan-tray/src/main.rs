//! `linkspan-tray`: the state of the cables, transfers and tests in the tray of a desktop (StatusNotifierItem), and notifications of what is
//! worth one.
#![deny(unsafe_code)]

mod desktop;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gettextrs::{LocaleCategory, setlocale};
use ksni::menu::{CheckmarkItem, StandardItem, SubMenu};
use ksni::{Category, MenuItem, OfflineReason, Status, ToolTip, Tray, TrayMethods};
use linkspan_bus::zbus;
use linkspan_view::text::{set_catalogues, tr};
use linkspan_view::{Action, Button, Model, Summary, live, user};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use desktop::Desktop;

/// linkspan in the tray: cables to other hosts, their speed, transfers, tests, and what goes wrong
///
/// Needs the services of linkspand, which the buses start, and no rights of its own. A desktop without a tray is told once; notifications are
/// sent all the same.
#[derive(Debug, Parser)]
#[command(name = "linkspan-tray", version)]
struct Cli {
    /// Send no notifications; the menu turns them on and off as well
    #[arg(long)]
    quiet: bool,
}

/// What its menu asks for.
#[derive(Debug)]
enum Chosen {
    Open,
    Send,
    Ask(user::Ask),
    Mirrors,
    Quit,
}

#[derive(Debug)]
struct Icon {
    summary: Summary,
    notifies: bool,
    /// Whether the window is installed.
    window: bool,
    chosen: mpsc::UnboundedSender<Chosen>,
}

impl Icon {
    fn choose(&self, what: Chosen) {
        // The receiver lives as long as the program.
        let _ = self.chosen.send(what);
    }
}

/// An underline would be drawn where an access key is marked.
fn plain(label: &str) -> String {
    label.replace('_', "__")
}

fn line(label: &str) -> MenuItem<Icon> {
    StandardItem { label: plain(label), enabled: false, ..StandardItem::default() }.into()
}

fn item(label: String, enabled: bool, activate: impl Fn(&mut Icon) + Send + 'static) -> MenuItem<Icon> {
    StandardItem { label, enabled, activate: Box::new(activate), ..StandardItem::default() }.into()
}

fn mark(label: String, checked: bool, activate: impl Fn(&mut Icon) + Send + 'static) -> MenuItem<Icon> {
    CheckmarkItem { label, checked, activate: Box::new(activate), ..CheckmarkItem::default() }.into()
}

fn test(button: &Button) -> Option<MenuItem<Icon>> {
    let Action::User(ask) = button.action.clone() else { return None };
    Some(item(plain(&button.label), button.works, move |icon| icon.choose(Chosen::Ask(ask.clone()))))
}

impl Tray for Icon {
    fn id(&self) -> String {
        "org.linkspan.Tray".into()
    }

    fn title(&self) -> String {
        "linkspan".into()
    }

    fn category(&self) -> Category {
        Category::Hardware
    }

    fn status(&self) -> Status {
        match self.summary.icon {
            "network-error-symbolic" => Status::NeedsAttention,
            _ => Status::Active,
        }
    }

    fn icon_name(&self) -> String {
        self.summary.icon.into()
    }

    fn attention_icon_name(&self) -> String {
        self.summary.icon.into()
    }

    fn tool_tip(&self) -> ToolTip {
        let lines: Vec<&str> = self.summary.peers.iter().chain(&self.summary.tasks).map(String::as_str).collect();
        let description = lines.join("\n");
        // The description may have markup, and names are the word of strangers.
        let description = description.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        ToolTip { title: self.summary.text.clone(), description, ..ToolTip::default() }
    }

    fn activate(&mut self, _x: i32, _y: i32) {
        if self.window {
            self.choose(Chosen::Open);
        }
    }

    fn menu(&self) -> Vec<MenuItem<Self>> {
        let Summary { text, peers, tasks, tests, paused, .. } = &self.summary;
        let mut items: Vec<MenuItem<Icon>> =
            [text].into_iter().chain(peers).chain(tasks).map(|text| line(text)).collect();
        items.push(MenuItem::Separator);
        if self.window {
            items.push(item(tr("Open linkspan"), true, |icon| icon.choose(Chosen::Open)));
            items.push(item(tr("Send Files…"), true, |icon| icon.choose(Chosen::Send)));
        }
        if !tests.is_empty() {
            let submenu = tests.iter().filter_map(test).collect();
            items.push(SubMenu { label: tr("Measure Bandwidth"), submenu, ..SubMenu::default() }.into());
        }
        if let Some(paused) = paused {
            items.push(mark(tr("Pause Mirrors"), *paused, |icon| icon.choose(Chosen::Mirrors)));
        }
        items.push(mark(tr("Notifications"), self.notifies, |icon| icon.notifies = !icon.notifies));
        items.push(item(tr("Quit"), true, |icon| icon.choose(Chosen::Quit)));
        items
    }

    fn watcher_offline(&self, _reason: OfflineReason) -> bool {
        eprintln!(
            "linkspan-tray: this desktop has no tray at the moment (GNOME: the extension AppIndicator); notifications go on"
        );
        true
    }
}

/// Texts are in the language of the session from here on.
#[allow(unsafe_code, reason = "no safe crate sets the locale")]
fn set_language() {
    // SAFETY: there is no other thread yet, which could read the locale meanwhile.
    unsafe { setlocale(LocaleCategory::LcAll, "") };
    set_catalogues("linkspan-tray");
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    set_language();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended =
        runtime.map_err(|error| format!("no event loop: {error}")).and_then(|runtime| runtime.block_on(stay(&cli)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("linkspan-tray: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Most that is said, asked or told before it is taken in: as many tasks as the user's service has.
const QUEUE: usize = 64;

/// How long the session bus may be away until the session is over.
const AWAY: Duration = Duration::from_secs(60);

/// Between two tries to reach it.
const AGAIN: Duration = Duration::from_secs(1);

/// Until it is to quit, or the session is over.
async fn stay(cli: &Cli) -> Result<(), String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (mut model, mut notifies) = (Model::new(host.trim()), !cli.quiet);
    let mut lost_at: Option<Instant> = None;
    loop {
        match run(&mut model, &mut notifies).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                eprintln!("linkspan-tray: the session bus has ended the connection; it is tried again");
                lost_at = Some(Instant::now());
            }
            Err(_) if lost_at.is_some_and(|at| at.elapsed() < AWAY) => {}
            Err(why) => return Err(why),
        }
        sleep(AGAIN).await;
    }
}

/// Whether it is to quit; else the bus has gone.
async fn run(model: &mut Model, notifies: &mut bool) -> Result<bool, String> {
    let desktop = Desktop::connect().await.map_err(|error| format!("the session bus cannot be reached: {error}"))?;
    if !desktop.alone().await {
        return Err("it runs already".into());
    }
    let (chosen, mut choices) = mpsc::unbounded_channel();
    let window = desktop.has_window().await;
    let icon = Icon { summary: model.summary(), notifies: *notifies, window, chosen };
    let tray = icon.assume_sni_available(true).spawn().await.map_err(|error| format!("no tray: {error}"))?;
    let (feed, mut inputs) = mpsc::channel(QUEUE);
    // Nothing is asked of the machine's service.
    let (_asks, asked) = mpsc::channel(1);
    tokio::spawn(live::follow(None, asked, feed.clone()));
    let (user, asked) = mpsc::channel(QUEUE);
    tokio::spawn(user::live::follow(None, asked, feed));
    // A portal may take its time; the menu does not wait for it.
    let (notices, mut told) = mpsc::channel(QUEUE);
    let portal = desktop.clone();
    tokio::spawn(async move {
        let mut said = false;
        while let Some(notice) = told.recv().await {
            if let Err(error) = portal.notify(&notice).await
                && !std::mem::replace(&mut said, true)
            {
                eprintln!("linkspan-tray: no notifications: {error}");
            }
        }
    });
    loop {
        tokio::select! {
            input = inputs.recv() => {
                let Some(input) = input else { return Err("the buses cannot be followed".into()) };
                let news = model.apply(input);
                let notifies = show(&tray, model).await;
                // What finds no place is dropped: nobody reads so many.
                news.into_iter().filter(|_| notifies).for_each(|notice| drop(notices.try_send(notice)));
            }
            chosen = choices.recv() => match chosen {
                Some(Chosen::Open) => said(desktop.open_window().await),
                Some(Chosen::Send) => said(desktop.send_files().await),
                // What finds no place is dropped: a person chooses again.
                Some(Chosen::Ask(ask)) => drop(user.try_send(ask)),
                Some(Chosen::Mirrors) => {
                    model.pause_mirrors().into_iter().for_each(|ask| drop(user.try_send(ask)));
                    show(&tray, model).await;
                }
                Some(Chosen::Quit) | None => {
                    tray.shutdown().await;
                    return Ok(true);
                }
            },
            () = desktop.closed() => {
                *notifies = tray.update(|icon| icon.notifies).await.unwrap_or(*notifies);
                tray.shutdown().await;
                return Ok(false);
            }
        }
    }
}

fn said(of_window: zbus::Result<()>) {
    if let Err(error) = of_window {
        eprintln!("linkspan-tray: the window cannot be opened: {error}");
    }
}

/// Answers whether notifications are wanted.
async fn show(tray: &ksni::Handle<Icon>, model: &Model) -> bool {
    let summary = model.summary();
    let update = move |icon: &mut Icon| {
        icon.summary = summary;
        icon.notifies
    };
    tray.update(update).await.unwrap_or(false)
}
