//! The texts of the Python module's native half, in its stub: editors show those of the stub, `help()` those of the module. They are written
//! once, in Rust.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, Type};

use crate::tree::Source;

/// The stub, whose signatures are written by hand.
pub(super) const STUB: &str = "bindings/python/python/linkspan/_linkspan.pyi";

/// Where the classes are.
const CLASSES: &str = "bindings/python/src/";

/// Text of a class, or of a method as `Class.method`.
type Texts = BTreeMap<String, String>;

/// The stub with the texts of now.
pub(super) fn stub(sources: &[Source]) -> String {
    let mut texts = Texts::new();
    for source in sources.iter().filter(|source| source.path.starts_with(CLASSES) && source.is_rust()) {
        collect(&source.text, &mut texts);
    }
    let is = sources.iter().find(|source| source.path == STUB).map_or("", |source| source.text.as_str());
    with(&without(is), &texts)
}

/// What a file documents.
fn collect(rust: &str, texts: &mut Texts) {
    let Ok(file) = syn::parse_file(rust) else { return };
    for item in file.items {
        match item {
            Item::Struct(class) if has(&class.attrs, "pyclass") => {
                texts.insert(class.ident.to_string(), text(&class.attrs));
            }
            Item::Impl(part) if has(&part.attrs, "pymethods") => {
                let Type::Path(class) = *part.self_ty else { continue };
                let Some(class) = class.path.get_ident().map(ToString::to_string) else { continue };
                for method in part.items {
                    if let ImplItem::Fn(method) = method {
                        texts.insert(format!("{class}.{}", method.sig.ident), text(&method.attrs));
                    }
                }
            }
            _ => {}
        }
    }
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|one| one.path().is_ident(name))
}

/// The lines of `///`, as pyo3 takes them.
fn text(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for one in attributes {
        if let Meta::NameValue(pair) = &one.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(value) = &pair.value
            && let Lit::Str(line) = &value.lit
        {
            let line = line.value();
            let _ = writeln!(text, "{}", line.strip_prefix(' ').unwrap_or(&line));
        }
    }
    text.trim_end().to_owned()
}

/// The stub without the texts of classes and methods that this writes; those of the module and of protocols stay.
fn without(stub: &str) -> String {
    let mut bare = String::new();
    let (mut lines, mut in_native) = (stub.lines().peekable(), false);
    while let Some(line) = lines.next() {
        if !line.starts_with([' ', ')']) && !line.is_empty() {
            in_native = line.starts_with("class ") && !line.contains("(Protocol)");
        }
        let opens = in_native && line.ends_with(':') && !line.trim_start().starts_with('@');
        let documented = opens && lines.peek().is_some_and(|next| next.trim_start().starts_with("\"\"\""));
        if !documented {
            bare.push_str(line);
            bare.push('\n');
            continue;
        }
        bare.push_str(line);
        bare.push_str(if line.starts_with(' ') { " ...\n" } else { "\n" });
        let first = lines.next().unwrap_or_default().trim();
        if first.len() < 6 || !first.ends_with("\"\"\"") {
            for rest in lines.by_ref() {
                if rest.trim_end().ends_with("\"\"\"") {
                    break;
                }
            }
        }
        // The blank line between the text of a class and its first member.
        if !line.starts_with(' ') && lines.peek().is_some_and(|next| next.is_empty()) {
            lines.next();
        }
    }
    bare
}

/// A bare stub with texts.
fn with(bare: &str, texts: &Texts) -> String {
    let (mut out, mut class, mut method) = (String::new(), String::new(), String::new());
    for line in bare.lines() {
        if let Some(rest) = line.strip_prefix("class ") {
            class = name(rest);
            let _ = writeln!(out, "{line}");
            if let Some(text) = texts.get(&class).filter(|text| !text.is_empty()) {
                quote(&mut out, "    ", text);
                out.push('\n');
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("    def ") {
            method = format!("{class}.{}", name(rest));
        }
        let text = texts.get(&method).filter(|text| !text.is_empty());
        match (line.strip_suffix(": ..."), text) {
            (Some(head), Some(text)) if line.starts_with("    ") && !line.trim_start().starts_with('#') => {
                let _ = writeln!(out, "{head}:");
                quote(&mut out, "        ", text);
                method.clear();
            }
            _ => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// The name at the start of what follows `class` or `def`.
fn name(rest: &str) -> String {
    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn quote(out: &mut String, indent: &str, text: &str) {
    let mut lines = text.lines();
    let _ = write!(out, "{indent}\"\"\"{}", lines.next().unwrap_or_default());
    let mut more = false;
    for line in lines {
        more = true;
        out.push('\n');
        if !line.is_empty() {
            let _ = write!(out, "{indent}{line}");
        }
    }
    if more {
        let _ = write!(out, "\n{indent}");
    }
    out.push_str("\"\"\"\n");
}

#[cfg(test)]
mod tests;
