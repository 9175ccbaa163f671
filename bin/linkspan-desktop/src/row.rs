//! Rows of a list, each kept as long as its row has the same name and is of the same kind: the keyboard's focus and what is typed stay.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use adw::prelude::*;
use gtk::accessible::{Property, Relation};
use gtk::glib;
use linkspan_view::text::tr;
use linkspan_view::{Action, Button, Choice, Field, Input, Kind, Mood, Plot, Row};

use crate::plot;

/// Height of a plot, in lines of text.
const PLOT_LINES: i32 = 10;

/// What rows do when a person does something.
pub(crate) struct Hands {
    pub(crate) act: Box<dyn Fn(&Action)>,
    pub(crate) tell: Box<dyn Fn(Input)>,
}

/// An action that changes with its row.
type Slot = Rc<RefCell<Option<Action>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Line,
    Opens,
    Field(Field),
    Choice(Choice),
    Switch,
    Progress,
    Plot,
}

fn shape(row: &Row) -> Shape {
    match &row.kind {
        Kind::Line if row.details.is_empty() => Shape::Line,
        Kind::Line => Shape::Opens,
        Kind::Field(field, _) => Shape::Field(*field),
        Kind::Choice(choice, ..) => Shape::Choice(*choice),
        Kind::Switch(_) => Shape::Switch,
        Kind::Progress(_) => Shape::Progress,
        Kind::Plot(_) => Shape::Plot,
    }
}

/// A button at the end of a row, hidden where there is none.
struct ButtonView {
    button: gtk::Button,
    action: Slot,
}

impl ButtonView {
    fn new(hands: &Rc<Hands>, classes: &[&str]) -> ButtonView {
        let (button, action) = (gtk::Button::new(), Slot::default());
        button.set_valign(gtk::Align::Center);
        button.set_css_classes(classes);
        let (own, hands) = (action.clone(), hands.clone());
        button.connect_clicked(move |_| {
            let action = own.borrow().clone();
            action.iter().for_each(|action| (hands.act)(action));
        });
        ButtonView { button, action }
    }

    fn show(&self, button: Option<&Button>) {
        self.button.set_visible(button.is_some());
        let Some(Button { label, name, action, works }) = button else {
            self.action.replace(None);
            return;
        };
        if self.button.label().as_deref() != Some(label) {
            self.button.set_label(label);
            // Its name is more than what is written on it.
            self.button.reset_relation(gtk::AccessibleRelation::LabelledBy);
        }
        self.button.update_property(&[Property::Label(name)]);
        self.button.set_tooltip_text((name != label).then_some(name.as_str()));
        self.button.set_sensitive(*works);
        self.action.replace(Some(action.clone()));
    }
}

/// What is at the two ends of a row of texts.
struct Ends {
    mood: gtk::Image,
    end: gtk::Label,
    buttons: [ButtonView; 2],
}

impl Ends {
    fn new(hands: &Rc<Hands>) -> Ends {
        let end =
            gtk::Label::builder().justify(gtk::Justification::Right).css_classes(["numeric", "dim-label"]).build();
        let buttons = [ButtonView::new(hands, &["flat"]), ButtonView::new(hands, &[])];
        Ends { mood: gtk::Image::new(), end, buttons }
    }

    fn show(&self, row: &Row) {
        let (icon, class, name) = match row.mood {
            Mood::Plain => ("", "", String::new()),
            Mood::Good => ("object-select-symbolic", "success", tr("Good")),
            Mood::Slow => ("dialog-warning-symbolic", "warning", tr("Warning")),
            Mood::Trouble => ("dialog-error-symbolic", "error", tr("Trouble")),
        };
        if row.mood != Mood::Plain {
            self.mood.set_icon_name(Some(icon));
            self.mood.set_css_classes(&[class]);
            // The colour is not all that tells them apart.
            self.mood.update_property(&[Property::Label(&name)]);
            self.mood.set_tooltip_text(Some(&name));
        }
        self.end.set_visible(!row.end.is_empty());
        self.end.set_label(&row.end);
        self.buttons[0].show(row.second.as_ref());
        self.buttons[1].show(row.button.as_ref());
    }

    /// Whether its sign has to be put before the row, or to be taken away: space for none would be left beside the texts.
    fn moved(&self, row: &Row) -> Option<bool> {
        let wanted = row.mood != Mood::Plain;
        (self.mood.parent().is_some() != wanted).then_some(wanted)
    }

    fn suffixes(&self) -> [gtk::Widget; 3] {
        [self.end.clone().upcast(), self.buttons[0].button.clone().upcast(), self.buttons[1].button.clone().upcast()]
    }
}

/// Title and subtitle above something wide.
struct Wide {
    row: adw::PreferencesRow,
    title: gtk::Label,
    subtitle: gtk::Label,
    body: gtk::Box,
    ends: Ends,
}

