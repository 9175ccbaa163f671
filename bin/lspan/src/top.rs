//! `lspan top`: what processes move at the moment, on this host or on several.

mod model;
mod source;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::cli::TopArgs;
use crate::exit::{Exit, Failure};
use crate::signals;
use model::Model;
use source::Sources;

/// How long a key is waited for before the sources are looked at again.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &TopArgs) -> Result<Exit, Failure> {
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        let message = "LS0744 lspan top needs a terminal; for scripts there is `lspan stats --json --watch`";
        return Err(Failure::new(Exit::Usage, message));
    }
    let interrupt = signals::interrupt()?;
    let mut sources = Sources::start(args)?;
    let mut model = Model::new(sources.remote());
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let failed = |error| Failure::system("the terminal", &error);
    let mut terminal = ratatui::try_init().map_err(|error| {
        // It may have been half of the way.
        ratatui::restore();
        failed(error)
    })?;
    let shown = loop {
        for sample in sources.news() {
            model.feed(sample, Instant::now());
        }
        if let Err(error) = terminal.draw(|frame| view::draw(frame, &model, colour)) {
            break Err(failed(error));
        }
        match event::poll(LOOK).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) }) {
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release && !pressed(&mut model, key) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(failed(error)),
        }
        if interrupt.raised() {
            break Ok(());
        }
    };
    ratatui::restore();
    shown.map(|()| Exit::Ok)
}

/// What a key does; false: end.
fn pressed(model: &mut Model, key: KeyEvent) -> bool {
    let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    if ctrl && key.code == KeyCode::Char('c') {
        return false;
    }
    if model.typing {
        match key.code {
            KeyCode::Enter => model.typing = false,
            KeyCode::Esc => {
                model.typing = false;
                model.filter.clear();
            }
            KeyCode::Backspace => drop(model.filter.pop()),
            KeyCode::Char(c) if !ctrl => model.filter.push(c),
            _ => {}
        }
        return true;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('/') => model.typing = true,
        KeyCode::Char('f' | ' ') => model.frozen = !model.frozen,
        KeyCode::Char('s') | KeyCode::Right => model.sort(1),
        KeyCode::Char('S') | KeyCode::Left => model.sort(-1),
        KeyCode::Char('r') => model.reverse = !model.reverse,
        KeyCode::Char('h' | '?') => model.help = !model.help,
        KeyCode::Down | KeyCode::Char('j') => model.go(1),
        KeyCode::Up | KeyCode::Char('k') => model.go(-1),
        KeyCode::PageDown => model.go(10),
        KeyCode::PageUp => model.go(-10),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests;
