//! The program: one for each session, a model, and the window on it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use adw::prelude::*;
use gtk::{gdk, gio, glib};
use linkspan_view::text::tr;
use linkspan_view::{Action, Input, Model, Pages, Pick, doctor, live, user};

use crate::row::Hands;
use crate::services::Services;
use crate::window::{PAGES, Window};
use crate::{ID, pick};

/// How often texts such as "2 min ago" are made anew, seconds.
const CLOCK_S: u32 = 60;

/// What the program has while it runs.
pub(crate) struct App {
    app: adw::Application,
    model: RefCell<Model>,
    services: Services,
    window: RefCell<Option<Window>>,
    shown: RefCell<Option<Pages>>,
    /// What is new is shown once the present events are handled.
    due: Cell<bool>,
    own: Weak<App>,
}

impl App {
    fn new(app: &adw::Application) -> std::io::Result<Rc<App>> {
        let (services, mut inputs) = Services::follow()?;
        let model = RefCell::new(Model::new(&glib::host_name()));
        let new = Rc::new_cyclic(|own: &Weak<App>| App {
            app: app.clone(),
            model,
            services,
            window: RefCell::default(),
            shown: RefCell::default(),
            due: Cell::default(),
            own: own.clone(),
        });
        let weak = new.own.clone();
        glib::spawn_future_local(async move {
            while let Some((input, app)) = inputs.recv().await.zip(weak.upgrade()) {
                app.tell(input);
            }
        });
        let weak = new.own.clone();
        glib::timeout_add_seconds_local(CLOCK_S, move || match weak.upgrade() {
            Some(app) => {
                app.refresh();
                glib::ControlFlow::Continue
            }
            None => glib::ControlFlow::Break,
        });
        Ok(new)
    }

    /// Takes it in, and shows what comes of it.
    pub(crate) fn tell(&self, input: Input) {
        // Notifications are the tray's.
        let _ = self.model.borrow_mut().apply(input);
        if !self.due.replace(true) {
            let weak = self.own.clone();
            glib::idle_add_local_once(move || weak.upgrade().iter().for_each(|app| app.refresh()));
        }
    }

    fn refresh(&self) {
        self.due.set(false);
        let pages = self.model.borrow().pages(live::now_us());
        let mut shown = self.shown.borrow_mut();
        if let Some(window) = self.window.borrow_mut().as_mut().filter(|_| shown.as_ref() != Some(&pages)) {
            window.show(shown.as_ref(), &pages);
            *shown = Some(pages);
        }
    }

    /// Asks the user's service.
    pub(crate) fn ask(&self, ask: user::Ask) {
        self.services.user(ask);
    }

    /// What a folder may be called as a share.
    pub(crate) fn share_name(&self, folder: &str) -> String {
        self.model.borrow().share_name(folder)
    }

    /// Says something that goes away by itself.
    pub(crate) fn say(&self, text: &str) {
        self.window.borrow().iter().for_each(|window| window.say(text));
    }

    /// For dialogs.
    pub(crate) fn window(&self) -> Option<adw::ApplicationWindow> {
        self.window.borrow().as_ref().map(|window| window.window.clone())
    }

    fn act(self: &Rc<App>, action: &Action) {
        match action {
            Action::Allow(uuid) => self.services.system(live::Ask::Allow(uuid.clone())),
            Action::Forget(uuid) => self.services.system(live::Ask::Forget(uuid.clone())),
            Action::Copy(text) => {
                if let Some(display) = gdk::Display::default() {
                    display.clipboard().set_text(text);
                    self.say(&tr("Copied"));
                }
            }
            Action::Examine => self.examine(),
            Action::Retry => self.retry(),
            Action::User(ask) => {
                // A switch has turned itself: it is set again, also where what comes of it changes no page.
                self.shown.replace(None);
                self.ask(ask.clone());
            }
            Action::Pick(what) => pick::pick(self, what),
            Action::Get(place) => {
                let folder = glib::user_special_dir(glib::UserDirectory::Downloads).unwrap_or_else(glib::home_dir);
                // With the slash it is a directory, also where it is not there yet.
                let to = format!("{}/", folder.to_string_lossy());
                self.ask(user::Ask::Get { from: vec![place.clone()], to, options: String::new() });
            }
            Action::SetAside => self.tell(Input::ToSend(Vec::new())),
            Action::Report(id) => pick::save(self, self.model.borrow().report(id)),
            Action::Compared(pairing) => self.tell(Input::Compared(pairing.clone())),
        }
    }

    fn retry(&self) {
        self.services.system(live::Ask::Retry);
        self.services.user(user::Ask::Retry);
    }

    fn examine(self: &Rc<App>) {
        self.tell(Input::Examining);
        let app = self.clone();
        glib::spawn_future_local(async move {
            let said = gio::spawn_blocking(doctor).await.unwrap_or_else(|_| Err("lspan doctor".into()));
            app.tell(Input::Examined(said));
        });
    }

