//! A clean Debian root: made once by mmdebstrap, copied for each check, and a package put into it.

use super::user;
use crate::{Failure, Folder, process, setup};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the units lie once they are installed.
const UNIT: &str = "usr/lib/systemd/system/laneway.service";
const SOCKET: &str = "usr/lib/systemd/system/laneway.socket";
const SETTINGS: &str = "etc/laneway/laneway.toml";
/// Behind the settings: what an administrator wrote, which an upgrade must keep.
const EDITED: &str = "memory-limit = 96\n";

/// A copy of the clean root, removed with its folder.
pub struct Root(PathBuf);

/// The clean root of this machine's own suite, since that has the C library which the binary was
/// built with.
pub fn base() -> Result<PathBuf, Failure> {
    setup::root("package", &setup::suite()?, &["--variant=apt", "--include=passwd"])
}

impl Root {
    /// A copy of this root in this folder.
    pub fn of(base: &Path, folder: &Folder) -> Result<Root, String> {
        let root = PathBuf::from(folder.file("root"));
        let mut copy = Command::new("cp");
        process::run(copy.args(["--archive", "--reflink=auto"]).arg(base).arg(&root))?;
        Ok(Root(root))
    }

    /// What a shell in this root, in the folder of the package, says to this command.
    fn run(&self, line: &str) -> Result<String, String> {
        let mut command = Command::new("chroot");
        command.arg(&self.0).args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(["DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "sh", "-e", "-c"]);
        let said = process::said(command.arg(format!("cd /srv; {line}")));
        said.map_err(|why| format!("in a clean Debian: {why}"))
    }

    fn expect(&self, line: &str, wanted: &str) -> Result<(), String> {
        let said = self.run(line)?;
        match said.contains(wanted) {
            true => Ok(()),
            false => Err(format!("in a clean Debian `{line}` says {said:?}, not {wanted}")),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).symlink_metadata().is_ok()
    }
}

/// Install the package by the commands of the guide; what is there then is what should be.
pub fn install(root: &Root, package: &Path, commands: &[String]) -> Result<(), String> {
    let name = package.file_name().expect("a package is a file");
    let copied = std::fs::copy(package, root.0.join("srv").join(name));
    copied.map_err(|e| format!("{}: {e}", package.display()))?;
    for command in commands {
        root.run(command)?;
    }
    root.expect("getent passwd laneway", ":/var/lib/laneway:/usr/sbin/nologin")?;
    root.expect("stat -c '%U %a' /usr/bin/laneway", "root 755")?;
    root.expect("dpkg-query -W -f '${Conffiles}' laneway", SETTINGS)?;
    root.expect("test -z \"$(dpkg --verify laneway)\" && echo verified", "verified")?;
    let manual = "usr/share/man/man1/laneway-serve.1.gz";
    for name in [manual, "usr/lib/sysusers.d/laneway.conf", UNIT, SOCKET] {
        if !root.has(name) {
            return Err(format!("the package does not bring {name}"));
        }
    }
    Ok(())
}

/// Run the server as the unit does, and use it.
pub fn serve(root: &Root) -> Result<String, String> {
    let unit = process::read(root.0.join(UNIT))?;
    let value = |key: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(key));
        found.ok_or_else(|| format!("the unit has no {key}"))
    };
    let words: Vec<String> = value("ExecStart=")?.split(' ').map(str::to_owned).collect();
    let who = format!("{}:{}", value("User=")?, value("Group=")?);
    let server = user::serve(&root.0, &who, &words)?;
    let (uid, _, able) = user::rights(server.id())?;
    if uid == 0 || able {
        return Err(format!("as {who} the server runs as user {uid}, with capabilities: {able}"));
    }
    user::use_and_stop(server)?;
    Ok(format!("it served as {who}"))
}

/// An upgrade keeps what was edited; a removal takes the program, and a purge the settings too.
pub fn remove(root: &Root) -> Result<(), String> {
    root.run(&format!("echo '{}' >> /{SETTINGS}", EDITED.trim()))?;
    root.run("dpkg --install laneway_*.deb")?;
    root.expect(&format!("cat /{SETTINGS}"), EDITED)?;
    root.run("dpkg --remove laneway")?;
    let (program, settings) = (root.has("usr/bin/laneway"), root.has(SETTINGS));
    if program || !settings {
        let told = format!("after a removal, program there: {program}, settings: {settings}");
        return Err(told);
    }
    root.run("dpkg --purge laneway")?;
    match root.has(SETTINGS) {
        true => Err("a purge leaves the settings".into()),
        false => root.expect("getent passwd laneway", "laneway"),
    }
}