impl Wide {
    fn new(hands: &Rc<Hands>) -> Wide {
        let label = |class: &str| {
            let label = gtk::Label::builder().xalign(0.0).wrap(true).css_classes([class]).build();
            label.set_wrap_mode(gtk::pango::WrapMode::WordChar);
            label
        };
        let (title, subtitle, ends) = (label("title"), label("subtitle"), Ends::new(hands));
        let texts = gtk::Box::builder().orientation(gtk::Orientation::Vertical).hexpand(true).spacing(3).build();
        texts.set_valign(gtk::Align::Center);
        texts.append(&title);
        texts.append(&subtitle);
        let head = gtk::Box::builder().spacing(6).build();
        head.append(&texts);
        ends.suffixes().iter().for_each(|suffix| head.append(suffix));
        let body = gtk::Box::builder().orientation(gtk::Orientation::Vertical).spacing(12).build();
        body.set_margin_top(12);
        body.set_margin_bottom(12);
        body.set_margin_start(12);
        body.set_margin_end(12);
        body.append(&head);
        let row = adw::PreferencesRow::builder().activatable(false).use_markup(false).child(&body).build();
        row.update_relation(&[
            Relation::LabelledBy(&[title.upcast_ref()]),
            Relation::DescribedBy(&[subtitle.upcast_ref()]),
        ]);
        Wide { row, title, subtitle, body, ends }
    }

    fn show(&self, row: &Row) {
        self.title.set_label(&row.title);
        self.subtitle.set_label(&row.subtitle);
        self.subtitle.set_visible(!row.subtitle.is_empty());
        self.ends.show(row);
    }
}

enum Part {
    Line(adw::ActionRow, Ends),
    Opens(adw::ExpanderRow, Ends, Vec<RowView>),
    Field(adw::EntryRow, ButtonView),
    Choice(adw::ComboRow, Rc<Cell<bool>>),
    Switch(adw::SwitchRow, Slot, Rc<Cell<bool>>),
    Progress(Wide, gtk::ProgressBar),
    Plot(Wide, gtk::DrawingArea, Rc<RefCell<Plot>>),
}

/// A row as it is drawn.
pub(crate) struct RowView {
    id: String,
    shape: Shape,
    part: Part,
    hands: Rc<Hands>,
}

impl RowView {
    fn new(row: &Row, hands: &Rc<Hands>) -> RowView {
        let part = match shape(row) {
            Shape::Line => {
                let (line, ends) = (adw::ActionRow::builder().use_markup(false).build(), Ends::new(hands));
                ends.suffixes().iter().for_each(|suffix| line.add_suffix(suffix));
                Part::Line(line, ends)
            }
            Shape::Opens => {
                let (line, ends) = (adw::ExpanderRow::builder().use_markup(false).build(), Ends::new(hands));
                ends.suffixes().iter().for_each(|suffix| line.add_suffix(suffix));
                Part::Opens(line, ends, Vec::new())
            }
            Shape::Field(field) => field_row(field, hands),
            Shape::Choice(choice) => choice_row(choice, hands),
            Shape::Switch => switch_row(hands),
            Shape::Progress => {
                let (wide, bar) = (Wide::new(hands), gtk::ProgressBar::new());
                wide.body.append(&bar);
                bar.update_relation(&[Relation::LabelledBy(&[wide.title.upcast_ref()])]);
                Part::Progress(wide, bar)
            }
            Shape::Plot => plot_row(hands),
        };
        RowView { id: row.id.clone(), shape: shape(row), part, hands: hands.clone() }
    }

    fn is_of(&self, row: &Row) -> bool {
        self.id == row.id && self.shape == shape(row)
    }

    fn widget(&self) -> &gtk::Widget {
        match &self.part {
            Part::Line(row, _) => row.upcast_ref(),
            Part::Opens(row, ..) => row.upcast_ref(),
            Part::Field(row, _) => row.upcast_ref(),
            Part::Choice(row, _) => row.upcast_ref(),
            Part::Switch(row, ..) => row.upcast_ref(),
            Part::Progress(wide, _) | Part::Plot(wide, ..) => wide.row.upcast_ref(),
        }
    }

