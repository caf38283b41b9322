//! Finds PostgreSQL's programs, for the tests of the store.

use std::path::{Path, PathBuf};

/// Programs that the tests run.
const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// Text that says how to install them.
pub const REMEDY: &str = "`cargo xtask setup` or `apt-get install postgresql` installs it";

/// The folder that contains all of them: the first on the PATH, else Debian's newest release.
pub fn folder() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| is_complete(folder))
        .or_else(|| newest(Path::new("/usr/lib/postgresql")))
}

fn newest(versions: &Path) -> Option<PathBuf> {
    let number = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    std::fs::read_dir(versions)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|version| is_complete(&version.join("bin")))
        .max_by_key(number)
        .map(|version| version.join("bin"))
}

fn is_complete(folder: &Path) -> bool {
    PROGRAMS.iter().all(|program| folder.join(program).is_file())
}
