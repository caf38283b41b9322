//! The signed statement of who wrote an ApplicationSet: an annotation of the set, by which the
//! admission webhook judges what Argo CD's controller generates from it later.
//!
//! The statement is a JWS (RFC 7515) with HMAC-SHA256. It names the author, the set and a digest of
//! the set's `spec`, so it is worth nothing beside another set or another spec. It does not expire:
//! what the author may write is judged anew each time.
//!
//! Security: the key is derived from Argo CD's signing key, so that no statement is a session of
//! Argo CD, and no session a statement. A statement is not secret: it has names and groups, and no
//! token.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::argocd_token::{SECRET_NAME, SIGNING_KEY};
use super::issuer::name_claims;
use super::principal::{CredentialTransport, Principal, VerifiedIdentity};
use crate::revoked_tokens::TokenIds;
use tollgate_core::principal::Kind;
use tollgate_core::user::Identity;
use tollgate_state::{ObjectName, Resources};

/// What the derived key is for (NIST SP 800-108, label).
const PURPOSE: &[u8] = b"tollgate.dev/author";

/// `iss` of users of the control plane's cluster.
pub const KUBERNETES_ISSUER: &str = "kubernetes";

/// Signs and verifies statements.
#[derive(derive_more::Debug)]
#[debug("AuthorKey")]
pub struct AuthorKey {
    sign: EncodingKey,
    verify: DecodingKey,
}

/// The set that a statement is about.
#[derive(Clone, Copy, Debug)]
pub struct AuthoredSet<'a> {
    /// Its namespace and name.
    pub name: &'a ObjectName,
    /// The whole object.
    pub object: &'a Value,
}

/// Why a statement says nothing about a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorError {
    /// It is not signed with the key, or cannot be read.
    #[error("its statement of the author is not signed by this gateway")]
    Signature,
    /// It is about another set.
    #[error("its statement of the author is about another ApplicationSet")]
    OtherSet,
    /// The spec was changed after it was signed.
    #[error("its spec is not the one that its author signed")]
    OtherSpec,
}

#[derive(Debug, Serialize, Deserialize)]
struct Statement {
    /// `namespace/name` of the set.
    set: String,
    /// SHA-256 of the spec, in Base64 for URLs.
    spec: String,
    /// When it was signed, in seconds since 1970.
    iat: i64,
    kind: String,
    iss: String,
    sub: String,
    name: String,
    groups: Vec<String>,
}

impl AuthorKey {
    /// Derives the key from Argo CD's. `None` if `argocd-secret` has none.
    pub fn read(resources: &Resources) -> Option<Self> {
        let secret = resources.secrets.get(SECRET_NAME)?;
        let key = secret.values.get(SIGNING_KEY)?.expose_secret();
        if key.is_empty() {
            return None;
        }
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), PURPOSE);
        Some(Self {
            sign: EncodingKey::from_secret(derived.as_ref()),
            verify: DecodingKey::from_secret(derived.as_ref()),
        })
    }

    /// The statement that `author` wrote the set as it is.
    ///
    /// - `now`: seconds since 1970.
    pub fn sign(&self, set: AuthoredSet<'_>, author: &Principal, now: i64) -> Option<String> {
        let statement = Statement {
            set: set.full_name(),
            spec: set.digest(),
            iat: now,
            kind: author.kind().as_ref().to_owned(),
            iss: author.issuer().to_owned(),
            sub: author.user_id().to_owned(),
            name: author.username().to_owned(),
            groups: author.groups().to_vec(),
        };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &statement, &self.sign).ok()
    }

    /// The author of the set, with the names and groups of the time at which it was signed.
    ///
    /// - `scopes`: claims in which Argo CD's RBAC finds groups.
    ///
    /// # Errors
    /// [`AuthorError`]: the author is unknown.
    pub fn verify(
        &self,
        set: AuthoredSet<'_>,
        statement: &str,
        scopes: &[String],
    ) -> Result<Arc<Principal>, AuthorError> {
        let mut rules = Validation::new(Algorithm::HS256);
        rules.validate_exp = false;
        rules.validate_aud = false;
        rules.set_required_spec_claims::<&str>(&[]);
        let statement = jsonwebtoken::decode::<Statement>(statement, &self.verify, &rules);
        let statement = statement.map_err(|_| AuthorError::Signature)?.claims;
        if statement.set != set.full_name() {
            return Err(AuthorError::OtherSet);
        }
        if statement.spec != set.digest() {
            return Err(AuthorError::OtherSpec);
        }
        let kind = statement.kind.parse::<Kind>().map_err(|_| AuthorError::Signature)?;
        let names = (statement.sub, statement.name, statement.groups);
        Ok(Arc::new(principal((kind, statement.iss), names, scopes)))
    }
}

