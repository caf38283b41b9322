//! Whom the gateway may act as in this cluster. The cluster's administrator says so in the agent's settings,
//! and the agent refuses the rest, so that a gateway that was taken over gets no further.
//!
//! Security: the agent never acts as a user or group of Kubernetes itself (`system:…`), regardless of the
//! settings, except as a service account that they list. RBAC has no way to say that: `impersonate` on users
//! is for all of them, or for a list of names.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use tollgate_core::attributes::Attributes;
use tollgate_core::glob::Pattern;
use tollgate_core::header_names::is_impersonation;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";

const SYSTEM: &str = "system:";
const ACCOUNT: &str = "system:serviceaccount:";
/// The group of all service accounts, and the prefix of those of a namespace.
const ACCOUNTS: &str = "system:serviceaccounts";
const AUTHENTICATED: &str = "system:authenticated";

/// Whom the gateway may act as.
#[derive(Debug, Default)]
pub struct AllowList {
    /// Usernames outside of `system:`.
    pub users: Vec<Pattern>,
    /// Groups outside of `system:`.
    pub groups: Vec<Pattern>,
    /// Service accounts, as `<namespace>:<name>`.
    pub service_accounts: Vec<Pattern>,
    /// Uids of users. Service accounts have none.
    pub uids: Vec<Pattern>,
    /// Keys of what is said about users besides. Service accounts have none.
    pub extras: Vec<Pattern>,
    /// What may be done as nobody else, with the agent's own account.
    pub own_account: OwnAccount,
}

/// What the gateway may do with the agent's own account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OwnAccount {
    /// Read what the API server serves (`/api`, `/apis`, `/openapi`, `/version`, health), and ask what the
    /// account may do.
    #[default]
    Discovery,
    /// Everything that the account may, for `access_as: agent`. That can include its key.
    Everything,
}

/// Why the agent refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The settings do not list it.
    #[error(
        "the connector of this cluster does not let the gateway act as {what} `{name}`: `impersonate.{key}` of its settings does not list it"
    )]
    NotListed {
        /// What it is.
        what: &'static str,
        /// Its name.
        name: String,
        /// The setting.
        key: &'static str,
    },
    /// It is of Kubernetes itself.
    #[error("the connector of this cluster lets nobody act as {what} `{name}`, which is Kubernetes' own")]
    System {
        /// What it is.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The request is about the agent's own account.
    #[error(
        "the connector of this cluster does not let the gateway do this with the connector's own account: `ownAccount` of its settings is `discovery`"
    )]
    OwnAccount,
    /// It names a user twice, none, or not in UTF-8.
    #[error("the request does not name one user to act as")]
    Malformed,
}

impl AllowList {
    /// Checks whom a request acts as.
    ///
    /// # Errors
    /// [`Refusal`], for the first thing found.
    pub fn check(&self, method: &Method, path: &str, fields: &HeaderMap) -> Result<(), Refusal> {
        if !fields.keys().any(|name| is_impersonation(name.as_str())) {
            return match self.own_account {
                OwnAccount::Everything => Ok(()),
                OwnAccount::Discovery if is_discovery(method, path) => Ok(()),
                OwnAccount::Discovery => Err(Refusal::OwnAccount),
            };
        }
        let mut users = fields.get_all(USER).iter().map(text);
        // Of two, the API server takes the first one, and another reader may take the last one.
        let (Some(user), None) = (users.next(), users.next()) else {
            return Err(Refusal::Malformed);
        };
        let user = user?;
        let account = user.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':'));
        match account {
            Some((namespace, name)) => {
                let name = format!("{namespace}:{name}");
                listed(&self.service_accounts, "service account", &name, "serviceAccounts")?;
            }
            None if user.is_empty() => return Err(Refusal::Malformed),
            None => plain(&self.users, "user", user, "users")?,
        }
        for group in fields.get_all(GROUP) {
            let group = text(group)?;
            // The API server puts every service account into these groups.
            let is_of_account = account.is_some_and(|(namespace, _)| {
                group == ACCOUNTS || group.strip_prefix(ACCOUNTS) == Some(&*format!(":{namespace}"))
            });
            if group != AUTHENTICATED && !is_of_account {
                plain(&self.groups, "group", group, "groups")?;
            }
        }
        self.check_attributes(account.is_some(), fields)
    }

    /// Checks what a request says about the user besides names. Policies of the cluster decide by it, such as
    /// those that tie an account to its node.
    fn check_attributes(&self, is_account: bool, fields: &HeaderMap) -> Result<(), Refusal> {
        const NONE: &[Pattern] = &[];
        let of_user = |patterns| if is_account { NONE } else { patterns };
        for (name, value) in fields.iter().filter(|(name, _)| is_impersonation(name.as_str())) {
            match name.as_str().strip_prefix(EXTRA) {
                // The API server decodes the key, and reads it in lower case.
                Some(key) => {
                    let key = percent_decode_str(key).decode_utf8().map_err(|_| Refusal::Malformed)?;
                    let key = key.to_lowercase();
                    listed(of_user(&self.extras), "the extra key", &key, "extras")?;
                }
                None if *name == UID => listed(of_user(&self.uids), "the uid", text(value)?, "uids")?,
                None if *name == USER || *name == GROUP => {}
                None => return Err(Refusal::Malformed),
            }
        }
        Ok(())
    }
}

