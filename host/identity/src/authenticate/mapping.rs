//! Maps verified claims to a name, groups, a uid and extra values by the rules of
//! `AuthenticationConfiguration`.
//!
//! Security: an empty name is refused, and so is a reserved name the settings do not list.

use serde_json::{Map, Value, json};

use super::error::{Error, IdentityField, InvalidTokenReason, MalformedCredential};
use super::issuer::ValidationProfile;
use super::principal::string_claim;
use tollgate_config::{ClaimMapping, ClaimRule};
use tollgate_core::claims::{EMAIL, is_email_usable};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::user::Identity;
use tollgate_policy::cel::Expression;

/// The prefix of names and groups that Kubernetes reserves.
const SYSTEM: &str = "system:";
/// Prefixes that Argo CD's policies reserve for subjects that are not people. Groups may have
/// them, since policies treat groups separately.
const ARGOCD: [&str; 2] = ["proj:", "role:"];

/// Compiled `claimValidationRules`, `claimMappings` and `userValidationRules`
/// of one issuer.
#[derive(Debug)]
pub(super) struct CompiledClaimMappings {
    claim_rules: Vec<Rule>,
    username: ClaimSource,
    groups: Option<ClaimSource>,
    uid: Option<ClaimSource>,
    extra: Vec<(String, Expression)>,
    user_rules: Vec<(Expression, String)>,
    profile: ValidationProfile,
    allowed_reserved: Vec<String>,
}

#[derive(Debug)]
enum Rule {
    Required { claim: String, value: String },
    Expression(Box<Expression>, String),
}

#[derive(Debug)]
enum ClaimSource {
    Claim { claim: String, prefix: String },
    Expression(Box<Expression>),
}

impl CompiledClaimMappings {
    /// Compiles an issuer's rules; `None` if any is refused. Each refused rule gives a finding
    /// that starts with its key under `path`.
    pub(super) fn compile(
        issuer: &tollgate_config::Issuer,
        profile: ValidationProfile,
        path: &str,
        findings: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let before = findings.len();
        let mut compiler = Compiler { path, findings };
        let claim_rules = compiler.claim_rules(&issuer.claim_validation);
        let username = compiler.claim_source(&issuer.username, "claimMappings.username");
        let (groups, uid) = (issuer.groups.as_ref(), issuer.uid.as_ref());
        let groups = groups.and_then(|groups| compiler.claim_source(groups, "claimMappings.groups"));
        let uid = uid.and_then(|uid| compiler.claim_source(uid, "claimMappings.uid"));
        let mut extra = Vec::new();
        for (key, source) in &issuer.extra {
            let expression = compiler.expression(source, "claims", &format!("claimMappings.extra[{key}]"));
            extra.extend(expression.map(|expression| (key.clone(), expression)));
        }
        let mut user_rules = Vec::new();
        for (index, (source, message)) in issuer.user_validation.iter().enumerate() {
            let expression = compiler.expression(source, "user", &format!("userValidationRules[{index}]"));
            user_rules.extend(expression.map(|expression| (expression, message_or(message, source))));
        }
        compiler.check_email(username.as_ref(), &claim_rules, &extra);
        if findings.iter().skip(before).any(Diagnostic::is_error) {
            return None;
        }
        Some(Self {
            claim_rules,
            username: username?,
            groups,
            uid,
            extra,
            user_rules,
            profile,
            allowed_reserved: issuer.allowed_reserved_names.clone(),
        })
    }

    /// Applies every rule, in Kubernetes' order.
    pub(super) fn apply(&self, claims: &Map<String, Value>) -> Result<Identity, Error> {
        let value = Value::Object(claims.clone());
        self.check_claims(claims, &value)?;
        let name = |source: &ClaimSource, field| {
            let name = source.name(claims, &value, field)?;
            self.check_name(&name, field)?;
            Ok::<_, Error>(name)
        };
        let username = name(&self.username, IdentityField::Username)?;
        let groups = self.groups.as_ref().map(|groups| groups.names(claims, &value));
        let mut groups = groups.transpose()?.unwrap_or_default();
        groups.retain(|group| !group.is_empty());
        for group in &groups {
            self.check_name(group, IdentityField::Groups)?;
        }
        let uid = self.uid.as_ref().map(|uid| name(uid, IdentityField::Uid)).transpose()?;
        let mut extra = Vec::new();
        for (key, expression) in &self.extra {
            let values = expression
                .eval_strings(&[("claims", &value)])
                .map_err(|_| InvalidTokenReason::Mapping(IdentityField::Extra))?;
            let values: Vec<String> = values.into_iter().filter(|value| !value.is_empty()).collect();
            // As in Kubernetes, an empty value is the same as none.
            if !values.is_empty() {
                extra.push((key.clone(), values));
            }
        }
        let mapped = Identity {
            username,
            groups,
            uid,
            extra,
        };
        self.check_user(&mapped)?;
        Ok(mapped)
    }