impl AuthoredSet<'_> {
    fn full_name(&self) -> String {
        format!("{}/{}", self.name.namespace, self.name.name)
    }

    /// Keys are sorted, so that their order in the object does not matter.
    fn digest(&self) -> String {
        let spec = self.object.get("spec").unwrap_or(&Value::Null);
        URL_SAFE_NO_PAD.encode(Sha256::digest(spec.to_string()))
    }
}

impl Principal {
    /// A user of the control plane's cluster, whom its API server authenticated.
    ///
    /// - `scopes`: claims in which Argo CD's RBAC finds groups.
    ///
    /// SECURITY: a name that Argo CD gives to roles or to tokens of projects is nobody's there, so
    /// it does not count. Only the caller knows that an API server vouches for the names.
    pub fn of_kubernetes_user(username: &str, groups: &[String], scopes: &[String]) -> Self {
        let is_reserved = |name: &str| name.starts_with("role:") || name.starts_with("proj:");
        let username = if is_reserved(username) { "" } else { username };
        let groups = groups.iter().filter(|group| !is_reserved(group)).cloned();
        let names = (username.to_owned(), username.to_owned(), groups.collect());
        principal((Kind::Kubernetes, KUBERNETES_ISSUER.to_owned()), names, scopes)
    }
}

fn principal(
    (kind, issuer): (Kind, String),
    (user_id, username, groups): (String, String, Vec<String>),
    scopes: &[String],
) -> Principal {
    let mut claims = Map::from_iter(name_claims(&user_id, &groups, scopes));
    claims.insert("iss".to_owned(), issuer.as_str().into());
    let identity = VerifiedIdentity {
        kind,
        issuer,
        user_id,
        names: Identity {
            username,
            groups,
            ..Identity::default()
        },
        claims,
        expires_at: None,
        issued: None,
        token_ids: TokenIds::default(),
    };
    Principal::new(identity, CredentialTransport::Bearer)
}

#[cfg(any(test, feature = "fuzz"))]
pub(super) mod fuzz {
    use jsonwebtoken::{DecodingKey, EncodingKey};
    use serde_json::Value;

    use super::{AuthorError, AuthorKey, AuthoredSet};
    use tollgate_state::ObjectName;

