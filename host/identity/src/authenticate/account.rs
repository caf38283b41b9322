//! Argo CD's local accounts, read from `argocd-cm` and `argocd-secret`, as far as verifying
//! their tokens needs them.
//!
//! Security: [`Accounts`] holds no password hash, and no account whose settings cannot be read.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::ExposeSecret;
use serde::Deserialize;

use super::error::RevocationReason;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::{Resources, Secret};

const ADMIN: &str = "admin";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Capability {
    /// Sessions of people.
    Login,
    /// Tokens made by `argocd account generate-token`.
    ApiKey,
}

#[derive(Debug, Default)]
struct Account {
    state: AccountState,
    capabilities: BTreeSet<Capability>,
    /// Seconds since 1970; tokens issued before are revoked.
    password_changed_at: Option<i64>,
    /// `jti` of the API keys in force.
    tokens: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AccountState {
    #[default]
    Enabled,
    Disabled,
    /// A setting cannot be read, so the account is locked.
    Unreadable,
}

/// One entry of `accounts.<name>.tokens`.
#[derive(Deserialize)]
struct IssuedToken {
    #[serde(default)]
    id: String,
}

/// All local accounts by name, `admin` among them.
#[derive(Debug)]
pub(super) struct Accounts(BTreeMap<String, Account>);

impl Accounts {
    /// Reads the accounts (Argo CD, `util/settings/accounts.go`).
    ///
    /// Unlike in Argo CD, a value that cannot be read neither breaks all accounts nor falls back
    /// to "enabled": it locks that one account.
    pub(super) fn read(resources: &Resources, findings: &mut Vec<Diagnostic>) -> Self {
        let admin = Account {
            capabilities: BTreeSet::from([Capability::Login]),
            ..Account::default()
        };
        let mut accounts = Self(BTreeMap::from([(ADMIN.to_owned(), admin)]));
        accounts.read_config_map(resources, findings);
        if let Some(secret) = resources.secrets.get(super::argocd_token::SECRET_NAME) {
            // The Secret alone makes no account.
            for (name, account) in &mut accounts.0 {
                account.read_secret(name, secret, findings);
            }
        }
        accounts
    }

    /// Whether a token of `name` still counts.
    ///
    /// - `capability`: what the token was issued for.
    /// - `id`: its `jti`; `issued_at`: its `iat`, seconds since 1970.
    pub(super) fn check(
        &self,
        name: &str,
        capability: Capability,
        id: &str,
        issued_at: i64,
    ) -> Result<(), RevocationReason> {
        let account = self.0.get(name).ok_or(RevocationReason::NoAccount)?;
        match account.state {
            AccountState::Enabled => {}
            AccountState::Disabled => return Err(RevocationReason::AccountDisabled),
            AccountState::Unreadable => return Err(RevocationReason::NoAccount),
        }
        if !account.capabilities.contains(&capability) {
            return Err(RevocationReason::NoCapability);
        }
        if capability == Capability::ApiKey && !account.tokens.contains(id) {
            return Err(RevocationReason::NotListed);
        }
        if account.password_changed_at.is_some_and(|changed| issued_at < changed) {
            return Err(RevocationReason::PasswordChanged);
        }
        Ok(())
    }

    fn read_config_map(&mut self, resources: &Resources, findings: &mut Vec<Diagnostic>) {
        for (key, text) in &resources.argocd_cm.data {
            let parts: Vec<&str> = key.split('.').collect();
            let mut unreadable = |what: &str| {
                let message = format!("`{key}` {what}, the account is locked");
                findings.push(Diagnostic::warning(text.location.clone(), message));
            };
            match parts.as_slice() {
                ["admin", "enabled"] => self.enable(ADMIN, &text.value, unreadable),
                ["accounts", name, "enabled"] => self.enable(name, &text.value, unreadable),
                ["accounts", name] => {
                    let capabilities = &mut self.account(name).capabilities;
                    for word in text.value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
                        capabilities.extend(match word {
                            "login" => Some(Capability::Login),
                            "apiKey" => Some(Capability::ApiKey),
                            _ => {
                                let message =
                                    format!("`{key}`: capability `{word}` is unknown, known are `login` and `apiKey`");
                                findings.push(Diagnostic::warning(text.location.clone(), message));
                                None
                            }
                        });
                    }
                }
                ["accounts", name, ..] => {
                    self.account(name).state = AccountState::Unreadable;
                    unreadable("is no account setting");
                }
                _ => {}
            }
        }
    }

    /// If several keys set it for an account, one `false` is enough.
    fn enable(&mut self, name: &str, value: &str, unreadable: impl FnOnce(&str)) {
        let account = self.account(name);
        match (go_bool(value), account.state) {
            (_, AccountState::Unreadable) | (Some(true), AccountState::Enabled | AccountState::Disabled) => {}
            (Some(false), AccountState::Enabled | AccountState::Disabled) => account.state = AccountState::Disabled,
            (None, AccountState::Enabled | AccountState::Disabled) => {
                account.state = AccountState::Unreadable;
                unreadable("is neither `true` nor `false`");
            }
        }
    }

    fn account(&mut self, name: &str) -> &mut Account {
        self.0.entry(name.to_owned()).or_default()
    }
}

impl Account {
    fn read_secret(&mut self, name: &str, secret: &Secret, findings: &mut Vec<Diagnostic>) {
        let prefix = if name == ADMIN {
            ADMIN.to_owned()
        } else {
            format!("accounts.{name}")
        };
        let value = |suffix: &str| {
            let key = format!("{prefix}.{suffix}");
            let value = secret.values.get(&key)?.expose_secret().trim().to_owned();
            (!value.is_empty()).then_some((key, value))
        };
        let mut lock = |key: &str, expected: &str| {
            let message = format!("`{key}` is not {expected}, the account is locked");
            findings.push(Diagnostic::warning(secret.location.clone(), message));
            AccountState::Unreadable
        };
        if let Some((key, time)) = value("passwordMtime") {
            match time.parse::<jiff::Timestamp>() {
                Ok(time) => {
                    // `iat` has whole seconds. Rounded up, the time compares with it as the exact one does.
                    let fraction = i64::from(time.subsec_nanosecond() > 0);
                    self.password_changed_at = Some(time.as_second().saturating_add(fraction));
                }
                Err(_) => self.state = lock(&key, "a time in RFC 3339"),
            }
        }
        if let Some((key, tokens)) = value("tokens") {
            // Go writes a nil list as `null`.
            match serde_json::from_str::<Option<Vec<IssuedToken>>>(&tokens) {
                Ok(tokens) => {
                    let ids = tokens.into_iter().flatten().map(|token| token.id);
                    self.tokens = ids.filter(|id| !id.is_empty()).collect();
                }
                Err(_) => self.state = lock(&key, "a JSON list of tokens"),
            }
        }
    }
}

/// The words Go's `strconv.ParseBool` knows.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
