use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fingerprint::{self, Depth, Digests};
use super::{FileEvents, Timing, Watch, watch};

const FAST: Timing = Timing {
    quiet_period: Duration::from_millis(20),
    max_delay: Duration::from_millis(500),
    poll: Duration::from_millis(100),
};

/// Without earlier digests.
fn take(paths: &[PathBuf], depth: Depth) -> [u8; 32] {
    fingerprint::take(paths, depth, &mut Digests::default())
}

async fn start(folder: &Path, events: FileEvents) -> Watch {
    watch(vec![folder.to_owned()], FAST, events).await
}

async fn expect_change(watch: &mut Watch) {
    tokio::time::timeout(Duration::from_secs(20), watch.changed())
        .await
        .expect("no change was reported")
        .unwrap();
}

fn replace(folder: &Path, name: &str, text: &str) {
    let temporary = folder.join(format!(".{name}.tmp"));
    fs::write(&temporary, text).unwrap();
    fs::rename(&temporary, folder.join(name)).unwrap();
}

#[tokio::test]
async fn atomic_replacement_new_files_and_removal_are_changes() {
    for events in [FileEvents::IfAvailable, FileEvents::Never] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), "a").unwrap();
        let mut watch = start(folder.path(), events).await;
        replace(folder.path(), "a.yaml", "b");
        expect_change(&mut watch).await;
        fs::create_dir(folder.path().join("inner")).unwrap();
        expect_change(&mut watch).await;
        fs::write(folder.path().join("inner/b.yaml"), "b").unwrap();
        expect_change(&mut watch).await;
        fs::remove_file(folder.path().join("a.yaml")).unwrap();
        expect_change(&mut watch).await;
    }
}

#[tokio::test]
async fn swapping_a_mounted_config_map_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let write_version = |version: &str, text: &str| {
        fs::create_dir(folder.path().join(version)).unwrap();
        fs::write(folder.path().join(version).join("a.yaml"), text).unwrap();
    };
    write_version("..v1", "a");
    symlink("..v1", folder.path().join("..data")).unwrap();
    symlink("..data/a.yaml", folder.path().join("a.yaml")).unwrap();
    let mut watch = start(folder.path(), FileEvents::IfAvailable).await;
    for version in ["..v2", "..v3"] {
        write_version(version, version);
        symlink(version, folder.path().join("..data_tmp")).unwrap();
        fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
        expect_change(&mut watch).await;
    }
}

#[tokio::test]
async fn creating_the_watched_folder_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let later = folder.path().join("later");
    let mut watch = start(&later, FileEvents::IfAvailable).await;
    fs::create_dir(&later).unwrap();
    expect_change(&mut watch).await;
    fs::write(later.join("a.rego"), "package a").unwrap();
    expect_change(&mut watch).await;
}

#[test]
fn hidden_files_and_reads_are_no_change_but_other_contents_of_equal_size_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    fs::write(&file, "a").unwrap();
    let paths = [folder.path().to_owned()];
    let before = take(&paths, Depth::Contents);
    fs::write(folder.path().join(".a.yaml.swp"), "x").unwrap();
    fs::read(&file).unwrap();
    assert_eq!(take(&paths, Depth::Contents), before);
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "b").unwrap();
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    assert_ne!(take(&paths, Depth::Contents), before);
}

#[test]
fn agent_configurations_in_hidden_folders_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join(".gitlab/agents/a");
    fs::create_dir_all(&agent).unwrap();
    let paths = [folder.path().to_owned()];
    let before = take(&paths, Depth::Contents);
    fs::create_dir(folder.path().join(".git")).unwrap();
    assert_eq!(take(&paths, Depth::Contents), before);
    fs::write(agent.join("config.yaml"), "user_access: {}").unwrap();
    assert_ne!(take(&paths, Depth::Contents), before);
}

#[test]
fn symbolic_link_loops_terminate() {
    let folder = tempfile::tempdir().unwrap();
    symlink(folder.path(), folder.path().join("again")).unwrap();
    symlink("missing", folder.path().join("dangling")).unwrap();
    let paths = [folder.path().to_owned()];
    assert_eq!(take(&paths, Depth::Metadata), take(&paths, Depth::Metadata));
}

#[test]
fn only_files_that_changed_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().to_owned()];
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let check = |digests: &mut Digests| {
        let before = digests.read;
        let taken = fingerprint::take(&paths, Depth::Contents, digests);
        (taken, digests.read - before)
    };
    write("a.yaml", "a");
    write("b.yaml", "b");
    // Files that are so new may change again without another time.
    let mut digests = Digests::default();
    let (first, read) = check(&mut digests);
    assert_eq!(read, 2);
    assert_eq!(check(&mut digests), (first, 2));

    digests.coarse_times = Duration::ZERO;
    assert_eq!(check(&mut digests), (first, 2));
    assert_eq!(check(&mut digests), (first, 0));
    replace(folder.path(), "a.yaml", "c");
    let (second, read) = check(&mut digests);
    assert_ne!(second, first);
    assert_eq!(read, 1);
    assert_eq!(check(&mut digests), (second, 0));
    fs::remove_file(folder.path().join("b.yaml")).unwrap();
    let (third, read) = check(&mut digests);
    assert_ne!(third, second);
    assert_eq!(read, 0);
}
