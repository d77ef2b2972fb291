//! What holds: the defaults, over which come the file, the environment and the command line, each
//! over the ones before. A flag that is given in several places has the last place's value, a list
//! too: lists are not joined.

use super::command_line::{self, Asked, Word};
use super::environment;
use super::file;
use super::flag::{Field, Flag};
use super::foreign::Refused;
use super::origin::Origin;
use super::table::Flags;
use super::values;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Read the command line, these variables, and the file that either names.
pub fn read(
    args: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Asked, Refused> {
    let (words, warnings) = match command_line::split(args)? {
        Ok(split) => split,
        Err(asked) => return Ok(asked),
    };
    let variables = environment::variables(variables)?;
    let mut flags = Flags { warnings, ..Flags::default() };
    let typed = words.iter().filter(|word| word.flag.name == CONFIG);
    let typed = typed.filter_map(|word| word.value.as_ref()).next_back();
    let set = variables.iter().find(|one| one.flag.name == CONFIG).map(|one| &one.value);
    if let Some(path) = typed.or(set) {
        let file = file::read(&PathBuf::from(path))?;
        let mut layer = Layer::default();
        for entry in &file.entries {
            let origin = Origin::File(file.name.clone(), entry.line);
            for value in &entry.values {
                let put = layer.put(&mut flags, entry.flag, origin.clone(), Some(value));
                put.map_err(|refused| refused.at(entry.flag.name).at(&origin))?;
            }
        }
    }
    let mut layer = Layer::default();
    for one in &variables {
        let origin = Origin::Environment(one.name.clone());
        let put = layer.put(&mut flags, one.flag, origin, Some(&one.value));
        put.map_err(|refused| refused.at(&one.name))?;
    }
    let mut layer = Layer::default();
    for Word { flag, typed, value } in &words {
        let origin = Origin::CommandLine(typed.clone());
        let put = layer.put(&mut flags, flag, origin, value.as_deref());
        put.map_err(|refused| refused.at(typed))?;
    }
    let warnings = std::mem::take(&mut flags.extended.warnings);
    flags.warnings.extend(warnings);
    Ok(Asked::Serve(Box::new(flags)))
}

/// The flag that names the file.
const CONFIG: &str = "config";

/// One of the places, and what it gave already.
#[derive(Default)]
struct Layer(Vec<&'static str>);

impl Layer {
    fn put(
        &mut self,
        flags: &mut Flags,
        flag: &'static Flag<Flags>,
        origin: Origin,
        value: Option<&OsStr>,
    ) -> Result<(), Refused> {
        if !self.0.contains(&flag.name) {
            self.0.push(flag.name);
            values::clear((flag.field)(flags));
        }
        match ((flag.field)(flags), value) {
            (Field::Count(times), None) => *times += 1,
            (field, value) => values::put(field, value.unwrap_or(OsStr::new("true")))?,
        }
        flags.origins.retain(|(name, _)| *name != flag.name);
        flags.origins.push((flag.name, origin));
        Ok(())
    }
}

/// An error, and where the flag that it begins with was given, if there is more to say of that.
pub fn placed(flags: &Flags, error: String) -> String {
    match place(flags, &error) {
        Some(place) => format!("{error} {place}"),
        None => error,
    }
}

/// Where the flag that an error begins with was given, if that was not the command line, whose
/// words the reader has before his eyes.
pub fn place(flags: &Flags, error: &str) -> Option<String> {
    let typed = error.split([' ', ':']).next()?;
    let flag = command_line::row(typed)?;
    let (_, origin) = flags.origins.iter().find(|(name, _)| *name == flag.name)?;
    match origin {
        Origin::CommandLine(_) => None,
        elsewhere => Some(format!("({} is given by {elsewhere})", flag.name)),
    }
}
