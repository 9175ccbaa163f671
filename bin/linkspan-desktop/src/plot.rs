//! A plot of a few values.

use gtk::cairo::{Context, Error};
use gtk::prelude::*;
use linkspan_view::Plot;

/// Around the plot, in pixels at the usual size of text.
const MARGIN: f64 = 8.0;

/// A round number that is not below `value`, 1, 2, 2.5 or 5 times a power of ten, and into how many parts it is cut so that they are round.
fn round_up(value: f64) -> (f64, u32) {
    if !value.is_finite() || value <= 0.0 {
        return (1.0, 5);
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [(1.0, 5), (2.0, 4), (2.5, 5), (5.0, 5), (10.0, 5)];
    steps.into_iter().map(|(step, parts)| (step * power, parts)).find(|(step, _)| *step >= value).unwrap_or((value, 5))
}

/// With as many digits as are worth reading.
fn short(value: f64) -> String {
    let digits = match value {
        v if v >= 10.0 || v == 0.0 => 0,
        v if v >= 1.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// Draws it: the run before dashed and faint, the present one in the accent colour.
pub(crate) fn draw(area: &gtk::DrawingArea, cairo: &Context, size: (i32, i32), plot: &Plot) -> Result<(), Error> {
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let text = |what: &str| area.create_pango_layout(Some(what));
    let extent = |what: &str| {
        let (w, h) = text(what).pixel_size();
        (f64::from(w), f64::from(h))
    };
    let (top, lines) =
        round_up(plot.now.iter().chain(&plot.before).copied().filter(|v| v.is_finite()).fold(0.0, f64::max));
    let label = |n: u32| short(top * f64::from(n) / f64::from(lines));
    let (widest, line) =
        (0..=lines).map(|n| extent(&label(n))).fold((0.0f64, 0.0f64), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    let (left, right) = (MARGIN * 2.0 + widest, width - MARGIN * 2.0);
    let (above, below) = (MARGIN + line / 2.0, height - MARGIN - line);
    if right <= left || below <= above || plot.points.is_empty() {
        return Ok(());
    }
    let ink = area.color();
    let paint = |alpha: f64| {
        cairo.set_source_rgba(ink.red().into(), ink.green().into(), ink.blue().into(), f64::from(ink.alpha()) * alpha);
    };
    let y = |value: f64| below - (below - above) * (value / top).clamp(0.0, 1.0);
    let step = (right - left) / plot.points.len() as f64;
    let x = |n: usize| left + step * (n as f64 + 0.5);
    cairo.set_line_width(1.0);
    for n in 0..=lines {
        let at = y(top * f64::from(n) / f64::from(lines));
        paint(0.15);
        cairo.move_to(left, at.round() + 0.5);
        cairo.line_to(right, at.round() + 0.5);
        cairo.stroke()?;
        let (w, h) = extent(&label(n));
        paint(0.7);
        cairo.move_to(left - MARGIN - w, at - h / 2.0);
        write(area, cairo, &label(n));
    }
    // As many names as fit.
    let widest = plot.points.iter().map(|point| extent(point).0).fold(1.0, f64::max) + MARGIN;
    let every = (widest / step).ceil().max(1.0) as usize;
    for (n, point) in plot.points.iter().enumerate().step_by(every) {
        paint(0.7);
        cairo.move_to(x(n) - extent(point).0 / 2.0, below + MARGIN / 2.0);
        write(area, cairo, point);
    }
    paint(0.4);
    cairo.set_dash(&[4.0, 4.0], 0.0);
    line_of(cairo, &plot.before, &x, &y)?;
    cairo.set_dash(&[], 0.0);
    let accent = accent();
    cairo.set_source_rgba(accent.red().into(), accent.green().into(), accent.blue().into(), 1.0);
    cairo.set_line_width(2.0);
    line_of(cairo, &plot.now, &x, &y)?;
    for (n, value) in plot.now.iter().enumerate() {
        cairo.new_path();
        cairo.arc(x(n), y(*value), 3.5, 0.0, std::f64::consts::TAU);
        cairo.fill()?;
    }
    Ok(())
}

/// Blue of libadwaita's palette in the shade that it uses for accents on the present background.
fn accent() -> gtk::gdk::RGBA {
    match adw::StyleManager::default().is_dark() {
        true => gtk::gdk::RGBA::new(0x78 as f32 / 255.0, 0xae as f32 / 255.0, 0xed as f32 / 255.0, 1.0),
        false => gtk::gdk::RGBA::new(0x1c as f32 / 255.0, 0x71 as f32 / 255.0, 0xd8 as f32 / 255.0, 1.0),
    }
}

fn line_of(cairo: &Context, values: &[f64], x: &dyn Fn(usize) -> f64, y: &dyn Fn(f64) -> f64) -> Result<(), Error> {
    // Texts leave a point behind.
    cairo.new_path();
    for (n, value) in values.iter().enumerate() {
        cairo.line_to(x(n), y(*value));
    }
    cairo.stroke()
}

/// Text at the present point.
fn write(area: &gtk::DrawingArea, cairo: &Context, what: &str) {
    pangocairo::functions::show_layout(cairo, &area.create_pango_layout(Some(what)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_round_number_above_all_values() {
        for (value, top) in
            [(0.0, 1.0), (f64::NAN, 1.0), (0.07, 0.1), (1.1, 2.0), (2.3, 2.5), (41.0, 50.0), (100.0, 100.0)]
        {
            assert!((round_up(value).0 - top).abs() < 1e-9, "{value}: {:?}", round_up(value));
        }
        assert_eq!([short(0.0), short(0.25), short(2.5), short(50.0)], ["0", "0.25", "2.5", "50"]);
    }
}
