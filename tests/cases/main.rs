//! Runs the case tables `tests/cases/*.yaml` and those in the folder that `TOLLGATE_CASES` names.
//! Prints a line per file and a total, and exits with 1 if a case fails.
//!
//! `cargo test --test cases [-- ID]` runs only cases whose id contains ID.
//!
//! Invariant: no case is skipped silently, and kinds and fields that no suite reads are errors. The
//! cases of `mutations`, each with a wrong expectation, test the runner itself.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic fails the case"
)]

use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};

mod applicationsets;
mod extension_config;
mod extension_requests;
mod glob;
mod impersonation;
mod kubernetes_access;
mod mutations;
mod project_destinations;
mod providers;
mod rbac;
mod suite;

use suite::{Case, Exceptions, Outcomes, Suite, Table};

/// All suites. For the kinds of a new table, add a module and a line here.
const SUITES: &[&dyn Suite] = &[
    &applicationsets::ApplicationSets,
    &extension_config::ExtensionConfig,
    &extension_requests::ExtensionRequests,
    &glob::Globs,
    &impersonation::Impersonation,
    &kubernetes_access::KubernetesAccess,
    &project_destinations::ProjectDestinations,
    &providers::Providers,
    &rbac::Rbac,
];

/// Counts of one file.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    exempt: usize,
}

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    match run(&mut out) {
        Ok(tally) if tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(out, "cases: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write) -> Result<Tally, String> {
    let filter = wanted(std::env::args().skip(1));
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let exceptions = Exceptions::read(&own.join("not-applicable.yaml"))?;
    let outcomes = Outcomes::read(&own.join("outcomes.yaml"))?;
    let mut files = tables_in(&own)?;
    let known = files.iter().filter_map(|file| Table::read(file, &outcomes).ok());
    let known = known.flat_map(|table| table.cases).map(|case| case.id).collect();
    let unknown = outcomes.unknown(&known);
    if !unknown.is_empty() {
        return Err(format!("outcomes.yaml: there are no cases {unknown:?}"));
    }
    if let Some(folder) = std::env::var_os("TOLLGATE_CASES").filter(|folder| !folder.is_empty()) {
        let more = tables_in(Path::new(&folder))?;
        if more.is_empty() {
            return Err(format!(
                "no *.yaml in TOLLGATE_CASES `{}`",
                Path::new(&folder).display()
            ));
        }
        files.extend(more);
    }
    let mut tasks: Vec<Task<'_>> = files.iter().map(|file| Task::File(file)).collect();
    if filter.is_none() {
        tasks.push(Task::Mutations(&own));
    }
    let total = run_all(out, tasks, (&exceptions, &outcomes), filter.as_deref())?;
    let write = |error: std::io::Error| error.to_string();
    if total.exempt > 0 {
        writeln!(out, "{} not applicable", total.exempt).map_err(write)?;
    }
    if total.passed + total.failed == 0 {
        return Err("no case ran".to_owned());
    }
    writeln!(out, "{} passed, {} failed", total.passed, total.failed).map_err(write)?;
    Ok(total)
}

/// What one thread runs at a time.
enum Task<'a> {
    /// The cases of a file.
    File(&'a Path),
    /// The mutations of cases in a folder.
    Mutations(&'a Path),
}

/// Runs the tasks on one thread for each processor, prints the output of each when it ends, and
/// returns their sums.
fn run_all(
    out: &mut impl Write,
    tasks: Vec<Task<'_>>,
    (exceptions, outcomes): (&Exceptions, &Outcomes),
    filter: Option<&str>,
) -> Result<Tally, String> {
    let queue = Mutex::new(tasks.into_iter());
    let (sender, finished) = mpsc::channel();
    let work = |sender: Sender<_>| {
        while let Some(task) = { queue.lock().unwrap().next() } {
            let mut text = Vec::new();
            let tally = match task {
                Task::File(file) => {
                    run_file(&mut text, file, (exceptions, outcomes), filter).map_err(|error| error.to_string())
                }
                Task::Mutations(folder) => mutations::run(&mut text, folder, outcomes),
            };
            // The receiver stops at the first error.
            if sender.send((text, tally)).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        let mut total = Tally::default();
        for (text, tally) in finished {
            out.write_all(&text).map_err(|error| error.to_string())?;
            let tally = tally?;
            total.passed += tally.passed;
            total.failed += tally.failed;
            total.exempt += tally.exempt;
        }
        Ok(total)
    })
}

/// The id in the arguments. `cargo test` passes the same arguments to every test binary, so the
/// values of libtest's options are skipped.
fn wanted(mut arguments: impl Iterator<Item = String>) -> Option<String> {
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--skip" | "--test-threads" | "--format" | "--color" => drop(arguments.next()),
            option if option.starts_with('-') => {}
            _ => return Some(argument),
        }
    }
    None
}

/// Every table of a folder, sorted by name.
fn tables_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let is_table = path.extension().is_some_and(|extension| extension == "yaml");
        if is_table
            && path
                .file_name()
                .is_some_and(|name| name != "not-applicable.yaml" && name != "outcomes.yaml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn run_file(
    out: &mut impl Write,
    path: &Path,
    (exceptions, outcomes): (&Exceptions, &Outcomes),
    filter: Option<&str>,
) -> std::io::Result<Tally> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut tally = Tally::default();
    match Table::read(path, outcomes) {
        Err(error) => {
            tally.failed += 1;
            writeln!(out, "{name}: FAILED: {error}")?;
        }
        Ok(table) => {
            for case in table
                .cases
                .iter()
                .filter(|case| filter.is_none_or(|filter| case.id.contains(filter)))
            {
                if let Some(reason) = exceptions.reason(&case.id) {
                    tally.exempt += 1;
                    writeln!(out, "{name}: not applicable: {}: {reason}", case.id)?;
                    continue;
                }
                match run_case(&table, case) {
                    Ok(()) => tally.passed += 1,
                    Err(why) => {
                        tally.failed += 1;
                        writeln!(out, "{name}: FAILED: {} ({}): {why}", case.id, case.kind)?;
                    }
                }
            }
            if table.cases.is_empty() {
                tally.failed += 1;
                writeln!(out, "{name}: FAILED: the file has no cases")?;
            }
        }
    }
    for suite in SUITES {
        suite.end();
    }
    writeln!(out, "{name}: {} passed, {} failed", tally.passed, tally.failed)?;
    Ok(tally)
}

/// Runs one case with the suite that covers its kind. A panic fails the case.
fn run_case(table: &Table, case: &Case) -> Result<(), String> {
    let Some(suite) = SUITES.iter().find(|suite| suite.covers(table, &case.kind)) else {
        return Err(format!(
            "no suite covers kind `{}` of subject `{}`",
            case.kind, table.subject
        ));
    };
    let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| suite.run(table, case)));
    attempt.unwrap_or_else(|_| Err("panicked".to_owned()))
}
