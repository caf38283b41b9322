//! Reads a policy from `--state` or `--policy-file` and compiles it, with findings. The size of a
//! file is bounded.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};

use crate::answer::{Error, SettingsArgs, require_loaded};
use crate::input::read_text;
use tollgate_config::{Config, RbacSemantics, raw};
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location, Severity};
use tollgate_objects::Text;
use tollgate_policy::rbac::{Builtin, PolicySource, Rbac};
use tollgate_state::{directory, source};

/// Longest policy file, in bytes.
const FILE_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Args, Clone, Debug)]
pub(super) struct PolicyArgs {
    /// Folder with Kubernetes objects: argocd-rbac-cm, argocd-cm and AppProjects
    ///
    /// Without it and --policy-file, the objects are those of the gateway's settings.
    #[arg(long, value_name = "DIR", conflicts_with = "policy_file")]
    state: Option<PathBuf>,
    /// File policy.csv, or a file with the ConfigMap argocd-rbac-cm; at most 64 MiB
    #[arg(long, value_name = "FILE")]
    policy_file: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Namespace of the control plane; the settings have their own
    #[arg(long, default_value = "argocd")]
    namespace: String,
    /// Role of every caller, instead of `policy.default`
    #[arg(long, value_name = "ROLE")]
    default_role: Option<String>,
    /// Include the built-in roles
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    use_builtin_policy: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct OtherPolicyArgs {
    /// Compare with the policy in this folder, not with other semantics
    #[arg(long, value_name = "DIR", conflicts_with = "other_policy_file")]
    other_state: Option<PathBuf>,
    /// Compare with the policy in this file, not with other semantics
    #[arg(long, value_name = "FILE")]
    other_policy_file: Option<PathBuf>,
}

impl OtherPolicyArgs {
    /// The second policy, if one is named, with the options of the first.
    pub(super) fn input(&self, like: &PolicyArgs) -> Result<Option<PolicyArgs>, Error> {
        if self.other_state.is_none() && self.other_policy_file.is_none() {
            return Ok(None);
        }
        Ok(Some(PolicyArgs {
            state: self.other_state.clone(),
            policy_file: self.other_policy_file.clone(),
            ..like.clone()
        }))
    }
}

impl PolicyArgs {
    pub(super) fn name(&self) -> String {
        let path = self.state.as_ref().or(self.policy_file.as_ref());
        path.unwrap_or(&self.settings.config).display().to_string()
    }

    /// The semantics that the command names, else those of the settings if the policy is theirs.
    pub(super) fn semantics(&self, named: Option<impl Into<RbacSemantics>>) -> Result<RbacSemantics, Error> {
        match named {
            Some(named) => Ok(named.into()),
            None if self.is_from_settings() => Ok(self.config()?.rbac_semantics),
            None => Ok(RbacSemantics::default()),
        }
    }

    fn is_from_settings(&self) -> bool {
        self.state.is_none() && self.policy_file.is_none()
    }

    fn config(&self) -> Result<Config, Error> {
        let path = &self.settings.config;
        if !path.exists() {
            let path = path.display();
            return Err(Error::Usage(format!(
                "there is no `{path}`: name a policy with --state, --policy-file, or settings with --config"
            )));
        }
        require_loaded(raw::load(path))
    }

    pub(super) fn compile(&self, semantics: RbacSemantics) -> Result<Loaded<Rbac>, Error> {
        let source = self.source(semantics)?;
        Ok(then_load(source, Rbac::compile))
    }

    /// As [`PolicyArgs::compile`], but leaves out rows that strict semantics refuse, with a warning,
    /// so that the rest can be compared.
    pub(super) fn compile_leniently(&self, semantics: RbacSemantics) -> Result<Loaded<Rbac>, Error> {
        let mut source = self.source(semantics)?;
        if let Some(policy) = &mut source.value {
            let mut refused = Rbac::compile(policy).diagnostics;
            refused.retain(Diagnostic::is_error);
            let lines: Vec<&Location> = refused.iter().filter_map(|one| one.location.as_ref()).collect();
            for text in &mut policy.texts {
                *text = blank_lines(text, &lines);
            }
            let left_out = refused.into_iter().map(|finding| Diagnostic {
                severity: Severity::Warning,
                hint: Some("left out of the comparison: strict semantics refuse the policy".to_owned()),
                ..finding
            });
            source.diagnostics.extend(left_out);
        }
        Ok(then_load(source, Rbac::compile))
    }

