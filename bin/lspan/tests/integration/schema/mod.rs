//! As much of JSON Schema (2020-12) as the files in `docs/schema` use; a keyword that is not known here fails.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

pub(crate) fn load(name: &str) -> Value {
    let file = folder().join(name);
    serde_json::from_str(&fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).unwrap()
}

/// Every way in which `value` breaks the schema in this file.
pub(crate) fn problems(file: &str, value: &Value) -> Vec<String> {
    let root = load(file);
    let mut found = Vec::new();
    check(&root, &root, value, "$", &mut found);
    found
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("type {other}"),
    }
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let mut say = |text: String| found.push(format!("{at}: {text}"));
    let rules = schema.as_object().expect("a schema is an object");
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => {}
            "const" if value == rule => {}
            "const" => say(format!("{value} is not {rule}")),
            "enum" if rule.as_array().unwrap().contains(value) => {}
            "enum" => say(format!("{value} is none of {rule}")),
            "type" => {
                let kinds: Vec<&str> = match rule {
                    Value::String(kind) => vec![kind],
                    kinds => kinds.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect(),
                };
                if !kinds.iter().any(|kind| is(value, kind)) {
                    say(format!("{value} is no {rule}"));
                }
            }
            "minimum" => {
                if value.as_f64().is_some_and(|number| number < rule.as_f64().unwrap()) {
                    say(format!("{value} is below {rule}"));
                }
            }
            "maxItems" => {
                if value.as_array().is_some_and(|items| items.len() as u64 > rule.as_u64().unwrap()) {
                    say(format!("more than {rule} items"));
                }
            }
            "minItems" => {
                if value.as_array().is_some_and(|items| (items.len() as u64) < rule.as_u64().unwrap()) {
                    say(format!("fewer than {rule} items"));
                }
            }
            "required" => {
                for name in rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
                    if value.as_object().is_some_and(|object| !object.contains_key(name)) {
                        say(format!("{name} is missing"));
                    }
                }
            }
            "properties" | "additionalProperties" => {}
            "items" | "prefixItems" => {}
            "anyOf" | "$ref" => {}
            other => panic!("keyword {other} is not known to this check"),
        }
    }
    if let Some(object) = value.as_object() {
        let known = rules.get("properties").and_then(Value::as_object);
        for (name, part) in object {
            let at = format!("{at}.{name}");
            match (known.and_then(|known| known.get(name)), rules.get("additionalProperties")) {
                (Some(schema), _) => check(root, schema, part, &at, found),
                (None, Some(Value::Bool(false))) => found.push(format!("{at}: not in the schema")),
                (None, Some(schema @ Value::Object(_))) => check(root, schema, part, &at, found),
                _ => {}
            }
        }
    }
    if let (Some(items), Some(list)) = (rules.get("items"), value.as_array()) {
        for (index, part) in list.iter().enumerate() {
            check(root, items, part, &format!("{at}[{index}]"), found);
        }
    }
    if let (Some(Value::Array(items)), Some(list)) = (rules.get("prefixItems"), value.as_array()) {
        for (index, (part, items)) in list.iter().zip(items).enumerate() {
            check(root, items, part, &format!("{at}[{index}]"), found);
        }
    }
    if let Some(Value::String(target)) = rules.get("$ref") {
        let (file, pointer) = target.split_once('#').unwrap();
        let other;
        let root = if file.is_empty() {
            root
        } else {
            other = load(file);
            &other
        };
        check(root, root.pointer(pointer).unwrap_or_else(|| panic!("{target}")), value, at, found);
    }
    if let Some(Value::Array(choices)) = rules.get("anyOf") {
        let each: Vec<Vec<String>> = choices
            .iter()
            .map(|choice| {
                let mut found = Vec::new();
                check(root, choice, value, at, &mut found);
                found
            })
            .collect();
        if !each.iter().any(Vec::is_empty) {
            found.push(format!("{at}: fits none of the choices: {each:?}"));
        }
    }
}
