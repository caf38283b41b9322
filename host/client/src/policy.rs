//! `tollgate policy`: tests, checks and evaluates bundles before they are used. The exit code is
//! not 0 if a case fails.
//!
//! Security: bundles are not parsed in this process.

use std::collections::BTreeSet;
use std::io::{BufRead as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::EXIT_USAGE;
use super::admin_listener::AdminListener;
use super::failure::Failure;
use super::format::Format;
use super::input::read_file_or_stdin;
use strum::VariantArray;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};
use tollgate_core::yaml;
use tollgate_policy::application_request::{ObjectOperation, ReadOrWrite};
use tollgate_rego::{self as rego, BundleSource, Checker, Coverage, Front, WORKER_STACK_BYTES};

mod print;

const EXIT_FAILED: u8 = 1;
/// Longest input of `eval` and `explain`, in bytes.
const INPUT_BYTES: u64 = 1024 * 1024;

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the test cases of policy bundles
    ///
    /// Exits with 1 if a case fails or a bundle would not be used.
    #[command(after_help = "Examples:\n  tollgate policy test policies\n  \
                            tollgate policy test policies/extensions --threshold 90")]
    Test(TestArgs),
    /// Check whether the gateway would use policy bundles, and print what is wrong
    Check {
        /// Bundles, files in bundles, or folders of bundles
        #[arg(default_value = "policies")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        common: Common,
    },
    /// Evaluate a policy bundle for one input and print the decision
    ///
    /// Exits with 0 for an allow and for a denial, and with 1 if there is no decision.
    #[command(
        after_help = "Examples:\n  tollgate policy eval policies/extensions --input request.yaml\n  \
                            tollgate policy eval policies/extensions --decision 0190a5b8-..."
    )]
    Eval {
        #[command(flatten)]
        bundle: BundleArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Evaluate a policy bundle for one request and print the lines that decided
    ///
    /// Exits with 0 for an allow and for a denial, and with 1 if there is no decision.
    #[command(after_help = "Examples:\n  tollgate policy explain --decision 0190a5b8-...\n  \
                            tollgate policy explain policies/kubernetes --input person.yaml \
                            --request 'GET /api/v1/pods'")]
    Explain(ExplainArgs),
}

#[derive(Clone, Debug, Args)]
pub struct TestArgs {
    /// Bundles, files in bundles, or folders of bundles
    #[arg(default_value = "policies")]
    paths: Vec<PathBuf>,
    /// Print the lines of policies that no case reaches
    #[arg(long)]
    coverage: bool,
    /// Fail if the cases reach less than this percentage of lines, 0 to 100; implies --coverage
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    threshold: Option<u8>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    bundle: BundleArgs,
    /// Method and path of a request to a cluster, such as `GET /api/v1/pods?watch=1`; replaces `request` of
    /// the input
    #[arg(long, value_name = "LINE")]
    request: Option<String>,
    /// Protocol that --request upgrades to
    #[arg(long, value_name = "NAME", value_parser = ["websocket", "SPDY/3.1"], requires = "request")]
    upgrade: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct BundleArgs {
    /// Folder of the bundle, or a file in it; if omitted, the bundle of the settings for the decision's front
    #[arg(required_unless_present = "decision")]
    path: Option<PathBuf>,
    /// File with the input as YAML or JSON, at most 1 MiB; `-` is standard input
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "decision",
        conflicts_with = "decision"
    )]
    input: Option<PathBuf>,
    /// ID of a decision of a running gateway, whose input is taken. The gateway keeps those of the latest
    /// 1000 decisions. `tollgate decisions` lists ids, and refusals name theirs
    #[arg(long, value_name = "ID", value_parser = super::decisions::decision_id)]
    decision: Option<uuid::Uuid>,
    #[command(flatten)]
    admin: AdminListener,
}

