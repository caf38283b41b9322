//! `tollgate rbac`: evaluates, explains, validates and compares Argo CD's RBAC policy, and prints
//! the roles the gateway needs in clusters. The exit code is 0 for yes or done, 1 for no or not
//! valid, 2 for differences, 64 for wrong usage, and 69 for no answer.
//!
//! Invariant: policies are evaluated by the gateway's own code.

use std::io::Write;
use std::process::ExitCode;

use clap::{ArgAction, Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::format::Format;
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_policy::rbac::{
    self, CanQuery, Explanation, MatchedRule, Rbac, TokenIssuer, Verdict, resolve_resource, validate_request,
};

mod input;
mod manifest;
mod print;
#[cfg(test)]
mod tests;

use input::{OtherPolicyArgs, PolicyArgs};
use manifest::ManifestArgs;

/// Exit code: refused, or no.
const EXIT_NO: u8 = 1;
/// Exit code: differences found.
const EXIT_DIFFERENT: u8 = 2;
/// Exit code: wrong usage (`EX_USAGE`).
const EXIT_USAGE: u8 = 64;
/// Exit code: the question has no answer.
const EXIT_NO_ANSWER: u8 = super::EXIT_NO_ANSWER;

/// Arguments of `tollgate rbac`.
#[derive(Args, Clone, Debug)]
pub struct RbacCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Whether a role or subject may do something, as `argocd admin settings rbac can`
    Can(CanArgs),
    /// Why a caller may or may not do something: principals in order, row, near misses
    Explain(ExplainArgs),
    /// Everything that is wrong with a policy, by file and line
    Validate(ValidateArgs),
    /// Requests that two semantics, or two policies, judge differently
    Diff(DiffArgs),
    /// Print the Kubernetes roles that let the gateway act in people's names in an agent's cluster, or as
    /// the service accounts of Applications
    Manifest(ManifestArgs),
}

/// `--semantics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum SemanticsArg {
    /// As Argo CD judges
    #[default]
    Argocd,
    /// Deny wins over all principals, groups always count, subjects are typed
    Strict,
}

impl From<SemanticsArg> for RbacSemantics {
    fn from(argument: SemanticsArg) -> Self {
        match argument {
            SemanticsArg::Argocd => Self::Argocd,
            SemanticsArg::Strict => Self::Strict,
        }
    }
}

#[derive(Args, Clone, Debug)]
struct CanArgs {
    /// Role, user or group
    #[arg(value_name = "ROLE/SUBJECT")]
    subject: String,
    /// Action, such as `get` or `action/apps/Deployment/restart`
    action: String,
    /// Resource or its short name, such as `app`
    resource: String,
    /// Object, such as `project/name`; everything when left out
    #[arg(value_name = "SUB-RESOURCE")]
    sub_resource: Option<String>,
    #[command(flatten)]
    input: PolicyArgs,
    /// Refuse resources and actions that do not exist
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    strict: bool,
    /// How verdicts are reached
    #[arg(long, value_enum, default_value_t)]
    semantics: SemanticsArg,
    /// Only set the exit code
    #[arg(short, long)]
    quiet: bool,
    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Clone, Debug)]
struct ExplainArgs {
    /// The caller's `sub`, a project token as `proj:<project>:<role>`, or a role
    #[arg(value_name = "USER")]
    user: String,
    /// Action
    action: String,
    /// Resource or its short name
    resource: String,
    /// Object, such as `project/name`
    #[arg(default_value = "")]
    object: String,
    /// Group of the caller; repeatable, in token order
    #[arg(short, long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Whether the token is Argo CD's own and not an identity provider's; when left out,
    /// as the name tells: local accounts and project tokens have Argo CD's
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    local: Option<bool>,
    #[command(flatten)]
    input: PolicyArgs,
    /// How verdicts are reached
    #[arg(long, value_enum, default_value_t)]
    semantics: SemanticsArg,
    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Clone, Debug)]
