//! PostgreSQL for the tests of the store: where its programs are.
//!
//! In: the PATH, and where Debian puts them. Out: their folder. Never: a server.
//! The tests include this file by path.

use std::path::{Path, PathBuf};

/// What the tests run.
const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// What installs them.
pub const REMEDY: &str = "`cargo xtask setup` or `apt-get install postgresql` installs it";

/// The folder with all of them: one of the PATH, else the newest of Debian's.
pub fn folder() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| is_whole(folder))
        .or_else(|| newest(Path::new("/usr/lib/postgresql")))
}

fn newest(versions: &Path) -> Option<PathBuf> {
    let number = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    std::fs::read_dir(versions)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|version| is_whole(&version.join("bin")))
        .max_by_key(number)
        .map(|version| version.join("bin"))
}

fn is_whole(folder: &Path) -> bool {
    PROGRAMS.iter().all(|program| folder.join(program).is_file())
}
