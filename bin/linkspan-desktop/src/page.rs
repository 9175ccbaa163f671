//! A page: groups of rows, or why there are none.

use std::rc::Rc;

use adw::prelude::*;
use gtk::accessible::Property;
use gtk::glib::markup_escape_text;
use linkspan_view::{Empty, Group, Page};

use crate::row::{Hands, Rows};

struct GroupView {
    group: adw::PreferencesGroup,
    list: gtk::ListBox,
    rows: Rows,
}

impl GroupView {
    fn new() -> GroupView {
        let list = gtk::ListBox::builder().selection_mode(gtk::SelectionMode::None).css_classes(["boxed-list"]).build();
        let group = adw::PreferencesGroup::new();
        group.add(&list);
        GroupView { group, list, rows: Rows::default() }
    }

    fn show(&mut self, group: &Group, hands: &Rc<Hands>) {
        // Both may have markup, and names are the word of strangers.
        self.group.set_title(&markup_escape_text(&group.title));
        self.group.set_description((!group.text.is_empty()).then(|| markup_escape_text(&group.text)).as_deref());
        self.list.set_visible(!group.rows.is_empty());
        self.list.update_property(&[Property::Label(&group.title)]);
        self.rows.show(&self.list, &group.rows, hands);
    }
}

/// A page as it is drawn.
pub(crate) struct PageView {
    pub(crate) root: gtk::Stack,
    list: adw::PreferencesPage,
    empty: adw::StatusPage,
    button: gtk::Button,
    groups: Vec<GroupView>,
    hands: Rc<Hands>,
    action: Rc<std::cell::RefCell<Option<linkspan_view::Action>>>,
}

impl PageView {
    pub(crate) fn new(hands: &Rc<Hands>) -> PageView {
        let (root, list, empty) = (gtk::Stack::new(), adw::PreferencesPage::new(), adw::StatusPage::new());
        let button =
            gtk::Button::builder().halign(gtk::Align::Center).css_classes(["pill", "suggested-action"]).build();
        let action: Rc<std::cell::RefCell<Option<linkspan_view::Action>>> = Rc::default();
        let (slot, own) = (action.clone(), hands.clone());
        button.connect_clicked(move |_| {
            let action = slot.borrow().clone();
            action.iter().for_each(|action| (own.act)(action));
        });
        empty.set_child(Some(&button));
        root.add_named(&list, Some("list"));
        root.add_named(&empty, Some("empty"));
        PageView { root, list, empty, button, groups: Vec::new(), hands: hands.clone(), action }
    }

    pub(crate) fn show(&mut self, page: &Page) {
        self.root.set_visible_child_name(if page.empty.is_some() { "empty" } else { "list" });
        if let Some(empty) = &page.empty {
            self.show_empty(empty);
        }
        while self.groups.len() > page.groups.len() {
            self.groups.pop().iter().for_each(|view| self.list.remove(&view.group));
        }
        for (n, group) in page.groups.iter().enumerate() {
            if n == self.groups.len() {
                self.groups.push(GroupView::new());
                self.list.add(&self.groups[n].group);
            }
            self.groups[n].show(group, &self.hands);
        }
    }

    fn show_empty(&self, empty: &Empty) {
        self.empty.set_icon_name(Some(empty.icon));
        self.empty.set_title(&markup_escape_text(&empty.title));
        self.empty.set_description(Some(&markup_escape_text(&empty.text)));
        self.button.set_visible(empty.button.is_some());
        if let Some(button) = &empty.button {
            self.button.set_label(&button.label);
            self.button.set_sensitive(button.works);
            self.action.replace(Some(button.action.clone()));
        }
    }
}
