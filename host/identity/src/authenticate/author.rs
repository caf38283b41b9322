//! The signed statements of who wrote an ApplicationSet: annotations of the set, by which the
//! admission webhook judges what Argo CD's controller generates from it later. One names a person, the
//! other the Application that deployed the set.
//!
//! A statement is a JWS (RFC 7515) with HMAC-SHA256. It names the writer, the set and a digest of
//! the set's `spec`, so it is worth nothing beside another set or another spec. It does not expire:
//! what the writer may write is judged anew each time.
//!
//! Security: the keys are derived from Argo CD's signing key, so that no statement is a session of
//! Argo CD, no session a statement, and no statement one of the other kind. A statement is not secret:
//! it has names and groups, and no token.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::argocd_token::{SECRET_NAME, SIGNING_KEY};
use super::issuer::name_claims;
use super::principal::{CredentialTransport, Principal, VerifiedIdentity};
use crate::revoked_tokens::TokenIds;
use tollgate_core::principal::Kind;
use tollgate_core::user::Identity;
use tollgate_objects::{ObjectName, Resources};

/// What a derived key is for (NIST SP 800-108, label).
const AUTHOR: &[u8] = b"tollgate.dev/author";
const PARENT: &[u8] = b"tollgate.dev/parent";

/// `iss` of users of the control plane's cluster.
pub const KUBERNETES_ISSUER: &str = "kubernetes";

/// Signs and verifies statements.
#[derive(derive_more::Debug)]
#[debug("AuthorKey")]
pub struct AuthorKey {
    author: KeyPair,
    parent: KeyPair,
}

struct KeyPair {
    sign: EncodingKey,
    verify: DecodingKey,
}

/// The Application that deployed a set, and its project at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployedBy {
    /// Namespace and name.
    pub application: ObjectName,
    /// `spec.project`.
    pub project: String,
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
    #[error("its statement of who wrote it is not signed by this gateway")]
    Signature,
    /// It is about another set.
    #[error("its statement of who wrote it is about another ApplicationSet")]
    OtherSet,
    /// The spec was changed after it was signed.
    #[error("its spec is not the one that was signed")]
    OtherSpec,
}

/// What is signed: the set, and who wrote it.
#[derive(Debug, Serialize, Deserialize)]
struct Statement<W> {
    /// `namespace/name` of the set.
    set: String,
    /// SHA-256 of the spec, in Base64 for URLs.
    spec: String,
    /// When it was signed, in seconds since 1970.
    iat: i64,
    #[serde(flatten)]
    writer: W,
}

#[derive(Debug, Serialize, Deserialize)]
struct Person {
    kind: String,
    iss: String,
    sub: String,
    name: String,
    groups: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Parent {
    application_namespace: String,
    application: String,
    project: String,
}

impl KeyPair {
    fn derive(key: &str, purpose: &[u8]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), purpose);
        Self {
            sign: EncodingKey::from_secret(derived.as_ref()),
            verify: DecodingKey::from_secret(derived.as_ref()),
        }
    }

    fn sign<W: Serialize>(&self, set: AuthoredSet<'_>, writer: W, now: i64) -> Option<String> {
        let statement = Statement {
            set: set.full_name(),
            spec: set.digest(),
            iat: now,
            writer,
        };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &statement, &self.sign).ok()
    }

    fn verify<W: DeserializeOwned>(&self, set: AuthoredSet<'_>, statement: &str) -> Result<W, AuthorError> {
        let mut rules = Validation::new(Algorithm::HS256);
        // A statement has neither `exp`, which the library requires by default, nor `aud`.
        rules.validate_exp = false;
        rules.validate_aud = false;
        rules.set_required_spec_claims::<&str>(&[]);
        let statement = jsonwebtoken::decode::<Statement<W>>(statement, &self.verify, &rules);
        let statement = statement.map_err(|_| AuthorError::Signature)?.claims;
        if statement.set != set.full_name() {
            return Err(AuthorError::OtherSet);
        }
        if statement.spec != set.digest() {
            return Err(AuthorError::OtherSpec);
        }
        Ok(statement.writer)
    }
}

impl AuthorKey {
    /// Derives the key from Argo CD's. `None` if `argocd-secret` has none.
    pub fn read(resources: &Resources) -> Option<Self> {
        let secret = resources.secrets.get(SECRET_NAME)?;
        let key = secret.values.get(SIGNING_KEY)?.expose_secret();
        if key.is_empty() {
            return None;
        }
        Some(Self {
            author: KeyPair::derive(key, AUTHOR),
            parent: KeyPair::derive(key, PARENT),
        })
    }

