//! `tollgate install`: copies this program into a folder, so that a container of another image can
//! run it there.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use tollgate_client::failure::Failure;
use tollgate_client::format::print;

/// The running program. Unlike its path, this still names it after somebody replaced or removed it.
const SELF: &str = "/proc/self/exe";

/// Name of the copy.
const NAME: &str = "tollgate";

/// Everybody may run the copy, because the other container may have another user.
const MODE: u32 = 0o755;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tollgate install /shared")]
pub(crate) struct Install {
    /// Existing folder for the copy
    directory: PathBuf,
}

impl Install {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let program =
            File::open(SELF).map_err(|error| Failure::new("install.program", format_args!("`{SELF}`: {error}")))?;
        let path = copy(program, &self.directory)?;
        print(&format!("Installed `{}`.", path.display()), out)
    }
}

/// Copies a program into a folder, and returns the path of the copy.
///
/// An earlier copy is replaced atomically: a process that runs it meanwhile runs one of the two, and a
/// copy that fails leaves the earlier one.
fn copy(mut program: File, directory: &Path) -> Result<PathBuf, Failure> {
    let target = directory.join(NAME);
    let failed = |error: io::Error| Failure::new("install.copy", format_args!("`{}`: {error}", target.display()));
    // No other container would mount a folder that is created here.
    if !directory.is_dir() {
        let message = format!("`{}` is not a folder", directory.display());
        let hint = "mount the volume that both containers share there";
        return Err(Failure::new("install.directory", message).with_hint(hint));
    }
    let mut copy = tempfile::Builder::new()
        .prefix(".tollgate-")
        .tempfile_in(directory)
        .map_err(failed)?;
    io::copy(&mut program, copy.as_file_mut()).map_err(failed)?;
    // Neither the umask nor the mode of the program matters.
    copy.as_file()
        .set_permissions(Permissions::from_mode(MODE))
        .map_err(failed)?;
    copy.as_file().sync_all().map_err(failed)?;
    copy.persist(&target).map_err(|error| failed(error.error))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::copy;

    fn program(folder: &Path, content: &str) -> File {
        let path = folder.join("program");
        fs::write(&path, content).unwrap();
        File::open(path).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_copy_replaces_an_earlier_one_at_once() {
        let (source, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = copy(program(source.path(), "one"), shared.path()).unwrap();
        assert_eq!(path, shared.path().join("tollgate"));
        let mut running = File::open(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

        assert_eq!(copy(program(source.path(), "two"), shared.path()).unwrap(), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
        let mut earlier = String::new();
        running.read_to_string(&mut earlier).unwrap();
        assert_eq!(earlier, "one");
        assert_eq!(names(shared.path()), ["tollgate"]);
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing() {
        let (source, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let missing = shared.path().join("missing");
        let file = source.path().join("program");
        for (folder, expected) in [(&missing, "is not a folder"), (&file, "is not a folder")] {
            let failure = copy(program(source.path(), "one"), folder).unwrap_err().to_string();
            assert!(
                failure.starts_with("install.directory: `") && failure.contains(expected),
                "{failure}"
            );
        }
        assert!(!missing.exists());

        fs::create_dir_all(shared.path().join("tollgate/other")).unwrap();
        let failure = copy(program(source.path(), "one"), shared.path())
            .unwrap_err()
            .to_string();
        assert!(failure.starts_with("install.copy: `"), "{failure}");
        assert_eq!(names(shared.path()), ["tollgate"]);
    }
}
