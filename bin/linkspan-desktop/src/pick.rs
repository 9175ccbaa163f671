//! What a person chooses of this machine.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use gtk::prelude::*;
use gtk::{gio, glib};
use linkspan_view::text::tr;
use linkspan_view::{Input, Pick, user};

use crate::app::App;

/// Paths as D-Bus carries them. Those that are no UTF-8, and files without one (of a phone, or a server), are left out, and it is said.
pub(crate) fn texts(app: &App, paths: impl IntoIterator<Item = Option<PathBuf>>) -> Vec<String> {
    let (mut texts, mut elsewhere) = (Vec::new(), false);
    for path in paths {
        match path.map(|path| path.into_os_string().into_string()) {
            Some(Ok(text)) => texts.push(text),
            None => elsewhere = true,
            Some(Err(_)) => app.say(&tr("A name that is no UTF-8 cannot be sent from here; lspan send can.")),
        }
    }
    if elsewhere {
        app.say(&tr("Files and folders that are not on this machine cannot be taken: copy them here first."));
    }
    texts
}

fn base(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// Files as they were chosen.
fn files(model: &gio::ListModel) -> Vec<Option<PathBuf>> {
    let of = |n| model.item(n).and_downcast::<gio::File>().map(|file| file.path());
    (0..model.n_items()).filter_map(of).collect()
}

/// Opens the dialog, and asks for what follows.
pub(crate) fn pick(app: &Rc<App>, pick: &Pick) {
    let (app, pick) = (app.clone(), pick.clone());
    let title = match &pick {
        Pick::Files(_) => tr("Files to Send"),
        Pick::Folder(_) => tr("Folder to Send"),
        Pick::Mirror(_) => tr("Folder to Keep a Copy of"),
        Pick::Share(_) => tr("Folder to Share"),
    };
    let dialog = gtk::FileDialog::builder().title(title).modal(true).build();
    glib::spawn_future_local(async move {
        let window = app.window();
        let chosen = match &pick {
            Pick::Files(_) => dialog.open_multiple_future(window.as_ref()).await.map(|model| files(&model)),
            _ => dialog.select_folder_future(window.as_ref()).await.map(|file| vec![file.path()]),
        };
        // Who cancels has said so.
        let chosen = texts(&app, chosen.unwrap_or_default());
        let Some(first) = chosen.first().cloned() else { return };
        let name = base(&first).to_owned();
        app.ask(match pick {
            // Of no place yet.
            Pick::Files(to) if to.is_empty() => return app.tell(Input::ToSend(chosen)),
            Pick::Files(to) | Pick::Folder(to) => user::Ask::Send { from: chosen, to, options: String::new() },
            Pick::Mirror(to) => user::Ask::Mirror {
                source: first,
                destination: user::below(&to, &name),
                options: user::MIRROR.to_owned(),
            },
            Pick::Share(writable) => user::Ask::Share { name: app.share_name(&name), directory: first, writable },
        });
    });
}

/// Saves a page under a name that the person may change. `None`: there is none.
pub(crate) fn save(app: &Rc<App>, page: Option<(String, String)>) {
    let Some((name, page)) = page else {
        return app.say(&tr("These results are of another version, and have no report."));
    };
    let app = app.clone();
    let dialog = gtk::FileDialog::builder().title(tr("Report")).initial_name(name).modal(true).build();
    glib::spawn_future_local(async move {
        let window = app.window();
        let Ok(file) = dialog.save_future(window.as_ref()).await else { return };
        let flags = gio::FileCreateFlags::REPLACE_DESTINATION;
        match file.replace_contents_future(page, None, false, flags).await {
            Ok(_) => app.say(&tr("The report is saved")),
            Err((_, error)) => app.say(error.message()),
        }
    });
}
