//! `tollgate rbac`: evaluates, explains, validates and compares Argo CD's RBAC policy, and prints
//! the roles the gateway needs in clusters. The exit code is 0 for yes or done, 1 for no or not
//! valid, 2 for differences, 64 for wrong usage, and 69 for no answer.
//!
//! Invariant: policies are evaluated by the gateway's own code.

use std::io::Write;
use std::process::ExitCode;

use clap::{ArgAction, Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::EXIT_NO_ANSWER;
use super::answer::Error;
use super::format::Format;
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_policy::rbac::{
    self, CanQuery, Explanation, MatchedRule, Rbac, TokenIssuer, Verdict, WhoCan, resolve_resource, validate_request,
};

mod input;
mod manifest;
mod print;
#[cfg(test)]
mod tests;

use input::{OtherPolicyArgs, PolicyArgs};
use manifest::ManifestArgs;
pub use manifest::parse_subject;

const EXIT_NO: u8 = 1;
const EXIT_DIFFERENT: u8 = 2;

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check whether a role or subject may perform an action
    ///
    /// Prints Yes or No, and exits with 0 or 1. Arguments are those of `argocd admin settings rbac can`.
    #[command(
        after_help = "Example:\n  tollgate rbac can role:on-call delete sessions production/alice \
                            --policy-file policy.csv"
    )]
    Can(CanArgs),
    /// Explain why a caller may or may not perform an action
    ///
    /// Prints the caller's principals in order of evaluation, the row that decided, and rows that nearly
    /// matched. Exits with 0 if the action is allowed, else with 1.
    Explain(ExplainArgs),
    /// List who may perform an action
    ///
    /// Judges each name of the policy as a caller who has that name alone. Exits with 0 if anybody may,
    /// else with 1.
    #[command(after_help = "Example:\n  tollgate rbac who-can delete sessions '*/*' --config tollgate.yaml")]
    WhoCan(WhoCanArgs),
    /// Report all mistakes in a policy, by file and line
    Validate(ValidateArgs),
    /// List requests that two semantics or two policies evaluate differently
    ///
    /// Compares the semantics `argocd` and `strict`, unless --other-state or --other-policy-file names a
    /// second policy. Exits with 2 if there are differences.
    Diff(DiffArgs),
    /// Print the Kubernetes roles that let the gateway impersonate in a cluster
    ///
    /// The roles are for the users of agents, or with --applications for the service accounts of
    /// Applications. Prints YAML for `kubectl apply`.
    #[command(
        after_help = "Examples:\n  tollgate rbac manifest --agent production | kubectl apply -f -\n  \
                            tollgate rbac manifest --applications --cluster in-cluster | kubectl apply -f -"
    )]
    Manifest(ManifestArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SemanticsArg {
    /// As Argo CD evaluates
    Argocd,
    /// A deny of any principal wins, groups always count, and subjects are typed
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
pub struct CanArgs {
    /// Role, user or group to check
    #[arg(value_name = "ROLE/SUBJECT")]
    subject: String,
    /// Action, such as `get` or `action/apps/Deployment/restart`
    action: String,
    /// Resource or its short name, such as `app`
    resource: String,
    /// Object, such as `project/name`; all objects if omitted
    #[arg(value_name = "SUB-RESOURCE")]
    sub_resource: Option<String>,
    #[command(flatten)]
    input: PolicyArgs,
    /// Reject resources and actions that do not exist
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    strict: bool,
    /// Semantics of the evaluation; if omitted, those of the settings, else `argocd`
    #[arg(long, value_enum)]
    semantics: Option<SemanticsArg>,
    /// Print nothing, only set the exit code
    #[arg(short, long)]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Claim `sub` of the caller, a project token as `proj:<project>:<role>`, or a role
    #[arg(value_name = "USER")]
    user: String,
    /// Action, such as `get` or `action/apps/Deployment/restart`
    action: String,
    /// Resource or its short name, such as `app`
    resource: String,
    /// Object, such as `project/name`
    #[arg(default_value = "")]
    object: String,
    /// Group of the caller; may be repeated, in the order of the token
    #[arg(short, long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Whether Argo CD issued the caller's token, not an identity provider; if omitted, `true` for local
    /// accounts and project tokens
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    local: Option<bool>,
    #[command(flatten)]
    input: PolicyArgs,
    /// Semantics of the evaluation; if omitted, those of the settings, else `argocd`
    #[arg(long, value_enum)]
    semantics: Option<SemanticsArg>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Clone, Debug)]
pub struct WhoCanArgs {
    /// Action, such as `get` or `action/apps/Deployment/restart`
    action: String,
    /// Resource or its short name, such as `app`
    resource: String,
    /// Object, such as `project/name`; all objects if omitted
    #[arg(default_value = "")]
    object: String,
    #[command(flatten)]
    input: PolicyArgs,
    /// Semantics of the evaluation; if omitted, those of the settings, else `argocd`
    #[arg(long, value_enum)]
    semantics: Option<SemanticsArg>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Clone, Debug)]