#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Front that the bundle is for, if its folder has another name: `extensions`, `kubernetes`,
    /// `applications`, `applicationsets`, `argocd` or `controlplane`
    #[arg(long, value_name = "NAME")]
    front: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The input of a decision, as the admin listener sends it.
#[derive(Deserialize)]
struct KeptInput {
    front: Front,
    input: serde_json::Value,
    left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
struct LeftOut {
    field: String,
    why: String,
}

/// What `eval` and `explain` evaluate.
struct Question {
    directory: PathBuf,
    front: Front,
    input: serde_json::Value,
}

/// Why there is nothing to evaluate.
struct NoInput {
    message: String,
    exit_code: u8,
}

struct CheckedBundle {
    directory: PathBuf,
    report: rego::CheckReport,
}

pub(crate) fn run(command: &Command, out: &mut dyn Write) -> ExitCode {
    let checker = match Checker::current() {
        Ok(checker) => checker,
        Err(error) => return fail(format_args!("this program cannot be found: {error}"), EXIT_FAILED),
    };
    match command {
        Command::Test(args) => {
            let bundles = match find(&args.paths, args.common.front.as_deref()) {
                Ok(bundles) => bundles,
                Err(message) => return fail(message, EXIT_USAGE),
            };
            let coverage = if args.coverage || args.threshold.is_some() {
                Coverage::On
            } else {
                Coverage::Off
            };
            let checked = check(&bundles, &checker, coverage);
            print::tests(out, &checked, args.threshold, args.common.output)
        }
        Command::Check { paths, common } => match find(paths, common.front.as_deref()) {
            Ok(bundles) => print::checks(out, &check(&bundles, &checker, Coverage::Off), common.output),
            Err(message) => fail(message, EXIT_USAGE),
        },
        Command::Eval { bundle, common } => match bundle.read(common.front.as_deref()) {
            Ok(question) => {
                let evaluate = |source: &BundleSource| checker.evaluate(source, question.input);
                let (report, _) = report(&question.directory, question.front, evaluate);
                print::evaluation(out, &report, common.output)
            }
            Err(wrong) => fail(wrong.message, wrong.exit_code),
        },
        Command::Explain(args) => {
            let question = args.bundle.read(args.common.front.as_deref());
            match question.and_then(|question| with_request(args, question)) {
                Ok(question) => {
                    let explain = |source: &BundleSource| checker.explain(source, question.input);
                    let (report, source) = report(&question.directory, question.front, explain);
                    print::explanation(out, &report, source.as_ref(), args.common.output)
                }
                Err(wrong) => fail(wrong.message, wrong.exit_code),
            }
        }
    }
}

/// Reads a bundle and reports on it, with the findings of reading first.
fn report(
    directory: &Path,
    front: Front,
    make: impl FnOnce(&BundleSource) -> rego::CheckReport,
) -> (rego::CheckReport, Option<BundleSource>) {
    let Loaded { value, diagnostics } = BundleSource::read(directory, front);
    let mut report = value.as_ref().map(make).unwrap_or_default();
    report.diagnostics.splice(..0, diagnostics);
    (report, value)
}

/// The question of `policy explain`, with the request of `--request` if there is one.
fn with_request(args: &ExplainArgs, mut question: Question) -> Result<Question, NoInput> {
    let Some(line) = &args.request else {
        return Ok(question);
    };
    let front = question.front;
    let wrong = || {
        let message = format!("`{line}` is not a method and a path, such as `GET /api/v1/pods`");
        NoInput::usage(Diagnostic::error(None, message))
    };
    let (method, target) = line.split_once(' ').ok_or_else(wrong)?;
    let method = http::Method::from_bytes(method.as_bytes()).map_err(|_| wrong())?;
    let (path, query) = match target.trim().split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target.trim(), None),
    };
    let upgrade = args.upgrade.as_deref().and_then(|upgrade| upgrade.trim().parse().ok());
    let attributes = Attributes::read(&method, path, query, upgrade);
    let mut request = serde_json::to_value(&attributes).map_err(|_| wrong())?;
    let verbs: Vec<&str> = attributes.verbs().collect();
    if let (Some(input), Some(request)) = (question.input.as_object_mut(), request.as_object_mut()) {
        request.insert("verbs".to_owned(), verbs.into());
        input.insert("request".to_owned(), std::mem::take(request).into());
        if matches!(front, Front::Applications | Front::ControlPlane) {
            let access = ReadOrWrite::classify(&attributes);
            input.insert("access".to_owned(), access.as_ref().into());
        }
        if front == Front::Applications {
            let operation = ObjectOperation::classify(&attributes);
            input.insert("operation".to_owned(), operation.as_ref().into());
        }
    }
    Ok(question)
}