    pub(in super::super) fn verify(statement: &str) -> Result<(), AuthorError> {
        let key = AuthorKey {
            sign: EncodingKey::from_secret(b"a-key-of-the-fuzz-target"),
            verify: DecodingKey::from_secret(b"a-key-of-the-fuzz-target"),
        };
        let name = ObjectName {
            namespace: "argocd".to_owned(),
            name: "a".to_owned(),
        };
        let set = AuthoredSet {
            name: &name,
            object: &Value::Null,
        };
        key.verify(set, statement, &[]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey, Header};
    use serde_json::{Value, json};

    use super::{AuthorError, AuthorKey, AuthoredSet};
    use crate::authenticate::tests::resources_with;
    use crate::authenticate::{CredentialTransport, Principal};
    use tollgate_core::principal::Kind;
    use tollgate_state::ObjectName;

    const KEY: &str = "a-key-of-argocd-0123456789";

    fn key(text: &str) -> AuthorKey {
        AuthorKey::read(&resources_with(&[], &[("server.secretkey", text)])).unwrap()
    }

    fn name(name: &str) -> ObjectName {
        ObjectName {
            namespace: "argocd".to_owned(),
            name: name.to_owned(),
        }
    }

    fn alice() -> Principal {
        let claims = json!({"iss": "https://issuer.example", "sub": "alice", "groups": ["dev"]});
        Principal::for_test(claims.as_object().unwrap().clone(), CredentialTransport::Bearer)
    }

    fn scopes() -> Vec<String> {
        vec!["groups".to_owned()]
    }

    fn verify(key: &AuthorKey, set: &str, object: &Value, statement: &str) -> Result<String, AuthorError> {
        let name = name(set);
        let author = key.verify(AuthoredSet { name: &name, object }, statement, &scopes())?;
        Ok(author.user_id().to_owned())
    }

    #[test]
    fn the_author_is_known_as_long_as_set_and_spec_are_the_same() {
        let (key, set) = (key(KEY), name("shop"));
        let object = json!({"spec": {"goTemplate": true, "generators": [{"list": {"elements": [1.5, "x"]}}]}});
        let statement = key
            .sign(
                AuthoredSet {
                    name: &set,
                    object: &object,
                },
                &alice(),
                7,
            )
            .unwrap();
        // Another order of keys, and other parts of the object, do not matter.
        let same = r#"{"metadata": {"labels": {"a": "b"}}, "spec": {"generators": [{"list": {"elements": [1.5, "x"]}}], "goTemplate": true}}"#;
        let same: Value = serde_json::from_str(same).unwrap();
        let authored = AuthoredSet {
            name: &set,
            object: &same,
        };
        let author = key.verify(authored, &statement, &scopes()).unwrap();
        assert_eq!(
            (author.kind(), author.issuer(), author.user_id(), author.groups()),
            (Kind::Oidc, "https://issuer.example", "alice", &["dev".to_owned()][..])
        );
        assert_eq!(author.claims()["groups"], json!(["dev"]));

        let mut changed = object.clone();
        changed["spec"]["generators"][0]["list"]["elements"][1] = json!("y");
        assert_eq!(verify(&key, "shop", &changed, &statement), Err(AuthorError::OtherSpec));
        assert_eq!(
            verify(&key, "shop", &json!({}), &statement),
            Err(AuthorError::OtherSpec)
        );
        assert_eq!(verify(&key, "other", &object, &statement), Err(AuthorError::OtherSet));
    }

    #[test]
    fn only_this_key_signs() {
        let (ours, set) = (key(KEY), name("shop"));
        let object = json!({"spec": {}});
        let authored = AuthoredSet {
            name: &set,
            object: &object,
        };
        let foreign = key("another-key-of-argocd-0123456789")
            .sign(authored, &alice(), 7)
            .unwrap();
        let genuine = ours.sign(authored, &alice(), 7).unwrap();
        let claims = jsonwebtoken::dangerous::insecure_decode::<Value>(&genuine)
            .unwrap()
            .claims;
        let by = |key: &[u8], algorithm| {
            jsonwebtoken::encode(&Header::new(algorithm), &claims, &EncodingKey::from_secret(key)).unwrap()
        };
        // Argo CD's own key signs sessions, which whoever may read the set must not forge.
        let statements = [
            foreign,
            by(KEY.as_bytes(), Algorithm::HS256),
            by(b"", Algorithm::HS256),
            format!("{}.", genuine.rsplit_once('.').unwrap().0),
            String::new(),
        ];
        for statement in statements {
            assert_eq!(
                verify(&ours, "shop", &object, &statement),
                Err(AuthorError::Signature),
                "{statement}"
            );
        }
        assert_eq!(verify(&ours, "shop", &object, &genuine).as_deref(), Ok("alice"));
    }

    #[test]
    fn names_of_roles_and_of_project_tokens_do_not_count_for_users_of_a_cluster() {
        let groups = ["dev", "role:admin", "proj:shop:ci"].map(str::to_owned);
        let user = Principal::of_kubernetes_user("role:admin", &groups, &scopes());
        assert_eq!((user.user_id(), user.groups()), ("", &["dev".to_owned()][..]));
        let user = Principal::of_kubernetes_user("alice", &groups, &["sub".to_owned(), "teams".to_owned()]);
        assert_eq!((user.user_id(), user.issuer()), ("alice", "kubernetes"));
        assert_eq!(user.claims()["teams"], json!(["dev"]));
        assert_eq!(user.claims()["sub"], "alice");
    }
}