pub struct ValidateArgs {
    #[command(flatten)]
    input: PolicyArgs,
    /// Semantics to validate for, of which `strict` rejects more; if omitted, those of the settings
    #[arg(long, value_enum)]
    semantics: Option<SemanticsArg>,
    /// Exit with 1 on warnings too, such as an unknown effect, resource or role
    #[arg(long, visible_alias = "strict")]
    deny_warnings: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Clone, Debug)]
pub struct DiffArgs {
    #[command(flatten)]
    input: PolicyArgs,
    #[command(flatten)]
    other: OtherPolicyArgs,
    /// Semantics of both policies if two are compared; if omitted, those of the settings
    #[arg(long, value_enum)]
    semantics: Option<SemanticsArg>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> ExitCode {
        self.run_with(out, &mut super::stderr())
    }

    fn run_with(&self, out: &mut dyn Write, stderr: &mut dyn Write) -> ExitCode {
        let result = match self {
            Self::Can(args) => can(args, out, stderr),
            Self::Explain(args) => explain(args, out, stderr),
            Self::WhoCan(args) => who_can(args, out, stderr),
            Self::Validate(args) => validate(args, out),
            Self::Diff(args) => diff(args, out, stderr),
            Self::Manifest(args) => manifest::run(args, out, stderr),
        };
        let code = result.unwrap_or_else(|error| match (error.report(stderr), self) {
            // `manifest` prints roles and answers no question.
            (EXIT_NO_ANSWER, Self::Manifest(_)) => EXIT_NO,
            (code, _) => code,
        });
        ExitCode::from(code)
    }
}

/// Returns a policy that compiled, and writes its warnings to `stderr`.
fn compiled(loaded: Loaded<Rbac>, stderr: &mut dyn Write) -> Result<Rbac, Error> {
    match loaded.value {
        Some(rbac) => {
            for finding in &loaded.diagnostics {
                writeln!(stderr, "{finding}")?;
            }
            Ok(rbac)
        }
        None => Err(Error::Refused {
            what: "policy",
            findings: loaded.diagnostics,
        }),
    }
}

#[derive(Serialize)]
struct CanAnswer {
    allowed: bool,
    verdict: Verdict,
    rule: Option<MatchedRule>,
    advice: Vec<String>,
}

fn can(args: &CanArgs, out: &mut dyn Write, stderr: &mut dyn Write) -> Result<u8, Error> {
    let (action, resource) = (&args.action, &args.resource);
    if args.strict {
        validate_request(resolve_resource(resource), action).map_err(|error| {
            // `policy.csv` has the resource first, this command the action.
            let hint = match validate_request(resolve_resource(action), resource) {
                Ok(_) => "; the action comes before the resource",
                Err(_) => "",
            };
            Error::Usage(format!("{error}{hint}"))
        })?;
    }
    let mut quiet = std::io::sink();
    let warnings: &mut dyn Write = if args.quiet { &mut quiet } else { stderr };
    let rbac = compiled(args.input.compile(args.input.semantics(args.semantics)?)?, warnings)?;
    let (verdict, advice) = rbac.can(CanQuery {
        subject: &args.subject,
        action,
        resource,
        sub_resource: args.sub_resource.as_deref().unwrap_or_default(),
    });
    let advice: Vec<String> = advice.iter().map(ToString::to_string).collect();
    for advice in &advice {
        writeln!(warnings, "warning: {advice}")?;
    }
    let allowed = verdict.is_allowed();
    if !args.quiet {
        let answer = CanAnswer {
            allowed,
            rule: verdict.rule.and_then(|id| rbac.matched_rule(id)),
            verdict,
            advice,
        };
        let text = |answer: &CanAnswer| if answer.allowed { "Yes" } else { "No" }.to_owned();
        args.output.show(&answer, text, out)?;
    }
    Ok(if allowed { 0 } else { EXIT_NO })
}