fn check(bundles: &[(PathBuf, Front)], checker: &Checker, coverage: Coverage) -> Vec<CheckedBundle> {
    let one = |(directory, front): &(PathBuf, Front)| CheckedBundle {
        directory: directory.clone(),
        report: report(directory, *front, |source| checker.check(source, coverage)).0,
    };
    bundles.iter().map(one).collect()
}

/// The bundles that `paths` name: a folder with a `policy.rego`, the folder of a file, or the
/// bundles in a folder.
fn find(paths: &[PathBuf], front: Option<&str>) -> Result<Vec<(PathBuf, Front)>, String> {
    let mut folders = BTreeSet::new();
    for path in paths {
        if path.is_file() {
            folders.insert(path.parent().unwrap_or(Path::new(".")).to_owned());
        } else if path.join("policy.rego").is_file() || path.join("cases.yaml").is_file() {
            folders.insert(path.clone());
        } else {
            let shown = path.display();
            let entries = std::fs::read_dir(path).map_err(|error| format!("{shown}: {error}"))?;
            let inside = entries.flatten().map(|entry| entry.path());
            let before = folders.len();
            folders.extend(inside.filter(|inner| inner.join("policy.rego").is_file()));
            if folders.len() == before {
                return Err(format!("{shown}: there is no bundle (a folder with a `policy.rego`)"));
            }
        }
    }
    let with_front = |folder: PathBuf| {
        let own = std::path::absolute(&folder).ok();
        let own = own
            .as_deref()
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy());
        let name = front.map(Into::into).or(own).unwrap_or_default();
        let found = Front::try_from(&*name).map_err(|_| {
            let known = Front::VARIANTS
                .iter()
                .map(AsRef::as_ref)
                .collect::<Vec<&str>>()
                .join("`, `");
            let folder = folder.display();
            format!("{folder}: `{name}` is not a front, allowed are `{known}` (use --front)")
        })?;
        Ok((folder, found))
    };
    folders.into_iter().map(with_front).collect()
}

impl NoInput {
    fn usage(message: impl std::fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            exit_code: EXIT_USAGE,
        }
    }
}

impl From<Failure> for NoInput {
    fn from(failure: Failure) -> Self {
        Self {
            message: failure.to_string(),
            exit_code: EXIT_FAILED,
        }
    }
}

impl BundleArgs {
    /// Reads the input of `--input` or `--decision`, and finds the bundle. Says on standard error what the
    /// input of a decision lacks.
    ///
    /// - `front`: that of `--front`.
    fn read(&self, front: Option<&str>) -> Result<Question, NoInput> {
        let bundle = self.path.as_deref().map(|path| find_one(path, front)).transpose()?;
        let (input, kept) = match (&self.input, self.decision) {
            (Some(path), _) => (read_file(path).map_err(NoInput::usage)?, None),
            (None, Some(id)) => {
                let kept = self.fetch_input(id)?;
                (kept.input, Some((id, kept.front, kept.left_out)))
            }
            (None, None) => return Err(NoInput::usage("name the input with `--input` or `--decision`")),
        };
        let (directory, front) = match (bundle, &kept) {
            (Some((directory, front)), Some((id, kept, _))) if *kept != front => {
                let (own, other, path) = (kept.as_ref(), front.as_ref(), directory.display());
                return Err(NoInput::usage(format_args!(
                    "decision `{id}` is of `{own}`, and `{path}` is a bundle for `{other}`"
                )));
            }
            (Some(bundle), _) => bundle,
            (None, Some((_, front, _))) => (self.admin.policies_directory()?.join(front.as_ref()), *front),
            (None, None) => return Err(NoInput::usage("name the folder of the bundle")),
        };
        for LeftOut { field, why } in kept.into_iter().flat_map(|(_, _, left_out)| left_out) {
            super::print_error(format_args!("the input of the decision lacks `{field}`: {why}"));
        }
        Ok(Question {
            directory,
            front,
            input,
        })
    }

