//! The language of the person.

use std::path::PathBuf;

use gettextrs::{bind_textdomain_codeset, bindtextdomain, gettext, textdomain};
use linkspan_view::text;

/// Name of the catalogues.
const DOMAIN: &str = "linkspan-desktop";

/// Where catalogues lie: beside the program, as in `/usr/bin` and `/usr/share/locale`.
fn catalogues() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("share/locale"))
}

/// Texts are in English where something of this fails. The locale is that of the session once GTK has begun, which sets it.
pub(crate) fn set_up() {
    if let Some(folder) = catalogues() {
        let _ = bindtextdomain(DOMAIN, folder);
    }
    let _ = bind_textdomain_codeset(DOMAIN, "UTF-8");
    if textdomain(DOMAIN).is_ok() {
        // Of the empty text a catalogue has its own head.
        text::translate_with(|text| if text.is_empty() { String::new() } else { gettext(text) });
    }
}