    /// Applies `claimValidationRules` alone.
    ///
    /// - `value`: the same claims as a value for expressions.
    pub(super) fn check_claims(&self, claims: &Map<String, Value>, value: &Value) -> Result<(), InvalidTokenReason> {
        self.claim_rules.iter().try_for_each(|rule| rule.check(claims, value))
    }

    /// Whether the settings list the name, so that a user of this issuer may have it although it
    /// is somebody else's.
    pub(super) fn allows_reserved(&self, name: &str) -> bool {
        self.allowed_reserved.iter().any(|allowed| allowed == name)
    }

    /// SECURITY: the resulting name is checked, regardless of what made it. A literal in an
    /// expression says what the name may be compared with, not who may get it.
    fn check_name(&self, name: &str, field: IdentityField) -> Result<(), InvalidTokenReason> {
        check_characters(name, field)?;
        if self.profile.reserves(name, field) && !self.allows_reserved(name) {
            return Err(InvalidTokenReason::ReservedName(field));
        }
        Ok(())
    }

    fn check_user(&self, mapped: &Identity) -> Result<(), InvalidTokenReason> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let Identity {
            username,
            groups,
            uid,
            extra,
        } = mapped;
        let extra: Map<String, Value> = extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        let uid = uid.as_deref().unwrap_or_default();
        let user = json!({ "username": username, "uid": uid, "groups": groups, "extra": extra });
        for (expression, message) in &self.user_rules {
            // An error refuses as `false` does.
            if expression.eval_bool(&[("user", &user)]) != Ok(true) {
                return Err(InvalidTokenReason::UserRule(message.clone()));
            }
        }
        Ok(())
    }
}

impl Rule {
    fn check(&self, claims: &Map<String, Value>, value: &Value) -> Result<(), InvalidTokenReason> {
        let (holds, message) = match self {
            Self::Required { claim, value } => (
                claims.get(claim).and_then(Value::as_str) == Some(value),
                format!("`{claim}` must be `{value}`"),
            ),
            Self::Expression(expression, message) => {
                (expression.eval_bool(&[("claims", value)]) == Ok(true), message.clone())
            }
        };
        holds.then_some(()).ok_or(InvalidTokenReason::ClaimRule(message))
    }
}

impl ClaimSource {
    fn name(
        &self,
        claims: &Map<String, Value>,
        value: &Value,
        field: IdentityField,
    ) -> Result<String, InvalidTokenReason> {
        let name = match self {
            Self::Claim { claim, prefix } => {
                let found = string_claim(claims, claim);
                if found.is_empty() {
                    return Err(InvalidTokenReason::missing(claim));
                }
                if field == IdentityField::Username && claim == EMAIL {
                    check_email_verified(claims)?;
                }
                format!("{prefix}{found}")
            }
            Self::Expression(expression) => expression
                .eval_string(&[("claims", value)])
                .map_err(|_| InvalidTokenReason::Mapping(field))?,
        };
        if name.is_empty() {
            return Err(InvalidTokenReason::Mapping(field));
        }
        Ok(name)
    }

    fn names(&self, claims: &Map<String, Value>, value: &Value) -> Result<Vec<String>, Error> {
        let field = IdentityField::Groups;
        match self {
            Self::Claim { claim, prefix } => {
                let names = group_claim(claims, claim)?.into_iter().filter(|name| !name.is_empty());
                Ok(names.map(|name| format!("{prefix}{name}")).collect())
            }
            Self::Expression(expression) => {
                let names = expression.eval_strings(&[("claims", value)]);
                Ok(names.map_err(|_| InvalidTokenReason::Mapping(field))?)
            }
        }
    }
}

/// Refuses names that HTTP would alter: header parsers trim blanks at the edges, and a control
/// character ends or splits a field.
fn check_characters(name: &str, field: IdentityField) -> Result<(), InvalidTokenReason> {
    if name.chars().any(char::is_control) || name.trim() != name {
        return Err(InvalidTokenReason::Name(field));
    }
    Ok(())
}

