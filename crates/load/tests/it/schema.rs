//! What of JSON Schema this repository's schemas need, for the tests that hold records and rows
//! against them (the simulator's tests, too).

use serde_json::Value;

fn is(value: &Value, kind: &str) -> bool {
    match (kind, value) {
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("null", Value::Null) => true,
        ("array", Value::Array(_)) | ("object", Value::Object(_)) => true,
        ("number", Value::Number(_)) => true,
        ("integer", Value::Number(number)) => !number.is_f64(),
        _ => false,
    }
}

/// Holds `value` against what of JSON Schema our schemas have need of. A word that is
/// not known here fails, as what it asks for would not be checked.
pub fn hold(value: &Value, schema: &Value, whole: &Value, at: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{at}: {why}: {value}"));
    for (word, wanted) in schema.as_object().into_iter().flatten() {
        match (word.as_str(), wanted, value) {
            ("$ref", Value::String(name), _) => {
                let meant = whole.pointer(&name[1..]).ok_or("no such definition")?;
                hold(value, meant, whole, at)?;
            }
            ("const", _, _) if wanted == value => {}
            ("enum", Value::Array(all), _) if all.contains(value) => {}
            ("type", Value::String(kind), _) if is(value, kind) => {}
            ("type", Value::Array(kinds), _)
                if kinds.iter().filter_map(Value::as_str).any(|kind| is(value, kind)) => {}
            ("items", _, Value::Array(all)) => {
                all.iter().try_for_each(|each| hold(each, wanted, whole, at))?;
            }
            ("required", Value::Array(names), Value::Object(fields)) => {
                let mut names = names.iter().filter_map(Value::as_str);
                if let Some(name) = names.find(|name| !fields.contains_key(*name)) {
                    return wrong(&format!("without {name}"));
                }
            }
            ("additionalProperties", others, Value::Object(fields)) => {
                for (name, field) in fields {
                    let known = schema.pointer("/properties").and_then(|all| all.get(name));
                    match known.unwrap_or(others) {
                        Value::Bool(false) => return wrong(&format!("no {name} is known")),
                        wanted => hold(field, wanted, whole, &format!("{at}/{name}"))?,
                    }
                }
            }
            // They are read where something is held against them.
            ("properties" | "$defs" | "$schema" | "title" | "description", _, _) => {}
            _ => return wrong(&format!("{word} is not {wanted}")),
        }
    }
    Ok(())
}
