//! `lspan metrics`: the statistics in the text format of Prometheus, version 0.0.4.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use linkspan_fabric::Config;
use linkspan_fabric::stats::{ProcessStats, read};

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
        Some(file) => replace(file, &text).map_err(|error| Failure::system(&file.display().to_string(), &error))?,
        None => Out::default().text(&text)?,
    }
    Ok(Exit::Ok)
}

fn pages(dir: &Path) -> Result<Vec<ProcessStats>, Failure> {
    read(dir).map_err(|error| Failure::system(&format!("statistics in {}", dir.display()), &error))
}

/// Puts a file in place of another at once: node_exporter may read at any moment, and under any user. Its name until then does not end in
/// `.prom`.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let mut name = file.file_name().ok_or(std::io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = file.with_file_name(name);
    let mut out = std::fs::File::create_new(&new)?;
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| out.set_permissions(Permissions::from_mode(0o644)))
        .and_then(|()| std::fs::rename(&new, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}