/// As [`CompiledClaimMappings::check_name`], for issuers without mapping.
pub(super) fn check_unmapped_name(name: &str, field: IdentityField) -> Result<(), InvalidTokenReason> {
    check_characters(name, field)?;
    let is_free = !ValidationProfile::OpenIdConnect.reserves(name, field);
    is_free.then_some(()).ok_or(InvalidTokenReason::ReservedName(field))
}

impl ValidationProfile {
    /// Whether an issuer cannot give the name.
    fn reserves(self, name: &str, field: IdentityField) -> bool {
        let is_argocds = || match self {
            Self::Kubernetes => false,
            Self::OpenIdConnect => ARGOCD.iter().any(|prefix| name.starts_with(prefix)),
        };
        match field {
            IdentityField::Username => name.starts_with(SYSTEM) || is_argocds(),
            IdentityField::Groups => name.starts_with(SYSTEM),
            IdentityField::Uid | IdentityField::Extra => false,
        }
    }
}

/// As in Kubernetes: if the username is `email`, `email_verified` must be `true` if the token has
/// it.
pub(super) fn check_email_verified(claims: &Map<String, Value>) -> Result<(), InvalidTokenReason> {
    let is_verified = is_email_usable(claims);
    is_verified.then_some(()).ok_or(InvalidTokenReason::EmailNotVerified)
}

fn group_claim(claims: &Map<String, Value>, claim: &str) -> Result<Vec<String>, MalformedCredential> {
    let wrong = MalformedCredential::Claim("groups");
    match claims.get(claim) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(name)) => Ok(vec![name.clone()]),
        Some(Value::Array(names)) => names
            .iter()
            .map(|name| name.as_str().map(str::to_owned).ok_or(wrong.clone()))
            .collect(),
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(wrong),
    }
}

fn message_or(message: &str, source: &str) -> String {
    if message.is_empty() {
        format!("`{source}` is not true")
    } else {
        message.to_owned()
    }
}

struct Compiler<'a> {
    path: &'a str,
    findings: &'a mut Vec<Diagnostic>,
}

impl Compiler<'_> {
    fn claim_rules(&mut self, rules: &[ClaimRule]) -> Vec<Rule> {
        let mut compiled = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            compiled.extend(match rule {
                ClaimRule::Required { claim, value } => Some(Rule::Required {
                    claim: claim.clone(),
                    value: value.clone(),
                }),
                ClaimRule::Expression { expression, message } => {
                    let compiled = self.expression(expression, "claims", &format!("claimValidationRules[{index}]"));
                    compiled.map(|compiled| Rule::Expression(Box::new(compiled), message_or(message, expression)))
                }
            });
        }
        compiled
    }

    fn claim_source(&mut self, mapping: &ClaimMapping, key: &str) -> Option<ClaimSource> {
        match mapping {
            ClaimMapping::Claim { claim, prefix } => Some(ClaimSource::Claim {
                claim: claim.clone(),
                prefix: prefix.clone(),
            }),
            ClaimMapping::Expression(source) => {
                let compiled = self.expression(source, "claims", key)?;
                Some(ClaimSource::Expression(Box::new(compiled)))
            }
        }
    }

    fn expression(&mut self, source: &str, variable: &str, key: &str) -> Option<Expression> {
        let compiled = Expression::compile(source, &[variable]);
        let finding = |error| Diagnostic::error(None, format!("`{}.{key}`: {error}", self.path));
        compiled.map_err(|error| self.findings.push(finding(error))).ok()
    }

    /// Kubernetes: a username from `claims.email` needs `claims.email_verified`
    /// in one of three places.
    fn check_email(&mut self, username: Option<&ClaimSource>, rules: &[Rule], extra: &[(String, Expression)]) {
        let Some(ClaimSource::Expression(expression)) = username else {
            return;
        };
        if !expression.mentions("claims", "email") {
            return;
        }
        let is_checked = |expression: &Expression| expression.mentions("claims", "email_verified");
        let in_rules = rules.iter().any(|rule| match rule {
            Rule::Required { .. } => false,
            Rule::Expression(expression, _) => is_checked(expression),
        });
        if !in_rules && !extra.iter().any(|(_, extra)| is_checked(extra)) && !is_checked(expression) {
            let key = format!("{}.claimMappings.username", self.path);
            let message = format!("`{key}` uses `claims.email` and nothing looks at `claims.email_verified`");
            let hint = "add a claim validation rule such as `claims.email_verified == true`";
            self.findings.push(Diagnostic::error(None, message).with_hint(hint));
        }
    }
}
