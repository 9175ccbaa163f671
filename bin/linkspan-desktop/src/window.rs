//! The window: a list of pages beside the page, one below the other where it is narrow.

use std::rc::Rc;

use adw::prelude::*;
use gtk::gio;
use linkspan_view::text::tr;
use linkspan_view::{Page, Pages};

use crate::page::PageView;
use crate::row::Hands;

/// The pages, in the order of the list: their name, icon and title.
pub(crate) const PAGES: [(&str, &str); 6] = [
    ("overview", "network-wired-symbolic"),
    ("tests", "power-profile-performance-symbolic"),
    ("jobs", "application-x-executable-symbolic"),
    ("files", "folder-symbolic"),
    ("findings", "dialog-information-symbolic"),
    ("events", "document-open-recent-symbolic"),
];

fn title(name: &str) -> String {
    match name {
        "overview" => tr("Overview"),
        "tests" => tr("Tests"),
        "jobs" => tr("Jobs"),
        "files" => tr("Files"),
        "findings" => tr("Findings"),
        _ => tr("Events"),
    }
}

/// From which width on the list of pages is beside the page, in pixels at the usual size of text.
const NARROW: f64 = 620.0;

fn of<'a>(pages: &'a Pages, name: &str) -> &'a Page {
    match name {
        "overview" => &pages.overview,
        "tests" => &pages.tests,
        "jobs" => &pages.jobs,
        "files" => &pages.files,
        "findings" => &pages.findings,
        _ => &pages.events,
    }
}

/// Its widgets.
pub(crate) struct Window {
    pub(crate) window: adw::ApplicationWindow,
    toasts: adw::ToastOverlay,
    banner: adw::Banner,
    sidebar: gtk::ListBox,
    pages: Vec<PageView>,
}

fn main_menu() -> gio::Menu {
    let menu = gio::Menu::new();
    menu.append(Some(&tr("Send Files…")), Some("app.send"));
    menu.append(Some(&tr("Ask the Services Again")), Some("app.retry"));
    menu.append(Some(&tr("About linkspan")), Some("app.about"));
    menu.append(Some(&tr("Quit")), Some("app.quit"));
    menu
}

fn side_row(name: &str, icon: &str) -> gtk::ListBoxRow {
    let line = gtk::Box::builder().spacing(12).build();
    line.append(&gtk::Image::builder().icon_name(icon).accessible_role(gtk::AccessibleRole::Presentation).build());
    let label = gtk::Label::builder().label(title(name)).xalign(0.0).build();
    line.append(&label);
    let row = gtk::ListBoxRow::builder().child(&line).build();
    row.update_property(&[gtk::accessible::Property::Label(&title(name))]);
    row
}

impl Window {
    /// Shown when it is presented. `turned`: a page is looked at.
    pub(crate) fn new(app: &adw::Application, hands: &Rc<Hands>, turned: impl Fn(&str) + 'static) -> Window {
        let stack = gtk::Stack::builder().transition_type(gtk::StackTransitionType::Crossfade).build();
        let pages: Vec<PageView> = PAGES.iter().map(|_| PageView::new(hands)).collect();
        for ((name, _), page) in PAGES.iter().zip(&pages) {
            stack.add_named(&page.root, Some(name));
        }

        let sidebar = gtk::ListBox::builder().css_classes(["navigation-sidebar"]).build();
        PAGES.iter().for_each(|(name, icon)| sidebar.append(&side_row(name, icon)));
        sidebar.update_property(&[gtk::accessible::Property::Label(&tr("Pages"))]);
        let menu = gtk::MenuButton::builder().icon_name("open-menu-symbolic").menu_model(&main_menu()).primary(true);
        let menu = menu.tooltip_text(tr("Main Menu")).build();
        menu.update_property(&[gtk::accessible::Property::Label(&tr("Main Menu"))]);
        let bar = adw::HeaderBar::new();
        bar.pack_end(&menu);
        let side = adw::ToolbarView::new();
        side.add_top_bar(&bar);
        side.set_content(Some(&gtk::ScrolledWindow::builder().child(&sidebar).build()));

        let banner = adw::Banner::builder().use_markup(false).build();
        let main = adw::ToolbarView::new();
        main.add_top_bar(&adw::HeaderBar::new());
        main.add_top_bar(&banner);
        main.set_content(Some(&stack));

        let content = adw::NavigationPage::builder().title(title("overview")).child(&main).build();
        let split = adw::NavigationSplitView::builder()
            .sidebar(&adw::NavigationPage::builder().title("linkspan").child(&side).build())
            .content(&content)
            .min_sidebar_width(180.0)
            .max_sidebar_width(240.0)
            .show_content(true)
            .build();
        let toasts = adw::ToastOverlay::new();
        toasts.set_child(Some(&split));

        let window = adw::ApplicationWindow::builder().application(app).title("linkspan").content(&toasts);
        let window = window.default_width(900).default_height(640).width_request(360).height_request(294).build();
        let narrow = adw::BreakpointCondition::new_length(
            adw::BreakpointConditionLengthType::MaxWidth,
            NARROW,
            adw::LengthUnit::Sp,
        );
        let narrow = adw::Breakpoint::new(narrow);
        narrow.add_setter(&split, "collapsed", Some(&true.to_value()));
        window.add_breakpoint(narrow);

        sidebar.connect_row_selected(move |_, row| {
            let Some((name, _)) = row.and_then(|row| PAGES.get(row.index() as usize)) else { return };
            stack.set_visible_child_name(name);
            content.set_title(&title(name));
            turned(name);
        });
        // Where they are one below the other, also the page that is chosen already comes up.
        sidebar.connect_row_activated(move |_, _| split.set_show_content(true));
        sidebar.select_row(sidebar.row_at_index(0).as_ref());
        Window { window, toasts, banner, sidebar, pages }
    }

    /// Turns to a page.
    pub(crate) fn turn(&self, name: &str) {
        let row = PAGES.iter().position(|(known, _)| *known == name).and_then(|n| self.sidebar.row_at_index(n as i32));
        if let Some(row) = row {
            self.sidebar.select_row(Some(&row));
            row.emit_by_name::<()>("activate", &[]);
        }
    }

    /// Shows what differs.
    pub(crate) fn show(&mut self, old: Option<&Pages>, new: &Pages) {
        self.banner.set_title(&new.banner);
        self.banner.set_revealed(!new.banner.is_empty());
        for ((name, _), view) in PAGES.iter().zip(&mut self.pages) {
            if old.is_none_or(|old| of(old, name) != of(new, name)) {
                view.show(of(new, name));
            }
        }
    }

    /// Says something that goes away by itself.
    pub(crate) fn say(&self, text: &str) {
        self.toasts.add_toast(adw::Toast::builder().title(text).use_markup(false).build());
    }
}