    fn source(&self, semantics: RbacSemantics) -> Result<Loaded<PolicySource>, Error> {
        let mut loaded = match (&self.state, &self.policy_file) {
            (Some(folder), _) => {
                // An unreadable folder is a failure, not a finding about the policy.
                std::fs::read_dir(folder).map_err(|error| Error::Failed(format!("`{}`: {error}", folder.display())))?;
                then_load(directory::load(folder, &self.namespace), |resources| {
                    PolicySource::from_resources(resources, semantics)
                })
            }
            (None, Some(file)) => self.policy_source(file, semantics)?,
            (None, None) => then_load(source::load_once(&self.config()?), |resources| {
                PolicySource::from_resources(resources, semantics)
            }),
        };
        if let Some(source) = &mut loaded.value {
            if let Some(role) = &self.default_role {
                source.default_role.clone_from(role);
            }
            if !self.use_builtin_policy {
                source.builtin = Builtin::None;
            }
        }
        Ok(loaded)
    }

    fn policy_source(&self, file: &Path, semantics: RbacSemantics) -> Result<Loaded<PolicySource>, Error> {
        let name = file.display().to_string();
        let failed = |error: std::io::Error| Error::Failed(format!("`{name}`: {error}"));
        let text = std::fs::File::open(file)
            .and_then(|file| read_text(file, FILE_BYTES))
            .map_err(failed)?;
        let is_kind = |line: &str| line.trim().trim_end_matches(',').trim_matches('"') == "kind: ConfigMap";
        let extension = file.extension().and_then(OsStr::to_str);
        if !matches!(extension, Some("yaml" | "yml" | "json")) && !text.lines().any(is_kind) {
            let text = Text {
                value: text.into(),
                location: Location::new(name, 1),
            };
            let source = PolicySource {
                texts: vec![text],
                semantics,
                ..PolicySource::default()
            };
            return Ok(Loaded::new(source, Vec::new()));
        }
        let namespace = &self.namespace;
        let loaded = tollgate_objects::decode::load_text(&text, &name, namespace);
        let resources = loaded.value.as_ref();
        if resources.is_some_and(|resources| resources.rbac_cm.data.is_empty()) {
            let what = format!("no ConfigMap `argocd-rbac-cm` with data in namespace `{namespace}`");
            let finding = Diagnostic::error(Location::new(name, 0), what);
            return Ok(Loaded::refused(vec![
                finding.with_hint("name its namespace with --namespace"),
            ]));
        }
        Ok(then_load(loaded, |resources| {
            PolicySource::from_resources(resources, semantics)
        }))
    }
}

/// Continues a load with the step `next`, and keeps the diagnostics of both.
fn then_load<T, U>(loaded: Loaded<T>, next: impl FnOnce(&T) -> Loaded<U>) -> Loaded<U> {
    let Some(value) = loaded.value else {
        return Loaded::refused(loaded.diagnostics);
    };
    let mut then = next(&value);
    then.diagnostics.splice(..0, loaded.diagnostics);
    then
}

fn blank_lines(text: &Text, lines: &[&Location]) -> Text {
    let kept = (0..).zip(text.value.split('\n')).map(|(number, line)| {
        let location = text.location.below(number);
        let is_same = |refused: &&Location| refused.file == location.file && refused.line == location.line;
        if lines.iter().any(is_same) { "" } else { line }
    });
    let kept: Vec<&str> = kept.collect();
    Text {
        value: kept.join("\n").into(),
        location: text.location.clone(),
    }
}