struct ValidateArgs {
    #[command(flatten)]
    input: PolicyArgs,
    /// How verdicts are reached; `strict` refuses more
    #[arg(long, value_enum, default_value_t)]
    semantics: SemanticsArg,
    /// Exit with 1 on warnings too
    #[arg(long)]
    deny_warnings: bool,
    /// How findings are written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Clone, Debug)]
struct DiffArgs {
    #[command(flatten)]
    input: PolicyArgs,
    /// Compare with another policy instead of semantics `argocd` with `strict`
    #[command(flatten)]
    other: OtherPolicyArgs,
    /// How both policies are judged when two are compared
    #[arg(long, value_enum, default_value_t)]
    semantics: SemanticsArg,
    /// How differences are written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Why a command ends early.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("the policy is refused")]
    Refused(Vec<Diagnostic>),
    #[error("{0}")]
    Failed(String),
    #[error("the answer cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

impl RbacCommand {
    /// Runs the command; answers go to `out`, findings and complaints to
    /// standard error.
    pub fn run(self, out: &mut dyn Write) -> ExitCode {
        self.run_with(out, &mut super::errors())
    }

    fn run_with(self, out: &mut dyn Write, complaints: &mut dyn Write) -> ExitCode {
        let result = match &self.action {
            Action::Can(args) => can(args, out, complaints),
            Action::Explain(args) => explain(args, out, complaints),
            Action::Validate(args) => validate(args, out),
            Action::Diff(args) => diff(args, out, complaints),
            Action::Manifest(args) => manifest::run(args, out, complaints),
        };
        let error = match result {
            Ok(code) => return ExitCode::from(code),
            Err(error) => error,
        };
        if let Error::Refused(findings) = &error {
            for finding in findings {
                // Nothing is left to do when standard error is closed.
                let _ = writeln!(complaints, "{finding}");
            }
        }
        let _ = writeln!(complaints, "tollgate: {error}");
        ExitCode::from(match error {
            Error::Usage(_) => EXIT_USAGE,
            // Which prints roles and answers nothing.
            _ if matches!(self.action, Action::Manifest(_)) => EXIT_NO,
            Error::Refused(_) | Error::Failed(_) | Error::Output(_) => EXIT_NO_ANSWER,
        })
    }
}

/// A policy that compiled, or what refused it. Warnings go to `complaints`.
fn compiled(loaded: Loaded<Rbac>, complaints: &mut dyn Write) -> Result<Rbac, Error> {
    match loaded.value {
        Some(rbac) => {
            for finding in &loaded.diagnostics {
                writeln!(complaints, "{finding}")?;
            }
            Ok(rbac)
        }
        None => Err(Error::Refused(loaded.diagnostics)),
    }
}

/// The answer of `can` for machines.
#[derive(Serialize)]
struct CanAnswer {
    allowed: bool,
    verdict: Verdict,
    rule: Option<MatchedRule>,
    advice: Vec<String>,
}

fn can(args: &CanArgs, out: &mut dyn Write, complaints: &mut dyn Write) -> Result<u8, Error> {
    let CanArgs {
        subject,
        action,
        resource,
        ..
    } = args;
    if args.strict {
        validate_request(resolve_resource(resource), action).map_err(|error| {
            // `policy.csv` has the resource first, this command the action.
            let is_swapped = validate_request(resolve_resource(action), resource).is_ok();
            let hint = if is_swapped {
                "; the action comes before the resource"
            } else {
                ""
            };
            Error::Usage(format!("{error}{hint}"))
        })?;
    }
    let mut quiet = std::io::sink();
    let complaints: &mut dyn Write = if args.quiet { &mut quiet } else { complaints };
    let rbac = compiled(args.input.compile(args.semantics.into())?, complaints)?;
    let sub_resource = args.sub_resource.as_deref().unwrap_or_default();
    let (verdict, advice) = rbac.can(CanQuery {
        subject,
        action,
        resource,
        sub_resource,
    });
    let advice: Vec<String> = advice.iter().map(ToString::to_string).collect();
    for advice in &advice {
        writeln!(complaints, "warning: {advice}")?;
    }
    let allowed = verdict.is_allowed();
    if !args.quiet {
        match args.output {
            Format::Table => writeln!(out, "{}", if allowed { "Yes" } else { "No" })?,
            format => {
                let rule = verdict.rule.and_then(|id| rbac.matched_rule(id));
                let answer = CanAnswer {
                    allowed,
                    verdict,
                    rule,
                    advice,
                };
                format.print(&answer, out)?;
            }
        }
    }
    Ok(if allowed { 0 } else { EXIT_NO })
}

fn explain(args: &ExplainArgs, out: &mut dyn Write, complaints: &mut dyn Write) -> Result<u8, Error> {
    let rbac = compiled(args.input.compile(args.semantics.into())?, complaints)?;
    if rbac.scopes().is_empty() && !args.groups.is_empty() {
        return Err(Error::Usage(
            "the policy has no `scopes`, so groups cannot count".to_owned(),
        ));
    }
    let issuer = match args.local {
        None => TokenIssuer::Assumed,
        Some(true) => TokenIssuer::Argocd,
        Some(false) => TokenIssuer::Provider,
    };
    let who = rbac.identify_name(&args.user, &args.groups, issuer);
    let question = CanQuery {
        subject: &args.user,
        action: &args.action,
        resource: &args.resource,
        sub_resource: &args.object,
    };
    let tuple = question.tuple();
    let explanation: Explanation = rbac.explain(&who, tuple);
    match args.output {
        Format::Table => print::explanation(out, tuple, &explanation)?,
        format => format.print(&explanation, out)?,
    }
    Ok(if explanation.is_allowed() { 0 } else { EXIT_NO })
}

/// The answer of `validate` for machines.
#[derive(Serialize)]
struct Findings<'a> {
    valid: bool,
    rows: usize,
    diagnostics: &'a [Diagnostic],
}

fn validate(args: &ValidateArgs, out: &mut dyn Write) -> Result<u8, Error> {
    let loaded = args.input.compile(args.semantics.into())?;
    let valid = loaded.value.is_some();
    let rows = loaded.value.as_ref().map_or(0, |rbac| rbac.rules().count());
    match args.output {
        Format::Table => {
            for finding in &loaded.diagnostics {
                writeln!(out, "{finding}")?;
            }
            writeln!(
                out,
                "{}",
                if valid {
                    "Policy is valid."
                } else {
                    "Policy is invalid."
                }
            )?;
        }
        format => {
            let findings = Findings {
                valid,
                rows,
                diagnostics: &loaded.diagnostics,
            };
            format.print(&findings, out)?;
        }
    }
    let refused = !valid || (args.deny_warnings && !loaded.diagnostics.is_empty());
    Ok(if refused { EXIT_NO } else { 0 })
}

/// The answer of `diff` for machines.
#[derive(Serialize)]
struct Differences {
    left: String,
    right: String,
    /// Whether every representative request was asked.
    complete: bool,
    differences: Vec<rbac::Difference>,
}

fn diff(args: &DiffArgs, out: &mut dyn Write, complaints: &mut dyn Write) -> Result<u8, Error> {
    let (left, right, names) = match args.other.input(&args.input)? {
        Some(other) => {
            let names = (args.input.name(), other.name());
            let semantics = args.semantics.into();
            (args.input.compile(semantics)?, other.compile(semantics)?, names)
        }
        None => {
            let names = ("argocd".to_owned(), "strict".to_owned());
            (
                args.input.compile(RbacSemantics::Argocd)?,
                args.input.compile_leniently(RbacSemantics::Strict)?,
                names,
            )
        }
    };
    let (left, right) = (compiled(left, complaints)?, compiled(right, complaints)?);
    let (differences, complete) = rbac::differences(&left, &right);
    let code = if differences.is_empty() { 0 } else { EXIT_DIFFERENT };
    let answer = Differences {
        left: names.0,
        right: names.1,
        complete,
        differences,
    };
    match args.output {
        Format::Table => print::differences(out, &answer)?,
        format => format.print(&answer, out)?,
    }
    Ok(code)
}