    fn show(&mut self, row: &Row) {
        match (&mut self.part, &row.kind) {
            (Part::Line(line, ends), _) => {
                line.set_title(&row.title);
                line.set_subtitle(&row.subtitle);
                ends.show(row);
                match ends.moved(row) {
                    Some(true) => line.add_prefix(&ends.mood),
                    Some(false) => line.remove(&ends.mood),
                    None => {}
                }
            }
            (Part::Opens(line, ends, details), _) => {
                line.set_title(&row.title);
                line.set_subtitle(&row.subtitle);
                ends.show(row);
                match ends.moved(row) {
                    Some(true) => line.add_prefix(&ends.mood),
                    Some(false) => line.remove(&ends.mood),
                    None => {}
                }
                let same =
                    details.len() == row.details.len() && details.iter().zip(&row.details).all(|(a, b)| a.is_of(b));
                if !same {
                    details.drain(..).for_each(|old| line.remove(old.widget()));
                    details.extend(row.details.iter().map(|detail| RowView::new(detail, &self.hands)));
                    details.iter().for_each(|new| line.add_row(new.widget()));
                }
                details.iter_mut().zip(&row.details).for_each(|(view, detail)| view.show(detail));
            }
            (Part::Field(line, button), Kind::Field(_, text)) => {
                line.set_title(&row.title);
                if line.text() != *text {
                    line.set_text(text);
                }
                button.show(row.button.as_ref());
            }
            (Part::Choice(line, quiet), Kind::Choice(_, items, chosen)) => {
                line.set_title(&row.title);
                line.set_subtitle(&row.subtitle);
                quiet.set(true);
                if line.model().is_none_or(|model| model.n_items() as usize != items.len()) {
                    let items: Vec<&str> = items.iter().map(String::as_str).collect();
                    line.set_model(Some(&gtk::StringList::new(&items)));
                }
                line.set_selected(*chosen as u32);
                quiet.set(false);
            }
            (Part::Switch(line, action, quiet), Kind::Switch(on)) => {
                line.set_title(&row.title);
                line.set_subtitle(&row.subtitle);
                line.set_sensitive(row.button.as_ref().is_some_and(|button| button.works));
                action.replace(row.button.as_ref().map(|button| button.action.clone()));
                quiet.set(true);
                line.set_active(*on);
                quiet.set(false);
            }
            (Part::Progress(wide, bar), Kind::Progress(part)) => {
                wide.show(row);
                match part {
                    Some(part) => bar.set_fraction(*part),
                    None => bar.pulse(),
                }
            }
            (Part::Plot(wide, area, plot), Kind::Plot(now)) => {
                wide.show(row);
                area.update_property(&[Property::Label(&row.title), Property::Description(&row.subtitle)]);
                plot.replace(now.clone());
                area.set_content_height(PLOT_LINES * area.create_pango_layout(Some("0")).pixel_size().1);
                area.queue_draw();
            }
            // A row of another kind has another view.
            _ => {}
        }
    }
}

fn field_row(field: Field, hands: &Rc<Hands>) -> Part {
    let row = adw::EntryRow::builder().use_markup(false).build();
    let button = ButtonView::new(hands, &[]);
    row.add_suffix(&button.button);
    let own = hands.clone();
    row.connect_changed(move |row| (own.tell)(Input::Typed(field, row.text().into())));
    let press = button.button.downgrade();
    row.connect_entry_activated(move |_| {
        let button = press.upgrade().filter(|button| button.is_sensitive());
        button.iter().for_each(|button| button.emit_clicked());
    });
    Part::Field(row, button)
}

fn choice_row(choice: Choice, hands: &Rc<Hands>) -> Part {
    let row = adw::ComboRow::builder().use_markup(false).build();
    let (quiet, hands) = (Rc::new(Cell::new(false)), hands.clone());
    let own = quiet.clone();
    row.connect_selected_notify(move |row| {
        if !own.get() && row.selected() != gtk::INVALID_LIST_POSITION {
            (hands.tell)(Input::Chosen(choice, row.selected() as usize));
        }
    });
    Part::Choice(row, quiet)
}

fn switch_row(hands: &Rc<Hands>) -> Part {
    let row = adw::SwitchRow::builder().use_markup(false).build();
    let (action, quiet, hands) = (Slot::default(), Rc::new(Cell::new(false)), hands.clone());
    let (slot, own) = (action.clone(), quiet.clone());
    row.connect_active_notify(move |_| {
        let action = slot.borrow().clone().filter(|_| !own.get());
        action.iter().for_each(|action| (hands.act)(action));
    });
    Part::Switch(row, action, quiet)
}

fn plot_row(hands: &Rc<Hands>) -> Part {
    let (wide, plot) = (Wide::new(hands), Rc::new(RefCell::new(Plot::default())));
    let area = gtk::DrawingArea::builder().accessible_role(gtk::AccessibleRole::Img).build();
    let own = plot.clone();
    area.set_draw_func(move |area, cairo, width, height| {
        if let Err(error) = plot::draw(area, cairo, (width, height), &own.borrow()) {
            glib::g_warning!("linkspan", "a plot cannot be drawn: {error}");
        }
    });
    wide.body.append(&area);
    Part::Plot(wide, area, plot)
}

/// The rows of one list.
#[derive(Default)]
pub(crate) struct Rows(Vec<RowView>);

impl Rows {
    /// Has the list show these. Rows that are there stay.
    pub(crate) fn show(&mut self, list: &gtk::ListBox, rows: &[Row], hands: &Rc<Hands>) {
        let kept = |view: &RowView| rows.iter().any(|row| view.is_of(row));
        self.0.iter().filter(|view| !kept(view)).for_each(|view| list.remove(view.widget()));
        self.0.retain(kept);
        for (n, row) in rows.iter().enumerate() {
            if !self.0.get(n).is_some_and(|view| view.is_of(row)) {
                let view = match self.0.iter().position(|view| view.is_of(row)) {
                    Some(at) => {
                        let view = self.0.remove(at);
                        list.remove(view.widget());
                        view
                    }
                    None => RowView::new(row, hands),
                };
                list.insert(view.widget(), n as i32);
                self.0.insert(n, view);
            }
            self.0[n].show(row);
        }
        // Those that are left were there twice.
        self.0.drain(rows.len()..).for_each(|view| list.remove(view.widget()));
    }
}