    /// To the place that is looked at, or to one that is still to be chosen.
    fn send(&self, files: Vec<String>) {
        let to = self.model.borrow().target();
        match to {
            _ if files.is_empty() => {}
            Some(to) => self.ask(user::Ask::Send { from: files, to, options: String::new() }),
            None => self.tell(Input::ToSend(files)),
        }
    }

    fn present(self: &Rc<App>) {
        let there = self.window.borrow().as_ref().map(|window| window.window.clone());
        let window = there.unwrap_or_else(|| self.open_window());
        window.present();
    }

    fn open_window(self: &Rc<App>) -> adw::ApplicationWindow {
        let (act, tell) = (self.own.clone(), self.own.clone());
        let hands = Rc::new(Hands {
            act: Box::new(move |action| act.upgrade().iter().for_each(|app| app.act(action))),
            tell: Box::new(move |input| {
                if let Some(app) = tell.upgrade() {
                    app.tell(input);
                }
            }),
        });
        let turned = self.own.clone();
        let turned = move |name: &str| {
            // Statistics are read for those who look at them.
            let looked_at = live::Ask::Statistics(name == "jobs");
            turned.upgrade().iter().for_each(|app| app.services.system(looked_at.clone()));
        };
        let window = Window::new(&self.app, &hands, turned);
        let drop = gtk::DropTarget::new(gdk::FileList::static_type(), gdk::DragAction::COPY);
        let app = self.own.clone();
        drop.connect_drop(move |_, value, _, _| {
            let (Some(app), Ok(list)) = (app.upgrade(), value.get::<gdk::FileList>()) else { return false };
            let files = pick::texts(&app, list.files().iter().map(|file| file.path()));
            app.turn("files");
            app.send(files);
            true
        });
        window.window.add_controller(drop);
        let made = window.window.clone();
        self.window.replace(Some(window));
        self.shown.replace(None);
        self.refresh();
        made
    }

    fn turn(&self, name: &str) {
        self.window.borrow().iter().for_each(|window| window.turn(name));
    }

    fn about(&self) {
        let about = adw::AboutDialog::builder()
            .application_name("linkspan")
            .application_icon(ID)
            .version(env!("CARGO_PKG_VERSION"))
            .developer_name("The linkspan authors")
            .license_type(gtk::License::MitX11)
            .website("https://github.com/linkspan/linkspan")
            .comments(tr("The memories of GPUs and hosts, over any cable"))
            .build();
        about.present(self.window().as_ref());
    }

    fn actions(self: &Rc<App>) {
        let add = |name: &str, keys: &[&str], act: fn(&Rc<App>)| {
            let (action, app) = (gio::SimpleAction::new(name, None), self.own.clone());
            action.connect_activate(move |_, _| app.upgrade().iter().for_each(act));
            self.app.add_action(&action);
            self.app.set_accels_for_action(&format!("app.{name}"), keys);
        };
        add("quit", &["<Control>q"], |app| app.app.quit());
        add("about", &[], |app| app.about());
        add("retry", &["F5"], |app| app.retry());
        add("send", &["<Control>o"], |app| {
            app.present();
            app.turn("files");
            let to = app.model.borrow().target();
            pick::pick(app, &Pick::Files(to.unwrap_or_default()));
        });
        let (action, app) = (gio::SimpleAction::new("page", Some(glib::VariantTy::STRING)), self.own.clone());
        action.connect_activate(move |_, name| {
            let name = name.and_then(glib::Variant::str).unwrap_or_default();
            app.upgrade().iter().for_each(|app| app.turn(name));
        });
        self.app.add_action(&action);
        for (n, (name, _)) in PAGES.iter().enumerate() {
            self.app.set_accels_for_action(&format!("app.page::{name}"), &[&format!("<Alt>{}", n + 1)]);
        }
        self.app.set_accels_for_action("window.close", &["<Control>w"]);
    }
}

/// Runs until the window is closed.
pub(crate) fn run() -> glib::ExitCode {
    let app = adw::Application::builder().application_id(ID).flags(gio::ApplicationFlags::HANDLES_OPEN).build();
    let state: Rc<RefCell<Option<Rc<App>>>> = Rc::default();
    let own = state.clone();
    app.connect_startup(move |app| {
        gtk::Window::set_default_icon_name(ID);
        match App::new(app) {
            Ok(new) => {
                new.actions();
                own.replace(Some(new));
            }
            Err(error) => {
                eprintln!("linkspan-desktop: the services cannot be followed: {error}");
                app.quit();
            }
        }
    });
    let own = state.clone();
    app.connect_activate(move |_| own.borrow().iter().for_each(App::present));
    let own = state.clone();
    app.connect_open(move |_, files, _| {
        for app in own.borrow().iter() {
            app.present();
            app.turn("files");
            let files = pick::texts(app, files.iter().map(|file| file.path()));
            // None would put aside those that wait already.
            if !files.is_empty() {
                app.tell(Input::ToSend(files));
            }
        }
    });
    // The services are followed no longer than the program runs.
    app.connect_shutdown(move |_| drop(state.take()));
    app.run()
}
