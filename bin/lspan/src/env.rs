//! `lspan env`: every name we read.

use linkspan_fabric::params::{ALL, Param, Takes, unknown};
use linkspan_perf::format::table;
use serde::Serialize;

use crate::cli::EnvArgs;
use crate::exit::{Exit, Failure};
use crate::out::Out;

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    takes: String,
    default: &'a str,
    value: Option<String>,
    text: &'a str,
}

fn takes(param: &Param) -> String {
    match param.takes {
        Takes::Switch => "0, 1".into(),
        Takes::Number(low, high) => format!("{low} to {high}"),
        Takes::Word(words) => words.join(", "),
        Takes::Path => {
            let names = linkspan_fabric::paths(&linkspan_transports::all()).into_iter().map(|path| path.0);
            names.collect::<Vec<_>>().join(", ")
        }
        Takes::Text => "text".into(),
    }
}

pub(crate) fn run(args: &EnvArgs) -> Result<Exit, Failure> {
    let mut out = Out::default();
    let entries: Vec<Entry<'_>> = ALL
        .iter()
        .map(|param| Entry {
            name: param.name,
            takes: takes(param),
            default: param.default,
            value: std::env::var_os(param.name).map(|value| value.to_string_lossy().into_owned()),
            text: param.text,
        })
        .collect();
    if args.json {
        out.json(&serde_json::json!({ "schema": "linkspan.env/1", "parameters": entries }), true)?;
    } else {
        let mut rows = vec![vec!["name".into(), "value".into(), "default".into(), "takes".into()]];
        for entry in &entries {
            let value = entry.value.clone().unwrap_or_else(|| "-".into());
            let default = if entry.default.is_empty() { "-" } else { entry.default };
            rows.push(vec![entry.name.into(), value, default.into(), entry.takes.clone()]);
        }
        out.text(&table(&rows))?;
        out.text("\n")?;
        for entry in &entries {
            out.text(&format!("{}\n    {}\n", entry.name, entry.text))?;
        }
    }
    let set: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    for name in unknown(set.iter().map(String::as_str)) {
        eprintln!("lspan: {name} is set, but there is no such name");
    }
    // A value that its name does not take is an error here as everywhere.
    crate::fabric::settings()?;
    Ok(Exit::Ok)
}
