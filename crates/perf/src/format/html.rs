//! One page with everything in it: no script, no font, nothing fetched.

use std::fmt::Write;

use plotters::prelude::*;

use super::{Printer, Style};
use crate::record::{Record, Row};
use crate::units::show_size;

/// Size of a plot, pixels.
const PLOT: (u32, u32) = (720, 360);

/// Blue, red, green and violet that people with colour-blindness can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// The page of a record.
pub fn page(record: &Record) -> String {
    let mut body = String::new();
    let host = &record.host;
    let _ = write!(
        body,
        "<h1>lspan perf: {} to {}</h1>\n<p>{}, kernel {}, {} processors {}, {:.1} GiB; lspan {}; {}; <code>{}</code></p>\n",
        escape(&host.name),
        escape(record.peer.as_deref().unwrap_or("a process on the same host")),
        escape(&host.arch),
        escape(&host.kernel),
        host.cpus,
        escape(host.cpu_model.as_deref().unwrap_or("")),
        host.memory_bytes as f64 / f64::from(1 << 30),
        escape(&record.version),
        super::gbench::date(record.time_unix_s),
        escape(&record.command.join(" "))
    );
    let unchecked = record.results.iter().any(|row| row.test != "connect" && row.wrong_bytes.is_none());
    let verdict = match (&record.error, record.ok) {
        (Some(error), _) => format!("<p class=bad>{}</p>", escape(error)),
        (None, true) if unchecked => "<p class=good>Complete; not all data was checked.</p>".to_owned(),
        (None, true) => "<p class=good>Complete; no wrong byte was found.</p>".to_owned(),
        (None, false) => "<p class=bad>Wrong data was found.</p>".to_owned(),
    };
    body.push_str(&verdict);
    for downgrade in &record.downgrades {
        let _ = writeln!(body, "<p class=bad>Degraded: {}</p>", escape(downgrade));
    }

    for (title, label, value) in SERIES {
        let series = series(&record.results, *value);
        if !series.is_empty() {
            let _ = write!(body, "<h2>{title}</h2>\n{}\n", plot(label, &series));
        }
    }
    for row in record.results.iter().filter(|row| !row.histogram.is_empty()) {
        let of = if row.test == "connect" { String::new() } else { format!(", {}", bytes(row.size_bytes)) };
        let _ = write!(
            body,
            "<h2>Distribution: {} over {}{of}</h2>\n{}\n",
            escape(&row.test),
            escape(&row.transport),
            bars(row)
        );
    }

    body.push_str("<h2>Numbers</h2>\n<pre>");
    let mut printer = Printer::new(Style::Human);
    let mut path = "";
    for row in &record.results {
        if row.path != path {
            path = &row.path;
            for line in &row.lines {
                let _ = writeln!(body, "{}", escape(&format!("# {line}")));
            }
        }
        body.push_str(&escape(&printer.row(row)));
    }
    body.push_str("</pre>\n");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>lspan perf</title>\n<style>\
         body{{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}}\
         pre{{overflow-x:auto;background:#f4f4f4;padding:1rem;font-size:12px}}svg{{width:100%;height:auto}}\
         .good{{color:#006b4a}}.bad{{color:#a33}}</style></head>\n<body>\n{body}</body></html>\n"
    )
}

type Value = fn(&Row) -> Option<f64>;

/// Plots over message size: title, label and value of each.
const SERIES: &[(&str, &str, Value)] = &[
    ("Bandwidth", "GB/s", |row| (row.bytes > 0 && row.latency.is_none()).then_some(row.bw_gbyte_s)),
    ("Median latency (half round trip)", "us", |row| half(row).map(|latency| latency.p50_ns / 1000.0)),
    ("99th percentile of latency", "us", |row| half(row).map(|latency| latency.p99_ns / 1000.0)),
];

fn half(row: &Row) -> Option<&crate::record::Latency> {
    row.latency.as_ref().filter(|_| row.test != "connect")
}

/// Name and points of each line: one per test and transport, points by size.
fn series(rows: &[Row], value: Value) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in rows {
        let Some(y) = value(row).filter(|y| y.is_finite() && *y > 0.0) else { continue };
        let name = format!("{} {} {}", row.test, row.transport, row.direction);
        let point = ((row.size_bytes.max(1) as f64).log2(), y);
        match lines.iter_mut().find(|line| line.0 == name) {
            Some(line) => line.1.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    for line in &mut lines {
        line.1.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// An SVG of lines over message size, both axes logarithmic.
fn plot(label: &str, lines: &[(String, Vec<(f64, f64)>)]) -> String {
    let mut svg = String::new();
    // A plot that cannot be drawn leaves a gap in the page, not the page out.
    let _ = draw_lines(&mut svg, label, lines);
    svg
}

fn draw_lines(
    svg: &mut String,
    label: &str,
    lines: &[(String, Vec<(f64, f64)>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| line.1.iter());
    let low_x = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let high_x = points().map(|point| point.0).fold(0.0, f64::max).max(low_x + 1.0);
    let low_y = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high_y = points().map(|point| point.1).fold(0.0, f64::max);
    // Whole decades: a logarithmic axis has labels at their ends at least.
    let decade = |y: f64, round: fn(f64) -> f64| 10f64.powf(round(y.log10()));
    let (low_y, high_y) = (decade(low_y * 0.98, f64::floor), decade(high_y * 1.02, f64::ceil));
    let root = SVGBackend::with_string(svg, PLOT).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(low_x..high_x, (low_y..high_y).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(BLACK.mix(0.06))
        .bold_line_style(BLACK.mix(0.2))
        .x_desc("message size, bytes")
        .y_desc(label)
        .x_label_formatter(&|x| show_size(x.exp2().round() as u64))
        .y_label_formatter(&|y| if *y < 10.0 { format!("{y:.2}") } else { format!("{y:.0}") })
        .draw()?;
    for (index, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}

/// An SVG of a row's histogram.
fn bars(row: &Row) -> String {
    let mut svg = String::new();
    let _ = draw_bars(&mut svg, row);
    svg
}

fn draw_bars(svg: &mut String, row: &Row) -> Result<(), Box<dyn std::error::Error>> {
    let steps = &row.histogram;
    let most = steps.iter().map(|step| step.count).max().unwrap_or(1);
    let root = SVGBackend::with_string(svg, (PLOT.0, 220)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0f64..steps.len() as f64, 0f64..most as f64 * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(BLACK.mix(0.06))
        .bold_line_style(BLACK.mix(0.2))
        .x_desc("up to, us (the last step holds the tail)")
        .y_desc("samples")
        .x_labels(steps.len().min(12))
        .x_label_formatter(&|x| {
            steps
                .get((*x as usize).min(steps.len() - 1))
                .map_or_else(String::new, |step| crate::units::show_us(step.upto_ns))
        })
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    chart.draw_series(steps.iter().enumerate().map(|(index, step)| {
        let x = index as f64;
        Rectangle::new([(x + 0.1, 0.0), (x + 0.9, step.count as f64)], COLOURS[0].filled())
    }))?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}

/// A size with its unit.
fn bytes(size: u64) -> String {
    let text = show_size(size);
    if text.ends_with(|c: char| c.is_ascii_digit()) { format!("{text} B") } else { format!("{text}iB") }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
