//! `linkspan-desktop`: the window. It shows what [`linkspan_view`] says, and tells it what a person does; the services on D-Bus do the
//! rest.
#![forbid(unsafe_code)]

mod app;
mod page;
mod pick;
mod plot;
mod row;
mod services;
mod window;

use gtk::glib;

/// The name on the session bus, of the desktop file, the icon and the metainfo.
const ID: &str = "org.linkspan.Desktop";

fn main() -> glib::ExitCode {
    // The locale is that of the session once GTK has begun, which sets it.
    linkspan_view::text::set_catalogues("linkspan-desktop");
    app::run()
}
