//! The commands of docs/install.md that can run in a clean root.

use super::deb;
use crate::process;

const GUIDE: &str = "docs/install.md";
/// What stands behind the fence of a block that is run, and of blocks that are not: they build for
/// minutes, or need a service manager, a container engine or a cluster.
const RUN: &str = "sh deb";
const NOT_RUN: &[&str] = &["sh source", "sh static", "sh service", "sh image", "sh kubernetes"];

/// Each line of each block that is run.
pub fn commands() -> Result<Vec<String>, String> {
    let commands = blocks(&process::read(process::root().join(GUIDE))?)?;
    // The guide writes the name that the package has on x86-64.
    let (written, here) = (name("amd64"), name(&deb::architecture()?));
    match commands.iter().any(|line| line.contains(&written)) {
        true => Ok(commands.iter().map(|line| line.replace(&written, &here)).collect()),
        false => Err(format!("{GUIDE} does not install {written}")),
    }
}

fn name(architecture: &str) -> String {
    format!("laneway_{}_{architecture}.deb", deb::VERSION)
}

fn blocks(text: &str) -> Result<Vec<String>, String> {
    let (mut commands, mut fence) = (Vec::new(), None);
    for line in text.lines() {
        match (fence, line.strip_prefix("```")) {
            (Some(_), Some(_)) => fence = None,
            (None, Some(kind)) => {
                // Whoever adds a block says whether it is run.
                if kind.starts_with("sh") && kind != RUN && !NOT_RUN.contains(&kind) {
                    let told = format!("{GUIDE}: ```{kind} says neither `{RUN}` nor {NOT_RUN:?}");
                    return Err(told);
                }
                fence = Some(kind);
            }
            (Some(RUN), None) if !line.is_empty() => commands.push(line.to_owned()),
            _ => {}
        }
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_run_or_says_why_not() {
        let text = "a\n```sh deb\none\n\ntwo\n```\n```sh image\nthree\n```\n```toml\nx\n```\n";
        assert_eq!(blocks(text), Ok(vec!["one".to_owned(), "two".to_owned()]));
        assert!(blocks("```sh\none\n```\n").is_err_and(|why| why.contains("sh deb")));
    }
}