    fn fetch_input(&self, id: uuid::Uuid) -> Result<KeptInput, NoInput> {
        let answer = self.admin.get(&["decisions", &id.to_string(), "input"], &[])?;
        Ok(serde_json::from_value(answer).map_err(|error| Failure::new("gateway.answer", error))?)
    }
}

/// The only bundle that a path names.
fn find_one(path: &Path, front: Option<&str>) -> Result<(PathBuf, Front), NoInput> {
    let mut found = find(&[path.to_owned()], front).map_err(NoInput::usage)?;
    match (found.pop(), found.is_empty()) {
        (Some(bundle), true) => Ok(bundle),
        (_, _) => Err(NoInput::usage("name exactly one bundle")),
    }
}

fn read_file(path: &Path) -> Result<serde_json::Value, Diagnostic> {
    let place = path.display().to_string();
    let here = |message: String| Diagnostic::error(Location::new(place.as_str(), 0), message);
    let text = read_file_or_stdin(path, INPUT_BYTES);
    let text = text.map_err(|error| here(format!("the input cannot be read: {error}")))?;
    yaml::deserialize(&place, &text)
}

fn fail(message: impl std::fmt::Display, code: u8) -> ExitCode {
    super::print_error(message);
    ExitCode::from(code)
}

/// The hidden `tollgate policy-worker`: limits itself, reads a job from
/// standard input, writes the answer to standard output.
///
/// The first line has the limits: CPU seconds and bytes of address space. They
/// are set before anything else is read. Exit code 0 with an answer; the
/// parent process reports any other exit code, or a signal, as a finding about the bundle.
pub fn worker() -> ExitCode {
    let mut job = Vec::new();
    let mut limits = String::new();
    let mut stdin = std::io::stdin().lock();
    // A line that cannot be read leaves the numbers missing.
    let _ = stdin.by_ref().take(64).read_line(&mut limits);
    let mut numbers = limits.trim_end_matches('\n').split(' ').map(str::parse::<u64>);
    let (Some(Ok(cpu)), Some(Ok(memory)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
        return ExitCode::from(EXIT_USAGE);
    };
    if limit(cpu, memory).is_err() || stdin.read_to_end(&mut job).is_err() {
        return ExitCode::from(EXIT_FAILED);
    }
    let work = std::thread::Builder::new()
        .name("policy-worker".into())
        .stack_size(WORKER_STACK_BYTES);
    let answer = work
        .spawn(move || rego::run_job(&job))
        .map(std::thread::JoinHandle::join);
    match answer {
        Ok(Ok(answer)) if std::io::stdout().lock().write_all(&answer).is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::from(EXIT_FAILED),
    }
}

/// SECURITY: these are hard limits, which this process cannot raise again.
fn limit(cpu_seconds: u64, memory_bytes: u64) -> std::io::Result<()> {
    use rlimit::Resource;
    Resource::CORE.set(0, 0)?;
    Resource::FSIZE.set(0, 0)?;
    Resource::NOFILE.set(16, 16)?;
    // The soft limit sends SIGXCPU, which names the cause; the hard one kills.
    Resource::CPU.set(cpu_seconds, cpu_seconds.saturating_add(2))?;
    Resource::AS.set(memory_bytes, memory_bytes)
}
