//! `linkspan-tray`: the state of the cables in the tray of a desktop (StatusNotifierItem), and notifications of what is worth one.
#![forbid(unsafe_code)]

mod desktop;

use std::process::ExitCode;

use clap::Parser;
use ksni::menu::{CheckmarkItem, StandardItem};
use ksni::{Category, MenuItem, OfflineReason, Status, ToolTip, Tray, TrayMethods};
use linkspan_view::{Model, Summary, live, text::tr};
use tokio::sync::mpsc;

use desktop::Desktop;

/// linkspan in the tray: cables to other hosts, their speed, and what goes wrong
///
/// Needs the service linkspand, which the bus starts, and no rights of its own. A desktop without a tray is told once; notifications are
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

fn line(label: String) -> MenuItem<Icon> {
    // An underline would be drawn where an access key is marked.
    StandardItem { label: label.replace('_', "__"), enabled: false, ..StandardItem::default() }.into()
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
        let description = self.summary.peers.join("\n");
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
        let mut items = vec![line(self.summary.text.clone())];
        items.extend(self.summary.peers.iter().cloned().map(line));
        items.push(MenuItem::Separator);
        if self.window {
            let activate = Box::new(|icon: &mut Icon| icon.choose(Chosen::Open));
            items.push(StandardItem { label: tr("Open linkspan"), activate, ..StandardItem::default() }.into());
        }
        let activate = Box::new(|icon: &mut Icon| icon.notifies = !icon.notifies);
        let (label, checked) = (tr("Notifications"), self.notifies);
        items.push(CheckmarkItem { label, checked, activate, ..CheckmarkItem::default() }.into());
        let activate = Box::new(|icon: &mut Icon| icon.choose(Chosen::Quit));
        items.push(StandardItem { label: tr("Quit"), activate, ..StandardItem::default() }.into());
        items
    }

    fn watcher_offline(&self, _reason: OfflineReason) -> bool {
        eprintln!(
            "linkspan-tray: this desktop has no tray at the moment (GNOME: the extension AppIndicator); notifications go on"
        );
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("linkspan-tray: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli) -> Result<(), String> {
    let desktop = Desktop::connect().await.map_err(|error| format!("the session bus cannot be reached: {error}"))?;
    if !desktop.alone().await {
        return Err("it runs already".into());
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut model = Model::new(host.trim());
    let (chosen, mut choices) = mpsc::unbounded_channel();
    let window = desktop.has_window().await;
    let icon = Icon { summary: model.summary(), notifies: !cli.quiet, window, chosen };
    let tray = icon.assume_sni_available(true).spawn().await.map_err(|error| format!("no tray: {error}"))?;
    let (_asks, asked) = mpsc::channel(1);
    let (feed, mut inputs) = mpsc::channel(16);
    tokio::spawn(live::follow(None, asked, feed));
    let mut told = false;
    loop {
        tokio::select! {
            input = inputs.recv() => {
                let Some(input) = input else { return Err("the bus cannot be followed".into()) };
                let notices = model.apply(input);
                let summary = model.summary();
                let notifies = tray.update(move |icon| {
                    icon.summary = summary;
                    icon.notifies
                });
                let notifies = notifies.await.unwrap_or(false);
                for notice in notices.iter().filter(|_| notifies) {
                    if let Err(error) = desktop.notify(notice).await && !std::mem::replace(&mut told, true) {
                        eprintln!("linkspan-tray: no notifications: {error}");
                    }
                }
            }
            chosen = choices.recv() => match chosen {
                Some(Chosen::Open) => {
                    if let Err(error) = desktop.open_window().await {
                        eprintln!("linkspan-tray: the window cannot be opened: {error}");
                    }
                }
                Some(Chosen::Quit) | None => {
                    tray.shutdown().await;
                    return Ok(());
                }
            },
        }
    }
}