fn explain(args: &ExplainArgs, out: &mut dyn Write, stderr: &mut dyn Write) -> Result<u8, Error> {
    let rbac = compiled(args.input.compile(args.input.semantics(args.semantics)?)?, stderr)?;
    if rbac.scopes.is_empty() && !args.groups.is_empty() {
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
    let query = CanQuery {
        subject: &args.user,
        action: &args.action,
        resource: &args.resource,
        sub_resource: &args.object,
    };
    let request = query.request();
    let explanation: Explanation = rbac.explain(&who, request);
    match args.output {
        Format::Table => print::explanation(out, request, &explanation)?,
        format => format.print(&explanation, out)?,
    }
    Ok(if explanation.verdict.is_allowed() { 0 } else { EXIT_NO })
}

fn who_can(args: &WhoCanArgs, out: &mut dyn Write, stderr: &mut dyn Write) -> Result<u8, Error> {
    let rbac = compiled(args.input.compile(args.input.semantics(args.semantics)?)?, stderr)?;
    let query = CanQuery {
        subject: "",
        action: &args.action,
        resource: &args.resource,
        sub_resource: &args.object,
    };
    let found: WhoCan = rbac.who_can(query.request());
    match args.output {
        Format::Table => print::who_can(out, query.request(), &found)?,
        format => format.print(&found, out)?,
    }
    let is_nobody = found.everyone.is_none() && found.allowed.is_empty();
    Ok(if is_nobody { EXIT_NO } else { 0 })
}

#[derive(Serialize)]
struct Findings<'a> {
    valid: bool,
    rows: usize,
    diagnostics: &'a [Diagnostic],
}

fn validate(args: &ValidateArgs, out: &mut dyn Write) -> Result<u8, Error> {
    let loaded = args.input.compile(args.input.semantics(args.semantics)?)?;
    let valid = loaded.value.is_some();
    let findings = Findings {
        valid,
        rows: loaded.value.as_ref().map_or(0, |rbac| rbac.rules().count()),
        diagnostics: &loaded.diagnostics,
    };
    let text = |findings: &Findings<'_>| {
        let lines: String = findings
            .diagnostics
            .iter()
            .map(|finding| format!("{finding}\n"))
            .collect();
        let warnings = match (valid, findings.diagnostics.len()) {
            (false, _) | (true, 0) => String::new(),
            (true, count) => {
                let what = if count == 1 { "warning" } else { "warnings" };
                format!(", with {count} {what}; `--strict` refuses it")
            }
        };
        format!(
            "{lines}Policy is {}{warnings}.",
            if valid { "valid" } else { "invalid" }
        )
    };
    args.output.show(&findings, text, out)?;
    let refused = !valid || (args.deny_warnings && !loaded.diagnostics.is_empty());
    Ok(if refused { EXIT_NO } else { 0 })
}

#[derive(Serialize)]
struct Differences {
    left: String,
    right: String,
    /// Whether every representative request was evaluated.
    complete: bool,
    differences: Vec<rbac::Difference>,
}

fn diff(args: &DiffArgs, out: &mut dyn Write, stderr: &mut dyn Write) -> Result<u8, Error> {
    let (left, right, names) = match args.other.input(&args.input)? {
        Some(other) => {
            let names = (args.input.name(), other.name());
            let semantics = args.input.semantics(args.semantics)?;
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
    let (left, right) = (compiled(left, stderr)?, compiled(right, stderr)?);
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
