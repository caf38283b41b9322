//! Reads policy texts and projects into rows and grants, with diagnostics for every line.
//!
//! Security: a broken line is never skipped by itself. It is an error of its text, or drops all
//! roles of its project.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::can::{RequestError, validate_request};
use super::line::{self, Line};
use super::names::{OWN_RESOURCES, RESOURCES, actions};
use super::{BUILTIN_POLICY, Builtin, Effect, MatchMode, PolicySource, project};
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location, Severity};
use tollgate_objects::{Project, Resources, Text};

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) fields: [String; 4],
    pub(super) effect: Effect,
    pub(super) location: Location,
    pub(super) text: Arc<str>,
}

#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) member: String,
    pub(super) role: String,
    pub(super) location: Location,
}

/// The rows and grants of one text, or of one project.
#[derive(Debug, Default)]
pub(super) struct Lines {
    semantics: RbacSemantics,
    pub(super) rows: Vec<Row>,
    pub(super) grants: Vec<Grant>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Lines {
    pub(super) fn new(semantics: RbacSemantics) -> Self {
        Self {
            semantics,
            ..Self::default()
        }
    }

    /// Reads every line of a text. Broken lines become errors.
    pub(super) fn read(&mut self, text: &str, start: &Location) {
        for (number, line) in (0..).zip(text.split('\n')) {
            let location = start.below(number);
            match line::parse(line) {
                Ok(Line::Nothing) => {}
                Ok(Line::Rule(fields)) => self.rule(fields, line, location),
                Ok(Line::Grant([member, role])) => {
                    self.blanks([&member, &role], &location);
                    self.pattern_as_subject(&member, &location);
                    self.grants.push(Grant { member, role, location });
                }
                Ok(Line::Inert(kind)) => {
                    let message = format!("nothing follows from a line that starts with `{kind}`");
                    self.finding(location, message, "rows start with `p`, grants with `g`");
                }
                Err(error) => self.diagnostics.push(Diagnostic::error(location, error.to_string())),
            }
        }
    }

    fn rule(&mut self, fields: [String; 5], line: &str, location: Location) {
        let [subject, resource, action, object, effect] = fields;
        self.blanks([&subject, &resource, &action, &object], &location);
        self.pattern_as_subject(&subject, &location);
        let effect = match effect.as_str() {
            "allow" => Effect::Allow,
            "deny" => Effect::Deny,
            other => {
                let message = format!("effect is `{}`, allowed are `allow` and `deny`", line::shorten(other));
                self.finding(location.clone(), message, "the line does nothing as it stands");
                Effect::Inert
            }
        };
        let literal = is_literal(&resource);
        if literal && actions(&resource).is_none() {
            let message = format!("no resource is called `{}`", line::shorten(&resource));
            let known = RESOURCES.into_iter().chain(OWN_RESOURCES);
            let known: Vec<&str> = known.map(|(name, _)| name).collect();
            self.diagnostics.push(
                Diagnostic::warning(location.clone(), message).with_hint(format!("known are {}", known.join(", "))),
            );
        }
        if literal
            && is_literal(&action)
            && let Err(error @ RequestError::Action { .. }) = validate_request(&resource, &action)
        {
            let known = actions(&resource).unwrap_or_default().join(", ");
            let finding = Diagnostic::warning(location.clone(), format!("{error}, so the row does nothing"));
            self.diagnostics.push(finding.with_hint(format!("known are {known}")));
        }
        let fields = [subject, resource, action, object];
        self.rows.push(Row {
            fields,
            effect,
            location,
            text: line.trim().into(),
        });
    }

    fn blanks<const N: usize>(&mut self, fields: [&str; N], location: &Location) {
        for field in fields.into_iter().filter(|field| field.ends_with(char::is_whitespace)) {
            let message = format!("field `{}` ends in a blank, which is part of it", line::shorten(field));
            self.finding(location.clone(), message, "remove the blank before the comma");
        }
    }

    /// Subjects are compared letter by letter, in Argo CD as well.
    fn pattern_as_subject(&mut self, subject: &str, location: &Location) {
        if subject.contains('*') {
            let message = format!(
                "subject `{}` has a `*`, and a subject is no pattern: the line is about nobody else than a subject of \
                 that very name",
                line::shorten(subject)
            );
            let hint = "name each subject, give a role to a group, or set `policy.default` for everybody";
            let finding = Diagnostic::warning(location.clone(), message);
            self.diagnostics.push(finding.with_hint(hint));
        }
    }

    /// Reports that a line does less than it says: Argo CD accepts it, strict semantics refuse it.
    fn finding(&mut self, location: Location, message: String, hint: &str) {
        let finding = match self.semantics {
            RbacSemantics::Argocd => Diagnostic::warning(location, message),
            RbacSemantics::Strict => Diagnostic::error(location, message),
        };
        self.diagnostics.push(finding.with_hint(hint));
    }

    /// Drops everything from a project with a broken line, as the line may have been meant to deny
    /// something.
    pub(super) fn drop_if_broken(&mut self, project: &Project) {
        if !self.diagnostics.iter().any(Diagnostic::is_error) {
            return;
        }
        // An error would refuse the whole policy, and tenants write projects.
        for finding in &mut self.diagnostics {
            finding.severity = Severity::Warning;
        }
        let name = &project.name;
        let message = format!("roles of project `{name}` do not count: a line of them is broken");
        let finding = Diagnostic::warning(project.location.clone(), message);
        self.diagnostics.push(finding);
        self.rows.clear();
        self.grants.clear();
    }
}

pub(super) fn builtin_text(builtin: &Builtin) -> Option<Text> {
    match builtin {
        Builtin::Argocd => Some(Text {
            value: BUILTIN_POLICY.into(),
            location: Location::new("builtin:policy.csv", 1),
        }),
        Builtin::None => None,
        Builtin::Text(text) => Some(text.clone()),
    }
}

/// The lines of a project's roles: the implicit `projects, get`, their policies, their groups.
/// Tenants write projects, so a broken line drops the project's whole contribution, as in Argo CD,
/// and affects nothing else.
pub(super) fn project_lines(project: &Project, semantics: RbacSemantics) -> Lines {
    let mut lines = Lines::new(semantics);
    for role in &project.roles {
        let subject = format!("proj:{}:{}", project.name, role.name);
        let implicit = format!("p, {subject}, projects, get, {}, allow", project.name);
        lines.read(&implicit, &role.location);
        for policy in &role.policies {
            lines.read(&policy.value, &policy.location);
            if let Err(error) = project::validate_policy(&project.name, &role.name, &policy.value) {
                let finding = Diagnostic::warning(policy.location.clone(), error.to_string());
                lines.diagnostics.push(finding);
            }
        }
        for group in &role.groups {
            let line = format!("g, {}, {subject}", group.value);
            // With a line break it is several lines to Argo CD, too. Those that are broken are reported below.
            if !group.value.contains('\n') && !matches!(line::parse(&line), Ok(Line::Grant(_))) {
                let (name, role) = (line::shorten(&group.value), &role.name);
                let message = format!("group `{name}` of role `{role}` has a comma or a quotation mark");
                let hint = "a group is a field of a line of policy; write it in quotation marks, inside the YAML text, \
                            and double those in it";
                let finding = Diagnostic::error(group.location.clone(), message);
                lines.diagnostics.push(finding.with_hint(hint));
                continue;
            }
            lines.read(&line, &group.location);
        }
    }
    lines.drop_if_broken(project);
    lines
}

impl PolicySource {
    /// Reads the policy from `argocd-rbac-cm`, the projects and `argocd-cm`.
    pub fn from_resources(resources: &Resources, semantics: RbacSemantics) -> Loaded<Self> {
        let data = &resources.rbac_cm.data;
        let setting = |key: &str| data.get(key).map(|text| &*text.value).unwrap_or_default();
        let mut diagnostics = Vec::new();
        let mut scopes = vec!["groups".to_owned()];
        if let Some(text) = data.get("scopes").filter(|text| !text.value.is_empty()) {
            // As in Argo CD, a `null` in a list is the claim with the empty name; a `null` alone is
            // no setting.
            match serde_saphyr::from_str::<Option<Vec<Option<String>>>>(&text.value) {
                // In Argo CD a text without a value leaves no scope at all.
                Ok(None) if is_without_value(&text.value) => scopes.clear(),
                Ok(None) => {}
                Ok(Some(list)) => scopes = list.into_iter().map(Option::unwrap_or_default).collect(),
                Err(_) => diagnostics.push(
                    Diagnostic::error(text.location.clone(), "`scopes` is no list of texts")
                        .with_hint("for example `[groups, email]`"),
                ),
            }
        }
        let mode = setting("policy.matchMode");
        if let Some(text) = data
            .get("policy.matchMode")
            .filter(|_| !matches!(mode, "" | "glob" | "regex"))
        {
            let message = format!("`policy.matchMode` is `{}`, which means `glob`", line::shorten(mode));
            diagnostics
                .push(Diagnostic::warning(text.location.clone(), message).with_hint("allowed are `glob` and `regex`"));
        }
        let source = Self {
            builtin: Builtin::Argocd,
            texts: policy_texts(data).cloned().collect(),
            default_role: setting("policy.default").to_owned(),
            default_role_location: data.get("policy.default").map(|text| text.location.clone()),
            match_mode: MatchMode::from_setting(mode),
            scopes,
            projects: resources.projects.clone(),
            accounts: account_names(resources),
            semantics,
        };
        Loaded::new(source, diagnostics)
    }
}

fn is_without_value(yaml: &str) -> bool {
    let mut lines = yaml.lines().map(str::trim);
    lines.all(|line| line.is_empty() || line.starts_with('#'))
}

/// Argo CD's local accounts, including `admin`.
pub fn account_names(resources: &Resources) -> BTreeSet<String> {
    let named = resources
        .argocd_cm
        .data
        .keys()
        .filter_map(|key| key.strip_prefix("accounts."));
    named
        // `accounts.NAME.enabled` is a setting of an account.
        .filter(|name| !name.contains('.'))
        .map(str::to_owned)
        .chain(["admin".to_owned()])
        .collect()
}

/// The policy values of a ConfigMap: `policy.csv`, then `policy.*.csv` in key
/// order.
fn policy_texts<T>(data: &BTreeMap<String, T>) -> impl Iterator<Item = &T> {
    let overlay = |key: &str| key != "policy.csv" && key.starts_with("policy.") && key.ends_with(".csv");
    data.get("policy.csv")
        .into_iter()
        .chain(data.iter().filter(move |(key, _)| overlay(key)).map(|(_, value)| value))
}

/// All policy values of a ConfigMap as one text, as Argo CD joins them.
pub fn compose_policy(data: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    let overlays = usize::from(data.contains_key("policy.csv"));
    for (index, value) in policy_texts(data).enumerate() {
        if index >= overlays {
            text.push('\n');
        }
        text.push_str(value);
    }
    text
}

/// Checks one line as Argo CD does. The error says what is wrong with it.
pub fn validate_line(line: &str) -> Result<(), String> {
    line::parse(line).map(drop).map_err(|error| error.to_string())
}

/// Every finding of a policy text under the given semantics, in line order.
pub fn validate_text(text: &Text, semantics: RbacSemantics) -> Vec<Diagnostic> {
    let mut lines = Lines::new(semantics);
    lines.read(&text.value, &text.location);
    lines.diagnostics
}

/// Roles that the text grants but that neither have nor inherit rows, in order of first mention.
pub fn undefined_roles(text: &str) -> Vec<String> {
    let mut lines = Lines::new(RbacSemantics::Argocd);
    lines.read(text, &Location::new("policy.csv", 1));
    let subjects = lines.rows.iter().map(|row| &*row.fields[0]).collect();
    let grants = undefined(&lines.grants, &subjects);
    grants.map(|grant| grant.role.clone()).collect()
}

/// For every role that neither has nor inherits rows, its first grant.
pub(super) fn undefined<'a>(grants: &'a [Grant], subjects: &HashSet<&'a str>) -> impl Iterator<Item = &'a Grant> {
    // Walk from the subjects that have rows to all who inherit them.
    let mut members: HashMap<&str, Vec<&str>> = HashMap::new();
    for grant in grants {
        members.entry(&grant.role).or_default().push(&grant.member);
    }
    let mut defined: HashSet<&str> = subjects.clone();
    let mut pending: Vec<&str> = subjects.iter().copied().collect();
    while let Some(subject) = pending.pop() {
        let members = members.get(subject).into_iter().flatten();
        pending.extend(members.filter(|member| defined.insert(member)));
    }
    let mut reported = HashSet::new();
    grants
        .iter()
        .filter(move |grant| !defined.contains(grant.role.as_str()) && reported.insert(grant.role.as_str()))
}

/// Whether a field is literal, both as a glob and as a regular expression.
pub(super) fn is_literal(field: &str) -> bool {
    !field.contains(['*', '?', '[', '{', '\\', '.', '|', '^', '$', '(', '+'])
}
