//! The image's root, put together by the script that the Containerfile runs, and run as it says.
//!
//! What stands in the Containerfile is read, not repeated: user, entry point, command and health
//! check. That an engine builds the image is not tried: it would fetch a compiler and build for
//! minutes.

use super::user;
use crate::{Folder, Outcome, failed, passed, place, process};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

const CONTAINERFILE: &str = "packaging/container/Containerfile";
const ASSEMBLE: &str = "packaging/container/assemble";
/// The one folder that its user may write to, as a volume.
const VOLUME: &str = "data";

/// What the last stage of a Containerfile says.
#[derive(Debug, PartialEq)]
pub struct Image {
    pub user: String,
    pub ports: Vec<u16>,
    entry: Vec<String>,
    command: Vec<String>,
    health: Vec<String>,
}

impl Image {
    pub fn read() -> Result<Image, String> {
        Image::parse(&process::read(process::root().join(CONTAINERFILE))?)
    }

    fn parse(text: &str) -> Result<Image, String> {
        let stage = text.rsplit("\nFROM ").next().unwrap_or_default();
        let line = |word: &str| {
            let found = stage.lines().find_map(|line| line.strip_prefix(&format!("{word} ")));
            found.ok_or_else(|| format!("{CONTAINERFILE} has no {word}"))
        };
        let (_, health) = line("HEALTHCHECK")?.split_once("CMD ").ok_or("a health check is CMD")?;
        let ports = line("EXPOSE")?.split(' ').map(str::parse);
        Ok(Image {
            user: line("USER")?.to_owned(),
            ports: ports.collect::<Result<_, _>>().map_err(|e| format!("EXPOSE: {e}"))?,
            entry: words(line("ENTRYPOINT")?)?,
            command: words(line("CMD")?)?,
            health: words(health)?,
        })
    }
}

/// A list of words as the Containerfile has it, in JSON.
fn words(array: &str) -> Result<Vec<String>, String> {
    serde_json::from_str(array).map_err(|e| format!("{array}: {e}"))
}

/// Put the root together, look at it, run it.
pub fn check(binary: &Path) -> Outcome {
    let image = Image::read()?;
    place::need_root("running the image's root (chroot)")?;
    let folder = Folder::make("package-image")?;
    let root = folder.file("root");
    process::run(Command::new(process::root().join(ASSEMBLE)).arg(binary).arg(&root))?;
    let root = Path::new(&root);
    let no_group = || format!("USER {} names no group", image.user);
    let (uid, _) = image.user.split_once(':').ok_or_else(no_group)?;
    let uid: u32 = uid.parse().map_err(|_| format!("USER {uid} is no number"))?;
    unwritable(root, uid)?;
    let started = [&image.entry[..], &image.command[..]].concat();
    let server = user::serve(root, &image.user, &started)?;
    let address = server.address();
    if user::rights(server.id())? != (uid, uid, false) {
        return failed(format!("it does not run as {} without capabilities", image.user));
    }
    healthy(root, &image, address, true)?;
    user::use_and_stop(server)?;
    healthy(root, &image, address, false)?;
    let how = if user::may_mount() { "in a read-only root" } else { "by chroot alone" };
    passed(format!("it served as {} {how}, and its health check knows", image.user))
}

/// Fail unless the health check says so.
fn healthy(root: &Path, image: &Image, at: SocketAddr, wanted: bool) -> Result<(), String> {
    let wrapper = user::entered(root, &image.user);
    let mut check = Command::new(&wrapper[0]);
    check.args(&wrapper[1..]).args(&image.health).args(["--server", &at.to_string()]);
    let (status, said) = process::capture(&mut check)?;
    let (code, how) = (i32::from(!wanted), process::told(status));
    let is_right = status.code() == Some(code);
    is_right
        .then_some(())
        .ok_or_else(|| format!("`{}` ended with {how}, not {code}: {said}", process::typed(&check)))
}

/// Fail if the image's user could write anything but its volume.
fn unwritable(root: &Path, uid: u32) -> Result<(), String> {
    let find = |what: &[&str]| {
        process::printed(Command::new("find").arg(root).args(["-mindepth", "1"]).args(what))
    };
    let uid = uid.to_string();
    let own = find(&["-uid", uid.as_str()])?;
    let open = find(&["!", "-type", "l", "-perm", "-002"])?;
    match Path::new(own.trim_end()) == root.join(VOLUME) && open.is_empty() {
        true => Ok(()),
        false => Err(format!("who may write is wrong: the user {own}, everybody {open}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stage_of_a_containerfile_is_read() {
        let text = "FROM a AS b\nUSER root\n\nFROM scratch\nUSER 7:8\nEXPOSE 1 2\n\
                    HEALTHCHECK --timeout=1s CMD [\"/a\", \"ping\"]\nENTRYPOINT [\"/a\"]\n\
                    CMD [\"serve\"]\n";
        let list = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let image = Image {
            user: "7:8".into(),
            ports: vec![1, 2],
            entry: list(&["/a"]),
            command: list(&["serve"]),
            health: list(&["/a", "ping"]),
        };
        assert_eq!(Image::parse(text), Ok(image));
        assert!(Image::parse("FROM scratch\n").is_err());
        assert!(words("serve").is_err() && words("[1]").is_err());
    }
}