fn text(value: &HeaderValue) -> Result<&str, Refusal> {
    std::str::from_utf8(value.as_bytes()).map_err(|_| Refusal::Malformed)
}

fn plain(patterns: &[Pattern], what: &'static str, name: &str, key: &'static str) -> Result<(), Refusal> {
    // The API server may ignore white space around a name.
    if name.trim_start().starts_with(SYSTEM) {
        let name = name.to_owned();
        return Err(Refusal::System { what, name });
    }
    listed(patterns, what, name, key)
}

fn listed(patterns: &[Pattern], what: &'static str, name: &str, key: &'static str) -> Result<(), Refusal> {
    match patterns.iter().any(|pattern| pattern.matches(name)) {
        true => Ok(()),
        false => Err(Refusal::NotListed {
            what,
            name: name.to_owned(),
            key,
        }),
    }
}

/// Paths of discovery and health, which RBAC gives to every account (`system:discovery`).
const DISCOVERY: [&str; 7] = ["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"];

/// Reviews of what the one who asks may do.
const REVIEWS: [&str; 2] = [
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
];

// SECURITY: the API server decodes the path once before it routes and authorizes, so an encoded slash separates
// segments there. The path is read as it reads it.
fn is_discovery(method: &Method, path: &str) -> bool {
    let Attributes {
        path, resource_request, ..
    } = Attributes::read(method, path, None, None);
    if *method == Method::POST {
        return REVIEWS.contains(&&*path);
    }
    if *method != Method::GET || resource_request {
        return false;
    }
    let path = path.strip_suffix('/').unwrap_or(&path);
    let mut segments = path.split('/').skip(1);
    if segments.any(|segment| matches!(segment, "" | "." | "..") || segment.contains('\\')) {
        return false;
    }
    let is_below = |root: &str| {
        let rest = path.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match DISCOVERY.into_iter().find(|root| is_below(root)) {
        None => false,
        // Documents of groups and versions, and no objects: `/api/v1`, `/apis/apps`, `/apis/apps/v1`.
        Some("/api") => path.split('/').count() <= 3,
        Some("/apis") => path.split('/').count() <= 4,
        Some("/version") => path == "/version",
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Method};

    use super::{AllowList, OwnAccount, Refusal};
    use tollgate_core::glob::Pattern;

    fn list() -> AllowList {
        let patterns = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| Pattern::compile_exact(text, &[]).unwrap())
                .collect()
        };
        AllowList {
            users: patterns(&["*@corp.example"]),
            groups: patterns(&["corp:*", "*"]),
            service_accounts: patterns(&["shop:*"]),
            uids: patterns(&["u-*"]),
            extras: patterns(&["agent.gitlab.com/*"]),
            own_account: OwnAccount::Discovery,
        }
    }

    fn check(fields: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::try_from(*value).unwrap(),
            );
        }
        list().check(&Method::GET, "/api/v1/pods", &map)
    }

    #[test]
    fn only_who_is_listed_is_acted_as() {
        let user = ("Impersonate-User", "ann@corp.example");
        assert_eq!(check(&[user]), Ok(()));
        assert_eq!(
            check(&[
                user,
                ("Impersonate-Group", "corp:dev"),
                ("Impersonate-Group", "system:authenticated")
            ]),
            Ok(())
        );
        assert_eq!(
            check(&[
                ("Impersonate-User", "system:serviceaccount:shop:deployer"),
                ("Impersonate-Group", "system:serviceaccounts:shop"),
                ("Impersonate-Group", "system:serviceaccounts")
            ]),
            Ok(())
        );
        assert_eq!(
            check(&[
                user,
                ("Impersonate-Uid", "u-1"),
                ("Impersonate-Extra-agent.gitlab.com%2Fid", "9999"),
                ("Impersonate-Extra-Agent.GitLab.com%2fusername", "ann"),
            ]),
            Ok(())
        );
        for refused in [
            &[("Impersonate-User", "ann@other.example")][..],
            &[("Impersonate-User", "system:admin@corp.example")],
            &[("Impersonate-User", " system:admin@corp.example")],
            &[("Impersonate-User", "system:serviceaccount:kube-system:deployer")],
            &[("Impersonate-User", "system:serviceaccount:shop")],
            &[user, user],
            &[("Impersonate-User", "")],
            &[user, ("Impersonate-Group", "system:masters")],
            &[user, ("Impersonate-Group", "system:serviceaccounts:shop")],
            &[
                ("Impersonate-User", "system:serviceaccount:shop:deployer"),
                ("Impersonate-Group", "system:serviceaccounts:kube-system"),
            ],
            &[user, ("Impersonate-Uid", "1")],
            &[user, ("Impersonate-Uid", "u-1"), ("Impersonate-Uid", "1")],
            &[
                user,
                ("Impersonate-Extra-scopes.authorization.openshift.io", "user:full"),
            ],
            &[
                user,
                ("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", "n"),
            ],
            &[user, ("Impersonate-Extra-%ff", "n")],
            &[user, ("Impersonate-Other", "n")],
            &[
                ("Impersonate-User", "system:serviceaccount:shop:deployer"),
                ("Impersonate-Extra-agent.gitlab.com%2Fid", "1"),
            ],
            &[
                ("Impersonate-User", "system:serviceaccount:shop:deployer"),
                ("Impersonate-Uid", "u-1"),
            ],
            // Without a user, the request would be the agent's own.
            &[("Impersonate-Group", "corp:dev")],
            &[("Impersonate-Uid", "1")],
            &[("Impersonate-Extra-a", "b")],
        ] {
            assert!(check(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn with_its_own_account_the_agent_tells_what_there_is_and_no_more() {
        let own = |method: Method, path: &str| list().check(&method, path, &HeaderMap::new());
        for path in [
            "/version",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps/v1",
            "/openapi/v3/apis/apps/v1",
            "/readyz/ping",
            "/apis/",
            "/api%2Fv1",
            "/openapi/v3%2Fapis/apps%2fv1",
        ] {
            assert_eq!(own(Method::GET, path), Ok(()), "{path}");
        }
        for path in [
            "/api/v1/secrets",
            "/apis/apps/v1/deployments",
            "/metrics",
            "/logs",
            "/",
            "/apiserver",
            "/version/a",
            "/api/v1/namespaces/tollgate/secrets/key",
            "/api/v1%2Fsecrets",
            "/api%2fv1%2fsecrets",
            "/%61pi/v1%2Fnamespaces%2Ftollgate%2Fsecrets%2Fkey",
            "/apis/apps/v1%2Fdeployments",
            "/openapi/..%2fapi/v1/secrets",
            "/openapi/%2e%2e/api/v1/secrets",
            "/openapi/../api/v1/secrets",
            "/openapi/.%2E/api",
            "/healthz//api",
            "/healthz/..%5Capi",
            "//api/v1",
        ] {
            assert_eq!(own(Method::GET, path), Err(Refusal::OwnAccount), "{path}");
        }
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert_eq!(own(Method::POST, review), Ok(()));
        assert_eq!(own(Method::POST, "/api/v1/namespaces"), Err(Refusal::OwnAccount));
        assert_eq!(own(Method::DELETE, "/version"), Err(Refusal::OwnAccount));
    }
}