    /// The statement that `author` wrote the set as it is.
    ///
    /// - `now`: seconds since 1970.
    pub fn sign(&self, set: AuthoredSet<'_>, author: &Principal, now: i64) -> Option<String> {
        let person = Person {
            kind: author.kind().as_ref().to_owned(),
            iss: author.issuer().to_owned(),
            sub: author.user_id().to_owned(),
            name: author.username().to_owned(),
            groups: author.groups().to_vec(),
        };
        self.author.sign(set, person, now)
    }

    /// The statement that an Application deployed the set as it is.
    ///
    /// - `now`: seconds since 1970.
    pub fn sign_parent(&self, set: AuthoredSet<'_>, parent: &DeployedBy, now: i64) -> Option<String> {
        let parent = Parent {
            application_namespace: parent.application.namespace.clone(),
            application: parent.application.name.clone(),
            project: parent.project.clone(),
        };
        self.parent.sign(set, parent, now)
    }

    /// The Application that deployed the set as it is.
    ///
    /// # Errors
    /// [`AuthorError`]: no Application is known to have deployed it so.
    pub fn verify_parent(&self, set: AuthoredSet<'_>, statement: &str) -> Result<DeployedBy, AuthorError> {
        let parent: Parent = self.parent.verify(set, statement)?;
        Ok(DeployedBy {
            application: ObjectName {
                namespace: parent.application_namespace,
                name: parent.application,
            },
            project: parent.project,
        })
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
        let person: Person = self.author.verify(set, statement)?;
        let kind = person.kind.parse::<Kind>().map_err(|_| AuthorError::Signature)?;
        Ok(Arc::new(principal(
            kind,
            person.iss,
            person.sub,
            person.name,
            person.groups,
            scopes,
        )))
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
        principal(
            Kind::Kubernetes,
            KUBERNETES_ISSUER.to_owned(),
            username.to_owned(),
            username.to_owned(),
            groups.collect(),
            scopes,
        )
    }
}

fn principal(
    kind: Kind,
    issuer: String,
    user_id: String,
    username: String,
    groups: Vec<String>,
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
    use serde_json::Value;

    use super::{AUTHOR, AuthorError, AuthorKey, AuthoredSet, KeyPair, PARENT};
    use tollgate_objects::ObjectName;

    pub(in super::super) fn verify(statement: &str) -> Result<(), AuthorError> {
        let key = "a-key-of-the-fuzz-target";
        let key = AuthorKey {
            author: KeyPair::derive(key, AUTHOR),
            parent: KeyPair::derive(key, PARENT),
        };
        let name = ObjectName {
            namespace: "argocd".to_owned(),
            name: "a".to_owned(),
        };
        let set = AuthoredSet {
            name: &name,
            object: &Value::Null,
        };
        let parent = key.verify_parent(set, statement).map(drop);
        key.verify(set, statement, &[]).map(drop).or(parent)
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey, Header};
    use serde_json::{Value, json};

    use super::{AuthorError, AuthorKey, AuthoredSet, DeployedBy};
    use crate::authenticate::tests::resources_with;
    use crate::authenticate::{CredentialTransport, Principal};
    use tollgate_core::principal::Kind;
    use tollgate_objects::ObjectName;

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
    fn a_parent_is_known_as_long_as_set_and_spec_are_the_same_and_is_nobodys_author() {
        let (key, set) = (key(KEY), name("shop"));
        let object = json!({"spec": {"goTemplate": true}});
        let authored = AuthoredSet {
            name: &set,
            object: &object,
        };
        let parent = DeployedBy {
            application: name("root"),
            project: "platform".to_owned(),
        };
        let statement = key.sign_parent(authored, &parent, 7).unwrap();
        assert_eq!(key.verify_parent(authored, &statement), Ok(parent));
        assert_eq!(verify(&key, "shop", &object, &statement), Err(AuthorError::Signature));
        let author = key.sign(authored, &alice(), 7).unwrap();
        assert_eq!(key.verify_parent(authored, &author), Err(AuthorError::Signature));

        let changed = json!({"spec": {"goTemplate": false}});
        let changed = AuthoredSet {
            name: &set,
            object: &changed,
        };
        assert_eq!(key.verify_parent(changed, &statement), Err(AuthorError::OtherSpec));
        let other = name("other");
        let other = AuthoredSet {
            name: &other,
            object: &object,
        };
        assert_eq!(key.verify_parent(other, &statement), Err(AuthorError::OtherSet));
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
        // Argo CD's own key signs sessions, which a reader of the set must not forge.
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
