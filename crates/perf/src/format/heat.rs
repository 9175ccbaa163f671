//! A heat map of pairs as a page of its own, without a script.

use std::fmt::Write;

use super::html::escape;

/// A cell of the map.
#[derive(Clone, Debug)]
pub struct Heat {
    /// Row and column, by the names' order.
    pub row: usize,
    /// As above.
    pub column: usize,
    /// The value; `None` where it could not be measured.
    pub value: Option<f64>,
    /// It stands out.
    pub marked: bool,
    /// Text that a pointer over it shows.
    pub title: String,
}

/// The page: the map, from white (0) to blue (the largest value), and the table as text below it.
pub fn heat_page(title: &str, host: &str, names: &[String], cells: &[Heat], text: &str) -> String {
    let most = cells.iter().filter_map(|cell| cell.value).fold(0.0, f64::max);
    let mut body = format!(
        "<h1>lspan perf matrix</h1>\n<p>{}; asked from {}</p>\n<table><tr><th></th>",
        escape(title),
        escape(host)
    );
    names.iter().for_each(|name| body.push_str(&format!("<th>{}</th>", escape(name))));
    body.push_str("</tr>\n");
    for (row, name) in names.iter().enumerate() {
        let _ = write!(body, "<tr><th>{}</th>", escape(name));
        for column in 0..names.len() {
            let Some(cell) = cells.iter().find(|cell| (cell.row, cell.column) == (row, column)) else {
                body.push_str("<td></td>");
                continue;
            };
            let (shown, share) = match cell.value {
                Some(value) => (format!("{value:.2}"), value / most.max(f64::MIN_POSITIVE)),
                None => ("failed".to_owned(), 0.0),
            };
            // From white to the first of the plots' colours (Okabe and Ito's blue).
            let mix = |full: f64| 255.0 - (255.0 - full) * share;
            let ink = if share > 0.6 { "#fff" } else { "#222" };
            let class = if cell.marked || cell.value.is_none() { " class=out" } else { "" };
            let _ = write!(
                body,
                "<td{class} style=\"background:rgb({:.0},{:.0},{:.0});color:{ink}\" title=\"{}\">{shown}</td>",
                mix(0.0),
                mix(114.0),
                mix(178.0),
                escape(&cell.title)
            );
        }
        body.push_str("</tr>\n");
    }
    let _ = write!(
        body,
        "</table>\n<p>A red frame: less than 0.7 of the median, or failed.</p>\n<pre>{}</pre>\n",
        escape(text)
    );
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>lspan perf matrix</title>\n<style>\
         body{{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}}\
         table{{border-collapse:separate;border-spacing:2px}}td{{padding:.5rem;text-align:right}}.out{{outline:3px solid #d55e00}}\
         pre{{overflow-x:auto;background:#f4f4f4;padding:1rem;font-size:12px}}</style></head>\n<body>\n{body}</body></html>\n"
    )
}
