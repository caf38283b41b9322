use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::{sleep, timeout};

use super::super::{Outcome, Recorder};
use super::PERIOD;
use crate::metrics::Metrics;

const PATIENCE: Duration = Duration::from_secs(20);

fn start(path: &Path) -> (Arc<Recorder>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let recorder = Recorder::start(10, Some(path), Arc::clone(&metrics), None).unwrap();
    (recorder, metrics)
}

fn close(recorder: &Arc<Recorder>, path: &str) {
    let open = recorder.open(Method::GET, path);
    open.close(Outcome::Allowed, StatusCode::OK, "allowed");
}

fn paths(text: &str) -> Vec<String> {
    let path = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["path"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    text.lines().map(path).collect()
}

/// Rotation by rename (logrotate's default) needs no signal and no restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_renamed_or_removed_is_replaced_by_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("d"), folder.path().join("d.1"));
    let (recorder, metrics) = start(&path);
    close(&recorder, "/before");
    recorder.flush().await;
    for remove in [false, true] {
        match remove {
            false => fs::rename(&path, &old).unwrap(),
            true => fs::remove_file(&path).unwrap(),
        }
        sleep(PERIOD).await;
        close(&recorder, "/after");
        recorder.flush().await;
        assert_eq!(paths(&fs::read_to_string(&path).unwrap()), ["/after"]);
    }
    assert_eq!(
        paths(&fs::read_to_string(&old).unwrap()),
        ["/before"],
        "what was rotated stays as it is"
    );
    assert_eq!(metrics.decision_lines_lost.get(), 0);
}

/// `/dev/full` refuses every write as a full disk does.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_counted_lines_and_stops_nothing() {
    let (recorder, metrics) = start(Path::new("/dev/full"));
    for number in 0..1_000 {
        close(&recorder, &format!("/{number}"));
    }
    timeout(PATIENCE, recorder.flush()).await.expect("a flush ends");
    assert_eq!(metrics.decision_lines_lost.get(), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_that_is_not_read_stops_nobody_and_lines_go_on_when_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let refused = Recorder::start(10, Some(&path), Arc::default(), None);
    assert!(refused.is_err(), "nobody reads it: an error, not a wait");
    let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (recorder, metrics) = start(&path);
    let all = async {
        for number in 0..40_000 {
            close(&recorder, &format!("/{number}"));
            if number % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    timeout(PATIENCE, all).await.expect("requests go on");
    let lost = metrics.decision_lines_lost.get();
    assert!(lost > 0, "the queue is bounded");
    let lines = BufReader::new(reader)
        .lines()
        .take(usize::try_from(40_000 - lost).unwrap());
    let read = tokio::task::spawn_blocking(move || lines.map(Result::unwrap).collect::<Vec<_>>());
    let read = timeout(PATIENCE, read)
        .await
        .expect("what was not lost arrives")
        .unwrap();
    assert_eq!(paths(&read.join("\n")).first().map(String::as_str), Some("/0"));
}
