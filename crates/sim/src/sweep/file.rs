//! A sweep as a TOML file: `name = value` or `name = [value, ...]`, names with underscores.

use crate::inputs::wrong_toml;

/// Its parameters as flags have them, each with the text of its values.
pub(super) fn values(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let file: toml::Table = toml::from_str(text).map_err(|error| wrong_toml(text, &error))?;
    let parameter = |(name, value): (&String, &toml::Value)| {
        let plain = |value: &toml::Value| match value {
            toml::Value::String(text) => Ok(text.clone()),
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                Ok(value.to_string())
            }
            _ => Err(format!("{name}: must be a value or a list of values")),
        };
        let values = match value {
            toml::Value::Array(values) => values.iter().map(plain).collect::<Result<_, _>>()?,
            value => vec![plain(value)?],
        };
        Ok((name.replace('_', "-"), values))
    };
    file.iter().map(parameter).collect()
}
