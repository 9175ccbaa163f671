//! `lspan metrics`: the statistics in the text format of Prometheus, version 0.0.4.

use std::path::Path;

use linkspan_fabric::Config;
use linkspan_fabric::stats::{ProcessStats, read};
use linkspan_user::replace;

use crate::cli::MetricsArgs;
use crate::exit::{Exit, Failure};
use crate::out::Out;

mod http;
mod text;

pub(crate) fn run(args: &MetricsArgs) -> Result<Exit, Failure> {
    let Some(dir) = Config::from_env()?.stats_dir else {
        return Err(Failure::new(Exit::NoPeer, "LINKSPAN_STATS_DIR=off: no process writes statistics; unset it"));
    };
    if let Some(address) = args.listen {
        let listener = std::net::TcpListener::bind(address)
            .map_err(|error| Failure::system(&format!("--listen {address}"), &error))?;
        let bound = listener.local_addr().map_err(|error| Failure::system("--listen", &error))?;
        eprintln!("lspan: http://{bound}/metrics");
        http::serve(&listener, move || Ok(text::render(&read(&dir)?)))
    }
    let text = text::render(&pages(&dir)?);
    match &args.textfile {
        // node_exporter may read at any moment, and under any user.
        Some(file) => replace(file, text.as_bytes(), 0o644)
            .map_err(|error| Failure::system(&file.display().to_string(), &error))?,
        None => Out::default().text(&text)?,
    }
    Ok(Exit::Ok)
}

fn pages(dir: &Path) -> Result<Vec<ProcessStats>, Failure> {
    read(dir).map_err(|error| Failure::system(&format!("statistics in {}", dir.display()), &error))
}
