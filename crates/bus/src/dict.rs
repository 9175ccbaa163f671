//! JSON objects as dictionaries of D-Bus (`a{sv}`): a key more breaks no reader. Numbers without a sign are `t`, lists `av`; what is null
//! is left out.

use std::collections::HashMap;

use linkspan_service::events::EVENTS_EACH;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use zbus::zvariant::{Array, OwnedValue, Signature, Value};

/// A dictionary of D-Bus.
pub type Dict = HashMap<String, OwnedValue>;

/// A value that is an object in JSON; empty if it is none.
pub fn to_dict(value: &impl Serialize) -> Dict {
    match serde_json::to_value(value) {
        Ok(Json::Object(fields)) => dict(fields),
        _ => Dict::new(),
    }
}

fn dict(fields: Map<String, Json>) -> Dict {
    let owned = |(key, field)| Some((plain(key), OwnedValue::try_from(value(field)?).ok()?));
    fields.into_iter().filter_map(owned).collect()
}

/// Without NUL, for which a bus ends the connection of whoever sends it.
pub(crate) fn plain(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

fn value(json: Json) -> Option<Value<'static>> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(flag) => flag.into(),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => number.as_f64()?.into(),
        },
        Json::String(text) => plain(text).into(),
        Json::Array(list) => {
            let mut array = Array::new(&Signature::Variant);
            list.into_iter().filter_map(value).try_for_each(|item| array.append(Value::Value(Box::new(item)))).ok()?;
            Value::Array(array)
        }
        Json::Object(fields) => dict(fields).into(),
    })
}

/// The value again. Keys that it does not know are passed over.
///
/// # Errors
/// [`serde_json::Error`]: a key that it needs is missing or has another type.
pub fn from_dict<T: DeserializeOwned>(dict: &Dict) -> Result<T, serde_json::Error> {
    let fields = dict.iter().filter_map(|(key, value)| Some((key.clone(), json(value)?)));
    serde_json::from_value(Json::Object(fields.collect()))
}

/// Where an answer of GetEvents has as many as one can have: the time after which the others are.
pub fn more_after(events: &[Dict]) -> Option<u64> {
    let last = events.last().filter(|_| events.len() >= EVENTS_EACH)?;
    u64::try_from(last.get("time_us")?).ok()
}

fn json(value: &Value<'_>) -> Option<Json> {
    Some(match value {
        Value::Bool(flag) => (*flag).into(),
        Value::U8(number) => (*number).into(),
        Value::U16(number) => (*number).into(),
        Value::U32(number) => (*number).into(),
        Value::U64(number) => (*number).into(),
        Value::I16(number) => (*number).into(),
        Value::I32(number) => (*number).into(),
        Value::I64(number) => (*number).into(),
        Value::F64(number) => (*number).into(),
        Value::Str(text) => text.as_str().into(),
        Value::ObjectPath(path) => path.as_str().into(),
        Value::Value(inner) => json(inner)?,
        Value::Array(list) => Json::Array(list.iter().filter_map(json).collect()),
        Value::Dict(fields) => {
            let pair = |(key, value): (&Value<'_>, &Value<'_>)| Some((json(key)?.as_str()?.to_owned(), json(value)?));
            Json::Object(fields.iter().filter_map(pair).collect())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_the_same_after_the_bus() {
        let value = json!({ "n": 7, "minus": -1, "f": 0.5, "s": "text", "yes": true, "list": [1, 2], "none": [],
            "deep": [{ "a": [] , "b": { "c": 1 } }] });
        let there = to_dict(&value);
        assert_eq!(there["n"].value_signature().to_string(), "t");
        assert_eq!(from_dict::<Json>(&there).unwrap(), value);
        assert_eq!(to_dict(&json!({ "left out": null })), Dict::new());
        assert_eq!(to_dict(&7), Dict::new());
        assert_eq!(to_dict(&json!({ "a\0": ["\0b"] })), to_dict(&json!({ "a\u{fffd}": ["\u{fffd}b"] })));
    }
}
