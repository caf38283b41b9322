//! Runs the binary `tollgate`, also on shipped bundles with one text changed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::policies::bundles::write;

/// Runs `tollgate`: its exit code and standard output.
pub(crate) fn tollgate(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// Runs `tollgate policy COMMAND` on the shipped bundle `front` with one text of one of
/// its files replaced.
pub(crate) fn changed(command: &str, front: &str, (name, from, to): (&str, &str, &str)) -> (i32, String) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(front);
    let files = files(&shipped);
    let mut found = false;
    let texts: Vec<(String, String)> = files
        .iter()
        .map(|file| {
            let path = file.strip_prefix(&shipped).unwrap().to_str().unwrap();
            let mut text = std::fs::read_to_string(file).unwrap();
            if path == name {
                assert!(text.contains(from), "{from}");
                text = text.replace(from, to);
                found = true;
            }
            (format!("{front}/{path}"), text)
        })
        .collect();
    assert!(found, "{name}");
    let texts: Vec<(&str, &str)> = texts
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let folder = write(&texts);
    tollgate(&["policy", command, folder.path().to_str().unwrap()])
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let below = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        });
    below.flatten().collect()
}
